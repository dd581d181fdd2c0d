// Is B faster than A? The verdict, the ratio over the noise floor, pairs, what differs, and two timelines.
import {html, useState} from '../vendor/preact.js';
import {address, choose, link} from '../address.js';
import {useAnswer} from '../answers.js';
import {count, ms, number, plural, ratio, sample, sideText, variantName} from '../format.js';
import {Answered, Empty, Head, Marks, Notice, Pairs, Question, Skeleton} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {Label, YAxis, scale} from '../plots/scale.js';
import {floorSaid, ratios} from '../plots/variants.js';
import {NoTrace, useTrace} from '../run/timed.js';
import {Timeline} from '../timeline/timeline.js';
import {State, mostDisturbed} from '../words.js';

/**
 * The ratio of times with its interval, over the noise floor. Below it, the ratio of instructions if it is known.
 * @param {{of: import('../schemas').Schemas['Comparison']}} props
 */
function Ratio({of}) {
	if (of.ratio === null) return null;
	const floor = of.noise_floor ?? 0.01;
	/** @type {{metric: string, ratio: number, ratio_low?: number | null, ratio_high?: number | null}[]} */
	const rows = [{metric: 'time', ratio: of.ratio, ratio_low: of.ratio_low, ratio_high: of.ratio_high}];
	if (of.instructions?.ratio != null)
		rows.push({...of.instructions, metric: 'instructions', ratio: of.instructions.ratio});
	const draw = ratios({
		rows: rows.map((row, i) => ({...row, name: row.metric, colour: i ? 'var(--edge)' : 'var(--accent)', r: 6, says: ''})),
		floor,
		label: rows.length > 1 ? 'A / B' : 'time of A / time of B',
		faster: ['A is faster', 'B is faster']
	});
	const listed = rows.map((row, i) => ({
		verdict: i ? null : of.verdict,
		...row,
		p_value: i ? null : of.p_value,
		n: i ? of.instructions?.n : of.n,
		unit: of.unit,
		test: i ? null : of.test
	}));
	return html`<${Plot}
		title="Ratio"
		name="ratio"
		draw=${draw}
		rows=${listed}
		said=${'Time of A / time of B with its 95 % interval; above 1: B is faster.' +
		(rows.length > 1 ? ' Instructions of A / of B in the same way; above 1: B takes fewer.' : '') +
		` ${floorSaid(floor)}`}
		fields=${['metric', 'verdict', 'ratio', 'ratio_low', 'ratio_high', 'p_value', 'n', 'unit', 'test']}
	/>`;
}

/**
 * Instructions of a step as a second metric.
 * @param {import('../schemas').Schemas['Comparison']['instructions']} of
 * @returns {[string, string][]}
 */
const instructionsSaid = of =>
	of == null
		? []
		: [
				[
					'instructions of A / of B',
					of.ratio === null ? `not known: ${of.reason}` : ratio(of.ratio, of.ratio_low, of.ratio_high)
				]
			];

/**
 * Each side's processes; pairs are joined by lines.
 * @param {{of: import('../schemas').Schemas['Comparison'], runs: import('../schemas').Schemas['RunRow'][]}} props
 */
function Processes({of, runs}) {
	const byId = new Map(runs.map(run => [run.id, run]));
	const sides = [of.a, of.b].map(side =>
		side.runs.flatMap(id => {
			const run = byId.get(id);
			return run?.median_step_s == null ? [] : [{...run, median_step_s: run.median_step_s}];
		})
	);
	const every = sides.flat().map(run => run.median_step_s * 1e3);
	const all = of.a.runs.length + of.b.runs.length;
	if (!every.length) return null;
	const key = (/** @type {import('../schemas').Schemas['RunRow']} */ run) => `${run.experiment_id} ${run.block}`;
	const pairs = of.paired
		? (sides[0] ?? []).flatMap(a => {
				const b = sides[1]?.find(each => key(each) === key(a));
				return b ? [[a, b]] : [];
			})
		: [];
	const draw = (/** @type {number} */ width) => {
		const height = 300;
		const spread = Math.max(...every) - Math.min(...every) || Math.max(...every) * 0.1;
		const y = scale(Math.max(0, Math.min(...every) - spread * 0.08), Math.max(...every) + spread * 0.08, height - 30, 10);
		const at = (/** @type {number} */ side) => width * (side ? 0.7 : 0.36);
		return {
			height,
			parts: html`
				<${YAxis} y=${y} left=${56} right=${width - 10} label="median step, milliseconds" />
				${pairs.map(
					([a, b], i) => html`<path
						key=${i}
						d=${`M${at(0)} ${y(a.median_step_s * 1e3)}L${at(1)} ${y(b.median_step_s * 1e3)}`}
						stroke=${b.median_step_s < a.median_step_s ? 'var(--good)' : 'var(--fork-join)'}
						stroke-opacity=".55"
					/>`
				)}
				${sides.map(
					(side, s) => html`<g key=${s}>
						<${Label} x=${at(s)} y=${height - 8} text-anchor="middle" font-size="12.5" font-weight="600" fill="var(--ink)">
							${s ? 'B' : 'A'}
						<//>
						${side.map(
							run => html`<circle
								key=${run.id}
								cx=${at(s)}
								cy=${y(run.median_step_s * 1e3)}
								r="4"
								fill=${s ? 'var(--task)' : 'var(--serial)'}
								fill-opacity=".8"
							>
								<title>
									run ${run.id}: ${ms(run.median_step_s)}${run.flagged_steps ? `, ${run.flagged_steps} steps flagged` : ''}
								</title>
							</circle>`
						)}
					</g>`
				)}
			`
		};
	};
	return html`<${Plot}
		title=${of.paired ? 'Pairs' : 'Processes'}
		name="processes"
		draw=${draw}
		rows=${sides.flatMap((side, s) => side.map(run => ({side: 'AB'[s], run})))}
		said=${(of.paired
			? 'Median of each process; a line joins runs of one block. Green lines: B was faster in that block.'
			: 'Median of each process. The processes are not paired.') +
		(every.length < all ? ` ${count(every.length)} of ${plural(all, 'run')} shown.` : '')}
		fields=${[
			'side',
			{label: 'run', value: r => r.run.id},
			{label: 'block', value: r => r.run.block},
			{label: 'median_step_ms', value: r => r.run.median_step_s * 1e3},
			{label: 'flagged_steps', value: r => r.run.flagged_steps ?? null}
		]}
	/>`;
}

/** Two stacked traces, aligned by step. @param {{a: number, b: number}} props */
function Timelines({a, b}) {
	const first = useTrace(a);
	const second = useTrace(b);
	const [shown, show] = useState(/** @type {{from: number, to: number} | null} */ (null));
	const steps = Math.min(first.trace?.stepEnd.length ?? 0, second.trace?.stepEnd.length ?? 0);
	const step = Math.min(
		Math.max(Number(address.value.params.get('step') ?? Math.floor(steps / 2)), 0),
		Math.max(0, steps - 1)
	);
	const problem = first.problem ?? second.problem;
	if (problem)
		return html`<section class="panel">
			<h2>Timelines</h2>
			<${NoTrace}
				problem=${problem}
				retry=${() => {
					first.retry();
					second.retry();
				}}
			/>
		</section>`;
	if (!first.trace || !second.trace) return html`<${Skeleton} height=${300} />`;
	const traces = [first.trace, second.trace];
	const begins = traces.map(trace => (step ? trace.stepEnd[step - 1] : 0));
	const longest = Math.max(...traces.map((trace, i) => trace.stepEnd[step] - begins[i]));
	const move = (/** @type {number} */ by) => {
		show(null);
		choose({step: step + by});
	};
	const view = shown ?? {from: Math.round(-longest * 0.02), to: Math.round(longest * 1.04)};
	return html`<section class="panel stack">
		<div class="row between">
			<h2>Timelines, aligned at the start of step ${(traces[0]?.firstStep ?? 0) + step}</h2>
			<span class="row">
				<button disabled=${step === 0} onClick=${() => move(-1)}>Previous step</button>
				<button disabled=${step >= steps - 1} onClick=${() => move(1)}>Next step</button>
			</span>
		</div>
		${traces.map((trace, i) => {
			const origin = begins[i];
			// The view may extend past the ends. Clamped views would not be aligned.
			const own = {from: view.from + origin, to: view.to + origin};
			return html`<${Timeline}
				key=${i}
				level=${3}
				first=${i === 0}
				last=${i === 1}
				trace=${trace}
				origin=${origin}
				view=${own}
				onView=${next => show({from: next.from - origin, to: next.to - origin})}
				title=${`${'AB'[i]}: run ${i ? b : a}`}
				name=${`run-${i ? b : a}-timeline`}
			/>`;
		})}
	</section>`;
}

// Runs of a page.
const MOST_RUNS = 500;

/** @param {{a: string, b: string}} props */
function Asking({a, b}) {
	const [said, say] = useState({a, b});
	/** @param {Event} event */
	const ask = event => {
		event.preventDefault();
		choose({a: said.a.trim(), b: said.b.trim(), step: null}, false);
	};
	return html`<form class="filters" onSubmit=${ask}>
		${/** @type {const} */ (['a', 'b']).map(
			side => html`<div key=${side} class="field">
				<label for=${`side-${side}`}>${side.toUpperCase()}: run numbers, or settings of runs</label>
				<input
					id=${`side-${side}`}
					size="36"
					required
					value=${said[side]}
					data-find=${side === 'a' ? '' : undefined}
					onInput=${event => say({...said, [side]: event.target.value})}
					placeholder=${side === 'a' ? '12,13,14' : 'experiment_id=7,scheduler=task,threads=2'}
				/>
			</div>`
		)}
		<button class="first">Compare</button>
		${a && b && html`<a class="button" href=${link('compare', {a: b, b: a})}>Swap</a>`}
	</form>`;
}

/** Variants of the experiment that was compared last, in pairs that differ in its first axis alone. */
function Latest() {
	const last = useAnswer('overview').data?.latest.find(each => each.verdict?.b);
	const rows = useAnswer(last ? `experiments/${last.id}/variants` : null).data?.rows ?? [];
	// An address separates settings by commas, so values with commas have none.
	const variants = rows.map(row => row.variant).filter(each => !/[[,=]/.test(Object.values(each).join(' ')));
	const side = (/** @type {Record<string, unknown>} */ variant) => sideText({experiment_id: last?.id, ...variant});
	const alike = Map.groupBy(variants, each => String(Object.entries(each).slice(1)));
	const links = [...alike.values()].flatMap(([a, ...others]) =>
		others.map(
			b => html`<li>
				<a href=${link('compare', {a: side(a), b: side(b)})}>${variantName(b)} against ${variantName(a)}</a>
			</li>`
		)
	);
	return (
		links.length > 0 &&
		html`<p>Or variants of the latest comparison, <${Question} ...${last} />:</p><ul>${links.slice(0, 8)}</ul>`
	);
}

/** @param {import('../schemas').Schemas['Comparison']} of */
const doubtful = ({a, b, disturbed_runs}) =>
	mostDisturbed({runs: a.runs.length + b.runs.length, disturbed_runs: disturbed_runs ?? 0});

export default function Compare() {
	const {params} = address.value;
	const [a, b, flagged] = [params.get('a') ?? '', params.get('b') ?? '', params.get('flagged') ?? 'count'];
	const answer = useAnswer(a && b ? 'analysis/compare' : null, {a, b, flagged: flagged === 'count' ? null : flagged});
	const found = answer.data;
	const ids = found && [...found.a.runs, ...found.b.runs].slice(0, MOST_RUNS);
	const runs = useAnswer(ids ? 'runs' : null, {run: ids?.map(String), limit: MOST_RUNS});
	return html`
		<${Head} title="Compare" lead="Is B faster than A, and how sure is that?" />
		<${Asking} key=${a + b} a=${a} b=${b} />
		${a && b
			? html`<${Answered} answer=${answer} height=${420}>
					${(/** @type {import('../schemas').Schemas['Comparison']} */ of) => html`<div class="stack">
						<p class=${`verdict ${doubtful(of) ? 'undecided' : of.verdict}`}>
							<${State}
								of=${of.verdict}
								says=${of.verdict === 'undecided' ? '' : undefined}
								calm=${doubtful(of)}
							/> ${of.sentence}
							${!of.sentence.includes(of.reason) && html`<small>${of.reason}</small>`}
							${of.family?.sentence &&
							html`<small>
								${of.family.sentence}
								${' '}
								<a href=${link('experiment', {id: of.family.experiment_id})}>Experiment ${of.family.experiment_id}</a>
							</small>`}
						</p>
						<div class="columns">
							<section class="panel stack">
								<${Ratio} of=${of} />
								<${Pairs}
									of=${[
										['A', html`${variantName(of.a.variant)}: ${ms(of.a.step_s.median)}, ${plural(of.a.runs.length, 'run')}`],
										['B', html`${variantName(of.b.variant)}: ${ms(of.b.step_s.median)}, ${plural(of.b.runs.length, 'run')}`],
										...(of.n
											? [
													['test', `${of.test}, ${sample(of.n, of.unit)}, ` + (of.paired ? 'paired' : 'not paired')],
													['p', of.p_value == null ? '–' : of.p_value.toPrecision(2)],
													['probability that B is faster', number(of.superiority)]
												]
											: []),
										...(of.e_value == null ? [] : [['evidence (e-value)', number(of.e_value)]]),
										...instructionsSaid(of.instructions),
										...(of.scope ? [['scope', of.scope]] : [])
									]}
								/>
								<label>
									<input
										type="checkbox"
										checked=${flagged === 'leave-out'}
										onChange=${event => choose({flagged: event.target.checked ? 'leave-out' : null})}
									/> Exclude
									flagged steps
								</label>
							</section>
							<section class="panel">
								<${Answered} answer=${runs} height=${300}>${page => html`<${Processes} of=${of} runs=${page.items} />`}<//>
							</section>
						</div>
						${of.differs.length > 0
							? html`<${Notice} tone="warn" title="Other differences between A and B" of=${of.differs} />`
							: of.verdict !== 'refused' &&
								html`<section class="notice good">
									<span>Nothing else differs: same machine, same software, same remaining settings.</span>
								</section>`}
						<${Notice} tone="warn" title="Evidence that the values are not independent" of=${of.diagnosis} />
						<${Marks} of=${of.marks} few=${4} rest="" />
						<${Traced} key=${`${of.a.runs} ${of.b.runs}`} of=${of} runs=${runs.data?.items ?? []} />
					</div>`}
				<//>`
			: html`<${Empty}>
					<h2>No runs chosen</h2>
					<p>
						Enter runs above. Or select runs in a <a href=${link('experiments', {view: 'runs'})}>list</a> with <kbd>x</kbd>,
						then press <kbd>c</kbd>.
					</p>
					<${Latest} />
				<//>`}
	`;
}

/**
 * The timelines of the first traced run of each side.
 * @param {{of: import('../schemas').Schemas['Comparison'], runs: import('../schemas').Schemas['RunRow'][]}} props
 */
function Traced({of, runs}) {
	const [asked, ask] = useState(false);
	const traced = (/** @type {number[]} */ ids) =>
		ids.find(id => runs.some(run => run.id === id && run.traced)) ?? ids[0];
	const [a, b] = [traced(of.a.runs), traced(of.b.runs)];
	if (asked || address.value.params.has('step')) return html`<${Timelines} a=${a} b=${b} />`;
	return html`<section class="panel row">
		<button onClick=${() => ask(true)}>Show the timelines of runs ${a} and ${b}</button>
	</section>`;
}
