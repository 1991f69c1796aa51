"""Answers as objects, and what notebooks show of them."""

import html.parser
import json
import re

import pytest

import floodmark
from floodmark import _html, answers
from floodmark import reading

HOSTILE = "<script>alert(1)</script>&'\""


@pytest.fixture
def trace(tmp_path):
    with floodmark.record(tmp_path / "run.flood"):
        with floodmark.scope(HOSTILE):
            kept = floodmark.DeviceBuffer(size=3_000_000)
        floodmark.DeviceBuffer(size=1000)
    yield floodmark.open(tmp_path / "run.flood")
    del kept


class Checker(html.parser.HTMLParser):
    """Refuses HTML whose elements do not nest, or that runs or loads anything."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "iframe", "img", "object")
        for name, value in attributes:
            assert not name.startswith("on") and "://" not in (value or "").replace("http://www.w3.org/2000/svg", "")
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_figures_are_attributes(trace):
    stats = trace.stats()
    assert (stats.allocations, stats.frees, stats.total_bytes) == (2, 1, 3_001_000)
    assert (stats.peak_bytes, stats.live_bytes, stats.live_blocks) == (3_001_000, 3_000_000, 1)
    assert [row.count for row in stats.histogram] == [1, 1]
    assert repr(stats) == "<floodmark stats: 2 allocations of 2.86 MiB, peak 2.86 MiB, live 2.86 MiB>"
    watermark = trace.watermark(by=["site", "scope"])
    assert watermark.peak_bytes == 3_001_000 and watermark.peak_blocks == 2
    assert watermark.blocks[0].bytes == 3_000_000 and "test_answers.py" in watermark.blocks[0].site
    assert HOSTILE in {group.key for group in watermark.groups["scope"]}
    assert repr(watermark).startswith("<floodmark watermark: peak 2.86 MiB in 2 blocks after ")
    leaks = trace.leaks()
    assert leaks and leaks.leaked_bytes == 3_000_000 and leaks.blocks[0].age_ns > 0
    assert leaks.groups[0].bytes == 3_000_000
    timeline = trace.timeline()
    assert [point.live_bytes for point in timeline.points] == [3_000_000, 3_001_000, 3_000_000]
    assert timeline.peak_bytes == 3_001_000 and len(timeline) == 3
    summary = trace.summary()
    assert summary.format == "trace" and summary.events == 3 and not summary.live
    assert summary.peak_rss_bytes is None
    for answer in (stats, watermark, leaks, timeline, summary):
        assert answer.to_dict()["schema"] == type(answer)._schema
        assert json.loads(json.dumps(answer.to_dict())) == answer.to_dict()
        assert len(repr(answer)) < 120 and answer.source == trace.path


def test_options_are_those_of_the_command(trace):
    assert trace.stats(kind=["pinned", "managed"]).allocations == 0
    assert trace.watermark(at="+0s", limit=1).reported_bytes <= 3_001_000
    assert trace.watermark(by="size").groups.keys() == {"size"}
    with pytest.raises(floodmark.TraceError, match="--kind"):
        trace.stats(kind="no such kind")
    assert reading._options({"warm_up": 2, "from_": "+1s", "exact": True, "limit": None, "dark": False}) == [
        "--warm-up=2",
        "--from=+1s",
        "--exact",
    ]


def test_notebooks_show_tables_and_a_timeline(trace):
    shown = trace.watermark(by="scope")._repr_html_()
    checked = Checker(shown)
    assert HOSTILE in checked.text and "Peak 2.86 MiB (3,001,000 bytes)" in checked.text
    assert "<svg" in shown and "<table>" in shown
    for answer in (trace, trace.stats(), trace.leaks(), trace.timeline(), trace.summary(), trace.watermark().blocks):
        Checker(answer._repr_html_())


def test_a_timeline_is_drawn_in_steps_and_in_bounds():
    svg = _html.timeline_svg([(0, 0), (10, 100), (20, 50)], 0, "<bytes>")
    Checker(svg)
    numbers = [float(number) for number in re.findall(r"[MHV,]([0-9.]+)", svg)]
    assert max(numbers) <= 640 and min(numbers) >= 0
    assert svg.count("H320.0V18.0") == 2, "half of the time, at the top"
    assert _html.timeline_svg([], 0, "bytes") == ""
    Checker(_html.timeline_svg([(5, 0)], 0, "bytes"))


def test_an_answer_in_another_form_is_refused():
    with pytest.raises(floodmark.TraceError, match="floodmark.stats/9.*same version"):
        answers.Stats({"schema": "floodmark.stats/9"})


def test_pictures_are_shown_or_written(trace, tmp_path):
    for draw in (trace.plot, trace.flame):
        picture = draw(title="A & B")
        assert "<svg" in picture._repr_svg_() and "A &amp; B" in picture.svg and len(repr(picture)) < 300
        path = draw(tmp_path / f"{draw.__name__}.svg")
        assert "<svg" in open(path).read(1000)
        with pytest.raises(floodmark.TraceError, match="exists already"):
            draw(path)
        assert draw(path, force=True) == path
    assert "<html" in open(trace.report(tmp_path / "report.html")).read(1000).lower()


def test_importing_the_package_does_not_import_what_reads_traces(run):
    run(
        """
        import sys, floodmark
        assert not {"floodmark.reading", "floodmark.answers", "floodmark.tables", "floodmark.magics", "IPython"} & set(sys.modules)
        assert floodmark.open and "floodmark.reading" in sys.modules
        try:
            floodmark.nothing
        except AttributeError as error:
            assert "nothing" in str(error)
        """
    )
