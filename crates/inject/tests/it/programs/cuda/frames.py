"""Allocates device memory through ctypes, which gives up the interpreter's lock around the call."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")


def allocate(count):
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count)) == 0


def größer():
    allocate(3 << 20)


context = ctypes.c_void_p()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
größer()
