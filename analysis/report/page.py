"""The report as one HTML file without scripts or external resources."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from typing import Any

from gpt2core.spec.wording import counted, noun_for
from taskloom.analysis.node_time import sentence
from taskloom.analysis.report import sections, tokens, workload
from taskloom.analysis.report.conclusion import variant_name
from taskloom.analysis.report.content import Report
from taskloom.analysis.report.elements import NO_BREAK, framed, table

STYLE = tokens.stylesheet() + """
body{font:16px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;color:var(--ink);
background:var(--paper);font-variant-numeric:tabular-nums}
h1{margin-bottom:.2em;overflow-wrap:anywhere}h2{margin:2.2em 0 .4em;border-bottom:1px solid var(--line)}
.lead{font-size:1.1em;background:var(--tint);border-left:4px solid var(--accent);padding:.8em 1em .8em 2em}
.lead li+li{margin-top:.4em}.lead li:first-child{font-weight:600}
.soft,figcaption,th{color:var(--soft)}a,summary{color:var(--accent)}
table{border-collapse:collapse;font-size:.88em;margin:.8em 0}th,td{padding:.25em .7em;text-align:right;
border-bottom:1px solid var(--line);vertical-align:top}th{border-bottom:2px solid var(--edge)}
td.l,th.l{text-align:left}td{white-space:nowrap}
td.l+td.l{white-space:normal}
figure{margin:1em 0;overflow-x:auto}figcaption{font-size:.92em}svg{max-width:100%;height:auto}
.yes{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}.partly{color:var(--warn);font-weight:600}
details{margin:.6em 0}summary{cursor:pointer}pre{font-size:.8em;overflow-x:auto;background:var(--raised);padding:.6em}
@media(max-width:45rem){body{margin:1rem auto;font-size:15px}figure>svg{min-width:38rem;max-width:none}
th.l:first-child,td.l:first-child{position:sticky;left:0;background:var(--paper)}}
@page{margin:14mm 12mm}
@media print{body{margin:0;padding:0;max-width:none;font-size:10pt}h2,h3,summary{break-after:avoid}
figure,tr{break-inside:avoid}figure:has(table):not(.short){break-inside:auto}figure{overflow:visible}
table{font-size:7pt;max-width:100%}thead{display:table-header-group}td,th{white-space:normal;padding:.2em .35em}
tr:nth-child(-n+2){break-after:avoid}tr:nth-last-child(-n+3){break-before:avoid}p:has(+ul){break-after:avoid}
td.l:last-child{overflow-wrap:anywhere}p,li{orphans:3;widows:3}pre{white-space:pre-wrap;overflow-wrap:anywhere}
details::details-content{content-visibility:visible}summary{list-style:none;color:inherit;font-weight:600}
.long{display:none}}
@media screen{.paper{display:none}}
"""
PRINTED_TIMES = 5_000  # step times that fill about five printed pages


def page(report: Report) -> str:
    """The whole file."""
    experiment = report.experiment
    title = f"Experiment {experiment.experiment_id}: {report.question}"
    parts = [f"<h1>{escape(report.question)}</h1>", _subtitle(report)]
    points = "".join(f"<li>{escape(point)}</li>" for point in report.answer)
    parts.append(f'<h2>Answer</h2><ul class="lead">{points}</ul>')
    if report.scaling.rows and report.workload is not None:
        # Figures over all variants would set steps of different networks beside each other.
        parts += [workload.section(report.workload, report.roofline), sections.answer(report)]
    elif report.scaling.rows:
        parts += [section(report) for section in sections.ALL]
    parts += [_card(report), _design(report), _environment(report), _raw(report)]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><main>{''.join(parts)}</main></html>\n"
    )


# What all runs share of the problem, in words.
SHARED: dict[str, Callable[[Any], str]] = {
    "model": lambda model: str(model["name"]), "batch": f"B{NO_BREAK}{{}}".format, "seq": f"T{NO_BREAK}{{}}".format,
    "precision": str, "data": "data {}".format,
}  # fmt: skip


def _subtitle(report: Report) -> str:
    experiment, design = report.experiment, report.design
    problem = design.problem
    shape = ""
    if report.workload is None:
        shared = ", ".join(say(problem[name]) for name, say in SHARED.items() if name in problem)
        shape = shared and f"{shared}. "
    counts = ", ".join(f"{count} {state}" for state, count in experiment.by_state.items())
    text = (
        f"Experiment {experiment.experiment_id}, submitted {experiment.created_at[:16].replace('T', ' ')} UTC, "
        f"{experiment.state}: {counted(experiment.runs, 'run')} ({counts}), "
        f"{counted(design.variants, 'variant')}. {shape}"
    )
    spent = sentence(experiment.node_time, experiment.node_time_missing)
    return f'<p class="soft">{escape(text + spent)}</p>'


def _card(report: Report) -> str:
    rows = [
        f"<tr><td>{rule.number}</td><td class=l>{escape(rule.rule)}</td>"
        f'<td class="l {rule.holds}">{rule.holds}</td><td class=l>{escape(rule.evidence)}</td></tr>'
        for rule in report.card
    ]
    head = "<tr><th>no.</th><th class=l>rule</th><th class=l>holds</th><th class=l>evidence</th></tr>"
    known = dict.fromkeys((*report.marks, *report.scaling.warnings))
    marks = "".join(f"<li>{escape(mark)}</li>" for mark in known)
    if report.left_out:
        runs = ", ".join(map(str, report.left_out))
        noun = noun_for(len(report.left_out), "run")
        marks = f"<li>left out because other processes used the cores: {noun} {escape(runs)}</li>{marks}"
    listed = f"<details><summary>Marks and warnings</summary><ul>{marks}</ul></details>" if marks else ""
    return f"<h2>Report card</h2>{framed(head, rows)}{listed}"


def _design(report: Report) -> str:
    rows = [(name, json.dumps(value)) for name, value in vars(report.design).items() if name != "problem"]
    request = escape(json.dumps(report.experiment.request, indent=2))
    return (
        f"<h2>Design</h2>{table(['what', 'value'], rows, 2)}<details><summary>The request, to submit it again</summary>"
        f"<pre>{request}</pre></details>"
    )


def _environment(report: Report) -> str:
    found = report.environment
    rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in found.known.items()]
    text = "; ".join(found.differs)
    differs = f"Differences between the runs: {text}." if text else "The environments of all runs are the same."
    return f'<h2>Environment</h2>{table(["what", "value"], rows, 2)}<p class="soft">{escape(differs)}</p>'


def _raw(report: Report) -> str:
    """Times of all timed steps. A printed report has only their number if they would fill many pages."""
    rows = [
        (
            variant_name(row.variant), str(process.run_id),
            " ".join(f"{s * 1e3:.5g}" + "*" * (i in process.outlier_steps) for i, s in enumerate(process.step_s)),
        )
        for row in report.samples for process in row.processes
    ]  # fmt: skip
    times = sum(len(process.step_s) for row in report.samples for process in row.processes)
    kind, instead = "", ""
    if times > PRINTED_TIMES:
        kind = " class=long"
        command = f"taskloom experiments report {report.experiment.experiment_id} --json"
        instead = (
            f"<p class=paper>{counted(times, 'step time')} of {counted(len(rows), 'process')} are not printed. "
            f"<code>{command}</code> writes them.</p>"
        )
    return (
        f"<h2>Raw samples</h2>{instead}<details{kind}><summary>{counted(len(rows), 'process')}</summary>"
        f"{table(['variant', 'run', 'time of each timed step, ms (*: outlier)'], rows, 3)}</details>"
    )
