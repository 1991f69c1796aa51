"""The two functions that PyTorch calls, called from C++ as PyTorch does; tests/python/gpu has PyTorch itself."""

import subprocess

import pytest

CALLER = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <stdexcept>
#include <sys/types.h>

// Allocates blocks from a thread that Python does not know, or reports the exception.
extern "C" void *take(const char *library, long bytes, char *message) {
    void *handle = dlopen(library, RTLD_LAZY);
    auto allocate = (void *(*)(ssize_t, int, void *))dlsym(handle, "floodmark_allocate");
    try {
        return allocate(bytes, 0, nullptr);
    } catch (const std::runtime_error &error) {
        strncpy(message, error.what(), 499);
        return nullptr;
    }
}

extern "C" void give(const char *library, void *block, long bytes) {
    void *handle = dlopen(library, RTLD_LAZY);
    auto release = (void (*)(void *, ssize_t, int, void *))dlsym(handle, "floodmark_deallocate");
    release(block, bytes, 0, nullptr);
}
"""

PROGRAM = """
import ctypes, sys
import floodmark
from floodmark import _native, mr

path = _native.__file__.encode()
caller = ctypes.{kind}(sys.argv[1])  # PyDLL calls with the interpreter attached, CDLL without
caller.take.restype = ctypes.c_void_p
caller.take.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_char_p]
caller.give.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_long]
message = ctypes.create_string_buffer(500)

limited = mr.LimitingResourceAdaptor(mr.CudaMemoryResource(), 4096)
counted = mr.StatisticsResourceAdaptor(limited)
mr.set_current_device_resource(counted)
block = caller.take(path, 1000, message)
assert block and counted.allocation_counts.current_bytes == 1000
assert _native.pluggable_live() == (1000, 1)
assert caller.take(path, 10_000, message) is None
print(message.value.decode())
# The block goes back to where it came from.
mr.set_current_device_resource(mr.CudaMemoryResource())
caller.give(path, block, 1000)
assert counted.allocation_counts.current_bytes == 0
assert _native.pluggable_live() == (0, 0)
# Addresses that are not ours, and nothing at all, are left alone.
caller.give(path, 0x1000, 1)
assert caller.take(path, 0, message) is None
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    folder = tmp_path_factory.mktemp("caller")
    (folder / "caller.cpp").write_text(CALLER)
    library = folder / "caller.so"
    command = ["c++", "-shared", "-fPIC", "-o", library, folder / "caller.cpp", "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize("kind", ["PyDLL", "CDLL"])
def test_blocks_go_back_to_their_resource_and_failures_are_exceptions(run, caller, kind):
    program = PROGRAM.format(kind=kind).replace("sys.argv[1]", repr(str(caller)))
    said = run(program, FLOODMARK_DEVICE="host").stdout
    assert said.startswith("CUDA out of memory. limiting cannot allocate 9.77 KiB (10000 bytes)"), said
