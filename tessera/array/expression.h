// SPDX-License-Identifier: Apache-2.0
// Elementwise expressions, independent of the memory in which arrays store their results. An expression applies kernel
// IR operations to memory, host scalars and other expressions. Evaluation compiles a graph of expressions to one
// kernel. Internal to array/.
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
  std::shared_ptr<const Expr> expr;  ///< only for `expression`: its elements are used in order
  StridedView view;                  ///< only for `memory`: the view, broadcast to the shape of the expression
  std::uint64_t recording = 0;       ///< only for `memory`: the recording of the array
  std::uint64_t writes = 0;          ///< only for `memory`: its write count when the term was created
  std::uint64_t bits = 0;            ///< only for `scalar`: its value
};

/// Reserves space for one more element. It is called under the registry's lock before a reference is acquired, so that
/// the following push_back cannot throw. Otherwise the reference could be dropped under the lock.
template <class V>
void reserve_one(V& v) {
  if (v.size() == v.capacity()) v.reserve(2 * v.size() + 8);
}

/// The size of an expression, which limits fusion. It is an upper bound: until Expr::recount, a shared part is counted
/// once for each path to it.
struct ExprSize {
  std::uint32_t nodes = 0, views = 0, scalars = 0;
  std::uint64_t held_bytes = 0;  ///< size of the memory that the expression reads
  void add(const Term& t);
  /// The reason why an expression of this size must not be extended on this device. Null if it can be extended.
  const char* limit(Device device, std::size_t rank) const;
};

/// One operation on up to three operands, all broadcast to `shape`. It is immutable once linked, so that it can be
/// shared. Once an operand has been computed, the expression is replaced by a new one that reads the operand's memory.
/// Arrays refer to an expression through a Source. Other references, such as operands and history, do not cause the
/// result to be stored.
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
  /// The latest recording that the expression is part of, independent of the thread that deferred it. 0 if there is
  /// none.
  std::uint64_t recording = 0;
  ExprSize size;

  // Only before the expression is linked:
  void add(Term t) { terms_[count_++] = std::move(t); }
  Term& add() { return terms_[count_++]; }  ///< to be filled in by the caller
  void clear_terms();                       ///< call without the registry's lock
  std::span<const Term> terms() const { return std::span(terms_).first(count_); }

  // These require the registry's lock:
  void link();          ///< registers it as a reader of its operands
  void unlink() const;  ///< called by its only owner
  /// Recomputes the size and counts shared parts once, because a kernel computes them only once. Call it before
  /// linking.
  void recount();
  void results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const override;
  /// The Source of the arrays that refer to this expression. Null if there is none. The returned pointer may be the
  /// last reference, so it must be destroyed after the lock is released.
  std::shared_ptr<Source> source() const { return source_.lock(); }
  void set_source(const std::shared_ptr<Source>& source) const { source_ = source; }

  /// A storage that the expression reads and that has been written since the expression was created. Null if there is
  /// none.
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

/// Replaces computed expressions by their memory in all expressions that use them. Requires the registry's lock. The
/// replaced expressions are kept until this object is destroyed, which must happen without the lock.
class Substitution {
 public:
  void computed(const std::shared_ptr<const Expr>& expr, const std::shared_ptr<Storage>& storage,
                std::uint64_t recording);
  void run();

 private:
  struct Known {
    std::shared_ptr<const Expr> expr;
    std::shared_ptr<const Expr> became;  ///< The expression itself if none of its operands was computed.
    std::shared_ptr<Storage> storage;    ///< set if the expression was computed
    std::uint64_t recording = 0;
  };
  /// Takes the pointer by value, because `known_` grows during the call.
  Known rebuilt(const std::shared_ptr<const Expr>& expr);
  std::vector<Known> known_;
  std::vector<std::shared_ptr<const Expr>> replaced_;
  std::vector<std::shared_ptr<PendingResult>> above_;
};

}  // namespace tessera::detail
