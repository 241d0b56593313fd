"""Keeps the conversations of a workflow: LangGraph's SQLite saver, called from the event loop.

LangGraph's own asynchronous saver hands each of a turn's writes to a thread in several hops, which
costs more than the writes: a commit in WAL mode takes about 0.1 ms and waits for no disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver


class WorkflowSaver(SqliteSaver):
    """SqliteSaver whose asynchronous methods are its synchronous ones.

    side_by_side: whether a step may have several tasks, each of which is kept when it ends. Where
    it has one, what that wrote is in the step's checkpoint, which follows at once.
    """

    def __init__(self, connection: sqlite3.Connection, *, side_by_side: bool) -> None:
        super().__init__(connection)
        self._side_by_side = side_by_side

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if self._side_by_side or any(channel in WRITES_IDX_MAP for channel, _ in writes):
            self.put_writes(config, writes, task_id, task_path)


@contextmanager
def opened(path: Path, *, side_by_side: bool) -> Iterator[WorkflowSaver]:
    """A saver on the file, which is made where it is missing; see WorkflowSaver."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # LangGraph writes from worker threads too; the saver has a lock
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        saver = WorkflowSaver(connection, side_by_side=side_by_side)
        saver.setup()
        # In WAL mode a killed process loses nothing without a sync; only a power cut would.
        connection.execute("PRAGMA synchronous=NORMAL")
        yield saver
