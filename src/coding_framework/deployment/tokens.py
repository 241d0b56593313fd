"""Bearer tokens of our servers: 256 bits, shown once, kept as SHA-256 in one file.

The file is JSON lines, of this user alone; servers read it again when it has changed, so that a
revoked token ends without a restart.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import get_args

from coding_framework.errors import UsageError
from coding_framework.paths import write_atomic
from coding_framework.store.events import log
from coding_framework.store.folder import one_at_a_time
from coding_framework.types import Record, TokenScope

LOCAL_SCOPES = frozenset[TokenScope](("complete", "verify"))
"""What a caller on this machine may do where there is no token."""
PREFIX = "crl_"


class Token(Record):
    """One token, as it is kept: the secret itself is nowhere."""

    id: str
    sha256: str
    scopes: frozenset[TokenScope]
    created_at: float
    """Seconds of the epoch, as the next two."""
    expires_at: float | None = None
    revoked_at: float | None = None

    def valid(self, now: float) -> bool:
        ends = min(t for t in (self.expires_at, self.revoked_at, now + 1.0) if t is not None)
        return now < ends


class TokenFile:
    """The tokens of a server. Whoever changes them does so alone (`one_at_a_time`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """Every token, revoked ones too. Raises UsageError where the file is no token file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return ()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._tokens = self._read()
            self._stamp = stamp
        return self._tokens

    def _read(self) -> tuple[Token, ...]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            return tuple(_token(line) for line in lines if line.strip())
        except (OSError, ValueError) as e:
            raise UsageError(
                f"{self.path} is not a file of tokens: move it away and create the tokens again"
            ) from e

    def find(self, secret: str, now: float | None = None) -> Token | None:
        """The valid token of this secret; every kept digest is compared, in constant time."""
        given = _digest(secret)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.sha256, given):
                found = token
        return found if found is not None and found.valid(now or time.time()) else None

    def create(
        self, scopes: Iterable[TokenScope], *, expires_s: float | None = None
    ) -> tuple[str, str]:
        """(id, secret) of a new token. The secret is not kept: show it now."""
        secret = PREFIX + secrets.token_urlsafe(32)
        now = time.time()
        token = Token(
            id=secrets.token_hex(4), sha256=_digest(secret), scopes=frozenset(scopes),
            created_at=now, expires_at=None if expires_s is None else now + expires_s,
        )  # fmt: skip
        with self._alone():
            self._write((*self._now(), token))
        return token.id, secret

    def revoke(self, token_id: str) -> None:
        """End a token now. Raises UsageError where there is none of this id."""
        with self._alone():
            tokens = self._now()
            if token_id not in {t.id for t in tokens}:
                raise UsageError(
                    f"no token has the id {token_id!r}: `cuda-rl token list` shows the ids"
                )
            now = time.time()
            self._write(
                t.model_copy(update={"revoked_at": now}) if t.id == token_id else t for t in tokens
            )

    def _alone(self) -> AbstractContextManager[None]:
        return one_at_a_time(self.path, lambda said: log.warning("lock", said=said))

    def _now(self) -> tuple[Token, ...]:
        """As the file is, whatever was read before."""
        return self._read() if self.path.exists() else ()

    def _write(self, tokens: Iterable[Token]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self.path, "".join(f"{t.model_dump_json()}\n" for t in tokens))
        self.path.chmod(0o600)


def _token(line: str) -> Token:
    """Raises ValueError. Files of before have limits and scopes that are nothing any more."""
    given = json.loads(line)
    known = {k: v for k, v in given.items() if k in Token.model_fields} if given else given
    if known and isinstance(known.get("scopes"), list):
        known["scopes"] = [scope for scope in known["scopes"] if scope in get_args(TokenScope)]
    return Token.model_validate_json(json.dumps(known))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
