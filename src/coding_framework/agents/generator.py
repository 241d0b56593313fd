"""The agent that writes a first kernel for a task."""

from __future__ import annotations

from coding_framework.agents.answers import RoleAgent
from coding_framework.types import Role


class GeneratorAgent(RoleAgent):
    """Opens a conversation: from the task alone to a kernel."""

    role = Role.GENERATOR
