// SPDX-License-Identifier: Apache-2.0
// The learning curve: rows of metrics, as CSV and as SVG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

struct CurveRow {
  std::uint64_t step = 0, samples = 0;  ///< done so far
  double rate = 0;                      ///< learning rate of the last step
  double loss = 0;                      ///< mean over the steps since the previous row; NaN in the first
  double held_out_loss = 0, held_out_accuracy = 0;
};

/// Writes the columns step,samples,rate,loss,held_out_loss,held_out_accuracy with nine digits. NaN is an empty field.
std::string to_csv(const std::vector<CurveRow>& curve);
/// Parses the output of to_csv. Throws FormatError, with the line, for other text; `from` is the source's name in the
/// message.
std::vector<CurveRow> curve_of(std::string_view csv, const std::string& from);
/// Draws losses above and accuracy below over the steps; `steps` is the end of the axis.
std::string to_svg(const std::vector<CurveRow>& curve, std::uint64_t steps, std::string_view title);

}  // namespace tessera::app
