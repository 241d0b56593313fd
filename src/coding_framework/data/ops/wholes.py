"""Operations that write kernels of their own: where one thread an output, or a row, is no form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coding_framework.data.graph import Node

Whole = Callable[[Any, Node], None]
"""(the lowering, the node): launches what puts the node's results in memory."""

WHOLES: Mapping[str, Whole] = {}
