// SPDX-License-Identifier: Apache-2.0
// Computes several arrays with one kernel, into new or existing memory.
#include <algorithm>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"

namespace tessera {

using detail::Expr;
using detail::StridedView;
using detail::Term;

void eval(std::span<const Array> arrays) {
  std::vector<std::shared_ptr<detail::Source>> pending;
  for (const Array& a : arrays)
    if (a.pending()) pending.push_back(a.source());
  std::vector<std::shared_ptr<detail::Source>> siblings;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    siblings.clear();
    for (std::size_t j = i + 1; j < pending.size(); ++j)
      if (pending[j]->device() == pending[i]->device()) siblings.push_back(pending[j]);
    pending[i]->storage("eval was called", siblings);
  }
}
void eval(std::initializer_list<Array> arrays) { eval(std::span(arrays.begin(), arrays.size())); }

namespace {

struct Range {
  const Storage* storage;
  std::uintptr_t begin, end;  ///< in bytes
};

Range range_of(const StridedView& view, const Shape& shape) {
  std::int64_t last = view.offset;
  for (std::size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * view.strides[d];
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  const auto base = reinterpret_cast<std::uintptr_t>(view.storage->allocation().host);
  return {view.storage.get(), base + static_cast<std::uintptr_t>(view.offset * size),
          base + static_cast<std::uintptr_t>((last + 1) * size)};
}

bool overlap(const Range& a, const Range& b) {
  if (a.storage != b.storage && (a.storage->allocation().host == nullptr || b.storage->allocation().host == nullptr))
    return false;
  return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

bool same_elements(const StridedView& a, const StridedView& b, const Shape& shape) {
  if (a.storage != b.storage || a.dtype != b.dtype || a.offset != b.offset) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

/// The inputs of a kernel that computes these terms, without duplicates.
struct Reads {
  std::vector<const Expr*> operations;
  std::vector<const StridedView*> views;
  std::size_t scalars = 0;

  void add(const Term& term, const Shape& shape) {
    if (term.kind == Term::scalar) {
      ++scalars;
    } else if (term.kind == Term::memory) {
      if (std::ranges::none_of(views, [&](const StridedView* v) { return same_elements(*v, term.view, shape); }))
        views.push_back(&term.view);
    } else if (std::ranges::find(operations, term.expr.get()) == operations.end()) {
      operations.push_back(term.expr.get());
      for (const Term& t : term.expr->terms()) add(t, shape);
    }
  }
};

struct Group {
  std::vector<std::size_t> writes;
  Reads reads;
};

class Assignments {
 public:
  Assignments(std::span<Array> targets, std::span<Array> values) : targets_(targets), values_(values) {}

  void run() {
    for (const Array& t : targets_) t.eval();
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Array& t = targets_[i];
      views_.push_back(detail::strided(t, "it is written in place"));
      terms_.push_back(detail::term_of(values_[i], t.shape()));
      ranges_.push_back(range_of(views_[i], t.shape()));
    }
    for (std::size_t i = 0; i < targets_.size(); ++i) join(i);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t i : groups_[g].writes)
        if (overwritten(i, groups_[g])) {
          values_[i] = values_[i].pending() ? values_[i].eval() : values_[i].copy();
          terms_[i] = detail::term_of(values_[i], targets_[i].shape());
        }
    // The values are released before pending readers of the targets are computed. Otherwise values that are used only
    // here would be computed as readers too.
    for (Array& v : values_) v = Array();
    for (const Array& t : targets_) t.view_for_writing();
    for (const Group& g : groups_) {
      std::vector<detail::Write> writes;
      for (std::size_t i : g.writes) writes.push_back({views_[i], ir::Op::cast, 0, std::span(&terms_[i], 1)});
      const Array& first = targets_[g.writes[0]];
      detail::run_into(writes, first.shape(), first.device(), {});
    }
  }

 private:
  bool fits(const Group& g, std::size_t i) const {
    const Array& t = targets_[i];
    const Array& first = targets_[g.writes[0]];
    if (first.shape() != t.shape() || first.device() != t.device()) return false;
    Reads all = g.reads;
    all.add(terms_[i], t.shape());
    return all.operations.size() <= detail::max_shared_operations &&
           detail::parameter_bytes(all.views.size() + g.writes.size(), all.scalars, t.shape().size()) <=
               device_info(t.device()).can.max_parameter_bytes;
  }

  /// Adds the write to the first suitable group that follows all groups that write overlapping memory.
  void join(std::size_t i) {
    std::size_t from = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (std::size_t j : groups_[g].writes)
        if (overlap(ranges_[i], ranges_[j])) from = g + 1;
    while (from < groups_.size() && !fits(groups_[from], i)) ++from;
    if (from == groups_.size()) groups_.emplace_back();
    groups_[from].writes.push_back(i);
    groups_[from].reads.add(terms_[i], targets_[i].shape());
  }

  /// True if an element that the value reads may be overwritten before it is read.
  bool overwritten(std::size_t i, const Group& group) const {
    const Shape& shape = targets_[i].shape();
    Reads reads;
    reads.add(terms_[i], shape);
    return std::ranges::any_of(reads.views, [&](const StridedView* v) {
      const Range range = range_of(*v, shape);
      for (std::size_t j = 0; j < targets_.size(); ++j) {
        if (!overlap(range, ranges_[j])) continue;
        const bool together = std::ranges::find(group.writes, j) != group.writes.end();
        if (!together || !same_elements(*v, views_[j], shape)) return true;
      }
      return false;
    });
  }

  const std::span<Array> targets_, values_;
  std::vector<StridedView> views_;
  std::vector<Term> terms_;
  std::vector<Range> ranges_;
  std::vector<Group> groups_;
};

}  // namespace

void assign_all(std::span<Assignment> all) {
  std::vector<Array> targets, values;
  for (Assignment& a : all) {
    targets.push_back(a.target);
    values.push_back(std::exchange(a.value, Array()));
  }
  const detail::Operation operation("assign_all", targets, values);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    detail::check_write_target("assign_all", targets[i]), detail::check_stored_value("assign_all", values[i]);
    values[i] = detail::broadcast_into("assign_all", targets[i], values[i]);
    detail::check_writable(targets[i]);
  }
  std::vector<Array> filled, given;  // The targets and values that have elements.
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (targets[i].size() != 0) filled.push_back(targets[i]), given.push_back(std::move(values[i]));
  values.clear();
  Assignments(filled, given).run();
  operation.finish_in_place(std::span(targets));
}

}  // namespace tessera
