// SPDX-License-Identifier: Apache-2.0
// The fake Level Zero and libocloc: a sequence of calls written by hand gives right results on 1, 2 and 4 devices, each
// misuse is written down, and faults strike. Every case runs in a child, since a library is made once a process.
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/base/os/library.h"
#include "tests/drivers/resolver.h"
#include "tests/support/in_child.h"

namespace tessera::fake {
namespace {

using test::in_child;
using test::Variables;

const char* const source = R"(
__kernel void saxpy_cl(
    __global const float* restrict x,
    const ulong x_offset,
    __global float* restrict y,
    const ulong y_offset,
    const float a,
    const int extent_x) {
  x += x_offset;
  y += y_offset;
  const int i = get_global_id(0);
  if (i < extent_x) y[i] = a * x[i] + y[i];
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
                  [](std::span<const std::uint64_t> shape, const KernelValue* values) {
                    float a = 0;
                    std::memcpy(&a, &values[2].bits, 4);
                    const auto* x = reinterpret_cast<const float*>(values[0].data);
                    auto* y = reinterpret_cast<float*>(values[1].data);
                    for (std::uint64_t i = 0; i < shape[0]; ++i) y[i] = a * x[i] + y[i];
                  });
  return true;
}();

using Result = std::uint32_t;
constexpr std::uint64_t for_ever = ~std::uint64_t{0};

// Structures by offset, as the specification lays them out.
struct alignas(8) Bytes {
  char data[400] = {};
  explicit Bytes(std::uint32_t type) { put(0, type); }
  template <class T>
  void put(std::size_t at, T value) {
    std::memcpy(data + at, &value, sizeof value);
  }
  template <class T>
  T get(std::size_t at) const {
    T value;
    std::memcpy(&value, data + at, sizeof value);
    return value;
  }
};

class Ze {
 public:
  Ze()
      : ze_(os::Library::open(TESSERA_FAKES "/libfake_ze.so")),
        ocloc_(os::Library::open(TESSERA_FAKES "/libfake_ocloc.so")) {
    if (!ze_.loaded() || !ocloc_.loaded()) throw std::runtime_error(ze_.reason() + ocloc_.reason());
  }
  template <class... A>
  Result call(const char* name, A... arguments) const {
    return ze_.function<Result(A...)>(name)(arguments...);
  }
  Result start(int device_number = 0) {
    if (const Result r = call("zeInit", 0u)) return r;
    std::uint32_t count = 1;
    if (const Result r = call("zeDriverGet", &count, &driver)) return r;
    count = 8;
    void* devices[8] = {};
    if (const Result r = call("zeDeviceGet", driver, &count, devices)) return r;
    device = devices[device_number];
    Bytes desc(0xd);
    if (context == nullptr)
      if (const Result r = call("zeContextCreate", driver, static_cast<const void*>(desc.data), &context)) return r;
    return 0;
  }
  Result allocate(void** address, std::size_t bytes) const {
    Bytes desc(0x15);
    return call("zeMemAllocDevice", context, static_cast<const void*>(desc.data), bytes, std::size_t{64}, device,
                address);
  }
  Result free(void* address) const { return call("zeMemFree", context, address); }
  void* list(bool in_order = false) const {
    Bytes desc(0xe);
    if (in_order) desc.put<std::uint32_t>(24, 2);
    void* made = nullptr;
    call("zeCommandListCreateImmediate", context, device, static_cast<const void*>(desc.data), &made);
    return made;
  }
  void* pool(std::uint32_t events) const {
    Bytes desc(0x10);
    desc.put(20, events);
    void* made = nullptr;
    call("zeEventPoolCreate", context, static_cast<const void*>(desc.data), 0u, static_cast<void**>(nullptr), &made);
    return made;
  }
  void* event(void* in, std::uint32_t index) const {
    Bytes desc(0x11);
    desc.put(16, index);
    void* made = nullptr;
    call("zeEventCreate", in, static_cast<const void*>(desc.data), &made);
    return made;
  }
  Result copy(void* on, void* to, const void* from, std::size_t bytes, void* signal = nullptr,
              void* wait = nullptr) const {
    return call("zeCommandListAppendMemoryCopy", on, to, from, bytes, signal, wait ? 1u : 0u, wait ? &wait : nullptr);
  }
  Result fill(void* on, void* to, std::uint64_t pattern, std::size_t unit, std::size_t bytes, void* signal = nullptr,
              void* wait = nullptr) const {
    return call("zeCommandListAppendMemoryFill", on, to, static_cast<const void*>(&pattern), unit, bytes, signal,
                wait ? 1u : 0u, wait ? &wait : nullptr);
  }
  Result barrier(void* on) const {
    return call("zeCommandListAppendBarrier", on, static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
  }
  Result synchronise(void* list) const { return call("zeCommandListHostSynchronize", list, for_ever); }

  std::string compile(const char* text, const char* target, int* code) const {
    const char* arguments[] = {"ocloc", "compile",          "-file", "k.cl", "-device", target, "-output",
                               "k",     "-output_no_suffix"};
    const auto* data = reinterpret_cast<const std::uint8_t*>(text);
    const std::uint64_t bytes = std::strlen(text);
    const char* name = "k.cl";
    std::uint32_t outputs = 0;
    std::uint8_t** output_data = nullptr;
    std::uint64_t* output_bytes = nullptr;
    char** output_names = nullptr;
    *code = ocloc_.function<int(unsigned, const char**, std::uint32_t, const std::uint8_t**, const std::uint64_t*,
                                const char**, std::uint32_t, const std::uint8_t**, const std::uint64_t*, const char**,
                                std::uint32_t*, std::uint8_t***, std::uint64_t**, char***)>("oclocInvoke")(
        9, arguments, 1, &data, &bytes, &name, 0, nullptr, nullptr, nullptr, &outputs, &output_data, &output_bytes,
        &output_names);
    std::string out;
    for (std::uint32_t i = 0; i < outputs; ++i)
      if (std::string(output_names[i]) == (*code == 0 ? "k.bin" : "stdout.log"))
        out.assign(reinterpret_cast<const char*>(output_data[i]), output_bytes[i]);
    ocloc_.function<int(std::uint32_t*, std::uint8_t***, std::uint64_t**, char***)>("oclocFreeOutput")(
        &outputs, &output_data, &output_bytes, &output_names);
    return out;
  }
  Result load(const std::string& image, void** module) const {
    Bytes desc(0x1b);
    desc.put<std::uint32_t>(16, 1);
    desc.put(24, image.size());
    desc.put(32, image.data());
    return call("zeModuleCreate", context, device, static_cast<const void*>(desc.data), module,
                static_cast<void**>(nullptr));
  }
  Result kernel(void* module, const char* name, void** made) const {
    Bytes desc(0x1d);
    desc.put(24, name);
    return call("zeKernelCreate", module, static_cast<const void*>(desc.data), made);
  }
  template <class T>
  Result argument(void* kernel, std::uint32_t index, T value) const {
    return call("zeKernelSetArgumentValue", kernel, index, sizeof value, static_cast<const void*>(&value));
  }
  /// y[2..] += a * x[1..]
  Result saxpy(void* kernel, void* on, void* x, void* y, float a, int n, void* signal = nullptr,
               void* wait = nullptr) const {
    Result r = argument(kernel, 0, x) | argument(kernel, 1, std::uint64_t{1}) | argument(kernel, 2, y) |
               argument(kernel, 3, std::uint64_t{2}) | argument(kernel, 4, a) | argument(kernel, 5, n) |
               call("zeKernelSetGroupSize", kernel, 64u, 1u, 1u);
    const std::uint32_t groups[3] = {(static_cast<std::uint32_t>(n) + 63) / 64, 1, 1};
    return r | call("zeCommandListAppendLaunchKernel", on, kernel, static_cast<const std::uint32_t*>(groups), signal,
                    wait ? 1u : 0u, wait ? &wait : nullptr);
  }
  std::string breaches() const {
    char text[4096] = "";
    ze_.function<int(char*, std::size_t)>("tessera_fake_breaches")(text, sizeof text);
    return text;
  }
  void hold(bool held) const { ze_.function<void(int)>("tessera_fake_hold")(held); }
  std::uint64_t live(const char* what) const {
    return ze_.function<std::uint64_t(const char*)>("tessera_fake_live")(what);
  }

  void *driver = nullptr, *device = nullptr, *context = nullptr;

 private:
  os::Library ze_, ocloc_;
};

struct Report {
  std::string text;
  void check(bool holds, const char* what, int line) {
    if (!holds) text += "line " + std::to_string(line) + ": " + what + "\n";
  }
};
#define CHECK(x) report.check(x, #x, __LINE__)

std::string run(const Variables& variables, const std::function<std::string(Ze&)>& work, unsigned seconds = 60) {
  return in_child(
      variables,
      [&] {
        Ze ze;
        return work(ze);
      },
      seconds);
}

TEST(FakeLevelZero, ComputesOnEachOfItsDevices) {
  for (const int devices : {1, 2, 4}) {
    const std::string text = run({{"TESSERA_FAKE_DEVICES", std::to_string(devices)}}, [&](Ze& ze) {
      Report report;
      for (int d = 0; d < devices; ++d) {
        CHECK(ze.start(d) == 0);
        Bytes properties(3);
        CHECK(ze.call("zeDeviceGetProperties", ze.device, static_cast<void*>(properties.data)) == 0);
        CHECK(std::string(properties.data + 112) == (d % 2 == 0 ? "Fake Arc A770" : "Fake Iris Xe"));
        constexpr int n = 1000;
        std::vector<float> x(n + 1), y(n + 2), out(n + 2, -1);
        for (int i = 0; i < n; ++i)
          x[static_cast<std::size_t>(i) + 1] = static_cast<float>(i), y[static_cast<std::size_t>(i) + 2] = 1;
        void *dx = nullptr, *dy = nullptr;
        CHECK(ze.allocate(&dx, x.size() * 4) == 0 && ze.allocate(&dy, y.size() * 4) == 0);
        void *a = ze.list(), *b = ze.list(true), *pool = ze.pool(3);
        void *copied = ze.event(pool, 0), *computed = ze.event(pool, 1), *read = ze.event(pool, 2);
        int code = -1;
        void *module = nullptr, *kernel = nullptr;
        CHECK(ze.load(ze.compile(source, d % 2 == 0 ? "dg2" : "tgllp", &code), &module) == 0 && code == 0);
        CHECK(ze.kernel(module, "saxpy_cl", &kernel) == 0);
        CHECK(ze.copy(a, dx, x.data(), x.size() * 4) == 0);
        CHECK(ze.barrier(a) == 0);
        CHECK(ze.copy(a, dy, y.data(), y.size() * 4, copied) == 0);
        CHECK(ze.saxpy(kernel, b, dx, dy, 2, n, computed, copied) == 0);
        CHECK(ze.copy(a, out.data(), dy, y.size() * 4, read, computed) == 0);
        CHECK(ze.call("zeEventHostSynchronize", read, for_ever) == 0);
        bool right = true;
        for (int i = 0; i < n; ++i)
          right = right && out[static_cast<std::size_t>(i) + 2] == 1 + 2 * static_cast<float>(i);
        CHECK(right);
        CHECK(ze.fill(a, dx, 0x4000000040400000, 8, 4000, nullptr, read) == 0);
        CHECK(ze.barrier(a) == 0 && ze.copy(a, out.data(), dx, 8) == 0 && ze.synchronise(a) == 0);
        CHECK(out[0] == 3.0f && out[1] == 2.0f);
        CHECK(ze.synchronise(b) == 0);
        for (void* e : {copied, computed, read}) CHECK(ze.call("zeEventDestroy", e) == 0);
        CHECK(ze.call("zeEventPoolDestroy", pool) == 0 && ze.call("zeKernelDestroy", kernel) == 0);
        CHECK(ze.call("zeModuleDestroy", module) == 0);
        CHECK(ze.call("zeCommandListDestroy", a) == 0 && ze.call("zeCommandListDestroy", b) == 0);
        CHECK(ze.free(dx) == 0 && ze.free(dy) == 0);
      }
      for (const char* what : {"memory", "host", "streams", "events", "modules"}) CHECK(ze.live(what) == 0);
      return report.text + ze.breaches();
    });
    EXPECT_EQ(text, "") << devices << " devices";
  }
}

struct Misuse {
  const char* name;
  const char* words;
  std::function<void(Ze&, void* x, void* list)> work;
};

TEST(FakeLevelZero, NotesEveryMisuse) {
  float host[100] = {};
  const Misuse misuses[] = {
      {"commands of a list without a barrier", "before it, and no barrier orders them",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 4, 400), ze.fill(list, x, 2, 4, 400); }},
      {"lists without an event", "on another stream, and no event orders them",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 4, 400), ze.fill(ze.list(), x, 2, 4, 400); }},
      {"a barrier of the other list", "no event orders them",
       [](Ze& ze, void* x, void* list) {
         void* const other = ze.list();
         ze.fill(list, x, 1, 4, 400), ze.barrier(other), ze.fill(other, x, 2, 4, 400);
       }},
      {"an event signalled twice", "signalled again without having been reset",
       [](Ze& ze, void* x, void* list) {
         void* const event = ze.event(ze.pool(1), 0);
         ze.fill(list, x, 1, 4, 400, event), ze.barrier(list), ze.fill(list, x, 1, 4, 400, event);
       }},
      {"an event reset too early", "reset while queued work waits",
       [](Ze& ze, void* x, void* list) {
         void* const event = ze.event(ze.pool(1), 0);
         ze.fill(list, x, 1, 4, 400, event), ze.call("zeEventHostSynchronize", event, for_ever);
         ze.hold(true), ze.fill(ze.list(), x, 1, 4, 400, nullptr, event);
         ze.call("zeEventHostReset", event);
       }},
      {"an event that nothing signals", "nothing has been asked to signal",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 4, 400, nullptr, ze.event(ze.pool(1), 0)); }},
      {"the host waits for an event that nothing signals", "nothing has been asked to signal",
       [](Ze& ze, void*, void*) { ze.call("zeEventHostSynchronize", ze.event(ze.pool(1), 0), for_ever); }},
      {"an event outside of its pool", "no free event of this index",
       [](Ze& ze, void*, void*) { ze.event(ze.pool(2), 2); }},
      {"a pool destroyed before its events", "destroyed before its events",
       [](Ze& ze, void*, void*) {
         void* const pool = ze.pool(1);
         ze.event(pool, 0), ze.call("zeEventPoolDestroy", pool);
       }},
      {"memory freed in use", "freed while queued work uses it",
       [](Ze& ze, void* x, void* list) { ze.hold(true), ze.fill(list, x, 1, 4, 400), ze.free(x); }},
      {"memory freed without having waited", "memory is freed",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 4, 400), ze.free(x); }},
      {"double free", "freed twice", [](Ze& ze, void* x, void*) { ze.free(x), ze.free(x); }},
      {"past the end", "past the end of its allocation",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 4, 404); }},
      {"memory of a device that was not asked whether it can be reached", "a peer copy without access",
       [](Ze& ze, void* x, void* list) {
         void* there = nullptr;
         ze.start(1), ze.allocate(&there, 400), ze.start(0);
         ze.call("zeCommandListAppendMemoryCopy", list, x, static_cast<const void*>(there), std::size_t{400},
                 static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
       }},
      {"a pattern that does not fit", "a pattern of 3 bytes",
       [](Ze& ze, void* x, void* list) { ze.fill(list, x, 1, 3, 399); }},
      {"a list destroyed with work", "a stream is destroyed",
       [](Ze& ze, void* x, void* list) {
         ze.hold(true), ze.fill(list, x, 1, 4, 400), ze.call("zeCommandListDestroy", list);
       }},
      {"a structure without its type", "the structure's type is not set",
       [](Ze& ze, void*, void*) {
         Bytes desc(0);
         void* made = nullptr;
         ze.call("zeContextCreate", ze.driver, static_cast<const void*>(desc.data), &made);
       }},
      {"a device that is none", "this is no device",
       [&](Ze& ze, void*, void*) { ze.call("zeDeviceGetStatus", static_cast<void*>(host)); }},
      {"an argument of the wrong size", "has 4 bytes and was set with 8",
       [](Ze& ze, void* x, void* list) {
         int code = 0;
         void *module = nullptr, *kernel = nullptr, *y = nullptr;
         ze.load(ze.compile(source, "dg2", &code), &module), ze.kernel(module, "saxpy_cl", &kernel),
             ze.allocate(&y, 400);
         ze.saxpy(kernel, list, x, y, 1, 10);
         ze.argument(kernel, 4, 1.0);
         const std::uint32_t groups[3] = {1, 1, 1};
         ze.call("zeCommandListAppendLaunchKernel", list, kernel, static_cast<const std::uint32_t*>(groups),
                 static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
       }},
      {"an argument that was not set", "an argument has not been set",
       [](Ze& ze, void*, void* list) {
         int code = 0;
         void *module = nullptr, *kernel = nullptr;
         ze.load(ze.compile(source, "dg2", &code), &module), ze.kernel(module, "saxpy_cl", &kernel);
         const std::uint32_t groups[3] = {1, 1, 1};
         ze.call("zeCommandListAppendLaunchKernel", list, kernel, static_cast<const std::uint32_t*>(groups),
                 static_cast<void*>(nullptr), 0u, static_cast<void**>(nullptr));
       }},
  };
  for (const Misuse& misuse : misuses) {
    const std::string text = run({{"TESSERA_FAKE_DEVICES", "2"}}, [&](Ze& ze) {
      void* x = nullptr;
      ze.start(), ze.allocate(&x, 400);
      misuse.work(ze, x, ze.list());
      return ze.breaches();
    });
    EXPECT_NE(text.find(misuse.words), text.npos) << misuse.name << ": " << text;
  }
}

TEST(FakeLevelZero, StrikesWithEachFault) {
  auto with = [](const char* fault, const std::function<std::string(Ze&)>& work, unsigned seconds = 60) {
    return run({{"TESSERA_FAKE_FAULT", fault}}, work, seconds);
  };
  auto start = [](Ze& ze) { return std::to_string(ze.start()); };
  EXPECT_EQ(with("no-devices", start), std::to_string(0x78000001u));
  EXPECT_EQ(with("crash-init", start), "the child died of signal 6\n");
  EXPECT_EQ(with("hang-init", start, 1), "the child died of signal 14\n");
  auto fills = [](Ze& ze) {
    std::string results;
    void* x = nullptr;
    ze.start();
    for (int i = 0; i < 3; ++i) results += std::to_string(ze.allocate(&x, 400) & 0xf) + " ";
    void* const list = ze.list(true);
    for (int i = 0; i < 3; ++i) results += std::to_string(ze.fill(list, x, 1, 4, 400) & 0xf) + " ";
    results += std::to_string(ze.synchronise(list) & 0xf);
    return results + ze.breaches();
  };
  EXPECT_EQ(with("oom=2", fills), "0 3 0 0 0 0 0");
  EXPECT_EQ(with("lost=2", fills), "0 0 0 0 1 1 1");
  EXPECT_EQ(with("late=2", fills), "0 0 0 0 0 0 1");
  auto compiled = [](Ze& ze) {
    int code = 0;
    const std::string log = ze.compile(source, "dg2", &code);
    return std::to_string(code) + " " + log.substr(0, 14);
  };
  EXPECT_EQ(with("compile", compiled), "-11 k.cl:1: error:");
}

}  // namespace
}  // namespace tessera::fake
