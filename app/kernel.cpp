// SPDX-License-Identifier: Apache-2.0
// `tessera kernel`: lists the kernels of the operations, prints one of them as IR or as source code, or reports how
// fast it can be on a GPU that is not in this machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "arguments.h"
#include "command.h"
#include "launch_sizes.h"
#include "terminal.h"
#include "tessera/base/error.h"
#include "tessera/base/similar_name.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/node.h"
#include "tessera/ops/catalogue.h"
#include "tessera/report/report.h"

namespace tessera::app {
namespace {

struct KernelArguments {
  std::string name, source, device, report, compiler;
  LaunchSizes launch;
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

void list(const std::string& where, const std::vector<CatalogueKernel>& kernels) {
  std::size_t width = 0;
  for (const auto& k : kernels) width = std::max(width, k.name.size());
  app::print("{} kernels, as used by {}\n", kernels.size(), where);
  for (const auto& k : kernels) {
    const bool map = k.function.kind == ir::KernelKind::map;
    const auto& b = k.function.block_size;
    const std::string kind = map ? "map" : fmt::format("block({}, {}, {})", b[0], b[1], b[2]);
    app::print("{}  {}  {}\n", padded(k.name, width), padded(kind, 17), parameters(k.function));
  }
}

/// Returns the kernel with this name. `where` is the device or architecture, and `options` are those of the command
/// that lists its kernels.
const CatalogueKernel& find(const std::string& name, const std::vector<CatalogueKernel>& kernels,
                            const std::string& where, const std::string& options) {
  const auto found = std::ranges::find(kernels, name, &CatalogueKernel::name);
  if (found != kernels.end()) return *found;
  std::vector<std::string> names;
  for (const auto& k : kernels) names.push_back(k.name);
  const std::vector<std::string> near = closest_matches(name, names, 6);
  fail<ArgumentError>({.operation = "kernel",
                       .wrong = fmt::format("there is no kernel \"{}\" on {}; `tessera kernel{}` lists its kernels",
                                            name, where, options),
                       .remedy = near.empty() ? "" : fmt::format("Similar names: {}", fmt::join(near, ", "))});
}

/// Reports on one kernel, or on all kernels of the architecture.
int run_report(const KernelArguments& o) {
  const ReportTarget target{o.report, o.compiler == "vendor" ? TargetCompiler::vendor
                                      : o.compiler == "ptx"  ? TargetCompiler::ptx
                                                             : TargetCompiler::automatic};
  std::vector<CatalogueKernel> kernels;
  report_launches(target, [&](Device device) { kernels = kernel_catalogue(device); });
  if (o.name.empty()) {
    list(o.report, kernels);
    return success;
  }
  const ir::Function& function = find(o.name, kernels, o.report, " --report " + o.report).function;
  app::print("{}", to_string(o.launch.grid.empty() ? report(Kernel(function), target)
                                                   : report_launch(function, o.launch, target)));
  return success;
}

int run_kernel(const KernelArguments& o) {
  if (!o.report.empty()) return run_report(o);
  const std::string& named = o.source.empty() ? o.device : o.source;
  const Device device = named.empty() ? current_device() : parse_device(named);
  device_info(device);  // throws if the device does not exist
  const std::vector<CatalogueKernel> kernels = kernel_catalogue(device);
  if (o.name.empty()) {
    list(to_string(device), kernels);
    return success;
  }
  const ir::Function& function =
      find(o.name, kernels, to_string(device), named.empty() ? "" : " --device " + named).function;
  std::string text = o.source.empty() ? ir::to_text(function) : Kernel(function).source(device);
  if (text.empty() || text.back() != '\n') text += '\n';
  std::fwrite(text.data(), 1, text.size(), output());
  return success;
}

}  // namespace

Command kernel_command(CLI::App& program) {
  auto o = std::make_shared<KernelArguments>();
  CLI::App* sub = program.add_subcommand("kernel", "List the kernels of the operations, or print one");
  auto* name = sub->add_option("NAME", o->name, "The kernel to print; default: list all");
  auto* source =
      sub->add_option("--source", o->source, "Print the source for this device's compiler")->check(require_nonempty);
  auto* ir = sub->add_flag("--ir", o->ir, "Print the IR as traced for the device (the default)");
  auto* device =
      sub->add_option("--device", o->device, "List or print the kernels in the variants that this device uses")
          ->check(require_nonempty);
  source->excludes(ir)->excludes(device);
  auto* report = sub->add_option("--report", o->report,
                                 "Report registers, spilled bytes and memory accesses for a GPU that is not in this "
                                 "machine: sm_90, gfx90a, ...")
                     ->check(require_nonempty)
                     ->excludes(source)
                     ->excludes(ir)
                     ->excludes(device);
  auto* grid = sub->add_option("--grid", o->launch.grid,
                               "Also predict the time of a launch with this number of threads of a map kernel, or "
                               "blocks of a block kernel: X, X,Y or X,Y,Z")
                   ->check(require_nonempty)
                   ->needs(report)
                   ->needs(name);
  sub->add_option("--size", o->launch.sizes,
                  "NAME=NUMBER: the elements of a buffer, or the value of an integer, in this launch")
      ->delimiter(',')
      ->take_all()
      ->needs(grid);
  sub->add_option("--compiler", o->compiler, "Compiler of the report: vendor (NVRTC, clang) or ptx")
      ->check(CLI::IsMember({"vendor", "ptx"}))
      ->needs(report);
  sub->footer(R"(Examples:
  tessera kernel
  tessera kernel --device opencl
  tessera kernel rms_norm_f32_16 --ir
  tessera kernel rms_norm_f32_16 --source opencl:0
  tessera kernel rms_norm_f32_16 --report sm_90
  tessera kernel softmax_f32_64 --report sm_90 --grid 4096 --size x=4194304,out=4194304,count=1024)");
  return {sub, [o] { return run_kernel(*o); }};
}

}  // namespace tessera::app
