// SPDX-License-Identifier: Apache-2.0
// Kernels in the C interface.
#include <fmt/format.h>

#include "tessera/c/status.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/parse.h"

struct tessera_kernel {
  tessera::Kernel kernel;
};

namespace tessera::c {

namespace {

LaunchArgument argument_of(const ir::Param& p, const tessera_array* handle) {
  const named::Operand& given = required("tessera_kernel_launch", "an argument", handle).operand;
  const Array* array = std::get_if<Array>(&given);
  if ((array != nullptr) != p.is_buffer)
    fail<KernelError>({.operation = "tessera_kernel_launch",
                       .with = {{"parameter", p.name}},
                       .wrong = p.is_buffer ? "the parameter is a buffer, but the argument is a number"
                                            : "the parameter is a scalar, but the argument is an array",
                       .remedy = p.is_buffer ? "" : "Pass tessera_array_number() or tessera_array_integer()"});
  if (array != nullptr) return kernel_argument(*array, p.access);
  return LaunchArgument::scalar(p.dtype, named::scalar_bits("tessera_kernel_launch", p.name, p.dtype, given));
}

const Kernel& kernel_of(const char* function, const tessera_kernel* kernel) {
  return required(function, "kernel", kernel).kernel;
}

}  // namespace

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_kernel_parse(const char* text, tessera_kernel** kernel) {
  return guard_result(__func__, kernel, [&] {
    return new tessera_kernel{Kernel(ir::parse(&required("tessera_kernel_parse", "text", text)))};
  });
}
void tessera_kernel_free(tessera_kernel* kernel) { delete kernel; }
tessera_status tessera_kernel_text(const tessera_kernel* kernel, char** text) {
  return guard_result(__func__, text,
                      [&] { return text_copy(ir::to_text(kernel_of("tessera_kernel_text", kernel).function())); });
}
tessera_status tessera_kernel_source(const tessera_kernel* kernel, tessera_device device, char** text) {
  return guard_result(__func__, text,
                      [&] { return text_copy(kernel_of("tessera_kernel_source", kernel).source(device_of(device))); });
}
tessera_status tessera_kernel_prepare(const tessera_kernel* kernel, tessera_device device) {
  return guard([&] { kernel_of("tessera_kernel_prepare", kernel).prepare(device_of(device)); });
}
tessera_status tessera_kernel_launch(const tessera_kernel* kernel, const uint64_t shape[3],
                                     const tessera_array* const* arguments, size_t count) {
  return guard([&] {
    const char* const self = "tessera_kernel_launch";
    const Kernel& k = kernel_of(self, kernel);
    required(self, "shape", shape);
    if (shape[0] > 0 && shape[1] == 0 && shape[2] == 0)  // {n}, whose other elements are 0 in C
      fail<ArgumentError>({.operation = self,
                           .with = {{"shape", fmt::format("{} x {} x {}", shape[0], shape[1], shape[2])}},
                           .wrong = "the second and the third dimension have the size 0",
                           .remedy = "Use 1 for dimensions that the kernel does not have: {4, 1, 1}"});
    const auto given = required_span(self, "arguments", arguments, count);
    const auto& params = k.function().params;
    if (count != params.size())
      fail<KernelError>({.operation = self,
                         .with = {{"kernel", k.function().name},
                                  {"arguments", std::to_string(count)},
                                  {"parameters", std::to_string(params.size())}},
                         .wrong = "the numbers of arguments and parameters differ"});
    std::vector<LaunchArgument> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(argument_of(params[i], given[i]));
    k.launch({shape[0], shape[1], shape[2]}, all);
  });
}

}  // extern "C"
