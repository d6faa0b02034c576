// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/cached_operation.h"

#include <algorithm>
#include <utility>

#include "tessera/array/elementwise.h"
#include "tessera/array/fusion_trace.h"
#include "tessera/device/context.h"
#include "tessera/device/launch/prepared_launch.h"

namespace tessera::detail {

namespace {

constexpr std::size_t max_dimensions = 4;  // of the operands together, and of the result

/// Packs the operands' dtypes, ranks and device into a key.
std::uint64_t types_of(const Array& a, const Array* b, Device device) {
  const auto number = [](auto v) { return static_cast<std::uint64_t>(v); };
  const std::uint64_t first = number(a.dtype()) | number(a.rank()) << 8;
  const std::uint64_t second = b == nullptr ? 0 : number(b->dtype()) << 12 | number(b->rank() + 1) << 20;
  return first | second | number(device.backend) << 24 | number(device.index) << 32;
}
bool in_pool(const Source& source) { return source.memory()->from_pool(); }

}  // namespace

struct CachedOperation::Entry {
  std::uint64_t what = 0, types = 0;
  std::array<std::int64_t, 2 * max_dimensions> walked{};  // shape and strides of each operand
  std::array<std::int64_t, max_dimensions> shape{};       // shape of the result
  std::uint8_t rank = 0;
  bool swapped = false, counted = false;
  DType dtype = DType::f32;
  std::uint32_t note = 0;
  PreparedLaunch launch;

  /// Compares the numbers in place. Copying them first would cause a store-forwarding stall.
  bool walks(const Array& first, const Array* second) const {
    const std::int64_t* at = walked.data();
    std::int64_t differ = 0;
    const auto compare = [&](const Array& a) {
      const std::int64_t *const shape_of = a.shape().data(), *const strides_of = a.strides().data();
      const std::size_t n = a.shape().size();
      for (std::size_t d = 0; d < n; ++d) differ |= (at[2 * d] ^ shape_of[d]) | (at[2 * d + 1] ^ strides_of[d]);
      at += 2 * n;
    };
    compare(first);
    if (second != nullptr) compare(*second);
    return differ == 0;
  }

  static constinit thread_local std::array<Entry, 32> all;
  /// True while an entry is in use. It must not be replaced then: memory operations may run other array operations.
  static constinit thread_local bool in_use;
  static constinit thread_local std::uint64_t done;
};
constinit thread_local std::array<CachedOperation::Entry, 32> CachedOperation::Entry::all;
constinit thread_local bool CachedOperation::Entry::in_use = false;
constinit thread_local std::uint64_t CachedOperation::Entry::done = 0;

CachedOperation::CachedOperation(std::uint64_t what, const Array& first, const Array* second)
    : first_(first), second_(second), what_(what) {
  const Array& last = second != nullptr ? *second : first;
  const std::size_t dimensions = first.shape().size() + (second != nullptr ? second->shape().size() : 0);
  if (dimensions > max_dimensions || first.has_history() || last.has_history() ||
      thread_context.array_observer != nullptr || fusion_traced())
    return;
  const Source &a = *ArrayAccess::source(first), &b = *ArrayAccess::source(last);
  if (a.pending() || b.pending() || a.device() != b.device() || !is_built_in(a.device().backend)) return;
  if (!in_pool(a) || !in_pool(b)) return;
  types_ = types_of(first, second, a.device());
  std::uint64_t h = what ^ types_ << 24;
  const auto mix = [&](const Array& of) {
    for (const std::int64_t extent : of.shape()) h = (h << 12 | h >> 52) ^ static_cast<std::uint64_t>(extent);
  };
  mix(first);
  if (second != nullptr) mix(*second);
  place_ = &Entry::all[h * 0x9e3779b97f4a7c15u >> 59];
  if (place_->what == what && place_->types == types_ && place_->walks(first, second)) queue_ = place_->launch.ready();
}

std::uint32_t CachedOperation::note() const { return place_->note; }
std::uint64_t CachedOperation::done() { return Entry::done; }
void CachedOperation::count() { ++Entry::done; }

Array CachedOperation::operator()() const {
  const Entry& known = *place_;
  struct InUse {
    bool before = std::exchange(Entry::in_use, true);
    ~InUse() { Entry::in_use = before; }
  } const in_use;
  count();
  std::size_t elements = 1;
  for (std::size_t d = 0; d < known.rank; ++d) elements *= static_cast<std::size_t>(known.shape[d]);
  const std::size_t bytes = elements * dtype_size(known.dtype);
  auto source = Source::of(known.launch.allocate(known.counted ? bytes_with_counter(bytes) : bytes), known.dtype);
  Array out = known.rank == 2
                  ? ArrayAccess::matrix(std::move(source), known.shape[0], known.shape[1])
                  : ArrayAccess::make(std::move(source), Shape(known.shape.begin(), known.shape.begin() + known.rank));
  const auto begin = [](const Array& array) {
    return PreparedLaunch::Buffer{ArrayAccess::source(array)->memory().get(),
                                  static_cast<std::uint64_t>(ArrayAccess::offset(array)) * dtype_size(array.dtype())};
  };
  Storage* const result = ArrayAccess::source(out)->memory().get();
  std::array<PreparedLaunch::Buffer, PreparedLaunch::most_buffers> buffers;
  std::size_t count = 0;
  if (known.swapped) buffers[count++] = begin(*second_);
  buffers[count++] = begin(first_);
  if (second_ != nullptr && !known.swapped) buffers[count++] = begin(*second_);
  buffers[count++] = {result, 0};
  if (known.counted) buffers[count++] = {result, bytes_with_counter(bytes) - 8};
  known.launch(*queue_, std::span(buffers).first(count));
  return out;
}

BufferView CachedOperation::counter(const Array& out) {
  return {ArrayAccess::source(out)->memory(), bytes_with_counter(out.bytes()) - 8, 1, DType::i64};
}

void CachedOperation::keep(const Array& out, const Launch& done) const {
  if (place_ == nullptr || Entry::in_use) return;
  const Source& c = *ArrayAccess::source(out);
  if (!in_pool(c) || out.shape().size() > max_dimensions || ArrayAccess::offset(out) != 0 || !out.contiguous()) return;
  std::array<const Storage*, PreparedLaunch::most_buffers> expected{};
  std::size_t buffers = 0;
  const auto expect = [&](const Array& a) { expected[buffers++] = ArrayAccess::source(a)->memory().get(); };
  expect(done.swapped ? *second_ : first_);
  if (second_ != nullptr) expect(done.swapped ? first_ : *second_);
  expect(out);
  if (done.counted) expect(out);
  std::size_t met = 0;
  for (const LaunchArgument& argument : done.arguments)
    if (argument.view.storage != nullptr && (met == buffers || argument.view.storage.get() != expected[met++])) return;
  if (met != buffers) return;
  Entry& known = *place_;
  known.what = what_, known.types = types_;
  std::int64_t* at = known.walked.data();
  const auto note = [&](const Array& a) {
    for (std::size_t d = 0; d < a.shape().size(); ++d) *at++ = a.shape()[d], *at++ = a.strides()[d];
  };
  note(first_);
  if (second_ != nullptr) note(*second_);
  std::ranges::copy(out.shape(), known.shape.begin());
  known.rank = static_cast<std::uint8_t>(out.shape().size());
  known.swapped = done.swapped, known.counted = done.counted, known.dtype = out.dtype(), known.note = done.note;
  known.launch = PreparedLaunch(done.kernel, done.shape, done.arguments);
}

}  // namespace tessera::detail
