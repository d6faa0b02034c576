// SPDX-License-Identifier: Apache-2.0
// The C dialects that kernels are emitted in: how each spells types, memory, indices, conversions and atomics. To add a
// dialect, add its column to the tables in dialect.cpp, and a branch wherever `opencl`, `metal` or `uses_opencl_names`
// is called: there, dialects differ in more than spelling.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/emit/lower.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

enum class Language : std::uint8_t { opencl, cuda, hip, metal };

/// The matrix instructions of a device (ir::Op::mma). The fragment elements of each lane, with sources, are in
/// prelude_matrix.cpp.
enum class MatrixUnits : std::uint8_t {
  none,     ///< loops (emit/mma.h)
  mma_k8,   ///< NVIDIA from sm_75: mma.sync.m16n8k8 of f16; bf16 in loops
  mma_k16,  ///< NVIDIA from sm_80: mma.sync.m16n8k16 of f16 and bf16
  mfma,     ///< AMD gfx908: v_mfma_f32_16x16x16f16, v_mfma_f32_16x16x8bf16
  mfma_1k,  ///< AMD gfx90a, gfx94x, gfx950: v_mfma_f32_16x16x16f16, v_mfma_f32_16x16x16bf16_1k
  wmma      ///< AMD gfx11, waves of 32: v_wmma_f32_16x16x16_f16, ..._bf16
};
/// For a compute capability as a number: 90 is 9.0. Volta (7.0) gets none, because its quads use other fragment shapes.
MatrixUnits nvidia_matrix_units(int capability);
MatrixUnits amd_matrix_units(std::string_view architecture);  ///< "gfx90a", optionally followed by ":sramecc+"
std::uint32_t matrix_width(MatrixUnits units);                ///< subgroup width that the units require

/// AMD's dot products of packed bytes.
enum class HipDot4 : std::uint8_t {
  none,
  separate,  ///< v_dot4_i32_i8 and v_dot4_u32_u8: gfx906, gfx908, gfx90a, gfx94x, gfx950, gfx1011, gfx1012, gfx103x
  mixed      ///< v_dot4_i32_iu8, with a sign flag for each operand, and v_dot4_u32_u8: gfx11, gfx12
};
HipDot4 amd_dot4(std::string_view architecture);

/// One dialect with the extensions of a device.
struct Dialect {
  Language language = Language::opencl;
  std::string_view name = "OpenCL C 1.2";
  bool fp64 = true;
  bool subgroups = false;         ///< OpenCL: see `opencl_c_with`; CUDA and HIP: always
  bool subgroups_named = false;   ///< OpenCL: by cl_khr_subgroups, which needs a pragma
  bool intel_shuffles = false;    ///< OpenCL: cl_intel_subgroups, else cl_khr_subgroup_shuffle
  bool atomic_i64 = false;        ///< OpenCL: cl_khr_int64_base_atomics and cl_khr_int64_extended_atomics
  bool dot4 = false;              ///< OpenCL: cl_khr_integer_dot_product; CUDA: sm_61 and later
  bool offsets = true;            ///< buffers are passed as {pointer, element offset}: OpenCL has no host pointers
  bool vectors = true;            ///< loads of 2, 3 or 4 elements work at any element's address
  bool expand_math = true;        ///< exp, log, sin, ... of f32 are missing or differ by device
  bool expand_math64 = false;     ///< the same functions of f64 are missing
  bool bf16_convert = false;      ///< CUDA: sm_80 and later
  bool atomic_f64_add = false;    ///< CUDA: sm_60 and later; HIP
  std::uint32_t cuda_width = 32;  ///< lanes of a subgroup in CUDA C, where they are a constant
  MatrixUnits matrix = MatrixUnits::none;  ///< CUDA and HIP
  HipDot4 hip_dot4 = HipDot4::none;        ///< HIP, if `dot4` is set
};

inline bool opencl(const Dialect& d) { return d.language == Language::opencl; }
inline bool metal(const Dialect& d) { return d.language == Language::metal; }
/// Types, constants and functions have their OpenCL C names.
inline bool uses_opencl_names(const Dialect& d) { return opencl(d) || metal(d); }

Dialect opencl_c();  ///< OpenCL C 1.2 without extensions except f64, as PoCL 3.1 compiles it
/// OpenCL C for a device with these extensions (CL_DEVICE_EXTENSIONS) and, from version 3.0 on, these OpenCL C features
/// (CL_DEVICE_OPENCL_C_FEATURES), each surrounded by blanks. Subgroups come from cl_khr_subgroups, the feature
/// __opencl_c_subgroups, or cl_intel_subgroups, and are used only if lanes can also be shuffled.
Dialect opencl_c_with(std::string_view extensions, std::string_view features = {});
Dialect opencl_c_intel();  ///< OpenCL C 3.0 with subgroups, as Intel's compiler accepts it
Dialect cuda_c();          ///< for NVRTC, without headers
Dialect hip_c();           ///< for hiprtc
Dialect metal_c();         ///< Metal Shading Language 2.4: emit/metal.h
/// Adds the features of an architecture: matrix units, byte dot products, bfloat16 conversions. Takes a compute
/// capability as a number (90 is 9.0) or a name such as "gfx90a".
Dialect cuda_c_for(int capability);
void set_capability(Dialect& dialect, int capability);
Dialect hip_c_for(std::string_view architecture);
/// The dialect that the code-generation module compiles to PTX, without a math library. The text is CUDA C, for
/// display; a kernel's entry and arguments are those of emit_c.
Dialect ptx();
Dialect ptx_for(int capability);

/// The lowering target for this dialect. The caller adds the device's limits for blocks and shared memory, and f64.
Target target_of(const Dialect& dialect, bool index64);

/// Helper functions called by emitted kernels. Each used one is placed once, before the kernels of a program.
class Prelude {
 public:
  explicit Prelude(const Dialect& dialect) : dialect_(dialect) {}
  std::string text() const;
  void add(const Prelude& other);  ///< adds the functions of another prelude

  // Each adds its function and returns the name to call. T is the operands' dtype.
  std::string divide(DType t);     ///< x / 0 is 0, the smallest value / -1 wraps
  std::string remainder(DType t);  ///< x % 0 and x % -1 are 0
  std::string minimum(DType t);
  std::string maximum(DType t);
  std::string absolute(DType t);
  std::string to_integer(DType to, DType from);  ///< from a float: truncates, saturates, NaN gives 0
  std::string from_half();                       ///< u16 bits to f32
  std::string to_half();
  std::string dot4(ir::Dot4Signs signs);
  std::string atomic_extreme(bool maximum,
                             DType t);  ///< CUDA and HIP: min or max of f32 or i64, by compare-and-swap
  /// CUDA, HIP, Metal: (value[, lane], lanes in this subgroup); OpenCL, min and max of floats: (value)
  std::string subgroup(ir::SubgroupOp op, DType t);
  std::string metal_compare_exchange(bool is_unsigned, bool shared);  ///< (address, expected, value): the old value
  std::string metal_wide(const char* which);  ///< popcount, clz, mul_hi of unsigned 64-bit integers
  std::string from_bfloat();                  ///< u16 bits to f32
  std::string to_bfloat();

  // Fragments, where the dialect has matrix units: each lane has an array of words (factors) or floats (sums). See
  // prelude_matrix.cpp.
  std::uint32_t matrix_words() const;  ///< of a factor
  std::uint32_t matrix_sums() const;   ///< of an accumulator
  /// (words, pointer, stride, lane): element (o, k), where o is one of 16 rows of the left factor or columns of the
  /// right one, is at o * stride + k if `along_k`, else at k * stride + o. `shared`: the pointer is to shared memory.
  std::string matrix_load(bool along_k, bool shared, bool index64);
  std::string matrix_load_sums(bool index64);   ///< (sums, pointer, row stride, column stride, lane)
  std::string matrix_store_sums(bool index64);  ///< the same arguments
  std::string matrix_fill();                    ///< (sums, value)
  std::string matrix_multiply(DType t);         ///< (sums, left words, right words)

 private:
  std::string function(const std::string& name, const std::string& text);
  std::string inline_prefix() const;
  std::string metal_subgroup(ir::SubgroupOp op, DType t);
  std::string instruction(const std::string& name, const std::string& text);
  std::string matrix_instruction(DType t);
  std::string matrix_shared_load(bool along_k);

  const Dialect& dialect_;
  std::map<std::string, std::string> functions_;
};

/// Every field as text, for the keys of kernels on disk.
std::string text_of(const Dialect& dialect);
std::string text_of(const Target& target);

// Spelling.
std::string type_text(const Dialect& d, DType t);      ///< of values: "float"; f16 and bf16 are their 16 bits
std::string memory_text(const Dialect& d, DType t);    ///< of memory and arguments: bool is one byte
std::string unsigned_text(const Dialect& d, DType t);  ///< the unsigned type in which integers of t wrap
std::string constant_text(const Dialect& d, DType t, std::uint64_t bits);
std::string unsigned_constant_text(const Dialect& d, DType t, std::uint64_t bits);
/// Whether all threads of this kernel's blocks are in the first dimension, in the order of their linear ids. Subgroups
/// are consecutive threads, and OpenCL lets the device choose how it forms them in two or three dimensions (Intel's CPU
/// runtime takes each row separately).
bool flattened(const Dialect& d, const ir::Function& fn);
std::string index_text(const Dialect& d, ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
std::string math_text(const Dialect& d, ir::MathOp op, DType t);  ///< the function's name
std::string bitcast_text(const Dialect& d, DType to, DType from, const std::string& value);
std::string barrier_text(const Dialect& d);
/// The first line of an exact kernel (ir::Function::exact), so that a * b + c is rounded twice. Empty in CUDA C, which
/// uses the compiler option --fmad=false instead.
std::string exact_pragma(const Dialect& d);
std::string subgroup_width_text(const Dialect& d);                ///< CUDA and HIP: number of lanes in a subgroup
std::string print_format(const Dialect& d, DType t, int digits);  ///< "%d"; `digits` of a float, 0: all

}  // namespace tessera::emit
