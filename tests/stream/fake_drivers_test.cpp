// SPDX-License-Identifier: Apache-2.0
// The fake CUDA and HIP drivers must report programs that break a driver's rules. Without these reports, other tests
// would pass even if Tessera broke the rules. Each case runs in a child, because a library is opened only once per
// process.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "tessera/base/os/library.h"
#include "tests/drivers/resolver.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"

namespace tessera::fake {
namespace {

using test::expect_contains;
using test::run_in_child;
using Address = std::uint64_t;

const char* const source = R"(
extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, const float a, const int extent_x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < extent_x) y[i] = a * x[i] + y[i];
}
)";
/// Registers the kernel's arguments and bounds check, which the fakes need.
const bool registered = [] {
  KernelFacts facts;
  facts.guarded[0] = 1;
  register_kernel("saxpy", facts,
                  {{.kind = KernelArgument::pointer, .number = 0, .element_bytes = 4},
                   {.kind = KernelArgument::pointer, .number = 1, .element_bytes = 4, .writes = 1},
                   {.kind = KernelArgument::scalar, .number = 2, .bytes = 4},
                   {.kind = KernelArgument::extent, .number = 0, .bytes = 4}},
                  [](std::span<const std::uint64_t>, const KernelValue*) {});
  return true;
}();

/// One of the two APIs, with its library's symbol names. Owns 400 bytes each at x and y, the streams a and b, and the
/// kernel. All of them are on device 0.
class Api {
 public:
  explicit Api(bool is_cuda)
      : cuda(is_cuda),
        driver_(os::Library::open(test::fake_library(cuda ? "cuda" : "hip"))),
        compiler_(os::Library::open(test::fake_library(cuda ? "nvrtc" : "hiprtc"))) {}
  void start() {
    call("cuInit", "hipInit", 0u), use(0);
    allocate(&x), allocate(&y);
    a = stream(), b = stream();
    load(&module, 0), f = function();
  }
  template <class... A>
  int call(const char* cu, const char* hip, A... arguments) const {
    return driver_.function<int(A...)>(cuda ? cu : hip)(arguments...);
  }
  int use(int device) const {
    if (!cuda) return call("", "hipSetDevice", device);
    void* context = nullptr;
    call("cuDevicePrimaryCtxRetain", "", &context, device);
    return call("cuCtxSetCurrent", "", context);
  }
  int allocate(Address* at, std::size_t bytes = 400) const { return call("cuMemAlloc_v2", "hipMalloc", at, bytes); }
  int free(Address at) const { return call("cuMemFree_v2", "hipFree", at); }
  void* pinned() const {
    void* made = nullptr;
    call("cuMemHostAlloc", "hipHostMalloc", &made, std::size_t{400}, 0u);
    return made;
  }
  void free_host(void* at) const { call("cuMemFreeHost", "hipHostFree", at); }
  void upload(Address to, const void* from, std::size_t bytes, void* on) const {
    call("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync", to, from, bytes, on);
  }
  void download(void* to, Address from, std::size_t bytes, void* on) const {
    call("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync", to, from, bytes, on);
  }
  void fill(Address to, void* on, std::size_t count = 100) const {
    call("cuMemsetD32Async", "hipMemsetD32Async", to, 1u, count, on);
  }
  void* stream() const {
    void* s = nullptr;
    call("cuStreamCreate", "hipStreamCreateWithFlags", &s, 1u);
    return s;
  }
  void destroy(void* s) const { call("cuStreamDestroy_v2", "hipStreamDestroy", s); }
  int synchronise(void* s) const { return call("cuStreamSynchronize", "hipStreamSynchronize", s); }
  void* event() const {
    void* e = nullptr;
    call("cuEventCreate", "hipEventCreateWithFlags", &e, 2u);
    return e;
  }
  int record(void* e, void* s) const { return call("cuEventRecord", "hipEventRecord", e, s); }
  int wait(void* s, void* e) const { return call("cuStreamWaitEvent", "hipStreamWaitEvent", s, e, 0u); }
  int query(void* e) const { return call("cuEventQuery", "hipEventQuery", e); }

  /// Compiles for one device and loads the result on the current device.
  int load(void** to, int for_device) const {
    const std::string architecture = cuda              ? for_device == 0 ? "-arch=sm_90" : "-arch=sm_75"
                                     : for_device == 0 ? "--offload-arch=gfx90a"
                                                       : "--offload-arch=gfx1030";
    const char* options[] = {architecture.c_str()};
    const std::string prefix = cuda ? "nvrtc" : "hiprtc", get = prefix + (cuda ? "GetCUBIN" : "GetCode");
    const auto named = [&](const std::string& name, auto... arguments) {
      return compiler_.function<int(decltype(arguments)...)>(name.c_str())(arguments...);
    };
    void *program = nullptr, *none = nullptr;
    std::size_t bytes = 0;
    named(prefix + "CreateProgram", &program, source, "saxpy.cu", 0, none, none);
    named(prefix + "CompileProgram", program, 1, static_cast<const char**>(options));
    named(get + "Size", program, &bytes);
    std::string image(bytes, 0);
    named(get, program, image.data());
    return call("cuModuleLoadData", "hipModuleLoadData", to, static_cast<const void*>(image.data()));
  }
  int unload() const { return call("cuModuleUnload", "hipModuleUnload", module); }
  void* function() const {
    void* made = nullptr;
    call("cuModuleGetFunction", "hipModuleGetFunction", &made, module, "saxpy");
    return made;
  }
  void launch(unsigned grid, unsigned block, void** arguments, void** extra = nullptr, unsigned shared = 0) const {
    call("cuLaunchKernel", "hipModuleLaunchKernel", f, grid, 1u, 1u, block, 1u, 1u, shared, a, arguments, extra);
  }
  void saxpy(Address from, Address to, void* on, int n = 100, unsigned grid = 2, unsigned block = 64,
             unsigned shared = 0) const {
    float factor = 1;
    void* arguments[] = {&from, &to, &factor, &n};
    call("cuLaunchKernel", "hipModuleLaunchKernel", f, grid, 1u, 1u, block, 1u, 1u, shared, on,
         static_cast<void**>(arguments), static_cast<void**>(nullptr));
  }
  void begin() const { call("cuStreamBeginCapture_v2", "hipStreamBeginCapture", a, 1); }
  int end(void** graph) const { return call("cuStreamEndCapture", "hipStreamEndCapture", a, graph); }
  /// Captures the kernel and a fill in stream a, and instantiates the graph.
  void* captured() const {
    void *graph = nullptr, *made = nullptr;
    fill(x, a), fill(y, a), begin(), saxpy(x, y, a), fill(x, a), end(&graph), synchronise(a);
    if (cuda)
      call("cuGraphInstantiateWithFlags", "", &made, graph, 0ull);
    else
      call("", "hipGraphInstantiate", &made, graph, nullptr, nullptr, std::size_t{0});
    return made;
  }
  void launch_graph(void* made) const { call("cuGraphLaunch", "hipGraphLaunch", made, a); }
  void destroy_graph(void* made) const { call("cuGraphExecDestroy", "hipGraphExecDestroy", made); }

  /// Copies from memory of device 1 to x on device 0, with or without peer access.
  void copy_from_peer(bool access, bool swapped) const {
    Address there = 0;
    void* contexts[2] = {};
    for (const int device : {1, 0}) {
      use(device);
      if (device == 1) allocate(&there);
      if (cuda) call("cuCtxGetCurrent", "", &contexts[device]);
    }
    if (access) enable(1, contexts[1]);
    const int from = swapped ? 0 : 1, to = 1 - from;
    if (cuda)
      call("cuMemcpyPeerAsync", "", x, contexts[to], there, contexts[from], std::size_t{400}, a);
    else
      call("", "hipMemcpyPeerAsync", x, to, there, from, std::size_t{400}, a);
  }
  void enable(int device, void* context) const {
    if (cuda)
      call("cuCtxEnablePeerAccess", "", context, 0u);
    else
      call("", "hipDeviceEnablePeerAccess", device, 0u);
  }

  std::string breaches() const { return test::breaches(test::fake_library(cuda ? "cuda" : "hip")); }
  void hold(bool held = true) const { driver_.function<void(int)>("tessera_fake_hold")(held); }

  bool cuda;
  Address x = 0, y = 0;
  void *a = nullptr, *b = nullptr, *module = nullptr, *f = nullptr;

 private:
  os::Library driver_, compiler_;
};

class FakeDrivers : public ::testing::TestWithParam<bool> {
 protected:
  static std::string run(const std::function<std::string(Api&)>& work) {
    const bool cuda = GetParam();
    return run_in_child({{"TESSERA_FAKE_DEVICES", "2"}}, [&] {
      Api api(cuda);
      return work(api);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Apis, FakeDrivers, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "cuda" : "hip"; });

TEST_P(FakeDrivers, ReadPinnedMemoryOnlyWhenTheCopyRuns) {
  EXPECT_EQ(run([](Api& p) {
              p.start();
              int* const value = static_cast<int*>(p.pinned());
              void* const event = p.event();
              *value = 1;
              p.hold(), p.upload(p.x, value, 4, p.a), p.record(event, p.a);
              const int before = p.query(event);
              *value = 2;
              p.wait(p.b, event), p.download(value, p.x, 4, p.b), p.hold(false), p.synchronise(p.b);
              return std::to_string(before) + " " + std::to_string(p.query(event)) + " " + std::to_string(*value) +
                     p.breaches();
            }),
            "600 0 2");
}

/// An injected error, and the words that must be reported.
struct Misuse {
  const char* words;
  std::function<void(Api&)> work;
};

TEST_P(FakeDrivers, DetectMisuse) {
  static float host[100] = {};
  const Misuse misuses[] = {
      // Order and memory:
      {"no event orders them", [](Api& p) { p.fill(p.x, p.a), p.fill(p.x, p.b); }},
      {"no event orders them", [](Api& p) { p.fill(p.x, p.a), p.download(host, p.x, 400, p.b); }},
      {"freed twice", [](Api& p) { p.free(p.x), p.free(p.x); }},
      {"is not the address of an allocation", [](Api& p) { p.free(p.x + 16); }},
      {"freed while queued work uses it", [](Api& p) { p.hold(), p.fill(p.x, p.a), p.free(p.x); }},
      {"before the host has waited for its last use",
       [](Api& p) {
         p.fill(p.x, p.a);
         std::this_thread::sleep_for(std::chrono::milliseconds(50));
         p.free(p.x);
       }},
      {"after it was freed", [](Api& p) { p.free(p.x), p.fill(p.x, p.a); }},
      {"past the end of its allocation", [](Api& p) { p.fill(p.x, p.a, 101); }},
      {"is not device memory", [](Api& p) { p.fill(reinterpret_cast<Address>(host), p.a); }},
      {"is not device memory", [](Api& p) { p.saxpy(reinterpret_cast<Address>(host), p.y, p.a); }},
      {"where a host address is required", [](Api& p) { p.download(reinterpret_cast<void*>(p.y), p.x, 400, p.a); }},
      {"not aligned to its elements", [](Api& p) { p.saxpy(p.x + 2, p.y, p.a, 10); }},
      {"not a multiple of its unit", [](Api& p) { p.fill(p.x + 2, p.a, 10); }},
      {"ranges of a copy overlap",
       [](Api& p) { p.call("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync", p.x + 4, p.x, std::size_t{100}, p.a); }},
      {"an allocation of 0 bytes", [](Api& p) { p.allocate(&p.x, 0); }},
      {"pinned memory is freed while queued work uses it",
       [](Api& p) {
         void* const pinned = p.pinned();
         p.hold(), p.upload(p.x, pinned, 400, p.a), p.free_host(pinned);
       }},
      {"write outside of pinned memory",
       [](Api& p) {
         auto* const pinned = static_cast<volatile char*>(p.pinned());
         pinned[400] = 1, p.free_host(const_cast<char*>(pinned));
       }},
      // Handles and devices:
      {"the event belongs to device 1",
       [](Api& p) {
         p.use(1);
         void* const event = p.event();
         p.use(0), p.record(event, p.a);
       }},
      {"the stream belongs to device 0", [](Api& p) { p.use(1), p.allocate(&p.y), p.fill(p.y, p.a); }},
      {"which cannot access it", [](Api& p) { p.use(1), p.fill(p.x, p.stream()); }},
      {"is loaded on device 0",
       [](Api& p) { p.use(1), p.allocate(&p.x), p.allocate(&p.y), p.saxpy(p.x, p.y, p.stream()); }},
      {"a stream is destroyed", [](Api& p) { p.hold(), p.fill(p.x, p.a), p.destroy(p.a); }},
      {"the stream has been destroyed", [](Api& p) { p.destroy(p.a), p.destroy(p.a); }},
      {"invalid handle of a stream", [](Api& p) { p.synchronise(host); }},
      {"does not refer to a stream", [](Api& p) { p.synchronise(p.event()); }},
      {"a peer copy without access", [](Api& p) { p.copy_from_peer(false, false); }},
      {"is not in the given context", [](Api& p) { p.copy_from_peer(true, true); }},
      {"no such peer",
       [](Api& p) {
         void* context = nullptr;
         if (p.cuda) p.call("cuCtxGetCurrent", "", &context);
         p.enable(0, context);
       }},
      // Kernels:
      {"is too large", [](Api& p) { p.saxpy(p.x, p.y, p.a, 100, 1, 1025); }},
      {"empty grid or block", [](Api& p) { p.saxpy(p.x, p.y, p.a, 0, 0); }},
      {"64 threads for an extent of 100", [](Api& p) { p.saxpy(p.x, p.y, p.a, 100, 1); }},
      {"more shared memory than allowed", [](Api& p) { p.saxpy(p.x, p.y, p.a, 64, 1, 64, 65 << 10); }},
      {"one by one or as a buffer", [](Api& p) { p.launch(1, 64, nullptr); }},
      {"ends within argument 3",
       [](Api& p) {
         Address packed[3] = {p.x, p.y};  // and a factor, but the extent is missing
         std::size_t bytes = 20;
         void* extra[] = {reinterpret_cast<void*>(1), packed, reinterpret_cast<void*>(2), &bytes,
                          reinterpret_cast<void*>(p.cuda ? 0 : 3)};
         p.launch(1, 64, nullptr, extra);
       }},
      {"a module is unloaded", [](Api& p) { p.saxpy(p.x, p.y, p.a), p.unload(); }},
      {"has been destroyed", [](Api& p) { p.unload(), p.saxpy(p.x, p.y, p.a); }},
      // Captures and graphs:
      {"is capturing a stream", [](Api& p) { p.begin(), p.allocate(&p.x); }},
      {"is capturing a stream", [](Api& p) { p.begin(), p.synchronise(p.a); }},
      {"not being captured", [](Api& p) { p.end(&p.module); }},
      {"cannot be captured here", [](Api& p) { p.begin(), p.record(p.event(), p.a); }},
      {"graph is destroyed before the host has waited",
       [](Api& p) {
         void* const graph = p.captured();
         p.launch_graph(graph), p.destroy_graph(graph);
       }},
      {"touches memory that has been freed",
       [](Api& p) {
         void* const graph = p.captured();
         p.free(p.x), p.launch_graph(graph);
       }},
      {"whose module has been unloaded",
       [](Api& p) {
         void* const graph = p.captured();
         p.unload(), p.launch_graph(graph);
       }},
      {"the executable has been destroyed",
       [](Api& p) {
         void* const graph = p.captured();
         p.destroy_graph(graph), p.launch_graph(graph);
       }},
      {"the driver is used in a forked child",
       [](Api& p) {
         // The child records its own violations. They are thrown here, so that they become the result of this case.
         throw std::runtime_error(run_in_child({}, [&] { return p.allocate(&p.x), p.breaches(); }));
       }},
  };
  for (const Misuse& misuse : misuses)
    expect_contains(run([&](Api& api) {
                      api.start();
                      if (const std::string said = api.breaches(); !said.empty()) return "before: " + said;
                      misuse.work(api);
                      return api.breaches();
                    }),
                    {misuse.words});
}

TEST_P(FakeDrivers, RejectImagesForAnotherDevice) {
  EXPECT_EQ(run([](Api& p) {
              p.start();
              return std::to_string(p.load(&p.module, 1)) + " " +
                     std::to_string(p.call("cuModuleLoadData", "hipModuleLoadData", &p.module, "no image")) +
                     p.breaches();
            }),
            "209 200");
}

TEST_P(FakeDrivers, CudaRequiresACurrentContextOnEachThread) {
  if (!GetParam()) return;  // in HIP, every thread has a current device
  expect_contains(run([](Api& p) {
                    p.allocate(&p.x), p.call("cuInit", "", 0u), p.allocate(&p.x), p.use(0);
                    const int here = p.allocate(&p.x);
                    int elsewhere = 0;
                    std::thread([&] { elsewhere = p.allocate(&p.y); }).join();
                    return std::to_string(here) + " " + std::to_string(elsewhere) + p.breaches();
                  }),
                  {"0 201", "before the driver was initialised", "no context is current"});
}

}  // namespace
}  // namespace tessera::fake
