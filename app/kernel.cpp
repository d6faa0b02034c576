// SPDX-License-Identifier: Apache-2.0
// `tessera kernel`: lists the kernels of the operations, or prints one of them as IR or as source code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "arguments.h"
#include "command.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/node.h"
#include "tessera/ops/catalogue.h"

namespace tessera::app {
namespace {

struct KernelArguments {
  std::string name, source, device;
  bool ir = false;
};

std::string parameters(const ir::Function& fn) {
  std::string text;
  for (const auto& p : fn.params) {
    text += text.empty() ? "" : ", ";
    text +=
        fmt::format("{}{}", p.is_buffer ? "Buffer<" : "", p.is_buffer && p.access == ir::Access::read ? "const " : "");
    text += fmt::format("{}{} {}", dtype_name(p.dtype), p.is_buffer ? ">" : "", p.name);
  }
  return text;
}

void list(Device device, const std::vector<CatalogueKernel>& kernels) {
  std::size_t width = 0;
  for (const auto& k : kernels) width = std::max(width, k.name.size());
  app::print("{} kernels, as used by {}\n", kernels.size(), to_string(device));
  for (const auto& k : kernels) {
    const bool map = k.function.kind == ir::KernelKind::map;
    const auto& b = k.function.block_size;
    const std::string kind = map ? "map" : fmt::format("block({}, {}, {})", b[0], b[1], b[2]);
    app::print("{}  {}  {}\n", padded(k.name, width), padded(kind, 17), parameters(k.function));
  }
}

/// Throws the error for an unknown kernel. `named` is the device name from the command line, or empty.
[[noreturn]] void unknown(const std::string& name, Device device, const std::string& named,
                          const std::vector<CatalogueKernel>& kernels) {
  std::vector<std::string> names;
  for (const auto& k : kernels) names.push_back(k.name);
  const std::vector<std::string> near = closest_matches(name, names, 6);
  fail<ArgumentError>({.operation = "kernel",
                       .wrong = fmt::format("there is no kernel \"{}\" on {}; `tessera kernel{}` lists its kernels",
                                            name, to_string(device), named.empty() ? "" : " --device " + named),
                       .remedy = near.empty() ? "" : fmt::format("Similar names: {}", fmt::join(near, ", "))});
}

int run_kernel(const KernelArguments& o) {
  const std::string& named = o.source.empty() ? o.device : o.source;
  const Device device = named.empty() ? current_device() : parse_device(named);
  device_info(device);  // throws if the device does not exist
  const std::vector<CatalogueKernel> kernels = kernel_catalogue(device);
  if (o.name.empty()) {
    list(device, kernels);
    return success;
  }
  const auto found = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.name == o.name; });
  if (found == kernels.end()) unknown(o.name, device, named, kernels);
  std::string text = o.source.empty() ? ir::to_text(found->function) : Kernel(found->function).source(device);
  if (text.empty() || text.back() != '\n') text += '\n';
  std::fwrite(text.data(), 1, text.size(), output());
  return success;
}

}  // namespace

Command kernel_command(CLI::App& program) {
  auto o = std::make_shared<KernelArguments>();
  CLI::App* sub = program.add_subcommand("kernel", "List the kernels of the operations, or print one");
  sub->add_option("NAME", o->name, "The kernel to print; default: list all");
  auto* source =
      sub->add_option("--source", o->source, "Print the source for this device's compiler")->check(require_nonempty);
  auto* ir = sub->add_flag("--ir", o->ir, "Print the traced IR, which is the same for every device (the default)");
  auto* device =
      sub->add_option("--device", o->device, "List or print the kernels in the variants that this device uses")
          ->check(require_nonempty);
  source->excludes(ir)->excludes(device);
  sub->footer(R"(Examples:
  tessera kernel
  tessera kernel --device opencl
  tessera kernel rms_norm_f32_16 --ir
  tessera kernel rms_norm_f32_16 --source opencl:0)");
  return {sub, [o] { return run_kernel(*o); }};
}

}  // namespace tessera::app
