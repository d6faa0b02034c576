// SPDX-License-Identifier: Apache-2.0
// Products of fragments with matrix units: the matrix elements that each lane stores, and the instructions.
//
// A factor is a 16 x 16 matrix with elements (o, k). o is the row of the left factor or the column of the right factor,
// and k is the summation index. With these indices, all units store both factors in the same way, so one function can
// load either of them.
//
// NVIDIA (PTX ISA 8.x, "Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8"), with group =
// lane / 4 and t = lane % 4. A word contains two elements with adjacent k, the first of them in the low half.
// - Word r of a: row group + 8 (r % 2), k = 2t + 8 (r / 2).
// - Word r of b, which has 8 columns: column group, k = 2t + 8r.
// - Float i of c and d: row group + 8 (i / 2), column 2t + i % 2.
// Two instructions compute 16 columns. The first uses words 0 and 2 of the right factor, the second words 1 and 3.
// m16n8k8 is called twice, for k < 8 and for k >= 8, with different words.
//
// AMD's units store the factors in the same way, so the factors can be exchanged. Then the result is transposed, and
// each lane has elements of one row, as in a left factor. The places below are those after the exchange.
//
// CDNA (AMD, "Matrix Instruction Calculator", v_mfma_f32_16x16x16f16; waves of 64), in lane l:
// - a and b: o = l % 16, k = 4 (l / 16) + 0..3.
// - Float i of c and d: row l % 16, column 4 (l / 16) + i.
// v_mfma_f32_16x16x8bf16 has k = 2 (l / 16) + 0..1. It is called with elements 0 and 1, then with elements 2 and 3, so
// it adds the 16 products in a different order.
//
// A factor of i8 has k up to 32. Two adjacent elements are in the place of a 16-bit element, so that it is loaded like
// one. This is the layout of m16n8k32 (PTX ISA, "Matrix Fragments for mma.m16n8k32") and of v_mfma_i32_16x16x32_i8.
// Instructions with k up to 16 are called twice with parts of the words. The order of k does not matter, because it is
// the same in both factors.
//
// Factors of f32 are 16 x 16, and each word contains an element.
// - NVIDIA: word r of both factors has o = group + 8 (r % 2), k = t + 4 (r / 2). The four words with the same r / 4 are
//   those of m16n8k8 (PTX ISA, "Matrix Fragments for mma.m16n8k8" with .tf32) for eight of the k. They are rounded to
//   tf32 when they are loaded.
// - CDNA: word r has o = l % 16, k = 4 (l / 16) + r. v_mfma_f32_16x16x4f32 multiplies the words r of all lanes. It
//   expects k = l / 16, but the order of k does not matter.
//
// RDNA 3 (AMD, "RDNA3 Instruction Set Architecture", 7.9; waves of 32), in lane l:
// - a and b: o = l % 16 and all 16 k. Both halves of the wave store the same elements.
// - Float i of c and d: row l % 16, column 2i + l / 16.
#include <fmt/format.h>

#include "tessera/emit/dialect.h"

namespace tessera::emit {

namespace {

bool nvidia(const Dialect& d) { return d.language == Language::cuda; }
bool wave_of_32(const Dialect& d) { return d.matrix == MatrixUnits::wmma; }
std::string wide(bool index64) { return index64 ? "_wide" : ""; }
std::string step_type(bool index64) { return index64 ? "long long" : "int"; }

/// Row and column of float `e` of this lane's accumulator.
struct Place {
  const char *row, *column;
};
Place place_of_sum(const Dialect& d) {
  if (nvidia(d)) return {"lane / 4 + e / 2 % 2 * 8", "e / 4 * 8 + lane % 4 * 2 + e % 2"};
  if (wave_of_32(d)) return {"lane % 16", "e * 2 + lane / 16"};
  return {"lane % 16", "lane / 16 * 4 + e"};
}
/// Returns the index o of word r of a factor, and the index k of the first of its two elements.
Place place_of_pair(const Dialect& d) {
  if (nvidia(d)) return {"lane / 4 + r % 2 * 8", "lane % 4 * 2 + r / 2 * 8"};
  if (wave_of_32(d)) return {"lane % 16", "r * 2"};
  return {"lane % 16", "lane / 16 * 4 + r * 2"};
}

}  // namespace

std::uint32_t Prelude::matrix_words(DType t) const {
  return (nvidia(dialect_) ? 4 : wave_of_32(dialect_) ? 8 : 2) * (t == DType::f32 ? 2 : 1);
}
std::uint32_t Prelude::matrix_sums() const { return nvidia(dialect_) || wave_of_32(dialect_) ? 8 : 4; }

// ldmatrix (PTX ISA, "Warp-level matrix load instruction: ldmatrix"). Lanes 8m to 8m + 7 pass the addresses of the rows
// of the 8 x 8 matrix m. Each row is 16 bytes long and aligned. Word m of lane l receives two adjacent elements of row
// l / 4, starting at 2 (l % 4). If transposed, it receives element l / 4 of row 2 (l % 4) and of the next row. Matrix m
// starts at o = 8 (m % 2), k = 8 (m / 2).
std::string Prelude::matrix_shared_load(bool along_k) {
  const std::string name = along_k ? "tessera_instruction_ldmatrix" : "tessera_instruction_ldmatrix_trans";
  return instruction(
      name, fmt::format("void {}(unsigned int* words, const unsigned short* row) {{\n"
                        "  unsigned long long at;\n"
                        "  asm(\"cvta.to.shared.u64 %0, %1;\" : \"=l\"(at) : \"l\"(row));\n"
                        "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%0, %1, %2, %3}}, [%4];\"\n"
                        "      : \"=r\"(words[0]), \"=r\"(words[1]), \"=r\"(words[2]), \"=r\"(words[3])\n"
                        "      : \"l\"(at)\n      : \"memory\");\n}}",
                        name, along_k ? "" : ".trans"));
}

std::string Prelude::matrix_load(ir::FragmentRole role, bool along_k, bool shared, bool aligned, bool index64) {
  const bool by_rows = nvidia(dialect_) && shared, right = by_rows && role == ir::FragmentRole::right;
  aligned = aligned && shared && (by_rows || along_k);
  const std::string name =
      fmt::format("tessera_matrix_load{}{}{}{}{}", along_k ? "" : "_transposed", right ? "_right" : "",
                  by_rows ? "_shared" : "", aligned ? "_rows" : "", wide(index64));
  const Place at = place_of_pair(dialect_);
  const std::string loop = fmt::format("#pragma unroll\n  for (int r = 0; r < {}; ++r) {{\n", matrix_words(DType::f16));
  const std::string place = fmt::format("    const int o = {}, k = {};\n", at.row, at.column);
  // Runs `load` if all rows begin at multiples of `bytes`. If this is known, there is no other code.
  std::string body;
  const auto add_aligned = [&](int bytes, const std::string& load) {
    body += aligned ? load
                    : fmt::format(
                          "  if ((((unsigned long long)from | 2 * (unsigned long long)stride) & {}) == 0) {{\n{}"
                          "  return;\n  }}\n",
                          bytes - 1, load);
  };
  if (by_rows) {
    // For a right factor, the matrices 1 and 2 are swapped, so that each mma instruction reads two adjacent registers.
    const char* row = along_k != right ? "(lane / 8 % 2 * 8 + lane % 8) * stride + lane / 16 * 8"
                                       : "(lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8";
    add_aligned(
        16,
        fmt::format("  {}(words, from + {});\n{}", matrix_shared_load(along_k), row,
                    right ? "  const unsigned int word = words[1];\n  words[1] = words[2], words[2] = word;\n" : ""));
  }
  if (along_k && !(by_rows && aligned))  // loads two elements as one word
    add_aligned(4, loop + place + "    words[r] = *(const unsigned int*)(from + o * stride + k);\n  }\n");
  if (!aligned)
    body += fmt::format(
        "{0}{1}    const unsigned short* const at = from + ({2});\n"
        "    words[r] = at[0] | (unsigned int)at[{3}] << 16;\n  }}\n",
        loop, place, along_k ? "o * stride + k" : "k * stride + o", along_k ? "1" : "stride");
  return function(
      name, fmt::format("void {}(unsigned int* words, const unsigned short* from, {} stride, int lane) {{\n{}}}", name,
                        step_type(index64), body));
}

std::string Prelude::matrix_load_f32(bool along_k, bool shared, bool aligned, bool index64) {
  const bool by_rows = nvidia(dialect_) && shared;
  aligned = aligned && shared && along_k;
  const std::string name = fmt::format("tessera_matrix_load_f32{}{}{}{}", along_k ? "" : "_transposed",
                                       by_rows ? "_shared" : "", aligned ? "_rows" : "", wide(index64));
  const std::string round =
      !nvidia(dialect_) ? "__float_as_uint"
                        : instruction("tessera_instruction_tf32",
                                      "unsigned int tessera_instruction_tf32(float value) {\n  unsigned int bits;\n"
                                      "  asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(bits) : \"f\"(value));\n"
                                      "  return bits;\n}");
  const std::string loop = fmt::format("#pragma unroll\n  for (int r = 0; r < {}; ++r) ", matrix_words(DType::f32));
  std::string body;
  if (along_k && (by_rows || !nvidia(dialect_))) {
    std::string rows;
    if (by_rows)  // a row of 8 f32 is loaded like one of 16 u16
      rows = fmt::format(
          "  const float* const row = from + ((lane / 8 % 2 * 8 + lane % 8) * stride + lane / 16 * 4);\n"
          "  {0}(words, (const unsigned short*)row);\n  {0}(words + 4, (const unsigned short*)(row + 8));\n"
          "{1}words[r] = {2}(__uint_as_float(words[r]));\n",
          matrix_shared_load(true), loop, round);
    else
      rows =
          "  __builtin_memcpy(words, __builtin_assume_aligned(from + (lane % 16 * stride + lane / 16 * 4), 16), 16);\n";
    body += aligned ? rows
                    : "  if ((((unsigned long long)from | 4 * (unsigned long long)stride) & 15) == 0) {\n" + rows +
                          "  return;\n  }\n";
  }
  if (!aligned)
    body += fmt::format("{}{{\n    const int o = {}, k = {};\n    words[r] = {}(from[{}]);\n  }}\n", loop,
                        nvidia(dialect_) ? "lane / 4 + r % 2 * 8" : "lane % 16",
                        nvidia(dialect_) ? "lane % 4 + r / 2 * 4" : "lane / 16 * 4 + r", round,
                        along_k ? "o * stride + k" : "k * stride + o");
  return function(name, fmt::format("void {}(unsigned int* words, const float* from, {} stride, int lane) {{\n{}}}",
                                    name, step_type(index64), body));
}

std::string Prelude::matrix_load_sums(bool index64) {
  const std::string name = "tessera_matrix_load_sums" + wide(index64);
  const Place at = place_of_sum(dialect_);
  return function(
      name, fmt::format("void {0}(float* sums, const float* from, {1} down, {1} across, int lane) {{\n"
                        "#pragma unroll\n  for (int e = 0; e < {2}; ++e) sums[e] = from[({3}) * down + ({4}) * across];"
                        "\n}}",
                        name, step_type(index64), matrix_sums(), at.row, at.column));
}
std::string Prelude::matrix_store_sums(bool index64) {
  const std::string name = "tessera_matrix_store_sums" + wide(index64);
  const Place at = place_of_sum(dialect_);
  return function(
      name, fmt::format("void {0}(const float* sums, float* to, {1} down, {1} across, int lane) {{\n"
                        "#pragma unroll\n  for (int e = 0; e < {2}; ++e) to[({3}) * down + ({4}) * across] = sums[e];"
                        "\n}}",
                        name, step_type(index64), matrix_sums(), at.row, at.column));
}
std::string Prelude::matrix_fill() {
  return function("tessera_matrix_fill",
                  fmt::format("void tessera_matrix_fill(float* sums, float value) {{\n"
                              "#pragma unroll\n  for (int e = 0; e < {}; ++e) sums[e] = value;\n}}",
                              matrix_sums()));
}

// Every instruction is in a function, which is skipped if a macro with its name is defined. Tests define such macros to
// replace the instructions by functions that behave as documented.
std::string Prelude::instruction(const std::string& name, const std::string& text) {
  functions_.try_emplace(name, "#ifndef " + name + "\nstatic " + inline_prefix() + text + "\n#endif\n");
  return name;
}

std::string Prelude::matrix_instruction(DType t) {
  if (nvidia(dialect_)) {
    const bool half = dialect_.matrix == MatrixUnits::mma_k8, tf32 = t == DType::f32;
    const std::string of = tf32 ? "tf32" : std::string(dtype_name(t));
    const std::string shape = half || tf32 ? "m16n8k8" : "m16n8k16", name = "tessera_instruction_" + shape + "_" + of;
    const std::string words = half ? "unsigned int a0, unsigned int a1, unsigned int b0"
                                   : "unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3, "
                                     "unsigned int b0, unsigned int b1";
    return instruction(
        name,
        fmt::format("void {0}(float* sums, {1}) {{\n"
                    "  asm volatile(\"mma.sync.aligned.{2}.row.col.f32.{3}.{3}.f32 {{%0, %1, %2, %3}}, {4}, "
                    "{{%0, %1, %2, %3}};\"\n"
                    "      : \"+f\"(sums[0]), \"+f\"(sums[1]), \"+f\"(sums[2]), \"+f\"(sums[3])\n      : {5});\n}}",
                    name, words, shape, of, half ? "{%4, %5}, {%6}" : "{%4, %5, %6, %7}, {%8, %9}",
                    half ? "\"r\"(a0), \"r\"(a1), \"r\"(b0)"
                         : "\"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1)"));
  }
  // AMD's builtins require vectors, so the bits of the words are reinterpreted as vectors.
  const std::string of(dtype_name(t));
  std::string name = "tessera_instruction_mfma_16x16x16_" + of;
  const bool half = t == DType::f16;
  std::string factor, call;
  if (wave_of_32(dialect_)) {
    factor = half ? "_Float16 __attribute__((ext_vector_type(16)))" : "short __attribute__((ext_vector_type(16)))";
    call = fmt::format("__builtin_amdgcn_wmma_f32_16x16x16_{}_w32(a, b, c)", of);
    name = "tessera_instruction_wmma_16x16x16_" + of;
  } else {
    factor = half ? "_Float16 __attribute__((ext_vector_type(4)))" : "short __attribute__((ext_vector_type(4)))";
    call = half ? "__builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)"
                : "__builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)";
  }
  if (t == DType::f32) {
    factor = "float";
    name = "tessera_instruction_mfma_16x16x4_f32";
    call = "__builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0)";
  } else if (!half && dialect_.matrix == MatrixUnits::mfma) {
    name = "tessera_instruction_mfma_16x16x8_twice_bf16";
    call =
        "__builtin_amdgcn_mfma_f32_16x16x8bf16(a.hi, b.hi,\n"
        "          __builtin_amdgcn_mfma_f32_16x16x8bf16(a.lo, b.lo, c, 0, 0, 0), 0, 0, 0)";
  }
  return amd_matrix_instruction(name, factor, "float", call);
}

std::string Prelude::amd_matrix_instruction(const std::string& name, const std::string& factor, const char* sum,
                                            const std::string& call) {
  return instruction(name,
                     fmt::format("void {0}({4}* sums, const unsigned int* left, const unsigned int* right) {{\n"
                                 "  typedef {1} factor;\n"
                                 "  typedef {4} __attribute__((ext_vector_type({2}))) sum;\n"
                                 "  factor a, b;\n  sum c;\n"
                                 "  __builtin_memcpy(&a, left, sizeof(a));\n  __builtin_memcpy(&b, right, sizeof(b));\n"
                                 "  __builtin_memcpy(&c, sums, sizeof(c));\n"
                                 "  c = {3};\n  __builtin_memcpy(sums, &c, sizeof(c));\n}}",
                                 name, factor, matrix_sums(), call, sum));
}

// The sums of an instruction are i32. On NVIDIA they begin at the bits of 1.5 * 2^23, so that their bits are a float
// that is larger by this number; this is faster than a conversion.
std::string Prelude::matrix_multiply_i8(bool replaces) {
  const bool rdna = wave_of_32(dialect_), k32 = dialect_.matrix == MatrixUnits::mfma_k32;
  const std::string name = replaces ? "tessera_matrix_product_i8" : "tessera_matrix_multiply_i8";
  const char* into = replaces ? "=" : "+=";
  std::string one, body;
  if (nvidia(dialect_)) {
    one = instruction(
        "tessera_instruction_m16n8k32_i8",
        "void tessera_instruction_m16n8k32_i8(int* sums, unsigned int a0, unsigned int a1, unsigned int a2, unsigned "
        "int a3, unsigned int b0, unsigned int b1) {\n"
        "  asm volatile(\"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
        "%9}, {%0, %1, %2, %3};\"\n"
        "      : \"+r\"(sums[0]), \"+r\"(sums[1]), \"+r\"(sums[2]), \"+r\"(sums[3])\n"
        "      : \"r\"(a0), \"r\"(a1), \"r\"(a2), \"r\"(a3), \"r\"(b0), \"r\"(b1));\n}");
    body = fmt::format(
        "#pragma unroll\n  for (int n = 0; n < 2; ++n) {{\n"
        "    int part[4] = {{0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000}};\n"
        "    {}(part, a[0], a[1], a[2], a[3], b[n], b[n + 2]);\n"
        "#pragma unroll\n    for (int i = 0; i < 4; ++i) sums[4 * n + i] {} __int_as_float(part[i]) - 12582912.0f;\n"
        "  }}\n",
        one, into);
  } else {
    const char* factor = rdna ? "int __attribute__((ext_vector_type(4)))" : k32 ? "long" : "int";
    const char* which = rdna ? "wmma_16x16x16_i8" : k32 ? "mfma_16x16x32_i8" : "mfma_16x16x16_i8";
    const char* call = rdna  ? "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false)"
                       : k32 ? "__builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0)"
                             : "__builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, 0, 0, 0)";
    one = amd_matrix_instruction(std::string("tessera_instruction_") + which, factor, "int", call);
    body = fmt::format("  int part[{}] = {{0}};\n", matrix_sums());
    for (std::uint32_t word = 0; word < matrix_words(DType::i8); word += rdna ? 4 : k32 ? 2 : 1)
      body += fmt::format("  {0}(part, b + {1}, a + {1});\n", one, word);
    body +=
        fmt::format("#pragma unroll\n  for (int e = 0; e < {}; ++e) sums[e] {} (float)part[e];\n", matrix_sums(), into);
  }
  return function(
      name, fmt::format("void {}(float* sums, const unsigned int* a, const unsigned int* b) {{\n{}}}", name, body));
}

std::string Prelude::matrix_multiply(DType t, bool replaces) {
  if (t == DType::i8) return matrix_multiply_i8(replaces);
  if (replaces) {
    const std::string fill = matrix_fill(), add = matrix_multiply(t, false);
    const std::string name = "tessera_matrix_product_" + std::string(dtype_name(t));
    return function(name, fmt::format("void {}(float* sums, const unsigned int* a, const unsigned int* b) {{\n"
                                      "  {}(sums, 0.0f);\n  {}(sums, a, b);\n}}",
                                      name, fill, add));
  }
  const std::string one = matrix_instruction(t);
  const std::string name = "tessera_matrix_multiply_" + std::string(dtype_name(t));
  std::string body;
  if (!nvidia(dialect_))
    for (std::uint32_t word = 0; word < (t == DType::f32 ? matrix_words(t) : 1); ++word)
      body += fmt::format("  {0}(sums, b + {1}, a + {1});\n", one, word);
  else if (t == DType::f32)
    for (const int n : {0, 1, 4, 5})  // the first word of the right factor; every second one has the same columns
      body += fmt::format("  {}(sums + {}, a[{}], a[{}], a[{}], a[{}], b[{}], b[{}]);\n", one, n % 4 * 4, n / 4 * 4,
                          n / 4 * 4 + 1, n / 4 * 4 + 2, n / 4 * 4 + 3, n, n + 2);
  else
    for (const char* n : {"0", "1"}) {
      const bool second = *n == '1';
      const char* sums = second ? "sums + 4" : "sums";
      const char *low = second ? "b[1]" : "b[0]", *high = second ? "b[3]" : "b[2]";
      body += dialect_.matrix == MatrixUnits::mma_k8
                  ? fmt::format("  {0}({1}, a[0], a[1], {2});\n  {0}({1}, a[2], a[3], {3});\n", one, sums, low, high)
                  : fmt::format("  {}({}, a[0], a[1], a[2], a[3], {}, {});\n", one, sums, low, high);
    }
  return function(
      name, fmt::format("void {}(float* sums, const unsigned int* a, const unsigned int* b) {{\n{}}}", name, body));
}

}  // namespace tessera::emit
