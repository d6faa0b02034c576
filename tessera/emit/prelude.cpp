// SPDX-License-Identifier: Apache-2.0
// The helper functions of emitted programs. Their text uses the type names of the dialect.
#include <fmt/format.h>

#include "tessera/emit/dialect.h"
#include "tessera/emit/metal.h"

namespace tessera::emit {

namespace {
std::string suffix(DType t) { return std::string(dtype_name(t)); }
}  // namespace

std::string Prelude::inline_prefix() const {
  return opencl(dialect_) || metal(dialect_) ? "inline " : "__device__ __forceinline__ ";
}

std::string Prelude::function(const std::string& name, const std::string& text) {
  // OpenCL C has the `inline` of C99. Without `static`, the linker may require an external definition.
  functions_.try_emplace(name, "static " + inline_prefix() + text + "\n");
  return name;
}

void Prelude::add(const Prelude& other) { functions_.insert(other.functions_.begin(), other.functions_.end()); }

std::string Prelude::text() const {
  std::string out;
  if (opencl(dialect_)) {
    if (dialect_.fp64) out += "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n";
    if (dialect_.atomic_i64)
      out +=
          "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
          "#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable\n";
    if (dialect_.subgroups && dialect_.subgroups_named) out += "#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n";
  }
  if (metal(dialect_)) out += "#include <metal_stdlib>\nusing namespace metal;\n\n";
  for (const auto& [name, text] : functions_) out += text;
  return out;
}

std::string Prelude::vector(ir::Type t) {
  const std::string name = fmt::format("tessera_{}x{}", suffix(t.dtype), t.lanes), of = name + "_of";
  const std::string type = memory_text(dialect_, t.dtype);
  std::string fields, parameters;
  for (std::uint8_t l = 0; l < t.lanes; ++l) {
    fields += fmt::format("{}s{}", l ? ", " : "", l);
    parameters += fmt::format("{}{} s{}", l ? ", " : "", type, l);
  }
  functions_.try_emplace(name, fmt::format("struct alignas({}) {} {{\n  {} {};\n}};\n", t.lanes * dtype_size(t.dtype),
                                           name, type, fields));
  function(of, fmt::format("{0} {1}({2}) {{\n  const {0} v = {{{3}}};\n  return v;\n}}", name, of, parameters, fields));
  return name;
}

// PTX ISA, "Data Movement and Conversion Instructions: cp.async". Copies of 16 bytes bypass the L1 cache.
std::string Prelude::async_copy(std::uint32_t bytes) {
  const std::string name = fmt::format("tessera_copy_async{}", bytes);
  return function(name, fmt::format("void {}(void* to, const void* from) {{\n"
                                    "  unsigned long long at;\n"
                                    "  asm(\"cvta.to.shared.u64 %0, %1;\" : \"=l\"(at) : \"l\"(to));\n"
                                    "  asm volatile(\"cp.async.{}.shared.global [%0], [%1], %2;\"\n"
                                    "      :\n      : \"l\"(at), \"l\"(from), \"n\"({})\n      : \"memory\");\n}}",
                                    name, bytes == 16 ? "cg" : "ca", bytes));
}
std::string Prelude::async_commit() {
  return function("tessera_commit_async",
                  "void tessera_commit_async() {\n"
                  "  asm volatile(\"cp.async.commit_group;\" : : : \"memory\");\n}");
}
std::string Prelude::async_wait(std::uint32_t groups) {
  const std::string name = fmt::format("tessera_wait_async{}", groups);
  return function(name, fmt::format("void {0}() {{\n"
                                    "  asm volatile(\"cp.async.wait_group %0;\" : : \"n\"({1}) : \"memory\");\n}}",
                                    name, groups));
}

std::string Prelude::divide(DType t) {
  const std::string type = type_text(dialect_, t), wrap = unsigned_text(dialect_, t), name = "tessera_div_" + suffix(t);
  const std::string minus = is_signed_int(t) ? fmt::format("b == -1 ? ({})(({})0 - ({})a) : ", type, wrap, wrap) : "";
  return function(
      name, fmt::format("{0} {1}({0} a, {0} b) {{ return b == 0 ? ({0})0 : {2}({0})(a / b); }}", type, name, minus));
}
std::string Prelude::remainder(DType t) {
  const std::string type = type_text(dialect_, t), name = "tessera_rem_" + suffix(t);
  const char* minus = is_signed_int(t) ? " || b == -1" : "";
  return function(
      name, fmt::format("{0} {1}({0} a, {0} b) {{ return b == 0{2} ? ({0})0 : ({0})(a % b); }}", type, name, minus));
}
std::string Prelude::minimum(DType t) {
  const std::string type = type_text(dialect_, t), name = "tessera_min_" + suffix(t);
  return function(name, fmt::format("{0} {1}({0} a, {0} b) {{ return b < a ? b : a; }}", type, name));
}
std::string Prelude::maximum(DType t) {
  const std::string type = type_text(dialect_, t), name = "tessera_max_" + suffix(t);
  return function(name, fmt::format("{0} {1}({0} a, {0} b) {{ return a < b ? b : a; }}", type, name));
}
std::string Prelude::absolute(DType t) {
  const std::string type = type_text(dialect_, t), wrap = unsigned_text(dialect_, t), name = "tessera_abs_" + suffix(t);
  return function(name,
                  fmt::format("{0} {1}({0} a) {{ return a < 0 ? ({0})(({2})0 - ({2})a) : a; }}", type, name, wrap));
}

std::string Prelude::to_integer(DType to, DType from) {
  const std::string type = type_text(dialect_, to), source = type_text(dialect_, from);
  const std::string name = fmt::format("tessera_{}_from_{}", suffix(to), suffix(from));
  const unsigned bits = 8 * static_cast<unsigned>(dtype_size(to));
  const bool is_signed = is_signed_int(to);
  const std::uint64_t most = is_signed ? (std::uint64_t{1} << (bits - 1)) - 1 : ~std::uint64_t{0} >> (64 - bits);
  const std::uint64_t least = is_signed ? ~most : 0;
  // The smallest value and the largest value + 1 are powers of two, so every float type represents them exactly.
  const std::string f = from == DType::f32 ? "f" : "";
  const std::string above = fmt::format("0x1p+{}{}", is_signed ? bits - 1 : bits, f);
  const std::string below = is_signed ? fmt::format("-0x1p+{}{}", bits - 1, f) : "0.0" + f;
  return function(
      name,
      fmt::format("{0} {1}({2} a) {{\n  return a != a ? ({0})0 : a <= {3} ? {4} : a >= {5} ? {6} : ({0})a;\n}}", type,
                  name, source, below, constant_text(dialect_, to, least), above, constant_text(dialect_, to, most)));
}

std::string Prelude::from_half() {
  const std::string name = "tessera_f32_from_f16";
  switch (dialect_.language) {
    case Language::opencl:  // without cl_khr_fp16, OpenCL C only has conversions that read memory
      return function(
          name, "float tessera_f32_from_f16(ushort bits) {\n  return vload_half(0, (const __private half*)&bits);\n}");
    case Language::cuda:
      return function(name,
                      "float tessera_f32_from_f16(unsigned short bits) {\n  float value;\n"
                      "  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(bits));\n  return value;\n}");
    case Language::metal:
      return function(name, "float tessera_f32_from_f16(ushort bits) { return (float)as_type<half>(bits); }");
    default:
      return function(name,
                      "float tessera_f32_from_f16(unsigned short bits) {\n"
                      "  return (float)__builtin_bit_cast(_Float16, bits);\n}");
  }
}
std::string Prelude::to_half() {
  const std::string name = "tessera_f16_from_f32";
  switch (dialect_.language) {
    case Language::opencl:
      return function(name,
                      "ushort tessera_f16_from_f32(float value) {\n  ushort bits;\n"
                      "  vstore_half_rte(value, 0, (__private half*)&bits);\n  return bits;\n}");
    case Language::cuda:
      return function(name,
                      "unsigned short tessera_f16_from_f32(float value) {\n  unsigned short bits;\n"
                      "  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));\n  return bits;\n}");
    case Language::metal:
      return function(name, "ushort tessera_f16_from_f32(float value) { return as_type<ushort>((half)value); }");
    default:
      return function(name,
                      "unsigned short tessera_f16_from_f32(float value) {\n"
                      "  return __builtin_bit_cast(unsigned short, (_Float16)value);\n}");
  }
}

std::string Prelude::from_bfloat() {
  return function("tessera_f32_from_bf16",
                  "float tessera_f32_from_bf16(unsigned short bits) {\n"
                  "  return __uint_as_float((unsigned int)bits << 16);\n}");
}
std::string Prelude::to_bfloat() {
  return function("tessera_bf16_from_f32",
                  "unsigned short tessera_bf16_from_f32(float value) {\n  unsigned short bits;\n"
                  "  asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));\n  return bits;\n}");
}

std::string Prelude::dot4(ir::Dot4Signs signs) {
  const std::string which = {ir::a_is_signed(signs) ? 's' : 'u', ir::b_is_signed(signs) ? 's' : 'u'};
  const std::string name = "tessera_dot4_" + which;
  if (opencl(dialect_))
    return function(
        name,
        fmt::format("int {}(uint a, uint b, int c) {{ return (int)((uint)c + (uint)dot_4x8packed_{}_{}(a, b)); }}",
                    name, which, which == "uu" ? "uint" : "int"));
  if (dialect_.language == Language::hip) {
    const bool mixed = dialect_.hip_dot4 == HipDot4::mixed;
    std::string sum;
    if (which == "uu")
      sum = "(int)__builtin_amdgcn_udot4(a, b, (unsigned int)c, false)";
    else if (mixed)  // has a flag for the sign of each operand
      sum = fmt::format("__builtin_amdgcn_sudot4({}, (int)a, true, (int)b, c, false)", which == "ss");
    else if (which == "ss")
      sum = "__builtin_amdgcn_sdot4((int)a, (int)b, c, false)";
    else  // replaces the unsigned a by a - 128, which is signed, and corrects the result
      sum =
          "(int)((unsigned int)__builtin_amdgcn_sdot4((int)(a ^ 0x80808080u), (int)b, c, false) -\n"
          "               (unsigned int)__builtin_amdgcn_sdot4((int)0x80808080u, (int)b, 0, false))";
    return function(name, fmt::format("int {}(unsigned int a, unsigned int b, int c) {{\n  return {};\n}}", name, sum));
  }
  const char* types = which == "ss" ? "s32.s32" : which == "us" ? "u32.s32" : "u32.u32";
  return function(
      name,
      fmt::format("int {}(unsigned int a, unsigned int b, int c) {{\n  int sum;\n"
                  "  asm(\"dp4a.{} %0, %1, %2, %3;\" : \"=r\"(sum) : \"r\"(a), \"r\"(b), \"r\"(c));\n  return sum;\n}}",
                  name, types));
}

std::string Prelude::atomic_extreme(bool maximum, DType t) {
  const std::string type = type_text(dialect_, t);
  const std::string name = fmt::format("tessera_atomic_{}_{}", maximum ? "max" : "min", suffix(t));
  const bool real = t == DType::f32;
  const std::string bits = real ? "int" : "unsigned long long";
  const std::string best =
      real ? fmt::format("__float_as_int({}(__int_as_float(old), value))", maximum ? "fmaxf" : "fminf")
           : fmt::format("({0})(({1})old {2} value ? ({1})old : value)", bits, type, maximum ? ">" : "<");
  return function(name,
                  fmt::format("{0} {1}({0}* at, {0} value) {{\n  {2} old = *(volatile {2}*)at, seen;\n"
                              "  while ((seen = atomicCAS(({2}*)at, old, {3})) != old) old = seen;\n  return {4};\n}}",
                              type, name, bits, best, real ? "__int_as_float(old)" : "(" + type + ")old"));
}

// `count` lanes of the subgroup have a thread. A shuffle from another lane returns the thread's own value.
std::string Prelude::subgroup(ir::SubgroupOp op, DType t) {
  using ir::SubgroupOp;
  if (metal(dialect_)) return metal_subgroup(op, t);
  const std::string type = type_text(dialect_, t == DType::boolean ? DType::i32 : t);
  const std::string name = fmt::format("tessera_subgroup_{}_{}", ir::name_of(op), suffix(t));
  if (opencl(dialect_)) {  // in OpenCL, min and max are undefined if a lane has NaN
    const bool most = op == SubgroupOp::max;
    return function(name, fmt::format("{0} {1}({0} v) {{\n"
                                      "  const {0} best = sub_group_reduce_{2}(v != v ? {3}({0})INFINITY : v);\n"
                                      "  return sub_group_all(v != v) ? v : best;\n}}",
                                      type, name, most ? "max" : "min", most ? "-" : ""));
  }
  const bool cuda = dialect_.language == Language::cuda;
  const std::string width = subgroup_width_text(dialect_);
  // Shuffles exist for 32-bit and 64-bit values. Narrower values are promoted by the call.
  auto shuffle = [&](std::string_view kind, std::string_view value, std::string_view lane) {
    return cuda
               ? fmt::format("__shfl{}_sync(count == 32 ? 0xffffffffu : (1u << count) - 1u, {}, {})", kind, value, lane)
               : fmt::format("__shfl{}({}, {})", kind, value, lane);
  };
  auto combined = [&](SubgroupOp o) -> std::string {
    const bool real = is_float(t);
    const std::string f = t == DType::f32 ? "f" : "";
    if (o == SubgroupOp::min) return real ? fmt::format("fmin{}(v, other)", f) : "(other < v ? other : v)";
    if (o == SubgroupOp::max) return real ? fmt::format("fmax{}(v, other)", f) : "(v < other ? other : v)";
    if (o == SubgroupOp::any) return "(v | other)";
    if (o == SubgroupOp::all) return "(v & other)";
    return real ? "(v + other)" : fmt::format("({0})(({1})v + ({1})other)", type, unsigned_text(dialect_, t));
  };
  switch (op) {
    case SubgroupOp::sum:
    case SubgroupOp::min:
    case SubgroupOp::max:
    case SubgroupOp::any:
    case SubgroupOp::all:
      return function(
          name, fmt::format("{0} {1}({0} v, int lane, int count) {{\n"
                            "  for (int step = {2} / 2; step > 0; step /= 2) {{\n"
                            "    const {0} other = ({0}){3};\n"
                            "    if (lane + step < count) v = {4};\n  }}\n  return ({0}){5};\n}}",
                            type, name, width, shuffle("_down", "v", "step"), combined(op), shuffle("", "v", "0")));
    case SubgroupOp::inclusive_sum:
    case SubgroupOp::exclusive_sum: {
      const std::string result =
          op == SubgroupOp::inclusive_sum
              ? "  return v;\n"
              : fmt::format("  const {0} before = ({0}){1};\n  return lane == 0 ? ({0})0 : before;\n", type,
                            shuffle("_up", "v", "1"));
      return function(name, fmt::format("{0} {1}({0} v, int lane, int count) {{\n"
                                        "  for (int step = 1; step < {2}; step *= 2) {{\n"
                                        "    const {0} other = ({0}){3};\n"
                                        "    if (lane >= step) v = {4};\n  }}\n{5}}}",
                                        type, name, width, shuffle("_up", "v", "step"), combined(op), result));
    }
    default: {
      const char* from = op == SubgroupOp::shuffle_xor    ? "lane ^ by"
                         : op == SubgroupOp::shuffle_up   ? "lane - by"
                         : op == SubgroupOp::shuffle_down ? "lane + by"
                                                          : "by";
      return function(name, fmt::format("{0} {1}({0} v, int by, int lane, int count) {{\n  const int from = {2};\n"
                                        "  return ({0}){3};\n}}",
                                        type, name, from, shuffle("", "v", "from >= 0 && from < count ? from : lane")));
    }
  }
}

}  // namespace tessera::emit
