"""The agent that improves or repairs a kernel with the judge's feedback."""

from __future__ import annotations

from coding_framework.agents.answers import RoleAgent
from coding_framework.types import Role


class OptimizerAgent(RoleAgent):
    """Every later turn: from the best correct kernel, else the last one, to a better one; a
    generator's answer where no kernel is there yet.
    """

    role = Role.OPTIMIZER
