// SPDX-License-Identifier: Apache-2.0
// The operations of a transformer, except products.
#pragma once

#include "tessera/array/array.h"

namespace tessera {

/// Returns x / sqrt(mean(x^2 over the last axis) + epsilon) * weight. x (..., n), weight (n,). Zhang and Sennrich 2019.
Array rms_norm(const Array& x, const Array& weight, float epsilon);

/// Returns exp(x - max) / sum along an axis. A row that contains only -inf becomes 0.
Array softmax(const Array& x, int axis = -1);

/// Returns silu(gate) * up, the gated unit of Llama (Shazeer 2020). It is deferred and can be fused with other
/// operations.
Array silu_gate(Array gate, Array up);
/// Returns gelu(gate) * up, the gated unit of Gemma, with the tanh approximation of gelu (Hendrycks and Gimpel 2016).
Array gelu_gate(Array gate, Array up);

/// The activation of the gate in a feed-forward layer.
enum class Gate : std::uint8_t {
  silu,         ///< x * sigmoid(x)
  gelu,         ///< GELU with the tanh approximation
  clamped_silu  ///< x * sigmoid(1.702 x) of x up to 7; its partner is clamped to +-7, and 1 is added to it (gpt-oss)
};

/// The elements of a head that form a pair and are rotated together.
enum class RotaryPairs : std::uint8_t {
  adjacent,  ///< (0, 1), (2, 3), ...: Llama models in GGUF files, "norm"
  halves     ///< (0, d/2), (1, d/2 + 1), ...: GPT-NeoX, "neox"
};
/// Options of rotary position embedding (Su et al. 2021).
struct Rotary {
  RotaryPairs pairs = RotaryPairs::adjacent;  ///< The elements that form a pair.
  std::int64_t dimensions = 0;                ///< number of elements of each head that are rotated, even; 0: all
  float base = 10000.0f;                      ///< between 1e-9 and 1e30
  float scale = 1.0f;                         ///< multiplies positions (linear scaling: 1 / factor)
  std::optional<Array> factors = {};  ///< f32 (dimensions / 2,): each frequency is divided by its factor (Llama 3.1)
  float magnitude = 1.0f;             ///< multiplies rotated elements (YaRN, LongRoPE)
};
/// The position of the first token. It is either a number, or one i32 in device memory. The array is read when the
/// kernel runs, so that a recorded Sequence can be replayed at another position. A position in device memory is not
/// checked: the caller must ensure that it is in range. rotary() also takes a position for each token.
class Position {
 public:
  Position(std::int64_t number) : number_(number) {}
  /// Throws ShapeError or DtypeError unless the array is a single contiguous i32.
  explicit Position(Array in_memory);
  /// The positions of tokens that are not consecutive: i32 (tokens,), contiguous. Throws ShapeError or DtypeError for
  /// other arrays.
  static Position each(Array in_memory);
  /// True if there is a position for each token.
  bool is_each() const { return is_each_; }
  /// True if the position is read from device memory when it is used.
  bool in_memory() const { return memory_.has_value(); }
  /// The position. Requires !in_memory().
  std::int64_t number() const { return number_; }
  /// The array that contains the position. Requires in_memory().
  const Array& memory() const { return *memory_; }

 private:
  std::int64_t number_ = 0;
  std::optional<Array> memory_;
  bool is_each_ = false;
};

/// Rotary position embedding (Su et al. 2021) of x, which is (tokens, heads, head size) or (batch, heads, tokens, head
/// size). Token t has position `first_position` + t, or with Position::each the position at index t. Throws
/// ArgumentError if the base is not between 1e-9 and 1e30, or if the scale exceeds 1e9.
Array rotary(const Array& x, const Position& first_position, const Rotary& how);

/// Returns the number of elements that a cache of this dtype has for a position of a head: `head_size`, or in a cache
/// of i8 34 for each 32 elements. Such a cache stores blocks of 32 numbers, rounded to 8 bits, and an f16 scale for
/// each, as ggml's Q8_0 does. Throws DtypeError unless the dtype is f32, f16 or i8, and ShapeError if the head size is
/// not a multiple of 32 for i8.
std::int64_t cache_row(std::int64_t head_size, DType dtype);

/// Writes rows (tokens, heads, head size) to a cache, starting at `position`. The cache is (heads, capacity,
/// cache_row(head size)), f32, f16 or i8. Throws ShapeError if the rows do not fit.
void cache_store(Array& cache, const Array& rows, const Position& position);

/// Causal attention over a KV cache with grouped heads and online softmax (Milakov and Gimelshein 2018; Dao et al.
/// 2022).
///
/// q is (tokens, heads, head size). keys and values are (key heads, capacity, cache_row(head size)), f32, f16 or i8.
/// The result is (tokens, heads, head size), f32. The number of heads must be a multiple of the number of key heads.
/// Token t attends to positions 0 to past + t. With matrix units and an f16 cache, queries and weights of 16 or more
/// tokens are rounded to f16.
///
/// `window`: each token attends to itself and the window - 1 tokens before it; 0 means that it attends to all. `cap`: a
/// score becomes cap * tanh(score / cap) (Gemma 2); 0 means no cap. Throws ArgumentError if either is negative.
///
/// `sinks`: f32 (heads,). The softmax of a head has one more score, which belongs to no position (gpt-oss; Xiao et al.
/// 2023), so that its weights can sum to less than 1. Throws ShapeError, DtypeError or DeviceError for other arrays.
Array attention(const Array& q, const Array& keys, const Array& values, const Position& past, float scale,
                std::int64_t window = 0, float cap = 0, const std::optional<Array>& sinks = {});

}  // namespace tessera
