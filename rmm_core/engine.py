"""What a memory does, as flows: :class:`rmm_core.ReflectiveMemory` adds the two ways to drive them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from rmm_core.config import RMMConfig
from rmm_core.drivers import Services, arun, run
from rmm_core.errors import ConfigError, DimensionError, ModelError, RMMError, StoreError
from rmm_core.explain import Explanation
from rmm_core.extractive import ExtractiveAnswerer, ExtractiveReflector
from rmm_core.flow import Flow, call, spanned
from rmm_core.inputs import aware, checked_config, checked_id, checked_m, checked_models, checked_text, fresh_id, now
from rmm_core.prospective import LLMReflector
from rmm_core.protocols import LLM, Answerer, Embedder, MemoryStore, Reflector
from rmm_core.recall import Recall
from rmm_core.recent import RecentRecalls
from rmm_core.retrospective import LLMAnswerer, Recaller, citations_of, feedback_of, told
from rmm_core.sessions import Sessions
from rmm_core.stores.expiring import expiring
from rmm_core.tracing import content
from rmm_core.trainer import Trainer
from rmm_core.types import Citations, Memory, ReflectionReport

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Engine:
    """The parts of a memory, put together; for chats and adapters, which drive its flows.

    Args:
        store: Where everything is kept.
        llm: The language model that reflects, and answers in :meth:`Chat.ask`. Without one, reflection and
            answers are extractive: made of the users' own sentences.
        embedder: Turns texts into vectors.
        config: Settings.
        reflector: How sessions become memories, instead of the two ways above.
        clock: Tells the time; timezone-aware.
        on_reflection: Called with the report of every reflection, failed ones included.
        redact: What is made of every text of a user before it is stored or a model is asked with it.

    Attributes:
        sessions: When sessions are reflected, as flows.
        recent: The last recalls, by id.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        llm: LLM | None = None,
        embedder: Embedder | None = None,
        config: RMMConfig | None = None,
        reflector: Reflector | None = None,
        clock: Callable[[], datetime] | None = None,
        on_reflection: Callable[[ReflectionReport], None] | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        embedder = checked_models(llm, embedder)
        self.config = checked_config(config)
        self._clock = now if clock is None else clock
        self.store = store = expiring(store, self.config, self.clock)
        if redact is not None and not callable(redact):
            raise ConfigError(f"redact is a function from a text to a text; got {redact!r}")
        self._redact = redact
        self._services = Services(llm, embedder)
        self._by_overlap = self.config.attribution == "overlap" or (self.config.attribution == "auto" and llm is None)
        reflector = reflector or (LLMReflector(self.config) if llm is not None else ExtractiveReflector())
        self._answerer: Answerer = LLMAnswerer() if llm is not None else ExtractiveAnswerer()
        self._trainer = Trainer(store, self.config)
        self._recaller = Recaller(store, self._trainer, self.config)
        self.sessions = Sessions(store, reflector, self.config, self.clock, on_reflection)
        self.recent = RecentRecalls()

    def run(self, flow: Flow[T]) -> T:
        """Drive a flow with this memory's models, blocking."""
        return run(flow, self._services)

    async def arun(self, flow: Flow[T]) -> T:
        """Drive a flow with this memory's models, without blocking the event loop."""
        return await arun(flow, self._services)

    def clock(self) -> datetime:
        """The time, timezone-aware."""
        return aware(self._clock())

    def redacted(self, text: str) -> str:
        """What is stored, and a model is asked with, in place of a text."""
        return text if self._redact is None else checked_text(self._redact(text), "what redact returned")

    def recalling(self, user_id: str, query: str, top_m: int | None = None) -> Flow[Recall]:
        """:meth:`recall` as a flow."""
        query, user_id = self.redacted(checked_text(query, "query")), checked_id(user_id, "user_id")
        recalling = self._recaller.recall(fresh_id(), user_id, query, top_m=checked_m(top_m))
        about = content(self.config, user=user_id, query=query)
        recall = yield from spanned("rmm.recall", about, recalling, told)
        return self.recent.add(recall)

    def explaining(self, user_id: str, query: str, top_m: int | None = None) -> Flow[Explanation]:
        """:meth:`explain` as a flow."""
        query, user_id = self.redacted(checked_text(query, "query")), checked_id(user_id, "user_id")
        return self._recaller.explain(user_id, query, top_m=checked_m(top_m))

    def recalling_or_none(self, user_id: str, query: str) -> Flow[Recall | None]:
        """A recall for a host whose model has to answer anyway: a memory that cannot be searched is logged, not raised.

        Raises:
            DimensionError: When the bank was built with another embedder: somebody has to decide what to do about it.
        """
        try:
            return (yield from self.recalling(user_id, query))
        except DimensionError:
            raise
        except (ModelError, StoreError):
            logger.exception("the memory cannot be searched; the model answers without it")
            return None

    def reranking(
        self, user_id: str, query: str, documents: Mapping[str, str], top_m: int | None = None
    ) -> Flow[Recall]:
        """:meth:`rerank` as a flow."""
        query, user_id = self.redacted(checked_text(query, "query")), checked_id(user_id, "user_id")
        texts = {name: checked_text(text, "a document") for name, text in documents.items()}
        at = self.clock()
        found = [Memory(name, user_id, "topic", text, (), at, at) for name, text in texts.items()]
        recall = yield from self._recaller.rerank(fresh_id(), user_id, query, found, top_m=checked_m(top_m))
        return self.recent.add(recall)

    def answering(self, recall: Recall, query: str, history: str) -> Flow[str]:
        """A reply to ``query`` that cites what was recalled, as a flow."""
        return self._answerer.answer(recall, query, history)

    def citations(self, recall: Recall, reply: str | Citations) -> Citations:
        """What a reply cites; by the words it repeats where the configuration says so and it has no marker."""
        reply = reply if isinstance(reply, Citations) else checked_text(reply, "reply")
        return citations_of(reply, recall, by_overlap=self._by_overlap)

    def learning(self, recall: Recall) -> Flow[None]:
        """Let the reranker catch up with the learning log, as a flow; a failure is logged, not raised."""
        try:
            catching_up = call(self._trainer.catch_up, recall.user_id, len(recall.embedding))
            yield from spanned("rmm.learn", {"rmm.recall": recall.id}, catching_up, lambda steps: {"rmm.steps": steps})
        except RMMError:
            logger.exception("learning failed; the log is kept and learned from later")

    def learning_from(self, recall: Recall, reply: str | Citations) -> Flow[Citations]:
        """:meth:`feedback` as a flow."""
        citations = self.citations(recall, reply)
        entry = feedback_of(recall, citations, self.clock())
        if entry is not None:
            yield from call(self.store.add_feedback, entry)
            yield from self.learning(recall)
        return citations
