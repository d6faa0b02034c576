// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/dialect.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include <fmt/format.h>

#include "tessera/emit/metal.h"
#include "tessera/ir/print.h"
#include "tessera/ir/semantics.h"

namespace tessera::emit {

Dialect opencl_c() { return {}; }
Dialect opencl_c_with(std::string_view extensions, std::string_view features) {
  auto listed = [](std::string_view list, std::string_view name) {
    for (std::size_t at = list.find(name); at != list.npos; at = list.find(name, at + 1))
      if (at > 0 && list[at - 1] == ' ' && at + name.size() < list.size() && list[at + name.size()] == ' ') return true;
    return false;
  };
  auto has = [&](std::string_view name) { return listed(extensions, name); };
  Dialect d;
  d.fp64 = has("cl_khr_fp64");
  d.intel_shuffles = has("cl_intel_subgroups");
  d.subgroups_named = has("cl_khr_subgroups");
  d.subgroups = (d.subgroups_named || listed(features, "__opencl_c_subgroups") || d.intel_shuffles) &&
                (d.intel_shuffles || has("cl_khr_subgroup_shuffle"));
  d.atomic_i64 = has("cl_khr_int64_base_atomics") && has("cl_khr_int64_extended_atomics");
  d.dot4 = has("cl_khr_integer_dot_product");
  return d;
}
Dialect opencl_c_intel() {
  return {.name = "OpenCL C for Intel",
          .fp64 = true,
          .subgroups = true,
          .subgroups_named = true,
          .intel_shuffles = true,
          .atomic_i64 = true};
}
Dialect cuda_c() {
  return {.language = Language::cuda,
          .name = "CUDA C",
          .subgroups = true,
          .atomic_i64 = true,
          .dot4 = true,
          .offsets = false,
          .vectors = false,
          .expand_math = false};  // the functions of CUDA and HIP have a known accuracy, unlike in OpenCL
}
Dialect ptx() {
  Dialect d = cuda_c();
  d.name = "PTX";
  d.expand_math = d.expand_math64 = true;
  return d;
}
Dialect hip_c() {
  return {.language = Language::hip,
          .name = "HIP",
          .subgroups = true,
          .atomic_i64 = true,
          .dot4 = false,
          .offsets = false,
          .vectors = false,
          .expand_math = false,
          .atomic_f64_add = true};
}

MatrixUnits nvidia_matrix_units(int capability) {
  return capability >= 80 ? MatrixUnits::mma_k16 : capability >= 75 ? MatrixUnits::mma_k8 : MatrixUnits::none;
}
namespace {
bool one_of(std::string_view architecture, std::initializer_list<std::string_view> families) {
  return std::ranges::any_of(families, [&](std::string_view f) { return architecture.starts_with(f); });
}
}  // namespace
// Sources: LLVM's "User Guide for AMDGPU Backend" and AMD's ISA guides of CDNA 1 to 3 and RDNA 3. gfx12 also has matrix
// instructions, but with different layouts.
MatrixUnits amd_matrix_units(std::string_view architecture) {
  if (one_of(architecture, {"gfx908"})) return MatrixUnits::mfma;
  if (one_of(architecture, {"gfx90a"})) return MatrixUnits::mfma_1k;
  if (one_of(architecture, {"gfx94", "gfx950"})) return MatrixUnits::mfma_k32;
  return one_of(architecture, {"gfx11"}) ? MatrixUnits::wmma : MatrixUnits::none;
}
std::uint32_t matrix_width(MatrixUnits units) { return fragment_layout(units) == ir::FragmentLayout::mfma ? 64 : 32; }
ir::FragmentLayout fragment_layout(MatrixUnits units) {
  switch (units) {
    case MatrixUnits::none: return ir::FragmentLayout::linear;
    case MatrixUnits::mma_k8:
    case MatrixUnits::mma_k16: return ir::FragmentLayout::mma;
    case MatrixUnits::wmma: return ir::FragmentLayout::wmma;
    default: return ir::FragmentLayout::mfma;
  }
}
bool multiplies_f32(MatrixUnits units) {
  return units == MatrixUnits::mma_k16 || fragment_layout(units) == ir::FragmentLayout::mfma;
}
bool rounds_factors_to_tf32(MatrixUnits units) { return units == MatrixUnits::mma_k16; }
HipDot4 amd_dot4(std::string_view architecture) {
  if (one_of(architecture, {"gfx906", "gfx908", "gfx90a", "gfx94", "gfx950", "gfx1011", "gfx1012", "gfx103"}))
    return HipDot4::separate;
  return one_of(architecture, {"gfx11", "gfx12"}) ? HipDot4::mixed : HipDot4::none;
}

void set_capability(Dialect& d, int capability) {
  d.dot4 = capability >= 61;
  d.bf16_convert = d.async_copies = capability >= 80;
  d.atomic_f64_add = capability >= 60;
  d.matrix = nvidia_matrix_units(capability);
}
Dialect cuda_c_for(int capability) {
  Dialect d = cuda_c();
  set_capability(d, capability);
  return d;
}
Dialect ptx_for(int capability) {
  Dialect d = cuda_c_for(capability);
  d.name = "PTX";
  d.expand_math = d.expand_math64 = d.native_exp = true;
  return d;
}
Dialect hip_c_for(std::string_view architecture) {
  Dialect d = hip_c();
  d.hip_dot4 = amd_dot4(architecture);
  d.dot4 = d.hip_dot4 != HipDot4::none;
  d.matrix = amd_matrix_units(architecture);
  return d;
}

Target target_of(const Dialect& d, bool index64) {
  return {.index64 = index64,
          .guard_map = true,
          .f16_convert = true,
          .bf16_convert = d.bf16_convert,
          .f64 = d.fp64,
          .dot4 = d.dot4,
          .expand_math = d.expand_math,
          .native_exp = d.native_exp,
          .expand_math64 = d.expand_math64,
          .atomic_f32 = !uses_opencl_names(d),
          .atomic_f64_add = d.atomic_f64_add,
          .atomic_f64 = false,
          .atomic_i64 = d.atomic_i64,
          .subgroup_width = d.subgroups ? 0u : 1u,
          .block_operations = false,
          .mma = d.matrix != MatrixUnits::none,
          .mma_bf16 = d.matrix != MatrixUnits::mma_k8,
          .mma_f32 = multiplies_f32(d.matrix),
          .mma_width = matrix_width(d.matrix),
          .layout = fragment_layout(d.matrix),
          .copy_async = d.language == Language::cuda || d.language == Language::hip,
          .vectors = d.vectors};
}

// Uses structured bindings, so that this code does not compile if a new field is missing here.
std::string text_of(const Dialect& d) {
  const auto& [language, name, fp64, subgroups, subgroups_named, intel_shuffles, atomic_i64, dot4, offsets, vectors,
               expand_math, native_exp, expand_math64, bf16_convert, async_copies, atomic_f64_add, cuda_width, matrix,
               hip_dot4] = d;
  return fmt::format("{} ({}) {:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d} {} {} {}", name,
                     static_cast<int>(language), fp64, subgroups, subgroups_named, intel_shuffles, atomic_i64, dot4,
                     offsets, vectors, expand_math, native_exp, expand_math64, bf16_convert, async_copies,
                     atomic_f64_add, cuda_width, static_cast<int>(matrix), static_cast<int>(hip_dot4));
}
std::string text_of(const Target& t) {
  const auto& [index64, guard_map, f16_convert, bf16_convert, f64, dot4, expand_math, native_exp, expand_math64,
               fast_f64, atomic_f32, atomic_f64_add, atomic_f64, atomic_i64, subgroup_width, block_operations, mma,
               mma_bf16, mma_f32, mma_width, layout, copy_async, vectors, aligned_vectors, max_block_threads,
               max_shared_bytes, max_local_bytes] = t;
  return fmt::format(
      "{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d}{:d} {} {} {} {} {} {}", index64,
      guard_map, f16_convert, bf16_convert, f64, dot4, expand_math, native_exp, expand_math64, fast_f64, atomic_f32,
      atomic_f64_add, atomic_f64, atomic_i64, block_operations, mma, mma_bf16, mma_f32, copy_async, vectors,
      aligned_vectors, static_cast<int>(layout), subgroup_width, mma_width, max_block_threads, max_shared_bytes,
      max_local_bytes);
}

const char* global_space(const Dialect& d) { return opencl(d) ? "__global " : metal(d) ? "device " : ""; }

std::string type_text(const Dialect& d, DType t) {
  static constexpr const char* cl[] = {"bool", "char",  "uchar",  "short",  "ushort", "int",   "uint",
                                       "long", "ulong", "ushort", "ushort", "float",  "double"};
  static constexpr const char* c[] = {
      "bool",      "signed char",        "unsigned char",  "short",          "unsigned short", "int",   "unsigned int",
      "long long", "unsigned long long", "unsigned short", "unsigned short", "float",          "double"};
  return (uses_opencl_names(d) ? cl : c)[static_cast<std::size_t>(t)];
}
std::string memory_text(const Dialect& d, DType t) { return type_text(d, t == DType::boolean ? DType::u8 : t); }
std::string unsigned_text(const Dialect& d, DType t) {
  return type_text(d, dtype_size(t) == 8 ? DType::u64 : DType::u32);
}

std::string constant_text(const Dialect& d, DType t, std::uint64_t bits) {
  const char* wide = uses_opencl_names(d) ? "L" : "LL";
  switch (t) {
    case DType::boolean: return bits ? "true" : "false";
    case DType::i8:
    case DType::i16:
    case DType::u8:
    case DType::u16: return fmt::format("({}){}", type_text(d, t), static_cast<std::int64_t>(bits));
    case DType::f16:
    case DType::bf16: return fmt::format("({}){:#06x}", type_text(d, t), bits & 0xffff);
    case DType::i32: {
      const auto v = static_cast<std::int32_t>(bits);
      return v == std::numeric_limits<std::int32_t>::min() ? "(-2147483647 - 1)" : fmt::format("{}", v);
    }
    case DType::u32: return fmt::format("{}u", static_cast<std::uint32_t>(bits));
    case DType::i64: {
      const auto v = static_cast<std::int64_t>(bits);
      if (v == std::numeric_limits<std::int64_t>::min()) return fmt::format("(-9223372036854775807{0} - 1{0})", wide);
      return fmt::format("{}{}", v, wide);
    }
    case DType::u64: return fmt::format("{}u{}", bits, wide);
    case DType::f32: {
      const float v = ir::from_bits<float>(t, bits);
      if (!std::isfinite(v)) return bitcast_text(d, DType::f32, DType::u32, fmt::format("{:#010x}u", bits));
      std::string s = fmt::format("{}", v);
      if (s.find_first_of(".e") == s.npos) s += ".0";
      return s + "f";
    }
    default: {
      const double v = ir::from_bits<double>(t, bits);
      if (!std::isfinite(v)) return bitcast_text(d, DType::f64, DType::u64, fmt::format("{:#018x}u{}", bits, wide));
      std::string s = fmt::format("{}", v);
      if (s.find_first_of(".e") == s.npos) s += ".0";
      return s;
    }
  }
}
std::string unsigned_constant_text(const Dialect& d, DType t, std::uint64_t bits) {
  return constant_text(d, dtype_size(t) == 8 ? DType::u64 : DType::u32, bits);
}

std::string bitcast_text(const Dialect& d, DType to, DType from, const std::string& value) {
  const std::string target = type_text(d, to);
  auto bits = [](DType t) { return t == DType::f16 || t == DType::bf16 ? DType::u16 : t; };
  if (!is_float(bits(to)) && !is_float(bits(from))) return fmt::format("({})({})", target, value);
  if (opencl(d)) return fmt::format("as_{}({})", target, value);
  if (metal(d)) return fmt::format("as_type<{}>({})", target, value);
  if (to == DType::f32) return fmt::format("{}({})", from == DType::i32 ? "__int_as_float" : "__uint_as_float", value);
  if (from == DType::f32) return fmt::format("{}({})", to == DType::i32 ? "__float_as_int" : "__float_as_uint", value);
  if (to == DType::f64) return fmt::format("__longlong_as_double((long long)({}))", value);
  return fmt::format("({})__double_as_longlong({})", target, value);
}

bool flattened(const Dialect& d, const ir::Function& fn) {
  if (!opencl(d) || !d.subgroups || fn.kind != ir::KernelKind::block || fn.block_size[1] * fn.block_size[2] == 1)
    return false;
  return std::ranges::any_of(fn.nodes, [](const ir::Node& n) {
    if (n.op != ir::Op::index) return n.op == ir::Op::subgroup;
    const auto kind = n.kind<ir::IndexKind>();
    return kind >= ir::IndexKind::lane_id && kind <= ir::IndexKind::subgroup_count;
  });
}

namespace {
/// Indices in kernels that are launched with all threads in the first dimension.
std::string flat_index_text(ir::IndexKind kind, std::uint64_t dim, const std::array<std::uint32_t, 3>& block) {
  using ir::IndexKind;
  const std::uint32_t below = dim == 0 ? 1 : dim == 1 ? block[0] : block[0] * block[1];
  std::string thread = "get_local_id(0)";
  if (below > 1) thread += fmt::format(" / {}", below);
  if (dim < 2) thread += fmt::format(" % {}", block[dim]);
  switch (kind) {
    case IndexKind::thread_id: return thread;
    case IndexKind::global_id: return fmt::format("get_group_id({}) * {} + {}", dim, block[dim], thread);
    default: return fmt::format("get_num_groups({}) * {}", dim, block[dim]);
  }
}
}  // namespace

std::string index_text(const Dialect& d, ir::IndexKind kind, std::uint64_t dim, const ir::Function& fn) {
  using ir::IndexKind;
  const char axis = "xyz"[dim];
  if (opencl(d)) {
    const bool of_threads = kind == IndexKind::thread_id || kind == IndexKind::global_id ||
                            kind == IndexKind::grid_size || kind == IndexKind::extent;
    if (of_threads && flattened(d, fn)) return flat_index_text(kind, dim, fn.block_size);
    switch (kind) {
      case IndexKind::global_id: return fmt::format("get_global_id({})", dim);
      case IndexKind::thread_id: return fmt::format("get_local_id({})", dim);
      case IndexKind::block_id: return fmt::format("get_group_id({})", dim);
      case IndexKind::block_count: return fmt::format("get_num_groups({})", dim);
      case IndexKind::grid_size:
      case IndexKind::extent: return fmt::format("get_global_size({})", dim);
      case IndexKind::lane_id: return "get_sub_group_local_id()";
      case IndexKind::subgroup_id: return "get_sub_group_id()";
      case IndexKind::subgroup_size: return "get_max_sub_group_size()";
      default: return "get_num_sub_groups()";
    }
  }
  if (metal(d)) return metal_index_text(kind, dim, fn);
  const std::string width = subgroup_width_text(d);
  std::string linear = "threadIdx.x";
  if (fn.block_size[1] > 1) linear = fmt::format("(threadIdx.y * {} + threadIdx.x)", fn.block_size[0]);
  if (fn.block_size[2] > 1)
    linear = fmt::format("((threadIdx.z * {} + threadIdx.y) * {} + threadIdx.x)", fn.block_size[1], fn.block_size[0]);
  const std::string wide = fn.index64 ? "(long long)" : "";
  switch (kind) {
    case IndexKind::global_id: return fmt::format("{1}blockIdx.{0} * blockDim.{0} + threadIdx.{0}", axis, wide);
    case IndexKind::thread_id: return fmt::format("threadIdx.{}", axis);
    case IndexKind::block_id: return fmt::format("blockIdx.{}", axis);
    case IndexKind::block_count: return fmt::format("gridDim.{}", axis);
    case IndexKind::grid_size:
    case IndexKind::extent: return fmt::format("{1}gridDim.{0} * blockDim.{0}", axis, wide);
    case IndexKind::lane_id: return fmt::format("{} % {}", linear, width);
    case IndexKind::subgroup_id: return fmt::format("{} / {}", linear, width);
    case IndexKind::subgroup_size: return width;
    default: return fmt::format("({} + {} - 1) / {}", fn.threads_per_block(), width, width);
  }
}

std::string math_text(const Dialect& d, ir::MathOp op, DType t) {
  std::string name(ir::name_of(op));
  if (!uses_opencl_names(d) && t == DType::f32) name += "f";
  return name;
}

std::string barrier_text(const Dialect& d) {
  if (metal(d)) return "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);";
  return opencl(d) ? "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" : "__syncthreads();";
}

std::string exact_pragma(const Dialect& d) {
  switch (d.language) {
    case Language::opencl: return "#pragma OPENCL FP_CONTRACT OFF\n";
    case Language::hip: return "#pragma clang fp contract(off)\n";
    case Language::metal: return "#pragma METAL fp contract(off)\n";
    default: return "";
  }
}

std::string subgroup_width_text(const Dialect& d) {
  if (metal(d)) return "(int)threads_per_simdgroup";
  return d.language == Language::cuda ? std::to_string(d.cuda_width) : "warpSize";
}

std::string print_format(const Dialect& d, DType t, int digits) {
  if (is_float(t))
    return "%." + std::to_string(digits ? digits : t == DType::f64 ? ir::double_digits : ir::float_digits) + "g";
  if (t == DType::i64) return opencl(d) ? "%ld" : "%lld";
  if (t == DType::u64) return opencl(d) ? "%lu" : "%llu";
  return is_unsigned_int(t) ? "%u" : "%d";
}

}  // namespace tessera::emit
