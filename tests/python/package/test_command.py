"""Finding the command that was installed with the package."""

import os
import subprocess
import sys
import sysconfig

import pytest

from floodmark import _command


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Folders that stand for the places where installers put scripts, none of which has the command."""
    monkeypatch.delenv("FLOODMARK", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))

    def get_path(name, scheme="", vars=None):
        assert name == "scripts"
        place = "user" if scheme else "base" if vars == {"base": sys.base_prefix} else "environment"
        return str(tmp_path / place)

    monkeypatch.setattr(sysconfig, "get_path", get_path)
    package = tmp_path / "prefix" / "lib" / "python3" / "site-packages" / "floodmark"
    monkeypatch.setattr(_command, "__file__", str(package / "_command.py"))
    return {
        "environment": tmp_path / "environment",
        "base": tmp_path / "base",
        "target": package.parent / "bin",
        "prefix": tmp_path / "prefix" / "bin",
        "user": tmp_path / "user",
        "path": tmp_path / "path",
    }


def put(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "floodmark").write_text("#!/bin/sh\n")
    (folder / "floodmark").chmod(0o755)


@pytest.mark.parametrize("place", ["environment", "base", "target", "prefix", "user", "path"])
def test_each_place(scripts, place):
    with pytest.raises(FileNotFoundError, match="set FLOODMARK to its path"):
        _command.find_command()
    put(scripts[place])
    assert _command.find_command() == str(scripts[place] / "floodmark")


def test_the_nearest_place_wins(scripts, monkeypatch):
    for place in reversed(scripts):
        put(scripts[place])
        assert _command.find_command() == str(scripts[place] / "floodmark")
    # What cannot be run is not it.
    (scripts["environment"] / "floodmark").chmod(0o644)
    assert _command.find_command() == str(scripts["base"] / "floodmark")
    monkeypatch.setenv("FLOODMARK", "/some/where")
    assert _command.find_command() == "/some/where"


def test_it_runs_as_a_module():
    result = subprocess.run([sys.executable, "-m", "floodmark", "--version"], capture_output=True, text=True)
    assert result.stdout.startswith("floodmark ")


def test_a_missing_one_is_an_error():
    code = "import os, runpy; os.access = lambda *_: False; runpy.run_module('floodmark', run_name='__main__')"
    environment = {**os.environ, "FLOODMARK": ""}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 1, result.stdout
    assert result.stderr.startswith("error: the floodmark command is not installed; set FLOODMARK to its path")
