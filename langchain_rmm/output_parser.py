"""What an answer cites, read while it streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from pydantic import Field

from langchain_rmm._convert import numbered, recall_key, text_of
from langchain_rmm.markers import reply_of
from rmm_core import Citations, CitationStream, InputError, Recall, ReflectiveMemory, parse_citations
from rmm_core.citations import MOST
from rmm_core.types import CitationStatus


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer as the user may see it, and what it cites. Chunks of a streamed answer add up to the whole.

    Attributes:
        text: The answer, or this chunk of it, without markers.
        numbers: The numbers cited, each once, ascending.
        status: See :class:`rmm_core.Citations`.
        documents: What was shown to the model, once somebody said so: :meth:`citing`, :func:`turn_recorder`.
    """

    text: str
    numbers: tuple[int, ...] = ()
    status: CitationStatus = "silent"
    documents: tuple[Document, ...] = ()

    def __add__(self, other: CitedAnswer) -> CitedAnswer:
        """This chunk and the next as one."""
        return CitedAnswer(
            self.text + other.text,
            tuple(sorted({*self.numbers, *other.numbers})),
            self.status if other.status == "silent" else other.status,
            other.documents or self.documents,
        )

    @property
    def citations(self) -> Citations:
        """The same as a value of the core."""
        return Citations(self.text, self.numbers, self.status)

    @property
    def memories(self) -> tuple[Document, ...]:
        """The documents cited, in the order of their numbers."""
        by_number = dict(numbered(self.documents))
        return tuple(by_number[n] for n in self.numbers if n in by_number)

    def citing(self, documents: Sequence[Document]) -> CitedAnswer:
        """This answer, given the documents that its numbers mean."""
        return replace(self, documents=tuple(documents))

    def feedback(self, memory: ReflectiveMemory) -> Citations:
        """Let the memory learn from what is cited, without storing a turn; an answer counts once.

        Raises:
            InputError: When :attr:`documents` are not of a recall of this memory.
            NotFoundError: When that recall is too old, or of another process.
        """
        return memory.feedback(self._recall(memory), self.of_memories())

    async def afeedback(self, memory: ReflectiveMemory) -> Citations:
        """:meth:`feedback` for event loops."""
        return await memory.afeedback(self._recall(memory), self.of_memories())

    def of_memories(self) -> Citations:
        """What is cited of one recall, other retrievers' documents left aside: an answer from those cites no memory."""
        foreign = {n for n, d in numbered(self.documents) if "recall_id" not in d.metadata}
        numbers = tuple(n for n in self.numbers if n not in foreign)
        only_foreign = self.status == "cited" and not numbers
        return Citations(self.text, numbers, "none" if only_foreign else self.status)

    def _recall(self, memory: ReflectiveMemory) -> Recall:
        key = recall_key(self.documents)
        if key is None:
            raise InputError(
                "this answer does not know what it cites: use answer.citing(documents), "
                "with the documents of an RMMRetriever or RMMReranker"
            )
        return memory.recent.get(*key)


class CitationOutputParser(BaseTransformOutputParser[CitedAnswer]):
    """Reads citation markers out of a model's answer and leaves clean text.

    In a stream, text passes as soon as it is certain to be shown; the last chunk carries the citations.

    Attributes:
        count: How many memories the model was shown. It only matters for digits glued to a word ("tea[1]"), which
            cite when they are in range; leave it out where the number varies.
    """

    count: int | None = Field(default=None, ge=0)

    def parse(self, text: str) -> CitedAnswer:
        """The whole answer."""
        return _answer(parse_citations(text, self._shown))

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> CitedAnswer:
        """The whole answer of a model, all of its blocks of text."""
        best = result[0]
        reply = reply_of(best.message) if isinstance(best, ChatGeneration) else best.text
        return self.parse(reply) if isinstance(reply, str) else _answer(reply)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[CitedAnswer]:  # noqa: A002 -- LangChain's name
        stream = _Stream(self._shown)
        for chunk in input:
            if visible := stream.feed(chunk):
                yield CitedAnswer(visible)
        yield stream.last()

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[CitedAnswer]:  # noqa: A002 -- LangChain's name
        stream = _Stream(self._shown)
        async for chunk in input:
            if visible := stream.feed(chunk):
                yield CitedAnswer(visible)
        yield stream.last()

    @property
    def _shown(self) -> int:
        return MOST if self.count is None else self.count

    @property
    def _type(self) -> str:
        return "reflective_memory_citations"


def _answer(citations: Citations) -> CitedAnswer:
    return CitedAnswer(citations.text, citations.numbers, citations.status)


class _Stream:
    """The chunks of one answer; those of a model that hides its markers bring the citations along."""

    def __init__(self, count: int) -> None:
        self._stream = CitationStream(count)
        self._noted: Citations | None = None

    def feed(self, chunk: str | BaseMessage) -> str:
        reply = reply_of(chunk)
        if isinstance(reply, Citations):
            self._noted = reply
        return self._stream.feed(text_of(chunk))

    def last(self) -> CitedAnswer:
        tail, citations = self._stream.close()
        return replace(_answer(self._noted or citations), text=tail)
