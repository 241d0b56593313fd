"""The viewer in Debian's chromium: `pytest -m browser`.

Each test fails on any message of the console, any violation of the content policy, any request that
fails and any request to another host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from coding_framework.store.conversations import append_rollout
from support.viewed import make_rl_run, repaired, rollout

CHROMIUM = os.environ.get("CUDA_RL_CHROMIUM") or shutil.which("chromium")
GENEROUS_MS = 90_000
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Starts the command over tmp_path/runs, always on the port of its first start."""
    started: list[subprocess.Popen[str]] = []
    port = "0"

    def start() -> str:
        nonlocal port
        for old in started:
            old.terminate()
            old.wait(60)
        command = [sys.executable, "-m", "coding_framework.cli", "view", str(tmp_path / "runs")]
        given = ["--port", port, "--index", str(tmp_path / "index")]
        started.append(subprocess.Popen([*command, *given], stdout=subprocess.PIPE, text=True))
        out = started[-1].stdout
        assert out is not None
        address = out.readline().split()[0].rstrip("/")
        port = address.rsplit(":", 1)[1]
        return address

    make_rl_run(
        tmp_path / "runs" / "rl",
        [repaired(f"c{i}", 1.0 + i, task=f"task_{i % 3}") for i in range(6)],
    )
    yield start
    for process in started:
        process.terminate()
        process.wait(60)


@pytest.fixture
def page() -> Iterator[Page]:
    faults: list[str] = []
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(GENEROUS_MS)
        expect.set_options(timeout=GENEROUS_MS)
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("request", lambda r: None if "127.0.0.1" in r.url else faults.append(r.url))
        yield page
        browser.close()
    allowed = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "503")
    assert [f for f in faults if not any(a in f for a in allowed)] == []


def loaded(page: Page, address: str) -> None:
    """Opens the list of runs when the index is there."""
    page.goto(address)
    deadline = time.monotonic() + GENEROUS_MS / 1000
    while "67%" not in (text := page.inner_text("main")) and "100%" not in text:
        assert time.monotonic() < deadline, text
        page.wait_for_timeout(300)
        page.goto(address)


def test_from_the_runs_to_a_diff_and_back_by_its_address(
    server: Callable[[], str], page: Page
) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    expect(page.locator("#charts canvas").first).to_be_visible()
    page.click("nav.tabs >> text=Conversations")
    page.locator("input[name=q]").fill("elements differ")
    expect(page.locator("#results tbody tr")).to_have_count(6)
    page.select_option("select[name=sort]", "speedup")
    expect(page.locator("#results tbody tr").first).to_contain_text("6×")
    assert "sort=speedup" in page.url
    page.locator("#results tbody tr a").first.click()
    page.click("[data-turn='2']")
    page.click(".views >> text=diff")
    expect(page.locator(".code mark").first).to_be_visible()
    address, text = page.url, page.inner_text("main")
    page.goto("about:blank")
    page.goto(address)
    assert page.inner_text("main") == text


def test_keys_alone_lead_to_a_verdict(server: Callable[[], str], page: Page) -> None:
    loaded(page, server())
    for key in ("j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/run/*")
    for key in ("g", "c"):
        page.keyboard.press(key)
    page.wait_for_url("**/conversations*")
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url("**/conversations/*")
    page.keyboard.press("5")
    page.wait_for_url("**view=tests*")
    expect(page.locator("table.tests")).to_contain_text("passed")
    page.keyboard.press("[")
    page.wait_for_url("**turn=1*")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


def test_a_line_that_is_written_appears_without_a_reload_also_after_a_restart(
    server: Callable[[], str], page: Page, tmp_path: Path
) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.untouched = true")
    rollouts = tmp_path / "runs/rl/attempts/000/rollouts"
    append_rollout(rollouts, rollout(repaired("new", task="a_new_task"), step=2))
    expect(page.locator("#newest")).to_contain_text("a_new_task")
    server()
    expect(page.locator("#live")).to_have_text("live")
    append_rollout(rollouts, rollout(repaired("later", task="a_later_task"), step=2))
    expect(page.locator("#newest")).to_contain_text("a_later_task")
    assert page.evaluate("window.untouched")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [768, 1280])
def test_no_page_is_wider_than_the_window(
    server: Callable[[], str], page: Page, theme: str, width: int
) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 900})
    loaded(page, server())
    run = page.locator("td.grow a").first.get_attribute("href")
    base = page.url.rstrip("/")
    page.goto(f"{base}{run}/conversations")
    first = page.locator("#results tbody tr a").first.get_attribute("href")
    views = [f"{first}?view={v}" for v in ("diff", "code", "tests", "profile", "reward", "raw")]
    for path in ("/", run, f"{run}/conversations", f"{run}/steps/1", f"{run}/tasks", *views):
        page.goto(f"{base}{path}")
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0, path
