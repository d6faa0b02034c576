// SPDX-License-Identifier: Apache-2.0
// The fake drivers themselves: a sequence of calls written by hand gives right results on 1, 2 and 4 devices, each
// misuse is written down, and each fault strikes. Every case runs in a child, since a library is made once a process.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tessera/base/os/library.h"
#include "tests/drivers/resolver.h"
#include "tests/support/in_child.h"

namespace tessera::fake {
namespace {

using test::in_child;
using test::Variables;
using Address = std::uint64_t;

const char* const source = R"(
extern "C" __global__ void saxpy(
    const float* __restrict__ x,
    float* __restrict__ y,
    const float a,
    const int extent_x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < extent_x) y[i] = a * x[i] + y[i];
}
)";
/// What the kernel above means.
const bool registered = [] {
  KernelFacts facts;
  facts.guarded[0] = 1;
  facts.noalias = 1;
  register_kernel("saxpy", facts,
                  {{.kind = KernelArgument::pointer, .number = 0, .element_bytes = 4},
                   {.kind = KernelArgument::pointer, .number = 1, .element_bytes = 4, .writes = 1},
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

/// One of the APIs, called through the symbols of its library: `cu` and `hip` names side by side.
class Api {
 public:
  Api(bool cuda, const std::string& driver, const std::string& compiler) : cuda_(cuda) {
    driver_ = os::Library::open(driver);
    compiler_ = os::Library::open(compiler);
    if (!driver_.loaded() || !compiler_.loaded()) throw std::runtime_error(driver_.reason() + compiler_.reason());
  }
  static Api standard(bool cuda) {
    return cuda ? Api(true, TESSERA_FAKES "/libfake_cuda.so", TESSERA_FAKES "/libfake_nvrtc.so")
                : Api(false, TESSERA_FAKES "/libfake_hip.so", TESSERA_FAKES "/libfake_hiprtc.so");
  }
  template <class... A>
  int call(const char* cu, const char* hip, A... arguments) const {
    return driver_.function<int(A...)>(cuda_ ? cu : hip)(arguments...);
  }
  int init() const { return call("cuInit", "hipInit", 0u); }
  int count() const {
    int n = -1;
    call("cuDeviceGetCount", "hipGetDeviceCount", &n);
    return n;
  }
  int use(int device) const {
    if (!cuda_) return call("", "hipSetDevice", device);
    void* context = nullptr;
    if (const int code = call("cuDevicePrimaryCtxRetain", "", &context, device)) return code;
    return call("cuCtxSetCurrent", "", context);
  }
  int allocate(Address* a, std::size_t bytes) const { return call("cuMemAlloc_v2", "hipMalloc", a, bytes); }
  int free(Address a) const { return call("cuMemFree_v2", "hipFree", a); }
  int allocate_host(void** a, std::size_t bytes) const { return call("cuMemHostAlloc", "hipHostMalloc", a, bytes, 0u); }
  int free_host(void* a) const { return call("cuMemFreeHost", "hipHostFree", a); }
  int upload(Address to, const void* from, std::size_t bytes, void* stream) const {
    return call("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", to, from, bytes, stream);
  }
  int download(void* to, Address from, std::size_t bytes, void* stream) const {
    return call("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", to, from, bytes, stream);
  }
  int copy(Address to, Address from, std::size_t bytes, void* stream) const {
    return call("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", to, from, bytes, stream);
  }
  int fill(Address to, unsigned value, std::size_t count, void* stream) const {
    return call("cuMemsetD32Async", "hipMemsetD32Async", to, value, count, stream);
  }
  void* stream() const {
    void* s = nullptr;
    call("cuStreamCreate", "hipStreamCreateWithFlags", &s, 1u);
    return s;
  }
  int destroy_stream(void* s) const { return call("cuStreamDestroy_v2", "hipStreamDestroy", s); }
  int synchronise(void* s) const { return call("cuStreamSynchronize", "hipStreamSynchronize", s); }
  void* event() const {
    void* e = nullptr;
    call("cuEventCreate", "hipEventCreateWithFlags", &e, 2u);
    return e;
  }
  int destroy_event(void* e) const { return call("cuEventDestroy_v2", "hipEventDestroy", e); }
  int record(void* e, void* s) const { return call("cuEventRecord", "hipEventRecord", e, s); }
  int wait(void* s, void* e) const { return call("cuStreamWaitEvent", "hipStreamWaitEvent", s, e, 0u); }
  int query(void* e) const { return call("cuEventQuery", "hipEventQuery", e); }
  int synchronise_event(void* e) const { return call("cuEventSynchronize", "hipEventSynchronize", e); }

  std::string compile(const char* text, const std::string& option, int* code, bool ptx = false) const {
    void* program = nullptr;
    const char* options[] = {option.c_str()};
    compiler_.function<int(void**, const char*, const char*, int, void*, void*)>(
        cuda_ ? "nvrtcCreateProgram" : "hiprtcCreateProgram")(&program, text, "test.cu", 0, nullptr, nullptr);
    *code = compiler_.function<int(void*, int, const char**)>(cuda_ ? "nvrtcCompileProgram" : "hiprtcCompileProgram")(
        program, 1, options);
    const bool log = *code != 0;
    const std::string what = log ? "ProgramLog" : ptx ? "PTX" : cuda_ ? "CUBIN" : "Code";
    const std::string prefix = cuda_ ? "nvrtcGet" : "hiprtcGet";
    std::size_t bytes = 0;
    compiler_.function<int(void*, std::size_t*)>((prefix + what + "Size").c_str())(program, &bytes);
    std::string out(bytes, 0);
    compiler_.function<int(void*, char*)>((prefix + what).c_str())(program, out.data());
    compiler_.function<int(void**)>(cuda_ ? "nvrtcDestroyProgram" : "hiprtcDestroyProgram")(&program);
    return out;
  }
  std::string architecture(int device) const {
    if (cuda_) return device % 2 == 0 ? "-arch=sm_90" : "-arch=sm_75";
    return device % 2 == 0 ? "--offload-arch=gfx90a" : "--offload-arch=gfx1030";
  }
  int load(void** module, const std::string& image) const {
    if (!cuda_) return call("", "hipModuleLoadData", module, image.c_str());
    return call("cuModuleLoadDataEx", "", module, image.c_str(), 0u, nullptr, nullptr);
  }
  int unload(void* module) const { return call("cuModuleUnload", "hipModuleUnload", module); }
  int function(void** f, void* module, const char* name = "saxpy") const {
    return call("cuModuleGetFunction", "hipModuleGetFunction", f, module, name);
  }
  int launch(void* f, unsigned grid, unsigned block, void* stream, void** arguments, void** extra = nullptr,
             unsigned shared = 0) const {
    return call("cuLaunchKernel", "hipModuleLaunchKernel", f, grid, 1u, 1u, block, 1u, 1u, shared, stream, arguments,
                extra);
  }
  int saxpy(void* f, Address x, Address y, float a, int n, void* stream) const {
    void* arguments[] = {&x, &y, &a, &n};
    return launch(f, (static_cast<unsigned>(n) + 63) / 64, 64, stream, arguments);
  }
  /// The kernel, ready to be launched on a device.
  void* ready(int device, void** module) const {
    int code = 0;
    void* f = nullptr;
    if (const std::string image = compile(source, architecture(device), &code); code != 0 || load(module, image) != 0)
      return nullptr;
    return function(&f, *module) == 0 ? f : nullptr;
  }

  int begin(void* s) const { return call("cuStreamBeginCapture_v2", "hipStreamBeginCapture", s, 1); }
  int end(void* s, void** graph) const { return call("cuStreamEndCapture", "hipStreamEndCapture", s, graph); }
  int instantiate(void** executable, void* graph) const {
    if (cuda_) return call("cuGraphInstantiateWithFlags", "", executable, graph, 0ull);
    return call("", "hipGraphInstantiate", executable, graph, nullptr, nullptr, std::size_t{0});
  }
  int launch_graph(void* e, void* s) const { return call("cuGraphLaunch", "hipGraphLaunch", e, s); }
  int destroy_graph(void* g) const { return call("cuGraphDestroy", "hipGraphDestroy", g); }
  int destroy_executable(void* e) const { return call("cuGraphExecDestroy", "hipGraphExecDestroy", e); }

  std::string breaches() const {
    char text[4096] = "";
    driver_.function<int(char*, std::size_t)>("tessera_fake_breaches")(text, sizeof text);
    return text;
  }
  std::uint64_t live(const char* what) const {
    return driver_.function<std::uint64_t(const char*)>("tessera_fake_live")(what);
  }
  void hold(bool held) const { driver_.function<void(int)>("tessera_fake_hold")(held); }
  void execute(bool really) const { driver_.function<void(int)>("tessera_fake_execute")(really); }
  bool cuda() const { return cuda_; }

 private:
  bool cuda_;
  os::Library driver_, compiler_;
};

/// Collects what does not hold, in the child.
struct Report {
  std::string text;
  void check(bool holds, const char* what, int line) {
    if (!holds) text += "line " + std::to_string(line) + ": " + what + "\n";
  }
};
#define CHECK(x) report.check(x, #x, __LINE__)

class FakeDrivers : public ::testing::TestWithParam<bool> {
 protected:
  static std::string run(const Variables& variables, const std::function<std::string(const Api&)>& work,
                         unsigned seconds = 60) {
    const bool cuda = GetParam();
    return in_child(
        variables, [&] { return work(Api::standard(cuda)); }, seconds);
  }
};
INSTANTIATE_TEST_SUITE_P(Apis, FakeDrivers, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "cuda" : "hip"; });

std::vector<float> ramp(std::size_t n, float step) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i) * step;
  return v;
}

TEST_P(FakeDrivers, ComputeOnEachOfTheirDevices) {
  for (const int devices : {1, 2, 4}) {
    const std::string text =
        run({{"TESSERA_FAKE_DEVICES", std::to_string(devices)}, {"TESSERA_FAKE_LEAKS", "1"}}, [&](const Api& api) {
          Report report;
          CHECK(api.init() == 0);
          CHECK(api.count() == devices);
          for (int d = 0; d < devices; ++d) {
            CHECK(api.use(d) == 0);
            const std::size_t n = 1000, bytes = n * 4;
            const std::vector<float> x = ramp(n, 1), y = ramp(n, 0.5f);
            std::vector<float> out(n, -1);
            Address dx = 0, dy = 0;
            CHECK(api.allocate(&dx, bytes) == 0 && api.allocate(&dy, bytes) == 0);
            void *a = api.stream(), *b = api.stream(), *module = nullptr;
            void* const f = api.ready(d, &module);
            CHECK(f != nullptr);
            void* const event = api.event();
            // Two streams: uploads in one, the kernel in the other, behind an event; the result back in the first.
            CHECK(api.upload(dx, x.data(), bytes, a) == 0 && api.upload(dy, y.data(), bytes, a) == 0);
            CHECK(api.record(event, a) == 0 && api.wait(b, event) == 0);
            CHECK(api.saxpy(f, dx, dy, 2, 1000, b) == 0);
            CHECK(api.record(event, b) == 0 && api.wait(a, event) == 0);
            CHECK(api.download(out.data(), dy, bytes, a) == 0);
            bool right = true;
            for (std::size_t i = 0; i < n; ++i) right = right && out[i] == 2.5f * static_cast<float>(i);
            CHECK(right);
            // Fill, a copy on the device, and memory of the host that is pinned.
            CHECK(api.fill(dx, 0x40000000, n, a) == 0 && api.copy(dy, dx, bytes, a) == 0);
            void* pinned = nullptr;
            CHECK(api.allocate_host(&pinned, bytes) == 0);
            CHECK(api.download(pinned, dy, bytes, a) == 0);
            CHECK(api.synchronise(a) == 0);
            CHECK(static_cast<float*>(pinned)[999] == 2.0f);
            CHECK(api.synchronise(b) == 0);
            CHECK(api.query(event) == 0 && api.destroy_event(event) == 0);
            CHECK(api.free(dx) == 0 && api.free(dy) == 0 && api.free_host(pinned) == 0);
            CHECK(api.unload(module) == 0 && api.destroy_stream(a) == 0 && api.destroy_stream(b) == 0);
          }
          for (const char* what : {"memory", "host", "streams", "events", "modules"}) CHECK(api.live(what) == 0);
          return report.text + api.breaches();
        });
    EXPECT_EQ(text, "") << devices << " devices";
  }
}

TEST_P(FakeDrivers, RunTheWorkOfAStreamLaterAndInOrder) {
  EXPECT_EQ(run({},
                [](const Api& api) {
                  Report report;
                  api.init(), api.use(0);
                  Address d = 0;
                  api.allocate(&d, 4);
                  void *a = api.stream(), *b = api.stream(), *event = api.event();
                  void* pinned = nullptr;
                  api.allocate_host(&pinned, 4);
                  int* const value = static_cast<int*>(pinned);
                  *value = 1;
                  api.hold(true);
                  CHECK(api.upload(d, pinned, 4, a) == 0);
                  CHECK(api.record(event, a) == 0 && api.query(event) == 600);
                  *value = 2;  // pinned memory is read when the copy runs, not when it is asked for
                  CHECK(api.wait(b, event) == 0 && api.download(pinned, d, 4, b) == 0);
                  api.hold(false);
                  CHECK(api.synchronise(b) == 0 && api.query(event) == 0);
                  CHECK(*value == 2);
                  CHECK(api.breaches() == "");
                  return report.text;
                }),
            "");
}

struct Prepared {  ///< what most misuses start from
  Address x = 0, y = 0;
  void *a = nullptr, *b = nullptr, *module = nullptr, *f = nullptr;
  explicit Prepared(const Api& api) {
    api.init(), api.use(0);
    api.allocate(&x, 400), api.allocate(&y, 400);
    a = api.stream(), b = api.stream();
    f = api.ready(0, &module);
  }
};

TEST_P(FakeDrivers, TakeCallsWithoutExecutingThem) {
  EXPECT_EQ(run({},
                [](const Api& api) {
                  Report report;
                  Prepared p(api);
                  CHECK(api.fill(p.x, 1, 100, p.a) == 0 && api.synchronise(p.a) == 0);
                  api.execute(false);
                  CHECK(api.fill(p.x, 2, 100, p.a) == 0 && api.saxpy(p.f, p.x, p.y, 1, 100, p.a) == 0);
                  CHECK(api.synchronise(p.a) == 0);
                  api.execute(true);
                  int out[100] = {};
                  CHECK(api.download(out, p.x, 400, p.a) == 0 && out[50] == 1);
                  return report.text + api.breaches();
                }),
            "");
}

/// Captured: y = 2 * x + y, and x filled with 1.0f behind it.
struct Captured : Prepared {
  void *graph = nullptr, *executable = nullptr;
  explicit Captured(const Api& api) : Prepared(api) {
    api.fill(x, 0x40000000, 100, a), api.fill(y, 0, 100, a);
    api.begin(a);
    api.saxpy(f, x, y, 2, 100, a);
    api.fill(x, 0x3f800000, 100, a);
    api.end(a, &graph);
    api.instantiate(&executable, graph);
  }
};

TEST_P(FakeDrivers, PutCapturedWorkInAgainWithOneCall) {
  EXPECT_EQ(run({{"TESSERA_FAKE_LEAKS", "1"}},
                [](const Api& api) {
                  Report report;
                  Captured c(api);
                  float out[100] = {};
                  CHECK(api.download(out, c.y, 400, c.a) == 0 && out[50] == 0);  // nothing ran while it was captured
                  CHECK(api.destroy_graph(c.graph) == 0);                        // which what was made of it outlives
                  for (int i = 0; i < 3; ++i) CHECK(api.launch_graph(c.executable, c.a) == 0);
                  CHECK(api.download(out, c.y, 400, c.a) == 0 && out[99] == 2 * 2 + 2 * 1 + 2 * 1);
                  CHECK(api.destroy_executable(c.executable) == 0);
                  CHECK(api.live("graphs") == 0 && api.live("executables") == 0);
                  return report.text + api.breaches();
                }),
            "");
}

/// One planted misuse, and the words that it must leave behind.
struct Misuse {
  const char* name;
  const char* words;
  std::function<void(const Api&)> work;
  int devices = 1;
};

/// Memory on two devices, the first being current.
struct PeerCopy {
  explicit PeerCopy(const Api& api) : api(api) {
    api.init();
    for (const int device : {1, 0}) {
      api.use(device);
      api.allocate(device == 0 ? &here : &there, 400);
      if (api.cuda()) api.call("cuCtxGetCurrent", "", &contexts[device]);
    }
    stream = api.stream();
  }
  int go(bool access, bool swapped) {
    const int from = swapped ? 0 : 1, to = 1 - from;
    if (api.cuda()) {
      if (access) api.call("cuCtxEnablePeerAccess", "", contexts[1], 0u);
      return api.call("cuMemcpyPeerAsync", "", here, contexts[to], there, contexts[from], std::size_t{400}, stream);
    }
    if (access) api.call("", "hipDeviceEnablePeerAccess", 1, 0u);
    return api.call("", "hipMemcpyPeerAsync", here, to, there, from, std::size_t{400}, stream);
  }
  const Api& api;
  void* contexts[2] = {};
  Address here = 0, there = 0;
  void* stream = nullptr;
};

TEST_P(FakeDrivers, CopyFromOtherDevicesTheyWereGivenAccessTo) {
  EXPECT_EQ(run({{"TESSERA_FAKE_DEVICES", "2"}},
                [](const Api& api) {
                  PeerCopy peers(api);
                  std::string all = std::to_string(peers.go(true, false)) + " ";
                  all += std::to_string(peers.go(false, false)) + " " +
                         std::to_string(api.cuda() ? api.call("cuCtxEnablePeerAccess", "", peers.contexts[1], 0u)
                                                   : api.call("", "hipDeviceEnablePeerAccess", 1, 0u));
                  api.synchronise(peers.stream);
                  all += api.breaches();
                  return all;
                }),
            "0 0 704");
  EXPECT_EQ(run({{"TESSERA_FAKE_DEVICES", "2"}, {"TESSERA_FAKE_FAULT", "no-peers"}},
                [](const Api& api) {
                  PeerCopy peers(api);
                  int can = 7;
                  api.call("cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer", &can, 0, 1);
                  return std::to_string(can) + api.breaches();
                }),
            "0");
}

TEST_P(FakeDrivers, NoteEveryMisuse) {
  float host[100] = {};
  const Misuse misuses[] = {
      {"no event between two streams", "no event orders them",
       [](const Api& api) {
         Prepared p(api);
         api.fill(p.x, 1, 100, p.a), api.fill(p.x, 2, 100, p.b);
       }},
      {"a read that does not wait for a write", "no event orders them",
       [&](const Api& api) {
         Prepared p(api);
         api.fill(p.x, 1, 100, p.a), api.download(host, p.x, 400, p.b);
       }},
      {"an allocation while a stream is captured", "is capturing a stream",
       [](const Api& api) {
         Prepared p(api);
         Address more = 0;
         void* graph = &more;
         api.begin(p.a), api.allocate(&more, 4);
         if (api.end(p.a, &graph) != 901 || graph != nullptr) api.free(12345);
       }},
      {"waiting for a captured stream", "is capturing a stream",
       [](const Api& api) {
         Prepared p(api);
         api.begin(p.a), api.synchronise(p.a);
       }},
      {"a capture that was not begun", "not being captured",
       [](const Api& api) {
         Prepared p(api);
         void* graph = nullptr;
         api.end(p.a, &graph);
       }},
      {"an event in a capture", "cannot be captured here",
       [](const Api& api) {
         Prepared p(api);
         api.begin(p.a), api.record(api.event(), p.a);
       }},
      {"a graph destroyed while it runs", "graph is destroyed before the host has waited",
       [](const Api& api) {
         Captured c(api);
         api.launch_graph(c.executable, c.a), api.destroy_executable(c.executable);
       }},
      {"a graph over memory that is gone", "touches memory that has been freed",
       [](const Api& api) {
         Captured c(api);
         api.synchronise(c.a), api.free(c.x), api.launch_graph(c.executable, c.a);
       }},
      {"a graph over a module that is gone", "whose module has been unloaded",
       [](const Api& api) {
         Captured c(api);
         api.synchronise(c.a), api.unload(c.module), api.launch_graph(c.executable, c.a);
       }},
      {"a graph launched after it was destroyed", "the executable has been destroyed",
       [](const Api& api) {
         Captured c(api);
         api.destroy_executable(c.executable), api.launch_graph(c.executable, c.a);
       }},
      {"double free", "freed twice",
       [](const Api& api) {
         Prepared p(api);
         api.free(p.x), api.free(p.x);
       }},
      {"an address that was never allocated", "is not the address of an allocation",
       [](const Api& api) {
         Prepared p(api);
         api.free(p.x + 16);
       }},
      {"freed while in use", "freed while queued work uses it",
       [](const Api& api) {
         Prepared p(api);
         api.hold(true), api.fill(p.x, 1, 100, p.a), api.free(p.x);
       }},
      {"freed without having waited", "before the host has waited for its last use",
       [](const Api& api) {
         Prepared p(api);
         api.fill(p.x, 1, 100, p.a);
         std::this_thread::sleep_for(std::chrono::milliseconds(50));
         api.free(p.x);
       }},
      {"used after it was freed", "after it was given back",
       [](const Api& api) {
         Prepared p(api);
         api.free(p.x), api.fill(p.x, 1, 100, p.a);
       }},
      {"past the end", "past the end of its allocation",
       [](const Api& api) {
         Prepared p(api);
         api.fill(p.x, 1, 101, p.a);
       }},
      {"a host pointer as a device's", "no memory of a device",
       [&](const Api& api) {
         Prepared p(api);
         api.fill(reinterpret_cast<Address>(host), 1, 100, p.a);
       }},
      {"a host pointer as a kernel's argument", "no memory of a device",
       [&](const Api& api) {
         Prepared p(api);
         api.saxpy(p.f, reinterpret_cast<Address>(host), p.y, 1, 100, p.a);
       }},
      {"a device pointer as the host's", "where one of the host belongs",
       [](const Api& api) {
         Prepared p(api);
         api.download(reinterpret_cast<void*>(p.y), p.x, 400, p.a);
       }},
      {"a misaligned argument", "not aligned to its elements",
       [](const Api& api) {
         Prepared p(api);
         api.saxpy(p.f, p.x + 2, p.y, 1, 10, p.a);
       }},
      {"a misaligned fill", "not a multiple of its unit",
       [](const Api& api) {
         Prepared p(api);
         api.fill(p.x + 2, 1, 10, p.a);
       }},
      {"overlapping copy", "ranges of a copy overlap",
       [](const Api& api) {
         Prepared p(api);
         api.copy(p.x + 4, p.x, 100, p.a);
       }},
      {"an event of another device", "the event belongs to device 1",
       [](const Api& api) {
         Prepared p(api);
         api.use(1);
         void* const event = api.event();
         api.use(0);
         api.record(event, p.a);
       },
       2},
      {"a stream of another device", "the stream belongs to device 0",
       [](const Api& api) {
         Prepared p(api);
         api.use(1);
         Address d = 0;
         api.allocate(&d, 400);
         api.fill(d, 1, 100, p.a);
       },
       2},
      {"memory of another device", "which may not access it",
       [](const Api& api) {
         Prepared p(api);
         api.use(1);
         void* const s = api.stream();
         api.fill(p.x, 1, 100, s);
       },
       2},
      {"a kernel of another device", "is loaded on device 0",
       [](const Api& api) {
         Prepared p(api);
         api.use(1);
         Address x = 0, y = 0;
         api.allocate(&x, 400), api.allocate(&y, 400);
         api.saxpy(p.f, x, y, 1, 100, api.stream());
       },
       2},
      {"a block that is too large", "is too large",
       [](const Api& api) {
         Prepared p(api);
         float a = 1;
         int n = 100;
         void* arguments[] = {&p.x, &p.y, &a, &n};
         api.launch(p.f, 1, 1025, p.a, arguments);
       }},
      {"an empty grid", "empty grid or block",
       [](const Api& api) {
         Prepared p(api);
         api.saxpy(p.f, p.x, p.y, 1, 0, p.a);
       }},
      {"a grid that does not cover the extent", "64 threads for an extent of 100",
       [](const Api& api) {
         Prepared p(api);
         float a = 1;
         int n = 100;
         void* arguments[] = {&p.x, &p.y, &a, &n};
         api.launch(p.f, 1, 64, p.a, arguments);
       }},
      {"too much shared memory", "more shared memory than allowed",
       [](const Api& api) {
         Prepared p(api);
         float a = 1;
         int n = 64;
         void* arguments[] = {&p.x, &p.y, &a, &n};
         api.launch(p.f, 1, 64, p.a, arguments, nullptr, 65 << 10);
       }},
      {"no arguments", "one by one or as a buffer",
       [](const Api& api) {
         Prepared p(api);
         api.launch(p.f, 1, 64, p.a, nullptr);
       }},
      {"a buffer of arguments of the wrong size", "ends within argument 3",
       [](const Api& api) {
         Prepared p(api);
         struct {
           Address x, y;
           float a;
         } packed = {p.x, p.y, 1};
         std::size_t bytes = 20;
         void* extra[] = {reinterpret_cast<void*>(1), &packed, reinterpret_cast<void*>(2), &bytes,
                          api.cuda() ? nullptr : reinterpret_cast<void*>(3)};
         api.launch(p.f, 1, 64, p.a, nullptr, extra);
       }},
      {"a module unloaded in use", "a module is unloaded",
       [](const Api& api) {
         Prepared p(api);
         api.saxpy(p.f, p.x, p.y, 1, 100, p.a), api.unload(p.module);
       }},
      {"a function of a module that is gone", "has been destroyed",
       [](const Api& api) {
         Prepared p(api);
         api.unload(p.module), api.saxpy(p.f, p.x, p.y, 1, 100, p.a);
       }},
      {"a stream destroyed with work", "a stream is destroyed",
       [](const Api& api) {
         Prepared p(api);
         api.hold(true), api.fill(p.x, 1, 100, p.a), api.destroy_stream(p.a);
       }},
      {"a stream destroyed twice", "the stream has been destroyed",
       [](const Api& api) {
         Prepared p(api);
         api.destroy_stream(p.a), api.destroy_stream(p.a);
       }},
      {"no handle at all", "no handle of a stream",
       [&](const Api& api) {
         Prepared p(api);
         api.synchronise(host);
       }},
      {"an event where a stream belongs", "not one of a stream",
       [](const Api& api) {
         Prepared p(api);
         api.synchronise(api.event());
       }},
      {"pinned memory freed while in use", "pinned memory is freed while queued work uses it",
       [](const Api& api) {
         Prepared p(api);
         void* pinned = nullptr;
         api.allocate_host(&pinned, 400), api.hold(true), api.upload(p.x, pinned, 400, p.a), api.free_host(pinned);
       }},
      {"a write past pinned memory", "wrote outside of pinned memory",
       [](const Api& api) {
         Prepared p(api);
         void* pinned = nullptr;
         api.allocate_host(&pinned, 400);
         volatile char* const bytes = static_cast<char*>(pinned);
         bytes[400] = 1;
         api.free_host(pinned);
       }},
      {"a copy from another device without access to it", "a peer copy without access",
       [](const Api& api) { PeerCopy(api).go(false, false); }, 2},
      {"a peer copy that names the wrong side", "is not in the context that is named",
       [](const Api& api) { PeerCopy(api).go(true, true); }, 2},
      {"access to oneself", "no such peer",
       [](const Api& api) {
         PeerCopy peers(api);
         if (api.cuda())
           api.call("cuCtxEnablePeerAccess", "", peers.contexts[0], 0u);
         else
           api.call("", "hipDeviceEnablePeerAccess", 0, 0u);
       },
       2},
      {"nothing to allocate", "an allocation of 0 bytes",
       [](const Api& api) {
         Prepared p(api);
         Address d = 0;
         api.allocate(&d, 0);
       }},
  };
  for (const Misuse& misuse : misuses) {
    const std::string text = run({{"TESSERA_FAKE_DEVICES", std::to_string(misuse.devices)}}, [&](const Api& api) {
      misuse.work(api);
      return api.breaches();
    });
    EXPECT_NE(text.find(misuse.words), text.npos) << misuse.name << ": " << text;
  }
}

TEST_P(FakeDrivers, RefuseForkedChildren) {
  EXPECT_NE(run({},
                [](const Api& api) {
                  Prepared p(api);
                  return in_child({}, [&] {
                    Address d = 0;
                    const int code = api.allocate(&d, 4);
                    return std::to_string(code) + api.breaches();
                  });
                })
                .find("the driver is used in a forked child"),
            std::string::npos);
}

TEST_P(FakeDrivers, CudaWantsAContext) {
  if (!GetParam()) return;  // HIP has a device for every thread
  EXPECT_EQ(run({},
                [](const Api& api) {
                  Report report;
                  Address d = 0;
                  CHECK(api.allocate(&d, 4) == 3);  // not initialised
                  CHECK(api.init() == 0);
                  CHECK(api.allocate(&d, 4) == 201);
                  CHECK(api.breaches().find("before the driver was initialised") != std::string::npos);
                  CHECK(api.breaches().find("no context is current") != std::string::npos);
                  // Each thread has its own.
                  CHECK(api.use(0) == 0 && api.allocate(&d, 4) == 0);
                  int elsewhere = 0;
                  std::thread([&] { elsewhere = api.allocate(&d, 4); }).join();
                  CHECK(elsewhere == 201);
                  return report.text;
                }),
            "");
}

TEST_P(FakeDrivers, StrikeWithEachFault) {
  auto with = [&](const char* fault, const std::function<std::string(const Api&)>& work, int devices = 1) {
    return run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", std::to_string(devices)}}, work);
  };
  EXPECT_EQ(with("init:803", [](const Api& api) { return std::to_string(api.init()); }), "803");
  EXPECT_EQ(with("no-devices", [](const Api& api) { return std::to_string(api.init()); }), "100");
  EXPECT_EQ(with("crash-init", [](const Api& api) { return std::to_string(api.init()); }),
            "the child died of signal 6\n");
  EXPECT_EQ(run(
                {{"TESSERA_FAKE_FAULT", "hang-init"}}, [](const Api& api) { return std::to_string(api.init()); }, 1),
            "the child died of signal 14\n");
  auto allocations = [](const Api& api) {
    api.init(), api.use(0);
    std::string codes;
    for (int i = 0; i < 4; ++i) {
      Address d = 0;
      codes += std::to_string(api.allocate(&d, 1 << 20));
    }
    return codes;
  };
  EXPECT_EQ(with("oom=2", allocations), "0200");
  EXPECT_EQ(with("oom=2+", allocations), "0222");
  EXPECT_EQ(run({{"TESSERA_FAKE_MEMORY", "2500000"}}, allocations), "0022");
  auto launches = [](const Api& api) {
    Prepared p(api);
    std::string codes;
    for (int i = 0; i < 3; ++i) codes += std::to_string(api.saxpy(p.f, p.x, p.y, 1, 100, p.a)) + " ";
    return codes + std::to_string(api.synchronise(p.a)) + api.breaches();
  };
  EXPECT_EQ(with("launch=2", launches), "0 701 0 0");
  EXPECT_EQ(with("launch=2:1", launches), "0 1 0 0");
  EXPECT_EQ(with("lost=2", launches), "0 700 700 700");
  EXPECT_EQ(with("lost=2:214", launches), "0 214 214 214");
  EXPECT_EQ(with("late=2", launches), "0 0 0 700");
  // The other device goes on.
  EXPECT_EQ(with(
                "lost=1@0",
                [](const Api& api) {
                  Prepared p(api);
                  const int lost = api.fill(p.x, 1, 100, p.a), freed = api.free(p.x);
                  api.use(1);
                  Address d = 0;
                  void* const s = api.stream();
                  const int other = api.allocate(&d, 400) + api.fill(d, 1, 100, s) + api.synchronise(s);
                  return std::to_string(lost) + " " + std::to_string(freed) + " " + std::to_string(other) +
                         api.breaches();
                },
                2),
            "700 700 0");
  EXPECT_EQ(with("wrong",
                 [](const Api& api) {
                   Prepared p(api);
                   api.fill(p.x, 0x3f800000, 100, p.a), api.fill(p.y, 0x3f800000, 100, p.a);
                   api.saxpy(p.f, p.x, p.y, 1, 100, p.a);
                   float out[100];
                   api.download(out, p.y, 400, p.a);
                   int wrong = 0;
                   for (const float v : out) wrong += v != 2.0f;
                   return std::to_string(wrong);
                 }),
            "1");
  auto compiled = [](const Api& api) {
    int code = 0;
    const std::string text = api.compile(source, api.architecture(0), &code);
    return std::to_string(code) + (code != 0 ? text.substr(0, 18) : "");
  };
  EXPECT_EQ(with("compile", compiled), "6test.cu(1): error:");
  auto loaded = [](const Api& api) {
    Prepared p(api);
    int code = 0;
    void* module = nullptr;
    std::string codes = std::to_string(api.load(&module, api.compile(source, api.architecture(0), &code)));
    if (api.cuda())
      codes += " " + std::to_string(api.load(&module, api.compile(source, api.architecture(0), &code, true)));
    return codes;
  };
  EXPECT_EQ(with("cubin:222", loaded), GetParam() ? "222 0" : "222");
  if (GetParam()) {
    EXPECT_EQ(with("driver=11080", loaded), "0 222") << "PTX of a newer toolkit than the driver";
  }
  EXPECT_EQ(with("oops", loaded), "") << "a fault that does not exist ends the process";
}

TEST_P(FakeDrivers, RefuseWrongImages) {
  EXPECT_EQ(run({{"TESSERA_FAKE_DEVICES", "2"}},
                [](const Api& api) {
                  Prepared p(api);
                  int code = 0;
                  void *module = nullptr, *f = nullptr;
                  std::string codes = std::to_string(api.load(&module, "no image"));
                  codes += " " + std::to_string(api.load(&module, api.compile(source, api.architecture(1), &code)));
                  codes += " " + std::to_string(api.function(&f, p.module, "no_such_kernel"));
                  const std::string log =
                      api.compile("#include <x>\nint f() { return undeclared_name; }", api.architecture(0), &code);
                  return codes + " " + std::to_string(code) + " " + log.substr(0, 16) + api.breaches();
                }),
            "200 209 500 6 test.cu(2): erro");
}

TEST(FakeLibraries, ThatRefuseOrLackAnEntryPoint) {
  for (const char* name : {"cuda", "hip"}) {
    const std::string stem = std::string(TESSERA_FAKES "/libfake_") + name;
    const auto refuses = os::Library::open(stem + "_refuses.so");
    EXPECT_FALSE(refuses.loaded());
    EXPECT_NE(refuses.reason().find("tessera_fake_library_that_is_not_installed"), std::string::npos)
        << refuses.reason();
    const auto incomplete = os::Library::open(stem + "_incomplete.so");
    ASSERT_TRUE(incomplete.loaded()) << incomplete.reason();
    const bool cuda = name == std::string("cuda");
    EXPECT_EQ(incomplete.symbol(cuda ? "cuStreamWaitEvent" : "hipModuleLaunchKernel"), nullptr);
    EXPECT_NE(incomplete.symbol(cuda ? "cuInit" : "hipInit"), nullptr);
  }
}

}  // namespace
}  // namespace tessera::fake
