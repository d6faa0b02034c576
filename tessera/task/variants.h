// SPDX-License-Identifier: Apache-2.0
// Functions with a variant for each backend: spawn(for_device<cuda>(by_cublas) | for_device<cpu>(by_hand), x).
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "tessera/task/scope.h"
#include "tessera/task/this_task.h"

namespace tessera {

/// The result of `for_device`: a set of functions for different backends. In a task, it calls the first function for
/// the backend of the task's device. Such a task only runs on backends that have a variant.
template <class... V>
class Variants {
 public:
  /// Called by for_device and `|`.
  explicit Variants(std::tuple<V...> all) : all_(std::move(all)) {}
  /// Returns the backends that have a variant.
  static std::vector<Backend> backends() { return {V::backend...}; }
  /// Combines both sets of variants.
  template <class... W>
  friend auto operator|(Variants a, Variants<W...> b) {
    return Variants<V..., W...>(std::tuple_cat(std::move(a.all_), std::move(b).all()));
  }
  /// Calls the variant for the backend of the task's device.
  template <class... A>
    requires(std::is_invocable_v<typename V::Function&, A...> && ...)
  decltype(auto) operator()(A&&... arguments) {
    return pick<0>(this_task::device().backend, std::forward<A>(arguments)...);
  }
  /// Moves the variants out.
  std::tuple<V...> all() && { return std::move(all_); }

 private:
  template <std::size_t i, class... A>
  decltype(auto) pick(Backend backend, A&&... arguments) {
    if constexpr (i + 1 == sizeof...(V)) {
      return std::get<i>(all_).function(std::forward<A>(arguments)...);
    } else {
      using R = decltype(std::get<i>(all_).function(std::forward<A>(arguments)...));
      static_assert(std::is_same_v<R, decltype(pick<i + 1>(backend, std::forward<A>(arguments)...))>,
                    "all variants return the same type");
      if (std::tuple_element_t<i, std::tuple<V...>>::backend == backend)
        return std::get<i>(all_).function(std::forward<A>(arguments)...);
      return pick<i + 1>(backend, std::forward<A>(arguments)...);
    }
  }
  std::tuple<V...> all_;
};

namespace detail {
template <Backend b, class F>
struct Variant {
  static constexpr Backend backend = b;
  using Function = F;
  F function;
};
}  // namespace detail

/// Creates a variant for the devices of one backend: `for_device<cuda>(f)`. Combine several variants with `|`.
template <BackendScope scope, class F>
auto for_device(F&& f) {
  using V = detail::Variant<scope.backend, std::decay_t<F>>;
  return Variants<V>(std::tuple<V>(V{std::forward<F>(f)}));
}

}  // namespace tessera
