// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/nvrtc.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/stream/library.h"
#include "tessera/backend/stream/table_api.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library_search.h"

namespace tessera::cuda {

namespace fs = std::filesystem;

std::vector<fs::path> toolkit_folders() {
  std::vector<fs::path> roots, folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = stream::library_from_variable(variable); !root.empty()) roots.emplace_back(root);
  for (fs::path& root : os::folders_named("/usr/local", "cuda")) roots.push_back(std::move(root));
  roots.insert(roots.end(), {"/opt/cuda", "/usr/lib/cuda"});
  for (const fs::path& root : roots) {
    folders.push_back(root / "lib64");
    folders.push_back(root / "lib");
    for (fs::path& target : os::folders_named(root / "targets", "", "lib")) folders.push_back(std::move(target));
  }
  for (fs::path& folder : os::python_library_folders("nvidia")) folders.push_back(std::move(folder));
  return folders;
}

std::vector<std::string> nvrtc_candidates() {
  const std::string named = stream::library_from_variable("TESSERA_NVRTC_LIBRARY");
  if (named == "none") return {};
  if (!named.empty()) return {named};
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};
  for (std::string& file : os::library_files(toolkit_folders(), "libnvrtc.so")) names.push_back(std::move(file));
  return names;
}

bool Nvrtc::take(os::Library library) {
  library_ = std::move(library);
  missing_.clear();
  call_ = {};
#define TESSERA_TAKE(member, symbol, ...) stream::take(library_, call_.member, #symbol, missing_);
  TESSERA_NVRTC(TESSERA_TAKE)
#undef TESSERA_TAKE
  if (!missing_.empty()) {
    reason_ += fmt::format("{}{}: it has no {} (older than CUDA 11.2, or not NVRTC)", reason_.empty() ? "" : "; ",
                           library_.file(), missing_);
    return false;
  }
  int count = 0;
  if (call_.version(&major_, &minor_) != 0 || call_.supported_count(&count) != 0 || count <= 0) {
    missing_ = "nvrtcGetSupportedArchs";
    reason_ += fmt::format("{}{}: it does not report the architectures that it supports", reason_.empty() ? "" : "; ",
                           library_.file());
    return false;
  }
  supported_.resize(static_cast<std::size_t>(count));
  if (call_.supported(supported_.data()) != 0) supported_.clear();
  std::ranges::sort(supported_);
  return true;
}

Nvrtc Nvrtc::open(int driver_version) {
  Nvrtc best, failed;
  const std::string named = stream::library_from_variable("TESSERA_NVRTC_LIBRARY");
  if (named == "none") {
    failed.reason_ = "TESSERA_NVRTC_LIBRARY is 'none'";
    return failed;
  }
  for (const std::string& name : nvrtc_candidates()) {
    os::Library library = os::Library::open(name);
    if (!library.loaded()) {
      failed.reason_ += (failed.reason_.empty() ? "" : "; ") + library.reason();
      continue;
    }
    Nvrtc found;
    if (!found.take(std::move(library))) {
      failed.reason_ += (failed.reason_.empty() ? "" : "; ") + found.reason_;
      continue;
    }
    if (!named.empty() || found.major_ * 1000 <= driver_version) return found;
    if (!best.usable()) best = std::move(found);
  }
  return best.usable() ? best : failed;
}

std::string Nvrtc::version() const { return fmt::format("{}.{}", major_, minor_); }

std::string Nvrtc::architecture_for(int capability) const {
  const auto above = std::ranges::upper_bound(supported_, capability);
  if (above == supported_.begin()) return "";
  const int nearest = *(above - 1);
  return fmt::format("{}_{}", nearest == capability ? "sm" : "compute", nearest);
}

stream::Image Nvrtc::compile(const std::string& text, const std::string& architecture, bool exact, bool verbose) const {
  const auto check = [&](Code code, const std::string& function) {
    if (code == 0) return;
    const std::string wrong = fmt::format("{} returned {} ({})", function, code, call_.error_string(code));
    if (code == nvrtc_out_of_memory)
      fail<OutOfMemory>({.operation = "NVRTC " + version(), .wrong = wrong, .remedy = "Free host memory"});
    fail<KernelError>({.operation = "NVRTC " + version(),
                       .with = {{"library", library_.file()}, {"architecture", architecture}},
                       .wrong = wrong,
                       .remedy = "Check whether libnvrtc-builtins is in the same folder and has the same version"});
  };
  const std::string option = "--gpu-architecture=" + architecture;
  const bool cubin = architecture.starts_with("sm_");
  const auto get = [&](stream::Handle program, std::string& bytes) {
    std::size_t size = 0;
    check((cubin ? call_.cubin_size : call_.ptx_size)(stream::In{program}, &size), "nvrtcGetCUBINSize");
    bytes.resize(size);
    check((cubin ? call_.cubin : call_.ptx)(stream::In{program}, bytes.data()), "nvrtcGetCUBIN");
  };
  const char* const contract = exact ? "--fmad=false" : "--fmad=true";
  if (verbose)
    return stream::compile_text(call_, "nvrtc", text, {option.c_str(), contract, "--ptxas-options=--verbose"},
                                nvrtc_compilation, check, get);
  return stream::compile_text(call_, "nvrtc", text, {option.c_str(), contract}, nvrtc_compilation, check, get);
}

}  // namespace tessera::cuda
