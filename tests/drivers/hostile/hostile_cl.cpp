// SPDX-License-Identifier: Apache-2.0
// An OpenCL driver with a GPU that computes in the test's interpreter (kernel_abi.h) and misbehaves in one way.
// TESSERA_HOSTILE_CL selects an act of hostile.h at one of the places ctor, getplatforms, platforminfo, getdevices,
// deviceinfo, context, build, launch, read, finish, waitevents, releasemem and dtor, or one of these modes:
//
//   all_fail                          every call returns an error
//   abort_functions                   the compiler accepts the first kernel, but aborts on a kernel with functions
//   abort_optimising                  the compiler aborts unless optimisation is off, like PoCL 6 with LLVM 18
//   fail_build, oom_buffer            builds fail with a log; allocations fail
//   null_platform, null_context, null_buffer   the call succeeds but returns null
//   garbage_platform, garbage_strings          returns a dangling pointer; returns bytes that are not text
//   huge_strings, long_strings, unterminated_strings, latin1, escapes   wrong names
//   infinite_platforms, many_platforms, many_devices, lies_devices      wrong numbers of platforms or devices
//   lies_memory, zero_memory, zero_local_memory, zero_units, zero_workgroup   wrong properties
//   skip_launch, wrong_read           the call succeeds, but does nothing or reads other bytes
//
// With TESSERA_HOSTILE_AFTER=n, acts start after the first n launches. In the mode hang_waitevents, events of later
// launches never complete.
//
// All calls go through a dispatch table, as in cl_khr_icd, and are synchronous.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/drivers/hostile/hostile.h"
#include "tests/drivers/image.h"
#include "tests/drivers/kernel_abi.h"

namespace {

using namespace tessera::fake;
namespace hostile = tessera::hostile;
using Code = std::int32_t;
using Bits = std::uint64_t;
constexpr Code device_not_found = -1, no_memory = -4, build_failure = -11, bad_value = -30, bad_platform = -32,
               bad_executable = -45, bad_argument = -49, bad_kernel = -52, unknown_call = -59, any_error = -9999;

const hostile::Mode& mode() {
  static const auto* const the_mode = new hostile::Mode("TESSERA_HOSTILE_CL");
  return *the_mode;
}
/// Performs the act at this place, so this function might not return. Returns true if the call must fail.
bool strikes(const char* place) {
  hostile::perform(mode().act_at(place));
  return mode().is("all_fail");
}

void* table[160];
struct Object {
  void** functions = table;
};
struct Device : Object {
  std::uint32_t number = 0;
};
struct Platform : Object {
  std::vector<Device> devices;
};
struct Memory : Object {
  std::vector<std::byte> bytes;
};
struct Program : Object {
  std::string source;
};
struct Kernel : Object {
  std::string entry;
  std::map<std::uint32_t, std::vector<std::byte>> arguments;
};

std::vector<Platform>& platforms() {
  static auto* const all = [] {
    auto* made = new std::vector<Platform>(mode().is("many_platforms") ? 30 : 1);
    std::uint32_t number = 0;
    for (Platform& p : *made) {
      p.devices.resize(mode().is("many_devices") ? 30 : 1);
      for (Device& d : p.devices) d.number = number++;
    }
    return made;
  }();
  return *all;
}

Code give(const void* value, std::size_t size, std::size_t room, void* to, std::size_t* needed) {
  if (needed != nullptr) *needed = size;
  if (to == nullptr) return 0;
  if (room < size) return bad_value;
  std::memcpy(to, value, size);
  return 0;
}
template <class T>
Code number(T value, std::size_t room, void* to, std::size_t* needed) {
  return give(&value, sizeof value, room, to, needed);
}
Code text(const std::string& value, std::size_t room, void* to, std::size_t* needed) {
  return give(value.c_str(), value.size() + 1, room, to, needed);
}
/// Returns names of platforms and devices.
Code name(const std::string& usual, std::size_t room, void* to, std::size_t* needed) {
  if (mode().is("huge_strings")) {
    if (needed != nullptr) *needed = std::size_t{1} << 62;
    return to == nullptr ? 0 : bad_value;
  }
  if (mode().is("long_strings")) return text(usual + std::string(100000, 'x'), room, to, needed);
  if (mode().is("unterminated_strings")) return give(usual.data(), usual.size(), room, to, needed);
  if (mode().is("latin1")) return text(usual + " Graphics\xae 770", room, to, needed);
  if (mode().is("escapes")) return text(usual + "\x1b]0;taken\x07\x1b[2J\nnew line\r\x9b", room, to, needed);
  if (mode().is("garbage_strings")) {
    std::string bytes;
    for (int i = 1; i < 256; i += 2) bytes += static_cast<char>(i * 37);
    return text(bytes, room, to, needed);
  }
  return text(usual, room, to, needed);
}

// Platforms and devices.

Code get_platforms(std::uint32_t room, void** to, std::uint32_t* count);

Code platform_info(void*, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  if (strikes("platforminfo")) return any_error;
  const bool pocl = mode().is("abort_optimising");
  if (what == 0x0901 && pocl)
    return text("OpenCL 3.0 PoCL 6.0+debian  Linux, None+Asserts, RELOC, SPIR-V, LLVM 18.1.8, SLEEF", room, to, needed);
  if (what == 0x0901) return text("OpenCL 1.2 hostile", room, to, needed);
  if (what == 0x0902 && pocl) return text("Portable Computing Language", room, to, needed);
  if (what == 0x0902) return name("Hostile Platform", room, to, needed);
  return bad_value;
}
Code get_devices(void* platform, Bits, std::uint32_t room, void** to, std::uint32_t* count) {
  if (strikes("getdevices")) return any_error;
  if (platform == nullptr) return bad_platform;
  auto& devices = static_cast<Platform*>(platform)->devices;
  for (std::size_t i = 0; to != nullptr && i < std::min<std::size_t>(room, devices.size()); ++i) to[i] = &devices[i];
  if (count != nullptr) *count = static_cast<std::uint32_t>(devices.size()) + (mode().is("lies_devices") ? 3 : 0);
  return devices.empty() ? device_not_found : 0;
}
Code device_info(void* device, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  if (strikes("deviceinfo")) return any_error;
  const std::uint64_t memory = mode().is("lies_memory")   ? ~std::uint64_t{0}
                               : mode().is("zero_memory") ? 0
                                                          : std::uint64_t{1} << 30;
  const std::size_t threads = mode().is("zero_workgroup") ? 0 : 1024;
  switch (what) {
    case 0x1000: return number(Bits{4}, room, to, needed);  // type: GPU
    case 0x1002: return number(std::uint32_t{mode().is("zero_units") ? 0u : 8u}, room, to, needed);
    case 0x1004: return number(threads, room, to, needed);
    case 0x1005: return number(std::array{threads, threads, threads}, room, to, needed);
    case 0x1010:
    case 0x101F: return number(memory, room, to, needed);
    case 0x1017: return number(std::size_t{1024}, room, to, needed);
    case 0x101B: return number(Bits{0xbf}, room, to, needed);
    case 0x1023: return number(std::uint64_t{mode().is("zero_local_memory") ? 0u : 65536u}, room, to, needed);
    case 0x1027:
    case 0x1028: return number(std::uint32_t{1}, room, to, needed);
    case 0x102B: return name("Hostile GPU", room, to, needed);
    case 0x102C: return name("Hostile Vendor", room, to, needed);
    case 0x102D: return name("1.0", room, to, needed);
    case 0x102F: return text("OpenCL 1.2 hostile", room, to, needed);
    case 0x1030: return text("cl_khr_icd cl_khr_pci_bus_info", room, to, needed);
    case 0x1035: return number(std::uint32_t{0}, room, to, needed);
    case 0x103A: return number(std::uint32_t{4}, room, to, needed);
    case 0x410F:
      return number(std::array<std::uint32_t, 4>{0, 0x40 + static_cast<Device*>(device)->number, 0, 0}, room, to,
                    needed);
    default: return bad_value;
  }
}

// Contexts, queues, memory.

Object the_context, the_queue, the_event;

void* create_context(const std::intptr_t*, std::uint32_t, void* const*,
                     void (*)(const char*, const void*, std::size_t, void*), void*, Code* code) {
  if (strikes("context")) return *code = any_error, nullptr;
  *code = 0;
  return mode().is("null_context") ? nullptr : &the_context;
}
void* create_queue(void*, void*, Bits, Code* code) {
  if (strikes("queue")) return *code = any_error, nullptr;
  return *code = 0, &the_queue;
}
Code release_queue(void*) { return 0; }
void* create_buffer(void*, Bits, std::size_t size, void*, Code* code) {
  if (strikes("buffer")) return *code = any_error, nullptr;
  if (mode().is("oom_buffer")) return *code = no_memory, nullptr;
  *code = 0;
  if (mode().is("null_buffer")) return nullptr;
  auto* memory = new Memory;
  memory->bytes.resize(size);
  return memory;
}
Code release_memory(void* memory) {
  if (strikes("releasemem")) return any_error;
  return delete static_cast<Memory*>(memory), 0;
}
void done(void** event) {
  if (event != nullptr) *event = &the_event;
}
std::byte* at(void* memory, std::size_t offset, std::size_t bytes) {
  auto& all = static_cast<Memory*>(memory)->bytes;
  return offset <= all.size() && bytes <= all.size() - offset ? all.data() + offset : nullptr;
}
Code enqueue_read(void*, void* from, std::uint32_t, std::size_t offset, std::size_t bytes, void* to, std::uint32_t,
                  void* const*, void** event) {
  if (strikes("read")) return any_error;
  const std::byte* const data = at(from, offset, bytes);
  if (data == nullptr) return bad_value;
  std::memcpy(to, data, bytes);
  if (mode().is("wrong_read") && bytes != 0) static_cast<std::byte*>(to)[bytes / 2] ^= std::byte{0x40};
  return done(event), 0;
}
Code enqueue_write(void*, void* to, std::uint32_t, std::size_t offset, std::size_t bytes, const void* from,
                   std::uint32_t, void* const*, void** event) {
  if (strikes("write")) return any_error;
  std::byte* const data = at(to, offset, bytes);
  if (data == nullptr) return bad_value;
  std::memcpy(data, from, bytes);
  return done(event), 0;
}
Code enqueue_copy(void*, void* from, void* to, std::size_t from_offset, std::size_t to_offset, std::size_t bytes,
                  std::uint32_t, void* const*, void** event) {
  if (strikes("copy")) return any_error;
  const std::byte* const source = at(from, from_offset, bytes);
  std::byte* const target = at(to, to_offset, bytes);
  if (source == nullptr || target == nullptr) return bad_value;
  std::memmove(target, source, bytes);
  return done(event), 0;
}
Code enqueue_fill(void*, void* to, const void* pattern, std::size_t unit, std::size_t offset, std::size_t bytes,
                  std::uint32_t, void* const*, void** event) {
  if (strikes("fill")) return any_error;
  std::byte* const data = at(to, offset, bytes);
  if (data == nullptr || bytes % unit != 0) return bad_value;
  for (std::size_t i = 0; i < bytes; i += unit) std::memcpy(data + i, pattern, unit);
  return done(event), 0;
}
void* enqueue_map(void*, void* memory, std::uint32_t, Bits, std::size_t offset, std::size_t bytes, std::uint32_t,
                  void* const*, void** event, Code* code) {
  if (strikes("map")) return *code = any_error, nullptr;
  done(event);
  return *code = 0, at(memory, offset, bytes);
}
Code enqueue_unmap(void*, void*, void*, std::uint32_t, void* const*, void** event) { return done(event), 0; }

// Programs and kernels.

void* create_program(void*, std::uint32_t count, const char** texts, const std::size_t* lengths, Code* code) {
  if (strikes("program")) return *code = any_error, nullptr;
  auto* program = new Program;
  for (std::uint32_t i = 0; i < count; ++i) program->source.append(texts[i], lengths[i]);
  return *code = 0, program;
}
Code release_program(void* program) { return delete static_cast<Program*>(program), 0; }
Code build_program(void* program, std::uint32_t, void* const*, const char* options, void (*)(void*, void*), void*) {
  if (strikes("build")) return any_error;
  const bool functions = static_cast<Program*>(program)->source.find("verify_functions") != std::string::npos;
  if (mode().is("abort_functions") && functions) std::abort();
  if (mode().is("abort_optimising") && std::string_view(options).find("-cl-opt-disable") == std::string_view::npos)
    std::abort();
  return mode().is("fail_build") ? build_failure : 0;
}
Code build_info(void*, void*, std::uint32_t what, std::size_t room, void* to, std::size_t* needed) {
  return what == 0x1183 ? text("hostile compiler: I do not like it", room, to, needed) : bad_value;
}
void* create_kernel(void* program, const char* entry, Code* code) {
  if (strikes("kernel")) return *code = any_error, nullptr;
  if (!find_kernels(static_cast<Program*>(program)->source, "__kernel").contains(entry)) return *code = -46, nullptr;
  auto* kernel = new Kernel;
  kernel->entry = entry;
  return *code = 0, kernel;
}
Code release_kernel(void* kernel) { return delete static_cast<Kernel*>(kernel), 0; }
Code set_argument(void* kernel, std::uint32_t number, std::size_t bytes, const void* value) {
  const auto* const from = static_cast<const std::byte*>(value);
  static_cast<Kernel*>(kernel)->arguments[number].assign(from, from + bytes);
  return 0;
}
Code group_info(void*, void*, std::uint32_t, std::size_t room, void* to, std::size_t* needed) {
  return number(std::size_t{1024}, room, to, needed);
}

/// Runs the kernel in the interpreter of the test process.
Code run(const Kernel& kernel, const std::size_t* global, const std::size_t* local) {
  const auto* const resolver = static_cast<const Resolver*>(::dlsym(RTLD_DEFAULT, "tessera_fake_resolver"));
  KernelFacts facts;
  if (resolver == nullptr || resolver->find(kernel.entry.c_str(), 1, &facts) == 0) {
    std::fprintf(stderr, "hostile driver: no definition of the kernel %s\n", kernel.entry.c_str());
    return bad_executable;
  }
  std::array<std::uint64_t, 3> shape{};
  for (std::size_t d = 0; d < 3; ++d) shape[d] = facts.block ? global[d] / local[d] : global[d];
  std::vector<KernelValue> values(facts.parameters);
  std::vector<std::uint64_t> offsets(facts.parameters);
  std::vector<const Memory*> buffers(facts.parameters);
  std::vector<std::uint64_t> sizes(facts.parameters, 1), lengths(facts.parameters, ~std::uint64_t{0});
  for (std::uint32_t i = 0; i < facts.argument_count; ++i) {
    const KernelArgument& a = facts.arguments[i];
    const auto given = kernel.arguments.find(i);
    if (given == kernel.arguments.end() || given->second.size() > 8) return bad_kernel;
    std::uint64_t bits = 0;
    std::memcpy(&bits, given->second.data(), given->second.size());
    switch (a.kind) {
      case KernelArgument::pointer:
        buffers[a.number] = reinterpret_cast<const Memory*>(bits);
        sizes[a.number] = a.element_bytes;
        break;
      case KernelArgument::offset: offsets[a.number] = bits; break;
      case KernelArgument::length: lengths[a.number] = bits; break;
      case KernelArgument::scalar: values[a.number].bits = bits; break;
      case KernelArgument::extent: shape[a.number] = bits; break;
      default: return bad_argument;
    }
  }
  for (std::uint32_t p = 0; p < facts.parameters; ++p) {
    if (buffers[p] == nullptr) continue;
    const std::uint64_t all = buffers[p]->bytes.size() / sizes[p];
    const std::uint64_t rest = all - std::min(all, offsets[p]);
    if (lengths[p] != ~std::uint64_t{0} && lengths[p] > rest) return bad_argument;
    values[p].elements = std::min(rest, lengths[p]);
    values[p].data = const_cast<std::byte*>(buffers[p]->bytes.data()) + offsets[p] * sizes[p];
  }
  char error[1024] = "";
  if (resolver->run(facts.kernel, 1, shape.data(), values.data(), error, sizeof error) != 0) return 0;
  std::fprintf(stderr, "hostile driver: %s: %s\n", kernel.entry.c_str(), error);
  return bad_executable;
}
Code enqueue_kernel(void*, void* kernel, std::uint32_t, const std::size_t*, const std::size_t* global,
                    const std::size_t* local, std::uint32_t, void* const*, void** event) {
  ++hostile::Mode::launches;
  if (strikes("launch")) return any_error;
  done(event);
  return mode().is("skip_launch") ? 0 : run(*static_cast<Kernel*>(kernel), global, local);
}

// Waiting.

Code wait_events(std::uint32_t, void* const*) { return strikes("waitevents") ? any_error : 0; }
Code event_info(void*, std::uint32_t, std::size_t room, void* to, std::size_t* needed) {
  const bool never = mode().is("hang_waitevents") && mode().is_late();
  return number(Code{never ? 1 : 0}, room, to, needed);  // CL_RUNNING or CL_COMPLETE
}
Code release_event(void*) { return 0; }
Code flush(void*) { return strikes("flush") ? any_error : 0; }
Code finish(void*) { return strikes("finish") ? any_error : 0; }
Code marker(void*, std::uint32_t, void* const*, void** event) { return done(event), 0; }

Code refuse() { return unknown_call; }

void fill_table() {
  std::fill(std::begin(table), std::end(table), reinterpret_cast<void*>(refuse));
  const auto set = [](std::size_t slot, auto* function) { table[slot] = reinterpret_cast<void*>(function); };
  // The indices follow struct _cl_icd_dispatch in cl_icd.h.
  set(0, get_platforms), set(1, platform_info), set(2, get_devices), set(3, device_info), set(4, create_context);
  set(9, create_queue), set(11, release_queue), set(14, create_buffer), set(18, release_memory);
  set(26, create_program), set(29, release_program), set(30, build_program), set(33, build_info);
  set(34, create_kernel), set(37, release_kernel), set(38, set_argument), set(40, group_info);
  set(41, wait_events), set(42, event_info), set(44, release_event), set(46, flush), set(47, finish);
  set(48, enqueue_read), set(49, enqueue_write), set(50, enqueue_copy), set(56, enqueue_map), set(58, enqueue_unmap);
  set(59, enqueue_kernel), set(102, enqueue_fill), set(105, marker), set(106, marker);
}

Code get_platforms(std::uint32_t room, void** to, std::uint32_t* count) {
  fill_table();
  if (strikes("getplatforms")) return any_error;
  auto& all = platforms();
  if (count != nullptr) *count = mode().is("infinite_platforms") ? 0xFFFFFFFFu : static_cast<std::uint32_t>(all.size());
  for (std::size_t i = 0; to != nullptr && i < std::min<std::size_t>(room, all.size()); ++i) {
    to[i] = &all[i];
    if (mode().is("null_platform")) to[i] = nullptr;
    if (mode().is("garbage_platform")) to[i] = reinterpret_cast<void*>(std::uintptr_t{0xdeadbeef});
  }
  return 0;
}

__attribute__((constructor)) void loaded() { hostile::perform(mode().act_at("ctor")); }
__attribute__((destructor)) void unloaded() { hostile::perform(mode().act_at("dtor")); }

}  // namespace

extern "C" __attribute__((visibility("default"))) void* clGetExtensionFunctionAddress(const char* name) {
  return std::strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? reinterpret_cast<void*>(get_platforms) : nullptr;
}
