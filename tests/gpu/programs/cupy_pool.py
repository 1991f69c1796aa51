"""Fills CuPy's pool and prints its own figures."""

import json

import cupy


def load(count):
    return [cupy.ones(1 << 20, dtype="float32") for _ in range(count)]


cupy.cuda.runtime.free(0)
free_before, _ = cupy.cuda.runtime.memGetInfo()
held = load(100)
other = load(50)
del other
free_after, _ = cupy.cuda.runtime.memGetInfo()
pool = cupy.get_default_memory_pool()
print("FIGURES " + json.dumps({"total": pool.total_bytes(), "used": pool.used_bytes(), "driver_change": free_before - free_after}))
