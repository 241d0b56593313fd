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
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect, sync_playwright

from coding_framework.deployment.ab_testing import RampStep
from coding_framework.store.conversations import append_rollout
from coding_framework.store.records import StepRecord
from coding_framework.store.run_status import SystemSample, append_system
from coding_framework.store.training_log import write_steps
from coding_framework.types import Finding, Status
from support.made_conversations import make_state, make_turn, make_verdict
from support.registered import add_kernel, registry_in
from support.rollouts import Clock, Deployment, config
from support.viewed import KERNEL, make_rl_run, repaired, rollout

CHROMIUM = os.environ.get("CUDA_RL_CHROMIUM") or shutil.which("chromium")
GENEROUS_MS = 90_000
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
VIEWS = ("diff", "code", "prompt", "compiler", "tests", "profile", "reward", "raw")
Start = Callable[[], str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Start]:
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
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of a new browser. Its parameter: texts of faults that the test brings about."""
    expected = getattr(request, "param", ())
    faults: list[str] = []
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(GENEROUS_MS)
        expect.set_options(timeout=GENEROUS_MS)
        context.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        context.on("weberror", lambda e: faults.append(str(e.error)))
        context.on("request", lambda r: None if is_own(r.url) else faults.append(r.url))
        context.on("requestfailed", lambda r: faults.append(f"{r.url}: {r.failure}"))
        yield context.new_page()
        browser.close()
    # A page that is left ends its stream and what it was still asking for.
    assert [f for f in faults if not any(e in f for e in ("ERR_ABORTED", *expected))] == []


def is_own(address: str) -> bool:
    parts = urlsplit(address)
    return parts.hostname == "127.0.0.1" or parts.scheme in ("about", "data")


def loaded(page: Page, address: str) -> None:
    """Opens the list of runs when the index is there."""
    deadline = time.monotonic() + GENEROUS_MS / 1000
    rows = page.request.get(f"{address}/api").json()["rows"]
    while any(row["reading"] or not row["totals"]["count"] for row in rows):
        assert time.monotonic() < deadline, rows
        page.wait_for_timeout(100)
        rows = page.request.get(f"{address}/api").json()["rows"]
    page.goto(address)


@pytest.mark.ci
def test_from_the_runs_to_a_diff_and_back_by_its_address(server: Start, page: Page) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    expect(page.locator("#charts canvas").first).to_be_visible()
    page.click("nav.tabs >> text=Conversations")
    page.locator("input[name=q]").fill("elements differ")
    expect(page.locator("#results tbody tr")).to_have_count(6)
    page.select_option("select[name=sort]", "speedup")
    page.wait_for_url("**sort=speedup*")
    expect(page.locator("#results tbody tr").first).to_contain_text("6.00×")
    page.locator("#results tbody tr a").first.click()
    page.click("[data-turn='2']")
    page.click(".views >> text=diff")
    expect(page.locator(".code mark").first).to_be_visible()
    address, text = page.url, page.inner_text("main")
    page.goto("about:blank")
    page.goto(address)
    assert page.inner_text("main") == text


def test_keys_alone_lead_to_a_verdict(server: Start, page: Page) -> None:
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


@pytest.mark.parametrize(
    "page", [("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED", "503")], indirect=True
)
def test_a_line_that_is_written_appears_without_a_reload_also_after_a_restart(
    server: Start, page: Page, tmp_path: Path
) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.untouched = true")
    rollouts = tmp_path / "runs/rl/attempts/000/rollouts"
    append_rollout(rollouts, rollout(repaired("new", task="a_new_task"), step=2))
    expect(page.locator("#newest")).to_contain_text("a_new_task")
    expect(page.locator("#summary .figure b").first).to_have_text("7")
    server()
    expect(page.locator("#live")).to_have_text("live")
    append_rollout(rollouts, rollout(repaired("later", task="a_later_task"), step=2))
    expect(page.locator("#newest")).to_contain_text("a_later_task")
    assert page.evaluate("window.untouched")


def test_ten_tabs_of_one_browser_follow_a_run(server: Start, page: Page, tmp_path: Path) -> None:
    loaded(page, server())
    address = page.url.rstrip("/") + str(page.locator("td.grow a").first.get_attribute("href"))
    tabs = [page.context.new_page() for _ in range(10)]
    for tab in tabs:  # a server has six connections of a browser: they must not be used up
        tab.goto(address)
    for tab in tabs:
        expect(tab.locator("#live")).to_have_text("live")
    rollouts = tmp_path / "runs/rl/attempts/000/rollouts"
    append_rollout(rollouts, rollout(repaired("new", task="a_new_task"), step=2))
    for tab in tabs:
        expect(tab.locator("#newest")).to_contain_text("a_new_task")
    tabs[0].close()  # the one that listened for all
    append_rollout(rollouts, rollout(repaired("later", task="a_later_task"), step=2))
    for tab in tabs[1:]:
        expect(tab.locator("#newest")).to_contain_text("a_later_task")


def test_a_burst_of_changes_is_shown_in_two_renders(server: Start, page: Page) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    expect(page.locator("#live")).to_have_text("live")
    for tab in ("newest", "conversations"):
        asked: list[str] = []
        note = lambda r, of=asked, to=tab: of.append(r.url) if f"/{to}" in r.url else None  # noqa: E731
        page.on("request", note)
        page.evaluate("""() => {
            const other = new BroadcastChannel(document.body.dataset.events);
            for (let i = 0; i < 40; i += 1)
                other.postMessage({ names: ["conversations"], id: "", state: "live" });
        }""")
        page.wait_for_timeout(2_500)
        page.remove_listener("request", note)
        assert len(asked) == 2, "at once, and for all that came in the next moment"
        if tab == "newest":
            page.click("nav.tabs >> text=Conversations")
            expect(page.locator("#live")).to_have_text("live")


@pytest.mark.ci
def test_a_link_that_is_shown_anew_while_it_is_pressed_is_followed_once(
    server: Start, page: Page
) -> None:
    loaded(page, server())
    page.locator("td.grow a").first.click()
    page.click("nav.tabs >> text=Conversations")
    link = page.locator("#results tbody tr a").first
    address = link.get_attribute("href")
    link.hover()
    page.mouse.down()
    page.evaluate("""() => new Promise((shown) => {
        document.body.addEventListener("htmx:afterSettle", shown, { once: true });
        htmx.trigger(document.body, "changed-conversations");
    })""")
    before = page.evaluate("history.length")
    page.mouse.up()
    page.wait_for_url(f"**{address}")
    assert page.evaluate("history.length") == before + 1


def test_the_cut_of_a_chart_is_in_the_address_and_a_tick_compares_runs(
    server: Start, page: Page, tmp_path: Path
) -> None:
    for name in ("rl", "other", "third"):
        folder = make_rl_run(tmp_path / "runs" / name, [repaired(f"of {name}")])
        steps = [StepRecord(step=s, solved_rate=s / 50, reward_mean=0.1) for s in range(1, 41)]
        write_steps(folder / "steps.jsonl", steps)
    loaded(page, server())
    page.locator("td.grow a").first.click()
    over = page.locator("#chart-rl-reward .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=*to=*axis=step*")
    low = float(page.input_value("[name=from]"))
    assert 8 < low < 13
    page.reload()
    expect(page.locator("#charts canvas").first).to_be_visible()
    assert float(page.input_value("[name=from]")) == low
    page.click("[data-do=whole]")
    page.wait_for_url(lambda url: "from=" not in url)
    page.goto(page.url.split("/run/")[0])
    for box_ in page.locator("input[name=runs]").all():
        box_.check()
    page.click("text=Compare the ticked runs")
    expect(page.locator("#charts canvas").first).to_be_visible()
    expect(page.locator("#charts .u-legend").first).to_contain_text("C ")


@pytest.fixture
def everything(tmp_path: Path) -> str:
    """More beside the RL run: a cheat, a machine's samples, a kernel, a rollout. Its id."""
    finding = Finding(rule="kept_state", severity="high", message="kept", line=2, basis="run")
    verdict = make_verdict(Status.WRONG_OUTPUT).model_copy(
        update={"status": Status.CHEATING, "cheats": (finding,)}
    )
    cheat = make_state(make_turn(0, verdict, KERNEL), name="cheat", task="cheated")
    run = tmp_path / "runs" / "rl"
    append_rollout(run / "attempts/000/rollouts", rollout(cheat, session=9))
    for t in range(20):
        append_system(run, SystemSample(t=1e9 + t, cpu=(50.0, 60.0), ram=10**9, ram_total=10**10))
    registry, key = registry_in(tmp_path / "runs")
    with registry:
        add_kernel(registry, key)
    steps = (RampStep(share=0.5),)
    database, clock = tmp_path / "runs/deployment/deployment.sqlite", Clock(time.time_ns() // 1000)
    deployed = Deployment(database, config(steps=steps), clock)
    deployed.units(250)
    deployed.request(candidate=False)  # a reader's time is that of the newest event
    deployed.act()
    deployed.store.close()
    return deployed.id


def pages_of(page: Page, rollout_id: str) -> list[str]:
    run = page.request.get(f"{page.url}api").json()["rows"][0]["run"]["id"]
    rows = page.request.get(f"{page.url}api/run/{run}/conversations").json()["page"]["rows"]
    cheat = next(row["key"] for row in rows if row["cheats"])
    good = next(row["key"] for row in rows if row["status"] == "correct")
    (registry,) = page.request.get(f"{page.url}api/kernels").json()["registries"]
    own = f"/run/{run}"
    return [
        "/", own, f"{own}/conversations", f"{own}/conversations/{cheat}", f"{own}/steps",
        *(f"{own}/conversations/{good}?turn=2&view={view}" for view in VIEWS),
        f"{own}/conversations/{good}?turn=2&view=diff&mode=side", f"{own}/steps/1",
        f"{own}/tasks", f"{own}/task?task=task_1", f"/system/{run}", "/compare", "/deploy",
        f"/deploy/experiments/{rollout_id}", "/kernels", registry["kernels"][0]["address"],
    ]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_no_page_is_wider_than_the_window(
    server: Start, page: Page, theme: str, everything: str
) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    loaded(page, server())
    base = page.url.rstrip("/")
    for path in pages_of(page, everything):
        for width in (768, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{base}{path}")
            if page.query_selector("#charts"):
                expect(page.locator("#charts canvas").first).to_be_visible()
            root = "document.documentElement"
            assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0, (path, width)
            found = Axe().run(page).response["violations"]
            serious = [
                (v["id"], node["html"][:200])
                for v in found
                if v["impact"] in ("serious", "critical")
                for node in v["nodes"]
            ]
            assert not serious, (path, width)
