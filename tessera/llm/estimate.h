// SPDX-License-Identifier: Apache-2.0
// The memory that a language model needs, before it is loaded: by a dry run of the code that loads and runs it, or, for
// a first estimate without a file, by a formula.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/llama.h"

namespace tessera {

/// The result of `estimate_inference_memory`; "mb" and "gb" are 2^20 and 2^30 bytes.
struct InferenceMemoryEstimate {
  /// Bytes of the weights, of the KV cache, of activations, and in total.
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

/// Estimates memory by torchless's formula for a Llama with untied output and heads of hidden / heads elements, all
/// numbers in `dtype_bytes` bytes: weights, keys and values of `context` tokens, and two rows of activations. It
/// ignores block formats, batches and work space; use `estimate_memory` if you have the file. Throws ArgumentError if
/// an argument is not positive, or hidden is not a multiple of heads. Source: https://github.com/rglonek/torchless-rs
InferenceMemoryEstimate estimate_inference_memory(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                                                  std::int64_t vocabulary, std::int64_t heads,
                                                  std::int64_t key_value_heads, std::int64_t context,
                                                  std::int64_t dtype_bytes);

/// How a model will be used; numbers are in tokens.
struct MemoryOptions {
  std::int64_t context = 0;        ///< prompt and answer together; 0: the model's context length
  std::int64_t prompt = 0;         ///< 0: the context minus one
  std::int64_t batch = 256;        ///< Tokens of the prompt that are read at a time.
  DType cache_dtype = DType::f16;  ///< The dtype of keys and values.
};

/// Bytes on one device. `peak` is the maximum during loading, prompt and answer, including memory that the pool keeps
/// for reuse.
struct DeviceMemory {
  Device device;            ///< The device.
  std::int64_t layers = 0;  ///< Number of its layers.
  /// Bytes of the weights, of the KV cache, and the peak.
  std::uint64_t weights = 0, cache = 0, peak = 0;
  std::string bound;  ///< what limits its memory: "the device's memory", "TESSERA_MEMORY_LIMIT"
  std::uint64_t free =
      0;  ///< free memory at the time of the call; for GPUs minus a reserve for the driver (2 %, at most 256 MiB)
  std::uint64_t work() const { return peak - std::min(peak, weights + cache); }  ///< activations and rounding
  /// True if the peak fits in the free memory.
  bool fits() const { return peak <= free; }
};

/// What a model needs on each device.
struct ModelMemory {
  std::string file;                                 ///< The model's file.
  std::int64_t context = 0, prompt = 0, batch = 0;  ///< The parameters of the estimate, in tokens.
  std::vector<Device> layers;                       ///< The device of each layer, as Llama::load expects it.
  std::vector<DeviceMemory> devices;                ///< the given devices in order; those without layers need no memory
  bool fits() const;                                ///< True if the model fits on every device.
  void require() const;  ///< throws OutOfMemory with needed and free memory of each device unless fits()
};

/// Throws ArgumentError if the context is longer than the model's context length `trained`.
void require_context(std::string_view asked, std::int64_t context, std::int64_t trained);

/// Estimates memory by a dry run (device/placement/dry_run.h) of loading the model, reading a prompt and generating an
/// answer. If the first device has enough memory, it gets all layers; else layers fill the devices in order. Throws
/// ArgumentError if a number is not positive, the context is longer than the model's, or the prompt longer than the
/// context; and the errors of Llama::load.
ModelMemory estimate_memory(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

/// Returns the longest context that fits, up to the model's context length; 0 if none does. Ignores `options.context`
/// and `options.prompt`.
std::int64_t largest_context(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

}  // namespace tessera
