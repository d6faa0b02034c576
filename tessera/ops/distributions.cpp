// SPDX-License-Identifier: Apache-2.0
#include "tessera/ops/distributions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/array/operation.h"
#include "tessera/array/philox_words.h"
#include "tessera/array/statistics.h"
#include "tessera/base/philox.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_family.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"

namespace tessera {

using detail::Operation;

namespace {

constexpr double most_variance = 1e10;

void require(bool holds, const char* operation, const char* name, double value, const char* wrong) {
  if (!holds) fail<ArgumentError>({.operation = operation, .with = {{name, std::to_string(value)}}, .wrong = wrong});
}

/// The same part with another axis at the end, of which all elements are wanted.
RandomOptions with_axis(RandomOptions options, std::int64_t extent) {
  if (options.whole) options.whole->push_back(extent), options.starts.push_back(0);
  return options;
}

Shape with_axis(Shape shape, std::int64_t extent) {
  shape.push_back(extent);
  return shape;
}

/// Random u64 numbers, of two words each.
Array random_u64(Shape shape, std::uint64_t seed, const RandomOptions& options) {
  const Shape pairs = with_axis(std::move(shape), 2);
  const RandomOptions all = with_axis(options, 2);
  const Array words = all.whole ? random_bits_part(*all.whole, all.starts, pairs, seed, options.device)
                                : random_bits(pairs, seed, options.device);
  const Array wide = words.astype(DType::u64);
  return wide.select(-1, 0) * (std::uint64_t{1} << 32) + wide.select(-1, 1);
}

/// A seed whose stream is independent of that of `seed`.
std::uint64_t second_seed(std::uint64_t seed) {
  const auto words = philox4x32(PhiloxCounter{0, 0, 0, ~0u},
                                PhiloxKey{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

/// The probabilities of consecutive integers, up to a common factor.
struct Masses {
  std::int64_t first = 0;
  std::vector<double> mass;
};

/// Masses around the mode, until they are too small to matter. `ratio(k)` is the mass of k + 1 divided by that of k.
template <class Ratio>
Masses masses_around(std::int64_t mode, std::int64_t lowest, std::int64_t highest, Ratio ratio) {
  constexpr double least = 1e-30;
  std::vector<double> below;
  double mass = 1;
  for (std::int64_t k = mode; k > lowest && mass > least; --k) below.push_back(mass /= ratio(k - 1));
  Masses out{mode - static_cast<std::int64_t>(below.size()), {below.rbegin(), below.rend()}};
  out.mass.push_back(mass = 1);
  for (std::int64_t k = mode; k < highest && mass > least; ++k) out.mass.push_back(mass *= ratio(k));
  return out;
}

/// Draws integers by inversion of the cumulative distribution. Compares integers, so that the results are the same on
/// every device.
Array by_inversion(Shape shape, std::uint64_t seed, const Masses& masses, const RandomOptions& options) {
  double total = 0, sum = 0;
  for (const double mass : masses.mass) total += mass;
  std::vector<std::uint64_t> until;
  for (std::size_t k = 0; k + 1 < masses.mass.size(); ++k) {
    sum += masses.mass[k];
    const double scaled = sum / total * 0x1p64;
    until.push_back(scaled < 0x1p64 ? static_cast<std::uint64_t>(scaled) : ~std::uint64_t{0});
  }
  const Array random = random_u64(std::move(shape), seed, options).eval();
  if (until.empty()) return Array::full(random.shape(), static_cast<double>(masses.first), DType::i64, random.device());
  return searchsorted(Array::from(until, {}, random.device()), random, SearchSide::right) + masses.first;
}

struct GammaSpec {
  bool wide;       ///< has_wide_products
  bool logarithm;  ///< return the logarithm, which does not underflow
  friend bool operator==(const GammaSpec&, const GammaSpec&) = default;
  std::size_t hash() const { return static_cast<std::size_t>(wide) * 2 + logarithm; }
};

/// Each attempt uses the words of another stream. With d = alpha - 1/3 and c = 1 / sqrt(9 d), an attempt is accepted
/// with a probability of at least 0.95. For alpha < 1, d is that of alpha + 1, and the result is multiplied by
/// uniform^(1 / alpha); `power` is 1 / alpha, otherwise 0.
ir::Function trace_gamma(const GammaSpec& spec) {
  using ir::Value;
  ir::Builder builder("random_gamma", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  const auto places = ir::buffer_param("places", DType::u64, ir::Access::read);
  const auto out = ir::buffer_param("out", DType::f32, ir::Access::read_write);
  const Value key_low = ir::scalar_param("key_low", DType::u32), key_high = ir::scalar_param("key_high", DType::u32);
  const Value d = ir::scalar_param("d", DType::f32), c = ir::scalar_param("c", DType::f32),
              power = ir::scalar_param("power", DType::f32);
  constexpr int most_attempts = 64;
  const Value place = places.load(ir::global_id());
  const ir::Variable attempt(DType::u32, ir::literal(DType::u32, 0)), accepted(DType::u32, ir::literal(DType::u32, 0));
  const ir::Variable cube(DType::f32, ir::literal(DType::f32, 1)), logarithm(DType::f32, ir::literal(DType::f32, 0));
  ir::while_([&] { return accepted.get() == 0 && attempt.get() < most_attempts; },
             [&] {
               const auto words =
                   detail::philox_words(place, ir::cast(DType::u64, attempt.get()), key_low, key_high, spec.wide);
               const auto positive = [&](int i) { return 1.0f - detail::unit_float(words.w[i]); };  // in (0, 1]
               const Value normal = ir::sqrt(-2.0f * ir::log(positive(0))) *
                                    ir::cos(detail::unit_float(words.w[1]) * static_cast<float>(2 * std::numbers::pi));
               const Value root = normal * c + 1.0f, v = root * root * root;
               const Value bound = normal * normal * 0.5f + d - d * v + d * ir::log(v);
               const Value well = root > 0.0f && ir::log(positive(2)) < bound;
               cube.set(v), logarithm.set(ir::log(positive(3)) * power);
               accepted.set(ir::select(well, ir::literal(DType::u32, 1), ir::literal(DType::u32, 0)));
               attempt.set(attempt.get() + 1);
             });
  const Value value =
      spec.logarithm ? ir::log(d * cube.get()) + logarithm.get() : d * cube.get() * ir::exp(logarithm.get());
  out.store(ir::global_id(), value);
  return builder.finish();
}

/// The index (u64) of each element in the whole array.
Array places_of(const char* operation, const Shape& shape, const RandomOptions& options) {
  const Shape& whole = options.whole ? *options.whole : shape;
  const Shape starts = options.whole ? options.starts : Shape(shape.size(), 0);
  check_shape(operation, whole), check_shape(operation, shape);
  bool inside = starts.size() == whole.size() && shape.size() == whole.size();
  for (std::size_t d = 0; inside && d < whole.size(); ++d) inside = starts[d] >= 0 && starts[d] <= whole[d] - shape[d];
  if (!inside)
    fail<ShapeError>({.operation = operation,
                      .with = {{"whole", to_string(whole)}, {"starts", to_string(starts)}, {"part", to_string(shape)}},
                      .wrong = "the part is not inside the whole array"});
  const Strides pitches = contiguous_strides(whole);
  Array out = Array::zeros(Shape(shape.size(), 1), DType::i64, options.device);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Shape line(shape.size(), 1);
    line[d] = shape[d];
    out = out + ((Array::arange(shape[d], 0, 1, DType::i64, options.device) + starts[d]) * pitches[d]).reshape(line);
  }
  return out.astype(DType::u64).eval().as_contiguous();
}

Array gamma_numbers(const char* operation, const Shape& shape, std::uint64_t seed, double alpha, bool logarithm,
                    const RandomOptions& options) {
  require(alpha > 0 && std::isfinite(alpha), operation, "alpha", alpha,
          "the shape parameter must be positive and finite");
  const Array places = places_of(operation, shape, options);
  Array out = Array::empty(shape, DType::f32, places.device());
  if (out.size() == 0) return out;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  static auto& family = *new KernelFamily<GammaSpec>(trace_gamma);
  family({detail::has_wide_products(out.device()), logarithm})
      .launch({static_cast<std::uint64_t>(out.size()), 1, 1},
              {places.view(), out.view(), LaunchArgument::scalar(DType::u32, seed & 0xffffffffu),
               LaunchArgument::scalar(DType::u32, seed >> 32), LaunchArgument::scalar(static_cast<float>(d)),
               LaunchArgument::scalar(static_cast<float>(1 / std::sqrt(9 * d))),
               LaunchArgument::scalar(static_cast<float>(alpha < 1 ? 1 / alpha : 0))});
  return out;
}

}  // namespace

Array random_integers(Shape shape, std::uint64_t seed, std::int64_t low, std::int64_t high, DType dtype,
                      const RandomOptions& options) {
  const Operation operation("random_integers");
  if (!is_int(dtype))
    fail<DtypeError>({.operation = "random_integers",
                      .with = {{"dtype", std::string(dtype_name(dtype))}},
                      .wrong = "the dtype must be an integer dtype"});
  const std::size_t bits = dtype_size(dtype) * 8;
  const bool is_unsigned = is_unsigned_int(dtype);
  const std::int64_t least = is_unsigned  ? 0
                             : bits == 64 ? std::numeric_limits<std::int64_t>::min()
                                          : -(std::int64_t{1} << (bits - 1));
  const std::int64_t greatest =
      bits == 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << (is_unsigned ? bits : bits - 1)) - 1;
  if (low >= high || low < least || high - 1 > greatest)
    fail<ArgumentError>({.operation = "random_integers",
                         .with = {{"low", std::to_string(low)},
                                  {"high", std::to_string(high)},
                                  {"dtype", std::string(dtype_name(dtype))}},
                         .wrong = "low must be less than high, and the dtype must represent low and high - 1"});
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const Array offset = random_u64(std::move(shape), seed, options) % range;
  return operation.finish((offset.astype(DType::i64) + low).astype(dtype));
}

Array random_permutation(std::int64_t count, std::uint64_t seed, std::optional<Device> device) {
  const Operation operation("random_permutation");
  require(count >= 0, "random_permutation", "count", static_cast<double>(count), "the count is negative");
  return operation.finish(argsort(random_u64({count}, seed, {.device = device})));
}

Array random_choice(std::int64_t count, Shape shape, std::uint64_t seed, bool replace,
                    const std::vector<double>& weights, const RandomOptions& options) {
  const Operation operation("random_choice");
  const std::int64_t wanted = element_count(shape);
  require(count > 0, "random_choice", "count", static_cast<double>(count), "there is nothing to draw from");
  std::int64_t drawable = count;
  if (!weights.empty()) {
    if (static_cast<std::int64_t>(weights.size()) != count)
      fail<ArgumentError>({.operation = "random_choice",
                           .with = {{"weights", std::to_string(weights.size())}, {"count", std::to_string(count)}},
                           .wrong = "there must be one weight for each position"});
    for (const double w : weights)
      require(w >= 0 && std::isfinite(w), "random_choice", "weight", w, "a weight is negative or not finite");
    drawable = std::ranges::count_if(weights, [](double w) { return w > 0; });
    require(drawable > 0, "random_choice", "count", static_cast<double>(count), "all weights are zero");
  }
  if (replace) {
    if (weights.empty())
      return operation.finish(random_integers(std::move(shape), seed, 0, count, DType::i64, options));
    return operation.finish(by_inversion(std::move(shape), seed, {0, weights}, options));
  }
  if (options.whole)
    fail<ArgumentError>({.operation = "random_choice",
                         .wrong = "a draw without replacement has no parts, because each element depends on the others",
                         .remedy = "Draw the whole array and slice it"});
  if (wanted > drawable)
    fail<ArgumentError>({.operation = "random_choice",
                         .with = {{"wanted", std::to_string(wanted)}, {"available", std::to_string(drawable)}},
                         .wrong = "without replacement, there are not enough positions to draw",
                         .remedy = "Pass replace = true"});
  if (weights.empty())
    return operation.finish(random_permutation(count, seed, options.device).slice(0, 0, wanted).reshape(shape));
  const Array waits = random_exponential({count}, seed, 1, {.device = options.device});
  const std::vector<float> rates(weights.begin(), weights.end());
  const Array order = argsort(waits / Array::from(rates, {}, waits.device()));
  return operation.finish(order.slice(0, 0, wanted).reshape(shape));
}

Array random_exponential(Shape shape, std::uint64_t seed, double scale, const RandomOptions& options) {
  const Operation operation("random_exponential");
  require(scale >= 0 && std::isfinite(scale), "random_exponential", "scale", scale,
          "the scale must be finite and not negative");
  const Array u =
      options.whole ? random_uniform_part(*options.whole, options.starts, std::move(shape), seed, 0, 1, options.device)
                    : random_uniform(std::move(shape), seed, 0, 1, options.device);
  return operation.finish(-log1p(-u) * scale);
}

Array random_gamma(Shape shape, std::uint64_t seed, double alpha, double scale, const RandomOptions& options) {
  const Operation operation("random_gamma");
  require(scale >= 0 && std::isfinite(scale), "random_gamma", "scale", scale,
          "the scale must be finite and not negative");
  return operation.finish(gamma_numbers("random_gamma", shape, seed, alpha, false, options) * scale);
}

Array random_beta(Shape shape, std::uint64_t seed, double a, double b, const RandomOptions& options) {
  const Operation operation("random_beta");
  const Array x = gamma_numbers("random_beta", shape, seed, a, true, options);
  const Array y = gamma_numbers("random_beta", shape, second_seed(seed), b, true, options);
  return operation.finish(sigmoid(x - y));  // e^x / (e^x + e^y)
}

Array random_poisson(Shape shape, std::uint64_t seed, double mean, const RandomOptions& options) {
  const Operation operation("random_poisson");
  require(mean >= 0 && mean <= most_variance, "random_poisson", "mean", mean, "the mean must be from 0 to 1e10");
  const auto ratio = [mean](std::int64_t k) { return mean / static_cast<double>(k + 1); };
  const Masses masses = masses_around(static_cast<std::int64_t>(mean), 0, mean == 0 ? 0 : std::int64_t{1} << 62, ratio);
  return operation.finish(by_inversion(std::move(shape), seed, masses, options));
}

Array random_binomial(Shape shape, std::uint64_t seed, std::int64_t trials, double probability,
                      const RandomOptions& options) {
  const Operation operation("random_binomial");
  require(trials >= 0, "random_binomial", "trials", static_cast<double>(trials), "the number of trials is negative");
  require(probability >= 0 && probability <= 1, "random_binomial", "probability", probability,
          "the probability must be from 0 to 1");
  const double n = static_cast<double>(trials), variance = n * probability * (1 - probability);
  require(variance <= most_variance, "random_binomial", "variance", variance, "the variance must be at most 1e10");
  if (probability == 0 || probability == 1)
    return operation.finish(by_inversion(std::move(shape), seed, {probability == 0 ? 0 : trials, {1}}, options));
  const double odds = probability / (1 - probability);
  const auto ratio = [=](std::int64_t k) {
    return static_cast<double>(trials - k) / static_cast<double>(k + 1) * odds;
  };
  const auto mode = std::min(trials, static_cast<std::int64_t>((n + 1) * probability));
  return operation.finish(by_inversion(std::move(shape), seed, masses_around(mode, 0, trials, ratio), options));
}

Array random_multivariate_normal(const Array& mean, const Array& covariance, Shape shape, std::uint64_t seed,
                                 const RandomOptions& options) {
  const Operation operation("random_multivariate_normal", mean, covariance);
  if (mean.rank() != 1 || covariance.shape() != Shape{mean.size(), mean.size()})
    fail<ShapeError>({.operation = "random_multivariate_normal",
                      .with = {{"mean", to_string(mean.shape())}, {"covariance", to_string(covariance.shape())}},
                      .wrong = "the mean must be (d,), and the covariance (d, d)"});
  if (mean.dtype() != DType::f32 || covariance.dtype() != DType::f32)
    fail<DtypeError>({.operation = "random_multivariate_normal",
                      .with = {{"mean", std::string(dtype_name(mean.dtype()))},
                               {"covariance", std::string(dtype_name(covariance.dtype()))}},
                      .wrong = "both must be f32"});
  if (options.device && *options.device != mean.device())
    fail<DeviceError>({.operation = "random_multivariate_normal",
                       .with = {{"device", to_string(*options.device)}, {"mean on", to_string(mean.device())}},
                       .wrong = "the device is not that of the mean",
                       .remedy = "Move the mean and the covariance with to(...)"});
  const Shape vectors = with_axis(std::move(shape), mean.size());
  const RandomOptions all = with_axis(options, mean.size());
  const Array normal = all.whole ? random_normal_part(*all.whole, all.starts, vectors, seed, 0, 1, mean.device())
                                 : random_normal(vectors, seed, 0, 1, mean.device());
  return operation.finish(matmul(normal, cholesky(covariance).transpose()) + mean);
}

}  // namespace tessera
