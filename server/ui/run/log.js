// What the trainers of a run printed: from the beginning, and on as it comes.
import {html, useEffect, useRef, useState} from '../vendor/preact.js';
import {useGrowing} from '../answers.js';
import {useTopic} from '../live.js';
import {Answered, Empty} from '../pieces.js';

/** @param {{of: import('../schemas').Schemas['RunDetail'], topic: string}} props */
export function Log({of, topic}) {
	const answer = useGrowing(`runs/${of.id}/log`, topic);
	const [added, add] = useState(/** @type {any[]} */ ([]));
	const place = useRef(/** @type {HTMLElement | null} */ (null));
	useTopic(topic, told => {
		if (told.event === 'line') add(before => [...before.slice(-4000), told.data]);
	});
	const known = new Map([...(answer.data ?? []), ...added].map(line => [`${line.attempt_no} ${line.line_no}`, line]));
	const lines = [...known.values()].sort((a, b) => a.attempt_no - b.attempt_no || a.line_no - b.line_no);
	useEffect(() => {
		const element = place.current;
		if (element && !element.matches(':hover, :focus-within')) element.scrollTop = element.scrollHeight;
	}, [lines.length, answer.data === undefined]); // lines may be told before the log is shown
	return html`<${Answered} answer=${answer} lines=${6}>
		${() => html`
			${of.error &&
			html`<section class="notice bad">
				<strong>${of.error.slug}</strong>
				<span>${of.error.detail}</span>
				${Array.isArray(of.error.output) && html`<pre class="log" tabindex="0">${of.error.output.join('\n')}</pre>`}
			</section>`}
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
