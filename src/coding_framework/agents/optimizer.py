"""The agent that improves or repairs a kernel with the judge's feedback."""

from __future__ import annotations

from coding_framework.agents.answers import RoleAgent
from coding_framework.types import Role


class OptimizerAgent(RoleAgent):
    """Takes every later turn. It improves the best correct kernel, or the last kernel where none is
    correct. Where there is no kernel yet it answers as the generator does.
    """

    role = Role.OPTIMIZER
