"""The recalls of the last minutes, so that an answer can be learned from where only the recall's id is left."""

from __future__ import annotations

from itertools import count

from rmm_core.bounded import Bounded
from rmm_core.errors import NotFoundError
from rmm_core.recall import Recall
from rmm_core.types import Citations


class _Unclear:
    """In the place of what answers in the same words cite, when they cite otherwise."""


class RecentRecalls:
    """The last recalls of this process, and the answers that were read for them; safe for threads.

    Args:
        held: How many of each are kept; a recall is some tens of kilobytes.
    """

    def __init__(self, held: int = 512) -> None:
        self._count = count()
        self._recalls: Bounded[str, tuple[int, Recall]] = Bounded(held)
        self._read: Bounded[tuple[str, str, str], tuple[int, Recall, Citations]] = Bounded(held)
        self._recorded: Bounded[tuple[str, str], tuple[Recall, Citations] | _Unclear] = Bounded(held)

    def add(self, recall: Recall) -> Recall:
        """Keep a recall, and return it."""
        self._recalls.put(recall.id, (next(self._count), recall))
        return recall

    def get(self, user_id: str, recall_id: str) -> Recall:
        """The user's recall of this id.

        Raises:
            NotFoundError: When it is none of the user's, too old, or of another process.
        """
        recall = self.find(user_id, recall_id)
        if recall is None:
            raise NotFoundError(
                f"user {user_id!r} has no recent recall {recall_id!r}: the last {self._recalls.held} of this process "
                "are kept; keep the Recall itself where answers come later or elsewhere"
            )
        return recall

    def find(self, user_id: str, recall_id: str) -> Recall | None:
        """:meth:`get` for hosts that go on without: None when it is too old, of another process, or was forgotten."""
        _, recall = self._recalls.get(recall_id) or (0, None)
        return recall if recall is not None and recall.user_id == user_id else None

    def of_query(self, user_id: str, query: str) -> Recall | None:
        """The user's newest recall for exactly this query; None when there is none."""
        mine = (r for _, (_, r) in self._recalls.newest_first() if r.user_id == user_id and r.query == query)
        return next(mine, None)

    def read(self, recall_id: str, citations: Citations) -> bool:
        """Note what was read from a model's answer before its host sees the text alone; whether the recall is known."""
        number, recall = self._recalls.get(recall_id) or (0, None)
        if recall is None:
            return False
        self._read.put((recall.user_id, citations.text.strip(), recall.id), (number, recall, citations))
        return True

    def take(self, user_id: str, text: str, recall: Recall | None = None) -> tuple[Recall, Citations] | None:
        """What was read from an answer of these words, once; None when nothing was.

        Args:
            user_id: Whose.
            text: The answer without markers.
            recall: What the host was shown for it. An answer to something else that was recalled later is taken too:
                a query engine asks in words of its own. The newest is, when this is not known.
        """
        words = (user_id, text.strip())
        found = None if recall is None else self._read.pop((*words, recall.id))
        if found is None:
            since, _ = (self._recalls.get(recall.id) if recall is not None else None) or (-1, None)
            others = (k for k, (n, _, _) in self._read.newest_first() if k[:2] == words and n > since)
            found = next((self._read.pop(key) for key in others), None)
        return None if found is None else found[1:]

    def recorded(self, recall: Recall, citations: Citations) -> None:
        """Note an answer that became a turn; of two in the same words that cite otherwise, neither is known by them."""
        key = (recall.user_id, citations.text.strip())
        known = self._recorded.get(key)
        if isinstance(known, tuple) and known[0].memories(known[1].numbers) != recall.memories(citations.numbers):
            known = _Unclear()
        self._recorded.put(key, known if isinstance(known, _Unclear) else (recall, citations))

    def behind(self, user_id: str, text: str) -> tuple[Recall, Citations] | None:
        """What a turn of these words cites, and of which recall; None for any other turn."""
        known = self._recorded.get((user_id, text.strip()))
        return known if isinstance(known, tuple) else None

    def forget(self, user_id: str) -> None:
        """Let go of a user's recalls and answers."""
        for recall_id, (_, recall) in self._recalls.newest_first():
            if recall.user_id == user_id:
                self._recalls.pop(recall_id)
        for read, _ in self._read.newest_first():
            if read[0] == user_id:
                self._read.pop(read)
        for recorded, _ in self._recorded.newest_first():
            if recorded[0] == user_id:
                self._recorded.pop(recorded)
