// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/library.h"

#include <dlfcn.h>
#ifdef __linux__
#include <elf.h>
#include <link.h>
#endif

#include <cstdint>
#include <cstring>
#include <system_error>

#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/hardware.h"
#include "tessera/base/sha256.h"

namespace tessera::os {

namespace {
/// Extracts the name of the missing file from dlopen's message. It may be a dependency of the requested library.
std::string missing_part(const std::string& asked, const std::string& text) {
  const std::size_t end = text.find(": cannot open shared object file: No such file");
  if (end == text.npos) return "";
  const std::filesystem::path absent(text.substr(0, end));
  return absent.filename() == std::filesystem::path(asked).filename() ? "" : absent.string();
}
}  // namespace

Library Library::open(std::span<const std::string> names) {
  Library library;
  if (forked_during_guard()) {
    library.reason_ = "this process was forked while another thread loaded a library or compiled";
    return library;
  }
  const ForkGuard whole;  // protects the loader's lock and the library's initialisers
  for (const std::string& name : names) {
    library.file_ = name;
    library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_ != nullptr) {
      library.reason_.clear();
      library.missing_.clear();
      logging::info("opened the library " + name);
      return library;
    }
    const char* text = ::dlerror();
    std::string why = text != nullptr ? text : name + ": the loader gave no reason";
    if (const std::string part = missing_part(name, why); !part.empty()) {
      why = name + " requires " + part + ", which was not found";
      library.missing_ = part;
    }
    logging::debug("not opened: " + why);
    if (!library.reason_.empty()) library.reason_ += "; ";
    library.reason_ += why;
  }
  return library;
}

Library Library::find_loaded(std::span<const std::string> names) {
  Library library;
  const ForkGuard whole;  // protects the loader's lock
  for (const std::string& name : names) {
    library.handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    library.file_ = name;
    if (library.handle_ != nullptr) break;
  }
  return library;
}

Library Library::of_program() {
  Library library;
  const ForkGuard whole;  // protects the loader's lock
  library.handle_ = ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  return library;
}

void* Library::symbol(const char* name) const {
  if (handle_ == nullptr) return nullptr;
  const ForkGuard whole;  // protects the loader's lock
  return ::dlsym(handle_, name);
}

std::filesystem::path file_of(const void* address) {
  Dl_info info{};
  {
    const ForkGuard whole;  // protects the loader's lock
    if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  }
  // For the program itself, dladdr returns argv[0], which need not be a path.
  std::error_code error;
  const std::filesystem::path name(info.dli_fname);
  if (name.has_parent_path()) {
    auto full = std::filesystem::canonical(name, error);
    if (!error) return full;
  }
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : self;
}

#ifdef __linux__
namespace {

struct Sought {
  std::uintptr_t address;
  std::string id;
};

/// Returns the build id from an ELF note segment. Its entries are {name size, content size, type, name, content}, with
/// padding.
std::string id_in(const unsigned char* notes, std::size_t bytes) {
  const auto padded = [](std::size_t n) { return (n + 3) & ~std::size_t{3}; };
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof note);
    const std::size_t content = sizeof note + padded(note.n_namesz), whole = content + padded(note.n_descsz);
    if (whole > bytes) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + sizeof note, "GNU", 4) == 0) {
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i)
        for (const int shift : {4, 0}) id += "0123456789abcdef"[notes[content + i] >> shift & 15];
      return id;
    }
    notes += whole, bytes -= whole;
  }
  return {};
}

int look(dl_phdr_info* info, std::size_t, void* data) {
  Sought& sought = *static_cast<Sought*>(data);
  bool here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    here = here || (p.p_type == PT_LOAD && sought.address - (info->dlpi_addr + p.p_vaddr) < p.p_memsz);
  }
  if (!here) return 0;
  for (int i = 0; i < info->dlpi_phnum && sought.id.empty(); ++i)
    if (const auto& p = info->dlpi_phdr[i]; p.p_type == PT_NOTE)
      sought.id = id_in(reinterpret_cast<const unsigned char*>(info->dlpi_addr + p.p_vaddr), p.p_memsz);
  return 1;
}

}  // namespace
#endif

std::string build_id(const void* address) {
#ifdef __linux__
  Sought sought{reinterpret_cast<std::uintptr_t>(address), {}};
  {
    const ForkGuard whole;  // protects the loader's lock
    ::dl_iterate_phdr(look, &sought);
  }
  if (!sought.id.empty()) return sought.id;
#endif
  return sha256(file_stamp(file_of(address)));
}

std::filesystem::path own_folder() {
  static const char here = 0;
  return file_of(&here).parent_path();
}

}  // namespace tessera::os
