// SPDX-License-Identifier: Apache-2.0
// What Lux's device management (MLDataDevices) tests, re-thought: where it warns and goes on, this library gives an
// error or does what was asked. Each case is a process of its own, without a GPU or over fake drivers of four.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <type_traits>

#include "tessera/base/test_seed.h"
#include "tessera/tessera.h"
#include "tests/support/errors.h"
#include "tests/support/over_fakes.h"

namespace tessera {
namespace {

using test::expect_has;
using test::expect_throw;
using test::four_gpus;
using test::in_process;
using test::no_gpus;

const Device cpu{Backend::cpu, 0};
const std::vector<Device> all_gpus = {{Backend::cuda, 0}, {Backend::cuda, 1}, {Backend::rocm, 0}, {Backend::rocm, 1}};

Array random_array(std::int64_t n, DType dtype = DType::f32) {
  static std::uint64_t draws = 0;
  return random_uniform({n}, test_seed() + ++draws, -1, 1, cpu).astype(dtype).eval();
}
std::vector<float> values(const Array& a) { return a.to_vector<float>(); }

enum class Symbol { e };
struct Inner {
  Array c;
  int d = 2;
};
struct Record {
  Inner a;
  Array b;
  Symbol e = Symbol::e;
  std::string text = "string";
  std::tuple<float, double, Array> mixed;
  Generator random{7, 3};
};
Record record() {
  return {{random_array(6).reshape({2, 3})}, random_array(4, DType::f64), Symbol::e, "d", {1.5f, 2.5, random_array(3)}};
}

struct Bits {
  std::int32_t i;
  float f;
  friend bool operator==(const Bits&, const Bits&) = default;
};
struct Empty {};

TEST(Lux, Behaviour01WithoutAGpuGpuDeviceIsTheCpuWithAWarningAndRequireIsAnError) {
  in_process(no_gpus(), [] {
    EXPECT_FALSE(has_gpu());
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(gpu_device(), cpu);
    EXPECT_EQ(gpu_device(), cpu);
    const std::string said = ::testing::internal::GetCapturedStderr();
    expect_has(said, {"no GPU is used", "cuda: ", "rocm: ", "opencl: ", "/nonexistent/library.so"});
    EXPECT_EQ(said.find("no GPU is used"), said.rfind("no GPU is used"));
    expect_throw<DeviceError>([] { gpu_device({.require = true}); }, {"a GPU is required", "/nonexistent/library.so"});
    for (const Backend backend : {Backend::cuda, Backend::rocm, Backend::oneapi, Backend::opencl}) {
      // Lux: set_device! warns that the backend has not been loaded, and does nothing.
      expect_throw<DeviceError>(
          [&] {
            DeviceScope scope(Device{backend, 0});
          },
          {std::string(backend_name(backend)) + ":0 does not exist", "Devices that exist: cpu:0"});
      EXPECT_THROW(Generator(1).bits({4}, Device{backend, 0}), DeviceError);
    }
  });
}

TEST(Lux, Behaviour02AWorkingBackendIsChosenAndABrokenOneIsNot) {
  in_process(four_gpus(), [] {
    EXPECT_EQ(gpu_device(), all_gpus[0]);
    EXPECT_EQ(gpu_device({.require = true}), all_gpus[0]);
    EXPECT_EQ(gpus(), all_gpus);
    EXPECT_EQ(current_device(), all_gpus[0]);
  });
  in_process(four_gpus({{"TESSERA_FAKE_FAULT", "no-devices"}}), [] {
    EXPECT_EQ(gpu_device(), cpu);
    EXPECT_THROW(gpu_device({.require = true}), DeviceError);
  });
  in_process(four_gpus({{"TESSERA_FAKE_FAULT", "wrong@0"}}), [] {
    EXPECT_EQ(gpu_device({.free_memory = 1}), all_gpus[1]) << "asking opened the first, which computes wrongly";
    EXPECT_EQ(gpu_device(), all_gpus[1]);
    EXPECT_EQ(gpus().size(), 3u) << "rocm:0 has not been opened";
  });
}

TEST(Lux, Behaviour03ANestedRecordMovesToEachBackendAndBackWithValuesAndTypes) {
  in_process(four_gpus(), [] {
    const Record r = record();
    for (const Device gpu : {all_gpus[0], all_gpus[3]}) {
      const Record there = to(r, gpu), back = to(there, cpu);
      EXPECT_EQ(there.a.c.device(), gpu);
      for (const Record* m : {&there, &back}) {
        EXPECT_EQ(values(m->a.c), values(r.a.c));
        EXPECT_EQ(m->a.c.shape(), r.a.c.shape());
        EXPECT_EQ(m->b.to_vector<double>(), r.b.to_vector<double>()) << "f64 stays f64";
        EXPECT_EQ(m->a.d, 2);
        EXPECT_EQ(m->text, r.text);
        EXPECT_EQ(std::get<0>(m->mixed), 1.5f);
        EXPECT_EQ(std::get<1>(m->mixed), 2.5);
        EXPECT_EQ(m->random, r.random) << "Lux loses a generator's state";
      }
    }
  });
}

TEST(Lux, Behaviour04WhereSomethingIsCanBeAskedOfAnything) {
  in_process(four_gpus(), [] {
    const Record r = record();
    EXPECT_EQ(device_of(r), cpu);
    EXPECT_EQ(device_of(to(r, all_gpus[2])), all_gpus[2]);
    EXPECT_EQ(device_of(r.random), std::nullopt);
    EXPECT_EQ(device_of([](int x) { return x; }), std::nullopt) << "a plain function";
  });
}

TEST(Lux, Behaviour05MixedDevicesAreAnErrorThatNamesThePartsWhichStillAnswer) {
  in_process(four_gpus(), [] {
    const std::map<std::string, Array> m = {
        {"a", random_array(2)}, {"b", random_array(2) | all_gpus[0]}, {"c", random_array(2) | all_gpus[2]}};
    expect_throw<DeviceError>([&] { device_of(m, "m"); }, {"m.a: cpu:0", "m.b: cuda:0", "m.c: rocm:0"});
    EXPECT_EQ(device_of(m.at("b")), all_gpus[0]);
    EXPECT_EQ(device_of(to(m, all_gpus[1])), all_gpus[1]);
  });
}

TEST(Lux, Behaviour06ArraysMoveBetweenAllDevicesOfAllBackends) {
  in_process(four_gpus(), [] {
    const Array x = random_array(5000);
    std::vector<Device> devices = all_gpus;
    devices.push_back(cpu);
    for (const Device from : devices)
      for (const Device target : devices) {
        const Array there = to(to(x, from), target);
        EXPECT_EQ(there.device(), target);
        EXPECT_EQ(values(there), values(x)) << to_string(from) << " to " << to_string(target);
        EXPECT_EQ(values(sum(there * 0 + 1)), std::vector<float>{5000}) << "and it computes there";
      }
    const Array large = random_array(3000000);  // several pieces of pinned memory
    EXPECT_EQ(values(to(to(large, all_gpus[1]), all_gpus[2])), values(large));
  });
}

TEST(Lux, Behaviour07NothingNewWhereItIsAlreadyAndWhatIsSharedStaysShared) {
  in_process(four_gpus(), [] {
    const Array x = random_array(12).reshape({3, 4});
    const Array there = to(x, all_gpus[1]);
    EXPECT_EQ(to(there, all_gpus[1]).source(), there.source());
    const Placement scope;
    auto [a, b, t] = to(std::tuple(x, x, x.transpose()), all_gpus[0]);
    EXPECT_EQ(a.source(), b.source());
    for (const auto& c : scope.log().copies)
      EXPECT_EQ(c.to_device_count, c.device == all_gpus[0] ? 1u : 0u) << "x and its transpose are one memory";
    a.fill(3);
    EXPECT_EQ(values(t), std::vector<float>(12, 3));
  });
}

TEST(Lux, Behaviour08TheTypeOfWhatWasMovedIsKnownWhenCompiling) {
  using Nested = std::tuple<Array, std::tuple<Array, int>, std::vector<Inner>>;
  static_assert(std::is_same_v<decltype(to(std::declval<const Nested&>(), cpu)), Nested>);
  static_assert(std::is_same_v<decltype(std::declval<Record>() | cpu), Record>);
  static_assert(std::is_same_v<decltype(device_of(std::declval<Nested>())), std::optional<Device>>);
}

TEST(Lux, Behaviour09ViewsAreWhereTheirArrayIs) {
  in_process(four_gpus(), [] {
    const Array x = to(random_array(12), all_gpus[0]).reshape({3, 4});
    for (const Array& view : {x.transpose(), x.permute({1, 0}), x.slice(1, 0, 4, 2), x.broadcast_to({2, 3, 4})}) {
      EXPECT_EQ(device_of(view), all_gpus[0]);
      EXPECT_EQ(values(to(view, all_gpus[2])), values(view));
    }
  });
}

TEST(Lux, Behaviour10TextAndSmallStructsMoveAndComeBackEqual) {
  in_process(four_gpus(), [] {
    const std::string text = "characters";
    const std::vector<Bits> bits = {{1, 1.5f}, {-2, 2.5f}};
    const Array as_bytes = Array::from(std::span(reinterpret_cast<const std::uint8_t*>(bits.data()), 16), {}, cpu);
    const auto back = to(to(std::tuple(text, bits, as_bytes), all_gpus[1]), cpu);
    EXPECT_EQ(std::get<0>(back), text);
    EXPECT_EQ(std::get<1>(back), bits);
    EXPECT_EQ(std::get<2>(back).to_vector<std::uint8_t>(), as_bytes.to_vector<std::uint8_t>());
  });
}

TEST(Lux, Behaviour12WhatHoldsNoArraysIsOnNoDeviceAndYields) {
  in_process(no_gpus(), [] {
    EXPECT_EQ(device_of(Empty{}), std::nullopt);
    EXPECT_EQ(device_of(std::vector<std::optional<Array>>(3)), std::nullopt);
    EXPECT_EQ(device_of(std::tuple(random_array(2), Empty{})), cpu);
  });
}

/// A leaf with a way of its own: it stays where it is.
struct Pinned {
  Array a;
  friend Pinned tessera_move(const Pinned& x, Mover&) { return x; }
};
TEST(Lux, Behaviour13ATypesOwnWayIsTakenAtAnyDepth) {
  in_process(four_gpus(), [] {
    const auto moved = to(std::vector<std::map<int, Pinned>>{{{1, Pinned{random_array(2)}}}}, all_gpus[0]);
    EXPECT_EQ(moved[0].at(1).a.device(), cpu);
  });
}

TEST(Lux, Behaviour14DtypesAreKeptAndConvertedOnlyWhenAsked) {
  in_process(four_gpus(), [] {
    for (const DType dtype :
         {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i8, DType::u32, DType::boolean}) {
      const Array there = to(random_array(9).astype(dtype), all_gpus[0]);
      EXPECT_EQ(there.dtype(), dtype);
      EXPECT_EQ(to(there, cpu).dtype(), dtype);
    }
    EXPECT_EQ(to(random_array(4, DType::f64), all_gpus[0]).astype(DType::f32).dtype(), DType::f32);
  });
}

TEST(Lux, Behaviour15PreferencesAreSetForEveryBackendTakeEffectAtOnceAndUnknownOnesAreErrors) {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-lux-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  in_process(four_gpus({{"XDG_CONFIG_HOME", folder}}), [] {
    for (const Device device : {all_gpus[1], all_gpus[3], cpu, Device{Backend::interp, 0}}) {
      for (int again = 0; again < 2; ++again) set_preferred_device(device);
      EXPECT_EQ(current_device(), device) << "no restart";
      EXPECT_EQ(read_preference(PreferenceScope::user)->device, device);
    }
    EXPECT_THROW(set_preferred_device(Device{Backend::opencl, 0}), DeviceError);
    EXPECT_THROW(set_preferred_device(parse_device("gpu")), DeviceError);
    set_preferred_device(std::nullopt);
    EXPECT_EQ(current_device(), all_gpus[0]);
  });
  std::filesystem::remove_all(folder);
}

TEST(Lux, Behaviour16RanksAreMappedToGpusByTheirNumberAndNonsenseIsAnError) {
  in_process(four_gpus(), [] {
    ::testing::internal::CaptureStderr();
    for (std::size_t rank = 0; rank < 10; ++rank) {
      const int index = static_cast<int>(rank % gpus().size());
      EXPECT_EQ(gpu_device({.index = index}), all_gpus[rank % 4]);
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    // Lux: "doesn't make sense", and goes on.
    EXPECT_THROW(DeviceScope(Device{Backend::cpu, 1}), DeviceError);
    EXPECT_THROW(DeviceScope(Device{Backend::cuda, 2}), DeviceError);
  });
}

TEST(Lux, Behaviour17BatchesArriveInOrderOnTheDeviceAndNobodysMemoryIsFreed) {
  in_process(four_gpus(), [] {
    std::vector<Array> source, resident, kept;
    for (int i = 0; i < 10; ++i) {
      source.push_back(random_array(100 + i));
      resident.push_back(to(source.back(), all_gpus[0]));
    }
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::size_t n = 0;
      for (auto batch : prefetch(source, all_gpus[0])) {
        EXPECT_EQ(batch.device(), all_gpus[0]);
        EXPECT_EQ(values(batch), values(source[n++]));
        kept.push_back(batch);
      }
      EXPECT_EQ(n, 10u);
      for (const auto& batch : prefetch(resident, all_gpus[0])) EXPECT_EQ(batch.device(), all_gpus[0]);
    }
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(values(kept[i]), values(source[i % 10])) << "Lux has freed it";
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(values(resident[i]), values(source[i])) << "Lux has freed it";
  });
}

}  // namespace
}  // namespace tessera
