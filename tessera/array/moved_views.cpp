// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/moved_views.h"

#include <vector>

#include "tessera/array/elementwise.h"
#include "tessera/array/source.h"
#include "tessera/device/queue/recorder.h"

namespace tessera::detail {
namespace {

class Rebuilding {
 public:
  Rebuilding(const Shape& whole, const Array& from, std::int64_t row, std::int64_t column, const Shape& part,
             const Array& to, std::int64_t to_row, std::int64_t to_column)
      : whole_(whole), from_(from), part_(part), to_(to), row_(row - to_row), column_(column - to_column) {}

  /// Null if it cannot be.
  std::shared_ptr<Expr> of(const std::shared_ptr<const Expr>& expr) {
    for (const auto& [before, after] : known_)
      if (before == expr) return after;
    if (expr->shape != whole_ || expr->recording != 0) return nullptr;
    const auto made = std::make_shared<Expr>(expr->op, expr->sub, expr->dtype, expr->device, part_);
    made->size.nodes = 1;
    for (Term t : expr->terms()) {
      if (t.kind == Term::expression) {
        t.expr = of(t.expr);
        if (!t.expr) return nullptr;
      } else if (t.kind == Term::memory && !move(t)) {
        return nullptr;
      }
      made->size.add(t);
      made->add(std::move(t));
    }
    known_.emplace_back(expr, made);
    return made;
  }
  /// Operands before those above them. Under the books' lock.
  void link() {
    for (const auto& [before, after] : known_) after->link();
  }

 private:
  bool move(Term& t) const {
    const std::int64_t width = from_.shape(1);
    if (t.view.storage != from_.source()->memory() || t.view.dtype != from_.dtype()) return false;
    if (t.view.strides != Strides{width, 1}) return false;
    const std::int64_t row = t.view.offset / width + row_, column = t.view.offset % width + column_;
    const Strides& s = to_.strides();
    t.view = {to_.source()->memory(), t.view.dtype, s, to_.offset() + row * s[0] + column * s[1]};
    t.recording = to_.source()->recording();
    t.writes = t.view.storage->writes();
    return true;
  }

  const Shape& whole_;
  const Array& from_;
  const Shape& part_;
  const Array& to_;
  const std::int64_t row_, column_;
  std::vector<std::pair<std::shared_ptr<const Expr>, std::shared_ptr<Expr>>> known_;
};

/// Whether parts of it can be computed over other memory than `from`, as far as the two tell.
bool is_over(const Array& deferred, const Array& from) {
  const Shape& whole = deferred.shape();
  return deferred.pending() && !deferred.has_history() && whole.size() == 2 && deferred.offset() == 0 &&
         deferred.strides() == contiguous_strides(whole) && !from.pending() && from.offset() == 0 &&
         from.strides() == contiguous_strides(from.shape()) && Recorder::number() == 0;
}

}  // namespace

std::optional<Array> part_over(const Array& deferred, const Array& from, std::int64_t row, std::int64_t column,
                               const Shape& part, const Array& to, std::int64_t to_row, std::int64_t to_column) {
  const Shape& whole = deferred.shape();
  if (!is_over(deferred, from) || deferred.device() != to.device() || to.pending() || to.has_history() ||
      to.dtype() != from.dtype())
    return {};
  std::shared_ptr<const Expr> root;
  Rebuilding rebuilding(whole, from, row, column, part, to, to_row, to_column);
  const auto source = Source::pending_on(deferred.device(), deferred.dtype());
  const std::lock_guard hold(PendingBooks::of(deferred.device()).lock);
  root = deferred.source()->expression();
  if (!root || to.source()->memory()->exposed()) return {};
  const auto made = rebuilding.of(root);
  if (!made) return {};
  rebuilding.link();
  Source::begin(source, made);
  return ArrayAccess::make(source, part);
}

class MovedViews::Taking {
 public:
  Taking(MovedViews& made, const Shape& whole, const Array& from) : made_(made), whole_(whole), from_(from) {}

  /// Its node; -1 if it cannot be.
  int of(const Expr& expr) {
    for (const auto& [known, node] : known_)
      if (known == &expr) return node;
    if (expr.shape != whole_ || expr.recording != 0) return -1;
    Node n{.op = expr.op, .sub = expr.sub, .dtype = expr.dtype};
    for (const Term& t : expr.terms()) {
      const int arg = t.kind == Term::expression ? of(*t.expr)
                      : t.kind == Term::memory   ? view(t)
                                                 : add({.op = ir::Op::param, .dtype = t.dtype, .bits = t.bits});
      if (arg < 0) return -1;
      n.args[n.count++] = arg;
    }
    const int node = add(n);
    known_.emplace_back(&expr, node);
    return node;
  }

 private:
  int add(const Node& n) {
    made_.nodes_.push_back(n);
    return static_cast<int>(made_.nodes_.size()) - 1;
  }
  int view(const Term& t) {
    const std::int64_t width = from_.shape(1);
    if (t.view.storage != from_.source()->memory() || t.view.dtype != from_.dtype()) return -1;
    if (t.view.strides != Strides{width, 1}) return -1;
    made_.places_.push_back({t.view.offset / width, t.view.offset % width});
    return add({.op = ir::Op::load, .dtype = t.dtype, .args = {static_cast<int>(made_.places_.size()) - 1}});
  }

  MovedViews& made_;
  const Shape& whole_;
  const Array& from_;
  std::vector<std::pair<const Expr*, int>> known_;
};

std::optional<MovedViews> MovedViews::of(const Array& deferred, const Array& from) {
  if (!is_over(deferred, from)) return {};
  std::optional<MovedViews> made(std::in_place);
  std::shared_ptr<const Expr> root;  // goes after the lock
  const std::lock_guard hold(PendingBooks::of(deferred.device()).lock);
  root = deferred.source()->expression();
  if (!root || Taking(*made, deferred.shape(), from).of(*root) < 0) return {};
  return made;
}

void MovedViews::write(StridedView to, const Shape& part, std::span<const StridedView> views) const {
  Fused fused(to.storage->device());
  InlineVector<int, 16> at;
  for (const Node& n : nodes_) {
    if (n.op == ir::Op::load) {
      at.push_back(fused.input(views[static_cast<std::size_t>(n.args[0])]));
    } else if (n.op == ir::Op::param) {
      at.push_back(fused.scalar(n.dtype, n.bits));
    } else {
      std::array<int, 3> args{};
      for (std::size_t i = 0; i < n.count; ++i) args[i] = at[static_cast<std::size_t>(n.args[i])];
      at.push_back(fused.operation(n.op, n.sub, n.dtype, std::span(args).first(n.count)));
    }
  }
  fused.output(at.back(), std::move(to));
  trace_flush(fused, "it is written in parts");
  fused.run(part);
}

}  // namespace tessera::detail
