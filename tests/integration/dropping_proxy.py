# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that can be told to let nothing through, for a while or for ever."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class DroppingProxy:
    """Stands before a server; while ``passing`` is not set, bytes stay where they are."""

    def __init__(self, port: int, near: int = 0) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", near))
        self._open: list[socket.socket] = []
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.passing = threading.Event()
        self.passing.set()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def used(self) -> bool:
        """Whether anybody ever connected."""
        return bool(self._open)

    def close(self) -> None:
        """Accept no more; open connections end with their peers."""
        self._listener.close()
        self.passing.set()

    def cut(self) -> None:
        """The server is gone: no connection is left and none is accepted any more."""
        for end in (self._listener, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:  # the API is being restarted
                near.close()
                continue
            far.settimeout(None)
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                self.passing.wait()
                target.sendall(piece)
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
