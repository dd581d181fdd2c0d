// Form fields of a new experiment, the texts in them as a request, and the rules of its repetitions and limits.
import {html, useState} from '../vendor/preact.js';
import {plainText, words} from '../format.js';
import {questionText} from '../request.js';

/** @typedef {Record<string, string>} Texts */
/** @typedef {import('../schemas').Field} Schema of a setting */
/** @typedef {import('../schemas').Fields} Fields */
/** @typedef {import('../schemas').Request} Request */

// Converts a form's texts to a request and back. Comma-separated values become an axis, as on the command line.

/** Splits a text at commas outside braces and brackets. @param {string} text */
export function parts(text) {
	const found = [''];
	let depth = 0;
	for (const letter of text) {
		if ('{['.includes(letter)) depth += 1;
		if ('}]'.includes(letter)) depth -= 1;
		if (letter === ',' && depth === 0) found.push('');
		else found[found.length - 1] += letter;
	}
	return found.map(part => part.trim()).filter(Boolean);
}

/** The schemas that a field accepts, without null. @param {Schema} schema */
export const kinds = schema => (schema.anyOf ?? [schema]).filter(each => each.type !== 'null');
/** The values of an enumeration; null for other fields. @param {Schema} schema @returns {string[] | null} */
export const choices = schema => kinds(schema).find(each => each.enum)?.enum ?? null;

/** The limits of a numeric field in words. @param {Schema} schema */
export function limits(schema) {
	const {minimum: least, maximum: most} = kinds(schema).find(each => 'minimum' in each) ?? {};
	if (least === undefined) return '';
	return most !== undefined && most <= Number.MAX_SAFE_INTEGER
		? `; ${least} to ${most.toLocaleString('en-US')}`
		: `; at least ${least}`;
}

/** @param {string} text @param {Schema} schema */
function valueOf(text, schema) {
	const types = new Set(kinds(schema).map(each => each.type));
	if ((types.has('integer') || types.has('number')) && text !== '' && Number.isFinite(Number(text))) return Number(text);
	if (types.has('boolean') && (text === 'true' || text === 'false')) return text === 'true';
	if ((types.has('object') || types.has('array')) && /^[[{]/.test(text))
		try {
			return JSON.parse(text);
		} catch {
			return text;
		}
	return text;
}

/** A question in a text such as `scheduler=task,threads=2 vs scheduler=fork-join,threads=2`; the text itself if it has
 * another form, so that the server explains it. @param {string} text @param {Fields} fields */
function questionOf(text, fields) {
	const sides = text.split(' vs ').map(side => parts(side).map(part => part.split('=').map(each => each.trim())));
	if (sides.length !== 2 || sides.some(side => side.some(pair => pair.length !== 2))) return text;
	const [b, a] = sides.map(side =>
		Object.fromEntries(side.map(([name = '', value = '']) => [name, fields[name] ? valueOf(value, fields[name]) : value]))
	);
	return {a, b};
}

/** The texts that a form shows for a request. @param {Request} request @returns {Texts} */
export function textsOf(request) {
	/** @type {Texts} */
	const texts = {};
	for (const [name, value] of Object.entries(request.base ?? {})) if (value !== null) texts[name] = plainText(value);
	for (const [name, values] of Object.entries(request.axes ?? {})) texts[name] = values.map(plainText).join(', ');
	if (request.primary) texts['primary'] = questionText(request.primary);
	return texts;
}

// Settings whose value is a list, so that commas do not separate values.
const LISTS = ['cores', 'prompt'];

/** The base and axes in a form's texts. @param {Texts} texts @param {Fields} fields */
export function settingsOf(texts, fields) {
	/** @type {Record<string, unknown>} */
	const base = {};
	/** @type {Record<string, unknown[]>} */
	const axes = {};
	for (const [name, schema] of Object.entries(fields)) {
		const text = (texts[name] ?? '').trim();
		if (!text) continue;
		if (LISTS.includes(name)) {
			base[name] = /^[[]/.test(text) ? valueOf(text, schema) : parts(text).map(Number);
			continue;
		}
		const values = parts(text).map(part => valueOf(part, schema));
		if (values.length > 1) axes[name] = values;
		else if (values.length === 1) base[name] = values[0];
	}
	return {base, axes};
}

/** @param {unknown} value */
const isEmpty = value => value === '' || value == null || (typeof value === 'object' && !Object.keys(value).length);

/** Why no run of a form reads a setting, by its modes and whether they generate; undefined if one does.
 * @param {Schema} schema @param {Texts} texts @returns {string | undefined} */
export function unreadIn(schema, texts) {
	const asked = parts(texts['mode'] ?? '');
	const uses = parts(texts['generate'] || '0').map(each => (Number(each) ? 'generate' : 'no-generate'));
	const why = (asked.length ? asked : ['train']).flatMap(mode =>
		(mode === 'infer' ? uses : ['']).map(use => schema['x-unread']?.[mode] ?? schema['x-unread']?.[use])
	);
	return why.every(Boolean) ? why[0] : undefined;
}

/** The request in a form, without empty fields and without settings that no run reads.
 * @param {Request} request @param {Texts} texts
 * @param {Fields} fields */
export function requestOf(request, texts, fields) {
	const primary = texts['primary']?.trim() ? questionOf(texts['primary'], fields) : null;
	const read = Object.fromEntries(Object.entries(fields).filter(([, schema]) => !unreadIn(schema, texts)));
	const made = {...request, ...settingsOf(texts, read), primary};
	return Object.fromEntries(Object.entries(made).filter(([, value]) => !isEmpty(value)));
}

/** The labels in `cpu=zen4 rack=3`. @param {string} text */
export const labelsOf = text =>
	Object.fromEntries(
		text
			.split(/[\s,]+/)
			.filter(each => each.includes('='))
			.map(each => [each.slice(0, each.indexOf('=')), each.slice(each.indexOf('=') + 1)])
	);

/** The field that an error of the server is about. @param {import('../api.js').FieldError} error */
export const fieldOf = ({pointer, field}) =>
	pointer?.startsWith('/primary') ? 'primary' : String(pointer?.split('/')[2] ?? field ?? pointer?.split('/')[1]);

/** @typedef {import('../vendor/preact.js').ComponentChildren} Children */

/** ARIA attributes that link an input to its help and error. @param {string} id @param {string | undefined} refused */
const described = (id, refused) => ({
	'aria-describedby': `${id}-help${refused ? ` ${id}-refused` : ''}`,
	'aria-invalid': refused ? 'true' : undefined
});

/** @param {{id: string, help: Children, refused?: string | undefined}} props */
const Hint = ({id, help, refused}) => html`
	<span class="help" id=${`${id}-help`}>${help}</span>
	${refused && html`<span class="refused" id=${`${id}-refused`} role="alert">${refused}</span>`}
`;

/** A label, an input and its help. @param {{id: string, label: string, help: string, refused?: string | undefined,
 *   children: Children}} props */
export const Field = ({id, label, help, refused, children}) => html`<div class="field">
	<label for=${id}>${label}</label>
	${children}
	<${Hint} id=${id} help=${help} refused=${refused} />
</div>`;

/**
 * A setting of a run: checkboxes if its schema lists the values, else a text field.
 * @param {{name: string, schema: Schema, text: string, refused: string | undefined, unread: string | undefined,
 *   onText: (text: string) => void}} props unread: why no run of this experiment reads it
 */
export function Setting({name, schema, text, refused, unread, onText}) {
	const id = `set-${name}`;
	const few = choices(schema);
	const label = words(name);
	const help = unread ? `Not used: ${unread}.` : schema.description + limits(schema);
	const {'x-default': byDefault, 'x-default-of': network} = schema;
	const whose = network ? `default of ${network}` : 'default';
	if (!few)
		return html`<${Field} id=${id} label=${label} help=${help} refused=${refused}>
			<input
				id=${id}
				value=${text}
				autocomplete="off"
				spellcheck="false"
				list=${name === 'model' ? 'models' : undefined}
				placeholder=${byDefault === undefined ? whose : `${whose}: ${byDefault}`}
				disabled=${Boolean(unread)}
				...${described(id, refused)}
				onInput=${event => onText(event.target.value)}
			/>
		<//>`;
	const chosen = text.split(',').map(each => each.trim());
	const toggle = (/** @type {string} */ value) =>
		onText(few.filter(each => (each === value) !== chosen.includes(each)).join(', '));
	return html`<fieldset class="field" aria-describedby=${`${id}-help`}>
		<legend>${label}</legend>
		<span class="row tight">
			${few.map(
				value => html`<label key=${value}>
					<input
						type="checkbox"
						checked=${chosen.includes(value)}
						disabled=${Boolean(unread)}
						aria-invalid=${refused ? 'true' : undefined}
						onChange=${() => toggle(value)}
					/> ${value}
					${value === byDefault && html` <small>(${whose})</small>`}
				</label>`
			)}
		</span>
		<${Hint} id=${id} help=${help} refused=${refused} />
	</fieldset>`;
}

/**
 * @param {{id: string, label: string, value: number | null | undefined, onValue: (value: number | null) => void,
 *   help: string, refused: Map<string, string>, min: number, max?: number, step?: 'any'}} props
 */
export function Amount({id, label, value, onValue, help, refused, ...limits}) {
	return html`<${Field} id=${id} label=${label} help=${help} refused=${refused.get(id)}>
		<input
			id=${id}
			type="number"
			value=${value ?? ''}
			...${limits}
			...${described(id, refused.get(id))}
			onInput=${event => onValue(event.target.value === '' ? null : Number(event.target.value))}
		/>
	<//>`;
}

/**
 * @param {{id: string, label: string, value: string, options: [string, string][], onValue: (value: string) => void,
 *   help: string}} props
 */
export function OneOf({id, label, value, options, onValue, help}) {
	return html`<${Field} id=${id} label=${label} help=${help}>
		<select id=${id} value=${value} ...${described(id, undefined)} onChange=${event => onValue(event.target.value)}>
			${options.map(([each, says]) => html`<option key=${each} value=${each} selected=${each === value}>${says}</option>`)}
		</select>
	<//>`;
}

/**
 * @typedef {{request: Request, set: (changes: Record<string, unknown>) => void,
 *   refused: Map<string, string>}} Asked
 */

// Repetitions, order and stopping rule; limits, priority and labels of all runs.

const TRACED = /** @type {Record<string, boolean | string | null>} */ ({false: null, first: 'first', true: true});

/** @param {Asked} props */
export function Repetitions({request, set, refused}) {
	const {stop} = request;
	/** @param {Record<string, number | null>} changes */
	const setStop = changes => {
		const next = Object.fromEntries(Object.entries({...stop, ...changes}).filter(([, value]) => value !== null));
		set({stop: next['rel_ci'] ? next : null});
	};
	return html`<section class="panel">
		<h2>Repetitions and stopping rule</h2>
		<div class="fields">
			<${Amount}
				id="repetitions"
				label="Repetitions"
				value=${request.repetitions}
				onValue=${value => set({repetitions: value ?? undefined})}
				help="of each variant, each in a fresh process; empty: as many as a verdict needs"
				refused=${refused}
				min=${1}
				max=${1000}
			/>
			<${Amount}
				id="rel_ci"
				label="Target interval, ± %"
				value=${stop?.rel_ci ? Number((stop.rel_ci * 100).toPrecision(4)) : null}
				onValue=${value => setStop({rel_ci: value === null ? null : value / 100})}
				help="adds repetitions until every 95 % interval is at least this narrow"
				refused=${refused}
				min=${0.01}
				max=${99}
				step="any"
			/>
			${stop &&
			html`
				<${Amount}
					id="max_repetitions"
					label="Maximum repetitions"
					value=${stop.max_repetitions}
					onValue=${value => setStop({max_repetitions: value})}
					help="of each variant"
					refused=${refused}
					min=${1}
					max=${1000}
				/>
				<${Amount}
					id="budget_s"
					label="Budget, s"
					value=${stop.budget_s}
					onValue=${value => setStop({budget_s: value})}
					help="worker time of all attempts together"
					refused=${refused}
					min=${1}
				/>
			`}
			<${OneOf}
				id="order"
				label="Order"
				value=${request.order ?? 'interleaved'}
				options=${['interleaved', 'sequential'].map(each => [each, each])}
				onValue=${value => set({order: value === 'interleaved' ? null : value})}
				help="interleaved: every variant once in each block, in random order; every second block is reversed"
			/>
			<${OneOf}
				id="trace"
				label="Traces"
				value=${String(request.trace ?? false)}
				options=${[
					['false', 'none'],
					['first', 'first run of each variant'],
					['true', 'every run']
				]}
				onValue=${value => set({trace: TRACED[value]})}
				help="recorded in a separate attempt, whose times are not used"
			/>
		</div>
	</section>`;
}

/** @param {Asked} props */
export function Limits({request, set, refused}) {
	const labels = Object.entries(request.requires?.labels ?? {});
	// Keeps the typed text until the field loses focus, even if an answer renders the page again.
	const [typed, setTyped] = useState(/** @type {string | null} */ (null));
	/** @param {string} text */
	const setLabels = text => {
		setTyped(text);
		const {labels: _, ...others} = request.requires ?? {};
		const asked = labelsOf(text);
		set({requires: Object.keys(asked).length ? {...others, labels: asked} : others});
	};
	return html`
		<${Amount}
			id="timeout_s"
			label="Timeout, s"
			value=${request.limits?.timeout_s}
			onValue=${value => set({limits: value === null ? null : {timeout_s: value}})}
			help="an attempt that takes longer is stopped"
			refused=${refused}
			min=${1}
		/>
		<${Amount}
			id="priority"
			label="Priority"
			value=${request.priority}
			onValue=${value => set({priority: value})}
			help="runs of higher priority start first"
			refused=${refused}
			min=${-100}
			max=${100}
		/>
		<${Field}
			id="labels"
			label="Labels of the node"
			help="runs start only on nodes with these labels"
			refused=${refused.get('labels')}
		>
			<input
				id="labels"
				value=${typed ?? labels.map(([name, value]) => `${name}=${value}`).join(' ')}
				placeholder="cpu=zen4"
				aria-describedby="labels-help"
				onInput=${event => setLabels(event.target.value)}
				onBlur=${() => setTyped(null)}
			/>
		<//>
		<div class="field">
			<label>
				<input
					type="checkbox"
					checked=${request.calibrates === true}
					onChange=${event => set({calibrates: event.target.checked ? true : null})}
				/> A/A:
				calibrate the node
			</label>
			<span class="help">no axes: all runs are identical and show the smallest difference that the node detects</span>
		</div>
	`;
}
