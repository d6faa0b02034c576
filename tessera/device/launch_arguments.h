// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch, gathered without an allocation: a short launch would spend a good part of its time on one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>

#include "tessera/device/kernel.h"

namespace tessera {

/// At most 24, which is more than any kernel that gathers them here takes.
class LaunchArguments {
 public:
  LaunchArguments() {}
  ~LaunchArguments() { std::destroy_n(all_, count_); }
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;

  void add(BufferView&& view) { std::construct_at(next(), std::move(view)), ++count_; }
  void index(std::int64_t value) {
    std::construct_at(next(), DType::index, static_cast<std::uint64_t>(value)), ++count_;
  }
  operator std::span<const LaunchArgument>() const { return {all_, count_}; }

 private:
  LaunchArgument* next() {
    if (count_ == most) throw std::length_error("LaunchArguments: more than 24");
    return all_ + count_;
  }
  static constexpr std::size_t most = 24;
  std::size_t count_ = 0;
  union {
    LaunchArgument all_[most];
  };
};

}  // namespace tessera
