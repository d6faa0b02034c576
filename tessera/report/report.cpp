// SPDX-License-Identifier: Apache-2.0
#include "tessera/report/report.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/launch/operation_count.h"
#include "tessera/device/placement/dry_launch.h"
#include "tessera/ir/node.h"
#include "tessera/report/assembly.h"
#include "tessera/report/model.h"

namespace tessera {

namespace {

constexpr std::uint32_t map_threads = 256;

reporting::LoadPattern pattern_of(const OfflineKernel& code) {
  return reporting::load_pattern(code.syntax == OfflineKernel::Syntax::sass ? reporting::parse_sass(code.assembly)
                                                                            : reporting::parse_amdgcn(code.assembly));
}

KernelReport report_on(const GpuModel& gpu, const OfflineKernel& code, const std::string& kernel,
                       const std::string& architecture, std::uint32_t threads) {
  KernelReport r;
  r.kernel = kernel;
  r.architecture = architecture;
  r.gpu = gpu.name;
  r.compiler = code.compiler;
  r.registers = code.registers;
  r.spilled_bytes = code.spilled_bytes;
  r.shared_bytes = code.shared_bytes;
  r.threads = threads;
  const std::uint32_t fit = reporting::blocks_that_fit(gpu, threads, code.registers, code.shared_bytes);
  r.occupancy = static_cast<double>(fit) * threads / gpu.max_threads;
  r.unknown = code.missing;
  if (code.syntax != OfflineKernel::Syntax::none) {
    const reporting::LoadPattern p = pattern_of(code);
    r.loops = LoopReport{p.loop,
                         p.innermost,
                         p.instructions,
                         p.bytes,
                         p.widest,
                         p.narrowest,
                         p.widest_store,
                         p.groups,
                         p.bytes_in_flight,
                         p.matrix_instructions,
                         p.matrix.instructions,
                         p.matrix.matrix,
                         p.matrix.multiply_adds,
                         p.matrix.shared_bytes};
  }
  return r;
}

/// The arguments of a launch, as OperationCount expects them.
std::vector<Argument> arguments_of(const DryLaunch& launch) {
  std::vector<Argument> arguments(launch.values.size());
  for (std::size_t i = 0; i < arguments.size(); ++i)
    (launch.function->params[i].is_buffer ? arguments[i].elements : arguments[i].bits) = launch.values[i];
  return arguments;
}

double items_of(const DryLaunch& launch) {
  return static_cast<double>(launch.shape[0]) * static_cast<double>(launch.shape[1]) *
         static_cast<double>(launch.shape[2]);
}

/// Bytes that the launch reads and writes.
struct Traffic {
  double total = 0;                 ///< each buffer at most once for each of reading and writing
  double large_reads = 0;           ///< reads of large buffers
  std::vector<std::uint8_t> large;  ///< per parameter: 1 if the buffer has more than 1 % of the bytes
};

Traffic traffic_of(const DryLaunch& launch) {
  const ir::Function& fn = *launch.function;
  const KernelFacts facts(fn);
  const std::vector<Argument> arguments = arguments_of(launch);
  std::vector<double> bytes(launch.values.size());
  Traffic t;
  for (const std::uint32_t p : facts.buffers) {
    // A launch may use a part of a buffer. If an iteration count is unknown, it is assumed to use all of it.
    constexpr double unknown = 1e12;
    const auto is = [&](ir::NodeId memory) { return fn[memory].op == ir::Op::param && fn[memory].imm == p; };
    const OperationCount accesses(
        fn,
        [&](const ir::Node& n) {
          if (!is(ir::read_memory(n)) && !is(ir::written_memory(n))) return 0.0;
          return n.op == ir::Op::mma     ? (n.type.dtype == DType::i8 ? 4.0 : 8.0)
                 : n.op == ir::Op::async ? static_cast<double>(n.imm)
                                         : n.type.lanes;
        },
        unknown);
    bytes[p] = std::min(static_cast<double>(launch.values[p]), accesses(arguments) * items_of(launch)) *
               static_cast<double>(dtype_size(fn.params[p].dtype));
    t.total += bytes[p] * (facts.reads[p] + facts.writes[p]);
  }
  t.large.resize(bytes.size());
  for (const std::uint32_t p : facts.buffers) {
    t.large[p] = bytes[p] > 0.01 * t.total;
    if (t.large[p] && facts.reads[p]) t.large_reads += bytes[p];
  }
  return t;
}

/// Returns the share of large buffers in the bytes that a thread loads in the loop that loads most. Small buffers are
/// in a cache, so their loads do not count as requests to memory.
double share_of_large_buffers(const ir::Function& fn, const Traffic& traffic) {
  struct Bytes {
    double large = 0, all = 0;
  };
  std::vector<Bytes> loops(1);
  const auto visit = [&](const auto& self, ir::BlockId block, std::size_t loop) -> void {
    for (const ir::NodeId id : fn.blocks[block]) {
      const ir::Node& n = fn[id];
      if (const ir::NodeId memory = ir::read_memory(n); memory != ir::no_node && fn[memory].op == ir::Op::param) {
        const double bytes = static_cast<double>(dtype_size(fn[memory].type.dtype)) *
                             (n.op == ir::Op::async ? static_cast<double>(n.imm) : n.type.lanes);
        loops[loop].all += bytes;
        if (traffic.large[fn[memory].imm]) loops[loop].large += bytes;
      }
      const bool is_loop = n.op == ir::Op::for_ || n.op == ir::Op::while_;
      if (is_loop) loops.emplace_back();
      const std::size_t inner = is_loop ? loops.size() - 1 : loop;
      ir::for_each_nested(n, [&](ir::BlockId nested) { self(self, nested, inner); });
    }
  };
  visit(visit, 0, 0);
  const auto most =
      loops.size() == 1 ? loops.begin() : std::ranges::max_element(loops.begin() + 1, loops.end(), {}, &Bytes::all);
  const Bytes& chosen = most->all > 0 ? *most : loops[0];
  return chosen.all > 0 ? chosen.large / chosen.all : 1;
}

/// Returns the number of multiply-adds in products of fragments. Those of i8 have twice the rate of 16-bit floats, so
/// they count as half; those of f32 count `f32_cost` times. Loops with unknown bounds count as in OperationCount, so
/// that causal attention counts the keys that it skips.
double matrix_operations_of(const DryLaunch& launch, std::uint32_t subgroup, double f32_cost) {
  const ir::Function& fn = *launch.function;
  const auto weight = [&](const ir::Node& n) -> double {
    if (n.op != ir::Op::mma || n.kind<ir::MmaOp>() != ir::MmaOp::multiply) return 0;
    constexpr double whole = ir::fragment_elements * ir::fragment_side;  // also of i8, with twice the depth
    return whole / subgroup * (fn[n.args[1]].type.dtype == DType::f32 ? f32_cost : 1);
  };
  return OperationCount(*launch.function, weight, 1)(arguments_of(launch)) * items_of(launch);
}

/// Returns a lower bound of the number of operations of a launch: arithmetic of floats and bytes in its IR.
double operations_of(const DryLaunch& launch) {
  const auto weight = [](const ir::Node& n) -> double {
    if (n.op == ir::Op::math) return n.kind<ir::MathOp>() == ir::MathOp::fma ? 1 : 8;
    if (n.op == ir::Op::dot4) return 1;
    return (n.op == ir::Op::binary || n.op == ir::Op::unary) && is_float(n.type.dtype) ? n.type.lanes : 0;
  };
  return OperationCount(*launch.function, weight, 1)(arguments_of(launch)) * items_of(launch);
}

}  // namespace

std::string_view bound_name(Bound bound) {
  constexpr std::string_view names[] = {"bandwidth", "latency", "arithmetic", "launch"};
  return names[static_cast<std::size_t>(bound)];
}

KernelReport report(const Kernel& kernel, const ReportTarget& target) {
  const auto offline = make_offline_target(target.architecture, target.compiler);
  const ir::Function& fn = kernel.function();
  const std::uint32_t threads = fn.kind == ir::KernelKind::block ? fn.threads_per_block() : map_threads;
  return report_on(offline->model(), offline->compile({&fn, {}}), fn.name, target.architecture, threads);
}

std::vector<KernelReport> report_launches(const ReportTarget& target, Callback<void(Device)> work) {
  const auto offline = make_offline_target(target.architecture, target.compiler);
  DryRun run(offline->info());
  work(run.device());
  using Key = std::tuple<std::uint64_t, std::uint64_t, bool, bool, bool, std::array<std::uint64_t, 3>,
                         std::vector<std::uint64_t>>;
  std::map<Key, std::size_t> known;
  std::map<std::tuple<std::uint64_t, std::uint64_t, bool, bool, bool>, OfflineKernel> compiled;
  std::vector<KernelReport> reports;
  for (const DryLaunch& launch : launches_of(run)) {
    const ir::Hash hash = ir::hash_of(*launch.function);
    const auto [at, is_new] = known.try_emplace(Key{hash.high, hash.low, launch.variant.noalias, launch.variant.index64,
                                                    launch.variant.aligned, launch.shape, launch.values},
                                                reports.size());
    if (!is_new) {
      ++reports[at->second].launches;
      continue;
    }
    const CompileRequest request{launch.function.get(), launch.variant};
    const OfflineTarget::Grid grid = offline->grid(request, launch.shape);
    const auto threads = static_cast<std::uint32_t>(grid.threads[0] * grid.threads[1] * grid.threads[2]);
    const auto [code, is_compiled] = compiled.try_emplace(
        {hash.high, hash.low, launch.variant.noalias, launch.variant.index64, launch.variant.aligned});
    if (is_compiled) code->second = offline->compile(request);
    KernelReport& r = reports.emplace_back(
        report_on(offline->model(), code->second, request.function->name, target.architecture, threads));
    LaunchReport& l = r.launch.emplace();
    l.blocks = grid.blocks;
    l.threads = threads;
    const Traffic traffic = traffic_of(launch);
    l.bytes = traffic.total;
    l.operations = operations_of(launch);
    // Without matrix units, lanes compute these multiply-adds themselves.
    const bool units = r.loops && r.loops->matrix_instructions != 0;
    const double products =
        matrix_operations_of(launch, offline->model().subgroup, units ? offline->model().f32_matrix_cost : 1);
    (units ? l.matrix_operations : l.operations) += products;
    if (!r.loops) {
      l.seconds = l.share = l.latency_factor = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const LoopReport& loop = *r.loops;
    const double large = share_of_large_buffers(*launch.function, traffic);
    // If the loop streams through the large buffers, or if there is no loop, counting instructions is more exact.
    if (!loop.loop)
      l.operations = static_cast<double>(loop.instructions) * static_cast<double>(threads) *
                     static_cast<double>(grid.blocks[0] * grid.blocks[1] * grid.blocks[2]);
    else if (loop.innermost && large > 0)
      l.operations = std::max(l.operations, loop.instructions * traffic.large_reads / (loop.bytes * large));
    reporting::predict(l, offline->model(),
                       reporting::blocks_that_fit(offline->model(), threads, r.registers, r.shared_bytes),
                       loop.bytes_in_flight * large, loop);
  }
  return reports;
}

namespace {

std::string si(double value, const char* unit) {
  for (const auto& [factor, prefix] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (value >= factor) return fmt::format("{:.3g} {}{}", value / factor, prefix, unit);
  return fmt::format("{:.3g} {}", value, unit);
}

}  // namespace

std::string to_string(const KernelReport& r) {
  std::string text = fmt::format("{} for {} ({}), compiled by {}\n", r.kernel, r.architecture, r.gpu, r.compiler);
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<16} {}\n", name, value);
  };
  row("registers",
      fmt::format("{} per thread, {}", r.registers,
                  r.spilled_bytes == 0 ? "none spilled" : fmt::format("{} bytes spilled", r.spilled_bytes)));
  row("block", fmt::format("{} threads, {} bytes of shared memory", r.threads, r.shared_bytes));
  row("occupancy", fmt::format("{:.0f} % of a multiprocessor's threads", 100 * r.occupancy));
  if (r.loops) {
    const LoopReport& l = *r.loops;
    const char* where = l.loop ? "in the loop that loads most" : "in the kernel, which has no loop that loads";
    if (l.widest == 0)
      row("loads", "none from device memory");
    else
      row("loads", fmt::format("{} bytes{} per thread, {}", l.widest,
                               l.narrowest == l.widest ? "" : fmt::format(" (narrowest {})", l.narrowest), where));
    if (l.widest_store != 0) row("stores", fmt::format("{} bytes per thread", l.widest_store));
    if (l.widest != 0)
      row("groups of loads",
          fmt::format("{}: a thread requests up to {} bytes before it waits", l.groups, l.bytes_in_flight));
    if (l.matrix_instructions != 0)
      row("matrix units",
          l.matrix_loop_products == 0
              ? fmt::format("{} instructions", l.matrix_instructions)
              : fmt::format(
                    "{} instructions; {} of {} in the loop with most, with {} bytes of shared memory per thread",
                    l.matrix_instructions, l.matrix_loop_products, l.matrix_loop_instructions, l.matrix_shared_bytes));
  } else {
    row("loads", "unknown: " + r.unknown);
  }
  if (r.launch) {
    const LaunchReport& l = *r.launch;
    row("launch",
        fmt::format("{} x {} x {} blocks, {}, {}{}", l.blocks[0], l.blocks[1], l.blocks[2], si(l.bytes, "B"),
                    si(l.operations, "operations"), r.launches == 1 ? "" : fmt::format(", {} times", r.launches)));
    if (r.loops) {
      row("in flight", fmt::format("{} per multiprocessor, enough for {:.0f} % of the bandwidth",
                                   si(l.bytes_in_flight, "B"), 100 * l.latency_factor));
      row("prediction", fmt::format("{}, {:.0f} % of the usable bandwidth, bound by {}",
                                    (l.seconds < 1e-3 ? fmt::format("{:.3g} us", l.seconds * 1e6)
                                                      : fmt::format("{:.3g} ms", l.seconds * 1e3)),
                                    100 * l.share, bound_name(l.bound)));
      if (l.matrix_share > 0) row("matrix rate", fmt::format("{:.0f} % of the dense rate", 100 * l.matrix_share));
    }
    if (!r.loops) row("prediction", "unknown: " + r.unknown);
  }
  return text;
}

}  // namespace tessera
