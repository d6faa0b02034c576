// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/top_k.h"

#include <limits>

#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/top_k_kernels.h"

namespace tessera::ops {
namespace {

Array row_of(const char* operation, const Array& x) {
  if (x.dtype() != DType::f32)
    fail<DtypeError>({.operation = operation,
                      .with = {{"x", std::string(dtype_name(x.dtype()))}},
                      .wrong = "the dtype must be f32"});
  const bool row = x.rank() == 1 || (x.rank() == 2 && x.shape(0) == 1);
  if (!row || x.size() == 0 || x.size() >= std::numeric_limits<std::int32_t>::max() - 8192)
    fail<ShapeError>({.operation = operation,
                      .with = {{"x", to_string(x.shape())}},
                      .wrong = "the shape must be (n,) or (1, n), and n must be at least 1 and fit 32 bits"});
  return x.as_contiguous();
}

/// Launches `spec` until one block remains. Each block returns at most k pairs. With `spec.single`, the last launch
/// returns the result of finite_argmax.
Array select(TopKSpec spec, Array x, std::int64_t k) {
  static auto& family = *new KernelFamily<TopKSpec>(trace_top_k);
  const Device device = x.device();
  const std::int64_t portion = spec.portion();
  for (std::int64_t n = x.size();; spec.pairs = true) {
    const std::int64_t blocks = ceil_div(n, portion), last = n - (blocks - 1) * portion;
    const std::int64_t left = (blocks - 1) * k + std::min(k, last);
    spec.finite = spec.single && blocks == 1;
    Array out = Array::empty(spec.finite ? Shape{3} : Shape{left, 2}, DType::i32, device);
    std::vector<LaunchArgument> args = {x.view(), out.view(), LaunchArgument::index(n)};
    if (!spec.single) args.push_back(LaunchArgument::index(k));
    family(spec).launch({static_cast<std::uint64_t>(blocks), 1, 1}, std::span(args));
    if (blocks == 1) return out;
    x = std::move(out), n = left;
  }
}

}  // namespace

std::int64_t most_top_k(Device device) {
  // Each launch reduces the number of elements to a quarter or less.
  return choose_top_k(tiles_of(device)).portion() / 4;
}

Array top_k(const Array& x, std::int64_t k) {
  const Array row = row_of("top_k", x);
  const std::int64_t most = std::min(row.size(), most_top_k(x.device()));
  if (k < 1 || k > most)
    fail<ArgumentError>({.operation = "top_k",
                         .with = {{"k", std::to_string(k)}, {"x", to_string(x.shape())}},
                         .wrong = "k must be between 1 and " + std::to_string(most)});
  return select(choose_top_k(tiles_of(x.device())), row, k);
}

Array finite_argmax(const Array& x) {
  TopKSpec spec = choose_top_k(tiles_of(x.device()));
  spec.single = true;
  return select(spec, row_of("finite_argmax", x), 1);
}

}  // namespace tessera::ops
