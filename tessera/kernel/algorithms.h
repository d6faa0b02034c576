// SPDX-License-Identifier: Apache-2.0
// Algorithms over whole buffers with your own functions: reduction(), prefix_scan() and compaction(). Like kernel(),
// they trace a function once and return an object that runs it on any device. Results do not depend on timing, so all
// runs produce the same bits on one device.
#pragma once

#include <string>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"

namespace tessera {

namespace detail {

/// The element type of a function of Vals: float for Val<float>(Val<float>, Val<float>).
template <class S>
struct ElementOfFunction;
template <class R, class T, class... P>
struct ElementOfFunction<Signature<R(Val<T>, P...)>> {
  using type = T;
};
template <class R, class... P>
Signature<R(P...)> signature_of(R (*)(P...));
template <class C, class R, class... P>
Signature<R(P...)> signature_of(R (C::*)(P...) const);
template <class F>
using element_of = typename ElementOfFunction<decltype(signature_of(&F::operator()))>::type;

inline constexpr int threads_of_scan = 256, elements_of_thread = 8;
inline constexpr std::int64_t elements_of_scan = threads_of_scan * elements_of_thread;

/// Throws ArgumentError if the result does not have the wanted number of elements.
void check_result_size(const std::string& name, std::uint64_t elements, std::uint64_t wanted);

/// The number of blocks that reduce `count` elements.
std::int64_t parts_of_reduction(std::int64_t count);
/// Reads the last of one or more i64 elements. Waits for the device.
std::uint64_t last_element(const BufferView& view);

/// Combines the values of the block's threads in their order: each thread gets the combination of those before it, and
/// the last element of `room` is that of all. `room` has two elements per thread.
template <class T, class Op>
Val<T> scan_of_block(const Shared<T>& room, const Val<T>& own, T identity, const Op& op) {
  const auto t = thread_id();
  room[t] = own;
  barrier();
  int from = 0;
  for (int distance = 1; distance < threads_of_scan; distance *= 2, from = threads_of_scan - from) {
    const int to = threads_of_scan - from;
    if_(
        t >= distance, [&] { room[t + to] = op(Val<T>(room[t + from - distance]), Val<T>(room[t + from])); },
        [&] { room[t + to] = room[t + from]; });
    barrier();
  }
  static_assert(threads_of_scan == 1 << 8, "an even number of steps ends in the first half");
  Var<T> before = identity;
  if_(t > 0, [&] { before = room[t - 1]; });
  return before.get();
}

}  // namespace detail

/// Combines all elements of a buffer to one. reduction() creates it.
template <class T>
class BufferReduction {
  using Step = BlockKernel<Buffer<const T>, Buffer<T>, Val<Index>, Val<Index>>;

 public:
  /// Created by reduction().
  explicit BufferReduction(Step step) : step_(std::move(step)) {}
  /// Writes the combination of the elements of `x` to the only element of `out`, without waiting. Both are anything
  /// that a kernel takes for a buffer: a DeviceBuffer, a contiguous Array or a BufferView.
  template <class X, class Out>
  void operator()(const X& x, Out&& out) const {
    const BufferView from = kernel_argument(x, ir::Access::read);
    const BufferView to = kernel_argument(out, ir::Access::read_write);
    detail::check_result_size(step_.name(), to.elements, 1);
    const auto count = static_cast<std::int64_t>(from.elements);
    const std::int64_t parts = detail::parts_of_reduction(count);
    if (parts == 1) return step_.launch(blocks(1), from, to, count, count);
    const std::int64_t each = (count + parts - 1) / parts;
    const DeviceBuffer<T> partial(parts, from.storage->device());
    step_.launch(blocks(parts), from, partial.view(), count, each);
    step_.launch(blocks(1), partial, to, parts, parts);
  }
  /// Returns the combination of the elements of `x`. Waits for the device.
  template <class X>
  T operator()(const X& x) const {
    const DeviceBuffer<T> out(1, kernel_argument(x, ir::Access::read).storage->device());
    (*this)(x, out.view());
    return out.to_vector()[0];
  }

 private:
  Step step_;
};

/// Returns a reduction with an associative and commutative function of two values, `Val<T> op(Val<T>, Val<T>)`, for
/// which op(identity, x) is x. Floats are combined in an order that depends only on the number of elements.
template <class F>
auto reduction(std::string name, detail::element_of<F> identity, F op) {
  using T = detail::element_of<F>;
  constexpr int threads = detail::threads_of_scan;
  return BufferReduction<T>(
      kernel(std::move(name), block(threads), [=](Buffer<const T> x, Buffer<T> out, Val<Index> count, Val<Index> each) {
        const auto t = thread_id(), part = block_id();
        const Val<Index> begin = part * each, end = min(begin + each, count);
        Var<T> all = identity;
        for_(begin + t, end, threads, [&](Val<Index> i) { all = op(all.get(), Val<T>(x[i])); });
        const Shared<T> room(threads);
        room[t] = all;
        barrier();
        for (int half = threads / 2; half > 0; half /= 2) {
          if_(t < half, [&] { room[t] = op(Val<T>(room[t]), Val<T>(room[t + half])); });
          barrier();
        }
        if_(t == 0, [&] { out[part] = room[0]; });
      }));
}

/// Combines each element of a buffer with those before it. prefix_scan() creates it.
template <class T>
class BufferScan {
  using Step = BlockKernel<Buffer<const T>, Buffer<T>, Buffer<T>, Val<Index>>;
  using Add = MapKernel<Buffer<const T>, Buffer<T>>;

 public:
  /// Created by prefix_scan().
  BufferScan(Step inclusive, Step exclusive, Add add)
      : inclusive_(std::move(inclusive)), exclusive_(std::move(exclusive)), add_(std::move(add)) {}

  /// Writes out[i] = x[0] op ... op x[i]. `out` has as many elements as `x`, and may be `x`. Does not wait.
  template <class X, class Out>
  void operator()(const X& x, Out&& out) const {
    run(inclusive_, kernel_argument(x, ir::Access::read), kernel_argument(out, ir::Access::read_write));
  }
  /// Writes out[0] = identity and out[i] = x[0] op ... op x[i - 1].
  template <class X, class Out>
  void exclusive(const X& x, Out&& out) const {
    run(exclusive_, kernel_argument(x, ir::Access::read), kernel_argument(out, ir::Access::read_write));
  }

 private:
  void run(const Step& step, const BufferView& x, const BufferView& out) const {
    detail::check_result_size(step.name(), out.elements, x.elements);
    const auto count = static_cast<std::int64_t>(x.elements);
    const std::int64_t parts = (count + detail::elements_of_scan - 1) / detail::elements_of_scan;
    if (parts == 0) return;
    const DeviceBuffer<T> totals(parts, x.storage->device());
    step.launch(blocks(parts), x, out, totals.view(), count);
    if (parts == 1) return;
    run(exclusive_, totals.view(), totals.view());
    add_.launch(count, totals, out);
  }
  Step inclusive_, exclusive_;
  Add add_;
};

/// Returns a scan with an associative function of two values, `Val<T> op(Val<T>, Val<T>)`, for which op(identity, x) is
/// x.
template <class F>
auto prefix_scan(const std::string& name, detail::element_of<F> identity, F op) {
  using T = detail::element_of<F>;
  constexpr int threads = detail::threads_of_scan, each = detail::elements_of_thread;
  const auto step = [=](bool exclusive) {
    return kernel(name + (exclusive ? "_before" : ""), block(threads),
                  [=](Buffer<const T> x, Buffer<T> out, Buffer<T> totals, Val<Index> count) {
                    const auto t = thread_id(), part = block_id();
                    const Val<Index> begin = part * detail::elements_of_scan + t * each;
                    Var<T> all = identity;
                    for_(begin, min(begin + each, count), [&](Val<Index> i) { all = op(all.get(), Val<T>(x[i])); });
                    const Shared<T> room(2 * threads);
                    const Val<T> before = detail::scan_of_block(room, all.get(), identity, op);
                    if_(t == threads - 1, [&] { totals[part] = room[t]; });
                    Var<T> sum = before;
                    for_(begin, min(begin + each, count), [&](Val<Index> i) {
                      const Val<T> with = op(sum.get(), Val<T>(x[i]));
                      out[i] = exclusive ? sum.get() : with;
                      sum = with;
                    });
                  });
  };
  return BufferScan<T>(step(false), step(true), kernel(name + "_add", [=](Buffer<const T> totals, Buffer<T> out) {
                         const auto i = global_id();
                         out[i] = op(Val<T>(totals[i / detail::elements_of_scan]), Val<T>(out[i]));
                       }));
}

/// Copies the elements for which a condition holds. compaction() creates it.
template <class T>
class BufferCompaction {
  using Count = BlockKernel<Buffer<const T>, Buffer<std::int64_t>, Val<Index>>;
  using Copy = BlockKernel<Buffer<const T>, Buffer<const std::int64_t>, Buffer<T>, Val<Index>>;

 public:
  /// Created by compaction().
  BufferCompaction(Count count, BufferScan<std::int64_t> sum, Copy copy)
      : count_(std::move(count)), sum_(std::move(sum)), copy_(std::move(copy)) {}

  /// Writes the elements of `x` for which the condition holds to the begin of `out`, in their order, and returns their
  /// number. `out` has at least as many elements as `x`, and must not share memory with it. Waits for the device.
  template <class X, class Out>
  std::uint64_t operator()(const X& x, Out&& out) const {
    const BufferView from = kernel_argument(x, ir::Access::read);
    const BufferView to = kernel_argument(out, ir::Access::read_write);
    if (to.elements < from.elements) detail::check_result_size(copy_.name(), to.elements, from.elements);
    const auto count = static_cast<std::int64_t>(from.elements);
    const std::int64_t parts = (count + detail::elements_of_scan - 1) / detail::elements_of_scan;
    if (parts == 0) return 0;
    const DeviceBuffer<std::int64_t> ends(parts, from.storage->device());
    count_.launch(blocks(parts), from, ends.view(), count);
    sum_(ends, ends.view());
    copy_.launch(blocks(parts), from, ends, to, count);
    return detail::last_element(ends.view());
  }

 private:
  Count count_;
  BufferScan<std::int64_t> sum_;
  Copy copy_;
};

/// Returns a compaction with a condition, `Val<bool> condition(Val<T>)`.
template <class F>
auto compaction(const std::string& name, F condition) {
  using T = detail::element_of<F>;
  constexpr int threads = detail::threads_of_scan, each = detail::elements_of_thread;
  const auto for_kept = [=](const Buffer<const T>& x, const Val<Index>& count, const auto& body) {
    const Val<Index> begin = block_id() * detail::elements_of_scan + thread_id() * each;
    for_(begin, min(begin + each, count), [&](Val<Index> i) {
      const Val<T> element = x[i];
      if_(condition(element), [&] { body(element); });
    });
  };
  return BufferCompaction<T>(
      kernel(name + "_count", block(threads),
             [=](Buffer<const T> x, Buffer<std::int64_t> counts, Val<Index> count) {
               Var<std::int32_t> kept = 0;
               for_kept(x, count, [&](const Val<T>&) { ++kept; });
               const auto all = block_sum(kept.get());
               if_(thread_id() == 0, [&] { counts[block_id()] = cast<std::int64_t>(all); });
             }),
      prefix_scan(name + "_positions", 0, [](Val<std::int64_t> a, Val<std::int64_t> b) { return a + b; }),
      kernel(name, block(threads),
             [=](Buffer<const T> x, Buffer<const std::int64_t> ends, Buffer<T> out, Val<Index> count) {
               const auto part = block_id();
               Var<std::int32_t> kept = 0;
               for_kept(x, count, [&](const Val<T>&) { ++kept; });
               Var<std::int64_t> at = cast<std::int64_t>(block_scan_exclusive(kept.get()));
               if_(part > 0, [&] { at += ends[part - 1]; });
               for_kept(x, count, [&](const Val<T>& element) {
                 out[at.get()] = element;
                 ++at;
               });
             }));
}

}  // namespace tessera
