// SPDX-License-Identifier: Apache-2.0
// How a training went: a row of figures now and then, as CSV, and drawn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

struct CurveRow {
  std::uint64_t step = 0, samples = 0;  ///< made so far
  double rate = 0;                      ///< of learning, of the last step
  double loss = 0;                      ///< mean of the steps since the row before; NaN in the first
  double held_out_loss = 0, held_out_accuracy = 0;
};

/// step,samples,rate,loss,held_out_loss,held_out_accuracy, with nine digits. What is NaN is an empty field.
std::string to_csv(const std::vector<CurveRow>& curve);
/// The same back. FormatError, with the line, if it is not of to_csv; `from` stands for its place in the message.
std::vector<CurveRow> curve_of(std::string_view csv, const std::string& from);
/// Losses above, accuracy below, over the steps; `steps` is where the axis ends.
std::string to_svg(const std::vector<CurveRow>& curve, std::uint64_t steps, std::string_view title);

}  // namespace tessera::app
