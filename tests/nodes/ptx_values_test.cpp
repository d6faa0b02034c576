// SPDX-License-Identifier: Apache-2.0
// Runs the table of nodes on an emulated NVIDIA GPU. The code-generation module translates kernels to LLVM IR and then
// to PTX. This test replaces special registers, barriers and shuffles in the LLVM IR by calls, and clang compiles the
// result for this machine. Each thread of a block is a host thread. LLVM's translation to PTX and ptxas are not tested.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <regex>
#include <thread>

#include <gtest/gtest.h>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/base/error.h"
#include "tests/matrix/matrix_instructions.h"
#include "tests/matrix/matrix_products.h"
#include "tests/nodes/node_table.h"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

/// A barrier for `count` threads.
class Meeting {
 public:
  void wait(unsigned count) {
    std::unique_lock hold(lock_);
    if (++come_ == count) {
      come_ = 0, ++round_;
      all_.notify_all();
    } else {
      all_.wait(hold, [this, round = round_] { return round_ != round; });
    }
  }

 private:
  std::mutex lock_;
  std::condition_variable all_;
  unsigned come_ = 0, round_ = 0;
};
struct Warp {
  Meeting meeting;
  std::vector<LaneRegisters*> brought = std::vector<LaneRegisters*>(32);
  std::array<std::uint32_t, 32> words{};
};
struct Block {
  unsigned threads = 0;
  Meeting meeting;
  std::array<Warp, 32> warps;
};

struct Registers {
  std::array<int, 3> tid{}, ctaid{}, ntid{1, 1, 1}, nctaid{1, 1, 1};
  Block* block = nullptr;
  unsigned linear = 0;
};
thread_local Registers registers;

/// Exchanges values among the lanes in `mask`.
template <class F>
std::uint32_t exchange(std::uint32_t mask, std::uint32_t value, F&& from) {
  Warp& warp = registers.block->warps[registers.linear / 32];
  const unsigned lane = registers.linear % 32, count = static_cast<unsigned>(__builtin_popcount(mask));
  EXPECT_TRUE(mask >> lane & 1) << "the lane is not in the mask";
  warp.words[lane] = value;
  warp.meeting.wait(count);
  const int source = from(static_cast<int>(lane));
  // PTX: if the source lane is out of range, the lane's own value is returned.
  const std::uint32_t got = source >= 0 && source < 32 ? warp.words[static_cast<unsigned>(source)] : value;
  warp.meeting.wait(count);
  return got;
}

}  // namespace
}  // namespace tessera::test

// The compiled code calls these functions.
using tessera::test::registers;
#define REGISTER(name)                                              \
  extern "C" int tessera_##name##_x() { return registers.name[0]; } \
  extern "C" int tessera_##name##_y() { return registers.name[1]; } \
  extern "C" int tessera_##name##_z() { return registers.name[2]; }
REGISTER(tid)
REGISTER(ctaid)
REGISTER(ntid)
REGISTER(nctaid)
extern "C" void tessera_barrier() { registers.block->meeting.wait(registers.block->threads); }
extern "C" std::uint32_t tessera_shfl_idx(std::uint32_t mask, std::uint32_t v, std::uint32_t by, std::uint32_t) {
  return tessera::test::exchange(mask, v, [&](int) { return static_cast<int>(by & 31); });
}
extern "C" std::uint32_t tessera_shfl_bfly(std::uint32_t mask, std::uint32_t v, std::uint32_t by, std::uint32_t) {
  return tessera::test::exchange(mask, v, [&](int lane) { return lane ^ static_cast<int>(by); });
}
extern "C" std::uint32_t tessera_shfl_up(std::uint32_t mask, std::uint32_t v, std::uint32_t by, std::uint32_t) {
  return tessera::test::exchange(mask, v, [&](int lane) { return lane - static_cast<int>(by); });
}
extern "C" std::uint32_t tessera_shfl_down(std::uint32_t mask, std::uint32_t v, std::uint32_t by, std::uint32_t) {
  return tessera::test::exchange(mask, v, [&](int lane) { return lane + static_cast<int>(by); });
}
#define DP4A(name, A, B)                                                                  \
  extern "C" int tessera_dp4a_##name(std::uint32_t a, std::uint32_t b, int c) {           \
    std::uint32_t sum = static_cast<std::uint32_t>(c);                                    \
    for (int i = 0; i < 32; i += 8)                                                       \
      sum += static_cast<std::uint32_t>(static_cast<A>(a >> i) * static_cast<B>(b >> i)); \
    return static_cast<int>(sum);                                                         \
  }
/// Executes an instruction of a whole warp on the registers of its lanes.
extern "C" void tessera_together(int instruction, tessera::test::LaneRegisters* mine) {
  auto& warp = registers.block->warps[registers.linear / 32];
  warp.brought[registers.linear % 32] = mine;
  warp.meeting.wait(32);
  if (registers.linear % 32 == 0) tessera::test::execute(instruction, warp.brought);
  warp.meeting.wait(32);
}
extern "C" std::uint32_t tessera_tf32_from_f32(float f) { return tessera::test::tf32_bits(f); }
extern "C" std::uint16_t tessera_bf16_from_f32(float f) { return tessera::bfloat16(f).bits; }
DP4A(s32_s32, std::int8_t, std::int8_t)
DP4A(u32_s32, std::uint8_t, std::int8_t)
DP4A(u32_u32, std::uint8_t, std::uint8_t)
/// CUDA's printf. Values are stored one after another, each aligned to its size.
extern "C" int tessera_vprintf(const char* format, const char* values) {
  std::string out;
  std::size_t at = 0;
  const auto next = [&](auto zero) {
    at = (at + sizeof zero - 1) / sizeof zero * sizeof zero;
    std::memcpy(&zero, values + at, sizeof zero);
    at += sizeof zero;
    return zero;
  };
  char text[64];
  for (const char* f = format; *f != 0; ++f) {
    if (*f != '%') {
      out += *f;
    } else if (f[1] == '%') {
      out += *++f;
    } else {
      const std::string wide(f + 1, 2);
      if (wide == "ll") {
        std::snprintf(text, sizeof text, f[3] == 'd' ? "%lld" : "%llu", next(0LL));
        f += 3;
      } else {
        if (f[1] == '.') {  // the format is "%.9g"
          const std::string number(f, std::strchr(f, 'g') + 1);
          std::snprintf(text, sizeof text, number.c_str(), next(0.0));
          f += number.size() - 1;
        } else {
          std::snprintf(text, sizeof text, f[1] == 'd' ? "%d" : "%u", next(0));
          ++f;
        }
      }
      out += text;
    }
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

namespace tessera::test {
namespace {

using namespace ir;

/// Returns an LLVM function that replaces an instruction. It writes words and floats to a LaneRegisters and reads the
/// results from it.
std::string on_registers(int number, const std::string& name, std::size_t a, std::size_t b, bool sums,
                         const std::string& sum = "float") {
  const std::string four = sums ? "{ " + sum + ", " + sum + ", " + sum + ", " + sum + " }" : "{ i32, i32, i32, i32 }";
  std::string list, body;
  auto put = [&](const std::string& type, std::size_t word) {
    const std::string n = std::to_string(word);
    list += (list.empty() ? "" : ", ") + type + " %v" + n;
    body +=
        "  %p" + n + " = getelementptr i32, ptr %r, i32 " + n + "\n  store " + type + " %v" + n + ", ptr %p" + n + "\n";
  };
  for (std::size_t i = 0; i < a; ++i) put("i32", i);
  for (std::size_t i = 0; i < b; ++i) put("i32", 8 + i);
  for (std::size_t i = 0; i < (sums ? 4 : 0); ++i) put(sum, 16 + i);
  if (!sums) put("i64", 24);  // the address of the row
  std::string out = "define internal " + four + " @" + name + "(" + list + ") {\n  %r = alloca [26 x i32], align 8\n" +
                    body + "  call void @tessera_together(i32 " + std::to_string(number) + ", ptr %r)\n";
  std::string whole = "poison";
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i), type = sums ? sum : "i32";
    out += "  %q" + n + " = getelementptr i32, ptr %r, i32 " + std::to_string((sums ? 16 : 0) + i) + "\n  %o" + n +
           " = load " + type + ", ptr %q" + n + "\n  %w" + n + " = insertvalue " + four + " " + whole + ", " + type +
           " %o" + n + ", " + n + "\n";
    whole = "%w" + n;
  }
  return out + "  ret " + four + " " + whole + "\n}\n";
}

/// The clang that reads the text of this generator's LLVM.
std::string clang_of(const cpu::PtxGenerator& generator) {
  const std::string version = generator.version().substr(std::string_view("LLVM ").size());
  return "clang-" + version.substr(0, version.find('.'));
}

std::string for_this_machine(std::string text, const emit::EmittedKernel& form) {
  const auto replace = [&](const char* what, const char* by) { text = std::regex_replace(text, std::regex(what), by); };
  replace("target (triple|datalayout) = [^\n]*", "");
  replace(" addrspace\\([0-9]+\\)", "");
  replace("addrspacecast \\(ptr", "bitcast (ptr");
  replace("ptx_kernel ", "");
  replace("@llvm\\.nvvm\\.read\\.ptx\\.sreg\\.([a-z]+)\\.([xyz])", "@tessera_$1_$2");
  replace("@llvm\\.nvvm\\.shfl\\.sync\\.([a-z]+)\\.i32", "@tessera_shfl_$1");
  replace("@llvm\\.nvvm\\.(barrier0|barrier\\.cta\\.sync\\.aligned\\.all)",
          "@tessera_barrier");  // the second since LLVM 21
  replace("@vprintf", "@tessera_vprintf");
  replace("asm \"dp4a\\.([a-z0-9]+)\\.([a-z0-9]+) [^\"]*\", \"[^\"]*\"", "@tessera_dp4a_$1_$2");
  replace(
      "asm sideeffect \"mma\\.sync\\.aligned\\.(m16n8k[0-9]+)\\.row\\.col\\.[a-z0-9]+\\.([a-z0-9]+)[^\"]*\", "
      "\"[^\"]*\"",
      "@tessera_$1_$2");
  replace("asm sideeffect \"ldmatrix\\.sync\\.aligned\\.m8n8\\.x4\\.(trans|shared)[^\"]*\", \"[^\"]*\"",
          "@tessera_ldmatrix_$1");
  replace("asm \"ex2\\.approx\\.ftz\\.f32 [^\"]*\", \"[^\"]*\"", "@exp2f");
  replace("asm \"cvt\\.rna\\.tf32\\.f32 [^\"]*\", \"[^\"]*\"", "@tessera_tf32_from_f32");
  replace("asm \"cvt\\.rn\\.bf16\\.f32 [^\"]*\", \"[^\"]*\"", "@tessera_bf16_from_f32");
  text +=
      "\ndeclare void @tessera_together(i32, ptr)\ndeclare i16 @tessera_bf16_from_f32(float)\n"
      "declare i32 @tessera_tf32_from_f32(float)\n"
      "declare float @exp2f(float)\n" +
      on_registers(m16n8k16_f16, "tessera_m16n8k16_f16", 4, 2, true) +
      on_registers(m16n8k16_bf16, "tessera_m16n8k16_bf16", 4, 2, true) +
      on_registers(m16n8k8_f16, "tessera_m16n8k8_f16", 2, 1, true) +
      on_registers(m16n8k8_tf32, "tessera_m16n8k8_tf32", 4, 2, true) +
      on_registers(m16n8k32_i8, "tessera_m16n8k32_s8", 4, 2, true, "i32") +
      on_registers(ldmatrix, "tessera_ldmatrix_shared", 0, 0, false) +
      on_registers(ldmatrix_trans, "tessera_ldmatrix_trans", 0, 0, false);
  for (const char* name : {"s32_s32", "u32_s32", "u32_u32"})
    text += std::string("\ndeclare i32 @tessera_dp4a_") + name + "(i32, i32, i32)\n";
  // Passes the arguments in an array of words.
  text += "define void @tessera_call(ptr %words) {\n";
  std::string list;
  for (std::size_t i = 0; i < form.arguments.size(); ++i) {
    const emit::KernelArgument& a = form.arguments[i];
    const std::string n = std::to_string(i);
    const std::string type = a.kind == emit::KernelArgument::Kind::pointer ? "ptr"
                             : a.dtype == DType::f32                       ? "float"
                             : a.dtype == DType::f64                       ? "double"
                                                     : "i" + std::to_string(8 * dtype_size(a.dtype));
    text += "  %p" + n + " = getelementptr i64, ptr %words, i64 " + n + "\n  %v" + n + " = load " + type + ", ptr %p" +
            n + "\n";
    list += (i ? ", " : "") + type + " %v" + n;
  }
  return text + "  call void @" + form.entry + "(" + list + ")\n  ret void\n}\n";
}

class ThreadsTarget : public Target {
 public:
  explicit ThreadsTarget(cpu::PtxGenerator& generator, int capability = 90)
      : generator_(generator),
        capability_(capability),
        folder_(fs::temp_directory_path() / ("tessera-ptx-values-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    can_.f64 = can_.f16 = can_.int8_dot = can_.atomic_i64 = can_.atomic_f32 = true;
    can_.subgroup_widths = {32};
  }
  ~ThreadsTarget() override { fs::remove_all(folder_); }
  std::string name() const override { return "ptx on threads"; }
  const Capabilities& can() const override { return can_; }
  Functions functions(DType) const override { return Functions::ptx; }

  void run(const Function& fn, std::array<std::uint64_t, 3> shape, std::vector<Memory>& memory) override {
    const emit::Dialect dialect = emit::ptx_for(capability_);
    emit::Target target = emit::target_of(dialect, index64(memory));
    const Function lowered = emit::lower(fn, target);
    const emit::EmitRequest request{&lowered, true};
    const emit::EmittedKernel form = emit::emit_c(std::span(&request, 1), dialect).kernels[0];
    const cpu::PtxKernel kernel{&lowered, &form, true};
    std::string wrong;
    const std::string text = generator_.llvm(std::span(&kernel, 1), {capability_, 78}, wrong);
    if (text.empty()) fail<KernelError>({.operation = "kernel " + fn.name, .wrong = wrong});

    const std::string stem = (folder_ / std::to_string(++count_)).string(), log = stem + ".log";
    std::ofstream(stem + ".ll") << for_this_machine(text, form);
    const std::string command = clang_of(generator_) + " -w -x ir -O1 -shared -fPIC '" + stem + ".ll' -o '" + stem +
                                ".so' -lm > '" + log + "' 2>&1";
    if (std::system(command.c_str()) != 0) {
      std::ifstream in(log);
      throw std::runtime_error("clang failed: " + std::string(std::istreambuf_iterator<char>(in), {}));
    }
    void* library = ::dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    const auto call = reinterpret_cast<void (*)(const std::uint64_t*)>(::dlsym(library, "tessera_call"));

    std::vector<std::uint64_t> words;
    for (const emit::KernelArgument& a : form.arguments) {
      using Kind = emit::KernelArgument::Kind;
      if (a.kind == Kind::extent)
        words.push_back(shape[a.number]);
      else if (a.kind == Kind::pointer)
        words.push_back(reinterpret_cast<std::uint64_t>(memory[a.number].bytes.data() + guard));
      else
        words.push_back(a.kind == Kind::length ? memory[a.number].elements : memory[a.number].bits);
    }
    if (lowered.kind == KernelKind::map)
      run_map(call, words, shape, form);
    else
      run_blocks(call, words, shape, lowered);
    std::fflush(stdout);
    ::dlclose(library);
  }

 private:
  using Call = void (*)(const std::uint64_t*);

  static void run_map(Call call, const std::vector<std::uint64_t>& words, const std::array<std::uint64_t, 3>& shape,
                      const emit::EmittedKernel& form) {
    registers = {};
    for (std::size_t d = 0; d < 3; ++d) {
      registers.ntid[d] =
          form.dimensions[d] ? 8 : 1;  // the last block has surplus threads in dimensions that are guarded
      registers.nctaid[d] = (static_cast<int>(shape[d]) + registers.ntid[d] - 1) / registers.ntid[d];
    }
    each(registers.nctaid, [&](const std::array<int, 3>& block) {
      registers.ctaid = block;
      each(registers.ntid, [&](const std::array<int, 3>& thread) {
        registers.tid = thread;
        call(words.data());
      });
    });
  }

  static void run_blocks(Call call, const std::vector<std::uint64_t>& words, const std::array<std::uint64_t, 3>& shape,
                         const Function& fn) {
    Registers all;
    for (std::size_t d = 0; d < 3; ++d)
      all.ntid[d] = static_cast<int>(fn.block_size[d]), all.nctaid[d] = static_cast<int>(shape[d]);
    each(all.nctaid, [&](const std::array<int, 3>& number) {
      Block block;
      block.threads = fn.threads_per_block();
      all.block = &block, all.ctaid = number, all.linear = 0;
      std::vector<std::thread> threads;
      each(all.ntid, [&](const std::array<int, 3>& thread) {
        all.tid = thread;
        threads.emplace_back([&call, &words, mine = all] {
          registers = mine;
          call(words.data());
        });
        ++all.linear;
      });
      for (std::thread& t : threads) t.join();
    });
  }
  template <class F>
  static void each(std::array<int, 3> count, F&& f) {
    for (int z = 0; z < count[2]; ++z)
      for (int y = 0; y < count[1]; ++y)
        for (int x = 0; x < count[0]; ++x) f({x, y, z});
  }

  cpu::PtxGenerator& generator_;
  int capability_;
  fs::path folder_;
  Capabilities can_;
  int count_ = 0;
};

void add_memory(std::vector<Target::Memory>& memory, DType t, const auto& values) {
  const auto bytes = std::as_bytes(std::span(values));
  Target::Memory m{.dtype = t, .elements = bytes.size() / dtype_size(t)};
  m.bytes.resize(bytes.size() + 2 * Target::guard);
  std::ranges::copy(bytes, m.bytes.begin() + Target::guard);
  memory.push_back(std::move(m));
}

// Tests fragments with mma.sync. Each lane is a thread, and each instruction behaves as documented.
TEST(PtxValues, MatrixProductsMatchTheReference) {
  const cpu::PtxModule module = cpu::open_ptx_module();
  if (!module.generator) GTEST_SKIP() << "passed by: " << module.reason;
  if (const std::string clang = clang_of(*module.generator);
      std::system((clang + " --version > /dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "passed by: " << clang << " is not installed (script/bootstrap)";
  std::mt19937 random(matrix_seed());
  for (const int capability : {75, 80}) {
    ThreadsTarget target(*module.generator, capability);
    executed = {};
    for (const MatrixCase& c : matrix_cases(capability >= 80, capability >= 80)) {
      MatrixRun run(c, true, random);
      std::vector<Target::Memory> memory;
      add_memory(memory, c.t, run.a), add_memory(memory, c.t, run.b);
      add_memory(memory, DType::f32, run.start), add_memory(memory, DType::f32, run.out);
      if (c.index64) memory.push_back({.dtype = DType::index, .is_buffer = false, .bits = Target::wide_index});
      target.run(matrix_case_kernel(c, 64), {1, 1, 1}, memory);
      std::memcpy(run.out.data(), memory[3].bytes.data() + Target::guard, run.out.size() * sizeof(float));
      run.check();
      if (HasFatalFailure()) return;
    }
    for (const MatrixWordsCase& c : matrix_words_cases()) {
      MatrixWordsRun run(c, random);
      std::vector<Target::Memory> memory;
      add_memory(memory, DType::u32, run.a), add_memory(memory, DType::u32, run.b);
      add_memory(memory, DType::f32, run.out);
      if (c.index64) memory.push_back({.dtype = DType::index, .is_buffer = false, .bits = Target::wide_index});
      target.run(matrix_words_kernel(c, 64), {1, 1, 1}, memory);
      std::memcpy(run.out.data(), memory[2].bytes.data() + Target::guard, run.out.size() * sizeof(float));
      run.check();
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(executed[m16n8k8_tf32] > 0, capability >= 80);
    EXPECT_EQ(executed[m16n8k32_i8] > 0, capability >= 80);
    for (const DType t : {DType::f16, DType::bf16}) {
      if (t == DType::bf16 && capability < 80) continue;
      MatrixElementsRun run(t, random);
      std::vector<Target::Memory> memory;
      add_memory(memory, t, run.b), add_memory(memory, DType::f32, run.start), add_memory(memory, DType::f32, run.out);
      target.run(matrix_elements_kernel(t, 64), {1, 1, 1}, memory);
      std::memcpy(run.out.data(), memory[2].bytes.data() + Target::guard, run.out.size() * sizeof(float));
      run.check();
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(executed[ldmatrix], 0u);
    EXPECT_GT(executed[ldmatrix_trans], 0u);
    EXPECT_EQ(executed[m16n8k8_f16] > 0, capability < 80);
    EXPECT_EQ(executed[m16n8k16_f16] > 0 && executed[m16n8k16_bf16] > 0, capability >= 80);
  }
}

TEST(PtxValues, EveryCellIsCorrect) {
  const cpu::PtxModule module = cpu::open_ptx_module();
  if (!module.generator) GTEST_SKIP() << "passed by: " << module.reason;
  if (const std::string clang = clang_of(*module.generator);
      std::system((clang + " --version > /dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "passed by: " << clang << " is not installed (script/bootstrap)";
  std::vector<std::unique_ptr<Target>> targets;
  targets.push_back(std::make_unique<ThreadsTarget>(*module.generator));
  const Table table = walk(std::move(targets));
  std::size_t cells = 0, refused = 0;
  for (const auto& row : table.cells)
    for (const Cell& cell : row) {
      cells += cell.refusal.empty(), refused += cell.lacking.size();
      for (const auto& [target, text] : cell.lacking) std::printf("rejected: %s\n", text.c_str());
    }
  std::printf("%zu cells, %zu rejected\n", cells, refused);
  EXPECT_EQ(refused, 0u);
}

}  // namespace
}  // namespace tessera::test
