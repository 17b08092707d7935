"""What the README and the examples show works as it stands, offline."""

import ast
import asyncio
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from _models import bundled_embedder
from langchain.agents import create_agent
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.chat_engine import SimpleChatEngine

import rmm_core.models
from rmm_core import ReflectiveMemory
from tests.langchain.conftest import ScriptedChatModel
from tests.llamaindex.conftest import ScriptedIndexLLM

ROOT = Path(__file__).parents[1]


def quickstart(*arguments):
    return subprocess.run(
        [sys.executable, "examples/quickstart.py", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_quickstart_tells_its_story():
    done = quickstart()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        "39 turns became",
        "hazelnuts",
        "● 1 ✓",
        "prior: this memory before it learned",
        "the learned ranking",
    ):
        assert words in done.stdout, words
    rows = dict(re.findall(r"(dense|prior|learning|learned): .*?([\d.]+ +[\d.]+)", done.stdout))
    scores = {name: [float(x) for x in row.split()] for name, row in rows.items()}
    assert scores["learned"][1] > scores["prior"][1] > 0.5  # what is asked again is found higher up


def test_the_quickstart_goes_on_where_it_stopped(tmp_path):
    first = quickstart("--sessions", "2", "--ask", "0", "--db", str(tmp_path / "m.db"))
    second = quickstart("--sessions", "3", "--ask", "0", "--db", str(tmp_path / "m.db"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "14 Jan 2024    7 turns" in first.stdout
    assert "14 Jan 2024    7 turns" not in second.stdout
    assert "21 turns became" in second.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--locomo", "nowhere.json"), "cannot read nowhere.json"),
        (("--locomo", "pyproject.toml"), "pyproject.toml is not a LoCoMo file"),
        (("--facts", "recorded"), "--facts recorded goes with --locomo"),
        (("--conversation", "7"), "--conversation is from 0 to 0; got 7"),
        (("--conversation", "first"), "--conversation is a number from 0, or all"),
        (("--llm", "gpt"), "--llm is none, local or the URL"),
        (("--llm", "local", "--gguf", "nowhere.gguf"), "--llm local needs --gguf FILE"),
        (("--sesions", "1"), "unrecognized arguments"),
        (("--db", "nowhere/at/all.db"), "is its folder there"),
    ],
)
def test_what_is_mistyped_is_named(arguments, complaint):
    done = quickstart(*arguments)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def blocks(page):
    """The Python blocks of a page, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def play(page, names):
    """Run every Python block of a page, in order; each may wait at its top, as in a notebook."""
    for block in blocks(page):
        asyncio.run(run(block, names))
    return names


@pytest.fixture
def bank(tmp_path, monkeypatch):
    """A folder with a memory of what alice said last week, under the name that the pages use."""
    monkeypatch.chdir(tmp_path)
    with ReflectiveMemory.open("memory.db", embedder=bundled_embedder()) as memory, memory.chat("alice") as chat:
        chat.record("I'm allergic to hazelnuts, even traces of them.", "Understood, no hazelnuts.")


def test_the_readme_runs(tmp_path, monkeypatch, capsys):
    """Every Python block, in order; only the model's download is replaced by its weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rmm_core.models, "SentenceTransformerEmbedder", lambda name: bundled_embedder())
    core, langchain, llamaindex = blocks("README.md")[:2], *blocks("README.md")[2:]
    chat_model = ScriptedChatModel().enqueue("Nothing with hazelnuts [1].", *["NO_TRAIT"] * 2)
    names = {"my_model": lambda prompt: "Nothing with hazelnuts [1].", "model": chat_model}
    names |= {"embeddings": bundled_embedder(), "embed_model": bundled_embedder()}
    for block in core:
        exec(compile(block, "README.md", "exec"), names)
    assert "allergic to hazelnuts" in capsys.readouterr().out
    assert names["answer"].text == "Nothing with hazelnuts."
    assert "hazelnuts" in names["answer"].cited[0].summary
    names["memory"].close()
    exec(compile(langchain, "README.md", "exec"), names)
    agent = create_agent(chat_model, [], middleware=names["middleware"])
    whose = {"configurable": {"user_id": "alice", "thread_id": "tuesday"}}
    reply = agent.invoke({"messages": [("user", "What am I allergic to?")]}, whose)
    assert reply["messages"][-1].text == "Nothing with hazelnuts."
    names["memory"].close()
    names["llm"] = ScriptedIndexLLM().enqueue("No hazelnut cake [1].", *["NO_TRAIT"] * 2)
    exec(compile(llamaindex, "README.md", "exec"), names)
    engine = SimpleChatEngine.from_defaults(
        llm=names["hide_markers"](names["llm"], names["memory"]), memory=names["own"]
    )
    assert str(engine.chat("Which cake should I not bake for me?")) == "No hazelnut cake."
    names["memory"].close()
    assert chat_model.left == names["llm"].left == 0


def test_the_langchain_page_runs(bank):
    model = ScriptedChatModel().enqueue("To hazelnuts [1].", "No hazelnut cake [1].")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # LangChain's own, of ConversationChain
        names = play("docs/langchain.md", {"model": model, "tools": [], "embeddings": bundled_embedder()})
    assert names["reply"]["messages"][-1].text == "To hazelnuts."
    assert names["response"] == "No hazelnut cake."
    assert len(names["memory"].store.feedback()) == 2
    model.enqueue(*["NO_TRAIT"] * 4)  # two sessions are reflected at the end, two speakers each
    names["memory"].close()
    assert model.left == 0


def test_the_llamaindex_page_runs(bank, capsys):
    llm = ScriptedIndexLLM().enqueue("No hazelnut cake [1].", "NO_TRAIT", "NO_TRAIT", "To hazelnuts [1].")
    names = play("docs/llamaindex.md", {"llm": llm, "tools": [], "embed_model": bundled_embedder()})
    assert "No hazelnut cake. (Memory(" in capsys.readouterr().out
    assert names["reply"].response.content == "To hazelnuts."
    assert len(names["memory"].store.feedback()) == 2
    llm.enqueue(*["NO_TRAIT"] * 2)
    names["memory"].close()


def test_the_page_on_databases_runs(bank, postgres_url):
    server, own = blocks("docs/databases.md")
    names = {"ReflectiveMemory": ReflectiveMemory, "llm": None, "embedder": bundled_embedder(), "model": None}
    exec(compile(server.replace("postgresql://user:password@host/database", postgres_url), "databases", "exec"), names)
    with names["memory"] as memory:
        memory.chat("ann").record("My cat is called Tofu", "Noted")
        assert memory.users() == ["ann"]
    names["vector_store"] = InMemoryVectorStore(Embedded())
    exec(compile(own, "databases", "exec"), names)
    with names["memory"] as memory:
        assert len(names["vector_store"].store) == len(memory.memories("alice")) > 0
        assert "hazelnuts" in memory.recall("alice", "What am I allergic to?").shown[0].memory.summary


def test_every_page_is_reached_from_the_readme_and_links_go_somewhere():
    pages = {Path("README.md"), *(p.relative_to(ROOT) for p in (ROOT / "docs").glob("*.md"))}
    pages |= {p.relative_to(ROOT) for p in (ROOT / "benchmarks").glob("*.md")}
    links = {}
    for page in pages:
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)", (ROOT / page).read_text())
        links[page] = {(ROOT / page.parent / target).resolve() for target in targets}
        assert not [target for target in links[page] if not target.exists()], page
    assert {ROOT / page for page in pages} - {ROOT / "README.md"} <= links[Path("README.md")]
    assert not [page for page in pages - {Path("README.md")} if ROOT / "README.md" not in links[page]]


class Embedded(Embeddings):
    """The bundled model as LangChain's."""

    def embed_documents(self, texts):
        return bundled_embedder().embed(texts).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]


async def run(block, names):
    """Run what may wait at its top, as a notebook does."""
    code = compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waiting = eval(code, names)
    if waiting is not None:
        await waiting


def test_the_architecture_page_names_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", page))
    assert len(named) > 30
    missing = {n for n in named if not (ROOT / n).exists() and not any((ROOT / "rmm_core").rglob(n))}
    assert missing == set(), missing
    modules = {p.name for p in (ROOT / "rmm_core").glob("*.py")} - {"__init__.py"}
    unnamed = {m for m in modules if m not in page}
    assert unnamed <= {"config.py", "errors.py", "stopwords.py"}, unnamed
    adapters = {f"{name}/{p.name}" for name in ("langchain_rmm", "llamaindex_rmm") for p in (ROOT / name).glob("*.py")}
    assert {a for a in adapters if f"`{a}`" not in page} == set()
