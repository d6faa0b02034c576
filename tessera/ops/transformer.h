// SPDX-License-Identifier: Apache-2.0
// The operations of a transformer besides products. Each is written once, in kernel IR, for every device.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// x / sqrt(mean(x^2 over the last axis) + epsilon) * weight. x (..., n), weight (n,). Zhang and Sennrich 2019.
Array rms_norm(const Array& x, const Array& weight, float epsilon);

/// exp(x - max) / sum along an axis; rows of -inf only give 0.
Array softmax(const Array& x, int axis = -1);

/// silu(gate) * up: the gated unit of Llama (Shazeer 2020). Deferred and fused with its neighbours.
Array silu_gate(Array gate, Array up);
/// gelu(gate) * up, with the tanh form of gelu (Hendrycks and Gimpel 2016): the gated unit of Gemma.
Array gelu_gate(Array gate, Array up);

/// Which elements rotate together.
enum class RotaryPairs : std::uint8_t {
  adjacent,  ///< (0, 1), (2, 3), ...: Llama files in GGUF, "norm"
  halves     ///< (0, d/2), (1, d/2 + 1), ...: GPT-NeoX, "neox"
};
/// How positions rotate the elements of a head (Su et al. 2021).
struct Rotary {
  RotaryPairs pairs = RotaryPairs::adjacent;  ///< Which elements are rotated together.
  std::int64_t dimensions = 0;                ///< of each head that rotate, even; the rest pass through. 0: all
  float base = 10000.0f;                      ///< from 1e-9 to 1e30
  float scale = 1.0f;                         ///< positions are multiplied by it (linear scaling: 1 / factor)
  std::optional<Array> factors = {};  ///< f32 (dimensions / 2,): each frequency is divided by its factor (Llama 3.1)
  float magnitude = 1.0f;             ///< what rotates is multiplied by it, too (YaRN, LongRoPE)
};
/// Where the first of some tokens stands in its text: a number; or an i32 of one element in device memory, read when
/// the kernel runs, so that a recorded Sequence may be replayed at another place. That it is one that fits is then for
/// the caller to see to: nobody checks it.
class Position {
 public:
  Position(std::int64_t number) : number_(number) {}
  /// ShapeError, DtypeError: not a contiguous i32 of one element.
  explicit Position(Array in_memory);
  /// True if the position is read from device memory when it is used.
  bool in_memory() const { return memory_.has_value(); }
  /// The position; only if not in_memory().
  std::int64_t number() const { return number_; }
  /// The array that has the position; only if in_memory().
  const Array& memory() const { return *memory_; }

 private:
  std::int64_t number_ = 0;
  std::optional<Array> memory_;
};

/// Rotary position embedding (Su et al. 2021): token t of x, (tokens, heads, head size) or (batch, heads, tokens, head
/// size), stands at `first_position` + t. ArgumentError: a base outside of 1e-9 to 1e30, or a scale beyond 1e9.
Array rotary(const Array& x, const Position& first_position, const Rotary& how);

/// Writes rows (tokens, heads, head size) into a cache (heads, capacity, head size; f32 or f16) from `position` on.
/// ShapeError if they do not fit.
void cache_store(Array& cache, const Array& rows, const Position& position);

/// Causal attention over a cache with grouped heads and online softmax. q (tokens, heads, head size), keys and values
/// (key heads, capacity, head size; f32 or f16); token t sees positions 0 .. past + t. heads is a multiple of key
/// heads. Gives (tokens, heads, head size), f32. Milakov and Gimelshein 2018; Dao et al. 2022.
/// `window`: each token sees itself and the window - 1 before it; 0: all. `cap`: scores become cap * tanh(score / cap)
/// (Gemma 2); 0: they do not. ArgumentError: either below 0.
Array attention(const Array& q, const Array& keys, const Array& values, const Position& past, float scale,
                std::int64_t window = 0, float cap = 0);

}  // namespace tessera
