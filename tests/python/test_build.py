"""The backend that builds wheels."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(code, tmp_path, **environment):
    """Run code that has imported the backend; what it printed to stderr."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'crates' / 'python')!r}); import build_backend; {code}"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 1, result.stdout
    return result.stderr


def test_free_threaded_builds_are_refused(tmp_path):
    code = "sys.abiflags = 't'; build_backend.build_wheel('.')"
    assert build(code, tmp_path).startswith("error: floodmark needs the global interpreter lock")


def test_a_command_that_is_not_there_is_named(tmp_path):
    message = build("build_backend.build_wheel('.')", tmp_path, FLOODMARK_WHEEL_COMMAND="/no/such/command")
    assert message.startswith("error: FLOODMARK_WHEEL_COMMAND=/no/such/command is no file")
