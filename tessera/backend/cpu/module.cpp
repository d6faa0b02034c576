// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/module.h"

#include <algorithm>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/os/library.h"

namespace tessera::cpu {

namespace {

constexpr const char* file_name = "libtessera-codegen.so";

std::vector<std::string> places() {
  if (auto named = config::text("TESSERA_CODEGEN_LIBRARY")) return {*named};
  const auto own = os::own_folder();
  std::vector<std::string> out;
  for (const auto& folder : {own, own.parent_path() / "lib", own / "tessera", own.parent_path() / "lib" / "tessera"}) {
    std::string file = (folder / file_name).string();
    if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(std::move(file));
  }
  return out;
}

}  // namespace

Module open_module(const std::string& target) {
  Module out;
  const auto names = places();
  if (names.size() == 1 && names[0] == "none") {
    out.reason = "TESSERA_CODEGEN_LIBRARY is 'none'";
    return out;
  }
  const auto library = os::Library::open(names);
  out.file = library.file();
  if (!library.loaded()) {
    out.reason = "the code-generation module was not found: " + library.reason();
    return out;
  }
  auto* open = library.function<std::remove_pointer_t<OpenGenerator>>(open_generator_symbol);
  if (!open) {
    out.reason = out.file + " is no code-generation module: it has no symbol " + open_generator_symbol;
    return out;
  }
  out.opened = true;
  out.generator = open(interface_version, target.c_str(), &out.reason);
  if (!out.generator) out.reason = out.file + ": " + out.reason;
  return out;
}

}  // namespace tessera::cpu
