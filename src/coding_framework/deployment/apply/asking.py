"""Asks a server to verify kernels at the shapes that a program wants, so that coverage grows.

In a thread of its own, each shape once a process. What fails is told in `stats()`, and fails no
call.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from coding_framework.errors import UsageError

_TOGETHER_S = 1.0
"""Shapes that are wanted within it are asked for at once."""
_TIMEOUT_S = 900.0
_MOST_BYTES = 1 << 20
_MOST_SHAPES = 8


class KernelAsker:
    """One server, asked by one process."""

    def __init__(
        self, url: str, token: str | None = None, pause: Callable[[float], object] = time.sleep
    ) -> None:
        """url: of `cuda-rl serve`. token: with the scope `verify`. Raises UsageError."""
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is no address of a server: give http://HOST:PORT")
        self._url, self._token, self._pause = url.rstrip("/"), token, pause
        self._queue: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.said: dict[tuple[str, str], str] = {}
        """What became of a shape by operation and shape key."""

    def want(self, op: str, shape_key: str) -> None:
        """Ask for it soon, unless it was asked for."""
        with self._lock:
            if (op, shape_key) in self.said:
                return
            self.said[op, shape_key] = "asked"
            self._queue.put((op, shape_key))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kernels wanted", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            self._pause(_TOGETHER_S)
            wanted = [first]
            while not self._queue.empty():
                wanted.append(self._queue.get())
            for op in dict.fromkeys(op for op, _ in wanted):
                keys = [key for of, key in wanted if of == op]
                for start in range(0, len(keys), _MOST_SHAPES):
                    self._ask(op, keys[start : start + _MOST_SHAPES])

    def _ask(self, op: str, keys: list[str]) -> None:
        try:
            told = self._answer(op, keys)
            refused = told.get("refused") or {}
            said = {key: str(refused.get(key, "added")) for key in keys}
        except (OSError, ValueError, AttributeError) as e:
            said = dict.fromkeys(keys, f"{self._url} did not answer: {_words(e)}")
        for key, words in said.items():
            self.said[op, key] = words

    def _answer(self, op: str, keys: list[str]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps({"op": op, "shapes": keys}).encode()
        request = urllib.request.Request(f"{self._url}/v1/kernels/wanted", data, headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.loads(answer.read(_MOST_BYTES))
        return found


def _words(error: Exception) -> str:
    """Of the server where it said any."""
    if isinstance(error, urllib.error.HTTPError):
        try:
            return str(json.loads(error.read(_MOST_BYTES))["error"]["message"])[:300]
        except (OSError, ValueError, KeyError, TypeError):
            return f"status {error.code}"
    return str(error)[:300]
