"""The recalls of the last minutes, so that an answer can be learned from where only the recall's id is left."""

from __future__ import annotations

import threading
from collections import OrderedDict

from rmm_core.errors import NotFoundError
from rmm_core.recall import Recall


class RecentRecalls:
    """The last recalls of this process; safe for threads.

    Args:
        held: How many are kept; each is some tens of kilobytes.
    """

    def __init__(self, held: int = 256) -> None:
        self._held = held
        self._recalls: OrderedDict[str, Recall] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, recall: Recall) -> Recall:
        """Keep a recall, and return it."""
        with self._lock:
            self._recalls[recall.id] = recall
            while len(self._recalls) > self._held:
                self._recalls.popitem(last=False)
        return recall

    def get(self, user_id: str, recall_id: str) -> Recall:
        """The user's recall of this id.

        Raises:
            NotFoundError: When it is none of the user's, too old, or of another process.
        """
        with self._lock:
            recall = self._recalls.get(recall_id)
        if recall is None or recall.user_id != user_id:
            raise NotFoundError(
                f"user {user_id!r} has no recent recall {recall_id!r}: the last {self._held} of this process are kept; "
                "keep the Recall itself where answers come later or elsewhere"
            )
        return recall

    def of_query(self, user_id: str, query: str) -> Recall | None:
        """The user's newest recall for exactly this query; None when there is none."""
        with self._lock:
            mine = (r for r in reversed(self._recalls.values()) if r.user_id == user_id and r.query == query)
            return next(mine, None)

    def forget(self, user_id: str) -> None:
        """Let go of a user's recalls."""
        with self._lock:
            for recall in [r for r in self._recalls.values() if r.user_id == user_id]:
                del self._recalls[recall.id]
