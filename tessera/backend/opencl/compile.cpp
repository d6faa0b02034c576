// SPDX-License-Identifier: Apache-2.0
// From requests to loaded kernels: lower, emit all into one program, build; if that fails, each alone, to name the
// guilty.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "tessera/backend/opencl/device.h"
#include "tessera/base/error.h"

namespace tessera::cl {

namespace {

using ProgramPointer = std::shared_ptr<Program_>;

struct Built {
  ProgramPointer program;
  Code code = success;
  std::string log;
};

Built build(const DeviceContext& device, const std::string& text) {
  const Api& cl = api();
  Built out;
  const char* source = text.c_str();
  const std::size_t length = text.size();
  const Program raw = cl.create_program(device.context, 1, &source, &length, &out.code);
  check(out.code, "clCreateProgramWithSource");
  out.program = ProgramPointer(raw, [](Program p) { api().release_program(p); });
  out.code = cl.build_program(raw, 1, &device.facts.id, device.facts.build_options.c_str(), nullptr, nullptr);
  if (out.code == success) return out;
  std::size_t size = 0;
  if (cl.get_build_info(raw, device.facts.id, program_build_log, 0, nullptr, &size) == success && size > 0) {
    out.log.resize(size);
    cl.get_build_info(raw, device.facts.id, program_build_log, size, out.log.data(), nullptr);
    out.log.resize(std::min(out.log.find('\0'), out.log.size()));
  }
  return out;
}

// Line of the first "file:12:" or "<kernel>:12:5: error" of a log; 0 if there is none.
std::size_t first_line_named(const std::string& log) {
  for (std::size_t at = log.find(':'); at != log.npos; at = log.find(':', at + 1)) {
    std::size_t end = at + 1;
    while (end < log.size() && std::isdigit(static_cast<unsigned char>(log[end]))) ++end;
    if (end > at + 1 && end - at < 8 && end < log.size() && log[end] == ':')
      return std::stoul(log.substr(at + 1, end - at - 1));
  }
  return 0;
}

// The lines around one, numbered; the first thirty if none is named.
std::string excerpt(const std::string& text, std::size_t around) {
  std::string out;
  std::size_t number = 0;
  const std::size_t from = around > 6 ? around - 6 : 1, to = around ? around + 6 : 30;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    if (number >= from && number <= to)
      out += fmt::format("{}{:4} | {}\n", number == around ? ">" : " ", number, text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

std::vector<std::unique_ptr<LoadedKernel>> ClDevice::compile(std::span<const CompileRequest> requests) {
  const Capabilities& can = device_.facts.info.can;
  std::vector<ir::Function> lowered;
  lowered.reserve(requests.size());
  std::vector<emit::EmitRequest> emits;
  for (const CompileRequest& r : requests) {
    emit::Target target = emit::target_of(device_.facts.dialect, r.variant.index64);
    target.f64 = can.f64;
    target.max_block_threads = can.max_block_threads;
    target.max_shared_bytes = can.shared_bytes;
    for (std::size_t d = 0; d < 3; ++d)
      if (r.function->kind == ir::KernelKind::block && r.function->block_size[d] > can.max_block[d])
        fail<KernelError>(
            {.asked = "kernel " + r.function->name,
             .wrong = fmt::format("its blocks have {} threads in dimension {}, and this device takes at most {}",
                                  r.function->block_size[d], d, can.max_block[d]),
             .todo = "Declare it with smaller blocks"});
    lowered.push_back(emit::lower(*r.function, target));
    emits.push_back({&lowered.back(), r.variant.noalias});
  }
  const emit::EmittedSource source = emit::emit_c(emits, device_.facts.dialect);
  Built built = build(device_, source.text);
  std::vector<ProgramPointer> programs(requests.size(), built.program);
  if (built.code != success) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const emit::EmittedSource alone = emit::emit_c(std::span(&emits[i], 1), device_.facts.dialect);
      const Built one = requests.size() == 1 ? built : build(device_, alone.text);
      programs[i] = one.program;
      if (one.code == success) continue;
      if (one.code != build_failure) check(one.code, "clBuildProgram", "kernel " + requests[i].function->name);
      fail<KernelError>({.asked = "kernel " + requests[i].function->name,
                         .with = {{"device", to_string(info().device) + " " + info().name}},
                         .wrong = "the device's compiler refused it:\n" + one.log + "\nin this text:\n" +
                                  excerpt(alone.text, first_line_named(one.log)),
                         .todo = "This is a fault of Tessera or of the driver: please report it with this message"});
    }
  }
  std::vector<std::unique_ptr<LoadedKernel>> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const emit::EmittedKernel& emitted = source.kernels[i];
    Code code = success;
    const Kernel kernel = api().create_kernel(programs[i].get(), emitted.entry.c_str(), &code);
    check(code, "clCreateKernel", "kernel " + requests[i].function->name);
    std::size_t limit = 0;
    if (api().get_kernel_group_info(kernel, device_.facts.id, kernel_work_group_size, sizeof limit, &limit, nullptr) !=
            success ||
        limit == 0)
      limit = can.max_block_threads;
    out.push_back(std::make_unique<ClKernel>(programs[i], kernel, emitted, *requests[i].function,
                                             requests[i].variant.index64, limit));
  }
  return out;
}

}  // namespace tessera::cl
