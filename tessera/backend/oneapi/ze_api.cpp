// SPDX-License-Identifier: Apache-2.0
// Contexts, memory, modules and kernels. Streams and events are in ze_stream.cpp.
#include "tessera/backend/oneapi/ze_api.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "tessera/backend/oneapi/ze_objects.h"
#include "tessera/backend/stream/errors.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/os/library_search.h"

namespace tessera::oneapi {

using stream::Address;
using stream::Fault;
using stream::Handle;

std::vector<std::string> loader_candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_ONEAPI_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> names = {"libze_loader.so.1", "libze_loader.so"};
  const std::filesystem::path folders[] = {"/usr/lib/wsl/lib", "/usr/local/lib", "/opt/intel/oneapi/lib"};
  for (std::string& file : os::library_files(folders, "libze_loader.so")) names.push_back(std::move(file));
  return names;
}

LoaderLibrary open_loader() {
  LoaderLibrary library;
  library.file = os::Library::open(loader_candidates());
  if (!library.file.loaded()) return library;
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, library.missing);
  TESSERA_ZE(TESSERA_TAKE)
  std::string lacks;  // these functions are optional, so missing ones are ignored
#undef TESSERA_TAKE
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, lacks);
  TESSERA_ZE_OPTIONAL(TESSERA_TAKE)
  lacks.clear();
  TESSERA_ZE_LISTS(TESSERA_TAKE)
  library.call.lists = lacks.empty();
#undef TESSERA_TAKE
  return library;
}

std::string text_of(Code code) {
  struct Row {
    Code code;
    const char *name, *text;
  };
  static constexpr Row rows[] = {
      {0, "ZE_RESULT_SUCCESS", ""},
      {not_ready, "ZE_RESULT_NOT_READY", "the work has not completed"},
      {device_lost, "ZE_RESULT_ERROR_DEVICE_LOST", "the device hung, was reset or removed, or its driver was updated"},
      {no_host_memory, "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY", "the host has no memory left"},
      {no_device_memory, "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "the device has no memory left"},
      {build_failure, "ZE_RESULT_ERROR_MODULE_BUILD_FAILURE", "a module could not be built"},
      {link_failure, "ZE_RESULT_ERROR_MODULE_LINK_FAILURE", "modules could not be linked"},
      {requires_reset, "ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET", "the device must be reset"},
      {low_power, "ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE", "the device is in a low-power state"},
      {no_permission, "ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS", "this user lacks the permission"},
      {not_available, "ZE_RESULT_ERROR_NOT_AVAILABLE", "another program has exclusive use of the device"},
      {no_dependency, "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE", "a library that the driver needs is missing"},
      {uninitialized, "ZE_RESULT_ERROR_UNINITIALIZED", "no driver could be started"},
      {unsupported_version, "ZE_RESULT_ERROR_UNSUPPORTED_VERSION", "the version is not supported"},
      {0x78000003, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE", "the driver does not support this feature"},
      {0x78000004, "ZE_RESULT_ERROR_INVALID_ARGUMENT", "an argument is invalid"},
      {0x78000005, "ZE_RESULT_ERROR_INVALID_NULL_HANDLE", "a handle is invalid"},
      {0x78000006, "ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE", "the device still uses the object"},
      {0x78000007, "ZE_RESULT_ERROR_INVALID_NULL_POINTER", "a pointer is null"},
      {0x78000008, "ZE_RESULT_ERROR_INVALID_SIZE", "a size is invalid"},
      {unsupported_size, "ZE_RESULT_ERROR_UNSUPPORTED_SIZE", "a size exceeds the device's limit"},
      {0x7800000a, "ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT", "an alignment is not supported"},
      {0x7800000b, "ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT", "an event is in the wrong state"},
      {0x7800000c, "ZE_RESULT_ERROR_INVALID_ENUMERATION", "a value or flag is invalid"},
      {0x7800000d, "ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION", "a value or flag is not supported"},
      {0x7800000f, "ZE_RESULT_ERROR_INVALID_NATIVE_BINARY", "the binary is not for this device and driver"},
      {0x78000011, "ZE_RESULT_ERROR_INVALID_KERNEL_NAME", "the module has no kernel of this name"},
      {0x78000013, "ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION", "the kernel does not support blocks of this size"},
      {0x78000014, "ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION", "the grid is too large"},
      {0x78000015, "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX", "the kernel has fewer arguments"},
      {0x78000016, "ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE", "an argument has the wrong size"},
      {0x78000018, "ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED", "the module must be linked with another one"},
      {0x78000019, "ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE", "the command list has the wrong type"},
      {overlapping_regions, "ZE_RESULT_ERROR_OVERLAPPING_REGIONS", "the ranges of a copy overlap"},
      {unknown, "ZE_RESULT_ERROR_UNKNOWN", "an unknown or internal error"},
  };
  for (const Row& row : rows)
    if (row.code == code) return fmt::format("{} ({:#x}): {}", row.name, code, row.text);
  return fmt::format("ze_result_t {:#x}", code);
}

Fault ZeApi::fault_of(Code code) const {
  if (code == 0 || code == stream::not_ready) return Fault::none;
  if (code == no_host_memory || code == no_device_memory || code == unsupported_size) return Fault::memory;
  if (code == build_failure || code == link_failure) return Fault::refused;
  // With these codes, the driver rejects the arguments of a call.
  if (code >= unsupported_version && code <= overlapping_regions) return Fault::refused;
  return Fault::lost;
}

// Contexts. Level Zero has no current context, so a thread-local variable stores the current device.

namespace {
thread_local ZeDevice* current_device = nullptr;
}  // namespace
ZeDevice& here() { return *current_device; }

Code ZeDriver::make_context() {
  std::lock_guard guard(lock_);
  if (context) return 0;
  std::uint32_t count = 0;
  if (call_.lists && call_.extensions(handle, &count, nullptr) == 0) {
    std::vector<ExtensionProperties> all(count);
    if (call_.extensions(handle, &count, all.data()) == 0)
      lists = std::ranges::any_of(all, [](const auto& e) { return std::string_view(e.name) == appends_lists; });
  }
  const ContextDesc desc;
  return call_.create_context(handle, &desc, &context);
}
Code ZeApi::context_of(int ordinal, stream::Context* context) const {
  ZeDevice& device = this->device(ordinal);
  *context = reinterpret_cast<stream::Context>(&device);
  return device.driver->make_context();
}
Code ZeApi::current(stream::Context* context) const {
  *context = reinterpret_cast<stream::Context>(current_device);
  return 0;
}
Code ZeApi::set_current(stream::Context context) const {
  current_device = reinterpret_cast<ZeDevice*>(context);
  return 0;
}

// Memory.

namespace {
constexpr std::size_t alignment = 64;
}  // namespace

// Only system management (sysman) reports how much memory other processes use, and it requires special permissions. So
// this function ignores other processes and subtracts only the memory that this process has allocated.
Code ZeApi::memory_info(std::size_t* free, std::size_t* total) const {
  ZeDevice& device = here();
  std::lock_guard guard(device.lock);
  *total = device.total_memory;
  *free = device.total_memory - std::min(device.allocated, device.total_memory);
  return 0;
}

Code ZeApi::allocate(Address* address, std::size_t bytes) const {
  ZeDevice& device = here();
  RelaxedLimitsDesc relaxed;
  relaxed.flags = limits_max_size;
  DeviceMemoryDesc desc;
  if (device.largest_allocation != 0 && bytes > device.largest_allocation) desc.next = &relaxed;
  void* memory = nullptr;
  const Code code = call_.allocate(device.driver->context, &desc, bytes, alignment, device.handle, &memory);
  if (code != 0) return code;
  *address = reinterpret_cast<std::uintptr_t>(memory);
  std::lock_guard guard(device.lock);
  device.live[*address] = bytes;
  device.allocated += bytes;
  return 0;
}
Code ZeApi::release(Address address) const {
  ZeDevice& device = here();
  {
    std::lock_guard guard(device.lock);
    if (const auto it = device.live.find(address); it != device.live.end()) {
      device.allocated -= it->second;
      device.live.erase(it);
    }
  }
  return call_.release(device.driver->context, pointer_of(address));
}
Code ZeApi::allocate_pinned(void** host, std::size_t bytes) const {
  const HostMemoryDesc desc;
  return call_.allocate_host(here().driver->context, &desc, bytes, alignment, host);
}
Code ZeApi::release_pinned(void* host) const { return call_.release(here().driver->context, host); }

// Modules and kernels.

Code ZeApi::load_module(const std::string& image, Handle* module, std::string* log) const {
  ModuleDesc desc;
  desc.format = format_native;
  desc.bytes = image.size();
  desc.image = reinterpret_cast<const std::uint8_t*>(image.data());
  auto made = std::make_unique<ZeModule>();
  Log said = nullptr;
  const Code code = call_.create_module(here().driver->context, here().handle, &desc, &made->handle, &said);
  if (said) {
    std::size_t bytes = 0;
    if (code != 0 && call_.log_text(said, &bytes, nullptr) == 0 && bytes > 0) {
      log->resize(bytes);
      if (call_.log_text(said, &bytes, log->data()) != 0) log->clear();
      log->resize(std::min(log->find('\0'), log->size()));
    }
    call_.destroy_log(said);
  }
  if (code == 0) *module = made.release();
  return code;
}
Code ZeApi::unload_module(Handle handle) const {
  const std::unique_ptr<ZeModule> module(static_cast<ZeModule*>(handle));
  for (const auto& kernel : module->kernels) call_.destroy_kernel(kernel->handle);
  return call_.destroy_module(module->handle);
}
Code ZeApi::get_function(Handle handle, const char* entry, Handle* function) const {
  auto& module = *static_cast<ZeModule*>(handle);
  KernelDesc desc;
  desc.name = entry;
  auto made = std::make_unique<ZeKernel>();
  const Code code = call_.create_kernel(module.handle, &desc, &made->handle);
  if (code != 0) return code;
  *function = made.get();
  module.kernels.push_back(std::move(made));
  return 0;
}
Code ZeApi::max_block_size(Handle function, int* threads) const {
  KernelProperties properties;
  const Code code = call_.kernel_properties(static_cast<ZeKernel*>(function)->handle, &properties);
  *threads = static_cast<int>(std::min<std::uint64_t>(
      std::uint64_t{properties.most_subgroups} * properties.most_subgroup_size, 1 << 30));  // 0: unknown
  return code;
}

// A kernel object stores its arguments until the launch is appended, so a lock serialises the launches of a kernel.
Code ZeApi::launch(Handle function, const backend::Grid& g, unsigned, Handle stream,
                   std::span<backend::BoundArgument> arguments) const {
  auto& kernel = *static_cast<ZeKernel*>(function);
  auto& list = *static_cast<ZeStream*>(stream);
  if (const Code code = list.begin(call_)) return code;
  auto n = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  std::lock_guard guard(kernel.lock);
  if (kernel.group != g.block) {
    if (const Code code = call_.set_group_size(kernel.handle, n(g.block[0]), n(g.block[1]), n(g.block[2]))) return code;
    kernel.group = g.block;
  }
  std::uint32_t number = 0;
  for (const backend::BoundArgument& a : arguments) {
    const bool null = a.kind == emit::KernelArgument::Kind::pointer && a.value == 0;
    if (const Code code = call_.set_argument(kernel.handle, number++, a.bytes, null ? nullptr : &a.value)) return code;
  }
  const GroupCount groups{n(g.blocks[0]), n(g.blocks[1]), n(g.blocks[2])};
  return call_.append_launch(list.target(), kernel.handle, &groups, nullptr, 0, nullptr);
}

}  // namespace tessera::oneapi
