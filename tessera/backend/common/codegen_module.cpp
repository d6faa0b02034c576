// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/codegen_module.h"

#include <algorithm>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/library.h"

namespace tessera::cpu {

namespace {

constexpr const char* file_name = "libtessera-codegen.so";

}  // namespace

std::vector<std::string> module_candidates() {
  if (auto named = config::text("TESSERA_CODEGEN_LIBRARY")) return {*named};
  const auto own = os::own_folder();
  std::vector<std::string> out;
  const auto above = own.parent_path();
  for (const auto& folder : {own, above / "lib", own / "tessera", above / "lib" / "tessera", above}) {
    std::string file = (folder / file_name).string();
    if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(std::move(file));
  }
  return out;
}

namespace {

// Opens the module and has `take` ask it for a generator.
template <class G, class Take>
ModuleOf<G> open_with(Take&& take) {
  ModuleOf<G> out;
  const auto names = module_candidates();
  if (names.size() == 1 && names[0] == "none") {
    out.reason = "TESSERA_CODEGEN_LIBRARY is 'none'";
    return out;
  }
  const os::NoFork whole;  // LLVM's start
  const auto library = os::Library::open(names);
  out.file = library.file();
  if (!library.loaded()) {
    out.reason = "the code-generation module was not found: " + library.reason();
    return out;
  }
  auto* open = library.function<std::remove_pointer_t<OpenCodegen>>(open_codegen_symbol);
  if (!open) {
    out.reason = out.file + " is no code-generation module: it has no symbol " + open_codegen_symbol;
    return out;
  }
  out.opened = true;
  Codegen* module = open(interface_version, "", &out.reason);
  if (module) out.generator = take(*module, out.reason);
  if (!out.generator) out.reason = out.file + ": " + out.reason;
  return out;
}

}  // namespace

Module open_module(const std::string& target) {
  return open_with<Generator>(
      [&](Codegen& module, std::string& wrong) { return module.processor(target.c_str(), wrong); });
}
PtxModule open_ptx_module() {
  return open_with<PtxGenerator>([](Codegen& module, std::string& wrong) { return module.ptx(wrong); });
}

}  // namespace tessera::cpu
