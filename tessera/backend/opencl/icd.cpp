// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/icd.h"

#include <algorithm>
#include <mutex>

#include "tessera/backend/common/icd_files.h"
#include "tessera/backend/opencl/dispatch.h"

namespace tessera::cl {
namespace {

/// The platforms of all drivers that were opened. Drivers are never closed.
struct Platforms {
  std::mutex lock;
  std::vector<PlatformId> all;
};
Platforms& platforms() {
  static auto* the_platforms = new Platforms;
  return *the_platforms;
}

Code all_platforms(std::uint32_t room, PlatformId* into, std::uint32_t* count) {
  std::lock_guard hold(platforms().lock);
  const auto& all = platforms().all;
  if (count) *count = static_cast<std::uint32_t>(all.size());
  if (into) std::copy_n(all.begin(), std::min<std::size_t>(room, all.size()), into);
  return all.empty() ? platform_not_found : success;
}

/// Appends the platforms of a driver. Returns an error if it has none, otherwise an empty string.
std::string platforms_of(const os::Library& library, std::vector<PlatformId>& into) {
  using Get = Code(std::uint32_t, PlatformId*, std::uint32_t*);
  const char* name = "clIcdGetPlatformIDsKHR";
  Get* get = nullptr;
  if (auto* address = library.function<void*(const char*)>("clGetExtensionFunctionAddress"))
    get = reinterpret_cast<Get*>(address(name));
  if (get == nullptr) get = library.function<Get>(name);
  if (get == nullptr) return std::string("it has no ") + name + ", so it is not a driver for OpenCL loaders";
  std::uint32_t count = 0;
  Code code = get(0, nullptr, &count);
  if (code == platform_not_found || (code == success && count == 0)) return "it lists no platform";
  std::vector<PlatformId> found(count);
  if (code == success) code = get(count, found.data(), nullptr);
  if (code != success) return std::string(name) + " returned " + code_text(code);
  into.insert(into.end(), found.begin(), found.end());
  return "";
}

}  // namespace

void open_drivers(const std::vector<std::string>& files, Api& api) {
  std::vector<PlatformId> found;
  api.direct = true;
  for (const std::string& file : files) {
    const os::Library library = os::Library::open(backend::icd_library(file));
    std::string wrong = library.loaded() ? platforms_of(library, found) : library.reason();
    if (library.loaded() || !api.library.loaded()) api.library = library;
    if (!wrong.empty()) api.refused += (api.refused.empty() ? "" : "; ") + wrong;
  }
  {
    std::lock_guard hold(platforms().lock);
    platforms().all = std::move(found);
  }
  fill_by_dispatch(api);
  api.get_platforms = all_platforms;
}

}  // namespace tessera::cl
