// The verdict of an experiment, or when to expect it, in one line.
import {html} from '../vendor/preact.js';
import {timeLeft} from '../format.js';
import {State, mostDisturbed} from '../words.js';

/** @param {{of: import('../schemas').Schemas['ExperimentSummary']}} props */
export function Known({of}) {
	if (of.verdict?.verdict === 'none') return html`<span class="soft">${of.verdict.sentence}</span>`;
	if (of.verdict)
		return html`<${State} of=${of.verdict.verdict} says=${of.verdict.sentence} calm=${mostDisturbed(of.verdict)} />`;
	if (of.state === 'active')
		return html`<span class="soft">${of.eta_s == null ? 'no verdict yet' : `verdict in ${timeLeft(of)}`}</span>`;
	return html`<span class="soft">no verdict</span>`;
}
