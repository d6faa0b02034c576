// SPDX-License-Identifier: Apache-2.0
// View<T, n>: a kernel parameter for an array with n dimensions and any strides, with elements x(i, j).
#pragma once

#include "tessera/kernel/memory.h"

namespace tessera {

/// A kernel parameter: an array with `rank` dimensions (1 to 4) and any strides, such as a transposed matrix, a slice
/// or a column. `View<const T, n>` is read-only. Elements are x(i, j).
template <class T, int rank>
class View {
  static_assert(Element<std::remove_const_t<T>>,
                "a view's elements must be bool, std::int8_t to std::uint64_t, half, bfloat16, float or double");
  static_assert(rank >= 1 && rank <= detail::ViewNodes::most, "a view has one to four dimensions");
  using S = detail::Subscript;

 public:
  /// Created by tracing.
  explicit View(const detail::ViewNodes& nodes) : nodes_(nodes) {}

  /// The number of elements along a dimension.
  Val<Index> extent(int dimension, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    detail::note(file, line);
    return Val<Index>(detail::NodeRef{detail::extent_of_view(nodes_, rank, dimension)});
  }
  /// The memory from the first to the last element, for atomics and `load_if`, with positions from index().
  Buffer<T> buffer() const { return Buffer<T>(detail::NodeRef{nodes_.memory}); }

  /// The element at these indices.
  auto operator()(S i) const
    requires(rank == 1)
  {
    return element(i, {i.node()});
  }
  auto operator()(S i, S j) const
    requires(rank == 2)
  {
    return element(i, {i.node(), j.node()});
  }
  auto operator()(S i, S j, S k) const
    requires(rank == 3)
  {
    return element(i, {i.node(), j.node(), k.node()});
  }
  auto operator()(S i, S j, S k, S l) const
    requires(rank == 4)
  {
    return element(i, {i.node(), j.node(), k.node(), l.node()});
  }
  /// The position of an element in buffer().
  Val<Index> index(S i) const
    requires(rank == 1)
  {
    return position({i.node()});
  }
  Val<Index> index(S i, S j) const
    requires(rank == 2)
  {
    return position({i.node(), j.node()});
  }
  Val<Index> index(S i, S j, S k) const
    requires(rank == 3)
  {
    return position({i.node(), j.node(), k.node()});
  }
  Val<Index> index(S i, S j, S k, S l) const
    requires(rank == 4)
  {
    return position({i.node(), j.node(), k.node(), l.node()});
  }

 private:
  Val<Index> position(std::initializer_list<ir::NodeId> at) const {
    return Val<Index>(detail::NodeRef{detail::element_of_view(nodes_, at)});
  }
  auto element(const S& first, std::initializer_list<ir::NodeId> at) const {
    const S i(position(at), first.file(), first.line());
    if constexpr (std::is_const_v<T>)
      return ReadOnlyElement<std::remove_const_t<T>>(nodes_.memory, i);
    else
      return BufferElement<T>(nodes_.memory, i);
  }
  detail::ViewNodes nodes_;
};

}  // namespace tessera
