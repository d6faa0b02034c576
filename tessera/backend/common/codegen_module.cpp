// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/codegen_module.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/pages.h"
#include "tessera/base/os/system.h"

namespace tessera::cpu {

namespace {

constexpr const char* file_name = "libtessera-codegen.so";

}  // namespace

std::vector<std::string> module_candidates() {
  if (auto named = config::text("TESSERA_CODEGEN_LIBRARY")) return {*named};
  const auto own = os::own_folder();
  std::vector<std::string> out;
  const auto above = own.parent_path();
  std::vector<std::filesystem::path> folders{own / "tessera", own, above / "lib" / "tessera", above / "lib", above};
#ifdef TESSERA_LIBRARY_FOLDER  // of the static library, which may be part of a program in any folder
  for (const char* below : {"tessera", ""}) folders.push_back(std::filesystem::path(TESSERA_LIBRARY_FOLDER) / below);
#endif
  for (const auto& folder : folders) {
    std::string file = (folder / file_name).lexically_normal().string();
    if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(std::move(file));
  }
  return out;
}

namespace {

constexpr std::uint64_t mebi = 1 << 20, kibi = 1 << 10;

/// Returns the memory needed to load the module, or 0 if there is no module. LLVM's tables need 8 MiB in addition to
/// the size of the file (measured).
std::uint64_t start_bytes(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(name, missing);
    if (!missing) return size + 8 * mebi;
  }
  return 0;
}

std::atomic<OpenCodegen> opened = nullptr;  // of the module, once it has been loaded

// Opens the module and calls `take` to get a generator from it.
template <class G, class Take>
ModuleOf<G> open_with(Take&& take) {
  ModuleOf<G> out;
  const auto names = module_candidates();
  if (names.size() == 1 && names[0] == "none") {
    out.reason = "TESSERA_CODEGEN_LIBRARY is 'none'";
    return out;
  }
  check_llvm_after_fork("open " + names.front());
  const os::ForkGuard whole;  // LLVM initialises global state
  const std::uint64_t bytes = opened.load() != nullptr ? 0 : start_bytes(names);
  if (bytes != 0 && !os::can_allocate(bytes)) throw_out_of_memory("start LLVM", bytes);
  const auto library = os::Library::open(names);
  out.file = library.file();
  if (!library.loaded()) {
    out.reason = "the code-generation module was not found: " + library.reason();
    return out;
  }
  auto* open = library.function<std::remove_pointer_t<OpenCodegen>>(open_codegen_symbol);
  if (!open) {
    out.reason = out.file + " is not a code-generation module: it has no symbol " + open_codegen_symbol;
    return out;
  }
  out.opened = true;
  out.build = os::build_id(reinterpret_cast<const void*>(open));
  Codegen* module = open(interface_version, "", &out.reason);
  if (module) out.generator = take(*module, out.reason);
  if (!out.generator && out.reason.empty()) throw_out_of_memory("start LLVM", bytes);
  opened = open;
  if (!out.generator) out.reason = out.file + ": " + out.reason;
  return out;
}

}  // namespace

Module open_module(const std::string& target, bool runs_here) {
  return open_with<Generator>(
      [&](Codegen& module, std::string& wrong) { return module.processor(target.c_str(), runs_here, wrong); });
}
void trim_module() noexcept {
  if (OpenCodegen module = opened) os::release_code_pages(reinterpret_cast<const void*>(module));
  os::trim_heap();
}

void throw_out_of_memory(const std::string& asked, std::uint64_t bytes) {
  fail<OutOfMemory>({.operation = asked,
                     .with = {{"required", bytes == 0 ? "unknown" : config::format_bytes(bytes)}},
                     .wrong = "the system has no memory left for LLVM",
                     .remedy = "Free arrays, or raise the memory limit of the process (ulimit -v, cgroup)"});
}

// The constants are upper bounds. Tessera's own kernels and test kernels with up to 30,000 nodes needed at most 2.6 MiB
// plus 16.5 KiB per node. Large kernels needed only 10 KiB per node.
void check_memory_to_compile(const std::string& name, std::size_t nodes) {
  const std::uint64_t bytes = 4 * mebi + 20 * kibi * nodes;
  if (!os::can_allocate(bytes)) throw_out_of_memory("compile " + name, bytes);
}

void check_llvm_after_fork(const std::string& asked) {
  if (!os::forked_during_guard()) return;
  fail<DeviceError>({.operation = asked,
                     .wrong = "this process was forked while another thread loaded a library or compiled a kernel",
                     .remedy = "Use the device before forking, or start the child with exec (posix_spawn)"});
}

PtxModule open_ptx_module() {
  return open_with<PtxGenerator>([](Codegen& module, std::string& wrong) { return module.ptx(wrong); });
}

}  // namespace tessera::cpu
