// SPDX-License-Identifier: Apache-2.0
#include "tessera/linalg/lapack.h"

#include <fmt/format.h>

#include <vector>

#include "tessera/base/log.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/system.h"
#include "tessera/executor/executor.h"

namespace tessera::linalg::host {

namespace {

std::vector<std::string> lapack_candidates() {
  const std::string named = os::environment("TESSERA_LAPACK_LIBRARY").value_or("");
  if (named == "none") return {};
  if (!named.empty()) return {named};
#if defined(_WIN32)
  return {"libopenblas.dll"};
#elif defined(__APPLE__)
  return {"libopenblas.0.dylib", "/System/Library/Frameworks/Accelerate.framework/Accelerate"};
#else
  return {"libopenblas.so.0", "liblapack.so.3"};
#endif
}

/// Takes the functions of one precision. Returns the first missing symbol, or an empty string.
template <class T>
std::string take(const os::Library& library, char prefix, LapackFunctions<T>& call) {
  std::string missing;
#define TESSERA_TAKE(member, suffix, ...)                                                       \
  {                                                                                             \
    const std::string symbol = prefix + std::string(suffix);                                    \
    call.member = library.function<typename LapackFunctions<T>::member##_type>(symbol.c_str()); \
    if (call.member == nullptr && missing.empty()) missing = symbol;                            \
  }
  TESSERA_LAPACK(TESSERA_TAKE)
#undef TESSERA_TAKE
  return missing;
}

/// Factorises ((1, 4), (2, 3)), which exchanges the rows, and checks the pivots and the factors. Integers are passed in
/// zeroed storage of 64 bits, so that a library with 64-bit integers (ILP64) reads the same sizes, but writes its
/// pivots to other places.
template <class T>
bool computes(const LapackFunctions<T>& call) {
  std::int64_t two = 2, info = 0, pivots[2] = {0, 0};
  const auto integer = [](std::int64_t& v) { return reinterpret_cast<Int*>(&v); };
  T a[] = {1, 2, 4, 3};
  call.getrf(integer(two), integer(two), a, integer(two), integer(pivots[0]), integer(info));
  return info == 0 && *integer(pivots[0]) == 2 && *(integer(pivots[0]) + 1) == 2 && a[0] == 2 && a[1] == T(0.5) &&
         a[2] == 3 && a[3] == T(2.5);
}

/// Returns why the library cannot be used, or an empty string.
std::string unusable(const os::Library& library, Lapack& out) {
  std::string missing = take(library, 's', out.f32);
  if (missing.empty()) missing = take(library, 'd', out.f64);
  if (!missing.empty()) return fmt::format("{}: it has no {}", library.file(), missing);
  if (!computes(out.f32) || !computes(out.f64))
    return library.file() + ": a test factorisation failed; perhaps its integers have 64 bits (ILP64)";
  return {};
}

Lapack open() {
  Lapack out;
  const std::vector<std::string> candidates = lapack_candidates();
  if (candidates.empty()) out.reason = "TESSERA_LAPACK_LIBRARY is 'none'";
  for (const std::string& candidate : candidates) {
    const os::Library library = os::Library::open(candidate);
    const std::string wrong = library.loaded() ? unusable(library, out) : library.reason();
    if (!wrong.empty()) {
      out.reason += (out.reason.empty() ? "" : "; ") + wrong;
      continue;
    }
    out.loaded = true, out.file = library.file(), out.name = "LAPACK", out.reason.clear();
    if (const auto config = library.function<const char*()>("openblas_get_config")) {
      const std::string text = config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
      out.name = text.substr(0, text.find(' ', text.find(' ') + 1));
    }
    const auto threads = library.function<int()>("openblas_get_num_threads");
    const auto set_threads = library.function<void(int)>("openblas_set_num_threads");
    const int most = static_cast<int>(executor::Executor::instance().threads());
    if (threads != nullptr && set_threads != nullptr && threads() > most) set_threads(most);
    break;
  }
  logging::info(out.loaded ? fmt::format("linear algebra: opened {} ({})", out.name, out.file)
                           : fmt::format("linear algebra runs on Tessera's own algorithms: {}", out.reason));
  return out;
}

}  // namespace

const Lapack& lapack() {
  static const Lapack& library = *new Lapack(open());
  return library;
}

}  // namespace tessera::linalg::host
