"""Recordings that join the trace of 'floodmark run' or of a parent process."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

import floodmark
from floodmark._command import find_command


@pytest.fixture
def run_recorded(tmp_path):
    """Run a program under 'floodmark run'; return the trace and what was printed."""

    def run_recorded(code, *, status=0, **environment):
        (tmp_path / "program.py").write_text(textwrap.dedent(code))
        result = subprocess.run(
            [find_command(), "run", "-o", "joined.flood", "--", sys.executable, "program.py"],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == status, result.stdout + result.stderr
        return floodmark.open(tmp_path / "joined.flood"), result.stdout

    return run_recorded


def sizes_by_process(trace):
    """Sizes of allocations, a list for each process that has some."""
    events = trace.events.to_polars().filter(action="alloc")
    return sorted(sorted(group["bytes"].to_list()) for _, group in events.group_by("process"))


def test_events_join_the_samples_of_a_run(run_recorded, tmp_path):
    trace, printed = run_recorded(
        """
        import floodmark, time
        with floodmark.record("own.flood") as recording:
            with floodmark.scope("loading"):
                kept = floodmark.DeviceBuffer(size=3_000_000)
            print(recording.joined, recording.path)
            time.sleep(0.1)
        del kept
        with floodmark.record(join=False) as own:
            floodmark.DeviceBuffer(size=5)
        print(own.path)
        """
    )
    assert printed.split() == ["True", str(tmp_path / "joined.flood"), str(tmp_path / "program.py.flood")]
    assert not (tmp_path / "own.flood").exists()
    assert sizes_by_process(trace) == [[3_000_000]]
    assert trace.summary().peak_rss_bytes > 3_000_000 and trace.summary().run.exit_status == 0
    # One clock: the allocation lies between the first and the last sample.
    samples, events = trace.samples.to_polars(), trace.events.to_polars()
    assert samples["time"].min() < events["time"].min() < samples["time"].max()
    assert "loading" in trace.scopes.to_polars()["name"].cast(str).to_list()
    assert "<svg" in trace._repr_html_()
    assert floodmark.open(tmp_path / "program.py.flood").stats().total_bytes == 5


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_join(run_recorded, method):
    trace, _ = run_recorded(
        f"""
        import os
        os.environ["FLOODMARK_DEVICE"] = "host"  # a GPU cannot be used after a fork
        import multiprocessing, floodmark
        def work(size):
            floodmark.DeviceBuffer(size=size)
        if __name__ == "__main__":
            with floodmark.record():
                kept = floodmark.DeviceBuffer(size=10)
                workers = [multiprocessing.get_context("{method}").Process(target=work, args=(n,)) for n in (21, 22)]
                for worker in workers: worker.start()
                for worker in workers: worker.join()
                assert [worker.exitcode for worker in workers] == [0, 0]
        """
    )
    assert sizes_by_process(trace) == [[10], [21], [22]]


def test_a_process_that_is_killed_leaves_its_events_in_the_run(run_recorded):
    trace, _ = run_recorded(
        """
        import os, signal, subprocess, sys, floodmark
        with floodmark.record():
            code = "import os, floodmark; b = floodmark.DeviceBuffer(size=31); os.kill(os.getpid(), 9)"
            assert subprocess.run([sys.executable, "-c", code]).returncode == -9
            kept = floodmark.DeviceBuffer(size=32)
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        status=-signal.SIGKILL,
    )
    assert sizes_by_process(trace) == [[31], [32]]


def test_the_environment_records_without_a_change_of_the_program(run_recorded):
    trace, _ = run_recorded(
        "import floodmark; b = floodmark.DeviceBuffer(size=41)", FLOODMARK_RECORD="no-stacks"
    )
    assert sizes_by_process(trace) == [[41]]
    assert trace.stacks.to_arrow().num_rows == 0


def test_children_of_a_recording_join_it_without_a_run(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with floodmark.record("run.flood"):
        run("import floodmark; b = floodmark.DeviceBuffer(size=51)")
        assert os.environ["FLOODMARK_TRACE"] == str(tmp_path / "run.flood")
    assert "FLOODMARK_TRACE" not in os.environ and "FLOODMARK_RECORD" not in os.environ
    run("import floodmark; b = floodmark.DeviceBuffer(size=52)")
    assert sizes_by_process(floodmark.open("run.flood")) == [[51]]


def test_traces_without_a_name_are_numbered(tmp_path, run):
    code = "import floodmark\nwith floodmark.record() as r: print(r.path)"
    names = [run(code).stdout.strip() for _ in range(2)]
    assert names == [str(tmp_path / "python.flood"), str(tmp_path / "python-2.flood")]
    twice = "import floodmark\nr = floodmark.record()\nfor _ in 'ab':\n    with r: print(r.path)"
    numbered = [str(tmp_path / f"python-{number}.flood") for number in (3, 4)]
    assert run(twice).stdout.split() == numbered
    # What is named in the environment and is no trace is not joined.
    assert run(code, FLOODMARK_TRACE=str(tmp_path)).stdout.strip() == str(tmp_path / "python-5.flood")


def test_only_traces_are_replaced(tmp_path):
    precious = tmp_path / "precious.flood"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years")
    # As extensions of browsers have it.
    (precious / "manifest.json").write_text('{"manifest_version": 3}')
    with pytest.raises(FileExistsError, match="is no trace"):
        floodmark.record(precious, force=True).start()
    link = tmp_path / "link.flood"
    with floodmark.record(tmp_path / "real.flood"):
        pass
    link.symlink_to(tmp_path / "real.flood")
    with pytest.raises(FileExistsError, match="symbolic link"):
        floodmark.record(link, force=True).start()
    file = tmp_path / "file.flood"
    file.write_text("text")
    with pytest.raises(FileExistsError, match="is no trace"):
        floodmark.record(file, force=True).start()
    with pytest.raises(FileExistsError, match="is being recorded"), floodmark.record(tmp_path / "own.flood"):
        floodmark.Recording(tmp_path / "own.flood", force=True)._start_own()
    shutil.rmtree(tmp_path / "own.flood")
    assert (precious / "thesis.txt").read_text() == "years" and file.read_text() == "text"
    assert floodmark.open(tmp_path / "real.flood").summary().events == 0
    with floodmark.record(tmp_path / "real.flood", force=True):
        kept = floodmark.DeviceBuffer(size=61)
    assert sizes_by_process(floodmark.open(tmp_path / "real.flood")) == [[61]]
    left = ["file.flood", "link.flood", "precious.flood", "real.flood"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    del kept


def test_a_run_that_is_killed_loses_nothing_of_its_program(tmp_path):
    program = """
        import sys, floodmark
        with floodmark.record():
            first = floodmark.DeviceBuffer(size=71)
            print("ready", flush=True)
            sys.stdin.readline()
            second = floodmark.DeviceBuffer(size=72)
        print("done", flush=True)
    """
    command = [find_command(), "run", "-o", "run.flood", "--", sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        # Its output ends when the program has ended.
        assert process.communicate("\n", timeout=30)[0] == "done\n"
    assert sizes_by_process(floodmark.open(tmp_path / "run.flood")) == [[71, 72]]
