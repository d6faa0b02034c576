// SPDX-License-Identifier: Apache-2.0
// Compares kernels that access non-adjacent memory in their lanes with plain loops (plain_loops.cpp), with one thread:
// members of structs, strides, row sums, and matrices in compressed sparse row format.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "benchmarks/kernel_pairs.h"
#include "benchmarks/plain_loops.h"
#include "tests/cpu/cpu_benchmark_kernels.h"

namespace {

using namespace tessera;
using namespace tessera::ir;
using namespace tessera::test;
using bench::Result;

Function map_of(const char* name, const std::function<void()>& body) {
  return written(name, KernelKind::map, {1, 1, 1}, body);
}

Function lengths(int members) {
  return map_of("lengths", [=] {
    auto p = in("p"), y = out("y");
    auto i = global_id();
    auto member = [&](int k) { return p.load(i * members + k); };
    auto sum = member(0) * member(0);
    for (int k = 1; k < members; ++k) sum = sum + member(k) * member(k);
    y.store(i, sum);
  });
}
Function moved(int members) {
  return map_of("moved", [=] {
    auto v = in("v"), p = out("p");
    auto t = scalar_param("t", DType::f32);
    auto i = global_id();
    for (int k = 0; k < members; ++k) p.store(i * members + k, p.load(i * members + k) + v.load(i * members + k) * t);
  });
}
Function first_member() {
  return map_of("first_member", [] {
    auto v = in("v"), p = out("p");
    p.store(global_id() * 3, v.load(global_id()));
  });
}
Function swap_ends() {
  return map_of("swap_ends", [] {
    auto p = in("p"), y = out("y");
    auto i = global_id();
    auto a = p.load(i * 3), b = p.load(i * 3 + 1), c = p.load(i * 3 + 2);
    y.store(i * 3, c), y.store(i * 3 + 1, b), y.store(i * 3 + 2, a);
  });
}
Function steps(int from, int to) {
  return map_of("steps", [=] {
    auto x = in("x"), y = out("y");
    y.store(global_id() * to, x.load(global_id() * from) * 2.0f);
  });
}
Function backwards() {
  return map_of("backwards", [] {
    auto x = in("x"), y = out("y");
    y.store(global_id(), x.load(extent() - 1 - global_id()) * 2.0f);
  });
}
Function launch_steps() {
  return map_of("launch_steps", [] {
    auto x = in("x"), y = out("y");
    auto from = scalar_param("from", DType::index), to = scalar_param("to", DType::index);
    y.store(global_id() * to, x.load(global_id() * from) * 2.0f);
  });
}
Function row_sums() {
  return map_of("row_sums", [] {
    auto x = in("x"), y = out("y");
    auto width = scalar_param("width", DType::index);
    Variable sum(DType::f32, 0.0f);
    for_(0, width, [&](Value j) { sum.set(sum.get() + x.load(global_id() * width + j)); });
    y.store(global_id(), sum.get());
  });
}
Function compressed_rows(DType t) {
  return map_of("compressed_rows", [=] {
    auto starts = in("starts", DType::i32), columns = in("columns", DType::i32), values = in("values", t),
         x = in("x", t);
    auto y = out("y", t);
    auto i = global_id();
    Variable sum(t, 0.0f);
    for_(cast(DType::index, starts.load(i)), cast(DType::index, starts.load(i + 1)),
         [&](Value j) { sum.set(sum.get() + values.load(j) * x.load(cast(DType::index, columns.load(j)))); });
    y.store(i, sum.get());
  });
}

class Table {
 public:
  bool run() {
    for (std::size_t n : {std::size_t{8} << 10, std::size_t{1} << 20}) {
      size_ = " " + std::to_string(n >> 10) + "Ki";
      structs(n);
      strides(n);
      bench_.forget();
    }
    for (std::int32_t width : {4, 8, 16, 32, 64, 100, 256, 1000}) rows(width);
    for (int mean : {4, 16, 100}) compressed<float>(mean), compressed<double>(mean);
    return good_;
  }

 private:
  template <class T>
  T* fill(std::size_t n) {
    T* p = bench_.memory<T>(n);
    std::uniform_real_distribution<T> d(-1, 1);
    for (std::size_t i = 0; i < n; ++i) p[i] = d(random_);
    return p;
  }
  static Argument bits(float v) { return Argument{.bits = std::bit_cast<std::uint32_t>(v)}; }
  static Argument number(std::int64_t v) { return Argument{.bits = static_cast<std::uint64_t>(v)}; }
  // Runs a kernel with one input and one output, and compares `out_size` elements of the output.
  template <class Loop>
  void one(const std::string& name, const Function& f, std::size_t n, float* x, std::size_t x_size, float* y,
           std::size_t out_size, std::vector<Argument> more, Loop&& loop) {
    float* z = bench_.memory<float>(out_size);
    std::memcpy(z, y, out_size * sizeof(float));
    std::vector<Argument> arguments = {bench_.buffer(x, x_size), bench_.buffer(y, out_size)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    good_ &= bench_.pair(name + size_, f, {n, 1, 1}, arguments, Result<float>{y, z, out_size}, loop);
  }

  void structs(std::size_t n) {
    using plain::Four, plain::Three;
    auto three = [](auto* p) { return reinterpret_cast<Three*>(p); };
    auto four = [](auto* p) { return reinterpret_cast<Four*>(p); };
    float *x = fill<float>(4 * n), *y = fill<float>(4 * n);
    const float t = 1e-9f;
    one("read 3", lengths(3), n, x, 3 * n, y, n, {}, [=](float* o) { plain::lengths3(three(x), o, n); });
    one("read 4", lengths(4), n, x, 4 * n, y, n, {}, [=](float* o) { plain::lengths4(four(x), o, n); });
    one("update 3", moved(3), n, x, 3 * n, y, 3 * n, {bits(t)},
        [=](float* o) { plain::move3(three(o), three(x), t, n); });
    one("update 4", moved(4), n, x, 4 * n, y, 4 * n, {bits(t)},
        [=](float* o) { plain::move4(four(o), four(x), t, n); });
    one("write 1 of 3", first_member(), n, x, n, y, 3 * n, {}, [=](float* o) { plain::first_member3(three(o), x, n); });
    one("read and write 3", swap_ends(), n, x, 3 * n, y, 3 * n, {},
        [=](float* o) { plain::swap_ends3(three(x), three(o), n); });
  }
  void strides(std::size_t n) {
    float *x = fill<float>(8 * n), *y = fill<float>(8 * n);
    auto load = [&]<int s>() {
      one("load stride " + std::to_string(s), steps(s, 1), n, x, s * n, y, n, {},
          [=](float* o) { plain::strided_load<s>(x, o, n); });
    };
    auto store = [&]<int s>() {
      one("store stride " + std::to_string(s), steps(1, s), n, x, n, y, s * n, {},
          [=](float* o) { plain::strided_store<s>(x, o, n); });
    };
    load.template operator()<2>(), load.template operator()<3>(), load.template operator()<4>();
    load.template operator()<8>();
    store.template operator()<2>(), store.template operator()<3>(), store.template operator()<4>();
    store.template operator()<8>();
    one("backwards", ::backwards(), n, x, n, y, n, {}, [=](float* o) { plain::backwards(x, o, n); });
    for (auto [from, to] : {std::pair{2, 1}, {3, 1}, {7, 1}, {1, 2}, {1, 5}, {2, 3}})
      one("launch strides " + std::to_string(from) + ", " + std::to_string(to), launch_steps(), n, x,
          static_cast<std::size_t>(from) * n, y, static_cast<std::size_t>(to) * n, {number(from), number(to)},
          [=, from = from, to = to](float* o) { plain::column_steps(x, o, n, from, to); });
  }
  void rows(std::int32_t width) {
    for (std::size_t elements : {std::size_t{1} << 14, std::size_t{1} << 21}) {
      const std::size_t n = elements / static_cast<std::size_t>(width), all = n * static_cast<std::size_t>(width);
      float *x = fill<float>(all), *y = fill<float>(n);
      size_ = " " + std::to_string(elements >> 10) + "Ki";
      one("row sums " + std::to_string(width), row_sums(), n, x, all, y, n, {number(width)},
          [=](float* o) { plain::row_sums(x, o, n, width); });
      bench_.forget();
    }
  }
  template <class T>
  void compressed(int mean) {
    bench_.limit(1.5);
    const std::size_t n = 300000 / static_cast<std::size_t>(mean);
    std::uniform_int_distribution<std::int32_t> length(0, 2 * mean);
    auto* starts = bench_.memory<std::int32_t>(n + 1);
    starts[0] = 0;
    for (std::size_t i = 0; i < n; ++i) starts[i + 1] = starts[i] + length(random_);
    const auto all = static_cast<std::size_t>(starts[n]);
    auto* columns = bench_.memory<std::int32_t>(all);
    for (std::size_t i = 0; i < all; ++i) columns[i] = static_cast<std::int32_t>(random_() % n);
    T *values = fill<T>(all), *x = fill<T>(n), *y = fill<T>(n), *z = fill<T>(n);
    good_ &= bench_.pair(std::string("compressed ") + (sizeof(T) == 4 ? "f32 " : "f64 ") + std::to_string(mean),
                         compressed_rows(sizeof(T) == 4 ? DType::f32 : DType::f64), {n, 1, 1},
                         {bench_.buffer(starts, n + 1), bench_.buffer(columns, all), bench_.buffer(values, all),
                          bench_.buffer(x, n), bench_.buffer(y, n)},
                         Result<T>{y, z, n}, [=](T* o) { plain::compressed_rows(starts, columns, values, x, o, n); });
    bench_.forget();
  }

  bench::Bench bench_{1.2, 0.4};
  std::mt19937 random_{7};
  std::string size_;
  bool good_ = true;
};

}  // namespace

// usage: strided. The exit status is 1 if a kernel takes more than 1.2 times as long as the plain loop (1.5 for
// compressed rows).
int main() {
  ::setenv("TESSERA_THREADS", "1", 1);
  bench::one_thread = true;
  return Table().run() ? 0 : 1;
}
