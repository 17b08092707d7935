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
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import rmm_core.models
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


def test_the_readme_runs(tmp_path, monkeypatch, capsys, postgres_url):
    """Every Python block, in order; only the model's download is replaced by its weights, and the server's address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rmm_core.models, "SentenceTransformerEmbedder", lambda name: bundled_embedder())
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 10
    chat_model = ScriptedChatModel().enqueue("Nothing with hazelnuts [1].", "No hazelnut cake [1].")
    names = {"my_model": lambda prompt: "Nothing with hazelnuts [1].", "model": chat_model, "tools": []}
    names["embeddings"] = bundled_embedder()
    core, langchain, llamaindex, (own, server) = blocks[:2], blocks[2:5], blocks[5:8], blocks[8:]
    for block in core:
        exec(compile(block, "README.md", "exec"), names)
    assert "allergic to hazelnuts" in capsys.readouterr().out
    assert names["answer"].text == "Nothing with hazelnuts."
    assert "hazelnuts" in names["answer"].cited[0].summary
    names["memory"].close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # LangChain's own, of ConversationChain
        for block in langchain:
            exec(compile(block, "README.md", "exec"), names)
    assert names["reply"]["messages"][-1].text == "Nothing with hazelnuts."
    assert names["response"] == "No hazelnut cake."
    assert chat_model.left == 0
    assert len(names["memory"].store.feedback()) == 4
    chat_model.enqueue(*["NO_TRAIT"] * 4)  # two sessions are reflected at the end, two speakers each
    names["memory"].close()
    names["llm"] = ScriptedIndexLLM().enqueue("No hazelnut cake [1].", "NO_TRAIT", "NO_TRAIT", "To hazelnuts [1].")
    names["embed_model"] = bundled_embedder()
    for block in llamaindex:
        asyncio.run(run(block, names))
    assert "No hazelnut cake. (Memory(" in capsys.readouterr().out
    assert names["reply"].response.content == "To hazelnuts."
    assert len(names["memory"].store.feedback(limit=50)) == 6
    names["llm"].enqueue(*["NO_TRAIT"] * 2)
    names["memory"].close()
    names["vector_store"] = InMemoryVectorStore(Embedded())
    exec(compile(own, "README.md", "exec"), names)
    with names["memory"] as memory:
        held = sum(len(memory.memories(user)) for user in memory.users())
        assert len(names["vector_store"].store) == held > 0
        assert "hazelnuts" in memory.recall("alice", "What am I allergic to?").shown[0].memory.summary
    names |= {"llm": None, "embedder": bundled_embedder()}
    exec(compile(server.replace("postgresql://user:password@host/database", postgres_url), "README.md", "exec"), names)
    with names["memory"] as memory:
        memory.chat("ann").record("My cat is called Tofu", "Noted")
        assert memory.users() == ["ann"]


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
