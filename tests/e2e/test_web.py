"""The web pages in a real browser, on a real service, with simulated hosts."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.process import serve

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
STATIC = Path(__file__).resolve().parents[2] / "collector" / "podscope_collector" / "static"
HOSTS = 3
SLOW = 1
QUIET = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
    "--no-sandbox",
)


@dataclass
class Watched:
    """A page and everything on it that should not have happened."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("request", lambda request: self.check_origin(request.url))
        self.page.on(
            "console",
            # A breach of the content security policy is an error on the console too.
            lambda said: self.faults.append(said.text) if said.type in {"error"} else None,
        )

    def check_origin(self, url: str) -> None:
        if not url.startswith((self.origin + "/", "blob:" + self.origin)):
            self.faults.append(f"request to {url}")

    def open(self, path: str) -> Page:
        self.page.goto(self.origin + path)
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = (
        os.environ.get("PODSCOPE_CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    )
    if found is None:
        pytest.skip("no Chromium here; set PODSCOPE_CHROMIUM to its path")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with everything embedded."""
    if not (STATIC / "index.html").is_file():
        pytest.skip("the web pages are not built; run make web")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = tmp_path_factory.mktemp("data")
    command = [sys.executable, "-m", "podscope", "up", "--port", str(port), "--data-dir", str(data)]
    log_path = data.parent / "web-up.log"
    with log_path.open("wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + 300
        while True:
            assert service.poll() is None, log_path.read_text()[-2000:]
            assert time.monotonic() < deadline, log_path.read_text()[-2000:]
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        service.terminate()
        try:
            service.wait(120)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


@pytest.fixture
def watched(browser: Browser, origin: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    context.set_default_timeout(180_000)
    watched = Watched(context.new_page(), origin)
    yield watched
    context.close()
    assert watched.faults == []


@pytest.fixture(scope="module")
def captured(browser: Browser, origin: str) -> str:
    """The id of a capture of a simulated pod, taken through the dialog."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000})
    watched = Watched(context.new_page(), origin)
    pod = Pod(device="tpu-v5e", hosts=HOSTS, steps=6, slow_host=SLOW)
    with serve(pod) as serving:
        page = watched.open("/captures")
        page.get_by_test_id("new-capture").click()
        page.get_by_label("Run", exact=True).fill("web-test")
        page.get_by_label("Targets").fill(", ".join(serving.addresses))
        page.locator("input[name=durationMs]").fill("300")
        page.get_by_role("radio", name="all hosts").click()
        page.get_by_test_id("start-capture").click()
        # The same window shows the progress, then where to go on.
        page.locator(f"tr[data-host-state=done] >> nth={HOSTS - 1}").wait_for(timeout=300_000)
        assert page.get_by_test_id("stored-count").inner_text() == f"{HOSTS} of {HOSTS} stored"
        page.get_by_role("link", name="Open the overview").wait_for(timeout=300_000)
        page.get_by_test_id("open-capture").click()
    page.wait_for_url(re.compile(r"/captures/[0-9a-f-]{36}/overview_page$"))
    capture = page.url.split("/")[-2]
    context.close()
    assert watched.faults == []
    return capture


def result(origin: str, capture: str, tool: str) -> dict[str, Any]:
    answer = httpx.get(f"{origin}/api/v1/captures/{capture}/tools/{tool}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["result"]
    return found


def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    ids = [column["id"] for column in table["columns"]]
    return [dict(zip(ids, row, strict=True)) for row in table["rows"]]


def test_the_list_shows_what_the_service_has_stored(watched: Watched, captured: str) -> None:
    told = httpx.get(f"{watched.origin}/api/v1/captures/{captured}").json()
    page = watched.open("/captures")
    row = page.locator("tr.row", has_text="web-test")
    row.get_by_text("Ready").wait_for()
    assert f"{HOSTS} of {HOSTS}" in row.inner_text()
    shown = float(row.locator("td.num.strong").inner_text())
    assert shown == pytest.approx(told["summary"]["step_time_ms"], rel=1e-2)
    row.get_by_role("link").click()
    page.get_by_label("Verdict").wait_for()


def test_the_overview_shows_the_step_time_that_the_api_gives(
    watched: Watched, captured: str
) -> None:
    told = result(watched.origin, captured, "overview_page")
    page = watched.open(f"/captures/{captured}")
    page.get_by_label("Verdict").wait_for()
    shown = float(page.get_by_test_id("step-mean").inner_text())
    assert shown == pytest.approx(told["step_time_ms"]["average"], rel=1e-2)
    compute = [row["device_compute_us"] / 1e3 for row in rows(told["steps"]) if row["is_complete"]]
    cell = page.locator(".legend td[data-category=compute]").inner_text()
    assert float(cell) == pytest.approx(sum(compute) / len(compute), rel=1e-2)
    ops = [row["operation"] for row in rows(told["top_ops"])]
    assert page.locator("td.op-name").all_inner_texts() == ops
    assert told["straggler"]["host"] in page.get_by_label("Verdict").inner_text()


def test_the_op_table_filters_sorts_and_leaves_idle_out(watched: Watched, captured: str) -> None:
    told = result(watched.origin, captured, "framework_op_stats")
    with_idle, without = rows(told["with_idle"]), rows(told["without_idle"])
    page = watched.open(f"/captures/{captured}/framework_op_stats")
    table = page.get_by_role("region", name="Operations")
    names = table.locator("tbody td:first-child")
    names.first.wait_for()
    slowest = sorted(without, key=lambda row: -row["total_self_time_us"])
    assert names.first.inner_text() == slowest[0]["operation"]
    assert f"{len(without)} of {len(without)}" in page.locator("main").inner_text()
    page.get_by_role("switch", name="Idle").click()
    page.get_by_text(f"{len(with_idle)} of {len(with_idle)}").wait_for()
    assert "idle=1" in page.url
    page.get_by_label("Find an op or a type").fill("dot_general")
    hits = [row for row in with_idle if "dot_general" in f"{row['operation']} {row['type']}"]
    page.get_by_text(f"{len(hits)} of {len(with_idle)}").wait_for()
    table.get_by_role("button", name=re.compile("^Occurrences")).click()
    assert "sort=-occurrences" in page.url
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].split(",") == [column["id"] for column in told["with_idle"]["columns"]]
    assert len(lines) == len(hits) + 1


def test_the_op_profile_opens_sorts_and_tells_all_of_an_op(watched: Watched, captured: str) -> None:
    nodes = rows(result(watched.origin, captured, "op_profile")["nodes"])
    ops = [node for node in nodes if node["kind"] == "op"]
    worst = max(ops, key=lambda node: node["wasted_ratio"] or 0)
    page = watched.open(f"/captures/{captured}/op_profile")
    card = page.get_by_test_id("op-card")
    card.wait_for()
    # What wastes most is pinned until the reader pins something else.
    assert card.get_by_role("heading", level=2).first.inner_text() == worst["name"]
    assert worst["framework_name"] in card.inner_text()
    names = page.locator("table.op-tree tbody tr td:first-child")
    assert names.first.inner_text().startswith(nodes[1]["name"])
    page.get_by_label("Op, framework name or source").fill("up_proj")
    hits = [node for node in ops if "up_proj" in (node["framework_name"] or "")]
    page.locator("table.op-tree tbody tr", has_text=hits[-1]["name"]).first.click()
    assert f"pin={quote_plus(hits[-1]['node'], safe='/')}" in page.url
    assert hits[-1]["framework_name"] in card.inner_text()
    page.goto(f"{watched.origin}/captures/{captured}/op_profile?n=10")
    page.get_by_role("button", name=re.compile("more$")).first.click()
    fusions = [node for node in ops if node["category"] == "convolution fusion"]
    page.locator("table.op-tree tbody tr", has_text=fusions[-1]["name"]).first.wait_for()
    page.get_by_role("radio", name="Category").click()
    page.get_by_role("switch", name="Hide idle").click()
    page.locator("table.op-tree tbody tr", has_text="IDLE").wait_for()
    assert "group=category" in page.url


def test_the_roofline_shows_operations_and_steps(watched: Watched, captured: str) -> None:
    told = rows(result(watched.origin, captured, "roofline_model")["records"])
    page = watched.open(f"/captures/{captured}/roofline_model")
    chart = page.locator(".roofline-chart svg")
    chart.locator("circle.point").first.wait_for()
    ops = [
        row
        for row in told
        if row["category"] != "Program"
        and row["include_infeed_outfeed"]
        and row["bottleneck_intensity_flops_per_byte"] > 0
        and row["measured_flops_per_second"] > 0
    ]
    assert chart.locator("circle.point").count() == len(ops)
    page.get_by_role("radio", name="Program and steps").click()
    steps = [row for row in told if row["category"] == "Program" and row["include_infeed_outfeed"]]
    table = page.get_by_role("region", name="Records")
    table.locator("tbody tr").nth(len(steps) - 1).wait_for()
    assert chart.locator("circle.point").count() == len(steps)


def test_the_pod_viewer_names_the_slow_host_and_walks_the_steps(
    watched: Watched, captured: str
) -> None:
    told = result(watched.origin, captured, "pod_viewer")
    late = told["straggler"]["host"]
    assert late is not None
    steps = rows(told["steps"])
    numbers = list(dict.fromkeys(row["step"] for row in steps))
    page = watched.open(f"/captures/{captured}/pod_viewer")
    verdict = page.get_by_label("Verdict")
    verdict.wait_for()
    assert f"{late} holds the others back." in verdict.inner_text()
    # The answer stands first, the advice below it.
    top = page.get_by_test_id("content").locator(":scope > *").first
    assert top.get_attribute("aria-label") == "Verdict"
    page.locator("li[data-advice=straggler]").wait_for()
    page.get_by_role("button", name="Next step").click()
    assert page.get_by_test_id("step-label").inner_text() == f"Step {numbers[1]}"
    assert f"step={numbers[1]}" in page.url
    page.keyboard.press("ArrowRight")
    assert page.get_by_test_id("step-label").inner_text() == f"Step {numbers[2]}"
    # The card is of the slowest core of the late host.
    here = [row for row in steps if row["step"] == numbers[2] and row["host"] == late]
    slowest = max(here, key=lambda row: row["own_work_us"])
    shown = page.get_by_test_id("host-card").locator("td[data-category=compute]").inner_text()
    assert float(shown) == pytest.approx(slowest["device_compute_us"] / 1e3, rel=1e-2)
    page.get_by_role("button", name=re.compile("Show as table: step")).click()
    table = page.locator(".table-scroll.short table").first
    assert table.locator("tbody tr").count() == HOSTS


def test_the_pod_viewer_shows_devices_by_chip_and_who_arrives_late(
    watched: Watched, captured: str
) -> None:
    told = result(watched.origin, captured, "pod_viewer")
    hosts = rows(told["hosts"])
    page = watched.open(f"/captures/{captured}/pod_viewer?colour=input")
    grid = page.get_by_test_id("devices")
    grid.wait_for()
    count = sum(not core["is_sparse_core"] for core in rows(told["cores"]))
    said = grid.locator("svg").get_attribute("aria-label") or ""
    assert said.startswith(f"{count} devices of {HOSTS} hosts at step ")
    assert "input, share of the step" in said
    page.get_by_role("button", name="Show as table: devices").click()
    table = page.locator(".table-scroll.short table")
    assert table.locator("tbody tr").count() == HOSTS
    arrivals = page.get_by_role("region", name="Arrival at the collectives")
    first = arrivals.locator("tbody tr").first
    latest = max(hosts, key=lambda row: row["arrival_lateness_us"])
    assert first.locator("td").first.inner_text() == latest["host"]
    assert f"{latest['last_arrivals']} of {latest['collective_count']}" in first.inner_text()
    first.click()
    page.wait_for_url(re.compile(f"host={re.escape(quote_plus(latest['host']))}"))


def test_a_request_that_is_wrong_is_refused_in_the_dialog(watched: Watched, captured: str) -> None:
    page = watched.open("/captures?new=1")
    page.get_by_label("Targets").fill("w-0")
    page.locator("input[name=durationMs]").fill("0")
    page.get_by_test_id("start-capture").click()
    page.get_by_text("the port is missing, as in host:9999.").wait_for()
    page.get_by_text("From 1 to 3600000 ms.").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_url(f"{watched.origin}/captures")
    assert len(httpx.get(f"{watched.origin}/api/v1/captures").json()["items"]) == 1


def test_tracer_options_are_typed_in_and_a_wrong_one_is_answered_with_the_nearest(
    watched: Watched, captured: str
) -> None:
    with serve(Pod(device="tpu-v5e", hosts=1, steps=2)) as serving:
        page = watched.open("/captures?new=1")
        page.get_by_label("Run", exact=True).fill("options")
        page.get_by_label("Targets").fill(serving.addresses[0])
        page.locator("input[name=durationMs]").fill("100")
        page.locator("summary", has_text="Advanced").click()
        page.get_by_label("Tracer options").fill("tpu_trace_mod=TRACE_COMPUTE")
        page.get_by_role("radio", name="again, longer").click()
        page.get_by_test_id("start-capture").click()
        told = page.get_by_text("did you mean 'tpu_trace_mode'?")
        told.wait_for()
        # The form is longer than the window, and was scrolled to its end.
        expect(told).to_be_in_viewport()
        page.get_by_label("Tracer options").fill(
            "tpu_trace_mode=TRACE_COMPUTE\ntpu_perf_counters=true\nmax_trace_buffers=7"
        )
        page.get_by_test_id("start-capture").click()
        page.locator("tr[data-host-state=done]").wait_for()
    newest = httpx.get(f"{watched.origin}/api/v1/captures").json()["items"][0]
    assert newest["run"] == "options"
    assert newest["options"]["retry_empty"] is True
    assert newest["options"]["advanced_configuration"] == {
        "tpu_trace_mode": "TRACE_COMPUTE",
        "tpu_perf_counters": True,
        "max_trace_buffers": 7,
    }
    # The browser logs the answer that refused, and nothing else was wrong.
    assert all("422" in fault for fault in watched.faults)
    watched.faults.clear()


def test_a_host_that_cannot_be_reached_is_told_and_captured_again(
    watched: Watched, captured: str
) -> None:
    with socket.socket() as taken:
        # Bound but not listening: every connection is refused.
        taken.bind(("127.0.0.1", 0))
        page = watched.open("/captures?new=1")
        page.get_by_label("Run", exact=True).fill("nobody")
        page.get_by_label("Targets").fill(f"127.0.0.1:{taken.getsockname()[1]}")
        page.locator("input[name=durationMs]").fill("100")
        page.get_by_label("Attempts").fill("1")
        page.get_by_test_id("start-capture").click()
        row = page.locator("tr[data-host-state=failed]")
        row.wait_for(timeout=300_000)
        assert len(row.locator("td").last.inner_text()) > 10
        port = taken.getsockname()[1]
    captures = httpx.get(f"{watched.origin}/api/v1/captures").json()["items"]
    # The host is there now: it is captured into the same session.
    with serve(Pod(device="cpu", hosts=1, steps=2), port_base=port):
        page.get_by_test_id("capture-again").click()
        page.locator("tr[data-host-state=done]").wait_for(timeout=300_000)
        page.get_by_role("link", name="Open the overview").wait_for(timeout=300_000)
    again = httpx.get(f"{watched.origin}/api/v1/captures").json()["items"]
    assert [one["id"] for one in again] == [one["id"] for one in captures]
    assert again[0]["state"] == "complete"
    page.get_by_role("button", name="Close").first.click()
    page.locator("tr.row", has_text="nobody").get_by_text("Ready").wait_for()


def test_an_address_of_nothing_says_so_and_leads_on(watched: Watched, captured: str) -> None:
    page = watched.open(f"/captures/{captured}/nonsense")
    page.get_by_role("heading", name="No page named nonsense").wait_for()
    page.get_by_role("link", name="The capture's overview").click()
    page.get_by_label("Verdict").wait_for()
    page.get_by_text("Download", exact=True).click()
    csv = page.get_by_role("link", name="Overview, CSV")
    csv.wait_for()
    page.keyboard.press("Escape")
    csv.wait_for(state="hidden")
    assert watched.faults == []
    watched.open("/captures/00000000-0000-7000-8000-000000000000")
    page.get_by_role("heading", name="No such capture").wait_for()
    page.get_by_role("link", name="All captures").click()
    page.locator("tr.row", has_text="web-test").wait_for()
    # The browser logs the answers that say so, and nothing else was wrong.
    assert all("404" in fault for fault in watched.faults)
    watched.faults.clear()


def test_a_capture_is_cancelled_where_its_progress_is_watched(
    watched: Watched, captured: str
) -> None:
    with serve(Pod(device="tpu-v5e", hosts=2, steps=0)) as serving:
        page = watched.open("/captures?new=1")
        page.get_by_label("Run", exact=True).fill("cancelled")
        page.get_by_label("Targets").fill(", ".join(serving.addresses))
        page.locator("input[name=durationMs]").fill("600000")
        page.get_by_test_id("start-capture").click()
        page.get_by_role("button", name="Cancel the capture").click()
        page.locator("tr[data-host-state=cancelled] >> nth=1").wait_for(timeout=300_000)
        page.get_by_role("button", name="Cancel the capture").wait_for(state="hidden")


def test_a_schedule_is_listed_with_its_period_and_deleted(watched: Watched, captured: str) -> None:
    body = {"name": "nightly", "every_s": 7200, "targets": ["127.0.0.1:9"], "duration_ms": 100}
    assert httpx.post(f"{watched.origin}/api/v1/schedules", json=body).status_code == 201
    page = watched.open("/schedules")
    row = page.locator("tr.row", has_text="nightly")
    row.get_by_text("every 2 h").wait_for()
    assert "1 target: 127.0.0.1:9" in row.inner_text()
    row.get_by_role("button", name="Delete nightly").click()
    page.get_by_role("heading", name="No schedules").wait_for()


def test_views_are_chosen_and_links_copied_by_keyboard(watched: Watched, captured: str) -> None:
    page = watched.open(f"/captures/{captured}/pod_viewer")
    first = page.get_by_role("radio", name="Per host")
    first.focus()
    page.keyboard.press("ArrowRight")
    second = page.get_by_role("radio", name="Per device")
    assert second.get_attribute("aria-checked") == "true"
    assert second.evaluate("e => e === document.activeElement")
    assert "by=core" in page.url
    # The arrow was the views'; the step stays.
    assert "step=" not in page.url
    page.go_back()
    page.wait_for_url(re.compile("pod_viewer$"))
    # Without a secure origin a page has no clipboard object.
    page.evaluate(
        "() => { Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        " document.addEventListener('copy', () => (window.taken = document.activeElement.value)) }"
    )
    page.keyboard.press("y")
    page.wait_for_function("window.taken !== undefined")
    assert page.evaluate("window.taken") == page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_stands_in_both_themes_and_fits_a_narrow_window(
    browser: Browser, origin: str, captured: str, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": 1000, "height": 900}, color_scheme=scheme)
    watched = Watched(context.new_page(), origin)
    for path in (
        "/captures",
        "/schedules",
        f"/captures/{captured}/overview_page",
        f"/captures/{captured}/framework_op_stats",
        f"/captures/{captured}/pod_viewer",
        f"/captures/{captured}/input_pipeline_analyzer",
    ):
        page = watched.open(path)
        page.locator("main header").first.wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1000, path
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(13, 16, 20)") is (scheme == "dark")
    context.close()
    assert watched.faults == []


def test_the_graph_of_a_program_is_walked_and_read(watched: Watched, captured: str) -> None:
    page = watched.open(f"/captures/{captured}/graph_viewer")
    page.get_by_test_id("graph").locator("svg.graph").wait_for()
    centre = page.locator(".graph-card h2").inner_text()
    assert page.locator(".verdict").inner_text().startswith(centre)
    page.locator(".graph-card table a").first.click()
    page.wait_for_function(
        "before => document.querySelector('.graph-card h2').innerText !== before", arg=centre
    )
    assert "program=" in page.url
    page.get_by_role("radio", name="Short text").click()
    marked = page.get_by_test_id("hlo-text").locator("mark")
    marked.wait_for()
    name = page.locator(".graph-card h2").inner_text()
    assert marked.inner_text().split(" = ")[0].split()[-1] == name


def test_the_memory_viewer_shows_the_heap_and_tells_of_a_buffer(
    watched: Watched, captured: str
) -> None:
    page = watched.open(f"/captures/{captured}/memory_viewer")
    page.locator("path.level-line").wait_for()
    assert page.locator(".verdict").inner_text().startswith("The peak is ")
    # A tool of one host says of which, though none was asked for.
    hosts = httpx.get(f"{watched.origin}/api/v1/captures/{captured}/hosts").json()["items"]
    chosen = page.get_by_role("button", name=re.compile("^Host "))
    assert hosts[0]["host"] in chosen.inner_text()
    page.get_by_label("Buffers at the peak").locator("tbody tr").first.click()
    card = page.locator(".panel", has_text="Of the peak").first
    card.wait_for()
    assert "Framework op" in card.inner_text()
    assert "buffer=" in page.url


def test_the_memory_profile_shows_the_timeline_and_what_the_peak_is_made_of(
    watched: Watched, captured: str
) -> None:
    page = watched.open(f"/captures/{captured}/memory_profile")
    page.locator("path.level-line").wait_for()
    assert page.locator(".verdict").inner_text().startswith("No allocation failed.")
    page.get_by_text("allocated before the capture").first.wait_for()
    # A click breaks that moment down, and the strip tells the fragmentation then.
    chart = page.locator(".chart svg").first
    assert chart.locator(".level-strip").count() == 1
    chart.click(position={"x": 400, "y": 120})
    heading = page.get_by_role("heading", name=re.compile("^In use at [0-9]"))
    heading.wait_for()
    assert "at=" in page.url
    assert chart.locator("line.level-mark").count() == 1
    page.get_by_role("button", name="Back to the peak").click()
    page.get_by_role("heading", name="In use at the peak").wait_for()


def test_the_pipeline_is_drawn_with_its_bottleneck(watched: Watched, captured: str) -> None:
    page = watched.open(f"/captures/{captured}/tf_data_bottleneck_analysis")
    graph = page.locator("svg.pipeline-graph")
    graph.wait_for()
    assert graph.locator("g.node").count() == 5
    assert "Prefetch" in (graph.text_content() or "")
    assert graph.locator("g.bottleneck").count() == 1


def test_the_input_pipeline_names_the_share_the_stages_and_the_cores(
    watched: Watched, captured: str
) -> None:
    told = result(watched.origin, captured, "input_pipeline_analyzer")
    page = watched.open(f"/captures/{captured}/input_pipeline_analyzer")
    verdict = page.get_by_label("Verdict")
    verdict.wait_for()
    share = f"{told['input_ratio']['average'] * 100:.1f}"
    assert share in page.get_by_label("Key figures").inner_text()
    stages = page.get_by_test_id("stages")
    assert stages.locator("tr[data-stage]").count() == 5
    shown = stages.locator("tr[data-stage=preprocessing] td").last.inner_text()
    total = sum(told["host_input_time_us"].values())
    percent = 100 * told["host_input_time_us"]["preprocessing"] / total
    assert float(shown.rstrip("%")) == pytest.approx(percent, abs=0.051)
    # Every core has its row, and the operations their seven columns.
    cores = page.get_by_role("region", name="Cores").locator("tbody tr")
    assert cores.count() == told["core_count"] == len(told["cores"]["rows"])
    operations = page.get_by_role("region", name="Input operations")
    assert operations.locator("thead th").count() == 7
    assert operations.locator("tbody tr").count() == len(told["host_ops"]["rows"])
    # A step is chosen by key, and both charts read as tables.
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"step=0"))
    page.get_by_role("button", name="Show as table: share of input by step").click()
    numbers = page.locator(".table-scroll.short tbody th")
    assert numbers.all_inner_texts() == [str(row["step"]) for row in rows(told["series"])]
    host = rows(told["cores"])[0]["host"]
    page = watched.open(f"/captures/{captured}/input_pipeline_analyzer?host={host}")
    cores.first.wait_for()
    assert set(
        page.get_by_role("region", name="Cores").locator("td:first-child").all_inner_texts()
    ) == {host}


def test_an_instruction_leads_from_page_to_page_of_its_program(
    watched: Watched, captured: str
) -> None:
    told = rows(result(watched.origin, captured, "hlo_stats")["instructions"])
    longest = max(told, key=lambda row: row["total_self_time_us"])
    name, program = longest["hlo_op_name"], str(longest["program_id"])
    page = watched.open(f"/captures/{captured}/hlo_stats")
    table = page.get_by_role("region", name="Instructions")
    table.get_by_role("link", name=name, exact=True).click()
    # The graph is of this instruction in this program.
    page.wait_for_url(re.compile(r"/graph_viewer\?"))
    assert f"program={program}" in page.url
    card = page.locator(".graph-card")
    card.wait_for()
    assert card.locator("h2").first.inner_text() == name
    card.get_by_role("link", name="Op profile").click()
    about = page.get_by_test_id("op-card")
    about.wait_for()
    assert about.get_by_role("heading", level=2).first.inner_text() == name
    assert about.get_by_role("link", name="Graph").get_attribute("href") == (
        f"/captures/{captured}/graph_viewer?program={program}&node={name}"
    )
    about.get_by_role("link", name="Roofline").click()
    records = page.get_by_role("region", name="Records")
    records.get_by_role("link", name=name, exact=True).click()
    page.wait_for_url(re.compile(r"/graph_viewer\?"))
    card.wait_for()
    card.get_by_role("link", name="HLO stats").click()
    matching = [row for row in told if name in f"{row['hlo_op_name']} {row['hlo_op_expression']}"]
    page.get_by_text(f"{len(matching)} of {len(told)}").wait_for()
    assert table.locator("tr[aria-selected=true] td").first.inner_text() == name


def test_points_of_the_roofline_are_selected_by_dragging(watched: Watched, captured: str) -> None:
    page = watched.open(f"/captures/{captured}/roofline_model")
    chart = page.locator(".roofline-chart svg")
    chart.locator("circle.point").first.wait_for()
    placed = chart.locator("circle.point").count()
    table = page.get_by_role("region", name="Records")
    listed = table.locator("tbody tr").count()
    frame = chart.bounding_box()
    assert frame is not None
    centres = [
        (float(one.get_attribute("cx") or 0), float(one.get_attribute("cy") or 0))
        for one in chart.locator("circle.point").all()
    ]
    # From the left edge of the plane to just right of the leftmost point.
    left, top = min(x for x, _ in centres), frame["y"] + 20
    inside = [one for one in centres if one[0] <= left + 8]
    assert 0 < len(inside) < placed
    page.mouse.move(frame["x"] + 90, top)
    page.mouse.down()
    page.mouse.move(frame["x"] + left + 8, frame["y"] + frame["height"] - 45, steps=4)
    page.mouse.up()
    page.get_by_text(re.compile(rf"^{len(inside)} of \d+$")).wait_for()
    assert "area=" in page.url
    assert table.locator("tbody tr").count() == len(inside) < listed
    # Those left out stay in the chart.
    assert chart.locator("circle.point").count() == placed
    page.get_by_role("button", name="Clear the selection").click()
    table.locator("tbody tr").nth(listed - 1).wait_for()


def test_two_captures_are_compared_step_by_step_and_row_by_row(
    watched: Watched, captured: str
) -> None:
    api = f"{watched.origin}/api/v1/captures"
    with serve(Pod(device="tpu-v5e", hosts=HOSTS, steps=6, seed=2)) as serving:
        body = {"targets": serving.addresses, "duration_ms": 300, "labels": {"run": "web-test"}}
        later = httpx.post(api, json=body).json()["id"]
        deadline = time.monotonic() + 300
        while httpx.get(f"{api}/{later}").json()["analysis"]["state"] != "done":
            assert time.monotonic() < deadline
            time.sleep(0.2)
    told = httpx.get(f"{api}/{later}/tools/op_profile/diff?base={captured}").json()
    page = watched.open(f"/compare?base={captured}&capture={later}")
    # The first one had a slow host for which the others waited.
    verdict = page.get_by_label("Verdict")
    verdict.wait_for()
    ratio = abs(told["summary"]["step_time"]["change_ratio"])
    assert f"({ratio * 100:.1f}%) faster per step." in verdict.inner_text()
    first = page.get_by_role("region", name="What changed most").locator("tbody tr").first
    first.wait_for()
    assert first.locator("td").first.inner_text().startswith(told["tables"]["ops"]["rows"][0][0])
    hosts = page.get_by_role("img", name=re.compile("Own work of"))
    assert hosts.get_by_text(re.compile(r"\d$")).count() >= HOSTS
    page.get_by_role("button", name="Swap A and B").click()
    page.get_by_text("slower per step.").wait_for()
    page.wait_for_url(re.compile(f"base={later}&capture={captured}"))
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000


def test_hosts_and_ranges_of_steps_are_compared_from_their_pages(
    watched: Watched, captured: str
) -> None:
    route = f"{watched.origin}/api/v1/captures/{captured}/tools"
    page = watched.open(f"/captures/{captured}/overview_page")
    page.get_by_role("link", name="Compare two hosts").click()
    page.wait_for_url(re.compile("/compare"))
    query = dict(pair.split("=") for pair in page.url.split("?")[1].split("&"))
    assert (query["base"], query["capture"]) == (captured, captured)
    hosts = {"base_host": query["base_host"], "host": query["host"]}
    told = httpx.get(f"{route}/pod_viewer/diff", params=hosts).json()
    ids = [column["id"] for column in told["tables"]["steps"]["columns"]]
    rows = [dict(zip(ids, row, strict=True)) for row in told["tables"]["steps"]["rows"]]
    (own,) = [row for row in rows if row["measure"] == "own_work_us"]
    verdict = page.get_by_label("Verdict")
    verdict.wait_for()
    ratio = f"({abs(own['change_ratio']) * 100:.1f}%)"
    words = f"{ratio} longer per step than {hosts['base_host']}."
    assert own["significance"] == "significant"
    assert verdict.inner_text().startswith(hosts["host"])
    assert words in verdict.inner_text()
    page.get_by_role("img", name=re.compile("Own work of A and B")).wait_for()
    # Two ranges of the steps of all hosts, typed.
    page.goto(f"{watched.origin}/compare?base={captured}&capture={captured}")
    page.get_by_text("A and B are the same.").wait_for()
    page.get_by_label("Steps of A").fill("1 to 2")
    page.get_by_label("Steps of A").press("Enter")
    page.get_by_label("Steps of B").fill("3-4")
    page.get_by_label("Steps of B").press("Enter")
    page.wait_for_url(re.compile("base_steps=1-2&steps=3-4"))
    steps = {"base_steps": "1-2", "steps": "3-4"}
    told = httpx.get(f"{route}/op_profile/diff", params=steps).json()
    ids = [column["id"] for column in told["tables"]["steps"]["columns"]]
    kind = ids.index("kind")
    names = [row[0] for row in told["tables"]["steps"]["rows"] if row[kind] == "op"]
    first = page.get_by_role("region", name="What changed most").locator("tbody tr").first
    first.wait_for()
    assert first.locator("td").first.inner_text().startswith(names[0])
    page.get_by_label("Steps of B").fill("9-1")
    assert page.get_by_label("Steps of B").get_attribute("aria-invalid") == "true"
