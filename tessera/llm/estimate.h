// SPDX-License-Identifier: Apache-2.0
// What memory a language model needs, before it is loaded: by a dry run of the code that will load and run it, and, for
// a first guess without a file, by a formula.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/llm/llama.h"

namespace tessera {

/// The guess of `estimate_inference_memory`; "mb" and "gb" are 2^20 and 2^30 bytes.
struct InferenceMemoryEstimate {
  /// Bytes of the weights, of the keys and values, of intermediate results, and of all together.
  std::uint64_t model_bytes = 0, kv_cache_bytes = 0, activation_bytes = 0, total_bytes = 0;
  /// Weights in MiB.
  double model_mb() const { return static_cast<double>(model_bytes) / (1u << 20); }
  /// Keys and values in MiB.
  double kv_cache_mb() const { return static_cast<double>(kv_cache_bytes) / (1u << 20); }
  /// Intermediate results in MiB.
  double activation_mb() const { return static_cast<double>(activation_bytes) / (1u << 20); }
  /// All together in MiB.
  double total_mb() const { return static_cast<double>(total_bytes) / (1u << 20); }
  /// All together in GiB.
  double total_gb() const { return static_cast<double>(total_bytes) / (1u << 30); }
};
std::string to_string(const InferenceMemoryEstimate& estimate);  ///< a line for people

/// torchless's formula for a Llama with untied output, heads of hidden / heads numbers, and everything in numbers of
/// `dtype_bytes`: weights, keys and values of `context` tokens, and two rows of activations. It knows no block formats,
/// batches or work space: for a file at hand use `estimate_memory`. ArgumentError if an argument is not positive, or
/// heads does not divide hidden. https://github.com/rglonek/torchless-rs
InferenceMemoryEstimate estimate_inference_memory(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers,
                                                  std::int64_t vocabulary, std::int64_t heads,
                                                  std::int64_t key_value_heads, std::int64_t context,
                                                  std::int64_t dtype_bytes);

/// How a model will be used. Numbers of tokens.
struct MemoryOptions {
  std::int64_t context = 0;        ///< of prompt and answer together; 0: what the model was made for
  std::int64_t prompt = 0;         ///< 0: the whole context but one
  std::int64_t batch = 256;        ///< Tokens of the prompt that are read at once.
  DType cache_dtype = DType::f16;  ///< The dtype of keys and values.
};

/// Bytes on one device. `peak` is the most that loading, the prompt and the answer need at once, with what the pool
/// keeps for reuse.
struct DeviceMemory {
  Device device;            ///< The device.
  std::int64_t layers = 0;  ///< Layers that it gets.
  /// Bytes of the weights, of the keys and values, and the most that is used at a time.
  std::uint64_t weights = 0, cache = 0, peak = 0;
  std::string bound;       ///< what bounds it: "the device's memory", "TESSERA_MEMORY_LIMIT"
  std::uint64_t free = 0;  ///< when asked; for a GPU less what its driver may want for itself (2 %, at most 256 MiB)
  std::uint64_t work() const { return peak - std::min(peak, weights + cache); }  ///< activations and rounding
  /// True if the peak is not more than what is free.
  bool fits() const { return peak <= free; }
};

/// What a model needs on each device.
struct ModelMemory {
  std::string file;                                 ///< The model's file.
  std::int64_t context = 0, prompt = 0, batch = 0;  ///< The numbers that the estimate is for, in tokens.
  std::vector<Device> layers;                       ///< of each layer, as Llama::load wants it
  std::vector<DeviceMemory> devices;  ///< those asked for, in that order; one that gets no layers needs nothing
  bool fits() const;                  ///< True if it fits on each device.
  void require() const;               ///< OutOfMemory with what is needed and free on each device, unless it fits
};

/// ArgumentError, in the same words wherever a context is asked for, if it is longer than the model was made for.
void require_context(std::string_view asked, std::int64_t context, std::int64_t trained);

/// A dry run (device/placement/dry_run.h) of loading the model, reading a prompt and answering. With several devices,
/// layers go to the first as far as its memory goes, then to the next; all to the first if it is enough. ArgumentError
/// if the numbers are not positive, the context is longer than the model was made for, or the prompt longer than the
/// context; errors of Llama::load.
ModelMemory estimate_memory(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

/// The longest context that fits, up to what the model was made for; 0 if none does. `options.context` and `prompt` do
/// not matter.
std::int64_t largest_context(const GgufFile& file, std::span<const Device> devices, const MemoryOptions& options = {});

}  // namespace tessera
