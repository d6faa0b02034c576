// SPDX-License-Identifier: Apache-2.0
// Elementwise expressions, independent of the memory that arrays store their results in. Internal to array/. An
// expression applies kernel IR operations to memory, host scalars and other expressions; evaluation compiles a graph of
// them to one kernel.
#pragma once

#include <array>
#include <span>

#include "tessera/array/fused.h"
#include "tessera/device/memory/pending.h"

namespace tessera::detail {

class Expr;
class Source;

/// An operand of an operation.
struct Term {
  enum Kind : std::uint8_t { expression, memory, scalar } kind = scalar;
  DType dtype = DType::f32;
  std::shared_ptr<const Expr> expr;  ///< expression: its elements in order, one to one
  StridedView view;                  ///< memory: strides along the expression's dimensions
  std::uint64_t recording = 0;       ///< memory: the recording of the array through which it is read
  std::uint64_t writes = 0;          ///< memory: its write count when the term was made
  std::uint64_t bits = 0;            ///< scalar: its value
};

/// Reserves space for one more element. Called under the registry's lock before a reference is taken, so that the
/// push_back cannot throw and drop the reference under the lock.
template <class V>
void reserve_one(V& v) {
  if (v.size() == v.capacity()) v.reserve(2 * v.size() + 8);
}

/// The size of an expression, which limits fusion. An upper bound: parts that are reached several ways are counted each
/// time, until Expr::recount.
struct ExprSize {
  std::uint32_t nodes = 0, views = 0, scalars = 0;
  std::uint64_t held_bytes = 0;  ///< of the memory that it reads
  void add(const Term& t);
  /// The reason why an expression of this size is not extended on this device; null if it can be.
  const char* limit(Device device, std::size_t rank) const;
};

/// One operation over up to three operands, all broadcast to `shape`. Immutable once linked, so that it can be shared;
/// when part of it has been computed, its users are replaced by new expressions. Arrays refer to it through a Source;
/// other references (operands, history) do not cause its result to be stored.
class Expr final : public PendingReader {
 public:
  Expr(ir::Op op, std::uint8_t sub, DType dtype, Device device, Shape shape)
      : op(op), sub(sub), dtype(dtype), device(device), shape(std::move(shape)) {}
  ~Expr();
  Expr(const Expr&) = delete;
  Expr& operator=(const Expr&) = delete;

  const ir::Op op;
  const std::uint8_t sub;
  const DType dtype;
  const Device device;
  const Shape shape;
  /// The latest recording that this is part of, whichever thread deferred it; 0: none.
  std::uint64_t recording = 0;
  ExprSize size;

  // Before it is linked:
  void add(Term t) { terms_[count_++] = std::move(t); }
  Term& add() { return terms_[count_++]; }  ///< to be filled in by the caller
  void clear_terms();                       ///< without the lock
  std::span<const Term> terms() const { return std::span(terms_).first(count_); }

  // Require the registry's lock:
  void link();          ///< registers it as a reader of its operands
  void unlink() const;  ///< called by its only owner
  /// Counts each part once, as a kernel computes it. Call before linking.
  void recount();
  void results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const override;
  /// The Source of arrays; null if there is none. The returned pointer may be the last reference, so destroy it after
  /// the lock is released.
  std::shared_ptr<Source> source() const { return source_.lock(); }
  void set_source(const std::shared_ptr<Source>& source) const { source_ = source; }

  /// A storage that it reads and that has been written since the expression was made; null: none.
  const Storage* outdated() const;

 private:
  friend class Substitution;
  std::array<Term, 3> terms_;
  mutable std::array<ReaderLink, 3> links_;
  std::uint8_t count_ = 0;
  mutable bool linked_ = false;
  mutable std::weak_ptr<Source> source_;
  mutable ReaderLink* readers_ = nullptr;  ///< expressions that have this one as an operand
  mutable std::uint64_t visited_ = 0;
};

/// Replaces computed expressions by their memory in all expressions that use them. Requires the registry's lock; the
/// replaced expressions are released when this object is destroyed, without the lock.
class Substitution {
 public:
  void computed(const std::shared_ptr<const Expr>& expr, const std::shared_ptr<Storage>& storage,
                std::uint64_t recording);
  void run();

 private:
  struct Known {
    std::shared_ptr<const Expr> expr;
    std::shared_ptr<const Expr> became;  ///< The expression itself if no part of it was computed.
    std::shared_ptr<Storage> storage;    ///< set if it was computed
    std::uint64_t recording = 0;
  };
  /// Takes the pointer by value, since `known_` grows.
  Known rebuilt(const std::shared_ptr<const Expr>& expr);
  std::vector<Known> known_;
  std::vector<std::shared_ptr<const Expr>> replaced_;
  std::vector<std::shared_ptr<PendingResult>> above_;
};

}  // namespace tessera::detail
