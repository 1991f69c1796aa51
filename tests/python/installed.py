"""Uses the package as a wheel installs it into an environment that has nothing else: `PYTHON installed.py`.

The wheel has to contain the command.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile

for name in ("FLOODMARK", "PATH"):
    os.environ.pop(name, None)

import floodmark  # noqa: E402
from floodmark._command import find_command  # noqa: E402

here = os.path.realpath(sysconfig.get_path("purelib"))
assert os.path.realpath(floodmark.__file__).startswith(here), f"{floodmark.__file__} is not in {here}"
assert not {"numpy", "pandas", "pytest"} & set(sys.modules)

command = os.path.join(sysconfig.get_path("scripts"), "floodmark")
assert find_command() == command, find_command()
for start in ([command], [sys.executable, "-m", "floodmark"]):
    version = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.strip() == f"floodmark {floodmark.__version__}", version
    failed = subprocess.run([*start, "--no-such-option"], capture_output=True)
    assert failed.returncode == 2, failed

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "run.flood")
    with floodmark.record(path):
        buffer = floodmark.DeviceBuffer(size=3_000_000)
    assert "2.86 MiB" in floodmark.open(path).text("watermark")
print(f"floodmark {floodmark.__version__} with its command on Python {sys.version.split()[0]}")
