"""The page, served to this machine alone."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socketserver
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import bottle

from rmm_cli.inspector import data, document
from rmm_core import (
    ConfigError,
    ConflictError,
    InputError,
    ModelError,
    NotFoundError,
    ReflectiveMemory,
    RMMError,
    StoreError,
)

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

logger = logging.getLogger(__name__)

_USERS_AT_ONCE = 50
_STATUS = (
    (NotFoundError, 404),
    (InputError, 400),
    (ConfigError, 400),
    (ModelError, 502),
    (ConflictError, 409),
    (StoreError, 503),
)
_HEADERS = [
    ("Content-Security-Policy", document.policy("connect-src 'self'", "frame-ancestors 'none'")),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]


class Inspector:
    """The routes, as a WSGI application.

    Everything stands below ``/<token>/``, so that other users of this machine, who can reach the port too, find
    nothing; what is more than a GET has to bring the token in a header as well, which no form of another page can.

    Args:
        memory: What to show.
        store_name: What the page calls it.
        write: Whether memories and users can be deleted.
    """

    def __init__(self, memory: ReflectiveMemory, *, store_name: str, write: bool) -> None:
        self.token = secrets.token_urlsafe(24)
        self._memory = memory
        self._write = write
        self._about = {"store": store_name, "write": write, "token": self.token}
        self._app = bottle.Bottle()
        self._app.default_error_handler = _as_json
        for path, method, step in (
            ("/", "GET", self._page),
            ("/api/users", "GET", self._users),
            ("/api/user", "GET", self._user),
            ("/api/learning", "GET", self._learning),
            ("/api/explain", "POST", self._explain),
            ("/api/memory", "DELETE", self._delete),
            ("/api/user", "DELETE", self._forget),
        ):
            self._app.route(path, method, _told(step))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """One request."""

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *_HEADERS], exc_info)

        refused = self._refused(environ)
        if refused:
            start(refused[0], [("Content-Type", "application/json")])
            return [json.dumps({"error": refused[1]}).encode()]
        if environ["PATH_INFO"] == f"/{self.token}":  # the page asks for its data relative to its own address
            start("302 Found", [("Location", f"/{self.token}/"), ("Content-Type", "text/plain")])
            return []
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix(f"/{self.token}")
        answered: Iterable[bytes] = self._app(environ, start)
        return answered

    def _refused(self, environ: WSGIEnvironment) -> tuple[str, str] | None:
        """The status and the reason when a request is not of our own page."""
        host, port = environ.get("HTTP_HOST", ""), environ["SERVER_PORT"]
        if host not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            return "403 Forbidden", f"this is 127.0.0.1:{port} and no other host"
        own = f"http://{host}"
        of_others = environ.get("HTTP_SEC_FETCH_SITE", "none") not in ("same-origin", "none")
        if of_others or environ.get("HTTP_ORIGIN", own) != own:
            return "403 Forbidden", "another page asks: only this one may"
        path = environ.get("PATH_INFO", "").split("/")
        if len(path) < 2 or not self._is_token(path[1]):
            return "404 Not Found", "open the whole address that rmm inspect printed: it holds a key of this run"
        sent = environ.get("HTTP_X_INSPECTOR_TOKEN", "")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD") and not self._is_token(sent):
            return "403 Forbidden", "the token is missing, or of an earlier run: load the page anew"
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    # -- routes --------------------------------------------------------------------------

    def _page(self) -> str:
        return document.head() + document.data("page", self._about) + document.tail()

    def _users(self) -> dict[str, Any]:
        start = _asked("start") or "0"
        if not start.isdecimal():
            raise InputError(f"start is a whole number; got {start!r}")
        return data.users(self._memory, find=_asked("find"), start=int(start), limit=_USERS_AT_ONCE)

    def _user(self) -> dict[str, Any]:
        return data.user(self._memory, _asked("user"))

    def _learning(self) -> dict[str, Any]:
        return data.learning(self._memory, _asked("user"))

    def _explain(self) -> dict[str, Any]:
        asked = bottle.request.json
        if not isinstance(asked, dict):
            raise InputError('what is asked is JSON: {"user": ..., "query": ...}')
        return data.explanation(self._memory.explain(asked.get("user", ""), asked.get("query", "")))

    def _delete(self) -> dict[str, Any]:
        self._need_write()
        user_id, memory_id = _asked("user"), _asked("memory")
        if not self._memory.delete(user_id, memory_id):
            raise NotFoundError("there is no such memory any more")
        return {"deleted": memory_id}

    def _forget(self) -> dict[str, Any]:
        self._need_write()
        user_id = _asked("user")
        if user_id not in self._memory.users():
            raise NotFoundError("there is no such user any more")
        erased = self._memory.forget_user(user_id)
        return {"memories": erased.memories, "turns": erased.turns, "answers": erased.answers}

    def _need_write(self) -> None:
        if not self._write:
            raise bottle.HTTPError(403, "nothing can be deleted here: start rmm inspect with --write")


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Serves an :class:`Inspector` on loopback, every request in a thread of its own."""

    daemon_threads = True
    url = ""

    def server_bind(self) -> None:
        """Bind, without asking a name server what 127.0.0.1 is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        logger.debug("a request broke off", exc_info=True)


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """User ids stand in addresses, and would in a log."""


@contextmanager
def listening(memory: ReflectiveMemory, *, port: int, write: bool, store_name: str) -> Iterator[Server]:
    """A server that has its port, and answers once it is told to serve.

    Raises:
        ConfigError: When something else has the port.
    """
    try:
        server = Server(("127.0.0.1", port), _Silent)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"port {port} of 127.0.0.1 cannot be had: {error}; choose another, or none") from error
    inspector = Inspector(memory, store_name=store_name, write=write)
    server.set_app(inspector)
    server.url = f"http://127.0.0.1:{server.server_port}/{inspector.token}/"
    with server:
        yield server


def _asked(name: str) -> str:
    return str(bottle.request.query.getunicode(name, ""))


def _told(step: Callable[[], Any]) -> Callable[[], Any]:
    """A route whose errors are answers, too."""

    def route() -> Any:
        try:
            return step()
        except bottle.HTTPError:
            raise
        except RMMError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
            return bottle.HTTPError(status, str(error))
        except Exception:  # no traceback is for a page to show
            logger.exception("the page could not be answered")
            return bottle.HTTPError(500, "something went wrong that should not; the log of rmm inspect says what")

    return route


def _as_json(error: Any) -> str:
    """An error for the page to show."""
    bottle.response.content_type = "application/json"
    return json.dumps({"error": str(error.body)})
