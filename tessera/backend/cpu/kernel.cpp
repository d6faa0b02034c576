// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/base/error.h"
#include "tessera/base/inline_vector.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/ir/semantics.h"

namespace tessera::cpu {

namespace {

using namespace ir;

// Operations below which a launch is not worth waking another thread for, and that a thread takes at a time: some tens
// of microseconds.
constexpr double inline_cost = 2e5, grain_cost = 1e5;

// Rough operations of one thread: nodes, loops by their trip counts where known.
double cost(const Function& fn, BlockId b) {
  double sum = 0;
  for (NodeId id : fn.blocks[b]) {
    const Node& n = fn[id];
    sum += n.op == Op::math ? 8 : n.op == Op::atomic ? 32 : 1;
    double rounds = 1;
    if (n.op == Op::while_) rounds = 16;
    if (n.op == Op::for_) {
      const Node &begin = fn[n.args[0]], &end = fn[n.args[1]], &step = fn[n.args[2]];
      const bool known = begin.op == Op::constant && end.op == Op::constant && step.op == Op::constant && step.imm != 0;
      rounds =
          !known ? 64
                 : std::max(0.0, (double(std::int64_t(end.imm)) - double(std::int64_t(begin.imm))) / double(step.imm));
    }
    for_each_nested(n, [&](BlockId inner) { sum += rounds * cost(fn, inner); });
  }
  return sum;
}

struct LaunchScratch;

// Scratch memory of the calling thread, kept for its next launch.
std::byte* scratch(std::size_t bytes) {
  struct Slab {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    ~Slab() { std::free(data); }
  };
  Slab& slab = os::PerThread<Slab, LaunchScratch>::get();
  if (slab.bytes < bytes) {
    const std::size_t rounded = (bytes + 4095) & ~std::size_t{4095};
    auto* fresh = static_cast<std::byte*>(std::aligned_alloc(4096, rounded));
    if (!fresh)
      fail<OutOfMemory>({.asked = "launch",
                         .with = {{"scratch bytes", std::to_string(rounded)}},
                         .wrong = "there is no memory for a block's shared memory"});
    std::free(slab.data);
    slab.data = fresh, slab.bytes = rounded;
  }
  return slab.data;
}

class GeneratedKernel final : public CpuKernel {
 public:
  GeneratedKernel(Generator& generator, Function function, GenerateOptions options)
      : generator_(generator), function_(std::move(function)), options_(options) {
    need_room_to_compile(function_.name, function_.nodes.size());
    std::string wrong;
    compiled_ = generator_.compile(function_, options_, wrong);
    if (!compiled_ && wrong.empty()) fail_without_room("compile " + function_.name, 0);
    if (!compiled_)
      fail<KernelError>({.asked = "kernel " + function_.name, .with = {{"device", "cpu:0"}}, .wrong = wrong});
    item_cost_ = cost(function_, 0) + 1;
    if (function_.kind == KernelKind::block) item_cost_ *= function_.threads_per_block();
    for (const Node& n : function_.nodes)
      if (n.op == Op::print) {
        auto& types = prints_[n.extra];
        types.clear();
        for (NodeId a : operands(n)) types.push_back(function_[a].type.dtype);
      }
  }

  ~GeneratedKernel() override {
    if (os::forked_amid()) {  // LLVM's locks are another thread's of the parent, which does not exist here
      static_cast<void>(compiled_.release());
      return;
    }
    const os::NoFork whole;  // LLVM's state
    compiled_.reset();
  }

  std::string source() const override {
    need_whole_llvm("print " + function_.name);
    need_room_to_compile(function_.name, function_.nodes.size());
    const os::NoFork whole;  // LLVM's state
    const std::string text = generator_.text(function_, options_, Generator::Text::optimised);
    if (text.empty()) fail_without_room("print " + function_.name, 0);
    return "; " + generator_.version() + " for " + generator_.target().cpu + "\n" + text;
  }

  void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    InlineVector<std::uint64_t, 64> slots(2 * function_.params.size() + 1);
    for (std::size_t i = 0; i < function_.params.size(); ++i) {
      const Argument& a = arguments[i];
      const bool buffer = function_.params[i].is_buffer;
      slots[2 * i] = buffer ? reinterpret_cast<std::uint64_t>(a.allocation->host + a.byte_offset) : a.bits;
      slots[2 * i + 1] = buffer ? a.elements : 0;
    }
    KernelCall call{slots.data(), {shape[0], shape[1], shape[2]}, &GeneratedKernel::print, this};
    const std::uint64_t items = shape[0] * shape[1] * shape[2];
    const KernelEntry entry = compiled_->entry();
    const std::size_t bytes = compiled_->scratch_bytes();
    if (static_cast<double>(items) * item_cost_ < inline_cost) return entry(&call, 0, items, scratch(bytes));
    ThreadPool& pool = ThreadPool::instance();
    // Pieces are large enough to be worth a thread's while, small enough that all threads end together, and of map
    // kernels whole cache lines for every dtype.
    const auto worthwhile = static_cast<std::uint64_t>(grain_cost / item_cost_) + 1;
    std::uint64_t grain = std::max(worthwhile, items / (8 * pool.threads()) + 1);
    if (function_.kind == KernelKind::map) grain = (grain + 63) & ~std::uint64_t{63};
    if (grain >= items || pool.threads() == 1) return entry(&call, 0, items, scratch(bytes));
    pool.run(items, grain, [&](std::uint64_t begin, std::uint64_t end) { entry(&call, begin, end, scratch(bytes)); });
  }

 private:
  // Called by compiled code, one thread's statement at a time: a whole line goes out at once.
  static void print(void* self, std::uint32_t format, const std::uint64_t* bits) noexcept {
    try {
      const auto& kernel = *static_cast<GeneratedKernel*>(self);
      const std::string& text = kernel.function_.strings[format];
      const auto types = kernel.prints_.find(format);
      std::string line;
      std::size_t value = 0;
      for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.compare(i, 2, "{}") != 0 || types == kernel.prints_.end() || value == types->second.size()) {
          line += text[i];
          continue;
        }
        line += value_text(types->second[value], bits[value]);
        ++value, ++i;
      }
      line += '\n';
      std::fwrite(line.data(), 1, line.size(), stderr);
    } catch (const std::exception&) {  // no memory for a line: it is lost, the kernel goes on
    }
  }
  static std::string value_text(DType t, std::uint64_t bits) {
    return with_compute_type(t, [&](auto tag) {
      using T = decltype(tag);
      const T v = from_bits<T>(t, bits);
      if constexpr (std::is_same_v<T, bool>)
        return std::string(v ? "true" : "false");
      else if constexpr (std::is_floating_point_v<T>)
        return fmt::format("{}", v);
      else
        return fmt::format("{}", +v);
    });
  }

  Generator& generator_;
  Function function_;
  GenerateOptions options_;
  std::unique_ptr<Compiled> compiled_;
  std::map<std::uint32_t, std::vector<DType>> prints_;
  double item_cost_ = 1;
};

class InterpretedKernel : public CpuKernel {
 public:
  explicit InterpretedKernel(Function function) : interpreter_(std::move(function)) {}
  std::string source() const override { return to_text(interpreter_.function()); }
  void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    std::vector<InterpreterArgument> all;
    for (const Argument& a : arguments)
      all.push_back({.data = a.allocation ? a.allocation->host + a.byte_offset : nullptr,
                     .elements = a.elements,
                     .bits = a.bits});
    interpreter_.run(shape, all);
  }

 private:
  Interpreter interpreter_;
};

}  // namespace

emit::Target lowering_target(const TargetTraits& traits, Variant variant) {
  emit::Target t;
  t.index64 = variant.index64;
  t.guard_map = false;
  t.f16_convert = traits.f16c;
  t.bf16_convert = false;
  t.expand_math = true;
  t.max_shared_bytes = max_shared_bytes;
  return t;
}

std::unique_ptr<CpuKernel> compile_kernel(Generator& generator, const CompileRequest& request) {
  GenerateOptions options;
  options.noalias = request.variant.noalias;
  options.index64 = request.variant.index64;
  return std::make_unique<GeneratedKernel>(
      generator, emit::lower(*request.function, lowering_target(generator.target(), request.variant)), options);
}

std::unique_ptr<CpuKernel> interpreted_kernel(const CompileRequest& request) {
  Function f = *request.function;
  f.index64 = f.index64 || request.variant.index64;
  return std::make_unique<InterpretedKernel>(std::move(f));
}

}  // namespace tessera::cpu
