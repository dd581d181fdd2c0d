// A tuning: its trials, the settings that were tried, the pairs that confirm the winner, and the fresh draws.
import {html} from '../vendor/preact.js';
import {link} from '../address.js';
import {useAnswer} from '../answers.js';
import {count, duration, ms, number, plural, ratio, setting, variantName} from '../format.js';
import {Answered, Figures, RunLink, Table} from '../pieces.js';
import {Plot} from '../plots/plot.js';
import {Dot, Label, XAxis, YAxis, scale} from '../plots/scale.js';

/** @typedef {import('../schemas').Schemas['Tuning']} Found */
/** @typedef {import('../schemas').Schemas['Trial']} Tried */

const PHASES = {explore: 'exploring', confirm: 'confirming', fresh: 'drawing', ended: 'ended'};
const RATIO = 'step time of the default / of the setting';
/** @type {import('../plots/plot.js').Field[]} */
const FIELDS = [
	{label: 'run', value: each => each.run_id},
	{label: 'block', value: each => each.block + 1},
	{label: 'settings', value: each => variantName(each.settings)},
	{label: 'state', value: each => each.state + (each.flagged ? ', flagged' : '')},
	{label: 'ratio', value: each => each.ratio},
	{label: 'reason', value: each => each.reason}
];

/** Bounds of ratios, with 1 inside and some room. @param {number[]} ratios */
function bounds(ratios) {
	const [low, high] = [Math.min(1, ...ratios), Math.max(1, ...ratios)];
	const room = (high - low) * 0.06 || 0.05;
	return [low - room, high + room];
}

/** Each trial in its order, and the best so far. @param {{of: Found}} props */
function Trials({of}) {
	const known = of.trials.filter(each => each.ratio !== null);
	const draw = (/** @type {number} */ width) => {
		const [low, high] = bounds(known.map(each => /** @type {number} */ (each.ratio)));
		const x = scale(0, of.trials.length + 1, 50, width - 12);
		const y = scale(low, high, 220, 10);
		let best = 0;
		let line = '';
		const dots = of.trials.map((each, i) => {
			const at = x(i + 1);
			const says = `run ${each.run_id}, ${variantName(each.settings)}: `;
			if (each.ratio == null) {
				return html`<path
					key=${i}
					d=${`M${at - 4} 212l8 8m0-8l-8 8`}
					stroke=${each.state === 'open' ? 'var(--soft)' : 'var(--bad)'}
					stroke-width="1.8"
				>
					<title>${says + each.state}</title>
				</path>`;
			}
			if (each.ratio > best) {
				line += line ? `H${at.toFixed(1)}V${y(each.ratio).toFixed(1)}` : `M${at.toFixed(1)} ${y(each.ratio).toFixed(1)}`;
				best = each.ratio;
			}
			return html`<circle
				key=${i}
				cx=${at}
				cy=${y(each.ratio)}
				r="4"
				fill=${each.flagged ? 'var(--paper)' : 'var(--task)'}
				stroke="var(--task)"
				stroke-width="1.5"
			>
				<title>${says + each.ratio.toFixed(3)}${each.flagged ? ', disturbed' : ''}</title>
			</circle>`;
		});
		const parts = html`
			<${XAxis} x=${x} top=${10} bottom=${220} label="trial, in the order of the runs" />
			<${YAxis} y=${y} left=${50} right=${width - 12} label="ratio to the default" />
			<path d=${`M50 ${y(1)}H${width - 12}`} stroke="var(--edge)" stroke-dasharray="4 3" />
			<path d=${`${line}H${width - 12}`} stroke="var(--fork-join)" stroke-width="1.6" fill="none" />
			${dots}
		`;
		return {height: 258, parts};
	};
	return html`<${Plot}
		title="Trials"
		name=${`trials-${of.experiment_id}`}
		said=${`One run each; the ratio is ${RATIO} in the same block. The best of many is partly lucky.`}
		legend=${[
			['task', 'trial (hollow: disturbed)'],
			['fork-join', 'best so far'],
			['bad', 'failed, or other losses']
		]}
		fields=${FIELDS}
		rows=${of.trials}
		draw=${draw}
	/>`;
}

/** Settings as parallel coordinates, a line for each trial. @param {{of: Found}} props */
function Coordinates({of}) {
	const names = Object.keys(of.trials[0]?.settings ?? {});
	const values = names.map(name =>
		[...new Set(of.trials.map(each => setting(each.settings[name])))].sort((a, b) =>
			a.localeCompare(b, 'en', {numeric: true})
		)
	);
	const known = of.trials.filter(each => each.ratio !== null);
	const ranked = [...known].sort((a, b) => /** @type {number} */ (a.ratio) - /** @type {number} */ (b.ratio));
	const good = new Set(ranked.slice(-Math.max(1, Math.ceil(ranked.length / 10))));
	const best = JSON.stringify(of.best);
	const draw = (/** @type {number} */ width) => {
		const top = 30;
		const bottom = 236;
		const room = Math.min(70, width / 8);
		const x = (/** @type {number} */ i) => room + (i * (width - 2 * room)) / Math.max(1, names.length - 1);
		const y = (/** @type {number} */ i, /** @type {unknown} */ value) => {
			const all = /** @type {string[]} */ (values[i]);
			return bottom - ((all.indexOf(setting(value)) + 0.5) / all.length) * (bottom - top);
		};
		const path = (/** @type {Tried} */ each) =>
			names.map((name, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(i, each.settings[name]).toFixed(1)}`).join('');
		const line = (/** @type {Tried} */ each, /** @type {string} */ colour, /** @type {number} */ w) => html`<path
			key=${each.run_id}
			d=${path(each)}
			stroke=${colour}
			stroke-width=${w}
			fill="none"
		>
			<title>${variantName(each.settings)}: ${ratio(each.ratio)}</title>
		</path>`;
		return {
			height: bottom + 12,
			parts: html`
				${ranked.filter(each => !good.has(each)).map(each => line(each, 'var(--line)', 1.2))}
				${[...good].map(each => line(each, 'var(--task)', 1.6))}
				${known.filter(each => JSON.stringify(each.settings) === best).map(each => line(each, 'var(--good)', 3.2))}
				${names.map(
					(name, i) => html`<g key=${name}>
						<path d=${`M${x(i)} ${top}V${bottom}`} stroke="var(--edge)" />
						<${Label} x=${x(i)} y=${16} text-anchor="middle" font-weight="600">${name.replaceAll('_', ' ')}<//>
						${values[i]?.map(
							value => html`<${Label} key=${value} x=${x(i) + 6} y=${y(i, value) + 4} fill="var(--ink)">${value}<//>`
						)}
					</g>`
				)}
			`
		};
	};
	return html`<${Plot}
		title="Settings of the trials"
		name=${`settings-${of.experiment_id}`}
		said="A line for each measured trial. – is the automatic value."
		legend=${[
			['good', 'winner'],
			['task', 'fastest tenth'],
			['line', 'others']
		]}
		fields=${FIELDS}
		rows=${of.trials}
		draw=${draw}
	/>`;
}

/** The confirmation: each pair, and the ratio with its interval. @param {{of: Found}} props */
function Confirmation({of}) {
	const known = of.pairs.filter(each => each.ratio !== null);
	const draw = (/** @type {number} */ width) => {
		const found = of.confirmed;
		const ends = found ? [found.ratio, found.ratio_low ?? found.ratio, found.ratio_high ?? found.ratio] : [];
		const [low, high] = bounds([...known.map(each => /** @type {number} */ (each.ratio)), ...ends]);
		const x = scale(low, high, 90, width - 14);
		const y = (/** @type {number} */ i) => 16 + 18 * i;
		const bottom = y(known.length + 1);
		return {
			height: bottom + 38,
			parts: html`
				<${XAxis} x=${x} top=${4} bottom=${bottom} label=${RATIO.replace('setting', 'winner')} />
				<path d=${`M${x(1)} 4V${bottom}`} stroke="var(--edge)" stroke-dasharray="4 3" />
				${known.map(
					(each, i) => html`<g key=${each.block}>
						<${Label} x=${82} y=${y(i) + 4} text-anchor="end">block ${each.block + 1}<//>
						<${Dot}
							x=${x}
							y=${y(i)}
							low=${null}
							high=${null}
							middle=${each.ratio}
							colour="var(--task)"
							says=${`${ms(each.default_s)} / ${ms(each.winner_s)} = ${ratio(each.ratio)}`}
						/>
					</g>`
				)}
				${found &&
				html`
					<${Label} x=${82} y=${y(known.length) + 4} text-anchor="end" font-weight="600">ratio<//>
					<${Dot}
						x=${x}
						y=${y(known.length)}
						low=${found.ratio_low}
						high=${found.ratio_high}
						middle=${found.ratio}
						colour="var(--good)"
						says=${ratio(found.ratio, found.ratio_low, found.ratio_high)}
					/>
				`}
			`
		};
	};
	return html`<${Plot}
		title="Confirmation"
		name=${`confirmation-${of.experiment_id}`}
		said="New pairs of the default and the winner, after it was chosen; the ratio comes from these alone."
		fields=${[
			{label: 'block', value: each => each.block + 1},
			{label: 'default (s)', value: each => each.default_s},
			{label: 'winner (s)', value: each => each.winner_s},
			{label: 'ratio', value: each => each.ratio}
		]}
		rows=${of.pairs}
		draw=${draw}
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
			{name: 'settings', label: 'Settings', class: 'question', cell: each => variantName(each.settings)},
			{name: 'state', label: 'Against the winner', tight: true, cell: each => each.state.replaceAll('-', ' ')},
			{name: 'ratio', label: 'Its time / the winner’s', number: true, cell: each => ratio(each.ratio)},
			{name: 'run', label: 'Run', number: true, cell: each => (each.run_id ? html`<${RunLink} id=${each.run_id} />` : '–')}
		]}
	/>
	<p class="soft">A draw that equals the winner, fails or is not run counts against the winner.</p>
`;

/** @param {{of: Found}} props */
const Importance = ({of}) => html`
	<h2>Which settings mattered (exploratory)</h2>
	<${Table}
		caption="Mean effect of each setting’s values"
		rows=${of.importance}
		id=${each => each.setting}
		columns=${[
			{name: 'setting', label: 'Setting', cell: each => each.setting.replaceAll('_', ' ')},
			{name: 'effect', label: 'Mean effect on the time', number: true, cell: each => `${number(100 * each.effect)} %`},
			{name: 'n', label: 'Trials', number: true, cell: each => each.n}
		]}
	/>
`;

/** @param {{of: any, topic: string}} props */
export function Tuning({of, topic}) {
	const answer = useAnswer(`experiments/${of.id}/tuning`, {}, {follow: topic});
	return html`<${Answered} answer=${answer} height=${500}>
		${(/** @type {Found} */ found) => html`<div class="stack">
			<section class="panel stack tight">
				${(found.phase !== 'ended' || !of.verdict) && html`<p>${found.sentence}</p>`}
				${found.missing.map(each => html`<p key=${each} class="soft">Missing: ${each}.</p>`)}
				<${Figures}
					of=${[
						['phase', PHASES[found.phase], found.reason && found.reason !== 'complete' ? found.reason : ''],
						['valid settings', count(found.space.valid), `of ${plural(found.space.combinations, 'combination')}`],
						['runs', count(found.spent_runs), `of at most ${count(found.planned_runs)}`],
						['workers’ time', duration(found.spent_s)],
						...(found.share
							? [
									[
										'share beaten',
										`≥ ${Math.floor(100 * found.share.at_least)} %`,
										`${found.share.slower} of ${found.share.drawn} draws`
									]
								]
							: [])
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
			${found.pairs.length > 0 && html`<section class="panel"><${Confirmation} of=${found} /></section>`}
			${found.draws.length > 0 && html`<section class="panel"><${Draws} of=${found} /></section>`}
			${found.importance.length > 0 && html`<section class="panel"><${Importance} of=${found} /></section>`}
		</div>`}
	<//>`;
}
