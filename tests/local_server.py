"""A server of a test's own, on this machine; the test has to be marked ``enable_socket``."""

import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer


@contextmanager
def serving(handler, **state):
    """A server with what its handler needs, and its ``url`` as OpenAI's clients take one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    vars(server).update(state, url=f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
