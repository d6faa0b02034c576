// SPDX-License-Identifier: Apache-2.0
// Rows for memory and other sources of values: constants, parameters, indices, local and shared memory, loads, stores
// and atomics.
#include <algorithm>

#include "tests/nodes/node_rows.h"

namespace tessera::test {

using namespace ir;

namespace {

constexpr std::size_t threads = World::block_threads;

Value linear_thread() { return thread_id(1) * static_cast<int>(World::block_x) + thread_id(0); }

void constant_cell(Tracer& t) {
  const World& w = t.world();
  std::vector<std::pair<Value, Expected>> all;
  for (std::size_t k = 0; k < 30; ++k) {
    const std::uint64_t bits = w.a[k * w.n / 30];
    all.emplace_back(Value(Builder::current().constant(t.dtype(), bits)),
                     raw([bits](const World&, std::size_t) { return bits; }));
  }
  t.results(all);
}
void buffer_cell(Tracer& t) {
  t.result(t.a_memory().load(t.i()), raw([](const World& w, std::size_t i) { return w.a[i]; }));
  const BufferRef both =
      t.memory(t.dtype(), t.world().b, raw([](const World& w, std::size_t i) { return i % 2 == 0 ? w.b[i] : w.a[i]; }));
  if_(t.i() % 2 == 1, [&] { both.store(t.i(), t.a()); });
}
void scalar_cell(Tracer& t) {
  const World& w = t.world();
  std::vector<std::pair<Value, Expected>> all;
  for (std::size_t k = 0; k < 3; ++k) {
    const std::uint64_t bits = w.a[k * w.n / 3];
    all.emplace_back(t.scalar(t.dtype(), bits), raw([bits](const World&, std::size_t) { return bits; }));
  }
  t.results(all);
}

/// Returns the value of an index kind in thread i and dimension d.
std::int64_t index_value(IndexKind kind, const World& w, std::size_t i, std::size_t d) {
  const std::size_t t = i % threads, size[] = {World::block_x, threads / World::block_x, 1},
                    count[] = {World::blocks, 1, 1}, thread[] = {t % World::block_x, t / World::block_x, 0},
                    block[] = {i / threads, 0, 0};
  const auto value = [&]() -> std::size_t {
    if (kind == IndexKind::buffer_size || (!w.block && kind != IndexKind::global_id)) return d == 0 ? w.n : 1;
    switch (kind) {
      case IndexKind::global_id: return w.block ? block[d] * size[d] + thread[d] : d == 0 ? i : 0;
      case IndexKind::thread_id: return thread[d];
      case IndexKind::block_id: return block[d];
      case IndexKind::block_size: return size[d];
      case IndexKind::block_count: return count[d];
      case IndexKind::grid_size:
      case IndexKind::extent: return size[d] * count[d];
      case IndexKind::lane_id: return t % w.width;
      case IndexKind::subgroup_id: return t / w.width;
      case IndexKind::subgroup_size: return w.width;
      case IndexKind::subgroup_count: return (threads + w.width - 1) / w.width;
      case IndexKind::lane_elements: {
        const std::size_t lanes = std::min<std::size_t>(w.width, threads - t / w.width * w.width);
        return (fragment_elements + lanes - 1) / lanes;
      }
      case IndexKind::lane_rows: return fragment_side;
      default: return ~std::size_t{0};
    }
  };
  return static_cast<std::int64_t>(value());
}
// Indices have dtype index. Cells of other dtypes cast them.
void index_cell(IndexKind kind, Tracer& t) {
  const bool dimensions = kind <= IndexKind::extent;
  std::vector<std::pair<Value, Expected>> all;
  for (std::size_t d = 0; d < (dimensions ? 3u : 1u); ++d) {
    const Value v = kind == IndexKind::buffer_size ? t.memory(t.column().memory(), t.world().a).size()
                                                   : Value(Builder::current().index(kind, d));
    const DType to = t.dtype();
    all.emplace_back(cast(to, v), [=](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
      return converted(to, index_value(kind, w, i, d));
    });
  }
  t.results(all);
}
void counter_cell(Tracer& t) {
  const DType to = t.dtype();
  const BufferRef last = t.output(t.column().memory(), t.world().n * 3, [to](const World& w, std::size_t e) {
    return std::optional(converted(to, static_cast<std::int64_t>(2 * (e / w.n) + e % w.n % 5)));
  });
  const Value first = t.i() % 5;
  for_(first, first + 6, 2, [&](Value k) {
    const Value v = cast(to, k);
    last.store((k - first) / 2 * static_cast<std::int64_t>(t.world().n) + t.i(),
               to == DType::index ? cast(DType::i64, v) : v);
  });
}

// Tests an array with four elements, of which one is a, one is b and one is still the initial zero. Also tests a
// variable that only some threads set.
void local_cell(Tracer& t) {
  const BufferRef many = local_array(t.dtype(), 4);
  const Value i = t.i();
  many.store(i % 4, t.a());
  many.store((i + 1) % 4, t.b());
  const Variable v(t.dtype(), t.c());
  if_(i % 3 == 1, [&] { v.set(many.load(i % 4)); });
  t.results({{many.load(i % 4), raw([](const World& w, std::size_t k) { return w.a[k]; })},
             {many.load((i + 1) % 4), raw([](const World& w, std::size_t k) { return w.b[k]; })},
             {many.load((i + 2) % 4), raw([](const World&, std::size_t) { return 0; })},
             {many.load(1), raw([](const World& w, std::size_t k) {
                return k % 4 == 1 ? w.a[k] : k % 4 == 0 ? w.b[k] : 0;
              })},
             {v.get(), raw([](const World& w, std::size_t k) { return k % 3 == 1 ? w.a[k] : w.c[k]; })}});
}
void local_vector_cell(std::size_t lanes, Tracer& t) {
  const BufferRef many(Builder::current().local({t.dtype(), static_cast<std::uint8_t>(lanes)}, 3));
  const Value i = t.i();
  Builder::current().store(many.id(), (i % 3).id(), vector_of_inputs(t, lanes).id());
  Builder::current().store(many.id(), ((i + 1) % 3).id(), vector_of_inputs(t, lanes, 1).id());
  const BufferRef one(Builder::current().local({t.dtype(), static_cast<std::uint8_t>(lanes)}, 1));
  const Value zero_index(index_literal(0));
  if_(i % 2 == 0, [&] { Builder::current().store(one.id(), zero_index.id(), vector_of_inputs(t, lanes).id()); });
  const Value only = one.load(zero_index);
  const Value same = many.load(i % 3), next = many.load((i + 1) % 3), zero = many.load((i + 2) % 3);
  std::vector<std::pair<Value, Expected>> all;
  for (std::size_t l = 0; l < lanes; ++l) {
    const auto lane = static_cast<std::uint32_t>(l);
    all.emplace_back(extract(same, lane), raw([l](const World& w, std::size_t k) { return input_of_lane(w, l, k); }));
    all.emplace_back(extract(next, lane),
                     raw([l, lanes](const World& w, std::size_t k) { return input_of_lane(w, (l + 1) % lanes, k); }));
    all.emplace_back(extract(zero, lane), raw([](const World&, std::size_t) { return 0; }));
    all.emplace_back(extract(only, lane),
                     raw([l](const World& w, std::size_t k) { return k % 2 == 0 ? input_of_lane(w, l, k) : 0; }));
  }
  t.results(all);
}
void shared_cell(Tracer& t) {
  const BufferRef board = shared(t.dtype(), threads), other = shared(t.dtype(), threads);
  const Value mine = linear_thread();
  board.store(mine, t.a());
  other.store(static_cast<int>(threads) - 1 - mine, t.b());
  barrier();
  const auto of = [](std::size_t i, std::size_t at) { return i - i % threads + at; };
  const Value four = board.load_vector(min(mine, static_cast<int>(threads) - 4), 4);
  t.results(
      {{board.load(static_cast<int>(threads) - 1 - mine),
        raw([of](const World& w, std::size_t i) { return w.a[of(i, threads - 1 - i % threads)]; })},
       {other.load(mine), raw([of](const World& w, std::size_t i) { return w.b[of(i, threads - 1 - i % threads)]; })},
       {board.load(5), raw([of](const World& w, std::size_t i) { return w.a[of(i, 5)]; })},
       {extract(four, 3),
        raw([of](const World& w, std::size_t i) { return w.a[of(i, std::min(i % threads, threads - 4) + 3)]; })}});
}

/// Returns memory that contains the input `a`. Buffers cannot store index, so for index this is local memory.
BufferRef readable(Tracer& t) {
  if (t.dtype() != DType::index) return t.a_memory();
  const BufferRef many = local_array(t.dtype(), 4);
  for (int k = 0; k < 4; ++k) many.store(k, t.a(Value(index_literal(k))));
  return many;
}
void load_cell(Tracer& t) {
  const std::size_t n = t.dtype() == DType::index ? 4 : t.world().n;
  const auto count = static_cast<std::int64_t>(n);
  const BufferRef a = readable(t);
  t.results(
      {{a.load(t.i() % count), raw([n](const World& w, std::size_t i) { return w.a[i % n]; })},
       {a.load(count - 1 - t.i() % count), raw([n](const World& w, std::size_t i) { return w.a[n - 1 - i % n]; })},
       {a.load(t.i() * 3 % count), raw([n](const World& w, std::size_t i) { return w.a[i * 3 % n]; })},
       {a.load(2), raw([](const World& w, std::size_t) { return w.a[2]; })}});
  t.keep_payload();
}
void load_vector_cell(std::size_t lanes, Tracer& t) {
  const BufferRef a = readable(t);
  const auto end = static_cast<std::int64_t>(t.world().n - lanes);
  const Value each = a.load_vector(min(t.i(), end), static_cast<std::uint8_t>(lanes)),
              one = a.load_vector(1, static_cast<std::uint8_t>(lanes));
  std::vector<std::pair<Value, Expected>> all;
  for (std::size_t l = 0; l < lanes; ++l) {
    all.emplace_back(extract(each, static_cast<std::uint32_t>(l)),
                     raw([l, lanes](const World& w, std::size_t i) { return w.a[std::min(i, w.n - lanes) + l]; }));
    all.emplace_back(extract(one, static_cast<std::uint32_t>(l)),
                     raw([l](const World& w, std::size_t) { return w.a[1 + l]; }));
  }
  t.results(all);
}
void load_if_cell(Tracer& t) {
  const std::size_t n = t.dtype() == DType::index ? 4 : t.world().n;
  const auto count = static_cast<std::int64_t>(n);
  const BufferRef a = readable(t);
  const Value some = t.i() % 3 == 0;
  t.results(
      {{a.load_if(some, t.i() % count, t.b()),
        raw([n](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[i % n] : w.b[i]; })},
       // If the mask is false, the address may be invalid.
       {a.load_if(some, select(some, t.i() % count, t.i() * 1000 - 7), t.b()),
        raw([n](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[i % n] : w.b[i]; })},
       {a.load_if(some, 2, t.b()), raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[2] : w.b[i]; })},
       // A varying mask and a uniform mask, each with a uniform address.
       {a.load_if(some, 2, t.b(Value(index_literal(1)))),
        raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[2] : w.b[1]; })},
       {a.load_if(extent() > 3, 2, t.b()), raw([](const World& w, std::size_t) { return w.a[2]; })}});
  if (t.dtype() == DType::index || t.column().compute() != t.dtype()) return;
  const BufferRef own = local_array(t.dtype(), 2);
  own.store(1, t.a(Value(index_literal(3))));
  t.results(
      {{own.load_if(some, 1, t.b()), raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[3] : w.b[i]; })},
       {own.load_if(some, 1, own.load(0)), raw([](const World& w, std::size_t i) { return i % 3 == 0 ? w.a[3] : 0; })},
       {own.load_if(extent() > 3, 1, t.b()), raw([](const World& w, std::size_t) { return w.a[3]; })}});
}
void store_cell(Tracer& t) {
  const World& w = t.world();
  if (t.dtype() == DType::index) {
    const BufferRef many = local_array(t.dtype(), 2);
    many.store(1, t.a());
    if_(t.i() % 2 == 0, [&] { many.store(1, t.b()); });
    return t.result(many.load(1), raw([](const World& v, std::size_t i) { return i % 2 == 0 ? v.b[i] : v.a[i]; }));
  }
  const auto last = static_cast<std::int64_t>(w.n) - 1;
  t.output(t.dtype(), w.n, raw([](const World& v, std::size_t i) { return v.a[i]; })).store(t.i(), t.a());
  t.output(t.dtype(), w.n, raw([](const World& v, std::size_t i) { return v.a[v.n - 1 - i]; }))
      .store(last - t.i(), t.a());
  const BufferRef some =
      t.memory(t.dtype(), w.c, raw([](const World& v, std::size_t i) { return i % 3 == 2 ? v.b[i] : v.c[i]; }));
  if_(t.i() % 3 == 2, [&] { some.store(t.i(), t.b()); });
  if (t.column().compute() != t.dtype())  // stores round f32 to 16 bits
    t.output(t.dtype(), w.n, product_rounded()).store(t.i(), t.a() * t.b());
}
void store_vector_cell(std::size_t lanes, Tracer& t) {
  const auto width = static_cast<std::int64_t>(lanes);
  const Value v = vector_of_inputs(t, lanes);
  if (t.dtype() == DType::index) {
    const BufferRef many = local_array(t.dtype(), 2 * lanes);
    many.store(t.i() % width, v);
    return t.result(many.load(t.i() % width + width - 1),
                    raw([lanes](const World& w, std::size_t i) { return input_of_lane(w, lanes - 1, i); }));
  }
  const Expected right = [lanes](const World& w, std::size_t e) -> std::optional<std::uint64_t> {
    return input_of_lane(w, e % lanes, e / lanes);
  };
  t.output(t.dtype(), t.world().n * lanes, right).store(t.i() * width, v);
  const BufferRef some = t.memory(t.dtype(), std::vector<std::uint64_t>(t.world().n * lanes + 1, t.world().a[3]),
                                  [lanes](const World& w, std::size_t e) -> std::optional<std::uint64_t> {
                                    if (e == 0 || (e - 1) / lanes % 2 == 0) return w.a[3];
                                    return input_of_lane(w, (e - 1) % lanes, (e - 1) / lanes);
                                  });
  if_(t.i() % 2 == 1, [&] { some.store(t.i() * width + 1, v); });
}

// Atomics on four elements that all threads access concurrently.
constexpr std::size_t contended = 4;

template <class T>
T after(AtomicOp op, T old, T value) {
  switch (op) {
    case AtomicOp::add: return apply(BinaryOp::add, old, value);
    case AtomicOp::min: return apply(BinaryOp::min, old, value);
    case AtomicOp::max: return apply(BinaryOp::max, old, value);
    case AtomicOp::cas: return old == T(5) ? value : old;
    case AtomicOp::and_: return apply(BinaryOp::and_, old, value);
    case AtomicOp::or_: return apply(BinaryOp::or_, old, value);
    case AtomicOp::xor_: return apply(BinaryOp::xor_, old, value);
    default: return value;
  }
}
/// Checks atomics independently of their order. The initial values and the values that threads stored must form the
/// same multiset as the old values that threads read and the final values.
std::string chain_holds(AtomicOp op, const World& w, const std::vector<std::uint64_t>& ends,
                        const std::vector<std::uint64_t>& olds, std::size_t first, std::size_t count) {
  return with_compute_type(w.column.dtype, [&](auto tag) -> std::string {
    using T = decltype(tag);
    for (std::size_t e = 0; e < contended; ++e) {
      std::vector<std::uint64_t> left = {to_bits(w.column.dtype, 5)}, found = {ends[first / threads * contended + e]};
      if (!w.block) found = {ends[e]};
      T right = T(5);
      for (std::size_t i = first; i < first + count; ++i) {
        if (i % contended != e) continue;
        const T value = w.value<T>(w.s, i);
        found.push_back(olds[i]);
        left.push_back(to_bits(w.column.dtype, after(op, from_bits<T>(w.column.dtype, olds[i]), value)));
        right = after(op, right, value);
      }
      const bool ordered = op == AtomicOp::exchange || op == AtomicOp::cas;
      if (!ordered && found[0] != to_bits(w.column.dtype, right))
        return "the final bits of element " + std::to_string(e) + " are " + std::to_string(found[0]) + ", not " +
               std::to_string(to_bits(w.column.dtype, right));
      std::ranges::sort(left), std::ranges::sort(found);
      if (left != found) return "the old values of element " + std::to_string(e) + " do not form a chain";
    }
    return {};
  });
}
void atomic_cell(AtomicOp op, Tracer& t) {
  const bool index = t.dtype() == DType::index;
  const std::vector<std::uint64_t> start(contended, to_bits(t.dtype(), 5));
  const BufferRef cells = index ? local_array(t.dtype(), contended) : t.memory(t.dtype(), start);
  const BufferRef quiet = index ? cells : t.memory(t.dtype(), start);
  const Value at = t.i() % static_cast<int>(contended);
  const auto act = [&](const BufferRef& memory) {
    const Value five = cast(t.dtype(), literal(t.column().compute(), 5));
    return op == AtomicOp::cas ? memory.atomic_cas(at, five, t.s()) : memory.atomic(op, at, t.s());
  };
  const Value old = act(cells);
  t.output(t.dtype(), t.world().n, {}).store(t.i(), old);
  act(quiet);  // ignores the result
  t.check([op](const World& w, const std::vector<std::vector<std::uint64_t>>& out) {
    if (op != AtomicOp::exchange && op != AtomicOp::cas && out[0] != out[1])
      return std::string("the final value differs if the old value is not used");
    return chain_holds(op, w, out[0], out[2], 0, w.n);
  });
}
void shared_atomic_cell(AtomicOp op, Tracer& t) {
  const bool index = t.dtype() == DType::index;
  const BufferRef cells = index ? local_array(t.dtype(), contended) : shared(t.dtype(), contended);
  const Value five = cast(t.dtype(), literal(t.column().compute(), 5)), mine = linear_thread();
  if_(mine < static_cast<int>(contended), [&] { cells.store(mine, five); });
  barrier();
  const Value at = t.i() % static_cast<int>(contended);
  const Value old = op == AtomicOp::cas ? cells.atomic_cas(at, five, t.s()) : cells.atomic(op, at, t.s());
  const BufferRef ends = t.output(t.dtype(), contended * World::blocks, {}),
                  olds = t.output(t.dtype(), t.world().n, {});
  olds.store(t.i(), old);
  barrier();
  if_(mine < static_cast<int>(contended),
      [&] { ends.store(block_id() * static_cast<int>(contended) + mine, cells.load(mine)); });
  t.check([op](const World& w, const std::vector<std::vector<std::uint64_t>>& out) {
    for (std::size_t b = 0; b < World::blocks; ++b)
      if (std::string wrong = chain_holds(op, w, out[0], out[1], b * threads, threads); !wrong.empty()) return wrong;
    return std::string();
  });
}

}  // namespace

void add_leaf_rows(std::vector<Row>& rows) {
  rows.push_back(row(Op::constant, 0, "", &constant_cell));
  rows.push_back(row(Op::param, 0, "buffer", &buffer_cell));
  rows.push_back(row(Op::param, 0, "scalar", &scalar_cell));
  for_each_kind<IndexKind>([&](IndexKind kind) {
    if (kind == IndexKind::counter)
      rows.push_back(row(Op::index, kind, name_of(kind), &counter_cell));
    else if (kind == IndexKind::buffer_size)
      rows.push_back(row(Op::index, kind, name_of(kind), [kind](Tracer& t) { index_cell(kind, t); }));
    else
      rows.push_back(block_row(Op::index, kind, name_of(kind), [kind](Tracer& t) { index_cell(kind, t); }));
  });
  // Map kernels allow only these three.
  for (const IndexKind kind : {IndexKind::global_id, IndexKind::grid_size, IndexKind::extent})
    rows.push_back(
        row(Op::index, kind, std::string(name_of(kind)) + "(map)", [kind](Tracer& t) { index_cell(kind, t); }));
  rows.push_back(row(Op::local, 0, "", &local_cell));
  for (std::size_t lanes : {2, 3, 4}) {
    Row r = row(Op::local, 0, "x" + std::to_string(lanes), [lanes](Tracer& t) { local_vector_cell(lanes, t); });
    r.word = "local";
    rows.push_back(std::move(r));
  }
  rows.push_back(block_row(Op::shared, 0, "", &shared_cell));
}

void add_memory_rows(std::vector<Row>& rows) {
  const auto widths = [&](Op op, void (*cell)(std::size_t, Tracer&)) {
    for (std::size_t lanes : {2, 3, 4}) {
      Row r = row(op, 0, "x" + std::to_string(lanes), [cell, lanes](Tracer& t) { cell(lanes, t); });
      r.word = op_name(op);
      rows.push_back(std::move(r));
    }
  };
  rows.push_back(row(Op::load, 0, "", &load_cell));
  widths(Op::load, &load_vector_cell);
  rows.push_back(row(Op::load_if, 0, "", &load_if_cell));
  rows.push_back(row(Op::store, 0, "", &store_cell));
  widths(Op::store, &store_vector_cell);
  for_each_kind<AtomicOp>([&](AtomicOp op) {
    Row r = row(Op::atomic, op, name_of(op), [op](Tracer& t) { atomic_cell(op, t); });
    r.word = "atomic";
    rows.push_back(r);
    Row s = block_row(Op::atomic, op, std::string(name_of(op)) + "(shared)",
                      [op](Tracer& t) { shared_atomic_cell(op, t); });
    s.word = "atomic";
    rows.push_back(std::move(s));
  });
}

}  // namespace tessera::test
