// SPDX-License-Identifier: Apache-2.0
// Memory of recordings on every device. Released memory is reused as it is without a recording, and recordings on one
// queue can share a pool. A fake driver detects missing ordering between two uses of a block regardless of timing.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <latch>
#include <random>

#include "tessera/array/array.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/run_with_timeout.h"

namespace tessera {
namespace {

using test::expect_throw;
using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

using Floats = std::vector<float>;
constexpr std::int64_t n = 20000;       // number of floats in an array
constexpr std::uint64_t block = 81920;  // size of such an array in the pool, in bytes

Queue& queue() { return Queue::of(current_device()); }
Array full(double value, std::int64_t size = n) { return Array::full({size}, value).eval(); }

/// Returns the maximum of live memory during `work`, minus the live memory before it.
std::uint64_t peak(const std::function<void()>& work) {
  queue().finish();
  trim(current_device());
  reset_peak_memory(current_device());
  const std::uint64_t before = memory_stats(current_device()).peak_bytes;
  work();
  return memory_stats(current_device()).peak_bytes - before;
}
std::uint64_t live() { return memory_stats(current_device()).live_bytes; }

/// Adds 1 to x 32 times. Each result is in its own memory.
Array chain(const Array& x) {
  Array y = x;
  for (int i = 0; i < 32; ++i) y = (y + 1).eval();
  return y;
}

TEST_P(OnEveryDevice, RecordedChainNeedsNoExtraMemory) {
  Array x = full(1), out = full(0), kept;
  const std::function<void()> works[] = {[&] { out.assign(chain(x)); }, [&] { kept = chain(x); }};
  for (const auto& work : works) {
    kept = Array();
    const std::uint64_t eager = peak(work);
    kept = Array();
    Sequence step;
    const std::uint64_t recorded = peak([&] {
      step = Sequence::record(queue(), work);
      for (const double v : {5., 6.}) {
        x.fill(v);
        step.replay();
        EXPECT_EQ((kept.size() ? kept : out).to_vector<float>(), Floats(n, static_cast<float>(v) + 32));
      }
    });
    EXPECT_GE(eager, 2 * block);
    EXPECT_LE(recorded, eager);
    EXPECT_GE(step.size(), 32u);
    x.fill(1);
  }
}

TEST_P(OnEveryDevice, RecordedUserKernelsNeedNoExtraMemory) {
  const auto next = kernel("sequence_next", [](Buffer<const float> from, Buffer<float> to) {
    const auto i = global_id();
    to[i] = from[i] + 1;
  });
  DeviceBuffer<float> x(n), out(n);
  const auto work = [&] {
    DeviceBuffer<float> y(n);
    next.launch({n}, x, y);
    for (int i = 0; i < 30; ++i) {
      DeviceBuffer<float> z(n);
      next.launch({n}, y, z);
      y = z;
    }
    next.launch({n}, y, out);
  };
  const std::uint64_t eager = peak(work);
  Sequence step;
  EXPECT_LE(peak([&] { step = Sequence::record(queue(), work); }), eager);
  EXPECT_EQ(eager, 2 * block);
  x.fill(3);
  step.replay();
  Floats got(n);
  out.download(got);
  EXPECT_EQ(got, Floats(n, 35));
}

TEST_P(OnEveryDevice, RecordingsSharingAPoolUseTheMemoryOfOne) {
  Array x = full(1), out[3] = {full(0), full(0), full(0)};
  const auto work = [&](int i) { out[i].assign(chain(x) * (i + 1.0)); };
  std::uint64_t one = peak([&] { Sequence::record(queue(), [&] { work(0); }); });
  EXPECT_GE(one, 2 * block);
  const SequencePool pool;
  Sequence steps[3];
  EXPECT_LE(peak([&] {
              for (int i = 0; i < 3; ++i)
                steps[i] = Sequence::record(
                    queue(), [&] { work(i); }, pool);
              for (const double v : {7., 8.}) {
                x.fill(v);
                for (auto& step : steps) step.replay();
                for (auto& step : steps) step.replay();  // all of them run concurrently
                for (int i = 0; i < 3; ++i)
                  EXPECT_EQ(out[i].to_vector<float>(), Floats(n, (static_cast<float>(v) + 32) * (i + 1.f)));
              }
            }),
            one);
  // Work on smaller arrays can use the blocks of larger ones.
  const Array small = full(2, n / 4);
  Array small_out = full(0, n / 4);
  Sequence little;
  EXPECT_EQ(peak([&] {
              little = Sequence::record(
                  queue(), [&] { small_out.assign(chain(small)); }, pool);
            }),
            0u);
  steps[0].replay();
  little.replay();
  steps[1].replay();
  EXPECT_EQ(small_out.to_vector<float>(), Floats(n / 4, 34));
  EXPECT_EQ(out[1].to_vector<float>(), Floats(n, 80));
  // Unneeded blocks are freed although the pool still exists.
  const std::uint64_t with = live();
  for (auto& step : steps) step = Sequence();
  EXPECT_EQ(live(), with) << "needed by the smaller work";
  little.replay();
  little = Sequence();  // may still be running
  EXPECT_EQ(live(), with - 2 * block);
  EXPECT_EQ(small_out.to_vector<float>(), Floats(n / 4, 34));
  steps[0] = Sequence::record(
      queue(), [&] { work(0); }, pool);
  steps[0].replay();
  EXPECT_EQ(live(), with);
  EXPECT_EQ(out[0].to_vector<float>(), Floats(n, 40));
}

TEST_P(OnEveryDevice, PoolIsFreedWithItsLastSequence) {
  const Array x = full(1);
  Array out = full(0);
  const std::uint64_t before = live();
  Sequence one, two;
  {
    const SequencePool pool;
    one = Sequence::record(
        queue(), [&] { out.assign(chain(x)); }, pool);
    two = Sequence::record(
        queue(), [&] { out.assign(chain(x)); }, pool);
  }
  EXPECT_EQ(live(), before + 2 * block);
  one = Sequence();
  two.replay();
  EXPECT_EQ(live(), before + 2 * block);
  two.replay();
  two = Sequence();  // may still be running
  const Array noise = full(-1);
  EXPECT_EQ(live(), before + block);
  EXPECT_EQ(noise.to_vector<float>(), Floats(n, -1));
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 33));
}

TEST_P(OnEveryDevice, MemoryThatOutlivesRecordingIsNotShared) {
  const SequencePool pool;
  Array x = full(1), out = full(0), a, b;
  Sequence first = Sequence::record(
      queue(), [&] { out.assign(chain(x)); }, pool);
  const std::uint64_t alone = live();
  Sequence make_a = Sequence::record(
      queue(), [&] { a = (chain(x) + 100).eval(); }, pool);
  Sequence make_b = Sequence::record(
      queue(), [&] { b = (chain(x) + 200).eval(); }, pool);
  const bool one_call = first.one_call();
  const auto check = [&](float v, const char* when) {
    EXPECT_EQ(out.to_vector<float>(), Floats(n, v + 32)) << when;
    EXPECT_EQ(a.to_vector<float>(), Floats(n, v + 132)) << when;
    EXPECT_EQ(b.to_vector<float>(), Floats(n, v + 232)) << when;
  };
  check(1, "recorded");
  float v = 10;
  for (const auto& order : {std::array{&first, &make_a, &make_b}, std::array{&make_b, &make_a, &first},
                            std::array{&make_a, &first, &make_b}}) {
    x.fill(++v);
    for (Sequence* s : order) s->replay();
    check(v, "replayed");
  }
  EXPECT_EQ(live(), alone + 2 * block) << "each took one of the first sequence's blocks";
  EXPECT_EQ(first.one_call(), one_call) << "the graph is recreated for the new memory";
  // This does not affect later sequences or other uses of the arrays.
  Sequence last = Sequence::record(
      queue(), [&] { out.assign(chain(x * 2)); }, pool);
  a.fill(-5);
  b += a;
  for (Sequence* s : {&last, &first, &last}) s->replay();
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 2 * v + 32));
  EXPECT_EQ(a.to_vector<float>(), Floats(n, -5));
  EXPECT_EQ(b.to_vector<float>(), Floats(n, v + 227));
  // The memory of `a` and `b` outlives all recordings.
  for (Sequence* s : {&first, &make_a, &make_b, &last}) *s = Sequence();
  const Array noise[] = {full(-1), full(-1), full(-1), full(-1)};
  EXPECT_EQ(a.to_vector<float>(), Floats(n, -5));
  EXPECT_EQ(b.to_vector<float>(), Floats(n, v + 227));
  EXPECT_EQ(noise[3].to_vector<float>(), Floats(n, -1));
}

TEST_P(OnEveryDevice, ExistingMemoryIsNotReusedIfRecordingReleasesIt) {
  Array before = full(3), out = full(0);
  Sequence step = Sequence::record(queue(), [&] {
    Array y = (before + 1).eval();
    before = Array();
    for (int i = 0; i < 8; ++i) y = (y * 2).eval();  // would reuse the memory if that were allowed
    out.assign(y);
  });
  for (int i = 0; i < 3; ++i) {
    out.fill(0);
    step.replay();
    EXPECT_EQ(out.to_vector<float>(), Floats(n, 4 * 256));
  }
}

TEST_P(OnEveryDevice, MemoryFilledOutsideRecordingIsNotReused) {
  // Allocated during the recording, but its contents are not written by recorded work.
  Array in, sum, out = full(0), other = full(0);
  Sequence step = Sequence::record(queue(), [&] {
    chain(full(0));
    in = Array::empty({n});
    sum = Array::empty({n});
    Array gone = Array::empty({n});
    std::async(std::launch::async, [&] { gone.fill(11); }).get();
    other.assign(gone);
    gone = Array();
    chain(full(0));
    out.assign(chain(in));
    sum += in;
  });
  sum.fill(0);
  float want = 0;
  for (const float v : {2.f, 3.f, 4.f}) {
    in.fill(v);
    step.replay();
    EXPECT_EQ(out.to_vector<float>(), Floats(n, v + 32));
    EXPECT_EQ(sum.to_vector<float>(), Floats(n, want += v));
    EXPECT_EQ(other.to_vector<float>(), Floats(n, 11));
  }
}

TEST_P(OnEveryDevice, AllocationsOfOtherThreadsAreNotRecorded) {
  Array x = full(1), out = full(0), theirs;
  std::latch allocated(1), read(1);
  Sequence step = Sequence::record(queue(), [&] {
    const Device device = current_device();
    auto other = std::async(std::launch::async, [&] {
      const DeviceScope scope(device);
      theirs = full(7);
      full(8);  // released immediately
      allocated.count_down();
      read.wait();
      // Used on another queue while the recording releases it.
      Queue own(device);
      const QueueScope with(own);
      return (theirs + 1).eval();
    });
    allocated.wait();
    Array mine = (x + theirs).eval();
    read.count_down();
    const Array seen = other.get();
    for (int i = 0; i < 4; ++i) mine = (mine + 1).eval();
    out.assign(mine);
  });
  const std::uint64_t with = live();
  theirs = Array();
  EXPECT_EQ(live(), with) << "read by the recording";
  for (const float v : {4.f, 5.f}) {
    x.fill(v);
    step.replay();
    EXPECT_EQ(out.to_vector<float>(), Floats(n, v + 11));
  }
}

TEST_P(OnEveryDevice, WaitsForReadsOnAnotherQueue) {
  Queue other(GetParam());
  const Array x = full(1);
  Array out = full(0), seen = full(0), seen_last = full(0);
  const auto copy = [&](const Array& to, const Array& from) {
    std::async(std::launch::async, [&] { other.copy(to.view_for_writing(), from.view()); }).get();
  };
  Sequence step = Sequence::record(queue(), [&] {
    Array y = (x + 1).eval();
    copy(seen, y);
    y = Array();
    y = chain(x);  // in the memory that is still being copied
    out.assign(y);
    copy(seen_last, y);
  });
  step.replay();  // same for the replay
  EXPECT_EQ(seen.to_vector<float>(), Floats(n, 2));
  EXPECT_EQ(seen_last.to_vector<float>(), Floats(n, 33));
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 33));
}

TEST_P(OnEveryDevice, UsesOfAnArrayInTwoRecordingsAreOrdered) {
  Queue other(GetParam());
  Array in = full(1), made, out = full(0);
  Sequence first = Sequence::record(queue(), [&] { made = chain(in); });
  Sequence second = Sequence::record(other, [&] {
    out.assign(made + 1);
    made = Array();  // only the first sequence uses it, without holding a reference to it
  });
  for (float v = 5; v < 10; ++v) {
    in.fill(v);
    first.replay();
    second.replay();
    first.replay();  // must wait until the second sequence has read it
    EXPECT_EQ(out.to_vector<float>(), Floats(n, v + 33));
  }
}

TEST_P(OnEveryDevice, AllSequencesWaitForReadsOfPoolMemory) {
  Queue other(GetParam());
  const SequencePool pool;
  const Array x = full(1);
  Array out = full(0), seen = full(0);
  const Array busy = full(0);
  const auto elsewhere = [&](const std::function<void()>& work) {
    std::async(std::launch::async, [&] {
      for (int i = 0; i < 50; ++i) other.fill(busy.view(), 0);  // delays the work below
      work();
    }).get();
  };
  Sequence step = Sequence::record(
      queue(), [&] { out.assign(chain(x)); }, pool);
  const auto fails = [&] {
    Array y = (x + 1).eval();
    elsewhere([&] { other.copy(seen.view_for_writing(), y.view()); });
    y = Array();
    x.to_vector<float>();
  };
  const auto records_nothing = [&] {
    const Array y = Array::empty({n});
    elsewhere([&] {
      other.fill(y.view_for_writing(), 0x40000000);
      other.copy(seen.view_for_writing(), y.view());
    });
  };
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0)
      expect_throw<ArgumentError>([&] { Sequence::record(queue(), fails, pool); }, {"download"});
    else
      EXPECT_EQ(Sequence::record(queue(), records_nothing, pool).size(), 0u);
    step.replay();
    EXPECT_EQ(seen.to_vector<float>(), Floats(n, 2));
    EXPECT_EQ(out.to_vector<float>(), Floats(n, 33));
    seen.fill(0);
  }
}

TEST_P(OnEveryDevice, DetachedBlocksAreNotOversized) {
  const SequencePool pool;
  const Array x = full(1), few = full(1, 4);
  Array out = full(0), kept;
  Sequence first = Sequence::record(
      queue(), [&] { out.assign(chain(x)); }, pool);
  const std::uint64_t with = live();
  Sequence second = Sequence::record(
      queue(), [&] { kept = (few + 1).eval(); }, pool);
  first.replay();
  EXPECT_EQ(live(), with + 256) << "a small array took a whole block";
  second = Sequence::record(
      queue(), [&] { kept = (x + 1).eval(); }, pool);
  EXPECT_EQ(live(), with);
  second = Sequence();
  kept = Array();
  EXPECT_EQ(live(), with - block) << "kept by a sequence that does not use it";
  first.replay();
  EXPECT_EQ(live(), with);
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 33));
}

/// Runs random operations on arrays of a few sizes with random lifetimes.
void random_work(std::uint64_t seed, const std::vector<Array>& inputs, std::vector<Array>& results) {
  std::mt19937_64 random(seed);
  std::vector<Array> alive = inputs;
  const auto any = [&](std::int64_t size) -> const Array& {
    for (;;)
      if (const Array& a = alive[random() % alive.size()]; a.size() == size) return a;
  };
  for (int i = 0; i < 60; ++i) {
    const std::int64_t size = inputs[random() % inputs.size()].size();
    Array made;
    switch (random() % 5) {
      case 0: made = (any(size) * 0.5 + any(size)).eval(); break;
      case 1: made = any(size).copy().eval(); break;
      case 2: {
        made = Array::full({size}, static_cast<double>(random() % 100)).eval();
        made += any(size);
        break;
      }
      case 3: made = (sum(any(inputs[0].size())) * 1e-6 + any(size)).eval(); break;
      default: {
        made = Array::zeros({size});
        made.slice(0, 0, size / 2).assign(any(size).slice(0, size - size / 2, size));
        made = (made - any(size)).eval();
        break;
      }
    }
    alive.push_back(made);
    while (alive.size() > inputs.size() + 1 && random() % 5 < 2)
      alive.erase(alive.begin() +
                  static_cast<std::ptrdiff_t>(inputs.size() + random() % (alive.size() - inputs.size())));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i % 2 == 0)
      results[i] = (any(results[i].size()) + 1).eval();  // outlives the recording
    else
      results[i].assign(any(results[i].size()));
  }
}

TEST_P(OnEveryDevice, ReplayOfRandomWorkIsBitIdentical) {
  const SequencePool pool;
  const std::int64_t sizes[] = {3000, 1000, 2900};
  std::vector<Array> inputs;
  for (const auto size : sizes) inputs.push_back(Array::from(numbers(size)));
  struct Recorded {
    std::uint64_t seed;
    std::vector<Array> results;
    Sequence step;
  };
  const auto outputs = [&] {
    std::vector<Array> made;
    for (int i = 0; i < 4; ++i) made.push_back(full(0, sizes[i % 3]));
    return made;
  };
  std::vector<Recorded> all;
  for (int i = 0; i < 6; ++i) {
    Recorded& r = all.emplace_back(Recorded{.seed = random(), .results = outputs(), .step = {}});
    const auto work = [&] { random_work(r.seed, inputs, r.results); };
    r.step = i % 3 == 2 ? Sequence::record(queue(), work) : Sequence::record(queue(), work, pool);
  }
  for (int round = 0; round < 3; ++round) {
    for (Array& x : inputs) x.assign(Array::from(numbers(x.size())));
    for (int i = 0; i < 8; ++i) all[random() % all.size()].step.replay();
    for (Recorded& r : all) r.step.replay();
    for (Recorded& r : all) {
      std::vector<Array> want = outputs();
      random_work(r.seed, inputs, want);
      for (std::size_t k = 0; k < want.size(); ++k)
        ASSERT_EQ(r.results[k].to_vector<float>(), want[k].to_vector<float>())
            << "result " << k << " of work " << r.seed << ", seed " << testing::seed();
    }
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(random() % all.size()));
  }
}

TEST_P(OnEveryDevice, VerifyOnChecksLaunchesOfReplay) {
  const Array x = full(1), wide = full(2, n + n / 8);
  Array out = full(0), wide_out = full(0, n + n / 8), kept;
  Sequence step = Sequence::record(queue(), [&] {
    wide_out.assign((wide + 1).eval());
    kept = (x + 66).eval();  // uses a block of the wider array
    out.assign(chain((x + 1).eval()));
  });
  const Device reference = GetParam().backend == Backend::interp ? Device{} : Device{Backend::interp, 0};
  out.fill(0);
  const VerifyReport report = verify_on(reference, [&] { step.replay(); });
  EXPECT_TRUE(report.agrees()) << to_string(report);
  std::uint64_t launches = 0;
  for (const auto& k : report.kernels) launches += k.launches;
  EXPECT_GE(launches, 34u);
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 34));
  EXPECT_EQ(kept.to_vector<float>(), Floats(n, 67));
  EXPECT_EQ(wide_out.to_vector<float>(), Floats(n + n / 8, 3));
}

TEST_P(OnEveryDevice, FailedRecordingLeavesPoolUsable) {
  const SequencePool pool;
  const Array x = full(1);
  Array out = full(0), left;
  const std::uint64_t before = live();
  expect_throw<ArgumentError>(
      [&] {
        Sequence::record(
            queue(),
            [&] {
              left = chain(x);
              chain(x).to_vector<float>();
            },
            pool);
      },
      {"download", "recording a Sequence"});
  EXPECT_EQ(live(), before + block) << "the array that outlives it";
  Sequence step = Sequence::record(
      queue(), [&] { out.assign(chain(x * 2)); }, pool);
  step.replay();
  EXPECT_EQ(left.to_vector<float>(), Floats(n, 33));
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 34));
}

TEST_P(OnEveryDevice, PoolRejectsOtherQueuesAndConcurrentThreads) {
  const SequencePool pool;
  const Array x = full(1);
  Array out = full(0), other_out = full(0);
  const auto work = [&] { out.assign(chain(x)); };
  Sequence step = Sequence::record(queue(), work, pool);
  Queue other(GetParam());
  expect_throw<ArgumentError>([&] { Sequence::record(other, work, pool); },
                              {"Sequence::record", "another queue", "separate pool for each"});
  const auto helper = [&](const std::function<void()>& use) { std::async(std::launch::async, use).get(); };
  test::run_with_timeout([&] {
    const DeviceScope scope(GetParam());
    Sequence second = Sequence::record(
        queue(),
        [&] {
          other_out.assign(chain(x));
          helper([&] {
            expect_throw<ArgumentError>([&] { step.replay(); }, {"Sequence::replay", "another thread is recording"});
          });
          helper([&] {
            expect_throw<ArgumentError>(
                [&] {
                  Sequence::record(
                      Queue::of(GetParam()), [] {}, pool);
                },
                {"Sequence::record", "another thread is recording"});
          });
        },
        pool);
    step.replay();
    second.replay();
  });
  EXPECT_EQ(out.to_vector<float>(), Floats(n, 33));
  EXPECT_EQ(other_out.to_vector<float>(), Floats(n, 33));
}

}  // namespace
}  // namespace tessera
