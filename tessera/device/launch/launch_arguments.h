// SPDX-License-Identifier: Apache-2.0
// A launch argument, and a list of arguments with inline storage. Heap allocations would be a large part of a short
// launch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>

#include "tessera/device/memory/storage.h"

namespace tessera {

/// A launch argument: a buffer, or a scalar's bits encoded as an IR constant.
struct LaunchArgument {
  BufferView view;           ///< Empty storage: the argument is a scalar.
  std::uint64_t bits = 0;    ///< The bits of a scalar.
  DType dtype = DType::f32;  ///< The dtype of a scalar.
  std::int32_t slot = -1;    ///< slot through which replays of a Sequence change the scalar; -1: none
  /// Creates a buffer argument.
  LaunchArgument(const BufferView& v) : view(v) {}
  /// Creates a buffer argument.
  LaunchArgument(BufferView&& v) : view(std::move(v)) {}
  /// Creates a scalar argument from its bits.
  LaunchArgument(DType type, std::uint64_t scalar_bits) : bits(scalar_bits), dtype(type) {}
  /// Creates a scalar argument from its bits.
  static LaunchArgument scalar(DType dtype, std::uint64_t bits) { return {dtype, bits}; }
  static LaunchArgument scalar(float v);
  /// Creates a scalar argument of dtype index.
  static LaunchArgument index(std::int64_t v) { return scalar(DType::index, static_cast<std::uint64_t>(v)); }
  /// Returns this scalar with slot `n` of the sequence being recorded. Several scalars may use the same slot.
  LaunchArgument in_slot(std::uint32_t n) const {
    LaunchArgument a = *this;
    a.slot = static_cast<std::int32_t>(n);
    return a;
  }
};

/// A list of at most 24 arguments, which is enough for all kernels that are launched through it. Throws
/// std::length_error if more arguments are added.
class LaunchArguments {
 public:
  /// Creates an empty list.
  LaunchArguments() {}
  ~LaunchArguments() { std::destroy_n(all_, count_); }
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;

  /// Appends a buffer.
  void add(BufferView&& view) { std::construct_at(next(), std::move(view)), ++count_; }
  /// Appends a scalar of dtype index.
  void index(std::int64_t value) {
    std::construct_at(next(), DType::index, static_cast<std::uint64_t>(value)), ++count_;
  }
  /// Appends a scalar, given its bits.
  void scalar(DType dtype, std::uint64_t bits) {
    LaunchArgument* const a = std::construct_at(next(), BufferView{});
    a->dtype = dtype, a->bits = bits;
    ++count_;
  }
  /// Returns all arguments.
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
