# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of docs/python.md in order, and compares their output with the `text` blocks after them.

Also checks that every public name has a docstring, that the stubs and the module agree, and that importing is fast.
"""

import contextlib
import inspect
import io
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import tessera as ts
from tessera import fft, kernels, linalg, nn, tasks

ROOT = Path(__file__).parents[2]


class Docs(unittest.TestCase):
    def test_the_page_runs_and_prints_what_it_shows(self):
        page = (ROOT / "docs" / "python.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", page, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 9)
        scope = {"__name__": "docs"}
        os.chdir(ROOT)
        import linecache

        for i, (code, shown) in enumerate(blocks):
            name = f"docs/python.md, block {i + 1}"
            linecache.cache[name] = (len(code), None, code.splitlines(True), name)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(code, name, "exec"), scope)
            self.assertEqual(output.getvalue(), shown, name)

    def test_public_names_have_docstrings(self):
        missing = []
        for module in (ts, fft, kernels, linalg, nn, tasks):
            public = {name: getattr(module, name) for name in {*vars(module), *getattr(module, "__all__", ())}}
            for name, value in public.items():
                if name.startswith("_") or not callable(value) or getattr(value, "__module__", "") in ("typing", "builtins"):
                    continue
                if not inspect.getdoc(value):
                    missing.append(f"{module.__name__}.{name}")
                if inspect.isclass(value):
                    missing += [f"{module.__name__}.{name}.{n}" for n, v in vars(value).items()
                                if not n.startswith("_") and callable(v) and not inspect.getdoc(v)]  # fmt: skip
        self.assertEqual(missing, [])

    def test_stubs_and_module_agree(self):
        stub = (ROOT / "python" / "tessera" / "_core.pyi").read_text()
        for name in re.findall(r"^class (\w+)", stub, re.M) + re.findall(r"^(\w+): DType", stub, re.M):
            self.assertTrue(hasattr(ts._core, name), name)
        for name in ("Array", "Value", "Buffer", "Device", "DeviceInfo", "BackendReport", "DType"):
            body = re.search(rf"^class {name}:\n(.*?)^(?=\S)", stub, re.M | re.S)[1]
            listed = set(re.findall(r"def (\w+)", body))
            actual = {n for n in vars(getattr(ts._core, name)) if not n.startswith("_")}
            self.assertEqual(actual - listed, set(), f"missing in _core.pyi, class {name}")
            for n in listed - {"__init__"}:
                self.assertTrue(hasattr(getattr(ts._core, name), n), f"{name}.{n}")

    def test_import_is_fast_and_loads_no_numpy(self):
        code = ("import sys, time; begin = time.perf_counter(); import tessera; end = time.perf_counter();"
                "print(end - begin, 'numpy' in sys.modules)")  # fmt: skip
        times = []
        for _ in range(5):
            seconds, has_numpy = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
            times.append(float(seconds))
            self.assertEqual(has_numpy, "False")
        print(f"import takes {min(times) * 1000:.0f} ms")
        self.assertLess(min(times), 0.5)  # 50 ms on an idle machine


if __name__ == "__main__":
    unittest.main()
