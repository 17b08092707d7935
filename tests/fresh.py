"""A fresh interpreter, with a package missing if need be."""

import subprocess
import sys


def python(code):
    """What a fresh interpreter prints that runs `code`."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def without(missing, use):
    """Code that runs `use` where the package `missing` is not installed, and prints what its error says."""
    return f"""
import importlib.machinery, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == {missing!r} else super().find_spec(name, path, target)

sys.meta_path[:] = [f for f in sys.meta_path if f is not importlib.machinery.PathFinder]
sys.meta_path.append(Without)
from rmm_core import MissingDependencyError
try:
    {use}
except MissingDependencyError as error:
    install = "pip install 'reflective-memory[" + error.extra + "]'"
    print(error.extra, isinstance(error, ImportError), install in str(error))"""
