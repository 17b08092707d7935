"""Runs the cookbooks, and reads what they print."""

import io
import os
import re
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_KEYS = ("OPENAI_", "LANGSMITH_", "LANGCHAIN_", "RMM_")


def example(name, *arguments, **settings):
    keyless = {k: v for k, v in os.environ.items() if not k.startswith(_KEYS)}
    return subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        cwd=ROOT,
        env=keyless | {"PYTHONIOENCODING": "utf-8"} | settings,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def here(name, *arguments, **settings):
    """Runs an example in this process, which spares it the imports."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [name, *arguments])
        patch.chdir(ROOT)
        for setting in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "RMM_GGUF"):
            patch.delenv(setting, raising=False)
        for setting, value in settings.items():
            patch.setenv(setting, value)
        try:
            runpy.run_path(f"examples/{name}", run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    said = f"{code}\n" if isinstance(code, str) else ""  # as the interpreter does it
    return subprocess.CompletedProcess(name, 1 if said else code, out.getvalue(), err.getvalue() + said)


def examples(commands):
    """What each command came to, two at a time: each spends seconds on imports and weights."""
    with ThreadPoolExecutor(2) as pool:
        started = {command: pool.submit(example, *command) for command in commands}
        return {command: run.result() for command, run in started.items()}


def sessions(printed):
    """The parts of what an example prints, by their underlined headings."""
    _, *parts = re.split(r"^(.+)\n-+\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def answer(talk, question):
    """What was said in reply to a question, and the memories named below it."""
    lines = talk.partition(f"{question}\n")[2].splitlines()
    end = next((i for i, line in enumerate(lines) if i and re.match(r"\w+:", line)), len(lines))
    own = [line for line in lines[:end] if not line.lstrip().startswith("--")]
    said = " ".join(" ".join(line for line in own if "<-" not in line).split())
    return said, [line for line in own if "<-" in line]


def check_story(done, story, *, cites=True):
    """That an example ran, remembered what it should, and showed no marker.

    ``story`` is what it remembers: (in which session, what is said, what the answer holds).
    """
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    parts = sessions(done.stdout)
    for session, question, wanted in story:
        said, cited = answer(parts[session], question)
        assert wanted in said, (question, said)
        if cites and re.search("You said|It is written", said):
            assert len(cited) == 1, (question, cited)
    assert not re.search(r"\[\s*(\d|NO)", done.stdout), "a citation marker was shown"
    assert int(re.findall(r"updates .*: (\d+)", done.stdout)[0]) >= 1


def check_complaint(done, complaint):
    """That a program ended with a sentence, and nothing else."""
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
