// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/missing_device.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/base/os/library_search.h"

namespace tessera::backend {
namespace {

using os::Access;
using os::DeviceFile;
using os::DisplayCard;

struct Facts {
  std::string_view vendor;
  std::vector<std::string_view> modules;  ///< kernel drivers that support computing
  std::string_view install;               ///< packages that contain the kernel driver
  std::string_view load;                  ///< commands that load it
  std::string_view container;             ///< options that a container needs
};

Facts facts_of(os::Vendor vendor) {
  switch (vendor) {
    case os::nvidia:
      return {"NVIDIA",
              {"nvidia"},
              "Debian: nvidia-driver, in section non-free; Ubuntu: nvidia-driver-NNN",
              "modprobe nvidia nvidia_uvm, then nvidia-modprobe -u -c 0",
              "--gpus all (with the package nvidia-container-toolkit on the host)"};
    case os::amd:
      return {"AMD",
              {"amdgpu"},
              "Debian: firmware-amd-graphics, in section non-free-firmware",
              "modprobe amdgpu",
              "--device /dev/kfd --device /dev/dri"};
    default:
      return {"Intel",
              {"i915", "xe"},
              "Debian: firmware-misc-nonfree",
              "modprobe i915, or xe for the newest cards",
              "--device /dev/dri"};
  }
}

/// Device files that the vendor's driver requires.
struct Needed {
  std::string name;  ///< name in messages
  std::vector<DeviceFile> found;
};
std::vector<Needed> needed_files(os::Vendor vendor, const std::vector<DeviceFile>& all) {
  const auto those = [&](auto&& is) {
    std::vector<DeviceFile> out;
    std::ranges::copy_if(all, std::back_inserter(out), is);
    return out;
  };
  const std::string number = fmt::format("{:#06x}", static_cast<std::uint32_t>(vendor));
  const auto nodes = those([&](const DeviceFile& f) { return f.vendor == number; });
  switch (vendor) {
    case os::nvidia: {
      std::vector<Needed> out;
      for (const char* name : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"})
        out.push_back({name, those([&](const DeviceFile& f) { return f.path == name; })});
      // In a container, the first visible card may have a number other than 0.
      out.back().found = those([](const DeviceFile& f) {
        return f.path.size() > 11 && f.path.find_first_not_of("0123456789", 11) == f.path.npos;
      });
      return out;
    }
    case os::amd:
      return {{"/dev/kfd", those([](const DeviceFile& f) { return f.path == "/dev/kfd"; })},
              {"/dev/dri/renderD*", nodes}};
    default: return {{"/dev/dri/renderD*", nodes}};
  }
}

/// Resolves symbolic links, and returns "535.183.01" if the file is "libcuda.so.535.183.01".
std::string version_in_name(const std::string& library) {
  std::error_code ignored;
  const std::string name = std::filesystem::canonical(library, ignored).filename().string();
  const std::size_t at = name.find(".so.");
  if (at == name.npos) return "";
  const std::string version = name.substr(at + 4);
  return version.find('.') != version.npos && version.find_first_not_of("0123456789.") == version.npos ? version : "";
}

struct Hidden {
  std::string text;
  bool certain = false;
};
/// Returns the first variable that hides all devices. If there is none, returns the first variable that is set.
Hidden hidden_by(std::initializer_list<const char*> variables) {
  Hidden hidden;
  for (const char* name : variables) {
    const auto value = os::environment(name);
    if (!value) continue;
    // An index of -1, or text that is not a number, ends the list of visible devices. If it comes first, no device is
    // visible.
    const bool none = value->empty() || value->starts_with("-1") || *value == "NoDevFiles" || *value == "none";
    if (!hidden.text.empty() && (!none || hidden.certain)) continue;
    hidden.certain = none;
    hidden.text = fmt::format("{} is set to \"{}\", which {} the devices: unset it, or list the devices by number",
                              name, *value, none ? "hides all" : "may hide");
  }
  return hidden;
}

}  // namespace

std::string diagnose_missing_device(os::Vendor vendor, const std::string& library) {
  const Facts facts = facts_of(vendor);
  std::vector<DisplayCard> cards = os::display_cards();
  std::erase_if(cards, [&](const DisplayCard& card) { return card.vendor != vendor; });
  const std::vector<DeviceFile> files = os::device_files();
  const std::vector<Needed> needed = needed_files(vendor, files);
  const std::string container = os::container();
  const bool wsl = std::ranges::any_of(files, [](const DeviceFile& f) { return f.path == "/dev/dxg"; });
  // Some device files exist without a card: NVIDIA's library creates /dev/nvidiactl when it is called, and the kernel
  // module creates /dev/kfd. Files that belong to one card prove that there is a card, even in containers that hide the
  // PCI bus.
  const bool bus = os::file_exists((os::system_root() / "sys/bus/pci/devices").c_str());
  const auto of_a_card = [&](const Needed& n) {
    return !n.found.empty() && (!bus || n.name == "/dev/nvidia0" || n.name == "/dev/dri/renderD*");
  };
  const bool any_file = std::ranges::any_of(needed, of_a_card);

  if (cards.empty() && !any_file && !wsl) {
    const std::string start = fmt::format("No {} card was found on the PCI bus of this machine", facts.vendor);
    if (container.empty()) return start + ". In a virtual machine, pass the card through to the guest";
    return fmt::format("{}. This is a container ({}): if the host has a card, start it with {}", start, container,
                       facts.container);
  }
  for (const Needed& need : needed) {
    const auto denied = std::ranges::find(need.found, Access::denied, &DeviceFile::access);
    if (denied == need.found.end()) continue;
    const bool root = denied->group == "root" || denied->group == "0";
    return fmt::format(
        "This user has no read and write access to {}{}", denied->path,
        root ? ": only root has access; ask the administrator (usually a udev rule gives access to the group render)"
             : fmt::format(": add the user to the group {} (sudo usermod -a -G render,video $USER), and log in again",
                           denied->group));
  }
  if (!cards.empty() && !wsl) {
    const auto driven = [&](const DisplayCard& card) { return std::ranges::count(facts.modules, card.module) > 0; };
    if (std::ranges::none_of(cards, driven) && container.empty()) {
      const DisplayCard& card = cards.front();
      const std::string where = fmt::format("the {} card at {}", facts.vendor, card.address);
      if (card.module == "vfio-pci")
        return fmt::format("The kernel has reserved {} for a virtual machine (vfio-pci): bind it to {} again", where,
                           facts.modules.front());
      if (!card.module.empty())
        return fmt::format(
            "The kernel driver of {} is {}, which does not support computing: install {} ({}), and restart", where,
            card.module, facts.modules.front(), facts.install);
      return fmt::format("The kernel has no driver for {}: load it ({}), or install it ({})", where, facts.load,
                         facts.install);
    }
  }
  if (!wsl)
    for (const Needed& need : needed)
      if (need.found.empty())
        return container.empty() ? fmt::format("{} does not exist: load the kernel driver ({})", need.name, facts.load)
                                 : fmt::format("{} does not exist in this container ({}): start it with {}", need.name,
                                               container, facts.container);
  if (vendor == os::nvidia) {
    const std::string kernel = os::nvidia_kernel_driver(), user = version_in_name(library);
    if (!kernel.empty() && !user.empty() && kernel != user)
      return fmt::format(
          "The kernel driver is {}, but the library {} is {}: restart after a driver update, or install the library "
          "of the same version",
          kernel, library, user);
  }
  return "";
}

std::string explain_missing_device(os::Vendor vendor, std::initializer_list<const char*> variables,
                                   const std::string& library) {
  const Hidden hidden = hidden_by(variables);
  if (hidden.certain) return hidden.text;
  const std::string cause = diagnose_missing_device(vendor, library);
  if (hidden.text.empty() || cause.empty()) return cause + hidden.text;
  return fmt::format("{}. Also, {}", cause, hidden.text);
}

std::string first_installed(const std::string& name, const std::vector<std::string>& candidates) {
  for (const std::string& candidate : candidates)
    if (const std::string file = os::loader_file(candidate); !file.empty()) return fmt::format("{} ({})", name, file);
  return fmt::format("no {}: large products run on Tessera's own kernels", name);
}

}  // namespace tessera::backend
