// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer is used: such builds are slower, and the runtime rejects libraries that open others with
// RTLD_DEEPBIND, like Intel's compiler and Level Zero driver.
#pragma once

namespace tessera::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif
inline constexpr const char* no_deepbind =
    "libocloc and Intel's Level Zero driver, in builds without a sanitizer: they open libraries with RTLD_DEEPBIND, "
    "which a sanitizer's runtime rejects";

}  // namespace tessera::test
