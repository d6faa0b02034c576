// SPDX-License-Identifier: Apache-2.0
// The memory of kernels: buffers that are passed to the launch, memory that a block shares, and small arrays of one
// thread. Copies of these objects denote the same memory.
#pragma once

#include "tessera/kernel/value.h"

namespace tessera {

namespace detail {

template <class T>
struct IsVec : std::false_type {};
template <class T, int n>
struct IsVec<Vec<T, n>> : std::true_type {};

// The common part of Buffer, Shared and LocalArray.
template <class T>
class MemoryHandle {
 public:
  using kernel_memory = T;
  explicit MemoryHandle(NodeRef n) : id_(n.id) {}

  /// Returns the number of elements. For a buffer this is the size passed to the launch.
  Val<Index> size(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    note(file, line);
    return Val<Index>(NodeRef{memory_size(id_)});
  }
  /// Returns the element at index i.
  auto operator[](Subscript i) const {
    if constexpr (std::is_const_v<T>)
      return ReadOnlyElement<std::remove_const_t<T>>(id_, i);
    else
      return BufferElement<T>(id_, i);
  }
  /// Returns the element at i if the mask is true, otherwise `other`. If the mask is false, i may be out of bounds.
  Val<std::remove_const_t<T>> load_if(Arg<bool> mask, Subscript i, Arg<std::remove_const_t<T>, true> other) const {
    return Val<std::remove_const_t<T>>(NodeRef{detail::load_if(id_, mask.node(), i.node(), other.node())});
  }
  /// Returns n (2 to 4) consecutive elements, starting at i.
  template <int n>
  Vec<std::remove_const_t<T>, n> load(Subscript i) const {
    return Vec<std::remove_const_t<T>, n>(NodeRef{detail::load(id_, i.node(), n)});
  }
  Val<std::remove_const_t<T>> load(Subscript i) const {
    read_by_name<T>();
    return (*this)[i];
  }
  template <class U>
    requires(Traced<U> || Literal<U>)
  void store(Subscript, const U&) const {
    read_by_name<U>();
  }
  template <class U = T>
  Val<std::remove_const_t<T>> operator()(const auto&...) const {
    static_assert(!sizeof(U), "access elements as x[i], or as x[row * width + column] in a buffer of rows");
    return Val<std::remove_const_t<T>>(NodeRef{ir::no_node});
  }
  template <class U = T>
  const Val<std::remove_const_t<T>>* begin() const {
    no_host_loop<U>();
    return nullptr;
  }
  template <class U = T>
  const Val<std::remove_const_t<T>>* end() const {
    no_host_loop<U>();
    return nullptr;
  }
  /// Stores consecutive elements, starting at i.
  template <int n>
  void store(Subscript i, const Vec<std::remove_const_t<T>, n>& elements) const {
    static_assert(!std::is_const_v<T> || !n, "this buffer is read-only in this kernel: declare it Buffer<T>");
    detail::store(id_, i.node(), elements.node());
  }
  ir::NodeId memory() const { return id_; }

 private:
  template <class U>
  static constexpr void no_host_loop() {
    static_assert(!sizeof(U), "to loop over elements, use for_(0, x.size(), [&](Val<Index> i) { ... x[i] ... })");
  }
  ir::Handle id_;
};

/// Memory that is declared in a kernel, with one or two dimensions. The sizes must be known while tracing.
template <class T>
class OwnMemory : public MemoryHandle<T> {
 public:
  OwnMemory(NodeRef n, std::uint64_t columns) : MemoryHandle<T>(n), columns_(columns) {}
  /// Returns the element at row * columns + column. Throws KernelError if the memory has only one dimension.
  BufferElement<T> operator()(Subscript row, Subscript column) const {
    const Val<Index> i(NodeRef{element_of_row(columns_, row.node(), column.node())});
    return BufferElement<T>(this->memory(), Subscript(i, row.file(), row.line()));
  }

 private:
  std::uint64_t columns_;  ///< 0 if the memory has one dimension
};
template <class U>
constexpr void sized() {
  static_assert(!sizeof(U), "memory needs a size: Shared<float> t(64), or in two dimensions t(rows, columns)");
}

}  // namespace detail

/// A kernel parameter: elements in memory that is passed to the launch. Buffer<const T> is read-only. Buffer<T> can be
/// read and written.
template <class T>
class Buffer : public detail::MemoryHandle<T> {
  static_assert(Element<std::remove_const_t<T>>,
                "a buffer's elements must be bool, std::int8_t to std::uint64_t, half, bfloat16, float or double");

 public:
  using detail::MemoryHandle<T>::MemoryHandle;
  Buffer(const Buffer&) = default;
  Buffer& operator=(const Buffer&) = default;
  /// Rejected at compile time, because elements are assigned one at a time.
  template <class U>
  void operator=(const U&) {
    static_assert(!sizeof(U), "a buffer is assigned element by element: x[i] = ...");
  }
};

/// Uninitialised memory that the threads of a block share. Its size must be known while tracing. Elements are t[i], or
/// t(row, column) in two dimensions. Only block kernels can use it.
template <class T>
class Shared : public detail::OwnMemory<T> {
  static_assert(
      Element<T>,
      "elements of shared memory must be bool, std::int8_t to std::uint64_t, half, bfloat16, float or double");

 public:
  /// Declares `n` uninitialised elements. `n` must be known while tracing.
  explicit Shared(std::uint64_t n, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>((detail::note(file, line), detail::NodeRef{detail::shared(dtype_v<T>, n)}), 0) {}
  /// Declares an uninitialised row-major matrix. Its elements are `t(row, column)`.
  Shared(std::uint64_t rows, std::uint64_t columns, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>(
            (detail::note(file, line), detail::NodeRef{detail::shared(dtype_v<T>, detail::elements(rows, columns))}),
            columns) {}
  /// Rejected at compile time, because a size is required.
  template <class U = T>
  Shared() : detail::OwnMemory<T>(detail::NodeRef{ir::no_node}, 0) {
    detail::sized<U>();
  }
};

/// Zero-initialised memory of one thread, with at most 4096 elements. Its size must be known while tracing. Elements
/// are t[i], or t(row, column) in two dimensions.
template <class T>
class LocalArray : public detail::OwnMemory<T> {
  static_assert(Element<T> && !detail::is_16bit_float<T>,
                "elements of a local array must be bool, std::int8_t to std::uint64_t, float or double");

 public:
  /// Declares `n` elements. `n` must be known while tracing.
  explicit LocalArray(std::uint64_t n, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>((detail::note(file, line), detail::NodeRef{detail::local(dtype_v<T>, n)}), 0) {}
  /// Declares a row-major matrix. Its elements are `t(row, column)`.
  LocalArray(std::uint64_t rows, std::uint64_t columns, const char* file = __builtin_FILE(),
             int line = __builtin_LINE())
      : detail::OwnMemory<T>(
            (detail::note(file, line), detail::NodeRef{detail::local(dtype_v<T>, detail::elements(rows, columns))}),
            columns) {}
  /// Rejected at compile time, because a size is required.
  template <class U = T>
  LocalArray() : detail::OwnMemory<T>(detail::NodeRef{ir::no_node}, 0) {
    detail::sized<U>();
  }
};

namespace detail {

template <class T>
constexpr void check_atomic() {
  static_assert(!std::is_const_v<T>, "this buffer is read-only in this kernel: declare it Buffer<T>");
  using S = std::remove_const_t<T>;
  static_assert(std::same_as<S, std::int32_t> || std::same_as<S, std::uint32_t> || std::same_as<S, std::int64_t> ||
                    std::same_as<S, std::uint64_t> || std::same_as<S, float> || std::same_as<S, double>,
                "atomics support std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float and double");
}
template <class T>
constexpr void check_atomic_bits() {
  check_atomic<T>();
  static_assert(!std::is_floating_point_v<T>,
                "atomic_and, atomic_or and atomic_xor support std::int32_t, std::uint32_t, std::int64_t and "
                "std::uint64_t");
}
template <class T>
using AtomicArg = Arg<std::type_identity_t<std::remove_const_t<T>>>;

}  // namespace detail

/// Starts a copy of n elements, of 4, 8 or 16 bytes together, from buffer[from] to shared[to], and continues. After
/// async_wait, this thread can read the elements, and after another barrier all threads can; until then, no thread may
/// read or write them. With aligned_vectors(), both indices must be multiples of n, and NVIDIA GPUs from sm_80 copy
/// without registers while the block computes (cp.async). Otherwise the elements are copied at once.
template <int n, class T, class B>
void copy_async(const Shared<T>& shared, detail::Subscript to, const Buffer<B>& buffer, detail::Subscript from) {
  static_assert(std::same_as<T, std::remove_const_t<B>>, "copy_async cannot convert elements");
  static_assert(n * sizeof(T) == 4 || n * sizeof(T) == 8 || n * sizeof(T) == 16, "copy_async copies 4, 8 or 16 bytes");
  detail::copy_async(shared.memory(), to.node(), buffer.memory(), from.node(), n);
}
/// Ends a group of asynchronous copies of this thread: all that it started since its previous async_commit().
inline void async_commit() { detail::async_commit(); }
/// Waits until all but the newest `groups` groups of this thread's asynchronous copies are complete.
inline void async_wait(std::uint32_t groups) { detail::async_wait(groups); }

// Atomics are statements. Each returns the previous value, which must be stored in a variable before it is used: auto
// old = atomic_add(b, i, v). It may also initialise a Var or be assigned to one.
#define TESSERA_ATOMIC(name, op, check)                                                        \
  template <class T>                                                                           \
  OldValue<std::remove_const_t<T>> name(const detail::MemoryHandle<T>& b, detail::Subscript i, \
                                        detail::AtomicArg<T> v) {                              \
    detail::check<T>();                                                                        \
    return OldValue<std::remove_const_t<T>>(                                                   \
        detail::NodeRef{detail::atomic(ir::AtomicOp::op, b.memory(), i.node(), v.node())});    \
  }
/// Atomically adds `v` to element `i` and returns the previous value.
TESSERA_ATOMIC(atomic_add, add, check_atomic)
/// Atomically stores the smaller of `v` and element `i`, and returns the previous value.
TESSERA_ATOMIC(atomic_min, min, check_atomic)
/// Atomically stores the larger of `v` and element `i`, and returns the previous value.
TESSERA_ATOMIC(atomic_max, max, check_atomic)
/// Atomically stores `v` to element `i` and returns the previous value.
TESSERA_ATOMIC(atomic_exchange, exchange, check_atomic)
/// Atomically replaces element `i` by its bitwise and with `v`, and returns the previous value.
TESSERA_ATOMIC(atomic_and, and_, check_atomic_bits)
/// Atomically replaces element `i` by its bitwise or with `v`, and returns the previous value.
TESSERA_ATOMIC(atomic_or, or_, check_atomic_bits)
/// Atomically replaces element `i` by its bitwise exclusive or with `v`, and returns the previous value.
TESSERA_ATOMIC(atomic_xor, xor_, check_atomic_bits)
#undef TESSERA_ATOMIC

/// Reads element i atomically, so that the read does not race with atomics of other threads. The read is as slow as any
/// other atomic.
template <class T>
OldValue<std::remove_const_t<T>> atomic_load(const detail::MemoryHandle<T>& b, detail::Subscript i) {
  detail::check_atomic<T>();
  return OldValue<std::remove_const_t<T>>(detail::NodeRef{detail::atomic_load(b.memory(), i.node())});
}
/// Stores v to element i if the element equals `expected`. Returns the previous value. Floats are compared by their
/// bits.
template <class T>
OldValue<std::remove_const_t<T>> atomic_cas(const detail::MemoryHandle<T>& b, detail::Subscript i,
                                            detail::AtomicArg<T> expected, detail::AtomicArg<T> v) {
  detail::check_atomic<T>();
  return OldValue<std::remove_const_t<T>>(
      detail::NodeRef{detail::atomic(ir::AtomicOp::cas, b.memory(), i.node(), v.node(), expected.node())});
}

}  // namespace tessera
