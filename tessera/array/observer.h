// SPDX-License-Identifier: Apache-2.0
// Observing array operations, for example for tracing. Each public operation is reported once, with its operands and
// results. Operations that it calls internally are not reported.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/array/array.h"

namespace tessera {

namespace detail {
class Expr;
}

/// The state of an array at a certain time. Taking a snapshot does not compute or store a pending array, which can
/// still be fused with the expressions that use it.
class ArraySnapshot {
 public:
  /// Takes a snapshot; does not compute a pending array.
  explicit ArraySnapshot(const Array& array);

  /// The array's element type.
  DType dtype() const { return dtype_; }
  /// The array's extents.
  const Shape& shape() const { return shape_; }
  /// The array's device.
  Device device() const { return device_; }
  /// The data attached to the array; see Array::history.
  const std::shared_ptr<void>& history() const { return history_; }

  /// True if the array was pending, so that the snapshot keeps its expression.
  bool expression() const { return expr_ != nullptr; }
  /// The array, pending or in memory. Throws ArgumentError if Tessera has since written that memory, or memory that the
  /// pending expression reads. Writes through raw addresses are not detected.
  Array array() const;
  /// The name of the operation that has written the memory since, or a description if it is unknown. nullopt if the
  /// memory has not been written.
  std::optional<std::string> written() const;

 private:
  std::shared_ptr<detail::Source> living() const;  ///< The source of a pending array if an array still refers to it.
  std::shared_ptr<const detail::Expr> expr_;       ///< set for a pending array
  std::weak_ptr<detail::Source> pending_;
  std::shared_ptr<Storage> storage_;  ///< set for a computed array
  std::uint64_t writes_ = 0;
  DType dtype_;
  Device device_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_;
  std::shared_ptr<void> history_;
};

/// A snapshot of a host scalar operand.
struct ScalarSnapshot {
  double value = 0;          ///< The number, converted to double.
  DType dtype = DType::f32;  ///< The scalar's default dtype.
};

/// An operand of an array operation.
using OperandSnapshot = std::variant<ArraySnapshot, ScalarSnapshot>;

/// A parameter of an operation besides its operands: axes, shapes, options.
struct Attribute {
  std::string_view name;  ///< The name of the option.
  /// The value of the option.
  std::variant<bool, std::int64_t, double, std::vector<std::int64_t>, std::string> value;
};

/// The options of an array operation.
using Attributes = std::vector<Attribute>;

/// A public array operation, as called by the program.
struct ArrayOperation {
  std::string_view name;                      ///< The name of the function: "exp", "+", "sum", "slice", "+=".
  std::span<const OperandSnapshot> operands;  ///< The operands, in the order of the function's parameters.
  std::span<const Attribute> attributes;      ///< The options, such as axes and shapes.
  /// The results, or the arrays that were written in place. An observer may attach history to them.
  std::span<Array> results;
  bool in_place = false;  ///< True if an existing array was written.
};

/// Receives each array operation of the threads on which it is installed. The observer may use arrays itself; those
/// operations are not reported. An exception from the observer propagates to the caller of the operation, and the
/// result is dropped.
class ArrayObserver {
 public:
  virtual ~ArrayObserver() = default;
  /// Called on the thread that runs the operation, after each public operation.
  virtual void made(const ArrayOperation& operation) = 0;
};

/// Installs an observer on this thread while the object exists. The observer that was installed before is suspended.
class ObserverScope {
 public:
  /// Observes this thread's array operations until the object is destroyed. Null disables observing.
  explicit ObserverScope(ArrayObserver* observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  ArrayObserver* const before_;
};

}  // namespace tessera
