// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/repeated.h"

#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"
#include "tessera/ir/builder.h"

namespace tessera {

namespace {

/// A thread loads an element once and stores it `count` times.
struct RepeatSpec {
  DType dtype;
  std::uint32_t count;
  friend bool operator==(const RepeatSpec&, const RepeatSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(dtype) << 8 | count; }
};

ir::Function trace_repeat(const RepeatSpec& spec) {
  ir::Builder builder("repeat", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto in = ir::buffer_param("in", spec.dtype, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.dtype, ir::Access::read_write);
  const ir::Value i = ir::global_id(0), v = in.load(i);
  for (std::uint32_t k = 0; k < spec.count; ++k) out.store(i * spec.count + k, v);
  return builder.finish();
}

}  // namespace

std::optional<Array> detail::copy_repeated(const Array& a) {
  const std::int64_t count = a.rank() < 2 ? 0 : a.shape(-1);
  constexpr std::int64_t most = 8;  // more are written by whole vectors
  if (count < 2 || count > most || a.size() == 0 || a.strides().back() != 0) return {};
  if (!blocks_are_vectors(kernel_backend(a.device()))) return {};  // stores of GPUs must be adjacent
  const Array elements = a.select(-1, 0);
  if (!elements.contiguous()) return {};
  static auto& family = *new KernelFamily<RepeatSpec>(trace_repeat);
  Array out = Array::empty(a.shape(), a.dtype(), a.device());
  family({a.dtype(), static_cast<std::uint32_t>(count)})
      .launch({static_cast<std::uint64_t>(elements.size()), 1, 1}, {elements.view(), out.view_for_writing()});
  return out;
}

}  // namespace tessera
