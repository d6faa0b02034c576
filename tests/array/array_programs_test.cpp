// SPDX-License-Identifier: Apache-2.0
// Results do not depend on when arrays are computed. Random programs produce bit-identical results (NaN equals NaN) if
// all arrays are computed at the end, after every step, or by other threads that read them in between.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <string_view>
#include <thread>

#include "tests/array/array_programs.h"
#include "tests/opencl/fragile_driver.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using namespace test;

// Threads that read the given arrays in any order.
class Readers {
 public:
  Readers() {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([this] {
        std::unique_lock hold(lock_);
        for (;;) {
          changed_.wait(hold, [&] { return ended_ || !waiting_.empty(); });
          if (waiting_.empty()) return;
          Array a = std::move(waiting_.front());
          waiting_.pop_front();
          ++reading_;
          hold.unlock();
          bytes_of(a);
          a = Array();
          hold.lock();
          --reading_;
          changed_.notify_all();
        }
      });
  }
  ~Readers() {
    {
      std::lock_guard hold(lock_);
      ended_ = true;
    }
    changed_.notify_all();
    for (auto& t : threads_) t.join();
  }
  void read(Array a) {
    std::lock_guard hold(lock_);
    waiting_.push_back(std::move(a));
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock hold(lock_);
    changed_.wait(hold, [&] { return waiting_.empty() && reading_ == 0; });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Array> waiting_;
  std::vector<std::thread> threads_;
  int reading_ = 0;
  bool ended_ = false;
};

enum class When { at_the_end, after_each_step, by_others };

std::vector<std::vector<unsigned char>> results(std::uint64_t seed, When when, std::string* steps = nullptr) {
  std::optional<Readers> readers;
  if (when == When::by_others) readers.emplace();
  std::uint64_t count = seed;
  ProgramOptions options{.seed = seed};
  options.after = [&](const Step& step, const Array& a) {
    if (steps != nullptr) {
      *steps += std::to_string(step.to) + " = " + step.operation + "(";
      for (auto n : step.from) *steps += std::to_string(n) + " ";
      for (auto n : step.numbers) *steps += "," + std::to_string(n);
      *steps += step.scalar + ") " + std::string(dtype_name(a.dtype())) + to_string(a.shape()) + "\n";
    }
    if (when == When::after_each_step) a.eval();
    if (when == When::by_others && ++count % 3 == 0) readers->read(a);
  };
  options.before_write = [&] {
    if (readers) readers->wait();
  };
  std::vector<std::vector<unsigned char>> out;
  for (const Array& a : run_program(options)) out.push_back(bytes_of(a));
  return out;
}

int programs(Device device) {
  if (const char* n = std::getenv("TESSERA_ARRAY_PROGRAMS")) return std::atoi(n);
  const char* const more = std::getenv("TESSERA_TEST_LONG");
  if (more != nullptr && std::string_view(more) == "1") return 1000;
  return device.backend == Backend::cpu || device == Device{Backend::interp, 0} ? 20 : 3;
}

TESSERA_ON_EVERY_DEVICE();

TEST_P(OnEveryDevice, ResultsDoNotDependOnWhenArraysAreEvaluated) {
  const std::uint64_t first = ends_process_for_some_kernels(GetParam()) ? 1 : testing::seed();
  for (int i = 0; i < programs(GetParam()); ++i) {
    const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
    const auto whole = results(seed, When::at_the_end);
    for (When when : {When::after_each_step, When::by_others}) {
      const auto other = results(seed, when);
      ASSERT_EQ(whole.size(), other.size());
      for (std::size_t a = 0; a < whole.size(); ++a)
        if (whole[a] != other[a]) {
          std::string steps;
          results(seed, When::at_the_end, &steps);
          FAIL() << "program of seed " << seed << " (" << i << " after TESSERA_TEST_SEED=" << first << "): array " << a
                 << " of the remaining ones differs when it is computed "
                 << (when == When::after_each_step ? "after each step" : "by other threads") << "\n"
                 << steps;
        }
    }
  }
}

}  // namespace
}  // namespace tessera
