// SPDX-License-Identifier: Apache-2.0
#include "tessera/c/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "tessera/array/functions.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/statistics.h"
#include "tessera/base/similar_name.h"
#include "tessera/fft/fft.h"
#include "tessera/linalg/linalg.h"
#include "tessera/nn/losses.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/distributions.h"
#include "tessera/ops/einsum.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"

namespace tessera::named {

namespace {

using Arrays = std::vector<Array>;

/// A call of an operation: its operands and attributes.
class Call {
 public:
  Call(std::string_view name, std::span<const Operand> operands, std::span<const Attribute> attributes)
      : name_(name), operands_(operands), attributes_(attributes) {}

  std::size_t count() const { return operands_.size(); }
  /// Operand `i` as an array. A number becomes an array on the device of the first array.
  Array array(std::size_t i) const {
    if (const Array* a = std::get_if<Array>(&operands_[i])) return *a;
    std::optional<Device> device;
    for (const Operand& o : operands_)
      if (const Array* a = std::get_if<Array>(&o); a != nullptr && !device) device = a->device();
    static constexpr DType dtypes[] = {DType::f32, DType::f32, DType::i64, DType::boolean};
    return array_of(operands_[i], dtypes[operands_[i].index()], device.value_or(current_device()));
  }
  ArrayOperand operand(std::size_t i) const {
    return std::visit(
        [](const auto& v) -> ArrayOperand {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(v)>, std::int64_t>)
            // A 32-bit number, if it fits, so that it does not widen bools to 64 bits.
            if (v == static_cast<std::int32_t>(v)) return static_cast<std::int32_t>(v);
          return v;
        },
        operands_[i]);
  }
  Arrays arrays() const {
    Arrays out;
    for (std::size_t i = 0; i < count(); ++i) out.push_back(array(i));
    return out;
  }
  std::optional<Array> optional_array(std::size_t i) const {
    return i < count() ? std::optional(array(i)) : std::nullopt;
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::int64_t integer(std::string_view name, std::int64_t otherwise = 0) const {
    const Attribute* a = find(name);
    if (a == nullptr) return otherwise;
    if (const auto* v = std::get_if<std::int64_t>(&a->value)) return *v;
    wrong(name, "an integer");
  }
  std::optional<std::int64_t> optional_integer(std::string_view name) const {
    return has(name) ? std::optional(integer(name)) : std::nullopt;
  }
  int axis(std::string_view name, int otherwise) const { return small(name, integer(name, otherwise)); }
  std::optional<int> optional_axis(std::string_view name) const {
    return has(name) ? std::optional(axis(name, 0)) : std::nullopt;
  }
  bool flag(std::string_view name, bool otherwise = false) const { return integer(name, otherwise) != 0; }
  double number(std::string_view name, double otherwise = 0) const {
    const Attribute* a = find(name);
    if (a == nullptr) return otherwise;
    if (const auto* v = std::get_if<double>(&a->value)) return *v;
    if (const auto* v = std::get_if<std::int64_t>(&a->value)) return static_cast<double>(*v);
    wrong(name, "a number");
  }
  std::optional<double> optional_number(std::string_view name) const {
    return has(name) ? std::optional(number(name)) : std::nullopt;
  }
  /// True if the result has 64-bit integers and the attributes are integers, at least one of which double may not
  /// represent exactly.
  bool needs_integers(std::initializer_list<std::string_view> names) const {
    const DType to = dtype();
    if (to != DType::i64 && to != DType::u64) return false;
    constexpr std::int64_t limit = std::int64_t{1} << 53;
    bool wide = false;
    for (const std::string_view name : names) {
      const Attribute* a = find(name);
      if (a == nullptr) continue;
      const auto* v = std::get_if<std::int64_t>(&a->value);
      if (v == nullptr || (to == DType::u64 && *v < 0)) return false;  // negative numbers saturate
      wide = wide || *v < -limit || *v > limit;
    }
    return wide;
  }
  /// A list of integers. One integer is a list of one element.
  std::vector<std::int64_t> list(std::string_view name) const {
    const Attribute* a = find(name);
    if (a == nullptr) return {};
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(&a->value)) return *v;
    if (const auto* v = std::get_if<std::int64_t>(&a->value)) return {*v};
    wrong(name, "a list of integers");
  }
  std::vector<int> axes(std::string_view name = "axes") const {
    std::vector<int> out;
    for (const std::int64_t v : list(name)) out.push_back(small(name, v));
    return out;
  }
  Shape shape(std::string_view name = "shape") const { return Shape(list(name)); }
  std::string text(std::string_view name, std::string otherwise = {}) const {
    const Attribute* a = find(name);
    if (a == nullptr) return otherwise;
    if (const auto* v = std::get_if<std::string>(&a->value)) return *v;
    wrong(name, "a text");
  }
  /// The choice with the name in attribute `name`; the first one by default.
  template <class T>
  T choice(std::string_view name, std::initializer_list<std::pair<std::string_view, T>> choices) const {
    if (!has(name)) return choices.begin()->second;
    const std::string given = text(name);
    std::string all;
    for (const auto& [key, value] : choices) {
      if (key == given) return value;
      all += (all.empty() ? "" : ", ") + std::string(key);
    }
    fail<ArgumentError>({.operation = name_,
                         .with = {{std::string_view(name), given}},
                         .wrong = "the attribute has an unknown value",
                         .remedy = "Use one of " + all});
  }
  std::optional<DType> optional_dtype(std::string_view name = "dtype") const {
    if (!has(name)) return {};
    const std::string given = text(name);
    const auto dtype = dtype_from_name(given);
    if (!dtype || *dtype == DType::index)
      fail<DtypeError>({.operation = name_, .with = {{name, given}}, .wrong = "there is no such dtype"});
    return dtype;
  }
  DType dtype(DType otherwise = DType::f32) const { return optional_dtype().value_or(otherwise); }
  std::optional<Device> device() const {
    return has("device") ? std::optional(parse_device(text("device"))) : std::nullopt;
  }
  /// Two extents. One integer stands for both.
  Extents2d extents(std::string_view name, std::int64_t otherwise) const {
    const std::vector<std::int64_t> v = list(name);
    if (v.empty()) return otherwise;
    if (v.size() > 2) wrong(name, "one or two integers");
    return {v.front(), v.back()};
  }

 private:
  const Attribute* find(std::string_view name) const {
    const auto found = std::ranges::find(attributes_, name, &Attribute::name);
    return found == attributes_.end() ? nullptr : &*found;
  }
  int small(std::string_view name, std::int64_t value) const {
    if (value != static_cast<int>(value)) wrong(name, "a small integer");
    return static_cast<int>(value);
  }
  [[noreturn]] void wrong(std::string_view name, std::string_view kind) const {
    fail<ArgumentError>({.operation = name_, .wrong = fmt::format("the attribute '{}' must be {}", name, kind)});
  }

  std::string_view name_;
  std::span<const Operand> operands_;
  std::span<const Attribute> attributes_;
};

// Adapters from C++ functions.
template <Array (*f)(Array)>
Arrays unary(const Call& c) {
  return {f(c.array(0))};
}
template <Array (*f)(ArrayOperand, ArrayOperand)>
Arrays binary(const Call& c) {
  return {f(c.operand(0), c.operand(1))};
}
template <Array (*f)(const Array&)>
Arrays unary(const Call& c) {
  return {f(c.array(0))};
}
template <Array (*f)(const Array&, const Array&)>
Arrays binary(const Call& c) {
  return {f(c.array(0), c.array(1))};
}
template <Array (*f)(const Array&, int)>
Arrays running(const Call& c) {
  return {f(c.array(0), c.axis("axis", 0))};
}
template <Array (*f)(Array, std::vector<int>, bool)>
Arrays reduction(const Call& c) {
  return {f(c.array(0), c.axes(), c.flag("keep"))};
}
template <Array (*f)(const Array&, std::vector<int>, bool)>
Arrays statistic(const Call& c) {
  return {f(c.array(0), c.axes(), c.flag("keep"))};
}

Reduction reduction_of(const Call& c) {
  return c.choice<Reduction>("reduction",
                             {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}});
}
Pool2d pool_of(const Call& c) {
  return {.kernel = c.extents("kernel", 1),
          .stride = c.has("stride") ? std::optional(c.extents("stride", 1)) : std::nullopt,
          .padding = c.extents("padding", 0)};
}

std::uint64_t seed_of(const Call& c) { return static_cast<std::uint64_t>(c.integer("seed")); }
RandomOptions random_options(const Call& c) { return {.device = c.device()}; }

linalg::MatrixNorm norm_of(const Call& c, linalg::MatrixNorm otherwise) {
  using enum linalg::MatrixNorm;
  if (!c.has("norm")) return otherwise;
  return c.choice<linalg::MatrixNorm>("norm", {{"fro", frobenius},
                                               {"nuc", nuclear},
                                               {"2", largest_singular},
                                               {"-2", smallest_singular},
                                               {"1", largest_column_sum},
                                               {"-1", smallest_column_sum},
                                               {"inf", largest_row_sum},
                                               {"-inf", smallest_row_sum}});
}

// Complex arrays are two operands or two results: the real and the imaginary parts.
Complex complex_of(const Call& c) {
  const auto imag = c.optional_array(1);
  return imag ? Complex(c.array(0), *imag) : Complex(c.array(0));
}
Arrays parts_of(Complex z) { return {std::move(z.real), std::move(z.imag)}; }
Arrays parts_of(Array a) { return {std::move(a)}; }
fft::Norm fft_norm_of(const Call& c) {
  return c.choice<fft::Norm>(
      "norm", {{"backward", fft::Norm::backward}, {"ortho", fft::Norm::ortho}, {"forward", fft::Norm::forward}});
}
template <auto f>
Arrays transform(const Call& c) {
  const auto call = [&](const auto& x) {
    return parts_of(f(x, c.optional_integer("n"), c.axis("axis", -1), fft_norm_of(c)));
  };
  if constexpr (std::is_invocable_v<decltype(f), Complex, std::optional<std::int64_t>, int, fft::Norm>)
    return call(complex_of(c));
  else
    return call(c.array(0));
}
template <auto f>
Arrays transform_axes(const Call& c) {
  const auto call = [&](const auto& x) {
    const auto sizes = c.has("sizes") ? std::optional(c.shape("sizes")) : std::nullopt;
    return parts_of(f(x, sizes, c.axes(), fft_norm_of(c)));
  };
  if constexpr (std::is_invocable_v<decltype(f), Complex, std::optional<Shape>, std::vector<int>, fft::Norm>)
    return call(complex_of(c));
  else
    return call(c.array(0));
}

struct Operation {
  const char* signature;
  Arrays (*run)(const Call&);
};

// Sorted by name.
const Operation table[] = {
    {"abs(a)", unary<abs>},
    {"acos(a)", unary<acos>},
    {"add(a, b)", binary<(operator+)>},
    {"all(a; axes, keep)", reduction<all>},
    {"any(a; axes, keep)", reduction<any>},
    {"arange(; count!, start, step, dtype, device)",
     [](const Call& c) -> Arrays {
       if (c.needs_integers({"start", "step"}))
         return {(Array::arange(c.integer("count"), 0, 1, DType::i64, c.device()) * c.integer("step", 1) +
                  c.integer("start"))
                     .astype(c.dtype())};
       return {Array::arange(c.integer("count"), c.number("start", 0), c.number("step", 1), c.dtype(), c.device())};
     }},
    {"argmax(a; axis, keep)",
     [](const Call& c) -> Arrays { return {argmax(c.array(0), c.axis("axis", -1), c.flag("keep"))}; }},
    {"argmin(a; axis, keep)",
     [](const Call& c) -> Arrays { return {argmin(c.array(0), c.axis("axis", -1), c.flag("keep"))}; }},
    {"argsort(a; axis)", [](const Call& c) -> Arrays { return {argsort(c.array(0), c.axis("axis", -1))}; }},
    {"asin(a)", unary<asin>},
    {"astype(a; dtype!)", [](const Call& c) -> Arrays { return {c.array(0).astype(c.dtype())}; }},
    {"atan(a)", unary<atan>},
    {"atan2(y, x)", binary<atan2>},
    {"attention(q, k, v, mask?; causal, scale)",
     [](const Call& c) -> Arrays {
       return {
           scaled_dot_product_attention(c.array(0), c.array(1), c.array(2),
                                        {.causal = c.flag("causal"),
                                         .mask = c.optional_array(3),
                                         .scale = c.optional_number("scale")})};
     }},
    {"average_pool2d(x; kernel!, stride, padding)",
     [](const Call& c) -> Arrays { return {average_pool2d(c.array(0), pool_of(c))}; }},
    {"bincount(a; least)", [](const Call& c) -> Arrays { return {bincount(c.array(0), c.integer("least"))}; }},
    {"binary_cross_entropy(logits, targets; reduction)",
     [](const Call& c) -> Arrays { return {bce_with_logits(c.array(0), c.array(1), {.reduction = reduction_of(c)})}; }},
    {"bitwise_and(a, b)", binary<(operator&)>},
    {"bitwise_left_shift(a, b)", binary<(operator<<)>},
    {"bitwise_or(a, b)", binary<(operator|)>},
    {"bitwise_right_shift(a, b)", binary<(operator>>)>},
    {"bitwise_xor(a, b)", binary<(operator^)>},
    {"broadcast_to(a; shape!)", [](const Call& c) -> Arrays { return {c.array(0).broadcast_to(c.shape())}; }},
    {"ceil(a)", unary<ceil>},
    {"cholesky(a; upper)", [](const Call& c) -> Arrays { return {linalg::cholesky(c.array(0), c.flag("upper"))}; }},
    {"clip(a, low, high)", [](const Call& c) -> Arrays { return {clip(c.array(0), c.operand(1), c.operand(2))}; }},
    {"concatenate(arrays...; axis)",
     [](const Call& c) -> Arrays { return {concatenate(c.arrays(), c.axis("axis", 0))}; }},
    {"cond(a; norm)",
     [](const Call& c) -> Arrays {
       return {linalg::cond(c.array(0), norm_of(c, linalg::MatrixNorm::largest_singular))};
     }},
    {"contiguous(a)", [](const Call& c) -> Arrays { return {c.array(0).as_contiguous()}; }},
    {"conv2d(x, weight, bias?; stride, padding, dilation, groups)",
     [](const Call& c) -> Arrays {
       return {conv2d(c.array(0), c.array(1), c.optional_array(2),
                      {.stride = c.extents("stride", 1),
                       .padding = c.extents("padding", 0),
                       .dilation = c.extents("dilation", 1),
                       .groups = c.integer("groups", 1)})};
     }},
    {"convolve(a, v; part)",
     [](const Call& c) -> Arrays {
       return {convolve(c.array(0), c.array(1),
                        c.choice<ConvolvedPart>("part", {{"full", ConvolvedPart::full},
                                                         {"same", ConvolvedPart::same},
                                                         {"valid", ConvolvedPart::valid}}))};
     }},
    {"copy(a)", [](const Call& c) -> Arrays { return {c.array(0).copy()}; }},
    {"copysign(a, b)", binary<copysign>},
    {"cos(a)", unary<cos>},
    {"cosh(a)", unary<cosh>},
    {"cross(a, b; axis)",
     [](const Call& c) -> Arrays { return {linalg::cross(c.array(0), c.array(1), c.axis("axis", -1))}; }},
    {"cross_entropy(logits, targets, weight?; ignore_index, label_smoothing, reduction)",
     [](const Call& c) -> Arrays {
       return {cross_entropy(c.array(0), c.array(1),
                             {.weight = c.optional_array(2),
                              .ignore_index = c.integer("ignore_index", -100),
                              .label_smoothing = c.number("label_smoothing"),
                              .reduction = reduction_of(c)})};
     }},
    {"cummax(a; axis)", running<cummax>},
    {"cummin(a; axis)", running<cummin>},
    {"cumprod(a; axis)", running<cumprod>},
    {"cumsum(a; axis)", running<cumsum>},
    {"det(a)", unary<linalg::det>},
    {"diag(a; offset)", [](const Call& c) -> Arrays { return {diag(c.array(0), c.integer("offset"))}; }},
    {"diagonal(a; offset)",
     [](const Call& c) -> Arrays { return {linalg::diagonal(c.array(0), c.integer("offset"))}; }},
    {"diff(a; order, axis)",
     [](const Call& c) -> Arrays { return {diff(c.array(0), c.integer("order", 1), c.axis("axis", -1))}; }},
    {"divide(a, b)", binary<(operator/)>},
    {"eigh(a)",
     [](const Call& c) -> Arrays {
       linalg::Eigh e = linalg::eigh(c.array(0));
       return {std::move(e.eigenvalues), std::move(e.eigenvectors)};
     }},
    {"eigvalsh(a)", unary<linalg::eigvalsh>},
    {"einsum(arrays...; subscripts!)",
     [](const Call& c) -> Arrays { return {einsum(c.text("subscripts"), c.arrays())}; }},
    {"equal(a, b)", binary<(operator==)>},
    {"erf(a)", unary<erf>},
    {"exp(a)", unary<exp>},
    {"exp2(a)", unary<exp2>},
    {"expm1(a)", unary<expm1>},
    {"eye(; rows!, columns, offset, dtype, device)",
     [](const Call& c) -> Arrays {
       return {Array::eye(c.integer("rows"), c.has("columns") ? std::optional(c.integer("columns")) : std::nullopt,
                          c.integer("offset"), c.dtype(), c.device())};
     }},
    {"fft(real, imag?; n, axis, norm)", transform<fft::fft>},
    {"fftfreq(; n!, spacing, dtype, device)",
     [](const Call& c) -> Arrays {
       return {fft::fftfreq(c.integer("n"), c.number("spacing", 1), c.dtype(), c.device())};
     }},
    {"fftn(real, imag?; sizes, axes, norm)", transform_axes<fft::fftn>},
    {"fftshift(a; axes)", [](const Call& c) -> Arrays { return {fft::fftshift(c.array(0), c.axes())}; }},
    {"flip(a; axes)", [](const Call& c) -> Arrays { return {flip(c.array(0), c.axes())}; }},
    {"floor(a)", unary<floor>},
    {"full(; shape!, value!, dtype, device)",
     [](const Call& c) -> Arrays {
       if (c.needs_integers({"value"})) {
         check_shape("full", c.shape());
         return {array_of(c.integer("value"), c.dtype(), c.device().value_or(current_device()))
                     .broadcast_to(c.shape())
                     .copy()};
       }
       return {Array::full(c.shape(), c.number("value"), c.dtype(), c.device())};
     }},
    {"gelu(a)", unary<gelu>},
    {"greater(a, b)", binary<(operator>)>},
    {"greater_equal(a, b)", binary<(operator>=)>},
    {"hfft(real, imag?; n, axis, norm)", transform<fft::hfft>},
    {"histogram(a; bins!, low!, high!)",
     [](const Call& c) -> Arrays {
       Histogram h = histogram(c.array(0), c.integer("bins"), c.number("low"), c.number("high"));
       return {std::move(h.counts), std::move(h.edges)};
     }},
    {"hypot(a, b)", binary<hypot>},
    {"ifft(real, imag?; n, axis, norm)", transform<fft::ifft>},
    {"ifftn(real, imag?; sizes, axes, norm)", transform_axes<fft::ifftn>},
    {"ifftshift(a; axes)", [](const Call& c) -> Arrays { return {fft::ifftshift(c.array(0), c.axes())}; }},
    {"ihfft(a; n, axis, norm)", transform<fft::ihfft>},
    {"interpolate(x, at, heights)",
     [](const Call& c) -> Arrays { return {interpolate(c.array(0), c.array(1), c.array(2))}; }},
    {"inv(a)", unary<linalg::inv>},
    {"irfft(real, imag?; n, axis, norm)", transform<fft::irfft>},
    {"irfftn(real, imag?; sizes, axes, norm)", transform_axes<fft::irfftn>},
    {"isfinite(a)", unary<isfinite>},
    {"isin(a, values)", [](const Call& c) -> Arrays { return {isin(c.array(0), c.array(1))}; }},
    {"isinf(a)", unary<isinf>},
    {"isnan(a)", unary<isnan>},
    {"kron(a, b)", [](const Call& c) -> Arrays { return {kron(c.array(0), c.array(1))}; }},
    {"less(a, b)", binary<(operator<)>},
    {"less_equal(a, b)", binary<(operator<=)>},
    {"linspace(; start!, stop!, count!, dtype, device)",
     [](const Call& c) -> Arrays {
       return {Array::linspace(c.number("start"), c.number("stop"), c.integer("count"), c.dtype(), c.device())};
     }},
    {"log(a)", unary<log>},
    {"log10(a)", unary<log10>},
    {"log1p(a)", unary<log1p>},
    {"log2(a)", unary<log2>},
    {"logical_not(a)", unary<(operator!)>},
    {"logsumexp(a; axes, keep)", reduction<logsumexp>},
    {"lstsq(a, b; rtol)",
     [](const Call& c) -> Arrays {
       linalg::Lstsq s = linalg::lstsq(c.array(0), c.array(1), c.optional_number("rtol"));
       return {std::move(s.x), std::move(s.rank), std::move(s.singular_values)};
     }},
    {"lu(a)",
     [](const Call& c) -> Arrays {
       linalg::Lu f = linalg::lu(c.array(0));
       return {std::move(f.rows), std::move(f.l), std::move(f.u)};
     }},
    {"masked_select(a, mask)", [](const Call& c) -> Arrays { return {masked_select(c.array(0), c.array(1))}; }},
    {"matmul(a, b)", [](const Call& c) -> Arrays { return {matmul(c.array(0), c.array(1))}; }},
    {"matrix_norm(a; norm, keep)",
     [](const Call& c) -> Arrays {
       return {linalg::matrix_norm(c.array(0), norm_of(c, linalg::MatrixNorm::frobenius), c.flag("keep"))};
     }},
    {"matrix_power(a; n!)",
     [](const Call& c) -> Arrays { return {linalg::matrix_power(c.array(0), c.integer("n"))}; }},
    {"matrix_rank(a; rtol)",
     [](const Call& c) -> Arrays { return {linalg::matrix_rank(c.array(0), c.optional_number("rtol"))}; }},
    {"matrix_transpose(a)", unary<linalg::matrix_transpose>},
    {"max(a; axes, keep)", reduction<max>},
    {"max_pool2d(x; kernel!, stride, padding)",
     [](const Call& c) -> Arrays { return {max_pool2d(c.array(0), pool_of(c))}; }},
    {"maximum(a, b)", binary<maximum>},
    {"mean(a; axes, keep)", reduction<mean>},
    {"median(a; axes, keep)", statistic<median>},
    {"meshgrid(arrays...; indexing)",
     [](const Call& c) -> Arrays {
       return meshgrid(c.arrays(), c.choice<Indexing>("indexing", {{"xy", Indexing::xy}, {"ij", Indexing::ij}}));
     }},
    {"min(a; axes, keep)", reduction<min>},
    {"minimum(a, b)", binary<minimum>},
    {"moveaxis(a; from!, to!)",
     [](const Call& c) -> Arrays { return {moveaxis(c.array(0), c.axis("from", 0), c.axis("to", 0))}; }},
    {"mse_loss(prediction, target; reduction)",
     [](const Call& c) -> Arrays { return {mse_loss(c.array(0), c.array(1), {.reduction = reduction_of(c)})}; }},
    {"multiply(a, b)", binary<(operator*)>},
    {"nanmax(a; axes, keep)", statistic<nanmax>},
    {"nanmean(a; axes, keep)", statistic<nanmean>},
    {"nanmin(a; axes, keep)", statistic<nanmin>},
    {"nanprod(a; axes, keep)", statistic<nanprod>},
    {"nansum(a; axes, keep)", statistic<nansum>},
    {"negative(a)", unary<(operator-)>},
    {"nextafter(a, b)", binary<nextafter>},
    {"nonzero(a)", [](const Call& c) -> Arrays { return nonzero(c.array(0)); }},
    {"not_equal(a, b)", binary<(operator!=)>},
    {"one_hot(indices; classes!, dtype)",
     [](const Call& c) -> Arrays { return {one_hot(c.array(0), c.integer("classes"), c.dtype())}; }},
    {"outer(a, b)", [](const Call& c) -> Arrays { return {outer(c.array(0), c.array(1))}; }},
    {"pad(a; widths!, value)",
     [](const Call& c) -> Arrays {
       const std::vector<std::int64_t> widths = c.list("widths");
       std::vector<Padding> each;
       for (std::size_t i = 0; i + 1 < widths.size(); i += 2) each.push_back({widths[i], widths[i + 1]});
       if (widths.size() % 2 != 0)
         fail<ArgumentError>({.operation = "pad", .wrong = "'widths' must have two integers for each axis"});
       return {pad(c.array(0), each, c.number("value"))};
     }},
    {"permute(a; axes!)", [](const Call& c) -> Arrays { return {c.array(0).permute(c.axes())}; }},
    {"pinv(a; rtol)",
     [](const Call& c) -> Arrays { return {linalg::pinv(c.array(0), c.optional_number("rtol"))}; }},
    {"pow(a, b)", binary<pow>},
    {"prod(a; axes, keep)", statistic<prod>},
    {"qr(a; mode)",
     [](const Call& c) -> Arrays {
       using linalg::Mode;
       linalg::Qr f = linalg::qr(
           c.array(0), c.choice<Mode>("mode", {{"reduced", Mode::reduced}, {"complete", Mode::complete}}));
       return {std::move(f.q), std::move(f.r)};
     }},
    {"quantile(a; q!, axes, keep)",
     [](const Call& c) -> Arrays { return {quantile(c.array(0), c.number("q"), c.axes(), c.flag("keep"))}; }},
    {"random_beta(; shape!, seed!, a!, b!, device)",
     [](const Call& c) -> Arrays {
       return {random_beta(c.shape(), seed_of(c), c.number("a"), c.number("b"), random_options(c))};
     }},
    {"random_binomial(; shape!, seed!, trials!, probability!, device)",
     [](const Call& c) -> Arrays {
       return {random_binomial(c.shape(), seed_of(c), c.integer("trials"), c.number("probability"), random_options(c))};
     }},
    {"random_bits(; shape!, seed!, device)",
     [](const Call& c) -> Arrays { return {random_bits(c.shape(), seed_of(c), c.device())}; }},
    {"random_choice(weights?; count!, shape!, seed!, replace, device)",
     [](const Call& c) -> Arrays {
       std::vector<double> weights;
       if (const auto given = c.optional_array(0))
         weights = given->to({Backend::cpu, 0}).astype(DType::f64).reshape({-1}).to_vector<double>();
       return {random_choice(c.integer("count"), c.shape(), seed_of(c), c.flag("replace", true), weights,
                             random_options(c))};
     }},
    {"random_exponential(; shape!, seed!, scale, device)",
     [](const Call& c) -> Arrays {
       return {random_exponential(c.shape(), seed_of(c), c.number("scale", 1), random_options(c))};
     }},
    {"random_gamma(; shape!, seed!, alpha!, scale, device)",
     [](const Call& c) -> Arrays {
       return {random_gamma(c.shape(), seed_of(c), c.number("alpha"), c.number("scale", 1), random_options(c))};
     }},
    {"random_integers(; shape!, seed!, low!, high!, dtype, device)",
     [](const Call& c) -> Arrays {
       return {random_integers(c.shape(), seed_of(c), c.integer("low"), c.integer("high"), c.dtype(DType::i64),
                               random_options(c))};
     }},
    {"random_multivariate_normal(mean, covariance; shape!, seed!)",
     [](const Call& c) -> Arrays {
       return {random_multivariate_normal(c.array(0), c.array(1), c.shape(), seed_of(c))};
     }},
    {"random_normal(; shape!, seed!, mean, deviation, device)",
     [](const Call& c) -> Arrays {
       return {
           random_normal(c.shape(), seed_of(c), c.number("mean", 0), c.number("deviation", 1), c.device())};
     }},
    {"random_permutation(; count!, seed!, device)",
     [](const Call& c) -> Arrays { return {random_permutation(c.integer("count"), seed_of(c), c.device())}; }},
    {"random_poisson(; shape!, seed!, mean!, device)",
     [](const Call& c) -> Arrays {
       return {random_poisson(c.shape(), seed_of(c), c.number("mean"), random_options(c))};
     }},
    {"random_uniform(; shape!, seed!, low, high, device)",
     [](const Call& c) -> Arrays {
       return {random_uniform(c.shape(), seed_of(c), c.number("low", 0), c.number("high", 1), c.device())};
     }},
    {"relu(a)", unary<relu>},
    {"remainder(a, b)", binary<(operator%)>},
    {"repeat(a; count!, axis)",
     [](const Call& c) -> Arrays { return {repeat(c.array(0), c.integer("count"), c.optional_axis("axis"))}; }},
    {"reshape(a; shape!)", [](const Call& c) -> Arrays { return {c.array(0).reshape(c.shape())}; }},
    {"rfft(a; n, axis, norm)", transform<fft::rfft>},
    {"rfftfreq(; n!, spacing, dtype, device)",
     [](const Call& c) -> Arrays {
       return {fft::rfftfreq(c.integer("n"), c.number("spacing", 1), c.dtype(), c.device())};
     }},
    {"rfftn(a; sizes, axes, norm)", transform_axes<fft::rfftn>},
    {"rint(a)", unary<rint>},
    {"rms_norm(x, weight; epsilon)",
     [](const Call& c) -> Arrays {
       return {rms_norm(c.array(0), c.array(1), static_cast<float>(c.number("epsilon", 1e-5)))};
     }},
    {"roll(a; shift!, axis)",
     [](const Call& c) -> Arrays { return {roll(c.array(0), c.integer("shift"), c.optional_axis("axis"))}; }},
    {"rsqrt(a)", unary<rsqrt>},
    {"scatter(a, indices, updates; axis)",
     [](const Call& c) -> Arrays { return {scatter(c.array(0), c.array(1), c.array(2), c.axis("axis", 0))}; }},
    {"scatter_add(a, indices, updates; axis)",
     [](const Call& c) -> Arrays { return {scatter_add(c.array(0), c.array(1), c.array(2), c.axis("axis", 0))}; }},
    {"searchsorted(sorted, values; side)",
     [](const Call& c) -> Arrays {
       return {searchsorted(c.array(0), c.array(1),
                            c.choice<SearchSide>("side", {{"left", SearchSide::left}, {"right", SearchSide::right}}))};
     }},
    {"sigmoid(a)", unary<sigmoid>},
    {"sign(a)", unary<sign>},
    {"silu(a)", unary<silu>},
    {"sin(a)", unary<sin>},
    {"sinh(a)", unary<sinh>},
    {"slogdet(a)",
     [](const Call& c) -> Arrays {
       linalg::Slogdet s = linalg::slogdet(c.array(0));
       return {std::move(s.sign), std::move(s.logabsdet)};
     }},
    {"softmax(a; axis)", [](const Call& c) -> Arrays { return {softmax(c.array(0), c.axis("axis", -1))}; }},
    {"solve(a, b)", binary<linalg::solve>},
    {"solve_triangular(t, b; side, triangle, transposed, unit_diagonal)",
     [](const Call& c) -> Arrays {
       return {solve_triangular(
           c.array(0), c.array(1),
           {.side = c.choice<Side>("side", {{"left", Side::left}, {"right", Side::right}}),
            .triangle = c.choice<Triangle>("triangle", {{"lower", Triangle::lower}, {"upper", Triangle::upper}}),
            .transposed = c.flag("transposed"),
            .unit_diagonal = c.flag("unit_diagonal")})};
     }},
    {"sort(a; axis)", [](const Call& c) -> Arrays { return {sort(c.array(0), c.axis("axis", -1))}; }},
    {"split(a; sections, sizes, axis)",
     [](const Call& c) -> Arrays {
       if (c.has("sections") == c.has("sizes"))
         fail<ArgumentError>({.operation = "split", .wrong = "either 'sections' or 'sizes' is required"});
       if (c.has("sizes")) return split(c.array(0), c.list("sizes"), c.axis("axis", 0));
       return split(c.array(0), c.integer("sections"), c.axis("axis", 0));
     }},
    {"sqrt(a)", unary<sqrt>},
    {"squeeze(a; axis!)", [](const Call& c) -> Arrays { return {c.array(0).squeeze(c.axis("axis", 0))}; }},
    {"stack(arrays...; axis)", [](const Call& c) -> Arrays { return {stack(c.arrays(), c.axis("axis", 0))}; }},
    {"std(a; axes, correction, keep)",
     [](const Call& c) -> Arrays { return {stddev(c.array(0), c.axes(), c.number("correction", 1), c.flag("keep"))}; }},
    {"subtract(a, b)", binary<(operator-)>},
    {"sum(a; axes, keep)", reduction<sum>},
    {"svd(a; full_matrices)",
     [](const Call& c) -> Arrays {
       linalg::Svd f = linalg::svd(c.array(0), c.flag("full_matrices", true));
       return {std::move(f.u), std::move(f.s), std::move(f.vh)};
     }},
    {"svdvals(a)", unary<linalg::svdvals>},
    {"swapaxes(a; first!, second!)",
     [](const Call& c) -> Arrays { return {swapaxes(c.array(0), c.axis("first", 0), c.axis("second", 0))}; }},
    {"take(table, indices; axis)",
     [](const Call& c) -> Arrays { return {take(c.array(0), c.array(1), c.axis("axis", 0))}; }},
    {"take_along_axis(a, indices; axis)",
     [](const Call& c) -> Arrays { return {take_along_axis(c.array(0), c.array(1), c.axis("axis", -1))}; }},
    {"tan(a)", unary<tan>},
    {"tanh(a)", unary<tanh>},
    {"tensordot(a, b; a_axes!, b_axes!)",
     [](const Call& c) -> Arrays { return {tensordot(c.array(0), c.array(1), c.axes("a_axes"), c.axes("b_axes"))}; }},
    {"tile(a; counts!)", [](const Call& c) -> Arrays { return {tile(c.array(0), c.list("counts"))}; }},
    {"topk(a; k!, axis, largest)",
     [](const Call& c) -> Arrays {
       TopK t = topk(c.array(0), c.integer("k"), c.axis("axis", -1), c.flag("largest", true));
       return {std::move(t.values), std::move(t.indices)};
     }},
    {"trace(a; offset)", [](const Call& c) -> Arrays { return {trace(c.array(0), c.integer("offset"))}; }},
    {"transpose(a)", [](const Call& c) -> Arrays { return {c.array(0).transpose()}; }},
    {"tril(a; offset)", [](const Call& c) -> Arrays { return {tril(c.array(0), c.integer("offset"))}; }},
    {"triu(a; offset)", [](const Call& c) -> Arrays { return {triu(c.array(0), c.integer("offset"))}; }},
    {"trunc(a)", unary<trunc>},
    {"unique(a)", [](const Call& c) -> Arrays { return {unique(c.array(0))}; }},
    {"unique_counts(a)",
     [](const Call& c) -> Arrays {
       Counted u = unique_counts(c.array(0));
       return {std::move(u.values), std::move(u.counts)};
     }},
    {"unique_inverse(a)",
     [](const Call& c) -> Arrays {
       Inverse u = unique_inverse(c.array(0));
       return {std::move(u.values), std::move(u.indices)};
     }},
    {"unsqueeze(a; axis!)", [](const Call& c) -> Arrays { return {c.array(0).unsqueeze(c.axis("axis", 0))}; }},
    {"update_slice(a, updates; starts!)",
     [](const Call& c) -> Arrays { return {update_slice(c.array(0), c.array(1), c.list("starts"))}; }},
    {"var(a; axes, correction, keep)",
     [](const Call& c) -> Arrays { return {var(c.array(0), c.axes(), c.number("correction", 1), c.flag("keep"))}; }},
    {"vecdot(a, b; axis)",
     [](const Call& c) -> Arrays { return {linalg::vecdot(c.array(0), c.array(1), c.axis("axis", -1))}; }},
    {"vector_norm(a; order, axes, keep)",
     [](const Call& c) -> Arrays {
       return {linalg::vector_norm(c.array(0), c.number("order", 2), c.axes(), c.flag("keep"))};
     }},
    {"where(condition, if_true, if_false)",
     [](const Call& c) -> Arrays { return {where(c.array(0), c.operand(1), c.operand(2))}; }},
};

/// A signature in parts.
struct Parsed {
  const Operation* operation = nullptr;
  std::size_t least = 0, most = 0;                            ///< number of operands
  std::vector<std::pair<std::string_view, bool>> attributes;  ///< names, and whether they are required
};

Parsed parsed(const Operation& operation) {
  Parsed out{.operation = &operation};
  std::string_view rest = operation.signature;
  rest = rest.substr(rest.find('(') + 1);
  bool after = false;
  for (std::size_t end; (end = rest.find_first_of(",;)")) != rest.npos; rest.remove_prefix(end + 1)) {
    std::string_view name = rest.substr(0, end);
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    const char last = name.empty() ? ' ' : name.back();
    if (after && !name.empty()) {
      if (last == '!') name.remove_suffix(1);
      out.attributes.emplace_back(name, last == '!');
    } else if (!name.empty()) {
      out.least += last != '?' && last != '.';
      out.most = last == '.' ? ~std::size_t{0} : out.most + 1;
    }
    after = after || rest[end] == ';';
  }
  return out;
}

const std::map<std::string_view, Parsed>& by_name() {
  static const std::map<std::string_view, Parsed> map = [] {
    std::map<std::string_view, Parsed> out;
    for (const Operation& o : table) {
      const std::string_view text = o.signature;
      out.emplace(text.substr(0, text.find('(')), parsed(o));
    }
    return out;
  }();
  return map;
}

}  // namespace

std::vector<Array> apply(std::string_view name, std::span<const Operand> operands,
                         std::span<const Attribute> attributes) {
  const auto found = by_name().find(name);
  if (found == by_name().end()) {
    std::vector<std::string> names;
    for (const auto& [known, p] : by_name()) names.emplace_back(known);
    const std::vector<std::string> similar = closest_matches(name, names, 3);
    fail<ArgumentError>({.operation = "apply",
                         .with = {{"name", std::string(name)}},
                         .wrong = "there is no operation of this name",
                         .remedy = similar.empty() ? "tessera_operation() lists all of them"
                                                   : fmt::format("Similar names: {}. tessera_operation() lists all of them",
                                                                 fmt::join(similar, ", "))});
  }
  const Parsed& p = found->second;
  const auto wrong = [&](std::string what) {
    fail<ArgumentError>(
        {.operation = name, .wrong = std::move(what), .remedy = fmt::format("Its form is {}", p.operation->signature)});
  };
  if (operands.size() < p.least || operands.size() > p.most)
    wrong(fmt::format("the operation was called with {} operand{}", operands.size(), operands.size() == 1 ? "" : "s"));
  for (const Attribute& a : attributes)
    if (!std::ranges::any_of(p.attributes, [&](const auto& known) { return known.first == a.name; }))
      wrong(fmt::format("it has no attribute '{}'", a.name));
  for (const auto& [attribute, required] : p.attributes)
    if (required && std::ranges::find(attributes, attribute, &Attribute::name) == attributes.end())
      wrong(fmt::format("the attribute '{}' is missing", attribute));
  return p.operation->run(Call(name, operands, attributes));
}

Array array_of(const Operand& operand, DType dtype, Device device) {
  const auto require_fits = [&](auto value, bool fits) {
    if (!fits)
      fail<DtypeError>({.operation = "assign",
                        .with = {{"value", fmt::format("{}", value)}},
                        .wrong = fmt::format("the number does not fit in {}", dtype_name(dtype)),
                        .remedy = "Use a dtype with a larger range"});
  };
  if (const auto* v = std::get_if<std::int64_t>(&operand)) {  // exact, while full() takes a double
    require_fits(*v, !is_int(dtype) || ArrayOperand(*v).bits(dtype));
    return Array::from({*v}, Shape{}, device).astype(dtype);
  }
  if (const auto* v = std::get_if<bool>(&operand)) return Array::full({}, *v, dtype, device);
  if (const auto* v = std::get_if<double>(&operand)) {
    const double whole = std::trunc(*v);
    const bool fits = whole >= -0x1p63 && whole < 0x1p63
                          ? ArrayOperand(static_cast<std::int64_t>(whole)).bits(dtype).has_value()
                          : dtype == DType::u64 && whole > 0 && whole < 0x1p64;
    require_fits(*v, !is_int(dtype) || fits);
    return Array::full({}, *v, dtype, device);
  }
  return std::get<Array>(operand);
}

std::uint64_t scalar_bits(std::string_view operation, std::string_view parameter, DType dtype, const Operand& number) {
  return std::visit(
      [&](const auto& value) -> std::uint64_t {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T>) {
          if (dtype == DType::index || dtype == DType::boolean) {
            if (!std::is_floating_point_v<T>) return static_cast<std::uint64_t>(value);
          } else if (const auto bits = ArrayOperand(value).bits(dtype)) {
            return *bits;
          }
          fail<DtypeError>({.operation = operation,
                            .with = {{"parameter", std::string(parameter)}, {"value", fmt::format("{}", value)}},
                            .wrong = fmt::format("the number cannot be converted to {}", dtype_name(dtype))});
        }
        return 0;
      },
      number);
}

Array from_host(const void* data, DType dtype, const Shape& shape, std::optional<Device> device) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  const auto from = [&]<class T>(const T* elements) {
    return Array::from(std::span<const T>(elements, count), shape, device);
  };
  switch (dtype) {
    case DType::boolean: {
      // Every byte that is not 0 is true, but a bool must not have another value in memory.
      const auto* bytes = static_cast<const unsigned char*>(data);
      const std::unique_ptr<bool[]> values(new bool[count]);
      std::transform(bytes, bytes + count, values.get(), [](unsigned char b) { return b != 0; });
      return from(values.get());
    }
    case DType::i8: return from(static_cast<const std::int8_t*>(data));
    case DType::u8: return from(static_cast<const std::uint8_t*>(data));
    case DType::i16: return from(static_cast<const std::int16_t*>(data));
    case DType::u16: return from(static_cast<const std::uint16_t*>(data));
    case DType::i32: return from(static_cast<const std::int32_t*>(data));
    case DType::u32: return from(static_cast<const std::uint32_t*>(data));
    case DType::i64: return from(static_cast<const std::int64_t*>(data));
    case DType::u64: return from(static_cast<const std::uint64_t*>(data));
    case DType::f16: return from(static_cast<const half*>(data));
    case DType::bf16: return from(static_cast<const bfloat16*>(data));
    case DType::f32: return from(static_cast<const float*>(data));
    default: return from(static_cast<const double*>(data));
  }
}

std::span<const char* const> operations() {
  static const std::vector<const char*> all = [] {
    std::vector<const char*> out;
    for (const auto& [name, p] : by_name()) out.push_back(p.operation->signature);
    return out;
  }();
  return all;
}

}  // namespace tessera::named
