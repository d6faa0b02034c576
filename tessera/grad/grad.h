// SPDX-License-Identifier: Apache-2.0
// Gradients of functions of arrays, computed in reverse mode: the public interface.
#pragma once

#include <tuple>
#include <utility>

#include "tessera/array/array_map.h"
#include "tessera/array/traversal.h"
#include "tessera/grad/reverse.h"

namespace tessera {

/// The type of `wrt`, for example of `wrt<0, 2>`.
template <std::size_t... I>
struct Wrt {};
/// Specifies the arguments with respect to which a function is differentiated: `wrt<0, 2>`.
template <std::size_t... I>
inline constexpr Wrt<I...> wrt{};

/// True if the gradient contains an adjoint for this array of a differentiated argument. Otherwise the gradient
/// contains an empty array in its place. This function is found by argument-dependent lookup, so that types derived
/// from Array can overload it.
inline bool differentiable(const Array& a) { return is_float(a.dtype()); }
/// True if an array that occurs several times in an argument has a single gradient. The gradient is the sum over all
/// occurrences. It is returned for the first occurrence; the gradients of other occurrences are empty arrays. If false,
/// each occurrence has its own gradient. Found by argument-dependent lookup, like `differentiable`.
inline bool shares_gradient(const Array&) { return false; }
/// The dtype of the gradient with respect to this array. Found by argument-dependent lookup, like `differentiable`.
inline DType gradient_dtype(const Array& a) { return a.dtype(); }

/// Copies an array or a nested structure of arrays (array/traversal.h). No gradient flows through the copy.
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
                  "the first element of the returned tuple is differentiated, so it must be an Array");
    return std::get<0>(result);
  } else {
    static_assert(std::is_convertible_v<const R&, const Array&>,
                  "the function must return an Array, or a tuple whose first element is one");
    return result;
  }
}

/// Copies x with each differentiable array replaced by a leaf.
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

/// Copies x with arrays replaced by their adjoints, which are in the order of as_leaves. Arrays without an adjoint are
/// replaced by empty arrays.
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

/// Calls f with the arguments numbered `I...` replaced by leaves.
template <class F, std::size_t... I, class... Args>
auto call_with_leaves(F& f, Wrt<I...>, Leaves& leaves, const Args&... args) {
  static_assert(((I < sizeof...(Args)) && ...), "wrt contains the number of an argument that does not exist");
  return [&]<std::size_t... N>(std::index_sequence<N...>) {
    const auto argument = [&]<std::size_t At, class T>(std::integral_constant<std::size_t, At>, const T& x) {
      if constexpr (((At == I) || ...))
        return as_leaves(x, leaves);
      else
        return std::cref(x);
    };
    // A braced tuple, so that leaves are created in the order of the arguments.
    auto all = std::tuple{argument(std::integral_constant<std::size_t, N>(), args)...};
    return f(static_cast<const Args&>(std::get<N>(all))...);
  }(std::index_sequence_for<Args...>());
}

/// The gradient with respect to the arguments numbered `I...`. For a single argument it has the type of that argument;
/// for several it is a tuple in the order of `wrt`.
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

/// The function that value_and_grad returns. `ready` may be null.
template <class F, std::size_t... I, class... Args>
auto value_and_gradient(F& f, Wrt<I...> by, const AdjointReady& ready, const Args&... args) {
  Leaves leaves;
  auto value = call_with_leaves(f, by, leaves, args...);
  const Array& first = first_of(value);
  auto adjoints = leaves.adjoints(first, unit_adjoint("value_and_grad", first), true, ready);
  auto gradient = gradient_of(by, std::move(adjoints), args...);
  return std::pair{detached_value(leaves, value), std::move(gradient)};
}

}  // namespace detail

/// Returns a function that computes the value and the gradient of f. value_and_grad(f)(x, more...) returns the pair of
/// f(x, more...) and its derivative with respect to x. x is an array or a nested structure of arrays
/// (array/traversal.h).
///
/// The gradient has the type of x. Its arrays have the same shapes, dtypes and devices; integers and bools are replaced
/// by empty arrays. With `wrt<0, 2>`, the gradient is a tuple with one element for each of these arguments.
///
/// f returns an array of one element, or a tuple whose first element is such an array. Only that array is
/// differentiated.
///
/// Throws ShapeError or DtypeError if the value is not a single float. Throws ArgumentError if an operation of f has no
/// gradient or would drop it, or if an array that the gradient needs has been written in place.
///
/// At kinks and ties, the gradient matches PyTorch 2.15, except that hypot(0, 0) returns 0 instead of NaN. The gradient
/// is zero for arguments that the value does not depend on. Gradients can be nested.
template <class F, std::size_t... I>
auto value_and_grad(F f, Wrt<I...> by) {
  static_assert(sizeof...(I) > 0, "wrt must contain at least one argument");
  return [f = std::move(f), by](const auto&... args) { return detail::value_and_gradient(f, by, nullptr, args...); };
}
template <class F>
auto value_and_grad(F f) {
  return value_and_grad(std::move(f), wrt<0>);
}

/// Like value_and_grad, but returns only the gradient.
template <class F, std::size_t... I>
auto grad(F f, Wrt<I...> by) {
  return [both = value_and_grad(std::move(f), by)](const auto&... args) { return both(args...).second; };
}
template <class F>
auto grad(F f) {
  return grad(std::move(f), wrt<0>);
}

/// Returns the pair of f(x, more...) and a function that computes vector-Jacobian products. f may return an array of
/// any shape, or a tuple whose first element is differentiated. The returned function maps an adjoint of the value
/// (with its shape, dtype and device) to an adjoint of x (with the type of x). It can be called any number of times,
/// and keeps the history until it is destroyed.
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
