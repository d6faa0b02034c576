// SPDX-License-Identifier: Apache-2.0
// Runs emitted CUDA C and HIP on this machine, including instructions that involve a whole subgroup. The threads of a
// block are fibers. The last lane that arrives at such an instruction executes it for all lanes. The text is compiled
// by clang as C++.
#pragma once

#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/matrix/matrix_instructions.h"

namespace tessera::test {

/// The threads of one block.
class Lanes {
 public:
  /// Executes an instruction, given the registers of all lanes of a subgroup.
  using Step = std::function<void(int instruction, std::vector<LaneRegisters*>& lanes)>;

  Lanes(unsigned threads, unsigned width, Step step)
      : width_(width), step_(std::move(step)), fibers_(threads), meetings_(threads / width + 1) {
    for (Fiber& f : fibers_) f.stack.resize(64 << 10);
  }
  void run(const std::function<void()>& body) {
    current_lanes = this;
    body_ = &body;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
      Fiber& f = fibers_[i];
      f.done = false;
      ::getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data(), f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = &home_;
      ::makecontext(&f.context, &Lanes::start, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (current_ = 0; current_ < fibers_.size(); ++current_) {
        if (fibers_[current_].done) continue;
        left = true;
        ::swapcontext(&home_, &fibers_[current_].context);
      }
    }
  }

  // These functions are called by the compiled text.
  static unsigned thread() { return current_lanes->current_; }
  static void barrier() {
    Lanes& l = *current_lanes;
    l.meet(l.meetings_.back(), static_cast<unsigned>(l.fibers_.size()), nullptr, 0);
  }
  static void together(int instruction, LaneRegisters* mine) {
    Lanes& l = *current_lanes;
    l.meet(l.meetings_[l.current_ / l.width_], l.width_, mine, instruction);
  }

 private:
  struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
  };
  struct Meeting {
    unsigned come = 0, round = 0;
    std::vector<LaneRegisters*> brought;
  };
  static void start() {
    Lanes& l = *current_lanes;
    (*l.body_)();
    l.fibers_[l.current_].done = true;
  }
  void meet(Meeting& m, unsigned count, LaneRegisters* mine, int instruction) {
    const unsigned me = current_, round = m.round;
    if (mine) m.brought.resize(width_), m.brought[me % width_] = mine;
    if (++m.come == count) {
      if (mine) step_(instruction, m.brought);
      m.come = 0, ++m.round;
    }
    while (m.round == round) ::swapcontext(&fibers_[me].context, &home_);
  }

  inline static Lanes* current_lanes = nullptr;
  unsigned width_, current_ = 0;
  Step step_;
  std::vector<Fiber> fibers_;
  std::vector<Meeting> meetings_;  // one per subgroup, followed by one for the block
  const std::function<void()>* body_ = nullptr;
  ucontext_t home_{};
};

/// Returns the text with definitions in front, for subgroups of `width`: keywords of the language, and functions for
/// the instructions of a matrix unit, numbered as in `Instruction`. If the text defines one of these itself, its
/// definition is removed.
inline std::string text_for_lanes(const std::string& text, unsigned width) {
  const std::string before = R"(
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
struct Registers { unsigned a[8], b[8]; float c[8]; const unsigned short* row; };
struct Table {
  unsigned (*thread)();
  void (*barrier)();
  void (*together)(int, Registers*);
  unsigned short (*half_of)(float);
  unsigned short (*bfloat_of)(float);
  unsigned (*tf32_of)(float);
};
#define fmaxf __builtin_fmaxf
static unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
static float __uint_as_float(unsigned i) { return __builtin_bit_cast(float, i); }
static float __int_as_float(int i) { return __builtin_bit_cast(float, i); }
extern "C" { Table tessera_table; }
struct Axis { operator unsigned() const { return tessera_table.thread(); } };
static struct { Axis x; } threadIdx;
static void __syncthreads() { tessera_table.barrier(); }
struct Argument { void* p; template <class T> operator T*() const { return (T*)p; } };
template <int instruction, class Sum, class... W>
static void tessera_mma(Sum* sums, W... words) {
  const unsigned all[] = {words...};
  const unsigned a = sizeof...(words) / 3 * 2;  // a has twice as many words as b
  Registers r = {};
  for (unsigned i = 0; i < sizeof...(words); ++i) (i < a ? r.a[i] : r.b[i - a]) = all[i];
  __builtin_memcpy(r.c, sums, 16);
  tessera_table.together(instruction, &r);
  __builtin_memcpy(sums, r.c, 16);
}
template <int instruction>
static void tessera_ldmatrix(unsigned* words, const unsigned short* row) {
  Registers r = {};
  r.row = row;
  tessera_table.together(instruction, &r);
  for (int i = 0; i < 4; ++i) words[i] = r.a[i];
}
template <int instruction, int words, int floats, class Sum>
static void tessera_amd(Sum* sums, const unsigned* left, const unsigned* right) {
  Registers r = {};
  for (int i = 0; i < words; ++i) r.a[i] = left[i], r.b[i] = right[i];
  __builtin_memcpy(r.c, sums, 4 * floats);
  tessera_table.together(instruction, &r);
  __builtin_memcpy(sums, r.c, 4 * floats);
}
template <class T>
static T __shfl(T value, int lane) {
  static_assert(sizeof(T) == 4, "");
  Registers r = {};
  __builtin_memcpy(&r.a[0], &value, 4);
  r.b[0] = lane;
  tessera_table.together(10, &r);
  __builtin_memcpy(&value, &r.c[0], 4);
  return value;
}
template <class T>
static T __shfl_sync(unsigned, T value, int lane) { return __shfl(value, lane); }
static void tessera_twice(float* sums, const unsigned* left, const unsigned* right) {
  tessera_amd<7, 1, 4>(sums, left, right);
  tessera_amd<7, 1, 4>(sums, left + 1, right + 1);
}
#define tessera_instruction_m16n8k16_f16 tessera_mma<0>
#define tessera_instruction_m16n8k16_bf16 tessera_mma<1>
#define tessera_instruction_m16n8k8_f16 tessera_mma<2>
#define tessera_instruction_ldmatrix tessera_ldmatrix<3>
#define tessera_instruction_ldmatrix_trans tessera_ldmatrix<4>
#define tessera_instruction_mfma_16x16x16_f16 tessera_amd<5, 2, 4>
#define tessera_instruction_mfma_16x16x16_bf16 tessera_amd<6, 2, 4>
#define tessera_instruction_mfma_16x16x8_twice_bf16 tessera_twice
#define tessera_instruction_wmma_16x16x16_f16 tessera_amd<8, 8, 8>
#define tessera_instruction_wmma_16x16x16_bf16 tessera_amd<9, 8, 8>
#define tessera_instruction_m16n8k32_i8 tessera_mma<11>
#define tessera_instruction_m16n8k8_tf32 tessera_mma<15>
#define tessera_instruction_mfma_16x16x4_f32 tessera_amd<16, 1, 4>
#define tessera_instruction_tf32(value) tessera_table.tf32_of(value)
#define tessera_instruction_mfma_16x16x16_i8 tessera_amd<12, 1, 4>
#define tessera_instruction_mfma_16x16x32_i8 tessera_amd<13, 2, 4>
#define tessera_instruction_wmma_16x16x16_i8 tessera_amd<14, 4, 8>
)";
  std::string changed = text;
  for (const auto& [instruction, function] :
       {std::pair{"cvt.rn.f16.f32 ", "half_of"}, std::pair{"cvt.rn.bf16.f32 ", "bfloat_of"}}) {
    const std::size_t at = changed.find(instruction);
    if (at == std::string::npos) continue;
    const std::size_t line = changed.rfind('\n', at) + 1, end = changed.find("(value));", at) + 8;
    changed.replace(line, end - line, std::string("bits = tessera_table.") + function + "(value)");
  }
  return before + "#define warpSize " + std::to_string(width) + "\n" + changed;
}

/// The text, compiled to a library, and its kernels. All arguments of a kernel are buffers; their number is `buffers`.
class CompiledText {
 public:
  CompiledText(const std::string& text, unsigned width, const std::vector<std::string>& entries, unsigned buffers) {
    namespace fs = std::filesystem;
    static int count = 0;
    const fs::path folder = fs::temp_directory_path();
    const std::string stem =
        (folder / ("tessera-lanes-" + std::to_string(::getpid()) + "-" + std::to_string(++count))).string();
    std::string calls;
    for (const std::string& entry : entries) {
      calls += "extern \"C\" void call_" + entry + "(void** p) { " + entry + "(";
      for (unsigned i = 0; i < buffers; ++i) calls += (i ? ", Argument{p[" : "Argument{p[") + std::to_string(i) + "]}";
      calls += "); }\n";
    }
    std::ofstream(stem + ".cpp") << text_for_lanes(text, width) << calls;
    const std::string command = "clang++-16 -std=c++17 -w -O1 -fno-strict-aliasing -shared -fPIC '" + stem +
                                ".cpp' -o '" + stem + ".so' > '" + stem + ".log' 2>&1";
    const bool made = std::system(command.c_str()) == 0;
    std::ifstream log(stem + ".log");
    const std::string said{std::istreambuf_iterator<char>(log), {}};
    if (made) library_ = ::dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const char* end : {".cpp", ".so", ".log"}) fs::remove(stem + end);
    if (!library_) throw std::runtime_error("clang failed: " + said + "\n" + text_for_lanes(text, width));
    struct Table {
      unsigned (*thread)();
      void (*barrier)();
      void (*together)(int, LaneRegisters*);
      std::uint16_t (*half_of)(float);
      std::uint16_t (*bfloat_of)(float);
      std::uint32_t (*tf32_of)(float);
    };
    *static_cast<Table*>(::dlsym(library_, "tessera_table")) = {&Lanes::thread,
                                                                &Lanes::barrier,
                                                                &Lanes::together,
                                                                [](float f) { return half(f).bits; },
                                                                [](float f) { return bfloat16(f).bits; },
                                                                &tf32_bits};
  }
  ~CompiledText() {
    if (library_) ::dlclose(library_);
  }
  CompiledText(const CompiledText&) = delete;
  CompiledText& operator=(const CompiledText&) = delete;
  void run(const std::string& entry, std::vector<void*> buffers) const {
    reinterpret_cast<void (*)(void**)>(::dlsym(library_, ("call_" + entry).c_str()))(buffers.data());
  }

 private:
  void* library_ = nullptr;
};

}  // namespace tessera::test
