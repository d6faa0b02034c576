// SPDX-License-Identifier: Apache-2.0
// Internal. Activations in the layouts that packed weights read, so that a kernel can store its results in the layout
// of the next product.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/ops/kernels.h"
#include "tessera/ops/weight.h"

namespace tessera::ops {

/// The left factor of products with weights: one row of `columns` elements for each token.
class LinearInput {
 public:
  /// Rows (..., columns) of a float dtype.
  explicit LinearInput(const Array& rows);
  /// Activations that a kernel has stored in `layout`. Only weights that read this layout can be multiplied.
  LinearInput(Array data, const InputLayout& layout, std::int64_t tokens, std::int64_t columns);

  std::int64_t tokens() const { return tokens_; }
  /// Rows as contiguous f32, if they are available.
  const std::optional<Array>& rows() const { return rows_; }
  /// Returns the activations in a layout. Rows are converted to each layout only once.
  const Array& in(const InputLayout& layout);
  /// Rows of 16-bit floats (terms, tokens, columns), and for f16 the factor of each row (tokens, 1) by which products
  /// must be multiplied.
  struct Rounded {
    RoundSpec how;
    Array rows;
    std::optional<Array> factors;
  };
  /// Returns the rows rounded to sums of `terms` numbers of f16 or bf16 (see RoundSpec). Requires rows.
  const Rounded& rounded(DType dtype, std::uint32_t terms = 1);

 private:
  std::optional<Array> rows_;  ///< contiguous, f32
  std::vector<std::pair<InputLayout, Array>> stored_;
  std::vector<Rounded> rounded_;
  std::int64_t tokens_ = 0, columns_ = 0;
};

/// Products with the rows of one expert each. `weight` has the rows of all experts, `experts` times as many as a result
/// has columns; ids (tokens, used), i32, are the experts of each token. x has a row for each token, or for each id.
/// Returns (tokens * used, weight.rows() / experts), f32. The ids are not checked. Without ids, all rows of x are
/// multiplied by the same rows. A result does not depend on the other rows of x.
Array linear_experts(LinearInput& x, const Weight& weight, std::int64_t experts, const std::optional<Array>& ids);

/// Allocates activations in a layout.
Array empty_input(const InputLayout& layout, std::int64_t tokens, std::int64_t columns, Device device);

/// The layout that all `weights` read in products with `tokens` tokens; std::nullopt if they read different layouts. If
/// the vendor's library multiplies one of them, the layout is that of rows.
std::optional<InputLayout> common_layout(std::span<const Weight> weights, std::int64_t tokens);

/// True if products of `tokens` tokens with the weight are computed by the vendor's library, after a conversion of the
/// weight to a matrix of 16-bit floats.
bool multiplied_by_library(const Weight& weight, std::int64_t tokens);

/// True if these products are computed by kernels for tiles of tokens, with matrix fragments.
bool multiplied_by_tiles(const Weight& weight, std::int64_t tokens);

/// Compiles the kernel of products of `tokens` tokens with the weight, if the kernel unpacks panels of the weight.
void prepare_panels(const Weight& weight, std::int64_t tokens);

/// Returns the products (tokens, rows) with several weights. The weights must have x's columns and device.
std::vector<Array> linear(LinearInput& x, std::span<const Weight> weights);

/// True if gated_linear can multiply `tokens` tokens by `weight` and store the results in the layout `out`.
bool can_gate(const Weight& weight, std::int64_t tokens, const InputLayout& out);
/// The first half of the rows of `weight` are gates. Returns the activation of each gate times its row of the second
/// half, from one kernel. Requires can_gate.
LinearInput gated_linear(LinearInput& x, const Weight& weight, Gate gate, const InputLayout& out);

}  // namespace tessera::ops
