// SPDX-License-Identifier: Apache-2.0
// Rows for operations of a whole block or subgroup: mma, subgroup, block_reduce, block_scan, block_uniform and barrier.
#include <algorithm>
#include <functional>

#include "tests/nodes/node_rows.h"

namespace tessera::test {

using namespace ir;

namespace {

constexpr std::size_t threads = World::block_threads;

/// Folds `op` over `input` for the threads range(i) = [begin, end), in order.
template <class Range>
Expected folded(BinaryOp op, std::vector<std::uint64_t> World::*input, Range range) {
  return [=](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
    return with_compute_type(w.column.dtype, [&](auto tag) {
      using T = decltype(tag);
      const auto [begin, end] = range(w, i);
      T sum{};
      for (std::size_t k = begin; k < end; ++k)
        sum = k == begin ? w.value<T>(w.*input, k) : apply(op, sum, w.value<T>(w.*input, k));
      return bits_of(w.column, sum);
    });
  };
}
using Range = std::pair<std::size_t, std::size_t>;
Range of_subgroup(const World& w, std::size_t i) { return {w.subgroup_begin(i), w.subgroup_end(i)}; }
Range of_block(const World&, std::size_t i) { return {i - i % threads, i - i % threads + threads}; }

/// Returns `a` of thread `from(w, i)`, or the thread's own value if that thread is outside of the subgroup.
template <class F>
Expected moved(F from) {
  return [from](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
    std::size_t source = from(w, i);
    if (source < w.subgroup_begin(i) || source >= w.subgroup_end(i)) source = i;
    return at_input(&World::a, source, [](auto v) { return v; })(w, i);
  };
}

void subgroup_cell(SubgroupOp op, Tracer& t) {
  switch (op) {
    case SubgroupOp::sum: return t.result(subgroup(op, t.s()), folded(BinaryOp::add, &World::s, of_subgroup));
    case SubgroupOp::min: return t.result(subgroup(op, t.a()), folded(BinaryOp::min, &World::a, of_subgroup), true);
    case SubgroupOp::max: return t.result(subgroup(op, t.a()), folded(BinaryOp::max, &World::a, of_subgroup), true);
    case SubgroupOp::any: return t.result(subgroup(op, t.a()), folded(BinaryOp::or_, &World::a, of_subgroup));
    case SubgroupOp::all: return t.result(subgroup(op, t.a()), folded(BinaryOp::and_, &World::a, of_subgroup));
    case SubgroupOp::broadcast:
      t.result(subgroup(op, t.a(), 0), moved([](const World& w, std::size_t i) { return w.subgroup_begin(i); }));
      return t.result(subgroup(op, t.a(), subgroup_size() - 1),
                      moved([](const World& w, std::size_t i) { return w.subgroup_begin(i) + w.width - 1; }));
    case SubgroupOp::shuffle: {
      const Value count = min(subgroup_size(), static_cast<int>(threads) - subgroup_id() * subgroup_size());
      return t.result(subgroup(op, t.a(), (lane_id() * 5 + 3) % count), moved([](const World& w, std::size_t i) {
                        const std::size_t begin = w.subgroup_begin(i);
                        return begin + ((i - begin) * 5 + 3) % (w.subgroup_end(i) - begin);
                      }));
    }
    case SubgroupOp::shuffle_xor:
      return t.result(subgroup(op, t.a(), 1), moved([](const World& w, std::size_t i) {
                        return w.subgroup_begin(i) + ((i - w.subgroup_begin(i)) ^ 1);
                      }));
    case SubgroupOp::shuffle_up:
      return t.result(subgroup(op, t.a(), 2), moved([](const World&, std::size_t i) { return i - 2; }));
    case SubgroupOp::shuffle_down:
      return t.result(subgroup(op, t.a(), 2), moved([](const World&, std::size_t i) { return i + 2; }));
    case SubgroupOp::inclusive_sum:
      return t.result(subgroup(op, t.s()), folded(BinaryOp::add, &World::s, [](const World& w, std::size_t i) {
                        return Range{w.subgroup_begin(i), i + 1};
                      }));
    case SubgroupOp::exclusive_sum:
      return t.result(subgroup(op, t.s()), folded(BinaryOp::add, &World::s, [](const World& w, std::size_t i) {
                        return Range{w.subgroup_begin(i), i};
                      }));
    case SubgroupOp::count_: break;
  }
  t.check([](const World&, const auto&) { return "the row has no expected value"; });
}

void reduce_cell(ReduceOp op, Tracer& t) {
  const BinaryOp step = op == ReduceOp::sum    ? BinaryOp::add
                        : op == ReduceOp::min  ? BinaryOp::min
                        : op == ReduceOp::max  ? BinaryOp::max
                        : op == ReduceOp::and_ ? BinaryOp::and_
                                               : BinaryOp::or_;
  static_assert(static_cast<int>(ReduceOp::count_) == 5);
  const bool sum = op == ReduceOp::sum;
  t.result(block_reduce(op, sum ? t.s() : t.a()), folded(step, sum ? &World::s : &World::a, of_block), !sum);
}

// Matrices of small integers in the dtype of the column. Each subgroup writes its product to its own part of the
// output.
constexpr std::size_t side = fragment_side, matrix = side * side;
std::int64_t left_element(std::size_t i, std::size_t j) { return static_cast<std::int64_t>((i * 7 + j * 3) % 11) - 5; }
std::int64_t right_element(std::size_t i, std::size_t j) { return static_cast<std::int64_t>((i * 5 + j) % 7) - 3; }

std::vector<std::uint64_t> elements(DType t, std::int64_t (*element)(std::size_t i, std::size_t j)) {
  std::vector<std::uint64_t> out;
  for (std::size_t e = 0; e < matrix; ++e) out.push_back(to_bits(t, element(e / side, e % side)));
  return out;
}

/// Stores one accumulator per subgroup. `right(i, j)` is the expected value of element (i, j).
void store_matrix(Tracer& t, const Fragment& sums, std::int64_t (*right)(std::size_t i, std::size_t j)) {
  const BufferRef out = t.output(DType::f32, World::blocks * threads * matrix,
                                 [right](const World& w, std::size_t e) -> std::optional<std::uint64_t> {
                                   const std::size_t count = (threads + w.width - 1) / w.width;
                                   if (e / matrix >= World::blocks * count)
                                     return std::nullopt;  // not in the part of any subgroup
                                   return to_bits(DType::f32, right(e % matrix / side, e % side));
                                 });
  sums.store(out, (block_id() * subgroup_count() + subgroup_id()) * static_cast<int>(matrix), static_cast<int>(side));
}
/// A product of i8, whose factors are loaded from words.
void words_cell(Tracer& t) {
  constexpr std::size_t depth = fragment_depth(DType::i8), each = 4;
  const auto words = [](auto&& element) {
    std::vector<std::uint64_t> out;
    for (std::size_t o = 0; o < side; ++o)
      for (std::size_t k = 0; k < depth; k += each) {
        std::uint64_t word = 0;
        for (std::size_t b = 0; b < each; ++b) word |= static_cast<std::uint64_t>(element(o, k + b) & 255) << (8 * b);
        out.push_back(word);
      }
    return out;
  };
  const Fragment left(FragmentRole::left, DType::i8), right(FragmentRole::right, DType::i8),
      sums(FragmentRole::accumulator, DType::f32);
  left.load(t.memory(DType::u32, words(&left_element)), 0, static_cast<int>(depth / each));
  right.load_transposed(t.memory(DType::u32, words([](std::size_t j, std::size_t k) { return right_element(k, j); })),
                        0, static_cast<int>(depth / each));
  sums.fill(7.f);
  sums.multiply(left, right), sums.multiply_add(left, right);
  store_matrix(t, sums, [](std::size_t i, std::size_t j) {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < depth; ++k) sum += 2 * left_element(i, k) * right_element(k, j);
    return sum;
  });
}
void matrix_cell(bool multiply, Tracer& t) {
  if (t.dtype() == DType::i8) return words_cell(t);
  const Fragment left(FragmentRole::left, t.dtype()), right(FragmentRole::right, t.dtype()),
      sums(FragmentRole::accumulator, DType::f32);
  const auto unit = [](std::size_t i, std::size_t j) { return std::int64_t{i == j}; };
  const BufferRef first = t.memory(t.dtype(), elements(t.dtype(), left_element)),
                  second = t.memory(t.dtype(), elements(t.dtype(), multiply ? right_element : +unit));
  right.load(second, 0, static_cast<int>(side));
  sums.fill(0.f);
  if (multiply) {  // the second product is added to the first
    left.load(first, 0, static_cast<int>(side));
    sums.multiply_add(left, right), sums.multiply_add(left, right);
    return store_matrix(t, sums, [](std::size_t i, std::size_t j) {
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < side; ++k) sum += 2 * left_element(i, k) * right_element(k, j);
      return sum;
    });
  }
  left.load(first, 0, static_cast<int>(side));
  sums.multiply_add(left, right);
  left.load_transposed(first, 0, static_cast<int>(side));
  sums.multiply_add(left, right);
  store_matrix(t, sums, [](std::size_t i, std::size_t j) { return left_element(i, j) + left_element(j, i); });
}
/// Accumulators are f32 and can be loaded and stored directly. The operands of a product can only be tested through a
/// product.
void load_cell(Tracer& t) {
  matrix_cell(false, t);
  if (t.dtype() != DType::f32) return;
  const Fragment sums(FragmentRole::accumulator, DType::f32);
  const BufferRef from = t.memory(DType::f32, elements(DType::f32, left_element));
  sums.load(from, 0, static_cast<int>(side));
  store_matrix(t, sums, left_element);
  sums.load_transposed(from, 0, static_cast<int>(side));
  store_matrix(t, sums, [](std::size_t i, std::size_t j) { return left_element(j, i); });
}
void accumulator_cell(Tracer& t) {
  const Fragment sums(FragmentRole::accumulator, t.dtype());
  sums.fill(t.scalar(DType::f32, to_bits(DType::f32, 7)));
  store_matrix(t, sums, [](std::size_t, std::size_t) { return std::int64_t{7}; });
}

/// Changes the elements of an accumulator by loops over the elements and rows of each lane.
void elements_cell(Tracer& t) {
  const Fragment sums(FragmentRole::accumulator, t.dtype());
  sums.load(t.memory(DType::f32, elements(DType::f32, left_element)), 0, static_cast<int>(side));
  const auto f32 = [](const Value& v) { return cast(DType::f32, v); };
  for_each_element(
      [&](const FragmentElement& e) { sums.set(e.k, f32(sums.get(e.k)) * 2.f + f32(e.row * 3 - e.column)); });
  const auto changed = [](std::size_t i, std::size_t j) {
    return 2 * left_element(i, j) + 3 * static_cast<std::int64_t>(i) - static_cast<std::int64_t>(j);
  };
  store_matrix(t, sums, changed);
  const FragmentRows total, largest;
  total.reduce(ReduceOp::sum, sums), largest.reduce(ReduceOp::max, sums);
  FragmentRows::for_each([&](const Value& slot, const Value& row) {
    total.set_at(slot, total.at(slot) - largest.at(slot) * 4.f + f32(row));
  });
  for_each_element([&](const FragmentElement& e) { sums.set(e.k, f32(sums.get(e.k)) + total.get(e)); });
  store_matrix(t, sums, [](std::size_t i, std::size_t j) {
    const auto value = [i](std::size_t column) {
      return 2 * left_element(i, column) + 3 * static_cast<std::int64_t>(i) - static_cast<std::int64_t>(column);
    };
    std::int64_t sum = 0, most = value(0);
    for (std::size_t column = 0; column < side; ++column) sum += value(column), most = std::max(most, value(column));
    return value(j) + sum - 4 * most + static_cast<std::int64_t>(i);
  });
}
/// Multiplies an accumulator, converted to a factor.
void convert_cell(Tracer& t) {
  const Fragment left(FragmentRole::left, t.dtype()), right(FragmentRole::right, t.dtype()),
      sums(FragmentRole::accumulator, DType::f32);
  right.load(t.memory(t.dtype(), elements(t.dtype(), right_element)), 0, static_cast<int>(side));
  sums.load(t.memory(DType::f32, elements(DType::f32, left_element)), 0, static_cast<int>(side));
  left.convert(sums);
  sums.multiply_add(left, right);
  store_matrix(t, sums, [](std::size_t i, std::size_t j) {
    std::int64_t sum = left_element(i, j);
    for (std::size_t k = 0; k < side; ++k) sum += left_element(i, k) * right_element(k, j);
    return sum;
  });
}

/// Every second thread copies 16 bytes twice, as two groups, and waits for both of them.
void async_cell(Tracer& t) {
  const DType held = t.column().memory();
  const int each = 16 / static_cast<int>(dtype_size(held)), copies = static_cast<int>(threads);
  const auto number = [each](std::size_t e) { return static_cast<std::int64_t>(e * 7 % 100) % (each == 16 ? 2 : 100); };
  std::vector<std::uint64_t> from;
  for (std::size_t e = 0; e < threads * static_cast<std::size_t>(each); ++e) from.push_back(to_bits(held, number(e)));
  const BufferRef source = t.memory(held, from), board = shared(held, from.size());
  const Value mine = thread_id(1) * static_cast<int>(World::block_x) + thread_id(0);
  if_(mine < copies / 2, [&] {
    copy_async(board, mine * each, source, mine * each, static_cast<std::uint32_t>(each));
    async_commit();
    copy_async(board, (mine + copies / 2) * each, source, (mine + copies / 2) * each, static_cast<std::uint32_t>(each));
    async_commit();
    async_wait(1);
    async_wait(0);
  });
  barrier();
  t.result(cast(t.dtype(), board.load((mine * 5 + 3) % static_cast<int>(from.size()))),
           [=](const World& w, std::size_t i) -> std::optional<std::uint64_t> {
             return to_bits(w.column.dtype, number((i % threads * 5 + 3) % (threads * static_cast<std::size_t>(each))));
           });
}

void add_matrices(std::vector<Row>& rows) {
  const auto add = [&](Op op, auto kind, std::string_view word, std::function<void(Tracer&)> cell) {
    Row r = block_row(op, kind, name_of(kind), std::move(cell));
    r.word = word;
    rows.push_back(std::move(r));
  };
  const auto product = [](Tracer& t) { matrix_cell(true, t); };
  add(Op::local, FragmentRole::left, "matrix product", product);
  add(Op::local, FragmentRole::right, "matrix product", product);
  add(Op::local, FragmentRole::accumulator, "accumulator", &accumulator_cell);
  for_each_kind<MmaOp>([&](MmaOp op) {
    switch (op) {
      case MmaOp::load: return add(Op::mma, op, "matrix product", &load_cell);
      case MmaOp::multiply: return add(Op::mma, op, "matrix product", product);
      case MmaOp::fill:
      case MmaOp::store: return add(Op::mma, op, "accumulator", &accumulator_cell);
      case MmaOp::convert: return add(Op::mma, op, "matrix product", &convert_cell);
      case MmaOp::reduce_rows: return add(Op::mma, op, "accumulator", &elements_cell);
      case MmaOp::count_: break;
    }
  });
  for_each_kind<PlaceOf>([&](PlaceOf what) { add(Op::place, what, "accumulator", &elements_cell); });
  for_each_kind<AsyncOp>([&](AsyncOp op) { add(Op::async, op, "async", &async_cell); });
}

}  // namespace

void add_convergent_rows(std::vector<Row>& rows) {
  add_matrices(rows);
  for_each_kind<SubgroupOp>([&](SubgroupOp op) {
    rows.push_back(block_row(Op::subgroup, op, name_of(op), [op](Tracer& t) { subgroup_cell(op, t); }));
  });
  for_each_kind<ReduceOp>([&](ReduceOp op) {
    rows.push_back(block_row(Op::block_reduce, op, name_of(op), [op](Tracer& t) { reduce_cell(op, t); }));
  });
  for (const bool exclusive : {false, true})
    for_each_kind<ReduceOp>([&](ReduceOp op) {
      Row r = block_row(Op::block_scan, op, std::string(name_of(op)) + (exclusive ? "(exclusive)" : ""),
                        [op, exclusive](Tracer& t) {
                          const Value v(Builder::current().block_scan(op, t.s().id(), exclusive));
                          t.result(v, folded(BinaryOp::add, &World::s, [exclusive](const World&, std::size_t i) {
                                     return Range{i - i % threads, exclusive ? i : i + 1};
                                   }));
                        });
      r.word = "block_scan";
      rows.push_back(std::move(r));
    });
  rows.push_back(block_row(Op::block_uniform, 0, "", [](Tracer& t) {
    t.result(block_uniform(t.b(block_id())), [](const World& w, std::size_t i) {
      return at_input(&World::b, i / threads, [](auto v) { return v; })(w, i);
    });
  }));
  rows.push_back(block_row(Op::barrier, 0, "", [](Tracer& t) {
    const DType held = t.column().memory();
    const BufferRef board = shared(held, threads);
    const Value mine = thread_id(1) * static_cast<int>(World::block_x) + thread_id(0);
    Variable rounds(DType::index, 0);
    const Value v = held == t.dtype() ? t.a() : cast(held, t.a());
    board.store(mine, v);
    barrier();
    for_(0, 3, [&](Value) {  // three shifts by one to the left
      const Value next = board.load((mine + 1) % static_cast<int>(threads));
      barrier();
      board.store(mine, next);
      barrier();
    });
    t.result(board.load(mine),
             raw([](const World& w, std::size_t i) { return w.a[i - i % threads + (i % threads + 3) % threads]; }));
  }));
}

}  // namespace tessera::test
