// SPDX-License-Identifier: Apache-2.0
// Determines which C++ types can be traced and which operands can be combined, with readable errors otherwise.
// `detail` supports the types in value.h and memory.h.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "tessera/kernel/trace.h"

namespace tessera {

struct BufferView;

/// The type of ids, sizes, subscripts and loop counters in kernels: a signed integer. It has 32 bits, or 64 if a launch
/// requires them. Its size in memory is therefore not fixed, and it cannot be an element of a buffer.
struct Index {};

template <class T>
class Val;
template <class T>
class Var;

namespace detail {

template <class T>
concept ValueType = Element<T> || std::same_as<T, Index>;

template <class T>
inline constexpr DType dtype_of = dtype_v<T>;
template <>
inline constexpr DType dtype_of<Index> = DType::index;

template <class T>
inline constexpr bool is_16bit_float = std::same_as<T, half> || std::same_as<T, bfloat16>;
template <class T>
inline constexpr bool is_real = std::floating_point<T> || is_16bit_float<T>;
template <class T>
inline constexpr bool is_integer = (std::integral<T> && !std::same_as<T, bool>) || std::same_as<T, Index>;
template <class T>
inline constexpr bool is_number = is_real<T> || is_integer<T>;
/// The result type of arithmetic on T. 16-bit floats are computed as float.
template <class T>
using Computed = std::conditional_t<is_16bit_float<T>, float, T>;

// Kinds of operands. The concepts expect types without reference and const qualifiers.
template <class U>
concept Traced = requires { typename U::traced_type; };
template <class U>
concept Plain = Traced<U> && requires { typename U::plain; };  ///< a Val or a class derived from it; passed by value
template <class U>
concept Old = Traced<U> && requires { typename U::old; };  ///< the result of an atomic
template <class U>
concept Literal = std::is_arithmetic_v<U> || is_16bit_float<U>;
template <class U>
concept StructMemory = requires { typename U::kernel_struct; };  ///< StructRef
template <class U>
concept Memory = StructMemory<U> || requires { typename U::kernel_memory; };  ///< Buffer, Shared, LocalArray
template <class U>
concept Host = !Traced<U> && !Literal<U> && !Memory<U> &&
               (
                   std::is_pointer_v<U> || std::is_array_v<U> || requires(U& u) { u.size(); } ||
                   requires(U& u) { u.begin(); } || requires(U& u) { kernel_argument(u, ir::Access::read); });
template <class U>
concept Operand = Traced<U> || Literal<U> || Memory<U> || Host<U>;

template <class U>
struct TypeOf {
  using type = void;
};
template <Traced U>
struct TypeOf<U> {
  using type = typename U::traced_type;
};
/// The element type of a traced operand, or void for other types.
template <class U>
using type_of = typename TypeOf<U>::type;
/// The element type of a traced operand, or the type of a literal.
template <class U>
using NumberOf = std::conditional_t<Traced<U>, type_of<U>, U>;

/// True if a literal of this C++ type can be used as a T. A double converts to float implicitly. A floating-point
/// literal never converts to an integer.
template <class T, class L>
inline constexpr bool literal_fits = std::same_as<L, bool> ? std::same_as<T, bool>
                                     : is_integer<L>       ? is_number<T>
                                                           : is_real<T>;

/// True if two operands of one operation have a common type. At least one of them must be traced.
template <class A, class B>
inline constexpr bool same_type = [] {
  if constexpr (Traced<A> && Traced<B>)
    return std::same_as<Computed<type_of<A>>, Computed<type_of<B>>>;
  else if constexpr (Traced<A> && Literal<B>)
    return literal_fits<type_of<A>, B>;
  else if constexpr (Literal<A> && Traced<B>)
    return literal_fits<type_of<B>, A>;
  else
    return false;
}();
template <class A, class B>
using common_type = Computed<typename std::conditional_t<Traced<A>, TypeOf<A>, TypeOf<B>>::type>;

/// True if an operand of type U is accepted as a T. A 16-bit float is accepted as a float. If `rounds` is set, a float
/// is also accepted as a 16-bit float.
template <class T, class U, bool rounds>
inline constexpr bool accepts = [] {
  if constexpr (Literal<U>)
    return literal_fits<T, U>;
  else if constexpr (!Traced<U>)
    return false;
  else if constexpr (std::same_as<T, type_of<U>>)
    return true;
  else if constexpr (std::same_as<T, float>)
    return is_16bit_float<type_of<U>>;
  else
    return rounds && is_16bit_float<T> && std::same_as<Computed<type_of<U>>, float>;
}();

template <class U>
concept Counts = requires { typename U::counts; };  ///< LoopCounter
/// A traced value that has a different type than the expected Val<T> and is rejected with an error message. 16-bit
/// floats and Vars are rejected without one, so that functions can be overloaded on Val types.
template <class T, class U>
concept OtherType = Plain<U> && !accepts<T, U, false> && !is_16bit_float<type_of<U>> && !Counts<U>;

/// Always false. Depends on template parameters, so that a static_assert on it fails only when its template is
/// instantiated.
template <class...>
inline constexpr bool never = false;

// The error messages. Each function is called for its static_assert, so that each message is written only once.
template <class U>
constexpr void not_host_data() {
  static_assert(!Host<std::remove_cvref_t<U>>, "host data is not visible in a kernel: pass it as a Buffer argument");
  static_assert(!StructMemory<std::remove_cvref_t<U>>,
                "a struct is not a value: use one of its fields, such as b[i][&S::mass]");
  static_assert(!Memory<std::remove_cvref_t<U>> || StructMemory<std::remove_cvref_t<U>>,
                "a buffer is not a value: use one of its elements, such as x[i]");
}
/// Rejects the unnamed result of an atomic. U includes the reference, which distinguishes variables from temporaries.
template <class U>
constexpr void named() {
  static_assert(!Old<std::remove_cvref_t<U>> || std::is_lvalue_reference_v<U>,
                "the result of an atomic must be named before it is used: auto old = atomic_add(b, i, v);");
}
/// Forwards U&&. Accepts the result of an atomic that is the whole right-hand side: when it only initialises a variable
/// or is assigned to one, the evaluation order is defined.
template <class U>
constexpr auto&& alone(std::remove_reference_t<U>& u) {
  if constexpr (Old<std::remove_cvref_t<U>>)
    return std::as_const(u);
  else
    return static_cast<U&&>(u);
}
template <class U>
constexpr void no_pointers() {
  static_assert(!sizeof(U), "kernels have no pointers: atomics take the memory and the index, atomic_add(x, i, v)");
}
template <class U>
constexpr void read_by_name() {
  static_assert(!sizeof(U),
                "elements have no address: read with auto v = x[i], write with x[i] = v, load several with "
                "x.load<n>(i), and update from many threads with atomic_add(x, i, v)");
}
template <bool ok, class A, class B>
constexpr void same_types() {
  static_assert(ok || Host<A> || Host<B> || Memory<A> || Memory<B>, "operands have different types: use cast<T>(...)");
}

/// Conversions of kernel values to host types. They exist only for their error messages. Each value converts to only
/// one number type, so that overloaded functions such as std::sin are not ambiguous.
template <class T>
class HostConversions {
  using Number = std::conditional_t<std::same_as<T, Index>, std::ptrdiff_t, Computed<T>>;

 public:
  using traced_type = T;
  explicit(!std::same_as<T, bool>) operator bool() const {
    static_assert(!sizeof(T),
                  "a traced value is not a C++ bool: use if_(cond, [&]{ ... }) or select(cond, a, b); for loops "
                  "for_(begin, end, body) or while_(cond, body)");
    return false;
  }
  operator Number() const
    requires(!std::same_as<T, bool>)
  {
    static_assert(
        std::same_as<T, bool>,
        "a traced value is not a C++ number (as a subscript: host data is not visible in a kernel: pass it as a "
        "Buffer argument; as a type: use cast<T>(...); as a function's argument: kernels have their own functions, "
        "without std::, such as sqrt(x), abs(x), max(a, b))");
    return Number{};
  }
};

}  // namespace detail
}  // namespace tessera
