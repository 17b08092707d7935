"""From options to an open memory: where it is, whether it is there at all, its key, its models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rmm_cli.models import NoEmbedder
from rmm_cli.settings import configuration
from rmm_cli.text import near
from rmm_core import LLM, Embedder, InputError, NotFoundError, ReflectionReport, ReflectiveMemory
from rmm_core.errors import MissingDependencyError, WrongKeyError
from rmm_core.stores import shown

KEY = "RMM_KEY"
STORE = "RMM_STORE"


@dataclass(frozen=True, slots=True)
class Opening:
    """How a memory is opened.

    Attributes:
        store: The path of a file, or a URL.
        key_file: A file that holds the key of an encrypted one.
        settings: ``name=value`` settings.
        embedder: Gives the embedder.
        llm: Gives the language model, if any.
        creates: Whether a memory that is not there is made; a typing error makes no file else.
    """

    store: str
    key_file: Path | None = None
    settings: tuple[str, ...] = ()
    embedder: Callable[[], Embedder] = NoEmbedder
    llm: Callable[[], LLM | None] = field(default=lambda: None)
    creates: bool = False

    @property
    def place(self) -> str:
        """Where it is, as the core takes it."""
        if "://" in self.store or self.store == _IN_PROCESS:
            return self.store
        return str(expanded(Path(self.store)))

    @property
    def shown(self) -> str:
        """Where it is, without a password."""
        return shown(self.place)

    @contextmanager
    def memory(
        self,
        *,
        embedder: Embedder | None = None,
        on_reflection: Callable[[ReflectionReport], None] | None = None,
    ) -> Iterator[ReflectiveMemory]:
        """The memory, open.

        Args:
            embedder: In place of the one that the options name.
            on_reflection: As :meth:`ReflectiveMemory.open` takes it.

        Raises:
            NotFoundError: When there is none.
            RMMError: When it cannot be opened.
        """
        config = configuration(self.settings)
        if not self.creates:
            refuse_missing(self.place)
        key = self._key()
        try:
            opened = ReflectiveMemory.open(
                self.place,
                key=key,
                llm=self.llm(),
                embedder=embedder or self.embedder(),
                config=config,
                on_reflection=on_reflection,
            )
        except WrongKeyError as error:
            raise WrongKeyError(f"{str(error).removesuffix(': key=...')}; {self._key_hint(key)}") from error
        with opened as memory:
            yield memory

    def _key(self) -> str | bytes | None:
        """The key of ``--key-file``, else of the environment, which may be meant for other memories than a database."""
        if self.key_file is not None:
            return read_key(self.key_file)
        return None if "://" in self.place else os.environ.get(KEY) or None

    def _key_hint(self, key: str | bytes | None) -> str:
        """Where a key is looked for, or where the one that did not fit came from."""
        if key is None:
            return f"put the key into {KEY}, or name a file that holds it: --key-file FILE"
        source = KEY if self.key_file is None else f"--key-file {str(self.key_file)!r}"
        return f"the key tried here is that of {source}"


def read_key(path: Path) -> str | bytes:
    """The key in a file: a passphrase (a line break at its end is not part of it), or 32 bytes.

    Raises:
        InputError: When the file cannot be read.
    """
    try:
        content = expanded(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the key file {str(path)!r}: {error.strerror or error}") from error
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return content
    return text if text.isprintable() else content


def refuse_missing(place: str) -> None:
    """Make sure that a memory is there before one is made by looking.

    Raises:
        NotFoundError: When there is none.
    """
    if "://" in place:
        return _refuse_missing_schema(place)
    path = Path(place)
    if place == _IN_PROCESS:
        raise NotFoundError("a memory in memory is empty whenever it is opened: name a file or a URL")
    if not is_there(path):
        raise NotFoundError(f"there is no file {place!r}{near_path(path)}")
    if path.is_dir():
        raise NotFoundError(f"{place!r} is a folder; name the file in it")
    if path.is_file() and path.stat().st_size == 0:
        raise NotFoundError(f"the file {place!r} is empty: there is no memory in it")
    return None


def expanded(path: Path) -> Path:
    """A path whose ``~`` is a folder; as it is for a user who has no home, or is none."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


def writable(file: Path, store: str) -> Path:
    """Where a command may write what it was told to write into ``file``.

    Raises:
        InputError: When it is a folder, a memory or another SQLite database, one of the files beside such a one, or
            holds what is no text, as an encrypted memory does.
    """
    target = expanded(file)
    real = os.path.realpath(target)
    try:
        if target.is_dir():
            raise InputError(f"{str(target)!r} is a folder; name a file in it")
        for guarded in (real, *(real.removesuffix(end) for end in _BESIDE if real.endswith(end))):
            whose = _database(Path(guarded), Path(store))
            if whose:
                part = "" if guarded == real else "part of "
                raise InputError(f"{str(target)!r} is {part}{whose}; name another file")
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror or error}") from error
    return target


def _database(path: Path, store: Path) -> str:
    """What a file is that must not be lost; empty for any other."""
    if is_there(path) and is_there(store) and path.samefile(store):
        return "the memory itself"
    if not path.is_file():  # a pipe would wait for somebody to write
        return ""
    with path.open("rb") as reading:
        begins = reading.read(len(_SQLITE))
    if begins == _SQLITE:
        return "a SQLite database"
    return "" if _is_text(begins) else "a file that holds no text, an encrypted memory perhaps"


def _is_text(begins: bytes) -> bool:
    """Whether a file that begins so can be text: a character may be cut off at its end."""
    decoded = begins.decode(errors="replace").rstrip("\ufffd")
    return "\ufffd" not in decoded and all(c.isprintable() or c in "\t\n\r\ufeff" for c in decoded)


def is_there(path: Path) -> bool:
    """Whether there is a file, as far as it can be told: not behind a locked door, nor for a name no file can have."""
    try:
        return path.exists()
    except OSError:
        return False


def near_path(path: Path) -> str:
    """A hint at files beside a path that have names like it, or at what is missing of the path itself."""
    folder = path.parent
    try:
        if not folder.is_dir():
            return f"; nor is there a folder {str(folder)!r}"
        names = [p.name for p in folder.iterdir() if p.is_file() and not p.name.endswith(("-wal", "-shm"))]
    except OSError:
        return ""
    return near(path.name, names, "beside it there is {}", cutoff=0.75)  # endings make all names a little alike


def _refuse_missing_schema(url: str) -> None:
    """The same for a database: what cannot be asked here, the store itself will complain of."""
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        return
    try:
        from rmm_core.stores._pg_pool import holds_memory
    except MissingDependencyError:
        return
    if not holds_memory(url):
        raise NotFoundError(f"there is no memory in the database at {shown(url)}")


_IN_PROCESS = ":memory:"
_BESIDE = ("-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
