// SPDX-License-Identifier: Apache-2.0
// Times operations of a size that suits a GPU, on the device in TESSERA_DEVICE. Prints one line per operation: name,
// microseconds, amount of work, and the unit of the work (bytes or floating-point operations).
// tools/compare_device_times_with_pytorch.py runs this program alternately with PyTorch.
//
// Usage: device [PART OF A NAME].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tessera/array/functions.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Returns the time per operation in seconds: the lowest mean over five batches of about 20 ms. Each batch ends with
/// one wait.
double time_of(Queue& queue, const std::function<void()>& operation) {
  for (int i = 0; i < 3; ++i) operation();
  queue.finish();
  auto start = Clock::now();
  operation(), queue.finish();
  const int count = static_cast<int>(std::clamp(0.02 / seconds_since(start), 1.0, 2000.0));
  double best = 1e9;
  for (int batch = 0; batch < 5; ++batch) {
    start = Clock::now();
    for (int i = 0; i < count; ++i) operation();
    queue.finish();
    best = std::min(best, seconds_since(start) / count);
  }
  return best;
}

struct Benchmark {
  Queue& queue;
  std::string part;

  bool selects(const std::string& name) const { return name.find(part) != std::string::npos; }
  void print(const std::string& name, double work, const char* unit, const std::function<void()>& operation) const {
    if (!selects(name)) return;
    try {
      std::printf("%s\t%.2f\t%.6g\t%s\n", name.c_str(), 1e6 * time_of(queue, operation), work, unit);
    } catch (const Error& e) {
      std::printf("%s\tfailed: %s\n", name.c_str(), e.what());
    }
    std::fflush(stdout);
  }
  void bytes(const std::string& name, double work, const std::function<void()>& f) const { print(name, work, "B", f); }
  void flops(const std::string& name, double work, const std::function<void()>& f) const {
    print(name, work, "FLOP", f);
  }
};

void elementwise(const Benchmark& b, Device device) {
  const std::int64_t n = 8192, size = n * n;  // 256 MiB, several times the L2 cache
  const double array = 4.0 * static_cast<double>(size);
  const Array x = random_normal({n, n}, 1, 0, 1, device), y = random_normal({n, n}, 2, 0, 1, device);
  const Array row = random_normal({n}, 3, 0, 1, device), columns = x.transpose();
  b.bytes("copy", 2 * array, [&] { (void)x.copy(); });
  b.bytes("fill", array, [&] { Array::full({n, n}, 3, DType::f32, device).eval(); });
  b.bytes("x + y", 3 * array, [&] { (x + y).eval(); });
  b.bytes("x * 2 + y * x - 1", 3 * array, [&] { (x * 2.0f + y * x - 1.0f).eval(); });
  b.bytes("x + row", 2 * array, [&] { (x + row).eval(); });
  b.bytes("x + y transposed", 3 * array, [&] { (y + columns).eval(); });
  b.bytes("gelu", 2 * array, [&] { gelu(x).eval(); });
  b.bytes("transposed copy", 2 * array, [&] { (void)columns.as_contiguous(); });
  b.bytes("astype bf16", 1.5 * array, [&] { x.astype(DType::bf16).eval(); });
  b.bytes("random_normal", array, [&] { random_normal({n, n}, 4, 0, 1, device).eval(); });
  b.bytes("softmax of rows", 2 * array, [&] { softmax(x).eval(); });
  b.bytes("rms_norm", 2 * array, [&] { rms_norm(x, row, 1e-5f).eval(); });
  b.bytes("sum", array, [&] { sum(x).eval(); });
  b.bytes("sum of columns", array, [&] { sum(x, {0}).eval(); });
  b.bytes("sum of rows", array, [&] { sum(x, {1}).eval(); });
  b.bytes("argmax of rows", array, [&] { argmax(x).eval(); });
  b.bytes("cumsum of rows", 2 * array, [&] { cumsum(x, 1).eval(); });
  const Array keys = random_normal({1 << 24}, 5, 0, 1, device);
  b.bytes("sort of 16 Mi", 2 * 4.0 * (1 << 24), [&] { sort(keys).eval(); });
}

void products(const Benchmark& b, Device device) {
  const auto product = [&](const char* type, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
    const std::string name =
        std::string("matmul ") + type + " " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
    if (!b.selects(name)) return;
    const Array left = random_normal({m, k}, 1, 0, 1, device).astype(dtype),
                right = random_normal({k, n}, 2, 0, 1, device).astype(dtype);
    b.flops(name, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
            [&] { matmul(left, right).eval(); });
  };
  for (const std::int64_t n : {1024, 4096, 8192}) {
    product("f32", DType::f32, n, n, n);
    product("f16", DType::f16, n, n, n);
    product("bf16", DType::bf16, n, n, n);
  }
  product("f32", DType::f32, 1, 4096, 4096);
  product("bf16", DType::bf16, 1, 4096, 4096);
  product("bf16", DType::bf16, 16, 4096, 4096);
  product("bf16", DType::bf16, 128, 4096, 4096);
}

void weights(const Benchmark& b, Device device) {
  const std::int64_t n = 4096, hidden = 14336;
  for (const auto format : {WeightFormat::q8_0, WeightFormat::q4_0, WeightFormat::f16, WeightFormat::bf16}) {
    const std::string format_name(weight_format_name(format));
    if (!b.selects("linear " + format_name)) continue;
    const Weight weight = Weight::of(random_normal({hidden, n}, 1, 0, 0.02), format, device);
    for (const std::int64_t tokens : {1, 8, 512}) {
      const Array x = random_normal({tokens, n}, 2, 0, 1, device);
      const std::string name = "linear " + format_name + " 14336 x 4096, " + std::to_string(tokens) + " tokens";
      if (tokens == 512)
        b.flops(name, 2.0 * static_cast<double>(tokens * n * hidden), [&] { linear(x, weight).eval(); });
      else
        b.bytes(name, static_cast<double>(weight.bytes()), [&] { linear(x, weight).eval(); });
    }
  }
}

void attention_over_tokens(const Benchmark& b, Device device) {
  const std::int64_t heads = 32, key_heads = 8, size = 128;
  for (const std::int64_t past : {127, 1023, 8191}) {
    const Array q = random_normal({1, heads, size}, 1, 0, 1, device);
    const Array k = random_normal({key_heads, past + 1, size}, 2, 0, 1, device).astype(DType::f16);
    b.bytes("attention of 1 token to " + std::to_string(past + 1),
            2.0 * 2 * static_cast<double>(key_heads * (past + 1) * size),
            [&] { attention(q, k, k, past, 0.088f).eval(); });
  }
  for (const std::int64_t tokens : {512, 4096}) {
    const Array q = random_normal({1, heads, tokens, size}, 1, 0, 1, device).astype(DType::bf16);
    b.flops("causal attention of " + std::to_string(tokens) + " tokens, bf16",
            2.0 * static_cast<double>(heads * tokens * tokens * size),
            [&] { scaled_dot_product_attention(q, q, q, {.causal = true}).eval(); });
  }
}

void overheads(const Benchmark& b, Device device) {
  const Array x = Array::full({1024}, 1, DType::f32, device);
  b.print("x + 1 of 1,024, not waited for", 1, "", [&] { (x + 1.0f).eval(); });
  b.print("x + 1 of 1,024, waited for", 1, "", [&] { (x + 1.0f).eval(), b.queue.finish(); });
  Array y = Array::full({1024}, 1, DType::f32, device);
  b.queue.finish();
  Sequence hundred = Sequence::record(b.queue, [&] {
    for (int i = 0; i < 100; ++i) y += x;
  });
  b.print("100 x y += x, recorded", 100, "", [&] { hundred.replay(); });
  const std::vector<float> host(std::size_t{1} << 26, 1.0f);
  b.bytes("copy of 256 MiB to the device", 4.0 * (1 << 26), [&] { (void)Array::from(host, {}, device); });
  const Array large = random_normal({1 << 26}, 1, 0, 1, device);
  std::vector<float> back(host.size());
  b.bytes("copy of 256 MiB to the host", 4.0 * (1 << 26), [&] { back = large.to_vector<float>(); });
}

}  // namespace

int main(int argc, char** argv) {
  const Device device = current_device();
  const Benchmark b{Queue::of(device), argc > 1 ? argv[1] : ""};
  elementwise(b, device);
  products(b, device);
  weights(b, device);
  attention_over_tokens(b, device);
  overheads(b, device);
}
