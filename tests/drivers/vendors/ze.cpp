// SPDX-License-Identifier: Apache-2.0
// A fake of Intel's Level Zero loader and driver, with contexts, immediate command lists, events, modules and kernels.
// Signatures, offsets and rules follow the Level Zero specification 1.4. Command lists are out-of-order: only events
// and barriers order commands, and missing ones are reported.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/drivers/image.h"
#include "tests/drivers/machine.h"

namespace {

using namespace tessera::fake;

using Result = std::uint32_t;
constexpr Result success = 0, ze_not_ready = 1, device_lost = 0x70000001, no_host_memory = 0x70000002,
                 no_device_memory = 0x70000003, uninitialized = 0x78000001, ze_not_supported = 0x78000003,
                 invalid_argument = 0x78000004, null_handle = 0x78000005, invalid_binary = 0x7800000f,
                 invalid_kernel_name = 0x78000011, invalid_index = 0x78000015, unknown = 0x7ffffffe;

struct Gpu {
  const char *name, *architecture;
  std::uint32_t id, slices, flags;
};
constexpr Gpu gpus[] = {{"Fake Arc A770", "dg2", 0x56a0, 8, 0}, {"Fake Iris Xe", "tgllp", 0x9a49, 1, 1}};
const Gpu& gpu(int device) { return gpus[device % 2]; }

struct Setup {
  Setup() {
    Machine& m = Machine::get();
    m.opencl = true;
    m.pageable_later = true;
    m.limits = [](int) {
      return Limits{.max_block = {1024, 1024, 1024},
                    .max_grid = {4294967295u, 4294967295u, 4294967295u},
                    .shared = 64 << 10,
                    .shared_optin = 64 << 10,
                    .warp = 16,
                    .parameter_bytes = 2048};
    };
  }
};
Machine& machine() {
  static Setup setup;
  return Machine::get();
}

Result result_of(Code code) {
  switch (code) {
    case ok: return success;
    case not_ready: return ze_not_ready;
    case out_of_memory: return no_device_memory;
    case no_device:
    case not_initialized: return uninitialized;
    case invalid_handle: return null_handle;
    case not_found: return invalid_kernel_name;
    case no_binary_for_gpu:
    case invalid_image: return invalid_binary;
    case illegal_address:
    case launch_failed: return device_lost;
    case not_supported: return ze_not_supported;
    case unknown_error: return unknown;
    case launch_out_of_resources: return 0x70000005;
    default: return code >= 0x70000000 ? static_cast<Result>(code) : invalid_argument;
  }
}

/// Writes a field of a structure at an offset. Every structure starts with its type and a pointer to extension
/// structures.
template <class T>
void put(void* structure, std::size_t offset, T value) {
  std::memcpy(static_cast<char*>(structure) + offset, &value, sizeof value);
}
template <class T>
T get(const void* structure, std::size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(structure) + offset, sizeof value);
  return value;
}
/// Returns the maximum size of an allocation without relaxed limits.
std::uint64_t largest_allocation() { return machine().settings().memory / 4; }

/// Checks that a structure has the required type.
Code is(const void* structure, std::uint32_t type, const char* what) {
  if (structure == nullptr) return machine().breach(std::string(what) + ": no structure", invalid_value);
  if (get<std::uint32_t>(structure, 0) != type)
    return machine().breach(std::string(what) + ": the structure's type is not set", invalid_value);
  return ok;
}

std::array<int, 8> driver_handles = {};
int drivers() {
  const Fault* f = machine().faults().find("ze-drivers");
  return f != nullptr ? static_cast<int>(f->number) : 1;
}
/// Returns the driver that owns a device.
int driver_of(int device) { return device % drivers(); }
std::array<int, 64> device_handles = [] {
  std::array<int, 64> all{};
  for (int i = 0; i < 64; ++i) all[static_cast<std::size_t>(i)] = i;
  return all;
}();

struct ZeContext {
  int driver = 0;
  bool live = true;
};
struct Pool {
  int driver = 0;
  std::vector<bool> taken;
  bool live = true;
};
struct PooledEvent {
  Event* event = nullptr;
  Pool* pool = nullptr;
  std::uint32_t index = 0;
  bool live = true;
};
struct Kernel {
  Function* function = nullptr;
  Dimensions group = {0, 0, 0};
  std::vector<std::vector<std::byte>> arguments;
  bool live = true;
};
std::mutex objects_lock;
// All objects that were created, including destroyed ones.
std::map<void*, std::shared_ptr<void>> contexts, pools, events, kernels;

template <class T>
T* find(std::map<void*, std::shared_ptr<void>>& all, void* handle, const char* what) {
  std::lock_guard hold(objects_lock);
  const auto it = all.find(handle);
  T* const object = it == all.end() ? nullptr : static_cast<T*>(it->second.get());
  if (object == nullptr || !object->live) {
    machine().breach(std::string(object == nullptr ? "invalid handle of " : "the handle is closed: ") + what, ok);
    return nullptr;
  }
  return object;
}
template <class T>
T* keep(std::map<void*, std::shared_ptr<void>>& all) {
  auto made = std::make_shared<T>();
  std::lock_guard hold(objects_lock);
  all[made.get()] = made;
  return made.get();
}

Result enter(const char* call) { return result_of(machine().enter(call)); }
/// Returns the device of a handle. If the handle is invalid, records a violation and returns null.
Context* device_of(void* handle) {
  const auto* at = static_cast<const int*>(handle);
  if (at < device_handles.data() || at >= device_handles.data() + machine().settings().devices) {
    machine().breach("invalid device handle", ok);
    return nullptr;
  }
  Context* context = machine().primary(*at);
  if (context->retained == 0 && machine().retain(*at, &context) != ok) return nullptr;
  return context;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define ENTER() \
  if (const Result entered = enter(__func__); entered != success) return entered
#define DEVICE(handle)                        \
  ENTER();                                    \
  Context* const context = device_of(handle); \
  if (context == nullptr) return null_handle; \
  [[maybe_unused]] const int device = context->device
/// Checks that the context and the device belong to the same driver.
#define TOGETHER(owner)                   \
  if (owner->driver != driver_of(device)) \
  return result_of(machine().breach("the device and the context belong to different drivers", invalid_value))
#define STRUCTURE(pointer, type) \
  if (is(pointer, type, __func__) != ok) return invalid_argument
#define OBJECT(type, name, all, handle)             \
  type* const name = find<type>(all, handle, #all); \
  if (name == nullptr) return null_handle

EXPORT Result zeInit(std::uint32_t flags) {
  if (flags > 3) return invalid_argument;
  return result_of(machine().initialise(__func__));
}
EXPORT Result zeDriverGet(std::uint32_t* count, void** to) {
  ENTER();
  const auto all = static_cast<std::uint32_t>(drivers());
  if (to != nullptr)
    for (std::uint32_t i = 0; i < std::min(*count, all); ++i) to[i] = &driver_handles[i];
  return *count = all, success;
}
EXPORT Result zeDriverGetApiVersion(void*, std::uint32_t* version) {
  ENTER();
  const Fault* f = machine().faults().find("ze-api");
  const auto number = static_cast<std::uint32_t>(f != nullptr ? f->number : 104);
  return *version = number / 100 << 16 | number % 100, success;
}
EXPORT Result zeDriverGetProperties(void*, void* properties) {
  ENTER();
  STRUCTURE(properties, 1);
  return put<std::uint32_t>(properties, 32, 0x01036237), success;
}
EXPORT Result zeDriverGetExtensionProperties(void*, std::uint32_t* count, void* p) {
  ENTER();
  if (machine().faults().find("no-graphs")) return *count = 0, success;
  if (p != nullptr && *count != 0) {
    std::memset(p, 0, 260);
    std::strcpy(static_cast<char*>(p), "ZE_experimental_immediate_command_list_append");
  }
  return *count = 1, success;
}
EXPORT Result zeDeviceGet(void* driver, std::uint32_t* count, void** devices) {
  ENTER();
  std::uint32_t all = 0;
  for (int i = 0; i < machine().settings().devices; ++i) {
    if (&driver_handles[static_cast<std::size_t>(driver_of(i))] != driver) continue;
    if (devices != nullptr && all < *count) devices[all] = &device_handles[static_cast<std::size_t>(i)];
    ++all;
  }
  return *count = all, success;
}
EXPORT Result zeDeviceGetStatus(void* handle) {
  DEVICE(handle);
  return context->sticky == ok ? success : device_lost;
}
EXPORT Result zeDeviceGetProperties(void* handle, void* p) {
  DEVICE(handle);
  STRUCTURE(p, 3);
  const Gpu& g = gpu(device);
  put<std::uint32_t>(p, 16, 1);       // type: GPU
  put<std::uint32_t>(p, 20, 0x8086);  // vendor
  put<std::uint32_t>(p, 24, g.id);
  put<std::uint32_t>(p, 28, g.flags);  // integrated
  put<std::uint32_t>(p, 36, 2100);     // MHz
  put<std::uint64_t>(p, 40, largest_allocation());
  put<std::uint32_t>(p, 56, 8);  // threads per execution unit
  put<std::uint32_t>(p, 60, 8);  // lanes of an execution unit
  put<std::uint32_t>(p, 64, 16);
  put<std::uint32_t>(p, 68, 4);
  put<std::uint32_t>(p, 72, g.slices);
  for (std::size_t i = 0; i < 16; ++i) put(p, 96 + i, static_cast<char>(0xd0 + 16 * device + static_cast<int>(i)));
  std::snprintf(static_cast<char*>(p) + 112, 256, "%s", g.name);
  return success;
}
EXPORT Result zeDeviceGetComputeProperties(void* handle, void* p) {
  DEVICE(handle);
  STRUCTURE(p, 4);
  for (std::size_t i = 0; i < 4; ++i) put<std::uint32_t>(p, 16 + 4 * i, 1024);
  for (std::size_t i = 0; i < 3; ++i) put<std::uint32_t>(p, 32 + 4 * i, 4294967295u);
  put<std::uint32_t>(p, 44, 64 << 10);
  put<std::uint32_t>(p, 48, 3);
  for (std::uint32_t i = 0; i < 3; ++i) put<std::uint32_t>(p, 52 + 4 * i, 8u << i);
  return success;
}
EXPORT Result zeDeviceGetModuleProperties(void* handle, void* p) {
  DEVICE(handle);
  STRUCTURE(p, 5);
  put<std::uint32_t>(p, 20, device % 2 == 0 ? 13 : 15);  // fp16, 64-bit atomics, dot4; every second device also has
                                                         // fp64
  put<std::uint32_t>(p, 28, 0xff);                       // division and square root of f32 are correctly rounded
  put<std::uint32_t>(p, 36, 2048);
  return success;
}
EXPORT Result zeDeviceGetMemoryProperties(void* handle, std::uint32_t* count, void* p) {
  DEVICE(handle);
  if (*count != 0 && p != nullptr) {
    STRUCTURE(p, 7);
    put<std::uint64_t>(p, 32, machine().settings().memory);
  }
  return *count = 1, success;
}
EXPORT Result zeDeviceCanAccessPeer(void* handle, void* other, std::uint8_t* can) {
  DEVICE(handle);
  Context* const peer = device_of(other);
  if (peer == nullptr) return null_handle;
  *can = machine().can_reach(device, peer->device) && driver_of(device) == driver_of(peer->device);
  if (const Fault* f = machine().faults().find("peer", device)) return result_of(f->code.value_or(not_supported));
  if (*can != 0) machine().enable_peer(*context, peer->device);  // Level Zero has no call that enables peer access
  return success;
}
EXPORT Result zeDeviceGetCommandQueueGroupProperties(void* handle, std::uint32_t* count, void* p) {
  DEVICE(handle);
  if (*count != 0 && p != nullptr) {
    STRUCTURE(p, 6);
    put<std::uint32_t>(p, 16, 3);  // supports compute and copy
    put<std::uint32_t>(p, 32, 1);
  }
  return *count = 1, success;
}
EXPORT Result zeDevicePciGetPropertiesExt(void* handle, void* p) {
  DEVICE(handle);
  STRUCTURE(p, 0x10008);
  for (std::size_t i = 0; i < 4; ++i)
    put<std::uint32_t>(p, 16 + 4 * i, i == 1 ? 3 + static_cast<std::uint32_t>(device) : 0);
  return success;
}

// Contexts and memory.

EXPORT Result zeContextCreate(void* driver, const void* desc, void** context) {
  ENTER();
  STRUCTURE(desc, 0xd);
  if (const Fault* f = machine().faults().find("context")) return result_of(f->code.value_or(out_of_memory));
  auto* const made = keep<ZeContext>(contexts);
  made->driver = static_cast<int>(static_cast<int*>(driver) - driver_handles.data());
  return *context = made, success;
}
EXPORT Result zeMemAllocDevice(void* ze_context, const void* desc, std::size_t bytes, std::size_t alignment,
                               void* handle, void** address) {
  DEVICE(handle);
  STRUCTURE(desc, 0x15);
  OBJECT(ZeContext, owner, contexts, ze_context);
  TOGETHER(owner);
  if (context->sticky != ok) return result_of(context->sticky);
  if (alignment > 256 || (alignment & (alignment - 1)) != 0) return 0x7800000a;
  const void* const more = get<const void*>(desc, 8);
  const bool relaxed = more != nullptr && get<std::uint32_t>(more, 0) == 0x20001 && get<std::uint32_t>(more, 16) == 1;
  if (bytes == 0 || (bytes > largest_allocation() && !relaxed)) return 0x78000009;
  std::uint64_t made = 0;
  const Code code = machine().allocate(*context, bytes, &made);
  *address = reinterpret_cast<void*>(made);
  return result_of(code);
}
EXPORT Result zeMemAllocHost(void* ze_context, const void* desc, std::size_t bytes, std::size_t, void** address) {
  ENTER();
  STRUCTURE(desc, 0x16);
  OBJECT(ZeContext, owner, contexts, ze_context);
  (void)owner;
  Context* const context = device_of(&device_handles[0]);
  if (context == nullptr) return no_host_memory;
  const Code code = machine().allocate_host(*context, bytes, address);
  return code == out_of_memory ? no_host_memory : result_of(code);
}
EXPORT Result zeMemFree(void* ze_context, void* address) {
  ENTER();
  OBJECT(ZeContext, owner, contexts, ze_context);
  (void)owner;
  const auto key = reinterpret_cast<std::uint64_t>(address);
  return result_of(machine().is_pinned(key) ? machine().free_host(address) : machine().free(key));
}

// Events.

EXPORT Result zeEventPoolCreate(void* ze_context, const void* desc, std::uint32_t, void**, void** pool) {
  ENTER();
  STRUCTURE(desc, 0x10);
  OBJECT(ZeContext, owner, contexts, ze_context);
  auto* const made = keep<Pool>(pools);
  made->taken.resize(get<std::uint32_t>(desc, 20));
  made->driver = owner->driver;
  return *pool = made, success;
}
EXPORT Result zeEventPoolDestroy(void* handle) {
  ENTER();
  OBJECT(Pool, pool, pools, handle);
  if (std::ranges::find(pool->taken, true) != pool->taken.end())
    machine().breach("a pool is destroyed before its events", ok);
  return pool->live = false, success;
}
EXPORT Result zeEventCreate(void* pool_handle, const void* desc, void** event) {
  ENTER();
  STRUCTURE(desc, 0x11);
  OBJECT(Pool, pool, pools, pool_handle);
  const auto index = get<std::uint32_t>(desc, 16);
  if (index >= pool->taken.size() || pool->taken[index])
    return result_of(machine().breach("the pool has no free event of this index", invalid_value));
  Context* const context = device_of(&device_handles[0]);
  auto* const made = keep<PooledEvent>(events);
  machine().create_event(*context, false, &made->event);
  made->pool = pool;
  made->index = index;
  pool->taken[index] = true;
  return *event = made, success;
}
EXPORT Result zeEventDestroy(void* handle) {
  ENTER();
  OBJECT(PooledEvent, event, events, handle);
  if (machine().query(*event->event) == not_ready && event->event->stream != nullptr)
    machine().breach("an event is destroyed before it was signalled", ok);
  event->pool->taken[event->index] = false;
  event->live = false;
  return result_of(machine().destroy(event->event));
}
EXPORT Result zeEventQueryStatus(void* handle) {
  ENTER();
  OBJECT(PooledEvent, event, events, handle);
  return result_of(machine().query(*event->event));
}
EXPORT Result zeEventHostSynchronize(void* handle, std::uint64_t timeout) {
  ENTER();
  OBJECT(PooledEvent, event, events, handle);
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    if (event->event->stream != nullptr && timeout == ~std::uint64_t{0})
      return result_of(machine().synchronise(*event->event));
    const Code code = machine().query(*event->event);
    if (code != not_ready) return result_of(code);
    if (event->event->stream == nullptr && timeout == ~std::uint64_t{0})
      return result_of(machine().breach("a wait for an event that no queued work signals", invalid_value));
    if (std::chrono::steady_clock::now() - start > std::chrono::nanoseconds(timeout)) return ze_not_ready;
    std::this_thread::yield();
  }
}
EXPORT Result zeEventHostReset(void* handle) {
  ENTER();
  OBJECT(PooledEvent, event, events, handle);
  return result_of(machine().reset(*event->event));
}

// Command lists.

namespace {
/// Starts a call that appends a command. Sets `stream`, and `order` with the events that the command waits for and
/// signals.
Result prepare(const char* call, void* list, void* signal, std::uint32_t count, void** waits, Stream** stream,
               Order* order) {
  if (const Result entered = enter(call); entered != success) return entered;
  Code code = ok;
  if (list == nullptr) return null_handle;
  *stream = machine().stream_of(*machine().primary(0), list, &code, false);
  if (*stream == nullptr) return result_of(code);
  const auto ours = [&](const PooledEvent& event) {
    return event.pool->driver == driver_of((*stream)->context->device) ||
           machine().breach("the event belongs to another driver's context", ok) != ok;
  };
  if (signal != nullptr) {
    OBJECT(PooledEvent, event, events, signal);
    if (!ours(*event)) return invalid_argument;
    order->signal = event->event;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    OBJECT(PooledEvent, event, events, waits[i]);
    if (!ours(*event)) return invalid_argument;
    order->waits.push_back(event->event);
  }
  return result_of((*stream)->context->sticky);
}
}  // namespace
#define APPEND(list, signal, count, waits)                                                                   \
  Stream* stream = nullptr;                                                                                  \
  Order order;                                                                                               \
  if (const Result wrong = prepare(__func__, list, signal, count, waits, &stream, &order); wrong != success) \
  return wrong

/// Creates a stream from a descriptor with this structure type.
#define NEW_STREAM(ze_context, handle, desc, type)                                           \
  DEVICE(handle);                                                                            \
  STRUCTURE(desc, type);                                                                     \
  OBJECT(ZeContext, owner, contexts, ze_context);                                            \
  TOGETHER(owner);                                                                           \
  if (get<std::uint32_t>(desc, 16) != 0)                                                     \
    return result_of(machine().breach("the only queue group has ordinal 0", invalid_value)); \
  Stream* stream = nullptr;                                                                  \
  machine().create_stream(*context, false, &stream)

EXPORT Result zeCommandListCreateImmediate(void* ze_context, void* handle, const void* desc, void** list) {
  NEW_STREAM(ze_context, handle, desc, 0xe);
  stream->ordered = (get<std::uint32_t>(desc, 24) & 2) != 0;  // ZE_COMMAND_QUEUE_FLAG_IN_ORDER
  return *list = stream, success;
}
EXPORT Result zeCommandListCreate(void* ze_context, void* handle, const void* desc, void** list) {
  NEW_STREAM(ze_context, handle, desc, 0xf);
  stream->ordered = false;
  machine().begin_list(*stream);
  return *list = stream, success;
}
EXPORT Result zeCommandListClose(void* list) {
  ENTER();
  Code code = ok;
  Stream* const stream = machine().stream_of(*machine().primary(0), list, &code, false);
  return stream == nullptr ? result_of(code) : result_of(machine().close_list(*stream));
}
EXPORT Result zeCommandListImmediateAppendCommandListsExp(void* immediate, std::uint32_t lists, void** handles,
                                                          void* signal, std::uint32_t count, void** waits) {
  APPEND(immediate, signal, count, waits);
  if (signal != nullptr || count != 0)
    return result_of(machine().breach("events with closed lists are not supported by the fake", invalid_value));
  for (std::uint32_t i = 0; i < lists; ++i) {
    Code code = ok;
    Stream* const list = machine().stream_of(*machine().primary(0), handles[i], &code, false);
    if (list == nullptr) return result_of(code);
    if (list->closed == nullptr) return result_of(machine().breach("an open list is appended", invalid_value));
    if (const Code launched = machine().launch_graph(*stream->context, list->closed, *stream); launched != ok)
      return result_of(launched);
  }
  return success;
}
EXPORT Result zeCommandListDestroy(void* list) {
  ENTER();
  Code code = ok;
  Stream* const stream = machine().stream_of(*machine().primary(0), list, &code, false);
  if (stream != nullptr && stream->closed != nullptr) machine().destroy_executable(stream->closed);
  return stream == nullptr ? result_of(code) : result_of(machine().destroy(stream));
}
EXPORT Result zeCommandListHostSynchronize(void* list, std::uint64_t) {
  ENTER();
  Code code = ok;
  Stream* const stream = machine().stream_of(*machine().primary(0), list, &code, false);
  return stream == nullptr ? result_of(code) : result_of(machine().synchronise(*stream));
}
EXPORT Result zeCommandListAppendMemoryCopy(void* list, void* to, const void* from, std::size_t bytes, void* signal,
                                            std::uint32_t count, void** waits) {
  APPEND(list, signal, count, waits);
  const Context *const target = machine().owner(reinterpret_cast<std::uint64_t>(to)),
                       *const source = machine().owner(reinterpret_cast<std::uint64_t>(from));
  if (target != nullptr && source != nullptr && target != source)
    return result_of(machine().copy_from_peer(*stream->context, reinterpret_cast<std::uint64_t>(to), target,
                                              reinterpret_cast<std::uint64_t>(from), source, bytes, *stream, order));
  return result_of(machine().copy(*stream->context, reinterpret_cast<std::uint64_t>(to),
                                  reinterpret_cast<std::uint64_t>(from), bytes, Machine::Copy::any, *stream, false,
                                  order));
}
EXPORT Result zeCommandListAppendMemoryFill(void* list, void* to, const void* pattern, std::size_t unit,
                                            std::size_t bytes, void* signal, std::uint32_t count, void** waits) {
  APPEND(list, signal, count, waits);
  if (unit == 0 || (unit & (unit - 1)) != 0 || unit > 8 || bytes % unit != 0)
    return result_of(machine().breach("a pattern of " + std::to_string(unit) + " bytes over " + std::to_string(bytes),
                                      invalid_value));
  std::uint64_t value = 0;
  std::memcpy(&value, pattern, unit);
  return result_of(machine().fill(*stream->context, reinterpret_cast<std::uint64_t>(to), value, unit, bytes / unit,
                                  *stream, false, order));
}
EXPORT Result zeCommandListAppendBarrier(void* list, void* signal, std::uint32_t count, void** waits) {
  APPEND(list, signal, count, waits);
  order.barrier = true;
  return result_of(machine().mark(*stream, order));
}
EXPORT Result zeCommandListAppendWaitOnEvents(void* list, std::uint32_t count, void** waits) {
  APPEND(list, nullptr, count, waits);
  order.barrier = true;  // all commands appended later wait for it
  return result_of(machine().mark(*stream, order));
}

// Modules and kernels.

EXPORT Result zeModuleCreate(void* ze_context, void* handle, const void* desc, void** module, void** log) {
  DEVICE(handle);
  STRUCTURE(desc, 0x1b);
  OBJECT(ZeContext, owner, contexts, ze_context);
  TOGETHER(owner);
  auto tell = [&](const char* text) {
    if (log != nullptr) *log = new std::string(text);
  };
  if (log != nullptr) *log = nullptr;
  if (get<std::uint32_t>(desc, 16) != 1) return ze_not_supported;  // SPIR-V
  const std::string data(get<const char*>(desc, 32), get<std::size_t>(desc, 24));
  const auto image = read_image(intel_magic, data.c_str());
  if (const Fault* f = machine().faults().find("cubin", device)) return result_of(f->code.value_or(no_binary_for_gpu));
  if (!image) return tell("the binary has no known format"), invalid_binary;
  if (image->architecture != gpu(device).architecture) return tell("the binary is for another device"), invalid_binary;
  Module* made = nullptr;
  const Code code = machine().load(*context, image->entries, &made);
  tell("");
  return *module = made, result_of(code);
}
EXPORT Result zeModuleDestroy(void* module) {
  ENTER();
  auto* const m = static_cast<Module*>(module);
  return result_of(machine().unload(nullptr, m));
}
EXPORT Result zeModuleBuildLogGetString(void* log, std::size_t* bytes, char* text) {
  const auto& all = *static_cast<std::string*>(log);
  if (text != nullptr) std::memcpy(text, all.c_str(), std::min(*bytes, all.size() + 1));
  return *bytes = all.size() + 1, success;
}
EXPORT Result zeModuleBuildLogDestroy(void* log) { return delete static_cast<std::string*>(log), success; }
EXPORT Result zeKernelCreate(void* module, const void* desc, void** kernel) {
  ENTER();
  STRUCTURE(desc, 0x1d);
  auto* const m = static_cast<Module*>(module);
  Function* function = nullptr;
  if (const Code code = machine().function(*m->context, m, get<const char*>(desc, 24), &function); code != ok)
    return result_of(code);
  auto* const made = keep<Kernel>(kernels);
  made->function = function;
  made->arguments.resize(static_cast<std::size_t>(std::max(0, function->parameters)));
  return *kernel = made, success;
}
EXPORT Result zeKernelDestroy(void* handle) {
  ENTER();
  OBJECT(Kernel, kernel, kernels, handle);
  return kernel->live = false, success;
}
EXPORT Result zeKernelGetProperties(void* handle, void* p) {
  ENTER();
  STRUCTURE(p, 0x1e);
  OBJECT(Kernel, kernel, kernels, handle);
  put<std::uint32_t>(p, 16, static_cast<std::uint32_t>(kernel->arguments.size()));
  const Fault* f = machine().faults().find("threads");
  put<std::uint32_t>(p, 40, 8);  // number of lanes in a subgroup
  put<std::uint32_t>(p, 44, static_cast<std::uint32_t>((f != nullptr ? f->number : 1024) / 8));
  return success;
}
EXPORT Result zeKernelSetGroupSize(void* handle, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  ENTER();
  OBJECT(Kernel, kernel, kernels, handle);
  if (std::uint64_t{x} * y * z == 0 || std::uint64_t{x} * y * z > 1024)
    return machine().breach("a group that is empty or too large", ok), 0x78000013;
  return kernel->group = {x, y, z}, success;
}
EXPORT Result zeKernelSetArgumentValue(void* handle, std::uint32_t index, std::size_t bytes, const void* value) {
  ENTER();
  OBJECT(Kernel, kernel, kernels, handle);
  if (index >= kernel->arguments.size()) return machine().breach("the kernel has fewer arguments", ok), invalid_index;
  std::vector<std::byte>& to = kernel->arguments[index];
  to.assign(bytes, std::byte{0});
  if (value != nullptr) std::memcpy(to.data(), value, bytes);
  return success;
}
EXPORT Result zeCommandListAppendLaunchKernel(void* list, void* handle, const std::uint32_t* groups, void* signal,
                                              std::uint32_t count, void** waits) {
  APPEND(list, signal, count, waits);
  OBJECT(Kernel, kernel, kernels, handle);
  std::vector<std::uint64_t> values;
  for (const auto& argument : kernel->arguments) {
    if (argument.empty()) return result_of(machine().breach("an argument has not been set", invalid_value));
    values.push_back(0);
    std::memcpy(&values.back(), argument.data(), std::min<std::size_t>(8, argument.size()));
  }
  std::vector<void*> pointers;
  std::vector<std::uint32_t> sizes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    pointers.push_back(&values[i]);
    sizes.push_back(static_cast<std::uint32_t>(kernel->arguments[i].size()));
  }
  order.argument_bytes = sizes;
  return result_of(machine().launch(*stream->context, *kernel->function, {groups[0], groups[1], groups[2]},
                                    kernel->group, 0, *stream, pointers.data(), nullptr, order));
}
