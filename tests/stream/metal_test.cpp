// SPDX-License-Identifier: Apache-2.0
// The Metal backend with fakes of the Objective-C runtime and Metal (tests/drivers/vendors/metal.cpp). Tests cover
// missing and failing parts, and check that objects are neither leaked nor used after release. The fake also checks
// Metal's rules. Each case runs in a child. The backend has not been tested with Apple's Metal.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/stream/child_results.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"

namespace tessera {
namespace {

using test::expect_clean;
using test::expect_contains;
using test::lines;
using test::message;
using test::Variables;

const std::string library = TESSERA_FAKES "/libfake_metal.so";
/// The first device has unified memory. The second device has dedicated memory.
constexpr Device first{Backend::metal, 0}, second{Backend::metal, 1};

std::string breaches() { return test::breach_lines(library); }
std::string run(const Variables& changed, const std::function<std::string()>& work) {
  Variables all = {{"TESSERA_METAL_LIBRARY", library}};
  all.insert(all.end(), changed.begin(), changed.end());
  return test::run_in_child(
      all,
      [&] {
        const std::string text = work();
        return text + breaches();
      },
      60);
}
std::string with(const std::string& fault, const std::function<std::string()>& work, int devices = 1) {
  return run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", std::to_string(devices)}}, work);
}
std::string row() { return test::row_of(Backend::metal); }
std::string state(Device on) { return std::string(state_name(device_info(on).state)); }

/// Tests arithmetic, a reduction, odd lengths and offsets, and a fill. Returns "right", or a description of the error.
std::string computes(Device on) {
  const Array x = Array::from(test::counted_floats(), {}, on);
  if (std::string said = test::arithmetic(x); said != "right") return said;
  if (const float s = sum(x).item<float>(); s != 499500) return "the sum is " + std::to_string(s);
  std::vector<std::uint8_t> bytes(1003);  // not a multiple of four
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(7 * i);
  const Array b = Array::from(bytes, {}, on);
  if (b.to_vector<std::uint8_t>() != bytes) return "bytes changed in a round trip";
  if (sum(Array::full({333}, 3.0, DType::u8, on).astype(DType::i32)).item<std::int64_t>() != 999)
    return "a fill of bytes";
  if (sum(Array::full({333}, 1.5, DType::f16, on).astype(DType::f32)).item<float>() != 499.5f) return "a fill of f16";
  return "right";
}
std::string outcome(Device on) {
  return test::outcome_of([&] { return computes(on); });
}

TEST(Metal, ComputesWithUnifiedAndDedicatedMemory) {
  const std::string text = run({{"TESSERA_FAKE_DEVICES", "2"}}, [] {
    return lines(
        {row(), outcome(first), outcome(second), state(first), state(second), device_info(first).driver_version});
  });
  EXPECT_TRUE(text.starts_with("enumerated|" + library + "|")) << text;
  expect_contains(text, {"|2\nright\nright\nverified\nverified\n", "unverified"});
  expect_clean(text);
}

// Metal may list devices in a different order in each process. Equal GPUs must keep their indices.
TEST(Metal, DeviceOrderIsIndependentOfMetalsOrder) {
  const auto work = [] {
    std::string all;
    for (const DeviceInfo& d : discover(Backend::metal).devices)
      all += to_string(d.device) + " " + d.name + " " + std::to_string(d.native_index) + " \"" + d.identity + "\"\n";
    return lines({all + outcome(first), outcome(second)});
  };
  EXPECT_EQ(run({{"TESSERA_FAKE_DEVICES", "4"}}, work),
            "metal:0 Fake M2 0 \"\"\nmetal:1 AMD Fake Pro 5500M 1 \"\"\nmetal:2 Fake M2 2 \"\"\n"
            "metal:3 AMD Fake Pro 5500M 3 \"\"\nright\nright");
  EXPECT_EQ(with("reversed", work, 4),
            "metal:0 Fake M2 3 \"\"\nmetal:1 AMD Fake Pro 5500M 2 \"\"\nmetal:2 Fake M2 1 \"\"\n"
            "metal:3 AMD Fake Pro 5500M 0 \"\"\nright\nright");
}

#ifndef __APPLE__
TEST(Metal, IsUnsupportedOnOtherSystems) {
  EXPECT_EQ(test::run_in_child({{"TESSERA_METAL_LIBRARY", ""}}, [] { return row(); }),
            "unsupported||Metal exists on Apple systems only|Nothing to do here|0");
}
#endif

TEST(Metal, ReportsMissingOrIncompleteLibrary) {
  std::string text = test::run_in_child({{"TESSERA_METAL_LIBRARY", "/nonexistent/Metal"}}, [] {
    return lines({row(), message([] { computes(first); }), computes({})});
  });
  EXPECT_TRUE(text.starts_with("supported|/nonexistent/Metal|")) << text;
  expect_contains(text, {"cannot open shared object file", "TESSERA_METAL_LIBRARY names this file", "|0\n",
                         "metal:0 does not exist", "\nright"});
  text = test::run_in_child({{"TESSERA_METAL_LIBRARY", TESSERA_FAKES "/libfake_metal_incomplete.so"}}, [] {
    return lines({row(), outcome({})});
  });
  expect_contains(text, {"supported|", "the library has no MTLCopyAllDevices", "TESSERA_METAL_LIBRARY names this file",
                         "|0\nright"});
}

TEST(Metal, ReportsMissingDevices) {
  const std::string text = with("no-devices", [] { return lines({row(), outcome({})}); });
  EXPECT_TRUE(text.starts_with("loaded|" + library + "|MTLCopyAllDevices lists no device|")) << text;
  expect_contains(text, {"|0\nright"});
  expect_clean(text);
}

TEST(Metal, ReportsCompilerThatRejectsAllKernels) {
  const std::string text = with("compile", [] { return lines({row(), outcome(first)}); });
  expect_contains(text, {"loaded|", "Metal could not compile a first kernel",
                         "program_source:1:1: error: this compiler is set", "\nDeviceError: "});
  expect_clean(text);
}

TEST(Metal, DeviceWithWrongResultsIsQuarantined) {
  const std::string text = with(
      "wrong@0",
      [] {
        return lines({outcome(first), state(first), outcome(second)});
      },
      2);
  expect_contains(text, {"DeviceError: [metal:0]", "the first kernel computed a wrong result", "\nquarantined\nright"});
  expect_clean(text);
}

TEST(Metal, DeviceRemainsUsableAfterOutOfMemory) {
  const std::string text = run({{"TESSERA_FAKE_MEMORY", std::to_string(64 << 20)}}, [] {
    std::string all;
    {
      const Array large = Array::full({5 << 20}, 1.0, DType::f32, first);
      large.eval();
      all += message([] { Array::full({12 << 20}, 1.0, DType::f32, first).eval(); }) + "\n";
      all += lines({std::to_string(sum(large).item<float>()), state(first)}) + "\n";
    }
    return all + std::to_string(sum(Array::full({10 << 20}, 1.0, DType::f32, first)).item<float>());
  });
  expect_contains(
      text, {"metal:0 does not have enough memory", "largest of 1 live", "5242880.000000\nverified\n10485760.000000"});
  expect_clean(text);
  const std::string gone = with(
      "oom=6+@0",
      [] {
        return lines({outcome(first), outcome(second), outcome({})});
      },
      2);
  expect_contains(gone, {"OutOfMemory: [", "\nright\nright"});
  expect_clean(gone);
}

TEST(Metal, FailedCommandBufferMarksDeviceAsLost) {
  for (const char* fault : {"lost=20@0", "late=21@0", "launch=8@0"}) {
    const std::string text = with(
        fault,
        [] {
          std::string all = message([] {
            for (int i = 0; i < 20; ++i) computes(first);
          });
          return lines(
              {all, state(first), outcome(second), state(second), outcome({}), message([] { computes(first); })});
        },
        2);
    expect_contains(text, {"MTLCommandBufferError ", "Caused GPU Address Fault", "\nlost\nright\nverified\nright\n",
                           "the device is lost"});
    expect_clean(text);
  }
}

TEST(Metal, KernelsWithManyRegistersRunInSmallerBlocks) {
  EXPECT_EQ(with("threads=64",
                 [] {
                   const auto k = kernel("narrow", [](Buffer<float> x) { x[global_id()] = 1.0f; });
                   DeviceScope scope(first);
                   DeviceBuffer<float> x(1000);
                   k.launch({1000}, x);
                   return std::to_string(x.to_vector()[999]);
                 }),
            "1.000000");
  const std::string text = with("threads=64", [] {
    const auto k = kernel("wide", block(128), [](Buffer<float> x) { x[global_id()] = 1.0f; });
    DeviceScope scope(first);
    DeviceBuffer<float> x(128);
    return message([&] { k.launch(blocks(1), x); });
  });
  expect_contains(text, {"wide", "its blocks have 128 threads", "at most 64"});
  expect_clean(text);
}

TEST(Metal, PrintErrorNamesTheKernel) {
  const std::string text = run({}, [] {
    const auto k = kernel("says", [](Buffer<float> x) { print("{}", x[global_id()]); });
    DeviceScope scope(first);
    DeviceBuffer<float> x(4);
    return message([&] { k.launch({4}, x); });
  });
  expect_contains(text, {"says", "print cannot be written in Metal Shading Language"});
}

// Repeating the work must not increase the number of existing objects.
TEST(Metal, LeaksNoObjects) {
  const std::string text = run({{"TESSERA_FAKE_DEVICES", "2"}}, [] {
    const auto count = os::Library::open(library).function<int(const char*)>("tessera_fake_objects");
    constexpr const char* names[] = {"NSArray",
                                     "NSString",
                                     "NSError",
                                     "MTLBuffer",
                                     "MTLCommandQueue",
                                     "MTLSharedEvent",
                                     "MTLLibrary",
                                     "MTLFunction",
                                     "MTLComputePipelineState",
                                     "MTLCommandBuffer",
                                     "MTLComputeCommandEncoder",
                                     "MTLBlitCommandEncoder",
                                     "MTLCompileOptions"};
    const auto look = [&] {
      std::string all;
      for (const Device d : {first, second}) {
        Queue::of(d).finish();
        trim(d);
      }
      for (const char* name : names) all += std::string(name) + " " + std::to_string(count(name)) + ", ";
      return all;
    };
    const auto work = [] {
      for (int i = 0; i < 5; ++i)
        for (const Device d : {first, second})
          if (const std::string said = computes(d); said != "right") return said;
      Queue another(first);
      const Array x = Array::full({100}, 2.0, DType::f32, first);
      return std::to_string(sum(x.to(second)).item<float>());
    };
    std::string said = work() + "\n";
    const std::string before = look();
    said += work() + "\n";
    const std::string after = look();
    for (const char* gone : {"NSArray", "NSString", "NSError", "MTLCompileOptions", "MTLComputeCommandEncoder"})
      if (count(gone) != 0) said += std::string(gone) + " is left\n";
    return said + (before == after ? "the same" : before + "\nand then\n" + after);
  });
  EXPECT_EQ(text, "200.000000\n200.000000\nthe same");
}

// The fake reports violations of these rules:

using Id = void*;
struct Runtime {
  os::Library file = os::Library::open(library);
  Id device = nullptr;
  Runtime() {
    push();
    const Id all = file.function<Id()>("MTLCopyAllDevices")();
    device = send<Id>(all, "objectAtIndex:", std::uint64_t{0});
    send<void>(all, "release");
  }
  void* push() { return file.function<void*()>("objc_autoreleasePoolPush")(); }
  void pop(void* pool) { file.function<void(void*)>("objc_autoreleasePoolPop")(pool); }
  template <class R, class... A>
  R send(Id to, const char* what, A... arguments) {
    const auto selector = file.function<void*(const char*)>("sel_registerName")(what);
    return reinterpret_cast<R (*)(Id, void*, A...)>(file.symbol("objc_msgSend"))(to, selector, arguments...);
  }
  Id buffer(std::uint64_t bytes) { return send<Id>(device, "newBufferWithLength:options:", bytes, std::uint64_t{0}); }
  std::uint32_t* contents(Id buffer) { return static_cast<std::uint32_t*>(send<void*>(buffer, "contents")); }
  Id newest_buffer() { return file.function<Id()>("tessera_fake_newest_buffer")(); }
  void hold(bool held) { file.function<void(int)>("tessera_fake_hold")(held); }
};

// With unified memory, the host reads device memory directly. It must first wait for work that the program has enqueued
// directly in Tessera's queue, even if Tessera has enqueued no work after it. This also applies to reads of other
// memory and to calls of finish().
TEST(Metal, WaitsForWorkThatTheProgramEnqueuedDirectly) {
  constexpr std::size_t count = 1000, bytes = 4 * count;
  for (const std::string way : {"download", "finish", "end", "sync"}) {
    const std::string text = run({{"TESSERA_SYNC", way == "sync" ? "1" : "0"}}, [&] {
      Runtime runtime;
      auto queue = std::make_unique<Queue>(first);
      const auto finished = Storage::allocate(first, bytes), written = Storage::allocate(first, bytes);
      const Id target = runtime.newest_buffer(), source = runtime.buffer(bytes);
      const BufferView other{finished, 0, count, DType::u32}, view{written, 0, count, DType::u32};
      queue->fill(other, 1);
      queue->fill(view, 2);
      queue->finish();
      std::fill_n(runtime.contents(source), count, 7u);
      runtime.hold(true);
      std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        runtime.hold(false);
      });
      queue->submit_native("their copy", {}, std::array{view}, [&](void* native) {
        const Id commands = runtime.send<Id>(native, "commandBuffer"),
                 encoder = runtime.send<Id>(commands, "blitCommandEncoder");
        runtime.send<void>(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", source,
                           std::uint64_t{0}, target, std::uint64_t{0}, std::uint64_t{bytes});
        runtime.send<void>(encoder, "endEncoding");
        runtime.send<void>(commands, "commit");
      });
      std::vector<std::uint32_t> got(count, 0xdeadbeef);
      std::string wrong;
      const auto expect = [&](const std::uint32_t* all, std::uint32_t value) {
        for (std::size_t i = 0; i < count && wrong.empty(); ++i)
          if (all[i] != value)
            wrong = "element " + std::to_string(i) + " is " + std::to_string(all[i]) + ", not " + std::to_string(value);
      };
      if (way == "download") {
        queue->download(got.data(), other);
        expect(got.data(), 1);
        queue->download(got.data(), view);
        expect(got.data(), 7);
      } else {
        if (way == "finish") queue->finish();
        if (way == "end") queue.reset();
        expect(runtime.contents(target), 7);
      }
      later.join();
      runtime.send<void>(source, "release");
      return wrong.empty() ? "right" : wrong;
    });
    EXPECT_EQ(text, "right") << way;
  }
}

TEST(FakeMetal, DetectsMisuse) {
  struct Case {
    const char* breach;
    std::function<void(Runtime&)> misuse;
  };
  constexpr std::uint64_t zero = 0;
  const auto commands = [](Runtime& r) { return r.send<Id>(r.send<Id>(r.device, "newCommandQueue"), "commandBuffer"); };
  /// Runs `misuse` while an encoder of this kind is open.
  const auto encoding = [&](const char* kind, std::function<void(Runtime&, Id)> misuse) {
    return [commands, kind, misuse](Runtime& r) {
      const Id encoder = r.send<Id>(commands(r), kind);
      misuse(r, encoder);
      r.send<void>(encoder, "endEncoding");
    };
  };
  const char *const compute = "computeCommandEncoder", *const blit = "blitCommandEncoder";
  const auto set_memory = [](Runtime& r, Id encoder, std::uint64_t bytes) {
    r.send<void>(encoder, "setThreadgroupMemoryLength:atIndex:", bytes, zero);
  };
  const auto copy = [](Runtime& r, Id encoder, std::uint64_t to, std::uint64_t bytes) {
    r.send<void>(encoder, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", r.buffer(64), zero,
                 r.buffer(to), zero, bytes);
  };
  const auto release = [](Runtime& r, Id object) { r.send<void>(object, "release"); };
  const Case cases[] = {
      {"waitUntilCompleted before commit", [&](Runtime& r) { r.send<void>(commands(r), "waitUntilCompleted"); }},
      {"committed twice",
       [&](Runtime& r) {
         const Id buffer = commands(r);
         for (const char* call : {"commit", "commit", "waitUntilCompleted"}) r.send<void>(buffer, call);
       }},
      {"commit while an encoder is open",
       [&](Runtime& r) {
         const Id buffer = commands(r), encoder = r.send<Id>(buffer, blit);
         r.send<void>(buffer, "commit"), r.send<void>(encoder, "endEncoding");
       }},
      {"while another is open",
       [&](Runtime& r) {
         const Id buffer = commands(r), encoder = r.send<Id>(buffer, blit);
         r.send<Id>(buffer, compute), r.send<void>(encoder, "endEncoding");
       }},
      {"after endEncoding",
       [&](Runtime& r) {
         const Id encoder = r.send<Id>(commands(r), compute);
         r.send<void>(encoder, "endEncoding"), set_memory(r, encoder, 16);
       }},
      {"released before endEncoding",
       [&](Runtime& r) {
         void* const pool = r.push();
         r.send<Id>(commands(r), compute), r.pop(pool);
       }},
      {"not a multiple of 16", encoding(compute, [=](Runtime& r, Id encoder) { set_memory(r, encoder, 12); })},
      {"more than 4096 bytes", encoding(compute,
                                        [](Runtime& r, Id encoder) {
                                          const std::vector<char> bytes(5000);
                                          r.send<void>(encoder, "setBytes:length:atIndex:",
                                                       static_cast<const void*>(bytes.data()), bytes.size(), zero);
                                        })},
      {"not multiples of 4", encoding(blit, [=](Runtime& r, Id encoder) { copy(r, encoder, 64, 3); })},
      {"a copy past the end", encoding(blit, [=](Runtime& r, Id encoder) { copy(r, encoder, 32, 64); })},
      {"a dispatch without a pipeline",
       encoding(compute,
                [](Runtime& r, Id encoder) {
                  const std::array<std::uint64_t, 3> one = {1, 1, 1};
                  r.send<void>(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", one, one);
                })},
      {"for a value that no committed one signals",
       [&](Runtime& r) {
         const Id buffer = commands(r);
         r.send<void>(buffer, "encodeWaitForEvent:value:", r.send<Id>(r.device, "newSharedEvent"), std::uint64_t{1});
         r.send<void>(buffer, "commit");
       }},
      {"used (do_contents) after its last release",
       [&](Runtime& r) {
         const Id buffer = r.buffer(64);
         release(r, buffer), r.contents(buffer);
       }},
      {"released more often than retained",
       [&](Runtime& r) {
         const Id buffer = r.buffer(64);
         release(r, buffer), release(r, buffer);
       }},
      {"no autorelease pool",
       [&](Runtime& r) {
         const Id queue = r.send<Id>(r.device, "newCommandQueue");
         r.pop(reinterpret_cast<void*>(1)), r.send<Id>(queue, "commandBuffer");
       }},
      {"unrecognised selector", [&](Runtime& r) { r.send<void>(r.device, "doWhatIMean"); }},
      {"fast math", [&](Runtime& r) {
         const Id text = r.send<Id>(r.file.function<Id(const char*)>("objc_getClass")("NSString"),
                                    "stringWithUTF8String:", "kernel void k() {}");
         Id error = nullptr;
         r.send<Id>(r.device, "newLibraryWithSource:options:error:", text, Id{}, &error);
       }}};
  for (const Case& c : cases) {
    const std::string text = run({}, [&] {
      Runtime runtime;
      const std::string before = breaches();
      c.misuse(runtime);
      return before + "then";
    });
    EXPECT_NE(text.find(c.breach), text.npos) << c.breach << ": " << text;
    EXPECT_TRUE(text.starts_with("then")) << text;
  }
}

}  // namespace
}  // namespace tessera
