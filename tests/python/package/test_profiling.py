"""Profiling of whole packages."""

import doctest
import io
import re
import sys
import tracemalloc
from pathlib import Path

import pytest

import floodmark
from floodmark.profiling import _packages

SEED = Path(__file__).parent / "seeds" / "cudf_memory_profiling.md"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of all kinds of functions; its name."""
    folder = tmp_path / "mypkg"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text("from mypkg.core import Thing, make\nfrom mypkg.core import make as alias\n")
    (folder / "tests" / "__init__.py").write_text("def test():\n    return 1\n")
    (folder / "late.py").write_text("def late():\n    return str('late')\n")
    (folder / "core.py").write_text(
        '''
import floodmark
from math import sqrt

def make(size):
    return floodmark.DeviceBuffer(size=size)

def _private():
    return make(1)

def uses_private():
    return _private()

class Thing:
    def __init__(self, size):
        self.buffer = make(size)

    def method(self):
        return make(5)

    @property
    def size(self):
        return self.buffer.size

    @property
    def prop(self):
        return make(6).size

    @classmethod
    def of_class(cls):
        return cls(7)

    @staticmethod
    def static():
        return make(8)

    def items(self):
        yield make(9)
'''
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "mypkg"
    floodmark.unprofile_package("mypkg")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mypkg"]:
        del sys.modules[name]


def calls():
    records = floodmark.get_memory_records()
    return {re.sub(r".*\((.*)\)", r"\1", name): record.num_calls for name, record in records.items()}


def use(mypkg):
    thing = mypkg.Thing(100)
    thing.method()
    assert (thing.prop, thing.size) == (6, 100)
    assert isinstance(mypkg.Thing.of_class(), mypkg.Thing)
    assert mypkg.Thing.static().size == 8
    assert [item.size for item in thing.items()] == [9]
    mypkg.alias(3)
    mypkg.core.uses_private()


EXPECTED = {
    "Thing.__init__": 2,
    "Thing.method": 1,
    "Thing.prop": 1,
    "Thing.of_class": 1,
    "Thing.static": 1,
    "Thing.items": 1,
    "make": 8,
    "uses_private": 1,
}


@pytest.mark.parametrize("loaded", [False, True])
def test_all_kinds_of_functions(package, loaded):
    if loaded:
        import mypkg
    floodmark.profile_package(package)
    import mypkg
    import mypkg.tests

    use(mypkg)
    mypkg.tests.test()
    assert calls() == EXPECTED
    names = list(floodmark.get_memory_records())
    assert "mypkg/core.py:5(make)" in names
    assert floodmark.get_memory_records()["mypkg/core.py:15(Thing.__init__)"].memory_peak == 100
    import mypkg.late

    assert mypkg.late.late() == "late"
    assert calls()["late"] == 1


def test_it_is_switched_at_run_time(package):
    import mypkg

    original = mypkg.make
    floodmark.profile_package(package)
    assert mypkg.make is not original
    with floodmark.option_context("memory_profiling", False):
        # Nothing is left in the way.
        assert mypkg.make is original
        mypkg.make(1)
    mypkg.make(1)
    assert calls() == {"make": 1}
    floodmark.unprofile_package(package)
    assert mypkg.make is original and package not in _packages


def test_patterns(package):
    floodmark.profile_package(package, include=["*.Thing.*"], exclude=["*.prop"])
    import mypkg

    use(mypkg)
    assert set(calls()) == {name for name in EXPECTED if name.startswith("Thing.")} - {"Thing.prop"}


def test_options(capsys):
    with pytest.raises(KeyError):
        floodmark.get_option("other")
    with pytest.raises(ValueError):
        floodmark.set_option("memory_profiling", "yes")
    floodmark.describe_option("memory_profiling")
    assert "[Default: False]" in capsys.readouterr().out
    out = io.StringIO()
    floodmark.print_memory_report(file=out)
    assert "No data" in out.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("true", True), ("ON", True), ("0", False), ("off", False), ("what", False)]
)
def test_the_variable_of_cudf(run, text, expected):
    code = "import floodmark; print(floodmark.get_option('memory_profiling'))"
    assert run(code, CUDF_MEMORY_PROFILING=text).stdout.strip() == str(expected)


def test_the_block_of_the_guide_of_cudf(capsys, host_memory):
    code = SEED.read_text().split("```python\n")[1].split("```")[0]
    code = code.replace("import cudf", "import floodmark.pandas as cudf", 1)
    code = code.replace("from cudf.utils.", "from floodmark.utils.").replace("from rmm.statistics", "from floodmark.statistics")
    examples = doctest.DocTestParser().get_examples(code)
    scope = {}
    for example in examples:
        exec(compile(example.source, "<seed>", "single"), scope)
    printed = capsys.readouterr().out
    assert "   a\n0  1\n1  2\n2  3\n" in printed
    assert printed.index("Memory Profiling\n====") > printed.index("0  1")
    assert re.search(r"^ +1 +[1-9][0-9,]* +[1-9][0-9,]*  pandas/core/frame.py:\d+\(DataFrame.__init__\)$", printed, re.M)
    scope["cudf"].set_option("memory_profiling", False)
    floodmark.unprofile_package("pandas")
    floodmark.numpy.uninstall()


def test_a_pipeline_of_pandas_from_the_environment(run, tmp_path):
    """Peaks agree with tracemalloc, which counts NumPy's memory too."""
    (tmp_path / "pipeline.py").write_text(
        """
import gc, json, sys, tracemalloc
import numpy as np
import pandas as pd

def frame(rows):
    rng = np.random.default_rng(1)
    return pd.DataFrame({"key": rng.integers(0, 100, rows), "value": rng.random(rows)})

data = frame(500_000)
steps = {
    "NDFrame.copy": lambda: data.copy(),
    "DataFrame.sort_values": lambda: data.sort_values("value"),
    "NDFrame.astype": lambda: data.astype("float32"),
    "concat": lambda: pd.concat([data, data], ignore_index=True),
}
peaks = {}
for name, step in steps.items():
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    result = step()
    peaks[name] = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    del result
print(json.dumps(peaks))
"""
    )
    import json

    plain = run("exec(open('pipeline.py').read())")
    peaks = json.loads(plain.stdout)
    result = run("exec(open('pipeline.py').read())", FLOODMARK_MEMORY_PROFILING="pandas", FLOODMARK_DEVICE="host")
    report = result.stderr
    rows = re.findall(r"^ *([\d,]+) +([\d,]+) +([\d,]+)  pandas/\S+:\d+\((\S+)\)$", report, re.M)
    ours = {name: int(peak.replace(",", "")) for _, peak, _, name in rows}
    assert len(ours) > 10, report
    for name, expected in peaks.items():
        assert ours.get(name) == pytest.approx(expected, rel=0.05), f"{name}\n{report}"
