// SPDX-License-Identifier: Apache-2.0
// Functions with a gradient of one's own, and functions that are run again for theirs.
#pragma once

#include <functional>
#include <string>

#include "tessera/array/history.h"
#include "tessera/grad/grad.h"
#include "tessera/kernel/kernel.h"

namespace tessera {

namespace detail {

/// An operation on arrays, told as one, whose parts leave no history.
struct CustomOperation {
  const char* name;
  /// From operands without history.
  std::function<Array(std::span<const Array>)> forward;
  /// Adjoints of the operands, empty arrays for those that have none.
  std::function<std::vector<Array>(const Array& adjoint, const Array& result, std::span<const Array> operands)>
      backward;
};
/// ArgumentError if forward uses an array with history that is none of the operands.
Array custom(CustomOperation operation, std::vector<Array> operands);

/// What runs again in the walk, in the mode of this thread.
struct Recomputation {
  std::vector<Array> operands;  ///< with history or not, in the order in which `run` takes them
  std::function<Array(std::span<const Array>)> run;
};
Array recompute(Recomputation what);

/// The adjoints that a function of N arrays gave: one array, or a tuple, pair or std::array of N.
template <std::size_t N, class R>
std::vector<Array> adjoint_list(const R& given) {
  if constexpr (std::is_convertible_v<const R&, const Array&>) {
    static_assert(N == 1, "the backward function must give an adjoint for each array: a tuple, or a std::array");
    return {given};
  } else {
    static_assert(std::tuple_size_v<R> == N, "the backward function must give an adjoint for each array");
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::vector<Array>{std::get<I>(given)...};
    }(std::make_index_sequence<N>());
  }
}

}  // namespace detail

/// An operation with a gradient of one's own: custom("name", forward, backward)(x, y, ...) is forward(x, y, ...), an
/// Array, and its gradient is backward(adjoint, result, x, y, ...): for each argument (an Array) its adjoint, of its
/// shape, in a tuple (the adjoint itself if there is one argument); an empty array where there is none. `forward` may
/// do what leaves no history, like launching kernels. `backward` in array operations can be differentiated again.
/// `name` is kept as it is: a literal. ArgumentError: `forward` uses an array with history that is not among its
/// arguments. ShapeError: an adjoint of another shape.
template <class F, class B>
auto custom(const char* name, F forward, B backward) {
  return [=]<class... A>(const A&... arguments) -> Array {
    static_assert((std::is_convertible_v<const A&, const Array&> && ...), "the arguments are arrays");
    return detail::custom({name,
                           [forward](std::span<const Array> x) {
                             return [&]<std::size_t... I>(std::index_sequence<I...>) -> Array {
                               return forward(x[I]...);
                             }(std::index_sequence_for<A...>());
                           },
                           [backward](const Array& g, const Array& y, std::span<const Array> x) {
                             return [&]<std::size_t... I>(std::index_sequence<I...>) {
                               return detail::adjoint_list<sizeof...(A)>(backward(g, y, x[I]...));
                             }(std::index_sequence_for<A...>());
                           }},
                          {static_cast<const Array&>(arguments)...});
  };
}

/// f, of whose intermediate results none are kept: recompute(f)(x, more...) is f(x, more...), an Array, computed; the
/// walk back runs f again, in the same Training mode with the same counters (Chen et al., "Training deep nets with
/// sublinear memory cost", 2016). Arguments, and f itself if it is a structure of arrays such as a layer, are what
/// gradients are taken by: ArgumentError if f uses another array with history. What f draws or reads must be the same
/// both times: Dropout is, a Generator of one's own is not.
template <class F>
auto recompute(F f) {
  return [f = std::move(f)]<class... A>(const A&... arguments) -> Array {
    constexpr bool structure = detail::traversable<F, detail::LeavesOf<void>::type>;
    const auto all = [&] {
      if constexpr (structure)
        return std::tuple<F, A...>(f, arguments...);
      else
        return std::tuple<A...>(arguments...);
    }();
    // What is differentiable goes in as operands; the rest stays in `constants`.
    detail::Recomputation what;
    std::vector<bool> operand;  // of each array, in the order of walks
    const auto constants = map_arrays(all, [&](const auto& a) -> Array {
      operand.push_back(differentiable(a));
      if (!operand.back()) return a;
      what.operands.push_back(a);
      return Array::empty({0}, a.dtype(), Device{});
    });
    what.run = [=](std::span<const Array> operands) -> Array {
      std::size_t at = 0, next = 0;
      const auto filled =
          map_arrays(constants, [&](const auto& a) -> Array { return operand[at++] ? operands[next++] : Array(a); });
      if constexpr (structure)
        return std::apply([](const F& g, const auto&... x) -> Array { return g(x...); }, filled);
      else
        return std::apply([&](const auto&... x) -> Array { return f(x...); }, filled);
    };
    return detail::recompute(std::move(what));
  };
}

namespace detail {

template <class K>
struct KernelParameters;
template <class... P>
struct KernelParameters<MapKernel<P...>> {
  using list = std::tuple<P...>;
};
template <class... P>
struct KernelParameters<BlockKernel<P...>> {
  using list = std::tuple<P...>;
};

template <class P>
struct BufferOf {
  static constexpr bool is = false, reads = false, writes = false, floats = false;
};
template <class T>
struct BufferOf<Buffer<T>> {
  using type = std::remove_const_t<T>;
  static constexpr bool is = true, reads = std::is_const_v<T>, writes = !reads;
  static constexpr bool floats = std::is_floating_point_v<type> || is_16bit_float<type>;
};

/// Whether the parameters are those of the backward kernel of a forward kernel with `Forward`.
template <class Forward, class Back>
consteval bool is_backward_of() {
  constexpr std::size_t n = std::tuple_size_v<Forward>, m = std::tuple_size_v<Back>;
  using Result = BufferOf<std::tuple_element_t<n - 1, Forward>>;
  return []<std::size_t... I>(std::index_sequence<I...>) {
    constexpr std::size_t inputs =
        (std::size_t{0} + ... +
         (BufferOf<std::tuple_element_t<I, Forward>>::is && BufferOf<std::tuple_element_t<I, Forward>>::floats ? 1
                                                                                                               : 0));
    if constexpr (m != n + 1 + inputs) {
      return false;
    } else {
      using R = Buffer<const typename Result::type>;
      bool same = (std::is_same_v<std::tuple_element_t<I, Forward>, std::tuple_element_t<I, Back>> && ...);
      same = same && std::is_same_v<std::tuple_element_t<n - 1, Back>, R> &&
             std::is_same_v<std::tuple_element_t<n, Back>, R>;
      return same && []<std::size_t... J>(std::index_sequence<J...>) {
        return (BufferOf<std::tuple_element_t<n + 1 + J, Back>>::writes && ...);
      }(std::make_index_sequence<inputs>());
    }
  }(std::make_index_sequence<n - 1>());
}

/// Among the parameters P of a kernel, how many buffers are before number `at`.
template <class P>
constexpr std::size_t buffers_before(std::size_t at) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (std::size_t{0} + ... + (I < at && BufferOf<std::tuple_element_t<I, P>>::is ? 1 : 0));
  }(std::make_index_sequence<std::tuple_size_v<P>>());
}

/// The text, for as long as the process lives.
const char* intern_string(const std::string& text);

}  // namespace detail

/// A typed kernel as an operation with a gradient. `kernel` takes its inputs, Buffer<const T> and Val<T>, and then one
/// Buffer<T>, the result. `backward` takes the same inputs, the result and its adjoint (both Buffer<const T>), and then
/// a Buffer<T> for each buffer of floats among the inputs, in their order: for its adjoint, which is zeros before. It
/// is launched for as many threads as `kernel`.
///
///   auto forward = kernel("square", [](Buffer<const float> x, Buffer<float> y) {
///     y[global_id()] = x[global_id()] * x[global_id()];
///   });
///   auto backward = kernel("square_back", [](Buffer<const float> x, Buffer<const float>, Buffer<const float> gy,
///                                            Buffer<float> gx) {
///     gx[global_id()] = 2 * x[global_id()] * gy[global_id()];
///   });
///   auto square = with_gradient(forward, backward);
///   Array y = square({n}, {n}, x);  // threads, the result's shape, inputs
///
/// Differentiable once: ArgumentError for a second derivative. DeviceError, KernelError: as of a launch.
template <class K, class B>
auto with_gradient(K kernel, B backward) {
  using Forward = typename detail::KernelParameters<K>::list;
  using Back = typename detail::KernelParameters<B>::list;
  constexpr std::size_t inputs = std::tuple_size_v<Forward> - 1;
  using Result = detail::BufferOf<std::tuple_element_t<inputs, Forward>>;
  static_assert(Result::writes, "the last parameter of the kernel is the buffer that it writes");
  static_assert(detail::is_backward_of<Forward, Back>(),
                "the backward kernel takes the kernel's inputs, its result and the adjoint of that (read only), and a "
                "buffer for the adjoint of each input of floats");
  return [=]<class... A>(const Extent& threads, const Shape& result, const A&... arguments) -> Array {
    static_assert(sizeof...(A) == inputs, "the operation takes the kernel's inputs: the result is made");
    const char* const name = detail::intern_string(kernel.name());
    const auto all = std::tuple(arguments...);
    std::vector<Array> operands;
    const auto note = [&](const auto& a) {
      if constexpr (std::is_convertible_v<decltype(a), const Array&>) operands.push_back(a);
    };
    (note(arguments), ...);
    static_assert(detail::buffers_before<Forward>(inputs) > 0, "a kernel with a gradient reads a buffer");
    if (operands.size() != detail::buffers_before<Forward>(inputs))
      fail<ArgumentError>({.operation = name, .wrong = "an input that the kernel takes as a buffer is no array"});
    const auto launched = [=](const auto& which, std::span<Array> x, auto&... more) {
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        const auto input = [&]<std::size_t N>(std::integral_constant<std::size_t, N>) -> decltype(auto) {
          if constexpr (detail::BufferOf<std::tuple_element_t<N, Forward>>::is)
            return (x[detail::buffers_before<Forward>(N)]);
          else
            return (std::get<N>(all));
        };
        which.launch(threads, input(std::integral_constant<std::size_t, I>())..., more...);
      }(std::make_index_sequence<inputs>());
    };
    const auto contiguous = [](std::span<const Array> x) {
      std::vector<Array> out;
      for (const Array& a : x) out.push_back(a.as_contiguous());
      return out;
    };
    const auto run = [=](std::span<const Array> x) {
      std::vector<Array> rows = contiguous(x);
      Array out = Array::empty(result, dtype_v<typename Result::type>, rows[0].device());
      launched(kernel, rows, out);
      return out;
    };
    const auto back = [=](const Array& g, const Array& y, std::span<const Array> x) {
      detail::check_no_history(name, g, "its backward kernel has no derivative", "Use array operations, or custom");
      for (const Array& a : x)
        detail::check_no_history(name, a, "its backward kernel has no derivative", "Use array operations, or custom");
      std::vector<Array> rows = contiguous(x), adjoints;
      for (const Array& a : x)
        adjoints.push_back(is_float(a.dtype()) ? Array::zeros(a.shape(), a.dtype(), a.device()) : Array());
      const Array value = y.as_contiguous(), adjoint = g.as_contiguous();
      std::vector<Array> written;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (is_float(x[i].dtype())) written.push_back(adjoints[i]);
      [&]<std::size_t... J>(std::index_sequence<J...>) {
        launched(backward, rows, value, adjoint, written[J]...);
      }(std::make_index_sequence<std::tuple_size_v<Back> - inputs - 2>());
      return adjoints;
    };
    return detail::custom({name, run, back}, std::move(operands));
  };
}

}  // namespace tessera
