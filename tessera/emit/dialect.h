// SPDX-License-Identifier: Apache-2.0
// The C dialects that kernels are emitted in: how each spells types, memory, indices, conversions and atomics.
// To add a dialect, add its column to the tables in dialect.cpp; the emitter itself names no language.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "tessera/emit/lower.h"

namespace tessera::emit {

enum class Language : std::uint8_t { opencl, cuda, hip, metal };

/// One dialect with the extensions that the device at hand has.
struct Dialect {
  Language language = Language::opencl;
  std::string_view name = "OpenCL C 1.2";
  bool fp64 = true;
  bool subgroups = false;         ///< OpenCL: cl_khr_subgroups; CUDA and HIP: always
  bool intel_shuffles = false;    ///< OpenCL: cl_intel_subgroups, else cl_khr_subgroup_shuffle
  bool atomic_i64 = false;        ///< OpenCL: cl_khr_int64_base_atomics and cl_khr_int64_extended_atomics
  bool dot4 = false;              ///< OpenCL: cl_khr_integer_dot_product; CUDA: from sm_61 on
  bool offsets = true;            ///< buffers come as {pointer, element offset}: OpenCL has no pointers on the host
  bool vectors = true;            ///< loads of 2, 3 or 4 elements from any element's address
  bool expand_math = true;        ///< exp, log, sin, ... of f32 are not the compiler's, or differ by device
  bool expand_math64 = false;     ///< those of f64 are not the compiler's
  std::uint32_t cuda_width = 32;  ///< lanes of a subgroup in CUDA C, where they are a constant
};

Dialect opencl_c();  ///< OpenCL C 1.2 without extensions but f64: what PoCL 3.1 takes
/// OpenCL C for a device with these extensions, as CL_DEVICE_EXTENSIONS lists them, a blank on either side of each.
/// `subgroups` is set only if lanes can be shuffled too.
Dialect opencl_c_with(std::string_view extensions);
Dialect opencl_c_intel();  ///< OpenCL C 3.0 with subgroups, as Intel's compiler takes it
Dialect cuda_c();          ///< for NVRTC, without any header
Dialect hip_c();           ///< for hiprtc
Dialect metal_c();         ///< Metal Shading Language 2.4: emit/metal.h
/// What the code-generation module makes PTX of: there is no library of functions. Its text is CUDA C, for people;
/// entry and arguments of a kernel are those that emit_c gives.
Dialect ptx();

/// What `lower` must make for this dialect. Limits of blocks and shared memory, and f64, are the device's to add.
Target target_of(const Dialect& dialect, bool index64);

/// Functions that emitted kernels call, each put before the kernels of a program once if it is used.
class Prelude {
 public:
  explicit Prelude(const Dialect& dialect) : dialect_(dialect) {}
  std::string text() const;

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
  std::string subgroup(ir::SubgroupOp op, DType t);  ///< CUDA, HIP, Metal: (value[, lane], lanes in this subgroup)
  std::string metal_compare_exchange(bool is_unsigned, bool shared);  ///< (address, expected, value): what was there
  std::string metal_wide(const char* which);                          ///< popcount, clz, mul_hi of unsigned 64 bits

 private:
  std::string function(const std::string& name, const std::string& text);
  std::string inline_prefix() const;
  std::string metal_subgroup(ir::SubgroupOp op, DType t);

  const Dialect& dialect_;
  std::map<std::string, std::string> functions_;
};

// Spelling.
std::string type_text(const Dialect& d, DType t);      ///< of values: "float"; f16 and bf16 are their 16 bits
std::string memory_text(const Dialect& d, DType t);    ///< of memory and arguments: bool is one byte
std::string unsigned_text(const Dialect& d, DType t);  ///< the unsigned type in which integers of t wrap
std::string constant_text(const Dialect& d, DType t, std::uint64_t bits);
std::string unsigned_constant_text(const Dialect& d, DType t, std::uint64_t bits);
std::string index_text(const Dialect& d, ir::IndexKind kind, std::uint64_t dimension, const ir::Function& fn);
std::string math_text(const Dialect& d, ir::MathOp op, DType t);  ///< the function's name
std::string bitcast_text(const Dialect& d, DType to, DType from, const std::string& value);
std::string barrier_text(const Dialect& d);
std::string subgroup_width_text(const Dialect& d);         ///< CUDA and HIP: how many lanes a subgroup has
std::string_view print_format(const Dialect& d, DType t);  ///< "%d"

}  // namespace tessera::emit
