"""One worker of the judge pool: `python -m coding_framework.cuda.many.worker`.

Reads jobs from stdin, writes verdicts to what was stdout when it started; anything that a library
prints goes to stderr. It ends with its pool: when stdin closes, whatever it is doing.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from contextlib import suppress
from typing import Any

from coding_framework.cuda.judge import Judge, JudgeConfig
from coding_framework.cuda.many.frames import read_frame, write_frame
from coding_framework.errors import error_as_data
from coding_framework.types import Candidate, Probe, Task

_REST_S = 3.0
"""Without a job a worker gives back memory after it."""


def main() -> None:
    """Judge until stdin ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    setup = read_frame(sys.stdin.buffer)
    if setup is None:
        return
    threading.Thread(target=_receive, args=(jobs,), daemon=True).start()
    judge = _make_judge(setup, answers)
    while judge is not None:
        write_frame(answers, _answer(judge, _next(jobs, judge)))


def _next(jobs: queue.Queue[dict[str, Any]], judge: Judge) -> dict[str, Any]:
    try:
        return jobs.get(timeout=_REST_S)
    except queue.Empty:
        with suppress(Exception):  # what fails here fails again in a job, which can say so
            judge.rest()
        return jobs.get()


def _receive(jobs: queue.Queue[dict[str, Any]]) -> None:
    """Hand jobs over; when the pool is gone, so is this process."""
    while (job := read_frame(sys.stdin.buffer)) is not None:
        jobs.put(job)
    os._exit(0)


def _make_judge(setup: dict[str, Any], answers: Any) -> Judge | None:
    try:
        config = JudgeConfig.model_validate(
            {**setup["config"], "secret": bytes.fromhex(setup["secret"])}
        )
        judge = Judge(config)
        import torch

        torch.set_num_threads(1)
    except Exception as e:
        write_frame(answers, error_as_data(e))
        return None
    write_frame(answers, {"ready": True})
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
