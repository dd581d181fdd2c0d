// Form fields, each with its label, its help and the reason if its value is rejected.
import {html} from '../vendor/preact.js';
import {choices, limits} from './asking.js';

/** @typedef {import('../vendor/preact.js').ComponentChildren} Children */

/** ARIA attributes that link an input to its help and error. @param {string} id @param {string | undefined} refused */
const described = (id, refused) => ({
	'aria-describedby': `${id}-help${refused ? ` ${id}-refused` : ''}`,
	'aria-invalid': refused ? 'true' : undefined
});

/** @param {{id: string, help: Children, refused?: string | undefined}} props */
const Told = ({id, help, refused}) => html`
	<span class="help" id=${`${id}-help`}>${help}</span>
	${refused && html`<span class="refused" id=${`${id}-refused`} role="alert">${refused}</span>`}
`;

/** A label, an input and its help. @param {{id: string, label: string, help: string, refused?: string | undefined,
 *   children: Children}} props */
export const Field = ({id, label, help, refused, children}) => html`<div class="field">
	<label for=${id}>${label}</label>
	${children}
	<${Told} id=${id} help=${help} refused=${refused} />
</div>`;

/**
 * A setting of a run: checkboxes if its schema lists the values, else a text field.
 * @param {{name: string, schema: any, text: string, refused: string | undefined, unread: string | undefined,
 *   onText: (text: string) => void}} props unread: why no run of this experiment reads it
 */
export function Setting({name, schema, text, refused, unread, onText}) {
	const id = `set-${name}`;
	const few = choices(schema);
	const label = name.replaceAll('_', ' ');
	const help = unread ? `Not used: ${unread}.` : schema.description + limits(schema);
	if (!few)
		return html`<${Field} id=${id} label=${label} help=${help} refused=${refused}>
			<input
				id=${id}
				value=${text}
				autocomplete="off"
				spellcheck="false"
				list=${name === 'model' ? 'models' : undefined}
				placeholder="default"
				disabled=${Boolean(unread)}
				...${described(id, refused)}
				onInput=${event => onText(event.target.value)}
			/>
		<//>`;
	const chosen = text.split(',').map(each => each.trim());
	const toggle = (/** @type {string} */ value) =>
		onText(few.filter(each => (each === value) !== chosen.includes(each)).join(', '));
	return html`<fieldset class="field" aria-describedby=${`${id}-help`}>
		<legend>${label}</legend>
		<span class="row tight">
			${few.map(
				value => html`<label key=${value}>
					<input
						type="checkbox"
						checked=${chosen.includes(value)}
						disabled=${Boolean(unread)}
						aria-invalid=${refused ? 'true' : undefined}
						onChange=${() => toggle(value)}
					/> ${value}
				</label>`
			)}
		</span>
		<${Told} id=${id} help=${help} refused=${refused} />
	</fieldset>`;
}

/**
 * @param {{id: string, label: string, value: number | null | undefined, onValue: (value: number | null) => void,
 *   help: string, refused: Map<string, string>, min: number, max?: number, step?: 'any'}} props
 */
export function Amount({id, label, value, onValue, help, refused, ...limits}) {
	return html`<${Field} id=${id} label=${label} help=${help} refused=${refused.get(id)}>
		<input
			id=${id}
			type="number"
			value=${value ?? ''}
			...${limits}
			...${described(id, refused.get(id))}
			onInput=${event => onValue(event.target.value === '' ? null : Number(event.target.value))}
		/>
	<//>`;
}

/**
 * @param {{id: string, label: string, value: string, options: [string, string][], onValue: (value: string) => void,
 *   help: string}} props
 */
export function OneOf({id, label, value, options, onValue, help}) {
	return html`<${Field} id=${id} label=${label} help=${help}>
		<select id=${id} value=${value} ...${described(id, undefined)} onChange=${event => onValue(event.target.value)}>
			${options.map(([each, says]) => html`<option key=${each} value=${each} selected=${each === value}>${says}</option>`)}
		</select>
	<//>`;
}
