// SPDX-License-Identifier: Apache-2.0
// Packs parameters into one buffer, so that one kernel updates all of them.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

namespace detail {

/// Returns arrays that are adjacent in one buffer as a 1-D array; empty if they are not.
std::optional<Array> packed_view(std::span<const Array* const> arrays);
/// Copies arrays of one dtype and device into one new buffer, and makes each a view of its part.
void pack_arrays(std::span<Array* const> arrays);
/// Whether a kernel for each of these takes less time than copying them into one buffer: for large arrays that are
/// already computed, on a CPU, where a launch takes a few microseconds.
bool is_packing_slower(std::span<const Array* const> arrays);
/// Throws ArgumentError if a trained parameter also occurs as a different view of the same memory (one the transpose of
/// the other, say): it could neither be trained as one parameter nor as two.
void check_same_views(const char* asked, const ConstParts& parts);
/// Returns the rows. With `allow_separate`, arrays that are faster apart are rows of their own.
std::vector<Array> pack_parts(const Parts& parts, std::span<const std::string> patterns, bool allow_separate = false);
/// The same for a model, in which an array may occur several times: it is in a row once, and stays shared.
std::vector<Array> pack_model(const Parts& parts, std::span<const std::string> patterns);

}  // namespace detail

/// Moves the trained parameters into one buffer for each dtype and device; earlier copies of the model keep the old
/// memory. Parameters that match the first of `patterns` are adjacent, then those that match the second, and so on,
/// then the rest; pass an optimiser's groups, so that a step is one kernel per group. Shared parameters stay shared.
/// Throws ArgumentError if two parameters are different views of the same memory (one the transpose of the other, say),
/// which would be separated.
template <class Model>
void pack(Model& model, const std::vector<std::string>& patterns = {}) {
  detail::pack_model(detail::parts_of(model), patterns);
}

}  // namespace tessera
