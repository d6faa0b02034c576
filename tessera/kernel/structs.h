// SPDX-License-Identifier: Apache-2.0
// Buffers of small structs: Buffer<S>. Fields are accessed by member pointers, as in b[i][&S::mass]. Only the tracer
// knows the struct; the traced kernel reads and writes 32-bit words.
#pragma once

#include "tessera/kernel/memory.h"
#include "tessera/kernel/struct_element.h"

namespace tessera {

namespace detail {

/// A pointer to a member of type F, converted to the byte offset of the field. Records the caller's line.
template <class S, class F>
class MemberPointer {
 public:
  template <class C>
    requires std::convertible_to<F C::*, F S::*>
  MemberPointer(F C::*member, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : file_(file), line_(line) {
    alignas(S)
        const unsigned char bytes[sizeof(S)] = {};  // implicitly creates an S, because S is an implicit-lifetime type
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

/// A struct element of a buffer, `b[i]`. It is not a value: only its fields can be read, each as a Val, as in
/// b[i][&S::mass]. Fields can also be assigned if the buffer is not const.
template <class T>
class StructRef {
  using S = std::remove_const_t<T>;
  template <class F>
  using FieldValue = std::conditional_t<std::is_const_v<T>, ReadOnlyElement<F>, BufferElement<F>>;

 public:
  /// The type of the struct.
  using kernel_struct = T;
  /// Refers to the struct at `index` of a buffer. Created by Buffer::operator[].
  StructRef(ir::NodeId memory, ir::NodeId index) : memory_(memory), index_(index) {}
  StructRef(const StructRef&) = default;

  // One overload per field type, because a template could not record the caller's line.
  /// Returns the field, which can be read and assigned. Throws KernelError if its offset is not a multiple of 4 bytes.
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

  /// Rejected at compile time, because structs are stored one field at a time.
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

/// A kernel parameter: structs in memory that is passed to the launch. S must be a trivially copyable standard-layout
/// aggregate whose fields are 4 or 8 bytes wide. Buffer<const S> is read-only. Buffer<S> can be read and written.
template <class T>
  requires detail::StructElement<std::remove_const_t<T>>
class Buffer<T> {
  using S = std::remove_const_t<T>;

 public:
  /// The type of the struct.
  using kernel_memory = T;
  /// Wraps the node of a kernel parameter.
  explicit Buffer(detail::NodeRef n) : id_(n.id) { detail::check_struct<S>(); }

  /// Returns the number of structs passed to the launch.
  Val<Index> size(const char* file = __builtin_FILE(), int line = __builtin_LINE()) const {
    detail::note(file, line);
    return Val<Index>(detail::NodeRef{detail::struct_count(id_, detail::words_of<S>)});
  }
  /// Returns the struct at index i.
  StructRef<T> operator[](detail::Subscript i) const { return StructRef<T>(id_, i.node()); }
  /// Returns the node of the buffer in the IR.
  ir::NodeId memory() const { return id_; }

 private:
  ir::Handle id_;
};

}  // namespace tessera
