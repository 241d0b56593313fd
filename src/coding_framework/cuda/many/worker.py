"""One worker of the judge pool: `python -m coding_framework.cuda.many.worker FD`.

Reads jobs from a socket and answers there; anything that a library prints goes to stderr. It ends
with its pool: when the socket closes, whatever it is doing.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from coding_framework.cuda.device import wire
from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.errors import error_as_data
from coding_framework.types import Candidate, Probe, Task

_REST_S = 3.0
"""Without a job a worker gives back memory after it."""


def main() -> None:
    """Judge until the pool is gone."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    pool = socket.socket(fileno=int(sys.argv[1]))
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_receive, args=(pool, jobs), daemon=True).start()
    judge = _make_judge(jobs.get(), pool)
    while judge is not None:
        wire.send(pool, _answer(judge, _next(jobs, judge)))


def _next(jobs: queue.Queue[dict[str, Any]], judge: Judge) -> dict[str, Any]:
    try:
        return jobs.get(timeout=_REST_S)
    except queue.Empty:
        with suppress(Exception):  # what fails here fails again in a job, which can say so
            judge.rest()
        return jobs.get()


def _receive(pool: socket.socket, jobs: queue.Queue[dict[str, Any]]) -> None:
    """Hand jobs over; when the pool is gone, so is this process."""
    with suppress(EOFError, OSError):
        while True:
            jobs.put(wire.receive(pool, 0))
    os._exit(0)


def _make_judge(setup: dict[str, Any], pool: socket.socket) -> Judge | None:
    try:
        config = JudgeConfig.model_validate(
            {**setup["config"], "secret": bytes.fromhex(setup["secret"])}
        )
        judge = Judge(config)
        import torch

        torch.set_num_threads(1)
    except Exception as e:
        wire.send(pool, error_as_data(e))
        return None
    wire.send(pool, {"ready": True})
    return judge


def _answer(judge: Judge, job: dict[str, Any]) -> dict[str, Any]:
    try:
        task = Task.model_validate(job["task"])
        candidate = Candidate.model_construct(code=job["code"])
        for code in job.get("ahead", ()):
            judge.compile_ahead(code)
        if "probes" in job:
            probes = [Probe.model_validate(probe) for probe in job["probes"]]
            found = judge.probe(task, candidate, probes)
            return {"probed": [result.model_dump(mode="json") for result in found]}
        if job.get("templates"):
            made = judge.templates(task, candidate)
            return {"templates": made.model_dump(mode="json")}
        verdict = judge.judge(task, candidate)
        return {"verdict": verdict.model_dump(mode="json")}
    except Exception as e:  # the boundary: the pool raises it again on its side
        return error_as_data(e)


if __name__ == "__main__":
    main()
