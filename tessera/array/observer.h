// SPDX-License-Identifier: Apache-2.0
// Watching array operations as a program asks for them: for gradients, traces, and whoever else wants to know. Each
// public operation is told once, whatever it is made of, with what it was given and what it gave.
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

/// An array as it was at some time, without what makes arrays be computed and written: a pending one that is only kept
/// so stays part of the expressions around it, and needs no memory of its own.
class ArraySnapshot {
 public:
  /// Remembers the array; a pending one is not computed for this.
  explicit ArraySnapshot(const Array& array);

  /// The array's element type.
  DType dtype() const { return dtype_; }
  /// The array's extents.
  const Shape& shape() const { return shape_; }
  /// The array's device.
  Device device() const { return device_; }
  /// What was attached to the array: see Array::history.
  const std::shared_ptr<void>& history() const { return history_; }

  /// Kept as an expression, since the array was pending.
  bool expression() const { return expr_ != nullptr; }
  /// The array again: pending as it was, or its memory. ArgumentError if that memory, or some that the pending
  /// expression reads, was written since, by this library's means; what others write through addresses they hold is not
  /// seen.
  Array array() const;
  /// If it was so written: by which operation, as far as that is known.
  std::optional<std::string> written() const;

 private:
  std::shared_ptr<detail::Source> living() const;  ///< of a pending array, if some array holds its elements still
  std::shared_ptr<const detail::Expr> expr_;       ///< of a pending array
  std::weak_ptr<detail::Source> pending_;
  std::shared_ptr<Storage> storage_;  ///< of a computed one
  std::uint64_t writes_ = 0;
  DType dtype_;
  Device device_;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_;
  std::shared_ptr<void> history_;
};

/// A host scalar as an operand.
struct ScalarSnapshot {
  double value = 0;          ///< The number, converted to double.
  DType dtype = DType::f32;  ///< that the scalar has by itself
};

/// An operand of an array operation.
using OperandSnapshot = std::variant<ArraySnapshot, ScalarSnapshot>;

/// What else an operation was told: axes, shapes, options.
struct Attribute {
  std::string_view name;  ///< The name of the option.
  /// The value of the option.
  std::variant<bool, std::int64_t, double, std::vector<std::int64_t>, std::string> value;
};

/// The options of an array operation.
using Attributes = std::vector<Attribute>;

/// An array operation as the program asked for it.
struct ArrayOperation {
  std::string_view name;                  ///< of the function: "exp", "+", "sum", "slice", "+="
  std::span<const OperandSnapshot> operands;  ///< The operands, in the order of the function's parameters.
  std::span<const Attribute> attributes;  ///< The options, such as axes and shapes.
  /// What it gave; of one that writes in place, the array that was written. History may be attached to them.
  std::span<Array> results;
  bool in_place = false;  ///< True if an existing array was written.
};

/// Is told of each array operation of the threads where it is installed. It may compute with arrays itself, which is
/// not told. What it throws passes to the program, and the operation's result is dropped.
class ArrayObserver {
 public:
  virtual ~ArrayObserver() = default;
  /// Called on the thread that runs the operation, after each public operation.
  virtual void made(const ArrayOperation& operation) = 0;
};

/// Installs an observer on this thread while it lives; the one before sees nothing meanwhile. Null: nobody looks.
class ObserverScope {
 public:
  /// Observes this thread's array operations until the object is destroyed; null stops observing.
  explicit ObserverScope(ArrayObserver* observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  ArrayObserver* const before_;
};

}  // namespace tessera
