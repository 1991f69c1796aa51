"""The package in its process: import, doctests, processes, interpreters."""

import doctest
import importlib
import multiprocessing
import os
import pkgutil
import subprocess
import sys

import pytest

import floodmark


# They import libraries that need a GPU; tests/python/gpu has them.
OF_GPU_LIBRARIES = (".cupy", ".numba", ".rmm", ".torch")


def modules():
    names = [module.name for module in pkgutil.walk_packages(floodmark.__path__, "floodmark.")]
    left_out = ("__main__", "_native", *OF_GPU_LIBRARIES)
    return ["floodmark", *(name for name in names if not name.endswith(left_out))]


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name, request):
    if name == "floodmark.numpy":
        request.getfixturevalue("host_memory")
    failures, _ = doctest.testmod(importlib.import_module(name))
    assert failures == 0


def test_public_names_exist():
    for name in modules():
        module = importlib.import_module(name)
        assert [public for public in getattr(module, "__all__", []) if not hasattr(module, public)] == []


def test_names_of_rmm_are_there():
    for name in """reinitialize is_initialized register_reinitialize_hook unregister_reinitialize_hook enable_logging
        disable_logging get_log_filenames set_logging_level get_logging_level set_flush_level get_flush_level
        should_log flush_logger level_enum DeviceBuffer RMMError mr statistics""".split():
        assert hasattr(floodmark, name), name
    for name in """Statistics enable_statistics get_statistics push_statistics pop_statistics statistics
        ProfilerRecords ProfilerContext profiler default_profiler_records _get_descriptive_name_of_object
        profiler_records""".split():
        assert hasattr(floodmark.statistics, name), name


def test_importing_loads_little():
    """Modules that take long to load are loaded when they are needed."""
    code = "import sys, floodmark; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pandas", "asyncio", "ctypes", "pyarrow", "subprocess"} & set(loaded)


def _in_child(size):
    floodmark.statistics.enable_statistics()
    with floodmark.statistics.statistics():
        buffer = floodmark.DeviceBuffer(size=size)
        return floodmark.statistics.get_statistics().current_bytes, len(buffer)


def test_multiprocessing_by_spawning():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map_async(_in_child, [10, 20, 30]).get(60) == [(10, 10), (20, 20), (30, 30)]


def test_multiprocessing_by_forking(run):
    # A process that uses a GPU cannot go on in a fork.
    folder, module = os.path.split(__file__)
    result = run(
        f"""
        import multiprocessing, sys
        sys.path.insert(0, {folder!r})
        from {module.removesuffix(".py")} import _in_child
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map_async(_in_child, [10, 20, 30]).get(60))
        """,
        FLOODMARK_DEVICE="host",
    )
    assert result.stdout == "[(10, 10), (20, 20), (30, 30)]\n"


def test_subinterpreters_are_refused():
    code = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
interpreter = interpreters.create()
script = '''
try:
    import floodmark
except ImportError as error:
    print("refused:", error)
else:
    print("imported")
'''
if hasattr(interpreters, "exec"):
    interpreters.exec(interpreter, script)
else:
    interpreters.run_string(interpreter, script)
sys.stdout.flush()
"""
    # The extension is in the main interpreter first.
    result = subprocess.run([sys.executable, "-c", "import floodmark\n" + code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("refused:"), result.stdout


def test_free_threaded_builds_are_refused():
    """There is none here, so one is simulated by what tells it apart."""
    code = "import sys; sys.abiflags = 't'; import floodmark"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: floodmark needs the global interpreter lock" in result.stderr
