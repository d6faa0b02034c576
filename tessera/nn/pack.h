// SPDX-License-Identifier: Apache-2.0
// Packs parameters into one buffer, so that one kernel can update all of them.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

namespace detail {

/// Returns a 1-D view of arrays that are adjacent in one buffer, or std::nullopt if they are not adjacent.
std::optional<Array> packed_view(std::span<const Array* const> arrays);
/// Copies arrays of one dtype and device into one buffer, by default a new one, and makes each array a view of its part
/// of the buffer. Returns the buffer.
Array pack_arrays(std::span<Array* const> arrays, std::optional<Array> buffer = {});
/// True if copying these arrays into one buffer takes longer than launching a kernel for each array. On a CPU, this is
/// the case for large arrays that are already computed, because a launch takes only a few microseconds.
bool is_packing_slower(std::span<const Array* const> arrays);
/// Throws ArgumentError if a trained parameter also occurs as a different view of the same memory, for example
/// transposed. Such a parameter can be trained neither as one parameter nor as two.
void check_same_views(const char* asked, const ConstParts& parts);
/// Returns the packed buffers. With `allow_separate`, arrays for which packing is slower are not packed and are
/// returned as separate buffers. With `kept`, the buffers of earlier calls for the same parts are used again, and new
/// ones are added to it; arrays that are in these buffers already are not copied.
std::vector<Array> pack_parts(const Parts& parts, std::span<const std::string> patterns, bool allow_separate = false,
                              std::vector<Array>* kept = nullptr);
/// Like pack_parts, for a model that may contain the same array several times. The array is packed once and remains
/// shared.
std::vector<Array> pack_model(const Parts& parts, std::span<const std::string> patterns);

}  // namespace detail

/// Moves the trained parameters into one buffer for each dtype and device. Existing copies of the model keep the old
/// memory. Parameters that match the first of `patterns` are stored first, then those that match the second, and so on,
/// then all others. If you pass the patterns of an optimiser's groups, a step needs one kernel per group. Shared
/// parameters remain shared. Throws ArgumentError if two parameters are different views of the same memory, for example
/// if one is the transpose of the other, because packing would separate them.
template <class Model>
void pack(Model& model, const std::vector<std::string>& patterns = {}) {
  detail::pack_model(detail::parts_of(model), patterns);
}

}  // namespace tessera
