// States and verdicts. Each has a word, a shape and a colour, so that nobody depends on colour alone.
import {count, plural, timeLeft} from './format.js';
import {html} from './vendor/preact.js';

/** @typedef {import('./schemas').Schemas} Schemas */
/**
 * Every word that the API uses for a state or a verdict, and those of this dashboard. A new one must get a look.
 * @typedef {Schemas['RunRow']['state'] | Schemas['AttemptSummary']['state']
 *   | Schemas['ExperimentSummary']['state'] | Schemas['Comparison']['verdict'] | Schemas['AlertSummary']['state']
 *   | NonNullable<Schemas['WorkerSummary']['state']> | Schemas['CardRule']['holds'] | 'valid' | 'expired' | 'revoked'
 *   | 'flagged' | 'improved'} Word
 */
/** @typedef {keyof typeof SHAPES} ShapeName */

const SHAPES = {
	ring: 'M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9',
	half: 'M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M6 3.5v2.7l1.8 1.2',
	play: 'M3.2 1.8L10.4 6L3.2 10.2Z',
	tick: 'M1.8 6.4L4.7 9.3L10.4 2.8',
	cross: 'M2.4 2.4L9.6 9.6M9.6 2.4L2.4 9.6',
	slash: 'M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M2.9 9.1L9.1 2.9',
	warn: 'M6 1.2L11.2 10.4H.8ZM6 4.6v2.6M6 8.6v.4',
	up: 'M6 2L10.6 9.6H1.4Z',
	down: 'M6 10L1.4 2.4H10.6Z',
	same: 'M1.8 4.4H10.2M1.8 7.8H10.2',
	ask: 'M3.6 4a2.4 2.4 0 1 1 3.4 2.2c-.8.4-1 .8-1 1.5M6 9.9v.5',
	eye: 'M1 6C3 2.6 9 2.6 11 6C9 9.4 3 9.4 1 6ZM6 6v.1'
};
const FILLED = new Set(['play', 'up', 'down']);

/** @type {Record<Word, [ShapeName, 'calm' | 'live' | 'good' | 'bad' | 'odd' | 'warn']>} */
const LOOKS = {
	queued: ['ring', 'calm'],
	leased: ['half', 'live'],
	running: ['play', 'live'],
	active: ['play', 'live'],
	succeeded: ['tick', 'good'],
	finished: ['tick', 'good'],
	failed: ['cross', 'bad'],
	cancelled: ['slash', 'calm'],
	quarantined: ['warn', 'odd'],
	lost: ['warn', 'warn'],
	superseded: ['slash', 'calm'],
	faster: ['up', 'good'],
	slower: ['down', 'warn'],
	same: ['same', 'good'],
	undecided: ['ask', 'calm'],
	refused: ['slash', 'bad'],
	suspected: ['eye', 'warn'],
	confirming: ['half', 'live'],
	confirmed: ['warn', 'bad'],
	dismissed: ['tick', 'calm'],
	above: ['up', 'bad'],
	below: ['down', 'warn'],
	within: ['tick', 'good'],
	idle: ['ring', 'calm'],
	busy: ['play', 'live'],
	'measuring peaks': ['half', 'live'],
	silent: ['warn', 'bad'],
	left: ['slash', 'calm'],
	ending: ['half', 'warn'],
	yes: ['tick', 'good'],
	partly: ['half', 'warn'],
	no: ['cross', 'bad'],
	valid: ['tick', 'good'],
	expired: ['half', 'calm'],
	revoked: ['slash', 'calm'],
	flagged: ['warn', 'warn'],
	improved: ['up', 'good']
};
/** The order of states in bars. */
export const STATES = /** @type {Schemas['RunRow']['state'][]} */ ([
	'succeeded',
	'running',
	'leased',
	'queued',
	'failed',
	'quarantined',
	'cancelled'
]);

/** @param {string} word */
const look = word => LOOKS[/** @type {Word} */ (word)] ?? ['ring', 'calm'];
/** @param {string} word */
export const tone = word => look(word)[1];

/** @param {{shape: ShapeName}} props */
export function Shape({shape}) {
	const drawn = FILLED.has(shape)
		? {fill: 'currentColor'}
		: {fill: 'none', stroke: 'currentColor', 'stroke-width': 1.7, 'stroke-linecap': 'round', 'stroke-linejoin': 'round'};
	return html`<svg viewBox="0 0 12 12" aria-hidden="true"><path d=${SHAPES[shape]} ...${drawn} /></svg>`;
}

/** Whether most runs behind a verdict were disturbed. @param {{runs?: number, disturbed_runs?: number}} of */
export const mostDisturbed = ({runs = 0, disturbed_runs = 0}) => 2 * disturbed_runs > runs;

/**
 * A state with its shape and colour; calm: without the colour of a good or bad one.
 * @param {{of: string, says?: string | undefined, calm?: boolean}} props
 */
export function State({of, says, calm = false}) {
	const [shape, colour] = look(of);
	return html`<span class=${`state ${calm ? 'calm' : colour}`}><${Shape} shape=${shape} />${says ?? of}</span>`;
}

/**
 * A bar of counts by state. Its tooltip and its label for screen readers contain the counts.
 * @param {{counts: Record<string, number>, total: number}} props
 */
export function StateBar({counts, total}) {
	const present = STATES.filter(state => counts[state]);
	const said = present.map(state => `${counts[state]} ${state}`).join(', ') || 'no runs';
	return html`<div class="bar" role="img" aria-label=${said} title=${said}>
		${present.map(
			state => html`<span key=${state} class=${tone(state)} style=${{flexGrow: counts[state] / (total || 1)}}></span>`
		)}
	</div>`;
}

/** The number of present workers. @param {Schemas['WorkerCounts']} workers of /overview */
export const presentOf = ({idle, busy, ending, measuring_peaks}) => idle + busy + ending + measuring_peaks;

/** How many of the present workers are busy. @param {Schemas['WorkerCounts']} workers of /overview */
export function busySaid(workers) {
	const present = presentOf(workers);
	const {busy, measuring_peaks: measuring} = workers;
	return present
		? `${count(busy)} of ${plural(present, 'worker')} busy` + (measuring ? `, ${count(measuring)} measuring peaks` : '')
		: 'No worker is running';
}

/** The verdict of an experiment, or when to expect it, in one line.
 * @param {{of: Schemas['ExperimentSummary']}} props
 */
export function Known({of}) {
	if (of.verdict?.verdict === 'none') return html`<span class="soft">${of.verdict.sentence}</span>`;
	if (of.verdict)
		return html`<${State} of=${of.verdict.verdict} says=${of.verdict.sentence} calm=${mostDisturbed(of.verdict)} />`;
	if (of.state === 'active')
		return html`<span class="soft">${of.eta_s == null ? 'no verdict yet' : `verdict in ${timeLeft(of)}`}</span>`;
	return html`<span class="soft">no verdict</span>`;
}
