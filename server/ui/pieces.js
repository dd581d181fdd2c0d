// Building blocks of pages: states of answers, tables, tabs, fields, large figures.
import {html, useEffect, useRef, useState} from './vendor/preact.js';
import {FOLDER, address, choose, link} from './address.js';
import {Problem} from './api.js';
import {plural, when} from './format.js';

/** @typedef {import('./vendor/preact.js').ComponentChildren} Children */
/**
 * @template T
 * @typedef {import('./answers.js').Answer<T>} Answer
 */

/**
 * A page's title, lead sentence and buttons.
 * @param {{title: string, lead?: Children, actions?: Children, above?: Children}} props
 */
export function Head({title, lead, actions, above}) {
	useEffect(() => {
		document.title = `${title} · Taskloom`;
	}, [title]);
	return html`<header class="head">
		<div>
			${above && html`<div class="soft">${above}</div>`}
			<h1 tabindex="-1">${title}</h1>
			${lead && html`<div class="lead">${lead}</div>`}
		</div>
		${actions && html`<div class="actions">${actions}</div>`}
	</header>`;
}

/** Grey placeholders of the size of the content that is loading. @param {{lines?: number, height?: number}} props */
export function Skeleton({lines = 0, height = 0}) {
	return html`<div class="stack tight" role="status">
		<span class="unseen">Loading</span>
		${height
			? html`<span class="skeleton" style=${{height: `${height}px`}}></span>`
			: Array.from({length: lines}, (_, i) => html`<span key=${i} class="skeleton"></span>`)}
	</div>`;
}

/**
 * An error, as the server described it.
 * @param {{problem: import('./api.js').Problem, retry?: (() => void) | undefined}} props
 */
export function Refused({problem, retry}) {
	return html`<div class="notice bad" role="alert">
		<strong>${problem.title}</strong>
		${!problem.errors.length && problem.detail && html`<span>${problem.detail}</span>`}
		${problem.errors.map(
			(each, i) => html`<span key=${i}>${each.pointer || each.field}: ${each.accepted ?? each.detail}</span>`
		)}
		<span class="row">
			${retry && html`<button onClick=${retry}>Retry</button>`}
			${problem.requestId && html`<small>request <code>${problem.requestId}</code></small>`}
		</span>
	</div>`;
}

/** Shown when the module of a page or view cannot be loaded. */
export function Unloadable() {
	const problem = new Problem({
		title: 'This page cannot be loaded',
		detail: 'The server may have been upgraded: reload the dashboard.'
	});
	return html`<${Refused} problem=${problem} retry=${() => location.reload()} />`;
}

/**
 * A component whose module is loaded when it is first shown. Its page opens without waiting for the module.
 * @param {() => Promise<Function>} load
 */
export function later(load) {
	/** @type {Function | null} */
	let loaded = null;
	return function Later(/** @type {Record<string, unknown>} */ props) {
		const [Shown, show] = useState(() => loaded);
		useEffect(() => {
			if (Shown) return undefined;
			let wanted = true;
			void load()
				.catch(() => Unloadable)
				.then(component => {
					loaded = component;
					if (wanted) show(() => component);
				});
			return () => {
				wanted = false;
			};
		}, []);
		return Shown ? html`<${Shown} ...${props} />` : html`<${Skeleton} height=${220} />`;
	};
}

/**
 * A button for what cannot be undone: it acts once a second one is pressed.
 * @param {{first: Children, then: Children, keep?: string, busy: boolean, act: () => void}} props
 */
export function Sure({first, then, keep = 'Keep', busy, act}) {
	const [sure, setSure] = useState(false);
	return sure
		? html`<button class="danger" disabled=${busy} onClick=${act}>${then}</button> <button
				onClick=${() => setSure(false)}
			>
				${keep}
			</button>`
		: html`<button onClick=${() => setSure(true)}>${first}</button>`;
}

/** An empty state, with the next step. @param {{children: Children}} props */
export function Empty({children}) {
	return html`<div class="empty panel">${children}</div>`;
}

/** The command that starts a worker of this server. */
export const Start = () =>
	html`<pre class="command">taskloom worker --server ${String(new URL('..', FOLDER)).replace(/\/$/, '')}</pre>`;

/** The command that submits a first experiment. */
export const Submit = () => html`<pre
	class="command"
>taskloom submit --model tiny --scheduler fork-join,task --threads 1,2</pre>`;

/**
 * An answer in each of its states: a skeleton of final size, the data (kept beside an error), or the error.
 * @template T
 * @param {{answer: Answer<T>, lines?: number, height?: number, children: (data: T) => Children}} props
 */
export function Answered({answer, lines = 5, height = 0, children}) {
	if (answer.data === undefined) {
		return answer.problem
			? html`<${Refused} problem=${answer.problem} retry=${answer.reload} />`
			: html`<${Skeleton} lines=${lines} height=${height} />`;
	}
	return html`
		${answer.problem &&
		html`
			<${Refused} problem=${answer.problem} retry=${answer.reload} />
			<p class="soft">The data below was loaded ${when(new Date(answer.at).toISOString())}.</p>
		`}
		${children(answer.data)}
	`;
}

/** @param {{at: string | null | undefined}} props */
export function Time({at}) {
	return at ? html`<time datetime=${at} title=${at}>${when(at)}</time>` : html`<span class="soft">–</span>`;
}

/** @param {{id: number}} props */
export const RunLink = ({id}) => html`<a href=${link('run', {id})}>${id}</a>`;

/** An experiment by its question. @param {{id: number, name: string | null | undefined}} props */
export const Question = ({id, name}) => html`<a href=${link('experiment', {id})}>${name || `Experiment ${id}`}</a>`;

/**
 * Tabs; the URL holds the choice.
 * @param {{name?: string, tabs: [string, Children][], chosen: string}} props
 */
export function Tabs({name = 'view', tabs, chosen}) {
	const {page, params} = address.value;
	const first = tabs[0]?.[0];
	const href = (/** @type {string} */ value) => {
		const next = /** @type {Record<string, string>} */ ({});
		if (params.has('id')) next['id'] = /** @type {string} */ (params.get('id'));
		return link(page, {...next, [name]: value === first ? null : value});
	};
	return html`<nav class="tabs" aria-label="Views">
		${tabs.map(
			([value, label]) =>
				html`<a key=${value} href=${href(value)} aria-current=${value === chosen ? 'page' : undefined}>${label}</a>`
		)}
	</nav>`;
}

/**
 * @template Row
 * @typedef {{label: Children, cell: (row: Row) => Children, number?: boolean, tight?: boolean,
 *   sort?: string, class?: string, more?: boolean, by?: (row: Row) => string | number}} Column more: hidden at first
 */

/**
 * Rows that do not move while the pointer or the focus is on them. A button offers new rows meanwhile; they appear
 * when pointer and focus have left.
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => string | number} id
 * @param {string} view what is listed; another view shows its rows at once
 */
function useHeld(rows, id, view) {
	const place = useRef(/** @type {HTMLElement | null} */ (null));
	const shown = useRef({view, rows});
	const [, again] = useState(0);
	const before = shown.current;
	const held =
		before.view === view &&
		before.rows.length > 0 &&
		place.current?.matches(':hover, :focus-within') === true &&
		String(rows.map(id)) !== String(before.rows.map(id));
	const now = new Map(rows.map(row => [id(row), row]));
	const kept = held ? before.rows.map(row => now.get(id(row)) ?? row) : rows;
	shown.current = {view, rows: kept};
	kept.forEach(row => now.delete(id(row)));
	const release = () => {
		shown.current = {view: '', rows: []};
		again(n => n + 1);
	};
	/** @param {FocusEvent & {currentTarget: HTMLElement}} event */
	const left = event => {
		if (!event.currentTarget.contains(/** @type {Node | null} */ (event.relatedTarget))) again(n => n + 1);
	};
	return {place, rows: kept, waiting: now.size, release, left};
}

/**
 * A table. The keys j and k move between its rows, x selects one.
 * @template Row
 * @param {{columns: Column<Row>[], rows: Row[], id: (row: Row) => string | number, caption: string, what?: string,
 *   view?: string, sort?: string | null, onSort?: (sort: string) => void, tall?: boolean}} props what: a row's name;
 *   onSort: of a list that the URL describes, whose columns can be hidden;
 *   view: the question that the rows answer, where there are several; tall: many rows scroll below their headings
 */
export function Table({columns, rows, id, caption, what = 'row', view = '', sort, onSort, tall}) {
	const held = useHeld(rows, id, `${view} ${sort}`);
	const own = useState(/** @type {string | null} */ (null));
	const chosen = onSort ? (sort ?? null) : own[0];
	const press = onSort ?? own[1];
	let ordered = held.rows;
	const column = onSort
		? undefined
		: columns.find(each => each.by && (chosen === each.label || chosen === `-${each.label}`));
	if (column?.by) {
		const by = column.by;
		const sign = chosen?.startsWith('-') ? -1 : 1;
		ordered = [...held.rows].sort((a, b) => {
			const x = by(a);
			const y = by(b);
			return sign * (x < y ? -1 : x > y ? 1 : 0);
		});
	}
	// Columns can be hidden and, if they are more, shown; the URL holds which.
	const named = onSort ? columns.filter(({label}) => typeof label === 'string') : [];
	const listed = (/** @type {string} */ name) => (onSort ? (address.value.params.get(name) ?? '').split(',') : []);
	const changed = {hide: listed('hide'), show: listed('show')};
	const way = (/** @type {Column<Row>} */ {more}) => (more ? 'show' : 'hide');
	const isShown = (/** @type {Column<Row>} */ each) =>
		changed[way(each)].includes(String(each.label)) === Boolean(each.more);
	const shown = columns.filter(isShown);
	const toggle = (/** @type {Column<Row>} */ one) => {
		const those = named.filter(each => way(each) === way(one)).map(({label}) => String(label));
		choose({[way(one)]: those.filter(each => changed[way(one)].includes(each) !== (each === one.label)).join()});
	};
	const heading = (/** @type {Column<Row>} */ each, /** @type {number} */ i) => {
		const field = onSort ? each.sort : each.by && String(each.label);
		const direction = chosen === field ? 'ascending' : chosen === `-${field}` ? 'descending' : 'none';
		return html`<th
			key=${i}
			scope="col"
			class=${each.number ? `number${String(each.label).length > 16 ? ' long' : ''}` : undefined}
			aria-sort=${field ? direction : undefined}
		>
			${field
				? html`<button onClick=${() => press(direction === 'descending' ? field : `-${field}`)}>
						${each.label} <span aria-hidden="true">${{ascending: '↑', descending: '↓', none: ''}[direction]}</span>
					</button>`
				: each.label}
		</th>`;
	};
	return html`<div class="held" ref=${held.place} onPointerLeave=${held.left} onFocusOut=${held.left}>
		${held.waiting > 0 &&
		html`<button type="button" class="offer" onClick=${held.release}>
			Show ${plural(held.waiting, `new ${what}`)}
		</button>`}
		<div class=${`scroll${tall ? ' tall' : ''}`} tabindex="0" role="region" aria-label=${caption}>
			<table>
				<caption class="unseen">${caption}</caption>
				<thead><tr>${shown.map(heading)}</tr></thead>
				<tbody>
					${ordered.map(
						row => html`<tr key=${id(row)} data-row>
							${shown.map(
								(each, i) =>
									html`<td
										key=${i}
										class=${[each.number ? 'number' : '', each.tight ? 'tight' : '', each.class ?? ''].join(' ').trim() ||
										undefined}
									>
										${each.cell(row)}
									</td>`
							)}
						</tr>`
					)}
				</tbody>
			</table>
		</div>
		${named.length > 0 &&
		html`<details>
			<summary>Columns</summary>
			<div class="row">
				${named.map(
					each => html`<label key=${each.label}>
						<input type="checkbox" checked=${isShown(each)} onChange=${() => toggle(each)} /> ${each.label}
					</label>`
				)}
			</div>
		</details>`}
	</div>`;
}

/**
 * Sentences under a heading; nothing if there are none.
 * @param {{title: string, of: string[] | undefined, tone?: string}} props
 */
export const Notice = ({title, of = [], tone = ''}) =>
	of.length > 0 &&
	html`<section class=${`notice ${tone}`}>
		<strong>${title}</strong>
		${of.map(each => html`<span key=${each}>${each}</span>`)}
	</section>`;

/**
 * Warnings about runs, collapsed unless they are fewer than `few`.
 * @param {{of: string[] | undefined, few?: number, rest?: string}} props
 */
export function Marks({of, few = 0, rest = ', which are included'}) {
	const marks = [...new Set(of)];
	return (
		marks.length > 0 &&
		html`<details class="panel" open=${marks.length < few}>
			<summary>Marks: ${plural(marks.length, 'warning')} about runs${rest}</summary>
			<ul>${marks.map(mark => html`<li key=${mark}>${mark}</li>`)}</ul>
		</details>`
	);
}

/** Pairs of a name and a value. @param {{of: [Children, Children][]}} props */
export function Pairs({of}) {
	return html`<dl class="pairs">
		${of.map(([name, value], i) => html`<dt key=${`n${i}`}>${name}</dt><dd key=${`v${i}`}>${value}</dd>`)}
	</dl>`;
}

/** Large figures with their names. @param {{of: [Children, Children, Children?][]}} props */
export function Figures({of}) {
	return html`<dl class="figures">
		${of.map(
			([name, value, rest], i) => html`<div key=${i}>
				<dt>${name}</dt>
				<dd>${value} ${rest && html`<small class="soft">${rest}</small>`}</dd>
			</div>`
		)}
	</dl>`;
}

/**
 * A choice among few; the URL holds it. @param {{name: string, label: string, options: [string, string][],
 *   value?: string | null, onChoose?: (value: string) => void}} props
 */
export function Choice({name, label, options, value, onChoose}) {
	const chosen = value ?? address.value.params.get(name) ?? '';
	const id = `choice-${name}`;
	return html`<div class="field">
		<label for=${id}>${label}</label>
		<select
			id=${id}
			value=${chosen}
			onChange=${event => (onChoose ? onChoose(event.target.value) : choose({[name]: event.target.value, cursor: null}))}
		>
			${options.map(
				([each, says]) => html`<option key=${each} value=${each} selected=${each === chosen}>${says}</option>`
			)}
		</select>
	</div>`;
}

/** Copies a text. @param {{text: string}} props */
export function Copy({text}) {
	const [done, setDone] = useState(false);
	const press = async () => {
		await navigator.clipboard?.writeText(text);
		setDone(true);
		setTimeout(() => setDone(false), 1500);
	};
	// Without a type, the button would submit its form.
	return html`<button type="button" onClick=${press}>${done ? 'Copied' : 'Copy'}</button>`;
}
