// SPDX-License-Identifier: Apache-2.0
// Rows for effects and control flow: print, if_, for_, while_ and return_.
#include <cstdlib>
#include <limits>

#include "tests/nodes/node_rows.h"

namespace tessera::test {

using namespace ir;

namespace {

void if_cell(Tracer& t) {
  const BufferRef out = t.memory(t.column().memory(), t.world().c, raw([](const World& w, std::size_t i) {
                                   return w.a[i] ? w.b[i] : i % 2 == 0 ? w.s[i] : w.c[i];
                                 }));
  if_(
      t.a(), [&] { out.store(t.i(), t.b()); }, [&] { if_(t.i() % 2 == 0, [&] { out.store(t.i(), t.s()); }); });
}
void while_cell(Tracer& t) {
  const Variable rounds(DType::i32, 0);
  while_([&] { return t.dtype() == DType::boolean ? t.a() && rounds.get() < cast(DType::i32, t.i() % 9) : t.a(); },
         [&] { rounds.set(rounds.get() + 1); });
  t.result(rounds.get(),
           [](const World& w, std::size_t i) -> std::optional<std::uint64_t> { return w.a[i] ? i % 9 : 0; });
}

/// Returns begin, end and step of a loop. For some dtypes, the last counter plus the step overflows.
std::vector<std::uint64_t> bounds(Column column) {
  std::vector<std::uint64_t> out;
  const DType t = column.dtype;
  with_compute_type(t, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
      for (const T v : {T(5), T(5), T(1), T(9), T(5), T(1), T(0), T(10), T(3)}) out.push_back(to_bits(t, v));
      if (t != DType::index)
        for (const T v : {T(most - 5), most, T(4), T(most - 5), most, T(1), T(0), most, T(most / 2 + 1), least, most,
                          T(most / 2 + 1), least, T(least + 3), T(1)})
          out.push_back(to_bits(t, v));
    } else {
      out.assign(9, to_bits(t, T(1)));
    }
  });
  return out;
}
void for_cell(Tracer& t) {
  const std::vector<std::uint64_t> limits = bounds(t.column());
  const std::size_t loops = limits.size() / 3;
  const BufferRef memory = t.memory(t.column().memory(), limits);
  const auto limit = [&](int k) {
    const Value v = memory.load(t.i() % static_cast<std::int64_t>(loops) * 3 + k);
    return t.dtype() == DType::index ? cast(DType::index, v) : v;
  };
  const auto right = [limits, loops](const World& w, std::size_t i, bool count) -> std::optional<std::uint64_t> {
    return with_compute_type(w.column.dtype, [&](auto tag) -> std::uint64_t {
      using T = decltype(tag);
      __extension__ using Wide = __int128;
      const auto at = [&](std::size_t k) {
        return static_cast<Wide>(from_bits<T>(w.column.dtype, limits[i % loops * 3 + k]));
      };
      std::int64_t rounds = 0, last = 0;
      for (Wide k = at(0); k < at(1); k += at(2)) ++rounds, last = static_cast<std::int64_t>(k);
      return static_cast<std::uint64_t>(count ? rounds : last);
    });
  };
  for (const auto unroll : {std::optional<Unroll>(), std::optional(Unroll{4})}) {
    const Variable rounds(DType::i32, 0);
    const Variable last(DType::i64, 0);
    const auto body = [&](Value k) {
      rounds.set(rounds.get() + 1);
      last.set(cast(DType::i64, k));
    };
    for_(limit(0), limit(1), limit(2), body, unroll);
    t.result(rounds.get(), [right](const World& w, std::size_t i) { return right(w, i, true); });
    t.result(last.get(), [right](const World& w, std::size_t i) { return right(w, i, false); });
  }
}

void return_cell(Tracer& t) {
  const DType held = t.column().memory();
  const BufferRef out = t.memory(held, t.world().c, raw([](const World& w, std::size_t i) {
                                   return i % 3 == 0 ? w.c[i] : i % 3 == 1 ? w.b[i] : w.a[i];
                                 }));
  const auto put = [&](Value v) { out.store(t.i(), held == t.dtype() ? v : cast(held, v)); };
  if_(t.i() % 3 == 0, [] { return_(); });
  if_(t.i() % 3 == 1, [&] {
    put(t.b());
    return_();
  });
  put(t.a());
}

// Two threads print one line each. Checks the text of the line and the number in it.
void print_cell(Tracer& t) {
  const std::string mark = "cell of " + t.column().name() + " \"at\" 100%: ";
  for (int k : {2, 11}) if_(t.i() == k, [&] { print(mark + "{} is {}", {t.i(), t.s()}); });
  t.check([mark](const World& w, const auto&) -> std::string {
    for (std::size_t i : {2, 11}) {
      const std::string line = mark + std::to_string(i) + " is ";
      const std::size_t at = w.printed.find(line);
      if (at == std::string::npos) return "\"" + line + "\" is missing from the output: " + w.printed;
      const std::string rest = w.printed.substr(at + line.size(), w.printed.find('\n', at) - at - line.size());
      const double right = with_compute_type(
          w.column.dtype, [&](auto tag) { return static_cast<double>(w.value<decltype(tag)>(w.s, i)); });
      char* end = nullptr;
      const double got = rest == "true" ? 1 : rest == "false" ? 0 : std::strtod(rest.c_str(), &end);
      if (got != right || (end && *end)) return "\"" + line + rest + "\" should be " + std::to_string(right);
    }
    return {};
  });
}

}  // namespace

void add_control_rows(std::vector<Row>& rows) {
  rows.push_back(row(Op::print, 0, "", &print_cell));
  const std::pair<Op, void (*)(Tracer&)> controls[] = {
      {Op::if_, &if_cell}, {Op::for_, &for_cell}, {Op::while_, &while_cell}, {Op::return_, &return_cell}};
  for (const auto& [op, cell] : controls) {
    Row r = row(op, 0, "", cell);
    r.word = std::string(op_name(op)) + "_";
    r.last = op == Op::return_;
    rows.push_back(std::move(r));
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  add_leaf_rows(rows), add_pure_rows(rows), add_convergent_rows(rows), add_memory_rows(rows), add_control_rows(rows);
  return rows;
}

}  // namespace tessera::test
