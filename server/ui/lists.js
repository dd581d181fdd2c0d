// What lists have in common: filters with their completions, and buttons for other pages.
import {html, useEffect, useRef, useState} from './vendor/preact.js';
import {address, choose} from './address.js';
import {useAction, useAnswer} from './answers.js';
import {download} from './api.js';
import {count, plural} from './format.js';
import {Refused} from './pieces.js';

/**
 * How many rows are shown, and buttons for other pages.
 * @param {{page: {next_cursor?: string | null}, total: number | null | undefined, here: number, what: string}} props
 */
export function Pages({page, total, here, what}) {
	const {params} = address.value;
	return html`<div class="more">
		<span class="soft">${total == null ? `${count(here)} shown` : `${count(here)} of ${plural(total, what)} shown`}</span>
		${params.has('cursor') && html`<button onClick=${() => choose({cursor: null}, false)}>First page</button>`}
		${page.next_cursor && html`<button onClick=${() => choose({cursor: page.next_cursor}, false)}>Next page</button>`}
	</div>`;
}

/** A button that saves all rows of a filter. @param {{of: string, asked: import('./api.js').Params}} props */
export function Csv({of, asked}) {
	const {run, busy, problem} = useAction(() =>
		download(`exports/${of}`, {...asked, cursor: null, limit: null, total: null, format: 'csv'}, `${of}.csv`)
	);
	return html`
		<button disabled=${busy} onClick=${run} title="All rows of this filter, with every column">CSV</button>
		${problem && html`<${Refused} problem=${problem} />`}
	`;
}

/**
 * A text filter of a list; it is written to the URL when typing pauses.
 * @param {{name: string, label: string, placeholder?: string, first?: boolean}} props
 */
export function Narrow({name, label, placeholder = '', first = false}) {
	const said = address.value.params.get(name) ?? '';
	const [text, setText] = useState(said);
	const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
	useEffect(() => setText(said), [said]);
	useEffect(() => () => clearTimeout(timer.current), []);
	/** @param {Event & {target: HTMLInputElement}} event */
	const typed = event => {
		const value = event.target.value;
		setText(value);
		clearTimeout(timer.current);
		timer.current = setTimeout(() => choose({[name]: value, cursor: null}), 180);
	};
	return html`<div class="field">
		<label for=${`narrow-${name}`}>${label}</label>
		<input
			id=${`narrow-${name}`}
			type="search"
			value=${text}
			placeholder=${placeholder}
			onInput=${typed}
			data-find=${first ? '' : undefined}
		/>
	</div>`;
}

/** A value in an expression. @param {string} text */
export const quoted = text => (/^[\w.:/+-]+$/.test(text) ? text : JSON.stringify(text));

/** @typedef {import('./schemas').Schemas['FilterName']} Name */

// Completions that are offered.
const MOST = 12;

/**
 * What may follow: names, a name's operators or values, or and, or. Each completes the text.
 * @param {string} text
 * @param {Name[]} names
 */
function completions(text, names) {
	const [, head = '', word = ''] = /^([^]*?)([^\s()=!<>~,"]*)$/.exec(text) ?? [];
	const [, name, operator] = /(\w+)\s*(!=|<=?|>=?|=|~|\bin\s*\([^)]*)\s*$/i.exec(head) ?? [];
	const of = (/** @type {string | undefined} */ each) => names.find(known => known.name === each);
	const before = /(\w+)\s*$/.exec(head)?.[1];
	/** @type {string[]} */
	let next;
	if (operator) next = (of(name)?.choices ?? []).map(quoted);
	else if (!head.trim() || /(\(|\b(and|or|not))\s*$/i.test(head)) next = names.map(each => each.name);
	else next = of(before)?.operators.map(each => (each === 'in' ? 'in (' : each)) ?? ['and', 'or'];
	return next
		.filter(each => each.startsWith(word) && each !== word)
		.slice(0, MOST)
		.map(each => head + each);
}

/** @param {{of: 'runs' | 'experiments' | 'series', placeholder: string, first?: boolean}} props first: / goes to it */
export function Filter({of, placeholder, first = true}) {
	const said = address.value.params.get('filter') ?? '';
	const [text, setText] = useState(said);
	const [used, use] = useState(false);
	const names = useAnswer(used ? `filters/${of}` : null);
	useEffect(() => setText(said), [said]);
	const commit = () => text !== said && choose({filter: text, cursor: null});
	return html`<form
		class="field filter"
		role="search"
		onSubmit=${(/** @type {Event} */ event) => {
			event.preventDefault();
			commit();
		}}
	>
		<label for="filter">Filter</label>
		<input
			id="filter"
			type="search"
			list="filter-next"
			autocomplete="off"
			spellcheck=${false}
			value=${text}
			placeholder=${placeholder}
			data-find=${first ? '' : undefined}
			onFocus=${() => use(true)}
			onInput=${event => setText(event.target.value)}
			onBlur=${commit}
		/>
		<datalist id="filter-next">
			${completions(text, names.data?.items ?? []).map(each => html`<option key=${each} value=${each}></option>`)}
		</datalist>
	</form>`;
}
