"""The timeline of a traced run, of one rank and of two: what it lights, its arrows, its map; and the task graph."""

from __future__ import annotations

import gzip
import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from bench import ui_browser
from taskloom.analysis.messages import messages
from taskloom.analysis.trace import trace_of
from taskloom.analysis.work_span import span
from taskloom.server.read.dashboard import files
from tests.support.browser import saved
from tests.support.caller import Caller
from tests.support.processes import house
from tests.support.trace_example import FOUND, OF_RANKS

pytestmark = pytest.mark.ui

# Task 2 is short, so the critical path goes through task 1.
ALONE = {**FOUND, "tasks": {**FOUND["tasks"], "mean_s": [4e-6, 2e-6, 1e-6, 3e-6]}}
LINKS = """async ([below, found, place]) => {
  const { traceOf, linksOf } = await import(`${below}timeline/trace.js`);
  const trace = traceOf(found);
  const tasks = trace.label.length;
  const said = key => [trace.label[key % tasks], Math.floor(key / tasks) + trace.firstStep];
  return {
    messages: trace.stepEnd.flatMap((_, step) => trace.messages.map(each => each.map(task => {
      const key = step * tasks + task;
      return [trace.label[task], trace.rows[trace.last[key]], trace.ended[key]];
    }))),
    links: place ? linksOf(trace, place).map(([from, to, sent]) => [said(from), said(to), sent ?? false]) : [],
  };
}"""


@pytest.fixture(scope="module")
def url(tmp_path_factory, make_result):
    """A server with a run of one rank and one of two, both traced."""
    folder = tmp_path_factory.mktemp("traced")
    with (
        house(folder, f"sqlite:///{folder / 'traced.db'}", analysis_processes=0) as home,
        httpx.Client(base_url=home.url, timeout=60) as http,
    ):
        api = Caller(http)
        base = {"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 4, "warmup": 1}
        api.submit(base=base, repetitions=2, trace=True)
        node, traces = api.worker(), {1: ALONE, 2: OF_RANKS}
        measured = set()
        for _ in range(4):
            lease = node.claim()
            if lease["run_id"] in measured:
                content = gzip.compress(json.dumps(traces[lease["run_id"]]).encode())
                node.leave(lease, "trace.json.gz", content, "application/gzip")
            measured.add(lease["run_id"])
            node.upload(lease, make_result())
        yield home.url


@pytest.fixture
def below(url):
    return f"{url}/ui/{files.read().version}/"


def drawn(page, tmp_path):
    """The plot as SVG."""
    return saved(page, page.get_by_role("button", name="SVG").click, tmp_path)


def arrows(svg):
    """How many arrows each colour of them has: two moves draw one."""
    paths = re.findall(r'<path d="([^"]*)" fill="none" stroke="([^"]*)" stroke-width="1.5"', svg)
    return [path.count("M") // 2 for path, _ in paths]


def test_the_threads_of_all_ranks_and_their_messages(url, below, new_tab, tmp_path):
    tab = new_tab(url)
    page = tab.open("run?id=2&view=timeline")
    page.get_by_role("button", name="All 2 steps").click()
    expect(page.locator("canvas[data-painted='0-16300']")).to_have_count(1)
    expect(page.get_by_text("2 ranks: 16 spans. Grey arrows: messages between ranks.")).to_be_visible()
    svg = drawn(page, tmp_path)
    assert re.findall(r">(rank \d, thread \d)<", svg) == ["rank 0, thread 0", "rank 1, thread 0"]
    assert arrows(svg) == [4, 0, 0]
    page.locator("canvas").press("n")
    expect(page.locator(".chosen")).to_contain_text("fc[0] s0, backward: 3 µs on rank 0, thread 0")
    page.locator("canvas").press("t")
    expect(page.locator(".chosen")).to_contain_text("fc[0] s0, backward: 5 µs on rank 1, thread 0")
    assert tab.violations() == []
    trace = trace_of(OF_RANKS)
    shown = page.evaluate(LINKS, [below, OF_RANKS, None])["messages"]
    later = [each.begin_ns - trace.begin_ns for each in trace.ranks]
    assert sorted(shown) == sorted(
        [
            ["gradients_send fc b0", f"rank {m.sender}, thread {m.from_thread}", m.from_ns + later[m.sender]],
            [m.label, f"rank {m.receiver}, thread {m.to_thread}", m.to_ns + later[m.receiver]],
        ]
        for m in messages(trace)
    )


def test_the_dependencies_of_the_chosen_span_are_arrows(url, below, new_tab, tmp_path):
    page = new_tab(url).open("run?id=1&view=timeline")
    page.locator("canvas[data-painted]").wait_for()
    assert arrows(drawn(page, tmp_path)) == [0, 0, 0]
    for _ in range(6):
        page.locator("canvas").press("n")  # attention[0] s1, in the second step
    expect(page.locator(".chosen")).to_contain_text("attention[0] s1")
    expect(page.locator(".chosen")).to_contain_text("It depends on qkv[0] s0, which ended on the same thread")
    assert arrows(drawn(page, tmp_path)) == [0, 0, 2]
    links = page.evaluate(LINKS, [below, ALONE, {"thread": 0, "index": 5}])["links"]
    assert links == [[["qkv[0] s0", 3], ["attention[0] s1", 3], False],
                     [["attention[0] s1", 3], ["cross_entropy+logits_dinp", 3], False]]  # fmt: skip
    sent = page.evaluate(LINKS, [below, OF_RANKS, {"thread": 0, "index": 2}])["links"]
    assert [each for each in sent if each[2]] == [[["gradients_send fc b0", 1], ["gradients_arrived fc b0", 1], True]]


def test_the_critical_path_on_the_timeline_and_on_the_graph(url, new_tab, tmp_path):
    cost = [0.0 if task < 0 else ALONE["tasks"]["mean_s"][task] for task in ALONE["nodes"]]
    assert span(cost, ALONE["edges"]) == pytest.approx(9e-6)
    tab = new_tab(url)
    page = tab.open("run?id=1&view=timeline")
    page.locator("canvas[data-painted]").wait_for()
    assert 'opacity="0.2"' not in drawn(page, tmp_path)
    page.get_by_role("button", name="Critical path").click()
    expect(page).to_have_url(re.compile("path=true"))
    said = page.get_by_role("status").filter(has_text="critical path")
    expect(said).to_contain_text("3 tasks of a step shown. The critical path takes 9.00 µs by its tasks’ mean times")
    expect(said).to_contain_text("a mean step 10.5 µs")
    svg = drawn(page, tmp_path)
    assert 'opacity="0.2"' in svg
    assert arrows(svg) == [0, 4, 0]
    assert tab.violations() == []
    page = tab.open("run?id=1&view=graph&path=true&open=0,1")
    svg = drawn(page, tmp_path)
    nodes, (faint, path, needed, needing) = svg.count("a6 6"), re.findall('<path d="([^"]*)" fill="none"', svg)
    assert (faint.count("M"), path.count("M"), needed, needing) == (len(ALONE["edges"]), 2, "", "")
    assert nodes == 2 * 3  # two arcs make a circle
    assert tab.violations() == []


def test_tasks_are_found_by_their_names(url, new_tab, tmp_path):
    page = new_tab(url).open("run?id=1&view=timeline")
    page.locator("canvas[data-painted]").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("Attention[0] s1")
    expect(page).to_have_url(re.compile("find=Attention"))
    expect(page.get_by_text("1 task of a step shown.")).to_be_visible()
    faded = re.findall('<text[^>]* opacity="0.2"[^>]*>([^<]*)', drawn(page, tmp_path))
    assert "qkv" in faded
    page.locator("canvas").press("n")
    expect(page.locator(".chosen")).to_contain_text("attention[0] s1, forward: 2 µs")
    page.reload()
    expect(page.get_by_label("Find tasks")).to_have_value("Attention[0] s1")
    expect(page.get_by_text("1 task of a step shown.")).to_be_visible()


def test_the_small_map_leads_to_a_time(url, new_tab):
    page = new_tab(url).open("run?id=1&view=timeline&t=0.000000-0.002000")
    canvas = page.locator("canvas[data-painted='0-2000']")
    box = canvas.bounding_box()
    canvas.click(position={"x": 100 + (box["width"] - 108) * 0.5, "y": box["height"] - 8})
    page.locator("canvas:not([data-painted='0-2000'])").wait_for()
    since, until = map(int, page.locator("canvas").get_attribute("data-painted").split("-"))
    assert until - since == 2000
    assert (since + until) / 2 == pytest.approx(21_000 / 2, abs=21_000 / (box["width"] - 108) * 2)


def test_layers_of_the_graph_are_folded_until_they_are_opened(url, new_tab, tmp_path):
    tab = new_tab(url)
    page = tab.open("run?id=1&view=graph")
    canvas = page.locator("canvas[data-painted]")
    canvas.press("n")
    said = page.get_by_role("status").filter(has_text="needs")
    expect(said).to_have_text("forward 0 (3 tasks) needs nothing; needed by loss (1 task).")
    svg = drawn(page, tmp_path)
    assert re.findall("<text[^>]*>([^<]*)", svg) == ["forward 0", "loss"]
    canvas.press("Enter")
    expect(page).to_have_url(re.compile("open=0"))
    canvas.press("n")
    expect(said).to_have_text("qkv[0] s0 needs a wait of all threads; needed by attention[0] s0, attention[0] s1.")
    page.reload()
    assert re.findall("<text[^>]*>([^<]*)", drawn(page, tmp_path)) == ["loss"]
    page.get_by_role("button", name="Fold all").click()
    expect(page).not_to_have_url(re.compile("open="))
    assert tab.violations() == []


def test_the_rows_of_the_timeline_grow_and_shrink_with_the_window(url, new_tab):
    """Two rows and the curve share 0.6 of the window's height, besides 78 pixels, and are at most 96 pixels each."""
    page = new_tab(url, viewport={"width": 1400, "height": 400}).open("run?id=2&view=timeline&t=0.000000-0.002000")
    canvas = page.locator("canvas[data-painted='0-2000']")
    for width, window, height in ((1400, 400, 240), (1400, 520, 312), (390, 844, 78 + 3 * 96), (1400, 300, 180)):
        page.set_viewport_size({"width": width, "height": window})
        expect(canvas).to_have_css("height", f"{height}px")
        across = 0.7 * canvas.bounding_box()["width"]
        canvas.click(position={"x": across, "y": 20 + 1.5 * (height - 78) / 3})  # the middle of the second row
        expect(page.locator(".chosen")).to_contain_text("on rank 1, thread 0")
        canvas.press("Escape")


def test_a_file_for_perfetto_is_saved_and_nothing_is_sent_there(url, new_tab, tmp_path):
    page = new_tab(url).open("run?id=1&view=timeline")
    expect(page.get_by_text("ui.perfetto.dev")).to_be_visible()
    text = saved(page, page.get_by_role("button", name="Save for Perfetto").click, tmp_path)
    assert (tmp_path / "run-1.json").read_text() == text
    names = {event["name"] for event in json.loads(text)["traceEvents"] if event["ph"] == "X"}
    assert any(name.startswith("qkv") for name in names)


def test_the_trace_that_bench_ui_times_is_read(url, new_tab):
    """What the timeline needs of a trace is in it."""
    body = ui_browser.trace_of(400)
    tab = new_tab(url)
    answer = {"body": body, "content_type": "application/gzip"}
    tab.page.route("**/artifacts/trace.json.gz", lambda route: route.fulfill(**answer))
    page = tab.open("run?id=1&view=timeline")
    expect(page.locator("canvas[data-painted]")).to_have_count(1)
