// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/running_sum.h"

#include <algorithm>
#include <limits>

#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/min_max.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"

namespace tessera {

using detail::Running;
using ir::Value;

namespace {

// If there are few rows, each row is split into parts. The first pass computes the sum of each part. Running sums of
// these are the start values of the parts in the second pass.
struct RunningSumSpec {
  DType from, sums;
  std::uint32_t threads;  // Threads of a block that process a row together; 0 means one thread per row.
  std::uint32_t items;    // Elements that a thread loads before it uses any.
  bool exclusive, carried, totals;
  Running what;
  friend bool operator==(const RunningSumSpec&, const RunningSumSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(from) << 40 | static_cast<std::size_t>(sums) << 32 | threads << 12 | items << 5 |
           static_cast<std::size_t>(what) << 3 | exclusive << 2 | carried << 1 | totals;
  }
};

Value neutral_element(Running what, DType t) {
  constexpr double infinity = std::numeric_limits<double>::infinity();  // saturates to the limits of integers
  return ir::literal(t, what == Running::product ? 1
                        : what == Running::max   ? -infinity
                        : what == Running::min   ? infinity
                                                 : 0);
}

Value accumulated(Running what, Value a, Value b) {
  switch (what) {
    case Running::sum: return a + b;
    case Running::product: return a * b;
    case Running::max: return detail::min_or_max(ir::BinaryOp::max, a, b);
    case Running::min: return detail::min_or_max(ir::BinaryOp::min, a, b);
  }
  return a;
}

/// Combines the values of the threads of a block up to each thread. For products, maxima and minima, the block must be
/// one subgroup (Hillis and Steele, "Data parallel algorithms", 1986).
class BlockScan {
 public:
  BlockScan(const RunningSumSpec& spec, Value v) : spec_(spec), whole_(v) {
    if (spec.what == Running::sum) return;
    for (int step = 1; step < static_cast<int>(spec.threads); step *= 2) {
      const Value before = ir::subgroup(ir::SubgroupOp::shuffle_up, whole_, ir::index_literal(step));
      whole_ = ir::select(ir::thread_id() >= step, accumulated(spec.what, before, whole_), whole_);
    }
  }
  /// The values up to this thread, or before it.
  Value up_to_here(bool exclusive) const {
    if (spec_.what == Running::sum) return ir::block_scan(whole_, exclusive);
    if (!exclusive) return whole_;
    return ir::select(ir::thread_id() > 0, ir::subgroup(ir::SubgroupOp::shuffle_up, whole_, ir::index_literal(1)),
                      neutral_element(spec_.what, spec_.sums));
  }
  /// The values of all threads.
  Value total() const {
    if (spec_.what == Running::sum) return ir::block_reduce(ir::ReduceOp::sum, whole_);
    return ir::subgroup(ir::SubgroupOp::shuffle, whole_, ir::index_literal(spec_.threads - 1));
  }

 private:
  const RunningSumSpec& spec_;
  Value whole_;
};

/// Products, maxima and minima of blocks are combined only if a block is one subgroup, and items is 1.
ir::Function trace_running_sum(const RunningSumSpec& spec) {
  const bool block = spec.threads != 0;
  const int threads = static_cast<int>(spec.threads), items = static_cast<int>(spec.items);
  constexpr const char* names[] = {"running_sum", "running_product", "running_max", "running_min"};
  ir::Builder builder(spec.totals ? "part_sums" : names[static_cast<std::size_t>(spec.what)],
                      block ? ir::KernelKind::block : ir::KernelKind::map, {block ? spec.threads : 1u, 1, 1});
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
  const ir::Variable sum(spec.sums, spec.carried ? carry.load(own) : neutral_element(spec.what, spec.sums));
  const auto position = [&](Value k) { return block ? row * extent + k : (row * extent + k) * inner + column; };

  if (!block) {
    const auto add = [&](Value first, int count) {
      std::vector<Value> loaded;
      for (int i = 0; i < count; ++i) loaded.push_back(in.load(position(first + i)));
      for (int i = 0; i < count; ++i) {
        const Value before = sum.get();
        const Value after = accumulated(spec.what, before, ir::cast(spec.sums, loaded[static_cast<std::size_t>(i)]));
        sum.set(after);
        if (!spec.totals) out.store(position(first + i), spec.exclusive ? before : after);
      }
    };
    const Value rest = items == 1 ? begin : end - (end - begin) % items;
    if (items > 1) ir::for_(begin, rest, items, [&](Value k) { add(k, items); });
    ir::for_(rest, end, 1, [&](Value k) { add(k, 1); });
    if (spec.totals) out.store(own, sum.get());
    return builder.finish();
  }
  const Value thread = ir::thread_id();
  const auto load = [&](Value first) {
    std::vector<Value> loaded;
    for (int i = 0; i < items; ++i) {
      const Value k = first + (thread + i * threads);
      loaded.push_back(ir::cast(spec.sums, in.load_if(k < end, position(k), neutral_element(spec.what, spec.from))));
    }
    return loaded;
  };
  if (spec.totals) {
    ir::for_(begin, end, threads * items, [&](Value first) {
      for (const Value v : load(first)) sum.set(accumulated(spec.what, sum.get(), v));
    });
    const Value whole = BlockScan(spec, sum.get()).total();
    ir::if_(thread == 0, [&] { out.store(own, whole); });
  } else if (items == 1) {
    ir::for_(begin, end, threads, [&](Value first) {
      const Value v = load(first)[0], k = first + thread;
      const BlockScan scan(spec, v);
      const Value before = sum.get(), within = accumulated(spec.what, before, scan.up_to_here(spec.exclusive));
      ir::if_(k < end, [&] { out.store(position(k), within); });
      sum.set(accumulated(spec.what, before, scan.total()));
    });
  } else {
    // Adjacent threads load and store adjacent elements. Between these, a thread adds up consecutive elements, which it
    // finds in shared memory. One word in 32 is left free, so that threads use different banks.
    const int tile = threads * items;
    const auto staged = ir::shared(spec.sums, static_cast<std::uint64_t>(tile + tile / 32));
    const auto place = [](Value k) { return k + (k >> 5); };
    ir::for_(begin, end, tile, [&](Value first) {
      const std::vector<Value> loaded = load(first);
      const auto across = [&](int i) { return thread + i * threads; };
      for (int i = 0; i < items; ++i) staged.store(place(across(i)), loaded[static_cast<std::size_t>(i)]);
      ir::barrier();
      std::vector<Value> until;
      for (int i = 0; i < items; ++i) {
        const Value v = staged.load(place(thread * items + i));
        until.push_back(i == 0 ? v : until.back() + v);
      }
      const Value start = sum.get(), before = start + ir::block_scan(until.back(), true);
      for (int i = 0; i < items; ++i)
        staged.store(place(thread * items + i), before + until[static_cast<std::size_t>(i)]);
      ir::barrier();
      for (int i = 0; i < items; ++i) {
        const Value k = across(i);
        Value result =
            spec.exclusive ? staged.load_if(k > 0, place(k - 1), ir::literal(spec.sums, 0)) : staged.load(place(k));
        if (spec.exclusive && i == 0) result = ir::select(k > 0, result, start);
        ir::if_(first + k < end, [&] { out.store(position(first + k), result); });
      }
      sum.set(staged.load(place(ir::index_literal(tile - 1))));
      ir::barrier();
    });
  }
  return builder.finish();
}

/// How a row is split, and how many elements a thread loads together. On GPUs, both depend on the shape only, so that
/// sums are the same on every GPU.
struct Split {
  std::uint32_t threads, items = 1;
  std::int64_t part, parts;
};

Split split_of(Device device, const detail::AxisLayout& axis, DType sums, Running what) {
  const DeviceInfo& info = device_info(device);
  const bool vectors = blocks_are_vectors(kernel_backend(device));
  const bool block = axis.inner == 1 && (what == Running::sum || vectors);
  Split s{.threads = !block ? 0 : vectors ? info.can.subgroup_widths[0] : block_threads(info.can, 256)};
  std::int64_t unit = 1, lanes = block ? 512 : 8192, most = 256;
  if (info.kind != DeviceKind::cpu) {
    s.items = block && axis.extent <= 1024 ? 4 : 64 / static_cast<std::uint32_t>(dtype_size(sums));
    unit = block ? 256 * s.items : 1, lanes = block ? 1024 : 1 << 18, most = 1024;
  }
  const std::int64_t wanted = std::min(axis.extent / (block ? 4096 : 64), lanes / (axis.outer * axis.inner));
  s.parts = std::clamp<std::int64_t>(wanted, 1, most);
  s.part = (axis.extent + s.parts - 1) / s.parts;
  s.part = (s.part + unit - 1) / unit * unit;
  s.parts = (axis.extent + s.part - 1) / s.part;
  return s;
}

void launch(const RunningSumSpec& spec, const Split& split, const Array& a, const detail::AxisLayout& axis,
            const Array* carry, const Array& to) {
  static auto& family = *new KernelFamily<RunningSumSpec>(trace_running_sum);
  const auto o = static_cast<std::uint64_t>(axis.outer), p = static_cast<std::uint64_t>(split.parts);
  std::vector<LaunchArgument> args = {a.view()};
  if (carry != nullptr) args.emplace_back(carry->view());
  args.emplace_back(to.view());
  for (std::int64_t n : {axis.extent, split.part, split.parts, axis.inner}) args.push_back(LaunchArgument::index(n));
  std::array<std::uint64_t, 3> grid = {o, p, 1};
  if (split.threads == 0) grid = {static_cast<std::uint64_t>(axis.inner), o, p};
  family(spec).launch(grid, std::span(args));
}

/// The totals of the parts, with the shape (outer, parts, inner).
Array part_totals(RunningSumSpec spec, const Split& split, const Array& a, const detail::AxisLayout& axis) {
  Array totals = Array::empty({axis.outer, split.parts, axis.inner}, spec.sums, a.device());
  spec.exclusive = spec.carried = false, spec.totals = true;
  launch(spec, split, a, axis, nullptr, totals);
  return totals;
}

}  // namespace

Array detail::running_sum(const Array& a, const AxisLayout& axis, DType sums, bool exclusive, Running what) {
  Array out = Array::empty(a.shape(), sums, a.device());
  if (out.size() == 0) return out;
  const Split split = split_of(a.device(), axis, sums, what);
  const bool carried = split.parts > 1;
  const RunningSumSpec spec{a.dtype(), sums, split.threads, split.items, exclusive, carried, false, what};
  if (!carried) {
    launch(spec, split, a, axis, nullptr, out);
    return out;
  }
  const Array totals = part_totals(spec, split, a, axis);
  const Array carry = running_sum(totals, {totals.shape(), 1}, sums, true, what);
  launch(spec, split, a, axis, &carry, out);
  return out;
}

Array detail::running_total(const Array& a, const AxisLayout& axis, DType sums, Running what) {
  const Split split = split_of(a.device(), axis, sums, what);
  const RunningSumSpec spec{a.dtype(), sums, split.threads, split.items, false, false, true, what};
  const Array totals = part_totals(spec, split, a, axis);
  return split.parts == 1 ? totals : running_total(totals, {totals.shape(), 1}, sums, what);
}

namespace {

/// The dtype in which an array is accumulated: 64 bits for sums and products of integers, f32 for 16-bit floats, and u8
/// for the largest and smallest bools.
DType accumulation_dtype(DType t, Running what) {
  if (t == DType::f16 || t == DType::bf16) return DType::f32;
  if (what == Running::max || what == Running::min) return t == DType::boolean ? DType::u8 : t;
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::u64 : DType::i64;
}

/// Combines each element with the one `step` before, for step = 1, 2, 4 and so on (Hillis and Steele, "Data parallel
/// algorithms", 1986). Differentiable, because it consists of array operations.
Array running_by_doubling(Array a, int axis, Running what) {
  for (std::int64_t step = 1; step < a.shape(axis); step *= 2) {
    const std::int64_t count = a.shape(axis);
    const Array before = a.slice(axis, 0, count - step), after = a.slice(axis, step, count);
    a = concatenate({a.slice(axis, 0, step), what == Running::product ? before * after
                                             : what == Running::max   ? maximum(before, after)
                                                                      : minimum(before, after)},
                    axis);
  }
  return a;
}

Array cumulative(const char* name, const Array& a, int axis, Running what) {
  const detail::Operation operation(name, a);
  const Array line = a.rank() == 0 ? a.reshape({1}) : a;
  const auto d = static_cast<std::size_t>(normalise_axis(name, axis, line.shape().size()));
  const DType sums = accumulation_dtype(a.dtype(), what);
  const bool returns_own = is_float(a.dtype()) || what == Running::max || what == Running::min;
  Array out = a.has_history() ? running_by_doubling(line.astype(sums), static_cast<int>(d), what)
                              : detail::running_sum(line.as_contiguous(), {line.shape(), d}, sums, false, what);
  return operation.finish(returns_own ? out.astype(a.dtype()) : std::move(out), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(d)}};
  });
}

}  // namespace

Array cumprod(const Array& a, int axis) { return cumulative("cumprod", a, axis, Running::product); }
Array cummax(const Array& a, int axis) { return cumulative("cummax", a, axis, Running::max); }
Array cummin(const Array& a, int axis) { return cumulative("cummin", a, axis, Running::min); }

Array cumsum(const Array& a, int axis) {
  if (a.rank() == 0) return cumsum(a.reshape({1}), axis);
  detail::RuledOperation operation("cumsum", a);
  const auto d = static_cast<std::size_t>(normalise_axis("cumsum", axis, a.shape().size()));
  const DType t = a.dtype();
  const bool small = t == DType::f16 || t == DType::bf16;
  const DType sums = accumulation_dtype(t, Running::sum);
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
