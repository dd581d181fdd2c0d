// Plots of an experiment's variants: dots with intervals, ratios, speedups.
import {html} from '../vendor/preact.js';
import {
	count,
	ms,
	percent,
	plural,
	ratio,
	round,
	settingsName,
	valueName,
	variantName,
	verbOf,
	words
} from '../format.js';
import {Plot} from './plot.js';
import {Names, ROW, leftOf, nameOf} from './rows.js';
import {Dot, Label, XAxis, YAxis, beside, scale, schedulerColour} from './scale.js';

/** @typedef {import('../schemas').Schemas['ScalingRow']} ScalingRow */
/**
 * A comparison of a sweep, of whichever kind. named: both sides in words, of a question across the sweep's axis.
 * @typedef {{a: unknown, b: unknown, ratio: number | null, ratio_low: number | null, ratio_high: number | null,
 *   p_adjusted: number | null, verdict: string, unit: string, why?: import('../schemas').Schemas['Reason'] | undefined,
 *   at?: Record<string, unknown>, primary?: boolean, axis?: string | null, named?: string[], n?: number,
 *   pairs?: number, places?: number, threads?: number, op_order?: string | null, orders?: unknown[],
 *   reason?: string | null, scope?: string}} Compared
 */

/**
 * Each variant's median step with its interval; the median of each run as a small dot.
 * @param {{rows: ScalingRow[], runs: import('../schemas').Schemas['RunRow'][], all: number}} props runs: some of all
 */
export function Medians({rows, runs, all}) {
	const names = rows.map(nameOf);
	const key = (/** @type {Record<string, unknown>} */ variant) => JSON.stringify(Object.entries(variant).sort());
	const places = new Map(rows.map((row, i) => [key(row.variant), i]));
	const dots = runs.flatMap(({id, median_step_s, variant}) =>
		median_step_s !== null && places.has(key(variant)) ? [{id, median_step_s, variant}] : []
	);
	const every = [
		...rows.flatMap(row => [row.step_s.low ?? row.step_s.median, row.step_s.high ?? row.step_s.median]),
		...dots.map(run => run.median_step_s)
	];
	const [low, high] = [Math.min(...every), Math.max(...every)];
	const wide = high / low > 20;
	const draw = (/** @type {number} */ width) => {
		const left = leftOf(width, names);
		const bottom = 8 + ROW * rows.length;
		const x = scale(
			(wide ? low : Math.max(0, low - (high - low) * 0.06)) * 1e3,
			(high + (wide ? 0 : (high - low) * 0.06)) * 1e3,
			left,
			width - 14,
			wide ? 10 : 0
		);
		return {
			height: bottom + 40,
			parts: html`
				<${XAxis} x=${x} top=${4} bottom=${bottom} label="milliseconds a step" about=${Math.max(3, width / 130)} />
				<${Names} names=${names} left=${left} top=${4} />
				${dots.map(
					run => html`<circle
						key=${run.id}
						cx=${x(run.median_step_s * 1e3)}
						cy=${4 + ROW * /** @type {number} */ (places.get(key(run.variant))) + 12}
						r="2.2"
						fill="var(--edge)"
						fill-opacity=".75"
					>
						<title>run ${run.id}: ${ms(run.median_step_s)}</title>
					</circle>`
				)}
				${rows.map(
					(row, i) => html`<${Dot}
						key=${i}
						x=${x}
						y=${4 + ROW * i + 12}
						low=${row.step_s.low === null ? null : row.step_s.low * 1e3}
						middle=${row.step_s.median * 1e3}
						high=${row.step_s.high === null ? null : row.step_s.high * 1e3}
						colour=${schedulerColour(row.scheduler)}
						says=${`${names[i]}: ${ms(row.step_s.median)}` +
						(row.step_s.low === null ? '' : ` [${ms(row.step_s.low)}, ${ms(row.step_s.high)}]`)}
					/>`
				)}
			`
		};
	};
	const schedulers = [...new Set(rows.map(row => row.scheduler))];
	return html`<${Plot}
		title="Median step"
		name="median-step"
		draw=${draw}
		rows=${rows}
		legend=${schedulers.map(each => [schedulerColour(each), each])}
		said=${'Large dots: median over processes with its 95 % interval, if there are enough processes. ' +
		`Small dots: each process${runs.length < all ? `, ${count(runs.length)} of ${count(all)} runs shown` : ''}.`}
		fields=${[
			{label: 'variant', value: nameOf},
			{label: 'median_step_ms', value: r => round(r.step_s.median * 1e3)},
			{label: 'low_ms', value: r => r.step_s.low && round(r.step_s.low * 1e3)},
			{label: 'high_ms', value: r => r.step_s.high && round(r.step_s.high * 1e3)},
			{label: 'processes', value: r => r.step_s.n},
			{label: 'tokens_per_s', value: r => Math.round(r.tokens_per_s)}
		]}
	/>`;
}

/**
 * Both sides of a comparison in words, in the order of its ratio. The question may lie across the sweep's axis.
 * @param {string | null} axis @param {Compared} row
 */
export const namesOf = (axis, row) => row.named ?? [valueName(axis ?? '', row.a), valueName(axis ?? '', row.b)];

/** @param {string | null} axis @param {Compared} row */
const ratioOf = (axis, row) => namesOf(axis, row).join(' / ');

/**
 * All comparisons of a sweep; the question first if it lies across the axis.
 * @param {import('../schemas').Schemas['Sweep']} sweep
 * @returns {Compared[]}
 */
export const comparisons = ({primary, rows, pooled, verdict, against_faster = []}) => [
	...(primary && !rows.some(row => row.primary)
		? [
				{
					...primary,
					named: primary.axis
						? [valueName(primary.axis, primary.a), valueName(primary.axis, primary.b)]
						: [verdict?.a ?? '–', verdict?.b ?? '–']
				}
			]
		: []),
	...against_faster,
	...pooled,
	...rows
];

/** Where a comparison lies, in words. @param {Compared} row */
export const placeOf = row =>
	row.places
		? (row.orders ? `the faster by ${row.op_order ?? '–'}, ` : '') +
			(row.places > 1 ? `all ${row.places} places, ` : '') +
			(row.op_order && !row.orders ? `by ${row.op_order}, ` : '') +
			(row.at && Object.keys(row.at).length
				? settingsName({...row.at, threads: row.threads})
				: plural(Number(row.threads), 'thread'))
		: (row.primary ? 'the question: ' : '') + settingsName(row.at);

/**
 * What the comparisons of a sweep have in common: both values in words; "first" and "second" if they vary.
 * @param {string | null} axis
 * @param {Compared[]} rows
 */
export function sidesOf(axis, rows) {
	const same = rows.every(row => ratioOf(axis, row) === ratioOf(axis, rows[0]));
	return same ? namesOf(axis, rows[0]) : ['first', 'second'];
}

/** @param {string | null | undefined} axis @param {Compared} row @param {'a' | 'b'} side */
const sideColour = (axis, row, side) => (axis === 'scheduler' ? schedulerColour(String(row[side])) : 'var(--accent)');

/** What the grey band of ratios is. @param {number} floor */
export const floorSaid = floor => `Grey band: the noise floor of ${percent(floor)}, declared beforehand.`;

/**
 * Draws ratios of times in rows, over the noise floor.
 * @param {{rows: {name: string, ratio: number, ratio_low?: number | null, ratio_high?: number | null, colour: string,
 *   says: string, r?: number}[], floor: number, label: string, faster: string[], inks?: string[]}} props
 *   faster: which side is faster, below 1 and above
 */
export const ratios =
	({rows, floor, label, faster, inks = []}) =>
	(/** @type {number} */ width) => {
		const ends = rows.flatMap(row => [row.ratio, row.ratio_low ?? row.ratio, row.ratio_high ?? row.ratio]);
		const reach = Math.max(1 + floor * 2, ...ends.map(end => Math.max(end, 1 / end))) ** 1.06;
		const names = rows.map(row => row.name);
		const left = leftOf(width, names);
		const bottom = 8 + ROW * rows.length;
		const x = scale(1 / reach, reach, left, width - 14, 10, true);
		const [from, to] = [x(1 / (1 + floor)), x(1 + floor)];
		// Below the names of the rows only where the axis is too short for both labels.
		const first = faster.join('').length * 6.4 + 42 < width - left ? left : 2;
		return {
			height: bottom + 56,
			parts: html`
				<rect x=${from} y="4" width=${to - from} height=${bottom - 4} fill="var(--raised)">
					<title>noise floor: ${percent(floor)}</title>
				</rect>
				<${XAxis} x=${x} top=${4} bottom=${bottom} label=${label} about=${Math.max(3, width / 160)} />
				<path d=${`M${x(1)} 4V${bottom}`} stroke="var(--ink)" stroke-width="1.4" />
				<${Names} names=${names} left=${left} top=${4} />
				${[0, 1].map(
					i => html`<${Label}
						key=${i}
						x=${i ? width - 2 : first}
						y=${bottom + 48}
						text-anchor=${i ? 'end' : 'start'}
						fill=${inks[i] ?? 'var(--soft)'}
						font-weight="600"
					>
						${i ? `${faster[1]} →` : `← ${faster[0]}`}
					<//>`
				)}
				${rows.map(
					(row, i) => html`<${Dot}
						key=${i}
						x=${x}
						y=${4 + ROW * i + 12}
						low=${row.ratio_low}
						middle=${row.ratio}
						high=${row.ratio_high}
						r=${row.r}
						colour=${row.colour}
						says=${`${row.name}: ${ratio(row.ratio, row.ratio_low, row.ratio_high)}${row.says}`}
					/>`
				)}
			`
		};
	};

/**
 * The ratios of a sweep, over the noise floor. Above 1, the second is faster.
 * @param {{sweep: import('../schemas').Schemas['Sweep']}} props of /analysis/sweep
 */
export function Ratios({sweep}) {
	const rows = comparisons(sweep).flatMap(row =>
		row.ratio === null ? [] : [{...row, ratio: row.ratio, name: placeOf(row), pooled: Boolean(row.places)}]
	);
	if (!rows.length) return null;
	const [first, second] = sidesOf(sweep.axis, rows);
	const same = first !== 'first';
	const axisOf = (/** @type {Compared} */ row) => (row.named ? row.axis : sweep.axis);
	const faster = (/** @type {'a' | 'b'} */ side) => {
		// null: the names of several settings are too long for a label.
		const axis = axisOf(rows[0]);
		const [name, place] = side === 'a' ? [first, 'first'] : [second, 'second'];
		return same && axis ? `${name} ${verbOf(axis, rows[0][side])} faster` : `the ${place} is faster`;
	};
	const floor = sweep.noise_floor;
	const draw = ratios({
		rows: rows.map(row => ({
			...row,
			name: same ? row.name : `${ratioOf(sweep.axis, row)}, ${row.name}`,
			r: row.pooled ? 6 : 4.5,
			colour:
				row.verdict === 'undecided' || row.verdict === 'same'
					? 'var(--edge)'
					: sideColour(axisOf(row), row, row.ratio > 1 ? 'b' : 'a'),
			says: `, ${row.verdict}`
		})),
		floor,
		label: `${first} time / ${second} time`,
		faster: [faster('a'), faster('b')],
		inks: same ? [sideColour(axisOf(rows[0]), rows[0], 'a'), sideColour(axisOf(rows[0]), rows[0], 'b')] : []
	});
	return html`<${Plot}
		title=${same ? `${second} against ${first}` : `Along ${words(sweep.axis ?? '')}`}
		name="ratios"
		draw=${draw}
		rows=${rows}
		said=${`${same ? first : 'First'} time / ${second} time` +
		(rows.some(row => row.ratio_low != null) ? ' with its 95 % interval; ' : '; ') +
		`above 1: ${faster('b')}. ` +
		`${floorSaid(floor)} Grey dots: undecided or equivalent.`}
		fields=${[
			{label: 'where', value: r => r.name},
			'a',
			'b',
			'verdict',
			{label: 'ratio', value: r => round(r.ratio)},
			{label: 'low', value: r => round(r.ratio_low)},
			{label: 'high', value: r => round(r.ratio_high)},
			'p_adjusted',
			{label: 'n', value: r => r.n ?? r.pairs}
		]}
	/>`;
}

/** What the names of a part's speedups end with. @type {Record<string, '' | '_forward' | '_backward'>} */
const PARTS = {step: '', forward: '_forward', backward: '_backward'};
const DASHES = ['', '7 4', '2 3', '10 3 2 3', '4 2'];

/**
 * Speedup against one thread of the same scheduler and slices, beside ideal scaling: a panel for each part of a step,
 * all with the same axes, so that they can be compared.
 * @param {{rows: ScalingRow[]}} props
 */
export function Speedups({rows}) {
	const points = Object.entries(PARTS).flatMap(([part, end]) =>
		rows.flatMap(row => {
			const {threads, ...rest} = {...row.variant, threads: row.threads};
			const speedup = row[`speedup${end}`];
			const [low, high] = [row[`speedup${end}_low`], row[`speedup${end}_high`]];
			const point = {row, part, threads, line: variantName(rest), low, high, efficiency: row[`efficiency${end}`]};
			return speedup === null ? [] : [{...point, speedup}];
		})
	);
	const parts = [...new Set(points.filter(point => point.threads > 1).map(point => point.part))];
	if (!parts.length) return null;
	const threads = [...new Set(points.map(point => point.threads))];
	const most = Math.max(...threads);
	const top = 1.08 * Math.max(most, ...points.map(point => point.high ?? point.speedup));
	const lines = [...Map.groupBy(points, point => point.line)].map(([name, those], i) => ({
		name,
		those,
		ink: {stroke: schedulerColour(those[0].row.scheduler), fill: 'none'},
		dash: {'stroke-width': 2, 'stroke-dasharray': DASHES[i % DASHES.length]}
	}));
	const draw = (/** @type {number} */ width) => {
		const across = Math.max(1, Math.min(parts.length, Math.floor(width / 330)));
		// Panels below each other are low, so that all of them are seen at once.
		const high = across < parts.length ? 190 : 300;
		const below = high * Math.ceil(parts.length / across);
		const {right, at, from} = beside(width, below);
		const end = right / across - 14;
		const bottom = high - 44;
		const x = Object.assign(scale(1, most, 52, end), {ticks: () => threads});
		const y = scale(0, top, bottom, 26);
		return {
			height: Math.max(below, from + 60 + 17 * lines.length),
			parts: html`
				${parts.map(
					(part, i) => html`<g
						key=${part}
						transform=${`translate(${(i % across) * (end + 14)} ${Math.floor(i / across) * high})`}
					>
						<${Label} x="52" y="14" font-weight="600">${part}<//>
						<${YAxis} y=${y} left=${52} right=${end} label="speedup" about=${high / 50} />
						<${XAxis} x=${x} top=${26} bottom=${bottom} label="threads" />
						<path
							d=${`M${x(1)} ${y(1)}L${x(most)} ${y(most)}`}
							stroke="var(--soft)"
							stroke-dasharray="2 3"
							stroke-width="1.4"
						/>
						${lines.map(({name, those, ink, dash}, j) => {
							const own = those.filter(point => point.part === part);
							const shift = (j - lines.length / 2) * 5 - 17;
							return html`<g key=${name}>
								<polyline
									points=${own.map(point => `${x(point.threads)},${y(point.speedup)}`).join(' ')}
									...${ink}
									...${dash}
								/>
								${own.map(
									({threads, speedup, low, high}) => html`<g key=${threads}>
										${threads > 1 &&
										low !== null &&
										high !== null &&
										html`<path d=${`M${x(threads) + shift} ${y(low)}h6m-3 0V${y(high)}m-3 0h6`} ...${ink} />`}
										<circle cx=${x(threads)} cy=${y(speedup)} r="3.6" fill=${ink.stroke}>
											<title>${name}, ${plural(threads, 'thread')}, ${part}: ${ratio(speedup, low, high)}</title>
										</circle>
									</g>`
								)}
							</g>`;
						})}
					</g>`
				)}
				<${Label} x=${at} y=${from + 20}>dotted: ideal<//>
				${lines.map(
					({name, ink, dash}, i) => html`<g key=${name}>
						<path d=${`M${at} ${from + 38 + 17 * i}h22`} ...${ink} ...${dash} />
						<${Label} x=${at + 28} y=${from + 42 + 17 * i} fill="var(--ink)">${name}<//>
					</g>`
				)}
			`
		};
	};
	return html`<section class="panel">
		<${Plot}
			title="Speedup"
			name="speedup"
			draw=${draw}
			rows=${points}
			said="Time with one thread / time with these threads, same scheduler and slices. Bars: 95 % intervals."
			fields=${[
				'part',
				{label: 'variant', value: p => nameOf(p.row)},
				'threads',
				{label: 'speedup', value: p => round(p.speedup)},
				'low',
				'high',
				'efficiency'
			]}
		/>
	</section>`;
}
