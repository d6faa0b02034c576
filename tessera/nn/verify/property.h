// SPDX-License-Identifier: Apache-2.0
// Properties of a model's outputs, as values.
#pragma once

#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"

namespace tessera {

/// The norm of the distance between two inputs.
enum class Norm : std::uint8_t { infinity, two, one };

/// A property of one sample's output, or of the outputs of two inputs. Created by the functions below.
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
  /// predicate: the function of inputs and outputs.
  Callback<Array(const Array& x, const Array& y)> holds = {};
};

/// No output is NaN or infinite.
Property finite();
/// All outputs are between `low` and `high`. Throws ArgumentError if they are NaN or not in this order.
Property bounded(double low, double high);
/// The sum of a sample's outputs (in C order) times the coefficients is at most `bound`: {1, -1} and 0 mean that the
/// second output is never below the first. Throws ArgumentError for no coefficients, or numbers that are not finite.
Property inequality(std::vector<double> coefficients, double bound);
/// All outputs are between 0 and 1 + tolerance, and their sum over a sample is within `tolerance` of 1.
Property probabilities(double tolerance = 1e-4);
/// The class (index of a sample's largest output; the first of equal ones) is the same for all inputs within `radius`.
/// Throws ArgumentError if the radius is not a number above 0.
Property robust(double radius, Norm norm = Norm::infinity);
/// No output decreases when the input at this index (in C order) increases, except for rounding: by at most `tolerance`
/// times the larger of 1 and the output.
Property monotone(std::int64_t input, double tolerance = 1e-6);
/// Within `radius`, no output changes by more than `constant` times the largest change of an input element; `tolerance`
/// as for monotone.
Property lipschitz(double constant, double radius, double tolerance = 1e-6);
/// A function of a batch and the model's outputs, which returns an array (batch,) that is true (not 0) where the
/// property holds.
Property predicate(std::string name, Callback<Array(const Array& x, const Array& y)> holds);

std::string to_string(const Property& property);  ///< "bounded(-1, 1)"
/// Parses a property's text; no predicates. Throws ArgumentError, with the list of properties, if it is none.
Property property_of(const std::string& text);

/// An input that violates a property, as computed on the model's device.
struct Counterexample {
  Array input, output;  ///< one sample each, with a batch of 1
  /// For properties of two inputs, the other one: for `robust`, a nearby input with another class.
  std::optional<Array> other_input, other_output;
  std::string what;  ///< "output 3 is 1.25, above 1"
};
std::string to_string(const Counterexample& found);  ///< human-readable lines: what, and the first inputs and outputs

namespace verification {

/// How one sample's output violates a property of one input; empty if it does not. Not for predicates. An inequality is
/// violated by more than the rounding error of its sum.
std::string wrong_with(const Property& property, const float* output, std::int64_t outputs);
/// Index of the first maximum; -1 if an element is NaN.
std::int64_t class_of(const float* output, std::int64_t outputs);
/// The distance of two vectors with `n` elements.
double distance(Norm norm, const float* a, const float* b, std::int64_t n);
const char* name_of(Norm norm);  ///< The norm's name, for files and messages.

}  // namespace verification
}  // namespace tessera
