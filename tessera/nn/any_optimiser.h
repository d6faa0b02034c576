// SPDX-License-Identifier: Apache-2.0
// An optimiser of any kind as a value.
#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include "tessera/nn/optimiser.h"

namespace tessera {

/// Takes whatever derives from Optimiser and lists its fields, with memory of its own: neither what it was made of nor
/// copies share it.
class AnyOptimiser {
 public:
  /// Takes over an optimiser of any kind.
  template <std::derived_from<Optimiser> O>
  AnyOptimiser(O optimiser) {
    optimiser.unshare();
    auto own = std::make_unique<O>(std::move(optimiser));
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

  /// The optimiser.
  Optimiser& operator*() const { return *optimiser_; }
  /// The optimiser.
  Optimiser* operator->() const { return optimiser_.get(); }
  /// What it keeps, as for_each_array walks it.
  using Use = std::function<void(Array&, const Path&)>;
  /// Calls `use` with each array that the optimiser keeps, and its path.
  void for_each(const Use& use) const { arrays_(*optimiser_, use); }

 private:
  std::unique_ptr<Optimiser> optimiser_;
  void (*arrays_)(Optimiser&, const Use&) = nullptr;
  AnyOptimiser (*copy_)(const Optimiser&) = nullptr;
};

}  // namespace tessera
