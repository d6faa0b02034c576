// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/oneapi/compiler.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "tessera/backend/common/icd_files.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library_search.h"

namespace tessera::oneapi {

namespace fs = std::filesystem;

std::string compile_options(bool large_buffers, bool rounded_divide_sqrt) {
  // Uses OpenCL C 2.0, which includes subgroups. Debian's ocloc 22.43 does not support 3.0 for cards without images.
  return std::string("-cl-std=CL2.0") + (large_buffers ? " -cl-intel-greater-than-4GB-buffer-required" : "") +
         (rounded_divide_sqrt ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
}

// libocloc.

std::vector<std::string> ocloc_candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_OCLOC_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> names = {"libocloc.so", "libocloc.so.1"};
  std::vector<fs::path> folders = {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                                   "/opt/intel/oneapi/lib"};
  for (fs::path& folder : os::folders_named("/opt/intel/oneapi/ocloc", "", "lib")) folders.push_back(std::move(folder));
  for (std::string& file : os::library_files(folders, "libocloc.so")) names.push_back(std::move(file));
  return names;
}

Ocloc Ocloc::open() {
  Ocloc out;
  out.library_ = os::Library::open(ocloc_candidates());
  out.reason_ = out.library_.reason();
  if (!out.library_.loaded()) return out;
#define TESSERA_TAKE(member, symbol, ...) stream::take(out.library_, out.call_.member, #symbol, out.missing_);
  TESSERA_OCLOC(TESSERA_TAKE)
#undef TESSERA_TAKE
  if (!out.missing_.empty()) out.reason_ = fmt::format("{}: it has no {}", out.file(), out.missing_);
  return out;
}

Ocloc::Result Ocloc::compile(const std::string& text, const std::string& device, const std::string& options) const {
  const std::string file = "kernels.cl", output = "kernels";
  std::array<const char*, 12> list = {"ocloc",        "compile",           "-q",           "-file",
                                      file.c_str(),   "-device",           device.c_str(), "-output",
                                      output.c_str(), "-output_no_suffix", "-options",     options.c_str()};
  const auto* data = reinterpret_cast<const std::uint8_t*>(text.c_str());
  const std::uint64_t bytes = text.size() + 1;
  const char* name = file.c_str();
  std::uint32_t outputs = 0;
  std::uint8_t** output_data = nullptr;
  std::uint64_t* output_bytes = nullptr;
  char** output_names = nullptr;
  const int code = call_.invoke(static_cast<unsigned>(list.size()), list.data(), 1, &data, &bytes, &name, 0, nullptr,
                                nullptr, nullptr, &outputs, &output_data, &output_bytes, &output_names);
  Result result;
  for (std::uint32_t i = 0; i < outputs; ++i) {
    const std::string_view made(output_names[i]);
    const auto* begin = reinterpret_cast<const char*>(output_data[i]);
    if (made == "stdout.log")
      result.image.log.assign(begin, strnlen(begin, output_bytes[i]));
    else if (code == 0 && (made == output || made.ends_with(".bin")))
      result.image.bytes.assign(begin, output_bytes[i]);
  }
  if (output_data) call_.release(&outputs, &output_data, &output_bytes, &output_names);
  result.image.made = code == 0 && !result.image.bytes.empty();
  result.knows_device = code != ocloc_unknown_device;
  if (!result.image.made && result.image.log.empty())
    result.image.log = fmt::format("ocloc returned {} without a message", code);
  return result;
}

// Intel's OpenCL driver.

std::vector<std::string> OpenclCompiler::candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_OPENCL_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> out;
  for (backend::Icd& icd : backend::installed_icds())
    if (icd.library.find("igdrcl") != std::string::npos) out.push_back(std::move(icd.library));
  return out;
}

OpenclCompiler OpenclCompiler::open() {
  OpenclCompiler out;
  const std::vector<std::string> files = candidates();
  if (files.empty()) {
    out.reason_ = "it is not registered in /etc/OpenCL/vendors";
    return out;
  }
  out.library_ = os::Library::open(files);
  out.reason_ = out.library_.reason();
  if (!out.library_.loaded()) return out;
  if (stream::library_from_variable("TESSERA_OPENCL_LIBRARY").empty())
    out.take_by_table();
  else
    out.take_by_name();
  if (!out.missing_.empty())
    out.reason_ = fmt::format("{}: it has no {}", out.library_.file(), out.missing_);
  else if (out.reason_.empty())
    out.find_devices();
  return out;
}

void OpenclCompiler::take_by_name() {
#define TESSERA_TAKE(member, symbol, ...) stream::take(library_, call_.member, #symbol, missing_);
  TESSERA_CL_COMPILER(TESSERA_TAKE)
#undef TESSERA_TAKE
}

void OpenclCompiler::take_by_table() {
  constexpr const char* name = "clIcdGetPlatformIDsKHR";
  if (auto* address = library_.function<void*(const char*)>("clGetExtensionFunctionAddress"))
    call_.platforms = reinterpret_cast<decltype(call_.platforms)>(address(name));
  if (!call_.platforms) return void(missing_ = name);
  void* platform = nullptr;
  std::uint32_t count = 0;
  const Code code = call_.platforms(1, &platform, &count);
  if (code != 0 || count == 0 || platform == nullptr) {
    reason_ = fmt::format("{}: {} returned {}, which means that it found no GPU", library_.file(), name, code);
    return;
  }
  void* const* const table = *static_cast<void* const* const*>(platform);
  const auto take = [&](auto& function, std::size_t slot) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(table[slot]);
    if (!function) missing_ = fmt::format("function {} in its dispatch table", slot);
  };
  take(call_.devices, icd_slot::devices);
  take(call_.device_info, icd_slot::device_info);
  take(call_.create_context, icd_slot::create_context);
  take(call_.create_program, icd_slot::create_program);
  take(call_.release_program, icd_slot::release_program);
  take(call_.build_program, icd_slot::build_program);
  take(call_.program_info, icd_slot::program_info);
  take(call_.build_info, icd_slot::build_info);
}

void OpenclCompiler::find_devices() {
  constexpr std::uint32_t intel = 0x8086;
  std::uint32_t count = 0;
  if (call_.platforms(0, nullptr, &count) != 0) count = 0;
  std::vector<void*> platforms(count);
  if (count != 0 && call_.platforms(count, platforms.data(), nullptr) != 0) platforms.clear();
  for (void* platform : platforms) {
    std::uint32_t found = 0;
    if (call_.devices(platform, cl_type_gpu, 0, nullptr, &found) != 0) continue;
    std::vector<void*> devices(found);
    if (found == 0 || call_.devices(platform, cl_type_gpu, found, devices.data(), nullptr) != 0) continue;
    for (void* device : devices) {
      std::uint32_t vendor = 0;
      if (call_.device_info(device, cl_device_vendor_id, sizeof vendor, &vendor, nullptr) != 0 || vendor != intel)
        continue;
      Card card{.device = device, .pci = {}, .uuid = {}};
      std::uint32_t pci[4] = {};
      if (call_.device_info(device, cl_pci_bus_info, sizeof pci, pci, nullptr) == 0)
        card.pci = fmt::format("pci:{:04x}:{:02x}:{:02x}.{:x}", pci[0], pci[1], pci[2], pci[3]);
      char uuid[16] = {};
      if (call_.device_info(device, cl_device_uuid, sizeof uuid, uuid, nullptr) == 0)
        card.uuid = stream::uuid_identity(uuid);
      cards_.push_back(std::move(card));
    }
  }
  if (cards_.empty()) reason_ = library_.file() + " lists no Intel GPU";
}

OpenclCompiler::Card* OpenclCompiler::find(const std::string& pci, const std::string& uuid) {
  for (Card& card : cards_)
    if (pci.empty() || card.pci.empty() ? !uuid.empty() && card.uuid == uuid : card.pci == pci) return &card;
  return nullptr;
}

stream::Image OpenclCompiler::compile(const std::string& text, const std::string& pci, const std::string& uuid,
                                      const std::string& options) {
  const auto check = [&](Code code, const char* function) {
    if (code == 0) return;
    fail<KernelError>({.operation = "Intel's OpenCL driver",
                       .with = {{"library", library_.file()}},
                       .wrong = fmt::format("{} returned {}", function, code),
                       .remedy = "Install libocloc (Debian 12: intel-opencl-icd; later: intel-ocloc), which does not "
                                 "need this driver"});
  };
  Card& card = *find(pci, uuid);
  Code code = 0;
  if (!card.context) card.context = call_.create_context(nullptr, 1, &card.device, nullptr, nullptr, &code);
  check(code, "clCreateContext");
  const char* source = text.c_str();
  const std::size_t length = text.size();
  void* const raw = call_.create_program(card.context, 1, &source, &length, &code);
  check(code, "clCreateProgramWithSource");
  const std::unique_ptr<void, decltype(call_.release_program)> program(raw, call_.release_program);
  code = call_.build_program(raw, 1, &card.device, options.c_str(), nullptr, nullptr);
  stream::Image image;
  std::size_t bytes = 0;
  if (code == cl_build_failure) {
    if (call_.build_info(raw, card.device, cl_build_log, 0, nullptr, &bytes) == 0 && bytes > 0) {
      image.log.resize(bytes);
      call_.build_info(raw, card.device, cl_build_log, bytes, image.log.data(), nullptr);
      image.log.resize(std::min(image.log.find('\0'), image.log.size()));
    }
    return image;
  }
  check(code, "clBuildProgram");
  check(call_.program_info(raw, cl_binary_sizes, sizeof bytes, &bytes, nullptr), "clGetProgramInfo");
  image.bytes.resize(bytes);
  char* to = image.bytes.data();
  check(call_.program_info(raw, cl_binaries, sizeof to, static_cast<void*>(&to), nullptr), "clGetProgramInfo");
  image.made = bytes != 0;
  if (!image.made) image.log = "Intel's OpenCL driver returned an empty binary";
  return image;
}

}  // namespace tessera::oneapi
