// SPDX-License-Identifier: Apache-2.0
// Computes the exact output range of a small network of dense layers and relu over a square, in f64. The square is cut
// into polygons along the lines where a unit becomes active. The network is linear within each polygon, so its extreme
// values are at corners. The code is independent of the verifier.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/nn/sequential.h"

namespace tessera::test {

using Point = std::array<double, 2>;
/// The function a x + b y + c.
using Plane = std::array<double, 3>;
inline double at(const Plane& f, const Point& p) { return f[0] * p[0] + f[1] * p[1] + f[2]; }

struct Piece {
  std::vector<Point> corners;
  std::vector<Plane> units;  ///< the outputs of the layer as functions of the input, valid within the polygon
};

/// Returns the part of a polygon in which sign * f >= 0 (Sutherland and Hodgman 1974).
inline std::vector<Point> cut(const std::vector<Point>& corners, const Plane& f, double sign) {
  std::vector<Point> out;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const Point &p = corners[i], &q = corners[(i + 1) % corners.size()];
    const double a = sign * at(f, p), b = sign * at(f, q);
    if (a >= 0) out.push_back(p);
    if ((a > 0 && b < 0) || (a < 0 && b > 0)) {
      const double t = a / (a - b);
      out.push_back({p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])});
    }
  }
  return out;
}

inline void through(std::vector<Piece>& pieces, const Dense& layer) {
  const auto w = layer.weight.to_vector<float>(), bias = layer.bias.to_vector<float>();
  for (Piece& piece : pieces) {
    std::vector<Plane> out(bias.size());
    for (std::size_t r = 0; r < out.size(); ++r) {
      out[r] = {0, 0, bias[r]};
      for (std::size_t c = 0; c < piece.units.size(); ++c)
        for (std::size_t k = 0; k < 3; ++k) out[r][k] += w[r * piece.units.size() + c] * piece.units[c][k];
    }
    piece.units = std::move(out);
  }
}
inline void through_relu(std::vector<Piece>& pieces) {
  for (std::size_t unit = 0; unit < pieces[0].units.size(); ++unit) {
    std::vector<Piece> next;
    for (const Piece& piece : pieces)
      for (const double sign : {1.0, -1.0}) {
        Piece half{cut(piece.corners, piece.units[unit], sign), piece.units};
        if (half.corners.size() < 3) continue;
        if (sign < 0) half.units[unit] = {0, 0, 0};
        next.push_back(std::move(half));
      }
    pieces = std::move(next);
  }
}

/// Returns the range of the first output over [low, high]^2. Layers other than Dense are treated as relu.
template <class... Layers>
std::pair<double, double> exact_range(const Sequential<Layers...>& model, double low, double high) {
  std::vector<Piece> pieces = {{{{low, low}, {high, low}, {high, high}, {low, high}}, {{1, 0, 0}, {0, 1, 0}}}};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto one = [&](const auto& layer) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(layer)>, Dense>)
        through(pieces, layer);
      else
        through_relu(pieces);
    };
    (one(model.template get<I>()), ...);
  }(std::make_index_sequence<sizeof...(Layers)>());
  double least = INFINITY, most = -INFINITY;
  for (const Piece& piece : pieces)
    for (const Point& p : piece.corners)
      least = std::min(least, at(piece.units[0], p)), most = std::max(most, at(piece.units[0], p));
  return {least, most};
}

}  // namespace tessera::test
