// SPDX-License-Identifier: Apache-2.0
// Properties that the outputs of a model may have.
#pragma once

#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/callback.h"
#include "tessera/base/enum_name.h"

namespace tessera {

/// The norm that measures the distance between two inputs.
enum class Norm : std::uint8_t { infinity, two, one };

/// A property of a model's output for one input, or of its outputs for two inputs. Created by the functions below.
struct Property {
  /// Kinds of properties, one for each of the functions below.
  enum class Kind : std::uint8_t { finite, bounded, inequality, probabilities, robust, monotone, lipschitz, predicate };
  Kind kind = Kind::finite;               ///< The kind.
  double low = 0, high = 0;               ///< bounds of `bounded`; inequality uses `high` only
  std::vector<double> coefficients = {};  ///< used by inequality
  double tolerance = 0;                   ///< used by probabilities, monotone and lipschitz
  double radius = 0;                      ///< used by robust and lipschitz
  Norm norm = Norm::infinity;             ///< used by robust
  std::int64_t input = 0;                 ///< used by monotone
  double constant = 0;                    ///< used by lipschitz
  std::string name = {};                  ///< used by predicate
  /// Used by predicate: the function of inputs and outputs.
  Callback<Array(const Array& x, const Array& y)> holds = {};
};

/// No output is NaN or infinite.
Property finite();
/// All outputs are between `low` and `high`. Throws ArgumentError if a bound is NaN or `low` exceeds `high`.
Property bounded(double low, double high);
/// The sum of a sample's outputs (in C order) times the coefficients is at most `bound`. For example, {1, -1} and 0
/// mean that the second output is never below the first. Throws ArgumentError if there are no coefficients, or if a
/// number is not finite.
Property inequality(std::vector<double> coefficients, double bound);
/// All outputs are between 0 and 1 + tolerance, and the sum of a sample's outputs differs from 1 by at most
/// `tolerance`.
Property probabilities(double tolerance = 1e-4);
/// All inputs within `radius` have the same class. The class is the index of the sample's largest output, or of the
/// first of several equal ones. Throws ArgumentError if the radius is not a number above 0.
Property robust(double radius, Norm norm = Norm::infinity);
/// No output decreases when the input at this index (in C order) increases. A decrease due to rounding is allowed, up
/// to `tolerance` times the larger of 1 and the output's absolute value. Throws ArgumentError if the index is negative.
Property monotone(std::int64_t input, double tolerance = 1e-6);
/// If inputs differ by at most `radius`, no output differs by more than `constant` times the largest difference of an
/// input element. `tolerance` has the same meaning as for monotone.
Property lipschitz(double constant, double radius, double tolerance = 1e-6);
/// A user-defined property. The function receives a batch and the model's outputs. It returns an array (batch,) that is
/// not 0 for samples that have the property.
Property predicate(std::string name, Callback<Array(const Array& x, const Array& y)> holds);

std::string to_string(const Property& property);  ///< Formats as "bounded(-1, 1)".
/// Parses a property that was formatted by to_string. Predicates are not supported. Throws ArgumentError with a list of
/// all properties if the text is not one of them.
Property property_of(const std::string& text);

/// An input for which the model violates a property, computed on the model's device.
struct Counterexample {
  Array input, output;  ///< one sample, as a batch of 1
  /// The second input and its output, for properties of two inputs. For `robust`, a nearby input with another class.
  std::optional<Array> other_input, other_output;
  std::string what;  ///< description, such as "output 3 is 1.25, above 1"
};
/// Describes the violation and the first inputs and outputs, on several lines.
std::string to_string(const Counterexample& found);

namespace verification {

/// Describes how a sample's output violates a property of one input. Returns an empty string if it does not. An
/// inequality is only violated if it fails by more than the rounding error of its sum. Does not support predicates.
std::string wrong_with(const Property& property, const float* output, std::int64_t outputs);
/// Returns the index of the first maximum, or -1 if an element is NaN.
std::int64_t class_of(const float* output, std::int64_t outputs);
/// Returns the distance between two vectors with `n` elements.
double distance(Norm norm, const float* a, const float* b, std::int64_t n);
const char* name_of(Norm norm);  ///< Returns the name of a norm, for files and messages.

}  // namespace verification
}  // namespace tessera
