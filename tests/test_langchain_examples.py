"""The LangChain cookbooks tell their stories offline, and what is mistyped is named."""

import pytest

from tests.example_runs import check_complaint, check_story, example, examples, sessions

pytestmark = pytest.mark.timeout(300)
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


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the graph's example keeps its memory."""
    return str(tmp_path_factory.mktemp("kept") / "memory.db")


@pytest.fixture(scope="module")
def runs(kept):
    """Every program that the tests look at."""
    stories = [(name, *(("--db", kept) if "graph" in name else ())) for name in STORIES]
    # Which example complains does not matter: their options are shared.
    mistakes = [("langchain_chain.py", *wrong) for wrong, _ in MISTAKES]
    done = examples([*stories, *mistakes])
    return {command[:1] if command in stories else command[1:]: run for command, run in done.items()}


@pytest.mark.parametrize("name", STORIES)
def test_a_cookbook_tells_its_story(name, runs):
    check_story(runs[name,], STORIES[name])


def test_one_user_never_gets_what_another_said(runs):
    parts = sessions(runs["langchain_agent.py",].stdout)
    assert "hazelnuts" in parts["What the memory holds of mara"]
    for part in ("Tom, thread tom-in-june", "What the memory holds of tom"):
        assert "no meat" in parts[part]
        assert "hazelnut" not in parts[part]
        assert "wine" not in parts[part]


@pytest.mark.parametrize(("arguments", "complaint"), MISTAKES)
def test_what_is_mistyped_is_named(arguments, complaint, runs):
    check_complaint(runs[arguments], complaint)


def test_an_example_goes_on_with_the_memory_it_kept(runs, kept):
    again = example("langgraph_agent.py", "--db", kept)
    assert again.returncode == 0, again.stderr
    assert "turns: 16" in runs["langgraph_agent.py",].stdout
    assert "turns: 32" in again.stdout
