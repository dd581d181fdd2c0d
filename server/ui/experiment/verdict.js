// The verdict of an experiment's comparisons in one sentence, which claims no more than they show.
import {ratio, sample, valueName, variantName, verbOf} from '../format.js';

/** @typedef {import('../schemas').Schemas['Sweep']} Sweep */
const FIRST = ['refused', 'faster', 'slower', 'same', 'undecided'];

/** The settings at which a comparison was made, in words. @param {any} row */
function where(row) {
	if (row.places)
		return ` with ${row.threads} thread${row.threads === 1 ? '' : 's'}, over ${row.places} slicings (${row.scope})`;
	const at = variantName(row.at ?? {});
	return at === 'the only variant' ? '' : ` with ${at}`;
}

/** Why a comparison is undecided, or what would decide it. @param {any} row */
function missing(row) {
	const dependent = (row.diagnosis ?? []).filter((/** @type {string} */ each) => (row.reason ?? each).includes(each));
	if (dependent.length) return ` (the values show ${dependent.join(' and ')})`;
	return row.ratio_low === null ? ' (too few runs for an interval)' : ' (more repetitions narrow the interval)';
}

/** @param {string} axis @param {any} row */
function said(axis, row) {
	const [a, b] = [valueName(axis, row.a), valueName(axis, row.b)];
	const is = verbOf(axis, row.b);
	const of = ratio(row.ratio, row.ratio_low, row.ratio_high);
	const reading = `${a} time / ${b} time ${of}`;
	const pairs = row.pairs ?? row.n;
	const rests = pairs ? `, ${sample(pairs, row.unit)}` : '';
	return (
		/** @type {Record<string, string>} */ ({
			faster: `${b} ${is} ${of} times as fast as ${a}${where(row)}${rests}`,
			slower: `${b} ${is} slower than ${a}${where(row)}: ${of} times as fast${rests}`,
			same: `${b} and ${a} are equivalent within the noise floor${where(row)}, ${reading}`,
			undecided: `it is undecided whether ${b} or ${a} is faster${where(row)}, ${reading}${rests}${missing(row)}`,
			refused: `${b} and ${a} cannot be compared${where(row)}: ${row.reason ?? ''}`
		})[row.verdict] ?? row.verdict
	);
}

/**
 * @param {Sweep} sweep
 * @returns {{verdict: string, sentence: string}}
 */
export function verdictOf(sweep) {
	const rows = /** @type {any[]} */ (sweep.pooled.length ? sweep.pooled : sweep.rows).filter(
		row => row.ratio !== null || row.verdict === 'refused'
	);
	if (!rows.length) return {verdict: 'none', sentence: 'There is only one variant: nothing to compare.'};
	const ordered = [...rows].sort((a, b) => FIRST.indexOf(a.verdict) - FIRST.indexOf(b.verdict));
	const decided = ordered.filter(row => row.verdict !== 'undecided');
	const open = ordered.length - decided.length;
	const told = (decided.length ? decided : ordered.slice(0, 1)).slice(0, 3).map(row => said(sweep.axis ?? '', row));
	const rest = decided.length - Math.min(decided.length, 3);
	if (rest) told.push(`${rest} more comparisons are decided`);
	if (decided.length && open)
		told.push(
			open === 1
				? said(sweep.axis ?? '', /** @type {any} */ (ordered.at(-1)))
				: `${open} of ${ordered.length} comparisons are undecided`
		);
	else if (!decided.length && open > 1)
		told.push(`${open === 2 ? 'the other comparison is' : `the ${open - 1} other comparisons are`} undecided too`);
	const sentence = told.join('; ');
	return {verdict: ordered[0].verdict, sentence: `${sentence[0]?.toUpperCase()}${sentence.slice(1)}.`};
}
