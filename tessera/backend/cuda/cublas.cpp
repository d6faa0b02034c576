// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/cublas.h"

#include <fmt/format.h>

#include "tessera/backend/cuda/nvrtc.h"
#include "tessera/backend/stream/library.h"
#include "tessera/backend/stream/lt_blas.h"
#include "tessera/base/os/library_search.h"
#include "tessera/device/driver.h"

namespace tessera::cuda {

std::vector<std::string> cublas_candidates() {
  const std::string named = stream::library_from_variable("TESSERA_CUBLAS_LIBRARY");
  if (named == "none") return {};
  if (!named.empty()) return {named};
  std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"};
  for (std::string& file : os::library_files(toolkit_folders(), "libcublasLt.so")) names.push_back(std::move(file));
  return names;
}

std::unique_ptr<DriverBlas> open_cublas(int driver_version, std::string& why) {
  if (cublas_candidates().empty()) why = "TESSERA_CUBLAS_LIBRARY is 'none'";
  const auto refuse = [&](const std::string& reason) { why += (why.empty() ? "" : "; ") + reason; };
  for (const std::string& name : cublas_candidates()) {
    const os::Library library = os::Library::open(name);
    if (!library.loaded()) {
      refuse(library.reason());
      continue;
    }
    // cublasLtGetVersion returns 130002 for 13.0.2. In versions 11 and 12, the major version is encoded in the same
    // way.
    const auto version = library.function<std::size_t()>("cublasLtGetVersion");
    stream::LtFunctions call;
    std::string missing = stream::take_lt(library, "cublasLt", call);
    if (!version) missing = "cublasLtGetVersion";
    if (!missing.empty()) {
      refuse(fmt::format("{}: it has no {}", name, missing));
      continue;
    }
    const std::size_t major = version() / 10000;
    if (major > static_cast<std::size_t>(driver_version / 1000)) {
      refuse(fmt::format("{}: it is from CUDA {}, a later version than the driver supports", name, major));
      continue;
    }
    why.clear();
    return stream::make_lt_blas(call, stream::cublas_lt, "cublasLt",
                                library.function<const char*(stream::Code)>("cublasLtGetStatusString"));
  }
  return nullptr;
}

}  // namespace tessera::cuda
