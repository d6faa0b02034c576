// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "clock.h"
#include "tessera/tessera.h"

namespace tessera::app {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the time of the fastest run. Repeats for about half a second.
double best_of(const std::function<void()>& work) {
  double best = INFINITY, total = 0;
  for (int i = 0; i < 20 && (i < 2 || total < 0.5); ++i) {
    const double s = seconds_of(work);
    best = std::min(best, s);
    total += s;
  }
  return best;
}

constexpr int chains = 8, steps = 256;

void compute(Device device, Figures& f) {
  const DeviceScope scope(device);
  Queue& queue = Queue::of(device);
  const auto copy =
      kernel("doctor_copy", [](Buffer<const float> x, Buffer<float> y) { y[global_id()] = x[global_id()]; });
  // The number of independent chains is large enough to hide the latency of a multiply-add.
  const auto fmas = kernel("doctor_fma", [](Buffer<float> y, Val<float> by, Val<float> plus) {
    std::vector<Var<float>> values;
    for (int c = 0; c < chains; ++c) values.emplace_back(cast<float>(global_id()) * 0.0f + static_cast<float>(c));
    for_(0, steps, [&](Val<Index>) {
      for (auto& v : values) v = fma(v, by, plus);
    });
    Var<float> sum = 0.0f;
    for (const auto& v : values) sum += v;
    y[global_id()] = sum;
  });

  bool right = true;
  std::int64_t n = 1 << 16;
  const auto expect = [&](double got, double wanted) {
    right = right && std::abs(got - wanted) <= 1e-4 * std::abs(wanted);
  };
  {
    const std::vector<float> numbers(static_cast<std::size_t>(n), 1.5f);
    const DeviceBuffer<float> x(numbers);
    DeviceBuffer<float> y(n);
    f.compile_seconds = seconds_of([&] {
      copy.launch({n}, x, y);
      queue.finish();
    });
    expect(y.to_vector().back(), 1.5);
  }
  // Increase the size until a launch takes long enough to be measured, but use at most a small part of the memory.
  const std::int64_t most =
      std::min<std::int64_t>(std::int64_t{1} << 26, static_cast<std::int64_t>(free_memory(device) / 64));
  for (double time = 0; time < 0.01 && n < most;) {
    n = std::min(4 * n, most);
    const DeviceBuffer<float> x(n);
    DeviceBuffer<float> y(n);
    queue.fill(x.view(), 0x3f800000);
    time = best_of([&] {
      copy.launch({n}, x, y);
      queue.finish();
    });
    f.copy_bytes = 8.0 * static_cast<double>(n) / time;
  }
  std::int64_t threads = 1 << 12;
  for (double time = 0; time < 0.02 && threads <= (1 << 24); threads *= 4) {
    DeviceBuffer<float> y(threads);
    const auto launch = [&] {
      fmas.launch({threads}, y, 0.5f, 1.0f);
      queue.finish();
    };
    launch();
    time = best_of(launch);
    f.fma_operations = 2.0 * chains * steps * static_cast<double>(threads) / time;
    expect(y.to_vector().back(), 2.0 * chains);  // v / 2 + 1 converges to 2
  }
  // Choose a size for which the matrix product takes roughly a tenth of a second.
  std::int64_t size = 128;
  while (size < 4096 && 16.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) <
                            0.05 * f.fma_operations)
    size *= 2;
  const Array a = Array::full({size, size}, 0.5), b = Array::full({size, size}, 2.0);
  const auto product = [&] {
    Array c = matmul(a, b);
    c.eval();
    queue.finish();
  };
  product();
  f.product_operations = 2.0 * std::pow(static_cast<double>(size), 3) / best_of(product);
  f.product_size = size;
  expect(matmul(a, b).to_vector<float>().back(), static_cast<double>(size));
  f.right = right;
}

}  // namespace

Figures measure(Device device, std::chrono::seconds limit) {
  struct Shared {
    std::mutex lock;
    std::condition_variable changed;
    Figures figures;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, device] {
    Figures f;
    try {
      compute(device, f);
    } catch (const std::exception& e) {
      f.error = e.what();
    }
    std::lock_guard hold(shared->lock);
    shared->figures = f;
    shared->figures.ended = true;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock hold(shared->lock);
  shared->changed.wait_for(hold, limit, [&] { return shared->figures.ended; });
  return shared->figures;
}

}  // namespace tessera::app
