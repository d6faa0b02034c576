// SPDX-License-Identifier: Apache-2.0
// Steps of factorisations of matrices in tiles, for task/. A panel is a column of tiles, one below the other, that form
// one m x n matrix. The tiles are contiguous, f32 or f64, and on one device. Panels are factorised on the host, by
// Tessera's own algorithms: the threads of a library would compete with those of other tasks.
#pragma once

#include <vector>

#include "tessera/array/array.h"

namespace tessera::linalg {

/// The pivots of an LU factorisation.
struct PanelPivots {
  std::vector<std::int32_t> rows;  ///< in step i, rows i and rows[i] - 1 of the panel are exchanged
  std::int64_t singular = 0;       ///< number (from 1) of the first column without a nonzero pivot, or 0
};
/// Replaces a panel by its factors L and U, as LAPACK's getrf.
PanelPivots factorise_lu(const std::vector<Array>& tiles);
/// Exchanges rows of a column of tiles that starts at the same row as the factorised panel.
void exchange_rows(const std::vector<Array>& tiles, const PanelPivots& pivots);
/// The order of m rows after these exchanges, where the panel starts at row `begin`.
void exchange_rows(std::vector<std::int64_t>& order, std::int64_t begin, const PanelPivots& pivots);

/// Replaces a panel by R, on and above its diagonal, and the reflections I - tau v v^T below it, as LAPACK's geqrf. The
/// product of the k = min(m, n) reflections is I - V T V^T. The top of V, with ones on its diagonal, is written to the
/// first k columns of `v`, which has at least as many rows as the first tile. The upper triangular T is written to the
/// first k rows and columns of `t`.
void factorise_qr(const std::vector<Array>& tiles, Array& v, Array& t);

}  // namespace tessera::linalg
