// SPDX-License-Identifier: Apache-2.0
// The expected result of a random program, computed by running its steps in order with plain loops.
#include <algorithm>
#include <limits>

#include "tests/region/region_program.h"

namespace tessera::test {

/// Checks the steps in order, using the records of their functions. `left` is true if an exception left the scope of
/// the region, which cancels tasks that have not started. `threw` is true if wait() threw.
std::string RegionProgram::judge(bool left, bool threw) {
  expects_error_ = false;
  failed_.clear(), failed_to_combine_.clear();
  text_ += left ? "a region that is left by an error\n" : "a region\n";
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (std::string wrong = judge(steps_[i], left); !wrong.empty()) return wrong + " in step " + std::to_string(i);
    if (open_) return {};
  }
  // All tasks were waited for, so their errors do not affect later tasks. Tasks that combine reductions have ended too.
  for (detail::DeviceTasks* const plain : detail::DeviceTasks::all()) plain->wait();
  for (Matrix& m : all_) {
    for (Cell& c : m.cells) c.failed = c.failed_commute = false;
    for (Reducing& set : m.reducing) set.told = set.failed;
  }
  if (!left && threw != expects_error_)
    return threw ? "the region threw, but none of its tasks failed" : "the region did not throw";
  return {};
}

float RegionProgram::together(Combine op, float a, float b) {
  switch (op) {
    case Combine::sum: return a + b;
    case Combine::product: return a * b;
    case Combine::minimum: return std::min(a, b);
    case Combine::maximum: return std::max(a, b);
  }
  return a;
}

RegionProgram::Reducing* RegionProgram::reducing_of(const Use& use) {
  auto& all = all_[use.matrix].reducing;
  const auto at = std::ranges::find_if(all, [&](const Reducing& r) { return r.op == use.op && r.box == use.box; });
  return at == all.end() ? nullptr : &*at;
}

/// Returns the pending reduction for this use. Creates one if there is none, or if it failed and the error was
/// reported.
RegionProgram::Reducing& RegionProgram::begin_reducing(const Use& use, const Step& step) {
  auto& all = all_[use.matrix].reducing;
  Reducing* known = reducing_of(use);
  if (known != nullptr && !known->told) return *known;
  if (known != nullptr) all.erase(all.begin() + (known - all.data())), ++counts_.dropped;
  combine(use.matrix, use.box, step);
  Reducing& fresh = all.emplace_back(Reducing{use.op, use.box, Cells(side * side)});
  const float none = use.op == Combine::sum       ? 0
                     : use.op == Combine::product ? 1
                     : use.op == Combine::minimum ? std::numeric_limits<float>::infinity()
                                                  : -std::numeric_limits<float>::infinity();
  for (Cell& c : fresh.cells) c.value = none;
  return fresh;
}

/// Combines pending reductions that overlap with the box before the step runs.
void RegionProgram::combine(std::size_t matrix, const Box& box, const Step& step) {
  Matrix& m = all_[matrix];
  for (std::size_t i = 0; i < m.reducing.size();) {
    if (!m.reducing[i].box.meets(box)) {
      ++i;
      continue;
    }
    const Reducing set = std::move(m.reducing[i]);
    m.reducing.erase(m.reducing.begin() + static_cast<std::ptrdiff_t>(i));
    if (set.told) {
      ++counts_.dropped;
      continue;
    }
    const Use all{matrix, set.box, Access::inout};
    bool failed = set.failed;
    each(all, [&](Cell& c, auto, auto) { failed = failed || c.failed || c.failed_commute; });
    // If the step needs the combined result, its outcome shows whether combining failed.
    if (!failed && may_have_failed(all)) {
      const bool needs = std::ranges::any_of(step.uses, [&](const Use& u) {
        return u.matrix == matrix && u.mode != Access::out && u.mode != Access::reduce && u.box.meets(set.box);
      });
      const bool skipped_for_it =
          std::ranges::find(step.names, std::string("combine by ") + to_string(set.op)) != step.names.end();
      // The error contains only the name of the operation, which is ambiguous if several reductions use it.
      const auto same = [&](const Reducing& r) { return r.op == set.op; };
      bool another = std::ranges::count(combined_, set.op) != 0 || std::ranges::count(failed_to_combine_, set.op) != 0;
      for (const Use& u : step.uses) another = another || std::ranges::any_of(all_[u.matrix].reducing, same);
      open_ = open_ || (skipped_for_it && another);
      failed = skipped_for_it;
      open_ = open_ || !(skipped_for_it || (needs && step.task.valid() && step.began));
    }
    combined_.push_back(set.op);
    if (failed) {
      ++counts_.dropped;
      has_failed(all);
      failed_to_combine_.push_back(set.op);
      each(all, [](Cell& c, auto, auto) { c.failed = true, c.failed_commute = false; });
    } else {
      ++counts_.combined;
      has_written(all);
      each(all, [&](Cell& c, std::int64_t r, std::int64_t k) {
        const auto at = static_cast<std::size_t>((set.box.row + r) * side + set.box.column + k);
        c.value = together(set.op, c.value, set.cells[at].value);
      });
    }
  }
}

bool RegionProgram::may_have_failed(const Use& use) const {
  return std::ranges::any_of(failed_, [&](const Use& f) { return f.matrix == use.matrix && f.box.meets(use.box); });
}
void RegionProgram::has_failed(const Use& use) { failed_.push_back(use); }
void RegionProgram::has_written(const Use& use) {
  std::erase_if(failed_, [&](const Use& f) {
    return f.matrix == use.matrix && (use.box == Box{} || (use.box == f.box && f.triangle == MatrixPart::none));
  });
}

std::string RegionProgram::judge(Step& s, bool left) {
  combined_.clear();
  const auto combine_before = [&] {
    for (const Use& u : s.uses)
      if (u.mode != Access::reduce && u.has_elements()) combine(u.matrix, {}, s);
  };
  if (!s.task.valid()) {
    note(s, "");
    combine_before();
    return open_ ? std::string() : s.effect();
  }
  // How the task ended, and the task names in its error.
  enum class End { well, error, cancelled } end = End::well;
  std::vector<std::string> names;
  std::string error;
  try {
    s.task.wait();
  } catch (const TaskCancelled& e) {
    end = End::cancelled, names = e.tasks(), error = e.what();
  } catch (const TaskError& e) {
    end = End::error, names = e.tasks(), error = e.what();
  }
  const bool began = s.outcome->began, failed = s.outcome->threw;
  s.failed = end != End::well;
  s.began = began, s.names = names;
  note(s, std::string(failed                  ? "threw"
                      : began                 ? "ran"
                      : end == End::cancelled ? "was cancelled"
                                              : "was skipped") +
              " on " + to_string(s.task.device()) + (s.in_region ? "" : ", outside of the region"));
  if (s.failed != (!began || failed))
    return s.failed ? "an error was reported for a task that succeeded" : "a failure was not reported";
  if (failed && (end != End::error || names.size() != 1)) return "it threw, but another error was reported";
  // Check whether the task could have run.
  combine_before();
  if (open_) return {};
  bool must_skip = s.after && steps_[*s.after].failed, may_skip = must_skip;
  for (const Use& u : s.uses) {
    if (u.mode == Access::out) continue;
    if (u.mode == Access::reduce) {  // it uses only its own slot
      Reducing& set = begin_reducing(u, s);
      must_skip = may_skip = set.slot_failed[set.tasks % set.slot_failed.size()];
      continue;
    }
    each(u, [&](Cell& c, auto, auto) {
      must_skip = must_skip || c.failed || (c.failed_commute && u.mode != Access::commute);
    });
    may_skip = may_skip || may_have_failed(u);
  }
  const bool may_cancel = s.stopped_before || (s.may_be_cancelled && stop_.stop_requested()) || (left && s.in_region);
  if (began && must_skip) return "it ran, although a dependency had failed";
  if (began && s.stopped_before) return "it ran, although it had been cancelled before";
  if (!began && !may_skip && !may_cancel) return "it was skipped, although no dependency had failed: " + error;
  if (!began && end == End::error && names.size() < 2)
    return "it was skipped, but its error names no failed dependency";
  if (failed) ++counts_.threw;
  if (!began) ++(end == End::cancelled ? counts_.cancelled : counts_.skipped);
  // The region does not report a cancelled task as an error, but it does report a task that was skipped because it
  // depends on a cancelled one.
  if (s.in_region && (end == End::error || (end == End::cancelled && names.size() > 1))) expects_error_ = true;
  if (began && (!failed || s.effect_if_it_throws))
    if (std::string wrong = s.effect(); !wrong.empty()) return wrong;
  for (const Use& u : s.uses) {
    if (u.mode == Access::in) continue;
    if (u.mode == Access::reduce) {
      Reducing& set = *reducing_of(u);
      set.slot_failed[set.tasks++ % set.slot_failed.size()] = s.failed;
      set.failed = set.failed || s.failed;
      continue;
    }
    const bool commutes = u.mode == Access::commute;
    each(u, [&](Cell& c, auto, auto) {
      if (!commutes) c.failed_commute = false, c.failed = s.failed;
      if (commutes && s.failed) c.failed_commute = true;
    });
    if (s.failed)
      has_failed(u);
    else if (!commutes && u.triangle == MatrixPart::none)
      has_written(u);
  }
  return {};
}

void RegionProgram::note(const Step& s, const std::string& end) {
  text_ += "  " + std::to_string(&s - steps_.data()) + " " + s.what;
  for (const Use& u : s.uses) {
    text_ += std::string("; ") + to_string(u.mode) + " " + std::to_string(u.matrix);
    if (u.mode == Access::reduce) text_ += std::string(" by ") + to_string(u.op);
    if (u.box != Box{})
      text_ += " from (" + std::to_string(u.box.row) + ", " + std::to_string(u.box.column) + ") " +
               std::to_string(u.box.rows) + " x " + std::to_string(u.box.columns);
    if (u.triangle != MatrixPart::none) text_ += std::string(" ") + to_string(u.triangle);
  }
  text_ += (end.empty() ? "" : ": " + end) + "\n";
}

}  // namespace tessera::test
