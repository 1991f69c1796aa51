"""Markers and options for pytest.

``@pytest.mark.memory_peak("100MiB")`` fails a test that allocates more at once, ``@pytest.mark.no_leaks`` one that leaves
memory live; ``--floodmark`` counts all tests, NumPy's arrays included, and lists those with the highest peaks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

_PROPERTY = "floodmark_peak_bytes"
_TOP = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("floodmark")
    group.addoption("--floodmark", action="store_true", help="List the tests with the highest peaks of memory")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "memory_peak(size): fail if the test allocates more than size at once")
    config.addinivalue_line("markers", "no_leaks(tolerance=0): fail if memory of the test is live after it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    peak, leaks = item.get_closest_marker("memory_peak"), item.get_closest_marker("no_leaks")
    counts = item.config.getoption("--floodmark")
    if peak is None and leaks is None and not counts:
        return (yield)

    import floodmark
    import floodmark.numpy
    from floodmark import testing

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, RuntimeError):
            stack.enter_context(floodmark.numpy.installed())
        resource = stack.enter_context(testing._counting())
        if leaks is not None:
            stack.enter_context(floodmark.assert_no_leaks(**leaks.kwargs))
        if peak is not None:
            stack.enter_context(floodmark.limit_peak(*peak.args, **peak.kwargs))
        resource.push()
        try:
            return (yield)
        finally:
            figures = resource.pop()
            if figures is not None:
                item.user_properties.append((_PROPERTY, figures[1]))


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    if not config.getoption("--floodmark"):
        return
    from floodmark.testing import _show

    rows = []
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            rows += [(value, report.nodeid) for name, value in report.user_properties if name == _PROPERTY]
    terminalreporter.section("peaks of memory")
    for peak, name in sorted(set(rows), key=lambda row: (-row[0], row[1]))[:_TOP]:
        terminalreporter.write_line(f"{_show(peak):>28}  {name}")
