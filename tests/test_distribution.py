"""What is given out: the wheel and the sdist work where nothing else is, and bring what they say they bring."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import dependencies

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("rmm_core", "rmm_cli", "langchain_rmm", "llamaindex_rmm")
TRY = """
import sys
from rmm_core import ReflectiveMemory
from rmm_core.testing import HashEmbedder

with ReflectiveMemory.open(sys.argv[1], embedder=HashEmbedder()) as memory:
    with memory.chat("alice") as chat:
        chat.record("I'm allergic to hazelnuts.", "Understood.")
    print(memory.recall("alice", "Which nuts?").shown[0].memory.summary)
    print(sorted({"torch", "langchain_core", "llama_index", "typer"} & set(sys.modules)))
"""


def run(*command, cwd, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run(command, cwd=cwd, env=clean | variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of a wheel, made from the sdist, and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_holds_the_packages_and_nothing_else(wheel):
    inside = [n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n]
    assert {name.partition("/")[0] for name in inside} == set(PACKAGES)
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).stdout.split()
    assert sorted(inside) == sorted(tracked)


def test_the_sdist_holds_what_the_wheel_is_made_of(built, wheel):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert inside <= names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= names
    assert not {name for name in names if name.startswith(("tests", "benchmarks", ".ci"))}


def test_the_wheel_works_with_its_base_alone(wheel, tmp_path):
    """No network here: the base is lent from this environment, package by package, and nothing else is."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    done = run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", str(wheel), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lend(dependencies.closure(""), home)
    done = run(python, "-I", "-c", TRY, str(tmp_path / "m.db"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "User: I'm allergic to hazelnuts.\n[]\n"), done.stderr
    done = run(home / "bin" / "rmm", "users", str(tmp_path / "m.db"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == "rmm needs an extra: pip install 'reflective-memory[cli]'"
    done = run(python, "-I", "-c", "import langchain_rmm", cwd=tmp_path)
    assert "pip install 'reflective-memory[langchain]'" in done.stderr
    assert not {name for name in PACKAGES if name in {p.name for p in tmp_path.iterdir()}}


def lend(names, home):
    """Links packages of this environment into another one."""
    from importlib.metadata import distribution

    (site,) = home.glob("lib/python*/site-packages")
    for name in names:
        for top in {Path(str(file)).parts[0] for file in distribution(name).files or () if ".." not in str(file)}:
            source = Path(str(distribution(name).locate_file(top)))
            if not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(source)


def test_every_dependency_has_a_lower_and_an_upper_bound():
    extras = {name: found for name, found in PROJECT["optional-dependencies"].items() if name not in ("all", "dev")}
    for text in [*PROJECT["dependencies"], *(text for found in extras.values() for text in found)]:
        if not text.startswith("reflective-memory"):
            operators = {specifier.operator for specifier in Requirement(text).specifier}
            assert operators == {">=", "<"}, text


def test_the_lowest_versions_that_are_promised_are_the_ones_that_are_tested():
    """Of torch and sentence-transformers no old one can be had without gigabytes."""
    pinned = dict(re.findall(r"([\w.-]+)==([\d.]+)", (ROOT / "Makefile").read_text()))
    extras = {name: found for name, found in PROJECT["optional-dependencies"].items() if name not in ("all", "dev")}
    for text in [*PROJECT["dependencies"], *(text for found in extras.values() for text in found)]:
        needed = Requirement(text)
        if needed.name in ("reflective-memory", "torch", "sentence-transformers", "pgvector"):
            continue
        (lowest,) = [s.version for s in needed.specifier if s.operator == ">="]
        tested = pinned.get(needed.name.lower(), "").split(".")
        assert tested[: len(lowest.split("."))] == lowest.split("."), (
            f"{text}: make lowest runs {pinned.get(needed.name)}"
        )


def test_what_comes_along_is_on_its_page_and_free():
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip("the page is of Python 3.11 on Linux")
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert page == dependencies.page()
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)
    assert not dependencies.unfree(set(rows) - {"licence", "---"})
    assert dependencies.unfree(["MIT", "AGPL-3.0-only", "Proprietary"]) == ["AGPL-3.0-only", "Proprietary"]


def test_nothing_is_pickled():
    for path in (p for name in PACKAGES for p in (ROOT / name).rglob("*.py")):
        source = path.read_text()
        assert not re.search(r"^\s*(import|from) (c?pickle|dill|shelve|marshal|cloudpickle|joblib)\b", source, re.M), (
            path
        )
        assert "allow_pickle=True" not in source, path
        assert not re.search(r"\btorch\.load\(|np\.load\((?!.*allow_pickle=False)", source), path
