// SPDX-License-Identifier: Apache-2.0
// Compiles requests to loaded kernels.
#include <algorithm>

#include "tessera/backend/common/program.h"
#include "tessera/backend/opencl/device.h"
#include "tessera/device/driver.h"

namespace tessera::cl {

namespace {

std::shared_ptr<void> build_text(const DeviceContext& device, const std::string& text, const std::string& subject,
                                 std::string& log) {
  const Api& cl = api();
  const char* source = text.c_str();
  const std::size_t length = text.size();
  Code code = success;
  const Program raw = cl.create_program(device.context, 1, &source, &length, &code);
  check(code, "clCreateProgramWithSource", subject);
  const std::shared_ptr<void> program(raw, [](void* p) { api().release_program(static_cast<Program>(p)); });
  code = cl.build_program(raw, 1, &device.facts.id, device.facts.build_options.c_str(), nullptr, nullptr);
  if (code == success) return program;
  if (code != build_failure) check(code, "clBuildProgram", subject);
  std::size_t size = 0;
  if (cl.get_build_info(raw, device.facts.id, program_build_log, 0, nullptr, &size) == success && size > 0) {
    log.resize(size);
    cl.get_build_info(raw, device.facts.id, program_build_log, size, log.data(), nullptr);
    log.resize(std::min(log.find('\0'), log.size()));
  }
  return nullptr;
}

}  // namespace

std::vector<std::unique_ptr<LoadedKernel>> ClDevice::compile(std::span<const CompileRequest> requests) {
  const DeviceFacts& facts = device_.facts;
  const auto built = backend::build_kernels(requests, facts.dialect, facts.info,
                                            [&](const backend::Program& program, std::string& log) {
                                              return build_text(device_, program.text(), program.subject, log);
                                            });
  std::vector<std::unique_ptr<LoadedKernel>> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Code code = success;
    const Kernel kernel =
        api().create_kernel(static_cast<Program>(built[i].program.get()), built[i].emitted.entry.c_str(), &code);
    check(code, "clCreateKernel", "kernel " + requests[i].function->name);
    std::size_t limit = 0;
    if (api().get_kernel_group_info(kernel, facts.id, kernel_work_group_size, sizeof limit, &limit, nullptr) !=
            success ||
        limit == 0)
      limit = facts.info.can.max_block_threads;
    out.push_back(std::make_unique<ClKernel>(
        built[i].program, kernel,
        backend::KernelShape(*requests[i].function, built[i].emitted, requests[i].variant.index64), facts.info.can,
        limit));
  }
  return out;
}

}  // namespace tessera::cl
