"""Every Python block of the two documents that the package has to match, run as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).parent / "seeds"


def blocks(name):
    """(heading, code) of every Python block of a document."""
    heading, code, found = "", None, []
    for line in (SEEDS / name).read_text().splitlines():
        if code is None and re.match(r"#+ ", line):
            heading = line.lstrip("# ")
        elif code is None and line.startswith("```python"):
            code = []
        elif code is not None and line.startswith("```"):
            found.append((heading, "\n".join(code)))
            code = None
        elif code is not None:
            code.append(line)
    return found


RMM = blocks("rmm_logging.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Blocks read what earlier ones wrote."""
    return tmp_path_factory.mktemp("seed")


def run(code, folder):
    script = folder / "script.py"
    script.write_text(re.sub(r"^import rmm$", "import floodmark as rmm", code, flags=re.MULTILINE))
    environment = {**os.environ, "FLOODMARK_DEVICE": "host"}
    command = [sys.executable, script.name]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


# Lines that the output of a block has, by its number.
OUTPUT = {
    1: ["Total allocated: 3,072 bytes", "Peak usage: 3,072 bytes"],
    2: ["Current bytes: 1024", "Peak bytes: 1024", "Total allocations: 1"],
    4: [
        "After 10x1MB allocations:",
        "  Current: 10,485,760 bytes (10 allocations)",
        "  Current: 5,242,880 bytes (5 allocations)",
        "  Current: 15,728,640 bytes (10 allocations)",
        "  Peak: 15,728,640 bytes",
    ],
    5: [r"     1       1,000,000       1,000,000  .*script\.py:7\(process_data\)"],
    6: [
        "     1       1,000,000       1,000,000  data loading",
        "     1       1,000,000       1,000,000  processing",
    ],
    7: [
        "     1           3,500           3,500  outer",
        "     1           2,000           2,000  inner",
    ],
    8: ["     1           1,024           1,024  my operation"],
    10: ["Peak bytes: 1024", r"     1           1,024           1,024  .*script\.py:16\(my_function\)"],
    11: ["Peak before OOM: 0.00 GiB"],
    12: [
        r"     1       2,500,000       2,500,000  .*script\.py:9\(process_data\)",
        r"     1       1,000,000       1,000,000  .*script\.py:5\(load_data\)",
        r"     1               0               0  .*script\.py:15\(save_data\)",
    ],
    13: [r"CudaMemoryResource: .* ms for 1000 allocations", r"PoolMemoryResource: .* ms for 1000 allocations"],
}


def test_all_blocks_were_found():
    assert len(RMM) == 14
    assert len(blocks("cudf_memory_profiling.md")) == 1


@pytest.mark.parametrize("number", range(len(RMM)), ids=lambda number: f"{number}-{RMM[number][0]}")
def test_a_block_of_the_guide_of_rmm_runs(number, folder):
    heading, code = RMM[number]
    result = run(code, folder)
    # It asks for 100 GiB.
    has_little = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 100 << 30
    fails = heading == "Debugging OOM Errors" and has_little
    assert result.returncode == (1 if fails else 0), result.stderr
    lines = result.stdout.splitlines()
    if heading == "Debugging OOM Errors" and not fails:
        return  # a machine with so much memory has nothing to debug
    for expected in OUTPUT.get(number, []):
        known = any(line == expected or re.fullmatch(expected, line) for line in lines)
        assert known, f"{expected!r} is not in\n{result.stdout}"
    if number == 0:
        assert (folder / "memory_log.dev0.csv").read_text().count("allocate") == 2
    if fails:
        assert result.stderr.rstrip().splitlines()[-1].startswith("MemoryError: out of memory")
        assert ",allocate failure,(nil),107374182400,0\n" in (folder / "oom_debug.csv").read_text()


def test_the_report_has_the_layout_of_the_guide(folder):
    text = (SEEDS / "rmm_logging.md").read_text()
    documented = text[text.index("Memory Profiling\n====") :].split("```")[0].splitlines()
    result = run(RMM[5][1], folder)
    printed = result.stdout.splitlines()
    # All but the row, whose figures are those of an RMM that rounds sizes.
    assert printed[:-1] == documented[:-1]
    assert len(printed) == len(documented)
