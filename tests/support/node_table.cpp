// SPDX-License-Identifier: Apache-2.0
#include "tests/support/node_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/device/kernel.h"
#include "tessera/emit/lower.h"
#include "tessera/ir/interpreter.h"
#include "tessera/testing/testing.h"

namespace tessera::test {

using namespace ir;

std::vector<Column> all_columns() {
  std::vector<Column> all;
  for (int t = 0; t <= static_cast<int>(DType::index); ++t) all.push_back({static_cast<DType>(t)});
  all.push_back({DType::index, true});
  return all;
}

// Values.

namespace {

/// Reads and writes of elements in memory, as bits.
std::uint64_t load_bits(DType t, const std::byte* at) {
  std::uint64_t bits = 0;
  const std::size_t size = dtype_size(t);
  std::memcpy(&bits, at, size);
  if (is_signed_int(t) && size < 8 && (bits >> (8 * size - 1))) bits |= ~std::uint64_t{0} << (8 * size);
  return bits;
}

/// The constants of a dtype at which operations go wrong.
std::vector<std::uint64_t> special_bits(Column column) {
  const DType t = column.dtype;
  std::vector<std::uint64_t> out;
  if (t == DType::index) {  // overflow of an index is a mistake, so these leave room for products
    for (std::int64_t v : {0, 1, 2, 3, 7, 8, 31, 255, -1, -2, -7, 1000, -1000}) out.push_back(to_bits(t, v));
    if (column.index64)
      for (std::int64_t v : {std::int64_t{2147483647}, std::int64_t{-2147483648}, std::int64_t{3000000000}})
        out.push_back(to_bits(t, v));
  } else if (t == DType::boolean) {
    out = {0, 1};
  } else if (is_float(t)) {
    std::vector<double> values = {0.0,     -0.0,    1,         -1,         0.5,         -1.5,
                                  2.5,     3.5,     127.5,     -128.5,     300,         -300,
                                  65504,   65520,   65536.5,   2147483648, -2147483648, 4294967296,
                                  0x1p63,  -0x1p63, 0x1p64,    1e30,       INFINITY,    -INFINITY,
                                  -0.25f, 1e-7};
    values.push_back(std::numeric_limits<double>::quiet_NaN());
    for (double v : values) out.push_back(to_bits(t, v));
    // Largest, smallest normal, smallest, its negative, and the step above one.
    if (t == DType::f16) out.insert(out.end(), {0x7bff, 0xfbff, 0x0400, 0x0001, 0x8001, 0x3c01});
    if (t == DType::bf16) out.insert(out.end(), {0x7f7f, 0xff7f, 0x0080, 0x0001, 0x8001, 0x3f81});
    if (t == DType::f32) out.insert(out.end(), {0x7f7fffff, 0xff7fffff, 0x00800000, 0x00000001, 0x80000001, 0x3f800001});
    if (t == DType::f64)
      out.insert(out.end(), {0x7fefffffffffffff, 0xffefffffffffffff, 0x0010000000000000, 0x0000000000000001,
                             0x8000000000000001, 0x3ff0000000000001});
  } else {
    with_compute_type(t, [&](auto tag) {
      using T = decltype(tag);
      using L = std::numeric_limits<T>;
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        for (T v : {T(0), T(1), T(2), T(3), T(7), T(8), T(15), T(16), T(31), T(32), T(63), T(64), L::max(),
                    T(L::max() - 1), L::min(), T(L::min() + 1), T(-1), T(-2), T(-7), T(L::max() / 2 + 1)})
          out.push_back(to_bits(t, v));
    });
  }
  return out;
}

std::uint64_t random_bits(Column column, testing::Random& random) {
  const DType t = column.dtype;
  if (t == DType::index) return to_bits(t, random.integer(-1000, 1000) * (column.index64 ? 3000000 : 1));
  if (t == DType::boolean) return random.bits() >> 63;
  std::uint64_t bits = random.bits();
  if (is_float(t)) {
    if (random.bits() % 2) return to_bits(t, std::ldexp(random.uniform(-1, 1), static_cast<int>(random.integer(-20, 8))));
    const std::size_t width = 8 * dtype_size(t);
    if (width < 64) bits &= (std::uint64_t{1} << width) - 1;
    // A signalling NaN may become a quiet one on its way: only quiet ones are drawn.
    const double v = from_bits<double>(t, bits);
    const int quiet = t == DType::f16 ? 9 : t == DType::bf16 ? 6 : t == DType::f32 ? 22 : 51;
    return std::isnan(v) ? bits | std::uint64_t{1} << quiet : bits;
  }
  std::array<std::byte, 8> bytes;
  bits >>= random.bits() % (8 * dtype_size(t));
  std::memcpy(bytes.data(), &bits, 8);
  return load_bits(t, bytes.data());
}

}  // namespace

World make_world(Column column, bool block) {
  testing::Random random(testing::seed() * 64 + static_cast<std::uint64_t>(column.dtype) * 4 +
                         (column.index64 ? 2 : 0) + (block ? 1 : 0));
  World w;
  w.column = column, w.block = block;
  const auto special = special_bits(column);
  if (block) {
    w.n = World::block_threads * World::blocks;
    for (auto* values : {&w.a, &w.b, &w.c})
      for (std::size_t i = 0; i < w.n; ++i)
        values->push_back(random.bits() % 2 ? special[random.bits() % special.size()] : random_bits(column, random));
  } else {
    for (std::uint64_t x : special)
      for (std::uint64_t y : special) w.a.push_back(x), w.b.push_back(y);
    for (int k = 0; k < 307; ++k) w.a.push_back(random_bits(column, random)), w.b.push_back(random_bits(column, random));
    w.n = w.a.size();
    for (std::size_t i = 0; i < w.n; ++i) w.c.push_back(w.a[(i * 7 + 3) % w.n]);
  }
  const bool negative = is_float(column.dtype) || is_signed_int(column.dtype);
  for (std::size_t i = 0; i < w.n; ++i)
    w.s.push_back(column.dtype == DType::boolean ? random.bits() >> 63
                                                 : to_bits(column.dtype, random.integer(negative ? -20 : 0, 20)));
  return w;
}

// Tracing.

std::string Tracer::next_name() { return "p" + std::to_string(Builder::current().function().params.size()); }
Value Tracer::i() {
  if (!world_.block) return global_id();
  return block_id() * static_cast<int>(World::block_threads) + thread_id(1) * static_cast<int>(World::block_x) +
         thread_id(0);
}
BufferRef Tracer::input_memory(int which) {
  BufferRef& memory = inputs_[static_cast<std::size_t>(which)];
  if (memory.id() == no_node) {
    memory = buffer_param(next_name(), column().memory(), Access::read);
    const std::vector<std::uint64_t>* values[] = {&world_.a, &world_.b, &world_.c, &world_.s};
    Slot slot;
    slot.cell = ~std::size_t{0}, slot.dtype = column().memory();
    slot.initial = *values[which], slot.elements = world_.n;
    slots_.push_back(std::move(slot));
  }
  return memory;
}
BufferRef Tracer::a_memory() {
  if (dtype() == DType::index) buffer_param("x", DType::index, Access::read);
  return input_memory(0);
}
Value Tracer::input(int which, Value at) {
  const Value v = input_memory(which).load(at.valid() ? at : i());
  return dtype() == DType::index ? cast(DType::index, v) : v;
}
void Tracer::result(Value v, Expected expected, bool either_zero) {
  if (v.dtype() == DType::index) v = cast(DType::i64, v);
  const DType t = v.dtype();
  output(t, world_.n, std::move(expected)).store(i(), v);
  slots_.back().either_zero = either_zero;
}
void Tracer::results(const std::vector<std::pair<Value, Expected>>& values, bool either_zero) {
  const std::size_t n = world_.n;
  std::vector<Expected> expected;
  for (const auto& [v, e] : values) expected.push_back(e);
  const DType t = values.at(0).first.dtype(), kept = t == DType::index ? DType::i64 : t;
  const BufferRef out = output(kept, n * values.size(), [=](const World& w, std::size_t i) { return expected[i / n](w, i % n); });
  slots_.back().either_zero = either_zero;
  for (std::size_t k = 0; k < values.size(); ++k)
    out.store(i() + static_cast<std::int64_t>(k * n), t == kept ? values[k].first : cast(kept, values[k].first));
}
void Tracer::real_result(Value v, Exact exact, double ulp) {
  output(v.dtype(), world_.n, {}).store(i(), v);
  slots_.back().exact = std::move(exact), slots_.back().ulp = ulp;
}
BufferRef Tracer::output(DType dtype, std::size_t elements, Expected expected) {
  const BufferRef memory = buffer_param(next_name(), dtype, Access::read_write);
  Slot slot;
  slot.cell = cell_, slot.dtype = dtype, slot.elements = elements, slot.expected = std::move(expected);
  slots_.push_back(std::move(slot));
  return memory;
}
BufferRef Tracer::memory(DType dtype, std::vector<std::uint64_t> initial, Expected expected) {
  const BufferRef memory = output(dtype, initial.size(), std::move(expected));
  slots_.back().initial = std::move(initial);
  return memory;
}
Value Tracer::scalar(DType dtype, std::uint64_t bits) {
  const Value v = scalar_param(next_name(), dtype);
  Slot slot;
  slot.cell = cell_, slot.dtype = dtype, slot.is_buffer = false, slot.initial = {bits};
  slots_.push_back(std::move(slot));
  return v;
}

/// Some cells of one world in one kernel.
class Batch {
 public:
  Batch(std::span<const Row* const> rows, const World& world)
      : world_(world), builder_("cells", world.block ? KernelKind::block : KernelKind::map,
                                world.block ? std::array<std::uint32_t, 3>{World::block_x, 4, 1}
                                            : std::array<std::uint32_t, 3>{1, 1, 1}) {
    const Builder::Scope scope(builder_);
    Tracer tracer(world, slots_, checks_);
    tracer.scalar(DType::index, world.column.index64 ? std::uint64_t{1} << 40 : 1);  // decides the width of index
    for (std::size_t k = 0; k < rows.size(); ++k) {
      tracer.start(k);
      rows[k]->cell(tracer);
    }
  }
  std::size_t parameters() const { return slots_.size(); }
  const Function& traced() const { return builder_.function(); }

  /// Runs it once; the outcomes of the cells. KernelError if the target refuses it.
  void run(Target& target, std::span<Outcome> outcomes) {
    const Function fn = builder_.finish();
    World world = world_;
    world.width = target.can().subgroup_widths.at(0);
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
          wrong = "something was written before or past its output";
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
    if (!is_float(t)) return false;
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
    // Below the smallest normal number a function may give 0.
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
    return "element " + std::to_string(element) + " of " + std::to_string(w.n) + " threads (a = " + shown(t, w.a[i]) + ", b = " + shown(t, w.b[i]) +
           ", c = " + shown(t, w.c[i]) + ", s = " + shown(t, w.s[i]) + ")";
  }
  std::string compare(const Slot& slot, const World& w, const std::vector<std::uint64_t>& got) const {
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (slot.expected) {
        const auto right = slot.expected(w, i);
        if (right && !same(slot, got[i], *right))
          return where(w, i % w.n) + " gives " + shown(slot.dtype, got[i]) + ", not " + shown(slot.dtype, *right);
      }
      if (slot.exact) {
        const auto exact = slot.exact(w, i);
        if (!exact) continue;
        const bool good = slot.dtype == DType::f64 ? near(from_bits<double>(DType::f64, got[i]), *exact, slot.ulp)
                                                   : near(from_bits<float>(DType::f32, got[i]), *exact, slot.ulp);
        if (!good)
          return where(w, i % w.n) + " gives " + shown(slot.dtype, got[i]) + ", not " +
                 std::to_string(static_cast<double>(*exact)) + " within " + std::to_string(slot.ulp) + " ulp";
      }
    }
    return {};
  }

  const World& world_;
  Builder builder_;
  std::vector<Slot> slots_;
  std::vector<std::pair<std::size_t, Check>> checks_;
};

Verdict ask_language(const Row& row, const World& world) {
  Verdict verdict;
  const Row* one[] = {&row};
  try {
    Batch batch(one, world);
    for (const Node& n : batch.traced().nodes) verdict.has_node = verdict.has_node || (n.op == row.op && n.sub == row.sub);
  } catch (const KernelError& e) {
    verdict.refusal = e.what();
  }
  return verdict;
}

namespace {
void run_some(std::span<const Row* const> rows, const World& world, Target& target, std::span<Outcome> outcomes) {
  constexpr std::size_t most_parameters = 60;  // 16 bytes each, of the 1024 that every device takes
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
}  // namespace

std::vector<Outcome> run_cells(const std::vector<const Row*>& rows, const World& world, Target& target) {
  std::vector<Outcome> outcomes(rows.size());
  if (!rows.empty()) run_some(rows, world, target, outcomes);
  return outcomes;
}

// Targets.

namespace {

class DeviceTarget : public Target {
 public:
  explicit DeviceTarget(Device device) : device_(device) {}
  std::string name() const override { return to_string(device_); }
  const Capabilities& can() const override { return device_info(device_).can; }
  void run(const Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    Queue& queue = Queue::of(device_);
    std::vector<LaunchArgument> arguments;
    std::vector<BufferView> whole;
    for (const Memory& m : memory) {
      if (!m.is_buffer) {
        arguments.push_back(LaunchArgument::scalar(m.dtype, m.bits));
        whole.emplace_back();
        continue;
      }
      BufferView all{Storage::allocate(device_, m.bytes.size(), "cells"), 0, m.bytes.size(), DType::u8};
      queue.upload(all, m.bytes.data());
      arguments.emplace_back(BufferView{all.storage, guard, m.elements, m.dtype});
      whole.push_back(std::move(all));
    }
    Kernel(fn).launch(shape, arguments);
    for (std::size_t k = 0; k < memory.size(); ++k)
      if (memory[k].is_buffer) queue.download(memory[k].bytes.data(), whole[k]);
    queue.finish();
  }

 private:
  Device device_;
};

class LoweredTarget : public Target {
 public:
  LoweredTarget() {
    can_.f64 = false, can_.subgroup_widths = {1};
    lower_.f16_convert = lower_.bf16_convert = lower_.f64 = lower_.dot4 = lower_.atomic_f32 = lower_.atomic_i64 =
        lower_.block_operations = lower_.vectors = false;
    lower_.expand_math = true, lower_.subgroup_width = 1;
  }
  std::string name() const override { return "lowered"; }
  const Capabilities& can() const override { return can_; }
  void run(const Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    emit::Target lower = lower_;
    std::vector<InterpreterArgument> arguments;
    for (Memory& m : memory) {
      if (m.is_buffer)
        arguments.push_back({m.bytes.data() + guard, m.elements, 0});
      else
        arguments.push_back({nullptr, 0, m.bits}), lower.index64 |= m.dtype == DType::index && m.bits >> 40 == 1;
    }
    interpret(emit::lower(fn, lower), shape, arguments, {.subgroup_width = 1});
  }

 private:
  Capabilities can_;
  emit::Target lower_;
};

}  // namespace

std::vector<std::unique_ptr<Target>> all_targets() {
  std::vector<std::unique_ptr<Target>> all;
  for (Device device : testing::all_devices()) all.push_back(std::make_unique<DeviceTarget>(device));
  all.push_back(std::make_unique<LoweredTarget>());
  return all;
}

}  // namespace tessera::test
