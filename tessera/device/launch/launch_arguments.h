// SPDX-License-Identifier: Apache-2.0
// An argument of a launch, and the arguments of one gathered without an allocation: a short launch would spend a good
// part of its time on one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>

#include "tessera/device/memory/storage.h"

namespace tessera {

/// An argument of a launch: a buffer or a scalar's bits (as ir constants hold them).
struct LaunchArgument {
  BufferView view;           ///< empty storage: a scalar
  std::uint64_t bits = 0;    ///< The bits of a scalar.
  DType dtype = DType::f32;  ///< of the scalar
  std::int32_t slot = -1;    ///< in a recording (sequence.h): the scalar's number, by which a replay changes it
  /// A buffer.
  LaunchArgument(const BufferView& v) : view(v) {}
  /// A buffer.
  LaunchArgument(BufferView&& v) : view(std::move(v)) {}
  /// A scalar of a dtype, by its bits.
  LaunchArgument(DType type, std::uint64_t scalar_bits) : bits(scalar_bits), dtype(type) {}
  /// A scalar of a dtype, by its bits.
  static LaunchArgument scalar(DType dtype, std::uint64_t bits) { return {dtype, bits}; }
  static LaunchArgument scalar(float v);
  /// A scalar of type Index.
  static LaunchArgument index(std::int64_t v) { return scalar(DType::index, static_cast<std::uint64_t>(v)); }
  /// This scalar, as number `n` of a sequence that is being recorded; several scalars may have one number.
  LaunchArgument in_slot(std::uint32_t n) const {
    LaunchArgument a = *this;
    a.slot = static_cast<std::int32_t>(n);
    return a;
  }
};

/// At most 24, which is more than any kernel that gathers them here takes.
class LaunchArguments {
 public:
  /// No arguments.
  LaunchArguments() {}
  ~LaunchArguments() { std::destroy_n(all_, count_); }
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;

  /// Appends a buffer.
  void add(BufferView&& view) { std::construct_at(next(), std::move(view)), ++count_; }
  /// Appends a scalar of type Index.
  void index(std::int64_t value) {
    std::construct_at(next(), DType::index, static_cast<std::uint64_t>(value)), ++count_;
  }
  /// Appends a scalar, by its bits.
  void scalar(DType dtype, std::uint64_t bits) {
    LaunchArgument* const a = std::construct_at(next(), BufferView{});
    a->dtype = dtype, a->bits = bits;
    ++count_;
  }
  /// All arguments.
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
