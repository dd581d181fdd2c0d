"""The report as one HTML file without scripts or external resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gpt2core.spec.config import PHASES
from taskloom.analysis.node_time import sentence
from taskloom.analysis.report import lanes, plots, tokens
from taskloom.analysis.report.conclusion import at, doubt, faster_above_1, milliseconds, ratio_of, threads, variant_name
from taskloom.analysis.report.elements import figure, framed, interval, mib, ms, ms_interval, number, share, table
from taskloom.analysis.wording import counted

Document = Mapping[str, Any]
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
td.l{overflow-wrap:anywhere}p,li{orphans:3;widows:3}pre{white-space:pre-wrap;overflow-wrap:anywhere}}
"""

SPEEDUPS = ("variant", "speedup of the step [95 %]", "efficiency", "of forward [95 %]", "efficiency",
            "of backward [95 %]", "efficiency", "over best T(1) [95 %]")  # fmt: skip
OVERLAP = (
    " Under task with sync step or none, phases overlap: the time of a phase is then the time of its own tasks divided "
    "by the number of threads. It leaves out waiting, which the time of the step includes."
)
SPREAD = (
    "CV: standard deviation / mean. Standard deviations are relative to the step time. Steps advised: number of timed "
    "steps per process that narrows the interval most for the time spent."
)
FACTORS = (
    "Parallel efficiency = load balance x serialisation x transfer. Computation scalability: useful time of one thread "
    "/ useful time of all threads. T1/Tinf: work / span. Gain of task: upper bound of fork-join time / task time."
)
MEMORY_BOUND = (
    "A phase is memory-bound if at least half of its time is in ops below the ridge and its computation scalability is "
    "below 0.9: the same work takes more useful time than on one thread. If only one of the two holds, it is partly "
    "memory-bound. MFU: model-FLOP utilisation of the step, relative to the measured peak of 1024 x 1024 matrix "
    "products and to that of multiply-adds in registers, with as many threads."
)


def page(document: Document) -> str:
    """The whole file."""
    experiment = document["experiment"]
    title = f"Experiment {experiment['experiment_id']}: {document['question']}"
    parts = [f"<h1>{escape(document['question'])}</h1>", _subtitle(document)]
    points = "".join(f"<li>{escape(point)}</li>" for point in document["answer"])
    parts.append(f'<h2>Answer</h2><ul class="lead">{points}</ul>')
    if document["scaling"]["rows"]:
        parts += [_answer(document), _runtime(document), _causes(document), _memory_bound(document)]
        parts += [_forecast(document), _memory(document)]
    parts += [_card(document), _design(document), _environment(document), _raw(document)]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style><main>{''.join(parts)}</main></html>\n"
    )


def _subtitle(document: Document) -> str:
    experiment, design = document["experiment"], document["design"]
    problem = design["problem"]
    shape = ""
    if problem:
        model = problem["model"]["name"]
        shape = f"{model}, B {problem['batch']}, T {problem['seq']}, {problem['precision']}, data {problem['data']}. "
    counts = ", ".join(f"{count} {state}" for state, count in experiment["by_state"].items())
    told = (
        f"Experiment {experiment['experiment_id']}, submitted {experiment['created_at'][:16].replace('T', ' ')} UTC, "
        f"{experiment['state']}: {counted(experiment['runs'], 'run')} ({counts}), "
        f"{counted(design['variants'], 'variant')}. {shape}"
    )
    spent = sentence(experiment.get("node_time"), experiment.get("node_time_missing"))
    return f'<p class="soft">{escape(told + spent)}</p>'


def _answer(document: Document) -> str:
    sweep = document["sweep"]
    if not sweep["rows"]:
        return ""
    rows = [
        (
            at(row),
            f"{row['b']} against {row['a']}",
            row["verdict"],
            number(row["ratio"], 3) + interval(row["ratio_low"], row["ratio_high"]),
            "-" if row["p_adjusted"] is None else f"{row['p_adjusted']:.2g}",
            number(row["superiority"]),
            number((row.get("instructions") or {}).get("ratio"), 3),
            (f"{row['n']} {row['unit']}" if row["n"] else "-") + ("" if row["paired"] else ", not paired"),
        )
        for row in sweep["rows"]
    ]
    pooled = [
        (
            f"{row['places']} slicings, {threads(row['threads'])}; {row['scope']}",
            f"{row['b']} against {row['a']}",
            row["verdict"],
            number(row["ratio"], 3) + interval(row["ratio_low"], row["ratio_high"]),
            f"{row['p_adjusted']:.2g}",
            "-",
            "-",
            f"{row['pairs']} pairs",
        )
        for row in sweep["pooled"]
    ]
    columns = ["other settings", str(sweep["axis"]), "verdict", "ratio [95 %]", "p, adjusted", "superiority",
               "instructions ratio", "sample"]  # fmt: skip
    lacking = sorted({why for row in sweep["rows"] if (why := (row.get("instructions") or {}).get("reason"))})
    told = f" Instructions are unknown: {'; '.join(lacking)}." if lacking else ""
    legend = f"{ratio_of(sweep)} (Hodges-Lehmann); above 1: {faster_above_1(sweep)} is faster"
    return (
        figure(plots.ratios(document), f"{legend}. Lines: 95 % intervals. Grey band: the noise floor. Grey dots: "
                "undecided or equivalent.")
        + table(columns, [*pooled, *rows], 3)
        + f'<p class="soft">Ratio: {escape(legend)}. p: two-sided, adjusted for multiple comparisons (Holm). '
        "Superiority: probability that a process of the first value is faster than one of the second; 0.5: no "
        f"difference. Instructions ratio: that of the instructions of a step.{escape(told)}</p>"
    )  # fmt: skip


def _runtime(document: Document) -> str:
    over = {str(row["step_s"]["over"]) for row in document["scaling"]["rows"]}
    rows = [
        (
            variant_name({**row, "sync": ""}),
            ms(row["step_s"]["median"]) + ms_interval(row["step_s"]["low"], row["step_s"]["high"]),
            f"{ms(row['step_s']['q1'])} to {ms(row['step_s']['q3'])}",
            "-" if row["step_s"]["cv"] is None else f"{row['step_s']['cv']:.1%}",
            str(row["step_s"]["n"]) if len(over) == 1 else f"{row['step_s']['n']} {row['step_s']['over']}",
            ", ".join(map(str, row["outliers"])) or "-",
            f"{row['tokens_per_s']:,.0f}",
            *_levels(row.get("levels") or {}),
            f"{row['final_loss']:.5f}" + ("" if row["agrees"] else " disagrees"),
        )
        for row in document["scaling"]["rows"]
    ]
    columns = ["variant", "median step, ms [95 %]", "quartiles, ms", "CV",
               *(over if len(over) == 1 else ["n"]), "outlier runs", "tokens/s",
               "SD between processes", "SD between steps", "steps advised", "final loss"]  # fmt: skip
    speedups = [
        (
            variant_name({**row, "sync": ""}),
            *(
                cell
                for name in ("", "_forward", "_backward")
                for cell in (
                    number(row[f"speedup{name}"])
                    + interval(row[f"speedup{name}_low"], row[f"speedup{name}_high"], 2),
                    number(row[f"efficiency{name}"]),
                )
            ),
            number(row["speedup_best_serial"])
            + interval(row["speedup_best_serial_low"], row["speedup_best_serial_high"], 2),
        )
        for row in document["scaling"]["rows"]
        if row["threads"] > 1
    ]
    overlap = any(row["phases_overlap"] for row in document["scaling"]["rows"])
    return (
        "<h2>Runtime, speedup, samples</h2>"
        + figure(plots.runtime(document), "Median step, split by phase; the line is the 95 % interval of the median"
                  + (", over the steps of a single process where there is only one" if "steps" in over else "") + ".")
        + table(columns, rows)
        + f'<p class="soft">{SPREAD}</p>'
        + figure(plots.samples(document), "Dots: timed steps. Rings: medians of processes. Black: outliers, more than "
                  "1.5 interquartile ranges beyond a quartile; all figures include them.")
        + (table(SPEEDUPS, speedups) if speedups else "")
        + f'<p class="soft">{escape(document["scaling"]["base"])}.{OVERLAP if overlap else ""}</p>'
        + figure(plots.speedup(document), "Speedup over one thread of the same scheduler and slices, with its 95 % "
                  "interval. Short horizontal bars: upper bounds from work and span.")
        + figure(plots.phase_speedups(document), "Speedup of forward and of backward, over the same base."
                  + (OVERLAP if overlap else ""))
    )  # fmt: skip


def _levels(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Variance components, and how many timed steps are worth one process."""
    advised = found.get("steps_advised")
    return share(found.get("process")), share(found.get("step")), "-" if advised is None else str(advised)


def _causes(document: Document) -> str:
    rows = []
    for row in document["efficiency"]:
        found, scaled, bounds = row["efficiency"], row["scalability"], row["bounds"]
        names = ("parallel", "load_balance", "serialisation", "transfer")
        spans = ("parallelism", "fork_join_parallelism")
        rows.append((
            variant_name(row["variant"]),
            *(number(None if found is None else found[name], 3) for name in names),
            number(None if scaled is None else scaled["computation"], 3),
            *(number(None if bounds is None else bounds[name], 1) for name in spans),
            number(None if bounds is None else bounds["gain_limit"]),
        ))  # fmt: skip
    columns = ["variant", "parallel efficiency", "load balance", "serialisation", "transfer", "computation scalability",
               "T1/Tinf of the graph", "T1/Tinf with barriers", "gain of task, at most"]  # fmt: skip
    return (
        "<h2>Where the time went</h2>"
        + figure(plots.efficiency(document), "Useful: time in tasks. No work: no task is ready. At barriers: waiting "
                  "for the other threads. Scheduling: all other time.")
        + table(columns, rows)
        + f'<p class="soft">{FACTORS}</p>'
        + figure(lanes.traced(document), _traced_caption(document["traced"]))
        + figure(
            lanes.timeline(document),
            "Forecast: one step, replayed with the measured task times of a one-thread run and without a bandwidth "
            "limit. Under fork-join, cores idle at the barrier after each op; under task, ops overlap.",
        )
    )  # fmt: skip


def _traced_caption(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        f"run {row['run_id']}: median step {milliseconds(row['traced_step_s'])} traced, "
        f"{milliseconds(row['timed_step_s'])} timed"
        + ("" if row["complete"] else " (the trace is incomplete)")
        for row in rows
    ]
    return (
        "Measured: consecutive steps near the median, traced in a separate attempt whose times are used nowhere else "
        f"({'; '.join(told)}). Dashed lines: ends of steps. Time that is neither task nor wait is scheduling."
    )


def _memory_bound(document: Document) -> str:
    shown = [row for row in document["roofline"] if row["ops"]]
    if not shown:
        reasons = sorted({reason for row in document["roofline"] for reason in row["missing"]})
        told = "; ".join(reasons) or "The results contain no rates of ops."
        return f'<h2>Is it memory-bound?</h2><p class="soft">{escape(told)}</p>'
    sharing = [row for row in shown if row["variant"]["threads"] > 1]  # one thread shares the memory with no other
    rows = [
        (
            variant_name(row["variant"]), phase["phase"], phase["answer"],
            f"{phase['memory_time_share']:.0%}", number(phase["computation_scalability"]),
            f"{phase['achieved_gflop_per_s']:.1f}", f"{phase['achieved_gb_per_s']:.1f}",
            f"{phase['bandwidth_share']:.0%}", number(phase["intensity"], 1), f"{row['mfu']:.1%}",
            share(row.get("mfu_registers")),
        )
        for row in sharing or shown
        for phase in sorted(row["phases"], key=lambda phase: PHASES.index(phase["phase"]))
        if phase["phase"] in ("forward", "backward", "update")
    ]  # fmt: skip
    best = document["sweep"]["best"]
    chosen = next((row for row in shown if row["variant"] == best), shown[-1])
    ops = [
        (
            op["op"], op["phase"], f"{op['time_share']:.1%}", number(op["intensity"], 1),
            number(op["achieved_gflop_per_s"], 1), number(op["achieved_gb_per_s"], 1),
            share(op["share"]), share(op.get("registers_share")), op["bound"],
        )
        for op in chosen["ops"]
    ]  # fmt: skip
    columns = ["op", "phase", "share of time", "flop/byte", "GFLOP/s", "GB/s", "share of its roof",
               "share of register peak", "bound by"]  # fmt: skip
    name = variant_name(chosen["variant"])
    return (
        "<h2>Is it memory-bound?</h2>"
        + table(["variant", "phase", "memory-bound", "time below the ridge", "comp. scalability", "GFLOP/s", "GB/s",
                  "share of bandwidth", "flop/byte", "MFU, products", "MFU, registers"], rows, 3)
        + f'<p class="soft">{MEMORY_BOUND}</p>'
        + figure(plots.roofline(chosen), f"Roofline of {name}. The roofs were measured on the node with as many "
                  "threads. Larger circles: larger shares of time.")
        + f"<details><summary>Ops of {escape(name)}</summary>{table(columns, ops, 2)}</details>"
    )  # fmt: skip


def _forecast(document: Document) -> str:
    found = document["forecast"]
    parts = ["<h2>Forecast for more cores</h2>"]
    for one in found["forecasts"]:
        slices = f"{one['source']['batch_slice']}x{one['source']['token_slice']}"
        worst = one["worst_error"]
        error = "" if worst is None else f" Largest error against a measured step: {worst:.1%}{doubt(worst)}."
        runs = " and ".join(f"{run_id} ({scheduler})" for scheduler, run_id in one["source_run_ids"].items())
        noun = "run" if len(set(one["source_run_ids"].values())) == 1 else "runs"
        caption = (
            f"Slices {slices}: forecast from the one-thread {noun} {runs}. Solid: bandwidth grows with the cores. "
            f"Dashed: it stays constant.{error}"
        )
        parts.append(figure(plots.forecast(one), caption))
    if found["forecasts"]:
        assumed = "".join(f"<li>{escape(told)}</li>" for told in found["forecasts"][0]["assumptions"])
        parts.append(f"<p>Assumptions:</p><ul>{assumed}</ul>")
        columns = ["scheduler, slices", "bandwidth", "cores", "forecast, ms", "speedup", "measured, ms", "error"]
        rows = [
            (
                f"{curve['scheduler']} {one['source']['batch_slice']}x{one['source']['token_slice']}",
                curve["bandwidth"], str(point["cores"]), ms(point["step_s"]), number(point["speedup"]),
                "-" if point["measured_s"] is None else ms(point["measured_s"]),
                "-" if point["error"] is None else f"{point['error']:+.1%}",
            )
            for one in found["forecasts"] for curve in one["curves"] for point in curve["points"]
        ]  # fmt: skip
        parts.append(f"<details><summary>All points</summary>{table(columns, rows, 2)}</details>")
    parts += [f'<p class="soft">{escape(reason)}</p>' for reason in found["missing"]]
    return "".join(parts)


def _memory(document: Document) -> str:
    if not document["memory"]:
        return ""
    rows = [
        (
            variant_name(row["variant"]),
            *(mib(size) for size in row["memory"]["measured_bytes"].values()),
            mib(row["memory"]["peak_rss_bytes"]),
            "-" if row["memory"]["arenas_share"] is None else f"{row['memory']['arenas_share']:.0%}",
            "yes" if row["memory"]["exact"] else "no",
        )
        for row in document["memory"]
    ]
    kinds = list(document["memory"][0]["memory"]["measured_bytes"])
    pieces = list(dict.fromkeys(name for row in document["memory"] for name in row["memory"]["resident_bytes"]))
    resident = [
        (
            variant_name(row["variant"]),
            *(mib(row["memory"]["resident_bytes"].get(name)) for name in pieces),
            mib(row["memory"]["peak_rss_bytes"]),
            f"{row['memory']['explained']:.0%}",
        )
        for row in document["memory"]
        if row["memory"]["explained"] is not None
    ]
    return (
        "<h2>Memory</h2>"
        + figure(
            plots.memory(document),
            "Bars: arenas, exact to the byte. Black lines: peak RSS of the process. The second table splits the memory "
            "of the run with the highest peak by the part of the run in which it grew.",
        )
        + table(["variant (sizes in MiB)", *kinds, "peak RSS", "arenas / peak RSS", "equals the formula"], rows)
        + (table(["variant (resident, MiB)", *pieces, "peak RSS", "sum / peak RSS"], resident) if resident else "")
        + figure(plots.memory_growth(document), "Size of all arenas together, by the formula.")
    )


def _card(document: Document) -> str:
    rows = [
        f"<tr><td>{rule['number']}</td><td class=l>{escape(rule['rule'])}</td>"
        f'<td class="l {rule["holds"]}">{rule["holds"]}</td><td class=l>{escape(rule["evidence"])}</td></tr>'
        for rule in document["card"]
    ]
    head = "<tr><th>no.</th><th class=l>rule</th><th class=l>holds</th><th class=l>evidence</th></tr>"
    marks = "".join(f"<li>{escape(mark)}</li>" for mark in (*document["marks"], *document["scaling"]["warnings"]))
    if document["left_out"]:
        runs = ", ".join(map(str, document["left_out"]))
        noun = "run" if len(document["left_out"]) == 1 else "runs"
        marks = f"<li>left out because other processes used the cores: {noun} {escape(runs)}</li>{marks}"
    listed = f"<details><summary>Marks and warnings</summary><ul>{marks}</ul></details>" if marks else ""
    return f"<h2>Report card</h2>{framed(head, rows)}{listed}"


def _design(document: Document) -> str:
    design = document["design"]
    rows = [(name, json.dumps(value)) for name, value in design.items() if name != "problem"]
    request = escape(json.dumps(document["experiment"]["request"], indent=2))
    return (
        f"<h2>Design</h2>{table(['what', 'value'], rows, 2)}<details><summary>The request, to submit it again</summary>"
        f"<pre>{request}</pre></details>"
    )


def _environment(document: Document) -> str:
    found = document["environment"]
    rows = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in found["known"].items()]
    told = "; ".join(found["differs"])
    differs = f"Differences between the runs: {told}." if told else "The environments of all runs are the same."
    return f'<h2>Environment</h2>{table(["what", "value"], rows, 2)}<p class="soft">{escape(differs)}</p>'


def _raw(document: Document) -> str:
    rows = [
        (
            variant_name(row["variant"]), str(process["run_id"]),
            " ".join(f"{s * 1e3:.5g}" + "*" * (i in process["outlier_steps"]) for i, s in enumerate(process["step_s"])),
        )
        for row in document["samples"] for process in row["processes"]
    ]  # fmt: skip
    return (
        f"<h2>Raw samples</h2><details><summary>{counted(len(rows), 'process')}</summary>"
        f"{table(['variant', 'run', 'time of each timed step, ms (*: outlier)'], rows, 3)}</details>"
    )
