// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/library.h"

#include <dlfcn.h>
#ifdef __linux__
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
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

/// Calls `use` with each segment of the library or program that contains an address, and with its begin in memory.
template <class Use>
void for_each_segment(const void* address, const Use& use) {
  struct Sought {
    std::uintptr_t address;
    const Use& use;
  } sought{reinterpret_cast<std::uintptr_t>(address), use};
  const auto look = [](dl_phdr_info* info, std::size_t, void* data) {
    const Sought& s = *static_cast<const Sought*>(data);
    const std::span segments(info->dlpi_phdr, info->dlpi_phnum);
    const auto begin = [&](const auto& segment) { return info->dlpi_addr + segment.p_vaddr; };
    const auto contains = [&](const auto& segment) {
      return segment.p_type == PT_LOAD && s.address - begin(segment) < segment.p_memsz;
    };
    if (std::ranges::none_of(segments, contains)) return 0;
    for (const auto& segment : segments) s.use(segment, begin(segment));
    return 1;
  };
  const ForkGuard whole;  // protects the loader's lock
  ::dl_iterate_phdr(look, &sought);
}

}  // namespace
#endif

std::string build_id(const void* address) {
#ifdef __linux__
  std::string id;
  for_each_segment(address, [&](const auto& segment, std::uintptr_t begin) {
    if (segment.p_type == PT_NOTE && id.empty())
      id = id_in(reinterpret_cast<const unsigned char*>(begin), segment.p_memsz);
  });
  if (!id.empty()) return id;
#endif
  return sha256(file_stamp(file_of(address)));
}

void release_code_pages([[maybe_unused]] const void* address) noexcept {
#ifdef __linux__
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for_each_segment(address, [&](const auto& segment, std::uintptr_t begin) {
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) return;
    // Whole pages only: a page at the end may also contain data that the program has changed.
    const std::uintptr_t first = (begin + page - 1) / page * page, end = (begin + segment.p_memsz) / page * page;
    if (first < end) (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  });
#endif
}

std::filesystem::path own_folder() {
  static const char here = 0;
  return file_of(&here).parent_path();
}

}  // namespace tessera::os
