"""Builds wheels with the extension module and the `floodmark` command.

Maturin builds one or the other. This backend builds the command first, puts it where maturin takes the scripts of a
wheel from, and has maturin do the rest.

The environment variable FLOODMARK_WHEEL_COMMAND selects the command: `build` (the default) builds it, `none` leaves
it out, and anything else is the path of a built one.

`python build_backend.py FOLDER [OPTIONS]` builds a wheel with options of `maturin build`, and `crates/python/release`
makes wheels that run on any distribution.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import maturin
from maturin import build_editable as _build_editable
from maturin import build_sdist, get_requires_for_build_editable, get_requires_for_build_sdist
from maturin import get_requires_for_build_wheel, prepare_metadata_for_build_editable
from maturin import prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[2]
# In the folder that pyproject.toml names.
SCRIPTS = ROOT / "crates" / "python" / "data" / "scripts"


def _refuse_free_threading():
    if "t" in sys.abiflags:
        raise SystemExit(
            "error: floodmark needs the global interpreter lock; build it with a Python that is not free-threaded"
        )


@contextlib.contextmanager
def _command():
    """Have the command among the scripts for a block."""
    _refuse_free_threading()
    try:
        _put_command()
        yield
    finally:
        shutil.rmtree(SCRIPTS, ignore_errors=True)


def _put_command():
    target = SCRIPTS / "floodmark"
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    command = os.environ.get("FLOODMARK_WHEEL_COMMAND", "build")
    if command == "none":
        return
    if command == "build":
        arguments = ["--release", "--locked", "--package", "floodmark", "--bin", "floodmark"]
        subprocess.run(["cargo", "build", *arguments], cwd=ROOT, check=True)
        built = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release" / "floodmark"
    else:
        built = Path(command)
        if not built.is_file():
            raise SystemExit(f"error: FLOODMARK_WHEEL_COMMAND={command} is no file; use build, none or the path of a command")
    SCRIPTS.mkdir()
    shutil.copy2(built, target)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with _command():
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with _command():
        return _build_editable(wheel_directory, config_settings, metadata_directory)


def main(output, *options):
    """Build a wheel with options of maturin's own."""
    with _command():
        subprocess.run([sys.executable, "-m", "maturin", "build", "--locked", "--out", output, *options], cwd=ROOT, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
