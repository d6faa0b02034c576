// SPDX-License-Identifier: Apache-2.0
// Creates SVG 1.1 drawings that are readable in light and dark mode.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::app {

/// A drawing. Coordinates are in pixels from the top left corner. A colour is the name of a class in the style sheet:
/// "ink" and "faint" for lines and text, "line0" to "line2" for strokes, "fill0" to "fill2" for areas, and "dot0" to
/// "dot2" for points.
class Svg {
 public:
  Svg(int width, int height, std::string_view title);
  void line(double x1, double y1, double x2, double y2, std::string_view colour);
  void polyline(const std::vector<std::pair<double, double>>& points, std::string_view colour);
  void rectangle(double x, double y, double width, double height, std::string_view colour);
  void circle(double x, double y, double radius, std::string_view colour);
  /// Draws text with its baseline at y. `anchor` is the part of the text that is at x: "start", "middle" or "end".
  void text(double x, double y, std::string_view text, std::string_view anchor = "start",
            std::string_view colour = "ink");
  std::string str() const;

 private:
  std::string body_;
};

/// Returns at most `most` positions for ticks on an axis from `low` to `high`. They are multiples of 1, 2 or 5 times a
/// power of ten. Returns an empty list if `high` is not greater than `low`.
std::vector<double> ticks(double low, double high, int most);

/// A line of a plot, with its name in the legend. Points whose y is NaN are omitted.
struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};
/// A plot within a drawing: axes, ticks with grid lines and numbers, and lines. Line i has the colour "lineN" with N =
/// first_colour + i.
struct Plot {
  double left = 0, top = 0, width = 0, height = 0;
  double x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  std::string x_label, y_label;  ///< may be empty; if `x_label` is empty, the x axis has no numbers
  std::vector<PlotLine> lines;
  int first_colour = 0;
};
void draw(Svg& svg, const Plot& plot);

}  // namespace tessera::app
