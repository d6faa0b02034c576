// SPDX-License-Identifier: Apache-2.0
// What a random program should have done: its steps in order, by plain loops.
#include <algorithm>

#include "tests/region/region_program.h"

namespace tessera::test {

/// Goes through the steps in order, with what their functions said. `left`: the region was left by an error, which
/// cancels what has not begun. `threw`: its wait did.
std::string RegionProgram::judge(bool left, bool threw) {
  expects_error_ = false;
  failed_.clear();
  text_ += left ? "a region that is left by an error\n" : "a region\n";
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (std::string wrong = judge(steps_[i], left); !wrong.empty()) return wrong + " in step " + std::to_string(i);
  // All were asked, so that nobody comes to know of their errors by what comes after.
  for (Matrix& m : all_)
    for (Cell& c : m.cells) c.failed = c.failed_commute = false;
  if (!left && threw != expects_error_)
    return threw ? "the region threw, and no task of it failed" : "the region did not throw";
  return {};
}

std::string RegionProgram::judge(Step& s, bool left) {
  if (!s.task.valid()) {
    note(s, "");
    return s.effect();
  }
  // What it throws, and of which tasks that tells.
  enum class End { well, error, cancelled } end = End::well;
  std::vector<std::string> names;
  try {
    s.task.wait();
  } catch (const TaskCancelled& e) {
    end = End::cancelled, names = e.tasks();
  } catch (const TaskError& e) {
    end = End::error, names = e.tasks();
  }
  const bool began = s.outcome->began, failed = s.outcome->threw;
  s.failed = end != End::well;
  note(s, std::string(failed                  ? "threw"
                      : began                 ? "ran"
                      : end == End::cancelled ? "was cancelled"
                                              : "was skipped") +
              " on " + to_string(s.task.device()) + (s.in_region ? "" : ", outside of the region"));
  if (s.failed != (!began || failed)) return s.failed ? "an error of a task that ran well" : "a failure was not told";
  if (failed && (end != End::error || names.size() != 1)) return "it threw, and that is not what was told";
  // Whether it could run.
  bool must_skip = s.after && steps_[*s.after].failed, may_skip = must_skip;
  for (const Use& u : s.uses) {
    if (u.mode == Access::out) continue;
    each(u, [&](Cell& c, auto, auto) {
      must_skip = must_skip || c.failed || (c.failed_commute && u.mode != Access::commute);
    });
    may_skip = may_skip || std::ranges::any_of(failed_, [&](const Use& f) {
                 return f.matrix == u.matrix && f.box.row < u.box.row + u.box.rows &&
                        u.box.row < f.box.row + f.box.rows && f.box.column < u.box.column + u.box.columns &&
                        u.box.column < f.box.column + f.box.columns;
               });
  }
  const bool may_cancel = s.stopped_before || (s.may_be_cancelled && stop_.stop_requested()) || (left && s.in_region);
  if (began && must_skip) return "it ran, and what it needs had failed";
  if (began && s.stopped_before) return "it ran, and had been stopped before";
  if (!began && !may_skip && !may_cancel) return "it was skipped, and nothing that it needs had failed";
  if (!began && end == End::error && names.size() < 2) return "it was skipped, and is said to have failed by itself";
  if (failed) ++counts_.threw;
  if (!began) ++(end == End::cancelled ? counts_.cancelled : counts_.skipped);
  // A cancellation by itself is no error of the region; that something else was skipped for it is.
  if (s.in_region && (end == End::error || (end == End::cancelled && names.size() > 1))) expects_error_ = true;
  if (began && (!failed || s.effect_if_it_throws))
    if (std::string wrong = s.effect(); !wrong.empty()) return wrong;
  for (const Use& u : s.uses) {
    if (u.mode == Access::in) continue;
    const bool commutes = u.mode == Access::commute;
    each(u, [&](Cell& c, auto, auto) {
      if (!commutes) c.failed_commute = false, c.failed = s.failed;
      if (commutes && s.failed) c.failed_commute = true;
    });
    if (s.failed)
      failed_.push_back(u);
    else if (!commutes && u.triangle == MatrixPart::none)
      std::erase_if(failed_, [&](const Use& f) {
        return f.matrix == u.matrix && (u.box == Box{} || (u.box == f.box && f.triangle == MatrixPart::none));
      });
  }
  return {};
}

void RegionProgram::note(const Step& s, const std::string& end) {
  text_ += "  " + std::to_string(&s - steps_.data()) + " " + s.what;
  for (const Use& u : s.uses) {
    text_ += std::string("; ") + to_string(u.mode) + " " + std::to_string(u.matrix);
    if (u.box != Box{})
      text_ += " from (" + std::to_string(u.box.row) + ", " + std::to_string(u.box.column) + ") " +
               std::to_string(u.box.rows) + " x " + std::to_string(u.box.columns);
    if (u.triangle != MatrixPart::none) text_ += std::string(" ") + to_string(u.triangle);
  }
  text_ += (end.empty() ? "" : ": " + end) + "\n";
}

}  // namespace tessera::test
