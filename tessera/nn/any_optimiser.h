// SPDX-License-Identifier: Apache-2.0
// Declares AnyOptimiser, which stores an optimiser of any type by value.
#pragma once

#include <concepts>
#include <memory>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/nn/optimiser.h"

namespace tessera {

/// Type-erased optimiser: stores any type derived from Optimiser by value. Copies are deep. An AnyOptimiser shares no
/// memory with its copies or with the optimiser that it was created from.
class AnyOptimiser {
 public:
  /// Wraps an optimiser.
  template <std::derived_from<Optimiser> O>
  AnyOptimiser(O optimiser) {
    optimiser.unshare();
    detail::Owner<O> own(new O(std::move(optimiser)));
    arrays_ = [](Optimiser& o, const Use& use) { for_each_array(static_cast<O&>(o), use); };
    copy_ = [](const Optimiser& o) { return AnyOptimiser(static_cast<const O&>(o)); };
    optimiser_ = std::move(own);
  }
  AnyOptimiser(const AnyOptimiser& other) : AnyOptimiser(other.copy_(*other.optimiser_)) {}
  AnyOptimiser(AnyOptimiser&&) = default;
  AnyOptimiser& operator=(AnyOptimiser other) noexcept {
    std::swap(optimiser_, other.optimiser_), std::swap(arrays_, other.arrays_), std::swap(copy_, other.copy_);
    return *this;
  }

  /// The wrapped optimiser.
  Optimiser& operator*() const { return *optimiser_; }
  /// The wrapped optimiser.
  Optimiser* operator->() const { return optimiser_.get(); }
  /// Type of the callback of for_each(). It receives an array of the optimiser's state and the array's path.
  using Use = Callback<void(Array&, const Path&)>;
  /// Calls `use` with each array of the optimiser's state and its path.
  void for_each(const Use& use) const { arrays_(*optimiser_, use); }

 private:
  detail::Owner<Optimiser> optimiser_;
  void (*arrays_)(Optimiser&, const Use&) = nullptr;
  AnyOptimiser (*copy_)(const Optimiser&) = nullptr;
};

}  // namespace tessera
