"""Markers and options for pytest.

``@pytest.mark.memory_peak("100MiB")`` fails a test whose peak is above a limit, and ``@pytest.mark.no_leaks`` one that
leaves memory live. Both work without an option, count NumPy's arrays, and count what the test function allocates, in
all threads of the process: neither its fixtures nor what other plugins do between tests. ``floodmark_memory_peak`` in
the configuration is the limit of tests without a marker. ``--floodmark`` lists the tests with the highest peaks.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

_PROPERTY = "floodmark_peak_bytes"
_LIMIT = "floodmark_memory_peak"
_TOP = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("floodmark")
    group.addoption("--floodmark", action="store_true", help="List the tests with the highest peaks of memory")
    parser.addini(_LIMIT, "Limit of the peak of tests without the marker memory_peak, such as 100MiB", default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "memory_peak(size): fail if the test allocates more than size at once")
    config.addinivalue_line(
        "markers",
        "no_leaks(tolerance=0, warmup=0): fail if memory of the test is live after it; run it warmup times before",
    )


def _limits(item: pytest.Item) -> tuple[int | None, int | None, int]:
    """Return the limit of the peak, the bytes that may leak (None for no limit), and how often the test warms up."""
    from floodmark._sizes import parse_bytes

    def limit(size: int | str) -> int:
        return parse_bytes(size)

    def leaks(*, tolerance: int | str = 0, warmup: int = 0) -> tuple[int, int]:
        return parse_bytes(tolerance), warmup

    peak, no_leaks = item.get_closest_marker("memory_peak"), item.get_closest_marker("no_leaks")
    default = item.config.getini(_LIMIT)
    if peak is not None:
        peak_limit: int | None = limit(*peak.args, **peak.kwargs)
    else:
        peak_limit = parse_bytes(default) if default else None
    if no_leaks is None:
        return peak_limit, None, 0
    return peak_limit, *leaks(*no_leaks.args, **no_leaks.kwargs)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    peak_limit, allowed, warm_up = _limits(item)
    if peak_limit is None and allowed is None and not item.config.getoption("--floodmark"):
        return (yield)

    import floodmark.numpy
    from floodmark import testing

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, RuntimeError):  # no NumPy, or memory of a GPU
            stack.enter_context(floodmark.numpy.installed())
        for _ in range(warm_up):
            # What the test keeps on purpose (caches) is there before it counts.
            item.runtest()
        measured = stack.enter_context(testing._measuring())
        try:
            result = yield
        finally:
            # A test that runs again has one figure, that of its last run.
            item.user_properties[:] = [pair for pair in item.user_properties if pair[0] != _PROPERTY]
            item.user_properties.append((_PROPERTY, measured.peak_bytes))
        try:
            if peak_limit is not None:
                testing._check_peak(measured, peak_limit)
            if allowed is not None:
                gc.collect()
                testing._check_leaks(measured, allowed, "test")
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    if not config.getoption("--floodmark"):
        return
    from floodmark.testing import _show

    peaks: dict[str, int] = {}
    for outcome in ("passed", "failed", "rerun", "xfailed", "xpassed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    peaks[report.nodeid] = max(value, peaks.get(report.nodeid, 0))
    terminalreporter.section(f"peaks of memory: {min(_TOP, len(peaks))} highest of {len(peaks)} tests")
    for test, peak in sorted(peaks.items(), key=lambda row: (-row[1], row[0]))[:_TOP]:
        terminalreporter.write_line(f"{_show(peak):>28}  {test}")
