// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/property.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {

namespace {

[[noreturn]] void refuse(const std::string& asked, const std::string& wrong) {
  fail<ArgumentError>({.operation = asked, .wrong = wrong});
}
void check_tolerance(const std::string& asked, double tolerance) {
  if (!(tolerance >= 0 && tolerance < 1)) refuse(asked, "a tolerance must be at least 0 and below 1");
}

}  // namespace

Property finite() { return {.kind = Property::Kind::finite}; }
Property bounded(double low, double high) {
  if (!(low <= high))
    refuse(fmt::format("bounded({}, {})", low, high),
           "the bounds must be numbers, and the lower one must not exceed the upper one");
  return {.kind = Property::Kind::bounded, .low = low, .high = high};
}
Property inequality(std::vector<double> coefficients, double bound) {
  bool good = !coefficients.empty() && std::isfinite(bound);
  for (const double c : coefficients) good &= std::isfinite(c);
  if (!good) refuse("inequality", "one finite coefficient per output and a finite bound are required");
  return {.kind = Property::Kind::inequality, .high = bound, .coefficients = std::move(coefficients)};
}
Property probabilities(double tolerance) {
  check_tolerance("probabilities", tolerance);
  return {.kind = Property::Kind::probabilities, .tolerance = tolerance};
}
Property robust(double radius, Norm norm) {
  if (!(radius > 0 && radius < 1e30)) refuse(fmt::format("robust({})", radius), "the radius must be a number above 0");
  return {.kind = Property::Kind::robust, .radius = radius, .norm = norm};
}
Property monotone(std::int64_t input, double tolerance) {
  if (input < 0) refuse(fmt::format("monotone({})", input), "the input's index must be at least 0");
  check_tolerance("monotone", tolerance);
  return {.kind = Property::Kind::monotone, .tolerance = tolerance, .input = input};
}
Property lipschitz(double constant, double radius, double tolerance) {
  if (!(constant >= 0 && constant < 1e30) || !(radius > 0 && radius < 1e30))
    refuse(fmt::format("lipschitz({}, {})", constant, radius),
           "the constant must be at least 0, and the radius above 0");
  check_tolerance("lipschitz", tolerance);
  return {.kind = Property::Kind::lipschitz, .tolerance = tolerance, .radius = radius, .constant = constant};
}
Property predicate(std::string name, Callback<Array(const Array& x, const Array& y)> holds) {
  if (!holds) refuse("predicate", "the predicate needs a function");
  return {.kind = Property::Kind::predicate, .name = std::move(name), .holds = std::move(holds)};
}

std::string to_string(const Property& p) {
  switch (p.kind) {
    case Property::Kind::finite: return "finite()";
    case Property::Kind::bounded: return fmt::format("bounded({}, {})", p.low, p.high);
    case Property::Kind::inequality:
      return fmt::format("inequality({} <= {})", fmt::join(p.coefficients, ", "), p.high);
    case Property::Kind::probabilities: return fmt::format("probabilities({})", p.tolerance);
    case Property::Kind::robust: return fmt::format("robust({}, {})", p.radius, verification::name_of(p.norm));
    case Property::Kind::monotone: return fmt::format("monotone({}, {})", p.input, p.tolerance);
    case Property::Kind::lipschitz: return fmt::format("lipschitz({}, {}, {})", p.constant, p.radius, p.tolerance);
    default: return fmt::format("predicate({})", p.name);
  }
}

Property property_of(const std::string& text) {
  const auto bad = [&]() -> Property {
    fail<ArgumentError>({.operation = "property_of",
                         .with = {{"text", text}},
                         .wrong = "unknown property",
                         .remedy = "finite(), bounded(LOW, HIGH), inequality(C0, C1, ... <= BOUND), probabilities(), "
                                   "robust(RADIUS, infinity|two|one), "
                                   "monotone(INPUT) or lipschitz(CONSTANT, RADIUS)"});
  };
  std::string plain;
  for (const char c : text)
    if (c != ' ') plain += c;
  const std::size_t open = plain.find('(');
  const std::string name = plain.substr(0, open);
  std::vector<std::string> words;
  if (open != plain.npos) {
    if (!plain.ends_with(')')) return bad();
    const std::string inside = plain.substr(open + 1, plain.size() - open - 2);
    for (std::size_t at = 0; at < inside.size();) {
      const std::size_t end = std::min(inside.find(',', at), inside.size());
      words.push_back(inside.substr(at, end - at));
      at = end + 1;
      if (at == inside.size()) return bad();
    }
  }
  if (name == "inequality" && !words.empty()) {
    const std::size_t sign = words.back().find("<=");
    if (sign == plain.npos) return bad();
    const std::string limit = words.back().substr(sign + 2);
    words.back().resize(sign);
    words.push_back(limit);
  }
  Norm norm = Norm::infinity;
  if (name == "robust" && words.size() == 2) {
    const std::string& word = words.back();
    if (word != "infinity" && word != "two" && word != "one") return bad();
    norm = word == "two" ? Norm::two : word == "one" ? Norm::one : Norm::infinity;
    words.pop_back();
  }
  std::vector<double> n;
  for (const std::string& word : words) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size()) return bad();
    n.push_back(value);
  }
  if (name == "finite" && n.empty()) return finite();
  if (name == "bounded" && n.size() == 2) return bounded(n[0], n[1]);
  if (name == "inequality" && n.size() >= 2) {
    const double bound = n.back();
    n.pop_back();
    return inequality(n, bound);
  }
  if (name == "probabilities" && n.size() <= 1) return n.empty() ? probabilities() : probabilities(n[0]);
  if (name == "robust" && n.size() == 1) return robust(n[0], norm);
  if (name == "monotone" && (n.size() == 1 || n.size() == 2) && n[0] >= 0 && n[0] < 1e15 && n[0] == std::floor(n[0]))
    return n.size() == 1 ? monotone(static_cast<std::int64_t>(n[0])) : monotone(static_cast<std::int64_t>(n[0]), n[1]);
  if (name == "lipschitz" && n.size() == 2) return lipschitz(n[0], n[1]);
  if (name == "lipschitz" && n.size() == 3) return lipschitz(n[0], n[1], n[2]);
  return bad();
}

namespace verification {

const char* name_of(Norm norm) { return norm == Norm::infinity ? "infinity" : norm == Norm::two ? "two" : "one"; }

std::string wrong_with(const Property& p, const float* y, std::int64_t n) {
  double sum = 0, combined = 0, magnitude = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = y[i];
    sum += v;
    if (p.kind == Property::Kind::inequality) {
      const double term = v * p.coefficients[static_cast<std::size_t>(i)];
      combined += term, magnitude += std::abs(term);
    }
    if (!std::isfinite(v)) return fmt::format("output {} is {}", i, v);
    if (p.kind == Property::Kind::bounded && v < p.low) return fmt::format("output {} is {}, below {}", i, v, p.low);
    if (p.kind == Property::Kind::bounded && v > p.high) return fmt::format("output {} is {}, above {}", i, v, p.high);
    if (p.kind == Property::Kind::probabilities && (v < 0 || v > 1 + p.tolerance))
      return fmt::format("output {} is {}, which is not a probability", i, v);
  }
  if (p.kind == Property::Kind::probabilities && std::abs(sum - 1) > p.tolerance)
    return fmt::format("the outputs' sum is {}", sum);
  if (p.kind == Property::Kind::inequality && combined - magnitude * static_cast<double>(n + 2) * 0x1p-52 > p.high)
    return fmt::format("the sum is {}, above {}", combined, p.high);
  return {};
}
std::int64_t class_of(const float* y, std::int64_t n) {
  std::int64_t best = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isnan(y[i])) return -1;
    if (y[i] > y[best]) best = i;
  }
  return best;
}
double distance(Norm norm, const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    sum = norm == Norm::infinity ? std::max(sum, d) : sum + (norm == Norm::two ? d * d : d);
  }
  return norm == Norm::two ? std::sqrt(sum) : sum;
}

}  // namespace verification
}  // namespace tessera
