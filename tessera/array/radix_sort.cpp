// SPDX-License-Identifier: Apache-2.0
// Sorts keys (sort_keys.h) by 8 bits per pass, starting with the lowest. A pass counts the digits of each part of a
// row, adds up the counts, and moves the elements to their places.
#include "tessera/array/radix_sort.h"

#include <algorithm>
#include <optional>

#include "tessera/array/running_sum.h"
#include "tessera/array/sort_keys.h"
#include "tessera/device/launch/block_threads.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"

namespace tessera::detail {

using ir::Value;

namespace {

constexpr int digit_bits = 8, digits = 1 << digit_bits;

struct PassSpec {
  // `from` is the input dtype of the first pass, `to` the output dtype of the last pass. The passes in between use
  // keys.
  DType from, to;
  DType key;
  bool first, last, order, places;
  std::uint32_t threads = 1, items = 0;  // Elements of a thread. 0: one thread processes a part sequentially.
  friend bool operator==(const PassSpec&, const PassSpec&) = default;
  std::size_t hash() const {
    return static_cast<std::size_t>(from) << 40 | static_cast<std::size_t>(to) << 32 |
           static_cast<std::size_t>(key) << 24 | threads << 12 | items << 4 | first << 3 | last << 2 | order << 1 |
           places;
  }
};

/// The parameters of both kernels of a pass.
struct Pass {
  PassSpec spec;
  ir::BufferRef in, order, out, out_order, counts;
  Value extent, part, parts, shift;

  explicit Pass(const PassSpec& s) : spec(s) {
    in = ir::buffer_param("in", s.from, ir::Access::read);
    if (s.places && s.order && !s.first) order = ir::buffer_param("order", DType::i32, ir::Access::read);
    if (s.places) out = ir::buffer_param("out", s.to, ir::Access::read_write);
    if (s.places && s.order && !s.last) out_order = ir::buffer_param("out_order", DType::i32, ir::Access::read_write);
    counts = ir::buffer_param("counts", DType::i32, ir::Access::read_write);  // (rows, digits, parts)
    extent = ir::scalar_param("extent", DType::index), part = ir::scalar_param("part", DType::index);
    parts = ir::scalar_param("parts", DType::index), shift = ir::scalar_param("shift", s.key);
  }
  Value key(Value given) const { return spec.first ? key_of(given) : given; }
  Value digit(Value key) const { return ir::cast(DType::index, (key >> shift) & key_constant(spec.key, digits - 1)); }
  /// The position in the row that an element had before the first pass. `k` is its position before this pass.
  Value position(Value exists, Value begin, Value k) const {
    if (!spec.order) return {};
    return spec.first ? ir::cast(DType::i32, k) : order.load_if(exists, begin + k, ir::literal(DType::i32, 0));
  }
  void store(Value to, Value key, Value position) const {
    if (!spec.order) return out.store(to, spec.last ? element_of(key, spec.to) : key);
    if (spec.last) return out.store(to, ir::cast(DType::i64, position));
    out.store(to, key);
    out_order.store(to, position);
  }
};

/// The kernel for CPUs, including those with OpenCL. A block is one thread, because adjacent lanes would access distant
/// memory. `counts` contains exclusive sums along (digits, parts) when elements are placed.
ir::Function trace_sequential_pass(const PassSpec& spec) {
  ir::Builder builder(spec.places ? "radix_places" : "radix_counts", ir::KernelKind::block, {1, 1, 1});
  ir::Builder::Scope scope(builder);
  const Pass pass(spec);
  const Value which = ir::block_id(0), begin = ir::block_id(1) * pass.extent;
  const Value own = ir::block_id(1) * (pass.parts * digits) + which;
  const auto tally = ir::local_array(DType::i32, digits);
  if (spec.places) ir::for_(0, digits, [&](Value d) { tally.store(d, pass.counts.load(own + d * pass.parts)); });
  ir::for_(which * pass.part, ir::min(which * pass.part + pass.part, pass.extent), [&](Value k) {
    const Value key = pass.key(pass.in.load(begin + k)), digit = pass.digit(key);
    const Value before = tally.load(digit);
    tally.store(digit, before + 1);
    if (spec.places)
      pass.store(begin + ir::cast(DType::index, before), key, pass.position(ir::literal(DType::boolean, 1), begin, k));
  });
  if (!spec.places) ir::for_(0, digits, [&](Value d) { pass.counts.store(own + d * pass.parts, tally.load(d)); });
  return builder.finish();
}

/// The elements of a thread on a GPU, where a block processes a part of a row. Each group of 32 threads has consecutive
/// elements, and adjacent threads have adjacent elements.
struct Elements {
  int threads, items, lanes, groups;
  Value thread, group, lane, row, part;
  Value begin, first, end;  // The start of the row; the first element in the row, and the row's end relative to it.
  std::vector<Value> key, digit, position;

  explicit Elements(const Pass& pass)
      : threads(static_cast<int>(pass.spec.threads)),
        items(static_cast<int>(pass.spec.items)),
        lanes(std::min(threads, 32)),
        groups(threads / lanes) {
    const PassSpec& spec = pass.spec;
    thread = ir::thread_id(), group = thread / lanes, lane = thread % lanes;
    row = ir::block_id(0) / pass.parts, part = ir::block_id(0) % pass.parts;
    begin = row * pass.extent, first = part * pass.part + group * (lanes * items) + lane, end = pass.extent - first;
    // All elements are loaded before any is used. Places after the end get the greatest key, which is sorted last.
    const Value greatest = key_constant(spec.key, ~std::uint64_t{0});
    const Value other = spec.first ? element_of(greatest, spec.from) : greatest;
    each([&](std::size_t i) { key.push_back(pass.in.load_if(exists(i), begin + place(i), other)); });
    each([&](std::size_t i) {
      if (spec.places) position.push_back(pass.position(exists(i), begin, place(i)));
    });
    each([&](std::size_t i) { key[i] = pass.key(key[i]), digit.push_back(pass.digit(key[i])); });
  }
  Value place(std::size_t i) const { return first + lanes * static_cast<int>(i); }
  Value exists(std::size_t i) const { return lanes * static_cast<int>(i) < end; }
  template <class F>
  void each(F&& f) const {
    for (int i = 0; i < items; ++i) f(static_cast<std::size_t>(i));
  }
  /// The index of a counter of this part in (rows, digits, parts).
  Value counter(const Pass& pass, Value of) const { return (row * digits + of) * pass.parts + part; }
  template <class F>
  void in_parallel(int count, F&& f) const {
    ir::for_(thread, count, threads, f);
  }
};

ir::Function trace_part_counts(const PassSpec& spec) {
  ir::Builder builder("radix_counts", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const Pass pass(spec);
  const Elements own(pass);
  const auto tally = ir::shared(DType::i32, digits);
  own.in_parallel(digits, [&](Value d) { tally.store(d, 0); });
  ir::barrier();
  own.each([&](std::size_t i) { ir::if_(own.exists(i), [&] { tally.atomic(ir::AtomicOp::add, own.digit[i], 1); }); });
  ir::barrier();
  own.in_parallel(digits, [&](Value d) { pass.counts.store(own.counter(pass, d), tally.load(d)); });
  return builder.finish();
}

/// `counts` contains inclusive sums along the parts. Each group of threads places a row of elements at a time. Threads
/// with the same digit find each other with masks in shared memory (Adinets and Merrill, "Onesweep", 2022), so the
/// groups do not depend on the width of subgroups.
ir::Function trace_part_places(const PassSpec& spec) {
  ir::Builder builder("radix_places", ir::KernelKind::block, {spec.threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const Pass pass(spec);
  const Elements own(pass);
  const int groups = own.groups, each = digits / own.threads;  // digits of a thread
  std::vector<Value> earlier, all;  // The numbers of elements with these digits in earlier parts, and in all parts.
  Value total = ir::literal(DType::i32, 0);
  for (int d = 0; d < each; ++d) {
    const Value at = own.counter(pass, own.thread * each + d);
    earlier.push_back(pass.counts.load_if(own.part > 0, at - 1, total));
    all.push_back(pass.counts.load(at - own.part + (pass.parts - 1)));
  }
  // The number of elements per group and digit, then the place of the next of them.
  const auto tally = ir::shared(DType::i32, static_cast<std::uint64_t>(groups * digits));
  const auto slot = [&](std::size_t i) { return own.group * digits + own.digit[i]; };
  own.in_parallel(groups * digits, [&](Value i) { tally.store(i, 0); });
  ir::barrier();
  own.each([&](std::size_t i) { tally.atomic(ir::AtomicOp::add, slot(i), 1); });
  ir::barrier();
  for (const Value n : all) total = total + n;
  Value before = ir::block_scan(total, true);
  for (std::size_t d = 0; d < all.size(); ++d) {
    Value next = before + earlier[d];
    for (int g = 0; g < groups; ++g) {
      const Value at = own.thread * each + (static_cast<int>(d) + g * digits), count = tally.load(at);
      tally.store(at, next);
      next = next + count;
    }
    before = before + all[d];
  }
  // Two tables of masks alternate, so that a step need not wait until the masks of the previous step are cleared.
  const auto masks = ir::shared(DType::u32, static_cast<std::uint64_t>(2 * groups * digits));
  own.in_parallel(2 * groups * digits, [&](Value i) { masks.store(i, 0); });
  ir::barrier();
  const Value bit = ir::literal(DType::u32, 1) << ir::cast(DType::u32, own.lane);
  const auto size = [](Value mask) { return ir::cast(DType::i32, ir::unary(ir::UnaryOp::popcount, mask)); };
  own.each([&](std::size_t i) {
    const Value mask = slot(i) + static_cast<int>(i % 2) * groups * digits;
    masks.atomic(ir::AtomicOp::or_, mask, bit);
    ir::barrier();
    const Value same = masks.load(mask), next = tally.load(slot(i)), rank = size(same & (bit - 1));
    ir::barrier();
    ir::if_(rank == 0, [&] {
      tally.store(slot(i), next + size(same));
      masks.store(mask, 0);
    });
    ir::if_(own.exists(i),
            [&] { pass.store(own.begin + ir::cast(DType::index, next + rank), own.key[i], own.position[i]); });
  });
  return builder.finish();
}

ir::Function trace_pass(const PassSpec& spec) {
  return spec.items == 0 ? trace_sequential_pass(spec)
         : spec.places   ? trace_part_places(spec)
                         : trace_part_counts(spec);
}

/// Sorts the rows of `from` by the low bits of their keys. If `result` is given, the last pass returns elements of this
/// dtype, or positions if `order` is true. Otherwise it returns keys, and positions if `order` is true.
SortedKeys sort_rows(Array from, std::int64_t extent, int bits, bool order, std::optional<DType> result) {
  const Device device = from.device();
  const std::int64_t rows = from.size() / extent;
  const bool cpu = device_info(device).kind == DeviceKind::cpu;
  const DType key = key_dtype(from.dtype());
  PassSpec spec{.key = key, .order = order};
  std::int64_t part;
  if (cpu) {
    // Enough parts for the device's threads. Each is long enough to make counting cheap.
    const std::int64_t wanted = std::max<std::int64_t>(1, 16 / rows);
    part = std::max<std::int64_t>(4096, (extent + wanted - 1) / wanted);
  } else {
    // Keys and positions of 16 elements need more than 64 registers.
    const std::uint32_t most = order || key == DType::u64 ? 8 : 16;
    spec.threads = block_threads(device_info(device).can, 256), spec.items = extent <= 1024 ? 4 : most;
    part = std::int64_t{spec.threads} * spec.items;
  }
  const std::int64_t parts = (extent + part - 1) / part;
  const int passes = (bits + digit_bits - 1) / digit_bits;
  static auto& family = *new KernelFamily<PassSpec>(trace_pass);
  std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(rows), 1};
  if (!cpu) grid = {grid[0] * grid[1], 1, 1};
  Array positions;
  for (int pass = 0; pass < passes; ++pass) {
    spec.from = from.dtype(), spec.first = pass == 0, spec.last = result && pass == passes - 1;
    spec.to = spec.last ? *result : key;
    const Array counts = Array::empty({rows * digits, parts}, DType::i32, device);
    const auto launch = [&](bool places, std::vector<LaunchArgument> args, const Array& counters) {
      spec.places = places;
      args.emplace_back(counters.view());
      for (std::int64_t n : {extent, part, parts}) args.push_back(LaunchArgument::index(n));
      args.push_back(LaunchArgument::scalar(key, static_cast<std::uint64_t>(pass * digit_bits)));
      family(spec).launch(grid, std::span(args));
    };
    launch(false, {from.view()}, counts);
    const Array sums = cpu         ? running_sum(counts, {Shape{rows, digits * parts}, 1}, DType::i32, true)
                       : parts > 1 ? running_sum(counts, {counts.shape(), 1}, DType::i32, false)
                                   : counts;
    const Array to = Array::empty(from.shape(), spec.to, device);
    Array to_positions;
    std::vector<LaunchArgument> args = {from.view()};
    if (order && !spec.first) args.emplace_back(positions.view());
    args.emplace_back(to.view());
    if (order && !spec.last) {
      to_positions = Array::empty(from.shape(), DType::i32, device);
      args.emplace_back(to_positions.view());
    }
    launch(true, std::move(args), sums);
    from = to, positions = to_positions;
  }
  return {from, positions};
}

}  // namespace

Array radix_sort(const Array& a, std::int64_t extent, bool order) {
  return sort_rows(a, extent, key_bits(a.dtype()), order, order ? DType::i64 : a.dtype()).keys;
}

SortedKeys radix_sort_keys(const Array& keys, int bits) { return sort_rows(keys, keys.size(), bits, true, {}); }

}  // namespace tessera::detail
