"""A client of `cuda-rl judge-server`, by the standard library alone: copy it into your trainer."""

import json
import time
import urllib.error
import urllib.request
from typing import Any

AGAIN = (408, 429, 502, 503, 504)


class JudgeClient:
    """Asks for verdicts. Use from any number of threads."""

    def __init__(self, url: str, token: str = "", wait_s: float = 3600.0) -> None:
        """wait_s: how long a judge that is busy, or away, is asked again."""
        self._url, self._wait_s = url.rstrip("/") + "/v1/verdicts", wait_s
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def verdict(self, task: str | dict[str, Any], code: str) -> dict[str, Any]:
        """The verdict on one kernel: `status`, `reason`, `timing` and more (docs/judge.md)."""
        return self._post({"task": task, "code": code})

    def verdicts(self, kernels: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """For each of at most 256 {"id", "task", "code"}: {"id", "verdict"} or {"id", "error"}."""
        results: list[dict[str, Any]] = self._post({"kernels": kernels})["results"]
        return results

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises RuntimeError with the server's sentence."""
        until = time.monotonic() + self._wait_s
        request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers)
        while True:
            try:
                with urllib.request.urlopen(request, timeout=self._wait_s) as answer:
                    return dict(json.load(answer))
            except urllib.error.HTTPError as e:
                text, pause = e.read(), float(e.headers.get("Retry-After", "2"))
                if e.code not in AGAIN or time.monotonic() + pause > until:
                    raise RuntimeError(json.loads(text)["error"]["message"]) from None
            except OSError as e:  # it is not up yet, or starts again
                pause = 2.0
                if time.monotonic() + pause > until:
                    raise RuntimeError(f"no judge answers at {self._url}: {e}") from None
            time.sleep(pause)
