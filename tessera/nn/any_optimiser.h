// SPDX-License-Identifier: Apache-2.0
// AnyOptimiser: an optimiser of any type, stored by value.
#pragma once

#include <concepts>
#include <memory>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/nn/optimiser.h"

namespace tessera {

/// Type-erased optimiser: wraps any type derived from Optimiser and visits its fields. Deep value semantics: it shares
/// no memory with the optimiser it was made from or with its copies.
class AnyOptimiser {
 public:
  /// Wraps an optimiser.
  template <std::derived_from<Optimiser> O>
  AnyOptimiser(O optimiser) {
    optimiser.unshare();
    Owner<O> own(new O(std::move(optimiser)));
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
  /// The optimiser's state, as for_each_array visits it.
  using Use = Callback<void(Array&, const Path&)>;
  /// Calls `use` with each array of the optimiser's state and its path.
  void for_each(const Use& use) const { arrays_(*optimiser_, use); }

 private:
  Owner<Optimiser> optimiser_;
  void (*arrays_)(Optimiser&, const Use&) = nullptr;
  AnyOptimiser (*copy_)(const Optimiser&) = nullptr;
};

}  // namespace tessera
