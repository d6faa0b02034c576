// SPDX-License-Identifier: Apache-2.0
#include "train/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tessera::app {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

constexpr std::string_view style = R"(<style>
  .ground { fill: #ffffff } .ink { fill: #222222; stroke: none } line.ink { stroke: #222222 }
  .faint { fill: #777777; stroke: none } line.faint { stroke: #dddddd }
  text { font: 13px sans-serif } polyline { fill: none; stroke-width: 2 }
  .line0 { stroke: #1769aa; fill: none } .line1 { stroke: #c2410c; fill: none } .line2 { stroke: #15803d; fill: none }
  .fill0 { fill: #9cc7ea } .fill1 { fill: #f6b48f } .fill2 { fill: #a3d9b1 }
  .dot0 { fill: #1769aa } .dot1 { fill: #c2410c } .dot2 { fill: #15803d }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14171a } .ink { fill: #e6e6e6 } line.ink { stroke: #e6e6e6 }
    .faint { fill: #9a9a9a } line.faint { stroke: #33383d }
    .line0 { stroke: #6cb6f0 } .line1 { stroke: #fb9a5f } .line2 { stroke: #5fd083 }
    .fill0 { fill: #1d4a6e } .fill1 { fill: #74371a } .fill2 { fill: #1f5431 }
    .dot0 { fill: #6cb6f0 } .dot1 { fill: #fb9a5f } .dot2 { fill: #5fd083 }
  }
</style>
)";

}  // namespace

Svg::Svg(int width, int height, std::string_view title)
    : body_(fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
                        "version=\"1.1\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\n"
                        "<title>{2}</title>\n{3}",
                        width, height, escaped(title), style)) {
  rectangle(0, 0, width, height, "ground");
}
void Svg::line(double x1, double y1, double x2, double y2, std::string_view colour) {
  body_ += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", colour, x1, y1,
                       x2, y2);
}
void Svg::polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour) {
  body_ += fmt::format("<polyline class=\"{}\" points=\"", colour);
  for (std::size_t i = 0; i < points.size(); ++i)
    body_ += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", points[i].first, points[i].second);
  body_ += "\"/>\n";
}
void Svg::rectangle(double x, double y, double width, double height, std::string_view colour) {
  body_ += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", colour, x,
                       y, width, height);
}
void Svg::circle(double x, double y, double radius, std::string_view colour) {
  body_ += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>\n", colour, x, y, radius);
}
void Svg::text(double x, double y, std::string_view text, std::string_view anchor, std::string_view colour) {
  body_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", colour, x, y,
                       anchor, escaped(text));
}
std::string Svg::str() const { return body_ + "</svg>\n"; }

std::vector<double> ticks(double low, double high, int most) {
  std::vector<double> out;
  if (!(high > low) || most < 1) return out;
  double step = std::pow(10, std::floor(std::log10((high - low) / most)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if ((high - low) / step <= most) break;
    step *= factor;
  }
  const double first = std::ceil(low / step - 1e-9);
  for (double i = first; i * step <= high + 1e-9 * step; ++i) out.push_back(i * step);
  return out;
}

void draw(Svg& svg, const Plot& p) {
  const double bottom = p.top + p.height;
  const auto x_of = [&](double x) { return p.left + p.width * (x - p.x_low) / (p.x_high - p.x_low); };
  const auto y_of = [&](double y) { return bottom - p.height * (y - p.y_low) / (p.y_high - p.y_low); };
  for (const double y : ticks(p.y_low, p.y_high, 5)) {
    svg.line(p.left, y_of(y), p.left + p.width, y_of(y), "faint");
    svg.text(p.left - 6, y_of(y) + 4, fmt::format("{:g}", std::round(y * 1e9) / 1e9), "end", "faint");
  }
  for (const double x : ticks(p.x_low, p.x_high, 8)) {
    svg.line(x_of(x), bottom, x_of(x), bottom + 4, "ink");
    if (!p.x_label.empty()) svg.text(x_of(x), bottom + 18, fmt::format("{:.15g}", x), "middle", "faint");
  }
  svg.line(p.left, p.top, p.left, bottom, "ink");
  svg.line(p.left, bottom, p.left + p.width, bottom, "ink");
  if (!p.x_label.empty()) svg.text(p.left + p.width, bottom + 34, p.x_label, "end");
  if (!p.y_label.empty()) svg.text(p.left, p.top - 10, p.y_label);
  double legend = p.left + p.width;
  for (std::size_t i = p.lines.size(); i-- > 0;) {
    const std::string colour = fmt::format("line{}", (static_cast<std::size_t>(p.first_colour) + i) % 3);
    std::vector<std::pair<double, double>> points;
    for (const auto& [x, y] : p.lines[i].points)
      if (!std::isnan(y)) points.emplace_back(x_of(x), y_of(std::clamp(y, p.y_low, p.y_high)));
    svg.polyline(points, colour);
    svg.text(legend, p.top - 10, p.lines[i].name, "end");
    legend -= 7.0 * static_cast<double>(p.lines[i].name.size()) + 8;
    svg.line(legend - 18, p.top - 14, legend, p.top - 14, colour);
    legend -= 34;
  }
}

}  // namespace tessera::app
