"""Banks for the page to show, and requests to what serves it."""

import io
import json
from datetime import timedelta
from urllib.parse import urlencode
from wsgiref.util import setup_testing_defaults

import numpy as np

from rmm_core import Attachment, Citations, Memory, Message, ReflectiveMemory, RMMConfig, Session, TurnRef
from rmm_core.protocols import BankChange, Entry
from rmm_core.testing import HashEmbedder
from rmm_core.types import Revision
from tests.conftest import T0

PORT = "8000"

HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><svg onload=alert(2)>",
    "end of script": "</script><script>alert(3)</script><!--<script>",
    "template": "{{7*7}} ${alert(4)} `alert(5)` <%= 1 %>",
    "entities": "\"' &amp; &lt;b&gt; \\u003cb\\u003e",
    "address": "javascript:alert(6)",
    "right to left": "\u202egnp.exe\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "emoji": "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \u0130stanbul",
    "line breaks": "one\ntwo\u2028three\u2029four\x85five",
    "controls": "\x1b[31mred\x07\x08 \ufeff",
    "a word without end": "w" * 10_000,
}

HOSTILE_IDS = [text[:500] for text in HOSTILE.values()]


def committed(memory, user_id, memories):
    """Put memories into a bank as they are, with vectors that say nothing."""
    vector = np.ones(memory.store.width() or 64, dtype=np.float32) / 8
    entries = tuple(Entry(m, vector) for m in memories)
    memory.store.commit(user_id, BankChange(memory.store.bank_version(user_id), entries))


def topic(user_id, name, summary, *refs, history=(), at=T0):
    return Memory(name, user_id, "topic", summary, tuple(refs), at, at, tuple(history))


def hostile_bank(place):
    """Users, speakers, sessions, turns, summaries and queries that would do harm if they were taken for markup."""
    memory = ReflectiveMemory.open(place, embedder=HashEmbedder(), config=RMMConfig(batch_size=1))
    for user_id in [*HOSTILE_IDS, "../../etc", "a+b%2Fc?d=e#f&g", "."]:
        memory.store.open_session(Session(user_id, "s", "User", "Assistant", T0, T0))
        memory.store.append(user_id, "s", [Message("user", "I keep bees.")], at=T0)
    user_id = HOSTILE["markup"]
    for number, (session_id, text) in enumerate(zip(HOSTILE_IDS, HOSTILE.values(), strict=True)):
        memory.store.open_session(Session(user_id, session_id, text, text, T0, T0))
        photo = Attachment("image", "javascript:alert(7)", text)
        message = Message("user", text, speaker=text, attachments=(photo,))
        memory.store.append(user_id, session_id, [message], at=T0)
        ref = TurnRef(session_id, 0)
        earlier = Revision(f"formerly {text}", T0 + timedelta(days=1))
        committed(memory, user_id, [topic(user_id, f"m{number}", text, ref, history=[earlier])])
    chat = memory.chat(user_id, session_id="asked")
    recall = memory.recall(user_id, HOSTILE["markup"])
    chat.record(HOSTILE["end of script"], Citations("so it is", (1,), "cited"), recall)
    memory.store.fail_session(user_id, "asked", HOSTILE["markup"])
    return memory


def large_bank(place, count):
    """One user with many memories."""
    memory = ReflectiveMemory.open(place, embedder=HashEmbedder())
    memory.store.open_session(Session("ann", "s", "Ann", "Bot", T0, T0))
    memory.store.append("ann", "s", [Message("user", f"I saw {i} herons by the lake.") for i in range(count)], at=T0)
    many = [
        topic("ann", f"m{i}", f"Ann saw {i} herons.", TurnRef("s", i), at=T0 + timedelta(hours=i)) for i in range(count)
    ]
    committed(memory, "ann", many)
    return memory


class Client:
    """Asks an Inspector as its own page would; what a test wants otherwise, it says."""

    def __init__(self, inspector):
        self.inspector = inspector

    def __call__(self, method, path, values=None, *, body=None, prefix=None, **headers):
        """The status, the headers and the body, read when it is JSON."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        prefix = f"/{self.inspector.token}" if prefix is None else prefix
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": prefix + path,
            "QUERY_STRING": urlencode(values or {}),
            "SERVER_PORT": PORT,
            "HTTP_HOST": f"127.0.0.1:{PORT}",
            "HTTP_SEC_FETCH_SITE": "same-origin",
            "HTTP_X_INSPECTOR_TOKEN": self.inspector.token,
            "CONTENT_LENGTH": str(len(sent)),
            "CONTENT_TYPE": "application/json",
            "wsgi.input": io.BytesIO(sent),
        }
        environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        setup_testing_defaults(environ)
        answer = {}

        def start(status, headers, exc_info=None):
            answer.update(status=int(status.split()[0]), headers=headers)
            return lambda data: None

        content = b"".join(self.inspector(environ, start)).decode()
        kind = dict(answer["headers"])["Content-Type"]
        return answer["status"], answer["headers"], json.loads(content) if "json" in kind else content
