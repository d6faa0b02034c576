// SPDX-License-Identifier: Apache-2.0
#include "tessera/kernel/launch.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ir/semantics.h"

namespace tessera {

void Extent::refuse(const std::string& kernel) const {
  const auto wrong = *std::ranges::find_if(size_, [](std::uint64_t n) { return static_cast<std::int64_t>(n) < 0; });
  fail<ArgumentError>({.operation = "launch " + kernel,
                       .with = {{"extent", std::to_string(static_cast<std::int64_t>(wrong))}},
                       .wrong = "an extent is negative"});
}

namespace detail {

namespace {
[[noreturn]] void out_of_range(const std::string& kernel, DType dtype, const std::string& value) {
  fail<ArgumentError>({.operation = "launch " + kernel,
                       .with = {{"argument", value}, {"parameter", std::string(dtype_name(dtype))}},
                       .wrong = "a scalar argument is out of the range of its parameter"});
}
}  // namespace

void check_whole_structs(const std::string& kernel, std::size_t number, const BufferView& view, std::uint64_t words) {
  if (view.dtype != DType::u32 || view.elements % words == 0) return;  // the launch reports a wrong dtype
  fail<KernelError>({.operation = "launch " + kernel,
                     .wrong = "argument " + std::to_string(number + 1) + " (arg" + std::to_string(number) +
                              ") is a buffer of " + std::to_string(view.bytes()) +
                              " bytes, which is not a whole number of structs of " + std::to_string(4 * words) +
                              " bytes",
                     .remedy = "Pass a DeviceBuffer of the struct, or a view of whole structs"});
}

LaunchArgument scalar_argument(const std::string&, DType dtype, double value) {
  return LaunchArgument::scalar(dtype, ir::to_bits(dtype, value));
}
LaunchArgument scalar_argument(const std::string& kernel, DType dtype, std::int64_t value) {
  if (is_int(dtype) && dtype != DType::index) {
    const std::uint64_t bits = ir::to_bits(dtype, value);
    if ((value < 0 && is_unsigned_int(dtype)) || static_cast<std::int64_t>(bits) != value)
      out_of_range(kernel, dtype, std::to_string(value));
  }
  return LaunchArgument::scalar(dtype, ir::to_bits(dtype, value));
}
LaunchArgument scalar_argument(const std::string& kernel, DType dtype, std::uint64_t value) {
  if (dtype == DType::u64) return LaunchArgument::scalar(dtype, value);
  if (!is_int(dtype) && dtype != DType::boolean) return scalar_argument(kernel, dtype, static_cast<double>(value));
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    out_of_range(kernel, dtype, std::to_string(value));
  return scalar_argument(kernel, dtype, static_cast<std::int64_t>(value));
}

void append_view(std::vector<LaunchArgument>& list, bool& rows, const std::string& kernel, std::size_t number, int rank,
                 const BufferView& memory, const Shape& shape, const Strides& strides, bool writes) {
  const auto refuse = [&](const char* wrong) {
    fail<ArgumentError>({.operation = "launch " + kernel,
                         .with = {{"argument", std::to_string(number + 1)},
                                  {"shape", to_string(shape)},
                                  {"strides", to_string(strides)},
                                  {"dimensions of the view", std::to_string(rank)}},
                         .wrong = wrong});
  };
  if (static_cast<int>(shape.size()) != rank) refuse("the array does not have as many dimensions as the kernel's view");
  list.emplace_back(memory);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (writes && shape[d] > 1 && strides[d] == 0)
      refuse("the kernel writes to this array, but elements along a dimension share memory");
    if (d + 1 == shape.size() && shape[d] > 1 && strides[d] != 1) rows = false;
    list.push_back(LaunchArgument::index(shape[d]));
    list.push_back(LaunchArgument::index(strides[d]));
  }
}

}  // namespace detail
}  // namespace tessera
