// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/rebased_expression.h"

#include <mutex>
#include <vector>

#include "tessera/array/elementwise.h"
#include "tessera/array/source.h"
#include "tessera/device/memory/pending.h"
#include "tessera/device/queue/recorder.h"

namespace tessera::detail {

class RebasedExpression::Builder {
 public:
  Builder(RebasedExpression& made, const Shape& whole, const Array& from) : made_(made), whole_(whole), from_(from) {}

  /// Returns the node of `expr`, or -1 if the expression is not supported.
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

  RebasedExpression& made_;
  const Shape& whole_;
  const Array& from_;
  std::vector<std::pair<const Expr*, int>> known_;
};

std::optional<RebasedExpression> RebasedExpression::of(const Array& deferred, const Array& from) {
  const Shape& whole = deferred.shape();
  const auto plain = [](const Array& a) { return a.offset() == 0 && a.strides() == contiguous_strides(a.shape()); };
  if (!deferred.pending() || deferred.has_history() || whole.size() != 2 || from.pending() || !plain(deferred) ||
      !plain(from) || Recorder::number() != 0)
    return {};
  std::optional<RebasedExpression> made(std::in_place);
  std::shared_ptr<const Expr> root;  // destroyed after the lock is released
  const std::lock_guard hold(PendingRegistry::of(deferred.device()).lock);
  root = deferred.source()->expression();
  if (!root || Builder(*made, whole, from).of(*root) < 0) return {};
  return made;
}

void RebasedExpression::write(StridedView to, const Shape& part, std::span<const StridedView> views) const {
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
  trace_flush(fused, "its result is written in parts");
  fused.run(part);
}

}  // namespace tessera::detail
