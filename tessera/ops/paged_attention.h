// SPDX-License-Identifier: Apache-2.0
// Attention over a KV cache of several sequences, stored in pages (Kwon et al. 2023). Sequences take pages as they
// grow, and can share pages with equal contents.
#pragma once

#include <optional>

#include "tessera/array/array.h"
#include "tessera/ops/transformer.h"

namespace tessera::ops {

/// Number of positions of a page.
inline constexpr std::int64_t page_positions = 64;
/// Largest number of tokens of a group; see PagedTokens.
inline constexpr std::int64_t most_grouped_tokens = 16;

/// Tokens that are processed together. They belong to one or several sequences.
struct PagedTokens {
  Array tables;     ///< i32 (sequences, pages): element p is the page of positions 64 p to 64 p + 63 of a sequence
  Array sequences;  ///< i32 (tokens,): the row of `tables` of each token
  Array positions;  ///< i32 (tokens,): the position of each token in its sequence
  std::int64_t single = 0;  ///< the number of tokens at the begin that are in no group
  /// i32 (groups, 2), for the tokens after them: the first token of a group and their number, up to 16. The tokens of a
  /// group have consecutive positions in one sequence, and share the keys and values that they read.
  std::optional<Array> groups = {};
  /// True if the tokens of a group have equal positions instead of consecutive ones. In paged_attention, tokens whose
  /// position is the last one of their sequence attend to the whole sequence, so that attention is not causal.
  bool equal_positions = false;
};

/// The keys and values of a layer.
struct PagedLayer {
  Array keys;    ///< f32, f16 or i8 (pages, key heads, cache_row(head size), 64); see transformer.h
  Array values;  ///< the same dtype (pages, key heads, 64, cache_row(head size))
  /// Creates pages that contain zeros.
  static PagedLayer zeros(std::int64_t pages, std::int64_t key_heads, std::int64_t head_size, DType dtype,
                          Device device);
};

/// Stores keys and values (tokens, key heads, head size) of the tokens in the pages of their positions. The numbers in
/// device memory are not checked: the caller must ensure that they are in range. Throws ShapeError, DtypeError or
/// DeviceError if the operands do not match.
void paged_store(PagedLayer& layer, const Array& keys, const Array& values, const PagedTokens& tokens);

/// Causal attention as in attention() (transformer.h), with online softmax over the pages: q is (tokens, heads, head
/// size), and so is the result, f32. A token at position p attends to positions 0 to p of its sequence, or with a
/// window to the last `window` of them. `sinks` is as in attention(). If all values are finite, the bits of a token's
/// result do not depend on the other tokens, on groups, or on the numbers of pages. The numbers in device memory are
/// not checked. Throws ShapeError, DtypeError, DeviceError or ArgumentError if the operands do not match.
Array paged_attention(const Array& q, const PagedLayer& layer, const PagedTokens& tokens, float scale,
                      std::int64_t window = 0, float cap = 0, const std::optional<Array>& sinks = {});

}  // namespace tessera::ops
