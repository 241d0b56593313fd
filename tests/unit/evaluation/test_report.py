"""The report shows hostile text without running or fetching anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_framework.errors import InfrastructureError
from coding_framework.evaluation.charts import (
    IntervalBar,
    Series,
    interval_chart,
    line_chart,
    ticks,
)
from coding_framework.evaluation.eval_summary import summarize_samples
from coding_framework.evaluation.report import ReportData, render, write_report
from coding_framework.evaluation.samples import sample_record
from coding_framework.types import Status
from support.made_conversations import make_state, make_turn, make_verdict

pytestmark = pytest.mark.unit

HOSTILE = (
    '</span></pre><script>alert("x")</script><img src=x onerror=alert(1)> & \x00\x1b[31m \u202e'
)


class Page(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


STATE = make_state(make_turn(0, make_verdict(Status.CORRECT, 2.5), "int b;"))


def hostile_report(text: str = HOSTILE) -> ReportData:
    return ReportData(
        title="Quickstart",
        lead="What a run shows.",
        facts=(("model", text),),
        stages={text: summarize_samples([sample_record(STATE)], [1], [1.0])},
        curves=(
            (
                "Reward",
                line_chart(
                    [Series(name=text, points=((0, 1.0), (1, 2.0), (2, 1.0)))],
                    x_label="step",
                    y_label="reward",
                ),
            ),
        ),
    )


def test_hostile_text_is_shown_and_never_markup():
    html = render(hostile_report())
    page = Page(html)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert '<script>alert("x")</script>' in page.text
    assert "<U+0000>" in page.text
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_the_page_fetches_nothing():
    html = render(hostile_report())
    page = Page(html)
    assert not [n for n, _ in page.attributes if n in ("src", "href", "data", "action", "srcset")]
    assert "url(" not in html
    assert "@import" not in html
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


PLAIN_TAGS = set(Page(render(hostile_report("plain"))).tags)


@settings(max_examples=25)
@given(st.text(max_size=200))
def test_no_text_opens_a_tag(text):
    assert set(Page(render(hostile_report(text))).tags) == PLAIN_TAGS


def test_a_report_without_stages_is_still_a_page():
    html = render(ReportData(title="Empty", lead=""))
    assert "<h1>Empty</h1>" in html


def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path):
    target = tmp_path / "file" / "report.html"
    target.parent.write_text("a file where a folder should be")
    with pytest.raises(InfrastructureError, match="cannot be written"):
        write_report(hostile_report(), target)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_cover_the_range(low, width):
    high = low + width
    if not high > low:
        return
    values = ticks(low, high)
    assert 2 <= len(values) <= 12
    assert values[0] <= low + 1e-6 * width + 1e-9
    assert values[-1] >= high - 1e-6 * width - 1e-9


def test_a_chart_leaves_out_what_is_no_number():
    series = Series(name="r", points=((0, 1.0), (1, float("nan")), (2, 2.0)))
    svg = line_chart([series], x_label="step", y_label="reward")
    assert len(re.findall("<circle", svg)) == 2
    assert "nan" not in svg
    assert line_chart([Series(name="r", points=())], x_label="s", y_label="r") == ""


def test_a_chart_of_one_point_is_drawn():
    assert "<circle" in line_chart([Series(name="r", points=((1, 1.0),))], x_label="s", y_label="r")


def test_chart_texts_are_escaped():
    bar = IntervalBar(name="<b>", rate=0.5, low=0.4, high=0.6, text='"&<')
    svg = interval_chart([bar], title="<t>")
    assert "<b>" not in svg
    assert "&lt;b&gt;" in svg


def test_a_share_has_an_axis_from_0_to_1():
    points = ((1.0, 0.40), (2.0, 0.42))
    chart = line_chart(
        [Series(name="correct", points=points)], x_label="x", y_label="y", share=True
    )
    assert ">0<" in chart
    assert ">1<" in chart


def test_what_to_do_next_stands_below_the_headline():
    html = render(
        ReportData(
            title="Quickstart",
            headline="The model has learnt",
            lead="",
            next_steps=(("train longer", "make <b>"),),
        )
    )
    assert "<h1>The model has learnt</h1>" in html
    assert "make &lt;b&gt;" in html


def test_an_axis_of_steps_has_whole_numbers_and_the_names_of_lines_stand_above_them():
    points = tuple((float(i), i / 4) for i in range(1, 5))
    lines = [Series(name=name, points=points) for name in ("correct", "compile")]
    chart = line_chart(lines, x_label="optimizer step", y_label="share", share=True)
    said = re.findall(r'text-anchor="middle">([\d.]+)<', chart)
    assert said == ["1", "2", "3", "4"]
    names = [float(y) for y in re.findall(r'y="([\d.]+)">(?:correct|compile)<', chart)]
    assert max(names) < 22
    assert "translate(0 22)" in chart
