// SPDX-License-Identifier: Apache-2.0
// The C dialects that kernels are emitted in: how each spells types, memory, indices, conversions and atomics.
// To add a dialect, add its column to the tables in dialect.cpp, and a branch to what asks `opencl`, `metal` or
// `uses_opencl_names` elsewhere: where dialects differ by more than a word.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/emit/lower.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

enum class Language : std::uint8_t { opencl, cuda, hip, metal };

/// The instructions by which a device multiplies fragments (ir::Op::mma). What each lane holds of a fragment, and where
/// that is written down, stands in prelude_matrix.cpp.
enum class MatrixUnits : std::uint8_t {
  none,     ///< loops (emit/mma.h)
  mma_k8,   ///< NVIDIA from sm_75: mma.sync.m16n8k8 of f16; bf16 in loops
  mma_k16,  ///< NVIDIA from sm_80: mma.sync.m16n8k16 of f16 and bf16
  mfma,     ///< AMD gfx908: v_mfma_f32_16x16x16f16, v_mfma_f32_16x16x8bf16
  mfma_1k,  ///< AMD gfx90a, gfx94x, gfx950: v_mfma_f32_16x16x16f16, v_mfma_f32_16x16x16bf16_1k
  wmma      ///< AMD gfx11, waves of 32: v_wmma_f32_16x16x16_f16, ..._bf16
};
/// Of a compute capability as a number: 90 is 9.0. Volta's (7.0) are left unused: their quads hold other shapes.
MatrixUnits nvidia_matrix_units(int capability);
MatrixUnits amd_matrix_units(std::string_view architecture);  ///< "gfx90a", also with ":sramecc+" behind it
std::uint32_t matrix_width(MatrixUnits units);  ///< threads of the subgroups whose fragments they multiply

/// AMD's products of bytes.
enum class HipDot4 : std::uint8_t {
  none,
  separate,  ///< v_dot4_i32_i8 and v_dot4_u32_u8: gfx906, gfx908, gfx90a, gfx94x, gfx950, gfx1011, gfx1012, gfx103x
  mixed      ///< v_dot4_i32_iu8, which takes a sign for each operand, and v_dot4_u32_u8: gfx11, gfx12
};
HipDot4 amd_dot4(std::string_view architecture);

/// One dialect with the extensions that the device at hand has.
struct Dialect {
  Language language = Language::opencl;
  std::string_view name = "OpenCL C 1.2";
  bool fp64 = true;
  bool subgroups = false;         ///< OpenCL: see `opencl_c_with`; CUDA and HIP: always
  bool subgroups_named = false;   ///< OpenCL: they are cl_khr_subgroups, which the text must turn on
  bool intel_shuffles = false;    ///< OpenCL: cl_intel_subgroups, else cl_khr_subgroup_shuffle
  bool atomic_i64 = false;        ///< OpenCL: cl_khr_int64_base_atomics and cl_khr_int64_extended_atomics
  bool dot4 = false;              ///< OpenCL: cl_khr_integer_dot_product; CUDA: from sm_61 on
  bool offsets = true;            ///< buffers come as {pointer, element offset}: OpenCL has no pointers on the host
  bool vectors = true;            ///< loads of 2, 3 or 4 elements from any element's address
  bool expand_math = true;        ///< exp, log, sin, ... of f32 are not the compiler's, or differ by device
  bool expand_math64 = false;     ///< those of f64 are not the compiler's
  bool bf16_convert = false;      ///< CUDA: from sm_80 on
  bool atomic_f64_add = false;    ///< CUDA: from sm_60 on; HIP
  std::uint32_t cuda_width = 32;  ///< lanes of a subgroup in CUDA C, where they are a constant
  MatrixUnits matrix = MatrixUnits::none;  ///< CUDA and HIP
  HipDot4 hip_dot4 = HipDot4::none;        ///< HIP, where `dot4` is set
};

inline bool opencl(const Dialect& d) { return d.language == Language::opencl; }
inline bool metal(const Dialect& d) { return d.language == Language::metal; }
/// Types, constants and functions are called as in OpenCL C.
inline bool uses_opencl_names(const Dialect& d) { return opencl(d) || metal(d); }

Dialect opencl_c();  ///< OpenCL C 1.2 without extensions but f64: what PoCL 3.1 takes
/// OpenCL C for a device with these extensions, as CL_DEVICE_EXTENSIONS lists them, and these features of its OpenCL C,
/// as CL_DEVICE_OPENCL_C_FEATURES does (version 3.0 on); a blank on either side of each. There are subgroups by
/// cl_khr_subgroups, by the feature __opencl_c_subgroups, and by cl_intel_subgroups, if lanes can be shuffled too.
Dialect opencl_c_with(std::string_view extensions, std::string_view features = {});
Dialect opencl_c_intel();  ///< OpenCL C 3.0 with subgroups, as Intel's compiler takes it
Dialect cuda_c();          ///< for NVRTC, without any header
Dialect hip_c();           ///< for hiprtc
Dialect metal_c();         ///< Metal Shading Language 2.4: emit/metal.h
/// With what an architecture adds: matrix units, products of bytes, conversions of bfloat16. A compute capability as a
/// number (90 is 9.0); "gfx90a".
Dialect cuda_c_for(int capability);
void set_capability(Dialect& dialect, int capability);
Dialect hip_c_for(std::string_view architecture);
/// What the code-generation module makes PTX of: there is no library of functions. Its text is CUDA C, for people;
/// entry and arguments of a kernel are those that emit_c gives.
Dialect ptx();
Dialect ptx_for(int capability);

/// What `lower` must make for this dialect. Limits of blocks and shared memory, and f64, are the device's to add.
Target target_of(const Dialect& dialect, bool index64);

/// Functions that emitted kernels call, each put before the kernels of a program once if it is used.
class Prelude {
 public:
  explicit Prelude(const Dialect& dialect) : dialect_(dialect) {}
  std::string text() const;
  void add(const Prelude& other);  ///< its functions too

  // Each gives the name to call. T is the operands' dtype.
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
                             DType t);  ///< CUDA and HIP: smallest or largest of f32 or i64, by compare-and-swap
  /// CUDA, HIP, Metal: (value[, lane], lanes in this subgroup); OpenCL, min and max of floats: (value)
  std::string subgroup(ir::SubgroupOp op, DType t);
  std::string metal_compare_exchange(bool is_unsigned, bool shared);  ///< (address, expected, value): what was there
  std::string metal_wide(const char* which);                          ///< popcount, clz, mul_hi of unsigned 64 bits
  std::string from_bfloat();                                          ///< u16 bits to f32
  std::string to_bfloat();

  // Fragments, where the dialect has matrix units: arrays of words (factors) or floats (sums) of one lane.
  // prelude_matrix.cpp.
  std::uint32_t matrix_words() const;  ///< of a factor
  std::uint32_t matrix_sums() const;   ///< of an accumulator
  /// (words, pointer, stride, lane): element (o, k) of o = 16 rows of the left factor or columns of the right one lies
  /// at o * stride + k if `along_k`, else at k * stride + o. `shared`: the pointer is to shared memory.
  std::string matrix_load(bool along_k, bool shared, bool index64);
  std::string matrix_load_sums(bool index64);   ///< (sums, pointer, step of rows, step of columns, lane)
  std::string matrix_store_sums(bool index64);  ///< likewise
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

/// Every field, for the keys of kernels on disk.
std::string text_of(const Dialect& dialect);
std::string text_of(const Target& target);

// Spelling.
std::string type_text(const Dialect& d, DType t);      ///< of values: "float"; f16 and bf16 are their 16 bits
std::string memory_text(const Dialect& d, DType t);    ///< of memory and arguments: bool is one byte
std::string unsigned_text(const Dialect& d, DType t);  ///< the unsigned type in which integers of t wrap
std::string constant_text(const Dialect& d, DType t, std::uint64_t bits);
std::string unsigned_constant_text(const Dialect& d, DType t, std::uint64_t bits);
/// Whether the threads of this kernel's blocks all lie in the first dimension, in the order of their linear ids:
/// subgroups are cut from these, and OpenCL leaves it to the device how it cuts them from two or three dimensions
/// (Intel's runtime for CPUs: from each row).
bool flattened(const Dialect& d, const ir::Function& fn);
std::string index_text(const Dialect& d, ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
std::string math_text(const Dialect& d, ir::MathOp op, DType t);  ///< the function's name
std::string bitcast_text(const Dialect& d, DType to, DType from, const std::string& value);
std::string barrier_text(const Dialect& d);
/// The line by which an exact kernel (ir::Function::exact) begins, so that a * b + c is rounded twice; empty in CUDA C,
/// where it is the compiler's option --fmad=false.
std::string exact_pragma(const Dialect& d);
std::string subgroup_width_text(const Dialect& d);                ///< CUDA and HIP: how many lanes a subgroup has
std::string print_format(const Dialect& d, DType t, int digits);  ///< "%d"; digits of a float, 0: all

}  // namespace tessera::emit
