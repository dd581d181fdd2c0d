// Charts by choice: any metric of runs against any setting or metric. The URL holds every choice.
import {html, useEffect, useState} from '../vendor/preact.js';
import {address} from '../address.js';
import {asProblem, request} from '../api.js';
import {useAnswer} from '../answers.js';
import {count, median, number, setting, words} from '../format.js';
import {Choice, Empty, Refused, Skeleton} from '../pieces.js';
import {Plot} from './plot.js';
import {Label, METRICS, OTHERS, XAxis, YAxis, plain, scale, schedulerColour} from './scale.js';

/** @typedef {import('../api.js').Problem} Problem */
/** @typedef {import('../schemas').Schemas['VariantRow'][]} Variants */

/** @typedef {Record<string, unknown>} Run a row of the export of runs, or settings */

// Runs of a chart.
const MOST = 20_000;
const PALETTE = [...OTHERS, '--task', '--fork-join', '--serial'];
const EVERY = 'every setting';
const NONE = 'none';
// Metrics that the export reads from the results' digests, so only if one is chosen.
const MEASURED = ['parallel_efficiency', 'mfu', 'peak_rss_bytes', 'foreign_share'];
// Metrics of a series' history, which the export does not have.
const HISTORY = ['memory_bytes', 'canary_s', 'op_s'];
const KNOWN = Object.keys(METRICS).filter(name => !HISTORY.includes(name));
const BEST_SHARE = 0.1;

/** A name in words, without the seconds that the axis states in its own unit. @param {string} name */
const titled = name => words(name.replace(/(?<!per)_s$/, ''));

/** A metric of a run that has it. @param {Run} run @param {string} name */
const metricOf = (run, name) => /** @type {number} */ (run[name]);

/** Rows of an export, as far as MOST. @param {import('../address.js').Params} params */
async function rowsOf(params) {
	const {body} = await request('exports/runs', {params: {...params, format: 'ndjson', sort: '-id'}});
	const reader = /** @type {ReadableStream} */ (body).pipeThrough(new TextDecoderStream()).getReader();
	const rows = /** @type {Run[]} */ ([]);
	for (let rest = ''; rows.length < MOST;) {
		const {done, value} = await reader.read();
		if (done) return rows;
		const lines = (rest + value).split('\n');
		rest = lines.pop() ?? '';
		for (const line of lines) rows.push(JSON.parse(line));
	}
	void reader.cancel();
	return rows.slice(0, MOST);
}

/**
 * Rows by the value of a function, in the order of the values.
 * @template T @param {T[]} rows @param {(row: T) => unknown} by @returns {[unknown, T[]][]}
 */
function grouped(rows, by) {
	const found = /** @type {Map<string, [unknown, T[]]>} */ (new Map());
	for (const row of rows) {
		const value = by(row);
		const known = found.get(setting(value));
		if (known) known[1].push(row);
		else found.set(setting(value), [value, [row]]);
	}
	return [...found.values()].sort(([a], [b]) => {
		const [x, y] = [setting(a), setting(b)];
		return Number(x) - Number(y) || x.localeCompare(y, 'en', {numeric: true});
	});
}

/**
 * A scale of the values of a column: numbers, logarithmic where they are far apart, or places in their order.
 * @param {string} name @param {Run[]} rows @param {number} from @param {number} to
 */
function axisOf(name, rows, from, to) {
	const [label = words(name), factor = 1] = METRICS[name] ?? [];
	if (name in METRICS) {
		const values = rows.map(row => metricOf(row, name) * factor);
		const [low, high] = [Math.min(...values), Math.max(...values)];
		const wide = low > 0 && high / low > 20;
		const rim = wide ? 0 : (high - low || Math.abs(high) || 1) * 0.05;
		const made = scale(low - rim, high + rim, from, to, wide ? 10 : 0);
		return {label, place: (/** @type {Run} */ row) => made(metricOf(row, name) * factor), made, show: plain};
	}
	const kinds = grouped(rows, row => row[name]).map(([value]) => setting(value));
	const made = scale(-0.5, kinds.length - 0.5, from, to);
	const ticks = Object.assign((/** @type {number} */ i) => made(i), made, {ticks: () => [...kinds.keys()]});
	return {
		label,
		place: (/** @type {Run} */ row) => made(kinds.indexOf(setting(row[name]))),
		made: ticks,
		show: (/** @type {number} */ i) => kinds[i]
	};
}

/**
 * Parallel coordinates: an axis for each column, a line for each row.
 * @template {Run} Row
 * @param {{columns: string[], rows: Row[], ink: (row: Row) => [string, number], says: (row: Row) => string,
 *   width: number}} props ink: colour and width of a line
 */
export function coordinates({columns, rows, ink, says, width}) {
	const [top, bottom] = [40, 330];
	const room = Math.min(70, width / 8);
	const place = (/** @type {number} */ i) => room + (i * (width - 2 * room)) / Math.max(1, columns.length - 1);
	const anchor = (/** @type {number} */ i) => (i + 1 < columns.length ? 'middle' : 'end');
	const axes = columns.map(name => axisOf(name, rows, bottom, top));
	return {
		height: bottom + 12,
		parts: html`
			${rows.map((row, i) => {
				const [stroke, wide] = ink(row);
				return html`<path
					key=${i}
					d=${`M${axes.map((axis, j) => `${place(j).toFixed(1)} ${axis.place(row).toFixed(1)}`).join('L')}`}
					fill="none"
					stroke=${stroke}
					stroke-width=${wide}
				>
					<title>${says(row)}</title>
				</path>`;
			})}
			${axes.map(
				({label, made, show}, i) => html`<g key=${i}>
					<path d=${`M${place(i)} ${top}V${bottom}`} stroke="var(--soft)" />
					<${Label} x=${place(i)} y=${12 + 16 * (i % 2)} text-anchor=${anchor(i)} font-weight="600">${label}<//>
					${made
						.ticks(6)
						.map(
							tick => html`<${Label} key=${tick} x=${place(i) + 5} y=${made(tick) + 4} fill="var(--ink)">${show(tick)}<//>`
						)}
				</g>`
			)}
		`
	};
}

/**
 * Runs as dots, in a panel for each value of a setting; medians where the horizontal axis is a setting.
 * @param {{runs: Run[], x: string, y: string, colour: string, facet: string, colourOf: (value: unknown) => string,
 *   interval: (runs: Run[]) => [number, number] | null, width: number}} props
 */
function panels({runs, x, y, colour, facet, colourOf, interval, width}) {
	const parts = grouped(runs, run => facet && run[facet]);
	const across = Math.max(1, Math.min(parts.length, Math.floor(width / 300)));
	const [wide, high] = [width / across, 300];
	const [top, bottom, left] = [26, high - 44, 70];
	const factor = METRICS[y]?.[1] ?? 1;
	const isSetting = !(x in METRICS);
	return {
		height: Math.ceil(parts.length / across) * high,
		parts: parts.map(([value, rows], i) => {
			const along = axisOf(x, runs, left, wide - 12);
			// Panels have the same axes, so that they can be compared.
			const up = axisOf(y, runs, bottom, top);
			return html`<g key=${i} transform=${`translate(${(i % across) * wide} ${Math.floor(i / across) * high})`}>
				${facet && html`<${Label} x=${left} y="14" font-weight="600">${words(facet)} ${setting(value)}<//>`}
				<${YAxis} y=${up.made} left=${left} right=${wide - 12} label=${up.label} />
				<${XAxis} x=${along.made} top=${top} bottom=${bottom} label=${along.label} show=${along.show} about=${wide / 90} />
				${grouped(rows, run => colour && run[colour]).map(([of, own], j, all) => {
					const ink = colourOf(of);
					const shift = isSetting ? (j - (all.length - 1) / 2) * 7 : 0;
					const middles = (isSetting ? grouped(own, run => run[x]) : []).map(([, each]) => {
						const middle = factor * /** @type {number} */ (median(each.map(run => metricOf(run, y))));
						return {
							at: along.place(each[0]) + shift,
							y: up.made(middle),
							says: `${setting(of)} median of ${each.length}: ${number(middle, 4)}`,
							ends: interval(each)?.map(end => up.made(end * factor))
						};
					});
					return html`<g key=${j} stroke=${ink} fill="none" stroke-width="1.6">
						${own.map(
							run => html`<circle
								key=${run['run_id']}
								cx=${along.place(run) + shift}
								cy=${up.place(run)}
								r="2.4"
								stroke="none"
								fill=${ink}
								fill-opacity=".5"
							>
								<title>run ${run['run_id']}: ${number(metricOf(run, y) * factor, 4)}</title>
							</circle>`
						)}
						${typeof own[0][x] === 'number' &&
						html`<polyline points=${middles.map(each => `${each.at},${each.y}`).join(' ')} />`}
						${middles.map(
							({at, y, says, ends}) => html`<g key=${at}>
								${ends && html`<path d=${`M${at - 3} ${ends[0]}h6m-3 0V${ends[1]}m-3 0h6`} />`}
								<circle cx=${at} cy=${y} r="4.2" fill=${ink}><title>${says}</title></circle>
							</g>`
						)}
					</g>`;
				})}
			</g>`;
		})
	};
}

/** A line for each combination of settings, the best in colour. @param {Run[]} runs @param {string[]} names
 * @param {string} y @param {number} width */
function combinations(runs, names, y, width) {
	const sign = /_per_s|efficiency|mfu/.test(y) ? -1 : 1;
	const rows = grouped(runs, run => JSON.stringify(names.map(name => run[name])))
		.map(([, each]) => ({...each[0], [y]: /** @type {number} */ (median(each.map(run => metricOf(run, y))))}))
		.sort((/** @type {Run} */ a, /** @type {Run} */ b) => sign * (metricOf(b, y) - metricOf(a, y)));
	const best = new Set(/** @type {Run[]} */ (rows).slice(-Math.ceil(rows.length * BEST_SHARE)));
	return coordinates({
		columns: [...names, y],
		rows,
		ink: row => (best.has(row) ? ['var(--accent)', 2] : ['var(--line)', 1.3]),
		says: row => [...names, y].map(name => `${words(name)} ${setting(row[name])}`).join(', '),
		width
	});
}

/**
 * @param {{source: import('../address.js').Params, settings: string[], variants?: Variants, version?: unknown}} props
 *   source: filters of runs; settings: columns of the export; variants: rows of
 *   /experiments/{id}/variants, for intervals; version: of the runs, which are loaded again when it changes
 */
export function Chart({source, settings, variants = [], version}) {
	const {params} = address.value;
	const [found, show] = useState(/** @type {{of: string, rows?: Run[], problem?: Problem}} */ ({of: ''}));
	const columns = [
		...new Set([
			'run_id',
			...KNOWN.filter(name => !MEASURED.includes(name) || [params.get('x'), params.get('y')].includes(name)),
			...settings,
			'commit',
			'trainer_commit'
		])
	];
	const query = {...source, columns: columns.join(',')};
	const of = JSON.stringify(query);
	useEffect(() => {
		let current = true;
		rowsOf(query).then(
			rows => current && show({of, rows}),
			error => current && show({of, problem: asProblem(error, 'The runs cannot be read')})
		);
		return () => {
			current = false;
		};
	}, [of, version]);
	if (found.of !== of) return html`<${Skeleton} height=${340} />`;
	if (!found.rows) return html`<${Refused} problem=${/** @type {Problem} */ (found.problem)} />`;
	const all = found.rows;
	if (!all.some(run => run['median_step_s'] !== null))
		return html`<${Empty}><p>No run of this selection has a result.</p><//>`;
	const names = columns.filter(
		name => !(name in METRICS) && name !== 'run_id' && grouped(all, run => run[name]).length > 1
	);
	const metrics = KNOWN.filter(name => MEASURED.includes(name) || all.some(run => run[name] !== null));
	/** A choice of the URL, if it is possible. @param {string} name @param {string[]} among @param {string} or */
	const given = (name, among, or) => among.find(each => each === params.get(name)) ?? or;
	const y = given('y', metrics, 'median_step_s');
	const usual = names.length > 3 ? EVERY : names.includes('threads') ? 'threads' : (names[0] ?? 'duration_s');
	const x = given('x', [EVERY, ...names, ...metrics], usual);
	const picked = given(
		'colour',
		[NONE, ...names],
		names.includes('scheduler') && x !== 'scheduler' ? 'scheduler' : NONE
	);
	const colour = picked === NONE ? '' : picked;
	const facet = given('facet', names, '');
	const runs = all.filter(run => run[y] !== null && (!(x in METRICS) || run[x] !== null));
	const kinds = colour ? grouped(runs, run => run[colour]).map(([value]) => setting(value)) : [];
	const colourOf = (/** @type {unknown} */ value) =>
		colour === 'scheduler'
			? schedulerColour(setting(value))
			: `var(${colour ? PALETTE[kinds.indexOf(setting(value)) % PALETTE.length] : '--accent'})`;
	const variantOf = (/** @type {Run} */ row) => JSON.stringify(settings.map(name => setting(row[name])));
	const known = new Map(variants.map(row => [variantOf(row.variant), row]));
	/** The interval of runs that are one variant. @param {Run[]} group @returns {[number, number] | null} */
	const interval = group => {
		const row = known.get(variantOf(group[0]));
		return y === 'median_step_s' && row?.low != null && row.high !== null && new Set(group.map(variantOf)).size === 1
			? [row.low, row.high]
			: null;
	};
	const options = (/** @type {string[]} */ among) => among.map(name => [name, titled(name)]);
	const every = x === EVERY;
	return html`<section class="panel">
		<div class="filters">
			<${Choice} name="y" label="Vertical" value=${y} options=${options(metrics)} />
			<${Choice} name="x" label="Horizontal" value=${x} options=${options([EVERY, ...names, ...metrics])} />
			${!every &&
			html`
				<${Choice} name="colour" label="Colour" value=${picked} options=${options([NONE, ...names])} />
				<${Choice} name="facet" label="Panels" value=${facet} options=${[['', 'one'], ...options(names)]} />
			`}
		</div>
		<${Plot}
			title=${`${titled(y)} by ${titled(x)}`}
			name="chart"
			draw=${(/** @type {number} */ width) =>
				every ? combinations(runs, names, y, width) : panels({runs, x, y, colour, facet, colourOf, interval, width})}
			rows=${runs}
			legend=${colour && !every ? kinds.map(value => [colourOf(value), value]) : undefined}
			said=${(every
				? 'A line for each combination of settings: its median over runs. In colour: the best tenth, without intervals.'
				: 'Small dots: runs.' +
					(x in METRICS ? '' : ' Large dots: medians of the runs at one place.') +
					(known.size && !(x in METRICS) && y === 'median_step_s'
						? ' Bars: 95 % intervals, where a dot is one variant with enough runs.'
						: '')) +
			(kinds.length > PALETTE.length ? ' Colours repeat.' : '') +
			` ${count(runs.length)} of ${count(all.length)}${all.length === MOST ? ' or more' : ''} runs have these values.`}
			fields=${[...new Set(['run_id', y, ...(every ? names : [x]), ...[colour, facet].filter(Boolean)])]}
		/>
	</section>`;
}

/** The runs of an experiment. @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function ChartOf({of, topic}) {
	const table = useAnswer(`experiments/${of.id}/variants`, {}, {follow: topic});
	if (!table.data) return html`<${Skeleton} height=${340} />`;
	const settings = [...new Set(table.data.rows.flatMap(row => Object.keys(row.variant)))];
	return html`<${Chart}
		source=${{experiment_id: of.id}}
		settings=${settings}
		variants=${table.data.rows}
		version=${of.by_state.succeeded}
	/>`;
}
