// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/store.h"

#include <filesystem>

#include "tessera/base/config.h"
#include "tessera/device/settings.h"

namespace tessera {

os::PrivateStore private_store() {
  namespace fs = std::filesystem;
  if (settings().cache_dir) return os::PrivateStore(*settings().cache_dir);
  // According to the XDG Base Directory Specification, relative paths must be ignored.
  if (const auto cache = config::text("XDG_CACHE_HOME"); cache && fs::path(*cache).is_absolute())
    return os::PrivateStore(fs::path(*cache) / "tessera");
  if (const auto home = config::text("HOME")) return os::PrivateStore(fs::path(*home) / ".cache" / "tessera");
  return os::PrivateStore({});
}

}  // namespace tessera
