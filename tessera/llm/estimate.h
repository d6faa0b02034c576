// SPDX-License-Identifier: Apache-2.0
// Estimates how much memory a language model needs before it is loaded. `estimate_memory` does a dry run of the code
// that loads and runs the model. `estimate_inference_memory` uses a formula and does not need a file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/llm/llama.h"

namespace tessera {

/// The result of `estimate_inference_memory`. "mb" means 2^20 bytes and "gb" means 2^30 bytes.
struct InferenceMemoryEstimate {
  /// Sizes in bytes: weights, KV cache, activations, and total.
  std::uint64_t model_bytes = 0, kv_cache_bytes = 0, activation_bytes = 0, total_bytes = 0;
  /// Weights in MiB.
  double model_mb() const { return static_cast<double>(model_bytes) / (1u << 20); }
  /// KV cache in MiB.
  double kv_cache_mb() const { return static_cast<double>(kv_cache_bytes) / (1u << 20); }
  /// Activations in MiB.
  double activation_mb() const { return static_cast<double>(activation_bytes) / (1u << 20); }
  /// Total in MiB.
  double total_mb() const { return static_cast<double>(total_bytes) / (1u << 20); }
  /// Total in GiB.
  double total_gb() const { return static_cast<double>(total_bytes) / (1u << 30); }
};
std::string to_string(const InferenceMemoryEstimate& estimate);  ///< One line with all sizes.

/// Estimates the memory of a Llama model with the formula of torchless: weights, keys and values of `context` tokens,
/// and two rows of activations. All numbers are assumed to take `dtype_bytes` bytes, the output matrix is assumed to be
/// untied, and a head has hidden / heads elements. The formula ignores block formats, batches and work space; use
/// `estimate_memory` if you have the file.
///
/// Throws ArgumentError if an argument is not between 1 and 2^20, or if hidden is not a multiple of heads. Source:
/// https://github.com/rglonek/torchless-rs
InferenceMemoryEstimate estimate_inference_memory(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                                                  std::int64_t vocabulary, std::int64_t heads,
                                                  std::int64_t key_value_heads, std::int64_t context,
                                                  std::int64_t dtype_bytes);

/// Describes how a model will be used. Numbers are in tokens.
struct MemoryOptions {
  std::int64_t context = 0;        ///< length of prompt and answer together; 0: the model's context length
  std::int64_t prompt = 0;         ///< length of the prompt; 0: the context minus one
  std::int64_t batch = 256;        ///< Tokens of the prompt that are read at a time.
  DType cache_dtype = DType::f16;  ///< The dtype of keys and values.
};

/// Memory in bytes that a model needs on one device. `peak` is the maximum during loading, prompt and answer. It
/// includes memory that the pool keeps for reuse.
struct DeviceMemory {
  Device device;            ///< The device.
  std::int64_t layers = 0;  ///< Number of layers on the device.
  /// Size of the weights, size of the KV cache, and peak memory use.
  std::uint64_t weights = 0, cache = 0, peak = 0;
  std::string bound;  ///< the limit that applies: "the device's memory" or "TESSERA_MEMORY_LIMIT"
  /// Free memory at the time of the call. For GPUs, a reserve for the driver is subtracted (2 %, at most 256 MiB).
  std::uint64_t free = 0;
  /// Size of activations and allocation overhead.
  std::uint64_t work() const { return peak - std::min(peak, weights + cache); }
  /// True if the peak fits in the free memory.
  bool fits() const { return peak <= free; }
};

/// The memory that a model needs on each device.
struct ModelMemory {
  std::string file;                                 ///< The model's file.
  std::int64_t context = 0, prompt = 0, batch = 0;  ///< The parameters of the estimate, in tokens.
  std::vector<Device> layers;                       ///< The device of each layer, as Llama::load expects it.
  std::vector<DeviceMemory> devices;                ///< in the order given; may contain devices without layers
  bool fits() const;                                ///< True if the model fits on every device.
  /// Throws OutOfMemory unless fits(). The message contains the needed and the free memory of each device.
  void require() const;
};

/// Returns the free memory of a device. Part of a GPU's memory is left to its driver and to other programs.
std::uint64_t free_for_models(Device device);

/// Throws ArgumentError if the context is longer than the model's context length `trained`.
void require_context(std::string_view asked, std::int64_t context, std::int64_t trained);

/// Estimates memory with a dry run (device/placement/dry_run.h) that loads the model, reads a prompt and generates an
/// answer. If the first device has enough memory, all layers are assigned to it. Otherwise, the devices are filled with
/// layers in order. A model whose layers must be on one device (LlamaConfig::is_indivisible) is assigned to the first
/// device that has enough memory, or to the first device if none has. Throws ArgumentError if a number is not positive,
/// if the context is longer than the model's context length, or if the prompt is longer than the context. Throws the
/// errors of Llama::load.
ModelMemory estimate_memory(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

/// Returns the longest context for which fits(context) is true, by bisection: at most 1/64 too short, and at most
/// `most`. Returns 0 if no context fits.
std::int64_t longest_that_fits(std::int64_t most, const Callback<bool(std::int64_t)>& fits);

/// Returns the longest context that fits in memory, up to the model's context length. The search stops when the result
/// is at most 1/64 too short. Returns 0 if no context fits. Ignores `options.context` and `options.prompt`.
std::int64_t largest_context(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

}  // namespace tessera
