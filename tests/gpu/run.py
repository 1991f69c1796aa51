"""Runs what needs an NVIDIA GPU, prints a verdict for each step, and goes on where one fails.

    python3 tests/gpu/run.py ARCHIVE [STEP ...]

ARCHIVE is what `tests/gpu/pack.sh` made, perhaps on another machine. Logs and small traces go into the folder that `OUT` names.
Needs nvcc, a C compiler, and a Python with PyTorch and CuPy, the one that runs this. The exit status is that of the verdicts.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARCHIVE = Path(sys.argv[1]).resolve()
OUT = Path(os.environ.get("OUT", "/tmp/floodmark-gpu")).resolve()
WORK = Path(os.environ.get("WORK", "/tmp/floodmark-gpu-work")).resolve()
# What was in the archive.
PACK = WORK / "pack"
FLOODMARK = PACK / "floodmark"
MIB = 1 << 20
# The whole run ends by then.
DEADLINE = time.monotonic() + float(os.environ.get("SECONDS_IN_ALL", 520))

STEPS = []
VERDICTS = []


class Failed(Exception):
    """A step did not show what it has to."""


def step(limit):
    """Registers a function that does a step, which has so many seconds."""

    def register(function):
        STEPS.append((function.__name__, limit, function))
        return function

    return register


def say(text):
    print(text, flush=True)
    with open(OUT / "log.txt", "a") as log:
        log.write(text + "\n")


def keep(text):
    """Writes text to the log only."""
    with open(OUT / "log.txt", "a") as log:
        log.write(text + "\n")


def check(is_right, text):
    """Notes what was seen; a wrong one fails the step at its end."""
    say(f"    {'ok  ' if is_right else 'FAIL'} {text}")
    if not is_right:
        WRONG.append(text)


WRONG = []
LIMIT = [0.0]


def shell(words, status=0, shown=0, **options):
    """Runs a command within the time of its step; its output goes to the log."""
    left = min(LIMIT[0], DEADLINE) - time.monotonic()
    if left <= 1:
        raise Failed("no time left")
    environment = {**os.environ, **{name: str(value) for name, value in options.pop("env", {}).items()}}
    words = [str(word) for word in words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               env=environment, start_new_session=True, stdin=subprocess.DEVNULL, **options)
    try:
        out, err = process.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        keep(f"$ {' '.join(words)}\n{out[-6000:]}{err[-6000:]}")
        raise Failed(f"{words[0]} took longer than its time") from None
    keep(f"$ {' '.join(words)}\n{out[-12000:]}{err[-12000:]}exit status {process.returncode}")
    if status is not None and process.returncode != status:
        raise Failed(f"{' '.join(words)[:200]} ended with {process.returncode}: {(out + err)[-1500:]}")
    if shown:
        say("\n".join("    | " + line for line in (out + err).splitlines()[-shown:]))
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def record(trace, command, options=(), level="", status=0, env=None, shown=0):
    """Runs a command under `floodmark run --gpu`."""
    trace = WORK / trace
    shutil.rmtree(trace, ignore_errors=True)
    words = [FLOODMARK, "run", f"--gpu={level}" if level else "--gpu", *options, "-o", trace, "--", *command]
    return trace, shell(words, status=status, env=env or {}, shown=shown)


def ask(command, trace, *options):
    """Asks for an answer as JSON."""
    return json.loads(shell([FLOODMARK, command, trace, "--json", *options]).stdout)


def figures(result):
    """The line with a program's own figures."""
    for line in result.stdout.splitlines():
        if line.startswith("FIGURES "):
            return json.loads(line.removeprefix("FIGURES "))
        if line.startswith("{"):
            return json.loads(line)
    raise Failed(f"no figures in the output: {(result.stdout + result.stderr)[-800:]}")


def build(name, *options):
    """Compiles one of the programs."""
    program = WORK / Path(name).stem
    shell(["nvcc", "-g", "-O2", "-std=c++17", "-arch=native", "-o", program, HERE / "programs" / name, *options])
    return program


def ways():
    return ("cupti", "preload")


def of_module(blocks, module):
    """Bytes of the blocks whose stack has a frame in a module."""
    return sum(block["bytes"] for block in blocks if any(module in frame for frame in block["stack"]))


@step(40)
def machine():
    """What this machine has."""
    shell(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.used", "--format=csv"], shown=3)
    shell(["nvcc", "--version"], shown=1)
    shell([FLOODMARK, "--version"], shown=1)
    found = shell(["bash", "-c", "ls -d /usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1* 2>/dev/null;"
                   "find / -name 'libcupti.so.1*' -not -path '/proc/*' 2>/dev/null; which nsys ncu; ldconfig -p | grep libcuda.so"],
                  status=None)
    say("    | " + found.stdout.replace("\n", "\n    | "))
    code = "import torch, cupy; print(torch.__version__, cupy.__version__, torch.cuda.get_device_name())"
    shell([sys.executable, "-c", code], shown=1)


def environment():
    """The libraries that tests in C link and load."""
    driver = subprocess.run("ldconfig -p | grep -o '/.*/libcuda.so.1$' | head -1", shell=True, capture_output=True, text=True)
    folders = [str(Path(driver.stdout.strip()).parent)] if driver.stdout.strip() else ["/usr/local/nvidia/lib64"]
    path = ":".join([*folders, os.environ.get("LIBRARY_PATH", "")]).strip(":")
    return {"LIBRARY_PATH": path, "LD_LIBRARY_PATH": ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")}


@step(100)
def inject_tests():
    """The tests of the injected library with the driver and the CUPTI of this machine."""
    env = {"FLOODMARK_TEST_REAL_CUDA": 1, "CARGO_MANIFEST_DIR": ROOT / "crates/inject", "CARGO_TARGET_TMPDIR": WORK,
           "RUST_BACKTRACE": 0, **environment()}
    result = shell([PACK / "inject/tests", "cuda", "--test-threads", "1"], status=None, env=env, cwd=WORK)
    for line in result.stdout.splitlines():
        if line.startswith("test cuda"):
            check(line.endswith("ok"), line)
    if result.returncode:
        text = result.stdout + result.stderr
        say("\n".join("    | " + line for line in text.splitlines() if "panicked" in line or "left:" in line
                      or "right:" in line or "assert" in line)[:6000])
    check("test result: ok" in result.stdout, "all tests of the library")


@step(110)
def python_tests():
    """The tests of the Python package beside PyTorch, CuPy and RMM."""
    env = {"FLOODMARK": FLOODMARK, "PYTHONPATH": PACK / "python"}
    tests = [ROOT / "tests/python/gpu" / f"test_{name}.py" for name in ("torch", "cupy", "rmm")]
    result = shell([sys.executable, "-m", "pytest", "-q", "-x", "--maxfail=20", "-p", "no:cacheprovider", *tests],
                   status=None, env=env, cwd=WORK)
    say("\n".join("    | " + line for line in result.stdout.splitlines()[-12:]))
    check(result.returncode == 0, "tests/python/gpu")


@step(60)
def export_of_nsys():
    """The program of the export of Nsight Systems gives its figures."""
    program = WORK / "t"
    shell(["nvcc", "-g", "-O0", "-arch=native", "-o", program, ROOT / "fixtures/nsys/small.cu"])
    export = ROOT / "fixtures/nsys/small_2025.3.sqlite"
    theirs, their_leaks = ask("watermark", export), ask("leaks", export)
    other = {kind: ask("stats", export, "--kind", kind)["peak_bytes"] for kind in ("managed", "pinned", "static")}

    def shapes(answer):
        return sorted((block["bytes"], re.sub(r" [\[(].*", "", block["site"])) for block in answer["blocks"])

    def own_frames(block):
        names = [re.sub(r" \[.*| .*\.cu:.*", "", frame) for frame in block["stack"]]
        return [name for name in names if name in ("peak()", "leak()", "main")]

    for way in ways():
        trace, _ = record(f"small-{way}.flood", [program], ["--gpu-way", way])
        ours, our_leaks = ask("watermark", trace), ask("leaks", trace)
        check(ours["losses"] == [], f"{way}: no losses")
        for key in ("peak_bytes", "peak_blocks"):
            check(ours[key] == theirs[key], f"{way}: {key} {ours[key]}, export {theirs[key]}")
        for key in ("leaked_bytes", "leaked_blocks"):
            check(our_leaks[key] == their_leaks[key], f"{way}: {key} {our_leaks[key]}, export {their_leaks[key]}")
        check(shapes(ours) == shapes(theirs), f"{way}: blocks and sites at the peak {shapes(ours)}")
        check([own_frames(block) for block in our_leaks["blocks"]] == [own_frames(block) for block in their_leaks["blocks"]],
              f"{way}: frames of the leaks {[own_frames(block) for block in our_leaks['blocks']][:1]}")
        keep(json.dumps(our_leaks["blocks"][:1], indent=1))
        for kind, bytes in other.items():
            if kind == "static" and way == "preload":
                # Only CUPTI tells of modules.
                continue
            peak = ask("stats", trace, "--kind", kind)["peak_bytes"]
            check(peak == bytes, f"{way}: {kind} peak {peak}, export {bytes}")


@step(40)
def virtual_memory():
    """A program of virtual memory management."""
    program = build("vmm.cu", "-lcuda")
    for way in ways():
        trace, result = record(f"vmm-{way}.flood", [program], ["--gpu-way", way])
        own, stats = figures(result), ask("stats", trace)
        check(own["own_peak"] == own["driver_peak"], f"cuMemGetInfo changed by {own['driver_peak']}, asked for {own['own_peak']}")
        check(stats["peak_bytes"] == own["driver_peak"], f"{way}: peak {stats['peak_bytes']}")
        check(stats["live_bytes"] == own["driver_end"], f"{way}: left {stats['live_bytes']}, driver {own['driver_end']}")


@step(80)
def threads_and_ends():
    """Eight threads with eight streams; every end of a process."""
    program = build("threads.cu")
    for way in ways():
        for end, status in (("return", 0), ("_exit", 0), ("abort", -6), ("kill", -9)):
            trace, result = record(f"threads-{way}-{end}.flood", [program, end], ["--gpu-way", way], status=status)
            own, stats = figures(result), ask("stats", trace)
            seen = (stats["allocations"], stats["frees"], stats["live_blocks"])
            check(seen == (own["allocations"], own["frees"], own["left"]) and stats["losses"] == [],
                  f"{way} {end}: {seen} allocations, frees and blocks left; losses {stats['losses']}")


def layered(driver):
    """Records at the level of tensors too, with torch.profiler beside it."""
    for level in ("all", "framework"):
        trace, result = record(f"torch-{level}.flood", [sys.executable, HERE / "programs/torch_figures.py", "profiler"], level=level)
        own, stats = figures(result), ask("stats", trace)
        check(stats["losses"] == [] and stats["unmatched_frees"] == 0, f"{level}: losses {stats['losses']}, unmatched frees {stats['unmatched_frees']}")
        check(bool(own["profiler_kernels"]), f"{level}: kernels seen by torch.profiler {own['profiler_kernels']}")
        if level == "framework":
            check(stats["peak_bytes"] == own["max_allocated"], f"{level}: peak {stats['peak_bytes']}, PyTorch {own['max_allocated']}")
            continue
        layers = [layer for layer in stats["layers"] if layer["blocks_resource"] == "torch"] or [{}]
        seen = (layers[0].get("reserved_peak_bytes"), layers[0].get("live_peak_bytes"))
        check(seen == (own["max_reserved"], own["max_allocated"]),
              f"{level}: held and handed out at most {seen}, PyTorch {(own['max_reserved'], own['max_allocated'])}")
        blocks = ask("watermark", trace)["blocks"]
        others = sum(block["bytes"] for block in blocks if block["resource"] != "torch")
        say(f"    note {level}: other libraries at the peak {others}; sites {sorted({block['site'] for block in blocks})[:6]}")


@step(90)
def torch_figures():
    """PyTorch's own figures, and torch.profiler beside us."""
    script = HERE / "programs/torch_figures.py"
    for way, what in (("cupti", ""), ("auto", "profiler"), ("preload", "profiler")):
        trace, result = record(f"torch-{way}.flood", [sys.executable, script, what], ["--gpu-way", way])
        own, answer = figures(result), ask("watermark", trace)
        cached = of_module(answer["blocks"], "libc10_cuda")
        label = f"{way} {what}".strip()
        check(cached == own["max_reserved"], f"{label}: allocated by PyTorch's cache at the peak {cached}, PyTorch {own['max_reserved']}")
        check(answer["peak_bytes"] >= cached, f"{label}: peak {answer['peak_bytes']}, others {answer['peak_bytes'] - cached}")
        say(f"    note {label}: cuMemGetInfo changed by {own['driver_change']}, reserved by {own['reserved_change']}")
        sites = sorted({block["site"] for block in answer["blocks"]})
        say(f"    note {label}: sites {sites[:6]}")
        if what:
            is_said = "CUPTI" in result.stderr or "torch.profiler" in result.stderr
            say("\n".join("    | " + line for line in result.stderr.splitlines() if "upti" in line.lower() or "error" in line.lower())[:1500])
            check(own["profiler_kernels"] > 0 or is_said, f"{label}: kernels seen by torch.profiler {own['profiler_kernels']}")
        if way == "preload":
            layered(own)
            check(bool(own["profiler_kernels"]), f"{label}: torch.profiler works beside interposed functions")


@step(40)
def cupy_figures():
    """CuPy's own figures."""
    for way in ways():
        trace, result = record(f"cupy-{way}.flood", [sys.executable, HERE / "programs/cupy_pool.py"], ["--gpu-way", way])
        own, stats = figures(result), ask("stats", trace)
        check(stats["peak_bytes"] == own["total"], f"{way}: peak {stats['peak_bytes']}, CuPy's pool {own['total']}")
        say(f"    note {way}: cuMemGetInfo changed by {own['driver_change']}")


@step(60)
def cost_of_pairs():
    """What a pair of cudaMallocAsync and cudaFreeAsync costs, in nanoseconds."""
    program = build("pairs.cu")
    modes = {
        "bare": None,
        "cupti, stacks": ["--gpu-way", "cupti"],
        "cupti": ["--gpu-way", "cupti", "--no-gpu-stacks"],
        "interposed, stacks": ["--gpu-way", "preload"],
        "interposed": ["--gpu-way", "preload", "--no-gpu-stacks"],
    }
    # Neighbours and clocks change what a pair takes by a factor of two for seconds: short runs take turns on one core, and
    # each is compared with the bare one of its own turn.
    taken, more = {mode: [] for mode in modes}, {mode: [] for mode in modes}
    for turn in range(12):
        base = 0.0
        for mode, options in modes.items():
            command = ["taskset", "-c", "3", program, 3]
            if options is None:
                result = shell(command)
            else:
                trace, result = record("pairs.flood", command, options)
                if turn == 0:
                    stats = ask("stats", trace)
                    check(stats["allocations"] == 4 * 20000 and stats["losses"] == [], f"{mode}: {stats['allocations']} allocations")
            batches = [float(line) for line in result.stdout.split()]
            base = base or statistics.median(batches)
            taken[mode] += batches
            more[mode].append(statistics.median(batches) - base)
    say("    ns per pair: median (least to most) of 36 batches; beside the bare call of the same turn, median (quartiles) of 12; of the least")
    for mode, values in taken.items():
        low, middle, high = statistics.quantiles(more[mode], n=4)
        least = min(values) - min(taken["bare"])
        say(f"    {mode:<20} {statistics.median(values):6.0f} ({min(values):.0f} to {max(values):.0f})"
            f"  +{middle:.0f} ({low:.0f} to {high:.0f})  least +{least:.0f}")
        goal = 800 if "stacks" in mode else 450
        if mode != "bare":
            check(middle <= goal, f"{mode}: +{middle:.0f} ns, goal {goal}")
    say("    note nsys " + ("is here and was not run" if shutil.which("nsys") else "is not on this machine"))


@step(100)
def cost_of_training():
    """What a training step of PyTorch costs."""
    script = HERE / "programs/torch_figures.py"
    modes = {"bare": None, "driver": "driver", "all": "all"}
    if shell([FLOODMARK, "run", "--gpu=all", "-o", WORK / "probe.flood", "--", "true"], status=None).returncode:
        modes = {"bare": None, "driver": "driver"}
    taken = {mode: [] for mode in modes}
    for round in range(3 if len(modes) == 2 else 2):
        for mode, level in modes.items():
            if level is None:
                result = shell([sys.executable, script, "steps"])
            else:
                _, result = record(f"train-{mode}.flood", [sys.executable, script, "steps"], level=level)
            taken[mode] += figures(result)["step_ms"]
    base = statistics.median(taken["bare"])
    for mode, values in taken.items():
        median = statistics.median(values)
        more = (median / base - 1) * 100
        say(f"    {mode:<10} {median:.3f} ms a step ({min(values):.3f} to {max(values):.3f}, {len(values)} groups of 10), {more:+.2f} %")
        if mode != "bare":
            check(more <= 2, f"{mode}: {more:+.2f} %, goal 2 %")


@step(60)
def out_of_memory():
    """What is said about PyTorch running out of memory."""
    for what in ("exhausted", "fragmented"):
        trace, result = record(f"oom-{what}.flood", [sys.executable, HERE / "programs/torch_oom.py", what], level="all")
        (OUT / f"oom-{what}.txt").write_text(
            result.stdout + "\n--- printed at the end of the run\n" + result.stderr + "\n--- floodmark oom\n"
            + shell([FLOODMARK, "oom", trace]).stdout)
        answer = ask("oom", trace)
        check(answer["failures"] >= 1, f"{what}: {answer['failures']} failures")
        failure = answer["failure"] or {}
        wanted = 256 * MIB if what == "exhausted" else 3 << 30
        check(failure.get("asked_bytes") == wanted, f"{what}: the request was {failure.get('asked_bytes')}")
        name = "keep_activations" if what == "exhausted" else "load_batches"
        check(name in json.dumps(answer["held_by"]), f"{what}: {name} is named among those that hold memory")
        check("FIGURES" in result.stdout, f"{what}: the program went on")


@step(90)
def rmm_adaptor():
    """floodmark_rmm.hpp with the real librmm."""
    packages = PACK / "python"
    program = WORK / "rmm"
    include = packages / "librmm/include"
    libraries = [folder for folder in (packages / "librmm/lib64", packages / "rapids_logger/lib64", PACK / "capi") if folder.is_dir()]
    words = ["nvcc", "-g", "-O1", "-std=c++20", "-arch=native", "-Xcompiler", "-pthread", "--expt-relaxed-constexpr",
             "-I", ROOT / "crates/capi/include", "-I", include, "-I", include / "rapids", "-I", packages / "rapids_logger/include",
             "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-o", program, HERE / "programs/rmm.cpp"]
    for folder in libraries:
        words += ["-L", folder, "-Xlinker", f"-rpath={folder}"]
    shell([*words, "-lrmm", "-lrapids_logger", "-l:libfloodmark_capi.so"])
    trace = WORK / "rmm.flood"
    shutil.rmtree(trace, ignore_errors=True)
    own = figures(shell([program, trace]))
    stats = ask("stats", trace)
    seen = (stats["peak_bytes"], stats["live_bytes"], stats["failures"])
    check(seen == (own["peak"], own["left"], own["failures"]), f"peak, left and failures {seen}")


def unpack():
    """Unpacks the archive. Wheels are archives too, and need no installation."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(PACK, filter="data")
    for wheel in PACK.glob("wheels/*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(PACK / "python")


def main():
    wanted = sys.argv[2:]
    shutil.rmtree(WORK, ignore_errors=True)
    for folder in (OUT, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    unpack()
    for name, limit, function in STEPS:
        if wanted and name not in wanted:
            continue
        say(f"== {name}: {function.__doc__}")
        WRONG.clear()
        begin = time.monotonic()
        LIMIT[0] = begin + limit
        try:
            function()
        except Failed as failed:
            check(False, str(failed))
        except Exception as error:  # The next step may be right.
            check(False, f"{type(error).__name__}: {error}")
        VERDICTS.append((name, list(WRONG), time.monotonic() - begin))
    with tarfile.open(OUT / "traces.tar.gz", "w:gz") as archive:
        for trace in sorted(WORK.glob("*.flood")):
            size = sum(file.stat().st_size for file in trace.rglob("*") if file.is_file())
            if size < MIB:
                archive.add(trace, trace.name)
    say("== verdicts")
    for name, wrong, took in VERDICTS:
        say(f"{'FAILED' if wrong else 'passed'}  {name} ({took:.0f} s)" + "".join(f"\n          {text[:300]}" for text in wrong))
    return 1 if any(wrong for _, wrong, _ in VERDICTS) else 0


sys.exit(main())
