"""What tests of the package share."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import floodmark


@pytest.fixture(autouse=True)
def fresh():
    """Every test begins with plain resources and no records."""
    floodmark.reinitialize()
    floodmark.statistics.default_profiler_records.clear()
    yield
    floodmark.reinitialize()
    floodmark.set_logging_level("off")


@pytest.fixture
def host_memory(fresh):
    """Memory that the processor can use is allocated, on a machine with a GPU too."""
    floodmark.mr.set_current_device_resource(floodmark.mr.SystemMemoryResource())


@pytest.fixture
def run(tmp_path):
    """Run code in an interpreter of its own, in a folder of its own."""

    def run(code, *, status=0, timeout=60, **environment):
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result

    return run


@pytest.fixture
def run_until_killed(tmp_path):
    """Run a program that prints 1, 2, 3 ..., kill it, and return the last number that it printed."""

    def run_until_killed(program, least):
        command = [sys.executable, "-c", textwrap.dedent(program)]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if int(line) >= least:
                break
        os.kill(process.pid, signal.SIGKILL)
        printed = int(([line] + process.stdout.read().splitlines())[-1])
        assert process.wait(30) == -signal.SIGKILL
        return printed

    return run_until_killed


@pytest.fixture
def stats_mr():
    """Counts in a scope of the test."""
    with floodmark.statistics.statistics():
        yield
