// SPDX-License-Identifier: Apache-2.0
// An optimiser of any kind as a value.
#pragma once

#include <concepts>
#include <functional>
#include <memory>

#include "tessera/nn/optimiser.h"

namespace tessera {

/// Takes whatever derives from Optimiser and lists its fields. Copies are the same optimiser.
class AnyOptimiser {
 public:
  template <std::derived_from<Optimiser> O>
  AnyOptimiser(O optimiser) {
    auto own = std::make_shared<O>(std::move(optimiser));
    arrays_ = [o = own.get()](const std::function<void(Array&, const Path&)>& use) { for_each_array(*o, use); };
    optimiser_ = std::move(own);
  }
  Optimiser& operator*() const { return *optimiser_; }
  Optimiser* operator->() const { return optimiser_.get(); }
  /// What it keeps, as for_each_array walks it.
  void for_each(const std::function<void(Array&, const Path&)>& use) const { arrays_(use); }

 private:
  std::shared_ptr<Optimiser> optimiser_;
  std::function<void(const std::function<void(Array&, const Path&)>&)> arrays_;
};

}  // namespace tessera
