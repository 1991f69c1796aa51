"""Magics in a real IPython shell."""

import os
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import floodmark


@pytest.fixture
def shell(monkeypatch):
    # A shell replaces it, and processes of later tests look there for the program.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext floodmark")
    yield shell
    shell.reset(new_session=False)
    InteractiveShell.clear_instance()


def run(shell, code):
    with capture_output() as shown:
        result = shell.run_cell(code, store_history=True)
    return result, shown


def test_a_cell_shows_its_peak_and_what_held_it(shell, host_memory):
    result, shown = run(shell, "%%floodmark\nimport numpy\na = numpy.ones(10**6)\nlen(a)")
    assert result.success and "1000000" in shown.stdout, "the last expression is displayed as usual"
    memory = result.result
    assert memory.peak_bytes >= 8_000_000
    assert memory.groups["site"][0].bytes >= 8_000_000 and ":2)" in memory.groups["site"][0].key
    page = memory._repr_html_()
    assert "<svg" in page and "<table>" in page and "7.63 MiB" in page
    assert "Peak 7.63 MiB" in shown.stdout and ".flood" not in shown.stdout
    assert shell.user_ns["a"].sum() == 10**6
    assert not floodmark._native.is_recording()
    # The memory of later arrays is NumPy's own again.
    assert "numpy" in shell.user_ns and not os.path.exists(memory.source)


def test_a_line_takes_options_and_a_statement(shell):
    run(shell, "import floodmark")
    result, _ = run(shell, '%floodmark --by size --limit 1 b = floodmark.DeviceBuffer(size=len("a b") * 1000)')
    assert result.result.groups.keys() == {"size"} and result.result.peak_bytes == 3000
    assert shell.user_ns["b"].size == 3000
    result, _ = run(shell, "m = %floodmark --no-numpy floodmark.DeviceBuffer(size=77)")
    assert shell.user_ns["m"].peak_bytes == 77


def test_a_trace_is_kept_where_it_is_asked_for(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(shell, "import floodmark")
    assert run(shell, "%%floodmark -o kept.flood --no-stacks\nc = floodmark.DeviceBuffer(size=5)")[0].success
    assert floodmark.open("kept.flood").stats().peak_bytes == 5
    assert not run(shell, "%floodmark -o kept.flood 1")[0].success
    assert run(shell, "%floodmark -o kept.flood --force 1")[0].success
    assert floodmark.open("kept.flood").stats().peak_bytes == 0


def test_an_error_in_a_cell_is_an_error_of_the_cell(shell):
    result, shown = run(shell, "%%floodmark\nimport floodmark\nd = floodmark.DeviceBuffer(size=4096)\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert any("Peak 4.00 KiB" in text for output in shown.outputs for text in output.data.values())
    assert shown.stdout.count("ZeroDivisionError") <= 2 and not floodmark._native.is_recording()
    assert isinstance(run(shell, "%%floodmark\nif")[0].error_in_exec, SyntaxError)
    assert "--no-stacks" in run(shell, "%floodmark")[1].stdout


def test_a_cell_inside_a_recording_is_about_the_cell(shell, tmp_path):
    with floodmark.record(tmp_path / "outer.flood"):
        floodmark.DeviceBuffer(size=1 << 20)
        result, _ = run(shell, "%%floodmark\nimport floodmark\ne = floodmark.DeviceBuffer(size=4096)")
        assert floodmark._native.is_recording()
    assert result.result.peak_bytes == 4096
    assert floodmark.open(tmp_path / "outer.flood").stats().allocations == 2
