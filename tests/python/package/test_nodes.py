"""What a Python program records on another node of a job is in the one trace of the job.

The other node is this machine with another host name, in a namespace of its own, which needs root.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import time

import pytest

import floodmark
from floodmark._command import find_command

SSH = """\
#!/bin/sh
# Stands in for ssh: a host of this name, on which the agent is no child of the recorder.
while [ "$1" != -- ]; do shift; done
exec unshare --uts sh -c "hostname $2; exec setsid -w sh -c '$3'"
"""

PROGRAM = """\
import os
import time

import floodmark

assert os.uname().nodename == "nodeB"
with floodmark.record() as recording:
    assert recording.joined
    kept = floodmark.DeviceBuffer(size=12_345_678)
    time.sleep(0.3)
del kept
"""


def test_what_a_program_records_on_another_node_is_in_the_trace_of_the_job(tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.fail("this test gives a process another host name and needs root and unshare (util-linux)")
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    environment = dict(os.environ, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("FLOODMARK_TRACE", "FLOODMARK_JOB", "FLOODMARK_HOST", "SLURM_JOB_ID", "PBS_NODEFILE"):
        environment.pop(name, None)
    # The command hands its variables to the test, which starts the program as a launcher would, on the other host.
    command = "env > variables.tmp; mv variables.tmp variables; while [ ! -e done ]; do sleep 0.02; done"
    run = [find_command(), "run", "--hosts", "nodeB", "--require-nodes", "-o", "run.flood"]
    run += ["--spool", str(tmp_path / "spool")]
    job = subprocess.Popen(
        [*run, "--", "sh", "-c", command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "variables").exists():
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        lines = (tmp_path / "variables").read_text().splitlines()
        passed = dict(line.split("=", 1) for line in lines if line.startswith("FLOODMARK_"))
        rank = ["unshare", "--uts", "sh", "-c", f"hostname nodeB; exec {sys.executable} program.py"]
        done = subprocess.run(rank, cwd=tmp_path, env={**environment, **passed}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    finally:
        (tmp_path / "done").write_text("")
        said = job.communicate(timeout=60)[1]
    assert job.returncode == 0, said
    assert "1 of 1 nodes were recorded completely" in " ".join(said.split()), said
    trace = floodmark.open(tmp_path / "run.flood")
    events = trace.events.to_polars().filter(action="alloc")
    assert events["bytes"].to_list() == [12_345_678]
    # Nothing of it is left on the node.
    assert list((tmp_path / "spool" / "floodmark-0").iterdir()) == []
