#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the test suite of the array API standard against the Python package.

usage: PYTHONPATH=build/release/python tools/check_array_api.py SUITE [arguments of pytest]

SUITE is a checkout of github.com/data-apis/array-api-tests with its submodule. Arguments of pytest are, for example,
`--max-examples 20`, `--disable-deadline` and `array_api_tests/test_linalg.py`. Complex inputs of functions in UNSUPPORTED are
rejected, so that their tests run with the other inputs; tests that match EXPECTED_FAILURES may fail. docs/python.md lists both.

For development; requires numpy, hypothesis, pytest, pytest-json-report and ndindex (tools/requirements.txt).
"""
import collections
import functools
import os
import re
import sys

# Functions that raise DtypeError for complex arrays.
UNSUPPORTED = {
    "linalg.cholesky linalg.det linalg.eigh linalg.qr linalg.slogdet linalg.svd":
        "factors and phases of complex matrices do not follow from those of real matrices of twice the size",
    "unique_all unique_counts unique_inverse unique_values":
        "complex numbers have no order here",
    "ComplexArray.__dlpack__ ComplexArray.__dlpack_device__":
        "a ComplexArray is two arrays, which DLPack exchanges one by one",
}  # fmt: skip
# Tests that may fail, and why.
EXPECTED_FAILURES = {
    r"test_unary\[(acosh?|asinh|atanh|cosh|exp|expm1|sinh|tanh)\((?=.*imag\(x_i\)).*(infinity|NaN)":
        "infinite and NaN parts of complex numbers are computed by the formulas for finite ones",
    r"functions.py::test_(cosh?|exp|expm1|sinh?|tanh?)$":
        "sin and cos of numbers beyond 4e6 (float64: 1e12) have no error bound",
}  # fmt: skip


class Expectations:
    @staticmethod
    def pytest_collection_modifyitems(items):
        import pytest

        for item in items:
            for pattern, reason in EXPECTED_FAILURES.items():
                if re.search(pattern, item.nodeid):
                    item.add_marker(pytest.mark.xfail(reason=reason))


def main():
    suite, *arguments = sys.argv[1:] or sys.exit(__doc__)
    os.environ.update(ARRAY_API_TESTS_MODULE="tessera")
    os.environ.setdefault("TESSERA_DEVICE", "cpu")
    sys.path.insert(0, suite)
    os.chdir(suite)

    import hypothesis
    import pytest
    import tessera as ts

    rejected = collections.Counter()

    def reject_complex(function, name):
        def call(x, *args, **kwargs):
            if isinstance(x, ts.ComplexArray):
                rejected[name] += 1
                hypothesis.reject()
            return function(x, *args, **kwargs)

        return functools.wraps(function)(call) if function else call

    for names in UNSUPPORTED:
        for name in names.split():
            scope, _, name = name.rpartition(".")
            owner = getattr(ts, scope) if scope else ts
            setattr(owner, name, reject_complex(getattr(owner, name, None), name))
    files = [] if any(a.startswith("array_api_tests") for a in arguments) else ["array_api_tests"]
    status = pytest.main(["-q", "-p", "no:cacheprovider", *arguments, *files], plugins=[Expectations])
    for names, reason in UNSUPPORTED.items():
        print(f"{sum(rejected[n.split('.')[-1]] for n in names.split())} inputs rejected: {reason} ({names})")
    return status


if __name__ == "__main__":
    sys.exit(main())
