// Stacked bars.
import {html} from '../vendor/preact.js';
import {Plot} from './plot.js';
import {Names, ROW, leftOf} from './rows.js';
import {Label, XAxis, scale} from './scale.js';

/**
 * Rows of stacked bars: phases of a step, time of threads, memory.
 * @param {{title: string, said: string, name: string, rows: {name: string, parts: Record<string, number>,
 *   mark?: number | null, says?: string}[],
 *   colours: Record<string, string>, label: string, unit: (value: number) => string, most?: number,
 *   markSays?: string}} props
 */
export function Shares({title, said, name, rows, colours, label, unit, most, markSays}) {
	const names = rows.map(row => row.name);
	const kinds = Object.keys(colours).filter(kind => rows.some(row => row.parts[kind]));
	const longest =
		most ??
		Math.max(
			...rows.map(row =>
				Math.max(
					row.mark ?? 0,
					Object.values(row.parts).reduce((a, b) => a + b, 0)
				)
			)
		);
	const draw = (/** @type {number} */ width) => {
		const left = leftOf(width, names);
		const bottom = 8 + ROW * rows.length;
		const x = scale(0, longest, left, width - 82);
		return {
			height: bottom + 40,
			parts: html`
				<${XAxis} x=${x} top=${4} bottom=${bottom} label=${label} about=${Math.max(3, width / 150)} />
				<${Names} names=${names} left=${left} top=${4} />
				${rows.map((row, i) => {
					let sum = 0;
					return html`<g key=${i}>
						${kinds.map(kind => {
							const value = row.parts[kind] ?? 0;
							const from = x(sum);
							sum += value;
							return html`<rect
								key=${kind}
								x=${from}
								y=${4 + ROW * i + 4}
								width=${Math.max(0, x(sum) - from)}
								height=${ROW - 8}
								fill=${`var(--${colours[kind]})`}
							>
								<title>${kind}: ${unit(value)}</title>
							</rect>`;
						})}
						${row.mark != null &&
						html`<path d=${`M${x(row.mark)} ${4 + ROW * i + 2}v${ROW - 4}`} stroke="var(--ink)" stroke-width="2.4">
							<title>${markSays}: ${unit(row.mark)}</title>
						</path>`}
						${row.says &&
						html`<${Label} x=${x(Math.max(sum, row.mark ?? 0)) + 7} y=${4 + ROW * i + 16} fill="var(--ink)">${row.says}<//>`}
					</g>`;
				})}
			`
		};
	};
	return html`<${Plot}
		title=${title}
		name=${name}
		said=${said}
		draw=${draw}
		rows=${rows}
		legend=${kinds.map(kind => [colours[kind], kind])}
		fields=${[
			{label: 'variant', value: r => r.name},
			...kinds.map(kind => ({label: kind, value: (/** @type {any} */ r) => r.parts[kind] ?? null})),
			...(markSays ? [{label: markSays, value: (/** @type {any} */ r) => r.mark ?? null}] : [])
		]}
	/>`;
}
