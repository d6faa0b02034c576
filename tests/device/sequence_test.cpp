// SPDX-License-Identifier: Apache-2.0
// Sequences on every device. A replay repeats the recorded work and is ordered with all other uses of its memory. Work
// that cannot be repeated throws, and the queue stays usable.
#include "tessera/device/queue/sequence.h"
#include "tessera/device/launch/kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <future>
#include <latch>
#include <thread>

#include "tessera/array/array.h"
#include "tessera/array/generator.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/ir/value.h"
#include "tessera/ops/transformer.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/run_with_timeout.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::expect_throw;
using test::OnEveryDevice;
using test::run_with_timeout;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;

/// y[i] = a * x[i] + y[i] + step
const Kernel& axpy() {
  static const Kernel& kernel = *new Kernel([] {
    ir::Builder builder("sequence_axpy", ir::KernelKind::map);
    ir::Builder::Scope scope(builder);
    const auto x = ir::buffer_param("x", DType::f32, ir::Access::read);
    const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
    const ir::Value a = ir::scalar_param("a", DType::f32), step = ir::scalar_param("step", DType::index);
    const ir::Value i = ir::global_id();
    y.store(i, ir::fma(a, x.load(i), y.load(i)) + ir::cast(DType::f32, step));
    return builder.finish();
  }());
  return kernel;
}
void launch(const Array& x, const Array& y, float a, std::int64_t step) {
  axpy().launch(
      {static_cast<std::uint64_t>(x.size()), 1, 1},
      {x.view(), y.view_for_writing(), LaunchArgument::scalar(a).in_slot(0), LaunchArgument::index(step).in_slot(1)});
}
Queue& queue() { return Queue::of(current_device()); }

TEST_P(OnEveryDevice, ReplayRepeatsRecordedWork) {
  Array x = Array::full({1000}, 1), y = Array::zeros({1000}), copied = Array::zeros({1000}), filled;
  Array derived;
  Sequence step = Sequence::record(queue(), [&] {
    y += x;                                     // a fused expression
    derived = (y * 2 + 1).eval();               // allocated during the recording and used outside of it
    Array inside = (derived * derived).eval();  // only the recording refers to this memory
    copied.assign((inside - 1).eval());
    filled = Array::full({7}, 3);
  });
  EXPECT_TRUE(step.valid());
  EXPECT_GE(step.size(), 5u);
  EXPECT_EQ(step.device(), GetParam());
  for (int n = 1; n < 20; ++n) {  // the recording was the first run
    if (n > 1) step.replay();
    const float d = 2 * static_cast<float>(n) + 1;
    if (n % 3 == 0) continue;  // also test several replays without a read in between
    EXPECT_EQ(y.to_vector<float>(), Floats(1000, static_cast<float>(n)));
    EXPECT_EQ(derived.to_vector<float>(), Floats(1000, d));
    EXPECT_EQ(copied.to_vector<float>(), Floats(1000, d * d - 1));
    filled.fill(5);  // the next replay overwrites it
  }
  step.replay();
  EXPECT_EQ(filled.to_vector<float>(), Floats(7, 3));
  // Inputs are changed by writing to their memory between replays.
  x.fill(10);
  step.replay();
  EXPECT_EQ(y.to_vector<float>(), Floats(1000, 30));
}

TEST_P(OnEveryDevice, ScalarsInSlotsChangeBetweenReplays) {
  const Array x = Array::full({300}, 2), y = Array::zeros({300}), z = Array::zeros({300});
  Sequence step = Sequence::record(queue(), [&] {
    launch(x, y, 1, 0);
    launch(y, z, 1, 1);  // uses the same slots
  });
  EXPECT_EQ(z.to_vector<float>(), Floats(300, 3));
  float want_y = 2, want_z = 3;
  for (int n = 0; n < 30; ++n) {
    const float a = static_cast<float>(n % 5);
    const std::int64_t s = n % 3;
    step.set(0, LaunchArgument::scalar(a));
    step.set(1, LaunchArgument::index(s));
    step.replay();  // several replays may be queued, each with its own values
    want_y = a * 2 + want_y + static_cast<float>(s);
    want_z = a * want_y + want_z + static_cast<float>(s);
    if (n % 4 == 0) {
      ASSERT_EQ(y.to_vector<float>(), Floats(300, want_y));
      for (const float v : z.to_vector<float>()) ASSERT_NEAR(v, want_z, std::fabs(want_z) * 1e-6);
    }
    if (std::fabs(want_z) > 1e5f) break;
  }
  expect_throw<ArgumentError>([&] { step.set(2, LaunchArgument::scalar(1.0f)); }, {"slot = 2", "no scalar"});
  expect_throw<ArgumentError>([&] { step.set(0, LaunchArgument::index(1)); }, {"sequence_axpy", "f32"});
  expect_throw<ArgumentError>([&] { step.set(1, LaunchArgument::index(std::int64_t{1} << 40)); },
                              {"sequence_axpy", "32-bit indices", "1099511627776"});
  step.replay();
}

TEST_P(OnEveryDevice, ReplayFlushesPendingReaders) {
  Array x = Array::full({64}, 1), y = Array::zeros({64});
  Sequence step = Sequence::record(queue(), [&] { y += x; });
  const Array before = y * 10;  // pending; must use the current value 1
  ASSERT_TRUE(before.pending());
  step.replay();
  EXPECT_FALSE(before.pending());
  const Array after = y * 10;
  EXPECT_EQ(before.to_vector<float>(), Floats(64, 10));
  EXPECT_EQ(after.to_vector<float>(), Floats(64, 20));
}

TEST_P(OnEveryDevice, ExpressionsDeferredBeforeRecordingAreNotRecorded) {
  const Device device = GetParam();
  Queue& queue = Queue::of(device);
  Array y = Array::zeros({64}, DType::f32, device).eval();
  const Array one = Array::full({64}, 1.0, DType::f32, device).eval(), before = y * 10.0 + 3.0;
  ASSERT_TRUE(before.pending());
  Sequence adds = Sequence::record(queue, [&] { y += one; });  // writes memory that `before` reads
  adds.replay();
  adds.replay();
  EXPECT_EQ(before.to_vector<float>(), Floats(64, 3));
  EXPECT_EQ(y.to_vector<float>(), Floats(64, 3));

  Array a = Array::full({64}, 2.0, DType::f32, device).eval();
  const Array product = a * one * 5.0;  // the test keeps a reference, and the recording uses it as an operand
  Array sum;
  Sequence inside = Sequence::record(queue, [&] { sum = (product + a + 1.0).eval(); });
  EXPECT_EQ(sum.to_vector<float>(), Floats(64, 13));
  a += one;
  inside.replay();
  EXPECT_EQ(product.to_vector<float>(), Floats(64, 10));
  EXPECT_EQ(sum.to_vector<float>(), Floats(64, 14));
}

template <class F>
Array elsewhere(F make) {
  return std::async(std::launch::async, make).get();
}

/// Replays with different values in `x`, and checks all elements of `out`.
void replays_give(Sequence& step, Array& x, Array& out, float (*wanted)(float)) {
  for (const float v : {3.f, 10.f}) {
    x.fill(v);
    out.fill(-1);
    step.replay();
    EXPECT_EQ(out.to_vector<float>(), Floats(64, wanted(v)));
  }
}

TEST_P(OnEveryDevice, ExpressionsDeferredByHelperThreadAreRecorded) {
  const Device device = GetParam();
  using Combine = std::function<void(const Array& x, Array& out)>;
  const Combine ways[] = {
      [](const Array& x, Array& out) {
        const Array p = x * 2.0, c = elsewhere([&] { return p + 1.0; });
        out.assign(p * c);
      },
      [](const Array& x, Array& out) {
        const Array p = x * 2.0, c = elsewhere([&] { return p + 1.0; });
        out.assign(c * p);
      },
      // An operand was computed by a reduction.
      [](const Array& x, Array& out) {
        const Array p = (x * 2.0).eval(), c = elsewhere([&] { return p + 1.0; });
        out.assign(c * p);
      },
      [](const Array& x, Array& out) {
        const Array m = max(x * 2.0), c = elsewhere([&] { return m + 1.0; });
        out.assign(c * (x * 2.0));
      },
      // Through two threads, inside of a reduction.
      [](const Array& x, Array& out) {
        const Array p = x * 2.0, half = elsewhere([&] { return p * 0.5; });
        const Array c = elsewhere([&] { return half + half; });
        out.assign(max(p * (c + 1.0), {0}, true));
      },
  };
  int n = 0;
  for (const Combine& way : ways) {
    SCOPED_TRACE(n++);
    Array x = Array::full({64}, 1.0, DType::f32, device).eval(), out = Array::zeros({64}, DType::f32, device);
    Sequence step;
    run_with_timeout([&] { step = Sequence::record(Queue::of(device), [&] { way(x, out); }); });
    EXPECT_EQ(out.to_vector<float>(), Floats(64, 6));
    replays_give(step, x, out, [](float v) { return 2 * v * (2 * v + 1); });
  }
}

TEST_P(OnEveryDevice, HelperThreadExpressionsBelongToActiveRecording) {
  const Device device = GetParam();
  for (const bool computed : {false, true}) {
    for (const bool later : {false, true}) {  // the ended recording started after the active one
      SCOPED_TRACE(std::string(computed ? "computed" : "pending") + (later ? ", later" : ", earlier"));
      const Array one = Array::full({64}, 1.0, DType::f32, device).eval();
      Array x = Array::full({64}, 1.0, DType::f32, device).eval(), out = Array::zeros({64}, DType::f32, device), left;
      const auto end_one = [&] {
        Array kept = Array::zeros({64}, DType::f32, device);
        const auto ended = Sequence::record(Queue::of(device), [&] {
          left = one * 1.0;
          kept.assign(one);
        });
        EXPECT_TRUE(left.pending());
      };
      if (!later) end_one();
      Sequence step;
      run_with_timeout([&] {
        step = Sequence::record(Queue::of(device), [&] {
          const Array r = x * 2.0;
          if (computed) r.eval();
          if (later) std::async(std::launch::async, end_one).get();
          out.assign(elsewhere([&] { return r + left; }) * r);
        });
      });
      EXPECT_EQ(out.to_vector<float>(), Floats(64, 6));
      replays_give(step, x, out, [](float v) { return 2 * v * (2 * v + 1); });
    }
  }
}

TEST_P(OnEveryDevice, HelperThreadReadsResultOfAnotherRecording) {
  const Device device = GetParam();
  Array x = Array::full({64}, 1.0, DType::f32, device).eval(), out = Array::zeros({64}, DType::f32, device), theirs;
  Sequence step;
  run_with_timeout([&] {
    step = Sequence::record(Queue::of(device), [&] {
      std::latch computed(1), read(1);
      const Array p = x * 2.0;
      auto other = std::async(std::launch::async, [&] {  // starts later and is still active
        return Sequence::record(Queue::of(device), [&] {
          theirs = Array::full({64}, 5.0, DType::f32, device).eval();
          computed.count_down();
          read.wait();
        });
      });
      computed.wait();
      const Array c = elsewhere([&] { return p + theirs; });
      out.assign(c * p);
      read.count_down();
      other.get();
    });
  });
  EXPECT_EQ(out.to_vector<float>(), Floats(64, 14));
  replays_give(step, x, out, [](float v) { return 2 * v * (2 * v + 5); });
}

TEST_P(OnEveryDevice, EarlierExpressionsAreComputedOnceOutsideRecording) {
  const Device device = GetParam();
  Queue& queue = Queue::of(device);
  for (int way = 0; way < 5; ++way) {
    SCOPED_TRACE(way);
    Array x = Array::full({64}, 1.0, DType::f32, device).eval(), y = Array::full({64}, 2.0, DType::f32, device).eval();
    Array out = Array::zeros({64}, DType::f32, device);
    Array before = x * 2.0 + 1.0, also = x * 5.0;  // their values are 3 and 5 at this point
    ASSERT_TRUE(before.pending());
    Sequence step;
    run_with_timeout([&] {
      step = Sequence::record(queue, [&] {
        const Array p = y * 2.0;
        if (way == 0) out.assign(p * before);
        if (way == 1) out.assign(before * p);
        if (way == 2) out.assign((p + also) * before + p - p - also * before);   // two pending arrays
        if (way == 3) out.assign(max((p + 0.0) * (before + 0.0), {0}, true));    // inside a reduction
        if (way == 4) out.assign(max(std::exchange(before, Array()), {0}) * p);  // the whole operand of a reduction
      });
    });
    for (const float v : {2.f, 7.f}) {
      if (v != 2) {
        x.fill(v), y.fill(v), out.fill(-1);
        step.replay();
      }
      EXPECT_EQ(out.to_vector<float>(), Floats(64, 2 * v * 3));
    }
    EXPECT_EQ(before.to_vector<float>(), way == 4 ? Floats{} : Floats(64, 3));
    EXPECT_EQ(also.to_vector<float>(), Floats(64, 5));
  }
}

TEST_P(OnEveryDevice, RecordingsReadingEachOthersArraysDoNotDeadlock) {
  const Device device = GetParam();
  const Array x = Array::full({64}, 3.0, DType::f32, device).eval();
  for (int round = 0; round < 200; ++round) {
    std::latch deferred(2);
    Array made[2], out[2] = {Array::zeros({64}, DType::f32, device), Array::zeros({64}, DType::f32, device)};
    run_with_timeout([&] {
      const auto record = [&](int me) {
        const auto step = Sequence::record(Queue::of(device), [&] {
          made[me] = x * 2.0;
          const Array mine = made[me] + 1.0;
          deferred.arrive_and_wait();
          out[me].assign(mine * made[1 - me] + made[me]);
        });
      };
      auto other = std::async(std::launch::async, record, 1);
      record(0);
      other.get();
    });
    for (const Array& o : out) EXPECT_EQ(o.to_vector<float>(), Floats(64, 48));
  }
}

TEST_P(OnEveryDevice, RotaryIsRecordedOnFirstUse) {
  const Rotary how{.dimensions = 12, .base = 4321.5f};  // the table of angles is created inside of rotary()
  Array x = Array::from(numbers(5 * 3 * 16), Shape{5, 3, 16}), turned = Array::zeros({5, 3, 16});
  const Sequence made = Sequence::record(queue(), [&] { turned.assign(rotary(x, 7, how)); });
  Sequence step = Sequence::record(queue(), [&] { turned.assign(rotary(x, 7, how)); });
  EXPECT_EQ(made.size(), step.size()) << "a replay does not recreate the table";
  EXPECT_EQ(turned.to_vector<float>(), rotary(x, 7, how).to_vector<float>());
  x.assign(Array::from(numbers(5 * 3 * 16), Shape{5, 3, 16}));
  turned.fill(0);
  step.replay();
  const Floats got = turned.to_vector<float>(), in = x.to_vector<float>();
  EXPECT_EQ(got, rotary(x, 7, how).to_vector<float>());
  for (std::size_t i = 0; i < got.size(); i += 16) {
    // The first pair is rotated by one turn per 2 pi.
    const double angle = 7 + static_cast<double>(i / 48), a = in[i], b = in[i + 1];
    EXPECT_NEAR(got[i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
    EXPECT_NEAR(got[i + 1], a * std::sin(angle) + b * std::cos(angle), 1e-5);
    for (std::size_t rest = 12; rest < 16; ++rest) EXPECT_EQ(got[i + rest], in[i + rest]);
  }
}

TEST_P(OnEveryDevice, ReplayIsOrderedWithOtherQueues) {
  Queue other(current_device());
  const std::int64_t n = 4096;
  Array x = Array::full({n}, 0), y = Array::zeros({n}), sum = Array::zeros({n});
  Sequence step = Sequence::record(queue(), [&] { launch(x, y, 1, 0); });
  float want = 0;
  for (int i = 1; i <= 10; ++i) {
    const Floats fresh(static_cast<std::size_t>(n), static_cast<float>(i));
    other.upload(x.view_for_writing(), fresh.data());  // the next replay reads it
    step.replay();
    want += static_cast<float>(i);
    Floats got(static_cast<std::size_t>(n));
    other.download(got.data(), y.view());  // must wait for the replay
    ASSERT_EQ(got, Floats(static_cast<std::size_t>(n), want)) << i;
  }
  // A sequence on the other queue, which is the current queue during recording. Each queue reads what replays on the
  // other queue write.
  Sequence back = Sequence::record(other, [&] { launch(y, sum, 1, 0); });
  float total = want;
  for (int i = 0; i < 10; ++i) {
    step.replay();
    back.replay();
    want += 10, total += want;
  }
  EXPECT_EQ(sum.to_vector<float>(), Floats(static_cast<std::size_t>(n), total));
}

TEST_P(OnEveryDevice, RecordingKeepsItsMemoryUntilDestroyed) {
  const Array x = Array::full({50000}, 1.5);
  Array y = Array::zeros({50000});
  const std::uint64_t before = memory_stats(GetParam()).live_bytes;
  {
    Sequence step = Sequence::record(queue(), [&] {
      Array a = (x + 1).eval();
      Array b = (a * 2).eval();
      y.assign(b + 0.5);
    });
    EXPECT_GE(memory_stats(GetParam()).live_bytes, before + 400000);
    for (int i = 0; i < 5; ++i) {
      // New arrays never use memory of the recording.
      Array noise = Array::full({50000}, -1);
      step.replay();
      EXPECT_EQ(noise.to_vector<float>()[4711], -1);
      EXPECT_EQ(y.to_vector<float>()[4711], 5.5f);
    }
    step.replay();
    step.replay();
  }  // destroyed while replays may be running
  Array noise = Array::full({50000}, -1);
  EXPECT_EQ(y.to_vector<float>(), Floats(50000, 5.5f));
  EXPECT_EQ(noise.to_vector<float>(), Floats(50000, -1));
  noise = Array();
  EXPECT_LE(memory_stats(GetParam()).live_bytes, before);
}

TEST_P(OnEveryDevice, RejectsWorkThatCannotBeReplayed) {
  Array x = Array::full({16}, 2), y = Array::zeros({16});
  Queue other(current_device());
  const Device elsewhere{Backend::interp, 0};
  const auto refused = [&](const std::function<void()>& work, std::vector<std::string> words) {
    y.fill(0);
    expect_throw<ArgumentError>(
        [&] {
          Sequence::record(queue(), [&] {
            y += x;
            work();
          });
        },
        words);
    EXPECT_EQ(y.to_vector<float>(), Floats(16, 2)) << "earlier work is not undone";
    y += x;  // the queue stays usable
    EXPECT_EQ(y.to_vector<float>(), Floats(16, 4));
  };
  refused([&] { y.to_vector<float>(); }, {"download", "recording a Sequence"});
  refused([&] { Array::from({1.0f, 2.0f}); }, {"upload", "recording a Sequence", "before"});
  refused([&] { queue().finish(); }, {"finish", "recording a Sequence"});
  refused([&] { Sequence::record(queue(), [] {}); }, {"Sequence::record"});
  refused([&] { other.fill(y.view_for_writing(), 0); }, {"fill", "a different queue"});
  refused([&] { queue().submit_native("mine", {}, {}, [](void*) {}); }, {"submit_native"});
  const Event before = other.record();
  refused([&] { queue().record(); }, {"Queue::record", "recording a Sequence"});
  refused([&] { queue().wait(before); }, {"Queue::wait", "recording a Sequence"});
  refused([&] { before.wait(); }, {"waiting for an event", "recording a Sequence"});
  if (GetParam() != elsewhere) refused([&] { x.to(elsewhere); }, {"recording a Sequence"});
  Sequence step = Sequence::record(queue(), [&] { y += x; });
  refused([&] { step.replay(); }, {"Sequence::replay"});
  expect_throw<ArgumentError>([] { Sequence().replay(); }, {"replay", "empty"});
  // Exceptions of the work propagate unchanged.
  expect_throw<ShapeError>([&] { Sequence::record(queue(), [&] { y += Array::zeros({17}); }); }, {"17"});
  Sequence nothing = Sequence::record(queue(), [] {});
  EXPECT_EQ(nothing.size(), 0u);
  nothing.replay();
}

TEST_P(OnEveryDevice, RecordOrRunRunsUnreplayableWorkExactlyOnce) {
  Array x = Array::full({16}, 2), y = Array::zeros({16});
  Generator generator(3);
  Array drawn;
  int calls = 0;
  std::string why;
  const Sequence none = Sequence::record_or_run(
      queue(),
      [&] {
        ++calls;
        y += x;
        drawn = generator.uniform({16});
        const Array doubled = (y * 2 + drawn * 0).eval();
        y += doubled.to_vector<float>()[3];  // 4
        y += Array::from({1.0f});
      },
      why);
  EXPECT_FALSE(none.valid());
  expect_contains(why, {"recording a Sequence"});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(y.to_vector<float>(), Floats(16, 7));
  EXPECT_EQ(drawn.to_vector<float>(), Generator(3).uniform({16}).to_vector<float>());
  EXPECT_EQ(generator.offset(), 4u);
  y += x;
  EXPECT_EQ(y.to_vector<float>(), Floats(16, 9));
}

TEST_P(OnEveryDevice, ReplaysAdvanceGeneratorsThatOutliveTheRecording) {
  Generator generator(3), wanted(3);
  Array y = Array::empty({10}), z = Array::empty({4}), fixed = Array::empty({4});
  Sequence step = Sequence::record(queue(), [&] {
    y.assign(generator.uniform({10}));
    z.assign(generator.normal({4}));
    fixed.assign(Generator(8).uniform({4}));
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(y.to_vector<float>(), wanted.uniform({10}).to_vector<float>()) << i;
    EXPECT_EQ(z.to_vector<float>(), wanted.normal({4}).to_vector<float>()) << i;
    EXPECT_EQ(fixed.to_vector<float>(), Generator(8).uniform({4}).to_vector<float>()) << i;
    EXPECT_EQ(generator, wanted) << i;
    if (i == 1) generator.bits({5}), wanted.bits({5});
    if (i == 2) generator = Generator(11), wanted = Generator(11);
    step.replay();
  }
  // A failed recording resets generators, so that the work can be repeated.
  const Generator before = generator;
  EXPECT_THROW(Sequence::record(queue(),
                                [&] {
                                  generator.uniform({10}).eval();
                                  y.to_vector<float>();
                                }),
               ArgumentError);
  EXPECT_EQ(generator, before);
}

TEST_P(OnEveryDevice, RecordAgainReportsFirstDifference) {
  Array x = Array::full({16}, 2), other = Array::full({16}, 3), y = Array::zeros({16});
  Generator generator(3);
  double factor = 0.5;
  int rows = 8, more = 0;
  const Array* from = &x;
  const auto work = [&] {
    y += *from * factor + generator.uniform({16});
    y.slice(0, 0, rows) *= 2.0;
    for (int i = 0; i < more; ++i) y += x;
  };
  const auto differs = [&](const std::function<void()>& change, std::vector<std::string> words) {
    Sequence step = Sequence::record(queue(), work);
    EXPECT_EQ(step.record_again(work), "");
    EXPECT_TRUE(step.valid());
    step.replay();
    const Floats before = y.to_vector<float>();
    const std::uint64_t offset = generator.offset();
    change();
    expect_contains(step.record_again(work), words);
    EXPECT_FALSE(step.valid());
    EXPECT_NE(y.to_vector<float>(), before) << "the work was done";
    EXPECT_EQ(generator.offset(), offset + 4);
  };
  differs([&] { factor = 0.25; }, {"= 0.25 instead of 0.5"});
  differs([&] { rows = 4; }, {"was launched with a different shape"});
  differs([&] { from = &other; }, {"used different memory"});
  differs([&] { more = 1; }, {"it launched", "instead of"});
  expect_throw<ArgumentError>([] { Sequence().record_again([] {}); }, {"empty"});
  // An exception leaves the sequence and the generator unchanged.
  Sequence step = Sequence::record(queue(), work);
  const Generator before = generator;
  EXPECT_THROW(step.record_again([&] { work(), y += Array::zeros({17}); }), ShapeError);
  EXPECT_EQ(generator, before);
  step.replay();
  EXPECT_EQ(generator.offset(), before.offset() + 4);
}

TEST_P(OnEveryDevice, ReplaysAreCountedAndVerified) {
  const Array x = Array::full({32}, 1), y = Array::zeros({32}), z = Array::zeros({32});
  Sequence step = Sequence::record(queue(), [&] {
    launch(x, y, 1, 0);
    launch(x, y, 1, 0);
    queue().copy(z.view_for_writing(), y.view());
  });
  Placement scope;
  for (int i = 0; i < 3; ++i) step.replay();
  const PlacementLog log = scope.log();
  ASSERT_EQ(log.kernels.size(), 1u) << to_string(log);
  EXPECT_EQ(log.kernels[0].kernel, "sequence_axpy");
  EXPECT_EQ(log.kernels[0].launches, 6u);
  ASSERT_EQ(log.copies.size(), 1u) << to_string(log);
  EXPECT_EQ(log.copies[0].within_count, 3u);
  EXPECT_EQ(log.copies[0].within_bytes, 3u * 128u);
  {
    const Placement strict = Placement::strict({GetParam()});
    step.replay();
  }
  const Device elsewhere = GetParam().backend == Backend::interp ? Device{} : Device{Backend::interp, 0};
  {
    const Placement strict = Placement::strict({elsewhere});
    expect_throw<DeviceError>([&] { step.replay(); }, {"replay", to_string(GetParam())});
  }
  EXPECT_EQ(z.to_vector<float>(), Floats(32, 10));
  // verify_on intercepts each launch of a replay.
  const VerifyReport report = verify_on(elsewhere, [&] { step.replay(); });
  ASSERT_EQ(report.kernels.size(), 1u) << to_string(report);
  EXPECT_EQ(report.kernels[0].launches, 2u);
  EXPECT_TRUE(report.agrees()) << to_string(report);
  EXPECT_EQ(z.to_vector<float>(), Floats(32, 12));
}

TEST_P(OnEveryDevice, ReplayThrowsAfterQueueIsDestroyed) {
  const Array x = Array::full({8}, 1), y = Array::zeros({8});
  Sequence step;
  EXPECT_FALSE(step.valid());
  {
    Queue own(current_device());
    step = Sequence::record(own, [&] { own.fill(y.view_for_writing(), 0x3f800000); });
    step.replay();
  }
  expect_throw<ArgumentError>([&] { step.replay(); }, {"queue", "destroyed"});
  EXPECT_EQ(y.to_vector<float>(), Floats(8, 1));
}

}  // namespace
}  // namespace tessera
