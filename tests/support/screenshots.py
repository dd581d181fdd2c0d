"""Pictures of every page of the dashboard and of the report, wide and narrow, light and dark: `make screenshots`.

Without --server, the program first starts a server and a
worker and runs a few experiments, which takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from tests.support.browser import ARGUMENTS, executable, open_tab
from tests.support.world import made

ROOT = Path(__file__).parents[2]
PAGES = {
    "now": "", "experiments": "experiments", "runs": "experiments?view=runs", "new": "new",
    **{f"experiment-{view}": f"experiment?id={{experiment}}&view={view}"
       for view in ("answer", "scaling", "causes", "roofs", "forecast", "memory", "runs", "design")},
    **{f"run-{view}": f"run?id={{traced}}&view={view}"
       for view in ("steps", "timeline", "graph", "ops", "validity", "log", "attempts", "settings", "files")},
    "compare": "compare?a=experiment_id%3D{experiment}%2C{a}&b=experiment_id%3D{experiment}%2C{b}",
    "timelines": "compare?a={traced}&b={other}&step=1", "history": "history?series={series}", "fleet": "fleet",
    "access": "access",
}  # fmt: skip


WIDTHS = {"": 1400, "-narrow": 390}
OF_REPORTS = {"report": 1100, "report-narrow": 390}
# Pictures for docs/images: the part that a window of this size shows without scrolling.
README = {
    "dashboard-experiment": ("experiment?id={experiment}", (1280, 860)),
    "dashboard-timeline": ("run?id={traced}&view=timeline", (1280, 860)),
    "report": ("../reports/{experiment}", (1100, 1420)),
}


def reports(browser: Browser, url: str, experiment: int, out: Path) -> None:
    """The report on a wide and a narrow screen, light and dark, and on paper."""
    for scheme in ("light", "dark"):
        for name, width in OF_REPORTS.items():
            context, tab = open_tab(browser, url, color_scheme=scheme, viewport={"width": width, "height": 900})
            tab.page.goto(f"{url}/reports/{experiment}")
            tab.page.screenshot(path=out / f"{name}-{scheme}.png", full_page=True)
            print(f"{name}-{scheme}.png", *tab.wrong, flush=True)
            if name == "report" and scheme == "light":
                tab.page.pdf(path=out / "report.pdf", format="A4")
            context.close()


def pictures(browser: Browser, url: str, known: dict[str, Any], out: Path) -> None:
    for name, (address, (width, height)) in README.items():
        size = {"width": width, "height": height}
        context, tab = open_tab(browser, url, color_scheme="light", viewport=size, reduced_motion="reduce")
        tab.page.goto(f"{url}/ui/{address.format(**known)}")
        tab.page.locator("main h1").first.wait_for()
        tab.page.locator("main .skeleton").first.wait_for(state="detached")
        tab.page.wait_for_timeout(400)
        path = out / f"{name}.png"
        tab.page.screenshot(path=path)
        with Image.open(path) as picture:  # with a palette it has a third of the bytes
            picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
        print(path.name, *tab.wrong, flush=True)
        context.close()


def shown(url: str, experiment: int | None = None) -> dict[str, Any]:
    """The named or the largest finished experiment, two of its traced runs, and a selection for each side."""

    def asked(path: str, **params: Any) -> Any:
        return httpx.get(f"{url}/api/v1/{path}", params=params, timeout=120).raise_for_status().json()

    experiments = [each for each in asked("experiments", limit=100)["items"]
                   if each["state"] == "finished" and experiment in (None, each["id"])]  # fmt: skip
    chosen = max(experiments, key=lambda each: each["by_state"].get("succeeded", 0))
    runs = asked("runs", experiment_id=chosen["id"], state="succeeded", limit=500)["items"]
    traced = [run for run in runs if run["attempts"] > 1] or runs
    last = max(traced, key=lambda run: (run["settings"]["threads"], run["settings"]["scheduler"] == "task"))
    rest = {name: value for name, value in last["variant"].items() if name != "scheduler"}
    other = next((run for run in traced if run["id"] != last["id"] and rest.items() <= run["variant"].items()), last)
    selections = ["%2C".join(f"{k}%3D{v}" for k, v in run["variant"].items()) for run in (other, last)]
    series = asked("analysis/history/series", sort="-runs")["items"][0]["id"]
    return {"experiment": chosen["id"], "traced": last["id"], "other": other["id"], "a": selections[0],
            "b": selections[1], "series": series}  # fmt: skip


@contextlib.contextmanager
def own_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, made(Path(folder)) as world:
        yield world.home.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="take what this server has; it asks for no key")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "screenshots")
    parser.add_argument("--readme", action="store_true", help="the pictures of docs/images, and no others")
    parser.add_argument("--experiment", type=int, help="the experiment to show (default: the one with most runs)")
    parser.add_argument("--only", help="pages whose names begin so")
    options = parser.parse_args()
    path = executable()
    if path is None:
        sys.exit("no Chromium is installed (Debian: chromium)")
    options.out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        url = options.server or stack.enter_context(own_server())
        known = shown(url, options.experiment)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        if options.readme:
            pictures(browser, url, known, ROOT / "docs" / "images")
            browser.close()
            return
        if options.only is None or options.only.startswith("report"):
            reports(browser, url, known["experiment"], options.out)
        looks = itertools.product(("light", "dark"), WIDTHS.items(), PAGES.items())
        for scheme, (end, width), (name, address) in looks:
            if options.only and not name.startswith(options.only):
                continue
            size = {"width": width, "height": 900}
            context, tab = open_tab(browser, url, color_scheme=scheme, viewport=size, reduced_motion="reduce")
            page = tab.open(address.format(**known))
            page.wait_for_timeout(400)  # canvases are painted in the next frame
            whole = name not in ("runs", "experiment-runs")
            page.screenshot(path=options.out / f"{name}{end}-{scheme}.png", full_page=whole)
            print(f"{name}{end}-{scheme}.png", *tab.wrong, flush=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()
