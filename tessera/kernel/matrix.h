// SPDX-License-Identifier: Apache-2.0
// Products of matrices with 16 rows and columns, computed by the threads of a subgroup. Devices with matrix units use
// them (see the table in docs/kernels.md); others use loops. Only block kernels can use these operations. All threads
// of the subgroup must call each operation together, with the same index, stride and value, except for accesses to
// single elements.
#pragma once

#include "tessera/kernel/control.h"
#include "tessera/kernel/memory.h"

namespace tessera {

/// The number of rows and of columns of the matrices.
inline constexpr int matrix_side = static_cast<int>(ir::fragment_side);
/// The number of columns of a left matrix and of rows of a right matrix of T: 32 for std::int8_t, otherwise 16.
template <class T>
inline constexpr int matrix_depth = static_cast<int>(ir::fragment_depth(dtype_v<T>));

namespace detail {

// The type in memory of a matrix of T. Numbers of 8 bits are loaded four at a time.
template <class T>
using MatrixMemory = std::conditional_t<std::same_as<T, std::int8_t>, std::uint32_t, T>;

template <class T, class M>
constexpr bool check_matrix_memory() {
  static_assert(
      requires { typename M::kernel_memory; },
      "a matrix is loaded from and stored to a Buffer or Shared; host data is not visible in a kernel");
  if constexpr (requires { typename M::kernel_memory; }) {
    static_assert(!std::derived_from<M, LocalArray<std::remove_const_t<typename M::kernel_memory>>>,
                  "a matrix must be in memory that threads share: a Buffer or Shared");
    constexpr bool same = std::same_as<std::remove_const_t<typename M::kernel_memory>, MatrixMemory<T>>;
    static_assert(
        same,
        "the matrix and the memory have different types: left and right matrices are loaded without conversion (those "
        "of std::int8_t from std::uint32_t), accumulators are float");
    return same;
  }
  return false;
}

// The common part of the three matrix types: a fragment in the IR.
template <class T>
class MatrixHandle {
 public:
  /// Loads element (i, j) from memory[index + i * stride + j]. `memory` is a Buffer or Shared of T. A left matrix of
  /// std::int8_t loads elements (i, 4 j) to (i, 4 j + 3) from the bytes, lowest first, of a std::uint32_t.
  template <class M>
  void load(const M& memory, Subscript index, Subscript stride) const {
    if constexpr (check_matrix_memory<T, M>()) mma_load(id_, memory.memory(), index.node(), stride.node(), false);
  }
  /// Loads element (i, j) from memory[index + j * stride + i]. A right matrix of std::int8_t loads elements (4 i, j) to
  /// (4 i + 3, j) from the bytes of a std::uint32_t.
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
  static_assert(is_16bit_float<T> || std::same_as<T, float> || std::same_as<T, std::int8_t>,
                "the factors of a matrix product must be half, bfloat16, float or std::int8_t; sums are float");
}

}  // namespace detail

/// An element of every accumulator that belongs to the same lane of a subgroup. See for_each_element.
struct MatrixElement {
  Val<Index> row;     ///< Row of the element.
  Val<Index> column;  ///< Column of the element.
  ir::Handle number;  ///< Internal.
};
/// A row of which a lane has elements. See for_each_row.
struct MatrixRow {
  Val<Index> row;     ///< The row.
  ir::Handle number;  ///< Internal.
};

class MatrixAccumulator;

/// The left operand of a matrix product, with 16 rows and 16 columns. T is half, bfloat16, float or std::int8_t, which
/// has 32 columns and is loaded without transposing. Devices may round elements of float to 10 bits of mantissa (tf32).
/// Copies denote the same matrix.
template <class T>
class MatrixLeft : public detail::MatrixHandle<T> {
 public:
  /// Creates a matrix. Its elements are undefined until it is loaded.
  MatrixLeft(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::MatrixHandle<T>(ir::FragmentRole::left, file, line) {
    detail::check_factor<T>();
  }
  /// Rounds the elements of `from` to T, half or bfloat16. This needs no memory, so that a product can be multiplied
  /// again.
  inline void convert(const MatrixAccumulator& from, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) const;
};

/// The right operand of a matrix product, with 16 rows and 16 columns. T must be the same as for the left operand. If
/// it is std::int8_t, the matrix has 32 rows and is loaded transposed. Copies denote the same matrix.
template <class T>
class MatrixRight : public detail::MatrixHandle<T> {
 public:
  /// Creates a matrix. Its elements are undefined until it is loaded.
  MatrixRight(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::MatrixHandle<T>(ir::FragmentRole::right, file, line) {
    detail::check_factor<T>();
  }
};

/// A 16 x 16 matrix of floats to which products are added. Its declaration sets it to zero. A declaration in a
/// loop does this in each iteration.
class MatrixAccumulator : public detail::MatrixHandle<float> {
 public:
  /// Creates a matrix of zeros.
  MatrixAccumulator(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : MatrixHandle(ir::FragmentRole::accumulator, file, line) {
    detail::mma_fill(fragment(), detail::constant(DType::f32, 0.0));
  }
  /// Sets every element to `value`.
  void fill(detail::Arg<float> value) const { detail::mma_fill(fragment(), value.node()); }
  /// Adds the matrix product of left and right. The sum is computed in float in any order. The product of two elements
  /// is exact unless it overflows float (bfloat16 only), or T is float. A sum of products of std::int8_t is exact while
  /// its magnitude is at most 2^24.
  template <class A, class B>
  void multiply_add(const MatrixLeft<A>& left, const MatrixRight<B>& right, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) const {
    product(left, right, false, file, line);
  }
  /// Sets the elements to the matrix product of left and right. See multiply_add.
  template <class A, class B>
  void multiply(const MatrixLeft<A>& left, const MatrixRight<B>& right, const char* file = __builtin_FILE(),
                int line = __builtin_LINE()) const {
    product(left, right, true, file, line);
  }
  /// Returns an element in the lane to which it belongs.
  Val<float> operator[](const MatrixElement& e) const {
    return Val<float>(detail::NodeRef{detail::load(fragment(), e.number)});
  }
  /// Sets an element in the lane to which it belongs.
  void set(const MatrixElement& e, detail::Arg<float> value) const {
    detail::store(fragment(), e.number, value.node());
  }
  /// Stores element (i, j) to memory[index + i * stride + j]. `memory` is a Buffer or Shared of float. Other threads of
  /// the block must not read these elements before a barrier.
  template <class M>
  void store(const M& memory, detail::Subscript index, detail::Subscript stride) const {
    if constexpr (detail::check_matrix_memory<float, M>()) {
      static_assert(!std::is_const_v<typename M::kernel_memory>,
                    "this buffer is read-only in this kernel: declare it Buffer<T>");
      detail::mma_store(fragment(), memory.memory(), index.node(), stride.node());
    }
  }

 private:
  template <class A, class B>
  void product(const MatrixLeft<A>& left, const MatrixRight<B>& right, bool replaces, const char* file,
               int line) const {
    static_assert(std::same_as<A, B>,
                  "the factors of a matrix product have different types: use half, bfloat16, float or std::int8_t for "
                  "both");
    detail::note(file, line);
    if constexpr (std::same_as<A, B>) detail::mma_multiply(fragment(), left.fragment(), right.fragment(), replaces);
  }
};

template <class T>
void MatrixLeft<T>::convert(const MatrixAccumulator& from, const char* file, int line) const {
  static_assert(detail::is_16bit_float<T>, "convert() rounds to half or bfloat16");
  detail::note(file, line);
  detail::mma_convert(this->fragment(), from.fragment());
}

/// Runs the body for each element of an accumulator that belongs to this lane; each element belongs to one lane of the
/// subgroup, and which one depends on the device. The body takes a MatrixElement, with which it can read and set this
/// element of any number of accumulators. It must contain no barriers and no operations of subgroups or blocks.
template <class F>
  requires std::invocable<F&, MatrixElement>
void for_each_element(F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::note(file, line);
  auto each = [&](ir::NodeId k) {
    auto place = [&](ir::PlaceOf what) { return Val<Index>(detail::NodeRef{detail::place(what, k)}); };
    auto here = [&] { body(MatrixElement{place(ir::PlaceOf::row), place(ir::PlaceOf::column), ir::Handle(k)}); };
    detail::if_(detail::place(ir::PlaceOf::valid, k), detail::Body(here));
  };
  detail::for_(detail::constant(DType::index, std::int64_t{0}), detail::index(ir::IndexKind::lane_elements, 0),
               detail::constant(DType::index, std::int64_t{1}), std::nullopt, detail::Body(each));
}

/// Runs the body at least for each row of which this lane has elements; some devices run it for all rows. The body
/// takes a MatrixRow. Several lanes run it for the same row, so it must not store to memory that they share.
template <class F>
  requires std::invocable<F&, MatrixRow>
void for_each_row(F&& body, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  detail::note(file, line);
  auto each = [&](ir::NodeId k) {
    body(MatrixRow{Val<Index>(detail::NodeRef{detail::place(ir::PlaceOf::slot_row, k)}), ir::Handle(k)});
  };
  detail::for_(detail::constant(DType::index, std::int64_t{0}), detail::index(ir::IndexKind::lane_rows, 0),
               detail::constant(DType::index, std::int64_t{1}), std::nullopt, detail::Body(each));
}

/// A number for each of the 16 rows of an accumulator, such as a maximum or a sum. Each lane has the numbers of the
/// rows of which it has elements. A declaration sets them to 0, in a loop in each iteration.
class MatrixRows {
 public:
  /// Sets all numbers to 0.
  explicit MatrixRows(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : id_((detail::note(file, line), detail::local(DType::f32, matrix_side))) {
    for_each_row([&](const MatrixRow& r) { set(r, 0.0f); }, file, line);
  }
  /// Returns the number of the element's row.
  Val<float> operator[](const MatrixElement& e) const {
    return Val<float>(detail::NodeRef{detail::load(id_, detail::place(ir::PlaceOf::slot, e.number))});
  }
  /// Returns the number of the row.
  Val<float> operator[](const MatrixRow& r) const { return Val<float>(detail::NodeRef{detail::load(id_, r.number)}); }
  /// Sets the number of the row.
  void set(const MatrixRow& r, detail::Arg<float> value) const { detail::store(id_, r.number, value.node()); }
  /// Sets the number of each row to the sum of its elements, in any order.
  void set_sums(const MatrixAccumulator& of, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    detail::note(file, line);
    detail::mma_reduce_rows(ir::ReduceOp::sum, id_, of.fragment());
  }
  /// Sets the number of each row to its largest element. NaN is ignored unless all elements are NaN.
  void set_maxima(const MatrixAccumulator& of, const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    detail::note(file, line);
    detail::mma_reduce_rows(ir::ReduceOp::max, id_, of.fragment());
  }

 private:
  ir::Handle id_;
};

}  // namespace tessera
