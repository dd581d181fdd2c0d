// Converts a form's texts to a request and back. Comma-separated values become an axis, as on the command line.

import {questionText} from '../request.js';

/** @typedef {Record<string, string>} Texts */

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

/** The schemas that a field accepts, without null. @param {any} schema */
export const kinds = schema => (schema.anyOf ?? [schema]).filter((/** @type {any} */ each) => each.type !== 'null');
/** The values of an enumeration; null for other fields. @param {any} schema @returns {string[] | null} */
export const choices = schema => kinds(schema).find((/** @type {any} */ each) => each.enum)?.enum ?? null;

/** The limits of a numeric field in words. @param {any} schema */
export function limits(schema) {
	const {minimum: least, maximum: most} = kinds(schema).find((/** @type {any} */ each) => 'minimum' in each) ?? {};
	if (least === undefined) return '';
	return most <= Number.MAX_SAFE_INTEGER ? `; ${least} to ${most.toLocaleString('en-US')}` : `; at least ${least}`;
}

/** @param {string} text @param {any} schema */
function valueOf(text, schema) {
	const types = new Set(kinds(schema).map((/** @type {any} */ each) => each.type));
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

/** @param {unknown} value */
const textOf = value => (typeof value === 'object' && value !== null ? JSON.stringify(value) : String(value));

/** A question in a text such as `scheduler=task,threads=2 vs scheduler=fork-join,threads=2`; the text itself if it has
 * another form, so that the server explains it. @param {string} text @param {Record<string, any>} fields */
function questionOf(text, fields) {
	const sides = text.split(' vs ').map(side => parts(side).map(part => part.split('=').map(each => each.trim())));
	if (sides.length !== 2 || sides.some(side => side.some(pair => pair.length !== 2))) return text;
	const [b, a] = sides.map(side =>
		Object.fromEntries(side.map(([name = '', value = '']) => [name, fields[name] ? valueOf(value, fields[name]) : value]))
	);
	return {a, b};
}

/** The texts that a form shows for a request. @param {any} request @returns {Texts} */
export function textsOf(request) {
	/** @type {Texts} */
	const texts = {};
	for (const [name, value] of Object.entries(request.base ?? {})) if (value !== null) texts[name] = textOf(value);
	for (const [name, values] of Object.entries(request.axes ?? {}))
		texts[name] = /** @type {any[]} */ (values).map(textOf).join(', ');
	if (request.primary) texts['primary'] = questionText(request.primary);
	return texts;
}

const LISTS = ['cores', 'prompt']; // settings whose value is a list, so that commas do not separate values

/** The base and axes in a form's texts. @param {Texts} texts @param {Record<string, any>} fields */
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

/** Why no run of a form reads a setting, by the modes that it asks for; undefined if one does.
 * @param {any} schema @param {Texts} texts @returns {string | undefined} */
export function unreadIn(schema, texts) {
	const asked = parts(texts['mode'] ?? '');
	const why = (asked.length ? asked : ['train']).map(mode => schema['x-unread']?.[mode]);
	return why.every(Boolean) ? why[0] : undefined;
}

/** The request in a form, without empty fields and without settings that no run reads.
 * @param {any} request @param {Texts} texts
 * @param {Record<string, any>} fields */
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
