// SPDX-License-Identifier: Apache-2.0
// The learning curve of a training run, which can be written as CSV or SVG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

struct CurveRow {
  std::uint64_t step = 0, samples = 0;  ///< steps and samples so far
  double rate = 0;                      ///< learning rate of the last step
  double loss = 0;                      ///< mean over the steps since the previous row; NaN in the first row
  double held_out_loss = 0, held_out_accuracy = 0;
};

/// Returns the curve as CSV with the columns step, samples, rate, loss, held_out_loss and held_out_accuracy. Numbers
/// have nine digits, and NaN is written as an empty field.
std::string to_csv(const std::vector<CurveRow>& curve);
/// Parses the output of to_csv. Throws FormatError if the text is invalid. The message contains the line and `from`,
/// the name of the source.
std::vector<CurveRow> curve_of(std::string_view csv, const std::string& from);
/// Plots the losses and, below them, the accuracy over the steps. The axis ends at `steps`.
std::string to_svg(const std::vector<CurveRow>& curve, std::uint64_t steps, std::string_view title);

}  // namespace tessera::app
