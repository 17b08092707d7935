"""The facade: one object that remembers many users across sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Self

from rmm_core import checkup, transfer
from rmm_core.answers import AnswerRecord, answers
from rmm_core.chat import Chat
from rmm_core.checkup import Finding
from rmm_core.config import RMMConfig
from rmm_core.curve import LearningStep, learning_curve
from rmm_core.engine import Engine
from rmm_core.errors import ConfigError
from rmm_core.explain import Explanation
from rmm_core.inputs import (
    aware,
    checked_config,
    checked_count,
    checked_id,
    checked_models,
    checked_text,
    fresh_id,
    sought_id,
)
from rmm_core.prospective import reembedding
from rmm_core.protocols import LLM, Embedder, Reflector
from rmm_core.recall import Recall
from rmm_core.stores import open_store
from rmm_core.stores.expiring import ExpiringStore
from rmm_core.stores.external import CandidateSource, external
from rmm_core.types import Citations, Erasure, Kind, Memory, ReflectionReport, UserStatus


class ReflectiveMemory(Engine):
    """Long-term memory for the users of a chat (Reflective Memory Management, ACL 2025).

    What asks a model exists twice, blocking (``recall``) and for event loops (``arecall``); both run the
    same flow. What only reads or deletes is blocking and short, but for :meth:`forget_user`, which rewrites
    the file. All methods may be called from any thread.

    Its parameters, and what chats and adapters use, are those of :class:`~rmm_core.engine.Engine`.
    """

    @classmethod
    def open(
        cls,
        place: str | PathLike[str],
        *,
        key: str | bytes | None = None,
        llm: LLM | None = None,
        embedder: Embedder | None = None,
        config: RMMConfig | None = None,
        reflector: Reflector | None = None,
        clock: Callable[[], datetime] | None = None,
        on_reflection: Callable[[ReflectionReport], None] | None = None,
        redact: Callable[[str], str] | None = None,
        source: CandidateSource | None = None,
    ) -> Self:
        """The memory at ``place``: the path of a file, a ``postgresql://`` URL, or ``":memory:"``.

        With a ``key`` (a passphrase, or 32 random bytes, which open faster) the file is encrypted, and nobody can read
        it without; in memory a key has no effect. A ``source`` is a vector store of yours, which says which memories
        are near a question; everything is kept here all the same (see :mod:`rmm_core.stores.external`).

        Raises:
            ConfigError: When a setting, ``place`` or ``key`` cannot work.
            MissingDependencyError: When there is a key, and the extra ``encryption`` is not installed.
            StoreError: When the file cannot be opened, not with this key (WrongKeyError), or is something else.
        """
        config = checked_config(config)
        checked_models(llm, embedder)  # before a file is made
        return cls(
            external(open_store(place, config, key), source),
            llm=llm,
            embedder=embedder,
            config=config,
            reflector=reflector,
            clock=clock,
            on_reflection=on_reflection,
            redact=redact,
        )

    # -- talking -------------------------------------------------------------------------

    def chat(
        self,
        user_id: str,
        *,
        session_id: str | None = None,
        user_name: str = "User",
        agent_name: str = "Assistant",
        at: datetime | None = None,
    ) -> Chat:
        """A session with a user, to be used with ``with`` or ``async with``; leaving the block ends it.

        Args:
            user_id: Whose memory it is.
            session_id: Names the session; an existing one goes on. Made up when left out.
            user_name: What the user is called in turns and memories.
            agent_name: What the other side is called.
            at: When the session takes place, for conversations from the past; now when left out.
        """
        session_id = fresh_id() if session_id is None else session_id
        return Chat(
            self,
            user_id=checked_id(user_id, "user_id"),
            session_id=checked_id(session_id, "session_id"),
            user_name=checked_text(user_name, "user_name"),
            agent_name=checked_text(agent_name, "agent_name"),
            at=None if at is None else aware(at),
        )

    def recall(self, user_id: str, query: str, *, top_m: int | None = None) -> Recall:
        """What the memory brings up for a query; stores nothing.

        Args:
            user_id: Whose memory to search.
            query: What the user says now.
            top_m: How many memories to show, in place of the configured M.

        Raises:
            DimensionError: When the bank was built with another embedder.
            EmbedderError: When the embedder fails.
        """
        return self.run(self.recalling(user_id, query, top_m))

    async def arecall(self, user_id: str, query: str, *, top_m: int | None = None) -> Recall:
        """:meth:`recall` for event loops."""
        return await self.arun(self.recalling(user_id, query, top_m))

    def explain(self, user_id: str, query: str, *, top_m: int | None = None) -> Explanation:
        """Why memories stand where they stand for a query, by both rankings and without any chance; stores nothing.

        Args and errors are those of :meth:`recall`.
        """
        return self.run(self.explaining(user_id, query, top_m))

    async def aexplain(self, user_id: str, query: str, *, top_m: int | None = None) -> Explanation:
        """:meth:`explain` for event loops."""
        return await self.arun(self.explaining(user_id, query, top_m))

    def rerank(self, user_id: str, query: str, documents: Mapping[str, str], *, top_m: int | None = None) -> Recall:
        """Rank what somebody else's retriever found, with the reranker that serves this user; stores nothing.

        Args:
            user_id: Whose reranker.
            query: What the documents were found for.
            documents: Their texts by id.
            top_m: How many to show, in place of the configured M.

        Raises:
            EmbedderError: When the embedder fails.
        """
        return self.run(self.reranking(user_id, query, documents, top_m))

    async def arerank(
        self, user_id: str, query: str, documents: Mapping[str, str], *, top_m: int | None = None
    ) -> Recall:
        """:meth:`rerank` for event loops."""
        return await self.arun(self.reranking(user_id, query, documents, top_m))

    def feedback(self, recall: Recall, reply: str | Citations) -> Citations:
        """Learn from the citations of a reply without storing a turn; the same recall counts once.

        Args:
            recall: What the model was shown.
            reply: The reply, markers included, or what was read from it.

        Returns:
            The reply without its markers, and what it cites.
        """
        return self.run(self.learning_from(recall, reply))

    async def afeedback(self, recall: Recall, reply: str | Citations) -> Citations:
        """:meth:`feedback` for event loops."""
        return await self.arun(self.learning_from(recall, reply))

    def unlearn(self, last: int = 1, *, user_id: str | None = None) -> int:
        """Take the last answers of a user, or of anybody, out of the learning log and learn anew from what is left.

        Returns:
            How many there were.
        """
        whose = None if user_id is None else checked_id(user_id, "user_id")
        return self._trainer.unlearn(checked_count(last, "last"), whose)

    # -- reflecting ----------------------------------------------------------------------

    def reflect_pending(self, user_id: str | None = None) -> list[ReflectionReport]:
        """Reflect every session that ended or fell silent and that the bank does not know yet.

        Call it at start-up and from time to time; sessions whose reflection fails again stay pending.
        """
        return self.run(self.sessions.reflecting_pending(user_id))

    async def areflect_pending(self, user_id: str | None = None) -> list[ReflectionReport]:
        """:meth:`reflect_pending` for event loops."""
        return await self.arun(self.sessions.reflecting_pending(user_id))

    # -- looking and deleting ------------------------------------------------------------

    def memories(self, user_id: str, *, kind: Kind | None = None) -> tuple[Memory, ...]:
        """A user's memories, oldest first."""
        return self.store.memories(checked_id(user_id, "user_id"), kind=kind)

    def get(self, user_id: str, memory_id: str) -> Memory:
        """One memory.

        Raises:
            NotFoundError: When the user has no such memory.
        """
        return self.store.get(checked_id(user_id, "user_id"), sought_id(memory_id, "memory_id"))

    def answers(self, user_id: str | None = None, *, last: int = 50) -> tuple[AnswerRecord, ...]:
        """The last answers of a user, or of everybody, that were learned from, oldest first."""
        whose = None if user_id is None else checked_id(user_id, "user_id")
        return answers(self.store, whose, checked_count(last, "last"))

    def learning_curve(self, user_id: str) -> tuple[LearningStep, ...]:
        """How a user's reranker came to be what it is: the log learned anew from its start, and nothing saved."""
        return learning_curve(self.store, self.config, checked_id(user_id, "user_id"))

    def delete(self, user_id: str, memory_id: str) -> bool:
        """Delete a memory, its history, and the turns that no other memory rests on; whether there was one."""
        self.recent.forget(checked_id(user_id, "user_id"))
        return self.store.delete(user_id, sought_id(memory_id, "memory_id"))

    def forget_user(self, user_id: str) -> Erasure:
        """Delete everything of one user and rewrite the file, so that nothing of it can be read there.

        A reranker shared by all users (``learner_scope="store"``) keeps what it learned: weights, no text. That a user
        does not consent is kept too.

        Returns:
            What was removed.
        """
        user_id = checked_id(user_id, "user_id")
        removed = self.store.forget_user(user_id)
        self._trainer.forget(user_id)
        self.sessions.forget(user_id)
        self.recent.forget(user_id)
        return self._receipt(user_id, removed)

    def purge(self, user_id: str | None = None) -> list[Erasure]:
        """Delete what has expired (``expire_days``, ``expire_uncited_days``), of one user or of everybody.

        With ``expire_days`` the raw turns, questions and answers that are older go too, where no memory that is left
        rests on them.

        Returns:
            What was removed, of everybody of whom something was.
        """
        if not isinstance(self.store, ExpiringStore):
            raise ConfigError("nothing expires: open the memory with RMMConfig(expire_days=...)")
        days = self.config.expire_days
        before = None if days is None else self.clock() - timedelta(days=days)
        found = []
        for name in self.users() if user_id is None else [checked_id(user_id, "user_id")]:
            removed = self.store.purge(name, self.store.expired(name), before=before)
            if any(removed.values()):
                self.recent.forget(name)
                found.append(self._receipt(name, removed))
        return found

    def set_consent(self, user_id: str, consents: bool) -> None:
        """Say whether anything may be stored of a user; without a word it may.

        Of a user who does not consent no turn, question or answer is stored, nothing is reflected and nothing learned.
        What is stored already stays and is found until :meth:`forget_user` removes it.
        """
        self.store.decline(checked_id(user_id, "user_id"), wants_nothing=not consents)

    def users(self) -> list[str]:
        """All user ids, sorted."""
        return list(self.store.users())

    def status(self, user_id: str) -> UserStatus:
        """How a user's memory stands: counts, sessions, what is pending and why, what the reranker does."""
        user_id = checked_id(user_id, "user_id")
        memories, sessions = self.store.memories(user_id), self.store.sessions(user_id)
        return UserStatus(
            user_id=user_id,
            topics=sum(m.kind == "topic" for m in memories),
            unfiled=sum(m.kind == "unfiled" for m in memories),
            turns=sum(s.turns for s in sessions),
            learner=self._trainer.status(user_id),
            sessions=sessions,
            consents=not self.store.declined(user_id),
        )

    def export_user(self, user_id: str) -> Iterator[str]:
        """Everything kept of a user, as JSON lines."""
        return transfer.export_lines(self.store, checked_id(user_id, "user_id"))

    def import_user(self, lines: Iterable[str], *, user_id: str | None = None) -> str:
        """Restore a user from what :meth:`export_user` gave, and return the id.

        Args:
            lines: The exported lines.
            user_id: Another id to restore under.

        Raises:
            InputError: When a line is malformed, or the user has something stored already; nothing is stored then.
        """
        return self.run(transfer.importing(self.store, lines, user_id))

    def reembed(self) -> int:
        """Embed every memory of every user anew, for another embedder; how many were.

        All or nothing. The reranker keeps how much each feature counts; its adapters and the learning log, which speak
        of the earlier embeddings, start anew.

        Raises:
            ConflictError: When a bank changed meanwhile; call it again.
        """
        count = self.run(reembedding(self.store))
        self._trainer.reembedded()
        return count

    def sync(self, user_id: str | None = None) -> int:
        """Put every memory of a user, or of everybody, anew into the vector store it was opened with; how many.

        For a bank that was there before it, and after it failed.

        Raises:
            ConfigError: When the memory was opened without one.
            StoreError: When it fails; call it again.
        """
        sync = getattr(self.store, "sync", None)
        if sync is None:
            raise ConfigError("there is no vector store to bring up to date: open the memory with one")
        return int(sync(None if user_id is None else checked_id(user_id, "user_id")))

    def rekey(self, key: str | bytes) -> None:
        """Encrypt the file anew, so that nothing of it opens with the key it had; all or nothing, also in a crash.

        It rewrites the file, and nobody else can write meanwhile. Other processes that use the file get an error from
        then on, and open it again with the new key.

        Args:
            key: The new key, as for :meth:`open`.

        Raises:
            ConfigError: When the key cannot be one, or this memory's database takes none.
            StoreError: When the file is not encrypted (its message tells the way), or another process is reading it.
        """
        rekey = getattr(self.store, "rekey", None)
        if rekey is None:
            raise ConfigError(f"{type(self.store).__name__} has no key to change: only the file of a memory has one")
        rekey(key)

    def check(self) -> tuple[Finding, ...]:
        """What is not as it should be, sessions that wait included; reads the whole database and changes nothing."""
        return checkup.check(self.store, self.config, self.clock())

    def repair(self) -> tuple[Finding, ...]:
        """Mend what :meth:`check` calls repairable; what that was. Whatever else is stored stays as it is."""
        return checkup.repair(self.store, self.config)

    def close(self) -> None:
        """Reflect the sessions that are open here, and let go of the store; twice is fine."""
        try:
            self.run(self.sessions.closing())
        finally:
            self.store.close()

    async def aclose(self) -> None:
        """:meth:`close` for event loops."""
        try:
            await self.arun(self.sessions.closing())
        finally:
            self.store.close()

    def _receipt(self, user_id: str, removed: Mapping[str, int]) -> Erasure:
        counts = {name: removed.get(name, 0) for name in ("sessions", "turns", "memories", "learners")}
        return Erasure(user_id, self.clock(), answers=removed.get("feedback", 0), **counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()
