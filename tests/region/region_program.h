// SPDX-License-Identifier: Apache-2.0
// A random program of tasks on small matrices. Plain sequential loops compute the expected result: the values, and
// which tasks can run if some of them throw or are cancelled.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/task/region.h"

namespace tessera::test {

class RegionProgram {
 public:
  struct Counts {
    std::uint64_t tasks = 0, threw = 0, skipped = 0, cancelled = 0, regions = 0, combined = 0, dropped = 0, open = 0;
  };
  RegionProgram(std::uint64_t seed, std::vector<Device> devices) : random_(seed), devices_(std::move(devices)) {}
  /// Runs the program. Returns an error message, or an empty string on success.
  std::string run();
  const Counts& counts() const { return counts_; }
  /// Returns the program and what happened to its tasks, one line per step.
  const std::string& steps() const { return text_; }

 private:
  static constexpr std::int64_t side = 6;
  struct Box {
    std::int64_t row = 0, column = 0, rows = side, columns = side;
    bool empty() const { return rows == 0 || columns == 0; }
    bool meets(const Box& b) const {
      return !empty() && !b.empty() && row < b.row + b.rows && b.row < row + rows && column < b.column + b.columns &&
             b.column < column + columns;
    }
    bool contains(const Box& b) const {
      return row <= b.row && column <= b.column && b.row + b.rows <= row + rows &&
             b.column + b.columns <= column + columns;
    }
    friend bool operator==(const Box&, const Box&) = default;
  };
  /// The expected state of an element.
  struct Cell {
    float value = 0;
    bool failed = false;          ///< true if the last task that wrote it failed
    bool failed_commute = false;  ///< true if one of the last commuting tasks that wrote it has failed
  };
  using Cells = std::vector<Cell>;
  /// Expected contributions to a reduction that was not combined yet.
  struct Reducing {
    Combine op;
    Box box;
    Cells cells;
    std::uint64_t tasks = 0;
    bool failed = false, told = false;
    std::array<bool, 8> slot_failed = {};
  };
  struct Matrix {
    Array array;
    Cells cells = Cells(side * side);
    std::vector<Reducing> reducing = {};
    float bound = 0;  ///< maximum absolute value; small enough that additions are exact in any order
  };
  struct Use {
    std::size_t matrix = 0;
    Box box = {};
    Access mode = Access::in;
    MatrixPart triangle = MatrixPart::none;
    Combine op = Combine::sum;
    bool touches(std::int64_t i, std::int64_t j) const;
    bool has_elements() const;
  };
  /// What happened to a task, as recorded by its function.
  struct Outcome {
    std::atomic<bool> began = false, threw = false;
    std::vector<std::atomic<bool>> inner = std::vector<std::atomic<bool>>(2 * side);  ///< the same for its nested tasks
  };
  struct Step {
    const char* what;
    std::vector<Use> uses = {};
    /// Computes the expected effect with plain loops; returns an error message.
    std::function<std::string()> effect = {};
    Task<void> task = {};  ///< not valid for a step of the main program
    std::shared_ptr<Outcome> outcome = {};
    std::optional<std::size_t> after = {};  ///< the step whose result is an argument of this step
    bool effect_if_it_throws = false;
    bool stopped_before = false, may_be_cancelled = false, in_region = true;
    bool failed = false;  ///< set by `judge`
    bool began = false;
    std::vector<std::string> names = {};  ///< names of the tasks in its error
  };
  // region_program.cpp
  std::uint64_t up_to(std::uint64_t n) { return random_() % n; }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(up_to(static_cast<std::uint64_t>(n))); }
  bool one_of(std::uint64_t n) { return up_to(n) == 0; }
  Box box(std::optional<std::int64_t> rows = {}, std::optional<std::int64_t> columns = {});
  Box box_with_elements();
  Scope somewhere();
  Array view(const Use& use);
  /// Calls f(cell, row, column) for each element. Row and column are relative to the box.
  template <class F>
  void each(const Use& use, F&& f) {
    each(use, all_[use.matrix].cells, std::forward<F>(f));
  }
  template <class F>
  void each(const Use& use, Cells& cells, F&& f) {
    for (std::int64_t i = 0; i < use.box.rows; ++i)
      for (std::int64_t j = 0; j < use.box.columns; ++j)
        if (use.touches(i, j)) f(cells[static_cast<std::size_t>((use.box.row + i) * side + use.box.column + j)], i, j);
  }
  template <class Body>
  Step& task(Region& r, const char* what, std::vector<Use> uses, Body body, std::function<std::string()> effect,
             std::optional<std::size_t> after = {});
  template <class F, class... A>
  Task<void> spawn_in(Region& r, const Step& step, const TaskOptions& options, F&& f, A&&... arguments);
  TaskOptions options();
  void one(Region& r);
  void in_place(Region& r);
  void from_another(Region& r);
  void written_whole(Region& r);
  void triangle(Region& r);
  void in_parts(Region& r);
  void nested(Region& r);
  void own_arrays(Region& r);
  void captured(Region& r);
  void commuting(Region& r);
  void by_a_number(Region& r);
  void add_number(Region& r, const std::shared_ptr<float>& number, const std::shared_ptr<float>& expected);
  void reducing(Region& r);
  void reads();
  void writes();
  void moves();
  // region_program_judge.cpp
  std::string judge(bool left, bool threw);
  std::string judge(Step& step, bool left);
  static float together(Combine op, float a, float b);
  Reducing* reducing_of(const Use& use);
  Reducing& begin_reducing(const Use& use, const Step& step);
  void combine(std::size_t matrix, const Box& box, const Step& step);
  bool may_have_failed(const Use& use) const;
  void has_failed(const Use& use);
  void has_written(const Use& use);
  void note(const Step& step, const std::string& end);

  std::mt19937_64 random_;
  const std::vector<Device> devices_;
  std::vector<Matrix> all_;
  Array captured_;                          ///< array that tasks capture; these tasks depend on each other
  float captured_value_ = 0;                ///< expected value of its elements
  std::optional<std::size_t> captured_by_;  ///< last step of this region that captured it
  std::vector<Step> steps_;                 // steps of this region
  std::stop_source stop_;                   // stops some of these steps
  std::vector<Use> failed_;                 ///< parts that failed tasks wrote and that were not overwritten since
  bool expects_error_ = false;
  std::vector<Combine> combined_;  ///< operations of reductions that were combined before the step being checked
  /// Operations that failed to combine in this region; errors of later steps may contain them too.
  std::vector<Combine> failed_to_combine_;
  bool open_ = false;  ///< true if the tasks' records do not show whether slots were combined
  Counts counts_;
  std::string text_;
};

}  // namespace tessera::test
