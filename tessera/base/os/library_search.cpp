// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/library_search.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "tessera/base/os/library.h"
#include "tessera/base/os/system.h"

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

/// Returns the numbers in a name, so that 12.10 is sorted after 12.9.
std::vector<unsigned> numbers_in(std::string_view name) {
  std::vector<unsigned> out;
  for (std::size_t at = 0; at < name.size();) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), value);
    if (error == std::errc() && end != name.data() + at) {
      out.push_back(value);
      at = static_cast<std::size_t>(end - name.data());
    } else {
      ++at;
    }
  }
  return out;
}

bool is_version(std::string_view text) {
  return !text.empty() && text[0] == '.' && text.find_first_not_of("0123456789.") == text.npos;
}

bool folder_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool file_is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  if (at + sizeof word <= bytes.size()) std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// Debian's name of the architecture, and the flag of its libraries in ldconfig's cache (0: unknown).
#if defined(__x86_64__)
#define TESSERA_MULTIARCH "x86_64-linux-gnu"
constexpr std::uint32_t cache_flag = 0x0300;
#elif defined(__aarch64__)
#define TESSERA_MULTIARCH "aarch64-linux-gnu"
constexpr std::uint32_t cache_flag = 0x0a00;
#else
#define TESSERA_MULTIARCH "."
constexpr std::uint32_t cache_flag = 0;
#endif

/// Looks up a name in ldconfig's cache. In the format of glibc since 2.2, a header of 48 bytes is followed by 24 bytes
/// per library, which contain the offsets of its name and path relative to the header.
std::string cached_file(const std::string& name, const fs::path& cache) {
  std::ifstream in(cache, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const std::size_t start = file.find("glibc-ld.so.cache1.1");
  if (start == file.npos) return "";
  const std::string_view bytes = std::string_view(file).substr(start);
  const auto text = [&](std::uint32_t at) {
    return at < bytes.size() ? bytes.substr(at, bytes.find('\0', at) - at) : std::string_view();
  };
  for (std::uint64_t i = 0, count = word_at(bytes, 20); i < count; ++i) {
    const std::size_t entry = 48 + 24 * i;
    if (entry + 24 > bytes.size()) break;
    if (cache_flag != 0 && (word_at(bytes, entry) & 0xff00) != cache_flag) continue;  // for another architecture
    if (text(word_at(bytes, entry + 4)) != name) continue;
    const std::string path(text(word_at(bytes, entry + 8)));
    if (file_is_there(path)) return path;
  }
  return "";
}

}  // namespace

std::string loader_file(const std::string& name, const fs::path& cache) {
  if (name.find('/') != name.npos) {
    if (file_is_there(name)) return name;
    // Since macOS 11, system libraries exist only in a shared cache. Only their framework folders are still on disk.
    const std::string ending = ".framework/";
    const std::size_t at = name.find(ending);
    std::error_code ignored;
    if (at == name.npos || !fs::is_directory(name.substr(0, at + ending.size()), ignored)) return "";
    return name.substr(0, at + ending.size() - 1);
  }
  std::vector<fs::path> folders;
  const std::string path = environment("LD_LIBRARY_PATH").value_or("");
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find_first_of(":;", at), path.size());
    folders.emplace_back(path.substr(at, end - at));
    at = end + 1;
  }
  folders.push_back(own_folder());
  for (const fs::path& folder : folders)
    if (file_is_there(folder / name)) return (folder / name).string();
  if (std::string found = cached_file(name, cache); !found.empty()) return found;
  for (const char* folder :
       {"/lib/" TESSERA_MULTIARCH, "/usr/lib/" TESSERA_MULTIARCH, "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
    if (file_is_there(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  return "";
}

std::vector<std::string> library_files(std::span<const fs::path> folders, std::string_view stem) {
  std::vector<std::string> out;
  for (const fs::path& folder : folders) {
    std::string best;
    bool plain = false;
    for (const std::string& name : file_names_in(folder)) {
      plain = plain || name == stem;
      if (!name.starts_with(stem) || !is_version(std::string_view(name).substr(stem.size()))) continue;
      const auto parts = [](std::string_view s) { return std::count(s.begin(), s.end(), '.'); };
      if (best.empty() || parts(name) < parts(best) ||
          (parts(name) == parts(best) && numbers_in(name) > numbers_in(best)))
        best = name;
    }
    if (best.empty() && plain) best = stem;
    if (best.empty()) continue;
    const std::string file = (folder / best).string();
    if (std::find(out.begin(), out.end(), file) == out.end()) out.push_back(file);
  }
  return out;
}

std::vector<fs::path> folders_named(const fs::path& parent, std::string_view prefix, const fs::path& below) {
  std::vector<std::string> names;
  for (std::string& name : file_names_in(parent))
    if (name.starts_with(prefix)) names.push_back(std::move(name));
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    if ((a == prefix) != (b == prefix))
      return a == prefix;  // an unversioned name is usually a link that the administrator has chosen
    return numbers_in(a) != numbers_in(b) ? numbers_in(a) > numbers_in(b) : a < b;
  });
  std::vector<fs::path> out;
  for (const std::string& name : names)
    if (fs::path folder = parent / name / below; folder_exists(folder)) out.push_back(std::move(folder));
  return out;
}

std::vector<fs::path> python_packages() {
  std::vector<fs::path> roots;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto value = environment(variable); value && !value->empty()) roots.emplace_back(*value);
  if (const auto home = environment("HOME"); home && !home->empty()) roots.push_back(fs::path(*home) / ".local");
  roots.insert(roots.end(), {"/usr/local", "/usr"});
  std::vector<fs::path> out;
  for (const fs::path& root : roots)
    for (const char* folder : {"site-packages", "dist-packages"})
      for (fs::path& found : folders_named(root / "lib", "python3", folder)) out.push_back(std::move(found));
  return out;
}

std::vector<fs::path> python_library_folders(std::string_view package) {
  std::vector<fs::path> out;
  for (const fs::path& packages : python_packages())
    for (fs::path& found : folders_named(packages / package, "", "lib")) out.push_back(std::move(found));
  return out;
}

}  // namespace tessera::os
