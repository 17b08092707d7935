"""``rmm`` as a process: on a terminal, in a pipe that somebody closes, interrupted, without its extra."""

import errno
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios

import pytest

from rmm_core import ReflectiveMemory, __version__
from rmm_core.testing import HashEmbedder
from tests.cli.conftest import ROOT, process

LONG = "I keep a very long list of things that nobody should ever forget, such as " + "hazelnuts, " * 20


@pytest.fixture
def long_db(tmp_path):
    """A bank whose memories are longer than any terminal is wide."""
    with ReflectiveMemory.open(tmp_path / "memory.db", embedder=HashEmbedder()) as memory:
        for user in ("ann", "someone.with.a.very.long.name@department.example.org"):
            with memory.chat(user, session_id="s1") as chat:
                for i in range(3):
                    chat.record(f"{LONG} and {i}", "Noted.")
    return tmp_path / "memory.db"


def on_terminal(*arguments, columns=80, keys=b""):
    """Everything a terminal of that width sees of ``rmm``, and the exit code."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, columns))
    running = subprocess.Popen(
        [sys.executable, "-c", "import os, rmm_cli; os.login_tty(0); rmm_cli.run()", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm", "COLUMNS": str(columns)},
        **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
    )
    os.close(slave)
    seen, pressed = b"", False
    while select.select([master], [], [], 60)[0]:
        try:
            more = os.read(master, 65536)
        except OSError as error:  # how a terminal says that nobody is left
            if error.errno != errno.EIO:
                raise
            break
        if not more:
            break
        seen += more
        if keys and not pressed and b"[y/n]" in seen:
            pressed = True
            os.write(master, keys)
    os.close(master)
    return seen.decode().replace("\r\n", "\n"), running.wait(60)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_gets_lines_no_wider_than_it_is(long_db, columns):
    for command in (
        ("users", long_db),
        ("show", long_db, "ann"),
        ("show", long_db, "ann", "--turns"),
        ("ask", long_db, "ann", "hazelnuts", "--explain"),
        ("stats", long_db),
    ):
        seen, code = on_terminal(*command, columns=columns)
        assert code == 0, seen
        plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", seen)
        assert max(len(line.rstrip()) for line in plain.splitlines()) <= columns, command
    assert len(plain.splitlines()) > 5


def test_a_pipe_gets_a_line_for_each_row(long_db):
    out, _ = process("show", long_db, "ann").communicate(timeout=60)
    rows = out.splitlines()[1:]
    known, _ = process("show", long_db, "ann", "--json").communicate(timeout=60)
    assert [row.split()[0] for row in rows] == [m["id"] for m in json.loads(known)]
    assert all("hazelnuts" in row for row in rows)


def test_who_stops_reading_is_left_in_peace(long_db):
    with ReflectiveMemory.open(long_db, embedder=HashEmbedder()) as memory, memory.chat("ann") as chat:
        for i in range(200):
            chat.record(f"{LONG} and so on {i}", "Noted.")
    for command in (("export", long_db, "ann"), ("show", long_db, "ann", "--turns"), ("users", long_db)):
        running = process(*command)
        running.stdout.close()
        assert running.stderr.read() == ""
        running.stderr.close()
        assert running.wait(60) in (0, 1)


def test_ctrl_c_ends_it_with_130(db):
    running = process("ask", db, "ann", "Where?", "--embed", "tests.cli.models:Interrupted")
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out, err) == (130, "", "")


@pytest.mark.parametrize(("keys", "code"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1), (b"\x03", 130)])
def test_forgetting_asks_at_a_terminal(db, at, keys, code):
    seen, ended = on_terminal("forget", db, "ann", keys=keys, columns=200)
    assert f"Delete 3 memories and 4 turns of user 'ann' in {db}, for good?" in seen
    assert ended == code, seen
    assert at().users() == (["bob"] if code == 0 else ["ann", "bob"])
    if code == 1:
        assert "nothing was deleted" in seen


def test_a_question_at_a_terminal_shows_what_users_said_as_text(tmp_path):
    with ReflectiveMemory.open(tmp_path / "m.db", embedder=HashEmbedder()) as memory:
        with memory.chat("eve", session_id="s") as chat:
            chat.record("My cat \x1b[2J is [red]red[/red].", "Noted.")
        known = memory.memories("eve")[0].id
    seen, _ = on_terminal("forget", tmp_path / "m.db", "eve", "--memory", known, keys=b"n\n", columns=200)
    assert r"My cat \x1b[2J is [red]red[/red]." in seen


def test_the_version_and_the_commands_are_told():
    out, _ = process("--version").communicate(timeout=60)
    assert out == f"rmm {__version__}\n"
    out, _ = process("--help").communicate(timeout=60)
    for command in "users show history ask export import forget reflect reembed doctor stats purge inspect mcp".split():
        assert f" {command} " in out
    out, _ = process("forget", "--help").communicate(timeout=60)
    for words in ("STORE", "USER", "--memory", "--yes", "--json", "--key-file", "--set"):
        assert words in out


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
sys.argv = ["rmm", *{arguments!r}]
import rmm_cli
rmm_cli.run()
"""


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("typer", ["users"], "cli"),
        ("rich", ["users"], "cli"),
        ("bottle", ["inspect", "--no-browser"], "cli"),
        ("mcp", ["mcp"], "mcp"),
    ],
)
def test_without_its_extra_it_says_which(db, package, arguments, extra):
    code = WITHOUT.format(package=package, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "RMM_STORE": str(db)},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert f"pip install 'reflective-memory[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_importing_the_package_needs_no_extra():
    code = "import sys, rmm_cli; sys.exit(any(n in sys.modules for n in ('typer', 'rich', 'bottle', 'mcp', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_looking_loads_neither_the_page_nor_the_server_nor_any_model(db):
    code = (
        "import sys, rmm_cli; sys.argv = ['rmm', 'users', sys.argv[1]]\n"
        "try: rmm_cli.run()\n"
        "except SystemExit: pass\n"
        "print([n for n in ('bottle', 'mcp', 'torch', 'openai', 'sentence_transformers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, db], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_terminal_that_knows_ascii_alone_gets_escapes(db, at):
    with at().chat("ann", session_id="third") as chat:
        chat.record("Ich wohne nun in M\u00fcnchen \U0001f43b.", "Sch\u00f6n.")
    for command, words in (
        (("show", db, "ann"), r"M\xfcnchen \U0001f43b"),
        (("show", db, "ann", "--json"), r"M\u00fcnchen \ud83d\udc3b"),
        (("export", db, "ann"), r"M\u00fcnchen \ud83d\udc3b"),
    ):
        running = process(*command, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
        out, err = running.communicate(timeout=60)
        assert (words in out, err, running.returncode) == (True, "", 0), out
        if command[-1] == "--json":
            assert any("M\u00fcnchen" in m["summary"] for m in json.loads(out))
