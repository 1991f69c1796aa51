"""Checks for tests, and the plugin for pytest."""

import pytest

import floodmark

pytest_plugins = ["pytester"]


def test_no_leaks():
    kept = []
    with floodmark.assert_no_leaks():
        floodmark.DeviceBuffer(size=100)
        cycle = [floodmark.DeviceBuffer(size=100)]
        cycle.append(cycle)
        del cycle
    with floodmark.assert_no_leaks(tolerance="1KiB"):
        kept.append(floodmark.DeviceBuffer(size=1024))
    with pytest.raises(AssertionError, match=r"1.00 KiB \(1025 bytes\) in 1 block are still live"):
        with floodmark.assert_no_leaks(tolerance="1KiB"):
            kept.append(floodmark.DeviceBuffer(size=1025))
    with pytest.raises(KeyError), floodmark.assert_no_leaks():
        kept.append(floodmark.DeviceBuffer(size=100))
        raise KeyError
    assert floodmark.statistics.get_statistics() is None


def test_limit_peak():
    with floodmark.limit_peak("2KiB"):
        floodmark.DeviceBuffer(size=2048)
        floodmark.DeviceBuffer(size=2048)
    with pytest.raises(AssertionError, match="the peak is 4.00 KiB"):
        with floodmark.limit_peak("2KiB"):
            first, second = floodmark.DeviceBuffer(size=2048), floodmark.DeviceBuffer(size=2048)
    with pytest.raises(KeyError), floodmark.limit_peak(0):
        raise KeyError


def test_the_plugin(pytester):
    pytester.makepyfile(
        """
        import numpy as np
        import pytest
        import floodmark

        kept = []

        @pytest.mark.memory_peak("1MiB")
        def test_small():
            np.ones(1000)

        @pytest.mark.memory_peak("1MiB")
        def test_large():
            np.ones(1_000_000)

        @pytest.mark.no_leaks
        def test_leaks():
            kept.append(floodmark.DeviceBuffer(size=100))

        @pytest.mark.no_leaks
        def test_no_leaks():
            floodmark.DeviceBuffer(size=100)

        def test_unmarked():
            kept.append(floodmark.DeviceBuffer(size=5000))
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*AssertionError: the peak is 7.63 MiB*above the limit of 1.00 MiB*"])
    result.stdout.fnmatch_lines(["*AssertionError: 100 B in 1 block are still live*"])
    assert "peaks of memory" not in result.stdout.str()
    result = pytester.runpytest_subprocess("--floodmark")
    result.stdout.fnmatch_lines(
        ["*peaks of memory*", "*7.63 MiB*test_the_plugin.py::test_large", "*::test_small", "*::test_unmarked"]
    )
