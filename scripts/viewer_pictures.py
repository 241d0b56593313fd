#!/usr/bin/env python
"""Pictures of the viewer's pages over some runs, to look at and for docs/viewer.md.

    uv run scripts/viewer_pictures.py outputs --output /tmp/pictures
    uv run scripts/viewer_pictures.py outputs deployment --output docs/figures --docs

Each page in both themes, 1,280 and 400 pixels wide; with --docs the few that the documents show, as
WebP. Needs chromium (or CUDA_RL_CHROMIUM), as the viewer's tests do.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

CHROMIUM = os.environ.get("CUDA_RL_CHROMIUM") or shutil.which("chromium")
VIEWS = ("diff", "code", "prompt", "compiler", "tests", "profile", "reward", "raw")
OF_DOCS = {
    "runs": "light", "run": "light", "step": "light", "diff": "light", "profile": "dark",
    "rolled_back": "light", "system": "dark",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--only", default="", help="pages by name, joined by commas")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    wanted = {name for name in args.only.split(",") if name}
    with served(args.paths) as base, sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        for name, path in pages(base).items():
            if wanted and name not in wanted:
                continue
            for theme in (OF_DOCS.get(name),) if args.docs else ("light", "dark"):
                for width in (1280,) if args.docs else (1280, 400):
                    if theme is None:
                        continue
                    page = browser.new_page(
                        viewport={"width": width, "height": 860},
                        color_scheme="dark" if theme == "dark" else "light",
                    )
                    page.goto(base + path, wait_until="load")
                    page.wait_for_timeout(1200 if page.query_selector("#charts") else 200)
                    keep(page, args.output, name, theme, width, docs=args.docs)
                    page.close()
        browser.close()


def keep(page: Page, folder: Path, name: str, theme: str, width: int, *, docs: bool) -> None:
    if docs:
        image = Image.open(io.BytesIO(page.screenshot()))
        target = folder / f"viewer_{name}.webp"
        image.convert("RGB").save(target, quality=82, method=6)
    else:
        target = folder / f"{name}_{theme}_{width}.png"
        page.screenshot(path=target, full_page=True)
    print(f"{target} {target.stat().st_size // 1000} kB")


def pages(base: str) -> dict[str, str]:
    """The address of each kind of page; of runs, the one with most conversations."""
    runs = [row["run"]["id"] for row in asked(base, "/?sort=conversations")["rows"]]
    run, found = runs[0], {"runs": "/", "run": f"/run/{runs[0]}"}
    own = f"/run/{run}"
    rows = asked(base, f"{own}/conversations?status=correct&sort=turns")["page"]["rows"]
    if rows and rows[0]["turns"] == 1:
        rows = asked(base, f"{own}/conversations?status=correct&sort=speedup")["page"]["rows"]
    rows = rows or asked(base, f"{own}/conversations")["page"]["rows"]
    key, turns = rows[0]["key"], rows[0]["turns"]
    found["conversations"] = f"{own}/conversations"
    found |= {v: f"{own}/conversations/{key}?turn={turns}&view={v}" for v in VIEWS}
    found["side"] = f"{own}/conversations/{key}?turn={turns}&view=diff&mode=side"
    cheat = asked(base, f"{own}/conversations?cheat=any")["page"]["rows"]
    if cheat:
        found["cheat"] = f"{own}/conversations/{cheat[0]['key']}?view=code"
    steps = asked(base, f"{own}/steps")["steps"]
    if steps:
        found |= {"steps": f"{own}/steps", "step": f"{own}/steps/{steps[0][1]['step']}"}
    found |= {"tasks": f"{own}/tasks", "task": f"{own}/task?task={rows[0]['task']}"}
    found["system"] = f"/system/{run}"
    choices = [value for value, _ in asked(base, "/compare")["choices"]]
    if len(choices) > 1:
        found["compare"] = f"/compare?a={choices[0]}&b={choices[-1]}"
    evaluations = [r["run"] for r in asked(base, "/")["rows"] if r["run"]["kind"] == "evaluation"]
    if evaluations:
        found["evaluation"] = f"/eval/{evaluations[0]['id']}"
    found["deploy"] = "/deploy"
    rollouts = [r for d in asked(base, "/deploy")["databases"] for r in d.get("rollouts", ())]
    if rollouts:
        found["rollout"] = f"/deploy/experiments/{rollouts[0][0]['id']}"
        found["rolled_back"] = f"/deploy/experiments/{rollouts[-1][0]['id']}"
    found["kernels"] = "/kernels"
    kernels = [k for r in asked(base, "/kernels")["registries"] for k in r["kernels"]]
    if kernels:
        found["kernel"] = kernels[0]["address"]
    found["missing"] = "/run/none"
    return found


def asked(base: str, path: str) -> Any:
    return json.loads(urllib.request.urlopen(f"{base}/api{path}".rstrip("/")).read())


@contextmanager
def served(paths: list[Path]) -> Iterator[str]:
    """The viewer over the paths, once it has read them."""
    with tempfile.TemporaryDirectory() as index:
        command = [sys.executable, "-m", "coding_framework.cli", "view", *map(str, paths)]
        server = subprocess.Popen(
            [*command, "--port", "0", "--index", index], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            base = server.stdout.readline().split()[0].rstrip("/")
            while any(row["reading"] for row in asked(base, "/")["rows"]):
                time.sleep(0.3)
            yield base
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
