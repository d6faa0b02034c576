// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse matrices. Internal to sparse/. Arrays are contiguous, and indices are i32 or i64. An index that
// is out of range never leads to an access outside an array.
#pragma once

#include "tessera/sparse/sparse.h"

namespace tessera::sparse {

/// The product of a matrix with `dense` (n, k) of the same dtype: (m, k).
Array launch_product(const Csr& a, const Array& dense);

/// For each entry in row i and column j, the dot product of row i of `left` (m, k) and row j of `right` (n, k), which
/// have the same dtype. It is zero if `rows` or `columns` are out of range.
Array launch_sampled_product(const Array& rows, const Array& columns, const Array& left, const Array& right);

/// The row of each entry, in the dtype of the offsets; -1 for entries that belong to no row.
Array launch_rows(const Csr& a);

/// The offsets of a matrix with `rows` rows from the rows of its entries, u32 in ascending order. Entries with a larger
/// row are not counted.
Array launch_offsets(const Array& entry_rows, std::int64_t rows, DType dtype);

}  // namespace tessera::sparse
