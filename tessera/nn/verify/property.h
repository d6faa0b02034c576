// SPDX-License-Identifier: Apache-2.0
// What may be asked of a model: properties of what it gives for each input, as values.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/enum_name.h"

namespace tessera {

/// How the distance of two inputs is measured.
enum class Norm : std::uint8_t { infinity, two, one };

/// Of one sample's output, or of the outputs of two inputs. Made by the functions below.
struct Property {
  /// Kinds of properties, one for each of the functions below.
  enum class Kind : std::uint8_t { finite, bounded, inequality, probabilities, robust, monotone, lipschitz, predicate };
  Kind kind = Kind::finite;               ///< The kind.
  double low = 0, high = 0;               ///< bounded; inequality: `high`
  std::vector<double> coefficients = {};  ///< inequality
  double tolerance = 0;                   ///< probabilities, monotone, lipschitz
  double radius = 0;                      ///< robust, lipschitz
  Norm norm = Norm::infinity;             ///< robust
  std::int64_t input = 0;                 ///< monotone
  double constant = 0;                    ///< lipschitz
  std::string name = {};                  ///< predicate
  /// predicate: the function, of inputs and outputs.
  std::function<Array(const Array& x, const Array& y)> holds = {};
};

/// No output is NaN or infinite.
Property finite();
/// All outputs are from `low` to `high`. ArgumentError: not in this order, or NaN.
Property bounded(double low, double high);
/// The outputs of a sample (in C order), each times its coefficient, sum to `bound` at most: {1, -1} and 0 say that the
/// second output is never below the first. ArgumentError: no coefficients, or numbers that are not finite.
Property inequality(std::vector<double> coefficients, double bound);
/// All outputs are from 0 to 1 + tolerance, and their sum over a sample is within `tolerance` of 1.
Property probabilities(double tolerance = 1e-4);
/// The class, which is the place of a sample's largest output (the first of equal ones), stays the same for all inputs
/// within `radius`. ArgumentError: the radius is not a number above 0.
Property robust(double radius, Norm norm = Norm::infinity);
/// No output gets smaller when the input at this place of a sample (in C order) gets larger, but by `tolerance` times
/// the larger of 1 and the output: rounding.
Property monotone(std::int64_t input, double tolerance = 1e-6);
/// Within `radius`, no output differs by more than `constant` times the largest difference of an input; `tolerance` as
/// with monotone.
Property lipschitz(double constant, double radius, double tolerance = 1e-6);
/// Given a batch and what the model gives for it, an array (batch,) that is true (not 0) where it holds.
Property predicate(std::string name, std::function<Array(const Array& x, const Array& y)> holds);

std::string to_string(const Property& property);  ///< "bounded(-1, 1)"
/// The property of such a text; no predicate. ArgumentError says which there are.
Property property_of(const std::string& text);

/// An input for which a property does not hold, as the model's device computed it.
struct Counterexample {
  Array input, output;  ///< one sample each, with a batch of 1
  /// Of properties of two inputs the other one: for `robust` the input whose class is another one near by.
  std::optional<Array> other_input, other_output;
  std::string what;  ///< "output 3 is 1.25, above 1"
};
std::string to_string(const Counterexample& found);  ///< lines for people: what, the first inputs and outputs

namespace verification {

/// What is wrong with one sample's output by a property of one input; empty: nothing. Not of predicates. An inequality
/// is broken by more than the rounding of its sum.
std::string wrong_with(const Property& property, const float* output, std::int64_t outputs);
/// The first largest; -1 if one is NaN.
std::int64_t class_of(const float* output, std::int64_t outputs);
/// The distance of two vectors of `n` elements.
double distance(Norm norm, const float* a, const float* b, std::int64_t n);
const char* name_of(Norm norm);  ///< The norm's name, for files and messages.

}  // namespace verification
}  // namespace tessera
