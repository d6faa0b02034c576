// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/llm/decoder.h"
#include "tessera/ops/top_k.h"

namespace tessera {

std::string to_string(const InferenceMemoryEstimate& e) {
  return fmt::format("Inference Memory: {:.2f} GB total ({:.2f} GB model, {:.2f} GB KV cache, {:.2f} MB activations)",
                     e.total_gb(), e.model_mb() / 1024, e.kv_cache_mb() / 1024, e.activation_mb());
}

InferenceMemoryEstimate estimate_inference_memory(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                                                  std::int64_t vocabulary, std::int64_t heads,
                                                  std::int64_t key_value_heads, std::int64_t context,
                                                  std::int64_t dtype_bytes) {
  const std::pair<const char*, std::int64_t> given[] = {
      {"hidden", hidden}, {"intermediate", intermediate},       {"layers", layers},   {"vocabulary", vocabulary},
      {"heads", heads},   {"key_value_heads", key_value_heads}, {"context", context}, {"dtype_bytes", dtype_bytes}};
  for (const auto& [name, value] : given) {
    // With this limit, the product of any three arguments fits in 64 bits.
    if (value < 1 || value > 1 << 20)
      fail<ArgumentError>({.operation = "estimate_inference_memory",
                           .with = {{name, std::to_string(value)}},
                           .wrong = "the argument is not between 1 and 1048576"});
  }
  if (hidden % heads != 0)
    fail<ArgumentError>({.operation = "estimate_inference_memory",
                         .with = {{"hidden", std::to_string(hidden)}, {"heads", std::to_string(heads)}},
                         .wrong = "the formula requires that hidden is a multiple of heads",
                         .remedy = "Use estimate_memory, which reads the size of a head from the file"});
  const auto h = static_cast<std::uint64_t>(hidden), i = static_cast<std::uint64_t>(intermediate);
  const auto keys = static_cast<std::uint64_t>(key_value_heads * (hidden / heads));
  const auto l = static_cast<std::uint64_t>(layers), bytes = static_cast<std::uint64_t>(dtype_bytes);
  const std::uint64_t layer = 2 * h * h + 2 * h * keys + 3 * h * i + 2 * h;
  InferenceMemoryEstimate e;
  e.model_bytes = (layer * l + 2 * static_cast<std::uint64_t>(vocabulary) * h + h) * bytes;
  e.kv_cache_bytes = l * static_cast<std::uint64_t>(context) * keys * 2 * bytes;
  e.activation_bytes = (h + 2 * i) * bytes * 2;
  e.total_bytes = e.model_bytes + e.kv_cache_bytes + e.activation_bytes;
  return e;
}

namespace {

struct Use {
  std::uint64_t weights = 0, cache = 0, peak = 0;
};

/// Returns the memory use of each of `devices`. `layers` contains the device of each layer.
std::vector<Use> dry_run(const GgufFile& file, std::span<const Device> devices, std::span<const Device> layers,
                         const ModelMemory& how, DType cache_dtype) {
  std::vector<std::unique_ptr<DryRun>> runs;
  for (const Device device : devices) runs.push_back(std::make_unique<DryRun>(device));
  std::vector<Device> stands;
  for (const Device device : layers) {
    const auto which = std::find(devices.begin(), devices.end(), device) - devices.begin();
    stands.push_back(runs[static_cast<std::size_t>(which)]->device());
  }
  std::vector<Use> uses(devices.size());
  {
    const Llama model = Llama::load(file, stands);
    model.prepare();
    for (const auto& run : runs) trim(run->device());  // as LanguageModel::load
    KeyValueCache cache = model.make_cache(how.context, cache_dtype);
    const std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(how.prompt, how.batch)));
    const auto read = [&](std::int64_t count) {
      model.forward(std::span(tokens).first(static_cast<std::size_t>(count)), cache).eval();
    };
    // The last steps attend to the most tokens. The first ones compile kernels and fill the caches of buffers.
    constexpr std::int64_t first = 2, last = 2;
    std::int64_t rest = how.prompt;
    for (std::int64_t i = 0; rest > 0; ++i) {
      if (const std::int64_t end = last * how.batch; i == first && rest > end) cache.skip(rest - end), rest = end;
      const std::int64_t count = Llama::next_piece(rest, how.batch);
      read(count);
      rest -= count;
    }
    Decoder decoder(model, cache);
    // Three steps: the second one is recorded, and the third one verifies the recording.
    for (int steps = 0; steps < 3 && cache.length() < cache.capacity(); ++steps) {
      const Array& logits = decoder.step(0);
      ops::top_k(logits, std::min(logits.size(), ops::most_top_k(logits.device())));
    }
    for (std::size_t i = 0; i < devices.size(); ++i)
      uses[i] = {model.weight_bytes(runs[i]->device()), cache.bytes(runs[i]->device())};
  }
  for (std::size_t i = 0; i < devices.size(); ++i) uses[i].peak = runs[i]->stats().peak_bytes;
  return uses;
}

}  // namespace

std::uint64_t free_for_models(Device device) {
  const DeviceInfo& info = device_info(device);
  const bool gpu = info.kind == DeviceKind::discrete_gpu || info.kind == DeviceKind::integrated_gpu;
  return free_memory(device, gpu ? std::min(info.total_memory / 50, std::uint64_t{256} << 20) : 0);
}

namespace {

/// Assigns layers to the devices in order, as many as fit on each. The last device gets all remaining layers.
std::vector<Device> spread(const GgufFile& file, const ModelMemory& how, std::span<const DeviceMemory> memory,
                           std::size_t layers, DType cache_dtype) {
  std::vector<Device> devices;
  for (const DeviceMemory& m : memory) devices.push_back(m.device);
  std::vector<Device> placed;
  const auto with = [&](std::size_t more, std::size_t on) {
    std::vector<Device> all = placed;
    all.insert(all.end(), more, devices[on]);
    all.resize(layers, devices[std::min(on + 1, devices.size() - 1)]);
    return all;
  };
  for (std::size_t d = 0; d + 1 < devices.size() && placed.size() < layers; ++d) {
    const auto fits = [&](std::size_t more) {
      return dry_run(file, devices, with(more, d), how, cache_dtype)[d].peak <= memory[d].free;
    };
    // Binary search for the largest number of layers that fits: `low` fits, `high` does not.
    std::size_t low = 0, high = layers - placed.size() + 1;
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      (fits(middle) ? low : high) = middle;
    }
    placed.insert(placed.end(), low, devices[d]);
  }
  placed.resize(layers, devices.back());
  return placed;
}

}  // namespace

bool ModelMemory::fits() const {
  return std::all_of(devices.begin(), devices.end(), [](const DeviceMemory& d) { return d.fits(); });
}

void ModelMemory::require() const {
  if (fits()) return;
  std::string each, which;
  for (const DeviceMemory& d : devices) {
    each += fmt::format("{}{} needs {} ({} weights, {} keys and values, {} work space) and has {} free{}",
                        each.empty() ? "" : "; ", to_string(d.device), config::format_bytes(d.peak),
                        config::format_bytes(d.weights), config::format_bytes(d.cache), config::format_bytes(d.work()),
                        config::format_bytes(d.free), d.bound.empty() ? "" : " (" + d.bound + ")");
    if (!d.fits()) which += (which.empty() ? "" : " and ") + to_string(d.device);
  }
  fail<OutOfMemory>(
      {.operation = "load model",
       .with = {{"model", file}, {"context", std::to_string(context)}},
       .wrong = "the model does not fit into the memory of " + which + ", and nothing was loaded: " + each,
       .remedy = "Use a shorter context, a file with smaller weights, or more devices (\"cuda:0,cpu\"); "
                 "`tessera estimate` shows what would fit"});
}

void require_context(std::string_view asked, std::int64_t context, std::int64_t trained) {
  if (context <= trained) return;
  fail<ArgumentError>({.operation = asked,
                       .with = {{"context", std::to_string(context)}, {"the model's", std::to_string(trained)}},
                       .wrong = "the context is longer than the model's context length",
                       .remedy = fmt::format("Use a context of {0} or less (--ctx {0})", trained)});
}

ModelMemory estimate_memory(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options) {
  const LlamaConfig config = read_llama_config(file);
  ModelMemory m;
  m.file = file.name();
  m.context = options.context == 0 ? config.context_length : options.context;
  m.prompt = options.prompt == 0 ? std::max<std::int64_t>(m.context - 1, 1) : options.prompt;
  m.batch = options.batch;
  if (devices.empty())
    fail<ArgumentError>(
        {.operation = "estimate", .wrong = "no device was given", .remedy = "Specify at least one device"});
  const std::pair<std::string_view, std::int64_t> counts[] = {
      {"context", m.context}, {"prompt", m.prompt}, {"batch", m.batch}};
  for (const auto& [name, count] : counts)
    if (count < 1)
      fail<ArgumentError>({.operation = "estimate",
                           .with = {{name, std::to_string(count)}},
                           .wrong = "the number of tokens must be 1 or more"});
  require_context("estimate", m.context, config.context_length);
  if (m.prompt > m.context)
    fail<ArgumentError>(
        {.operation = "estimate",
         .with = {{"prompt", std::to_string(m.prompt)}, {"context", std::to_string(m.context)}},
         .wrong = "the prompt is longer than the context",
         .remedy = m.prompt > config.context_length
                       ? fmt::format("Use {0} or less (--prompt-tokens {0})", m.context)
                       : fmt::format("Use {0} or less (--prompt-tokens {0}), or a context of {1} or more (--ctx {1})",
                                     m.context, m.prompt)});
  for (const Device device : devices)
    m.devices.push_back({.device = device, .bound = memory_stats(device).bound, .free = free_for_models(device)});
  const auto layers = static_cast<std::size_t>(config.layers);
  const auto measure = [&](std::vector<Device> on) {
    m.layers = std::move(on);
    const std::vector<Use> uses = dry_run(file, devices, m.layers, m, options.cache_dtype);
    for (std::size_t i = 0; i < uses.size(); ++i) {
      DeviceMemory& d = m.devices[i];
      d.layers = std::count(m.layers.begin(), m.layers.end(), d.device);
      d.weights = uses[i].weights, d.cache = uses[i].cache, d.peak = uses[i].peak;
    }
  };
  measure(std::vector(layers, devices.front()));
  if (devices.size() == 1 || m.fits()) return m;
  if (!config.is_indivisible()) {
    measure(spread(file, m, m.devices, layers, options.cache_dtype));
    return m;
  }
  for (const Device device : devices.subspan(1)) {
    measure(std::vector(layers, device));
    if (m.fits()) return m;
  }
  measure(std::vector(layers, devices.front()));
  return m;
}

std::int64_t largest_context(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options) {
  MemoryOptions o = options;
  o.prompt = 0;
  return longest_that_fits(read_llama_config(file).context_length, [&](std::int64_t context) {
    o.context = context;
    return estimate_memory(file, devices, o).fits();
  });
}

std::int64_t longest_that_fits(std::int64_t most, const Callback<bool(std::int64_t)>& fits) {
  if (fits(most)) return most;
  std::int64_t low = 0, high = most;
  while (high - low > std::max<std::int64_t>(1, low / 64)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace tessera
