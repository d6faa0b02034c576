// SPDX-License-Identifier: Apache-2.0
// The interface between the typed handles of the kernel language and the IR. These functions are not templates, which
// keeps the compile times of users short. They are internal.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "tessera/ir/handle.h"

namespace tessera::detail {

/// A non-owning reference to a callable object of the caller. Used to pass bodies to be traced.
class Body {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_const_t<F>, Body>)
  Body(F& f) : object_(&f), call_([](const void* o, ir::NodeId id) { run(*static_cast<const F*>(o), id); }) {}
  void operator()(ir::NodeId id = ir::no_node) const { call_(object_, id); }

 private:
  template <class F>
  static void run(F& f, ir::NodeId id) {
    if constexpr (requires { f(id); })
      f(id);
    else if constexpr (requires { f(); })
      f();
    else
      static_assert(
          !sizeof(F),
          "a body must not be a mutable lambda: [=] captures copies, so capture by reference, as in [&] { ... }");
  }
  const void* object_;
  void (*call_)(const void*, ir::NodeId);
};

/// Sets the source line of the nodes that are created after this call. Has no effect outside a kernel or if `file` is
/// null.
void note(const char* file, int line);

ir::NodeId constant(DType dtype, double value);
ir::NodeId constant(DType dtype, std::int64_t value);   ///< throws KernelError if the dtype cannot represent the value
ir::NodeId constant(DType dtype, std::uint64_t value);  ///< throws KernelError if the dtype cannot represent the value
ir::NodeId constant(DType dtype, bool value);

ir::NodeId unary(ir::UnaryOp op, ir::NodeId a);
ir::NodeId binary(ir::BinaryOp op, ir::NodeId a, ir::NodeId b);
ir::NodeId compare(ir::CompareOp op, ir::NodeId a, ir::NodeId b);
ir::NodeId select(ir::NodeId condition, ir::NodeId if_true, ir::NodeId if_false);
ir::NodeId cast(DType to, ir::NodeId a);
ir::NodeId bitcast(DType to, ir::NodeId a);
ir::NodeId math(ir::MathOp op, ir::NodeId a, ir::NodeId b = ir::no_node, ir::NodeId c = ir::no_node);
ir::NodeId is_nan(ir::NodeId a);
ir::NodeId is_infinite(ir::NodeId a);
ir::NodeId is_finite(ir::NodeId a);
ir::NodeId copysign(ir::NodeId a, ir::NodeId b);
ir::NodeId sign(ir::NodeId a);
ir::NodeId ctz(ir::NodeId a);
ir::NodeId make_vector(std::initializer_list<ir::NodeId> elements);
ir::NodeId extract(ir::NodeId vector, std::uint32_t lane);
ir::NodeId dot4(ir::Dot4Signs signs, ir::NodeId a, ir::NodeId b, ir::NodeId c);

ir::NodeId index(ir::IndexKind kind, int dimension);
ir::NodeId memory_size(ir::NodeId memory);
/// Returns rows * columns for two-dimensional memory. Throws KernelError if the sizes are invalid.
std::uint64_t elements(std::uint64_t rows, std::uint64_t columns);
ir::NodeId element_of_row(std::uint64_t columns, ir::NodeId row, ir::NodeId column);
ir::NodeId local(DType dtype, std::uint64_t count);
ir::NodeId shared(DType dtype, std::uint64_t count);
ir::NodeId load(ir::NodeId memory, ir::NodeId index, std::uint8_t lanes = 1);
ir::NodeId load_if(ir::NodeId memory, ir::NodeId mask, ir::NodeId index, ir::NodeId other);
void store(ir::NodeId memory, ir::NodeId index, ir::NodeId value);
ir::NodeId atomic(ir::AtomicOp op, ir::NodeId memory, ir::NodeId index, ir::NodeId value,
                  ir::NodeId expected = ir::no_node);
/// Reads an element with an atomic operation that does not change it.
ir::NodeId atomic_load(ir::NodeId memory, ir::NodeId index);
ir::NodeId load_variable(ir::NodeId variable);
void store_variable(ir::NodeId variable, ir::NodeId value);

// Fields of structs in a buffer of u32 words. A field of 8 bytes consists of two words, with the low word first.
/// Returns the index of the field's first word. Throws KernelError if the offset is not a multiple of 4.
ir::NodeId field_word(ir::NodeId index, std::uint64_t words_of_struct, std::uint64_t offset_bytes);
ir::NodeId load_field(ir::NodeId memory, ir::NodeId word, DType dtype);
void store_field(ir::NodeId memory, ir::NodeId word, DType dtype, ir::NodeId value);
ir::NodeId struct_count(ir::NodeId memory, std::uint64_t words_of_struct);

ir::NodeId subgroup(ir::SubgroupOp op, ir::NodeId a, ir::NodeId lane = ir::no_node);
ir::NodeId block_reduce(ir::ReduceOp op, ir::NodeId a);
ir::NodeId block_scan(ir::ReduceOp op, ir::NodeId a, bool exclusive);
ir::NodeId block_uniform(ir::NodeId a);

ir::NodeId fragment(ir::FragmentRole role, DType dtype);
void mma_load(ir::NodeId fragment, ir::NodeId memory, ir::NodeId index, ir::NodeId stride, bool transposed);
void mma_fill(ir::NodeId accumulator, ir::NodeId value);
void mma_multiply(ir::NodeId accumulator, ir::NodeId left, ir::NodeId right, bool replaces);
void mma_store(ir::NodeId accumulator, ir::NodeId memory, ir::NodeId index, ir::NodeId stride);
void mma_convert(ir::NodeId left, ir::NodeId accumulator);
void mma_reduce_rows(ir::ReduceOp op, ir::NodeId local, ir::NodeId accumulator);
ir::NodeId place(ir::PlaceOf what, ir::NodeId k);
void copy_async(ir::NodeId shared, ir::NodeId index, ir::NodeId buffer, ir::NodeId from, std::uint32_t elements);
void async_commit();
void async_wait(std::uint32_t groups);

void barrier();
void blocks_at_least(std::uint32_t blocks);
void aligned_vectors();
/// An argument of print: a kernel value, or the text of a host value.
struct PrintArgument {
  ir::NodeId node = ir::no_node;
  std::string text;
};
PrintArgument shown(bool value);
PrintArgument shown(std::int64_t value);
PrintArgument shown(std::uint64_t value);
PrintArgument shown(double value, bool is_float);
void print(std::string_view format, std::span<const PrintArgument> values);
void if_(ir::NodeId condition, Body then);
void if_(ir::NodeId condition, Body then, Body otherwise);
void for_(ir::NodeId begin, ir::NodeId end, ir::NodeId step, std::optional<ir::Unroll> unroll,
          Body body);  ///< `body` receives the counter
void while_(Body condition, const ir::NodeId& condition_result, Body body);
void return_();

ir::NodeId declare_buffer(int number, DType dtype, ir::Access access);
ir::NodeId declare_scalar(int number, DType dtype);

/// The parameters of a View: memory, extents and strides.
struct ViewNodes {
  static constexpr int most = 4;  ///< dimensions
  ir::Handle memory;
  std::array<ir::Handle, most> extents, strides;  ///< the last stride is no_node if it is known to be 1
};
ViewNodes declare_view(int number, DType dtype, ir::Access access, int rank, bool rows);
ir::NodeId extent_of_view(const ViewNodes& view, int rank, int dimension);  ///< throws KernelError for other dimensions
ir::NodeId element_of_view(const ViewNodes& view, std::initializer_list<ir::NodeId> at);
/// Runs `body` with a new builder and returns the traced function. Throws KernelError with the kernel and line on
/// failure. `source` is the line that declares the kernel.
ir::Function trace(std::string name, ir::KernelKind kind, std::array<std::uint32_t, 3> block_size, Body body,
                   ir::SourceLine source);

}  // namespace tessera::detail
