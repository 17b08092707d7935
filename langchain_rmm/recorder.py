"""The last step of a chain: what was asked and answered is stored, and its citations are learned from."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator

from langchain_rmm._backend import checked_memory
from langchain_rmm._convert import attachments_of, message_key, recall_key, text_of
from langchain_rmm._who import Sittings, agent_context, checked_user, who
from langchain_rmm.output_parser import CitationOutputParser, CitedAnswer
from rmm_core import Attachment, InputError, NotFoundError, Recall, ReflectiveMemory
from rmm_core.flow import Flow

logger = logging.getLogger(__name__)


def turn_recorder(
    memory: ReflectiveMemory,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
    question_key: str = "question",
    documents_key: str = "documents",
    answer_key: str = "answer",
    user_name: str = "User",
    agent_name: str = "Assistant",
) -> Runnable[dict[str, Any], CitedAnswer]:
    """A step that takes ``{"question", "documents", "answer"}``, stores the exchange, and returns what was answered.

    In a stream the answer's chunks pass at once; the exchange is stored when the last one has come.

    Args:
        memory: The memory.
        user_id: Whose turn it is; else the one in each call's config.
        session_id: The session; else ``session_id`` or ``thread_id`` of the config, else one that lasts until silence.
        question_key: Where the question stands in the input: a text, or a message, whose id is stored once.
        documents_key: Where the documents of :class:`RMMRetriever` stand; may be missing.
        answer_key: Where the answer stands: a :class:`CitedAnswer`, a text or a message.
        user_name: What a user is called in memories whose ``user_name`` is not in the config.
        agent_name: What the other side is called.
    """
    recorder = _Recorder(
        memory, user_id, session_id, (question_key, documents_key, answer_key), (user_name, agent_name)
    )
    steps: Any = (recorder.transform, recorder.atransform)  # it hands them the config too, and its types do not say so
    return RunnableGenerator(*steps, name="turn_recorder")


class _Recorder:
    def __init__(
        self,
        memory: ReflectiveMemory,
        user_id: str | None,
        session_id: str | None,
        keys: tuple[str, str, str],
        names: tuple[str, str],
    ) -> None:
        self._memory = checked_memory(memory)
        self._user_id = checked_user(user_id)
        self._session_id = session_id
        self._keys = keys
        self._names = names
        self._sittings = Sittings(memory.clock, memory.config.idle_minutes)

    def transform(self, chunks: Iterator[dict[str, Any]], config: RunnableConfig) -> Iterator[CitedAnswer]:
        exchange = _Exchange(*self._keys)
        for chunk in chunks:
            yield from exchange.take(chunk)
        yield exchange.rest_of(self._memory.run(self._recording(exchange, config)))

    async def atransform(
        self, chunks: AsyncIterator[dict[str, Any]], config: RunnableConfig
    ) -> AsyncIterator[CitedAnswer]:
        exchange = _Exchange(*self._keys)
        async for chunk in chunks:
            for passed in exchange.take(chunk):
                yield passed
        yield exchange.rest_of(await self._memory.arun(self._recording(exchange, config)))

    def _recording(self, exchange: _Exchange, config: RunnableConfig) -> Flow[CitedAnswer]:
        turn = who(config, agent_context(), user_id=self._user_id, session_id=self._session_id)
        session_id = self._sittings.session(turn)
        yield from self._memory.sessions.visiting(turn.user_id)
        user_name, agent_name = turn.user_name or self._names[0], self._names[1]
        chat = self._memory.chat(turn.user_id, session_id=session_id, user_name=user_name, agent_name=agent_name)
        recall = self._recall(turn.user_id, exchange.documents)
        answer = exchange.answer.citing(exchange.documents)
        recorded = yield from chat.recording(
            exchange.question, answer.of_memories(), recall, attachments=exchange.attachments, key=exchange.key
        )
        if recall is None or answer.of_memories() != answer.citations:
            return answer
        kept = recorded.citations
        return CitedAnswer(kept.text, kept.numbers, kept.status, answer.documents)

    def _recall(self, user_id: str, documents: Sequence[Document]) -> Recall | None:
        others = sorted({d.metadata["user_id"] for d in documents if "recall_id" in d.metadata} - {user_id})
        if others:
            raise InputError(f"these documents are of user {others[0]!r}, the turn is of {user_id!r}")
        try:
            key = recall_key(documents)
            return None if key is None else self._memory.recent.get(*key)
        except (InputError, NotFoundError) as error:  # the user has read the answer: the turn is stored all the same
            logger.warning("the turn is stored, its citations are not learned from: %s", error)
            return None


@dataclass
class _Exchange:
    """The chunks of one exchange as they come, and what they add up to."""

    question_key: str
    documents_key: str
    answer_key: str

    def __post_init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._passed = ""

    def take(self, chunk: Any) -> Iterator[CitedAnswer]:
        """Add a chunk, and pass on what of an answer is in it; an answer that is not read yet waits for the end."""
        if not isinstance(chunk, Mapping):
            wanted = f"a dict with {self.question_key!r} and {self.answer_key!r}"
            raise InputError(f"the turn recorder takes {wanted}; got {type(chunk).__name__}")
        for key, value in chunk.items():
            adds = key in self._values and isinstance(value, str | BaseMessage | CitedAnswer)
            self._values[key] = self._values[key] + value if adds else value
        part = chunk.get(self.answer_key)
        if isinstance(part, CitedAnswer) and part.text:
            self._passed += part.text
            yield CitedAnswer(part.text)

    def rest_of(self, whole: CitedAnswer) -> CitedAnswer:
        """The last chunk: what has not passed yet, and all that is cited."""
        return CitedAnswer(whole.text[len(self._passed) :], whole.numbers, whole.status, whole.documents)

    @property
    def question(self) -> str:
        return text_of(self._need(self.question_key))

    @property
    def attachments(self) -> Sequence[Attachment]:
        return attachments_of(self._need(self.question_key))

    @property
    def key(self) -> str:
        """The id of a question that is a message, so that a chain that runs again stores it once."""
        question = self._need(self.question_key)
        return message_key(question.id, text_of(question)) if isinstance(question, BaseMessage) else ""

    @property
    def documents(self) -> Sequence[Document]:
        documents = self._values.get(self.documents_key) or ()
        if isinstance(documents, str) or not all(isinstance(d, Document) for d in documents):
            kind = type(documents).__name__
            raise InputError(
                f"{self.documents_key!r} holds {kind}, a list of documents is wanted; format them under another key"
            )
        return documents

    @property
    def answer(self) -> CitedAnswer:
        answer = self._need(self.answer_key)
        return answer if isinstance(answer, CitedAnswer) else CitationOutputParser().invoke(answer)

    def _need(self, key: str) -> Any:
        if self._values.get(key) is None:
            raise InputError(f"the turn recorder wants {key!r} in its input; it got {sorted(self._values)}")
        return self._values[key]
