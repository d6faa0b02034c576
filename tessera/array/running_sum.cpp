// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/running_sum.h"

#include <algorithm>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"

namespace tessera {

using ir::Value;

namespace {

// If there are few rows, each row is split into parts. The first pass computes the sum of each part. Running sums of
// these are the start values of the parts in the second pass.
struct RunningSumSpec {
  DType from, sums;
  std::uint32_t threads;  // Threads of a block that process a row together; 0 means one thread per row.
  bool exclusive, carried, totals;
  friend bool operator==(const RunningSumSpec&, const RunningSumSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(from) << 24 | static_cast<std::size_t>(sums) << 16 | threads << 3 | exclusive << 2 |
           carried << 1 | totals;
  }
};

ir::Function trace_running_sum(const RunningSumSpec& spec) {
  const bool block = spec.threads != 0;
  ir::Builder builder(spec.totals ? "part_sums" : "running_sum", block ? ir::KernelKind::block : ir::KernelKind::map,
                      {block ? spec.threads : 1u, 1, 1});
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto in = ir::buffer_param("in", spec.from, ir::Access::read);
  ir::BufferRef carry;
  if (spec.carried) carry = ir::buffer_param("carry", spec.sums, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.sums, ir::Access::read_write);
  const Value extent = ir::scalar_param("extent", DType::index), part = ir::scalar_param("part", DType::index);
  const Value parts = ir::scalar_param("parts", DType::index), inner = ir::scalar_param("inner", DType::index);
  const Value column = block ? ir::index_literal(0) : ir::global_id(0);
  const Value row = block ? ir::block_id(0) : ir::global_id(1), which = block ? ir::block_id(1) : ir::global_id(2);
  const Value begin = which * part, end = ir::min(begin + part, extent);
  const Value own = (row * parts + which) * inner + column;  // the index of this part among the parts of all rows
  const ir::Variable sum(spec.sums, spec.carried ? carry.load(own) : ir::literal(spec.sums, 0));
  const auto position = [&](Value k) { return (row * extent + k) * inner + column; };
  const auto element = [&](Value k) { return ir::cast(spec.sums, in.load(position(k))); };

  if (!block) {
    ir::for_(begin, end, 1, [&](Value k) {
      const Value before = sum.get(), after = before + element(k);
      sum.set(after);
      if (!spec.totals) out.store(position(k), spec.exclusive ? before : after);
    });
    if (spec.totals) out.store(own, sum.get());
    return builder.finish();
  }
  ir::for_(begin, end, static_cast<int>(spec.threads), [&](Value from) {
    const Value k = from + ir::thread_id(), exists = k < end;
    const Value v = ir::cast(spec.sums, in.load_if(exists, position(k), ir::literal(spec.from, 0)));
    if (spec.totals) return sum.set(sum.get() + v);
    const Value before = sum.get(), within = before + ir::block_scan(v, spec.exclusive);
    ir::if_(exists, [&] { out.store(position(k), within); });
    sum.set(before + ir::block_reduce(ir::ReduceOp::sum, v));
  });
  if (spec.totals) {
    const Value whole = ir::block_reduce(ir::ReduceOp::sum, sum.get());
    ir::if_(ir::thread_id() == 0, [&] { out.store(own, whole); });
  }
  return builder.finish();
}

std::uint32_t threads_of(Device device) {
  const Capabilities& can = device_info(device).can;
  return blocks_are_vectors(device.backend) ? can.subgroup_widths[0] : block_threads(can, 256);
}

}  // namespace

Array detail::running_sum(const Array& a, const AxisLayout& axis, DType sums, bool exclusive) {
  const Device device = a.device();
  Array out = Array::empty(a.shape(), sums, device);
  if (out.size() == 0) return out;
  const bool block = axis.inner == 1;
  const std::int64_t lanes = axis.outer * axis.inner;
  const std::int64_t most =
      block ? std::min(axis.extent / 4096, 512 / lanes) : std::min(axis.extent / 64, 8192 / lanes);
  std::int64_t parts = std::clamp<std::int64_t>(most, 1, 256);
  const std::int64_t part = (axis.extent + parts - 1) / parts;
  parts = (axis.extent + part - 1) / part;
  static auto& family = *new KernelFamily<RunningSumSpec>(trace_running_sum);
  RunningSumSpec spec{a.dtype(), sums, block ? threads_of(device) : 0, exclusive, parts > 1, false};
  const auto launch = [&](const Array& to, const Array* carry) {
    const auto o = static_cast<std::uint64_t>(axis.outer), p = static_cast<std::uint64_t>(parts);
    std::vector<LaunchArgument> args = {a.view()};
    if (carry != nullptr) args.emplace_back(carry->view());
    args.emplace_back(to.view());
    for (std::int64_t n : {axis.extent, part, parts, axis.inner}) args.push_back(LaunchArgument::index(n));
    std::array<std::uint64_t, 3> grid = {o, p, 1};
    if (!block) grid = {static_cast<std::uint64_t>(axis.inner), o, p};
    family(spec).launch(grid, std::span(args));
  };
  if (parts == 1) {
    launch(out, nullptr);
    return out;
  }
  const Array totals = Array::empty({axis.outer, parts, axis.inner}, sums, device);
  spec.carried = false, spec.totals = true;
  launch(totals, nullptr);
  spec.carried = true, spec.totals = false;
  const Array carry = running_sum(totals, {totals.shape(), 1}, sums, true);
  launch(out, &carry);
  return out;
}

Array cumsum(const Array& a, int axis) {
  if (a.rank() == 0) return cumsum(a.reshape({1}), axis);
  detail::RuledOperation operation("cumsum", a);
  const auto d = static_cast<std::size_t>(normalise_axis("cumsum", axis, a.shape().size()));
  const DType t = a.dtype();
  const bool small = t == DType::f16 || t == DType::bf16;
  const DType sums = small ? DType::f32 : is_float(t) ? t : is_unsigned_int(t) ? DType::u64 : DType::i64;
  Array out = detail::running_sum(a.as_contiguous(), {a.shape(), d}, sums, false);
  if (small) out = out.astype(t);
  // Each element contributes to all later sums, so its adjoint is a running sum that starts at the other end.
  const auto rule = [&] {
    return Rule{[axis = static_cast<int>(d)](Backward& b) {
      b.add(0, [&] {
        const std::int64_t count = b.shape(0)[static_cast<std::size_t>(axis)];
        const Array back = Array::arange(count, static_cast<double>(count - 1), -1, DType::i64, b.device(0));
        return take(cumsum(take(b.adjoint(), back, axis), axis), back, axis);
      });
    }};
  };
  return operation.finish(
      std::move(out),
      [&] {
        return Attributes{{"axis", static_cast<std::int64_t>(d)}};
      },
      rule);
}

}  // namespace tessera
