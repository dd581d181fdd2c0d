// New experiment: a form, with a dry run while the user types.
import {html, useState} from '../vendor/preact.js';
import {address} from '../address.js';
import {useAnswer} from '../answers.js';
import {Answered, Head, Refused, Skeleton} from '../pieces.js';
import {Form, taken} from '../new/form.js';

const BASE = {model: 'tiny', batch: 4, seq: 64, steps: 20};
const EMPTY = {name: '', base: BASE, axes: {scheduler: ['fork-join', 'task'], threads: [1, 2]}, trace: 'first'};
/** @param {string} node */
const calibrationOf = node => ({
	name: `A/A of ${node}`,
	base: {...BASE, scheduler: 'task', threads: 2},
	repetitions: 20,
	calibrates: true
});

/** The request that repeats a run. @param {any} run @param {Record<string, any>} fields */
function again(run, fields) {
	const said = Object.entries(run.spec).filter(([name, value]) => value !== null && name in fields);
	const {name} = run.spec.model;
	const base = Object.fromEntries(said);
	if (name && name !== 'custom') base['model'] = name;
	return {name: `run ${run.id} again`, base, axes: {}, repetitions: 6};
}

/** The request in a URL; null if it is not valid JSON. @param {string | null} text */
function parsed(text) {
	try {
		return text && JSON.parse(text);
	} catch {
		return null;
	}
}

/** The form, filled with the request in the URL. @param {{fields: Record<string, any>}} props */
function Begun({fields}) {
	// The URL as it was at first: the form changes it.
	const [begun] = useState(() => Object.fromEntries(address.value.params));
	const said = parsed(begun['ask'] ?? null);
	const {from, run, calibrate} = begun;
	const experiment = useAnswer(!said && from ? `experiments/${encodeURIComponent(from)}` : null);
	const one = useAnswer(!said && run ? `runs/${encodeURIComponent(run)}` : null);
	const form = (/** @type {any} */ first) => html`<${Form} first=${first} fields=${fields} />`;
	if (said) return form(said);
	if (from) return html`<${Answered} answer=${experiment} lines=${12}>${of => form(of.request)}<//>`;
	if (run) return html`<${Answered} answer=${one} lines=${12}>${of => form(again(of, fields))}<//>`;
	return form(calibrate ? calibrationOf(calibrate) : EMPTY);
}

export default function New() {
	const schema = useAnswer('../../openapi.json');
	const fields = schema.data && taken(schema.data.components.schemas.RunSpec.properties);
	return html`
		<${Head} title="New experiment" />
		${schema.problem && !fields
			? html`<${Refused} problem=${schema.problem} retry=${schema.reload} />`
			: fields
				? html`<${Begun} fields=${fields} />`
				: html`<${Skeleton} height=${500} />`}
	`;
}
