// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/rocm/hiprtc.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/rocm/hip_api.h"
#include "tessera/backend/stream/library.h"
#include "tessera/backend/stream/table_api.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library_search.h"

namespace tessera::rocm {

bool Hiprtc::take(os::Library library) {
  library_ = std::move(library);
  missing_.clear();
  call_ = {};
#define TESSERA_TAKE(member, symbol, ...) stream::take(library_, call_.member, #symbol, missing_);
  TESSERA_HIPRTC(TESSERA_TAKE)
#undef TESSERA_TAKE
  if (missing_.empty()) return true;
  reason_ += fmt::format("{}{}: it has no {}", reason_.empty() ? "" : "; ", library_.file(), missing_);
  return false;
}

std::vector<std::string> hiprtc_candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_HIPRTC_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> names;
  for (int major : {7, 6, 5}) names.push_back(fmt::format("libhiprtc.so.{}", major));
  for (const std::string& runtime : runtime_candidates())  // also tries the runtime's folder
    if (const auto folder = std::filesystem::path(runtime).parent_path(); !folder.empty())
      for (int i = 0; i < 3; ++i) names.push_back((folder / names[static_cast<std::size_t>(i)]).string());
  return names;
}

Hiprtc Hiprtc::open(const os::Library& runtime, int major) {
  Hiprtc out;
  auto attempt = [&](const std::string& name) {
    os::Library library = os::Library::open(name);
    if (library.loaded()) return out.take(std::move(library));
    out.reason_ += (out.reason_.empty() ? "" : "; ") + library.reason();
    return false;
  };
  if (const std::string named = stream::library_from_variable("TESSERA_HIPRTC_LIBRARY"); !named.empty()) {
    attempt(named);
    return out;
  }
  // The runtime's folder is tried first, because the library there has the same version as the runtime.
  const std::string name = fmt::format("libhiprtc.so.{}", major);
  const void* inside = runtime.symbol("hipInit");
  const std::filesystem::path folder = inside ? os::file_of(inside).parent_path() : std::filesystem::path();
  if (!folder.empty() && os::file_exists((folder / name).c_str()) && attempt((folder / name).string())) return out;
  if (attempt(name)) return out;
  if (runtime.loaded()) out.take(runtime);
  return out;
}

stream::Image Hiprtc::compile(const std::string& text, const std::string& architecture) const {
  const auto check = [&](Code code, const std::string& function) {
    if (code == 0) return;
    const std::string wrong = fmt::format("{} returned {} ({})", function, code, call_.error_string(code));
    if (code == hiprtc_out_of_memory)
      fail<OutOfMemory>({.operation = "hiprtc", .wrong = wrong, .remedy = "Free host memory"});
    fail<KernelError>({.operation = "hiprtc",
                       .with = {{"library", library_.file()}, {"architecture", architecture}},
                       .wrong = wrong,
                       .remedy =
                           "Check that the versions of libhiprtc-builtins and libamd_comgr that match this library are "
                           "installed (Debian: libhiprtc-builtins5, libamd-comgr2)"});
  };
  const std::string option = "--gpu-architecture=" + architecture;
  return stream::compile_text(call_, "hiprtc", text, {option.c_str()}, hiprtc_compilation, check,
                              [&](stream::Handle program, std::string& bytes) {
                                std::size_t size = 0;
                                check(call_.code_size(stream::In{program}, &size), "hiprtcGetCodeSize");
                                bytes.resize(size);
                                check(call_.code(stream::In{program}, bytes.data()), "hiprtcGetCode");
                              });
}

}  // namespace tessera::rocm
