"""The dashboard's files as the server sends them."""

from __future__ import annotations

import gzip
import re

import pytest

from gpt2core.spec.config import NAMES
from taskloom.server.read.dashboard.files import FOLDER, read
from taskloom.server.read.dashboard.shortened import script

FILES = read()
MODULES = sorted(name for name in FILES.by_path if name.endswith(".js") and not name.startswith("vendor/"))
IMPORT = re.compile(r"""(?:from|import\()'(\.[^']+)'""")


def test_the_address_of_the_server_leads_to_the_dashboard_relatively(empty_api):
    for path in ("/", "/ui"):
        answer = empty_api.http.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, "ui/")


def test_a_page_is_the_shell_under_a_strict_policy(empty_api):
    for page in ("", *FILES.pages):
        answer = empty_api.http.get(f"/ui/{page}")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
        assert policy.endswith("frame-ancestors 'none'; require-trusted-types-for 'script'")
        assert f'src="{FILES.version}/app.js"' in answer.text
        linked = re.findall(rf'rel="modulepreload" href="{FILES.version}/([^"]+)"', answer.text)
        assert linked == FILES.loaded(page)
    again = empty_api.http.get(f"/ui/{page}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_file_below_its_version_stays_what_it_is(empty_api):
    for name, file in FILES.by_path.items():
        answer = empty_api.http.get(f"/ui/{FILES.version}/{name}")
        assert answer.content == file.plain
        assert answer.headers["content-encoding"] == "gzip"
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["vary"] == "Accept-Encoding"
    plain = empty_api.http.get(f"/ui/{FILES.version}/app.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == script((FOLDER / "app.js").read_text()).encode()


def test_code_is_sent_without_comments_and_without_space_that_separates_nothing():
    code = r"""// what it does
import {a} from './a.js'; // why

/** @type {Map<string, {data: any}>} */
const kept = new Map();
/**
 * Of several lines.
 */
export const one = async name => /** @type {string} */ (kept.get(name) ?? '//  "');
const two = a - -1 + +b / 2 / c;
const three = text => text.replace(/[/'`] \/* /g, '') in {};
if (a) return /^ /;
const four = html`
	<p  class=${`a ${ {b: '}'}.b + 1}  b`}
		title=${a}>
		It's   ${list.map(each => html`<b>  \` $x </b>`)} text
		and more
	</p>
`;
"""
    assert script(code) == (
        "import{a}from'./a.js';const kept=new Map();export const one=async name=>(kept.get(name)??'//  \"');"
        "const two=a- -1+ +b/2/c;const three=text=>text.replace(/[/'`] \\/* /g,'')in{};if(a)return/^ /;"
        "const four=html`<p  class=${`a ${{b:'}'}.b+1}  b`}\ntitle=${a}>"
        "It's   ${list.map(each=>html`<b>  \\` $x </b>`)} text\nand more</p>`;"
    )


def test_every_page_has_a_line_in_the_list_of_pages():
    code = FILES.by_path["pages.js"].plain.decode()
    listed = re.findall(r"name:'(\w+)',load:\(\)=>import\('\./pages/(\w+)\.js'\)", code)
    assert sorted(listed) == sorted((page, page) for page in FILES.pages if page)


def test_a_page_that_does_not_exist_is_a_page_that_says_so(empty_api):
    answer = empty_api.http.get("/ui/nonsense")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert f'src="{FILES.version}/app.js"' in answer.text
    assert "pages/" not in re.sub(r"pages\.js", "", answer.text)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


NOTHING = (
    "app.js", "pages/now.js", "0123456789abcdef/app.js", "VERSION/../../settings.py", "VERSION/%2e%2e/main.py",
    "VERSION/index.html", "VERSION/vendor/preact.d.ts", "VERSION/vendor/SHA256SUMS",
)  # fmt: skip


@pytest.mark.parametrize("path", NOTHING)
def test_nothing_else_is_there(empty_api, path):
    answer = empty_api.http.get(f"/ui/{path.replace('VERSION', FILES.version)}")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


def test_the_files_take_no_key_where_others_can_reach_the_server(start_server):
    api = start_server(public=True)
    assert api.http.get("/ui/").status_code == 200
    assert api.http.get(f"/ui/{FILES.version}/app.js").status_code == 200
    assert api.http.get("/api/v1/runs").status_code == 401


def test_a_page_loads_what_its_modules_import_and_theirs():
    loaded = FILES.loaded("run")
    assert {"app.js", "pages/run.js", "run/steps.js", "plots/series.js", "vendor/preact.js"} <= set(loaded)
    assert len(loaded) == len(set(loaded))
    when_opened = {"pages/now.js", "pages/compare.js", "run/timed.js", "timeline/trace.js", "run/ops.js"}
    assert not {*when_opened, "facts.js"} & set(loaded)
    assert not {"pages/experiments.js", "facts.js", "plots/chosen.js"} & set(FILES.loaded("experiment"))


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_imports_is_served(name):
    folder = FOLDER / name
    code = re.sub(r"/\*\*.*?\*/", "", FILES.by_path[name].plain.decode(), flags=re.S)  # types are not loaded
    for relative in IMPORT.findall(code):
        wanted = (folder.parent / relative).resolve().relative_to(FOLDER.resolve()).as_posix()
        assert wanted in FILES.by_path


@pytest.mark.parametrize("name", MODULES)
def test_lines_have_at_most_120_columns(name):
    """`make ui-format` formats them; a tab is one column."""
    lines = (FOLDER / name).read_text().splitlines()
    assert [line for line in lines if len(line) > 120] == []


def types(code: str) -> list[str]:
    """What the braces behind JSDoc's tags contain, without quoted words."""
    found = []
    for tag in re.finditer(r"@(?:type|param|returns|template|typedef|property) (?=\{)", code):
        depth, end = 0, tag.end()
        while True:
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
            if not depth:
                break
        found.append(re.sub(r"'[^']*'", "''", code[tag.end() : end]))
    return found


@pytest.mark.parametrize("name", [*MODULES, "schemas.d.ts"])
def test_nothing_has_the_type_any(name):
    """`make ui-check` would check nothing of it."""
    code = (FOLDER / name).read_text()
    assert [each for each in (types(code) or [code]) if re.search(r"\bany\b", each)] == []


@pytest.mark.parametrize("name", MODULES)
def test_main_settings_are_named_at_their_fields_alone(name):
    """A page takes them from an answer of the API; a short list is of what it treats in its own way."""
    lists = re.findall(r"\[\s*('\w+'(?:,\s*'\w+')+)\s*\]", FILES.by_path[name].plain.decode())
    assert [each for each in lists if len({*re.findall(r"\w+", each)} & {*NAMES}) > 5] == []


def test_no_file_names_another_site():
    for name, file in FILES.by_path.items():
        addresses = set(re.findall(r"https?://[\w.]+", file.plain.decode()))
        assert addresses <= {"http://www.w3.org"} or name == "vendor/LICENCES.txt"


def test_every_colour_that_is_used_is_a_token():
    known = set(re.findall(r"--([\w-]+):", FILES.by_path["tokens.css"].plain.decode()))
    for name in [*MODULES, "style.css"]:
        used = set(re.findall(r"var\(--([a-z][\w-]*)\)", FILES.by_path[name].plain.decode()))
        assert used <= known, name


def test_all_scripts_and_styles_are_within_the_budget():
    """Together at most 120 kB, as sent; the first page's 45 kB are measured in a browser (tests/ui/test_pages.py)."""
    code = [file for name, file in FILES.by_path.items() if name.endswith((".js", ".css"))]
    assert sum(len(gzip.compress(file.plain)) for file in code) <= 120_000


def test_styles_are_sent_without_comments_and_indentation():
    sent = FILES.by_path["style.css"].plain.decode()
    assert "/*" not in sent
    assert not re.search(r"^\s", sent, re.M)
    written = (FOLDER / "style.css").read_text()
    assert re.sub(r"\s", "", re.sub(r"/\*.*?\*/", "", written, flags=re.S)) == re.sub(r"\s", "", sent)
