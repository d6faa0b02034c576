// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/expression.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tessera/array/source.h"

namespace tessera::detail {

namespace {

// Limits beyond which a pending expression is computed instead of extended (docs/decisions.md).
constexpr std::uint32_t max_nodes = 64;
// Every device accepts this many parameter bytes, so devices need not be queried for smaller expressions.
constexpr std::uint64_t every_device_takes = 256;
// Bytes that an expression may keep alive on every device. A device with much memory allows more.
constexpr std::uint64_t always_held_bytes = std::uint64_t{256} << 20;

}  // namespace

void ExprSize::add(const Term& t) {
  switch (t.kind) {
    case Term::scalar: ++scalars; break;
    case Term::memory: ++views, held_bytes += t.view.storage->bytes(); break;
    case Term::expression:
      nodes += t.expr->size.nodes, views += t.expr->size.views, scalars += t.expr->size.scalars;
      held_bytes += t.expr->size.held_bytes;
  }
}

const char* ExprSize::limit(Device device, std::size_t rank) const {
  if (nodes > max_nodes) return "the expression reached 64 operations";
  const std::uint64_t parameters = parameter_bytes(views, scalars, rank);
  if (parameters > every_device_takes && parameters > device_info(device).can.max_parameter_bytes)
    return "its parameters reached the device's limit";
  if (nodes > 1 && held_bytes > always_held_bytes && held_bytes > device_info(device).total_memory / 16)
    return "its inputs reached a sixteenth of the device's memory";
  return nullptr;
}

Expr::~Expr() {
  if (!linked_) return;
  std::lock_guard hold(PendingRegistry::of(device).lock);
  unlink();
}

void Expr::unlink() const {
  for (std::size_t i = 0; i < count_; ++i) {
    links_[i].unlink();
    if (terms_[i].kind == Term::memory) terms_[i].view.storage->reader_gone();
  }
  linked_ = false;
}

void Expr::clear_terms() {
  for (Term& t : terms_) t = {};
  count_ = 0;
  size = {};
}

void Expr::link() {
  linked_ = true;
  for (std::size_t i = 0; i < count_; ++i) {
    const Term& t = terms_[i];
    if (t.kind == Term::scalar) continue;
    links_[i].reader = this;
    if (t.kind == Term::memory)
      t.view.storage->add_reader(links_[i]);
    else
      links_[i].link(t.expr->readers_);
  }
}

void Expr::results(std::uint64_t visit, std::vector<std::shared_ptr<PendingResult>>& out) const {
  if (std::exchange(visited_, visit) == visit) return;
  reserve_one(out);
  if (auto s = source_.lock()) out.push_back(std::move(s));
  for (const ReaderLink* l = readers_; l != nullptr; l = l->next) l->reader->results(visit, out);
}

void Expr::recount() {
  const std::uint64_t visit = ++PendingRegistry::of(device).visit;
  ExprSize exact;
  std::vector<const StridedView*> views;
  std::vector<const Expr*> open = {this};
  while (!open.empty()) {
    const Expr& e = *open.back();
    open.pop_back();
    if (++exact.nodes > max_nodes) return;
    for (const Term& t : e.terms()) {
      if (t.kind == Term::scalar) ++exact.scalars;
      if (t.kind == Term::expression && std::exchange(t.expr->visited_, visit) != visit) open.push_back(t.expr.get());
      if (t.kind != Term::memory || std::ranges::any_of(views, [&](const StridedView* v) { return *v == t.view; }))
        continue;
      if (std::ranges::none_of(views, [&](const StridedView* v) { return v->storage == t.view.storage; }))
        exact.held_bytes += t.view.storage->bytes();
      views.push_back(&t.view);
    }
  }
  exact.views = static_cast<std::uint32_t>(views.size());
  size = exact;
}

const Storage* Expr::outdated() const {
  std::vector<const Expr*> seen = {this};
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (const Term& t : seen[i]->terms()) {
      if (t.kind == Term::memory && t.view.storage->writes() != t.writes) return t.view.storage.get();
      if (t.kind == Term::expression && std::ranges::find(seen, t.expr.get()) == seen.end())
        seen.push_back(t.expr.get());
    }
  return nullptr;
}

void Substitution::computed(const std::shared_ptr<const Expr>& expr, const std::shared_ptr<Storage>& storage,
                            std::uint64_t recording) {
  if (expr->readers_ == nullptr) return;  // No other expression refers to it.
  const std::uint64_t visit = ++PendingRegistry::of(expr->device).visit;
  for (const ReaderLink* l = expr->readers_; l != nullptr; l = l->next) l->reader->results(visit, above_);
  known_.push_back({expr, expr, storage, recording});
}

Substitution::Known Substitution::rebuilt(const std::shared_ptr<const Expr>& expr) {
  for (const Known& k : known_)
    if (k.expr == expr) return k;
  std::array<Known, 3> below;
  bool changed = false;
  const auto terms = expr->terms();
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (terms[i].kind == Term::expression) {
      below[i] = rebuilt(terms[i].expr);
      changed = changed || below[i].storage || below[i].became != terms[i].expr;
    }
  Known known{expr, expr, nullptr, 0};
  if (changed) {
    const auto copy = std::make_shared<Expr>(expr->op, expr->sub, expr->dtype, expr->device, expr->shape);
    copy->recording = expr->recording;
    copy->size.nodes = 1;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      Term t = terms[i];
      if (below[i].storage) {
        t.kind = Term::memory, t.expr = nullptr;
        t.view = {below[i].storage, t.dtype, contiguous_strides(expr->shape), 0};
        t.recording = below[i].recording, t.writes = below[i].storage->writes();
      } else if (t.kind == Term::expression) {
        t.expr = below[i].became;
      }
      copy->size.add(t);
      copy->add(std::move(t));
    }
    copy->source_ = expr->source_;
    known.became = copy;
    // Stored before it is linked, because a linked expression must not be destroyed under the lock.
    known_.push_back(known);
    copy->link();
    return known;
  }
  known_.push_back(known);
  return known;
}

void Substitution::run() {
  for (const auto& result : above_) {
    auto& source = static_cast<Source&>(*result);
    const auto before = source.expression();
    if (!before) continue;
    const Known now = rebuilt(before);
    if (now.storage || now.became == before) continue;
    replaced_.push_back(before);
    source.replace(now.became);
  }
}

}  // namespace tessera::detail
