"""Does an evaluation survive SIGKILL: nothing finished is done twice, nothing is lost.

    uv run python benchmarks/eval_kills.py [--kills 50] [--tasks 60] [--minutes 40]

`cuda-rl eval` asks a server of this program, which answers every prompt in the same way and takes
its time, for a task's naive kernel, a wrong one or none. The whole process group is killed at
random moments until there were so many kills, then the command ends undisturbed. Compared with a
run of the same secret that nobody disturbed: the keys of answers and verdicts after each kill, how
often each stands in the files, and summary.json. Then a folder with 10,000 stored records: how long
it takes from the start of the command to its first new question.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench_io import ROOT, at_most, bar, finish, head

from coding_framework.data.examples import held_out_tasks
from coding_framework.store.lines import parsed_lines

FILES = (("answers.jsonl", "answer"), ("verdicts.jsonl", "verdict"))
RESUME_S = 5.0
STORED = 10_000


class Answers(BaseHTTPRequestHandler):
    """An OpenAI-compatible server. What it says depends on the prompt alone."""

    kernels: Mapping[str, str] = {}
    """By the task's PyTorch source, as the prompt shows it."""
    pause_s = 0.5
    asked_at: float | None = None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Answers.asked_at = Answers.asked_at or time.monotonic()
        time.sleep(self.pause_s)
        text = self.said(" ".join(str(m["content"]) for m in body["messages"]))
        choice = {"message": {"content": text}, "finish_reason": "stop"}
        reply = json.dumps({"model": body["model"], "choices": [choice]}).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)
        except BrokenPipeError:
            pass  # who asked was killed

    def said(self, prompt: str) -> str:
        drawn = hashlib.sha256(prompt.encode()).digest()[0]
        known = [code for source, code in self.kernels.items() if source in prompt]
        if not known or drawn < 40:
            return "I do not know."
        code = known[0] if drawn < 150 else known[0].replace("+", "-", 1)
        return f"Here it is:\n```cuda\n{code}\n// {drawn}\n```\n"

    def log_message(self, *_: Any) -> None:
        pass


def command(folder: Path, url: str, tasks: int) -> list[str]:
    return [
        sys.executable, "-m", "coding_framework.cli", "eval", "made", "--server", url,
        "--suite", f"held-out:{tasks}", "--samples", "2", "--turns", "2", "--concurrency", "4",
        "--backend", "emulator", "--workers", "2", "--output-dir", str(folder),
    ]  # fmt: skip


def start(folder: Path, url: str, tasks: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(folder, url, tasks), cwd=ROOT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def keys(folder: Path) -> dict[str, Counter[str]]:
    """How often each finished answer and verdict stands in the files."""
    return {
        name: Counter(
            entry["key"] for entry in parsed_lines(folder / name, json.loads) if field in entry
        )
        for name, field in FILES
    }


def killed_run(folder: Path, url: str, args: argparse.Namespace) -> dict[str, Any]:
    """Kill until there were so many, or the time is over; then let it end."""
    rng, kills, lost, in_work = random.Random(5), 0, 0, 0
    before = keys(folder)
    deadline = time.monotonic() + 60 * args.minutes
    while kills < args.kills and time.monotonic() < deadline:
        process = start(folder, url, args.tasks)
        waited = wait_for_work(folder, process, before)
        if process.poll() is None:
            time.sleep(rng.uniform(0.0, args.longest_s))
        if process.poll() is not None:
            break  # it has finished: more tasks are needed for more kills
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills, in_work = kills + 1, in_work + waited
        after = keys(folder)
        lost += sum(len(before[name].keys() - after[name].keys()) for name, _ in FILES)
        before = after
        print(f"kill {kills}: {[len(found) for found in after.values()]}", flush=True)
    process = start(folder, url, args.tasks)
    status = process.wait()
    return {"kills": kills, "kills_in_work": in_work, "lost": lost, "last_status": status}


def wait_for_work(
    folder: Path, process: subprocess.Popen[bytes], before: Mapping[str, Counter[str]]
) -> bool:
    """Until the run has made something new; whether it has."""
    sizes = [(folder / name).stat().st_size if (folder / name).exists() else 0 for name, _ in FILES]
    while process.poll() is None:
        now = [(folder / n).stat().st_size if (folder / n).exists() else 0 for n, _ in FILES]
        if now > sizes:
            return True
        time.sleep(0.05)
    return False


def time_to_resume(folder: Path, finished: Path, url: str, tasks: int) -> float:
    """Seconds from the start of the command to its first new question, in a folder with so many
    records more than the finished run has."""
    shutil.copytree(finished, folder)
    for name, field in FILES:
        path = folder / name
        lines = [line for line in path.read_text().splitlines() if f'"{field}"' in line]
        made = []
        for number in range(STORED // 2):
            entry = json.loads(lines[number % len(lines)])
            made.append(json.dumps({**entry, "key": f"stored {number}"}))
        kept = lines[: len(lines) // 2]
        path.write_text("".join(f"{line}\n" for line in (*made, *kept)))
    Answers.asked_at = None
    begun = time.monotonic()
    process = start(folder, url, tasks)
    while Answers.asked_at is None and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return (Answers.asked_at or time.monotonic()) - begun


def import_time() -> float:
    """Seconds that the command needs to begin at all, on this machine now."""
    begun = time.monotonic()
    program = "import coding_framework.run.evaluation, coding_framework.agents.policies"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    return time.monotonic() - begun


def main() -> int:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--kills", type=int, default=50)
    cli.add_argument("--tasks", type=int, default=60)
    cli.add_argument("--longest-s", type=float, default=1.5, help="from the first work to a kill")
    cli.add_argument("--minutes", type=float, default=40.0, help="of killing")
    cli.add_argument("--work", type=Path, default=ROOT / "runs" / "eval_kills")
    cli.add_argument("--output", type=Path)
    args = cli.parse_args()
    top = head("eval_kills")
    shutil.rmtree(args.work, ignore_errors=True)
    Answers.kernels = {
        t.reference[t.reference.index("class Model") :].strip(): t.naive_kernel or ""
        for t in held_out_tasks(args.tasks)
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    whole, killed = args.work / "whole", args.work / "killed"
    start(whole, url, args.tasks).wait()
    killed.mkdir(parents=True)
    shutil.copy2(whole / ".secret", killed / ".secret")
    found = killed_run(killed, url, args)
    repeated = sum(n - 1 for counts in keys(killed).values() for n in counts.values())
    same_keys = {n: set(c) for n, c in keys(killed).items()} == {
        n: set(c) for n, c in keys(whole).items()
    }
    summaries = [(f / "summary.json").read_bytes() for f in (whole, killed)]
    resume_s, imports_s = (
        time_to_resume(args.work / "stored", whole, url, args.tasks),
        import_time(),
    )
    bars = [
        bar("kills, at least", args.kills, found["kills"], found["kills"] >= args.kills),
        at_most("finished answers and verdicts that were made again", 0, repeated),
        at_most("finished answers and verdicts that were lost", 0, found["lost"]),
        bar("the same answers and verdicts as undisturbed", True, same_keys, same_keys),
        bar(
            "summary.json equal to that of the undisturbed run, byte for byte", True,
            summaries[0] == summaries[1], summaries[0] == summaries[1],
        ),
        at_most(
            f"seconds to new work with {STORED} stored records, less those of the imports",
            RESUME_S, resume_s - imports_s,
        ),
    ]  # fmt: skip
    counts = {name: len(c) for name, c in keys(killed).items()}
    more = {"tasks": args.tasks, **found, **counts, "resume_s": resume_s, "imports_s": imports_s}
    return 0 if finish({**top, "bars": bars, **more}, args.output) else 1


if __name__ == "__main__":
    sys.exit(main())
