# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: the extension module, the libraries that it loads, and the probe, all built by CMake.

`pip install ./python` builds in build/wheel of the source tree. With TESSERA_BUILD=FOLDER, the wheel is made from a build
that already exists. CMAKE_ARGS are passed to CMake.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

here = Path(__file__).resolve().parent
root = here.parent


class BuildWithCMake(build_ext):
    def build_extension(self, extension):
        target = Path(self.get_ext_fullpath(extension.name)).resolve().parent
        given = os.environ.get("TESSERA_BUILD")
        build = Path(given).resolve() if given else root / "build" / "wheel"
        if not given:
            subprocess.run(
                ["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_PROGRAM=OFF",
                 "-DTESSERA_TESTS=OFF", "-DTESSERA_BENCHMARKS=OFF", "-DTESSERA_EXAMPLES=OFF",
                 f"-DPython_EXECUTABLE={sys.executable}",
                 *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)  # fmt: skip
            subprocess.run(["cmake", "--build", build, "--target", "tessera_python", "tessera_probe"], check=True)
        subprocess.run(["cmake", "--install", build, "--component", "python", "--prefix", target.parent], check=True)


version = re.search(r"project\(tessera VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text())[1]
setup(version=version, ext_modules=[Extension("tessera._core", [])], cmdclass={"build_ext": BuildWithCMake})
