// SPDX-License-Identifier: Apache-2.0
// `tessera pack`: compiles the kernels of a model for several targets into one file.
#include "tessera/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/printable.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/pack/exercise.h"

namespace tessera::app {
namespace {

struct PackArguments {
  std::string model, out, weights;
  std::vector<std::string> targets, caches = {"f16"};
  std::int64_t batch = ExerciseOptions().batch, parallel = ExerciseOptions().parallel;
  RopeOptions rope;
};

int list(const std::string& file) {
  const KernelPack pack(file);
  pack.check_images();
  for (const PackTarget& target : pack.targets())
    app::print("{:<20} {:>12}  {:>4} compute units  {}\n", printable_line(target.name),
               count_noun(pack.kernels(target.name), "kernel"), target.compute_units, printable_line(target.compiler));
  return success;
}

int run_pack(const PackArguments& o) {
  if (o.out.empty()) return list(o.model);
  GgufFile file = open_model(o.model, o.weights);
  require_other_file("pack", file, o.out);
  o.rope.apply(file);
  ExerciseOptions how{.batch = o.batch, .parallel = o.parallel, .cache_dtypes = {}};
  for (const std::string& cache : o.caches) how.cache_dtypes.push_back(cache_dtype(cache));
  const auto packed = pack_launches(o.targets, o.out, [&](Device device) { exercise(file, device, how); });
  for (const PackedTarget& target : packed)
    eprint("{}: {}, {}, by {}\n", target.name, count_noun(target.kernels, "kernel"), config::format_bytes(target.bytes),
           printable_line(target.compiler));
  return success;
}

}  // namespace

Command pack_command(CLI::App& program) {
  auto o = std::make_shared<PackArguments>();
  CLI::App* sub = program.add_subcommand("pack", "Compile the kernels of a model ahead of time");
  sub->add_option("MODEL", o->model, std::string(model_help) + "; without --out, a pack to list")->required();
  add_weights_option(*sub, o->weights);
  auto* out = sub->add_option("-o,--out", o->out, "The file to write")->check(require_nonempty);
  sub->add_option("--target", o->targets,
                  "A target: cpu:x86-64-v3 (or another level), sm_90 (NVIDIA, machine code), compute_80 (NVIDIA, PTX), "
                  "gfx90a (AMD). Can be repeated. A number of compute units can follow: cpu:x86-64-v3:16")
      ->check(require_nonempty)
      ->needs(out);
  out->needs(sub->get_option("--target"));
  sub->add_option("--batch", o->batch, "Maximum prompt tokens per batch, as for `tessera generate` and `tessera serve`")
      ->capture_default_str()
      ->transform(integer_in_range(1, 65536));
  sub->add_option("--parallel", o->parallel, "Maximum texts that `tessera serve` generates at the same time")
      ->capture_default_str()
      ->transform(integer_in_range(1, 256));
  sub->add_option("--cache", o->caches, "Storage types of keys and values: f32, f16 or q8_0. Can be repeated")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  o->rope.declare(*sub);
  sub->footer(
      R"(The machine needs no GPU, but the compilers of the targets: the code-generation module for cpu and PTX, NVRTC or ptxas for
sm_*, hiprtc for gfx*. The pack contains the kernels of `tessera generate`, `chat`, `serve` and `perplexity`, or those of an
embedding model. TESSERA_PACK=FILE makes any program load kernels from the pack instead of compiling them.
Kernels that are not in it are compiled, unless TESSERA_COMPILE=0; `tessera generate --stats` shows how many.

Examples:
  tessera pack models/pgdocs-2m-q8_0.gguf --target cpu:x86-64-v3 --target sm_90 --out pgdocs.pack
  tessera pack pgdocs.pack
  TESSERA_PACK=pgdocs.pack TESSERA_COMPILE=0 tessera generate models/pgdocs-2m-q8_0.gguf -p "The index")");
  return {sub, [o] { return run_pack(*o); }};
}

}  // namespace tessera::app
