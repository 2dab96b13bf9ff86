"""Serves kube-scheduler's requests to the extender over TLS, with a thread for each connection.

The server needs half as much CPU per request as Python's http.server. The server listens on 127.0.0.1, where
kube-scheduler is the only client. For ports that the whole cluster can reach, see open_server.py.
"""

import errno
import http.client
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable

from agents.runtime.errors import AgentError
from agents.runtime.http_message import (
    HEAD_BYTES,
    HEAD_END,
    HttpRequest,
    HttpResponse,
    RequestError,
    read_head,
    text_response,
)

# The maximum number of connections, because the scheduler binds many pods at the same time over separate connections.
CONNECTIONS = 512
# accept() raises these errors if all file descriptors are in use, or if the kernel has too little memory.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_SECONDS = 0.05


class Server(socketserver.ThreadingTCPServer):
    """Answers each request with `answer`, in the thread of its connection. Raises AgentError if the port is in use.

    Refuses a request with a body of more than `body_bytes` without reading the body.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[HttpRequest], HttpResponse],
        *,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float,
        body_bytes: int = 0,
    ) -> None:
        self.answer = answer
        self.tls = tls
        self.idle_seconds = idle_seconds
        self.body_bytes = body_bytes
        self._slots = threading.Semaphore(CONNECTIONS)
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise AgentError(f"cannot listen on port {port}: {error}") from None

    def get_request(self) -> tuple[socket.socket, object]:
        """Accepts a connection. If no file descriptor is free, the method waits. New clients then wait in the kernel's
        queue."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in EXHAUSTED:
                time.sleep(EXHAUSTED_SECONDS)
            raise  # the base class ignores this error, because a client may have closed the connection

    def process_request(self, request: object, client_address: object) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]  # as it was handed in
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except RuntimeError:  # the process cannot start another thread
            self._slots.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the errors of a closed connection, and of a client without a valid certificate."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it was handed in


class _Handler(socketserver.StreamRequestHandler):
    server: Server
    disable_nagle_algorithm = True
    rbufsize = 64 * 2**10

    def setup(self) -> None:
        self.request.settimeout(self.server.idle_seconds)
        if self.server.tls is not None:
            # The TLS handshake runs in the thread of the connection. In the thread that accepts connections, a silent
            # client would block all other clients.
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        last = False
        while not last:
            try:
                text = self._text()
                if not text:
                    return
                head = read_head(text, self.server.body_bytes)
                body = self.rfile.read(head.body_bytes)
                if len(body) < head.body_bytes:
                    raise RequestError("the body breaks off")
            except RequestError as error:
                self.wfile.write(text_response(http.client.BAD_REQUEST, str(error)).encoded(last=True))
                return
            last = head.last
            self.wfile.write(self.server.answer(HttpRequest(head.method, head.path, body)).encoded(last=last))

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def _text(self) -> bytes:
        """Reads the request line and the headers. At the end of the connection, returns b""."""
        text = b""
        while not text.endswith(HEAD_END):
            line = self.rfile.readline(HEAD_BYTES - len(text))
            text += line
            if len(text) >= HEAD_BYTES:
                raise RequestError(f"the headers are over {HEAD_BYTES} bytes")
            if not line:
                break
        return text.removesuffix(HEAD_END)
