// One request as command line, curl and JSON.
import {html} from './vendor/preact.js';
import {API} from './api.js';
import {plainText, sideText} from './format.js';
import {Copy} from './pieces.js';

/** @typedef {import('./schemas').Request} Request */

/** @param {unknown} value */
const quoted = value => {
	const text = plainText(value);
	return /^[\w.,:/=+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
};

const SAID = new Set(['name', 'base', 'axes', 'primary', 'repetitions', 'stop', 'trace', 'limits']);

/**
 * A question as the command line writes it; another text as it is.
 * @param {string | import('./schemas').Schemas['Primary']} primary
 */
export const questionText = primary =>
	typeof primary === 'string' ? primary : `${sideText(primary.b)} vs ${sideText(primary.a)}`;

/** Whether options of the command line can express a request. Otherwise it needs a file. @param {Request} request */
function isPlain(request) {
	const others = Object.entries(request).filter(
		([name, value]) => !SAID.has(name) && JSON.stringify(value) !== JSON.stringify(OMITTED[name])
	);
	const {primary} = request;
	const {a, b} = typeof primary === 'object' && primary ? primary : {a: {}, b: {}};
	const settings = [request.base ?? {}, request.axes ?? {}, a, b];
	const values = settings.flatMap(each => Object.values(each).flat());
	return (
		!others.length &&
		values.every(value => (typeof value !== 'object' || value === null) && !String(value).includes(',')) &&
		!Object.values(request.axes ?? {})
			.flat()
			.some(value => typeof value === 'boolean') // options of these have no value
	);
}
/** Default values: a request with them equals one without them. @type {Record<string, unknown>} */
const OMITTED = {
	order: 'interleaved',
	seed: 0,
	priority: 0,
	zip: [],
	exclude: [],
	requires: {},
	calibrates: false,
	confirms: null,
	primary: null
};

/** `taskloom submit ...` for a request. @param {Request} request */
export function commandOf(request) {
	if (!isPlain(request))
		return `cat > experiment.json <<'END'\n${JSON.stringify(request)}\nEND\ntaskloom submit experiment.json`;
	const words = ['taskloom submit'];
	const option = (/** @type {string} */ name, /** @type {unknown} */ value) =>
		words.push(`--${name.replaceAll('_', '-')} ${quoted(value)}`);
	for (const [name, value] of Object.entries(request.base ?? {}))
		if (value === true) words.push(`--${name.replaceAll('_', '-')}`);
		else if (value !== null && value !== false) option(name, value);
	for (const [name, values] of Object.entries(request.axes ?? {})) option(name, values.join(','));
	if (request.name) option('name', request.name);
	if (request.primary) option('primary', questionText(request.primary));
	if (request.repetitions) option('repetitions', request.repetitions);
	if (request.stop)
		option(
			'stop',
			Object.entries(request.stop)
				.filter(([, value]) => value !== null)
				.map(([name, value]) => `${name}=${value}`)
				.join(',')
		);
	if (request.limits?.timeout_s) option('timeout_s', request.limits.timeout_s);
	if (request.trace) words.push(request.trace === 'first' ? '--trace-first' : '--trace');
	return words.join(' \\\n    ');
}

/** `curl` for a request. @param {Request} request */
export const curlOf = request =>
	[
		'curl -X POST',
		quoted(String(new URL('experiments', API))),
		"-H 'Authorization: Bearer KEY'",
		"-H 'Content-Type: application/json'",
		`-d ${quoted(JSON.stringify(request))}`
	].join(' \\\n    ');

/** @param {{request: Request}} props */
export const Same = ({request}) =>
	[
		['Command line', commandOf(request)],
		['curl', curlOf(request)],
		['JSON', JSON.stringify(request, null, 2)]
	].map(
		([name, text]) => html`<section key=${name} class="panel stack tight">
			<div class="row between"><h2>${name}</h2><${Copy} text=${text} /></div>
			<pre class="command">${text}</pre>
		</section>`
	);
