// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/moved_views.h"

#include <vector>

#include "tessera/array/elementwise.h"
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

}  // namespace

std::optional<Array> part_over(const Array& deferred, const Array& from, std::int64_t row, std::int64_t column,
                               const Shape& part, const Array& to, std::int64_t to_row, std::int64_t to_column) {
  const Shape& whole = deferred.shape();
  if (!deferred.pending() || deferred.has_history() || whole.size() != 2 || deferred.offset() != 0 ||
      deferred.strides() != contiguous_strides(whole) || deferred.device() != to.device() || from.pending() ||
      from.offset() != 0 || from.strides() != contiguous_strides(from.shape()) || to.pending() || to.has_history() ||
      to.dtype() != from.dtype() || Recorder::number() != 0)
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

}  // namespace tessera::detail
