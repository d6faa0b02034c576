// SPDX-License-Identifier: Apache-2.0
// Prints a table of kernels with figures from their machine code for a GPU that is not in this machine: registers,
// spilled bytes, widths of accesses, groups of loads, and predicted times (docs/performance.md, "Predict the time of a
// launch"). The shapes are those of a Llama with 8 billion weights, and of large arrays.
//
// Usage: static [ARCHITECTURE] [PART OF A NAME]. The default architecture is sm_90.
//        static ARCHITECTURE --check FILE: compares with an earlier table. Fails if a kernel spills more, has more
//        groups of loads or a smaller share. Exits with 77 if the compilers are not those of the table, or not
//        installed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/array/functions.h"
#include "tessera/base/error.h"
#include "tessera/device/settings.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimiser.h"
#include "tessera/nn/parameter.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/product.h"
#include "tessera/ops/top_k.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/transformer_layer.h"
#include "tessera/ops/weight.h"
#include "tessera/report/report.h"

namespace {

using namespace tessera;

struct Case {
  std::string name;
  std::function<void(Device)> run;
};

Weight weight_of(WeightFormat format, double bytes_per_element, std::int64_t rows, std::int64_t columns,
                 Device device) {
  return Weight::pack(
      format, static_cast<std::uint64_t>(bytes_per_element * static_cast<double>(rows * columns)),
      [](std::uint64_t, std::span<std::byte>) {}, rows, columns, device);
}

/// One layer of a Llama with 8 billion weights, for `tokens` tokens after `past` others.
void run_layer(WeightFormat format, double bytes, std::int64_t tokens, std::int64_t past, Device d) {
  const auto array = [&](Shape shape, DType dtype = DType::f32) { return Array::empty(std::move(shape), dtype, d); };
  const auto weight = [&](std::int64_t rows, std::int64_t columns) {
    return weight_of(format, bytes, rows, columns, d);
  };
  const Weight qkv = weight(6144, 4096), output = weight(4096, 4096), gate_up = weight(28672, 4096),
               down = weight(4096, 14336);
  const Array norm = array({4096});
  Array keys = array({8, past + tokens, 128}, DType::f16), values = array({8, past + tokens, 128}, DType::f16);
  ops::AddNorm x = ops::add_rms_norm(array({tokens, 4096}), array({tokens, 4096}), norm, 1e-5f, {&qkv, 1});
  const Array queries =
      ops::rotate_and_store(ops::linear(x.normalised, {&qkv, 1}), {32, 8, 128, Rotary{}}, past, keys, values);
  ops::LinearInput seen = ops::attention(queries, keys, values, past, 0.088f, 0, 0, {}, output);
  x = ops::add_rms_norm(x.sum, ops::linear(seen, {&output, 1})[0], norm, 1e-5f, {&gate_up, 1});
  ops::LinearInput gated = ops::gate(x.normalised, {&gate_up, 1}, {}, Gate::silu, down);
  ops::linear(gated, {&down, 1})[0].eval();
}

/// Sets TESSERA_TF32 until it is destroyed.
struct AllowTf32 {
  AllowTf32() { ::setenv("TESSERA_TF32", "1", 1), forget_settings(); }
  ~AllowTf32() { ::unsetenv("TESSERA_TF32"), forget_settings(); }
  AllowTf32(const AllowTf32&) = delete;
  AllowTf32& operator=(const AllowTf32&) = delete;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, std::function<void(Device)> run) {
    all.push_back({std::move(name), std::move(run)});
  };
  const auto matrix = [](std::int64_t rows, std::int64_t columns, Device d, DType dtype = DType::f32) {
    return Array::empty({rows, columns}, dtype, d);
  };
  struct Format {
    const char* name;
    WeightFormat format;
    double bytes;
  };
  const Format formats[] = {{"f16", WeightFormat::f16, 2},
                            {"q8_0", WeightFormat::q8_0, 34.0 / 32},
                            {"q4_0", WeightFormat::q4_0, 18.0 / 32},
                            {"q4_K", WeightFormat::q4_K, 144.0 / 256}};
  for (const auto& [rows, columns] :
       {std::pair{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}, {128256, 4096}})
    for (const Format& f : formats)
      add("linear " + std::string(f.name) + " " + std::to_string(rows) + " x " + std::to_string(columns),
          [=](Device d) { linear(matrix(1, columns, d), weight_of(f.format, f.bytes, rows, columns, d)).eval(); });
  for (const int tokens : {16, 64, 512})
    for (const Format& f : formats)
      add("linear " + std::string(f.name) + " 4096 x 4096, " + std::to_string(tokens) + " tokens",
          [=](Device d) { linear(matrix(tokens, 4096, d), weight_of(f.format, f.bytes, 4096, 4096, d)).eval(); });
  for (const std::int64_t past : {1023, 8191})
    add("attention, 1 token to " + std::to_string(past + 1), [=](Device d) {
      const Array q = Array::empty({1, 32, 128}, DType::f32, d), k = Array::empty({8, past + 1, 128}, DType::f16, d);
      attention(q, k, k, past, 0.088f).eval();
    });
  for (const Format& f : {formats[0], formats[1], formats[2]})
    for (const auto& [tokens, past] : {std::pair{1, 1023}, {1, 8191}, {512, 0}})
      add("layer, " + std::string(f.name) + ", " + std::to_string(tokens) + " after " + std::to_string(past),
          [=](Device d) { run_layer(f.format, f.bytes, tokens, past, d); });
  add("attention, 512 tokens to 512", [](Device d) {
    const Array q = Array::empty({512, 32, 128}, DType::f32, d), k = Array::empty({8, 512, 128}, DType::f16, d);
    attention(q, k, k, 0, 0.088f).eval();
  });
  add("causal attention, 4096 tokens", [](Device d) {
    const Array q = Array::empty({1, 32, 4096, 128}, DType::bf16, d);
    scaled_dot_product_attention(q, q, q, {.causal = true}).eval();
  });
  for (const std::int64_t tokens : {2048, 4096})
    add("causal attention with gradient, " + std::to_string(tokens) + " tokens", [=](Device d) {
      const Array q = Array::empty({1, 32, tokens, 128}, DType::f16, d);
      const auto [y, back] =
          pullback([](const Array& x) { return scaled_dot_product_attention(x, x, x, {.causal = true}); }, q);
      back(Array::empty(q.shape(), DType::f16, d)).eval();
    });
  add("rotary", [](Device d) { rotary(Array::empty({1, 32, 128}, DType::f32, d), 5, {}).eval(); });
  add("sum of 1 GiB", [](Device d) { sum(Array::empty({1 << 28}, DType::f32, d)).eval(); });
  add("argmax of 1 GiB", [](Device d) { argmax(Array::empty({1 << 28}, DType::f32, d)).eval(); });
  add("sum over axis 0", [=](Device d) { sum(matrix(4096, 4096, d), {0}).eval(); });
  add("sum over axis 1", [=](Device d) { sum(matrix(4096, 4096, d), {1}).eval(); });
  add("argmax of rows", [=](Device d) { argmax(matrix(4096, 4096, d)).eval(); });
  add("finite_argmax of 128256", [](Device d) { ops::finite_argmax(Array::empty({128256}, DType::f32, d)); });
  add("top_k, 41 of 128256", [](Device d) { ops::top_k(Array::empty({128256}, DType::f32, d), 41); });
  add("softmax", [=](Device d) { softmax(matrix(4096, 4096, d)).eval(); });
  add("softmax of 128256", [=](Device d) { softmax(matrix(512, 128256, d)).eval(); });
  add("rms_norm",
      [=](Device d) { rms_norm(matrix(4096, 4096, d), Array::empty({4096}, DType::f32, d), 1e-5f).eval(); });
  add("rms_norm, 1 row",
      [=](Device d) { rms_norm(matrix(1, 4096, d), Array::empty({4096}, DType::f32, d), 1e-5f).eval(); });
  add("softmax with gradient", [=](Device d) {
    const Array weights = matrix(4096, 4096, d);
    auto [value, gradient] =
        value_and_grad([&](const Array& x) { return sum(softmax(x) * weights); })(matrix(4096, 4096, d));
    value.eval(), gradient.eval();
  });
  add("rms_norm with gradient", [=](Device d) {
    const Array weight = Array::empty({4096}, DType::f32, d), weights = matrix(4096, 4096, d);
    auto [value, gradient] = value_and_grad([&](const Array& x) { return sum(rms_norm(x, weight, 1e-5f) * weights); })(
        matrix(4096, 4096, d));
    value.eval(), gradient.eval();
  });
  add("cross_entropy with gradient", [=](Device d) {
    const Array targets = Array::empty({4096}, DType::i32, d);
    auto [value, gradient] =
        value_and_grad([&](const Array& x) { return cross_entropy(x, targets); })(matrix(4096, 32000, d));
    value.eval(), gradient.eval();
  });
  add("x + y, f32", [=](Device d) { (matrix(8192, 8192, d) + matrix(8192, 8192, d)).eval(); });
  add("2 x + 1, f16", [=](Device d) { (matrix(8192, 8192, d, DType::f16) * 2.0f + 1.0f).eval(); });
  add("x + y, f16", [=](Device d) { (matrix(8192, 8192, d, DType::f16) + matrix(8192, 8192, d, DType::f16)).eval(); });
  add("gelu, f32", [=](Device d) { gelu(matrix(8192, 8192, d)).eval(); });
  add("astype f32 to bf16", [=](Device d) { matrix(8192, 8192, d).astype(DType::bf16).eval(); });
  add("x + row", [=](Device d) { (matrix(8192, 8192, d) + Array::empty({8192}, DType::f32, d)).eval(); });
  add("x + transposed y", [=](Device d) { (matrix(8192, 8192, d) + matrix(8192, 8192, d).transpose()).eval(); });
  add("transposed copy", [=](Device d) { (void)matrix(8192, 8192, d).transpose().as_contiguous(); });
  add("Adam, 64 Mi parameters", [=](Device d) {
    Parameter p(matrix(8192, 8192, d)), gradient(matrix(8192, 8192, d));
    Adam adam(p);
    adam.step(p, gradient);
  });
  add("cumsum of rows", [=](Device d) { cumsum(matrix(4096, 4096, d), 1).eval(); });
  add("cumsum of columns", [=](Device d) { cumsum(matrix(4096, 4096, d), 0).eval(); });
  add("sort of 1 Mi", [](Device d) { sort(Array::empty({1 << 20}, DType::f32, d)).eval(); });
  add("random_normal, 64 Mi", [](Device d) { random_normal({8192, 8192}, 1, 0, 1, d).eval(); });
  for (const auto& [name, dtype] : {std::pair{"f32", DType::f32}, {"f16", DType::f16}})
    for (const std::int64_t m : {1, 16, 4096})
      add("matmul " + std::string(name) + " " + std::to_string(m) + " x 4096 x 4096",
          [=](Device d) { matmul(matrix(m, 4096, d, dtype), matrix(4096, 4096, d, dtype)).eval(); });
  add("matmul f32 4096 x 4096 x 4096, TESSERA_TF32=1", [=](Device d) {
    const AllowTf32 allowed;
    matmul(matrix(4096, 4096, d), matrix(4096, 4096, d)).eval();
  });
  add("conv2d 3 x 3, 32 x 64 x 56 x 56", [](Device d) {
    conv2d(Array::empty({32, 64, 56, 56}, DType::f32, d), Array::empty({64, 64, 3, 3}, DType::f32, d), {.padding = 1})
        .eval();
  });
  return all;
}

std::string heading_of(const KernelReport& r) { return r.gpu + ", compiled by " + r.compiler; }

/// Matrix instructions, all instructions and bytes of shared memory of a thread in the loop with most of them, and the
/// share of the dense rate.
std::string matrix_cell(const KernelReport& r) {
  char text[96];
  std::snprintf(text, sizeof text, "%u of %u, %u bytes, %.3f", r.loops->matrix_loop_products,
                r.loops->matrix_loop_instructions, r.loops->matrix_shared_bytes, r.launch->matrix_share);
  return text;
}

std::vector<std::string> cells_of(const std::string& name, const KernelReport& r) {
  const LaunchReport& l = *r.launch;
  const LoopReport loops = r.loops.value_or(LoopReport{});
  const auto number = [](const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  return {name,
          r.kernel + (r.launches == 1 ? "" : " x " + std::to_string(r.launches)),
          std::to_string(r.registers),
          std::to_string(r.spilled_bytes),
          std::to_string(l.blocks[0] * l.blocks[1] * l.blocks[2]) + " x " + std::to_string(l.threads),
          std::to_string(loops.widest) + " / " + std::to_string(loops.narrowest) + " / " +
              std::to_string(loops.widest_store),
          std::to_string(loops.groups),
          std::to_string(loops.bytes_in_flight),
          number("%.2f", l.latency_factor),
          number("%.4g", l.bytes / 1e6),
          number("%.1f", l.seconds * 1e6),
          number("%.3f", l.share),
          std::string(bound_name(l.bound)),
          l.matrix_operations == 0 ? "" : matrix_cell(r)};
}

std::string row_of(const std::string& name, const KernelReport& r) {
  std::string row = "|";
  for (const std::string& cell : cells_of(name, r)) row += " " + cell + " |";
  return row;
}

/// Merges launches of the same kernel. The result has the figures of the slowest one, and the number of all.
std::vector<KernelReport> merged(const std::vector<KernelReport>& reports) {
  std::vector<KernelReport> all;
  for (const KernelReport& r : reports) {
    const auto same = std::ranges::find(all, r.kernel, &KernelReport::kernel);
    if (same == all.end()) {
      all.push_back(r);
      continue;
    }
    const std::uint32_t launches = same->launches + r.launches;
    if (r.launch->seconds > same->launch->seconds) *same = r;
    same->launches = launches;
  }
  return all;
}

/// Returns why the longest loop of a kernel has more than two groups of loads.
std::string reason_for_groups(const std::string& kernel) {
  if (kernel.find("_fragments") != kernel.npos) return "tiles are copied to shared memory a few elements at a time";
  const std::pair<const char*, const char*> reasons[] = {
      {"linear_f16_vector", "each 16-bit load changes half of a register, so the other half is waited for"},
      {"linear_", "activations and words of the weight do not fit in the registers together"},
      {"attention_key_gradient", "tiles are copied to shared memory a few elements at a time"},
      {"attention_", "keys are reduced to scores before values are used, for all queries that share them"},
      {"matmul_", "tiles are copied to shared memory a few elements at a time"},
      {"argmax_of_parts", "one block combines the parts, which takes less time than its launch"},
      {"fused_", "the compiler loads the inputs of an expression in its order"},
      {"running_sum", "the compiler spreads the loads of the 16 elements of a thread"},
      {"part_sums", "the compiler spreads the loads of the 16 elements of a thread"},
      {"top_k", "it selects from few bytes, which takes less time than its launch"},
      {"largest", "it selects from few bytes, which takes less time than its launch"},
      {"finite_argmax", "it selects from few bytes, which takes less time than its launch"},
      {"rms_norm", "weights are loaded after the sum of the row, where registers do not hold both"}};
  for (const auto& [prefix, reason] : reasons)
    if (kernel.starts_with(prefix)) return reason;
  return "not examined";
}

/// The time of all launches of a layer.
std::string sum_of(const std::string& name, const std::vector<KernelReport>& reports) {
  double seconds = 0;
  std::uint32_t launches = 0;
  for (const KernelReport& r : reports) seconds += r.launch->seconds * r.launches, launches += r.launches;
  char text[160];
  std::snprintf(text, sizeof text, "- %s: %u launches, %.1f us; %.0f times a second for 32 layers", name.c_str(),
                launches, seconds * 1e6, 1 / (32 * seconds));
  return text;
}

/// A section of an earlier table: its heading, and its rows by operation and kernel.
struct Section {
  std::string heading;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> rows;
};

std::vector<Section> read_table(const std::string& file) {
  std::vector<Section> sections;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) sections.push_back({line.substr(3), {}});
    if (!line.starts_with("| ") || sections.empty()) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 2; at < line.size();) {
      const std::size_t end = std::min(line.find(" |", at), line.size());
      cells.push_back(line.substr(at, end - at));
      at = end + 3;
    }
    if (cells.size() > 11) sections.back().rows[{cells[0], cells[1]}] = cells;
  }
  return sections;
}

/// Compares with the section of an earlier table. Returns a line for each figure that is worse.
std::string compare(const std::vector<std::string>& earlier, const std::vector<std::string>& now) {
  std::string worse;
  const auto check = [&](std::size_t column, const char* name, bool less_is_better, double tolerance) {
    const double before = std::stod(earlier[column]), after = std::stod(now[column]);
    if (less_is_better ? after > before + tolerance : after < before - tolerance)
      worse +=
          "  " + now[0] + ", " + now[1] + ": " + name + " " + now[column] + " instead of " + earlier[column] + "\n";
  };
  check(3, "spilled bytes", true, 0);
  check(6, "groups of loads", true, 0);
  check(11, "share", false, 0.005);
  const auto rate = [](const std::vector<std::string>& cells) {  // the last number of the column
    const std::string cell = cells.size() > 13 ? cells[13] : "";
    return cell.empty() ? 0.0 : std::stod(cell.substr(cell.rfind(' ') + 1));
  };
  if (rate(now) < rate(earlier) - 0.005)
    worse += "  " + now[0] + ", " + now[1] + ": share of the matrix rate is lower\n";
  return worse;
}

void print_table(const ReportTarget& target, const std::string& part) {
  bool first = true;
  std::vector<std::string> sums;
  std::map<std::string, std::uint32_t> split;
  for (const Case& c : cases()) {
    if (c.name.find(part) == std::string::npos) continue;
    std::vector<KernelReport> reports;
    try {
      reports = report_launches(target, [&](Device d) { c.run(d); });
    } catch (const Error& e) {
      std::printf("| %s | failed: %s |\n", c.name.c_str(), e.what());
      continue;
    }
    if (first && !reports.empty())
      std::printf(
          "\n## %s\n\n"
          "| operation | kernel | registers | spilled bytes | blocks x threads | widest / narrowest load / widest "
          "store "
          "(bytes) | groups of loads | bytes in flight per thread | f | MB | predicted us | share | bound | matrix |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
          heading_of(reports[0]).c_str());
    first = false;
    for (const KernelReport& r : merged(reports)) {
      std::printf("%s\n", row_of(c.name, r).c_str());
      if (r.loops && r.loops->groups > 2) split[r.kernel] = r.loops->groups;
    }
    if (c.name.starts_with("layer")) sums.push_back(sum_of(c.name, reports));
    std::fflush(stdout);
  }
  if (!sums.empty()) std::printf("\n");
  for (const std::string& sum : sums) std::printf("%s\n", sum.c_str());
  if (!split.empty()) std::printf("\nMore than two groups of loads:\n\n");
  for (const auto& [kernel, groups] : split)
    std::printf("- %s (%u): %s\n", kernel.c_str(), groups, reason_for_groups(kernel).c_str());
}

/// Compares all kernels with an earlier table. Returns the exit status.
int check_table(const std::string& architecture, const std::string& file) {
  const std::vector<Section> sections = read_table(file);
  std::string worse;
  std::size_t rows = 0;
  for (const TargetCompiler compiler : {TargetCompiler::vendor, TargetCompiler::ptx}) {
    if (compiler == TargetCompiler::ptx && !architecture.starts_with("sm_")) continue;
    const Section* earlier = nullptr;
    for (const Case& c : cases())
      for (const KernelReport& r : merged(report_launches({architecture, compiler}, [&](Device d) { c.run(d); }))) {
        if (!r.loops) {
          std::printf("not installed: %s\n", r.unknown.c_str());
          return 77;
        }
        if (earlier == nullptr) {
          const std::string heading = heading_of(r);
          for (const Section& s : sections)
            if (s.heading == heading) earlier = &s;
          if (earlier == nullptr) {
            std::printf("not installed: the compiler of %s (here: %s)\n", file.c_str(), heading.c_str());
            return 77;
          }
        }
        const std::vector<std::string> now = cells_of(c.name, r);
        const auto known = earlier->rows.find({now[0], now[1]});
        if (known == earlier->rows.end())
          worse += "  " + now[0] + ", " + now[1] + ": not in the table\n";
        else
          worse += compare(known->second, now);
        ++rows;
      }
  }
  std::printf("%zu kernels compared with %s\n", rows, file.c_str());
  if (!worse.empty())
    std::printf("worse:\n%sIf this is intended, run script/bench static and commit the table\n", worse.c_str());
  return worse.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string architecture = argc > 1 ? argv[1] : "sm_90", part = argc > 2 ? argv[2] : "";
  try {
    if (part == "--check" && argc == 4) return check_table(architecture, argv[3]);
    std::printf("# Machine code of kernels for %s\n", architecture.c_str());
    const bool nvidia = architecture.starts_with("sm_");
    print_table({architecture, TargetCompiler::vendor}, part);
    if (nvidia) print_table({architecture, TargetCompiler::ptx}, part);
  } catch (const DeviceError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    if (part == "--check") return std::printf("not installed: %s\n", e.what()), 77;
    return argc > 1 ? 1 : 0;  // script/bench runs all benchmarks; the compiler is not required
  }
}
