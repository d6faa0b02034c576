// SPDX-License-Identifier: Apache-2.0
// Selects elements by conditions. The size of the result is known only after counting.
#include <algorithm>
#include <limits>

#include "tessera/array/axis_layout.h"
#include "tessera/array/cached_operation.h"
#include "tessera/array/elementwise.h"
#include "tessera/array/functions.h"
#include "tessera/array/running_sum.h"
#include "tessera/array/statistics.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/placement/kernel_backend.h"

namespace tessera {

using detail::CachedOperation;
using detail::Operation;
using ir::Value;

namespace {

// Writes the positions of the selected elements. `until` contains the inclusive running count of selected elements.
ir::Function trace_places(const DType& counts) {
  ir::Builder builder("places_where", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  const auto flags = ir::buffer_param("flags", DType::boolean, ir::Access::read);
  const auto until = ir::buffer_param("until", counts, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::i64, ir::Access::read_write);
  const Value i = ir::global_id();
  ir::if_(flags.load(i), [&] { out.store(ir::cast(DType::index, until.load(i)) - 1, ir::cast(DType::i64, i)); });
  return builder.finish();
}

// The two kernels for CPUs. This one counts the true elements of each part.
ir::Function trace_true_counts(const std::uint32_t& threads) {
  ir::Builder builder("true_counts", ir::KernelKind::block, {threads, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto flags = ir::buffer_param("flags", DType::boolean, ir::Access::read);
  const auto counts = ir::buffer_param("counts", DType::i64, ir::Access::read_write);
  const Value count = ir::scalar_param("count", DType::index), part = ir::scalar_param("part", DType::index);
  const Value begin = ir::block_id(0) * part, end = ir::min(begin + part, count);
  const ir::Variable sum(DType::i32, 0);
  ir::for_(begin + ir::thread_id(), end, static_cast<int>(threads),
           [&](Value i) { sum.set(sum.get() + ir::cast(DType::i32, flags.load(i))); });
  const Value whole = ir::block_sum(sum.get());
  ir::if_(ir::thread_id() == 0, [&] { counts.store(ir::block_id(0), ir::cast(DType::i64, whole)); });
  return builder.finish();
}

struct TrueSpec {
  bool alone;                  // there is only one part, and this kernel also counts its elements
  std::optional<DType> table;  // the table from which elements are selected; if empty, positions are returned
  friend bool operator==(const TrueSpec&, const TrueSpec&) = default;
  std::size_t hash() const { return (table ? static_cast<std::size_t>(*table) + 1 : 0) * 2 + alone; }
};

ir::Function trace_true_places(const TrueSpec& spec) {
  const bool alone = spec.alone;
  ir::Builder builder(spec.table ? "true_elements" : "true_places", ir::KernelKind::block, {1, 1, 1});
  ir::Builder::Scope scope(builder);
  const auto flags = ir::buffer_param("flags", DType::boolean, ir::Access::read);
  ir::BufferRef table;
  if (spec.table) table = ir::buffer_param("table", *spec.table, ir::Access::read);
  const auto out = ir::buffer_param("out", spec.table.value_or(DType::i64), ir::Access::read_write);
  // The number of true elements up to the end of each part.
  const auto until = ir::buffer_param("until", DType::i64, alone ? ir::Access::read_write : ir::Access::read);
  const Value count = ir::scalar_param("count", DType::index), part = ir::scalar_param("part", DType::index);
  const Value which = ir::block_id(0), begin = which * part;
  const ir::Variable last(DType::index, ir::min(begin + part, count));
  ir::while_([&] { return last.get() > begin && !flags.load_if(last.get() > begin, last.get() - 1, true); },
             [&] { last.set(last.get() - 1); });
  // Every position is written. If it is not selected, the next position overwrites it. This is faster than a branch.
  // The last position needs a check. Counts have 64 bits: extending 32-bit counts in each address computation would be
  // on the critical path between two additions.
  const Value none = ir::literal(DType::i64, 0);
  const ir::Variable place(DType::i64, alone ? none : until.load_if(which > 0, which - 1, none));
  const auto one = [&](Value i, Value number) {
    out.store(ir::cast(DType::index, place.get()), spec.table ? table.load(i) : number);
    place.set(place.get() + ir::cast(DType::i64, flags.load(i)));
  };
  constexpr int together = 8;
  const Value end = last.get(), rest = begin + (end - begin) / together * together;
  ir::for_(begin, rest, together, [&](Value i) {
    const Value number = ir::cast(DType::i64, i);  // converted once per iteration instead of once per element
    for (int k = 0; k < together; ++k) one(i + k, number + k);
  });
  ir::for_(rest, end, [&](Value i) { one(i, ir::cast(DType::i64, i)); });
  if (alone) until.store(0, place.get());
  return builder.finish();
}

KernelFamily<TrueSpec>& placing() {
  static auto& family = *new KernelFamily<TrueSpec>(trace_true_places);
  return family;
}
constexpr std::int64_t part = 4096;

/// Returns the elements of `table` for which the flag is true, or their positions if `table` is null. The flags must
/// fit in a single part.
Array true_elements(const Array& flags, const Array* table) {
  flags.eval();
  if (table != nullptr) table->eval();
  const CachedOperation repeated(CachedOperation::selection, flags, table);
  const std::int64_t count = flags.size();
  Array out;
  if (repeated) {
    out = repeated();
  } else {
    const DType dtype = table != nullptr ? table->dtype() : DType::i64;
    const std::size_t bytes = static_cast<std::size_t>(count) * dtype_size(dtype);
    out = Array::wrap(Storage::allocate(flags.device(), CachedOperation::bytes_with_counter(bytes)), dtype, {count});
    LaunchArguments arguments;
    arguments.add(flags.view());
    if (table != nullptr) arguments.add(table->view());
    arguments.add(out.view()), arguments.add(CachedOperation::counter(out));
    arguments.index(count), arguments.index(part);
    const Kernel& kernel = placing()({true, table != nullptr ? std::optional(dtype) : std::nullopt});
    const std::array<std::uint64_t, 3> grid = {1, 1, 1};
    kernel.launch(grid, arguments);
    repeated.keep(out, {.kernel = kernel, .shape = grid, .arguments = arguments, .counted = true});
  }
  std::int64_t found = 0;
  current_queue(flags.device()).download(&found, CachedOperation::counter(out));
  return ArrayAccess::make(ArrayAccess::source(out), {found});
}

Array places_in_parts(const Array& flags) {
  const Device device = flags.device();
  const std::int64_t count = flags.size(), parts = (count + part - 1) / part;
  if (parts == 1) return true_elements(flags, nullptr);
  const std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(parts), 1, 1};
  const auto length = LaunchArgument::index(count), each = LaunchArgument::index(part);
  Array until = Array::empty({parts}, DType::i64, device);
  static auto& counting = *new KernelFamily<std::uint32_t>(trace_true_counts);
  counting(device_info(device).can.subgroup_widths[0]).launch(grid, {flags.view(), until.view(), length, each});
  until = detail::running_sum(until, {until.shape(), 0}, DType::i64, false);
  const Array out = Array::empty({until.slice(0, parts - 1, parts).item<std::int64_t>()}, DType::i64, device);
  if (out.size() != 0)
    placing()({false, std::nullopt}).launch(grid, {flags.view(), out.view(), until.view(), length, each});
  return out;
}

/// Returns the row-major positions of the true elements of a bool array.
Array places_where(const Array& given) {
  const Array flags = given.as_contiguous();
  const std::int64_t count = flags.size();
  if (count == 0) return Array::empty({0}, DType::i64, flags.device());
  if (blocks_are_vectors(kernel_backend(flags.device()))) return places_in_parts(flags);
  const DType counts = count <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
  const Array until = detail::running_sum(flags, {Shape{count}, 0}, counts, false).reshape({count});
  const std::int64_t found = until.slice(0, count - 1, count).astype(DType::i64).item<std::int64_t>();
  const Array out = Array::empty({found}, DType::i64, flags.device());
  if (found == 0) return out;
  static auto& family = *new KernelFamily<DType>(trace_places);
  family(counts).launch({static_cast<std::uint64_t>(count), 1, 1}, {flags.view(), until.view(), out.view()});
  return out;
}

}  // namespace

Array masked_select(const Array& a, const Array& mask) {
  const Operation operation("masked_select", a, mask);
  if (mask.dtype() != DType::boolean)
    fail<DtypeError>({.operation = "masked_select",
                      .with = {{"mask", std::string(dtype_name(mask.dtype()))}},
                      .wrong = "a mask must be a bool array",
                      .remedy = "Compare, as in mask != 0, or select by position with take"});
  const Array* both[] = {&a, &mask};
  detail::common_device("masked_select", both);
  const auto covered = mask.shape().size();
  if (covered > a.shape().size() || !std::equal(mask.shape().begin(), mask.shape().end(), a.shape().begin()))
    fail<ShapeError>({.operation = "masked_select",
                      .with = {{"a", to_string(a.shape())}, {"mask", to_string(mask.shape())}},
                      .wrong = "the mask's shape does not match the array's first axes"});
  if (covered == a.shape().size() && mask.size() <= part && mask.size() != 0 && !a.has_history() &&
      blocks_are_vectors(kernel_backend(a.device()))) {
    if (a.contiguous() && mask.contiguous()) return operation.finish(true_elements(mask, &a));
    const Array table = a.as_contiguous();
    return operation.finish(true_elements(mask.as_contiguous(), &table));
  }
  Shape rows = {mask.size()};
  rows.insert(rows.end(), a.shape().begin() + static_cast<std::ptrdiff_t>(covered), a.shape().end());
  return operation.finish(take(a.reshape(std::move(rows)), places_where(mask)));
}

std::vector<Array> nonzero(const Array& a) {
  if (a.rank() == 0) return nonzero(a.reshape({1}));
  const Operation operation("nonzero", a);
  const Array given = detail::without_history(a);
  const Array places = places_where(given.dtype() == DType::boolean ? given : given != 0);
  const Strides strides = contiguous_strides(a.shape());
  std::vector<Array> out;
  for (std::size_t d = 0; d < a.shape().size(); ++d) {
    Array along = strides[d] > 1 ? places / strides[d] : places;
    out.push_back(d == 0 ? std::move(along) : std::move(along) % a.shape()[d]);
  }
  return operation.finish(std::move(out), [] { return Attributes{}; });
}

namespace {

/// Marks the elements of a sorted line that differ from the one before.
Array first_of_equals(const Array& sorted) {
  const std::int64_t count = sorted.size();
  const Array first = Array::ones({std::min<std::int64_t>(count, 1)}, DType::boolean, sorted.device());
  if (count < 2) return first;
  const Array here = sorted.slice(0, 1, count), before = sorted.slice(0, 0, count - 1);
  Array differs = here != before;
  if (is_float(sorted.dtype())) differs = std::move(differs) & (before == before);  // NaN sorts last, and NaN != NaN
  return concatenate({first, differs});
}

/// The distinct integers of an array whose range is smaller than its size, and how often each occurs. Returns nothing
/// for other arrays, which must be sorted.
std::optional<Counted> counted_in_range(const Array& a) {
  const DType t = a.dtype();
  constexpr std::int64_t worthwhile = 1024;
  if (is_float(t) || t == DType::boolean || t == DType::u64 || a.size() < worthwhile) return {};
  const Array line = a.reshape({a.size()}).astype(DType::i64);
  const auto limits = stack({min(line), max(line)}).to_vector<std::int64_t>();
  const std::uint64_t range = static_cast<std::uint64_t>(limits[1]) - static_cast<std::uint64_t>(limits[0]);
  if (range >= static_cast<std::uint64_t>(a.size())) return {};
  const Array none = Array::zeros({static_cast<std::int64_t>(range) + 1}, DType::i64, a.device());
  const Array counts = scatter_add(none, line - limits[0], Array::ones({line.size()}, DType::i64, a.device()));
  const Array present = nonzero(counts)[0];
  return Counted{(present + limits[0]).astype(t).eval(), take(counts, present)};
}

}  // namespace

Array unique(const Array& a) {
  const Operation operation("unique", a);
  detail::check_no_rule("unique", a);
  if (std::optional<Counted> counted = counted_in_range(a)) return operation.finish(std::move(counted->values));
  const Array sorted = sort(a.reshape({a.size()}));
  return operation.finish(sorted.size() < 2 ? sorted : masked_select(sorted, first_of_equals(sorted)));
}

Counted unique_counts(const Array& a) {
  const Operation operation("unique_counts", a);
  detail::check_no_rule("unique_counts", a);
  std::optional<Counted> counted = counted_in_range(a);
  if (!counted) {
    const Array sorted = sort(a.reshape({a.size()}));
    const Array begins = nonzero(first_of_equals(sorted))[0];
    const Array end = Array::full({std::min<std::int64_t>(sorted.size(), 1)}, sorted.size(), DType::i64, a.device());
    const Array ends = begins.size() == 0 ? end : concatenate({begins.slice(0, 1, begins.size()), end});
    counted = {take(sorted, begins), (ends - begins).eval()};
  }
  std::vector<Array> both = operation.finish({counted->values, counted->counts}, [] { return Attributes{}; });
  return {both[0], both[1]};
}

}  // namespace tessera
