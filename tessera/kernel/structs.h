// SPDX-License-Identifier: Apache-2.0
// Buffers of small structs: Buffer<S>, whose fields are accessed by member pointers, as in b[i][&S::mass]. Only the
// tracer knows the struct; the traced kernel reads and writes 32-bit words.
#pragma once

#include "tessera/kernel/memory.h"
#include "tessera/kernel/struct_element.h"

namespace tessera {

namespace detail {

/// A member pointer to a field of type F, converted to the field's byte offset; records the caller's line.
template <class S, class F>
class MemberPointer {
 public:
  template <class C>
    requires std::convertible_to<F C::*, F S::*>
  MemberPointer(F C::*member, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : file_(file), line_(line) {
    alignas(S) const unsigned char bytes[sizeof(S)] = {};  // S is an implicit-lifetime type, so the bytes contain one
    const S* s = reinterpret_cast<const S*>(bytes);
    offset_ = static_cast<std::uint64_t>(reinterpret_cast<const unsigned char*>(&(s->*member)) - bytes);
    note(file, line);
  }
  std::uint64_t offset() const { return offset_; }
  const char* file() const { return file_; }
  int line() const { return line_; }

 private:
  std::uint64_t offset_;
  const char* file_;
  int line_;
};

}  // namespace detail

/// A struct element of a buffer, `b[i]`. Not a value: only its fields can be read, b[i][&S::mass], each as a Val, and
/// assigned if the buffer is not const.
template <class T>
class StructRef {
  using S = std::remove_const_t<T>;
  template <class F>
  using FieldValue = std::conditional_t<std::is_const_v<T>, ReadOnlyElement<F>, BufferElement<F>>;

 public:
  /// The struct's type.
  using kernel_struct = T;
  /// The struct at `index` of a buffer; created by Buffer::operator[].
  StructRef(ir::NodeId memory, ir::NodeId index) : memory_(memory), index_(index) {}
  StructRef(const StructRef&) = default;

  // One overload per field type: a template could not capture the caller's line.
  /// The field, which can be read and assigned. Throws KernelError if its offset is not a multiple of 4 bytes.
  auto operator[](detail::MemberPointer<S, std::int32_t> f) const { return field(f); }
  auto operator[](detail::MemberPointer<S, std::uint32_t> f) const { return field(f); }
  auto operator[](detail::MemberPointer<S, float> f) const { return field(f); }
  auto operator[](detail::MemberPointer<S, std::int64_t> f) const { return field(f); }
  auto operator[](detail::MemberPointer<S, std::uint64_t> f) const { return field(f); }
  auto operator[](detail::MemberPointer<S, double> f) const { return field(f); }
  template <class F, class C>
    requires(!detail::StructField<F> || !std::convertible_to<F C::*, F S::*>)
  Val<float> operator[](F C::*) const {
    static_assert(std::convertible_to<F C::*, F S::*>, "this field belongs to a different struct than the buffer's");
    static_assert(detail::StructField<F> || !std::convertible_to<F C::*, F S::*>,
                  "fields that a kernel accesses must be std::int32_t, std::uint32_t, std::int64_t, std::uint64_t, "
                  "float or double, and not const");
    return Val<float>(detail::NodeRef{ir::no_node});
  }

  /// Rejected at compile time: structs are stored field by field.
  template <class U>
  void operator=(const U&) const {
    static_assert(!sizeof(U), "structs are stored field by field: b[i][&S::mass] = ...");
  }
  void operator=(const StructRef&) const {
    static_assert(!sizeof(T), "structs are stored field by field: b[i][&S::mass] = ...");
  }

 private:
  template <class F>
  FieldValue<F> field(const detail::MemberPointer<S, F>& f) const {
    return FieldValue<F>(detail::FieldRef{memory_, detail::field_word(index_, detail::words_of<S>, f.offset())},
                         f.file(), f.line());
  }
  ir::Handle memory_, index_;
};

/// A kernel parameter: structs in memory, passed to the launch. S must be a trivially copyable standard-layout
/// aggregate whose fields are 4 or 8 bytes wide. Buffer<const S> is read-only, Buffer<S> is read and written.
template <class T>
  requires detail::StructElement<std::remove_const_t<T>>
class Buffer<T> {
  using S = std::remove_const_t<T>;

 public:
  /// The struct's type.
  using kernel_memory = T;
  /// The buffer of a kernel parameter.
  explicit Buffer(detail::NodeRef n) : id_(n.id) { detail::check_struct<S>(); }

  /// The number of structs, as passed to the launch.
  Val<Index> size(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    detail::note(file, line);
    return Val<Index>(detail::NodeRef{detail::struct_count(id_, detail::words_of<S>)});
  }
  /// The struct at index i.
  StructRef<T> operator[](detail::Subscript i) const { return StructRef<T>(id_, i.node()); }
  /// The buffer's node in the IR.
  ir::NodeId memory() const { return id_; }

 private:
  ir::Handle id_;
};

}  // namespace tessera
