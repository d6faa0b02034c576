// SPDX-License-Identifier: Apache-2.0
// Products of 16 x 16 matrices by the threads of a subgroup: by matrix units where the device has them (the table is in
// docs/kernels.md), elsewhere in loops. Block kernels only; every thread of the subgroup
// must come to each of these operations together, with the same index, stride and value.
#pragma once

#include "tessera/kernel/memory.h"

namespace tessera {

/// Rows and columns of these matrices.
inline constexpr int matrix_side = static_cast<int>(ir::fragment_side);

namespace detail {

template <class T, class M>
constexpr bool check_matrix_memory() {
  static_assert(
      requires { typename M::kernel_memory; },
      "a matrix is loaded from and stored to a Buffer or Shared; host data is not visible in a kernel");
  if constexpr (requires { typename M::kernel_memory; }) {
    static_assert(!std::derived_from<M, LocalArray<std::remove_const_t<typename M::kernel_memory>>>,
                  "a matrix lies in memory that threads share: a Buffer or Shared");
    constexpr bool same = std::same_as<std::remove_const_t<typename M::kernel_memory>, T>;
    static_assert(
        same,
        "the matrix and the memory have different types: left and right ones are loaded as they lie in memory, "
        "accumulators are of float");
    return same;
  }
  return false;
}

// What the three kinds have in common. A fragment in the IR.
template <class T>
class MatrixHandle {
 public:
  /// Element (i, j) becomes memory[index + i * stride + j]. Memory: a Buffer or Shared of T.
  template <class M>
  void load(const M& memory, Subscript index, Subscript stride) const {
    if constexpr (check_matrix_memory<T, M>()) mma_load(id_, memory.memory(), index.node(), stride.node(), false);
  }
  /// Element (i, j) becomes memory[index + j * stride + i].
  template <class M>
  void load_transposed(const M& memory, Subscript index, Subscript stride) const {
    if constexpr (check_matrix_memory<T, M>()) mma_load(id_, memory.memory(), index.node(), stride.node(), true);
  }
  ir::NodeId fragment() const { return id_; }

 protected:
  MatrixHandle(ir::FragmentRole role, const char* file, int line)
      : id_((note(file, line), detail::fragment(role, dtype_v<T>))) {}

 private:
  ir::Handle id_;
};

template <class T>
constexpr void check_factor() {
  static_assert(is_16bit_float<T>, "the matrices of a product are of half or bfloat16; their sums are float");
}

}  // namespace detail

/// The left matrix of a product: 16 rows, and 16 columns along which it sums. Of half or bfloat16. A handle, as Shared
/// is.
template <class T>
class MatrixLeft : public detail::MatrixHandle<T> {
 public:
  /// A matrix whose elements are undefined until it is loaded.
  MatrixLeft(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::MatrixHandle<T>(ir::FragmentRole::left, file, line) {
    detail::check_factor<T>();
  }
};

/// The right matrix of a product: 16 rows along which it sums, and 16 columns. Of the left one's type.
template <class T>
class MatrixRight : public detail::MatrixHandle<T> {
 public:
  /// A matrix whose elements are undefined until it is loaded.
  MatrixRight(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::MatrixHandle<T>(ir::FragmentRole::right, file, line) {
    detail::check_factor<T>();
  }
};

/// What products are added to: 16 x 16 floats, all zero where it is declared, in every round of a loop.
class MatrixAccumulator : public detail::MatrixHandle<float> {
 public:
  /// A matrix of zeros.
  MatrixAccumulator(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : MatrixHandle(ir::FragmentRole::accumulator, file, line) {
    detail::mma_fill(fragment(), detail::constant(DType::f32, 0.0));
  }
  /// Every element becomes `value`.
  void fill(detail::Arg<float> value) const { detail::mma_fill(fragment(), value.node()); }
  /// Adds the product of left and right: in float, and in any order. The product of two elements is exact unless it
  /// leaves float's range (bfloat16 only).
  template <class A, class B>
  void multiply_add(const MatrixLeft<A>& left, const MatrixRight<B>& right, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) const {
    static_assert(std::same_as<A, B>,
                  "the two matrices of a product have different types: both half, or both bfloat16");
    detail::note(file, line);
    if constexpr (std::same_as<A, B>) detail::mma_multiply(fragment(), left.fragment(), right.fragment());
  }
  /// memory[index + i * stride + j] becomes element (i, j). Memory: a Buffer or Shared of float. Other threads of the
  /// block read it after a barrier.
  template <class M>
  void store(const M& memory, detail::Subscript index, detail::Subscript stride) const {
    if constexpr (detail::check_matrix_memory<float, M>()) {
      static_assert(!std::is_const_v<typename M::kernel_memory>,
                    "this buffer is read-only in this kernel: declare it Buffer<T>");
      detail::mma_store(fragment(), memory.memory(), index.node(), stride.node());
    }
  }
};

}  // namespace tessera
