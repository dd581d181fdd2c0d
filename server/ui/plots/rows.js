// Rows of a plot, each with its name at the left.
import {html} from '../vendor/preact.js';
import {variantName} from '../format.js';
import {Label} from './scale.js';

export const ROW = 24;
/** Room for names at the left, at most 42 % of the plot. @param {number} width @param {string[]} names */
export const leftOf = (width, names) =>
	Math.min(Math.max(60, ...names.map(name => name.length * 6.6 + 14)), width * 0.42);

/**
 * A name as one line, or as two smaller ones if it is too long, broken after a comma. Lines that are still too long are
 * cut: a first one without a comma at its end, a second one at its beginning.
 * @param {string} name
 * @param {number} room
 */
function linesOf(name, room) {
	if (name.length * 6.3 <= room) return [name];
	const most = Math.floor(room / 5.3);
	const comma = name.lastIndexOf(', ', most - 1);
	const first = comma > 0 ? name.slice(0, comma + 1) : name.slice(0, most);
	const second = name.slice(first.length).trim();
	return [first, second.length > most ? `…${second.slice(1 - most)}` : second];
}

/** @param {{names: string[], left: number, top: number}} props */
export function Names({names, left, top}) {
	return html`<g>
		${names.map((name, i) => {
			const lines = linesOf(name, left - 12);
			return lines.map(
				(line, j) => html`<${Label}
					key=${`${i} ${j}`}
					x=${left - 9}
					y=${top + ROW * i + (lines.length === 1 ? 16 : 10 + 11 * j)}
					text-anchor="end"
					font-size=${lines.length === 1 ? 12 : 10}
					fill="var(--ink)"
				>
					${line}
					<title>${name}</title>
				<//>`
			);
		})}
	</g>`;
}

/** The axes' values that tell a variant from the others. @param {any} row */
export const nameOf = row =>
	variantName(Object.keys(row.variant).length ? row.variant : {scheduler: row.scheduler, threads: row.threads});
