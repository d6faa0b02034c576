#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/sparse_cases.json: results of scipy.sparse, for tests/sparse/sparse_test.cpp.

usage: make_sparse_cases.py [--seed N] > tests/data/sparse_cases.json

Each case contains the entries of a random matrix, some of them at the same place, and SciPy's results. Numbers are multiples
of 1/8, so that all sums are exact in f32. Requires SciPy.
"""
from __future__ import annotations

import argparse
import json

import numpy as np
import scipy
from scipy import sparse

SHAPES = [(0, 0, 0), (0, 4, 0), (5, 0, 0), (1, 1, 1), (1, 7, 3), (7, 1, 4), (7, 5, 12), (13, 29, 90), (31, 17, 60)]


def csr_of(matrix: sparse.csr_array) -> dict:
    matrix.sort_indices()
    return {"data": matrix.data.tolist(), "indices": matrix.indices.tolist(), "indptr": matrix.indptr.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    rng = np.random.default_rng(seed)
    numbers = lambda *shape: rng.integers(-16, 17, shape) / 8
    cases = []
    for rows, columns, entries in SHAPES:
        row, column, values = rng.integers(0, max(rows, 1), entries), rng.integers(0, max(columns, 1), entries), numbers(entries)
        coo = sparse.coo_array((values, (row, column)), shape=(rows, columns))
        csr, right, left = coo.tocsr(), numbers(columns, 3), numbers(2, rows)
        cases.append({"shape": [rows, columns], "values": values.tolist(), "rows": row.tolist(), "columns": column.tolist(),
                      "csr": csr_of(csr), "transposed": csr_of(csr.T.tocsr()), "diagonal": csr.diagonal().tolist(),
                      "dense": csr.toarray().ravel().tolist(), "right": right.ravel().tolist(),
                      "product": (csr @ right).ravel().tolist(), "left": left.ravel().tolist(),
                      "left_product": (left @ csr).ravel().tolist()})
    print(f'{{"from": "SciPy {scipy.__version__}", "seed": {seed}, "cases": [')
    print(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
    print("]}")


if __name__ == "__main__":
    main()
