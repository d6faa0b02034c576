// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/c_emitter.h"

#include <atomic>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/emit/c_writer.h"

namespace tessera::emit {

namespace {
std::atomic<EmitObserver> watching = nullptr;
}
void observe_emission(EmitObserver observer) { watching = observer; }
bool emission_is_observed() { return watching != nullptr; }

std::string identifier(std::string_view name) {
  std::string out;
  for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(out.begin(), 'k');
  return out;
}

EmittedSource emit_c(std::span<const EmitRequest> requests, const Dialect& dialect) {
  EmittedSource source;
  Prelude prelude(dialect);
  std::set<std::string> written;
  std::string kernels;
  for (const EmitRequest& r : requests) {
    for (std::size_t i = 1; i < r.function->nodes.size(); ++i) {
      const ir::Node& n = r.function->nodes[i];
      if (!ir::is_effect(n.op) && n.type.dtype == DType::index)
        fail<KernelError>({.operation = "kernel " + r.function->name,
                           .wrong = "it still contains the dtype `index`",
                           .remedy = "Emit the result of `lower`"});
    }
    const std::string hash = ir::to_string(ir::hash_of(*r.function)).substr(0, 8);
    const std::string entry = fmt::format("{}_{}{}", identifier(r.function->name), hash, r.noalias ? "" : "_alias");
    Prelude own(dialect);
    EmittedKernel kernel = CWriter(*r.function, dialect, r.noalias, own).run(entry);
    kernel.prelude = own.text();
    prelude.add(own);
    if (written.insert(entry).second) kernels += "\n" + kernel.text;
    if (const EmitObserver observer = watching) observer(kernel, *r.function);
    source.kernels.push_back(std::move(kernel));
  }
  source.text = prelude.text() + kernels;
  return source;
}

}  // namespace tessera::emit
