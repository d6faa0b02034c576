// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/hardware.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "tessera/base/os/system.h"

extern char** environ;

namespace tessera::os {
namespace {

namespace fs = std::filesystem;

std::string first_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

std::uint32_t hexadecimal(const fs::path& file) {
  std::ifstream in(file);
  std::uint32_t number = 0;
  in >> std::hex >> number;
  return in ? number : 0;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_text(const fs::path& file, std::string_view text) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.find(text) != line.npos) return true;
  return false;
}

DeviceFile device_file(const fs::path& root, const std::string& path) {
  DeviceFile file{path, Access::missing, "", ""};
  const fs::path at = root / path.substr(1);
  struct stat about {};
  if (::stat(at.c_str(), &about) != 0) return file;
  file.access = ::access(at.c_str(), R_OK | W_OK) == 0 ? Access::granted : Access::denied;
  const group* name = ::getgrgid(about.st_gid);
  file.group = name != nullptr ? name->gr_name : std::to_string(about.st_gid);
  const std::string node = fs::path(path).filename().string();
  if (node.starts_with("renderD")) file.vendor = first_word(root / "sys/class/drm" / node / "device/vendor");
  return file;
}

}  // namespace

fs::path system_root() {
  const auto named = environment("TESSERA_SYSTEM_ROOT");
  return named && !named->empty() ? fs::path(*named) : fs::path("/");
}

std::vector<DisplayCard> display_cards(const fs::path& root) {
  std::vector<DisplayCard> cards;
  const fs::path devices = root / "sys/bus/pci/devices";
  for (const std::string& address : file_names_in(devices)) {
    const fs::path folder = devices / address;
    const std::uint32_t kind = hexadecimal(folder / "class") >> 16;
    if (kind != 0x03 && kind != 0x12) continue;  // PCI classes of display controllers and processing accelerators
    DisplayCard card{address, hexadecimal(folder / "vendor"), hexadecimal(folder / "device"), ""};
    std::error_code ignored;
    card.module = fs::read_symlink(folder / "driver", ignored).filename().string();
    cards.push_back(std::move(card));
  }
  return cards;
}

std::vector<DeviceFile> device_files(const fs::path& root) {
  std::vector<DeviceFile> files;
  for (const std::string& name : file_names_in(root / "dev"))
    if ((name.starts_with("nvidia") && name != "nvidia-caps") || name == "kfd" || name == "dxg")
      files.push_back(device_file(root, "/dev/" + name));
  for (const std::string& name : file_names_in(root / "dev/dri"))
    if (name.starts_with("renderD")) files.push_back(device_file(root, "/dev/dri/" + name));
  return files;
}

std::string container(const fs::path& root) {
  if (is_there(root / ".dockerenv")) return "docker";
  if (is_there(root / "run/.containerenv")) return "podman";
  if (is_there(root / "var/run/secrets/kubernetes.io")) return "kubernetes";
  const std::string named = first_word(root / "run/systemd/container");
  if (!named.empty()) return named;
  for (const char* groups : {"proc/1/cgroup", "proc/self/cgroup"})
    for (const auto& [text, kind] : {std::pair("/docker", "docker"), std::pair("/kubepods", "kubernetes"),
                                     std::pair("/libpod", "podman"), std::pair("/lxc", "lxc")})
      if (has_text(root / groups, text)) return kind;
  return "";
}

std::string nvidia_kernel_driver(const fs::path& root) {
  std::ifstream in(root / "proc/driver/nvidia/version");
  std::string word;
  while (in >> word)
    if (std::isdigit(static_cast<unsigned char>(word[0])) && word.find('.') != word.npos &&
        word.find_first_not_of("0123456789.") == word.npos)
      return word;
  return "";
}

std::string boot_id(const fs::path& root) { return first_word(root / "proc/sys/kernel/random/boot_id"); }

std::string hardware_fingerprint(const fs::path& root) {
  std::string text = fmt::format("boot {}; user {} {}", boot_id(root), ::getuid(), ::getgid());
  for (const DisplayCard& card : display_cards(root))
    text += fmt::format("; card {} {:04x} {:04x} {}", card.address, card.vendor, card.device, card.module);
  for (const DeviceFile& file : device_files(root))
    text += fmt::format("; file {} {} {}", file.path, static_cast<int>(file.access), file.group);
  return text + "; nvidia " + nvidia_kernel_driver(root);
}

std::string file_stamp(const fs::path& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) return file.string() + " -";
  return fmt::format("{} {} {}.{:09} {}", file.string(), about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec,
                     about.st_ino);
}

std::vector<std::string> variables_named(std::string_view beginnings) {
  std::vector<std::string> words, found;
  std::istringstream in{std::string(beginnings)};
  for (std::string word; in >> word;) words.push_back(word);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::ranges::any_of(words, [&](const std::string& word) { return std::string_view(*entry).starts_with(word); }))
      found.emplace_back(*entry);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tessera::os
