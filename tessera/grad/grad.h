// SPDX-License-Identifier: Apache-2.0
// Gradients of functions of arrays, in reverse mode: what a program calls.
#pragma once

#include <tuple>
#include <utility>

#include "tessera/array/array_map.h"
#include "tessera/array/traversal.h"
#include "tessera/grad/reverse.h"

namespace tessera {

/// Which arguments of a function its gradient is by: wrt<0, 2>.
template <std::size_t... I>
struct Wrt {};
/// The operands to differentiate by: `wrt<0, 2>`.
template <std::size_t... I>
inline constexpr Wrt<I...> wrt{};

/// Whether a gradient is by this array, if it is part of an argument that one is by; of the others it holds empty
/// arrays. Found by argument-dependent look-up, so that types derived from Array may have their own.
inline bool differentiable(const Array& a) { return is_float(a.dtype()); }
/// Whether an array that stands in several places of an argument has one gradient: the sum, at the first of these
/// places, and empty arrays at the others. If not, each place has its own. Found as `differentiable` is.
inline bool shares_gradient(const Array&) { return false; }
/// Of which dtype the gradient by this array is. Found as `differentiable` is.
inline DType gradient_dtype(const Array& a) { return a.dtype(); }

/// A copy of an array, or of a structure of arrays (array/traversal.h), through which no gradient is taken.
template <class T>
T stop_gradient(const T& x) {
  return map_arrays(x, [](const Array& a) {
    Array out = a;
    out.set_step(nullptr);
    return out;
  });
}

namespace detail {

template <class T>
struct AsTuple : std::false_type {};
template <class... T>
struct AsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct AsTuple<std::pair<A, B>> : std::true_type {};

template <class R>
const Array& first_of(const R& result) {
  if constexpr (AsTuple<R>::value) {
    static_assert(std::is_convertible_v<decltype(std::get<0>(result)), const Array&>,
                  "the first of what the function returns is differentiated, so it must be an Array");
    return std::get<0>(result);
  } else {
    static_assert(std::is_convertible_v<const R&, const Array&>,
                  "the function must return an Array, or a tuple whose first is one");
    return result;
  }
}

/// x with a leaf in the place of each array that gradients are by.
template <class T>
T as_leaves(const T& x, Leaves& leaves) {
  ArrayMap<Array> known;
  return map_arrays(x, [&](const auto& a) -> Array {
    if (!differentiable(a)) return a;
    if (!shares_gradient(a)) return leaves.add(a, gradient_dtype(a));
    const Array* leaf = known.find(a);
    return leaf ? *leaf : known.add(a, leaves.add(a, gradient_dtype(a)));
  });
}

/// x with its adjoints, which are taken in the order of as_leaves; empty arrays for the rest.
template <class T>
T as_gradient(const T& x, std::vector<Array>& adjoints, std::size_t& next) {
  ArrayMap<bool> known;
  return map_arrays(x, [&](const auto& a) -> Array {
    const bool again = differentiable(a) && shares_gradient(a) && known.find(a);
    if (!differentiable(a) || again) return Array::empty({0}, a.dtype(), a.device());
    if (shares_gradient(a)) known.add(a, true);
    return std::move(adjoints[next++]);
  });
}

/// A function's arguments, those of `I...` as leaves.
template <class F, std::size_t... I, class... Args>
auto call_with_leaves(F& f, Wrt<I...>, Leaves& leaves, const Args&... args) {
  static_assert(((I < sizeof...(Args)) && ...), "wrt names an argument that the function was not given");
  return [&]<std::size_t... N>(std::index_sequence<N...>) {
    const auto argument = [&]<std::size_t At, class T>(std::integral_constant<std::size_t, At>, const T& x) {
      if constexpr (((At == I) || ...))
        return as_leaves(x, leaves);
      else
        return std::cref(x);
    };
    // In a tuple with braces, so that leaves are made in the order of arguments.
    auto all = std::tuple{argument(std::integral_constant<std::size_t, N>(), args)...};
    return f(static_cast<const Args&>(std::get<N>(all))...);
  }(std::index_sequence_for<Args...>());
}

/// The gradient by the arguments of `I...`: that of one in its own type, those of several in a tuple, in the order of
/// wrt.
template <std::size_t... I, class... Args>
auto gradient_of(Wrt<I...>, std::vector<Array> adjoints, const Args&... args) {
  std::size_t next = 0;
  const auto all = std::tie(args...);
  const auto part = [&]<std::size_t N>(std::integral_constant<std::size_t, N>) {
    if constexpr (((N == I) || ...))
      return as_gradient(std::get<N>(all), adjoints, next);
    else
      return 0;
  };
  auto parts = [&]<std::size_t... N>(std::index_sequence<N...>) {
    return std::tuple{part(std::integral_constant<std::size_t, N>())...};
  }(std::index_sequence_for<Args...>());
  if constexpr (sizeof...(I) == 1)
    return std::get<I...>(std::move(parts));
  else
    return std::tuple{std::move(std::get<I>(parts))...};
}

template <class R>
R detached_value(const Leaves& leaves, const R& result) {
  return map_arrays(result, [&](const Array& a) { return leaves.detach(a); });
}

}  // namespace detail

/// The function that gives f's value and its gradient: value_and_grad(f)(x, more...) is the pair (f(x, more...), the
/// derivative of that by x). x is an array or any structure of arrays (array/traversal.h), and the gradient is of its type,
/// with arrays of the same shapes, dtypes and devices; in the place of integers and bools it has empty arrays.
/// With `wrt<0, 2>` it is by those arguments, in a tuple. f returns an array of one element, or a tuple whose first is
/// one: that is differentiated. Errors: ShapeError or DtypeError if it is no such array; what an operation of f says
/// that has no gradient, or would lose it; ArgumentError where an array that the gradient needs has been written.
///
/// At kinks and ties it gives what PyTorch 2.15 gives, but 0 instead of NaN for hypot(0, 0). An argument that the value
/// does not depend on has a gradient of zeros. Gradients may be taken of functions that take gradients.
template <class F, std::size_t... I>
auto value_and_grad(F f, Wrt<I...> by) {
  static_assert(sizeof...(I) > 0, "wrt names at least one argument");
  return [f = std::move(f), by]<class... Args>(const Args&... args) {
    detail::Leaves leaves;
    auto value = detail::call_with_leaves(f, by, leaves, args...);
    const Array& first = detail::first_of(value);
    auto adjoints = leaves.adjoints(first, detail::unit_adjoint("value_and_grad", first), true);
    auto gradient = detail::gradient_of(by, std::move(adjoints), args...);
    return std::pair{detail::detached_value(leaves, value), std::move(gradient)};
  };
}
template <class F>
auto value_and_grad(F f) {
  return value_and_grad(std::move(f), wrt<0>);
}

/// The gradient alone.
template <class F, std::size_t... I>
auto grad(F f, Wrt<I...> by) {
  return [both = value_and_grad(std::move(f), by)](const auto&... args) { return both(args...).second; };
}
template <class F>
auto grad(F f) {
  return grad(std::move(f), wrt<0>);
}

/// The pair of f(x, more...), which need not be one number, and a function that brings an adjoint of it (of its shape,
/// dtype and device) to one of x, in x's type: the product of that adjoint with the derivative. It may be called any
/// number of times, and keeps what it needs for that. Of a tuple the first is differentiated.
template <class F, class X, class... More>
auto pullback(F f, const X& x, const More&... more) {
  detail::Leaves leaves;
  auto result = detail::call_with_leaves(f, wrt<0>, leaves, x, more...);
  const Array first = detail::first_of(result);
  auto value = detail::detached_value(leaves, result);
  auto back = [leaves = std::move(leaves), first, x](const Array& adjoint) {
    detail::check_adjoint(first, adjoint);
    return detail::gradient_of(wrt<0>, leaves.adjoints(first, adjoint, false), x);
  };
  return std::pair{std::move(value), std::move(back)};
}

}  // namespace tessera
