// SPDX-License-Identifier: Apache-2.0
// usage: array_times [DEVICE]
//
// Reads lines "OPERATION MILLISECONDS" and answers each with the microseconds that one such operation on arrays takes,
// repeated for so long, for tools/compare_array_times_with_numpy.py, which has the same operations in NumPy. It is the
// calling thread's processor time, which other programs do not lengthen: TESSERA_THREADS=1.
#include <time.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "tessera/array/array.h"
#include "tessera/device/context.h"

namespace {

using namespace tessera;

Array numbers(Shape shape) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<std::size_t>(element_count(shape)));
  for (float& x : v) x = uniform(engine);
  return Array::from(v, shape);
}

// NumPy's x[::step] along an axis.
Array every(const Array& x, int axis, std::int64_t step) {
  return x.slice(axis, 0, x.shape()[static_cast<std::size_t>(axis)], step);
}

std::map<std::string, std::function<Array()>> operations() {
  std::map<std::string, std::function<Array()>> out;
  for (const auto& [size, n] : {std::pair<std::string, std::int64_t>{"small", 8192}, {"large", 1 << 20}}) {
    const Array x = numbers({2 * n}), y = numbers({2 * n});
    out["add_every_second_" + size] = [=] { return every(x, 0, 2) + every(y, 0, 2); };
    out["copy_every_second_" + size] = [=] { return every(x, 0, 2).as_contiguous(); };
    out["copy_every_third_" + size] = [=] { return every(x, 0, 3).as_contiguous(); };
    out["scale_every_fifth_" + size] = [=] { return every(x, 0, 5) * 2.0f; };
    out["sum_" + size] = [=] { return sum(x); };
    out["argmax_" + size] = [=] { return argmax(x, 0); };
    const Array ints = x.astype(DType::i32) + 1;
    ints.eval();
    out["argmax_i32_" + size] = [=] { return argmax(ints, 0); };
  }
  const std::vector<std::pair<std::string, Shape>> matrices = {{"64x128", {64, 128}},
                                                               {"1000x1000", {1000, 1000}},
                                                               {"100x10000", {100, 10000}},
                                                               {"10000x100", {10000, 100}},
                                                               {"100000x10", {100000, 10}}};
  for (const auto& [name, shape] : matrices) {
    const Array x = numbers(shape);
    for (int axis : {0, 1}) {
      out["sum_" + name + "_axis" + std::to_string(axis)] = [=] { return sum(x, {axis}); };
      out["max_" + name + "_axis" + std::to_string(axis)] = [=] { return max(x, {axis}); };
      out["argmax_" + name + "_axis" + std::to_string(axis)] = [=] { return argmax(x, axis); };
    }
    out["transposed_" + name] = [=] { return x.transpose().as_contiguous(); };
    out["columns_" + name] = [=] { return x.slice(1, 1, shape[1] - 1).as_contiguous(); };
    out["every_second_row_and_column_" + name] = [=] { return every(every(x, 0, 2), 1, 2).as_contiguous(); };
    out["add_transposed_" + name] = [=] { return x.transpose() + 1.0f; };
  }
  const Array cube = numbers({100, 100, 100});
  for (int axis : {0, 1, 2}) out["sum_100x100x100_axis" + std::to_string(axis)] = [=] { return sum(cube, {axis}); };
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const DeviceScope scope(argc > 1 ? parse_device(argv[1]) : Device{Backend::cpu, 0});
  const auto all = operations();
  for (const auto& [name, operation] : all) std::printf("%s ", name.c_str());
  std::printf("\n");
  std::fflush(stdout);
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
  };
  std::string name;
  double milliseconds = 0;
  while (std::cin >> name >> milliseconds) {
    const auto& operation = all.at(name);
    const double start = now();
    double spent = 0;
    long times = 0;
    do {
      for (int i = 0; i < 4; ++i, ++times) operation().eval();
      spent = now() - start;
    } while (spent < milliseconds * 1000);
    std::printf("%.3f\n", spent / static_cast<double>(times));
    std::fflush(stdout);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "array_times: %s\n", e.what());
  return 1;
}
