// SPDX-License-Identifier: Apache-2.0
// Queries a device's properties, and derives the DeviceInfo, the dialect and the build options.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "tessera/backend/common/missing_device.h"
#include "tessera/backend/opencl/clblast.h"
#include "tessera/backend/opencl/device.h"
#include "tessera/base/os/system.h"
#include "tessera/base/printable.h"

namespace tessera::cl {

namespace {

class DeviceQuery {
 public:
  explicit DeviceQuery(DeviceId id) : id_(id) {}
  template <class T>
  T number(std::uint32_t what, T otherwise = {}) const {
    T v{};
    return api().get_device_info(id_, what, sizeof v, &v, nullptr) == success ? v : otherwise;
  }
  std::string text(std::uint32_t what) const {
    std::size_t size = 0;
    if (api().get_device_info(id_, what, 0, nullptr, &size) != success || size == 0) return "";
    std::string s(size, '\0');
    if (api().get_device_info(id_, what, size, s.data(), nullptr) != success) return "";
    s.resize(std::min(s.find('\0'), s.size()));
    const auto first = s.find_first_not_of(' ');
    return first == s.npos ? "" : s.substr(first, s.find_last_not_of(' ') - first + 1);
  }
  template <class T>
  std::vector<T> list(std::uint32_t what) const {
    std::size_t size = 0;
    if (api().get_device_info(id_, what, 0, nullptr, &size) != success) return {};
    std::vector<T> v(size / sizeof(T));
    if (v.empty() || api().get_device_info(id_, what, size, v.data(), nullptr) != success) return {};
    return v;
  }

 private:
  DeviceId id_;
};

std::string platform_text(PlatformId platform, std::uint32_t what) {
  std::size_t size = 0;
  if (api().get_platform_info(platform, what, 0, nullptr, &size) != success || size == 0) return "";
  std::string s(size, '\0');
  if (api().get_platform_info(platform, what, size, s.data(), nullptr) != success) return "";
  s.resize(std::min(s.find('\0'), s.size()));
  return s;
}

/// Returns the integer after `word`, or 0 if the text does not contain `word`.
int number_after(const std::string& text, std::string_view word) {
  const std::size_t at = text.find(word);
  return at == text.npos ? 0 : std::atoi(text.c_str() + at + word.size());
}
/// Returns true if this PoCL must compile without optimisation. PoCL before 7 with LLVM 18 or later aborts with
/// "Instruction Combining did not reach a fixpoint" for many kernels (pocl/pocl#1608). `version` is
/// CL_PLATFORM_VERSION.
bool aborts_when_it_optimises(const std::string& version) {
  const int pocl = std::max(number_after(version, "PoCL "), number_after(version, "pocl "));
  return pocl > 0 && pocl < 7 && number_after(version, "LLVM ") >= 18;
}

/// Returns the optional features of the device's OpenCL C (3.0 and later), each surrounded by spaces.
std::string features_of(const DeviceQuery& query) {
  struct NameVersion {  // cl_name_version
    std::uint32_t version;
    char name[64];
  };
  std::string list = " ";
  for (const NameVersion& f : query.list<NameVersion>(opencl_c_features))
    list += std::string(f.name, ::strnlen(f.name, sizeof f.name)) + " ";
  return list;
}

// Returns the PCI address, or the UUID if the driver reports no address, in the format of the other backends. Returns
// an empty string for CPUs, because drivers report values that identify neither the CPU nor the driver. For example,
// two versions of Intel's CPU driver have the same UUID.
std::string identity(const DeviceQuery& query, const auto& has, Bits type) {
  if (type & type_cpu) return "";
  if (has("khr_pci_bus_info")) {
    const auto a = query.number<std::array<std::uint32_t, 4>>(pci_bus_info_khr);
    return fmt::format("pci:{:04x}:{:02x}:{:02x}.{:x}", a[0], a[1], a[2], a[3]);
  }
  if (has("nv_device_attribute_query")) {
    const auto slot = query.number<std::uint32_t>(pci_slot_id_nv);
    return fmt::format("pci:{:04x}:{:02x}:{:02x}.{:x}", query.number<std::uint32_t>(pci_domain_id_nv),
                       query.number<std::uint32_t>(pci_bus_id_nv), slot >> 3, slot & 7);
  }
  if (has("amd_device_attribute_query")) {  // byte 0 is the type; bus, device and function come last
    const auto a = query.number<std::array<std::uint8_t, 24>>(topology_amd);
    if (a[0] == 1) return fmt::format("pci:0000:{:02x}:{:02x}.{:x}", a[21], a[22], a[23]);
  }
  if (has("khr_device_uuid")) {
    std::string s = "uuid:";
    for (std::uint8_t b : query.number<std::array<std::uint8_t, 16>>(device_uuid_khr)) s += fmt::format("{:02x}", b);
    return s;
  }
  return "";
}

}  // namespace

DeviceFacts device_facts(PlatformId platform, DeviceId device, int index) {
  const DeviceQuery query(device);
  const std::string extensions = " " + query.text(device_extensions) + " ";
  auto has = [&](const std::string& name) { return extensions.find(" cl_" + name + " ") != extensions.npos; };

  DeviceFacts facts;
  facts.id = device;
  DeviceInfo& info = facts.info;
  info.device = {Backend::opencl, index};
  info.native_index = index;
  info.name = printable_name(query.text(device_name));
  info.vendor = printable_name(query.text(device_vendor));
  info.driver_version = printable_name(platform_text(platform, platform_name) + " " + query.text(driver_version));
  const Bits type = query.number<Bits>(device_type);
  info.identity = identity(query, has, type);
  info.unified_memory = query.number<std::uint32_t>(host_unified_memory) != 0;
  info.kind = type & type_cpu       ? DeviceKind::cpu
              : !(type & type_gpu)  ? DeviceKind::other
              : info.unified_memory ? DeviceKind::integrated_gpu
                                    : DeviceKind::discrete_gpu;
  info.total_memory = query.number<std::uint64_t>(global_mem_size);
  info.compute_units = query.number<std::uint32_t>(max_compute_units);
  info.state = DeviceState::enumerated;
  if (!query.number<std::uint32_t>(device_available)) {
    info.state = DeviceState::loaded;
    info.reason = "the driver reports that the device is not available";
    info.remedy = "Check whether clinfo, or another OpenCL program, works on this device";
  } else if (!query.number<std::uint32_t>(compiler_available)) {
    info.state = DeviceState::loaded;
    info.reason = "the driver has no compiler for OpenCL C";
    info.remedy = "Install the driver's compiler package";
  }

  facts.dialect = emit::opencl_c_with(extensions, features_of(query));
  facts.dialect.fp64 = facts.dialect.fp64 || query.number<Bits>(double_fp_config) != 0;
  Capabilities& can = info.can;
  can.f16 = true;  // every OpenCL C has vload_half and vstore_half
  can.bf16 = false;
  can.f64 = facts.dialect.fp64;
  can.atomic_i64 = facts.dialect.atomic_i64;
  can.atomic_f32 = false;
  can.int8_dot = facts.dialect.dot4;
  can.max_block_threads =
      static_cast<std::uint32_t>(std::min<std::size_t>(query.number<std::size_t>(max_work_group_size, 1), 1024));
  const auto sizes = query.list<std::size_t>(max_work_item_sizes);
  for (std::size_t d = 0; d < 3; ++d)
    can.max_block[d] = d < sizes.size() ? static_cast<std::uint32_t>(std::min<std::size_t>(sizes[d], 1024)) : 1;
  can.shared_bytes = query.number<std::uint64_t>(local_mem_size);
  // CPU drivers allocate the private memory of all threads of a block on one stack, including values that are live
  // across barriers. They crash if the stack overflows.
  if (info.kind == DeviceKind::cpu) can.local_bytes = os::thread_stack_bytes() / 4 * 3;
  can.max_parameter_bytes = query.number<std::size_t>(max_parameter_size, 1024);
  can.vector_bytes = std::max(16u, 4 * query.number<std::uint32_t>(native_vector_width_float, 4));
  // Subgroups are used only if the driver reports their widths. PoCL on a CPU reports powers of two, but its subgroups
  // are the rows of a block, of any width.
  const bool pocl = platform_text(platform, platform_name) == "Portable Computing Language";
  if (facts.dialect.subgroups && !(pocl && info.kind == DeviceKind::cpu) &&
      query.number<std::uint32_t>(max_num_sub_groups) > 0) {
    std::vector<std::uint32_t> widths;
    for (std::size_t w : query.list<std::size_t>(sub_group_sizes_intel))
      widths.push_back(static_cast<std::uint32_t>(w));
    if (widths.empty())
      if (const auto w = query.number<std::uint32_t>(wavefront_width_amd)) widths = {w};
    if (widths.empty())
      if (const auto w = query.number<std::uint32_t>(warp_size_nv)) widths = {w};
    if (!widths.empty()) can.subgroup_widths = widths;
  }
  facts.dialect.subgroups = can.subgroup_widths != std::vector<std::uint32_t>{1};
  const bool three = query.text(device_version).starts_with("OpenCL 3");
  facts.build_options =
      facts.dialect.subgroups || can.int8_dot ? (three ? "-cl-std=CL3.0" : "-cl-std=CL2.0") : "-cl-std=CL1.2";
  facts.build_options += " -w";  // PoCL prints the number of warnings to standard error
  if (query.number<Bits>(single_fp_config) & fp_correctly_rounded_divide_sqrt)
    facts.build_options += " -cl-fp32-correctly-rounded-divide-sqrt";
  if (aborts_when_it_optimises(platform_text(platform, platform_version))) facts.build_options += " -cl-opt-disable";
  facts.largest_allocation = query.number<std::uint64_t>(max_mem_alloc_size);
  info.blas = backend::first_installed("CLBlast", clblast_candidates());
  if (info.kind == DeviceKind::cpu && !info.blas.starts_with("no "))
    info.blas += ", used on a CPU only if TESSERA_BLAS=vendor is set";  // device/launch/vendor_product.h
  facts.reports_free_memory = has("amd_device_attribute_query");
  return facts;
}

}  // namespace tessera::cl
