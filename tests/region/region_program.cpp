// SPDX-License-Identifier: Apache-2.0
#include "tests/region/region_program.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tessera/task/this_task.h"

namespace tessera::test {

namespace {
constexpr float most = 1 << 18;  // the sum of 36 such values is exact
void wait_for(std::chrono::microseconds time) {
  if (time.count() != 0) std::this_thread::sleep_for(time);
}
struct Leave {};
}  // namespace

bool RegionProgram::Use::touches(std::int64_t i, std::int64_t j) const {
  switch (triangle) {
    case MatrixPart::none: return true;
    case MatrixPart::upper: return j >= i;
    case MatrixPart::lower: return j <= i;
    case MatrixPart::unit_upper: return j > i;
    case MatrixPart::unit_lower: return j < i;
    case MatrixPart::diagonal: return i == j;
  }
  return true;
}

bool RegionProgram::Use::has_elements() const {
  for (std::int64_t i = 0; i < box.rows; ++i)
    for (std::int64_t j = 0; j < box.columns; ++j)
      if (touches(i, j)) return true;
  return false;
}

/// Returns a box of the given size, or a random box: everything, a part, or no elements.
RegionProgram::Box RegionProgram::box(std::optional<std::int64_t> rows, std::optional<std::int64_t> columns) {
  if (!rows && one_of(3)) return {};
  Box b;
  b.rows = rows ? *rows : 1 + below(side), b.columns = columns ? *columns : 1 + below(side);
  if (!rows && one_of(6)) (one_of(2) ? b.rows : b.columns) = 0;
  b.row = below(side - b.rows + 1), b.column = below(side - b.columns + 1);
  return b;
}
RegionProgram::Box RegionProgram::box_with_elements() {
  for (;;)
    if (const Box b = box(); !b.empty()) return b;
}
/// Returns a view of the matrix. It may be a view of a larger view.
Array RegionProgram::view(const Use& use) {
  Array m = all_[use.matrix].array;
  if (use.box == Box{}) return m;
  const std::int64_t row = below(use.box.row + 1), column = below(use.box.column + 1);
  m = m.slice(0, row, side).slice(1, column, side);
  const Box b{use.box.row - row, use.box.column - column, use.box.rows, use.box.columns};
  return m.slice(1, b.column, b.column + b.columns).slice(0, b.row, b.row + b.rows);
}
Scope RegionProgram::somewhere() {
  std::vector<Device> some;
  for (const Device d : devices_)
    if (one_of(2)) some.push_back(d);
  if (some.empty()) some.push_back(devices_[up_to(devices_.size())]);
  return Scope(some);
}

TaskOptions RegionProgram::options() {
  TaskOptions o{.scope = somewhere(),
                .priority = static_cast<int>(up_to(4)) - 2,
                .name = "step " + std::to_string(steps_.size() - 1)};
  if (steps_.back().may_be_cancelled) o.stop = stop_.get_token();
  return o;
}

template <class F, class... A>
Task<void> RegionProgram::spawn_in(Region& r, const Step& step, const TaskOptions& o, F&& f, A&&... arguments) {
  ++counts_.tasks;
  if (step.in_region) return r.spawn(o, std::forward<F>(f), std::forward<A>(arguments)...);
  return spawn(o, std::forward<F>(f), std::forward<A>(arguments)...);
}

/// Creates a task that calls body(the arrays of `uses`). It may wait first, and it may throw before or after calling
/// body. If it overwrites an array, it throws only after body. Some tasks are cancelled.
template <class Body>
RegionProgram::Step& RegionProgram::task(Region& r, const char* what, std::vector<Use> uses, Body body,
                                         std::function<std::string()> effect, std::optional<std::size_t> after) {
  Step& s = steps_.emplace_back(Step{what});
  s.uses = std::move(uses);
  s.effect = std::move(effect);
  s.outcome = std::make_shared<Outcome>();
  s.in_region = !one_of(8);
  s.may_be_cancelled = one_of(6);
  s.stopped_before = s.may_be_cancelled && stop_.stop_requested();
  const bool throws = one_of(20);
  s.effect_if_it_throws = throws && (one_of(2) || std::ranges::any_of(s.uses, [](const Use& u) {
                                       return u.mode == Access::out;  // the old contents are undefined
                                     }));
  const std::chrono::microseconds delay(one_of(3) ? up_to(300) : 0);
  TaskOptions o = options();
  std::vector<Accessed> accesses;
  for (const Use& u : s.uses) {
    accesses.push_back({view(u), u.mode, u.triangle, u.op});
    if (u.triangle != MatrixPart::none) o.scope = Scope();  // only host functions support triangles
  }
  s.after = after;
  const auto function = [delay, throws, late = s.effect_if_it_throws, said = s.outcome,
                         body](std::vector<Array> arrays) {
    said->began = true;
    try {
      wait_for(delay);
      if (throws && !late) throw std::runtime_error("on purpose");
      body(arrays, *said);
      if (throws) throw std::runtime_error("on purpose, late");
    } catch (...) {
      said->threw = true;
      throw;
    }
  };
  s.task = after ? spawn_in(r, s, o, function, steps_[*after].task, std::move(accesses))
                 : spawn_in(r, s, o, function, std::move(accesses));
  return s;
}

void RegionProgram::in_place(Region& r) {
  const Use at{up_to(all_.size()), box(), Access::inout};
  const auto by = static_cast<float>(up_to(3)) - 1;
  all_[at.matrix].bound += 1;
  task(
      r, "in place", {at},
      [by](std::vector<Array>& a, Outcome&) {
        a[0] *= by;
        a[0] += 1;
      },
      [=, this] {
        each(at, [&](Cell& c, auto, auto) { c.value = c.value * by + 1; });
        return std::string();
      });
}

void RegionProgram::from_another(Region& r) {
  const Use to{up_to(all_.size()), box(), Access::inout};
  const Use from{up_to(all_.size()), box(to.box.rows, to.box.columns), Access::in};
  if (to.matrix == from.matrix) return;  // the views might overlap, and kernels reject that
  float& bound = all_[to.matrix].bound;
  if (bound + all_[from.matrix].bound > most) return;
  bound += all_[from.matrix].bound;
  task(
      r, "add", {from, to}, [](std::vector<Array>& a, Outcome&) { a[1] += a[0]; },
      [=, this] {
        std::vector<float> values;
        each(from, [&](Cell& c, auto, auto) { values.push_back(c.value); });
        auto at = values.begin();
        each(to, [&](Cell& c, auto, auto) { c.value += *at++; });
        return std::string();
      });
}

void RegionProgram::written_whole(Region& r) {
  const Use at{up_to(all_.size()), box(), Access::out};
  const auto value = static_cast<float>(up_to(5)) - 2;
  all_[at.matrix].bound = std::max(all_[at.matrix].bound, 2.0f);
  task(
      r, "fill", {at}, [value](std::vector<Array>& a, Outcome&) { a[0].fill(value); },
      [=, this] {
        each(at, [&](Cell& c, auto, auto) { c.value = value; });
        return std::string();
      });
}

void RegionProgram::triangle(Region& r) {
  constexpr MatrixPart kinds[] = {MatrixPart::upper, MatrixPart::lower, MatrixPart::unit_upper, MatrixPart::unit_lower,
                                  MatrixPart::diagonal};
  const Use at{up_to(all_.size()), box_with_elements(), Access::inout, kinds[up_to(5)]};
  all_[at.matrix].bound += 1;
  task(
      r, "triangle", {at},
      [at](std::vector<Array>& a, Outcome&) {
        const HostAccess memory = a[0].host_access();
        const std::span<float> v = memory.as<float>();
        for (std::int64_t i = 0; i < at.box.rows; ++i)
          for (std::int64_t j = 0; j < at.box.columns; ++j)
            if (at.touches(i, j)) v[static_cast<std::size_t>(i * a[0].strides()[0] + j * a[0].strides()[1])] += 1;
      },
      [=, this] {
        each(at, [](Cell& c, auto, auto) { c.value += 1; });
        return std::string();
      });
}

/// Creates tasks that update four parts. The number of rows is such that the last part is empty.
void RegionProgram::in_parts(Region& r) {
  const std::size_t matrix = up_to(all_.size());
  all_[matrix].bound += 1;
  constexpr std::int64_t rows = (side + 3) / 4;
  for (std::int64_t begin = 0; begin < 4 * rows; begin += rows) {
    const std::int64_t from = std::min(begin, side), end = std::min(begin + rows, side);
    const Use part{matrix, {from, 0, end - from, side}, Access::inout};
    task(
        r, "a part", {part}, [](std::vector<Array>& a, Outcome&) { a[0] += 1; },
        [=, this] {
          each(part, [](Cell& c, auto, auto) { c.value += 1; });
          return std::string();
        });
  }
}

/// Creates a nested region with two tasks per row, on the same device or another one. One of the tasks may throw.
void RegionProgram::nested(Region& r) {
  const Use at{up_to(all_.size()), box(), Access::inout};
  all_[at.matrix].bound += 2 * side;
  const std::int64_t bad = one_of(6) ? below(std::max<std::int64_t>(1, at.box.rows)) : -1;
  const std::optional<Scope> there = one_of(3) ? std::optional(somewhere()) : std::nullopt;
  const std::chrono::microseconds delay(one_of(3) ? up_to(200) : 0);
  const bool reduces = one_of(3);
  const auto body = [=](std::vector<Array>& a, Outcome& said) {
    Region inner({.scope = there ? *there : Scope(a[0].device())});
    for (std::int64_t i = 0; i < a[0].shape()[0]; ++i) {
      Array row = a[0].slice(0, i, i + 1);
      for (std::int64_t k = 0; k < 2; ++k)
        inner.spawn(
            [&said, delay, i, k, fails = i == bad && k == 0](Array& v) {
              if (i == 1) wait_for(delay);
              if (fails) throw std::runtime_error("within");
              v += static_cast<float>(i);
              said.inner[static_cast<std::size_t>(2 * i + k)] = true;
            },
            reduces ? reduce(Combine::sum, row) : inout(row));
    }
  };
  Step& s = task(r, "nested", {at}, body, {});
  s.effect = [this, at, reduces, said = s.outcome] {
    each(at, [&](Cell& c, std::int64_t i, auto) {
      const std::atomic<bool>* const ran = &said->inner[static_cast<std::size_t>(2 * i)];
      if (reduces && !(ran[0] && ran[1])) return;  // either all contributions are combined or none
      for (std::size_t k = 0; k < 2; ++k)
        if (ran[k]) c.value += static_cast<float>(i);
    });
    return std::string();
  };
  s.effect_if_it_throws = true;  // the tasks recorded which of them ran
}

namespace {
/// Computes 6 * by + 10 with nested tasks on arrays that the calling task creates. The tasks run on `there`.
float computed_on_own_arrays(float by, const Scope& there, std::chrono::microseconds delay) {
  Array t = Array::zeros({4, 3}), u = Array::zeros({4, 3});
  const auto add = [by, delay](Array& v) {
    wait_for(delay);
    v += by;
  };
  {
    Region inner({.scope = there});
    inner.spawn(add, inout(t));
    for (std::int64_t i = 0; i < 5; ++i) {
      Array row = t.slice(0, i, std::min<std::int64_t>(i + 1, 4));  // the last view is empty
      inner.spawn(add, inout(row));
    }
    inner.spawn([](const Array& from, Array& to) { to += from; }, in(t), inout(u));
    for (int i = 0; i < 4; ++i) inner.spawn([](Array& v) { v += 1; }, reduce(Combine::sum, u));
    // A task with one of the arrays as argument creates tasks on a local array.
    inner.spawn(
        [delay](Array& v) {
          Array one = Array::zeros({4, 3});
          spawn([delay](Array& w) { wait_for(delay), w += 1; }, inout(one));
          v += one;
        },
        inout(u));
    inner.spawn([](const Array& from, Array& to) { to += from; }, in(t), inout(u));
  }
  const auto check_not_stopped = [] {  // stopping the task also stops the tasks created here
    if (this_task::stop_requested()) throw std::runtime_error("stopped");
  };
  check_not_stopped();
  const float before = max(u).item<float>();  // 4 * by + 5
  spawn({.scope = there}, add, inout(u));
  spawn({.scope = there}, add, inout(u));
  const float after = min(u).item<float>();  // waits for both tasks
  check_not_stopped();
  u += 5;
  return ((before + 2 * by + 5) + (after + 5) + u.to_vector<float>()[7]) / 3;
}
}  // namespace

/// Creates tasks that use nested tasks on local arrays, with and without array arguments.
void RegionProgram::own_arrays(Region& r) {
  const auto by = static_cast<float>(up_to(4));
  const Scope there = somewhere();
  const std::chrono::microseconds delay(one_of(2) ? up_to(200) : 0);
  if (one_of(2)) {
    const auto number = std::make_shared<float>(), expected = std::make_shared<float>();
    task(
        r, "own arrays", {}, [=](std::vector<Array>&, Outcome&) { *number = computed_on_own_arrays(by, there, delay); },
        [=] {
          *expected = 6 * by + 10;
          return std::string();
        });
    return add_number(r, number, expected);
  }
  const Use at{up_to(all_.size()), box(), Access::inout};
  all_[at.matrix].bound += 6 * by + 10;
  Step& s = task(r, "own arrays", {at},
                 [=](std::vector<Array>& a, Outcome& said) {
                   a[0] += computed_on_own_arrays(by, there, delay);
                   said.inner[0] = true;
                 },
                 {});
  s.effect = [this, at, by, said = s.outcome] {
    each(at, [&](Cell& c, auto, auto) { c.value += said->inner[0] ? 6 * by + 10 : 0; });
    return std::string();
  };
  s.effect_if_it_throws = true;  // the task records whether it ran
}

/// Creates tasks that capture an array without declaring it. Each one runs after the previous one.
void RegionProgram::captured(Region& r) {
  const std::optional<std::size_t> before = captured_by_;
  captured_by_ = steps_.size();
  task(
      r, "captured", {}, [w = captured_](std::vector<Array>&, Outcome&) { Array(w) += 1; },
      [this] {
        captured_value_ += 1;
        return std::string();
      },
      before);
}

void RegionProgram::commuting(Region& r) {
  const std::size_t a = up_to(all_.size()), b = up_to(all_.size());
  const Box at = one_of(2) ? Box{} : box();
  const auto by = static_cast<float>(up_to(4));
  std::vector<Use> uses{{a, at, Access::commute}};
  if (a != b && one_of(3)) uses.push_back({b, one_of(2) ? Box{} : box(), Access::commute});
  for (const Use& u : uses) all_[u.matrix].bound += by;
  const auto tasks = 1 + up_to(3);
  for (std::uint64_t i = 0; i < tasks; ++i) {
    task(
        r, "commute", uses,
        [by](std::vector<Array>& arrays, Outcome&) {
          for (Array& v : arrays) v += by;
        },
        [=, this] {
          for (const Use& u : uses) each(u, [&](Cell& c, auto, auto) { c.value += by; });
          return std::string();
        });
    for (const Use& u : uses) all_[u.matrix].bound += by;
  }
}

/// Creates a reduction whose result is an argument of another task.
void RegionProgram::by_a_number(Region& r) {
  const Use from{up_to(all_.size()), box(), Access::in};
  const auto number = std::make_shared<float>();        // computed by the tasks
  const auto expected = std::make_shared<float>(0.0f);  // computed with plain loops
  const auto small = [](float v) { return std::fmod(v, 64.0f); };
  task(
      r, "sum", {from}, [=](std::vector<Array>& a, Outcome&) { *number = small(sum(a[0]).item<float>()); },
      [=, this] {
        float total = 0;
        each(from, [&](Cell& c, auto, auto) { total += c.value; });
        *expected = small(total);
        return std::string();
      });
  add_number(r, number, expected);
}

/// Creates a task that adds the result of another task to a part.
void RegionProgram::add_number(Region& r, const std::shared_ptr<float>& number,
                               const std::shared_ptr<float>& expected) {
  const Use to{up_to(all_.size()), box(), Access::inout};
  const std::size_t number_of_first = steps_.size() - 1;
  const Task<void> before = steps_.back().task;
  all_[to.matrix].bound += 64;
  Step& s = steps_.emplace_back(Step{"add the sum"});
  s.uses = {to};
  s.outcome = std::make_shared<Outcome>();
  s.after = number_of_first;
  s.effect = [=, this] {
    each(to, [&](Cell& c, auto, auto) { c.value += *expected; });
    return std::string();
  };
  s.task = spawn_in(
      r, s, options(),
      [number, said = s.outcome](Array& v) {
        said->began = true;
        v += *number;
      },
      before, Accessed{view(to), Access::inout});
}

/// Creates tasks that reduce into a part. Later uses see the combined result.
void RegionProgram::reducing(Region& r) {
  const auto op = static_cast<Combine>(up_to(4));
  const Use at{up_to(all_.size()), one_of(2) ? Box{} : box_with_elements(), Access::reduce, MatrixPart::none, op};
  const auto tasks = one_of(4) ? 8 + up_to(4) : 1 + up_to(4);  // sometimes more tasks than slots
  for (std::uint64_t i = 0; i < tasks; ++i) {
    const auto by = op == Combine::product ? (one_of(2) ? -1.0f : 1.0f) : static_cast<float>(up_to(9)) - 4;
    float& bound = all_[at.matrix].bound;
    bound = op == Combine::sum ? bound + 4 : std::max(bound, 4.0f);
    task(
        r, "reduce", {at},
        [op, by](std::vector<Array>& a, Outcome&) {
          switch (op) {
            case Combine::sum: a[0] += by; break;
            case Combine::product: a[0] *= by; break;
            case Combine::minimum: a[0].assign(minimum(a[0], Array::full(a[0].shape(), by))); break;
            case Combine::maximum: a[0].assign(maximum(a[0], Array::full(a[0].shape(), by))); break;
          }
        },
        [=, this] {
          each(at, reducing_of(at)->cells, [&](Cell& c, auto, auto) { c.value = together(op, c.value, by); });
          return std::string();
        });
  }
}

void RegionProgram::reads() {
  const Use all{up_to(all_.size()), box_with_elements(), Access::in};
  const float said = sum(view(all)).item<float>();
  Step& s = steps_.emplace_back(Step{"the program reads"});
  s.uses = {all};
  s.effect = [=, this] {
    float total = 0;
    each(all, [&](Cell& c, auto, auto) { total += c.value; });
    return said == total
               ? std::string()
               : "the sum that the program read is " + std::to_string(said) + ", not " + std::to_string(total);
  };
}

void RegionProgram::writes() {
  const Use at{up_to(all_.size()), box_with_elements(), Access::out};
  std::vector<float> values;
  for (std::int64_t i = 0; i < at.box.rows * at.box.columns; ++i) values.push_back(static_cast<float>(up_to(10)) - 5);
  all_[at.matrix].bound = std::max(all_[at.matrix].bound, 5.0f);
  Array part = view(at);
  part.assign(Array::from(values, Shape{at.box.rows, at.box.columns}, all_[at.matrix].array.device()));
  Step& s = steps_.emplace_back(Step{"the program writes"});
  s.uses = {at};
  s.effect = [=, this] {
    auto from = values.begin();
    each(at, [&](Cell& c, auto, auto) { c.value = *from++; });
    return std::string();
  };
}

/// Replaces the matrix by a copy on the same device or another one.
void RegionProgram::moves() {
  const std::size_t matrix = up_to(all_.size());
  all_[matrix].array = all_[matrix].array.to(devices_[up_to(devices_.size())]).copy().eval();
  Step& s = steps_.emplace_back(Step{"the program moves"});
  s.uses = {{matrix}};
  s.effect = [=, this] {
    each({matrix}, [](Cell& c, auto, auto) { c.failed = c.failed_commute = false; });
    std::erase_if(failed_, [&](const Use& f) { return f.matrix == matrix; });
    return std::string();
  };
}

void RegionProgram::one(Region& r) {
  switch (up_to(20)) {
    case 0:
    case 1:
    case 2: return in_place(r);
    case 3:
    case 4: return from_another(r);
    case 5: return written_whole(r);
    case 6: return triangle(r);
    case 7: return nested(r);
    case 8:
    case 9: return commuting(r);
    case 10: return by_a_number(r);
    case 11: return reads();
    case 12: return writes();
    case 13: return moves();
    case 14:
    case 15: return reducing(r);
    case 16: return in_parts(r);
    case 17:
    case 18: return own_arrays(r);
    case 19: return captured(r);
  }
}

std::string RegionProgram::run() {
  all_.resize(3);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const auto v = static_cast<float>(i + 1);
    all_[i].array = Array::full({side, side}, v, DType::f32, devices_[up_to(devices_.size())]).copy().eval();
    all_[i].bound = v;
    for (Cell& c : all_[i].cells) c.value = v;
  }
  captured_ = Array::zeros({side}, DType::f32, devices_[up_to(devices_.size())]).copy().eval();
  for (int regions = 0; regions < 2; ++regions, ++counts_.regions) {
    steps_.clear(), captured_by_.reset();
    stop_ = std::stop_source();
    const bool leaves = one_of(10);
    bool threw = false;
    try {
      Region r(one_of(4) ? TaskOptions{.priority = 1} : TaskOptions{}, one_of(4) ? 4 : 0);
      for (int step = 0; step < 12; ++step) {
        one(r);
        if (one_of(12)) stop_.request_stop();
      }
      if (leaves) throw Leave();
      r.wait();
    } catch (const Leave&) {
    } catch (const TaskError&) {
      threw = true;
    }
    if (std::string wrong = judge(leaves, threw); !wrong.empty()) return wrong;
    if (open_) return ++counts_.open, std::string();
  }
  if (captured_.to_vector<float>() != std::vector<float>(side, captured_value_))
    return "the captured array has " + std::to_string(captured_.to_vector<float>()[0]) + " instead of " +
           std::to_string(captured_value_);
  failed_.clear();
  for (std::size_t i = 0; i < all_.size(); ++i) combine(i, {}, Step{"the program reads all"});
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const std::vector<float> got = all_[i].array.to_vector<float>();
    for (std::size_t k = 0; k < got.size(); ++k)
      if (got[k] != all_[i].cells[k].value)
        return "matrix " + std::to_string(i) + " has " + std::to_string(got[k]) + " at " + std::to_string(k) +
               " instead of " + std::to_string(all_[i].cells[k].value);
  }
  return {};
}

}  // namespace tessera::test
