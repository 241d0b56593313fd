"""Forms of honest answers that only differ in their Python: all are x * 2 + 1, and must pass."""

from __future__ import annotations

from corpus import model_cheats
from corpus.model_cheats import Cheat
from corpus.sources import Sources

_SOURCES = Sources(__file__, globals(), model_cheats)

FORMS: tuple[Cheat, ...] = _SOURCES["forms"]
