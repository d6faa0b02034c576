// SPDX-License-Identifier: Apache-2.0
// `tessera estimate`: shows how much memory a model file needs on the given devices, and whether it fits.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "command.h"
#include "model_files.h"
#include "model_options.h"
#include "terminal.h"
#include "tessera/base/config.h"
#include "tessera/base/printable.h"
#include "tessera/llm/embedding_model.h"
#include "tessera/llm/estimate.h"

namespace tessera::app {
namespace {

struct EstimateArguments {
  std::string model, devices, cache = "f16", weights;
  MemoryOptions memory;
  RopeOptions rope;
  bool json = false;
};

void print(const EstimateArguments& o, const ModelMemory& m, std::int64_t largest, std::int64_t trained) {
  app::print("{}: context {}, prompt {} in batches of {}, keys and values in {}\n\n", printable_line(o.model),
             m.context, m.prompt, m.batch, o.cache);
  app::print("{:<12} {:>6} {:>12} {:>15} {:>12} {:>12} {:>12}\n", "device", "layers", "weights", "keys and values",
             "work space", "needed", "free");
  const Style style(output());
  for (const DeviceMemory& d : m.devices)
    app::print("{:<12} {:>6} {:>12} {:>15} {:>12} {:>12} {:>12}  {}\n", to_string(d.device), d.layers,
               config::format_bytes(d.weights), config::format_bytes(d.cache), config::format_bytes(d.work()),
               config::format_bytes(d.peak), config::format_bytes(d.free),
               d.fits() ? "fits" : style.bad("does not fit"));
  app::print("\nThe longest context that fits: {}{}\n", largest == 0 ? "none" : std::to_string(largest),
             largest == trained ? ", the model's maximum" : "");
}

nlohmann::ordered_json json_of(const EstimateArguments& o, const ModelMemory& m, std::int64_t largest) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const DeviceMemory& d : m.devices)
    devices.push_back({{"device", to_string(d.device)},
                       {"layers", d.layers},
                       {"weight_bytes", d.weights},
                       {"cache_bytes", d.cache},
                       {"work_bytes", d.work()},
                       {"needed_bytes", d.peak},
                       {"free_bytes", d.free},
                       {"fits", d.fits()}});
  return {{"model", o.model}, {"context", m.context}, {"prompt", m.prompt}, {"batch", m.batch},
          {"cache", o.cache}, {"devices", devices},   {"fits", m.fits()},   {"largest_context", largest}};
}

/// The memory of the texts is work space, except in language models, which have keys and values.
int estimate_embedding(EstimateArguments& o, const GgufFile& file, const std::vector<Device>& devices) {
  o.cache = "f32";
  const ModelMemory m = estimate_embedding_memory(file, devices, o.memory.context, o.memory.batch);
  const auto memory_of = [&](std::int64_t context) {
    return estimate_embedding_memory(file, devices, context, o.memory.batch);
  };
  const std::int64_t trained = memory_of(0).context;
  const std::int64_t largest =
      longest_that_fits(trained, [&](std::int64_t context) { return memory_of(context).fits(); });
  if (o.json)
    app::print("{}\n", json_of(o, m, largest).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print(o, m, largest, trained);
  return m.fits() ? success : failed;
}

int run_estimate(EstimateArguments o) {
  GgufFile file = open_model(o.model, o.weights);
  o.rope.apply(file);
  const std::vector<Device> devices = o.devices.empty() ? std::vector{current_device()} : parse_devices(o.devices);
  if (is_embedding_model(file)) return estimate_embedding(o, file, devices);
  o.memory.cache_dtype = cache_dtype(o.cache);
  const ModelMemory m = estimate_memory(file, devices, o.memory);
  const std::int64_t largest = largest_context(file, devices, o.memory);
  if (o.json)
    app::print("{}\n", json_of(o, m, largest).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print(o, m, largest, read_llama_config(file).context_length);
  return m.fits() ? success : failed;
}

}  // namespace

Command estimate_command(CLI::App& program) {
  auto o = std::make_shared<EstimateArguments>();
  CLI::App* sub = program.add_subcommand("estimate", "Show how much memory a model needs, without loading it");
  sub->add_option("MODEL", o->model, model_help)->required();
  add_weights_option(*sub, o->weights);
  sub->add_option("--device", o->devices,
                  "The devices, as named by `tessera devices`; several, separated by commas, share the layers")
      ->check(require_nonempty);
  const auto count = integer_in_range(1, std::int64_t{1} << 40);
  sub->add_option("--ctx", o->memory.context,
                  "Tokens of prompt and answer together (default: the model's maximum). Memory is estimated for all of "
                  "them; `tessera generate` allocates less if its prompt and --tokens need less")
      ->transform(count);
  sub->add_option("--prompt-tokens", o->memory.prompt, "Tokens of the prompt (default: the whole context except one)")
      ->transform(count);
  sub->add_option("--batch", o->memory.batch, "Prompt tokens per batch")->capture_default_str()->transform(count);
  add_cache_option(*sub, o->cache);
  o->rope.declare(*sub);
  sub->add_flag("--json", o->json, "Print JSON, in bytes");
  sub->footer(
      R"(Loads and runs the model as `tessera generate` would, but on devices that take no memory and compute nothing.
Exit code 1 if it does not fit.

Examples:
  tessera estimate models/pgdocs-2m-q8_0.gguf
  tessera estimate model.gguf --ctx 4096 --device cuda:0
  tessera estimate model.gguf --device cuda:0,cpu --json)");
  return {sub, [o] { return run_estimate(*o); }};
}

}  // namespace tessera::app
