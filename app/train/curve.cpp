// SPDX-License-Identifier: Apache-2.0
#include "train/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "train/svg.h"

namespace tessera::app {
namespace {

constexpr std::string_view head = "step,samples,rate,loss,held_out_loss,held_out_accuracy\n";

std::string field(double value) { return std::isnan(value) ? "" : fmt::format("{:.9g}", value); }

template <class T>
bool read(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string to_csv(const std::vector<CurveRow>& curve) {
  std::string out(head);
  for (const CurveRow& r : curve)
    out += fmt::format("{},{},{},{},{},{}\n", r.step, r.samples, field(r.rate), field(r.loss), field(r.held_out_loss),
                       field(r.held_out_accuracy));
  return out;
}

std::vector<CurveRow> curve_of(std::string_view csv, const std::string& from) {
  std::vector<CurveRow> out;
  if (!csv.starts_with(head))
    fail<FormatError>({.operation = "read a learning curve",
                       .with = {{"in", from}},
                       .wrong = "its columns are not those of a learning curve"});
  csv.remove_prefix(head.size());
  for (std::size_t line = 2; !csv.empty(); ++line) {
    std::string_view row = csv.substr(0, csv.find('\n'));
    csv.remove_prefix(std::min(row.size() + 1, csv.size()));
    std::vector<std::string_view> fields;
    for (;; row.remove_prefix(fields.back().size() + 1)) {
      fields.push_back(row.substr(0, row.find(',')));
      if (fields.back().size() == row.size()) break;
    }
    CurveRow r;
    const auto real = [&](std::size_t i, double& value) {
      value = std::numeric_limits<double>::quiet_NaN();
      return fields[i].empty() || read(fields[i], value);
    };
    if (fields.size() != 6 || !read(fields[0], r.step) || !read(fields[1], r.samples) || !real(2, r.rate) ||
        !real(3, r.loss) || !real(4, r.held_out_loss) || !real(5, r.held_out_accuracy))
      fail<FormatError>({.operation = "read a learning curve",
                         .with = {{"in", from}, {"line", std::to_string(line)}},
                         .wrong = "the line does not contain six numbers"});
    out.push_back(r);
  }
  return out;
}

std::string to_svg(const std::vector<CurveRow>& curve, std::uint64_t steps, std::string_view title) {
  Svg svg(760, 560, title);
  svg.text(20, 28, title);
  PlotLine loss{"training", {}}, held_out{"held out", {}}, accuracy{"held out", {}};
  double highest = 0, lowest = 1;
  for (const CurveRow& r : curve) {
    const double x = static_cast<double>(r.step);
    loss.points.emplace_back(x, r.loss);
    held_out.points.emplace_back(x, r.held_out_loss);
    accuracy.points.emplace_back(x, r.held_out_accuracy * 100);
    for (const double y : {r.loss, r.held_out_loss})
      if (std::isfinite(y)) highest = std::max(highest, y);
    if (std::isfinite(r.held_out_accuracy)) lowest = std::min(lowest, r.held_out_accuracy);
  }
  const double end = static_cast<double>(std::max<std::uint64_t>(steps, 1));
  draw(svg, {.left = 70,
             .top = 70,
             .width = 660,
             .height = 190,
             .x_high = end,
             .y_high = highest > 0 ? 1.05 * highest : 1,
             .x_label = "",
             .y_label = "loss",
             .lines = {std::move(loss), std::move(held_out)}});
  draw(svg, {.left = 70,
             .top = 310,
             .width = 660,
             .height = 190,
             .x_high = end,
             .y_low = std::min(90.0, std::floor(lowest * 10) * 10),
             .y_high = 100,
             .x_label = "steps",
             .y_label = "accuracy, %",
             .lines = {std::move(accuracy)},
             .first_colour = 1});
  return svg.str();
}

}  // namespace tessera::app
