// The dry run of a request: number and order of its runs, their duration, and the smallest difference they detect.
import {html, useEffect, useState} from '../vendor/preact.js';
import {link} from '../address.js';
import {useAnswer} from '../answers.js';
import {Problem, ask} from '../api.js';
import {bytes, count, duration, percent, plural, variantName} from '../format.js';
import {Table, Time} from '../pieces.js';

const PAUSE_MS = 220;
const SHOWN = 24;

/**
 * The dry run of a request, repeated when typing pauses. onAsked is called before each.
 * @param {string} request as JSON
 * @param {() => void} onAsked
 */
export function useDryRun(request, onAsked) {
	const [plan, setPlan] = useState(/** @type {import('../schemas').Schemas['DryRun'] | null} */ (null));
	const [problem, setProblem] = useState(/** @type {Problem | null} */ (null));
	useEffect(() => {
		const stop = new AbortController();
		const timer = setTimeout(async () => {
			onAsked();
			const body = JSON.parse(request);
			try {
				setPlan(await ask('experiments', {method: 'POST', params: {dry_run: true}, body, signal: stop.signal}));
				setProblem(null);
			} catch (error) {
				if (stop.signal.aborted) return;
				setPlan(null);
				setProblem(error instanceof Problem ? error : new Problem({title: String(error)}));
			}
		}, PAUSE_MS);
		return () => {
			clearTimeout(timer);
			stop.abort();
		};
	}, [request]);
	return {plan, problem};
}

/**
 * The smallest difference that a node detects, by its last A/A experiment.
 * @param {import('../schemas').Schemas['DetectableDifference']} each
 */
const detectable = each => `${each.node}: ${each.relative === null ? 'nothing' : percent(each.relative)}`;

/** A dry run in one sentence. @param {import('../schemas').Schemas['DryRun']} plan */
function planSaid(plan) {
	const found = (plan.detectable ?? []).flatMap(each => (each.relative === null ? [] : [each.relative]));
	const least = found.length ? Math.min(...found) : null;
	const long =
		plan.estimated_s === null
			? 'duration unknown: nothing of this shape has run yet'
			: `about ${duration(plan.estimated_s)}` +
				(plan.estimate_basis === 'guess' ? ' (a guess: not all of these shapes have run)' : '');
	const unclear = plan.detectable?.length ? ', too few to detect a difference' : '';
	return (
		`${plural(plan.runs, 'run')}, ${long}` +
		(least === null ? unclear : `, detects differences of ${percent(least)} or more`)
	);
}

/** What so many pairs decide. @param {any} found */
function decides({pairs, needed, decidable}) {
	if (pairs === 0) return 'cannot be decided, because the order sequential makes no pairs';
	return decidable
		? `${plural(pairs, 'pair')} can decide it; ${needed} suffice`
		: `${plural(pairs, 'pair')} cannot decide it, whatever the times; at least ${needed} repetitions can`;
}

/**
 * What the planned repetitions can decide, a sentence each.
 * @param {import('../schemas').Schemas['DryRun']} plan
 * @returns {string[]}
 */
function decidable({primary, family}) {
	const told = [];
	if (primary) told.push(`The question (${primary.b} against ${primary.a}): ${decides(primary)}.`);
	if (family) {
		const parts = [plural(family.comparisons, 'comparison')];
		if (family.pooled) parts.push(plural(family.pooled, 'pooled ratio'));
		const several = family.comparisons + family.pooled > 1;
		const which = several ? `Each of ${parts.join(' and ')} alone` : `The ${primary ? 'other ' : ''}comparison`;
		told.push(`${which}: ${decides(family)}.`);
	}
	return told;
}

/** @param {{plan: import('../schemas').Schemas['DryRun'] | null, problem: Problem | null}} props */
export function Plan({plan, problem}) {
	return html`<p class=${`verdict ${plan ? '' : 'undecided'}`} role="status">
		${plan ? planSaid(plan) : problem ? 'This experiment cannot run as it is.' : 'Planning the runs…'}
		${plan &&
		html`<small class="soft">
			${plural(plan.variants, 'variant')}, arenas of at most ${bytes(plan.memory_bytes)}
			${plan.detectable?.length
				? `; smallest detectable difference on ${plan.detectable.map(detectable).join(', ')} (last A/A experiment)`
				: '; no node is calibrated, so the smallest detectable difference is unknown'}
		</small>`}
		${plan && decidable(plan).map(each => html`<small key=${each}>${each}</small>`)}
	</p>`;
}

/**
 * The first runs, in the order in which they will be queued.
 * @param {{plan: import('../schemas').Schemas['DryRun']}} props
 */
export function Order({plan}) {
	return html`<section class="panel">
		<h2>Order</h2>
		<${Table}
			caption="Order of the runs"
			rows=${plan.order.slice(0, SHOWN)}
			id=${r => r.position}
			columns=${[
				{name: 'p', label: 'Position', number: true, tight: true, cell: r => r.position + 1},
				{name: 'b', label: 'Block', number: true, tight: true, cell: r => r.block + 1},
				{name: 'v', label: 'Variant', cell: r => variantName(r.variant)}
			]}
		/>
		${plan.order.length > SHOWN && html`<p class="soft">${SHOWN} of ${count(plan.order.length)} shown.</p>`}
	</section>`;
}

/** A setting that a tuning has confirmed for the network and shape in the form, with its age and evidence.
 * @param {{base: Record<string, unknown>, onUse: (settings: Record<string, unknown>) => void}} props */
export function Tuned({base, onUse}) {
	const answer = useAnswer('tuned', {base: JSON.stringify(base), limit: 1});
	/** @type {import('../schemas').Schemas['TunedSetting'] | undefined} */
	const found = answer.data?.items[0];
	if (!found || Object.entries(found.settings).every(([name, value]) => base[name] === (value ?? undefined)))
		return null;
	return html`<div class="notice">
		<span>
			A <a href=${link('experiment', {id: found.experiment_id})}>tuning</a> of this network and shape ended${' '}
			<${Time} at=${found.confirmed_at} /> on ${found.node}: ${found.sentence}
		</span>
		<span><button type="button" onClick=${() => onUse(found.settings)}>Use its setting</button></span>
	</div>`;
}
