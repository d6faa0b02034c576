// SPDX-License-Identifier: Apache-2.0
#include "launch_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/memory/storage.h"
#include "tessera/ir/node.h"

namespace tessera::app {
namespace {

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr std::uint64_t largest = std::uint64_t{1} << 48;
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > largest) return std::nullopt;
  return value;
}

std::array<std::uint64_t, 3> grid_of(const std::string& text) {
  std::array<std::uint64_t, 3> grid = {1, 1, 1};
  std::string_view rest = text;
  for (std::size_t d = 0;; ++d) {
    const std::size_t comma = rest.find(',');
    const auto extent = whole_number(rest.substr(0, comma));
    if (d == grid.size() || !extent || *extent == 0)
      fail<ArgumentError>({.operation = "kernel",
                           .wrong = fmt::format("--grid {}: expected one to three positive integers", text),
                           .remedy = "Separate them by commas: --grid 64,64"});
    grid[d] = *extent;
    if (comma == rest.npos) return grid;
    rest.remove_prefix(comma + 1);
  }
}

bool has_size(const ir::Param& p) { return p.is_buffer || !is_float(p.dtype); }

/// Returns the sizes by name. Each parameter that has a size is in the result.
std::map<std::string, std::uint64_t, std::less<>> sizes_of(const ir::Function& function,
                                                           const std::vector<std::string>& texts) {
  std::map<std::string, std::uint64_t, std::less<>> sizes;
  const std::string remedy = "The kernel is " + signature(function);
  const auto reject = [&](const std::string& wrong) {
    fail<ArgumentError>({.operation = "kernel", .wrong = wrong, .remedy = remedy});
  };
  for (const std::string& text : texts) {
    const std::size_t equals = std::min(text.find('='), text.size());
    const std::string name = text.substr(0, equals);
    const auto value = whole_number(std::string_view(text).substr(std::min(equals + 1, text.size())));
    if (!value) reject(fmt::format("--size {}: expected NAME=NUMBER", text));
    if (std::ranges::none_of(function.params, [&](const ir::Param& p) { return p.name == name && has_size(p); }))
      reject(fmt::format("--size {}: the kernel has no buffer or integer with this name", text));
    if (!sizes.emplace(name, *value).second) reject(fmt::format("--size {}: {} has two sizes", text, name));
  }
  std::vector<std::string> missing;
  for (const ir::Param& p : function.params)
    if (has_size(p) && !sizes.contains(p.name)) missing.push_back(p.name + "=...");
  if (!missing.empty()) reject(fmt::format("sizes are missing: --size {}", fmt::join(missing, ",")));
  return sizes;
}

}  // namespace

KernelReport report_launch(const ir::Function& function, const LaunchSizes& given, const ReportTarget& target) {
  const auto grid = grid_of(given.grid);
  const auto sizes = sizes_of(function, given.sizes);
  return report_launches(target,
                         [&](Device gpu) {
                           std::vector<LaunchArgument> arguments;
                           for (const ir::Param& p : function.params) {
                             const std::uint64_t size = has_size(p) ? sizes.find(p.name)->second : 0;
                             if (p.is_buffer)
                               arguments.emplace_back(
                                   BufferView{Storage::allocate(gpu, size * dtype_size(p.dtype)), 0, size, p.dtype});
                             else
                               arguments.emplace_back(p.dtype, size);
                           }
                           Kernel(function).launch(grid, arguments);
                         })
      .at(0);
}

}  // namespace tessera::app
