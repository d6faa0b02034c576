// SPDX-License-Identifier: Apache-2.0
// Names, signature, declarations and statements. Expressions are in c_expressions.cpp.
#include "tessera/emit/c_writer.h"

#include <algorithm>

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/emit/metal.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/multiple.h"
#include "tessera/ir/print.h"

namespace tessera::emit {

using namespace ir;

namespace {

// Returns the names that parameters must not have: keywords, and functions that the emitted text calls.
const std::set<std::string>& reserved() {
  static const auto* words = new std::set<std::string>{
      "auto",      "bool",     "break",   "case",     "char",      "class",   "const",    "constant", "continue",
      "default",   "delete",   "do",      "double",   "else",      "enum",    "extern",   "false",    "float",
      "for",       "global",   "goto",    "half",     "if",        "image",   "inline",   "int",      "kernel",
      "local",     "long",     "new",     "operator", "pipe",      "private", "quad",     "register", "restrict",
      "return",    "short",    "signed",  "sizeof",   "static",    "struct",  "switch",   "template", "this",
      "true",      "typedef",  "uchar",   "uint",     "ulong",     "union",   "unsigned", "ushort",   "void",
      "volatile",  "while",    "generic", "uniform",  "event",     "size_t",  "barrier",  "printf",   "abs",
      "clz",       "cos",      "erf",     "exp",      "exp2",      "fabs",    "floor",    "ceil",     "fma",
      "fmax",      "fmin",     "fmod",    "log",      "log2",      "max",     "min",      "mul_hi",   "popcount",
      "pow",       "rint",     "rsqrt",   "sin",      "sqrt",      "tanh",    "trunc",    "select",   "threadIdx",
      "blockIdx",  "blockDim", "gridDim", "warpSize", "linux",     "unix",    "complex",  "asm",      "typeof",
      "namespace", "using",    "virtual", "public",   "protected", "try",     "catch",    "throw",    "friend",
      "mutable",   "explicit", "export",  "typename", "wchar_t",   "nullptr", "and",      "or",       "not",
      "xor"};
  return *words;
}

}  // namespace

CWriter::CWriter(const Function& fn, const Dialect& dialect, bool noalias, Prelude& prelude)
    : fn_(fn),
      dialect_(dialect),
      noalias_(noalias),
      prelude_(prelude),
      uses_(fn.nodes.size()),
      names_(fn.nodes.size()),
      pending_(fn.nodes.size()) {}

void CWriter::refuse(NodeId id, const std::string& what) const {
  const std::string where = to_string(fn_.sources[id]);
  fail<KernelError>({.operation = where.empty() ? "kernel " + fn_.name : "kernel " + fn_.name + ", " + where,
                     .wrong = what + " cannot be written in " + std::string(dialect_.name)});
}

// Use counts. A value is inlined if it is used only once, in the block that computes it.

void CWriter::use(NodeId id, BlockId b) {
  Use& u = uses_[id];
  u.one_block = u.count == 0 || u.block == b;
  u.block = b;
  ++u.count;
}
void CWriter::count_uses(BlockId b) {
  for (NodeId id : fn_.blocks[b]) {
    const Node& n = fn_[id];
    for (NodeId a : operands(n)) use(a, n.op == Op::while_ ? n.args[1] : b);
    if (n.op == Op::for_) use(n.args[3], n.extra);
    for_each_nested(n, [&](BlockId inner) { count_uses(inner); });
  }
}

// Names.

std::string CWriter::fresh_name(std::string wanted) {
  wanted = identifier(wanted);
  if (reserved().contains(wanted) || wanted.starts_with("__") || wanted.starts_with("get_") ||
      wanted.starts_with("as_") || wanted.starts_with("atom") || wanted.starts_with("sub_group") ||
      wanted.starts_with("tessera_") || (metal(dialect_) && is_metal_keyword(wanted)))
    wanted += "_";
  while (!taken_.insert(wanted).second) wanted += "_";
  return wanted;
}

void CWriter::name_parameters() {
  for (const Param& p : fn_.params) parameter_names_.push_back(fresh_name(p.name.empty() ? "p" : p.name));
  // These names are chosen last, so that a parameter that the user named "x_size" keeps its name.
  for (const std::string& name : parameter_names_) {
    offset_names_.push_back(fresh_name(name + "_offset"));
    size_names_.push_back(fresh_name(name + "_size"));
  }
}

void CWriter::name_leaf(NodeId id) {
  const Node& n = fn_[id];
  static constexpr const char* index_names[] = {
      "gid", "tid", "block", "", "blocks", "threads", "extent", "lane", "subgroup", "subgroup_width", "subgroups"};
  switch (n.op) {
    case Op::param: names_[id] = parameter_names_[n.imm]; break;
    case Op::local:
      names_[id] = fresh_name((is_fragment(n) ? "matrix" : n.imm == 1 ? "var" : "local") + std::to_string(n.extra));
      break;
    case Op::shared: names_[id] = fresh_name(fmt::format("shared{}", n.extra)); break;
    case Op::index: {
      const auto kind = n.kind<IndexKind>();
      if (kind == IndexKind::counter)
        names_[id] = fresh_name(fmt::format("i{}", n.imm));
      else if (kind == IndexKind::buffer_size)
        names_[id] = size_names_[n.imm];
      else if (kind >= IndexKind::lane_id)
        names_[id] = fresh_name(index_names[n.sub]);
      else
        names_[id] = fresh_name(fmt::format("{}_{}", index_names[n.sub], "xyz"[n.imm]));
      break;
    }
    default: break;
  }
}

std::string CWriter::value_type(Type t) const {
  if (t.lanes == 1) return type_text(dialect_, t.dtype);
  if (!dialect_.vectors) return prelude_.vector(t);
  return memory_text(dialect_, t.dtype) + std::to_string(t.lanes);
}

CWriter::Sizes CWriter::used_sizes() const {
  Sizes used{.of_buffers = std::vector<bool>(fn_.params.size())};
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    const Node& n = fn_[id];
    if (n.op != Op::index) continue;
    if (n.kind<IndexKind>() == IndexKind::buffer_size) used.of_buffers[n.imm] = true;
    if (fn_.kind == KernelKind::map &&
        (n.kind<IndexKind>() == IndexKind::extent || n.kind<IndexKind>() == IndexKind::grid_size))
      used.extents[n.imm] = true;
  }
  return used;
}

std::string CWriter::signature(const std::string& entry, EmittedKernel& kernel) {
  if (metal(dialect_)) return metal_signature(entry, kernel);
  using Kind = KernelArgument::Kind;
  const DType index = fn_.index64 ? DType::i64 : DType::i32;
  std::vector<std::string> list;
  const Sizes used = used_sizes();
  for (std::uint32_t p = 0; p < fn_.params.size(); ++p) {
    const Param& param = fn_.params[p];
    const std::string type = memory_text(dialect_, param.dtype);
    const std::string& name = parameter_names_[p];
    if (!param.is_buffer) {
      kernel.arguments.push_back({Kind::scalar, p, param.dtype});
      list.push_back(fmt::format("const {} {}", type, name));
      continue;
    }
    kernel.arguments.push_back({Kind::pointer, p, param.dtype});
    list.push_back(fmt::format("{}{}{}*{} {}", global_space(dialect_), param.access == Access::read ? "const " : "",
                               type,
                               !noalias_          ? ""
                               : opencl(dialect_) ? " restrict"
                                                  : " __restrict__",
                               name));
    if (dialect_.offsets) {
      kernel.arguments.push_back({Kind::offset, p, DType::u64});
      list.push_back(fmt::format("const {} {}", type_text(dialect_, DType::u64), offset_names_[p]));
    }
    if (used.of_buffers[p]) {
      kernel.arguments.push_back({Kind::length, p, index});
      list.push_back(fmt::format("const {} {}", type_text(dialect_, index), size_names_[p]));
    }
  }
  for (std::uint32_t d = 0; d < 3; ++d) {
    if (fn_.kind == KernelKind::map) kernel.dimensions[d] = used.extents[d];
    if (!used.extents[d]) continue;
    kernel.arguments.push_back({Kind::extent, d, index});
    list.push_back(fmt::format("const {} extent_{}", type_text(dialect_, index), "xyz"[d]));
  }
  std::string head;
  if (opencl(dialect_)) {
    head = "__kernel ";
    kernel.flat = flattened(dialect_, fn_);
    std::array<std::uint32_t, 3> block = fn_.block_size;
    if (kernel.flat) block = {fn_.threads_per_block(), 1, 1};
    if (fn_.kind == KernelKind::block)
      head += fmt::format("__attribute__((reqd_work_group_size({}, {}, {})))\n", block[0], block[1], block[2]);
  } else {
    head = "extern \"C\" __global__ ";
    if (fn_.kind == KernelKind::block) {
      // The second number of HIP has another meaning.
      const bool bounded = dialect_.language == Language::cuda;
      head += fmt::format("__launch_bounds__({}{}) ", fn_.threads_per_block(),
                          bounded ? fmt::format(", {}", blocks_at_least(fn_)) : "");
    }
  }
  std::string text = head + "void " + entry + "(";
  for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : ",") + std::string("\n    ") + list[i];
  return text + ") {\n" + (fn_.exact ? exact_pragma(dialect_) : "");
}

std::string CWriter::declarations(EmittedKernel& kernel) {
  std::string out;
  auto add = [&](const std::string& text) { out += "  " + text + "\n"; };
  if (dialect_.offsets)
    for (std::size_t p = 0; p < fn_.params.size(); ++p)
      if (fn_.params[p].is_buffer) add(fmt::format("{} += {};", parameter_names_[p], offset_names_[p]));
  // Above the limit of static shared memory, CUDA and HIP use one block of dynamic shared memory.
  const bool slab = metal(dialect_) ? shared_bytes(fn_) != 0 : !opencl(dialect_) && shared_bytes(fn_) > 49152;
  const char* space = metal(dialect_) ? "threadgroup " : "";
  std::size_t offset = 0;
  if (slab && !metal(dialect_)) {
    kernel.dynamic_shared_bytes = shared_bytes(fn_);
    add("extern __shared__ __align__(16) unsigned char shared_memory[];");
  }
  const std::string index = type_text(dialect_, fn_.index64 ? DType::i64 : DType::i32);
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    const Node& n = fn_[id];
    if (n.op == Op::shared) {
      const std::string type = memory_text(dialect_, n.type.dtype);
      if (slab) {
        offset = (offset + 15) & ~std::size_t{15};
        add(fmt::format("{3}{0}* const {1} = ({3}{0}*)(shared_memory + {2});", type, names_[id], offset, space));
        offset += n.imm * dtype_size(n.type.dtype);
      } else {
        // Rows of factors are read with 16-byte loads, and asynchronous copies write 16 bytes.
        const bool factors = std::ranges::any_of(fn_.nodes, [&](const Node& m) {
          return (m.op == Op::mma && m.kind<MmaOp>() == MmaOp::load && m.args[1] == id) ||
                 (m.op == Op::async && m.args[0] == id);
        });
        add(fmt::format("{} {}{} {}[{}];", opencl(dialect_) ? "__local" : "__shared__",
                        factors && !opencl(dialect_) ? "__align__(16) " : "", type, names_[id], n.imm));
      }
    } else if (is_fragment(n)) {
      if (dialect_.matrix == MatrixUnits::none) refuse(id, "a matrix product");
      const bool sums = n.kind<FragmentRole>() == FragmentRole::accumulator;
      add(fmt::format("{} {}[{}] = {{0}};", sums ? "float" : "unsigned int", names_[id],
                      sums ? prelude_.matrix_sums() : prelude_.matrix_words(n.type.dtype)));
    } else if (n.op == Op::local) {
      const bool one = n.imm == 1;
      const std::string type = one || n.type.lanes > 1 ? value_type(n.type) : memory_text(dialect_, n.type.dtype);
      if (one)
        add(fmt::format("{} {} = {};", type, names_[id],
                        n.type.lanes > 1                 ? "(" + type + ")(0)"
                        : n.type.dtype == DType::boolean ? "false"
                                                         : "0"));
      else
        add(fmt::format("{} {}[{}] = {{0}};", type, names_[id], n.imm));
    } else if (n.op == Op::index) {
      const auto kind = n.kind<IndexKind>();
      const bool argument =
          kind == IndexKind::counter || kind == IndexKind::buffer_size ||
          (fn_.kind == KernelKind::map && (kind == IndexKind::extent || kind == IndexKind::grid_size));
      if (!argument) add(fmt::format("const {} {} = {};", index, names_[id], index_text(dialect_, kind, n.imm, fn_)));
    }
  }
  return out;
}

EmittedKernel CWriter::run(const std::string& entry) {
  EmittedKernel kernel;
  kernel.entry = entry;
  taken_.insert({entry, "extent_x", "extent_y", "extent_z", "shared_memory"});
  name_parameters();
  const std::string head = signature(entry, kernel);
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    name_leaf(id);
    // The signature contains these values, so they need no declaration.
    const Node& n = fn_[id];
    if (n.op != Op::index) continue;
    const auto kind = n.kind<IndexKind>();
    if (kind == IndexKind::buffer_size) names_[id] = size_names_[n.imm];
    if (fn_.kind == KernelKind::map && (kind == IndexKind::extent || kind == IndexKind::grid_size))
      names_[id] = fmt::format("extent_{}", "xyz"[n.imm]);
  }
  count_uses(0);
  const std::string declared = declarations(kernel);
  block(0);
  kernel.text = head + declared + body_ + "}\n";
  return kernel;
}

// Statements.

void CWriter::line(const std::string& text) {
  body_ += std::string(2 * static_cast<std::size_t>(depth_), ' ') + text + "\n";
}

void CWriter::define(NodeId id, const Text& text) {
  names_[id] = fresh_name(fmt::format("v{}", ++values_));
  line(fmt::format("const {} {} = {};", value_type(fn_[id].type), names_[id], text.s));
}

void CWriter::flush_pending(bool all) {
  std::vector<NodeId> kept;
  const std::vector<NodeId> order = std::move(pending_order_);
  for (NodeId id : order) {
    if (all || pending_[id].loads)
      define(id, pending_[id]);
    else
      kept.push_back(id);
  }
  pending_order_ = std::move(kept);
}

void CWriter::block(BlockId b) {
  const std::vector<NodeId> outer = std::move(pending_order_);
  pending_order_.clear();
  for (NodeId id : fn_.blocks[b]) statement(id, b);
  pending_order_ = outer;
}

void CWriter::statement(NodeId id, BlockId b) {
  const Node& n = fn_[id];
  switch (n.op) {
    case Op::store: return store(n);
    case Op::print:
      if (metal(dialect_)) refuse(id, "print");
      return print(n);
    case Op::mma: return matrix(n);
    case Op::async: return async(n);
    case Op::barrier: flush_pending(false); return line(barrier_text(dialect_));
    case Op::atomic: {
      const Text t = atomic(n);
      flush_pending(false);
      if (uses_[id].count == 0)
        line((t.s[0] == '(' ? "(void)" : "") + t.s + ";");
      else
        define(id, t);
      return;
    }
    case Op::if_: {
      const Text c = take(n.args[0]);
      flush_pending(false);
      line(fmt::format("if ({}) {{", c.s));
      ++depth_;
      block(n.args[1]);
      --depth_;
      if (n.args[2] != no_block) {
        line("} else {");
        ++depth_;
        block(n.args[2]);
        --depth_;
      }
      return line("}");
    }
    case Op::for_: return loop_for(n);
    case Op::while_: return loop_while(n);
    default: break;
  }
  const Text t = expression(id);
  const Use& u = uses_[id];
  const bool inlined = u.count == 1 && u.one_block && u.block == b && t.s.size() <= 100 && n.op != Op::subgroup;
  if (!inlined) {
    define(id, t);
  } else {
    pending_[id] = t;
    pending_order_.push_back(id);
  }
}

void CWriter::store(const Node& n) {
  const Text v = take(n.args[2]);
  const Node& memory = fn_[n.args[0]];
  if (n.type.lanes > 1 && memory.type.lanes == 1) {
    const Text at = take(n.args[1]);
    flush_pending(false);
    const std::string pointer = address(n.args[0], at);
    if (access_lanes(fn_, n) == n.type.lanes)
      return line(fmt::format("*({}{}*)({}) = {};", global_space(dialect_), value_type(n.type), pointer, v.s));
    return line(fmt::format("vstore{}({}, 0, {});", n.type.lanes, v.s, pointer));
  }
  const std::string target = element(n.args[0], n.args[1]);
  flush_pending(false);
  line(fmt::format("{} = {};", target, v.s));
}

std::string CWriter::address(NodeId memory, const Text& at) const {
  return names_[memory] + (at.s == "0" ? "" : " + " + (at.binding < Binding::sum ? "(" + at.s + ")" : at.s));
}

void CWriter::async(const Node& n) {
  const AsyncOp op = n.kind<AsyncOp>();
  if (op != AsyncOp::copy) {
    flush_pending(false);
    if (!dialect_.async_copies) return;
    return op == AsyncOp::commit ? line(prelude_.async_commit() + "();")
                                 : line(fmt::format("{}();", prelude_.async_wait(static_cast<std::uint32_t>(n.imm))));
  }
  const Text at = take(n.args[1]), first = take(n.args[3]);
  flush_pending(false);
  const std::string to = address(n.args[0], at), from = address(n.args[2], first);
  const auto bytes = static_cast<std::uint32_t>(n.imm * dtype_size(n.type.dtype));
  if (dialect_.async_copies) return line(fmt::format("{}({}, {});", prelude_.async_copy(bytes), to, from));
  const std::string whole = bytes == 4 ? type_text(dialect_, DType::u32)
                                       : prelude_.vector({DType::u32, static_cast<std::uint8_t>(bytes / 4)});
  line(fmt::format("*({0}*)({1}) = *(const {0}*)({2});", whole, to, from));
}

// A fragment variable stores the elements of this lane. Operations are helper functions, which know the position of
// these elements.
void CWriter::matrix(const Node& n) {
  const MmaOp op = n.kind<MmaOp>();
  // Pending loads may read elements of an accumulator that this operation changes.
  if (op == MmaOp::store || is_accumulator(fn_[n.args[0]])) flush_pending(false);
  const std::string& mine = names_[n.args[0]];
  if (op == MmaOp::multiply) {
    const DType t = fn_[n.args[1]].type.dtype;
    return line(fmt::format("{}({}, {}, {});", prelude_.matrix_multiply(t, n.extra != 0), mine, names_[n.args[1]],
                            names_[n.args[2]]));
  }
  if (op == MmaOp::fill) return line(fmt::format("{}({}, {});", prelude_.matrix_fill(), mine, take(n.args[1]).s));
  const Text at = take(n.args[2]), stride = take(n.args[3]);
  const std::string from =
      names_[n.args[1]] + (at.s == "0" ? "" : " + " + (at.binding < Binding::product ? "(" + at.s + ")" : at.s));
  const std::string lane = index_text(dialect_, IndexKind::lane_id, 0, fn_);
  const bool transposed = op == MmaOp::load && n.extra != 0, shared = fn_[n.args[1]].op == Op::shared;
  const FragmentRole role = fn_[n.args[0]].kind<FragmentRole>();
  if (role != FragmentRole::accumulator) {
    const bool along_k = (role == FragmentRole::left) != transposed;
    const DType t = fn_[n.args[0]].type.dtype;
    const bool words = t == DType::i8;                          // a row of 32 i8 is a row of 16 u16
    const std::int64_t row = words || t == DType::f32 ? 4 : 8;  // elements of 16 bytes
    const bool aligned = known_multiple(fn_, n.args[2]) % row == 0 && known_multiple(fn_, n.args[3]) % row == 0;
    const std::string load = t == DType::f32 ? prelude_.matrix_load_f32(along_k, shared, aligned, fn_.index64)
                                             : prelude_.matrix_load(role, along_k, shared, aligned, fn_.index64);
    if (!words) return line(fmt::format("{}({}, {}, {}, {});", load, mine, from, stride.s, lane));
    return line(fmt::format("{}({}, (const unsigned short*)({}), 2 * ({}), {});", load, mine, from, stride.s, lane));
  }
  const std::string call =
      op == MmaOp::store ? prelude_.matrix_store_sums(fn_.index64) : prelude_.matrix_load_sums(fn_.index64);
  line(fmt::format("{}({}, {}, {}, {}, {});", call, mine, from, transposed ? "1" : stride.s,
                   transposed ? stride.s : "1", lane));
}

void CWriter::print(const Node& n) {
  std::string format, list, named;
  std::size_t next = 0;
  const auto values = operands(n);
  for (const PrintPiece& piece : print_pieces(fn_.strings[n.extra])) {
    for (const char c : piece.text) {
      if (c == '%')
        format += "%%";
      else if (c == '"' || c == '\\')
        format += std::string("\\") + c;
      else if (c == '\n')
        format += "\\n";
      else
        format += c;
    }
    if (!piece.value) continue;
    const NodeId id = values[next++];
    const DType t = fn_[id].type.dtype;
    format += print_format(dialect_, t, piece.digits);
    const std::string text = take(id).s;
    if (is_float(t)) {  // removes the sign of a NaN, which the host's printf would print
      const std::string name = fmt::format("shown{}", next);
      named += fmt::format("const {} {} = {}; ", t == DType::f64 ? "double" : "float", name, text);
      list += fmt::format(", {0} != {0} ? fabs({0}) : {0}", name);
    } else {
      list += ", " + text;
    }
  }
  flush_pending(false);
  const std::string call = fmt::format("printf(\"{}\\n\"{});", format, list);
  line(named.empty() ? call : "{ " + named + call + " }");
}

void CWriter::loop_for(const Node& n) {
  const Text begin = take(n.args[0]);
  Text end = take(n.args[1]), step = take(n.args[2]);
  flush_pending(false);
  // The end and the step are read once, before the loop.
  auto hold = [&](Text& t, const char* what) {
    if (!t.loads) return;
    const std::string name = fresh_name(fmt::format("{}{}", what, ++values_));
    line(fmt::format("const {} {} = {};", value_type(fn_[n.args[0]].type), name, t.s));
    t = {name};
  };
  hold(end, "end"), hold(step, "step");
  const Node& counter = fn_[n.args[3]];
  const std::string& i = names_[n.args[3]];
  const std::string type = value_type(counter.type);
  const Node& s = fn_[n.args[2]];
  const Text limit = infix({i}, "<", end, Binding::less);
  std::string advance;
  if (s.op == Op::constant && s.imm == 1) {
    advance = "++" + i;
  } else if (counter.extra) {
    advance = fmt::format("{} += {}", i, step.s);
  } else {  // if the user chose the counter type, i + step may wrap
    const std::string wide = unsigned_text(dialect_, counter.type.dtype);
    auto closed = [](const Text& t) { return t.binding < Binding::unary ? "(" + t.s + ")" : t.s; };
    const std::string e = closed(end), by = closed(step);
    advance = fmt::format("{0} = ({1}){2} - ({1}){0} > ({1}){3} ? ({4})({0} + {3}) : {2}", i, wide, e, by, type);
  }
  if (n.imm != 0)  // OpenCL has no standard pragma, but Clang and the vendors' compilers know this one
    line(metal(dialect_) ? fmt::format("#pragma clang loop unroll_count({})", n.imm)
                         : fmt::format("#pragma unroll {}", n.imm));
  line(fmt::format("for ({} {} = {}; {}; {}) {{", type, i, begin.s, limit.s, advance));
  ++depth_;
  block(n.extra);
  --depth_;
  line("}");
}

void CWriter::loop_while(const Node& n) {
  flush_pending(false);
  // If the condition needs statements, they are written into the loop. Otherwise the condition is written in the head
  // of the loop.
  const std::string before = std::move(body_);
  body_.clear();
  ++depth_;
  const std::vector<NodeId> outer = std::move(pending_order_);
  pending_order_.clear();
  for (NodeId id : fn_.blocks[n.args[1]]) statement(id, n.args[1]);
  const Text c = take(n.args[0]);
  pending_order_ = outer;
  --depth_;
  const std::string computed = std::move(body_);
  body_ = before;
  if (computed.empty()) {
    line(fmt::format("while ({}) {{", c.s));
  } else {
    line("while (true) {");
    body_ += computed;
    ++depth_;
    line(fmt::format("if (!{}) break;", c.binding < Binding::unary ? "(" + c.s + ")" : c.s));
    --depth_;
  }
  ++depth_;
  block(n.extra);
  --depth_;
  line("}");
}

}  // namespace tessera::emit
