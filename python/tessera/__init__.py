# SPDX-License-Identifier: Apache-2.0
"""Arrays, kernels, gradients, training and language models on every processor of a machine.

The names of array functions and dtypes are those of the array API standard. docs/python.md is the guide.
"""

from . import _core
from ._core import (
    ArgumentError,
    Array,
    BackendReport,
    Device,
    DeviceError,
    DeviceInfo,
    DeviceLost,
    DType,
    DtypeError,
    Error,
    FormatError,
    KernelError,
    NotFinite,
    OutOfMemory,
    ShapeError,
    TaskError,
    bfloat16,
    bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._complex import ComplexArray
from ._devices import (
    current_device,
    device_info,
    devices,
    discover,
    doctor,
    free_memory,
    gpus,
    rescan,
    set_current_device,
    synchronize,
    use_device,
    why_current_device,
)
from ._errors import MissingFile
from ._functions import *  # noqa: F403 (the functions of the array API standard, listed in its __all__)
from ._functions import __all__ as _function_names
from ._gradients import grad, pullback, stop_gradient, value_and_grad
from . import _methods  # noqa: F401 (adds the methods of Array)

__version__ = _core.version
__array_api_version__ = "2024.12"

__all__ = [
    "Answer", "ArgumentError", "Array", "BackendReport", "Chat", "ComplexArray", "DType", "Device", "DeviceError", "DeviceInfo",
    "DeviceLost", "DtypeError", "Error", "FormatError", "Generation", "KernelError", "LanguageModel", "MissingFile", "NotFinite",
    "OutOfMemory", "ShapeError", "TaskError", "bfloat16", "bool", "complex128", "complex64", "current_device", "device_info", "devices",
    "discover", "doctor", "float16", "float32", "float64", "free_memory", "gpus", "grad", "int16", "int32", "int64",
    "int8", "pullback", "rescan", "set_current_device", "stop_gradient", "synchronize", "uint16", "uint32", "uint64",
    "uint8", "use_device", "value_and_grad", "why_current_device", *_function_names,
]  # fmt: skip


def __getattr__(name):
    # These modules are loaded when they are first used, so that `import tessera` stays fast.
    import importlib

    if name in ("fft", "kernels", "linalg", "nn", "tasks"):
        return importlib.import_module("." + name, __name__)
    if name in ("Answer", "Chat", "Generation", "LanguageModel"):
        return getattr(importlib.import_module("._models", __name__), name)
    raise AttributeError(f"module 'tessera' has no attribute '{name}'")
