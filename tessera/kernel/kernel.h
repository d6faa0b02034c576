// SPDX-License-Identifier: Apache-2.0
// The kernel language. kernel("name", [](Buffer<const float> x, Buffer<float> y, Val<float> a) { ... }) traces the
// function once and returns an object that launches it on any device. The guide is docs/kernels.md.
#pragma once

#include <tuple>
#include <vector>

#include "tessera/kernel/block.h"
#include "tessera/kernel/control.h"
#include "tessera/kernel/launch.h"
#include "tessera/kernel/math.h"
#include "tessera/kernel/matrix.h"
#include "tessera/kernel/misuse_errors.h"

namespace tessera {

/// The shape of a block. `block` creates it.
struct BlockShape {
  std::array<std::uint32_t, 3> size;  ///< Threads along each dimension.
};
/// Returns a block shape of x, x * y or x * y * z threads. A block has at most 1024 threads.
constexpr BlockShape block(std::uint32_t x, std::uint32_t y = 1, std::uint32_t z = 1) { return {{x, y, z}}; }

namespace detail {

template <class S>
constexpr void begins_with_threads() {
  static_assert(
      never<S>,
      "the first argument of a launch is the number of threads: k.launch(n, x, y), k.launch({width, height}, x, "
      "y), or for block kernels k.launch(blocks(n), x, y)");
}

/// The common part of map and block kernels. P are the parameters of the user's function.
template <class... P>
class TracedKernel {
 public:
  static constexpr bool has_views = (is_view<P> || ...);
  explicit TracedKernel(Kernel kernel)
    requires(!has_views)
      : kernel_(std::move(kernel)) {}
  /// With views: `rows` is the kernel for arrays whose last stride is 1, which devices read faster.
  TracedKernel(Kernel kernel, Kernel rows) : kernel_(std::move(kernel)), rows_(std::move(rows)) {}

  /// Returns the untyped kernel, for the device layer.
  const Kernel& untyped() const { return kernel_; }
  const std::string& name() const { return kernel_.function().name; }
  /// Returns the traced function in text form.
  std::string text() const { return ir::to_text(kernel_.function()); }
  /// Compiles the kernel now, so that a later launch does not have to wait for the compiler.
  void prepare(Device device) const {
    kernel_.prepare(device);
    if constexpr (has_views) rows_.prepare(device);
  }
  /// Returns the source code that is passed to the device's compiler.
  std::string source(Device device) const { return kernel_.source(device); }

 protected:
  template <class... A>
  void launch_shape(Queue* queue, const std::array<std::uint64_t, 3>& shape, A&... arguments) const {
    if constexpr (!KernelTakes<P...>::template given<A...> || KernelTakes<P...>::template writes_const<A...>) {
      KernelTakes<P...>::template check<A...>();
    } else if constexpr (has_views) {
      std::vector<LaunchArgument> list;
      bool rows = true;
      std::size_t number = 0;
      (append<P>(list, rows, number++, arguments), ...);
      (rows ? rows_ : kernel_).launch(shape, list, queue);
    } else {
      const std::initializer_list<LaunchArgument> list = {Parameter<P>::argument(arguments, name())...};
      [[maybe_unused]] std::size_t number = 0;
      ((Parameter<P>::words == 1 ? void()
                                 : check_whole_structs(name(), number, list.begin()[number].view, Parameter<P>::words),
        ++number),
       ...);
      kernel_.launch(shape, {list.begin(), list.size()}, queue);
    }
  }

  Kernel kernel_;

 private:
  template <class Q, class A>
  void append(std::vector<LaunchArgument>& list, bool& rows, std::size_t number, A& argument) const {
    if constexpr (is_view<Q>) {
      Parameter<Q>::append(list, rows, number, argument, name());
    } else {
      list.push_back(Parameter<Q>::argument(argument, name()));
      if constexpr (Parameter<Q>::words != 1)
        check_whole_structs(name(), number, list.back().view, Parameter<Q>::words);
    }
  }
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<has_views, Kernel, Nothing> rows_;
};

}  // namespace detail

/// A kernel without blocks: one thread per element of an extent. The runtime chooses the block size. Surplus threads in
/// the last block do nothing.
template <class... P>
class MapKernel : public detail::TracedKernel<P...> {
 public:
  using detail::TracedKernel<P...>::TracedKernel;

  /// Enqueues the kernel on the device of its buffers and returns immediately. Does nothing if a dimension of the
  /// extent is 0.
  ///
  /// Pass the arguments in the order of the parameters. For a Buffer<T>, pass anything that converts to a BufferView
  /// (of u32 words if T is a struct). For a Val<T>, pass a number, or slot(n, number) for a number that a replay can
  /// change.
  ///
  /// Throws KernelError if a buffer has the wrong dtype, contains a partial struct, or partially overlaps a buffer that
  /// the kernel writes. Throws DeviceError if the buffers are on different devices.
  template <class... A>
  void launch(const Extent& threads, A&&... arguments) const {
    this->launch_shape(nullptr, threads.size(this->name()), arguments...);
  }
  /// Launches into `queue`.
  template <class... A>
  void launch_on(Queue& queue, const Extent& threads, A&&... arguments) const {
    this->launch_shape(&queue, threads.size(this->name()), arguments...);
  }
  template <class... A>
  void launch(const Blocks&, A&&...) const {
    static_assert(!sizeof...(A) && sizeof...(A), "a map kernel has no blocks: launch it with {n}");
  }
  template <class S, class... A>
    requires(!std::convertible_to<S, Extent> && !std::convertible_to<S, Blocks>)
  void launch(S&&, A&&...) const {
    detail::begins_with_threads<S>();
  }
};

/// A kernel with blocks of a fixed size.
template <class... P>
class BlockKernel : public detail::TracedKernel<P...> {
 public:
  using detail::TracedKernel<P...>::TracedKernel;

  /// Like MapKernel::launch, but with `blocks(x, y)` blocks or `{x, y}` threads. A number of threads is rounded up to
  /// whole blocks, so the kernel must guard against surplus threads.
  template <class... A>
  void launch(const Blocks& blocks, A&&... arguments) const {
    this->launch_shape(nullptr, blocks.size(this->name()), arguments...);
  }
  template <class... A>
  void launch(const Extent& threads, A&&... arguments) const {
    this->launch_shape(nullptr, rounded_up(threads), arguments...);
  }
  /// Launches into `queue` with the given number of blocks.
  template <class... A>
  void launch_on(Queue& queue, const Blocks& blocks, A&&... arguments) const {
    this->launch_shape(&queue, blocks.size(this->name()), arguments...);
  }
  /// Launches into `queue` with as many blocks as the given number of threads requires.
  template <class... A>
  void launch_on(Queue& queue, const Extent& threads, A&&... arguments) const {
    this->launch_shape(&queue, rounded_up(threads), arguments...);
  }
  template <class S, class... A>
    requires(!std::convertible_to<S, Extent> && !std::convertible_to<S, Blocks>)
  void launch(S&&, A&&...) const {
    detail::begins_with_threads<S>();
  }

 private:
  std::array<std::uint64_t, 3> rounded_up(const Extent& threads) const {
    std::array<std::uint64_t, 3> shape = threads.size(this->name());
    for (std::size_t d = 0; d < 3; ++d) {
      const std::uint64_t b = this->kernel_.function().block_size[d];
      shape[d] = shape[d] / b + (shape[d] % b != 0);
    }
    return shape;
  }
};

namespace detail {

/// The kernel of detail::trace().
Kernel traced_kernel(std::string name, ir::KernelKind kind, const std::array<std::uint32_t, 3>& block_size, Body body,
                     ir::SourceLine source);

/// The parameter types of a plain function, or of a function object with one operator().
template <class F>
struct Signature {
  static constexpr bool known = false;
};
template <class R, class... P>
struct Signature<R(P...)> {
  static constexpr bool known = true;
  using result = R;
  template <template <class...> class K>
  using of = K<P...>;
  static constexpr bool by_value = (!std::is_reference_v<P> && ...);
  static constexpr bool kernel_types = (Parameter<std::remove_cvref_t<P>>::known && ...);
  template <class F>
  static Kernel trace(std::string name, ir::KernelKind kind, const std::array<std::uint32_t, 3>& size, F& f,
                      ir::SourceLine source, bool rows = false) {
    auto body = [&f, rows] { call(f, rows, std::index_sequence_for<P...>{}); };
    return traced_kernel(std::move(name), kind, size, Body(body), source);
  }

 private:
  template <class F, std::size_t... i>
  static void call(F& f, bool rows, std::index_sequence<i...>) {
    const std::tuple declared{Parameter<P>::declare(static_cast<int>(i), rows)...};
    f(Parameter<P>::handle(std::get<i>(declared))...);
  }
};
template <class R, class... P>
struct Signature<R (*)(P...)> : Signature<R(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...)> : Signature<R(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const> : Signature<R(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) noexcept> : Signature<R(P...)> {};
template <class C, class R, class... P>
struct Signature<R (C::*)(P...) const noexcept> : Signature<R(P...)> {};

template <class F>
struct SignatureOf : Signature<F> {};
template <class F>
  requires requires { &F::operator(); }
struct SignatureOf<F> : Signature<decltype(&F::operator())> {};

template <template <class...> class K, class F>
auto make_kernel(std::string name, ir::KernelKind kind, const std::array<std::uint32_t, 3>& size, F& f,
                 ir::SourceLine source) {
  using S = SignatureOf<F>;
  static_assert(S::known,
                "a kernel's parameters must have explicit types, not auto: [](Buffer<float> x, Val<Index> n) { ... }");
  if constexpr (S::known) {
    static_assert(S::by_value,
                  "a kernel's parameters must be taken by value: Buffer<T>, View<T, n> or Val<T>, without &");
    static_assert(
        S::kernel_types,
        "a kernel's parameters must be Buffer<T>, View<T, n> or Val<T>; host data is not visible in a kernel");
    static_assert(std::same_as<typename S::result, void>,
                  "a kernel must return void: it writes its results to buffers");
    using Result = typename S::template of<K>;
    if constexpr (S::by_value && S::kernel_types) {
      if constexpr (Result::has_views)
        return Result(S::trace(name, kind, size, f, source), S::trace(name, kind, size, f, source, true));
      else
        return Result(S::trace(std::move(name), kind, size, f, source));
    }
  }
}

}  // namespace detail

/// Traces `f` once and returns a map kernel. Host values that `f` uses, captured or global, become constants. May be
/// called during static initialisation. Throws KernelError with the line if `f` violates a rule of the language.
template <class F>
auto kernel(std::string name, F f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return detail::make_kernel<MapKernel>(std::move(name), ir::KernelKind::map, {1, 1, 1}, f, {file, line});
}
/// Like the overload above, but returns a block kernel.
template <class F>
auto kernel(std::string name, BlockShape block, F f, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return detail::make_kernel<BlockKernel>(std::move(name), ir::KernelKind::block, block.size, f, {file, line});
}

}  // namespace tessera
