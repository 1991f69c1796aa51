"""Tracing whole programs: how they end, what they fork, and ``python -m floodmark.trace``."""

import subprocess
import sys

from test_trace import calls, names


def test_a_program_is_traced_from_the_command_line(tmp_path):
    (tmp_path / "helper.py").write_text("def help():\n    return 1\n")
    (tmp_path / "program.py").write_text(
        "import sys, helper\n"
        "def main(count: int = 1):\n"
        "    print(sys.argv, helper.help(), __name__, main.__annotations__)\n"
        "    sys.exit(3)\n"
        "main()\n"
    )
    command = [sys.executable, "-m", "floodmark.trace", "-o", "run.flood", "--d-rss-trigger", "0"]
    result = subprocess.run([*command, "program.py", "--option", "x"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 3, result.stderr
    assert result.stdout == "['program.py', '--option', 'x'] 1 __main__ {'count': <class 'int'>}\n"
    assert "RSS" in result.stderr and "run.flood" in result.stderr
    rows = calls(tmp_path / "run.flood")
    called = names(rows, "call")
    assert "main" in called and "help" in called
    result = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1 and "exists" in result.stderr


def test_programs_that_a_traced_one_starts_are_traced(tmp_path):
    (tmp_path / "program.py").write_text(
        "import subprocess, sys, multiprocessing\n"
        "def child():\n"
        "    return 7\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run([sys.executable, '-c', 'import program; program.child()'], check=True)\n"
        "    process = multiprocessing.get_context('spawn').Process(target=child)\n"
        "    process.start()\n"
        "    process.join()\n"
        "    assert process.exitcode == 0\n"
    )
    command = [sys.executable, "-m", "floodmark.trace", "-q", "-o", "run.flood", "--d-rss-trigger", "0", "program.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0 and not result.stderr, result.stderr
    rows = calls(tmp_path / "run.flood")
    children = [row["process"] for row in rows if (row["function"], row["action"]) == ("child", "call")]
    # The other processes are the program itself and the resource tracker of multiprocessing.
    assert len(set(children)) == len(children) == 2 < len({row["process"] for row in rows})


def test_a_killed_program_leaves_its_calls(tmp_path, run_until_killed):
    program = """
        import floodmark.trace
        def step(number):
            return number
        floodmark.trace.start(0, filepath="run.flood", quiet=True)
        for number in range(1, 10**9):
            step(number)
            print(number, flush=True)
    """
    printed = run_until_killed(program, 2000)
    assert names(calls(tmp_path / "run.flood"), "call").count("step") >= printed


def test_forked_children_are_told_apart(tmp_path, run):
    run(
        """
        import os, floodmark.trace
        def work(kind):
            return bytearray(5_000_000)
        def child():
            return work("child")
        def parent():
            return work("parent")
        floodmark.trace.start(0, filepath="run.flood", quiet=True)
        kept = parent()
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                child()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        parent()
        """
    )
    rows = calls(tmp_path / "run.flood")
    by_process = {}
    for row in rows:
        by_process.setdefault(row["process"], []).append(row)
    assert len(by_process) == 3
    called = sorted(sorted(set(names(rows, "call")) & {"parent", "child"}) for rows in by_process.values())
    assert called == [["child"], ["child"], ["parent"]]
    for rows in by_process.values():
        # Each process has its own resident size, which the block that it makes raises.
        sizes = [row["rss"] for row in rows if row["function"] == "work"]
        assert max(sizes) - min(sizes) >= 4_900_000


def test_multiprocessing_children_are_traced(tmp_path, run):
    run(
        """
        import multiprocessing, floodmark.trace
        def square(number):
            return number * number
        if __name__ == "__main__":
            floodmark.trace.start(0, filepath="run.flood", quiet=True)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(square, range(10)) == [number * number for number in range(10)]
                pool.close()
                pool.join()
        """
    )
    rows = calls(tmp_path / "run.flood")
    assert names(rows, "call").count("square") == 10


def test_memory_of_the_tracer_is_bounded(tmp_path, run):
    result = run(
        """
        import floodmark.trace
        def rss():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        def leaf():
            return None
        def work(count):
            for _ in range(count):
                leaf()
        before = rss()
        floodmark.trace.start(0, filepath="run.flood", quiet=True)
        work(1000)
        begun = rss()
        work(300_000)
        for number in range(3000):
            exec(f"def made_{number}(): pass\\nmade_{number}()", {})
        print(begun - before, rss() - begun)
        """
    )
    fixed, grown = map(int, result.stdout.split())
    assert fixed < 32_000_000
    assert grown < 1_500_000
    del tmp_path
