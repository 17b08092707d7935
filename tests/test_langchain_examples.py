"""The LangChain cookbooks tell their stories offline, and what is mistyped is named."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[1]
STORIES = {  # what each remembers: (in which session, what is said, what the answer holds)
    "langchain_chain.py": (
        ("Friday", "What am I allergic to?", "hazelnuts"),
        ("Friday", "Where is my sister's bakery?", "old fish market of Ghent"),
        ("Friday", "What is my favourite otter called?", "Biscuit"),
        ("Friday", "When is my birthday?", "I do not know that yet."),
    ),
    "langchain_lcel_rag.py": (
        ("May", "What is wrong with my knee?", "after about fifteen kilometres"),
        ("October", "Which marathon do I want to run?", "Porto on 3 November"),
        ("October", "Who gave me the new insoles?", "physiotherapist"),
        ("October", "What did I have for breakfast?", "I do not know that yet."),
    ),
    "langchain_agent.py": (
        ("Mara, thread mara-in-may", "Please remember: I always want a table by the window.", "Kept."),
        ("Mara, thread mara-in-june", "What is on the menu of Aqua?", "hazelnut soup, grilled sea bass"),
        ("Mara, thread mara-in-june", "What is on the menu of Aqua?", "allergic to hazelnuts"),
        ("Mara, thread mara-in-june", "Which drink should you not offer me?", "I never drink wine"),
        ("Mara, thread mara-in-june", "Which table do I want?", "by the window"),
        ("Tom, thread tom-in-june", "What am I allergic to?", "I do not know that yet."),
    ),
    "langgraph_agent.py": (
        ("Nuria, second lesson", "Which verbs do I keep mixing up?", "ser and estar"),
        ("Nuria, second lesson", "Which songs do I learn best with?", "Amália Rodrigues"),
        ("Nuria, third lesson", "Why did I learn Portuguese?", "job interview at the harbour"),
    ),
}
MISTAKES = (
    (("--modle", "x"), "unrecognized arguments: --modle x"),
    (("--model", "nonsense"), "--model nonsense: ValueError: Unable to infer model provider"),
    (("--model", "openai:gpt-4o-mini"), "--model openai:gpt-4o-mini: "),
    (("--model", "local", "--gguf", "nowhere.gguf"), "--model local needs --gguf FILE"),
    (("--db", "nowhere/at/all.db"), "is its folder there"),
)


def example(name, *arguments):
    keyless = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "LANGSMITH_", "LANGCHAIN_", "RMM_"))}
    return subprocess.run(
        [sys.executable, f"examples/{name}", *arguments],
        cwd=ROOT,
        env=keyless | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the graph's example keeps its memory."""
    return str(tmp_path_factory.mktemp("kept") / "memory.db")


@pytest.fixture(scope="module")
def runs(kept):
    """Every program that the tests look at, two at a time: each spends seconds on imports and weights."""
    with ThreadPoolExecutor(2) as pool:
        started = {
            (name,): pool.submit(example, name, *(("--db", kept) if "graph" in name else ())) for name in STORIES
        }
        # Which example complains does not matter: their options are shared.
        started |= {wrong: pool.submit(example, "langchain_chain.py", *wrong) for wrong, _ in MISTAKES}
        return {key: run.result() for key, run in started.items()}


def sessions(printed):
    """The parts of what an example prints, by their underlined headings."""
    _, *parts = re.split(r"^(.+)\n-+\n", printed, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def answer(talk, question):
    """What was said in reply to a question, and the memories named below it."""
    lines = talk.partition(f"{question}\n")[2].splitlines()
    end = next((i for i, line in enumerate(lines) if i and re.match(r"\w+:", line)), len(lines))
    own = lines[:end]
    said = " ".join(" ".join(line for line in own if "<-" not in line).split())
    return said, [line for line in own if "<-" in line]


@pytest.mark.parametrize("name", STORIES)
def test_a_cookbook_tells_its_story(name, runs):
    done = runs[name,]
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    parts = sessions(done.stdout)
    for session, question, wanted in STORIES[name]:
        said, cited = answer(parts[session], question)
        assert wanted in said, (question, said)
        if said.count("You said"):
            assert len(cited) == 1, (question, cited)
    assert not re.search(r"\[\s*(\d|NO)", done.stdout), "a citation marker was shown"
    assert int(re.findall(r"updates .*: (\d+)", done.stdout)[0]) >= 1


def test_one_user_never_gets_what_another_said(runs):
    parts = sessions(runs["langchain_agent.py",].stdout)
    assert "hazelnuts" in parts["What the memory holds of mara"]
    for part in ("Tom, thread tom-in-june", "What the memory holds of tom"):
        assert "no meat" in parts[part]
        assert "hazelnut" not in parts[part]
        assert "wine" not in parts[part]


@pytest.mark.parametrize(("arguments", "complaint"), MISTAKES)
def test_what_is_mistyped_is_named(arguments, complaint, runs):
    done = runs[arguments]
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_example_goes_on_with_the_memory_it_kept(runs, kept):
    again = example("langgraph_agent.py", "--db", kept)
    assert again.returncode == 0, again.stderr
    assert "turns: 16" in runs["langgraph_agent.py",].stdout
    assert "turns: 32" in again.stdout
