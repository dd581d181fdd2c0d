// Output of a run's trainers: the last lines, then new lines as they arrive; all lines on request.
import {html, useEffect, useRef, useState} from '../vendor/preact.js';
import {useGrowing} from '../answers.js';
import {useTopic} from '../live.js';
import {Answered, Empty} from '../pieces.js';

const TAIL = 500; // lines that are shown first

/**
 * The order of two lines.
 * @param {import('../schemas').Schemas['LogLine']} a
 * @param {import('../schemas').Schemas['LogLine']} b
 */
const order = (a, b) => a.attempt_no - b.attempt_no || a.line_no - b.line_no;

/** @param {{of: import('../schemas').Schemas['RunDetail'], topic: string}} props */
export function Log({of, topic}) {
	const [whole, setWhole] = useState(false);
	const answer = useGrowing(`runs/${of.id}/log`, topic, whole ? null : TAIL);
	const [added, add] = useState(/** @type {import('../schemas').Schemas['LogLine'][]} */ ([]));
	const place = useRef(/** @type {HTMLElement | null} */ (null));
	useTopic(topic, told => {
		if (told.event === 'line') add(before => [...before.slice(-4000), told.data]);
	});
	const first = answer.data?.[0];
	const later = first ? added.filter(line => order(first, line) < 0) : added; // events repeat a run's first lines
	const known = new Map([...(answer.data ?? []), ...later].map(line => [`${line.attempt_no} ${line.line_no}`, line]));
	const lines = [...known.values()].sort(order);
	useEffect(() => {
		const element = place.current;
		if (element && !element.matches(':hover, :focus-within')) element.scrollTop = element.scrollHeight;
	}, [lines.length, answer.data === undefined]); // lines may arrive before the log is shown
	return html`<${Answered} answer=${answer} lines=${6}>
		${() => html`
			${of.error &&
			html`<section class="notice bad">
				<strong>${of.error.slug}</strong>
				<span>${of.error.detail}</span>
				${Array.isArray(of.error.output) && html`<pre class="log" tabindex="0">${of.error.output.join('\n')}</pre>`}
			</section>`}
			${!whole &&
			lines[0] &&
			(lines[0].line_no > 1 || lines[0].attempt_no > 1) &&
			html`<button onClick=${() => setWhole(true)}>Show earlier lines</button>`}
			${lines.length
				? html`<pre class="log" ref=${place} tabindex="0" aria-label="Log">${lines
						.map(
							(line, i) =>
								(i === 0 || lines[i - 1].attempt_no !== line.attempt_no ? `── attempt ${line.attempt_no} ──\n` : '') +
								`${line.text}\n`
						)
						.join('')}</pre>`
				: html`<${Empty}>
						<p>The trainer has not printed anything${['running', 'leased', 'queued'].includes(of.state) ? ' yet' : ''}.</p>
					<//>`}
		`}
	<//>`;
}
