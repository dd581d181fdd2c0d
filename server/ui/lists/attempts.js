// A list of attempts, of a run or of a worker.
import {html} from '../vendor/preact.js';
import {duration} from '../format.js';
import {Table, Time} from '../pieces.js';
import {State} from '../words.js';

/** @typedef {import('../pieces.js').Column<import('../schemas').Schemas['AttemptSummary']>} Column */

/** The duration of an attempt. @param {import('../schemas').Schemas['AttemptSummary']} of */
const took = of => duration((Date.parse(of.finished_at ?? '') - Date.parse(of.claimed_at)) / 1000);

/** @type {Column[]} */
const COLUMNS = [
	{label: 'Attempt', number: true, cell: a => a.attempt_no},
	{label: 'Purpose', cell: a => a.purpose},
	{label: 'State', cell: a => html`<${State} of=${a.state} />`},
	{label: 'Claimed', cell: a => html`<${Time} at=${a.claimed_at} />`},
	{label: 'Duration', number: true, cell: a => (a.finished_at ? took(a) : '–')},
	{label: 'Error', class: 'question', cell: a => a.error?.detail ?? a.error?.slug ?? ''}
];

/**
 * @param {{rows: import('../schemas').Schemas['AttemptSummary'][], first: Column, caption: string}} props first: the
 *   column before the number
 */
export const AttemptTable = ({rows, first, caption}) =>
	html`<${Table} caption=${caption} rows=${rows} id=${a => a.id} columns=${[first, ...COLUMNS]} />`;
