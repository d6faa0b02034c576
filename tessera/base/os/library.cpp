// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/library.h"

#include <dlfcn.h>

#include <system_error>

#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"

namespace tessera::os {

namespace {
/// The C library's text for a file that is not there begins with its name, also where another library asked for it.
std::string missing_part(const std::string& asked, const std::string& text) {
  const std::size_t end = text.find(": cannot open shared object file: No such file");
  if (end == text.npos) return "";
  const std::filesystem::path absent(text.substr(0, end));
  return absent.filename() == std::filesystem::path(asked).filename() ? "" : absent.string();
}
}  // namespace

Library Library::open(std::span<const std::string> names) {
  Library library;
  if (forked_amid()) {
    library.reason_ = "this process was forked while another thread loaded a library or compiled";
    return library;
  }
  const NoFork whole;  // the loader's lock, and the library's own start
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
    std::string why = text != nullptr ? text : name + ": refused without a reason";
    if (const std::string part = missing_part(name, why); !part.empty()) {
      why = name + " needs " + part + ", which is not found";
      library.missing_ = part;
    }
    logging::debug("not opened: " + why);
    if (!library.reason_.empty()) library.reason_ += "; ";
    library.reason_ += why;
  }
  return library;
}

void* Library::symbol(const char* name) const {
  if (handle_ == nullptr) return nullptr;
  const NoFork whole;  // the loader's lock
  return ::dlsym(handle_, name);
}

std::filesystem::path file_of(const void* address) {
  Dl_info info{};
  {
    const NoFork whole;  // the loader's lock
    if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  }
  // The program itself is named as it was called, which need not be a path.
  std::error_code error;
  const std::filesystem::path name(info.dli_fname);
  if (name.has_parent_path()) {
    auto full = std::filesystem::canonical(name, error);
    if (!error) return full;
  }
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : self;
}

std::filesystem::path own_folder() {
  static const char here = 0;
  return file_of(&here).parent_path();
}

}  // namespace tessera::os
