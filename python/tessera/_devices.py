# SPDX-License-Identifier: Apache-2.0
"""Devices, and why one is not used."""

from __future__ import annotations

from . import _core


def devices() -> list[_core.Device]:
    """Returns all devices, including those that automatic selection skips. Does not open them."""
    return _core.devices()


def gpus() -> list[_core.Device]:
    """Returns the usable GPUs in the order of automatic selection. Does not open them."""
    return _core.gpus()


def discover() -> list[_core.BackendReport]:
    """Returns a report for each backend: its devices, or the reason why there are none."""
    return _core.discover()


def rescan() -> None:
    """Discards the cached results of discover(). The next call searches again."""
    _core.rescan()


def doctor() -> str:
    """Returns the state of each backend and device, with reasons and remedies, as text."""
    return _core.doctor()


def device_info(device: _core.Device | str) -> _core.DeviceInfo:
    """Returns the properties of a device. Raises DeviceError with the reason if it does not exist."""
    return _core.device_info(device)


def current_device() -> _core.Device:
    """Returns the device for new arrays on this thread."""
    return _core.current_device()


def why_current_device() -> str:
    """Returns a sentence with the current device, the rule that selected it, and why GPUs are not used."""
    return _core.why_current_device()


def set_current_device(device: _core.Device | str | None) -> None:
    """Sets the device for new arrays on this thread. None selects automatically again."""
    _core.set_current_device(device)


def use_device(device: _core.Device | str):
    """Returns a context manager that sets the device for new arrays on this thread: `with use_device("cpu"): ...`."""
    return _core._UseDevice(device)


def free_memory(device: _core.Device | str | None = None) -> int:
    """Returns the free memory of a device (default: the current one) in bytes."""
    return _core.free_memory(device)


def synchronize() -> None:
    """Waits until all work on all devices is complete, and raises the first error that was not raised before."""
    _core.synchronize()
