// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/program.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera::backend {

namespace {

// Returns the line number in the first "file:12:", "<kernel>:12:5: error" or "kernels(12): error" of a log, or 0 if
// there is none.
std::size_t first_line_named(const std::string& log) {
  for (std::size_t at = log.find_first_of(":("); at != log.npos; at = log.find_first_of(":(", at + 1)) {
    std::size_t end = at + 1;
    while (end < log.size() && std::isdigit(static_cast<unsigned char>(log[end]))) ++end;
    if (end > at + 1 && end - at < 8 && end < log.size() && log[end] == (log[at] == '(' ? ')' : ':'))
      return std::stoul(log.substr(at + 1, end - at - 1));
  }
  return 0;
}

// Returns the lines around line `around` with their numbers. If `around` is 0, returns the first thirty lines.
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

ir::Function lowered(const CompileRequest& request, const emit::Dialect& dialect, const Capabilities& can) {
  for (std::size_t d = 0; d < 3; ++d)
    if (request.function->kind == ir::KernelKind::block && request.function->block_size[d] > can.max_block[d])
      fail<KernelError>({.operation = "kernel " + request.function->name,
                         .wrong = fmt::format("its blocks have {} threads in dimension {}, but this device supports "
                                              "at most {}",
                                              request.function->block_size[d], d, can.max_block[d]),
                         .remedy = "Declare it with smaller blocks"});
  return emit::lower(*request.function, target_for(dialect, can, request.variant));
}

std::vector<BuiltKernel> build_program(std::span<const CompileRequest> requests, const emit::Dialect& dialect,
                                       const DeviceInfo& info, const BuildProgram& build) {
  const bool exact = requests.front().function->exact;
  std::vector<ir::Function> functions;
  functions.reserve(requests.size());
  std::vector<emit::EmitRequest> emits;
  for (const CompileRequest& r : requests) {
    functions.push_back(lowered(r, dialect, info.can));
    emits.push_back({&functions.back(), r.variant.noalias});
  }
  const emit::EmittedSource source = emit::emit_c(emits, dialect);
  auto subject = [&](std::size_t i) { return "kernel " + requests[i].function->name; };
  std::string log;
  const std::shared_ptr<void> together = build(
      {source, emits, requests.size() == 1 ? subject(0) : fmt::format("{} kernels", requests.size()), exact}, log);
  std::vector<BuiltKernel> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    out.push_back({together, source.kernels[i]});
    if (together) continue;
    const emit::EmittedSource alone = emit::emit_c(std::span(&emits[i], 1), dialect);
    if (requests.size() > 1) out.back().program = build({alone, std::span(&emits[i], 1), subject(i), exact}, log);
    if (out.back().program) continue;
    fail<KernelError>({.operation = subject(i),
                       .with = {{"device", to_string(info.device) + " " + info.name}},
                       .wrong = "the device's compiler rejected it:\n" + log + "\nsource:\n" +
                                excerpt(alone.text, first_line_named(log)),
                       .remedy = "This is a bug in Tessera or in the driver: please report it with this message"});
  }
  return out;
}

}  // namespace

emit::Target target_for(const emit::Dialect& dialect, const Capabilities& can, Variant variant) {
  emit::Target target = emit::target_of(dialect, variant.index64);
  target.f64 = can.f64;
  target.aligned_vectors = variant.aligned;
  target.max_block_threads = can.max_block_threads;
  target.max_shared_bytes = can.shared_bytes;
  target.max_local_bytes = can.local_bytes;
  return target;
}

emit::EmittedKernel emitted_kernel(const CompileRequest& request, const emit::Dialect& dialect,
                                   const DeviceInfo& info) {
  const ir::Function function = lowered(request, dialect, info.can);
  const emit::EmitRequest one{&function, request.variant.noalias};
  return std::move(emit::emit_c(std::span(&one, 1), dialect).kernels.at(0));
}

std::vector<BuiltKernel> build_kernels(std::span<const CompileRequest> requests, const emit::Dialect& dialect,
                                       const DeviceInfo& info, const BuildProgram& build) {
  // Exact kernels are built in a separate program.
  std::vector<BuiltKernel> out(requests.size());
  for (const bool exact : {false, true}) {
    std::vector<CompileRequest> some;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < requests.size(); ++i)
      if (requests[i].function->exact == exact) some.push_back(requests[i]), places.push_back(i);
    if (some.empty()) continue;
    std::vector<BuiltKernel> built = build_program(some, dialect, info, build);
    for (std::size_t i = 0; i < some.size(); ++i) out[places[i]] = std::move(built[i]);
  }
  return out;
}

}  // namespace tessera::backend
