// SPDX-License-Identifier: Apache-2.0
// The values of the kernel language: Val<T>, which is immutable, and Var<T>, a variable of one thread. Both contain
// only the id of a node of the trace. Their operators are in operators.h.
#pragma once

#include <utility>

#include "tessera/kernel/types.h"

namespace tessera {

namespace detail {

/// A node id with a type of its own, so that it cannot be confused with a number of the user.
struct NodeRef {
  ir::NodeId id;
};

/// Returns the node of an operand that is used as a T. For a literal this is a constant with T's dtype.
template <class T, class U>
ir::NodeId node_as(const U& u) {
  if constexpr (Traced<U>)
    return u.node();
  else if constexpr (std::same_as<U, bool>)
    return constant(dtype_of<T>, u);
  else if constexpr (std::unsigned_integral<U>)
    return constant(dtype_of<T>, static_cast<std::uint64_t>(u));
  else if constexpr (std::integral<U>)
    return constant(dtype_of<T>, static_cast<std::int64_t>(u));
  else if constexpr (is_16bit_float<U>)
    return constant(dtype_of<T>, static_cast<double>(static_cast<float>(u)));
  else
    return constant(dtype_of<T>, static_cast<double>(u));
}

/// Like `node_as`, but if a 16-bit float is used as another 16-bit float, returns it as f32. A store then rounds it.
template <class T, class U>
ir::NodeId node_exactly(const U& u) {
  const ir::NodeId id = node_as<T>(u);
  if constexpr (Traced<U> && is_16bit_float<type_of<U>> && !std::same_as<type_of<U>, T>)
    return cast(DType::f32, id);
  else
    return id;
}

/// A parameter that accepts everything that can be used as a T, reports an error for everything else, and records the
/// caller's line. If `rounds` is set, it accepts a float for a 16-bit float, as a store does.
template <class T, bool rounds = false>
class Arg {
 public:
  template <class U>
    requires(!std::same_as<std::remove_cvref_t<U>, Arg>)
  Arg(U&& u, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    using V = std::remove_cvref_t<U>;
    not_host_data<U>();
    named<U>();
    same_types<accepts<T, V, rounds>, V, V>();
    note(file, line);
    if constexpr (accepts<T, V, rounds>) id_ = node_exactly<T>(u);
  }
  ir::NodeId node() const { return id_; }

 private:
  ir::Handle id_;
};

/// A subscript. Accepts any integer type.
class Subscript {
 public:
  template <class U>
    requires(!std::same_as<std::remove_cvref_t<U>, Subscript>)
  Subscript(U&& u, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : file_(file), line_(line) {
    using V = std::remove_cvref_t<U>;
    not_host_data<U>();
    named<U>();
    constexpr bool ok = (Traced<V> && is_integer<type_of<V>>) || (Literal<V> && is_integer<V>);
    static_assert(ok || Host<V> || Memory<V>, "a subscript must be an integer: use cast<Index>(...)");
    note(file, line);
    if constexpr (ok) id_ = node_as<Index>(u);
  }
  ir::NodeId node() const { return id_; }
  const char* file() const { return file_; }
  int line() const { return line_; }

 private:
  ir::Handle id_;
  const char* file_;
  int line_;
};

}  // namespace detail

/// A traced value. It is immutable, and copies denote the same value. Vals are created from literals, from the current
/// value of a Var, from loads, and by every operation. A Val<half> or Val<bfloat16> converts to Val<float> implicitly.
template <class T>
class Val : public detail::HostConversions<T> {
  static_assert(detail::ValueType<T>,
                "T in Val<T> must be bool, std::int8_t to std::uint64_t, half, bfloat16, float, double or Index");

 public:
  /// Marks a plain value for the operators.
  using plain = void;

  /// Copies the value and records the line. Operators take their operands by value, so this is the line of the
  /// operator.
  Val(const Val& other, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : id_(other.id_) {
    detail::note(file, line);
  }
  template <class U>
    requires(!std::derived_from<std::remove_cvref_t<U>, Val> && detail::accepts<T, std::remove_cvref_t<U>, false>)
  Val(U&& u, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    detail::note(file, line);
    id_ = detail::node_exactly<T>(u);
  }
  template <class U>
    requires(!std::derived_from<std::remove_cvref_t<U>, Val> && detail::OtherType<T, std::remove_cvref_t<U>>)
  Val(U&&) {
    detail::same_types<!sizeof(T), std::remove_cvref_t<U>, std::remove_cvref_t<U>>();
  }
  template <class U = T>
  Val() {
    static_assert(!sizeof(U), "a Val must be initialised and is immutable: declare it Var<T>");
  }
  explicit Val(detail::NodeRef n) : id_(n.id) {}

  /// Returns the node of the value in the IR.
  ir::NodeId node() const { return id_; }

  Val& operator=(const Val&) {
    static_assert(!sizeof(T), "a Val is immutable: declare it Var<T>");
    return *this;
  }
  /// Rejected at compile time, because a number has no elements.
  template <class U = T>
  Val operator[](const auto&) const {
    static_assert(!sizeof(U),
                  "a number has no elements: index two-dimensional memory as t(row, column), and a buffer as x[row * "
                  "width + column]");
    return *this;
  }
#define TESSERA_STEP(symbol)                                            \
  template <class U = T>                                                \
  Val operator symbol() {                                               \
    static_assert(!sizeof(U), "a Val is immutable: declare it Var<T>"); \
    return *this;                                                       \
  }                                                                     \
  template <class U = T>                                                \
  Val operator symbol(int) {                                            \
    static_assert(!sizeof(U), "a Val is immutable: declare it Var<T>"); \
    return *this;                                                       \
  }
  ///@{
  /// Rejected at compile time, because a Val is immutable.
  TESSERA_STEP(++)
  TESSERA_STEP(--)
  ///@}
#undef TESSERA_STEP
#define TESSERA_ASSIGNMENT(symbol)                                      \
  template <class U>                                                    \
  void operator symbol(U&&) {                                           \
    static_assert(!sizeof(U), "a Val is immutable: declare it Var<T>"); \
  }
  ///@{
  /// Rejected at compile time, because a Val is immutable.
  TESSERA_ASSIGNMENT(=)
  TESSERA_ASSIGNMENT(+=)
  TESSERA_ASSIGNMENT(-=)
  TESSERA_ASSIGNMENT(*=)
  TESSERA_ASSIGNMENT(/=)
  TESSERA_ASSIGNMENT(%=)
  TESSERA_ASSIGNMENT(&=)
  TESSERA_ASSIGNMENT(|=)
  TESSERA_ASSIGNMENT(^=)
  TESSERA_ASSIGNMENT(<<=)
  TESSERA_ASSIGNMENT(>>=)
  ///@}
#undef TESSERA_ASSIGNMENT

 private:
  ir::Handle id_;
};

// The common part of compound assignments: an operation on the current value with a result of type T.
namespace detail {
template <class T, class U>
ir::NodeId compound(ir::BinaryOp op, ir::NodeId current, const U& u) {
  if constexpr (same_type<Val<T>, U>)
    return binary(op, current, node_as<Computed<T>>(u));
  else
    return current;
}
template <class T, class U>
constexpr void check_compound() {
  using V = std::remove_cvref_t<U>;
  not_host_data<U>();
  named<U>();
  same_types<same_type<Val<T>, V>, V, V>();
}
}  // namespace detail

// The compound assignments of Var and of elements. `ASSIGN(symbol, op)` defines one of them.
#define TESSERA_COMPOUND_ASSIGNMENTS(ASSIGN) \
  ASSIGN(+=, add)                            \
  ASSIGN(-=, sub)                            \
  ASSIGN(*=, mul)                            \
  ASSIGN(/=, div)                            \
  ASSIGN(%=, rem)                            \
  ASSIGN(&=, and_)                           \
  ASSIGN(|=, or_)                            \
  ASSIGN(^=, xor_)                           \
  ASSIGN(<<=, shl)                           \
  ASSIGN(>>=, shr)
// ++ and -- on something that cannot be assigned. Reports the error of its compound assignments.
#define TESSERA_NO_STEP(symbol, qualifier) \
  template <class U = T>                   \
  void operator symbol() qualifier {       \
    *this += U{};                          \
  }                                        \
  template <class U = T>                   \
  void operator symbol(int) qualifier {    \
    *this += U{};                          \
  }
#define TESSERA_NO_STEPS(qualifier) TESSERA_NO_STEP(++, qualifier) TESSERA_NO_STEP(--, qualifier)

/// A variable of one thread, for values that change inside if_, for_ and while_ and are read after them. A copy is a
/// new variable with the current value. Take a reference to use the same variable.
template <class T>
class Var : public detail::HostConversions<T> {
  static_assert(detail::ValueType<T>, "T in Var<T> must be bool, std::int8_t to std::uint64_t, float, double or Index");
  static_assert(!detail::is_16bit_float<T>, "16-bit floats can only be stored in buffers: use Var<float>");

 public:
  /// Creates a variable with the value zero or false.
  Var(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    detail::note(file, line);
    id_ = detail::local(detail::dtype_of<T>, 1);
    if constexpr (std::same_as<T, bool>)
      set(detail::node_as<T>(false));
    else
      set(detail::node_as<T>(0));
  }
  Var(const Var& other, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    detail::note(file, line);
    id_ = detail::local(detail::dtype_of<T>, 1);
    set(other.node());
  }
  template <class U>
    requires(!std::same_as<std::remove_cvref_t<U>, Var> && detail::Operand<std::remove_cvref_t<U>>)
  Var(U&& u, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const detail::Arg<T> initial(detail::alone<U>(u), file, line);
    id_ = detail::local(detail::dtype_of<T>, 1);
    set(initial.node());
  }

  /// Returns the current value.
  Val<T> get() const { return Val<T>(detail::NodeRef{node()}); }
  /// Reads the variable. Used by the operators.
  ir::NodeId node() const { return detail::load_variable(id_); }

  Var& operator=(const Var& other) & {
    set(other.node());
    return *this;
  }
  /// Stores a value of the same type, or a literal.
  template <class U>
    requires(!std::same_as<std::remove_cvref_t<U>, Var>)
  Var& operator=(U&& u) & {
    set(detail::Arg<T>(detail::alone<U>(u), nullptr, 0)
            .node());  // an operator cannot have a line parameter, so the last recorded line is used
    return *this;
  }
#define TESSERA_ASSIGNMENT(symbol, op)                     \
  template <class U>                                       \
  Var& operator symbol(U&& u)& {                           \
    detail::check_compound<T, U>();                        \
    set(detail::compound<T>(ir::BinaryOp::op, node(), u)); \
    return *this;                                          \
  }
  /// Computes with the current value and stores the result.
  ///@{
  TESSERA_COMPOUND_ASSIGNMENTS(TESSERA_ASSIGNMENT)
  ///@}
#undef TESSERA_ASSIGNMENT
  Var& operator++() & { return *this += 1; }  ///< Adds one.
  Var& operator--() & { return *this -= 1; }  ///< Subtracts one.
  /// Adds one and returns the previous value.
  Val<T> operator++(int) & {
    const Val<T> before = get();
    *this += 1;
    return before;
  }
  /// Subtracts one and returns the previous value.
  Val<T> operator--(int) & {
    const Val<T> before = get();
    *this -= 1;
    return before;
  }

  // A lambda with [=] captures variables as const copies.
#define TESSERA_ASSIGNMENT(symbol, op)                   \
  template <class U>                                     \
    requires(!std::same_as<std::remove_cvref_t<U>, Var>) \
  const Var& operator symbol(U&&) const& {               \
    return captured_copy<U>();                           \
  }                                                      \
  const Var& operator symbol(const Var&) const& { return captured_copy<T>(); }
  ///@{
  /// Rejected at compile time, because this Var is a const copy captured by [=].
  TESSERA_ASSIGNMENT(=, )
  TESSERA_COMPOUND_ASSIGNMENTS(TESSERA_ASSIGNMENT)
#undef TESSERA_ASSIGNMENT
  const Var& operator++() const& { return captured_copy<T>(); }
  const Var& operator++(int) const& { return captured_copy<T>(); }
  const Var& operator--() const& { return captured_copy<T>(); }
  const Var& operator--(int) const& { return captured_copy<T>(); }
  ///@}

 private:
  template <class U>
  const Var& captured_copy() const {
    static_assert(!sizeof(U), "this Var is const: [=] captures a copy, so capture by reference, as in [&] { ... }");
    return *this;
  }
  void set(ir::NodeId value) const { detail::store_variable(id_, value); }
  ir::Handle id_;
};

/// `Var s = x[i]` has the type of its initialiser, except that a double becomes a float.
template <class U>
  requires(detail::Traced<std::remove_cvref_t<U>> || detail::Literal<std::remove_cvref_t<U>>)
Var(U&&) -> Var<std::conditional_t<std::same_as<std::remove_cvref_t<U>, double>, float,
                                   detail::Computed<detail::NumberOf<std::remove_cvref_t<U>>>>>;

/// The previous value, returned by an atomic. It must be stored in a variable before it is used, because C++ does not
/// specify the order of two atomics in one expression.
template <class T>
class OldValue : public detail::HostConversions<T> {
 public:
  using old = void;                                    ///< Marks the type for the operators.
  explicit OldValue(detail::NodeRef n) : id_(n.id) {}  ///< Used by atomics.
  ir::NodeId node() const { return id_; }              ///< Returns the node of the value in the IR.

 private:
  ir::Handle id_;
};

/// Two, three or four values that are loaded or stored together.
template <class T, int n>
class Vec {
  static_assert(detail::ValueType<T> && n >= 2 && n <= 4, "a vector must have 2, 3 or 4 elements");

 public:
  /// Creates a vector from `n` values or literals.
  template <class... U>
    requires(sizeof...(U) == n)
  Vec(const U&... elements) : id_(detail::make_vector({detail::Arg<T>(elements).node()...})) {}
  explicit Vec(detail::NodeRef v) : id_(v.id) {}
  /// Returns element `lane`, which must be known while tracing.
  Val<T> operator[](int lane) const {
    return Val<T>(detail::NodeRef{detail::extract(id_, static_cast<std::uint32_t>(lane))});
  }
  ir::NodeId node() const { return id_; }  ///< Returns the node of the vector in the IR.

 private:
  ir::Handle id_;
};

namespace detail {
/// A field of a struct in a buffer of words.
struct FieldRef {
  ir::NodeId memory, word;
};
}  // namespace detail

namespace detail {
/// The result of an assignment: the stored value.
template <class T>
struct Assigned : Val<T> {
  using assigned = void;
  using Val<T>::Val;
};
}  // namespace detail

/// A writable element of memory, `b[i]`. It contains the value that was read, and it can be assigned in the same
/// expression, as in `b[i] = v` or `b[i] += v`. `auto v = b[i]` stores the value, not a reference.
template <class T>
class BufferElement : public Val<T> {
 public:
  /// Created by operator[] of a buffer.
  BufferElement(ir::NodeId memory, const detail::Subscript& i)
      : Val<T>(detail::NodeRef{detail::load(memory, i.node())}),
        memory_(memory),
        index_(i.node()),
        file_(i.file()),
        line_(i.line()) {}
  BufferElement(const detail::FieldRef& field, const char* file, int line)
      : Val<T>(detail::NodeRef{detail::load_field(field.memory, field.word, dtype_v<T>)}),
        memory_(field.memory),
        index_(field.word),
        file_(file),
        line_(line),
        is_field_(true) {}
  BufferElement(const BufferElement& other, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : Val<T>(other, file, line),
        memory_(other.memory_),
        index_(other.index_),
        file_(other.file_),
        line_(other.line_),
        is_field_(other.is_field_) {}

  /// Assignments return the stored value, except for 16-bit floats. Those are rounded when they are stored, so the
  /// assignment returns void.
  auto operator=(detail::Arg<T, true> value) && { return set(value.node()); }
  auto operator=(const BufferElement& value) && { return set(value.node()); }
#define TESSERA_ASSIGNMENT(symbol, op)                                  \
  template <class U>                                                    \
  auto operator symbol(U&& u)&& {                                       \
    detail::check_compound<T, U>();                                     \
    return set(detail::compound<T>(ir::BinaryOp::op, this->node(), u)); \
  }
  ///@{
  /// Computes with the value that was read, and stores the result.
  TESSERA_COMPOUND_ASSIGNMENTS(TESSERA_ASSIGNMENT)
  ///@}
#undef TESSERA_ASSIGNMENT
#define TESSERA_ASSIGNMENT(symbol, op)                                                                              \
  template <class U>                                                                                                \
  void operator symbol(U&&)& {                                                                                      \
    static_assert(!sizeof(U), "this name is the value that was read, not the element: to store, write b[i] = ..."); \
  }
  ///@{
  /// Rejected at compile time, because a named element is the value that was read. To store, write `b[i] = ...`.
  TESSERA_ASSIGNMENT(=, )
  TESSERA_COMPOUND_ASSIGNMENTS(TESSERA_ASSIGNMENT)
  ///@}
#undef TESSERA_ASSIGNMENT

  // b[i]++ returns the previous value, ++b[i] the new value.
  auto operator++() && { return std::move(*this) += 1; }  ///< Adds one and returns the new value.
  auto operator--() && { return std::move(*this) -= 1; }  ///< Subtracts one and returns the new value.
  /// Adds one and returns the previous value.
  Val<T> operator++(int) && {
    std::move(*this) += 1;
    return *this;
  }
  /// Subtracts one and returns the previous value.
  Val<T> operator--(int) && {
    std::move(*this) -= 1;
    return *this;
  }
  ///@{
  /// Rejected at compile time, because memory is read and written by index.
  TESSERA_NO_STEPS(&)
  template <class U = T>
  const void* operator&() && {
    detail::no_pointers<U>();
    return nullptr;
  }
  template <class U = T>
  Val<T> load(const auto&...) const {
    detail::read_by_name<U>();
    return *this;
  }
  template <class U = T>
  void store(const auto&...) const {
    detail::read_by_name<U>();
  }
  ///@}

 private:
  auto set(ir::NodeId value) const {
    detail::note(file_, line_);
    if (is_field_)
      detail::store_field(memory_, index_, dtype_v<T>, value);
    else
      detail::store(memory_, index_, value);
    if constexpr (!detail::is_16bit_float<T>) return detail::Assigned<T>(detail::NodeRef{value});
  }
  ir::Handle memory_, index_;
  const char* file_;
  int line_;
  bool is_field_ = false;
};

/// An element of a Buffer<const T>. Assigning to it is rejected with a readable error.
template <class T>
class ReadOnlyElement : public Val<T> {
 public:
  /// Created by operator[] of a buffer.
  ReadOnlyElement(ir::NodeId memory, const detail::Subscript& i)
      : Val<T>(detail::NodeRef{detail::load(memory, i.node())}) {}
  ReadOnlyElement(const detail::FieldRef& field, const char*, int)
      : Val<T>(detail::NodeRef{detail::load_field(field.memory, field.word, dtype_v<T>)}) {}
  ReadOnlyElement(const ReadOnlyElement& other, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : Val<T>(other, file, line) {}

  ///@{
  /// Rejected at compile time, because the buffer is read-only in this kernel.
  void operator=(const ReadOnlyElement&) {
    static_assert(!sizeof(T), "this buffer is read-only in this kernel: declare it Buffer<T>");
  }
#define TESSERA_ASSIGNMENT(symbol, op)                                                          \
  template <class U>                                                                            \
  void operator symbol(U&&) {                                                                   \
    static_assert(!sizeof(U), "this buffer is read-only in this kernel: declare it Buffer<T>"); \
  }
  TESSERA_ASSIGNMENT(=, )
  TESSERA_COMPOUND_ASSIGNMENTS(TESSERA_ASSIGNMENT)
#undef TESSERA_ASSIGNMENT
  TESSERA_NO_STEPS()
  template <class U = T>
  const void* operator&() && {
    detail::no_pointers<U>();
    return nullptr;
  }
  template <class U = T>
  Val<T> load(const auto&...) const {
    detail::read_by_name<U>();
    return *this;
  }
  ///@}
};
#undef TESSERA_COMPOUND_ASSIGNMENTS
#undef TESSERA_NO_STEPS
#undef TESSERA_NO_STEP

}  // namespace tessera
