"""Kernels, names and reasons that attack the viewer are shown as text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from coding_framework.monitoring.text import visible
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict
from support.viewed import Viewed, make_rl_run, repaired

pytestmark = pytest.mark.integration
_PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>", "</template><script>alert(1)</script>", "<!--<script>", "]]><script>",
    "'\"><b onmouseover=alert(1)>", "javascript:alert(1)", "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>1</script>'>", "<style>*{display:none}</style>", "<base href=//evil>",
    "<meta http-equiv=refresh content=0>", "<form action=//evil><input>", "<math><mtext></mtext>",
    "<link rel=stylesheet href=//evil>", "<object data=//evil>", "<details open ontoggle=alert(1)>",
    "{{ 7 * 7 }}", "{% for x in ().__class__.__mro__ %}{% endfor %}", "${alert(1)}",
    "<div hx-get=/x hx-trigger=load>", "<div hx-on:load=alert(1)>", "<x data-do=theme>",
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202etxt.exe\u202c", "\u2066a\u2069", "a\x00b",
    "\u2028alert(1)\u2029", "\ufeffx", "\x08\x08\x08", "\r\nSet-Cookie: a=b", "\x85", "\u200bx",
    "&lt;script&gt;", "&#60;script&#62;", "%3Cscript%3E", "\\u003cscript\\u003e",
    "<scr<script>ipt>",
    "<ScRiPt>alert(1)</sCrIpT>", "<img/src=x/onerror=alert(1)>", "<p style=position:fixed>",
    "<textarea><script>alert(1)</script>", "</pre></table><script>alert(1)</script>", "</mark></i>",
    "<noscript><p title=</noscript><img src=x onerror=alert(1)>", "`-alert(1)-`", "');alert(1);//",
    "<video><source onerror=alert(1)>", "<marquee onstart=alert(1)>", "<button formaction=//evil>",
    "<isindex action=//evil>", "<xmp><script>", "<plaintext>", "<?xml version='1.0'?>",
    "<![CDATA[x",
    "../../../etc/passwd", "A" * 5_000,
)  # fmt: skip


class _Tags(HTMLParser):
    """Counts of what could act in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.acting: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script":
            self.scripts.append(given.get("src"))
        if tag in ("iframe", "object", "base", "style", "img", "video", "math", "template"):
            self.acting.append(tag)
        self.acting += [n for n in given if n.startswith("on") or n == "style"]
        self.acting += [str(v) for v in given.values() if str(v).startswith("javascript:")]


def test_there_are_sixty_of_them() -> None:
    assert len(set(_PAYLOADS)) == 60


def test_hostile_kernels_are_shown_as_text(tmp_path: Path) -> None:
    states = []
    for i, payload in enumerate(_PAYLOADS):
        verdict = make_verdict(Status.WRONG_OUTPUT, reason=f"got {payload}")
        turns = (make_turn(0, verdict, f"// {payload}\nint x;"), make_turn(1, verdict, payload))
        states.append(make_state(*turns, task=payload[:80], name=f"{i}/%2e%2e/'\"\n{payload[:20]}"))
    viewed = Viewed(make_rl_run(tmp_path / "rl", states), index=tmp_path / "index")
    run = viewed.run()
    rows = [*viewed.rows("?sort=oldest")]
    assert len(rows) == 50
    rows += viewed.rows(f"?sort=oldest&after={rows[-1]['id']}~{rows[-1]['id']}")
    assert len(rows) == 60
    _harmless(viewed.page(f"/run/{run}/conversations"))
    _harmless(viewed.page(f"/run/{run}/tasks"))
    for payload, row in zip(_PAYLOADS, rows, strict=True):
        for view in ("code", "diff"):
            page = viewed.page(f"/run/{run}/conversations/{row['key']}?turn=2&view={view}")
            _harmless(page)
        code = viewed.page(f"/run/{run}/conversations/{row['key']}?turn=2&view=code")
        shown = "".join(_Text.of(code).split())
        assert "".join(visible(payload).split()) in shown, payload


def test_a_line_of_five_megabytes_is_cut_and_can_be_downloaded(tmp_path: Path) -> None:
    code = "x" * 5_000_000
    state = make_state(make_turn(0, make_verdict(Status.WRONG_OUTPUT), code))
    viewed = Viewed(make_rl_run(tmp_path / "rl", [state]), index=tmp_path / "index")
    key = viewed.rows()[0]["key"]
    own = f"/run/{viewed.run()}/conversations/{key}"
    page = viewed.page(f"{own}?view=code")
    assert len(page) < 400_000
    assert "Cut at 200,000 characters" in page
    assert len(viewed.page(f"{own}/code?turn=1")) == len(code)


def test_lone_surrogates_are_shown_by_name(tmp_path: Path) -> None:
    run = make_rl_run(tmp_path / "rl", [repaired()])
    file = next(run.glob("attempts/*/rollouts/*.jsonl"))
    line = json.loads(file.read_text())
    line["state"]["turns"][1]["extraction"]["code"] = "// \ud800"
    line["state"]["task"]["name"] = "t\ud800"
    file.write_text(json.dumps(line) + "\n")
    viewed = Viewed(run, index=tmp_path / "index")
    key = viewed.rows()[0]["key"]
    assert "U+D800" in viewed.page(f"/run/{viewed.run()}/conversations/{key}?turn=2&view=code")
    viewed.page(f"/run/{viewed.run()}/conversations/{key}/code?turn=2")


def _harmless(page: str) -> None:
    tags = _Tags()
    tags.feed(page)
    assert all(source and source.startswith("/static/") for source in tags.scripts), tags.scripts
    assert tags.acting == []
    assert not any(0xD800 <= ord(c) < 0xE000 or c in "\x00\x1b\u202e" for c in page)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)

    @classmethod
    def of(cls, page: str) -> str:
        text = cls()
        text.feed(page)
        return "".join(text.found)
