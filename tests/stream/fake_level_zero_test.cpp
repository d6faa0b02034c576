// SPDX-License-Identifier: Apache-2.0
// The fake Level Zero driver must report programs that break its rules. Without these reports, other tests would pass
// even if Tessera broke the rules. Each case runs in a child, because a library is opened only once per process.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tessera/base/os/library.h"
#include "tests/drivers/resolver.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"

namespace tessera::fake {
namespace {

const char* const source = R"(
__kernel void saxpy_cl(__global const float* restrict x, const ulong x_offset, __global float* restrict y,
                       const ulong y_offset, const float a, const int extent_x) {
  const int i = get_global_id(0);
  if (i < extent_x) y[y_offset + i] += a * x[x_offset + i];
}
)";
const bool registered = [] {
  KernelFacts facts;
  facts.guarded[0] = 1;
  register_kernel("saxpy_cl", facts,
                  {{.kind = KernelArgument::pointer, .number = 0, .element_bytes = 4},
                   {.kind = KernelArgument::offset, .number = 0},
                   {.kind = KernelArgument::pointer, .number = 1, .element_bytes = 4, .writes = 1},
                   {.kind = KernelArgument::offset, .number = 1},
                   {.kind = KernelArgument::scalar, .number = 2, .bytes = 4},
                   {.kind = KernelArgument::extent, .number = 0, .bytes = 4}},
                  [](std::span<const std::uint64_t>, const KernelValue*) {});
  return true;
}();

using Result = std::uint32_t;
constexpr std::uint64_t infinite_timeout = ~std::uint64_t{0};

// A structure with fields at given offsets, with the layout of the specification.
struct alignas(8) Bytes {
  char data[64] = {};
  explicit Bytes(std::uint32_t type) { put(0, type); }
  template <class T>
  Bytes& put(std::size_t at, T value) {
    std::memcpy(data + at, &value, sizeof value);
    return *this;
  }
};

/// Owns 400 bytes at x and a command list, both on device 0.
class Ze {
 public:
  Ze() : ze_(os::Library::open(test::fake_library("ze"))), ocloc_(os::Library::open(test::fake_library("ocloc"))) {
    std::uint32_t count = 1, two = 2;
    call("zeInit", 0u), call("zeDriverGet", &count, &driver), call("zeDeviceGet", driver, &two, devices);
    context = made("zeContextCreate", Bytes(0xd), driver);
    x = allocate(0), list = new_list();
  }
  template <class... A>
  Result call(const char* name, A... arguments) const {
    return ze_.function<Result(A...)>(name)(arguments...);
  }
  /// Calls `name` with the given arguments and description. Returns the object that it creates.
  template <class... A>
  void* made(const char* name, const Bytes& description, A... before) const {
    void* out = nullptr;
    call(name, before..., static_cast<const void*>(description.data), &out);
    return out;
  }
  void* allocate(int device) const {
    void* out = nullptr;
    call("zeMemAllocDevice", context, static_cast<const void*>(Bytes(0x15).data), std::size_t{400}, std::size_t{64},
         devices[device], &out);
    return out;
  }
  void free(void* address) const { call("zeMemFree", context, address); }
  void* new_list() const { return made("zeCommandListCreateImmediate", Bytes(0xe), context, devices[0]); }
  void* pool(std::uint32_t events) const {
    void* out = nullptr;
    call("zeEventPoolCreate", context, static_cast<const void*>(Bytes(0x10).put(20, events).data), 0u,
         static_cast<void**>(nullptr), &out);
    return out;
  }
  void* event(void* in, std::uint32_t index) const { return made("zeEventCreate", Bytes(0x11).put(16, index), in); }
  void* event() const { return event(pool(1), 0); }
  void wait(void* event) const { call("zeEventHostSynchronize", event, infinite_timeout); }
  void fill(void* on, std::size_t bytes = 400, std::size_t unit = 4, void* signal = nullptr,
            void* wait = nullptr) const {
    const std::uint64_t pattern = 1;
    call("zeCommandListAppendMemoryFill", on, x, static_cast<const void*>(&pattern), unit, bytes, signal,
         wait ? 1u : 0u, wait ? &wait : nullptr);
  }
  void barrier(void* on) const {
    call("zeCommandListAppendBarrier", on, static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
  }
  void hold() const { ze_.function<void(int)>("tessera_fake_hold")(1); }

  void* kernel() const {
    const char* arguments[] = {"ocloc", "compile",          "-file", "k.cl", "-device", "dg2", "-output",
                               "k",     "-output_no_suffix"};
    const auto* text = reinterpret_cast<const std::uint8_t*>(source);
    const std::uint64_t bytes = std::strlen(source);
    const char* name = "k.cl";
    std::uint32_t outputs = 0;
    std::uint8_t** data = nullptr;
    std::uint64_t* sizes = nullptr;
    char** names = nullptr;
    ocloc_.function<int(unsigned, const char**, std::uint32_t, const std::uint8_t**, const std::uint64_t*, const char**,
                        std::uint32_t, const std::uint8_t**, const std::uint64_t*, const char**, std::uint32_t*,
                        std::uint8_t***, std::uint64_t**, char***)>("oclocInvoke")(
        9, arguments, 1, &text, &bytes, &name, 0, nullptr, nullptr, nullptr, &outputs, &data, &sizes, &names);
    void* module = nullptr;
    for (std::uint32_t i = 0; i < outputs; ++i)
      if (std::string(names[i]) == "k.bin")
        call("zeModuleCreate", context, devices[0],
             static_cast<const void*>(Bytes(0x1b).put(16, 1u).put(24, sizes[i]).put(32, data[i]).data), &module,
             static_cast<void**>(nullptr));
    return made("zeKernelCreate", Bytes(0x1d).put(24, "saxpy_cl"), module);
  }
  template <class T>
  void set(void* kernel, std::uint32_t index, T value) const {
    call("zeKernelSetArgumentValue", kernel, index, sizeof value, static_cast<const void*>(&value));
  }
  void launch(void* kernel) const {
    const std::uint32_t groups[3] = {1, 1, 1};
    call("zeKernelSetGroupSize", kernel, 64u, 1u, 1u);
    call("zeCommandListAppendLaunchKernel", list, kernel, static_cast<const std::uint32_t*>(groups),
         static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
  }
  static std::string breaches() { return test::breaches(test::fake_library("ze")); }

  void *driver = nullptr, *devices[2] = {}, *context = nullptr, *x = nullptr, *list = nullptr;

 private:
  os::Library ze_, ocloc_;
};

struct Misuse {
  const char* words;
  std::function<void(Ze&)> work;
};

TEST(FakeLevelZero, DetectsMisuse) {
  static float host[100] = {};
  const Misuse misuses[] = {
      {"before it, and no barrier orders them", [](Ze& ze) { ze.fill(ze.list), ze.fill(ze.list); }},
      {"on another stream, and no event orders them", [](Ze& ze) { ze.fill(ze.list), ze.fill(ze.new_list()); }},
      {"no event orders them",
       [](Ze& ze) {
         void* const other = ze.new_list();
         ze.fill(ze.list), ze.barrier(other), ze.fill(other);
       }},
      {"signalled again without a reset",
       [](Ze& ze) {
         void* const event = ze.event();
         ze.fill(ze.list, 400, 4, event), ze.barrier(ze.list), ze.fill(ze.list, 400, 4, event);
       }},
      {"reset while queued work waits",
       [](Ze& ze) {
         void* const event = ze.event();
         ze.fill(ze.list, 400, 4, event), ze.wait(event), ze.hold();
         ze.fill(ze.new_list(), 400, 4, nullptr, event), ze.call("zeEventHostReset", event);
       }},
      {"no queued work signals", [](Ze& ze) { ze.fill(ze.list, 400, 4, nullptr, ze.event()); }},
      {"no queued work signals", [](Ze& ze) { ze.wait(ze.event()); }},
      {"no free event of this index", [](Ze& ze) { ze.event(ze.pool(2), 2); }},
      {"destroyed before its events",
       [](Ze& ze) {
         void* const pool = ze.pool(1);
         ze.event(pool, 0), ze.call("zeEventPoolDestroy", pool);
       }},
      {"freed while queued work uses it", [](Ze& ze) { ze.hold(), ze.fill(ze.list), ze.free(ze.x); }},
      {"memory is freed", [](Ze& ze) { ze.fill(ze.list), ze.free(ze.x); }},
      {"freed twice", [](Ze& ze) { ze.free(ze.x), ze.free(ze.x); }},
      {"past the end of its allocation", [](Ze& ze) { ze.fill(ze.list, 404); }},
      {"a peer copy without access",  // the program did not check whether the devices can access each other
       [](Ze& ze) {
         ze.call("zeCommandListAppendMemoryCopy", ze.list, ze.x, static_cast<const void*>(ze.allocate(1)),
                 std::size_t{400}, static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
       }},
      {"a pattern of 3 bytes", [](Ze& ze) { ze.fill(ze.list, 399, 3); }},
      {"a stream is destroyed", [](Ze& ze) { ze.hold(), ze.fill(ze.list), ze.call("zeCommandListDestroy", ze.list); }},
      {"the structure's type is not set", [](Ze& ze) { ze.made("zeContextCreate", Bytes(0), ze.driver); }},
      {"invalid device handle", [](Ze& ze) { ze.call("zeDeviceGetStatus", static_cast<void*>(host)); }},
      {"has 4 bytes and was set with 8",
       [](Ze& ze) {
         void* const kernel = ze.kernel();
         ze.set(kernel, 0, ze.x), ze.set(kernel, 1, std::uint64_t{0}), ze.set(kernel, 2, ze.allocate(0));
         ze.set(kernel, 3, std::uint64_t{0}), ze.set(kernel, 4, 1.0), ze.set(kernel, 5, 10), ze.launch(kernel);
       }},
      {"an argument has not been set", [](Ze& ze) { ze.launch(ze.kernel()); }},
  };
  for (const Misuse& misuse : misuses)
    test::expect_contains(test::run_in_child({{"TESSERA_FAKE_DEVICES", "2"}},
                                             [&] {
                                               Ze ze;
                                               if (const std::string said = ze.breaches(); !said.empty())
                                                 return "before: " + said;
                                               misuse.work(ze);
                                               return ze.breaches();
                                             }),
                          {misuse.words});
}

}  // namespace
}  // namespace tessera::fake
