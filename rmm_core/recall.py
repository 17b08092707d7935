"""What a query brings up, and what became of it: the two values that users hold in their hands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rmm_core.prompts import answer_prompt, host_instructions, memory_block
from rmm_core.types import Candidate, Citations, Memory, Shown, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Recall:
    """What the memory brings up for one query (algorithm 1, steps 1 and 2).

    Attributes:
        id: Names this recall in feedback.
        candidates: The K candidates, best first by the ranking that served.
        noise: The Gumbel noise the ranking was drawn with, shape ``(K,)``; zeros when greedy.
        shown: The M memories for the prompt, best first.
        ranking: Which ranking served: ``"learned"`` or ``"prior"``.
        of_bank: Whether the candidates are of the user's bank, and not texts that somebody else's retriever found.
        sides: Of a duel (:mod:`rmm_core.guard`), by memory id: 1 where the learned ranking chose what is shown, -1
            where the prior did. None when there was none.
    """

    id: str
    user_id: str
    query: str
    embedding: Vector = field(repr=False)
    candidates: tuple[Candidate, ...] = field(repr=False)
    noise: Vector = field(repr=False)
    shown: tuple[Shown, ...]
    ranking: Literal["learned", "prior"] = "learned"
    of_bank: bool = True
    sides: Mapping[str, int] | None = None

    def block(self) -> str:
        """The memories alone, numbered and fenced, for a prompt of your own."""
        return memory_block(self.shown)

    def instructions(self, *, cite: bool = True, named: bool = False) -> str:
        """The memories with the rules for using them, for the system prompt of an app; empty when none is shown.

        Args:
            cite: Whether to ask for citations; not where the reply is to be parsed.
            named: Whether the fence names this recall, for hosts that learn from the prompt alone what was shown.
        """
        block = memory_block(self.shown, self.id if named else "")
        return host_instructions(block, cite=cite) if self.shown else ""

    def prompt(self, query: str | None = None, history: str = "") -> str:
        """The whole answering prompt: instructions, memories, question.

        Args:
            query: The question; the recalled one when left out.
            history: What was said earlier in the session, rendered.
        """
        return answer_prompt(self.query if query is None else query, self.shown, history=history)

    def memories(self, numbers: tuple[int, ...]) -> tuple[Memory, ...]:
        """The shown memories behind citation numbers (counted from 1)."""
        return tuple(self.shown[n - 1].memory for n in numbers)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as the user may see it, and the memories behind it."""

    text: str
    cited: tuple[Memory, ...]
    citations: Citations
    recall: Recall | None = None
