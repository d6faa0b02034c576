// SPDX-License-Identifier: Apache-2.0
// Elementwise expressions, apart from the memory in which arrays hold their results. Inside array/ only. An expression
// is kernel IR operations over memory, host scalars and other expressions; computing turns a graph of them into one
// kernel.
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
  std::shared_ptr<const Expr> expr;  ///< expression: its elements in order, one for one
  StridedView view;                  ///< memory: strides along the expression's dimensions
  std::uint64_t recording = 0;       ///< memory: of the array that it was read through
  std::uint64_t writes = 0;          ///< memory: how often it had been written
  std::uint64_t bits = 0;            ///< scalar
};

/// Room for one more. Under the books' lock, before a reference is taken that must not go there if there is no memory.
template <class V>
void reserve_one(V& v) {
  if (v.size() == v.capacity()) v.reserve(2 * v.size() + 8);
}

/// What expressions may grow to before their parts are computed: at least what is below, a part that is reached in
/// several ways counted for each, until Expr::recount.
struct ExprSize {
  std::uint32_t nodes = 0, views = 0, scalars = 0;
  std::uint64_t held_bytes = 0;  ///< of the memory that it reads
  void add(const Term& t);
  /// Why an expression of this size is not grown on this device; null: it may be.
  const char* limit(Device device, std::size_t rank) const;
};

/// One operation over up to three operands that are all seen as `shape`. Never changed once it is linked, so that it
/// can be shared and kept; computing the result of a part gives those above new expressions. Arrays hold it by a
/// Source; what else holds one (operands, history) does not make it be written.
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

  // Set before it is linked:
  void add(Term t) { terms_[count_++] = std::move(t); }
  Term& add() { return terms_[count_++]; }  ///< to be filled in
  void clear_terms();                       ///< without the lock
  std::span<const Term> terms() const { return std::span(terms_).first(count_); }

  // Under the books' lock:
  void link();          ///< among the readers of its operands
  void unlink() const;  ///< by its only owner
  /// Counts what is below it once each, as a kernel would compute it. Before it is linked.
  void recount();
  void results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const override;
  /// What arrays hold of it; empty if none does. What is given may be the last reference, so it goes after the lock.
  std::shared_ptr<Source> source() const { return source_.lock(); }
  void set_source(const std::shared_ptr<Source>& source) const { source_ = source; }

  /// Memory that it reads and that has been written since it was made; null: none.
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

/// Replaces expressions whose results are in memory now by that memory, in all that arrays hold above them. Under the
/// books' lock; what it replaced goes when it does, without the lock.
class Substitution {
 public:
  void computed(const std::shared_ptr<const Expr>& expr, const std::shared_ptr<Storage>& storage,
                std::uint64_t recording);
  void run();

 private:
  struct Known {
    std::shared_ptr<const Expr> expr;
    std::shared_ptr<const Expr> became;  ///< itself: nothing below it was computed
    std::shared_ptr<Storage> storage;    ///< computed
    std::uint64_t recording = 0;
  };
  /// By value: what is known grows.
  Known rebuilt(const std::shared_ptr<const Expr>& expr);
  std::vector<Known> known_;
  std::vector<std::shared_ptr<const Expr>> replaced_;
  std::vector<std::shared_ptr<PendingResult>> above_;
};

}  // namespace tessera::detail
