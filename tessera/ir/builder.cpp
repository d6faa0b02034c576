// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/builder.h"

#include <atomic>

#include "tessera/base/error.h"
#include "tessera/ir/handle.h"
#include "tessera/ir/print.h"
#include "tessera/ir/semantics.h"

namespace tessera::ir {

namespace {

thread_local Builder* current_builder = nullptr;
std::atomic<std::uint64_t> builders{0};

template <class K>
std::uint8_t sub(K kind) {
  return static_cast<std::uint8_t>(kind);
}

// An f32 is rounded when it is stored as f16 or bf16. All other conversions need an explicit cast.
bool storable(DType memory, DType value) {
  return memory == value || (value == DType::f32 && (memory == DType::f16 || memory == DType::bf16));
}

}  // namespace

std::string to_string(SourceLine source) {
  if (!source.file) return "";
  std::string_view file = source.file;
  if (auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(source.line);
}

Builder::Builder(std::string name, KernelKind kind, std::array<std::uint32_t, 3> block_size, DType index_type,
                 SourceLine source)
    : number_(++builders), index_type_(index_type), source_(source) {
  fn_.name = std::move(name);
  fn_.kind = kind;
  fn_.block_size = block_size;
  const bool fits = block_size[0] && block_size[1] && block_size[2] &&
                    std::uint64_t{block_size[0]} * block_size[1] * block_size[2] <= 1024;
  require(fits, "a block must have 1 to 1024 threads",
          "This one has " + std::to_string(block_size[0]) + " x " + std::to_string(block_size[1]) + " x " +
              std::to_string(block_size[2]) + "; use more and smaller blocks");
}

Builder& Builder::current() {
  if (!current_builder)
    fail<KernelError>({.operation = "kernel language",
                       .wrong = "a traced operation was used outside of a kernel",
                       .remedy = "Use it inside the function passed to kernel(...)"});
  return *current_builder;
}
bool Builder::tracing() { return current_builder != nullptr; }

std::uint64_t current_trace() { return current_builder != nullptr ? current_builder->number() : 0; }
void refuse_foreign_node() {
  const Builder& builder = Builder::current();
  const std::string where = to_string(builder.source());
  fail<KernelError>(
      {.operation = "kernel " + builder.function().name + (where.empty() ? "" : ", " + where),
       .wrong =
           "this value, variable or buffer belongs to another kernel: it was stored in a static variable, a global "
           "variable or a capture while that kernel was traced",
       .remedy = "Create it in each kernel (no `static` in functions that kernels share), or use a C++ number, "
                 "which becomes a constant of the kernel"});
}

Builder::Scope::Scope(Builder& builder) {
  if (current_builder)
    fail<KernelError>(
        {.operation = "kernel " + builder.fn_.name,
         .wrong = "kernel " + current_builder->fn_.name + " is being traced on this thread",
         .remedy = "Construct kernels outside of kernels; share code between kernels in plain C++ functions"});
  current_builder = &builder;
}
Builder::Scope::~Scope() { current_builder = nullptr; }

void Builder::require(bool ok, const std::string& wrong, const std::string& remedy) const {
  if (ok) return;
  std::string where = to_string(source_);
  fail<KernelError>({.operation = where.empty() ? "kernel " + fn_.name : "kernel " + fn_.name + ", " + where,
                     .wrong = wrong,
                     .remedy = remedy});
}

std::string Builder::describe(NodeId id) const { return type_name(fn_.nodes[id].type); }

NodeId Builder::add(const Node& node) {
  fn_.nodes.push_back(node);
  fn_.sources.push_back(source_);
  return static_cast<NodeId>(fn_.nodes.size() - 1);
}
NodeId Builder::add_shared(const Node& node) {
  auto [it, fresh] = known_.try_emplace(node, no_node);
  if (fresh) it->second = add(node);
  return it->second;
}
void Builder::append(NodeId id) { fn_.blocks[block_].push_back(id); }

// Parameters and leaves.

NodeId Builder::buffer(std::string name, DType dtype, Access access) {
  require(dtype != DType::index, "a buffer parameter cannot have dtype index, which has no fixed size in memory",
          "Use i32 or i64");
  fn_.params.push_back({std::move(name), dtype, true, access});
  return add_shared({.op = Op::param, .type = {dtype}, .imm = fn_.params.size() - 1});
}
NodeId Builder::scalar(std::string name, DType dtype) {
  fn_.params.push_back({std::move(name), dtype, false, Access::read});
  return add_shared({.op = Op::param, .type = {dtype}, .imm = fn_.params.size() - 1});
}
NodeId Builder::constant(DType dtype, std::uint64_t bits) {
  return add_shared({.op = Op::constant, .type = {dtype}, .imm = bits});
}
NodeId Builder::constant_of(DType dtype, double value) { return constant(dtype, to_bits(dtype, value)); }
NodeId Builder::constant_of(DType dtype, std::int64_t value) { return constant(dtype, to_bits(dtype, value)); }

NodeId Builder::index(IndexKind kind, std::uint64_t dimension) {
  require(dimension < 3, std::string(name_of(kind)) + " has dimensions 0, 1 and 2", "");
  const bool block_only = kind == IndexKind::thread_id || kind == IndexKind::block_id ||
                          kind == IndexKind::block_size || kind == IndexKind::block_count ||
                          kind == IndexKind::lane_id || kind == IndexKind::subgroup_id ||
                          kind == IndexKind::subgroup_size || kind == IndexKind::subgroup_count ||
                          kind == IndexKind::lane_elements || kind == IndexKind::lane_rows;
  require(!block_only || fn_.kind == KernelKind::block,
          std::string(name_of(kind)) + " is not available in a map kernel, whose blocks the runtime chooses",
          "Declare the kernel with block(...)");
  if (kind == IndexKind::block_size)
    return constant_of(index_type_, static_cast<std::int64_t>(fn_.block_size[dimension]));
  return add_shared({.op = Op::index, .sub = sub(kind), .type = {index_type_}, .imm = dimension});
}
NodeId Builder::buffer_size(NodeId buffer) {
  const Node& n = fn_.nodes[buffer];
  require(n.op == Op::param && fn_.params[n.imm].is_buffer, "size() requires a buffer parameter");
  return add_shared({.op = Op::index, .sub = sub(IndexKind::buffer_size), .type = {index_type_}, .imm = n.imm});
}
NodeId Builder::local(Type type, std::uint64_t count) {
  require(count >= 1 && count <= 4096, "a local array must have 1 to 4096 elements",
          "This one has " + std::to_string(count) + "; use shared memory or a buffer");
  require(type.dtype != DType::f16 && type.dtype != DType::bf16,
          "local memory cannot store " + type_name(type) + ": 16-bit floats can only be stored in buffers",
          "Use f32 for variables");
  return add_shared({.op = Op::local, .type = type, .extra = static_cast<std::uint32_t>(++memories_), .imm = count});
}
NodeId Builder::shared(DType dtype, std::uint64_t count) {
  require(fn_.kind == KernelKind::block, "shared memory requires blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  require(count >= 1 && count <= std::uint64_t{1} << 31, "a shared array must have 1 to 2^31 elements",
          "This one has " + std::to_string(count) + "; use a buffer for large arrays");
  require(dtype != DType::index, "shared memory cannot store index, which has no fixed size in memory",
          "Use i32 or i64");
  return add_shared(
      {.op = Op::shared, .type = {dtype}, .extra = static_cast<std::uint32_t>(++memories_), .imm = count});
}

NodeId Builder::fragment(FragmentRole role, DType dtype) {
  require(fn_.kind == KernelKind::block, "matrix operations require subgroups, but this is a map kernel",
          "Declare the kernel with block(...)");
  const bool sums = role == FragmentRole::accumulator;
  require(dtype == DType::f32 || (!sums && (dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::i8)),
          sums ? "an accumulator must be f32" : "the factors of a matrix product must be f16, bf16, f32 or i8",
          "This one is " + std::string(dtype_name(dtype)));
  return add_shared({.op = Op::local,
                     .sub = sub(role),
                     .type = {dtype},
                     .extra = static_cast<std::uint32_t>(++memories_),
                     .imm = fragment_side * fragment_depth(dtype)});
}

// Pure nodes.

NodeId Builder::computable(NodeId id) {
  const DType t = type(id).dtype;
  return t == DType::f16 || t == DType::bf16 ? cast(DType::f32, id) : id;
}

NodeId Builder::unary(UnaryOp op, NodeId a) {
  const NodeId given = a;  // used in error messages: the operand before 16-bit floats are converted to f32
  a = computable(a);
  const Type t = type(a);
  require(t.lanes == 1, "arithmetic requires single elements", "Get the vector's elements with extract");
  const bool logical = t.dtype == DType::boolean;
  require(op == UnaryOp::not_ ? !is_float(t.dtype) : !logical,
          std::string(name_of(op)) + " cannot take " + describe(given));
  require((op != UnaryOp::popcount && op != UnaryOp::clz) || (is_int(t.dtype) && t.dtype != DType::index),
          std::string(name_of(op)) + " requires integers of fixed width, not " + describe(given));
  if (fn_.nodes[a].op == Op::constant) {
    const std::uint64_t bits = with_compute_type(t.dtype, [&](auto tag) {
      using T = decltype(tag);
      return to_bits(t.dtype, apply(op, from_bits<T>(t.dtype, fn_.nodes[a].imm)));
    });
    return constant(t.dtype, bits);
  }
  return add_shared({.op = Op::unary, .sub = sub(op), .type = t, .extra = no_wrap_ && op == UnaryOp::neg, .args = {a}});
}

NodeId Builder::binary(BinaryOp op, NodeId a, NodeId b) {
  const NodeId given = a;
  a = computable(a), b = computable(b);
  const Type t = type(a);
  require(t == type(b),
          "operands of " + std::string(name_of(op)) + " have different types: " + describe(a) + " and " + describe(b),
          "Use cast<T>(...)");
  require(t.lanes == 1, "arithmetic requires single elements", "Get the vector's elements with extract");
  const bool bits = op == BinaryOp::and_ || op == BinaryOp::or_ || op == BinaryOp::xor_;
  const bool shift = op == BinaryOp::shl || op == BinaryOp::shr;
  if (is_float(t.dtype))
    require(!bits && !shift && op != BinaryOp::mul_hi, std::string(name_of(op)) + " cannot take " + describe(given));
  else if (t.dtype == DType::boolean)
    require(bits, std::string(name_of(op)) + " cannot take bool", "Use cast<T>(...)");
  else if (op == BinaryOp::mul_hi)
    require(t.dtype == DType::i32 || t.dtype == DType::u32 || t.dtype == DType::u64 || t.dtype == DType::i64,
            "mul_hi requires 32- or 64-bit integers, not " + describe(a));
  const Node &x = fn_.nodes[a], &y = fn_.nodes[b];
  if (x.op == Op::constant && y.op == Op::constant) {
    const std::uint64_t folded = with_compute_type(t.dtype, [&](auto tag) {
      using T = decltype(tag);
      return to_bits(t.dtype, apply(op, from_bits<T>(t.dtype, x.imm), from_bits<T>(t.dtype, y.imm)));
    });
    return constant(t.dtype, folded);
  }
  // Identities that hold exactly for every value, including NaN and -0.
  auto is_value = [&](const Node& n, double value) { return n.op == Op::constant && n.imm == to_bits(t.dtype, value); };
  const bool integer = is_int(t.dtype);
  if (op == BinaryOp::mul && is_value(y, 1)) return a;
  if (op == BinaryOp::mul && is_value(x, 1)) return b;
  if (op == BinaryOp::div && is_value(y, 1)) return a;
  if (integer && (op == BinaryOp::add || op == BinaryOp::or_ || op == BinaryOp::xor_)) {
    if (is_value(x, 0)) return b;
    if (is_value(y, 0)) return a;
  }
  if (integer && (op == BinaryOp::sub || shift) && is_value(y, 0)) return a;
  if (integer && (op == BinaryOp::mul || op == BinaryOp::and_) && (is_value(x, 0) || is_value(y, 0)))
    return constant(t.dtype, 0);
  if (integer && op == BinaryOp::rem && is_value(y, 1)) return constant(t.dtype, 0);
  const bool no_wrap = no_wrap_ && (op == BinaryOp::add || op == BinaryOp::sub || op == BinaryOp::mul);
  return add_shared({.op = Op::binary, .sub = sub(op), .type = t, .extra = no_wrap, .args = {a, b}});
}

NodeId Builder::compare(CompareOp op, NodeId a, NodeId b) {
  a = computable(a), b = computable(b);
  const Type t = type(a);
  require(t == type(b), "operands of a comparison have different types: " + describe(a) + " and " + describe(b),
          "Use cast<T>(...)");
  require(t.lanes == 1, "comparisons require single elements", "Get the vector's elements with extract");
  const Node &x = fn_.nodes[a], &y = fn_.nodes[b];
  if (x.op == Op::constant && y.op == Op::constant) {
    const bool folded = with_compute_type(t.dtype, [&](auto tag) {
      using T = decltype(tag);
      return apply(op, from_bits<T>(t.dtype, x.imm), from_bits<T>(t.dtype, y.imm));
    });
    return constant(DType::boolean, folded);
  }
  return add_shared({.op = Op::compare, .sub = sub(op), .type = {DType::boolean}, .args = {a, b}});
}

NodeId Builder::select(NodeId condition, NodeId if_true, NodeId if_false) {
  require(type(condition) == Type{DType::boolean},
          "the condition of select must be a bool, not " + describe(condition));
  if (type(if_true) != type(if_false)) if_true = computable(if_true), if_false = computable(if_false);
  require(type(if_true) == type(if_false),
          "the two values of select have different types: " + describe(if_true) + " and " + describe(if_false),
          "Use cast<T>(...)");
  if (fn_.nodes[condition].op == Op::constant) return fn_.nodes[condition].imm ? if_true : if_false;
  if (if_true == if_false) return if_true;
  return add_shared({.op = Op::select, .type = type(if_true), .args = {condition, if_true, if_false}});
}

NodeId Builder::cast(DType to, NodeId a) {
  const Type t = type(a);
  require(t.lanes == 1, "cast requires a single element", "Get the vector's elements with extract");
  if (t.dtype == to) return a;
  if (fn_.nodes[a].op == Op::constant) {
    const std::uint64_t bits = with_compute_type(t.dtype, [&](auto from) {
      return with_compute_type(to, [&](auto tag) {
        return to_bits(to, convert<decltype(tag)>(from_bits<decltype(from)>(t.dtype, fn_.nodes[a].imm)));
      });
    });
    return constant(to, bits);
  }
  // f64 is converted to 16-bit floats through f32 on every device, so that all devices round in the same way.
  const bool narrow = to == DType::f16 || to == DType::bf16;
  if (narrow && t.dtype != DType::f32) return cast(to, cast(DType::f32, a));
  if ((t.dtype == DType::f16 || t.dtype == DType::bf16) && to != DType::f32) return cast(to, cast(DType::f32, a));
  return add_shared({.op = Op::cast, .type = {to}, .args = {a}});
}

NodeId Builder::bitcast(DType to, NodeId a) {
  const Type t = type(a);
  require(t.lanes == 1 && dtype_size(t.dtype) == dtype_size(to) && dtype_size(to) != 0,
          "bitcast requires types of equal size, not " + describe(a) + " and " + std::string(dtype_name(to)));
  require(t.dtype != DType::boolean && to != DType::boolean,
          "bitcast of " + describe(a) + " to " + std::string(dtype_name(to)) + ": bool has no bits to reinterpret",
          "Use cast<T>(...)");
  if (t.dtype == to) return a;
  if (fn_.nodes[a].op == Op::constant) {
    std::uint64_t bits = fn_.nodes[a].imm;
    if (const std::size_t width = 8 * dtype_size(to); width < 64) {
      bits &= (std::uint64_t{1} << width) - 1;
      if (is_signed_int(to) && (bits >> (width - 1))) bits |= ~std::uint64_t{0} << width;
    }
    return constant(to, bits);
  }
  return add_shared({.op = Op::bitcast, .type = {to}, .args = {a}});
}

NodeId Builder::place(PlaceOf what, NodeId k) {
  require(type(k) == Type{index_type_}, "the number of an element must be an index, not " + describe(k));
  return add_shared({.op = Op::place,
                     .sub = sub(what),
                     .type = {what == PlaceOf::valid ? DType::boolean : index_type_},
                     .args = {k}});
}
NodeId Builder::math(MathOp op, NodeId a, NodeId b, NodeId c) {
  a = computable(a);
  if (b) b = computable(b);
  if (c) c = computable(c);
  const Type t = type(a);
  require(t.lanes == 1 && is_float(t.dtype), std::string(name_of(op)) + " requires floats, not " + describe(a),
          "Use cast<float>(...)");
  const int wanted = operand_count(op);
  require((b != no_node) + (c != no_node) + 1 == wanted,
          std::string(name_of(op)) + " takes " + std::to_string(wanted) + " operands");
  require((!b || type(b) == t) && (!c || type(c) == t),
          "operands of " + std::string(name_of(op)) + " have different types", "Use cast<T>(...)");
  return add_shared({.op = Op::math, .sub = sub(op), .type = t, .args = {a, b, c}});
}

NodeId Builder::make_vector(std::span<const NodeId> elements) {
  require(elements.size() >= 2 && elements.size() <= 4, "a vector must have 2, 3 or 4 elements");
  Node n{
      .op = Op::vector, .sub = sub(VectorOp::make), .type = {type(elements[0]).dtype, std::uint8_t(elements.size())}};
  for (std::size_t i = 0; i < elements.size(); ++i) {
    require(type(elements[i]) == type(elements[0]) && type(elements[i]).lanes == 1,
            "the elements of a vector must have the same type");
    n.args[i] = elements[i];
  }
  return add_shared(n);
}
NodeId Builder::extract(NodeId vector, std::uint32_t lane) {
  const Type t = type(vector);
  require(lane < t.lanes && t.lanes > 1,
          "extract from " + describe(vector) + ": it has no element " + std::to_string(lane));
  const Node& v = fn_.nodes[vector];
  if (v.op == Op::vector && v.kind<VectorOp>() == VectorOp::make) return v.args[lane];
  return add_shared(
      {.op = Op::vector, .sub = sub(VectorOp::extract), .type = {t.dtype}, .args = {vector}, .imm = lane});
}
NodeId Builder::dot4(Dot4Signs signs, NodeId a, NodeId b, NodeId c) {
  require(type(a) == Type{DType::u32} && type(b) == Type{DType::u32} && type(c) == Type{DType::i32},
          "dot4 requires u32, u32 and i32, not " + describe(a) + ", " + describe(b) + " and " + describe(c),
          "Load packed bytes as u32 or use bitcast");
  return add_shared({.op = Op::dot4, .sub = sub(signs), .type = {DType::i32}, .args = {a, b, c}});
}

// Convergent nodes.

NodeId Builder::subgroup(SubgroupOp op, NodeId a, NodeId lane) {
  const NodeId given = a;
  a = computable(a);
  require(fn_.kind == KernelKind::block, "subgroup operations require blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  const bool predicate = op == SubgroupOp::any || op == SubgroupOp::all;
  require(type(a).lanes == 1 && predicate == (type(a).dtype == DType::boolean),
          "subgroup " + std::string(name_of(op)) + " cannot take " + describe(given));
  const bool moves = op == SubgroupOp::broadcast || (op >= SubgroupOp::shuffle && op <= SubgroupOp::shuffle_down);
  require(moves == (lane != no_node) && (!moves || type(lane) == Type{index_type_}),
          "subgroup " + std::string(name_of(op)) + (moves ? " requires an index as its lane" : " takes no lane"));
  const NodeId id = add({.op = Op::subgroup, .sub = sub(op), .type = type(a), .args = {a, lane}});
  append(id);
  return id;
}
NodeId Builder::block_reduce(ReduceOp op, NodeId a) {
  const NodeId given = a;
  a = computable(a);
  require(fn_.kind == KernelKind::block, "block operations require blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  const bool bits = op == ReduceOp::and_ || op == ReduceOp::or_;
  require(type(a).lanes == 1 && (bits ? !is_float(type(a).dtype) : type(a).dtype != DType::boolean),
          "block_" + std::string(name_of(op)) + " cannot take " + describe(given));
  const NodeId id = add({.op = Op::block_reduce, .sub = sub(op), .type = type(a), .args = {a}});
  append(id);
  return id;
}
NodeId Builder::block_scan(ReduceOp op, NodeId a, bool exclusive) {
  const NodeId given = a;
  a = computable(a);
  require(fn_.kind == KernelKind::block, "block operations require blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  require(op == ReduceOp::sum,
          "block_scan supports only sums, not " + std::string(name_of(op)) + " of " + describe(given));
  require(type(a).lanes == 1 && type(a).dtype != DType::boolean, "block_scan cannot take " + describe(a));
  const NodeId id = add({.op = Op::block_scan, .sub = sub(op), .type = type(a), .args = {a}, .imm = exclusive});
  append(id);
  return id;
}
NodeId Builder::block_uniform(NodeId a) {
  a = computable(a);
  require(fn_.kind == KernelKind::block, "block operations require blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  require(type(a).lanes == 1, "block_uniform requires a single element");
  const NodeId id = add({.op = Op::block_uniform, .type = type(a), .args = {a}});
  append(id);
  return id;
}

// Memory.

NodeId Builder::check_access(NodeId memory, NodeId index, bool write) {
  const Node& m = fn_.nodes[memory];
  require(is_memory(fn_, m), "the operand is not memory that a kernel can access");
  require(!write || m.op != Op::param || fn_.params[m.imm].access == Access::read_write,
          "this buffer is read-only in this kernel: declare it Buffer<T>");
  require(type(index).lanes == 1 && is_int(type(index).dtype),
          "memory must be indexed by an integer, not " + describe(index));
  return cast(index_type_, index);
}

NodeId Builder::load(NodeId memory, NodeId index, std::uint8_t lanes) {
  index = check_access(memory, index, false);
  require(!is_fragment(fn_.nodes[memory]) || is_accumulator(fn_.nodes[memory]),
          "a thread cannot load elements of the factors of a matrix product", "Load them from the matrix's memory");
  Type t = fn_.nodes[memory].type;
  require(lanes == 1 || (t.lanes == 1 && lanes <= 4 && fn_.nodes[memory].op != Op::local),
          "load of " + type_name({t.dtype, lanes}) + " from " + (t.lanes == 1 ? "local memory" : "vectors") +
              ": vectors can only be loaded from buffers and shared memory");
  if (t.lanes == 1) t.lanes = lanes;
  const NodeId id = add({.op = Op::load, .type = t, .args = {memory, index}});
  append(id);
  return id;
}
NodeId Builder::load_if(NodeId mask, NodeId memory, NodeId index, NodeId other) {
  index = check_access(memory, index, false);
  const Type t = fn_.nodes[memory].type;
  require(t.lanes == 1, "load_if can only load single elements");
  require(type(mask) == Type{DType::boolean}, "the mask of load_if must be a bool, not " + describe(mask));
  if (type(other) != t && storable(t.dtype, type(other).dtype)) other = cast(t.dtype, other);
  require(type(other) == t,
          "load_if from " + type_name(t) + " memory requires a fallback value of that type, not " + describe(other),
          "Use cast<T>(...)");
  if (fn_.nodes[mask].op == Op::constant && fn_.nodes[mask].imm) return load(memory, index);
  const NodeId id = add({.op = Op::load_if, .type = t, .args = {memory, index, mask, other}});
  append(id);
  return id;
}
void Builder::store(NodeId memory, NodeId index, NodeId value) {
  index = check_access(memory, index, true);
  const Type t = fn_.nodes[memory].type;
  if (is_fragment(fn_.nodes[memory]) && !is_accumulator(fn_.nodes[memory])) {
    require(index_type_ != DType::index && type(value) == Type{DType::u32},
            "a thread cannot store elements of the factors of a matrix product", "Convert an accumulator");
    return append(add({.op = Op::store, .type = type(value), .args = {memory, index, value}}));
  }
  if (type(value).lanes == 1 && type(value) != t && storable(t.dtype, type(value).dtype)) value = cast(t.dtype, value);
  require(type(value).dtype == t.dtype && (t.lanes == 1 || t.lanes == type(value).lanes),
          "a value of " + describe(value) + " cannot be stored in memory of " + type_name(t), "Use cast<T>(...)");
  append(add({.op = Op::store, .type = type(value), .args = {memory, index, value}}));
}
NodeId Builder::atomic(AtomicOp op, NodeId memory, NodeId index, NodeId value, NodeId expected) {
  index = check_access(memory, index, true);
  const Node m = fn_.nodes[memory];
  const DType t = m.type.dtype;
  const bool integer = t == DType::i32 || t == DType::u32 || t == DType::i64 || t == DType::u64;
  if (op >= AtomicOp::and_)
    require(integer,
            "atomic_" + std::string(name_of(op)) + " supports i32, u32, i64 and u64, not " + type_name(m.type));
  else
    require(integer || t == DType::f32 || t == DType::f64,
            "atomics support i32, u32, i64, u64, f32 and f64, not " + type_name(m.type));
  require(m.op != Op::local, "atomics require memory that threads share", "Use a buffer or shared memory");
  require(type(value) == m.type && (op == AtomicOp::cas) == (expected != no_node) &&
              (!expected || type(expected) == m.type),
          "atomic_" + std::string(name_of(op)) + " on " + type_name(m.type) + " memory cannot take " + describe(value),
          "Use cast<T>(...)");
  const NodeId id = add({.op = Op::atomic, .sub = sub(op), .type = m.type, .args = {memory, index, value, expected}});
  append(id);
  return id;
}

// Matrix fragments.

std::string wrong_fragment(MmaOp op, const Node& operand, FragmentRole role) {
  const bool any = role == FragmentRole::none;
  if (is_fragment(operand) && (any || operand.kind<FragmentRole>() == role)) return {};
  return "mma " + std::string(name_of(op)) + " requires " +
         (any ? "a fragment" : "the fragment " + std::string(name_of(role))) + ", but got " +
         (is_fragment(operand) ? std::string(name_of(operand.kind<FragmentRole>())) : "none");
}
void Builder::check_fragment(NodeId id, FragmentRole role, MmaOp op) const {
  const std::string wrong = wrong_fragment(op, fn_.nodes[id], role);
  require(wrong.empty(), wrong);
}
Node Builder::matrix_access(MmaOp op, NodeId fragment, NodeId memory, NodeId index, NodeId stride) {
  index = check_access(memory, index, op == MmaOp::store);
  stride = check_access(memory, stride, false);
  const Node &f = fn_.nodes[fragment], &m = fn_.nodes[memory];
  require(m.op != Op::local, "a matrix must be in memory that threads share", "Use a buffer or shared memory");
  // For devices without 16-bit floats, lowered functions store these as u16.
  const bool bits = index_type_ != DType::index && m.type.dtype == DType::u16 && dtype_size(f.type.dtype) == 2;
  if (f.type.dtype == DType::i8) {
    require(m.type == Type{DType::u32},
            "the i8 factors of a matrix product are loaded from memory of u32, not of " + type_name(m.type),
            "Store four numbers in each u32");
  } else {
    require(m.type == f.type || bits, "mma " + std::string(name_of(op)) + " of a matrix of " + type_name(f.type) +
                                          " does not match memory of " + type_name(m.type));
  }
  return {.op = Op::mma, .sub = sub(op), .type = f.type, .args = {fragment, memory, index, stride}};
}
void Builder::mma_load(NodeId fragment, NodeId memory, NodeId index, NodeId stride, bool transposed) {
  check_fragment(fragment, FragmentRole::none, MmaOp::load);
  Node n = matrix_access(MmaOp::load, fragment, memory, index, stride);
  n.extra = transposed;
  const Node& f = fn_.nodes[fragment];
  require(f.type.dtype != DType::i8 || transposed == (f.kind<FragmentRole>() == FragmentRole::right),
          "a word of an i8 factor contains four elements of a sum, so left factors are loaded with load and right "
          "factors with load_transposed",
          "Store the right factor transposed");
  append(add(n));
}
void Builder::mma_fill(NodeId accumulator, NodeId value) {
  check_fragment(accumulator, FragmentRole::accumulator, MmaOp::fill);
  value = computable(value);
  require(type(value) == Type{DType::f32}, "an accumulator must be filled with f32, not " + describe(value),
          "Use cast<float>(...)");
  append(add({.op = Op::mma, .sub = sub(MmaOp::fill), .type = {DType::f32}, .args = {accumulator, value}}));
}
void Builder::mma_multiply(NodeId accumulator, NodeId left, NodeId right, bool replaces) {
  check_fragment(accumulator, FragmentRole::accumulator, MmaOp::multiply);
  check_fragment(left, FragmentRole::left, MmaOp::multiply);
  check_fragment(right, FragmentRole::right, MmaOp::multiply);
  require(type(left) == type(right),
          "the factors of a matrix product have different types: " + describe(left) + " and " + describe(right));
  append(add({.op = Op::mma,
              .sub = sub(MmaOp::multiply),
              .type = {DType::f32},
              .extra = replaces,
              .args = {accumulator, left, right}}));
}
void Builder::mma_store(NodeId accumulator, NodeId memory, NodeId index, NodeId stride) {
  check_fragment(accumulator, FragmentRole::accumulator, MmaOp::store);
  append(add(matrix_access(MmaOp::store, accumulator, memory, index, stride)));
}
void Builder::mma_convert(NodeId left, NodeId accumulator) {
  check_fragment(left, FragmentRole::left, MmaOp::convert);
  check_fragment(accumulator, FragmentRole::accumulator, MmaOp::convert);
  require(dtype_size(type(left).dtype) == 2,
          "mma convert rounds to factors of a matrix product of f16 or bf16, not of " + type_name(type(left)));
  append(add({.op = Op::mma, .sub = sub(MmaOp::convert), .type = type(left), .args = {left, accumulator}}));
}
void Builder::mma_reduce_rows(ReduceOp op, NodeId local, NodeId accumulator) {
  check_fragment(accumulator, FragmentRole::accumulator, MmaOp::reduce_rows);
  const Node& m = fn_.nodes[local];
  require(m.op == Op::local && !is_fragment(m) && m.type == Type{DType::f32} && m.imm >= fragment_side,
          "mma reduce_rows requires a local array of 16 f32");
  require(op == ReduceOp::sum || op == ReduceOp::max,
          "mma reduce_rows supports sum and max, not " + std::string(name_of(op)));
  append(add({.op = Op::mma,
              .sub = sub(MmaOp::reduce_rows),
              .type = {DType::f32},
              .args = {local, accumulator},
              .imm = static_cast<std::uint64_t>(op)}));
}

// Asynchronous copies.

void Builder::copy_async(NodeId shared, NodeId index, NodeId buffer, NodeId from, std::uint32_t elements) {
  index = check_access(shared, index, true), from = check_access(buffer, from, false);
  const Node &to = fn_.nodes[shared], &source = fn_.nodes[buffer];
  require(to.op == Op::shared && source.op == Op::param, "copy_async copies from a buffer to shared memory");
  require(to.type == source.type, "copy_async cannot convert " + describe(buffer) + " to " + describe(shared));
  const std::size_t bytes = elements * dtype_size(to.type.dtype);
  require(bytes == 4 || bytes == 8 || bytes == 16,
          "copy_async copies 4, 8 or 16 bytes, not " + std::to_string(bytes) + " (" + std::to_string(elements) +
              " elements of " + type_name(to.type) + ")",
          "Copy more or fewer elements");
  append(add({.op = Op::async,
              .sub = sub(AsyncOp::copy),
              .type = to.type,
              .args = {shared, index, buffer, from},
              .imm = elements}));
}
void Builder::require_async() const {
  require(fn_.kind == KernelKind::block, "asynchronous copies require blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
}
void Builder::async_commit() {
  require_async();
  append(add({.op = Op::async, .sub = sub(AsyncOp::commit)}));
}
void Builder::async_wait(std::uint32_t groups) {
  require_async();
  append(add({.op = Op::async, .sub = sub(AsyncOp::wait), .imm = groups}));
}

// Effects and control.

void Builder::barrier() {
  require(fn_.kind == KernelKind::block, "a barrier requires blocks, but this is a map kernel",
          "Declare the kernel with block(...)");
  append(add({.op = Op::barrier}));
}
void Builder::print(std::string format, std::span<const NodeId> values) {
  require(values.size() <= 4, "print takes at most four values");
  const std::string wrong = print_mistake(format, values.size());
  require(wrong.empty(), wrong, print_remedy);
  Node n{.op = Op::print, .extra = static_cast<std::uint32_t>(fn_.strings.size())};
  for (std::size_t i = 0; i < values.size(); ++i) n.args[i] = computable(values[i]);
  fn_.strings.push_back(std::move(format));
  append(add(n));
}

BlockId Builder::traced_block(const std::function<void()>& body) {
  const BlockId outer = block_;
  const BlockId inner = static_cast<BlockId>(fn_.blocks.size());
  fn_.blocks.emplace_back();
  block_ = inner;
  struct Restore {
    BlockId& block;
    BlockId value;
    ~Restore() { block = value; }
  } restore{block_, outer};
  body();
  return inner;
}

void Builder::if_(NodeId condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  require(type(condition) == Type{DType::boolean}, "the condition of if_ must be a bool, not " + describe(condition));
  const SourceLine line = source_;
  const BlockId yes = traced_block(then);
  const BlockId no = otherwise ? traced_block(otherwise) : no_block;
  source_ = line;
  append(add({.op = Op::if_, .args = {condition, yes, no}}));
}
void Builder::for_(NodeId begin, NodeId end, NodeId step, const std::function<void(NodeId)>& body,
                   std::optional<Unroll> unroll) {
  const Type t = type(begin);
  require(t == type(end) && t == type(step) && t.lanes == 1 && is_int(t.dtype),
          "begin, end and step of for_ must be integers of the same type, not " + describe(begin) + ", " +
              describe(end) + " and " + describe(step),
          "Use cast<T>(...)");
  const Node& s = fn_.nodes[step];
  require(s.op != Op::constant || (s.imm != 0 && (is_unsigned_int(t.dtype) || static_cast<std::int64_t>(s.imm) > 0)),
          "the step of for_ must be greater than zero" +
              (s.op == Op::constant ? ", not " + std::to_string(static_cast<std::int64_t>(s.imm)) : std::string()),
          "Count upwards. To count down from n - 1 to 0, use n - 1 - i in the body");
  require(!unroll || (unroll->rounds >= 1 && unroll->rounds <= Unroll::most),
          "unroll(" + std::to_string(unroll ? unroll->rounds : 0) + ") of for_ is out of range",
          "Use 1 to " + std::to_string(Unroll::most) + ", or omit it");
  const SourceLine line = source_;
  const NodeId counter =
      add({.op = Op::index, .sub = sub(IndexKind::counter), .type = t, .extra = no_wrap_, .imm = ++counters_});
  const BlockId inner = traced_block([&] { body(counter); });
  source_ = line;
  append(
      add({.op = Op::for_, .extra = inner, .args = {begin, end, step, counter}, .imm = unroll ? unroll->rounds : 0}));
}
void Builder::while_(const std::function<NodeId()>& condition, const std::function<void()>& body) {
  NodeId c = no_node;
  const BlockId test = traced_block([&] { c = condition(); });
  const SourceLine line = source_;  // the line of the condition
  require(type(c) == Type{DType::boolean}, "the condition of while_ must be a bool, not " + describe(c));
  const BlockId inner = traced_block(body);
  source_ = line;
  append(add({.op = Op::while_, .extra = inner, .args = {c, test}}));
}
void Builder::return_() { append(add({.op = Op::return_})); }

Function Builder::finish() {
  Function out = canonicalise(fn_);
  verify(out);
  fn_ = Function{};
  known_.clear();
  return out;
}

}  // namespace tessera::ir
