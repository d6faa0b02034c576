// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/icd.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>

#include "tessera/backend/opencl/dispatch.h"
#include "tessera/base/config.h"

namespace tessera::cl {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string library_of(const fs::path& file) {
  if (file.extension() != ".icd") return file.string();
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return trimmed(line);
}

/// The platforms of every driver opened; drivers are never closed.
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

/// The driver's platforms, or why there are none.
std::string platforms_of(const os::Library& library, std::vector<PlatformId>& into) {
  using Get = Code(std::uint32_t, PlatformId*, std::uint32_t*);
  const char* name = "clIcdGetPlatformIDsKHR";
  Get* get = nullptr;
  if (auto* address = library.function<void*(const char*)>("clGetExtensionFunctionAddress"))
    get = reinterpret_cast<Get*>(address(name));
  if (get == nullptr) get = library.function<Get>(name);
  if (get == nullptr) return std::string("it has no ") + name + ", so it is no driver for OpenCL's loader";
  std::uint32_t count = 0;
  Code code = get(0, nullptr, &count);
  if (code == platform_not_found || (code == success && count == 0)) return "it shows no platform";
  std::vector<PlatformId> found(count);
  if (code == success) code = get(count, found.data(), nullptr);
  if (code != success) return std::string(name) + " answered " + code_text(code);
  into.insert(into.end(), found.begin(), found.end());
  return "";
}

}  // namespace

std::vector<Icd> installed_drivers() {
  std::vector<Icd> drivers;
  const auto add = [&](const fs::path& file) {
    Icd icd{file.string(), library_of(file)};
    const auto same = [&](const Icd& other) { return other.library == icd.library; };
    if (!icd.library.empty() && std::ranges::none_of(drivers, same)) drivers.push_back(std::move(icd));
  };
  const std::string named = config::text("OCL_ICD_FILENAMES").value_or("");
  for (std::size_t at = 0; at < named.size();) {
    const std::size_t end = std::min(named.find(':', at), named.size());
    if (end > at) add(named.substr(at, end - at));
    at = end + 1;
  }
  std::string place = "/etc/OpenCL/vendors";
  for (const char* variable : {"OPENCL_VENDOR_PATH", "OCL_ICD_VENDORS"})
    if (const auto value = config::text(variable)) place = *value;
  std::error_code error;
  if (!fs::is_directory(place, error)) {
    if (fs::exists(place, error) || place.find('/') == place.npos) add(place);
    return drivers;
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".icd") files.push_back(it->path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) add(file);
  return drivers;
}

void open_drivers(const std::vector<std::string>& files, Api& api) {
  std::vector<PlatformId> found;
  api.direct = true;
  for (const std::string& file : files) {
    const os::Library library = os::Library::open(library_of(file));
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
