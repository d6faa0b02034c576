// SPDX-License-Identifier: Apache-2.0
// Memory as kernels see it: buffers given at launch, memory shared by a block, and a thread's own small array.
// All three are handles: a copy is the same memory.
#pragma once

#include "tessera/kernel/value.h"

namespace tessera {

namespace detail {

template <class T>
struct IsVec : std::false_type {};
template <class T, int n>
struct IsVec<Vec<T, n>> : std::true_type {};

// What Buffer, Shared and LocalArray have in common.
template <class T>
class MemoryHandle {
 public:
  using kernel_memory = T;
  explicit MemoryHandle(NodeRef n) : id_(n.id) {}

  /// Elements; of a buffer as given at launch.
  Val<Index> size(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    note(file, line);
    return Val<Index>(NodeRef{memory_size(id_)});
  }
  /// The element at i.
  auto operator[](Subscript i) const {
    if constexpr (std::is_const_v<T>)
      return ReadOnlyElement<std::remove_const_t<T>>(id_, i);
    else
      return BufferElement<T>(id_, i);
  }
  /// The element at i where the mask holds, else `other`; where it does not hold, i may be anything.
  Val<std::remove_const_t<T>> load_if(Arg<bool> mask, Subscript i, Arg<std::remove_const_t<T>, true> other) const {
    return Val<std::remove_const_t<T>>(NodeRef{detail::load_if(id_, mask.node(), i.node(), other.node())});
  }
  /// n (2 to 4) consecutive elements from i on.
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
    static_assert(!sizeof(U), "an element is x[i]; of a buffer that holds rows it is x[row * width + column]");
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
  /// Stores consecutive elements from i on.
  template <int n>
  void store(Subscript i, const Vec<std::remove_const_t<T>, n>& elements) const {
    static_assert(!std::is_const_v<T> || !n, "this buffer is read-only in this kernel: declare it Buffer<T>");
    detail::store(id_, i.node(), elements.node());
  }
  ir::NodeId memory() const { return id_; }

 private:
  template <class U>
  static constexpr void no_host_loop() {
    static_assert(!sizeof(U), "a loop over elements is for_(0, x.size(), [&](Val<Index> i) { ... x[i] ... })");
  }
  ir::Handle id_;
};

/// Memory that a kernel makes, of one dimension or two; its sizes are known while tracing.
template <class T>
class OwnMemory : public MemoryHandle<T> {
 public:
  OwnMemory(NodeRef n, std::uint64_t columns) : MemoryHandle<T>(n), columns_(columns) {}
  /// Of two dimensions: the element at row * columns + column. KernelError if there is one dimension.
  BufferElement<T> operator()(Subscript row, Subscript column) const {
    const Val<Index> i(NodeRef{element_of_row(columns_, row.node(), column.node())});
    return BufferElement<T>(this->memory(), Subscript(i, row.file(), row.line()));
  }

 private:
  std::uint64_t columns_;  ///< 0: one dimension
};
template <class U>
constexpr void sized() {
  static_assert(!sizeof(U), "memory is made with its size: Shared<float> t(64), of two dimensions t(rows, columns)");
}

}  // namespace detail

/// A parameter of a kernel: elements in memory, given at launch. Buffer<const T> is read, Buffer<T> read and written.
template <class T>
class Buffer : public detail::MemoryHandle<T> {
  static_assert(Element<std::remove_const_t<T>>,
                "a buffer holds bool, std::int8_t to std::uint64_t, half, bfloat16, float or double");

 public:
  using detail::MemoryHandle<T>::MemoryHandle;
  Buffer(const Buffer&) = default;
  Buffer& operator=(const Buffer&) = default;
  /// Rejected at compile time: elements are stored one by one.
  template <class U>
  void operator=(const U&) {
    static_assert(!sizeof(U), "a buffer is stored to element by element: x[i] = ...");
  }
};

/// Memory that the threads of a block share; uninitialised. `n`, or rows and columns, are known while tracing. Elements
/// are t[i], and t(row, column) of two dimensions. Block kernels only.
template <class T>
class Shared : public detail::OwnMemory<T> {
  static_assert(Element<T>, "shared memory holds bool, std::int8_t to std::uint64_t, half, bfloat16, float or double");

 public:
  /// `n` elements, uninitialised. `n` is known while tracing.
  explicit Shared(std::uint64_t n, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>((detail::note(file, line), detail::NodeRef{detail::shared(dtype_v<T>, n)}), 0) {}
  /// A matrix, row-major, uninitialised; read and written as `t(row, column)`.
  Shared(std::uint64_t rows, std::uint64_t columns, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>(
            (detail::note(file, line), detail::NodeRef{detail::shared(dtype_v<T>, detail::elements(rows, columns))}),
            columns) {}
  /// Rejected at compile time: the memory has a size.
  template <class U = T>
  Shared() : detail::OwnMemory<T>(detail::NodeRef{ir::no_node}, 0) {
    detail::sized<U>();
  }
};

/// Memory of one thread, zero when the thread starts. `n`, or rows * columns (at most 4096), is known while tracing.
/// Elements as in Shared.
template <class T>
class LocalArray : public detail::OwnMemory<T> {
  static_assert(Element<T> && !detail::is_16bit_float<T>,
                "a local array holds bool, std::int8_t to std::uint64_t, float or double");

 public:
  /// `n` elements. `n` is known while tracing.
  explicit LocalArray(std::uint64_t n, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : detail::OwnMemory<T>((detail::note(file, line), detail::NodeRef{detail::local(dtype_v<T>, n)}), 0) {}
  /// A matrix, row-major; read and written as `t(row, column)`.
  LocalArray(std::uint64_t rows, std::uint64_t columns, const char* file = __builtin_FILE(),
             int line = __builtin_LINE())
      : detail::OwnMemory<T>(
            (detail::note(file, line), detail::NodeRef{detail::local(dtype_v<T>, detail::elements(rows, columns))}),
            columns) {}
  /// Rejected at compile time: the memory has a size.
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
                "atomics work on std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, float and double");
}
template <class T>
constexpr void check_atomic_bits() {
  check_atomic<T>();
  static_assert(!std::is_floating_point_v<T>,
                "atomic_and, atomic_or and atomic_xor work on std::int32_t, std::uint32_t, std::int64_t and "
                "std::uint64_t");
}
template <class T>
using AtomicArg = Arg<std::type_identity_t<std::remove_const_t<T>>>;

}  // namespace detail

// Atomics: statements. Each gives the value before it, which has to be named: auto old = atomic_add(b, i, v); a Var
// that begins with it or is assigned it is a name, too.
#define TESSERA_ATOMIC(name, op, check)                                                        \
  template <class T>                                                                           \
  OldValue<std::remove_const_t<T>> name(const detail::MemoryHandle<T>& b, detail::Subscript i, \
                                        detail::AtomicArg<T> v) {                              \
    detail::check<T>();                                                                        \
    return OldValue<std::remove_const_t<T>>(                                                   \
        detail::NodeRef{detail::atomic(ir::AtomicOp::op, b.memory(), i.node(), v.node())});    \
  }
/// Adds `v` to element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_add, add, check_atomic)
/// Stores the smaller of `v` and element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_min, min, check_atomic)
/// Stores the larger of `v` and element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_max, max, check_atomic)
/// Stores `v` into element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_exchange, exchange, check_atomic)
/// Stores the bitwise and with `v` into element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_and, and_, check_atomic_bits)
/// Stores the bitwise or with `v` into element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_or, or_, check_atomic_bits)
/// Stores the bitwise exclusive or with `v` into element `i` atomically; returns the value before.
TESSERA_ATOMIC(atomic_xor, xor_, check_atomic_bits)
#undef TESSERA_ATOMIC

/// What is at i, read where other threads change it by atomics: no race with those. It costs what another atomic does.
template <class T>
OldValue<std::remove_const_t<T>> atomic_load(const detail::MemoryHandle<T>& b, detail::Subscript i) {
  detail::check_atomic<T>();
  return OldValue<std::remove_const_t<T>>(detail::NodeRef{detail::atomic_load(b.memory(), i.node())});
}
/// Stores v at i if `expected` is there; gives what was there. Floats are compared by their bits.
template <class T>
OldValue<std::remove_const_t<T>> atomic_cas(const detail::MemoryHandle<T>& b, detail::Subscript i,
                                            detail::AtomicArg<T> expected, detail::AtomicArg<T> v) {
  detail::check_atomic<T>();
  return OldValue<std::remove_const_t<T>>(
      detail::NodeRef{detail::atomic(ir::AtomicOp::cas, b.memory(), i.node(), v.node(), expected.node())});
}

}  // namespace tessera
