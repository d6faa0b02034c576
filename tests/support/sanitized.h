// SPDX-License-Identifier: Apache-2.0
// Constants that show whether the build uses a sanitizer. Such builds are slower. The runtime of a sanitizer rejects
// libraries that open other libraries with RTLD_DEEPBIND, such as Intel's compiler and Level Zero driver.
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
