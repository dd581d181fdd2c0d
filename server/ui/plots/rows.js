// Rows of a plot, each with its name at the left.
import {html} from '../vendor/preact.js';
import {variantName} from '../format.js';
import {Label} from './scale.js';

export const ROW = 24;
/** Room for names at the left, at most 42 % of the plot. @param {number} width @param {string[]} names */
export const leftOf = (width, names) =>
	Math.min(Math.max(60, ...names.map(name => name.length * 6.6 + 14)), width * 0.42);

/** @param {{names: string[], left: number, top: number}} props */
export function Names({names, left, top}) {
	const most = Math.floor((left - 12) / 6.3);
	return html`<g>
		${names.map(
			(name, i) => html`<${Label}
				key=${i}
				x=${left - 9}
				y=${top + ROW * i + 16}
				text-anchor="end"
				font-size="12"
				fill="var(--ink)"
			>
				${name.length > most ? `${name.slice(0, most - 1)}…` : name}
				<title>${name}</title>
			<//>`
		)}
	</g>`;
}

/** The axes' values that tell a variant from the others. @param {any} row */
export const nameOf = row =>
	variantName(Object.keys(row.variant).length ? row.variant : {scheduler: row.scheduler, threads: row.threads});
