// SPDX-License-Identifier: Apache-2.0
// Random programs of tasks on several devices, with delays, against plain loops one after the other.
// TESSERA_REGION_PROGRAMS=N runs N in place of 300; TESSERA_TEST_SEED chooses them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tessera/base/test_seed.h"
#include "tessera/device/discovery.h"
#include "tessera/task/region.h"
#include "tessera/testing/testing.h"

namespace tessera {
namespace {

constexpr std::int64_t side = 6;

struct Box {
  std::int64_t row, column, rows, columns;
};
Array view(const Array& m, const Box& b) {
  return m.slice(0, b.row, b.row + b.rows).slice(1, b.column, b.column + b.columns);
}

/// A matrix as a program has it, and as plain loops have it.
struct Matrix {
  Array array;
  std::vector<float> expected = std::vector<float>(side * side);
  template <class F>
  void each(const Box& b, F&& f) {
    for (std::int64_t i = 0; i < b.rows; ++i)
      for (std::int64_t j = 0; j < b.columns; ++j)
        f(expected[static_cast<std::size_t>((b.row + i) * side + b.column + j)], i, j);
  }
};

class Program {
 public:
  Program(std::uint64_t seed, std::vector<Device> devices) : random_(seed), devices_(std::move(devices)) {}

  std::string run() {
    std::vector<Matrix> all(3);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto v = static_cast<float>(i + 1);
      all[i].array = Array::full({side, side}, v, DType::f32, devices_[up_to(devices_.size())]).copy();
      std::ranges::fill(all[i].expected, v);
    }
    for (int regions = 0; regions < 2; ++regions) {
      Region r;
      for (int step = 0; step < 12; ++step) {
        if (std::string wrong = one(r, all); !wrong.empty()) return wrong + " in step " + std::to_string(step);
      }
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].array.to_vector<float>() != all[i].expected) return "matrix " + std::to_string(i) + " differs";
    return {};
  }

 private:
  template <class N>
  N up_to(N n) {
    return static_cast<N>(random_() % static_cast<std::uint64_t>(n));
  }
  Box box(std::int64_t rows = 0, std::int64_t columns = 0) {
    if (rows == 0 && up_to(3) == 0) return {0, 0, side, side};
    Box b;
    b.rows = rows != 0 ? rows : 1 + up_to(side), b.columns = columns != 0 ? columns : 1 + up_to(side);
    b.row = up_to(side - b.rows + 1), b.column = up_to(side - b.columns + 1);
    return b;
  }
  /// What a task does before its work.
  std::chrono::microseconds delay() { return std::chrono::microseconds(up_to(3) == 0 ? up_to(300) : 0); }
  TaskOptions somewhere() {
    std::vector<Device> some;
    for (const Device d : devices_)
      if (up_to(2) == 0) some.push_back(d);
    if (some.empty()) some.push_back(devices_[up_to(devices_.size())]);
    return {.scope = Scope(some), .priority = static_cast<int>(up_to(4)) - 2};
  }

  std::string one(Region& r, std::vector<Matrix>& all) {
    Matrix &a = all[up_to(all.size())], &b = all[up_to(all.size())];
    const auto wait = delay();
    const auto by = static_cast<float>(up_to(3)) - 1;
    const auto small = [](float v) { return std::fmod(v, 64.0f); };  // exact whatever the order of operations
    switch (up_to(9)) {
      case 0:
      case 1: {  // in place
        const Box at = box();
        Array part = view(a.array, at);
        a.each(at, [&](float& v, auto, auto) { v = v * by + 1; });
        r.spawn(
            somewhere(),
            [wait, by](Array& v) {
              std::this_thread::sleep_for(wait);
              v *= by;
              v += 1;
            },
            inout(part));
        break;
      }
      case 2:
      case 3: {  // from another, or from another place of the same
        const Box to = box(), from = box(to.rows, to.columns);
        if (&a == &b) break;  // may overlap: what a kernel would refuse
        Array target = view(a.array, to);
        const Array source = view(b.array, from);
        std::vector<float> values;
        b.each(from, [&](float v, auto, auto) { values.push_back(v); });
        a.each(to, [&](float& v, std::int64_t i, std::int64_t j) {
          v += values[static_cast<std::size_t>(i * to.columns + j)];
        });
        r.spawn(
            somewhere(),
            [wait](const Array& x, Array& y) {
              std::this_thread::sleep_for(wait);
              y += x;
            },
            in(source), inout(target));
        break;
      }
      case 4: {  // written whole, or a part of it
        const Box at = box();
        Array part = view(a.array, at);
        a.each(at, [&](float& v, auto, auto) { v = by; });
        r.spawn(
            somewhere(),
            [wait, by](Array& v) {
              std::this_thread::sleep_for(wait);
              v.fill(by);
            },
            out(part));
        break;
      }
      case 5: {  // a triangle, by a function of the host
        constexpr MatrixPart kinds[] = {MatrixPart::upper, MatrixPart::lower, MatrixPart::unit_upper,
                                        MatrixPart::unit_lower, MatrixPart::diagonal};
        const MatrixPart kind = kinds[up_to(5)];
        const auto touched = [kind](std::int64_t i, std::int64_t j) {
          return kind == MatrixPart::upper        ? j >= i
                 : kind == MatrixPart::lower      ? j <= i
                 : kind == MatrixPart::unit_upper ? j > i
                 : kind == MatrixPart::unit_lower ? j < i
                                                  : i == j;
        };
        a.each({0, 0, side, side}, [&](float& v, std::int64_t i, std::int64_t j) {
          if (touched(i, j)) v += 1;
        });
        TaskOptions host = somewhere();
        host.scope = Scope(Device{Backend::cpu, 0});
        r.spawn(
            host,
            [wait, touched](Array& m) {
              std::this_thread::sleep_for(wait);
              const BufferView memory = m.view();
              auto* const v = reinterpret_cast<float*>(memory.storage->allocation().host + memory.byte_offset);
              for (std::int64_t i = 0; i < side; ++i)
                for (std::int64_t j = 0; j < side; ++j)
                  if (touched(i, j)) v[i * side + j] += 1;
            },
            Accessed{a.array, Access::inout, kind});
        break;
      }
      case 6: {  // tasks of a task
        a.each({0, 0, side, side}, [&](float& v, std::int64_t i, auto) { v += static_cast<float>(i); });
        TaskOptions options = somewhere();
        r.spawn(
            options,
            [wait](Array& m) {
              Region inner;
              for (std::int64_t i = 0; i < side; ++i) {
                Array row = m.slice(0, i, i + 1);
                inner.spawn(
                    {.scope = Scope(m.device())},
                    [wait, i](Array& v) {
                      if (i == 1) std::this_thread::sleep_for(wait);
                      v += static_cast<float>(i);
                    },
                    inout(row));
              }
            },
            inout(a.array));
        break;
      }
      case 7: {  // the program reads
        double sum_of = 0;
        for (float v : a.expected) sum_of += v;
        const float said = sum(a.array).item<float>();
        if (said != static_cast<float>(sum_of))
          return "a sum is " + std::to_string(said) + ", not " + std::to_string(sum_of);
        break;
      }
      case 8: {  // the program writes
        const Box at = box();
        Array part = view(a.array, at);
        a.each(at, [&](float& v, auto, auto) { v = small(v) + 1; });
        std::vector<float> values;
        a.each(at, [&](float v, auto, auto) { values.push_back(v); });
        part.assign(Array::from(values, Shape{at.rows, at.columns}, a.array.device()));
        break;
      }
    }
    return {};
  }

  std::mt19937_64 random_;
  const std::vector<Device> devices_;
};

std::uint64_t programs() {
  const char* const asked = std::getenv("TESSERA_REGION_PROGRAMS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
}

TEST(RegionPrograms, MeanWhatTheyMeanInOrderOnOneTwoAndFourDevices) {
  const std::vector<std::vector<Device>> machines = {
      {{Backend::cpu, 0}},
      {{Backend::cpu, 0}, {Backend::interp, 0}},
      {{Backend::cpu, 0}, {Backend::interp, 0}, {Backend::interp, 1}, {Backend::interp, 2}}};
  static_cast<void>(testing::all_devices());  // interpreters of several widths
  for (std::uint64_t i = 0; i < programs(); ++i) {
    const std::uint64_t seed = test_seed() + i;
    ASSERT_EQ(Program(seed, machines[i % machines.size()]).run(), "")
        << "program " << i << ": TESSERA_TEST_SEED=" << seed << " TESSERA_REGION_PROGRAMS=1, on "
        << machines[i % machines.size()].size() << " devices";
  }
}

}  // namespace
}  // namespace tessera
