// SPDX-License-Identifier: Apache-2.0
// Functions with user-defined gradients, and recomputation in the backward pass.
#pragma once

#include <functional>
#include <string>

#include "tessera/array/history.h"
#include "tessera/grad/grad.h"
#include "tessera/kernel/kernel.h"

namespace tessera {

namespace detail {

/// An array operation that is reported as a single operation. The operations inside it record no history.
struct CustomOperation {
  const char* name;
  /// Receives the operands without history.
  std::function<Array(std::span<const Array>)> forward;
  /// Returns the adjoints of the operands. An empty array means that the operand has no adjoint.
  std::function<std::vector<Array>(const Array& adjoint, const Array& result, std::span<const Array> operands)>
      backward;
};
/// Throws ArgumentError if `forward` uses an array that has history but is not an operand.
Array custom(CustomOperation operation, std::vector<Array> operands);

/// A function that the backward pass runs again, in the mode that this thread had in the forward pass.
struct Recomputation {
  std::vector<Array> operands;  ///< The arguments of `run`, with or without history.
  std::function<Array(std::span<const Array>)> run;
};
Array recompute(Recomputation what);

/// Converts the adjoints returned for a function of N arrays to a vector. They are a single array, or a tuple, pair or
/// std::array of N arrays.
template <std::size_t N, class R>
std::vector<Array> adjoint_list(const R& given) {
  if constexpr (std::is_convertible_v<const R&, const Array&>) {
    static_assert(N == 1, "the backward function must return an adjoint for each array, as a tuple or std::array");
    return {given};
  } else {
    static_assert(std::tuple_size_v<R> == N, "the backward function must return an adjoint for each array");
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::vector<Array>{std::get<I>(given)...};
    }(std::make_index_sequence<N>());
  }
}

}  // namespace detail

/// Creates an operation with a user-defined gradient. custom("name", forward, backward)(x, y, ...) returns the Array
/// forward(x, y, ...). All arguments are Arrays.
///
/// The gradient is backward(adjoint, result, x, y, ...), which returns a tuple with the adjoint of each argument (or a
/// single Array for a single argument). Each adjoint has the shape of its argument, or is empty if the argument has no
/// adjoint.
///
/// `forward` may do work that records no history, such as launching kernels. If `backward` uses array operations, it
/// can be differentiated again. `name` must be a string literal, because it is not copied.
///
/// Throws ArgumentError if `forward` uses an array with history that is not an argument. Throws ShapeError if an
/// adjoint has another shape than its argument.
template <class F, class B>
auto custom(const char* name, F forward, B backward) {
  return [=]<class... A>(const A&... arguments) -> Array {
    static_assert((std::is_convertible_v<const A&, const Array&> && ...), "the arguments must be arrays");
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

/// Wraps f so that its intermediate results are not kept (activation checkpointing; Chen et al., "Training deep nets
/// with sublinear memory cost", 2016). recompute(f)(x, more...) returns the Array f(x, more...). The backward pass runs
/// f again in the same Training mode and with the same counters.
///
/// Gradients flow to the arguments. If f is a structure of arrays such as a layer, they also flow to f itself. Throws
/// ArgumentError if f uses another array with history. f must read and draw the same values both times: Dropout does,
/// but a Generator that you use yourself does not.
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
    // Differentiable arrays become operands. The others are stored in `constants`.
    detail::Recomputation what;
    std::vector<bool> operand;  // one entry per array, in traversal order
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

/// True if `Back` has the parameters of a backward kernel for a forward kernel with the parameters `Forward`.
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

/// The number of buffers before parameter `at` in P.
template <class P>
constexpr std::size_t buffers_before(std::size_t at) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (std::size_t{0} + ... + (I < at && BufferOf<std::tuple_element_t<I, P>>::is ? 1 : 0));
  }(std::make_index_sequence<std::tuple_size_v<P>>());
}

/// Copies the text. The copy is valid until the process exits.
const char* intern_string(const std::string& text);

}  // namespace detail

/// Turns a typed kernel into an operation with a gradient. The parameters of `kernel` are its inputs (Buffer<const T>
/// and Val<T>), followed by one Buffer<T> for the result. The parameters of `backward` are the same inputs, then the
/// result and its adjoint (both Buffer<const T>), then a Buffer<T> for the adjoint of each floating-point input buffer,
/// in order. These buffers are initialised to zero. `backward` is launched with as many threads as `kernel`.
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
/// The operation can be differentiated once: a second derivative throws ArgumentError. A launch can throw DeviceError
/// or KernelError.
template <class K, class B>
auto with_gradient(K kernel, B backward) {
  using Forward = typename detail::KernelParameters<K>::list;
  using Back = typename detail::KernelParameters<B>::list;
  constexpr std::size_t inputs = std::tuple_size_v<Forward> - 1;
  using Result = detail::BufferOf<std::tuple_element_t<inputs, Forward>>;
  static_assert(Result::writes, "the kernel's last parameter must be the buffer that it writes");
  static_assert(
      detail::is_backward_of<Forward, Back>(),
      "the backward kernel must take the kernel's inputs, its result and the result's adjoint (read only), and a "
      "buffer for the adjoint of each floating-point input");
  return [=]<class... A>(const Extent& threads, const Shape& result, const A&... arguments) -> Array {
    static_assert(sizeof...(A) == inputs, "the operation takes the kernel's inputs; the result is allocated");
    const char* const name = detail::intern_string(kernel.name());
    const auto all = std::tuple(arguments...);
    std::vector<Array> operands;
    const auto note = [&](const auto& a) {
      if constexpr (std::is_convertible_v<decltype(a), const Array&>) operands.push_back(a);
    };
    (note(arguments), ...);
    static_assert(detail::buffers_before<Forward>(inputs) > 0, "a kernel with a gradient must read a buffer");
    if (operands.size() != detail::buffers_before<Forward>(inputs))
      fail<ArgumentError>(
          {.operation = name, .wrong = "the kernel takes this input as a buffer, but it is not an array"});
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
