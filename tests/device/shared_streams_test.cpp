// SPDX-License-Identifier: Apache-2.0
// Tensors that are passed to a library with its own stream, with fake drivers. Each case runs in a separate process.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "tessera/array/dlpack.h"
#include "tessera/base/os/library.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using dlpack::ManagedVersioned;
using dlpack::to_dlpack;

// Acts like PyTorch: it enqueues work on a tensor in its own stream, and calls the deleter as soon as the tensor is
// destroyed. The streams are paused until all of this has been submitted, so any wait on the host would hang.
class ConsumersStream : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Streams, ConsumersStream, ::testing::Values(Backend::cuda, Backend::rocm),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(ConsumersStream, MemoryIsKeptUntilConsumersWorkIsDone) {
  const bool cuda = GetParam() == Backend::cuda;
  const std::string file = test::fake_library(test::fake_backend(GetParam()).driver);
  const auto body = [&]() -> std::string {
    const os::Library driver = os::Library::open(file);
    const Device device{GetParam(), 0};
    const DeviceScope scope(device);
    constexpr std::int64_t n = 5000;
    constexpr int rounds = 20;
    const Array results = Array::zeros({rounds, n}).eval();
    void* const to = results.view_for_writing().storage->native_handle();
    Array::full({n}, 1).eval();  // compiles kernels and fills the pool
    Queue::of(device).finish();
    void* stream = nullptr;
    if (cuda) driver.function<int(void*)>("cuCtxSetCurrent")(native_context(device));
    if (driver.function<int(void**, unsigned)>(cuda ? "cuStreamCreate" : "hipStreamCreateWithFlags")(&stream, 1) != 0)
      return "no stream";
    const auto copy = driver.function<int(std::uintptr_t, std::uintptr_t, std::size_t, void*)>(
        cuda ? "cuMemcpyDtoDAsync_v2" : "hipMemcpyDtoDAsync");
    const auto hold = driver.function<void(int)>("tessera_fake_hold");
    hold(1);
    for (int round = 0; round < rounds; ++round) {
      Array a = Array::full({n}, round).eval();
      ManagedVersioned* const tensor = to_dlpack(a, stream).release();
      a = Array();
      copy(reinterpret_cast<std::uintptr_t>(to) + static_cast<std::uintptr_t>(round) * n * 4,
           reinterpret_cast<std::uintptr_t>(tensor->tensor.data), n * 4, stream);
      tensor->deleter(tensor);
      Array::full({n}, -1).eval();  // has the same size, so it may get the same memory
    }
    hold(0);
    driver.function<int(void*)>(cuda ? "cuStreamSynchronize" : "hipStreamSynchronize")(stream);
    const std::vector<float> got = results.to_vector<float>();
    std::string said;
    for (int round = 0; round < rounds; ++round)
      for (std::int64_t i = 0; i < n; i += n - 1)
        if (const float is = got[static_cast<std::size_t>(round * n + i)]; is != static_cast<float>(round))
          said += "round " + std::to_string(round) + " gives " + std::to_string(is) + "; ";
    return said + test::breaches(file);
  };
  EXPECT_EQ(test::run_in_child(test::with_fakes(), body), "");
}

// Captures like PyTorch (torch.cuda.graph) in global mode: an allocation or wait of any thread fails and invalidates
// the capture, unless that thread uses relaxed mode.
class CaptureOfOthers : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Streams, CaptureOfOthers, ::testing::Values(Backend::cuda, Backend::rocm),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(CaptureOfOthers, CaptureIsNotInvalidatedByOurWork) {
  const bool cuda = GetParam() == Backend::cuda;
  const std::string file = test::fake_library(test::fake_backend(GetParam()).driver);
  const auto body = [&]() -> std::string {
    const os::Library driver = os::Library::open(file);
    const Device device{GetParam(), 0};
    const auto call = [&]<class... T>(const char* name, T... arguments) {
      return driver.function<int(T...)>(((cuda ? "cu" : "hip") + std::string(name)).c_str())(arguments...);
    };
    const auto captures = [&](const std::function<void()>& meanwhile) -> std::string {
      void *stream = nullptr, *graph = nullptr;
      if (cuda) call("CtxSetCurrent", native_context(device));
      int codes = call(cuda ? "StreamCreate" : "StreamCreateWithFlags", &stream, 1u);
      codes += call(cuda ? "StreamBeginCapture_v2" : "StreamBeginCapture", stream, 0);
      meanwhile();
      const int ended = call("StreamEndCapture", stream, &graph);
      return codes == 0 && ended == 0 && graph != nullptr ? "" : "ended with " + std::to_string(ended) + "; ";
    };
    // The first call opens the device; each round compiles, allocates, copies and waits.
    const auto work = [&](int round) {
      const DeviceScope scope(device);
      const Array a = Array::full({100 + round, 7}, 2),
                  b = exp(a * static_cast<double>(round)) + a.transpose().transpose();
      Queue other(device);
      const Array copied = Array::empty({100 + round, 7});
      other.copy(copied.view_for_writing(), a.view());
      const float got = sum(copied).item<float>() + sum(b).item<float>();
      trim(device);
      if (!(got > 0)) throw std::runtime_error("wrong sum");
    };
    work(0);
    std::string said = captures([&] { work(1); });  // on the capturing thread
    std::promise<void> begun, done;
    std::thread other([&] {
      said += captures([&] {
        begun.set_value();
        done.get_future().wait();
      });
    });
    begun.get_future().wait();
    work(2);
    std::thread([&] { work(3); }).join();
    done.set_value();
    other.join();
    // The capture mode of the thread is restored afterwards.
    int mode = 0;
    call("ThreadExchangeStreamCaptureMode", &mode);
    if (mode != 0) said += "the thread's mode is now " + std::to_string(mode) + "; ";
    return said + test::breaches(file);
  };
  EXPECT_EQ(test::run_in_child(test::with_fakes(), body), "");
}

}  // namespace
}  // namespace tessera
