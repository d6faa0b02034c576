// SPDX-License-Identifier: Apache-2.0
// Converts the arguments of `k.launch(...)` to the arguments of the device's kernel: shapes, buffers (with a
// customisation point) and scalars. Most checks happen at compile time.
#pragma once

#include <initializer_list>

#include "tessera/base/shape.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/kernel/memory.h"
#include "tessera/kernel/structs.h"
#include "tessera/kernel/view.h"

namespace tessera {

/// The number of threads: `n`, `{n}`, `{width, height}` or `{width, height, depth}`, of any integer type. A launch
/// throws ArgumentError if a number is negative.
class Extent {
 public:
  /// Sets one to three extents. The first one varies fastest. A launch throws ArgumentError if one is negative.
  template <std::integral... N>
    requires(sizeof...(N) >= 1 && sizeof...(N) <= 3)
  Extent(N... n) {
    std::size_t d = 0;
    ((negative_ = negative_ || (std::is_signed_v<N> && n < N{}), size_[d++] = static_cast<std::uint64_t>(n)), ...);
  }
  /// Sets three extents.
  Extent(const std::array<std::uint64_t, 3>& n) : size_(n) {}
  /// Returns the extents. Throws ArgumentError with the kernel's name if one is negative.
  const std::array<std::uint64_t, 3>& size(const std::string& kernel) const {
    if (negative_) refuse(kernel);
    return size_;
  }

 private:
  [[noreturn]] void refuse(const std::string& kernel) const;
  std::array<std::uint64_t, 3> size_ = {1, 1, 1};
  bool negative_ = false;
};

/// The number of blocks: `blocks(x)`, `blocks(x, y)` or `blocks(x, y, z)`.
class Blocks {
 public:
  /// Returns the numbers of blocks. Throws ArgumentError with the kernel's name if one is negative.
  const std::array<std::uint64_t, 3>& size(const std::string& kernel) const { return size_.size(kernel); }

 private:
  struct Private {};
  Blocks(Private, const Extent& n) : size_(n) {}
  template <std::integral... N>
  friend Blocks blocks(N... n);
  Extent size_;
};
/// Returns a number of blocks for the launch of a block kernel: `k.launch(blocks(n), ...)`.
template <std::integral... N>
Blocks blocks(N... n) {
  static_assert(sizeof...(N) >= 1 && sizeof...(N) <= 3, "blocks have one to three dimensions");
  return Blocks(Blocks::Private{}, Extent(n...));
}

/// A scalar argument of a launch that is recorded by a Sequence. `set(number, value)` of the sequence changes it for
/// later replays. Several arguments may share a number.
template <detail::Literal L>
struct Slot {
  std::uint32_t number;  ///< Identifies the slot in Sequence::set.
  L value;               ///< The value used while recording.
};
/// Returns a scalar argument that replays of a recording can change. See Sequence::set.
template <detail::Literal L>
Slot<L> slot(std::uint32_t number, L value) {
  return {number, value};
}

// Customisation point. To use objects of type X as buffer arguments, define this function in the namespace of X:
//   BufferView kernel_argument(X& x, ir::Access access);
// Each launch calls this function for its arguments in order. The function may evaluate pending computations. `access`
// is read_write if the kernel writes to the buffer; x must not be const in that case. If X::value_type is an element
// type, it must match the parameter, which is checked at compile time. Otherwise the launch checks the dtype of the
// view.
/// Passes the view itself.
inline BufferView kernel_argument(const BufferView& view, ir::Access) { return view; }

namespace detail {

template <class A>
concept GivesBuffer = requires(std::remove_reference_t<A>& a) {
  { kernel_argument(a, ir::Access::read) } -> std::same_as<BufferView>;
};
template <class A, class T>
inline constexpr bool element_agrees = [] {
  if constexpr (requires { typename A::value_type; })
    return std::same_as<std::remove_const_t<typename A::value_type>, T>;
  else
    return true;
}();

/// The kind of a kernel's parameter, and the arguments that it accepts.
template <class P>
struct Parameter {
  static constexpr bool known = false;
};
template <class T>
struct Parameter<Buffer<T>> {
  static constexpr bool known = true;
  static constexpr bool writes = !std::is_const_v<T>;
  static constexpr std::uint64_t words = words_of<std::remove_const_t<T>>;  ///< view elements per T
  static constexpr ir::Access access = writes ? ir::Access::read_write : ir::Access::read;
  template <class A>
  static constexpr bool takes = [] {
    if constexpr (!GivesBuffer<A>)
      return false;
    else
      return element_agrees<std::remove_cvref_t<A>, std::remove_const_t<T>>;
  }();
  template <class A>
  static constexpr bool is_const =
      writes && std::is_const_v<std::remove_reference_t<A>> && !std::same_as<std::remove_cvref_t<A>, BufferView>;
  static ir::NodeId declare(int number, bool) {
    return declare_buffer(number, stored_dtype<std::remove_const_t<T>>(), access);
  }
  static Buffer<T> handle(ir::NodeId id) { return Buffer<T>(NodeRef{id}); }
  template <class A>
  static LaunchArgument argument(A& a, const std::string&) {
    return LaunchArgument(kernel_argument(a, access));
  }
};

/// Throws KernelError if the buffer does not consist of whole structs of `words` 32-bit words. `number` is the
/// zero-based index of the argument.
void check_whole_structs(const std::string& kernel, std::size_t number, const BufferView& view, std::uint64_t words);

// These functions throw ArgumentError if the dtype cannot represent the value.
LaunchArgument scalar_argument(const std::string& kernel, DType dtype, double value);
LaunchArgument scalar_argument(const std::string& kernel, DType dtype, std::int64_t value);
LaunchArgument scalar_argument(const std::string& kernel, DType dtype, std::uint64_t value);

/// The type of the number in an argument that may be a slot(n, number).
template <class A>
struct InSlot {
  using type = A;
  static constexpr bool value = false;
};
template <class L>
struct InSlot<Slot<L>> {
  using type = L;
  static constexpr bool value = true;
};

template <class T>
struct Parameter<Val<T>> {
  static constexpr bool known = true;
  static constexpr std::uint64_t words = 1;
  template <class A>
  static constexpr bool takes = [] {
    using L = typename InSlot<std::remove_cvref_t<A>>::type;
    if constexpr (Literal<L>)
      return literal_fits<T, L>;
    else
      return false;
  }();
  template <class A>
  static constexpr bool is_const = false;
  static ir::NodeId declare(int number, bool) { return declare_scalar(number, dtype_of<T>); }
  static Val<T> handle(ir::NodeId id) { return Val<T>(NodeRef{id}); }
  template <class A>
  static LaunchArgument argument(A& a, const std::string& kernel) {
    using L = std::remove_cvref_t<A>;
    if constexpr (InSlot<L>::value)
      return argument(a.value, kernel).in_slot(a.number);
    else if constexpr (is_16bit_float<L>)
      return scalar_argument(kernel, dtype_of<T>, static_cast<double>(static_cast<float>(a)));
    else if constexpr (std::floating_point<L>)
      return scalar_argument(kernel, dtype_of<T>, static_cast<double>(a));
    else if constexpr (std::unsigned_integral<L>)
      return scalar_argument(kernel, dtype_of<T>, static_cast<std::uint64_t>(a));
    else
      return scalar_argument(kernel, dtype_of<T>, static_cast<std::int64_t>(a));
  }
};

/// Appends the memory, extents and strides of an array for a View. Clears `rows` if the elements of the last dimension
/// are not adjacent. Throws ArgumentError if the array has another number of dimensions, or if elements that the kernel
/// writes have the same address.
void append_view(std::vector<LaunchArgument>& list, bool& rows, const std::string& kernel, std::size_t number, int rank,
                 const BufferView& memory, const Shape& shape, const Strides& strides, bool writes);

template <class T, int rank>
struct Parameter<View<T, rank>> {
  static constexpr bool known = true;
  static constexpr bool writes = !std::is_const_v<T>;
  static constexpr std::uint64_t words = 1;
  template <class A>
  static constexpr bool takes = requires(std::remove_cvref_t<A>& a) {
    { a.view() } -> std::same_as<BufferView>;
    { a.view_for_writing() } -> std::same_as<BufferView>;
    a.strides();
  };
  template <class A>
  static constexpr bool is_const = writes && std::is_const_v<std::remove_reference_t<A>>;
  static ViewNodes declare(int number, bool rows) {
    return declare_view(number, dtype_of<std::remove_const_t<T>>, writes ? ir::Access::read_write : ir::Access::read,
                        rank, rows);
  }
  static View<T, rank> handle(const ViewNodes& nodes) { return View<T, rank>(nodes); }
  template <class A>
  static void append(std::vector<LaunchArgument>& list, bool& rows, std::size_t number, A& a,
                     const std::string& kernel) {
    const BufferView memory = writes ? a.view_for_writing() : a.view();  // before strides(): computes a pending array
    append_view(list, rows, kernel, number, rank, memory, a.shape(), a.strides(), writes);
  }
};
template <class P>
inline constexpr bool is_view = false;
template <class T, int rank>
inline constexpr bool is_view<View<T, rank>> = true;

/// Makes the parameter list of a kernel appear in the compiler's message.
template <class... P>
struct KernelTakes {
  template <class... A>
  static constexpr bool given = [] {
    if constexpr (sizeof...(A) != sizeof...(P))
      return false;
    else
      return (Parameter<P>::template takes<A> && ...);
  }();
  template <class... A>
  static constexpr bool writes_const = [] {
    if constexpr (sizeof...(A) != sizeof...(P))
      return false;
    else
      return (Parameter<P>::template is_const<A> || ...);
  }();
  template <class... A>
  static constexpr void check() {
    // The condition is not a named constant, so that the compilers print the list: clang next to the message, and g++
    // in the note below it.
    static_assert(KernelTakes<P...>::template given<A...>,
                  "this kernel takes: <the list in KernelTakes<...>, one argument for each>");
    static_assert(!writes_const<A...>, "this kernel writes to one of its buffers, but that argument is const");
  }
};

}  // namespace detail
}  // namespace tessera
