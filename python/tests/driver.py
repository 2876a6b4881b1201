"""Calls of CUDA's driver API, as a library that loads `libcuda.so.1` makes them."""

from __future__ import annotations

import ctypes

UNAVAILABLE = 46
"""The code of calls after the end of a session."""
SIZE = 1 << 16


class Driver:
    """The driver of this process, on its first device."""

    def __init__(self, name: str = "libcuda.so.1") -> None:
        self._cuda = ctypes.CDLL(name)
        context = ctypes.c_void_p()
        self._check(self._cuda.cuInit(0))
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self._check(self._cuda.cuCtxSetCurrent(context))

    @property
    def memory_bytes(self) -> int:
        found = ctypes.c_size_t()
        self._check(self._cuda.cuDeviceTotalMem_v2(ctypes.byref(found), 0))
        return found.value

    def alloc(self, size: int) -> ctypes.c_uint64:
        address = ctypes.c_uint64()
        self._check(self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        return address

    def synchronize(self) -> int:
        """Returns the code of a call that waits for the device."""
        code: int = self._cuda.cuCtxSynchronize()
        return code

    def copy(self) -> None:
        """Copies bytes to the device and back, and compares them."""
        sent, size, address = bytes(range(256)) * (SIZE // 256), ctypes.c_size_t(SIZE), self.alloc(SIZE)
        received = ctypes.create_string_buffer(SIZE)
        self._check(self._cuda.cuMemcpyHtoD_v2(address, sent, size))
        self._check(self._cuda.cuMemcpyDtoH_v2(received, address, size))
        assert received.raw == sent

    def _check(self, code: int) -> None:
        assert code == 0, f"the driver returned {code}"
