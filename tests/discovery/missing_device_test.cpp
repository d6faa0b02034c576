// SPDX-License-Identifier: Apache-2.0
// Explanations of why a GPU is missing. A child process of an ordinary user reads a simulated machine, which is a
// folder with its own /sys, /dev and /proc.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tessera/backend/common/missing_device.h"
#include "tessera/base/os/library_search.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_contains;
using test::Variables;

class Machine : public ::testing::Test {
 protected:
  Machine() { chmod(root.c_str(), 0755); }

  void file(const std::string& path, const std::string& text = "", mode_t mode = 0666) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
    chmod((root / path).c_str(), mode);
  }
  void card(const std::string& address, const std::string& vendor, const std::string& module = {},
            const std::string& kind = "0x030000") {
    const std::string folder = "sys/bus/pci/devices/" + address + "/";
    file(folder + "vendor", vendor);
    file(folder + "device", "0x1234");
    file(folder + "class", kind);
    if (!module.empty()) fs::create_symlink("../../../drivers/" + module, root / folder / "driver");
  }
  void render_node(const std::string& vendor, mode_t mode = 0666) {
    file("dev/dri/renderD128", "", mode);
    file("sys/class/drm/renderD128/device/vendor", vendor);
  }
  /// Runs as an ordinary user, because root can access every file.
  std::string why(os::Vendor vendor, std::initializer_list<const char*> variables = {}, const Variables& changed = {},
                  const std::string& library = {}) {
    Variables all = {{"TESSERA_SYSTEM_ROOT", root.string()}};
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(all, [&]() -> std::string {
      if (geteuid() == 0 && setuid(65534) != 0) return "setuid failed";
      return backend::explain_missing_device(vendor, variables, library);
    });
  }
  const test::Folder made;
  const fs::path root = made.path();
};

TEST_F(Machine, ReportsThatThereIsNoCard) {
  card("0000:00:02.0", "0x8086", "i915");
  card("0000:01:00.0", "0x10de", "snd_hda_intel", "0x040300");  // the audio function of a GPU is not a GPU
  expect_contains(why(os::nvidia), {"No NVIDIA card was found on the PCI bus", "of this machine", "virtual machine"});
  expect_contains(why(os::amd), {"No AMD card was found on the PCI bus"});
  render_node("0x8086");
  EXPECT_EQ(why(os::intel), "");
}

TEST_F(Machine, DeviceFilesCreatedByDriversDoNotProveACard) {
  fs::create_directories(root / "sys/bus/pci/devices");
  file("dev/nvidiactl");  // cuInit creates it even without a GPU
  expect_contains(why(os::nvidia), {"No NVIDIA card was found on the PCI bus"});
  file("dev/nvidia-uvm", "", 0600);
  file(".dockerenv");
  expect_contains(why(os::nvidia), {"No NVIDIA card was found on the PCI bus", "--gpus all"});
  file("dev/kfd", "", 0600);  // the kernel module creates it
  expect_contains(why(os::amd), {"No AMD card was found on the PCI bus"});
  // The device file of a GPU proves that it exists, in containers that hide the PCI bus.
  file("dev/nvidia0");
  expect_contains(why(os::nvidia), {"This user has no read and write access to /dev/nvidia-uvm"});
  fs::remove(root / "dev/nvidia-uvm");
  expect_contains(why(os::nvidia), {"/dev/nvidia-uvm does not exist in this container"});
}

TEST_F(Machine, SuggestsContainerOptionsInAContainer) {
  file(".dockerenv");
  expect_contains(why(os::nvidia), {"container (docker)", "--gpus all"});
  card("0000:03:00.0", "0x1002", "amdgpu");
  expect_contains(why(os::amd),
                  {"/dev/kfd does not exist in this container (docker)", "--device /dev/kfd --device /dev/dri"});
  fs::remove(root / ".dockerenv");
  file("run/.containerenv");
  expect_contains(why(os::amd), {"container (podman)"});
  fs::remove(root / "run/.containerenv");
  file("proc/1/cgroup", "0::/kubepods/besteffort/pod1");
  expect_contains(why(os::amd), {"container (kubernetes)"});
}

TEST_F(Machine, CardWithoutKernelDriverSuggestsModuleAndPackage) {
  card("0000:01:00.0", "0x10de");
  expect_contains(why(os::nvidia),
                  {"no driver for the NVIDIA card at 0000:01:00.0", "modprobe nvidia", "nvidia-driver"});
  card("0000:03:00.0", "0x1002");
  expect_contains(why(os::amd), {"AMD card at 0000:03:00.0", "modprobe amdgpu", "firmware-amd-graphics"});
  card("0000:00:02.0", "0x8086");
  expect_contains(why(os::intel), {"Intel card at 0000:00:02.0", "modprobe i915"});
}

TEST_F(Machine, ReportsUnsuitableKernelDriverOfTheCard) {
  card("0000:01:00.0", "0x10de", "nouveau");
  expect_contains(why(os::nvidia),
                  {"The kernel driver of the NVIDIA card at 0000:01:00.0 is nouveau", "install nvidia"});
  card("0000:03:00.0", "0x1002", "vfio-pci");
  expect_contains(why(os::amd), {"for a virtual machine (vfio-pci)"});
}

TEST_F(Machine, MissingDeviceFilesSuggestModules) {
  card("0000:01:00.0", "0x10de", "nvidia");
  file("dev/nvidiactl");
  expect_contains(why(os::nvidia), {"/dev/nvidia-uvm does not exist", "nvidia-modprobe -u -c 0"});
  file("dev/nvidia-uvm");
  file("dev/nvidia3");
  EXPECT_EQ(why(os::nvidia), "");
  card("0000:03:00.0", "0x1002", "amdgpu");
  file("dev/kfd");
  expect_contains(why(os::amd), {"/dev/dri/renderD* does not exist"});
  render_node("0x1002");
  EXPECT_EQ(why(os::amd), "");
}

TEST_F(Machine, InaccessibleDeviceFilesSuggestGroup) {
  card("0000:03:00.0", "0x1002", "amdgpu");
  file("dev/kfd", "", 0600);
  render_node("0x1002");
  if (geteuid() == 0) {
    EXPECT_EQ(chown((root / "dev/kfd").c_str(), 0, 44), 0);  // 44 is the group video on Debian
    expect_contains(why(os::amd),
                    {"This user has no read and write access to /dev/kfd", "group", "usermod -a -G render,video"});
    EXPECT_EQ(chown((root / "dev/kfd").c_str(), 0, 0), 0);
    expect_contains(why(os::amd), {"This user has no read and write access to /dev/kfd", "only root has access"});
  } else {
    chmod((root / "dev/kfd").c_str(), 0);
    expect_contains(why(os::amd), {"This user has no read and write access to /dev/kfd"});
  }
}

TEST_F(Machine, ReportsKernelModuleAndLibraryVersionsIfTheyDiffer) {
  card("0000:01:00.0", "0x10de", "nvidia");
  for (const char* node : {"dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0"}) file(node);
  file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 2024");
  file("usr/lib/libcuda.so.535.183.01");
  fs::create_symlink("libcuda.so.535.183.01", root / "usr/lib/libcuda.so.1");
  const std::string library = (root / "usr/lib/libcuda.so.1").string();
  expect_contains(why(os::nvidia, {}, {}, library), {"550.54.14", "535.183.01", "restart after a driver update"});
  file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 2024");
  EXPECT_EQ(why(os::nvidia, {}, {}, library), "");
}

TEST_F(Machine, ReportsVariablesThatHideAllDevicesFirst) {
  for (const char* none : {"", "-1", "NoDevFiles"})
    expect_contains(why(os::nvidia, {"CUDA_VISIBLE_DEVICES"}, {{"CUDA_VISIBLE_DEVICES", none}}),
                    {"CUDA_VISIBLE_DEVICES is set to \"" + std::string(none) + "\", which hides all the devices"});
  const std::string text = why(os::nvidia, {"CUDA_VISIBLE_DEVICES"}, {{"CUDA_VISIBLE_DEVICES", "7"}});
  expect_contains(text, {"No NVIDIA card", "Also, CUDA_VISIBLE_DEVICES is set to \"7\", which may hide the devices"});
  expect_contains(why(os::amd, {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"},
                      {{"HIP_VISIBLE_DEVICES", "0"}, {"ROCR_VISIBLE_DEVICES", ""}}),
                  {"ROCR_VISIBLE_DEVICES is set to \"\", which hides all"});
}

TEST_F(Machine, ReportsNothingOnWsl) {
  file("dev/dxg");
  EXPECT_EQ(why(os::nvidia), "");
}

TEST(LoaderFile, MatchesTheSystemLoader) {
  const std::string c = os::loader_file("libc.so.6");
  EXPECT_TRUE(c.ends_with("/libc.so.6")) << c;
  EXPECT_EQ(os::loader_file("libnosuchthing.so.1"), "");
  EXPECT_EQ(os::loader_file(c), c);
  EXPECT_EQ(os::loader_file("/nonexistent/libc.so.6"), "");
  const fs::path framework = fs::temp_directory_path() / ("tessera-" + std::to_string(getpid()) + ".framework");
  EXPECT_EQ(os::loader_file(framework / "tessera"), "");
  fs::create_directory(framework);
  EXPECT_EQ(os::loader_file(framework / "tessera"), framework) << "system libraries are not files on macOS";
  fs::remove(framework);
  // A truncated cache must not cause an error.
  std::ifstream in("/etc/ld.so.cache", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const fs::path cut = fs::temp_directory_path() / ("tessera-cache-" + std::to_string(getpid()));
  for (std::size_t size : {std::size_t{0}, std::size_t{21}, std::size_t{50}, whole.size() / 7, whole.size() / 2}) {
    std::ofstream(cut, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_EQ(os::loader_file("libnosuchthing.so.1", cut), "");
  }
  fs::remove(cut);
}

TEST(Fingerprint, DependsOnTheMachine) {
  EXPECT_EQ(os::hardware_fingerprint(), os::hardware_fingerprint());
  EXPECT_NE(os::hardware_fingerprint("/nonexistent"), os::hardware_fingerprint());
}

}  // namespace
}  // namespace tessera
