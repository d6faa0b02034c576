// SPDX-License-Identifier: Apache-2.0
// The C dialects in which kernels are emitted, and their names for types, address spaces, indices, conversions and
// atomics. To add a dialect, add a column to the tables in dialect.cpp. Also check all places that call `opencl`,
// `metal` or `uses_opencl_names`, because dialects differ there in more than names.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "tessera/emit/lower.h"
#include "tessera/ir/node.h"

namespace tessera::emit {

enum class Language : std::uint8_t { opencl, cuda, hip, metal };

/// The matrix instructions of a device (ir::Op::mma). prelude_matrix.cpp documents which lane stores which elements of
/// a fragment, with sources.
enum class MatrixUnits : std::uint8_t {
  none,      ///< products become loops (emit/mma.h)
  mma_k8,    ///< NVIDIA from sm_75: mma.sync.m16n8k8 of f16; other products become loops
  mma_k16,   ///< NVIDIA from sm_80: mma.sync.m16n8k16 of f16 and bf16, m16n8k32 of i8, m16n8k8 of tf32
  mfma,      ///< AMD gfx908: v_mfma_f32_16x16x16f16, v_mfma_f32_16x16x8bf16, v_mfma_f32_16x16x4f32,
             ///< v_mfma_i32_16x16x16i8
  mfma_1k,   ///< AMD gfx90a: like mfma, but v_mfma_f32_16x16x16bf16_1k
  mfma_k32,  ///< AMD gfx94x, gfx950: like mfma_1k, but v_mfma_i32_16x16x32_i8
  wmma       ///< AMD gfx11, waves of 32: v_wmma_f32_16x16x16_f16, ..._bf16, v_wmma_i32_16x16x16_iu8; products of f32
             ///< become loops
};
/// Returns the units of an NVIDIA GPU with this compute capability (90 means 9.0). Volta (7.0) is not supported,
/// because its instructions use different fragment shapes.
MatrixUnits nvidia_matrix_units(int capability);
MatrixUnits amd_matrix_units(std::string_view architecture);  ///< "gfx90a", which may be followed by ":sramecc+"
std::uint32_t matrix_width(MatrixUnits units);                ///< the subgroup width that the units require
ir::FragmentLayout fragment_layout(MatrixUnits units);
bool multiplies_f32(MatrixUnits units);          ///< has instructions for factors of f32
bool rounds_factors_to_tf32(MatrixUnits units);  ///< these round the factors to 10 bits of mantissa

/// AMD's instructions for dot products of packed bytes.
enum class HipDot4 : std::uint8_t {
  none,
  separate,  ///< v_dot4_i32_i8 and v_dot4_u32_u8: gfx906, gfx908, gfx90a, gfx94x, gfx950, gfx1011, gfx1012, gfx103x
  mixed      ///< v_dot4_i32_iu8, with a sign flag for each operand, and v_dot4_u32_u8: gfx11, gfx12
};
HipDot4 amd_dot4(std::string_view architecture);

/// A dialect with the extensions of a device.
struct Dialect {
  Language language = Language::opencl;
  std::string_view name = "OpenCL C 1.2";
  bool fp64 = true;
  bool subgroups = false;        ///< OpenCL: see `opencl_c_with`; always true for CUDA and HIP
  bool subgroups_named = false;  ///< OpenCL: subgroups come from cl_khr_subgroups, which needs a pragma
  bool intel_shuffles = false;   ///< OpenCL: uses cl_intel_subgroups instead of cl_khr_subgroup_shuffle
  bool atomic_i64 = false;       ///< OpenCL: has cl_khr_int64_base_atomics and cl_khr_int64_extended_atomics
  bool dot4 = false;             ///< OpenCL: has cl_khr_integer_dot_product; CUDA: sm_61 and later
  bool offsets = true;  ///< buffers are passed as pointer and element offset, because OpenCL has no device addresses
  bool vectors = true;  ///< has vectors, and loads of 2, 3 or 4 elements that need only the alignment of an element
  bool expand_math = true;                 ///< exp, log, sin, ... of f32 are missing or differ between devices
  bool native_exp = false;                 ///< has exp and exp2 of f32, even if `expand_math` is true
  bool expand_math64 = false;              ///< the functions of f64 are missing
  bool bf16_convert = false;               ///< CUDA: sm_80 and later
  bool async_copies = false;               ///< CUDA: cp.async, sm_80 and later
  bool atomic_f64_add = false;             ///< CUDA: sm_60 and later; HIP
  std::uint32_t cuda_width = 32;           ///< CUDA C: the number of lanes in a subgroup
  MatrixUnits matrix = MatrixUnits::none;  ///< CUDA and HIP
  HipDot4 hip_dot4 = HipDot4::none;        ///< HIP, if `dot4` is set
};

inline bool opencl(const Dialect& d) { return d.language == Language::opencl; }
inline bool metal(const Dialect& d) { return d.language == Language::metal; }
/// Returns true if types, constants and functions have the names of OpenCL C.
inline bool uses_opencl_names(const Dialect& d) { return opencl(d) || metal(d); }

Dialect opencl_c();  ///< OpenCL C 1.2 with f64 and no other extensions, as supported by PoCL 3.1
/// Returns OpenCL C for a device with these extensions (CL_DEVICE_EXTENSIONS) and optional OpenCL C 3.0 features
/// (CL_DEVICE_OPENCL_C_FEATURES). Names are surrounded by spaces. Subgroups require cl_khr_subgroups, the feature
/// __opencl_c_subgroups, or cl_intel_subgroups. They are used only if the device can also shuffle lanes.
Dialect opencl_c_with(std::string_view extensions, std::string_view features = {});
Dialect opencl_c_intel();  ///< OpenCL C 3.0 with subgroups, as supported by Intel's compiler
Dialect cuda_c();          ///< for NVRTC; uses no headers
Dialect hip_c();           ///< for hiprtc
Dialect metal_c();         ///< Metal Shading Language 2.4; see emit/metal.h
/// Return a dialect with the features of an architecture: matrix units, byte dot products and bfloat16 conversions. The
/// architecture is a compute capability as a number (90 means 9.0) or a name such as "gfx90a".
Dialect cuda_c_for(int capability);
void set_capability(Dialect& dialect, int capability);
Dialect hip_c_for(std::string_view architecture);
/// The dialect that the code-generation module compiles to PTX. It has no math library. Its text is CUDA C and is only
/// displayed. The entry and arguments of a kernel are the same as in this text.
Dialect ptx();
Dialect ptx_for(int capability);

/// Returns the lowering target for this dialect. The caller sets `f64` and the device's limits for blocks and shared
/// memory.
Target target_of(const Dialect& dialect, bool index64);

/// The helper functions that emitted kernels call. Every function that is used is written once, before the kernels of
/// the program.
class Prelude {
 public:
  explicit Prelude(const Dialect& dialect) : dialect_(dialect) {}
  std::string text() const;
  void add(const Prelude& other);  ///< adds the functions of another prelude

  // Each of these members adds a function and returns its name. `t` is the dtype of the operands.
  std::string divide(DType t);     ///< x / 0 is 0, and the smallest value / -1 wraps
  std::string remainder(DType t);  ///< x % 0 and x % -1 are 0
  std::string minimum(DType t);
  std::string maximum(DType t);
  std::string absolute(DType t);
  std::string to_integer(DType to, DType from);  ///< converts from a float: truncates, saturates, and converts NaN to 0
  std::string from_half();                       ///< u16 bits to f32
  std::string to_half();
  std::string dot4(ir::Dot4Signs signs);
  std::string atomic_extreme(bool maximum,
                             DType t);  ///< CUDA and HIP: min or max of f32 or i64, with compare-and-swap
  /// The parameters are (value[, lane], lanes in this subgroup) in CUDA, HIP and Metal, and (value) in OpenCL, where
  /// only min and max of floats need a function.
  std::string subgroup(ir::SubgroupOp op, DType t);
  std::string metal_compare_exchange(bool is_unsigned, bool shared);  ///< (address, expected, value); returns the old
                                                                      ///< value
  std::string metal_wide(const char* which);  ///< popcount, clz, mul_hi of unsigned 64-bit integers
  /// A structure of 2 or 4 elements, for dialects without `vectors`. It is loaded and stored by one access. The
  /// function NAME_of creates it from its elements.
  std::string vector(ir::Type t);
  // CUDA: cp.async.
  std::string async_copy(std::uint32_t bytes);  ///< (to shared memory, from global memory)
  std::string async_commit();
  std::string async_wait(std::uint32_t groups);
  std::string from_bfloat();  ///< u16 bits to f32
  std::string to_bfloat();

  // Fragments, for dialects with matrix units. Each lane stores its part of a factor in an array of words, and its part
  // of an accumulator in an array of floats. See prelude_matrix.cpp.
  std::uint32_t matrix_words(DType t) const;  ///< number of words per lane for a factor
  std::uint32_t matrix_sums() const;          ///< number of floats per lane for an accumulator
  /// Loads a factor. The parameters are (words, pointer, stride, lane). Element (o, k) is at o * stride + k if
  /// `along_k` is true, otherwise at k * stride + o. o is a row of the left factor or a column of the right factor.
  /// `shared` is true if the pointer refers to shared memory, and `aligned` if all rows there begin at multiples of 16
  /// bytes. Otherwise this is tested at run time.
  std::string matrix_load(ir::FragmentRole role, bool along_k, bool shared, bool aligned, bool index64);
  /// The same for factors of f32.
  std::string matrix_load_f32(bool along_k, bool shared, bool aligned, bool index64);
  std::string matrix_load_sums(bool index64);   ///< (sums, pointer, row stride, column stride, lane)
  std::string matrix_store_sums(bool index64);  ///< same parameters as matrix_load_sums
  std::string matrix_fill();                    ///< (sums, value)
  /// (sums, left words, right words). Adds to the sums, or replaces them.
  std::string matrix_multiply(DType t, bool replaces);

 private:
  std::string function(const std::string& name, const std::string& text);
  std::string inline_prefix() const;
  std::string metal_subgroup(ir::SubgroupOp op, DType t);
  std::string instruction(const std::string& name, const std::string& text);
  /// One of AMD's instructions. `factor` and `sum` are the types of a factor and of an element of a, b and c in `call`.
  std::string amd_matrix_instruction(const std::string& name, const std::string& factor, const char* sum,
                                     const std::string& call);
  std::string matrix_instruction(DType t);
  std::string matrix_multiply_i8(bool replaces);
  std::string matrix_shared_load(bool along_k);

  const Dialect& dialect_;
  std::map<std::string, std::string> functions_;
};

/// Returns all fields as text, for the keys of the kernel cache.
std::string text_of(const Dialect& dialect);
std::string text_of(const Target& target);

// Names and texts in a dialect.
const char* global_space(const Dialect& d);        ///< the address space of buffers: "__global ", "device " or ""
std::string type_text(const Dialect& d, DType t);  ///< type of values: "float"; f16 and bf16 use a 16-bit integer type
std::string memory_text(const Dialect& d, DType t);    ///< type in memory and of arguments: bool is one byte
std::string unsigned_text(const Dialect& d, DType t);  ///< the unsigned type in which integers of dtype t wrap
std::string constant_text(const Dialect& d, DType t, std::uint64_t bits);
std::string unsigned_constant_text(const Dialect& d, DType t, std::uint64_t bits);
/// Returns true if this kernel is launched with all threads of a block in the first dimension, in the order of their
/// linear ids. Tessera's subgroups consist of threads with consecutive ids. OpenCL does not guarantee this for two or
/// three dimensions (Intel's CPU runtime forms subgroups for each row separately).
bool flattened(const Dialect& d, const ir::Function& fn);
/// Returns the number of blocks of an NVIDIA multiprocessor that limits the registers of a thread:
/// Function::min_blocks, or as many blocks as have 1024 threads, which leaves 64 registers for each thread. Without
/// this limit, ptxas keeps to 32 registers, so that a thread cannot have many loads in flight.
inline std::uint32_t blocks_at_least(const ir::Function& fn) {
  // Some multiprocessors run at most 16 blocks.
  return fn.min_blocks != 0 ? fn.min_blocks : std::clamp(1024 / fn.threads_per_block(), 1u, 16u);
}
std::string index_text(const Dialect& d, ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
std::string math_text(const Dialect& d, ir::MathOp op, DType t);  ///< the name of the function
std::string bitcast_text(const Dialect& d, DType to, DType from, const std::string& value);
std::string barrier_text(const Dialect& d);
/// Returns the pragma at the start of an exact kernel (ir::Function::exact), which makes the compiler round a * b + c
/// twice. Returns an empty string for CUDA C, which uses the compiler option --fmad=false instead.
std::string exact_pragma(const Dialect& d);
std::string subgroup_width_text(const Dialect& d);                ///< CUDA and HIP: the number of lanes in a subgroup
std::string print_format(const Dialect& d, DType t, int digits);  ///< "%d"; floats have `digits` digits; 0 means all

}  // namespace tessera::emit
