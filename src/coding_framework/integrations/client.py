"""A client of `cuda-rl judge-server`, by the standard library alone: copy it into your trainer."""

import http.client
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
        """Raises RuntimeError with the server's sentence, or with what went wrong on the way for
        as long as `wait_s`."""
        until = time.monotonic() + self._wait_s
        request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers)
        while True:
            pause = 2.0
            try:
                with urllib.request.urlopen(request, timeout=self._wait_s) as answer:
                    return _object(answer.read())
            except urllib.error.HTTPError as e:
                said, after = _sentence(e), e.headers.get("Retry-After", "")
                pause = float(after) if after.isdecimal() else pause  # else it is a date
                if e.code not in AGAIN:
                    raise RuntimeError(said) from None
            except (OSError, http.client.HTTPException, ValueError) as e:  # away, or broken off
                said = f"no judge answers at {self._url}: {e or type(e).__name__}"
            if time.monotonic() + pause > until:
                raise RuntimeError(said)
            time.sleep(pause)


def _object(text: bytes) -> dict[str, Any]:
    """Raises ValueError for all but a JSON object, such as a proxy's page."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("its answer is no JSON object")
    return found


def _sentence(error: urllib.error.HTTPError) -> str:
    """The server's own, where it is a judge that answers."""
    try:
        return str(_object(error.read())["error"]["message"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return f"{error.url} answers with status {error.code} and no sentence of a judge"
