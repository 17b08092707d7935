"""What an answer cites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llama_index.core.schema import NodeWithScore
from llama_index.core.types import BaseOutputParser

from llamaindex_rmm._convert import recall_key
from rmm_core import Citations, InputError, Recall, ReflectiveMemory, parse_citations
from rmm_core.citations import MOST
from rmm_core.types import CitationStatus


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer as the user may see it, and what it cites.

    Attributes:
        text: The answer without markers.
        numbers: The numbers cited, each once, ascending.
        status: See :class:`rmm_core.Citations`.
        nodes: What was shown to the model, once somebody said so: :meth:`citing`.
    """

    text: str
    numbers: tuple[int, ...] = ()
    status: CitationStatus = "silent"
    nodes: tuple[NodeWithScore, ...] = ()

    def __str__(self) -> str:
        """The text: LlamaIndex makes a string of what a parser returns."""
        return self.text

    @property
    def citations(self) -> Citations:
        """The same as a value of the core."""
        return Citations(self.text, self.numbers, self.status)

    @property
    def cited(self) -> tuple[NodeWithScore, ...]:
        """The nodes cited, in the order of their numbers."""
        by_number = {n.node.metadata.get("index", place): n for place, n in enumerate(self.nodes, start=1)}
        return tuple(by_number[n] for n in self.numbers if n in by_number)

    def citing(self, nodes: Sequence[NodeWithScore]) -> CitedAnswer:
        """This answer, given the nodes that its numbers mean."""
        return replace(self, nodes=tuple(nodes))

    def feedback(self, memory: ReflectiveMemory) -> Citations:
        """Let the memory learn from what is cited, without storing a turn; an answer counts once.

        Raises:
            InputError: When :attr:`nodes` are not of a recall of this memory.
            NotFoundError: When that recall is too old, or of another process.
        """
        return memory.feedback(*self._read(memory))

    async def afeedback(self, memory: ReflectiveMemory) -> Citations:
        """:meth:`feedback` for event loops."""
        return await memory.afeedback(*self._read(memory))

    def _read(self, memory: ReflectiveMemory) -> tuple[Recall, Citations]:
        """The recall, and what the answer cites; a model of :func:`hide_markers` may have taken its markers out."""
        recall = self._recall(memory)
        return memory.recent.take(recall.user_id, self.text, recall) or (recall, self.citations)

    def _recall(self, memory: ReflectiveMemory) -> Recall:
        key = recall_key(self.nodes)
        if key is None:
            raise InputError(
                "this answer does not know what it cites: use answer.citing(nodes), "
                "with the nodes of an RMMRetriever or RMMNodePostprocessor"
            )
        return memory.recent.get(*key)


class CitationOutputParser(BaseOutputParser):
    """Reads citation markers out of a model's answer and leaves clean text.

    Args:
        count: How many memories the model was shown. It only matters for digits glued to a word ("tea[1]"), which
            cite when they are in range; leave it out where the number varies.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = count

    def parse(self, output: str) -> CitedAnswer:
        """The whole answer."""
        citations = parse_citations(output, MOST if self.count is None else self.count)
        return CitedAnswer(citations.text, citations.numbers, citations.status)
