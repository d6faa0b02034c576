// SPDX-License-Identifier: Apache-2.0
// Combines cells of the table of nodes into kernels, runs the kernels, and compares the results.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>

#include "tessera/base/error.h"
#include "tests/nodes/node_table.h"

namespace tessera::test {

using namespace ir;

namespace {

/// Several cells with the same inputs, combined into one kernel.
class Batch {
 public:
  Batch(std::span<const Row* const> rows, const World& world)
      : world_(world),
        builder_(
            "cells", world.block ? KernelKind::block : KernelKind::map,
            world.block ? std::array<std::uint32_t, 3>{World::block_x, 4, 1} : std::array<std::uint32_t, 3>{1, 1, 1}) {
    const Builder::Scope scope(builder_);
    Tracer tracer(world, slots_, checks_);
    tracer.scalar(DType::index, world.column.index64 ? Target::wide_index : 1);  // chooses the width of index
    if (world.block) {  // a device with several subgroup widths chooses one per kernel
      const BufferRef width = tracer.output(DType::i32, world.n, {});
      slots_.back().cell = no_cell, width_slot_ = slots_.size() - 1;
      width.store(tracer.i(), cast(DType::i32, subgroup_size()));
    }
    for (std::size_t k = 0; k < rows.size(); ++k) {
      tracer.start(k);
      rows[k]->cell(tracer);
    }
  }
  std::size_t parameters() const { return slots_.size(); }
  const Function& traced() const { return builder_.function(); }

  /// Runs the kernel once and sets the outcomes of the cells. Throws KernelError if the target rejects the kernel.
  void run(Target& target, std::span<Outcome> outcomes) {
    const Function fn = builder_.finish();
    World world = world_;
    world.functions = target.functions(world.column.compute() == DType::f64 ? DType::f64 : DType::f32);
    std::vector<Target::Memory> memory;
    for (const Slot& slot : slots_) memory.push_back(filled(slot));
    const std::array<std::uint64_t, 3> shape = {world.block ? World::blocks : world.n, 1, 1};
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    std::exception_ptr failed;
    try {
      target.run(fn, shape, memory);
    } catch (...) {
      failed = std::current_exception();
    }
    world.printed = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    if (failed) std::rethrow_exception(failed);
    if (world.block) {
      const auto& widths = target.can().subgroup_widths;
      const auto width = load_bits(DType::i32, memory[width_slot_].bytes.data() + Target::guard);
      world.width = static_cast<std::uint32_t>(width);
      if (std::ranges::find(widths, world.width) == widths.end())
        ADD_FAILURE() << target.name() << " has subgroups of " << width << ", which is not among its reported sizes";
    }
    std::vector<std::vector<std::vector<std::uint64_t>>> contents(outcomes.size());
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      if (!slots_[k].is_buffer || slots_[k].cell >= outcomes.size()) continue;
      Outcome& outcome = outcomes[slots_[k].cell];
      std::vector<std::uint64_t> got;
      const std::size_t size = dtype_size(slots_[k].dtype);
      for (std::size_t e = 0; e < slots_[k].elements; ++e)
        got.push_back(load_bits(slots_[k].dtype, memory[k].bytes.data() + Target::guard + e * size));
      std::string wrong = compare(slots_[k], world, got);
      for (std::size_t e = 0; e < Target::guard; ++e)
        if (memory[k].bytes[e] != poison || memory[k].bytes[memory[k].bytes.size() - 1 - e] != poison)
          wrong = "memory before or after its output was overwritten";
      if (!wrong.empty() && outcome.kind != Outcome::wrong) outcome = {Outcome::wrong, wrong};
      contents[slots_[k].cell].push_back(std::move(got));
    }
    for (const auto& [cell, check] : checks_) {
      const std::string wrong = check(world, contents[cell]);
      if (!wrong.empty() && outcomes[cell].kind != Outcome::wrong) outcomes[cell] = {Outcome::wrong, wrong};
    }
  }

 private:
  static constexpr std::byte poison{0xfb};
  static constexpr std::size_t no_cell = ~std::size_t{0};

  static Target::Memory filled(const Slot& slot) {
    Target::Memory m;
    m.dtype = slot.dtype, m.is_buffer = slot.is_buffer;
    if (!slot.is_buffer) {
      m.bits = slot.initial.at(0);
      return m;
    }
    const std::size_t size = dtype_size(slot.dtype);
    m.elements = slot.elements;
    m.bytes.assign(slot.elements * size + 2 * Target::guard, poison);
    for (std::size_t i = 0; i < slot.initial.size(); ++i)
      std::memcpy(m.bytes.data() + Target::guard + i * size, &slot.initial[i], size);
    return m;
  }
  static std::string shown(DType t, std::uint64_t bits) {
    char text[64];
    if (is_float(t))
      std::snprintf(text, sizeof text, "%.17g (0x%llx)", from_bits<double>(t, bits),
                    static_cast<unsigned long long>(bits));
    else
      std::snprintf(text, sizeof text, "%lld (0x%llx)", static_cast<long long>(bits),
                    static_cast<unsigned long long>(bits));
    return text;
  }
  static std::uint64_t masked(DType t, std::uint64_t bits) {
    const std::size_t width = 8 * dtype_size(t);
    return width < 64 ? bits & ((std::uint64_t{1} << width) - 1) : bits;
  }
  static bool same(const Slot& slot, std::uint64_t got, std::uint64_t right) {
    const DType t = slot.dtype;
    if (masked(t, got) == masked(t, right)) return true;
    if (!is_float(t) || slot.payload) return false;
    const double x = from_bits<double>(t, got), y = from_bits<double>(t, right);
    return (std::isnan(x) && std::isnan(y)) || (slot.either_zero && x == 0 && y == 0);
  }
  template <class T>
  static bool near(T got, long double exact, double ulp) {
    using L = std::numeric_limits<T>;
    const T nearest = static_cast<T>(exact);
    if (std::isnan(nearest) || std::isinf(nearest))
      return std::isnan(nearest) ? std::isnan(got)
                                 : got == nearest || (std::isfinite(exact) && got == std::copysign(L::max(), nearest));
    if (std::isnan(got)) return false;
    // Below the smallest normal number, flushing to 0 is allowed.
    if (std::fabs(exact) < L::min() && std::fabs(got) <= L::min() && ulp > 0) return true;
    if (std::isinf(got)) return ulp > 0 && nearest == std::copysign(L::max(), got);
    const long double unit =
        exact == 0 ? L::denorm_min()
                   : std::max<long double>(std::ldexp(1.0L, std::ilogb(exact) - L::digits + 1), L::denorm_min());
    return std::fabs(static_cast<long double>(got) - exact) <= static_cast<long double>(ulp) * unit;
  }
  std::string where(const World& w, std::size_t element) const {
    const std::size_t i = element % w.n;
    const DType t = w.column.dtype;
    return "element " + std::to_string(element) + " of " + std::to_string(w.n) + " threads (a = " + shown(t, w.a[i]) +
           ", b = " + shown(t, w.b[i]) + ", c = " + shown(t, w.c[i]) + ", s = " + shown(t, w.s[i]) + ")";
  }
  std::string compare(const Slot& slot, const World& w, const std::vector<std::uint64_t>& got) const {
    const double ulp = slot.ulp ? slot.ulp(w) : 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (slot.expected) {
        const auto right = slot.expected(w, i);
        if (right && !same(slot, got[i], *right))
          return where(w, i % w.n) + " gives " + shown(slot.dtype, got[i]) + ", not " + shown(slot.dtype, *right);
      }
      if (slot.exact) {
        const auto exact = slot.exact(w, i);
        if (!exact) continue;
        const bool good = slot.dtype == DType::f64 ? near(from_bits<double>(DType::f64, got[i]), *exact, ulp)
                                                   : near(from_bits<float>(DType::f32, got[i]), *exact, ulp);
        if (!good)
          return where(w, i % w.n) + " gives " + shown(slot.dtype, got[i]) + ", not " +
                 std::to_string(static_cast<double>(*exact)) + " within " + std::to_string(ulp) + " ulp";
      }
    }
    return {};
  }

  const World& world_;
  Builder builder_;
  std::vector<Slot> slots_;
  std::size_t width_slot_ = 0;
  std::vector<std::pair<std::size_t, Check>> checks_;
};

/// The verifier's result for one cell: the text of the error, or "" if the cell is accepted. `has_node` is true if the
/// kernel contains the node that the row tests.
struct Verdict {
  std::string refusal;
  bool has_node = false;
};
Verdict ask_language(const Row& row, const World& world) {
  Verdict verdict;
  const Row* one[] = {&row};
  try {
    Batch batch(one, world);
    for (const Node& n : batch.traced().nodes)
      verdict.has_node = verdict.has_node || (n.op == row.op && n.sub == row.sub);
  } catch (const KernelError& e) {
    verdict.refusal = e.what();
  }
  return verdict;
}

void run_some(std::span<const Row* const> rows, const World& world, Target& target, std::span<Outcome> outcomes) {
  constexpr std::size_t most_parameters =
      60;  // each has up to 16 bytes, and every device supports 1,024 bytes of parameters
  try {
    Batch batch(rows, world);
    if (batch.parameters() <= most_parameters || rows.size() == 1) {
      batch.run(target, outcomes);
      return;
    }
  } catch (const std::exception& e) {
    if (rows.size() == 1) {
      outcomes[0] = {dynamic_cast<const KernelError*>(&e) ? Outcome::refused : Outcome::wrong, e.what()};
      return;
    }
    for (Outcome& o : outcomes) o = {};
  }
  const std::size_t half = rows.size() / 2;
  run_some(rows.first(half), world, target, outcomes.first(half));
  run_some(rows.subspan(half), world, target, outcomes.subspan(half));
}
/// Runs cells with the same column and kernel kind on a target. Returns one outcome per cell.
std::vector<Outcome> run_cells(const std::vector<const Row*>& rows, const World& world, Target& target) {
  std::vector<Outcome> outcomes(rows.size());
  if (!rows.empty()) run_some(rows, world, target, outcomes);
  return outcomes;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Returns true if the target may reject the cell with this error: the target lacks a feature, and the error names it.
bool named(const std::string& error, const Target& target) {
  const Capabilities& can = target.can();
  return (!can.f64 && has(error, "no f64")) || (!can.atomic_i64 && has(error, "no 64-bit atomics")) ||
         (!can.int64 && has(error, "no 64-bit integers")) ||
         (target.name().starts_with("metal") && has(error, "print cannot be written in Metal"));
}

}  // namespace

Table walk(std::vector<std::unique_ptr<Target>> targets) {
  Table table;
  table.targets = std::move(targets);
  const bool timed = std::getenv("TESSERA_TABLE_TIMES") != nullptr;
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    for (const bool block : {false, true}) {
      const Column column = table.columns[c];
      const World world = make_world(column, block);
      std::vector<const Row*> here;
      std::vector<std::size_t> numbers;
      for (const bool last : {false, true})
        for (std::size_t r = 0; r < table.rows.size(); ++r) {
          const Row& row = table.rows[r];
          if (row.block != block || row.last != last) continue;
          const Verdict verdict = ask_language(row, world);
          const std::string what = row.full_name() + " of " + column.name();
          table.cells[r][c].refusal = verdict.refusal;
          if (verdict.refusal.empty()) {
            here.push_back(&row), numbers.push_back(r);
            const bool folds =
                row.op == Op::cast || row.op == Op::bitcast || row.name == name_of(IndexKind::block_size);
            EXPECT_TRUE(verdict.has_node || folds)
                << what << ": the kernel does not contain the node, so nothing is tested";
          } else {
            EXPECT_TRUE(has(verdict.refusal, row.word)) << what << ": the error does not name it: " << verdict.refusal;
            EXPECT_TRUE(has(verdict.refusal, dtype_name(column.dtype)))
                << what << ": the error does not name the dtype: " << verdict.refusal;
          }
        }
      for (std::size_t k = 0; k < table.targets.size(); ++k) {
        Target& target = *table.targets[k];
        const auto start = std::chrono::steady_clock::now();
        const std::vector<Outcome> outcomes = run_cells(here, world, target);
        if (timed)
          std::printf("%s %s %s: %zu cells, %.2f s\n", target.name().c_str(), column.name().c_str(),
                      block ? "blocks" : "map", here.size(),
                      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        for (std::size_t i = 0; i < outcomes.size(); ++i) {
          const std::string what = here[i]->full_name() + " of " + column.name() + " on " + target.name();
          if (outcomes[i].kind == Outcome::wrong) ADD_FAILURE() << what << ": " << outcomes[i].text;
          Cell& cell = table.cells[numbers[i]][c];
          cell.wrong = cell.wrong || outcomes[i].kind == Outcome::wrong;
          if (outcomes[i].kind != Outcome::refused) continue;
          const bool known = named(outcomes[i].text, target);
          EXPECT_TRUE(known) << what << " has no named reason: " << outcomes[i].text;
          cell.wrong = cell.wrong || !known;
          cell.lacking.emplace_back(k, outcomes[i].text);
        }
      }
    }
  return table;
}

}  // namespace tessera::test
