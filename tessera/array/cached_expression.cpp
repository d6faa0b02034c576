// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/cached_expression.h"

#include <algorithm>
#include <utility>

#include "tessera/array/cached_operation.h"
#include "tessera/array/fusion_trace.h"
#include "tessera/device/launch/prepared_launch.h"
#include "tessera/device/queue/recorder.h"

namespace tessera::detail {

namespace {
constexpr std::size_t most_elements = std::size_t{1} << 16;  // For larger arrays, the launch overhead does not matter.
}

struct CachedExpression::Entry {
  std::array<std::int64_t, std::tuple_size_v<decltype(CachedExpression::key_)>> key{};
  std::size_t words = 0;
  PreparedLaunch launch;

  bool is(const CachedExpression& e) const {
    std::int64_t differ = 0;
    for (std::size_t i = 0; i < e.words_; ++i) differ |= key[i] ^ e.key_[i];
    return words == e.words_ && differ == 0;
  }
  static constinit thread_local std::array<Entry, 64> all;
  /// True while an entry is in use. It must not be replaced then: allocating memory may evaluate other expressions.
  static constinit thread_local bool in_use;
};
constinit thread_local std::array<CachedExpression::Entry, 64> CachedExpression::Entry::all;
constinit thread_local bool CachedExpression::Entry::in_use = false;

CachedExpression::CachedExpression(ir::Op op, std::uint8_t sub, DType dtype, Device device, const Shape& shape,
                                   std::span<const Term> terms, const StridedView* target)
    : dtype_(dtype), terms_(terms), target_(target) {
  const std::size_t rank = shape.size();
  if (rank > max_dimensions || terms.size() > max_terms || !is_built_in(device.backend)) return;
  if (Recorder::number() != 0 || fusion_traced()) return;
  const auto plain = [](const Storage& memory) {
    const CoherenceHook* const e = memory.coherence_hook();
    return memory.from_pool() && (e == nullptr || !e->has_other_writers());
  };
  const auto number = [](auto v) { return static_cast<std::uint64_t>(v); };
  std::uint64_t hash = number(op) | number(sub) << 8 | number(dtype) << 16 | number(rank) << 24 |
                       number(target != nullptr) << 28 | number(device.backend) << 32 | number(device.index) << 40;
  const auto add = [&](std::uint64_t word) {
    key_[words_++] = static_cast<std::int64_t>(word);
    hash = (hash << 12 | hash >> 52) ^ word;
  };
  add(hash);
  for (const std::int64_t extent : shape) add(number(extent)), elements_ *= static_cast<std::size_t>(extent);
  if (elements_ > most_elements || elements_ == 0) return;
  std::uint64_t of_terms = 0;
  for (const Term& t : terms) {
    if (t.kind == Term::expression || (t.kind == Term::memory && !plain(*t.view.storage))) return;
    std::size_t same = 0;
    if (t.kind == Term::memory) {
      while (same < input_count_ && !(*inputs_[same] == t.view)) ++same;
      if (same == input_count_) inputs_[input_count_++] = &t.view;
    }
    of_terms = of_terms << 16 | number(t.kind) << 12 | number(same) << 8 | number(t.dtype);
  }
  if (input_count_ == 0) return;
  add(of_terms);
  const auto strides = [&](const StridedView& view) {
    for (const std::int64_t stride : view.strides) add(number(stride));
  };
  for (std::size_t i = 0; i < input_count_; ++i) strides(*inputs_[i]);
  if (target != nullptr) {
    // An operand in the target's memory is the same view as the target. Operands with other views have already been
    // copied.
    std::uint64_t written = 0;
    for (std::size_t i = 0; i < input_count_; ++i) written |= number(inputs_[i]->storage == target->storage) << i;
    if (!plain(*target->storage)) return;
    strides(*target), add(written);
  }
  place_ = &Entry::all[hash * 0x9e3779b97f4a7c15u >> 58];
  if (place_->is(*this)) queue_ = place_->launch.ready();
}

std::shared_ptr<Storage> CachedExpression::operator()() const {
  const PreparedLaunch& launch = place_->launch;
  struct InUse {
    bool before = std::exchange(Entry::in_use, true);
    ~InUse() { Entry::in_use = before; }
  } const in_use;
  CachedOperation::count();
  std::shared_ptr<Storage> made;
  if (target_ == nullptr) made = launch.allocate(elements_ * dtype_size(dtype_));
  std::array<PreparedLaunch::Buffer, max_terms + 1> buffers;
  const auto begin = [](const StridedView& view) {
    return PreparedLaunch::Buffer{view.storage.get(), static_cast<std::uint64_t>(view.offset) * dtype_size(view.dtype)};
  };
  for (std::size_t i = 0; i < input_count_; ++i) buffers[i] = begin(*inputs_[i]);
  buffers[input_count_] = target_ != nullptr ? begin(*target_) : PreparedLaunch::Buffer{made.get(), 0};
  std::array<std::uint64_t, max_terms> scalars{};
  std::size_t count = 0;
  for (const Term& t : terms_)
    if (t.kind == Term::scalar) scalars[count++] = t.bits;
  launch(*queue_, std::span(buffers).first(input_count_ + 1), std::span(scalars).first(count));
  return made;
}

void CachedExpression::keep(const Kernel& kernel, const std::array<std::uint64_t, 3>& threads,
                            std::span<const LaunchArgument> arguments) const {
  if (place_ == nullptr || Entry::in_use) return;
  const auto buffers =
      static_cast<std::size_t>(std::ranges::count_if(arguments, [](auto& a) { return a.view.storage != nullptr; }));
  const Storage* const written = buffers == 0 ? nullptr : arguments[buffers - 1].view.storage.get();
  if (buffers != input_count_ + 1 || !written->from_pool()) return;
  for (std::size_t i = 0; i < input_count_; ++i)
    if (arguments[i].view.storage != inputs_[i]->storage) return;
  std::copy_n(key_.begin(), words_, place_->key.begin());
  place_->words = words_;
  place_->launch = PreparedLaunch(kernel, threads, arguments);
}

}  // namespace tessera::detail
