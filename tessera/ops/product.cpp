// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/product.h"

#include "tessera/device/vendor_product.h"
#include "tessera/ops/kernels.h"

namespace tessera {

using ops::ProductSpec;

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

// The epilogue of products without terms, or of none that a kernel would compute.
Array finished(Array out, const Epilogue& epilogue) {
  const DType t = out.dtype();
  if (epilogue.bias) out = out + epilogue.bias->astype(t);
  switch (epilogue.activation) {
    case Activation::relu: out = relu(out); break;
    case Activation::silu: out = silu(out); break;
    case Activation::gelu: out = gelu(out); break;
    default: break;
  }
  return out.astype(t);
}

/// Strides of a along m and k, of b along k and n.
struct Sides {
  std::int64_t am, ak, bk, bn;
};

/// An operand as libraries take it, if its rows or its columns are contiguous.
std::optional<BlasMatrix> blas_matrix(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
                                      std::int64_t column_stride, std::int64_t batch_stride) {
  if (batch_stride < 0) return std::nullopt;
  if (rows == 1) row_stride = columns;  // along one element no stride counts
  if (columns == 1) column_stride = 1;
  if (column_stride == 1 && row_stride >= columns) return BlasMatrix{dtype, false, row_stride, batch_stride};
  if (row_stride == 1 && column_stride >= rows) return BlasMatrix{dtype, true, column_stride, batch_stride};
  return std::nullopt;
}

/// The product by the vendor's library, (batch, m, n) before its last reshape; nothing if that is not for it. What of
/// the epilogue the library does not do is computed from its sums in f32, as our own kernel would.
std::optional<Array> by_vendor(const Array& a, const Array& b, const Sides& s, std::array<std::int64_t, 3> sizes,
                               const Shape& lead, bool one_batch, std::int64_t batch,
                               std::array<std::int64_t, 2> batch_strides, DType result, const Epilogue& epilogue) {
  auto [m, n, k] = sizes;
  if (!one_batch || a.dtype() != b.dtype()) return std::nullopt;
  auto left = blas_matrix(a.dtype(), m, k, s.am, s.ak, batch_strides[0]);
  const auto right = blas_matrix(b.dtype(), k, n, s.bk, s.bn, batch_strides[1]);
  if (!left || !right) return std::nullopt;
  Shape shape = lead;
  shape.insert(shape.end(), {m, n});
  if (batch > 1 && right->batch_stride == 0 && !left->transposed && left->batch_stride == m * left->ld)
    m *= batch, batch = 1, left->batch_stride = 0;  // one taller matrix
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
  // No library says what its own relu makes of NaN, which ours keeps: so that stays with us.
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

}  // namespace

Array matmul(const Array& left, const Array& right, const Epilogue& epilogue) {
  const detail::Operation operation("matmul", left, right, epilogue.bias);
  const auto made = [&](Array result) {
    return operation.made(std::move(result), [&] {
      return Attributes{{"activation", std::string(activation_name(epilogue.activation))}};
    });
  };
  auto wrong = [&](const std::string& what) {
    fail<ShapeError>({.asked = "matmul",
                      .with = {{"left", to_string(left.shape())}, {"right", to_string(right.shape())}},
                      .wrong = what});
  };
  if (left.rank() < 1 || right.rank() < 1) wrong("an operand has no dimensions");
  if (left.device() != right.device() || (epilogue.bias && epilogue.bias->device() != left.device()))
    fail<DeviceError>({.asked = "matmul",
                       .with = {{"left on", to_string(left.device())},
                                {"right on", to_string(right.device())},
                                {"bias on", epilogue.bias ? to_string(epilogue.bias->device()) : "-"}},
                       .wrong = "the operands are on different devices",
                       .todo = "Move one with to(...)"});
  const Array a = left.rank() == 1 ? left.unsqueeze(0) : left, b = right.rank() == 1 ? right.unsqueeze(1) : right;
  const std::int64_t m = a.shape(-2), k = a.shape(-1), n = b.shape(-1);
  if (b.shape(-2) != k)
    wrong("the left operand has " + std::to_string(k) + " columns, the right one " + std::to_string(b.shape(-2)) +
          " rows");
  const DType dtype = promote(a.dtype(), b.dtype()), sum = sum_dtype(dtype), result = is_float(dtype) ? dtype : sum;
  if (epilogue.bias && (epilogue.bias->rank() != 1 || epilogue.bias->shape(0) != n))
    fail<ShapeError>({.asked = "matmul",
                      .with = {{"bias", to_string(epilogue.bias->shape())}, {"columns", std::to_string(n)}},
                      .wrong = "the bias has not one element for each column"});
  if (!is_float(dtype) && epilogue.activation != Activation::none && epilogue.activation != Activation::relu)
    fail<DtypeError>(
        {.asked = "matmul",
         .with = {{"activation", activation_name(epilogue.activation)}, {"dtype", std::string(dtype_name(dtype))}},
         .wrong = "integers have no such activation"});

  // Leading dimensions: broadcast, then as at most two with strides of their own.
  const Shape a_lead(a.shape().begin(), a.shape().end() - 2), b_lead(b.shape().begin(), b.shape().end() - 2);
  const Shape lead = broadcast_shapes("matmul", a_lead, b_lead);
  Shape a_shape = lead, b_shape = lead, out_shape = lead;
  a_shape.insert(a_shape.end(), {m, k}), b_shape.insert(b_shape.end(), {k, n});
  if (left.rank() > 1) out_shape.push_back(m);
  if (right.rank() > 1) out_shape.push_back(n);
  const std::int64_t batch = element_count(lead);
  if (batch * m * n == 0) return made(Array::empty(out_shape, result, a.device()));
  if (k == 0) {
    Shape with_n = lead;
    with_n.insert(with_n.end(), {m, n});
    return made(finished(Array::zeros(with_n, result, a.device()), epilogue).reshape(out_shape));
  }
  Array av = a.broadcast_to(a_shape), bv = b.broadcast_to(b_shape);
  struct Batch {
    std::int64_t extent, a, b;
  };
  auto merge = [&] {
    std::vector<Batch> dims;
    for (std::size_t d = 0; d < lead.size(); ++d) {
      if (lead[d] == 1) continue;
      const Batch next{lead[d], av.strides()[d], bv.strides()[d]};
      if (!dims.empty() && dims.back().a == next.a * next.extent && dims.back().b == next.b * next.extent)
        dims.back() = {dims.back().extent * next.extent, next.a, next.b};
      else
        dims.push_back(next);
    }
    return dims;
  };
  std::vector<Batch> dims = merge();
  if (dims.size() > 2) {
    av = av.copy(), bv = bv.copy();
    dims = merge();
  }
  while (dims.size() < 2) dims.insert(dims.begin(), Batch{1, 0, 0});

  const std::size_t r = lead.size();
  std::int64_t am = av.strides()[r], ak = av.strides()[r + 1], bk = bv.strides()[r], bn = bv.strides()[r + 1];
  std::int64_t rows = m, columns = n;
  const Array *first = &av, *second = &bv;
  // A single column is a single row of the transposed product, which reads its matrix along whatever is contiguous.
  const bool swapped = n == 1 && m > 1 && !epilogue.bias;
  if (swapped) {
    std::swap(first, second), std::swap(rows, columns);
    std::swap(am, bn), std::swap(ak, bk);
    for (Batch& d : dims) std::swap(d.a, d.b);
  }
  if (!swapped) {
    const Sides sides{am, ak, bk, bn};
    if (auto done = by_vendor(av, bv, sides, {m, n, k}, lead, dims[0].extent == 1, dims[1].extent,
                              {dims[1].a, dims[1].b}, result, epilogue))
      return made(done->reshape(out_shape));
  }
  ProductSpec spec{first->dtype(), second->dtype(), sum, result};
  spec.a_unit_m = am == 1, spec.a_unit_k = ak == 1 || k == 1, spec.b_unit_n = bn == 1 || columns == 1,
  spec.b_unit_k = bk == 1 || k == 1;
  spec.bias = epilogue.bias.has_value();
  spec.activation = epilogue.activation;
  spec = ops::choose_product(ops::tiles_of(a.device()), spec, rows, columns, k, batch);

  const Array out = Array::empty(out_shape, result, a.device());
  std::vector<LaunchArgument> args = {first->view(), second->view()};
  if (spec.bias) args.emplace_back(epilogue.bias->astype(sum).as_contiguous().view());
  args.emplace_back(out.view());
  const std::int64_t block_m = spec.block_m(), block_n = spec.block_n();
  const std::int64_t m_tiles = (rows + block_m - 1) / block_m, n_tiles = (columns + block_n - 1) / block_n;
  for (std::int64_t v :
       {rows, columns, k, m_tiles, n_tiles, am, ak, bn, bk, dims[1].extent, dims[0].a, dims[1].a, dims[0].b, dims[1].b})
    args.push_back(LaunchArgument::index(v));
  static auto& family = *new KernelFamily<ProductSpec>(ops::trace_product);
  family(spec).launch({static_cast<std::uint64_t>(m_tiles * n_tiles * batch), 1, 1}, std::span(args));
  return made(out);
}

}  // namespace tessera
