"""Tests beside real libraries on a machine with an NVIDIA GPU: RMM, PyTorch, CuPy and Numba.

    FLOODMARK=target/release/floodmark pytest tests/python/gpu

Each test runs in an interpreter of its own, because these libraries choose their allocator once. They fail without a GPU
or without the library: nothing is skipped.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run(tmp_path):
    """Run code in an interpreter of its own, in a folder of its own."""

    def run(code, **environment):
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            cwd=tmp_path,
            env={**os.environ, "FLOODMARK_DEVICE": "cuda", **environment},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture
def ask(tmp_path):
    """Ask the command about the trace that the code wrote."""

    def ask(command, *options):
        words = [os.environ["FLOODMARK"], command, tmp_path / "run.flood", "--json", *options]
        return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    return ask
