// A tuning: its trials, the settings that were tried, the pairs that confirm the winner, and the fresh draws.
import {html} from '../vendor/preact.js';
import {link} from '../address.js';
import {useAnswer} from '../answers.js';
import {count, duration, percent, plural, ratio, variantName, words} from '../format.js';
import {Answered, Figures, Table} from '../pieces.js';
import {coordinates} from '../plots/chosen.js';
import {Plot} from '../plots/plot.js';
import {Lines} from '../plots/series.js';

/** @typedef {import('../schemas').Schemas['Tuning']} Found */
/** @typedef {import('../schemas').Schemas['Trial']} Tried */

const RATIO = 'step time of the default / of the setting';
/** @type {import('../plots/plot.js').Column<Tried>[]} */
const FIELDS = [
	{label: 'run', value: each => each.run_id},
	{label: 'block', value: each => each.block + 1},
	{label: 'settings', value: each => variantName(each.settings)},
	{label: 'state', value: each => each.state},
	{label: 'disturbed', value: each => String(each.flagged)},
	{label: 'ratio', value: each => each.ratio},
	{label: 'reason', value: each => each.reason}
];

/** Each trial in its order, and the best so far. @param {{of: Found}} props */
function Trials({of}) {
	const {trials} = of;
	let best = 0;
	const sofar = trials.map(each => (best = Math.max(best, each.ratio ?? 0)) || null);
	const lost = trials.filter(each => each.state !== 'open' && each.ratio === null).length;
	const ratios = (/** @type {boolean} */ flagged) => trials.map(each => (each.flagged === flagged ? each.ratio : null));
	return html`<${Lines}
		title="Trials"
		name=${`trials-${of.experiment_id}`}
		said=${`One run each; the ratio is ${RATIO} in the same block. The best of many is partly lucky.` +
		(lost ? ` ${plural(lost, 'trial')} without a ratio: see Table.` : '')}
		fields=${FIELDS}
		rows=${trials}
		x=${trials.map((_, i) => i + 1)}
		xLabel="trial"
		yLabel="ratio to the default"
		href=${(/** @type {number} */ i) => link('run', {id: trials[i]?.run_id ?? ''})}
		series=${[
			{label: 'the default', token: 'edge', values: trials.map(() => 1), dash: '4 3'},
			{label: 'best so far', token: 'fork-join', values: sofar, dash: '1 0'},
			{label: 'trial', token: 'task', values: ratios(false), kind: 'points'},
			{label: 'disturbed trial', token: 'warn', values: ratios(true), kind: 'points'}
		]}
	/>`;
}

/** Settings as parallel coordinates, a line for each trial. @param {{of: Found}} props */
function Coordinates({of}) {
	const best = JSON.stringify(of.best);
	const isBest = (/** @type {Tried} */ each) => JSON.stringify(each.settings) === best;
	const known = of.trials.filter(each => each.ratio !== null).sort((a, b) => Number(isBest(a)) - Number(isBest(b)));
	return html`<${Plot}
		title="Settings of the trials"
		name=${`settings-${of.experiment_id}`}
		said="A line for each measured trial. – is the automatic value."
		legend=${[
			['good', 'winner'],
			['task', 'faster than the default'],
			['line', 'slower']
		]}
		fields=${FIELDS}
		rows=${of.trials}
		draw=${(/** @type {number} */ width) =>
			coordinates({
				columns: Object.keys(of.trials[0]?.settings ?? {}),
				rows: known.map(each => ({...each.settings, each})),
				ink: ({each}) =>
					isBest(each) ? ['var(--good)', 3.2] : [`var(--${Number(each.ratio) > 1 ? 'task' : 'line'})`, 1.3],
				says: ({each}) => `${variantName(each.settings)}: ${ratio(each.ratio)}`,
				width
			})}
	/>`;
}

/** The confirmation: each pair, and the ratio with its interval. @param {{of: Found}} props */
function Confirmation({of}) {
	const {pairs, confirmed} = of;
	const all = (/** @type {number | null | undefined} */ value) => pairs.map(() => value ?? null);
	return html`<${Lines}
		title="Confirmation"
		name=${`confirmation-${of.experiment_id}`}
		said="New pairs of the default and the winner, after it was chosen; the ratio comes from these alone."
		fields=${[
			{label: 'block', value: each => each.block + 1},
			{label: 'default (s)', value: each => each.default_s},
			{label: 'winner (s)', value: each => each.winner_s},
			'ratio'
		]}
		rows=${pairs}
		x=${pairs.map((_, i) => i + 1)}
		xLabel="pair"
		yLabel="ratio to the default"
		series=${[
			{label: 'the default', token: 'edge', values: all(1), dash: '4 3'},
			{label: 'ratio', token: 'good', values: all(confirmed?.ratio), dash: '1 0'},
			{label: 'from', token: 'good', values: all(confirmed?.ratio_low), dash: '2 3'},
			{label: 'to', token: 'good', values: all(confirmed?.ratio_high), dash: '2 3'},
			{label: 'pair', token: 'task', values: pairs.map(each => each.ratio), kind: 'points'}
		]}
	/>`;
}

/** @param {{of: Found}} props */
const Draws = ({of}) => html`
	<h2>Drawn at random after the choice</h2>
	<${Table}
		caption="Fresh draws beside the winner"
		rows=${of.draws.map((each, i) => ({...each, i}))}
		id=${each => each.i}
		columns=${[
			{label: 'Settings', class: 'question', cell: each => variantName(each.settings)},
			{label: 'Against the winner', tight: true, cell: each => each.state.replaceAll('-', ' ')},
			{label: 'Its time / the winner’s', number: true, cell: each => ratio(each.ratio)}
		]}
	/>
	<p class="soft">A draw that equals the winner, fails or is not run counts against the winner.</p>
`;

/** @param {{of: Found}} props */
const Importance = ({of}) => html`
	<h2>Importance of the settings</h2>
	<${Table}
		caption="Importance of the settings"
		rows=${of.importance}
		id=${each => each.setting}
		columns=${[
			{label: 'Setting', cell: each => words(each.setting)},
			{label: 'Mean effect on the step time', number: true, cell: each => percent(Math.expm1(each.effect))},
			{label: 'Trials', number: true, cell: each => each.n}
		]}
	/>
	<p class="soft">Exploratory: the search chose the trials.</p>
`;

/** @param {{of: import('../schemas').Schemas['ExperimentDetail'], topic: string}} props */
export function Tuning({of, topic}) {
	const answer = useAnswer(`experiments/${of.id}/tuning`, {}, {follow: topic});
	return html`<${Answered} answer=${answer} height=${500}>
		${(/** @type {Found} */ found) => html`<div class="stack">
			<section class="panel stack tight">
				${(found.phase !== 'ended' || !of.verdict) && html`<p>${found.sentence}</p>`}
				${found.missing.map(each => html`<p key=${each} class="soft">Missing: ${each}.</p>`)}
				<${Figures}
					of=${[
						['phase', found.phase],
						['valid settings', count(found.space.valid), `of ${plural(found.space.combinations, 'combination')}`],
						['runs', count(found.spent_runs), `of at most ${count(found.planned_runs)}`],
						['workers’ time', duration(found.spent_s)]
					]}
				/>
				${found.base &&
				html`<p>
					<a class="button first" href=${link('new', {ask: JSON.stringify({name: 'tuned', base: found.base})})}>
						Run with this
					</a>
				</p>`}
			</section>
			<section class="panel"><${Trials} of=${found} /></section>
			<section class="panel"><${Coordinates} of=${found} /></section>
			${found.importance.length > 0 && html`<section class="panel"><${Importance} of=${found} /></section>`}
			${found.pairs.length > 0 && html`<section class="panel"><${Confirmation} of=${found} /></section>`}
			${found.draws.length > 0 && html`<section class="panel"><${Draws} of=${found} /></section>`}
		</div>`}
	<//>`;
}
