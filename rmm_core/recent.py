"""The recalls of the last minutes, so that an answer can be learned from where only the recall's id is left."""

from __future__ import annotations

from rmm_core.bounded import Bounded
from rmm_core.errors import NotFoundError
from rmm_core.recall import Recall


class RecentRecalls:
    """The last recalls of this process; safe for threads.

    Args:
        held: How many are kept; each is some tens of kilobytes.
    """

    def __init__(self, held: int = 512) -> None:
        self._recalls: Bounded[str, Recall] = Bounded(held)

    def add(self, recall: Recall) -> Recall:
        """Keep a recall, and return it."""
        self._recalls.put(recall.id, recall)
        return recall

    def get(self, user_id: str, recall_id: str) -> Recall:
        """The user's recall of this id.

        Raises:
            NotFoundError: When it is none of the user's, too old, or of another process.
        """
        recall = self._recalls.get(recall_id)
        if recall is None or recall.user_id != user_id:
            raise NotFoundError(
                f"user {user_id!r} has no recent recall {recall_id!r}: the last {self._recalls.held} of this process "
                "are kept; keep the Recall itself where answers come later or elsewhere"
            )
        return recall

    def of_query(self, user_id: str, query: str) -> Recall | None:
        """The user's newest recall for exactly this query; None when there is none."""
        mine = (r for _, r in self._recalls.newest_first() if r.user_id == user_id and r.query == query)
        return next(mine, None)

    def forget(self, user_id: str) -> None:
        """Let go of a user's recalls."""
        for recall_id, recall in self._recalls.newest_first():
            if recall.user_id == user_id:
                self._recalls.pop(recall_id)
