// Numbers and times, formatted for display.

/** Number formats by decimal places. They are created once: creating one takes longer than a row of a table. */
const formats = Array.from(
	{length: 7},
	(_, places) => new Intl.NumberFormat('en-US', {minimumFractionDigits: places, maximumFractionDigits: places})
);
/** @param {number} value @param {number} places */
const fixed = (value, places) => formats[places].format(value);

/** @param {number} value @param {number} digits */
function significant(value, digits) {
	if (value === 0) return '0';
	const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
	return fixed(value, Math.min(places, 6));
}

/** A measured time in milliseconds; microseconds below a tenth of one. @param {number | null | undefined} value_s */
export const ms = value_s =>
	value_s == null
		? '–'
		: value_s !== 0 && Math.abs(value_s) < 1e-4
			? `${significant(value_s * 1e6, 3)} µs`
			: `${significant(value_s * 1e3, value_s * 1e3 >= 1000 ? 4 : 3)} ms`;

/** @param {number[]} values */
export function median(values) {
	const sorted = [...values].sort((a, b) => a - b);
	return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : null;
}

/** A setting's or a metric's name in words. @param {string} name */
export const words = name => name.replaceAll('_', ' ');

/** A number for a table of data. @param {number | null | undefined} value @param {number} [digits] */
export const round = (value, digits = 6) => (value == null ? null : Number(value.toPrecision(digits)));

/** @param {number | null | undefined} value @param {number} [digits] */
export const number = (value, digits = 3) => (value == null ? '–' : significant(value, digits));

/** @param {number | null | undefined} value */
export const count = value => (value == null ? '–' : fixed(Math.round(value), 0));

/** What the rates of some runs or variants count. @param {{unit?: string}[]} rows */
export const perSecond = rows =>
	[...new Set(rows.map(row => row.unit ?? 'tokens'))]
		.sort()
		.join(', ')
		.replace(/^./, c => c.toUpperCase()) + '/s';

/** @param {number | null | undefined} value @param {number} [places] */
export const percent = (value, places = 1) => (value == null ? '–' : `${(value * 100).toFixed(places)} %`);

/**
 * A ratio with its interval: 1.017 [1.011, 1.023].
 * @param {number | null} value
 * @param {number | null} [low]
 * @param {number | null} [high]
 */
export const ratio = (value, low, high) =>
	value == null
		? '–'
		: value.toFixed(3) + (low == null || high == null ? '' : ` [${low.toFixed(3)}, ${high.toFixed(3)}]`);

/** @param {number | null | undefined} size */
export function bytes(size) {
	if (size == null) return '–';
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	const power = size < 1 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
	return `${power ? significant(size / 1024 ** power, 3) : size} ${units[power]}`;
}

/** A rounded duration: 9 min, 2 h 10 min. @param {number | null | undefined} value_s */
export function duration(value_s) {
	if (value_s == null) return '–';
	if (value_s < 1) return `${Math.round(value_s * 1000)} ms`;
	if (value_s < 90) return `${value_s < 10 ? value_s.toFixed(1) : Math.round(value_s)} s`;
	const minutes = Math.round(value_s / 60);
	if (minutes < 90) return `${minutes} min`;
	const hours = Math.floor(minutes / 60);
	if (hours < 36) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
	const days = Math.floor(hours / 24);
	return hours % 24 && days < 10 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** Estimated time to an end. @param {{eta_s?: number | null, eta_basis?: string | null}} of */
export const timeLeft = of => `about ${duration(of.eta_s)}${of.eta_basis === 'guess' ? ' (a guess)' : ''}`;

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const ONE = /** @type {Record<string, string>} */ ({pairs: 'pair', processes: 'process', occasions: 'occasion'});
/** The size of a sample: 8 pairs, 1 process. @param {number} n @param {string} [unit] */
export const sample = (n, unit = 'pairs') => plural(n, ONE[unit] ?? unit, unit);

/** @param {string | null | undefined} instant */
export function when(instant) {
	if (!instant) return '–';
	const at = new Date(instant);
	const ago_s = (Date.now() - at.getTime()) / 1000;
	if (ago_s >= 0 && ago_s < 5) return 'just now';
	if (ago_s >= 0 && ago_s < 36 * 3600) return `${duration(ago_s)} ago`;
	return at.toISOString().slice(0, 16).replace('T', ' ');
}

/** The value of a setting as short text. @param {unknown} value @returns {string} */
export function setting(value) {
	if (value == null) return '–';
	if (typeof value === 'object') {
		const named = /** @type {Record<string, unknown>} */ (value);
		if (typeof named['name'] === 'string') return named['name'];
		if ('channels' in named) return `${named['layers']} layers, ${named['channels']} channels`;
		if ('hidden' in named) return `${named['network']} of ${named['layers']} layers, ${named['hidden']} hidden units`;
		if (Array.isArray(value) || Object.values(named).some(each => typeof each === 'object')) return JSON.stringify(value);
		return Object.entries(named)
			.map(pair => pair.join('='))
			.join(',');
	}
	return String(value).replace(/^([\da-f]{12})[\da-f]{28,}$/, '$1'); // a commit or a build
}

/** Settings as pairs of words. @param {Record<string, unknown>} settings @returns {[string, string][]} */
export const pairsOf = settings => Object.entries(settings).map(([name, value]) => [words(name), setting(value)]);

/** Settings in words: task, 2 threads, 1x64; empty for none. @param {Record<string, unknown>} variant */
function named(variant) {
	const rest = {...variant};
	const parts = [];
	const take = (/** @type {string} */ name) => {
		const value = rest[name];
		delete rest[name];
		return value;
	};
	if (rest['scheduler'] != null) parts.push(String(take('scheduler')));
	if (rest['threads'] != null) parts.push(plural(Number(take('threads')), 'thread'));
	if (rest['batch_slice'] != null && rest['token_slice'] != null)
		parts.push(`${take('batch_slice')}×${take('token_slice')}`);
	for (const [name, value] of Object.entries(rest)) parts.push(`${words(name)} ${setting(value ?? 'default')}`);
	return parts.join(', ');
}

/** A variant in words. @param {Record<string, unknown>} variant */
export const variantName = variant => named(variant) || 'the only variant';

// Settings that the name of tiles has apart, and those that do not decide what a tile does.
const APART = /^((batch|token|unit)_slice|op_order|op_threads|scheduler|threads|sync|policy|assignment|runtime|cores)$/;

/** The slices of a row, and what else tells its tiles from those of other rows: 4×16, by diagonals, precision bf16.
 * @param {{batch_slice: number, token_slice: number, variant: Record<string, unknown>}} row */
export const slicesName = row =>
	[
		`${row.batch_slice}×${row.token_slice}`,
		...(row.variant['unit_slice'] == null ? [] : [plural(Number(row.variant['unit_slice']), 'unit')]),
		row.variant['op_order'] === 'diagonals' && 'by diagonals',
		named(Object.fromEntries(Object.entries(row.variant).filter(([name]) => !APART.test(name))))
	]
		.filter(Boolean)
		.join(', ');

/** The settings that both sides of a comparison have. @param {Record<string, unknown>} [at] */
export const settingsName = (at = {}) => named(at) || 'everything else equal';

/** The value of one setting in words: 2 threads, task, batch slice 4. @param {string} axis @param {unknown} value */
export const valueName = (axis, value) => variantName({[axis]: value});

/** The verb of a value: 2 threads are, 1 thread is. @param {string} axis @param {unknown} value */
export const verbOf = (axis, value) => (axis === 'threads' && value !== 1 ? 'are' : 'is');

/**
 * The commit that a submitter named, or the trainer's: 1a2b3c4d main.
 * @param {Partial<Record<`${'' | 'trainer_'}${'commit' | 'branch'}`, string | null> &
 *   Record<`${'' | 'trainer_'}dirty`, boolean | null>>} of
 * @param {'' | 'trainer_'} [whose]
 */
export const commit = (of, whose = '') =>
	[of[`${whose}commit`]?.slice(0, 8), of[`${whose}branch`], of[`${whose}dirty`] && 'changed sources']
		.filter(Boolean)
		.join(' ');

/** A value of JSON, without quotes around a text. @param {unknown} value */
export const plainText = value => (typeof value === 'string' ? value : JSON.stringify(value));

/** Settings as the command line and addresses write one side of a comparison. @param {Record<string, unknown>} side */
export const sideText = side =>
	Object.entries(side)
		.map(([name, value]) => `${name}=${plainText(value)}`)
		.join(',');
