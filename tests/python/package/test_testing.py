"""Checks for tests, and the plugin for pytest."""

import threading

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


def test_memory_from_before_a_block_does_not_count():
    older = floodmark.DeviceBuffer(size=100)
    floodmark.statistics.enable_statistics()
    old = floodmark.DeviceBuffer(size=100)
    with pytest.raises(AssertionError, match="100 B in 1 block"):
        with floodmark.assert_no_leaks():
            new = floodmark.DeviceBuffer(size=100)
            del old, older
    del new


def test_all_threads_count():
    kept = []

    def work():
        kept.append(floodmark.DeviceBuffer(size=600))

    with pytest.raises(AssertionError, match="600 B in 1 block"), floodmark.assert_no_leaks():
        with pytest.raises(AssertionError, match="the peak is 1.17 KiB"), floodmark.limit_peak("1KiB"):
            mine = floodmark.DeviceBuffer(size=600)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(30)
            del mine


def test_statistics_of_the_program_stay_as_they_are():
    with floodmark.limit_peak("1KiB"), floodmark.assert_no_leaks():
        assert floodmark.statistics.get_statistics() is None
    before = floodmark.mr.get_current_device_resource()
    with floodmark.statistics.statistics():
        kept = floodmark.DeviceBuffer(size=10)
        with floodmark.limit_peak("1KiB"):
            more = floodmark.DeviceBuffer(size=20)
            assert floodmark.statistics.get_statistics().current_bytes == 30
        del kept, more
    assert floodmark.mr.get_current_device_resource() is before


def test_blocks_end_in_any_order():
    before = floodmark.mr.get_current_device_resource()
    first, second = floodmark.limit_peak("1KiB"), floodmark.limit_peak("1KiB")
    first.__enter__()
    second.__enter__()
    buffer = floodmark.DeviceBuffer(size=2000)
    for block in (first, second):
        with pytest.raises(AssertionError, match="the peak is 1.95 KiB"):
            block.__exit__(None, None, None)
    assert floodmark.mr.get_current_device_resource() is before
    del buffer


TESTS = """
    import numpy as np
    import pytest
    import floodmark

    kept = []
    cache = {}

    @pytest.fixture
    def prepared():
        return np.ones(1_000_000)

    @pytest.mark.memory_peak("1MiB")
    def test_small(prepared):
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

    def fill():
        if "table" not in cache:
            cache["table"] = floodmark.DeviceBuffer(size=50)

    @pytest.mark.no_leaks
    def test_cold():
        fill()

    @pytest.mark.no_leaks(warmup=1)
    def test_warm():
        cache.setdefault("warm", floodmark.DeviceBuffer(size=60))

    @pytest.mark.no_leaks(warmup=2)
    def test_leaks_every_time():
        kept.append(floodmark.DeviceBuffer(size=70))

    def test_unmarked():
        kept.append(floodmark.DeviceBuffer(size=5000))
"""


@pytest.fixture
def plugins(pytester, monkeypatch):
    """Run pytest with its plugins in a process of its own."""
    # NumPy's arrays count only where they are in host memory.
    monkeypatch.setenv("FLOODMARK_DEVICE", "host")
    pytester.makepyfile(TESTS)

    def run(*arguments):
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)

    return run


def test_markers_need_no_option(plugins, pytester):
    pytester.makeini("[pytest]\nfloodmark_memory_peak = 4KiB\n")
    result = plugins("--strict-markers")
    result.assert_outcomes(passed=3, failed=5)
    for message in [
        "the peak is 7.63 MiB (* bytes), above the limit of 1.00 MiB (1048576 bytes)",
        "100 B in 1 block are still live after the test",
        # The first run fills a cache.
        "50 B in 1 block are still live after the test",
        # So does every run.
        "70 B in 1 block are still live after the test",
        # The limit of the configuration.
        "the peak is 4.88 KiB (5000 bytes), above the limit of 4.00 KiB (4096 bytes)",
    ]:
        result.stdout.fnmatch_lines([message])
    assert "peaks of memory" not in result.stdout.str()


TABLE = [
    "    7.63 MiB (* bytes)  *::test_large",
    "       8.* KiB (* bytes)  *::test_small",
    "       4.88 KiB (5000 bytes)  *::test_unmarked",
    "                       100 B  *::test_leaks",
    "                       100 B  *::test_no_leaks",
    "                        70 B  *::test_leaks_every_time",
    "                        60 B  *::test_warm",
    "                        50 B  *::test_cold",
]


def test_tests_with_the_highest_peaks_are_listed(plugins):
    result = plugins("--floodmark")
    result.assert_outcomes(passed=4, failed=4)
    result.stdout.fnmatch_lines(["=* peaks of memory: 8 highest of 8 tests =*", *TABLE], consecutive=True)


def test_workers_of_xdist_and_tests_that_run_again(plugins, pytester):
    pytester.makepyfile(
        test_again="""
        import pytest
        import floodmark

        sizes = [3000, 2000, 1000]

        @pytest.mark.flaky(reruns=2)
        @pytest.mark.memory_peak("1KiB")
        def test_again():
            floodmark.DeviceBuffer(size=sizes.pop(0))
        """
    )
    result = plugins("--floodmark", "-n", "2")
    result.stdout.fnmatch_lines(["*2 workers*"])
    # The highest of its runs.
    again = "       2.93 KiB (3000 bytes)  test_again.py::test_again"
    result.stdout.fnmatch_lines(
        ["=* peaks of memory: 9 highest of 9 tests =*", *TABLE[:3], again, *TABLE[3:]], consecutive=True
    )
    result.stdout.fnmatch_lines(["=* 4 failed, 5 passed, 2 rerun *"])
