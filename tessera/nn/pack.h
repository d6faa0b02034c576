// SPDX-License-Identifier: Apache-2.0
// Parameters that lie together in one buffer, so that one kernel goes over all of them.
#pragma once

#include "tessera/nn/parameter.h"

namespace tessera {

namespace detail {

/// Arrays that lie one behind the other in one buffer, as a row; nothing if they do not.
std::optional<Array> packed_view(std::span<const Array* const> arrays);
/// Copies arrays of one dtype and device into one new buffer, and makes each a view of its part.
void pack_arrays(std::span<Array* const> arrays);
/// Whether a kernel for each of these takes less time than copying them beside each other: of many bytes that are
/// already computed, on a processor, where a launch takes a few microseconds.
bool is_packing_slower(std::span<const Array* const> arrays);
/// ArgumentError if a parameter that is trained stands elsewhere seen differently (one the transpose of the other,
/// say): as one parameter it could not be trained, and apart they could not be.
void check_same_views(const char* asked, const ConstParts& parts);
/// Gives the rows. With `allow_separate` those that are better apart are rows of their own.
std::vector<Array> pack_parts(const Parts& parts, std::span<const std::string> patterns, bool allow_separate = false);
/// The same of a model, in which one array may stand in several places: it lies in a row once, and stays one.
std::vector<Array> pack_model(const Parts& parts, std::span<const std::string> patterns);

}  // namespace detail

/// Lays the parameters that are trained together in one buffer for each dtype and device, in place of the memory they
/// had: copies of the model made before keep that. `patterns`: those that match the first lie together, those that
/// match the second, and so on, and the rest; an optimiser's groups should be given. A step is then one kernel a group.
/// A parameter that stands in several places stays one. ArgumentError if two are one memory seen differently (one the
/// transpose of the other, say), which apart they could not be.
template <class Model>
void pack(Model& model, const std::vector<std::string>& patterns = {}) {
  detail::pack_model(detail::parts_of(model), patterns);
}

}  // namespace tessera
