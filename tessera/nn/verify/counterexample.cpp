// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/counterexample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tessera/array/functions.h"
#include "tessera/nn/mode.h"

namespace tessera::verification {

namespace {

using Sample = std::vector<float>;

Array array_of(const Runner& runner, const Sample& x) { return runner.batch(x); }
Array output_of(const std::vector<float>& y, Device device) {
  return Array::from(y, Shape{1, static_cast<std::int64_t>(y.size())}, device);
}
Counterexample pair_of(const Runner& runner, const Sample& x, const Sample& other, std::string what) {
  const Array in = array_of(runner, x);
  return {in, output_of(runner.outputs(x), in.device()), array_of(runner, other),
          output_of(runner.outputs(other), in.device()), std::move(what)};
}

/// Describes how the outputs of two inputs violate `monotone` or `lipschitz`. Returns an empty string if they do not.
std::string wrong_with_pair(const Property& p, const Sample& x, const Sample& other, const std::vector<float>& y,
                            const std::vector<float>& other_y) {
  const double away = distance(Norm::infinity, x.data(), other.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double a = y[i], b = other_y[i], slack = p.tolerance * std::max({1.0, std::abs(a), std::abs(b)});
    if (p.kind == Property::Kind::monotone && !(b >= a - slack))
      return fmt::format("output {} falls from {} to {} as input {} rises from {} to {}", i, a, b, p.input,
                         x[static_cast<std::size_t>(p.input)], other[static_cast<std::size_t>(p.input)]);
    if (p.kind == Property::Kind::lipschitz && !(std::abs(b - a) <= p.constant * away + slack))
      return fmt::format("output {} changes by {} where the inputs differ by {}", i, std::abs(b - a), away);
  }
  return {};
}

/// Changes each sample randomly. For monotone, input `p.input` is set to its value in another sample. Otherwise, all
/// inputs are changed within the radius.
Sample changed(const Property& p, const Sample& x, std::size_t size, std::mt19937_64& random) {
  Sample out = x;
  std::uniform_real_distribution<double> part(-1, 1);
  const std::size_t count = x.size() / size;
  for (std::size_t s = 0; s < count; ++s)
    if (p.kind == Property::Kind::monotone) {
      const auto at = static_cast<std::size_t>(p.input);
      const float other = x[(s + 1 + random() % count) % count * size + at];
      out[s * size + at] = other != x[s * size + at] ? other : other + static_cast<float>(std::abs(part(random)));
    } else {
      for (std::size_t i = 0; i < size; ++i) {
        float& v = out[s * size + i];
        v = static_cast<float>(v + part(random) * p.radius * (1 - 1e-6));
      }
    }
  return out;
}

class Samples {
 public:
  Samples(const Runner& runner, const Property& property, const Array& data, std::uint64_t seed)
      : runner_(runner), p_(property), data_(data), random_(seed) {}
  std::optional<Counterexample> search() {
    constexpr std::int64_t at_once = 4096;
    for (std::int64_t begin = 0; begin < data_.shape(0); begin += at_once) {
      const Array part = data_.slice(0, begin, std::min(data_.shape(0), begin + at_once));
      const Sample x = part.to(Device{}).astype(DType::f32).to_vector<float>();
      if (auto found = p_.kind == Property::Kind::predicate ? by_predicate(x) : of_batch(x)) return found;
    }
    return std::nullopt;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(runner_.size()); }
  Sample one(const Sample& x, std::size_t s) const {
    return {x.begin() + static_cast<std::ptrdiff_t>(s * size()),
            x.begin() + static_cast<std::ptrdiff_t>((s + 1) * size())};
  }
  std::optional<Counterexample> of_batch(const Sample& x) {
    const std::vector<float> y = runner_.outputs(x);
    const std::size_t count = x.size() / size(), outputs = y.size() / count;
    if (p_.kind == Property::Kind::robust) {
      for (std::size_t s = 0; s < count; ++s)
        if (auto found = near(one(x, s))) return found;
      return std::nullopt;
    }
    if (p_.kind == Property::Kind::monotone || p_.kind == Property::Kind::lipschitz) return of_pairs(x);
    for (std::size_t s = 0; s < count; ++s)
      if (!wrong_with(p_, y.data() + s * outputs, static_cast<std::int64_t>(outputs)).empty())
        if (auto found = confirmed(runner_, p_, one(x, s))) return found;
    return std::nullopt;
  }
  std::optional<Counterexample> of_pairs(const Sample& x) {
    for (int round = 0; round < 4; ++round) {
      Sample low = x, high = changed(p_, x, size(), random_);
      const std::size_t count = x.size() / size();
      for (std::size_t s = 0; s < count && p_.kind == Property::Kind::monotone; ++s) {
        const std::size_t at = s * size() + static_cast<std::size_t>(p_.input);
        if (low[at] > high[at]) std::swap(low[at], high[at]);
      }
      const std::vector<float> y = runner_.outputs(low), other = runner_.outputs(high);
      const std::size_t outputs = y.size() / count;
      for (std::size_t s = 0; s < count; ++s) {
        const auto of = [&](const std::vector<float>& all) {
          return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(s * outputs),
                                    all.begin() + static_cast<std::ptrdiff_t>((s + 1) * outputs));
        };
        const Sample a = one(low, s), b = one(high, s);
        if (wrong_with_pair(p_, a, b, of(y), of(other)).empty()) continue;
        std::string what = wrong_with_pair(p_, a, b, runner_.outputs(a), runner_.outputs(b));
        if (!what.empty()) return pair_of(runner_, a, b, std::move(what));
      }
    }
    return std::nullopt;
  }
  std::optional<Counterexample> near(const Sample& x) {
    const InputBox box = InputBox::at(runner_.batch(x).reshape(runner_.sample()));
    const std::vector<float> y = runner_.outputs(x);
    const std::int64_t kept = class_of(y.data(), static_cast<std::int64_t>(y.size()));
    if (kept < 0) return confirmed(runner_, {.kind = Property::Kind::finite}, x);
    const std::vector<Goal> goals = goals_of(p_, static_cast<std::int64_t>(y.size()), kept);
    const InputBox wide = InputBox::around(runner_.batch(x).reshape(runner_.sample()), p_.radius);
    const Ball ball{box.low, box.high, p_.radius, p_.norm};
    Attack attack(runner_, goals, {wide.low, wide.high}, &ball, random_());
    for (const Sample& found : attack.by_gradients(20))
      if (auto pair = confirmed_pair(runner_, p_, box, x, found)) return pair;
    return std::nullopt;
  }
  std::optional<Counterexample> by_predicate(const Sample& x) {
    const auto broken = [&](const Array& in, std::size_t& at) {
      const Array y = runner_.run(in);
      const Array holds = p_.holds(in, y);
      if (holds.shape() != Shape{in.shape(0)})
        fail<ShapeError>({.operation = "find_counterexample",
                          .with = {{"predicate", p_.name}, {"gave", to_string(holds.shape())}},
                          .wrong = "a predicate must return one truth value per sample, (batch,)"});
      const std::vector<float> all = holds.astype(DType::f32).to_vector<float>();
      at = static_cast<std::size_t>(std::ranges::find(all, 0.0f) - all.begin());
      return at < all.size();
    };
    std::size_t at = 0;
    if (!broken(runner_.batch(x), at)) return std::nullopt;
    const Array alone = runner_.batch(one(x, at));
    if (std::size_t first = 0; !broken(alone, first)) return std::nullopt;
    return Counterexample{alone, runner_.run(alone).eval(), {}, {}, "the predicate " + p_.name + " is violated"};
  }

  const Runner& runner_;
  const Property& p_;
  const Array& data_;
  std::mt19937_64 random_;
};

}  // namespace

std::int64_t class_at(const Runner& runner, const Sample& x) {
  const std::vector<float> y = runner.outputs(x);
  return class_of(y.data(), static_cast<std::int64_t>(y.size()));
}

std::optional<Counterexample> confirmed(const Runner& runner, const Property& property, const Sample& x) {
  const std::vector<float> y = runner.outputs(x);
  std::string what = wrong_with(property, y.data(), static_cast<std::int64_t>(y.size()));
  if (what.empty()) return std::nullopt;
  const Array in = array_of(runner, x);
  return Counterexample{in, output_of(y, in.device()), {}, {}, std::move(what)};
}

std::optional<Counterexample> confirmed_pair(const Runner& runner, const Property& property, const InputBox& box,
                                             const Sample& centre, const Sample& x) {
  Sample near(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) near[i] = std::clamp(x[i], box.low[i], box.high[i]);
  const auto size = static_cast<std::int64_t>(x.size());
  Sample other = x;
  if (distance(property.norm, near.data(), x.data(), size) > property.radius) return std::nullopt;
  if (class_at(runner, near) == class_at(runner, other)) {
    other = near, near = centre;  // both are in the box: bisect the segment between them
    const std::int64_t kept = class_at(runner, near);
    if (kept == class_at(runner, other)) return std::nullopt;
    for (int i = 0; i < 200 && distance(property.norm, near.data(), other.data(), size) > property.radius; ++i) {
      Sample middle(x.size());
      for (std::size_t k = 0; k < x.size(); ++k) middle[k] = near[k] + (other[k] - near[k]) / 2;
      (class_at(runner, middle) == kept ? near : other) = middle;
    }
    if (distance(property.norm, near.data(), other.data(), size) > property.radius) return std::nullopt;
  }
  return pair_of(runner, near, other,
                 fmt::format("the class is {} and {} at inputs that differ by {}", class_at(runner, near),
                             class_at(runner, other), distance(property.norm, near.data(), other.data(), size)));
}

std::optional<Counterexample> search_subject(const Subject& subject, const Property& property, const Array& data,
                                             std::uint64_t seed) {
  const auto wrong = [&](const std::string& what, const std::string& remedy = {}) {
    fail<ArgumentError>({.operation = "find_counterexample",
                         .with = {{"property", to_string(property)}, {"data", to_string(data.shape())}},
                         .wrong = what,
                         .remedy = remedy});
  };
  if (training() != nullptr) wrong("properties apply to inference, but this is a Training scope");
  if (data.rank() < 1 || data.size() == 0) wrong("data must be a non-empty batch of samples, (batch, ...)");
  const Shape sample(data.shape().begin() + 1, data.shape().end());
  if (property.kind == Property::Kind::monotone && property.input >= element_count(sample))
    wrong("a sample has no input with this index");
  const Runner runner(subject, sample);
  if (property.kind == Property::Kind::inequality) {
    const auto first = data.slice(0, 0, 1).to(Device{}).astype(DType::f32).to_vector<float>();
    if (runner.outputs(first).size() != property.coefficients.size())
      wrong("the inequality needs one coefficient for each output");
  }
  return Samples(runner, property, data, seed).search();
}

}  // namespace tessera::verification
