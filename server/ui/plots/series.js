// Line plots over steps or runs. With more values than pixels, each pixel shows its smallest and its largest value.
import {html, useState} from '../vendor/preact.js';
import {ms} from '../format.js';
import {Plot} from './plot.js';
import {XAxis, YAxis, plain, scale} from './scale.js';

/**
 * @typedef {{label: string, token: string, values: (number | null)[], kind?: 'line' | 'area' | 'points',
 *   dash?: string, show?: (value: number) => string, legend?: (number | null)[]}} Series
 * legend: the values in the legend, if they differ from the drawn ones
 */
const LEFT = 54;

/**
 * A line's path; a null is a gap.
 * @param {(number | null)[]} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function path(values, x, y) {
	let drawn = '';
	let down = false;
	let pixel = NaN;
	let [least, most] = [0, 0];
	values.forEach((value, i) => {
		if (value === null) {
			down = false;
			pixel = NaN;
			return;
		}
		const at = x(i);
		if (Math.round(at) === pixel && down) {
			if (value >= least && value <= most) return;
			[least, most] = [Math.min(least, value), Math.max(most, value)];
		} else {
			pixel = Math.round(at);
			[least, most] = [value, value];
		}
		drawn += `${down ? 'L' : 'M'}${at.toFixed(1)} ${y(value).toFixed(1)}`;
		down = true;
	});
	return drawn;
}

/**
 * @param {{title: string, name: string, said?: import('../vendor/preact.js').ComponentChildren,
 *   fields: import('./plot.js').Field<unknown>[], rows: unknown[], x: number[], xLabel: string, yLabel: string,
 *   series: Series[], height?: number, href?: (i: number) => string, zero?: boolean,
 *   xShow?: (value: number) => string, xWhole?: boolean}} props
 * series: drawn on top of each other; areas start at zero. href: the target of a click. xShow: the text of a place on
 * the axis; xWhole: only whole numbers have one.
 */
export function Lines({
	title,
	name,
	said,
	fields,
	rows,
	x,
	xLabel,
	yLabel,
	series,
	height = 260,
	href,
	zero = false,
	xShow,
	xWhole = true
}) {
	const [at, setAt] = useState(-1);
	const known = series.flatMap(each => each.values.filter(value => value !== null));
	const low = zero || series.some(each => each.kind === 'area') ? 0 : Math.min(...range(known, Math.min));
	const high = Math.max(...range(known, Math.max));
	const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
	const draw = (/** @type {number} */ width) => {
		const bottom = height - 40;
		const along = scale(
			/** @type {number} */ (x[0] ?? 0),
			Math.max(/** @type {number} */ (x.at(-1) ?? 1), (x[0] ?? 0) + (xWhole ? 1 : 0)),
			LEFT,
			width - 10
		);
		const up = scale(low === 0 ? 0 : low - room, high + room, bottom, 8);
		const place = (/** @type {number} */ i) => along(x[i]);
		const whole = Object.assign((/** @type {number} */ v) => along(v), along, {
			ticks: (/** @type {number} */ about) =>
				along.ticks(Math.min(about, x.length)).filter(each => !xWhole || Number.isInteger(each))
		});
		const nearest = (/** @type {PointerEvent} */ event) => {
			const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
			const wanted = along.low + ((event.clientX - box.left) / box.width) * (along.high - along.low);
			let best = 0;
			for (let [from, to] = [0, x.length - 1]; from <= to;) {
				const middle = (from + to) >> 1;
				best = middle;
				if (x[middle] < wanted) from = middle + 1;
				else to = middle - 1;
			}
			for (const other of [best - 1, best + 1])
				if (Math.abs((x[other] ?? Infinity) - wanted) < Math.abs(x[best] - wanted)) best = other;
			return best;
		};
		return {
			height,
			parts: html`
				<${YAxis} y=${up} left=${LEFT} right=${width - 10} label=${yLabel} about=${5} />
				<${XAxis} x=${whole} top=${8} bottom=${bottom} label=${xLabel} show=${xShow} about=${Math.max(3, width / 110)} />
				${series.map(each => {
					const colour = `var(--${each.token})`;
					const line = path(each.values, place, up);
					if (each.kind === 'area')
						return html`<path
							key=${each.label}
							d=${`${line}L${place(each.values.length - 1).toFixed(1)} ${bottom}L${place(0).toFixed(1)} ${bottom}Z`}
							fill=${colour}
						/>`;
					if (each.kind === 'points')
						return html`<g key=${each.label}>
							${each.values.map(
								(value, i) =>
									value !== null &&
									html`<circle key=${i} cx=${place(i)} cy=${up(value)} r=${x.length > 300 ? 2 : 3.4} fill=${colour} />`
							)}
						</g>`;
					return html`<g key=${each.label}>
						<path d=${line} fill="none" stroke=${colour} stroke-width="1.7" stroke-dasharray=${each.dash} />
						${!each.dash &&
						x.length < 60 &&
						each.values.map(
							(value, i) =>
								value !== null &&
								html`<circle
									key=${i}
									cx=${place(i)}
									cy=${up(value)}
									r="2.4"
									fill="var(--paper)"
									stroke=${colour}
									stroke-width="1.3"
								/>`
						)}
					</g>`;
				})}
				${at >= 0 && at < x.length && html`<path d=${`M${place(at)} 8V${bottom}`} stroke="var(--ink)" stroke-width=".8" />`}
				<rect
					x=${LEFT}
					y="0"
					width=${Math.max(0, width - 10 - LEFT)}
					height=${bottom}
					fill="transparent"
					style=${href ? {cursor: 'pointer'} : {}}
					onPointerMove=${(/** @type {PointerEvent} */ event) => setAt(nearest(event))}
					onPointerLeave=${() => setAt(-1)}
					onClick=${() => {
						if (href && at >= 0) location.assign(new URL(href(at), location.href));
					}}
				/>
			`
		};
	};
	const shown = at >= 0 && at < x.length ? at : x.length - 1;
	return html`<${Plot}
		title=${title}
		name=${name}
		said=${said}
		fields=${fields}
		rows=${rows}
		draw=${draw}
		after=${html`<div class="legend">
			<span>${xLabel} ${xShow ? xShow(x[shown]) : x[shown]}</span>
			${series.map(
				each => html`<span key=${each.label}>
					<i class="key-colour" style=${{background: `var(--${each.token})`}}></i>
					${each.label} ${(each.legend ?? each.values)[shown] == null
						? '–'
						: (each.show ?? plain)(/** @type {number} */ ((each.legend ?? each.values)[shown]))}
				</span>`
			)}
		</div>`}
	/>`;
}

/**
 * Smallest or largest of any number of values. One call takes a limited number of arguments, so it works in parts.
 * @param {number[]} values
 * @param {(...some: number[]) => number} of
 */
function range(values, of) {
	const found = [];
	for (let i = 0; i < values.length; i += 10_000) found.push(of(...values.slice(i, i + 10_000)));
	return found.length ? found : [0];
}

/** Step times as a sparkline. @param {{values: number[]}} props */
export function Spark({values}) {
	const shown = values.slice(-40);
	const [low, high] = [Math.min(...shown), Math.max(...shown)];
	const x = (/** @type {number} */ i) => 2 + (116 * i) / Math.max(1, shown.length - 1);
	const y = (/** @type {number} */ value) => 21 - (18 * (value - low)) / (high - low || 1);
	return html`<svg
		class="spark"
		viewBox="0 0 120 24"
		role="img"
		aria-label=${`${shown.length} runs between ${ms(low)} and ${ms(high)}`}
	>
		<polyline
			points=${shown.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(' ')}
			fill="none"
			stroke="var(--edge)"
			stroke-width="1.4"
		/>
		<circle cx=${x(shown.length - 1)} cy=${y(/** @type {number} */ (shown.at(-1)))} r="2.4" fill="var(--accent)" />
	</svg>`;
}
