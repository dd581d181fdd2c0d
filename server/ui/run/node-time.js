// Where the node's time of a run, or of an experiment's runs, went.
import {html} from '../vendor/preact.js';
import {duration, percent} from '../format.js';
import {Shares} from '../plots/shares.js';

/** Each part by its key in a result: its label and its colour. */
const PARTS = /** @type {Record<string, [string, string]>} */ ({
	delivering_s: ['delivering', 'data'],
	claiming_s: ['waiting for a claim', 'idle'],
	starting_s: ['starting', 'series-4'],
	planning_s: ['planning', 'series-1'],
	compiling_s: ['compiling or loading', 'loss'],
	preparing_s: ['preparing', 'series-3'],
	warmup_s: ['warm-up', 'fork-join'],
	timed_s: ['timed steps', 'series-2'],
	finishing_s: ['finishing', 'edge']
});

/** @param {{of: {node_time?: Record<string, number> | null, node_time_missing?: string | null}, name: string}} props */
export function NodeTime({of, name}) {
	const seconds = of.node_time;
	if (!seconds)
		return html`<section class="panel">
			<h2>Node time</h2>
			<p class="soft">Not known: ${of.node_time_missing ?? 'the server does not report it'}.</p>
		</section>`;
	const whole = Object.values(seconds).reduce((sum, s) => sum + s, 0);
	const parts = Object.fromEntries(Object.entries(seconds).map(([key, s]) => [PARTS[key]?.[0] ?? key, s]));
	const colours = Object.fromEntries(Object.keys(seconds).map(key => PARTS[key] ?? [key, 'soft']));
	return html`<section class="panel">
		<${Shares}
			title="Node time"
			name="node-time"
			label="seconds"
			unit=${s => `${s.toPrecision(3)} s`}
			colours=${colours}
			rows=${[{name, parts, says: duration(whole)}]}
			said=${`Timed steps took ${percent((seconds['timed_s'] ?? 0) / (whole || 1))} of the node's time.` +
			(of.node_time_missing ? ` Incomplete: ${of.node_time_missing}.` : '')}
		/>
	</section>`;
}
