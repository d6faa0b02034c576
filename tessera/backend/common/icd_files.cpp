// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/icd_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tessera/base/config.h"

namespace tessera::backend {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

std::string icd_library(const std::string& file) {
  if (fs::path(file).extension() != ".icd") return file;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return trimmed(line);
}

std::vector<Icd> installed_icds() {
  std::vector<Icd> drivers;
  const auto add = [&](const fs::path& file) {
    Icd icd{file.string(), icd_library(file.string())};
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

}  // namespace tessera::backend
