// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/cpu/machine_code.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/base/packed.h"
#include "tessera/device/launch/operation_count.h"
#include "tessera/ir/print.h"
#include "tessera/ir/semantics.h"

namespace tessera::cpu {

namespace {

using namespace ir;

// A launch with fewer operations than inline_cost runs only on the calling thread. A piece for one thread has at least
// grain_cost operations, which take some tens of microseconds.
constexpr double inline_cost = 2e5, grain_cost = 1e5;

struct LaunchScratch;

// Returns the scratch memory of the calling thread. The next launch on this thread reuses it.
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
      fail<OutOfMemory>({.operation = "launch",
                         .with = {{"scratch bytes", std::to_string(rounded)}},
                         .wrong = "the system has no memory left for a block's shared memory"});
    std::free(slab.data);
    slab.data = fresh, slab.bytes = rounded;
  }
  return slab.data;
}

/// The launch data that an image stores in addition to machine code. `prints` is indexed by the number of the format.
struct Facts {
  struct Print {
    std::string text;
    std::vector<DType> types;
  };
  OperationCount operations;
  std::map<std::uint32_t, Print> prints;
};

Facts facts_of(const Function& lowered) {
  Facts facts;
  facts.operations = OperationCount(lowered);
  for (const Node& n : lowered.nodes)
    if (n.op == Op::print) {
      Facts::Print& print = facts.prints[n.extra] = {lowered.strings[n.extra], {}};
      for (NodeId a : operands(n)) print.types.push_back(lowered[a].type.dtype);
    }
  return facts;
}

std::string pack(const Facts& facts, const Object& object) {
  Packer out;
  facts.operations.pack(out);
  out << std::uint64_t{facts.prints.size()};
  for (const auto& [format, print] : facts.prints) {
    out << format << print.text << std::uint64_t{print.types.size()};
    for (const DType type : print.types) out << static_cast<std::uint8_t>(type);
  }
  out << std::uint64_t{object.scratch_bytes} << object.bytes;
  return out.take();
}

GenerateOptions options_of(Variant variant) { return {.noalias = variant.noalias, .index64 = variant.index64}; }

class GeneratedKernel final : public CpuKernel {
 public:
  /// `target` is null if the image is from a pack.
  GeneratedKernel(std::shared_ptr<const CodeTarget> target, const CompileRequest& request, std::string_view image)
      : target_(std::move(target)), function_(*request.function), variant_(request.variant) {
    Unpacker in(image);
    facts_.operations = OperationCount(in);
    for (auto prints = in.take<std::uint64_t>(); prints > 0; --prints) {
      Facts::Print& print = facts_.prints[in.take<std::uint32_t>()];
      print.text = in.text();
      for (auto types = in.take<std::uint64_t>(); types > 0; --types)
        print.types.push_back(static_cast<DType>(in.take<std::uint8_t>()));
    }
    scratch_bytes_ = in.take<std::uint64_t>();
    const std::string_view object = in.text();
    in.end();
    code_.emplace(object, function_.name);
  }

  std::string source() const override {
    if (target_ == nullptr) return to_text(function_);
    check_llvm_after_fork("print " + function_.name);
    Generator& generator = generator_of(*target_, function_.name);
    const Function lowered = emit::lower(function_, lowering_target(generator.target(), function_, variant_));
    check_memory_to_compile(function_.name, lowered.nodes.size());
    const os::ForkGuard whole;  // LLVM is not fork-safe
    const std::string text = generator.text(lowered, options_of(variant_), Generator::Text::optimised);
    if (text.empty()) throw_out_of_memory("print " + function_.name, 0);
    return "; " + generator.version() + " for " + generator.target().cpu + "\n" + text;
  }

  void launch(std::array<std::uint64_t, 3> shape, std::span<const Argument> arguments) override {
    std::array<std::uint64_t, 64> few;  // not initialised, because clearing it takes as long as a small kernel
    std::vector<std::uint64_t> many;
    if (2 * arguments.size() > few.size()) many.resize(2 * arguments.size());
    std::uint64_t* const slots = many.empty() ? few.data() : many.data();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Argument& a = arguments[i];
      slots[2 * i] = a.allocation ? reinterpret_cast<std::uint64_t>(a.allocation->host + a.byte_offset) : a.bits;
      slots[2 * i + 1] = a.elements;  // unused for scalars
    }
    KernelCall call{slots, {shape[0], shape[1], shape[2]}, &GeneratedKernel::print, this};
    const std::uint64_t items = shape[0] * shape[1] * shape[2];
    const KernelEntry entry = code_->entry();
    const std::size_t bytes = scratch_bytes_;
    if (items == 1) return entry(&call, 0, 1, scratch(bytes));  // a single item cannot be split
    const double item_cost = facts_.operations(arguments);
    if (static_cast<double>(items) * item_cost < inline_cost) return entry(&call, 0, items, scratch(bytes));
    executor::Executor& threads = executor::Executor::instance();
    // Pieces must be large enough to be worth waking a thread, and small enough that all threads finish at about the
    // same time. In map kernels, a piece must cover full cache lines for every dtype.
    const auto worthwhile = static_cast<std::uint64_t>(grain_cost / item_cost) + 1;
    std::uint64_t grain = std::max(worthwhile, (items - 1) / (8 * threads.threads()) + 1);
    // All threads get the same number of pieces.
    if (const std::uint64_t each = items / grain / threads.threads(); each != 0)
      grain = (items - 1) / (each * threads.threads()) + 1;
    if (function_.kind == KernelKind::map) grain = (grain + 63) & ~std::uint64_t{63};
    if (grain >= items || threads.threads() == 1) return entry(&call, 0, items, scratch(bytes));
    const auto piece = [&](std::uint64_t begin, std::uint64_t end) { entry(&call, begin, end, scratch(bytes)); };
    threads.parallel_for(items, grain, std::cref(piece));  // std::cref avoids a copy, which could allocate
  }

 private:
  // Compiled code calls this for each kernel thread that executes a print statement. The line is written with one call,
  // so that lines of different threads do not mix.
  static void print(void* self, std::uint32_t format, const std::uint64_t* bits) noexcept {
    try {
      const Facts::Print& print = static_cast<GeneratedKernel*>(self)->facts_.prints.at(format);
      std::string line;
      std::size_t value = 0;
      for (const ir::PrintPiece& piece : ir::print_pieces(print.text)) {
        line += piece.text;
        if (!piece.value) continue;
        line += value_text(print.types[value], bits[value], piece.digits);
        ++value;
      }
      line += '\n';
      std::fwrite(line.data(), 1, line.size(), stdout);
    } catch (const std::exception&) {  // out of memory: the line is not printed, but the kernel continues
    }
  }
  static std::string value_text(DType t, std::uint64_t bits, int digits) {
    return with_compute_type(t, [&](auto tag) {
      using T = decltype(tag);
      const T v = from_bits<T>(t, bits);
      if constexpr (std::is_same_v<T, bool>)
        return std::string(v ? "1" : "0");
      else if constexpr (std::is_floating_point_v<T>)
        return ir::print_float(v, digits ? digits : t == DType::f64 ? ir::double_digits : ir::float_digits);
      else
        return fmt::format("{}", +v);
    });
  }

  const std::shared_ptr<const CodeTarget> target_;
  Function function_;  ///< before lowering
  Variant variant_;
  Facts facts_;
  std::size_t scratch_bytes_ = 0;
  std::optional<MachineCode> code_;
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

emit::Target lowering_target(const TargetTraits& traits, const Function& function, Variant variant) {
  emit::Target t;
  t.index64 = variant.index64 || function.index64;
  t.guard_map = false;
  t.f16_convert = traits.f16c;
  t.bf16_convert = false;
  t.expand_math = t.fast_f64 = true;
  t.max_shared_bytes = max_shared_bytes;
  return t;
}

std::string build_kernel(Generator& generator, const CompileRequest& request) {
  const Function lowered =
      emit::lower(*request.function, lowering_target(generator.target(), *request.function, request.variant));
  check_memory_to_compile(lowered.name, lowered.nodes.size());
  Object object;
  std::string wrong;
  if (!generator.compile(lowered, options_of(request.variant), object, wrong)) {
    if (wrong.empty()) throw_out_of_memory("compile " + lowered.name, 0);
    fail<KernelError>({.operation = "kernel " + lowered.name, .with = {{"device", "cpu:0"}}, .wrong = wrong});
  }
  return pack(facts_of(lowered), object);
}

std::unique_ptr<CpuKernel> load_kernel(std::shared_ptr<const CodeTarget> target, const CompileRequest& request,
                                       std::string_view image) {
  return std::make_unique<GeneratedKernel>(std::move(target), request, image);
}

std::unique_ptr<CpuKernel> interpreted_kernel(const CompileRequest& request) {
  Function f = *request.function;
  f.index64 = f.index64 || request.variant.index64;
  return std::make_unique<InterpretedKernel>(std::move(f));
}

}  // namespace tessera::cpu
