"""A verdict that knows what was asked, and so can explain itself."""

from __future__ import annotations

from pydantic import PrivateAttr

from coding_framework.explanation.page import page
from coding_framework.explanation.verdict_text import verdict_text
from coding_framework.types import Task, Verdict


class ExplainedVerdict(Verdict):
    """A verdict with its task and its kernel. Maker: `coding_framework.judge`."""

    _task: Task = PrivateAttr()
    _code: str = PrivateAttr()

    @classmethod
    def of(cls, verdict: Verdict, task: Task, code: str) -> ExplainedVerdict:
        found = cls.model_construct(**dict(verdict))
        found._task, found._code = task, code
        return found

    def explain(self) -> str:
        """A page of text: what was found, why, where the time goes, and what to try next."""
        return page(self, self._task, self._code)

    def __str__(self) -> str:
        return verdict_text(self, self._task)
