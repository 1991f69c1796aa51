"""Costs of the package, in nanoseconds: the least of several runs, loops subtracted.

    python crates/python/benches/cost.py [--rmm]

`--rmm` measures RMM beside it, on a machine with a GPU.
"""

import argparse
import subprocess
import sys
import time
import timeit

import floodmark


def least(statement, setup="pass", number=100_000, repeat=9, **names):
    scope = {"floodmark": floodmark, **names}
    empty = min(timeit.repeat("pass", number=number, repeat=repeat))
    taken = min(timeit.repeat(statement, setup, number=number, repeat=repeat, globals=scope))
    return (taken - empty) / number * 1e9


def buffers(rmm):
    rmm.reinitialize(pool_allocator=True, initial_pool_size=2**26)
    return least("B(size=1024)", B=rmm.DeviceBuffer)


def profiled(rmm):
    rmm.statistics.enable_statistics()

    def plain():
        pass

    wrapped = rmm.statistics.profiler(name="benchmark")(plain)
    return least("f()", f=wrapped) - least("f()", f=plain)


def scope(rmm):
    context = rmm.statistics.profiler(name="benchmark")
    return least("with context: pass", context=context)


def arrays():
    import numpy as np

    import floodmark.numpy

    floodmark.reinitialize(pool_allocator=True, initial_pool_size=2**26)
    plain = least("empty(1000)", empty=np.empty)
    with floodmark.numpy.installed():
        ours = least("empty(1000)", empty=np.empty)
    return ours - plain


def importing():
    """Milliseconds that importing the package adds to starting Python."""

    def start(code):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - begin) * 1e3

    return min(start("import floodmark") for _ in range(10)) - min(start("pass") for _ in range(10))


def large_frames():
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"key": rng.integers(0, 100, 500_000), "value": rng.random(500_000)})

    def pipeline():
        means = frame.sort_values("value").groupby("key")["value"].mean()
        return frame.merge(means.rename("mean"), left_on="key", right_index=True).assign(rank=lambda f: f["mean"])

    return pipeline


def small_frames():
    import pandas as pd

    def pipeline():
        for _ in range(50):
            frame = pd.DataFrame({"a": range(10), "b": range(10)})
            frame["c"] = frame["a"] + frame["b"]
            frame.groupby("a").sum()
            frame.sort_values("b")

    return pipeline


def slowdown(pipeline):
    """Part by which profiling all of pandas slows a pipeline down, with NumPy's memory from us in both."""
    import floodmark.numpy

    floodmark.reinitialize()
    floodmark.numpy.install()
    plain = ours = float("inf")
    for _ in range(7):
        plain = min(plain, timeit.timeit(pipeline, number=1, timer=time.process_time))
        floodmark.profile_package("pandas")
        ours = min(ours, timeit.timeit(pipeline, number=1, timer=time.process_time))
        floodmark.unprofile_package("pandas")
    floodmark.numpy.uninstall()
    return ours / plain - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rmm", action="store_true", help="measure RMM too")
    peers = [floodmark]
    if parser.parse_args().rmm:
        import rmm
        import rmm.statistics

        peers.append(rmm)
    print(f"Python {sys.version.split()[0]}, {floodmark.devices()[0].name}")
    for name, measure in [("DeviceBuffer(size=1024) on a pool, made and freed", buffers),
                          ("profiled call, more than a plain one", profiled),
                          ("profiler scope, enter and exit", scope)]:
        figures = "  ".join(f"{peer.__name__} {measure(peer):7.0f} ns" for peer in peers)
        print(f"{name:52} {figures}")
    print(f"{'numpy.empty(1000) on a pool, more than plain':52} {arrays():7.0f} ns")
    print(f"{'import floodmark':52} {importing():7.1f} ms")
    print(f"{'pandas profiled, frames of 500,000 rows':52} {slowdown(large_frames()) * 100:7.1f} %")
    print(f"{'pandas profiled, frames of 10 rows':52} {slowdown(small_frames()) * 100:7.1f} %")


if __name__ == "__main__":
    main()
