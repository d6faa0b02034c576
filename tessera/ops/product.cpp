// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/product.h"

#include <algorithm>

#include "tessera/array/cached_operation.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/device/launch/launch_arguments.h"
#include "tessera/device/launch/vendor_product.h"
#include "tessera/device/settings.h"
#include "tessera/ops/kernels.h"

namespace tessera {

using ops::ProductSpec;

namespace ops {

Array pack_factor(const BufferView& factor, const PackSpec& spec, std::int64_t count, std::int64_t k,
                  std::int64_t depth, std::array<std::int64_t, 2> strides, std::array<std::int64_t, 2> extents,
                  std::array<std::int64_t, 2> batch_strides) {
  const std::int64_t width = spec.width, panels = ceil_div(count, width), depths = ceil_div(k, depth);
  for (std::size_t d = 0; d < 2; ++d)
    if (batch_strides[d] == 0) extents[d] = 1;
  const Array out = Array::empty({extents[0] * extents[1] * panels * width * k}, spec.to, factor.storage->device());
  static auto& family = *new KernelFamily<PackSpec>(trace_pack);
  LaunchArguments args;
  args.add(BufferView(factor)), args.add(out.view());
  for (std::int64_t v :
       {count, k, strides[0], strides[1], panels, depth, depths, extents[1], batch_strides[0], batch_strides[1]})
    args.index(v);
  const std::int64_t groups = ceil_div(panels, spec.together());
  family(spec).launch({static_cast<std::uint64_t>(groups * depths * extents[0] * extents[1]), 1, 1}, args);
  return out;
}

}  // namespace ops

namespace {

DType sum_dtype(DType t) {
  if (t == DType::f16 || t == DType::bf16) return DType::f32;
  if (is_float(t) || dtype_size(t) >= 4) return t;
  return DType::i32;
}

const char* activation_name(Activation a) {
  constexpr const char* names[] = {"none", "relu", "silu", "gelu"};
  return names[static_cast<std::size_t>(a)];
}

Array activated(Array x, Activation activation) {
  switch (activation) {
    case Activation::relu: return relu(std::move(x));
    case Activation::silu: return silu(std::move(x));
    case Activation::gelu: return gelu(std::move(x));
    default: return x;
  }
}

// Applies the epilogue to products that no kernel computes, such as empty products.
Array finished(Array out, const Epilogue& epilogue) {
  const DType t = out.dtype();
  if (epilogue.bias) out = out + epilogue.bias->astype(t);
  return activated(std::move(out), epilogue.activation).astype(t);
}

/// Swaps the last two dimensions.
Array exchanged(const Array& a) {
  std::vector<int> axes(static_cast<std::size_t>(a.rank()));
  for (std::size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return a.permute(std::move(axes));
}

/// The backward rule for the operands left, right and bias.
Rule product_rule(bool relu) {
  const auto backward = [relu](Backward& b) {
    const bool row = b.shape(0).size() == 1, column = b.shape(1).size() == 1;
    // adjoints that are stored in a wider dtype are not rounded before they are summed
    const auto wider = [&b](std::size_t operand) {
      const DType kept = b.adjoint_dtype(operand);
      return Epilogue{.dtype = kept == b.dtype(operand) ? std::nullopt : std::optional(kept)};
    };
    Array g = relu ? where(b.result() <= 0, 0, b.adjoint()) : b.adjoint();
    if (column) g = g.unsqueeze(-1);
    if (row) g = g.unsqueeze(-2);
    if (b.needs_adjoint(0) || b.needs_adjoint(1)) g.eval();  // evaluated once, because two products and a sum read it
    b.add(0, [&] {
      const Array right = column ? b.operand(1).unsqueeze(1) : b.operand(1);
      const Array to_left = matmul(g, exchanged(right), wider(0));
      return row ? to_left.select(-2, 0) : to_left;
    });
    b.add(1, [&] {
      Array left = row ? b.operand(0).unsqueeze(0) : b.operand(0), from = g;
      // there is only one right factor, so a single product over all rows computes its adjoint
      if (b.shape(1).size() <= 2 && from.rank() > 2) {
        left = left.broadcast_to([&] {
          Shape whole = g.shape();
          whole.back() = left.shape(-1);
          return whole;
        }());
        left = left.reshape({element_count(left.shape()) / std::max<std::int64_t>(left.shape(-1), 1), left.shape(-1)});
        from = g.reshape({g.size() / std::max<std::int64_t>(g.shape(-1), 1), g.shape(-1)});
      }
      if (column) return matmul(exchanged(left), from, wider(1)).select(-1, 0);
      // If the factor is a transposed view, the adjoint of the underlying matrix is computed and transposed.
      const Array right = b.operand(1);
      const bool transposed = right.strides().end()[-2] == 1 && right.strides().back() != 1;
      return transposed ? exchanged(matmul(exchanged(from), left, wider(1))) : matmul(exchanged(left), from, wider(1));
    });
    if (b.operands() > 2) b.add(2, [&] { return g; });
  };
  return {.backward = backward, .keeps = operand_bits(0, 1), .keeps_result = relu};
}

/// Strides of a along m and k, and of b along k and n.
struct Sides {
  std::int64_t am, ak, bk, bn;
};

/// A batch dimension: its extent and its stride in each factor.
struct Batch {
  std::int64_t extent, a, b;
};
using BatchDims = InlineVector<Batch, 4>;

/// Returns the batch dimensions of both factors. Dimensions that are contiguous in both factors are merged. There are
/// at least two: dimensions of extent 1 are added in front.
BatchDims batch_dims(const Shape& lead, const Array& a, const Array& b) {
  BatchDims dims;
  for (std::size_t d = 0; d < lead.size(); ++d) {
    if (lead[d] == 1) continue;
    const Batch next{lead[d], a.strides()[d], b.strides()[d]};
    if (!dims.empty() && dims.back().a == next.a * next.extent && dims.back().b == next.b * next.extent)
      dims.back() = {dims.back().extent * next.extent, next.a, next.b};
    else
      dims.push_back(next);
  }
  if (dims.empty()) dims.resize(2, Batch{1, 0, 0});
  if (dims.size() < 2) dims.insert(dims.begin(), Batch{1, 0, 0});
  return dims;
}

/// Describes the operand for BLAS libraries. Returns std::nullopt unless its rows or columns are contiguous.
std::optional<BlasMatrix> blas_matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                                      std::int64_t column_stride, std::int64_t batch_stride) {
  if (batch_stride < 0) return std::nullopt;
  if (rows == 1) row_stride = columns;  // the stride of a dimension with one element is irrelevant
  if (columns == 1) column_stride = 1;
  if (column_stride == 1 && row_stride >= columns) return BlasMatrix{dtype, false, row_stride, batch_stride};
  if (row_stride == 1 && column_stride >= rows) return BlasMatrix{dtype, true, column_stride, batch_stride};
  return std::nullopt;
}

/// Computes the product (batch, m, n) with the vendor's library. Returns std::nullopt if the library cannot or should
/// not compute it. Parts of the epilogue that the library does not support are applied to its f32 sums, as in Tessera's
/// kernels.
std::optional<Array> by_vendor(const Array& a, const Array& b, const Sides& s, std::array<std::int64_t, 3> sizes,
                               const BatchDims& dims, DType result, const Epilogue& epilogue) {
  const auto [m, n, k] = sizes;
  const auto [batch, a_batch, b_batch] = dims[1];
  if (is_built_in(a.device().backend) || dims[0].extent != 1 || a.dtype() != b.dtype()) return std::nullopt;
  if (result != a.dtype() && (result != DType::f32 || dtype_size(a.dtype()) != 2)) return std::nullopt;
  const auto left = blas_matrix(a.dtype(), m, k, s.am, s.ak, a_batch);
  const auto right = blas_matrix(b.dtype(), k, n, s.bk, s.bn, b_batch);
  if (!left || !right) return std::nullopt;
  const Shape shape{batch, m, n};
  BlasProduct product{m, n, k, batch, *left, *right, {result, false, n, batch == 1 ? 0 : m * n}, false, false};
  if (!vendor_product_wanted(a.device(), product)) return std::nullopt;

  const bool bias_fits = !epilogue.bias || epilogue.bias->dtype() == result;
  VendorProduct call{product, a.view(), b.view(), {}, {}};
  const auto attempt = [&](DType dtype) -> std::optional<Array> {
    const Array out = Array::empty(shape, dtype, a.device());
    call.product.out.dtype = dtype;
    call.out = out.view();
    if (!vendor_product(call)) return std::nullopt;
    return out;
  };
  // relu is always applied by Tessera's kernel, which propagates NaN. The libraries do not document whether their relu
  // does.
  if (epilogue.bias && bias_fits && epilogue.activation == Activation::none) {
    call.product.bias = true;
    const Array bias = epilogue.bias->as_contiguous();
    call.bias = bias.view();
    if (auto out = attempt(result)) return out;
    call.product.bias = false;
    call.bias = {};
  }
  if (!epilogue.bias && epilogue.activation == Activation::none) return attempt(result);
  auto sums = attempt(DType::f32);
  if (!sums) return std::nullopt;
  Epilogue rest = epilogue;
  if (rest.bias) rest.bias = rest.bias->astype(DType::f32);
  return finished(std::move(*sums), rest).astype(result);
}

/// Computes (m, n) = (m, k) x (k, n) for two batch dimensions with the packed kernels. Calls `launch` with the
/// arguments of the product.
template <class L>
void packed_product(const ops::ProductChoice& choice, const Array& left, const Array& right, BufferView bias,
                    const Array& out, Sides s, const BatchDims& dims, L&& launch) {
  const auto [m, n, k, batch] = choice.sizes;
  const ops::PackedPlan& plan = choice.plan;
  const ops::PackedSpec& spec = plan.spec;
  const std::int64_t rows = spec.tm, columns = spec.tn * spec.lanes;
  const std::int64_t m_panels = spec.whole && !spec.a_packed ? 1 : ops::ceil_div(m, rows),
                     n_panels = spec.whole && !spec.b_packed ? 1 : ops::ceil_div(n, columns);
  const std::array<std::int64_t, 2> extents = {dims[0].extent, dims[1].extent};
  std::array<std::int64_t, 2> a_batch = {dims[0].a, dims[1].a}, b_batch = {dims[0].b, dims[1].b};
  // A matrix that is used for several batches is packed only once. Packed matrices are contiguous.
  const auto packed_strides = [&](std::array<std::int64_t, 2> strides, std::int64_t each) {
    const std::int64_t inner = strides[1] == 0 ? 1 : extents[1];
    return std::array<std::int64_t, 2>{strides[0] == 0 ? 0 : each * inner, strides[1] == 0 ? 0 : each};
  };
  LaunchArguments args;
  if (spec.a_packed) {
    args.add(ops::pack_factor(left.view(), plan.pack_a, m, k, plan.depth, {s.am, s.ak}, extents, a_batch).view());
    a_batch = packed_strides(a_batch, m_panels * rows * k);
  } else {
    args.add(left.view());
  }
  if (spec.b_packed) {
    args.add(ops::pack_factor(right.view(), plan.pack_b, n, k, plan.depth, {s.bn, s.bk}, extents, b_batch).view());
    b_batch = packed_strides(b_batch, n_panels * columns * k);
  } else {
    args.add(right.view());
  }
  const std::int64_t row_blocks = spec.whole ? 1 : ops::ceil_div(m_panels, plan.block_rows),
                     column_blocks = spec.whole ? 1 : ops::ceil_div(n_panels, plan.block_columns);
  if (spec.bias) args.add(std::move(bias));
  args.add(out.view());
  for (std::int64_t v : {m, n, k}) args.index(v);
  if (!spec.whole)
    for (std::int64_t v : {plan.block_rows, plan.block_columns, plan.depth}) args.index(v);
  if (!spec.whole && (spec.batched || !spec.columns_first)) args.index(row_blocks);
  if (!spec.a_packed && !spec.a_unit_m) args.index(s.am);
  if (!spec.a_packed && !spec.a_unit_k) args.index(s.ak);
  if (!spec.b_packed && !spec.b_unit_k) args.index(s.bk);
  if (spec.staged != 0 && !spec.b_unit_n) args.index(s.bn);
  if (!spec.whole && (spec.batched || spec.columns_first)) args.index(column_blocks);
  if (spec.batched)
    for (std::int64_t v : {extents[1], a_batch[0], a_batch[1], b_batch[0], b_batch[1]}) args.index(v);
  launch(row_blocks * column_blocks * batch, args);
}

/// Multiplies matrices in the last two dimensions. `lead` are the batch dimensions, and `shape` is the shape of the
/// result. `repeated` is set only for two plain matrices (or vectors viewed as matrices) without an epilogue.
Array multiplied(const Array& a, const Array& b, const Shape& lead, Shape shape, std::array<DType, 2> sum_and_result,
                 const Epilogue& epilogue, const detail::CachedOperation* repeated) {
  const auto [sum, result] = sum_and_result;
  BatchDims dims = batch_dims(lead, a, b);
  if (dims.size() > 2) {
    const Array a_copy = a.copy(), b_copy = b.copy();
    return multiplied(a_copy, b_copy, lead, std::move(shape), sum_and_result, epilogue, nullptr);
  }
  const std::size_t r = lead.size();
  const std::int64_t m = a.shape()[r], k = a.shape()[r + 1], n = b.shape()[r + 1];
  std::int64_t am = a.strides()[r], ak = a.strides()[r + 1], bk = b.strides()[r], bn = b.strides()[r + 1];
  std::int64_t rows = m, columns = n;
  if (dims[1].b == 0 && dims[1].a == m * am) {  // a contiguous batch with a single right factor is one taller matrix
    rows *= dims[1].extent;
    dims[1] = dims[0], dims[0] = {1, 0, 0};
  }
  const Array *first = &a, *second = &b;
  // A result with one column is computed as one row of the transposed product. The matrix is then read along its
  // contiguous dimension.
  const bool swapped = n == 1 && rows > 1 && !epilogue.bias;
  if (swapped) {
    std::swap(first, second), std::swap(rows, columns);
    std::swap(am, bn), std::swap(ak, bk);
    for (Batch& d : dims) std::swap(d.a, d.b);
  }
  if (!swapped) {
    if (auto done = by_vendor(a, b, {am, ak, bk, bn}, {rows, n, k}, dims, result, epilogue))
      return done->reshape(shape);
  }
  ProductSpec asked{first->dtype(), second->dtype(), sum, result};
  asked.a_unit_m = am == 1, asked.a_unit_k = ak == 1 || k == 1, asked.b_unit_n = bn == 1 || columns == 1,
  asked.b_unit_k = bk == 1 || k == 1;
  const DType factor = first->dtype();
  const auto whole = [&](bool unit_k, std::int64_t outer, std::int64_t outer_stride, std::int64_t k_stride,
                         std::int64_t batch0, std::int64_t batch1) {
    for (const std::int64_t v : {unit_k ? k : outer, unit_k ? outer_stride : k_stride, batch0, batch1})
      if (v % (16 / static_cast<std::int64_t>(dtype_size(factor))) != 0) return false;
    return true;
  };
  asked.whole_vectors = factor == second->dtype() && (dtype_size(factor) == 2 || factor == DType::f32) &&
                        (asked.a_unit_k || asked.a_unit_m) && (asked.b_unit_k || asked.b_unit_n) &&
                        whole(asked.a_unit_k, rows, am, ak, dims[0].a, dims[1].a) &&
                        whole(asked.b_unit_k && !asked.b_unit_n, columns, bn, bk, dims[0].b, dims[1].b);
  asked.out_vectors = asked.whole_vectors && columns % 4 == 0;
  asked.tf32 = settings().tf32;
  asked.bias = epilogue.bias.has_value();
  asked.activation = epilogue.activation;
  const std::int64_t matrices = dims[0].extent * dims[1].extent;
  // This is a copy, because evaluating an operand may call choose_product_kernel.
  const ops::ProductChoice choice = ops::choose_product_kernel(a.device(), asked, {rows, columns, k, matrices});
  const ProductSpec& spec = choice.spec;

  Array out = Array::empty(std::move(shape), result, a.device());
  BufferView bias;
  if (spec.bias) bias = epilogue.bias->astype(sum).as_contiguous().view();
  const auto launch = [&](std::int64_t blocks, const LaunchArguments& args) {
    const std::array<std::uint64_t, 3> grid = {static_cast<std::uint64_t>(blocks), 1, 1};
    choice.kernel->launch(grid, args);
    // In larger products, the launch overhead is negligible.
    if (repeated != nullptr && lead.empty() && out.size() <= (1 << 18) / k)
      repeated->keep(out, {.kernel = *choice.kernel, .shape = grid, .arguments = args, .swapped = swapped});
  };
  if (spec.packed) {
    packed_product(choice, *first, *second, std::move(bias), out, {am, ak, bk, bn}, dims, launch);
    return out;
  }
  LaunchArguments args;
  args.add(first->view()), args.add(second->view());
  if (spec.bias) args.add(std::move(bias));
  args.add(out.view());
  const std::int64_t block_m = spec.block_m(), block_n = spec.block_n();
  const std::int64_t m_tiles = ops::ceil_div(rows, block_m), n_tiles = ops::ceil_div(columns, block_n);
  for (std::int64_t v :
       {rows, columns, k, m_tiles, n_tiles, am, ak, bn, bk, dims[1].extent, dims[0].a, dims[1].a, dims[0].b, dims[1].b})
    args.index(v);
  launch(m_tiles * n_tiles * matrices, args);
  return out;
}

Array multiply(const Array& left, const Array& right, const Epilogue& epilogue,
               const detail::CachedOperation* repeated = nullptr) {
  const auto attributes = [&] {
    const std::string activation = activation_name(epilogue.activation);
    if (!epilogue.dtype) return Attributes{{"activation", activation}};
    return Attributes{{"activation", activation}, {"dtype", std::string(dtype_name(*epilogue.dtype))}};
  };
  // The derivatives of silu and gelu need the product before the activation, which a fused epilogue does not store.
  const bool smooth = epilogue.activation == Activation::silu || epilogue.activation == Activation::gelu;
  if (smooth && (left.has_history() || right.has_history() || (epilogue.bias && epilogue.bias->has_history()))) {
    const detail::Operation whole("matmul", left, right, epilogue.bias);
    return whole.finish(
        activated(matmul(left, right, {.bias = epilogue.bias, .dtype = epilogue.dtype}), epilogue.activation),
        attributes);
  }
  detail::RuledOperation operation("matmul", left, right, epilogue.bias);
  const auto made = [&](Array&& result) {
    return operation.finish(std::move(result), attributes,
                            [&] { return product_rule(epilogue.activation == Activation::relu); });
  };
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.operation = "matmul",
                      .with = {{"left", to_string(left.shape())}, {"right", to_string(right.shape())}},
                      .wrong = what});
  };
  if (left.rank() < 1 || right.rank() < 1) wrong("an operand is zero-dimensional");
  if (left.device() != right.device() || (epilogue.bias && epilogue.bias->device() != left.device()))
    fail<DeviceError>({.operation = "matmul",
                       .with = {{"left on", to_string(left.device())},
                                {"right on", to_string(right.device())},
                                {"bias on", epilogue.bias ? to_string(epilogue.bias->device()) : "-"}},
                       .wrong = "the operands are on different devices",
                       .remedy = "Move one with to(...)"});
  // A vector is a matrix with one row on the left, and a matrix with one column on the right.
  const bool row = left.rank() == 1, column = right.rank() == 1;
  const std::size_t a_rank = left.shape().size(), b_rank = right.shape().size();
  const std::int64_t m = row ? 1 : left.shape()[a_rank - 2], k = left.shape()[a_rank - 1],
                     n = column ? 1 : right.shape()[b_rank - 1], right_rows = right.shape()[b_rank - (column ? 1 : 2)];
  if (right_rows != k)
    wrong("the left operand has " + std::to_string(k) + " columns, the right one " + std::to_string(right_rows) +
          " rows");
  const DType dtype = promote(left.dtype(), right.dtype()), sum = sum_dtype(dtype),
              result = epilogue.dtype.value_or(is_float(dtype) ? dtype : sum);
  if (epilogue.bias && (epilogue.bias->rank() != 1 || epilogue.bias->shape(0) != n))
    fail<ShapeError>({.operation = "matmul",
                      .with = {{"bias", to_string(epilogue.bias->shape())}, {"columns", std::to_string(n)}},
                      .wrong = "the bias does not have one element per column"});
  if (epilogue.dtype && (!is_float(result) || !is_float(dtype)))
    fail<DtypeError>({.operation = "matmul",
                      .with = {{"dtype", std::string(dtype_name(result))},
                               {"left", std::string(dtype_name(left.dtype()))},
                               {"right", std::string(dtype_name(right.dtype()))}},
                      .wrong = "a result dtype can only be chosen for float operands, and must be a float dtype",
                      .remedy = "Use astype"});
  if (!is_float(dtype) && epilogue.activation != Activation::none && epilogue.activation != Activation::relu)
    fail<DtypeError>(
        {.operation = "matmul",
         .with = {{"activation", activation_name(epilogue.activation)}, {"dtype", std::string(dtype_name(dtype))}},
         .wrong = "this activation is not defined for integers"});

  // Batch dimensions are broadcast and then merged. At most two may remain.
  Shape lead;
  if (a_rank > 2 || b_rank > 2)
    lead = broadcast_shapes("matmul", Shape(left.shape().begin(), left.shape().end() - (row ? 1 : 2)),
                            Shape(right.shape().begin(), right.shape().end() - (column ? 1 : 2)));
  Shape out_shape = lead;
  if (!row) out_shape.push_back(m);
  if (!column) out_shape.push_back(n);
  const std::int64_t batch = element_count(lead);
  if (batch * m * n == 0) return made(Array::empty(out_shape, result, left.device()));
  if (k == 0) {
    Shape with_n = lead;
    with_n.insert(with_n.end(), {m, n});
    return made(finished(Array::zeros(with_n, result, left.device()), epilogue).reshape(out_shape));
  }
  if (!row && !column && lead.empty())
    return made(multiplied(left, right, lead, std::move(out_shape), {sum, result}, epilogue, repeated));
  Array a = row ? left.unsqueeze(0) : left, b = column ? right.unsqueeze(1) : right;
  if (!lead.empty()) {
    Shape a_shape = lead, b_shape = lead;
    a_shape.insert(a_shape.end(), {m, k}), b_shape.insert(b_shape.end(), {k, n});
    a = a.broadcast_to(a_shape), b = b.broadcast_to(b_shape);
  }
  return made(multiplied(a, b, lead, std::move(out_shape), {sum, result}, epilogue, repeated));
}

}  // namespace

Array matmul(const Array& left, const Array& right) {
  const detail::CachedOperation repeated(detail::CachedOperation::product, left, &right);
  return repeated ? repeated() : multiply(left, right, {}, &repeated);
}

Array matmul(const Array& left, const Array& right, const Epilogue& epilogue) {
  if (!epilogue.bias && epilogue.activation == Activation::none && !epilogue.dtype) return matmul(left, right);
  return multiply(left, right, epilogue);
}

}  // namespace tessera
