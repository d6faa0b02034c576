// SPDX-License-Identifier: Apache-2.0
// Follows Apple's Metal Shading Language Specification, version 2.4. The text was never compiled by Apple's compiler or
// run on an Apple GPU. Tests compile and run it as C++ (tests/drivers/text/metal_on_host.h).
#include "tessera/emit/metal.h"

#include <set>

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/emit/c_writer.h"

namespace tessera::emit {

using namespace ir;

Dialect metal_c() {
  return {.language = Language::metal,
          .name = "Metal Shading Language",
          .fp64 = false,
          .subgroups = true,
          .atomic_i64 = false,
          .dot4 = false,
          .offsets = false,
          .vectors = false,
          .expand_math = true};  // erf is missing, and the accuracy of other functions depends on options
}

bool is_metal_keyword(const std::string& name) {
  static const auto* words =
      new std::set<std::string>{"device",    "vertex",    "fragment", "metal", "bfloat",  "vec",   "array", "mulhi",
                                "mem_flags", "arguments", "object",   "mesh",  "visible", "uint2", "uint3"};
  return words->contains(name) || name.starts_with("thread") || name.starts_with("simd");
}

// Indices.

std::string metal_index_text(IndexKind kind, std::uint64_t dim, const Function& fn) {
  const char axis = "xyz"[dim];
  const char* wide = fn.index64 ? "(long)" : "";
  switch (kind) {
    case IndexKind::global_id:
      return fmt::format(
          "{1}threadgroup_position_in_grid.{0} * threads_per_threadgroup.{0} + "
          "thread_position_in_threadgroup.{0}",
          axis, wide);
    case IndexKind::thread_id: return fmt::format("thread_position_in_threadgroup.{}", axis);
    case IndexKind::block_id: return fmt::format("threadgroup_position_in_grid.{}", axis);
    case IndexKind::block_count: return fmt::format("threadgroups_per_grid.{}", axis);
    case IndexKind::grid_size:
    case IndexKind::extent:
      return fmt::format("{1}threadgroups_per_grid.{0} * threads_per_threadgroup.{0}", axis, wide);
    case IndexKind::lane_id: return "thread_index_in_simdgroup";
    case IndexKind::subgroup_id: return "simdgroup_index_in_threadgroup";
    case IndexKind::subgroup_size: return "threads_per_simdgroup";
    default: return "simdgroups_per_threadgroup";
  }
}

std::string metal_index_arguments(const Function& fn) {
  std::string used;  // the text of all indices that the kernel uses
  for (NodeId id = 1; id < fn.nodes.size(); ++id) {
    const Node& n = fn[id];
    if (n.op == Op::subgroup)
      for (const IndexKind kind : {IndexKind::lane_id, IndexKind::subgroup_id, IndexKind::subgroup_size})
        used += metal_index_text(kind, 0, fn) + " ";
    if (n.op != Op::index) continue;
    const auto kind = n.kind<IndexKind>();
    const bool argument = kind == IndexKind::counter || kind == IndexKind::buffer_size ||
                          (fn.kind == KernelKind::map && (kind == IndexKind::extent || kind == IndexKind::grid_size));
    if (!argument) used += metal_index_text(kind, n.imm, fn) + " ";
  }
  std::string out;
  for (const char* name : {"threadgroup_position_in_grid", "threadgroups_per_grid", "thread_position_in_threadgroup",
                           "threads_per_threadgroup"})
    if (used.find(name) != used.npos) out += fmt::format(",\n    uint3 {0} [[{0}]]", name);
  for (const char* name : {"thread_index_in_simdgroup", "simdgroup_index_in_threadgroup", "threads_per_simdgroup",
                           "simdgroups_per_threadgroup"})
    if (used.find(name) != used.npos) out += fmt::format(",\n    uint {0} [[{0}]]", name);
  return out;
}

// Signature.

std::string CWriter::metal_signature(const std::string& entry, EmittedKernel& kernel) {
  using Kind = KernelArgument::Kind;
  const DType index = fn_.index64 ? DType::i64 : DType::i32;
  const Sizes used = used_sizes();
  std::string list, members, copies;
  std::uint32_t buffers = 0;
  auto member = [&](Kind kind, std::uint32_t number, DType t, const std::string& name) {
    kernel.arguments.push_back({kind, number, t});
    const std::string type = memory_text(dialect_, t);
    members += fmt::format("  {} {};\n", type, name);
    copies += fmt::format("  const {0} {1} = arguments.{1};\n", type, name);
  };
  for (std::uint32_t p = 0; p < fn_.params.size(); ++p) {
    const Param& param = fn_.params[p];
    if (!param.is_buffer) {
      member(Kind::scalar, p, param.dtype, parameter_names_[p]);
      continue;
    }
    kernel.arguments.push_back({Kind::pointer, p, param.dtype});
    list += fmt::format("{}\n    device {}{}* {} [[buffer({})]]", buffers == 0 ? "" : ",",
                        param.access == Access::read ? "const " : "", memory_text(dialect_, param.dtype),
                        parameter_names_[p], buffers);
    ++buffers;
    if (used.of_buffers[p]) member(Kind::length, p, index, size_names_[p]);
  }
  for (std::uint32_t d = 0; d < 3; ++d) {
    if (fn_.kind == KernelKind::map) kernel.dimensions[d] = used.extents[d];
    if (used.extents[d]) member(Kind::extent, d, index, fmt::format("extent_{}", "xyz"[d]));
  }
  if (buffers + (members.empty() ? 0 : 1) > metal_argument_buffers)
    fail<KernelError>({.operation = "kernel " + fn_.name,
                       .with = {{"buffers", std::to_string(buffers)}},
                       .wrong = fmt::format("Metal binds at most {} buffers, and one of them is needed for scalars",
                                            metal_argument_buffers),
                       .remedy = "Split the kernel, or put several arrays into one buffer"});
  std::string text;
  if (!members.empty()) {
    text = fmt::format("struct {}_arguments {{\n{}}};\n", entry, members);
    list +=
        fmt::format("{}\n    constant {}_arguments& arguments [[buffer({})]]", buffers == 0 ? "" : ",", entry, buffers);
  }
  const std::size_t shared = shared_bytes(fn_);
  if (shared != 0) {
    kernel.dynamic_shared_bytes = (shared + 15) & ~std::size_t{15};  // the length must be a multiple of 16
    list += std::string(list.empty() ? "" : ",") + "\n    threadgroup uchar* shared_memory [[threadgroup(0)]]";
  }
  std::string indices = metal_index_arguments(fn_);
  if (list.empty() && !indices.empty()) indices.erase(0, 1);
  if (fn_.kind == KernelKind::block)
    text += fmt::format("[[max_total_threads_per_threadgroup({})]]\n", fn_.threads_per_block());
  return text + "kernel void " + entry + "(" + list + indices + ") {\n" + (fn_.exact ? exact_pragma(dialect_) : "") +
         copies;
}

const char* metal_copy_and_fill() {
  return R"(#include <metal_stdlib>
using namespace metal;

struct tessera_copy_arguments {
  ulong bytes;
};
kernel void tessera_copy(
    device const uchar* from [[buffer(0)]],
    device uchar* to [[buffer(1)]],
    constant tessera_copy_arguments& arguments [[buffer(2)]],
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  const ulong i = (ulong)threadgroup_position_in_grid.x * threads_per_threadgroup.x + thread_position_in_threadgroup.x;
  if (i < arguments.bytes) to[i] = from[i];
}

struct tessera_fill_arguments {
  ulong count;
  uint word;
  uint bytes;
};
kernel void tessera_fill(
    device uchar* to [[buffer(0)]],
    constant tessera_fill_arguments& arguments [[buffer(1)]],
    uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],
    uint3 thread_position_in_threadgroup [[thread_position_in_threadgroup]],
    uint3 threads_per_threadgroup [[threads_per_threadgroup]]) {
  const ulong i = (ulong)threadgroup_position_in_grid.x * threads_per_threadgroup.x + thread_position_in_threadgroup.x;
  if (i < arguments.count)
    for (uint k = 0; k < arguments.bytes; ++k) to[i * arguments.bytes + k] = (uchar)(arguments.word >> (8 * k));
}
)";
}

// Memory.

Text CWriter::metal_atomic(const Node& n) {
  const DType t = n.type.dtype;
  const AtomicOp op = n.kind<AtomicOp>();
  const bool shared = fn_[n.args[0]].op == Op::shared;
  const bool real = t == DType::f32;  // operates on the bits of the float; lowering has left only exchange and
                                      // compare-and-swap
  const std::string type = type_text(dialect_, real ? DType::i32 : t);
  const Text value = take(n.args[2]);
  const Text expected = n.args[3] ? take(n.args[3]) : Text{};
  const std::string at =
      fmt::format("({} atomic_{}*)&{}", shared ? "threadgroup" : "device", type, element(n.args[0], n.args[1]));
  auto bits = [&](const Text& v) {
    return real ? fmt::format("as_type<int>({})", v.s) : fmt::format("({})({})", type, v.s);
  };
  Text out;
  out.loads = true;
  if (op == AtomicOp::cas) {
    out.s = fmt::format("{}({}, {}, {})", prelude_.metal_compare_exchange(t == DType::u32, shared), at, bits(expected),
                        bits(value));
  } else {
    static constexpr const char* names[] = {"fetch_add", "fetch_min", "fetch_max", "exchange",
                                            "",          "fetch_and", "fetch_or",  "fetch_xor"};
    out.s = fmt::format("atomic_{}_explicit({}, {}, memory_order_relaxed)", names[n.sub], at, bits(value));
  }
  if (real) out.s = fmt::format("as_type<float>({})", out.s);
  return out;
}

std::string Prelude::metal_compare_exchange(bool is_unsigned, bool shared) {
  const std::string type = is_unsigned ? "uint" : "int";
  const std::string name = fmt::format("tessera_compare_exchange_{}_{}", type, shared ? "shared" : "device");
  // Metal only has weak compare-and-swap, which may fail even if the memory contains the expected value.
  return function(name, fmt::format("{0} {1}({2} atomic_{0}* at, {0} expected, {0} value) {{\n"
                                    "  {0} seen = expected;\n"
                                    "  while (!atomic_compare_exchange_weak_explicit(at, &seen, value, "
                                    "memory_order_relaxed, memory_order_relaxed))\n"
                                    "    if (seen != expected) return seen;\n"
                                    "  return expected;\n}}",
                                    type, name, shared ? "threadgroup" : "device"));
}

// 64-bit integer functions that Metal lacks.

std::string Prelude::metal_wide(const char* which) {
  const std::string name = fmt::format("tessera_{}_64", which);
  if (std::string_view(which) == "popcount")
    return function(name, "int " + name + "(ulong v) { return (int)(popcount((uint)v) + popcount((uint)(v >> 32))); }");
  if (std::string_view(which) == "clz")
    return function(
        name, "int " + name + "(ulong v) { return (int)(v >> 32 != 0 ? clz((uint)(v >> 32)) : 32 + clz((uint)v)); }");
  return function(name, "ulong " + name +
                            "(ulong a, ulong b) {\n"
                            "  const ulong low = (a & 0xffffffffuL) * (b & 0xffffffffuL), left = (a >> 32) * (b & "
                            "0xffffffffuL),\n"
                            "              right = (a & 0xffffffffuL) * (b >> 32), high = (a >> 32) * (b >> 32);\n"
                            "  const ulong middle = (low >> 32) + (left & 0xffffffffuL) + (right & 0xffffffffuL);\n"
                            "  return high + (left >> 32) + (right >> 32) + (middle >> 32);\n}");
}

Text CWriter::metal_mul_high(DType t, const Text& a, const Text& b) {
  Text high = call(prelude_.metal_wide("mul_hi"), {a, b});
  if (t == DType::u64) return high;
  // Corrects the result for negative factors, because the product is unsigned.
  high.s = fmt::format("(long)({} - (({}) < 0 ? (ulong)({}) : 0uL) - (({}) < 0 ? (ulong)({}) : 0uL))", high.s, a.s, b.s,
                       b.s, a.s);
  high.binding = Binding::unary;
  return high;
}

// Subgroups. Shuffles from lanes without a thread are undefined, so such lanes are never read.

std::string Prelude::metal_subgroup(SubgroupOp op, DType t) {
  const std::string type = type_text(dialect_, t == DType::boolean ? DType::i32 : t);
  const std::string name = fmt::format("tessera_subgroup_{}_{}", name_of(op), dtype_name(t));
  const bool real = is_float(t);
  auto from = [&](std::string_view value, std::string_view lane) -> std::string {
    if (dtype_size(t) == 8)
      return fmt::format("as_type<{}>(simd_shuffle(as_type<uint2>({}), (ushort)({})))", type, value, lane);
    if (t == DType::f32 || t == DType::i32 || t == DType::u32)
      return fmt::format("simd_shuffle({}, (ushort)({}))", value, lane);
    return fmt::format("({})simd_shuffle((int){}, (ushort)({}))", type, value, lane);
  };
  auto combined = [&]() -> std::string {
    switch (op) {
      case SubgroupOp::min: return real ? "fmin(v, other)" : "(other < v ? other : v)";
      case SubgroupOp::max: return real ? "fmax(v, other)" : "(v < other ? other : v)";
      case SubgroupOp::any: return "(v | other)";
      case SubgroupOp::all: return "(v & other)";
      default:
        return real ? "(v + other)" : fmt::format("({0})(({1})v + ({1})other)", type, unsigned_text(dialect_, t));
    }
  };
  switch (op) {
    case SubgroupOp::sum:
    case SubgroupOp::min:
    case SubgroupOp::max:
    case SubgroupOp::any:
    case SubgroupOp::all:
      return function(name, fmt::format("{0} {1}({0} v, int lane, int count) {{\n"
                                        "  for (int step = 1; step < count; step *= 2) {{\n"
                                        "    const {0} other = {2};\n"
                                        "    if (lane + step < count) v = {3};\n  }}\n  return {4};\n}}",
                                        type, name, from("v", "lane + step < count ? lane + step : lane"), combined(),
                                        from("v", "0")));
    case SubgroupOp::inclusive_sum:
    case SubgroupOp::exclusive_sum: {
      const std::string result = op == SubgroupOp::inclusive_sum
                                     ? "  return v;\n"
                                     : fmt::format("  const {0} before = {1};\n  return lane == 0 ? ({0})0 : before;\n",
                                                   type, from("v", "lane >= 1 ? lane - 1 : lane"));
      return function(name,
                      fmt::format("{0} {1}({0} v, int lane, int count) {{\n"
                                  "  for (int step = 1; step < count; step *= 2) {{\n"
                                  "    const {0} other = {2};\n"
                                  "    if (lane >= step) v = {3};\n  }}\n{4}}}",
                                  type, name, from("v", "lane >= step ? lane - step : lane"), combined(), result));
    }
    default: {
      const char* lane = op == SubgroupOp::shuffle_xor    ? "lane ^ by"
                         : op == SubgroupOp::shuffle_up   ? "lane - by"
                         : op == SubgroupOp::shuffle_down ? "lane + by"
                                                          : "by";
      return function(name, fmt::format("{0} {1}({0} v, int by, int lane, int count) {{\n  const int from = {2};\n"
                                        "  return {3};\n}}",
                                        type, name, lane, from("v", "from >= 0 && from < count ? from : lane")));
    }
  }
}

}  // namespace tessera::emit
