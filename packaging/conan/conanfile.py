# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe of Tessera: `conan create packaging/conan` (docs/versions.md)."""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.gnu import PkgConfigDeps


class TesseraConan(ConanFile):
    name = "tessera"
    license = "Apache-2.0"
    description = "Finds every processor of a machine, and runs the same kernels, arrays and models on each"
    topics = ("gpu", "cuda", "opencl", "rocm", "arrays", "machine-learning", "llm")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # codegen: the module that compiles kernels for CPUs, and for NVIDIA GPUs without a toolkit. It contains LLVM, and is built
    # with the LLVM 16 to 22 that is installed on the system. Without it, CPUs run kernels in an interpreter, which is slow.
    options = {"shared": [True, False], "codegen": [True, False]}
    default_options = {"shared": True, "codegen": True}

    def set_version(self):
        lists = load(self, os.path.join(self.recipe_folder, "..", "..", "CMakeLists.txt"))
        self.version = re.search(r"project\(tessera VERSION ([0-9.]+)", lists).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for folder in ("app/probe", "cmake", "tessera"):
            copy(self, f"{folder}/*", root, self.export_sources_folder)
        for file in ("CMakeLists.txt", "LICENSE", "README.md"):
            copy(self, file, root, self.export_sources_folder)

    def requirements(self):
        self.requires("fmt/[>=9.1 <12]")
        self.requires("spdlog/[>=1.10 <2]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("tomlplusplus/[>=3.3 <4]")
        self.requires("pcre2/[>=10.40 <11]")

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("Tessera supports Linux")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        tools = CMakeToolchain(self)
        tools.cache_variables.update({
            "TESSERA_SHARED": bool(self.options.shared), "TESSERA_CODEGEN": bool(self.options.codegen),
            "TESSERA_PROGRAM": False, "TESSERA_TESTS": False, "TESSERA_EXAMPLES": False, "TESSERA_BENCHMARKS": False,
            "TESSERA_PYTHON": False, "TESSERA_INSTALL": True})
        tools.generate()
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="tessera_installed")

    def package(self):
        CMake(self).install()

    def package_info(self):
        # Programs use the CMake package of Tessera, because it has the options that the static library needs.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "tessera")]
        self.cpp_info.libs = ["tessera"]
