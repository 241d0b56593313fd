"""Asks `cuda-rl serve` for verified kernels, by OpenAI's own client.

    python ask.py --url http://127.0.0.1:8080 --endpoint cuda-kernels --task relu --save answer.json
    python ask.py --url ... --endpoint ... --task relu --users 60 --at-once 8

With --users so many users ask once each, as in a rollout. Prints what came back; exits 1 where
nothing was verified.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="of the server, without /v1")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--task", required=True)
    parser.add_argument("--key", default="none", help="a token of the server")
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--budget-s", type=float, default=120.0)
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--save", type=Path, help="where the last verified answer is put")
    args = parser.parse_args()
    client = openai.OpenAI(
        base_url=f"{args.url}/v1", api_key=args.key, timeout=2 * args.budget_s, max_retries=5
    )
    options = {
        "task": args.task, "n": args.candidates, "turns": args.turns, "budget_s": args.budget_s,
    }  # fmt: skip

    def ask(user: int) -> str:
        """How the request of a user ended."""
        try:
            done = client.chat.completions.create(
                model=args.endpoint,
                messages=[{"role": "user", "content": f"a fast {args.task}"}],
                user=f"user-{user}",
                extra_body={"cuda_rl": options},
            )
        except openai.APIStatusError as e:
            return f"{e.status_code} {e.type}: {e.message}"[:200]
        if args.save is not None:
            args.save.write_text(done.model_dump_json())
        said = done.model_dump()["choices"][0]["cuda_rl"]
        if args.users == 1:
            print(done.choices[0].message.content)
            print([(c["status"], c["reason"]) for c in said["candidates"]])
            print(f"{said['kernel_id']}: speedup {said['speedup']}, {said['basis']}")
        return str(said["status"])

    started = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as pool:
        ended = Counter(pool.map(ask, range(args.users)))
    print(f"{args.users} requests in {time.monotonic() - started:.0f} s: {dict(ended)}")
    return 0 if ended["verified"] else 1


if __name__ == "__main__":
    sys.exit(main())
