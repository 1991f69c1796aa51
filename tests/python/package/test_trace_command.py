"""``floodmark trace -- python …``: the command that starts the tracer of the interpreter's own package."""

import os
import shutil
import signal
import subprocess
import sys

from test_trace import COMMAND, calls, names

PROGRAM = """
import os, sys
def main():
    print(sys.argv, __name__, sys.flags.dev_mode)
    if "kill" in sys.argv:
        os.kill(os.getpid(), 15)
    sys.exit(3)
main()
"""


def trace(folder, *words, **environment):
    return subprocess.run(
        [COMMAND, "trace", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_program_is_traced_and_ends_as_it_would(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["-o", "run-%r.flood", "--mode", "every", "--message", "-begun-", "-q"]
    result = trace(tmp_path, *options, "--", sys.executable, "-Xdev", "program.py", "-q", "--mode=x")
    assert result.returncode == 3, result.stderr
    assert result.stdout == "['program.py', '-q', '--mode=x'] __main__ True\n"
    assert not result.stderr
    assert "main" in names(calls(tmp_path / "run-0.flood"), "call")
    result = trace(tmp_path, "-o", "dashes.flood", "-q", "--", sys.executable, "program.py", "--", "x", "--")
    assert result.stdout == "['program.py', '--', 'x', '--'] __main__ False\n", result.stderr
    result = trace(tmp_path, "-o", "run.flood", "--d-rss-trigger", "8KiB", sys.executable, "program.py", "kill")
    assert result.returncode == -signal.SIGTERM
    assert "run.flood" in result.stderr and "RSS" in result.stderr


def test_modules_and_code_are_programs_too(tmp_path):
    (tmp_path / "tool.py").write_text("import sys\ndef work():\n    print(sys.argv[1:], __name__)\nwork()\n")
    words = ["--mode", "every", "-q", "--", sys.executable]
    result = trace(tmp_path, "-o", "module.flood", *words, "-m", "tool", "-x", PYTHONPATH="")
    assert (result.returncode, result.stdout) == (0, "['-x'] __main__\n"), result.stderr
    result = trace(tmp_path, "-o", "code.flood", *words, "-c", "import sys, tool; print(sys.argv)", "a")
    assert (result.returncode, result.stdout) == (0, "['a'] tool\n['-c', 'a']\n"), result.stderr
    for name in ("module", "code"):
        assert "work" in names(calls(tmp_path / f"{name}.flood"), "call")


def test_a_trace_under_run_is_part_of_its_trace(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["run", "-q", "-o", "run.flood", "--", COMMAND, "trace", "-q", "--mode", "every", "--", sys.executable]
    result = subprocess.run([COMMAND, *words, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    assert "main" in names(calls(tmp_path / "run.flood"), "call")
    assert [path.name for path in tmp_path.glob("*.flood")] == ["run.flood"]


def test_an_interpreter_without_the_package_is_refused(tmp_path):
    # `-S` leaves out the folders in which packages are installed.
    result = trace(tmp_path, "--", sys.executable, "-S", "-E", "program.py")
    assert result.returncode == 2
    assert f"{sys.executable} -m pip install floodmark" in result.stderr
    package = tmp_path / "other" / "floodmark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.0.1'\n")
    result = trace(tmp_path, "--", sys.executable, "program.py", PYTHONPATH=str(package.parent))
    assert result.returncode == 2
    assert "0.0.1" in result.stderr and "pip install floodmark==" in result.stderr
    (package / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    result = trace(tmp_path, "--", sys.executable, "program.py", PYTHONPATH=str(package.parent))
    assert result.returncode == 2 and "broken on purpose" in result.stderr
    result = trace(tmp_path, "--", "./python3.99", "program.py")
    assert result.returncode == 127
    shutil.copy(shutil.which("true"), tmp_path / "solver")
    result = trace(tmp_path, "--", "./solver")
    assert result.returncode == 2 and "not a Python interpreter" in result.stderr
