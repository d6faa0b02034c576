// SPDX-License-Identifier: Apache-2.0
#include "tessera/kernel/trace.h"

#include <limits>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/print.h"
#include "tessera/ir/value.h"
#include "tessera/kernel/kernel.h"

namespace tessera::detail {

namespace {

ir::Builder& builder() { return ir::Builder::current(); }

[[noreturn]] void does_not_fit(DType dtype, const std::string& value) {
  fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                     .wrong = "the number " + value + " is combined with a value of " + std::string(dtype_name(dtype)) +
                              ", which cannot represent it",
                     .remedy = "Use cast<T>(...) on the other operand, or write a number that the type can represent"});
}

// The smallest and largest value of an integer dtype. index is treated as 64 bits, because its width is chosen at
// launch.
std::int64_t lowest(DType t) {
  if (is_unsigned_int(t)) return 0;
  const int bits = t == DType::index ? 64 : static_cast<int>(8 * dtype_size(t));
  return std::numeric_limits<std::int64_t>::min() >> (64 - bits);
}
std::uint64_t highest(DType t) {
  const int bits = t == DType::index ? 64 : static_cast<int>(8 * dtype_size(t));
  return std::numeric_limits<std::uint64_t>::max() >> (64 - bits + (is_signed_int(t) ? 1 : 0));
}

}  // namespace

void note(const char* file, int line) {
  if (file && ir::Builder::tracing()) builder().at(file, line);
}

ir::NodeId constant(DType dtype, double value) { return builder().constant_of(dtype, value); }
ir::NodeId constant(DType dtype, bool value) { return builder().constant(dtype, value ? 1 : 0); }
ir::NodeId constant(DType dtype, std::int64_t value) {
  if (is_int(dtype) && (value < lowest(dtype) || (value > 0 && static_cast<std::uint64_t>(value) > highest(dtype))))
    does_not_fit(dtype, std::to_string(value));
  return builder().constant_of(dtype, value);
}
ir::NodeId constant(DType dtype, std::uint64_t value) {
  if (is_int(dtype) && value > highest(dtype)) does_not_fit(dtype, std::to_string(value));
  return is_int(dtype) ? builder().constant(dtype, value) : builder().constant_of(dtype, static_cast<double>(value));
}

ir::NodeId unary(ir::UnaryOp op, ir::NodeId a) { return builder().unary(op, a); }
ir::NodeId binary(ir::BinaryOp op, ir::NodeId a, ir::NodeId b) { return builder().binary(op, a, b); }
ir::NodeId compare(ir::CompareOp op, ir::NodeId a, ir::NodeId b) { return builder().compare(op, a, b); }
ir::NodeId select(ir::NodeId condition, ir::NodeId if_true, ir::NodeId if_false) {
  return builder().select(condition, if_true, if_false);
}
ir::NodeId cast(DType to, ir::NodeId a) { return builder().cast(to, a); }
ir::NodeId bitcast(DType to, ir::NodeId a) { return builder().bitcast(to, a); }
ir::NodeId math(ir::MathOp op, ir::NodeId a, ir::NodeId b, ir::NodeId c) { return builder().math(op, a, b, c); }
ir::NodeId is_nan(ir::NodeId a) { return ir::is_nan(ir::Value(a)).id(); }
ir::NodeId is_infinite(ir::NodeId a) { return ir::is_infinite(ir::Value(a)).id(); }
ir::NodeId is_finite(ir::NodeId a) { return ir::is_finite(ir::Value(a)).id(); }
ir::NodeId copysign(ir::NodeId a, ir::NodeId b) {
  const ir::SourceLine here = builder().source();
  return ir::copysign({ir::Value(a), here.file, here.line}, {ir::Value(b), here.file, here.line}).id();
}
ir::NodeId sign(ir::NodeId a) { return ir::sign(ir::Value(a)).id(); }
ir::NodeId ctz(ir::NodeId a) { return ir::ctz(ir::Value(a)).id(); }
ir::NodeId make_vector(std::initializer_list<ir::NodeId> elements) {
  return builder().make_vector({elements.begin(), elements.size()});
}
ir::NodeId extract(ir::NodeId vector, std::uint32_t lane) { return builder().extract(vector, lane); }
ir::NodeId dot4(ir::Dot4Signs signs, ir::NodeId a, ir::NodeId b, ir::NodeId c) {
  return builder().dot4(signs, a, b, c);
}

ir::NodeId index(ir::IndexKind kind, int dimension) {
  return builder().index(kind, static_cast<std::uint64_t>(dimension));
}
ir::NodeId memory_size(ir::NodeId memory) {
  const ir::Node& n = builder().node(memory);
  if (n.op == ir::Op::param) return builder().buffer_size(memory);
  return builder().constant(DType::index, n.imm);
}
std::uint64_t elements(std::uint64_t rows, std::uint64_t columns) {
  if (rows != 0 && columns != 0 && rows <= (std::uint64_t{1} << 40) / columns) return rows * columns;
  fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                     .wrong = "two-dimensional memory was declared with " + std::to_string(rows) + " rows of " +
                              std::to_string(columns) + " elements",
                     .remedy = "Use at least one row and one column, and at most 2^40 elements"});
}
namespace {
ir::NodeId as_index(ir::NodeId id) {
  return builder().node(id).type.dtype == DType::index ? id : cast(DType::index, id);
}
}  // namespace

ir::NodeId element_of_row(std::uint64_t columns, ir::NodeId row, ir::NodeId column) {
  if (columns == 0)
    fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                       .wrong = "this memory has one dimension, but is indexed by row and column",
                       .remedy = "Declare it with two sizes, such as Shared<float> t(32, 33), or use t[i]"});
  const ir::NodeId begin = binary(ir::BinaryOp::mul, as_index(row), constant(DType::index, columns));
  return binary(ir::BinaryOp::add, begin, as_index(column));
}
ir::NodeId local(DType dtype, std::uint64_t count) { return builder().local({dtype}, count); }
ir::NodeId shared(DType dtype, std::uint64_t count) { return builder().shared(dtype, count); }
ir::NodeId load(ir::NodeId memory, ir::NodeId index, std::uint8_t lanes) {
  return builder().load(memory, index, lanes);
}
ir::NodeId load_if(ir::NodeId memory, ir::NodeId mask, ir::NodeId index, ir::NodeId other) {
  return builder().load_if(mask, memory, index, other);
}
void store(ir::NodeId memory, ir::NodeId index, ir::NodeId value) { builder().store(memory, index, value); }
ir::NodeId atomic(ir::AtomicOp op, ir::NodeId memory, ir::NodeId index, ir::NodeId value, ir::NodeId expected) {
  return builder().atomic(op, memory, index, value, expected);
}
ir::NodeId atomic_load(ir::NodeId memory, ir::NodeId index) {
  const DType t = builder().type(memory).dtype;
  const ir::NodeId zero = builder().constant(t, 0);
  // An or with zero does not change an integer. Floats use compare-and-swap, which compares bits; adding zero would
  // change -0 to 0.
  return is_float(t) ? builder().atomic(ir::AtomicOp::cas, memory, index, zero, zero)
                     : builder().atomic(ir::AtomicOp::or_, memory, index, zero);
}
ir::NodeId load_variable(ir::NodeId variable) { return load(variable, constant(DType::index, std::int64_t{0})); }
void store_variable(ir::NodeId variable, ir::NodeId value) {
  store(variable, constant(DType::index, std::int64_t{0}), value);
}

ir::NodeId field_word(ir::NodeId index, std::uint64_t words_of_struct, std::uint64_t offset_bytes) {
  if (offset_bytes % 4)
    fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                       .wrong = "the offset of this field in its struct is " + std::to_string(offset_bytes) +
                                " bytes, which is not a multiple of 4",
                       .remedy = "Remove the packing attribute or pragma from the struct"});
  ir::NodeId word = index;
  if (words_of_struct != 1) word = binary(ir::BinaryOp::mul, word, constant(DType::index, words_of_struct));
  if (offset_bytes) word = binary(ir::BinaryOp::add, word, constant(DType::index, offset_bytes / 4));
  return word;
}
ir::NodeId load_field(ir::NodeId memory, ir::NodeId word, DType dtype) {
  if (dtype_size(dtype) == 4) {
    const ir::NodeId bits = load(memory, word);
    return dtype == DType::u32 ? bits : bitcast(dtype, bits);
  }
  const ir::NodeId pair = load(memory, word, 2);
  const ir::NodeId low = cast(DType::u64, extract(pair, 0)), high = cast(DType::u64, extract(pair, 1));
  const ir::NodeId shifted = binary(ir::BinaryOp::shl, high, constant(DType::u64, std::uint64_t{32}));
  const ir::NodeId bits = binary(ir::BinaryOp::or_, low, shifted);
  return dtype == DType::u64 ? bits : bitcast(dtype, bits);
}
void store_field(ir::NodeId memory, ir::NodeId word, DType dtype, ir::NodeId value) {
  if (dtype_size(dtype) == 4) return store(memory, word, dtype == DType::u32 ? value : bitcast(DType::u32, value));
  const ir::NodeId bits = dtype == DType::u64 ? value : bitcast(DType::u64, value);
  const ir::NodeId low = cast(DType::u32, bits);
  const ir::NodeId high = cast(DType::u32, binary(ir::BinaryOp::shr, bits, constant(DType::u64, std::uint64_t{32})));
  store(memory, word, make_vector({low, high}));
}
ir::NodeId struct_count(ir::NodeId memory, std::uint64_t words_of_struct) {
  const ir::NodeId words = memory_size(memory);
  if (words_of_struct == 1) return words;
  return binary(ir::BinaryOp::div, words, constant(DType::index, words_of_struct));
}

ir::NodeId subgroup(ir::SubgroupOp op, ir::NodeId a, ir::NodeId lane) { return builder().subgroup(op, a, lane); }
ir::NodeId block_reduce(ir::ReduceOp op, ir::NodeId a) { return builder().block_reduce(op, a); }
ir::NodeId block_scan(ir::ReduceOp op, ir::NodeId a, bool exclusive) { return builder().block_scan(op, a, exclusive); }
ir::NodeId block_uniform(ir::NodeId a) { return builder().block_uniform(a); }

ir::NodeId fragment(ir::FragmentRole role, DType dtype) { return builder().fragment(role, dtype); }
void mma_load(ir::NodeId fragment, ir::NodeId memory, ir::NodeId index, ir::NodeId stride, bool transposed) {
  builder().mma_load(fragment, memory, index, stride, transposed);
}
void mma_fill(ir::NodeId accumulator, ir::NodeId value) { builder().mma_fill(accumulator, value); }
void mma_multiply(ir::NodeId accumulator, ir::NodeId left, ir::NodeId right, bool replaces) {
  builder().mma_multiply(accumulator, left, right, replaces);
}
void mma_store(ir::NodeId accumulator, ir::NodeId memory, ir::NodeId index, ir::NodeId stride) {
  builder().mma_store(accumulator, memory, index, stride);
}

void mma_convert(ir::NodeId left, ir::NodeId accumulator) { builder().mma_convert(left, accumulator); }
void mma_reduce_rows(ir::ReduceOp op, ir::NodeId local, ir::NodeId accumulator) {
  builder().mma_reduce_rows(op, local, accumulator);
}
ir::NodeId place(ir::PlaceOf what, ir::NodeId k) { return builder().place(what, k); }
void copy_async(ir::NodeId shared, ir::NodeId index, ir::NodeId buffer, ir::NodeId from, std::uint32_t elements) {
  builder().copy_async(shared, index, buffer, from, elements);
}
void async_commit() { builder().async_commit(); }
void async_wait(std::uint32_t groups) { builder().async_wait(groups); }

void barrier() { builder().barrier(); }
void blocks_at_least(std::uint32_t blocks) {
  if (builder().function().kind != ir::KernelKind::block || blocks < 1 || blocks > 64)
    fail<KernelError>({.operation = "blocks_at_least",
                       .with = {{"kernel", builder().function().name}, {"blocks", std::to_string(blocks)}},
                       .wrong = "it requires a block kernel and a number from 1 to 64"});
  builder().set_min_blocks(blocks);
}
void aligned_vectors() { builder().set_aligned_vectors(); }
PrintArgument shown(bool value) { return {.node = ir::no_node, .text = value ? "1" : "0"}; }
PrintArgument shown(std::int64_t value) { return {.node = ir::no_node, .text = std::to_string(value)}; }
PrintArgument shown(std::uint64_t value) { return {.node = ir::no_node, .text = std::to_string(value)}; }
PrintArgument shown(double value, bool is_float) {
  return {.node = ir::no_node, .text = ir::print_float(value, is_float ? ir::float_digits : ir::double_digits)};
}
void print(std::string_view format, std::span<const PrintArgument> values) {
  // Host values are inserted into the format, so their braces must be doubled.
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (const char c : text) out.append(c == '{' || c == '}' ? 2 : 1, c);
    return out;
  };
  std::string out;
  std::vector<ir::NodeId> nodes;
  std::size_t next = 0;
  if (const std::string wrong = ir::print_mistake(format, values.size()); !wrong.empty())
    fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                       .wrong = wrong,
                       .remedy = ir::print_remedy});
  for (const ir::PrintPiece& piece : ir::print_pieces(format)) {
    out += escaped(piece.text);
    if (!piece.value) continue;
    const PrintArgument& v = values[next++];
    if (v.node == ir::no_node) {
      out += escaped(v.text);
    } else {
      nodes.push_back(v.node);
      out += piece.digits == 0 ? "{}" : "{:." + std::to_string(piece.digits) + "}";
    }
  }
  builder().print(std::move(out), nodes);
}
namespace {
// The CUDA idiom `if_(i >= n, [&] { return; })` returns only from the lambda, so it does not guard the code after it.
void check_if() {
  const ir::Function& fn = builder().function();
  const ir::Node& n = fn.nodes.back();
  const auto empty = [&](ir::BlockId block) { return block == ir::no_block || fn.blocks[block].empty(); };
  if (!empty(n.args[1]) || !empty(n.args[2])) return;
  fail<KernelError>({.operation = "kernel " + fn.name + ", " + to_string(builder().source()),
                     .wrong = "the body of this if_ does nothing",
                     .remedy = "`return` leaves only the body, not the kernel: to end the thread, write return_(). If "
                               "a host value decides whether there is work, put a C++ if around the if_"});
}
}  // namespace
void if_(ir::NodeId condition, Body then) {
  builder().if_(condition, [then] { then(); });
  check_if();
}
void if_(ir::NodeId condition, Body then, Body otherwise) {
  builder().if_(
      condition, [then] { then(); }, [otherwise] { otherwise(); });
  check_if();
}
void for_(ir::NodeId begin, ir::NodeId end, ir::NodeId step, std::optional<ir::Unroll> unroll, Body body) {
  builder().for_(
      begin, end, step, [body](ir::NodeId counter) { body(counter); }, unroll);
}
void while_(Body condition, const ir::NodeId& condition_result, Body body) {
  builder().while_(
      [&] {
        condition();
        return condition_result;
      },
      [body] { body(); });
}
void return_() { builder().return_(); }

ir::NodeId declare_buffer(int number, DType dtype, ir::Access access) {
  return builder().buffer("arg" + std::to_string(number), dtype, access);
}
ir::NodeId declare_scalar(int number, DType dtype) { return builder().scalar("arg" + std::to_string(number), dtype); }

ViewNodes declare_view(int number, DType dtype, ir::Access access, int rank, bool rows) {
  ViewNodes out;
  const std::string name = "arg" + std::to_string(number);
  out.memory = builder().buffer(name, dtype, access);
  for (int d = 0; d < rank; ++d) {
    const auto at = static_cast<std::size_t>(d);
    const auto scalar = [&](const char* what) {
      return builder().scalar(name + what + std::to_string(d), DType::index);
    };
    out.extents[at] = scalar("_extent");
    const ir::NodeId stride = scalar("_stride");
    if (!rows || d + 1 < rank) out.strides[at] = stride;
  }
  return out;
}
ir::NodeId extent_of_view(const ViewNodes& view, int rank, int dimension) {
  if (dimension < 0 || dimension >= rank)
    fail<KernelError>({.operation = "kernel " + builder().function().name + ", " + to_string(builder().source()),
                       .with = {{"dimension", std::to_string(dimension)}, {"dimensions", std::to_string(rank)}},
                       .wrong = "the view does not have this dimension"});
  return view.extents[static_cast<std::size_t>(dimension)];
}
ir::NodeId element_of_view(const ViewNodes& view, std::initializer_list<ir::NodeId> at) {
  ir::NodeId sum = ir::no_node;
  std::size_t d = 0;
  for (const ir::NodeId i : at) {
    const ir::Handle& stride = view.strides[d++];
    const ir::NodeId term = stride.valid() ? binary(ir::BinaryOp::mul, as_index(i), stride) : as_index(i);
    sum = sum == ir::no_node ? term : binary(ir::BinaryOp::add, sum, term);
  }
  return sum;
}

ir::Function trace(std::string name, ir::KernelKind kind, std::array<std::uint32_t, 3> block_size, Body body,
                   ir::SourceLine source) {
  ir::Builder fresh(std::move(name), kind, block_size, DType::index, source);
  {
    ir::Builder::Scope scope(fresh);
    body();
  }
  return fresh.finish();
}

Kernel traced_kernel(std::string name, ir::KernelKind kind, const std::array<std::uint32_t, 3>& block_size, Body body,
                     ir::SourceLine source) {
  return Kernel(trace(std::move(name), kind, block_size, body, source));
}

}  // namespace tessera::detail
