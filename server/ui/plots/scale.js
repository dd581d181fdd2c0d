// Scales from values to pixels, linear or logarithmic, with ticks at round values, as in analysis/report/svg.py.
import {html} from '../vendor/preact.js';

/**
 * @typedef {((value: number) => number) & {low: number, high: number, start: number, end: number,
 *   ticks: (about?: number) => number[]}} Scale
 */

/**
 * @param {number} low
 * @param {number} high
 * @param {number} start
 * @param {number} end
 * @param {number} [base] of a logarithmic scale, which ends at powers of it unless `tight`
 * @param {boolean} [tight]
 * @returns {Scale}
 */
export function scale(low, high, start, end, base = 0, tight = false) {
	if (base && !tight) {
		low = base ** Math.floor(Math.log(low) / Math.log(base) + 1e-9);
		high = Math.max(base ** Math.ceil(Math.log(high) / Math.log(base) - 1e-9), low * base);
	} else if (high <= low) high = low + (Math.abs(low) || 1);
	const place = (/** @type {number} */ value) => {
		const share = base
			? Math.log(Math.max(value, low * 1e-3) / low) / Math.log(high / low)
			: (value - low) / (high - low);
		return start + Math.min(Math.max(share, -0.02), 1.02) * (end - start);
	};
	const ticks = (about = 6) =>
		base && !(high / low < base * 2) ? powers(low, high, base, about) : rounds(low, high, about);
	return Object.assign(place, {low, high, start, end, ticks});
}

/**
 * Powers of the base; of 10 also twice and five times as much, where these few are all.
 * @param {number} low
 * @param {number} high
 * @param {number} base
 * @param {number} about
 */
function powers(low, high, base, about) {
	const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
	const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
	const stride = base === 2 ? 1 : Math.max(1, Math.ceil((last - first) / about));
	const found = Array.from(
		{length: Math.max(0, Math.floor((last - first) / stride) + 1)},
		(_, i) => base ** (first + i * stride)
	);
	if (base !== 10 || found.length > 2) return found;
	const finer = [first - 1, first, first + 1]
		.flatMap(power => [1, 2, 5].map(factor => factor * 10 ** power))
		.filter(value => value >= low && value <= high);
	return finer.length > 2 * about ? found : finer;
}

/** @param {number} low @param {number} high @param {number} about */
function rounds(low, high, about) {
	const raw = (high - low) / about;
	const unit = 10 ** Math.floor(Math.log10(raw));
	const stride = unit * /** @type {number} */ ([1, 2, 2.5, 5, 10].find(factor => unit * factor >= raw * 0.999));
	const first = Math.ceil(low / stride - 1e-9);
	const last = Math.floor(high / stride + 1e-9);
	return Array.from({length: Math.max(0, last - first + 1)}, (_, i) => (first + i) * stride);
}

/** A tick's value, short. @param {number} value */
export const plain = value =>
	Math.abs(value) < 1e4 ? String(Number(value.toPrecision(4))) : Math.round(value).toLocaleString('en-US');

export const MS = 1e3;
/** Metrics of runs: the label of an axis, and the factor to its unit. @type {Record<string, [string, number?]>} */
export const METRICS = {
	median_step_s: ['milliseconds a step', MS],
	tokens_per_s: ['tokens or images a second'],
	...Object.fromEntries(
		['data', 'forward', 'loss', 'backward', 'update'].map(phase => [`${phase}_s`, [`milliseconds a step, ${phase}`, MS]])
	),
	parallel_efficiency: ['parallel efficiency'],
	mfu: ['model-FLOP utilisation'],
	peak_rss_bytes: ['MiB, peak of the process', 2 ** -20],
	memory_bytes: ['MiB, peak of processes that compiled nothing', 2 ** -20],
	foreign_share: ['share of foreign load'],
	flagged_steps: ['flagged steps'],
	final_loss: ['loss of the last step'],
	latency_p50_s: ['milliseconds, median of steps', MS],
	latency_p99_s: ['milliseconds, 99th percentile of steps', MS],
	time_to_first_token_s: ['milliseconds to the first token', MS],
	goal_steps: ['steps to the goal'],
	goal_time_s: ['seconds to the goal'],
	goal_energy_j: ['joules to the goal'],
	duration_s: ['seconds from start to end'],
	canary_s: ['milliseconds, canary', MS],
	op_s: ['milliseconds of threads a step', MS]
};

/**
 * A text of a plot, small and soft by default.
 * @param {{children?: import('../vendor/preact.js').ComponentChildren} & Record<string, unknown>} props its attributes
 */
export const Label = ({children, ...rest}) =>
	html`<text font-size="11.5" fill="var(--soft)" ...${rest}>${children}</text>`;

/**
 * @param {{x: Scale, top: number, bottom: number, label: string, show?: (value: number) => string,
 *   about?: number}} props
 */
export function XAxis({x, top, bottom, label, show = plain, about = 6}) {
	return html`<g>
		${x
			.ticks(about)
			.map(
				tick => html`<g key=${tick}>
					<path d=${`M${x(tick).toFixed(1)} ${top}V${bottom}`} stroke="var(--line)" />
					<${Label} x=${x(tick)} y=${bottom + 15} text-anchor="middle" font-size="11">${show(tick)}<//>
				</g>`
			)}
		<${Label} x=${(x.start + x.end) / 2} y=${bottom + 31} text-anchor="middle">${label}<//>
	</g>`;
}

/**
 * @param {{y: Scale, left: number, right: number, label: string, show?: (value: number) => string,
 *   about?: number}} props
 */
export function YAxis({y, left, right, label, show = plain, about = 6}) {
	return html`<g>
		${y
			.ticks(about)
			.map(
				tick => html`<g key=${tick}>
					<path d=${`M${left} ${y(tick).toFixed(1)}H${right}`} stroke="var(--line)" />
					<${Label} x=${left - 7} y=${y(tick) + 4} text-anchor="end" font-size="11">${show(tick)}<//>
				</g>`
			)}
		<${Label} transform="rotate(-90)" x=${-(y.start + y.end) / 2} y="13" text-anchor="middle">${label}<//>
	</g>`;
}

/**
 * Where a plot ends at the right, and where the names of its lines begin: beside it or, if it is narrow, below it.
 * @param {number} width
 * @param {number} height of the plot
 */
export const beside = (width, height) => {
	const right = width < 520 ? width - 14 : Math.max(width * 0.55, width - 230);
	return width < 520 ? {right, at: 12, from: height} : {right, at: right + 12, from: 0};
};

/**
 * A horizontal interval with end marks, and its centre.
 * @param {{x: Scale, y: number, low?: number | null, middle: number, high?: number | null, colour: string,
 *   says: string, r?: number}} props
 */
export function Dot({x, y, low, middle, high, colour, says, r = 4.5}) {
	return html`<g>
		${low != null &&
		high != null &&
		html`<path
			d=${`M${x(low).toFixed(1)} ${y}H${x(high).toFixed(1)}` +
			`M${x(low).toFixed(1)} ${y - 4}v8M${x(high).toFixed(1)} ${y - 4}v8`}
			stroke=${colour}
			stroke-width="1.8"
			fill="none"
		/>`}
		<circle cx=${x(middle)} cy=${y} r=${r} fill=${colour} />
		<circle cx=${x(middle)} cy=${y} r="11" fill="transparent"><title>${says}</title></circle>
	</g>`;
}

export const OTHERS = ['--series-1', '--series-2', '--series-3', '--series-4'];
/** @param {string} scheduler */
export function schedulerColour(scheduler) {
	if (['serial', 'fork-join', 'task'].includes(scheduler)) return `var(--${scheduler})`;
	let sum = 0;
	for (const letter of scheduler) sum += letter.charCodeAt(0);
	return `var(${OTHERS[sum % OTHERS.length]})`;
}

/** The kind of an op, which gives its colour, as in analysis/report/plots.py. @param {string} op */
export function opKind(op) {
	/** @type {[string[], string][]} */
	const kinds = [
		[['attention', 'cross_attention', 'pointer_sum'], 'attention'],
		[['qkv', 'projection', 'fc', 'logits', 'gates_in', 'recurrence', 'combine', 'match', 'conv'], 'products'],
		[['gelu', 'relu', 'tanh', 'residual', 'layernorm', 'pool'], 'elementwise'],
		[['adamw', 'sgd', 'update'], 'update-op'],
		[['cross_entropy', 'pointer_loss', 'mean_loss', 'mean_accuracy', 'end_at_goal'], 'loss-op']
	];
	return kinds.find(([starts]) => starts.some(start => op.startsWith(start)))?.[1] ?? 'other-op';
}
export const OP_KINDS = /** @type {[string, string][]} */ ([
	['products', 'matrix products'],
	['attention', 'attention'],
	['elementwise', 'elementwise'],
	['loss-op', 'loss'],
	['update-op', 'update'],
	['other-op', 'other']
]);
