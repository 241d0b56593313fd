"""The agent that writes a first kernel for a task."""

from __future__ import annotations

from coding_framework.agents.answers import RoleAgent
from coding_framework.types import Role


class GeneratorAgent(RoleAgent):
    """Takes the first turn: it writes a kernel from the task alone."""

    role = Role.GENERATOR
