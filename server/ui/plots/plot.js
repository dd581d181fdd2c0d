// The frame of every plot: title, explanation, and its data as table, CSV, SVG and PNG (a painted canvas, too).
import {html, useLayoutEffect, useRef, useState} from '../vendor/preact.js';
import {save} from '../api.js';
import {Table} from '../pieces.js';

// Canvas drawing as SVG: a context with those methods of a canvas that the dashboard's plots use.

const SVG = 'http://www.w3.org/2000/svg';
const ANCHOR = /** @type {Record<string, string>} */ ({start: 'start', center: 'middle', end: 'end'});

/** @param {string} name @param {Record<string, string | number>} attributes */
function element(name, attributes) {
	const made = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
	return made;
}

/** What the plots use of a canvas. @typedef {CanvasRenderingContext2D | Vector} Painter */

class Vector {
	globalAlpha = 1;
	lineWidth = 1;
	fillStyle = '';
	strokeStyle = '';
	textAlign = 'start';
	path = '';
	dash = '';
	/** @param {number} width @param {number} height */
	constructor(width, height) {
		this.svg = element('svg', {xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`});
		this.svg.setAttribute('font-family', 'system-ui, "DejaVu Sans", sans-serif');
		this.svg.setAttribute('font-size', '11');
	}
	/** @param {string} name @param {Record<string, string | number>} attributes @param {boolean} stroked */
	add(name, attributes, stroked) {
		const ink = /** @type {Record<string, string | number>} */ (
			stroked
				? {fill: 'none', stroke: this.strokeStyle, 'stroke-width': this.lineWidth, 'stroke-dasharray': this.dash}
				: {fill: this.fillStyle}
		);
		const made = element(name, {...attributes, ...ink, opacity: this.globalAlpha});
		this.svg.append(made);
		return made;
	}
	beginPath() {
		this.path = '';
	}
	/** @param {number} x @param {number} y */
	moveTo(x, y) {
		this.path += `M${x.toFixed(2)} ${y.toFixed(2)}`;
	}
	/** @param {number} x @param {number} y */
	lineTo(x, y) {
		this.path += `L${x.toFixed(2)} ${y.toFixed(2)}`;
	}
	/** @param {number} x @param {number} y @param {number} width @param {number} height */
	rect(x, y, width, height) {
		this.path += `M${x} ${y}h${width}v${height}h${-width}Z`;
	}
	/** A whole circle. @param {number} x @param {number} y @param {number} r */
	arc(x, y, r) {
		this.path += `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
	}
	fill() {
		this.add('path', {d: this.path}, false);
	}
	stroke() {
		this.add('path', {d: this.path}, true);
	}
	/** @param {number} x @param {number} y @param {number} width @param {number} height */
	fillRect(x, y, width, height) {
		this.add('rect', {x, y, width, height}, false);
	}
	/** @param {number} x @param {number} y @param {number} width @param {number} height */
	strokeRect(x, y, width, height) {
		this.add('rect', {x, y, width, height}, true);
	}
	/** @param {string} text @param {number} x @param {number} y */
	fillText(text, x, y, stroked = false) {
		this.add('text', {x, y, 'text-anchor': ANCHOR[this.textAlign]}, stroked).textContent = text;
	}
	/** @param {string} text @param {number} x @param {number} y */
	strokeText(text, x, y) {
		this.fillText(text, x, y, true);
	}
	/** @param {number[]} dash */
	setLineDash(dash) {
		this.dash = dash.join(' ');
	}
	/** @param {number} width @param {number} height */
	createImageData(width, height) {
		return new ImageData(width, height);
	}
	/**
	 * A row of pixels: neighbours of one colour become one rectangle.
	 * @param {OffscreenCanvas} source @param {number} left @param {number} top @param {number} across
	 * @param {number} _one @param {number} x @param {number} y @param {number} _width as many @param {number} height
	 */
	drawImage(source, left, top, across, _one, x, y, _width, height) {
		const row = source.getContext('2d')?.getImageData(left, top, across, 1).data ?? [];
		const colour = (/** @type {number} */ i) =>
			row[4 * i + 3] ? `rgb(${row[4 * i]} ${row[4 * i + 1]} ${row[4 * i + 2]})` : '';
		for (let from = 0, to = 1; from < across; from = to, to += 1) {
			while (to < across && colour(to) === colour(from)) to += 1;
			this.fillStyle = colour(from);
			if (this.fillStyle) this.fillRect(x + from, y, to - from, height);
		}
	}
}

/**
 * @param {(g: Painter, width: number) => void} paint
 * @param {number} width
 * @param {number} height
 * @param {string} ground its colour
 */
export function vector(paint, width, height, ground) {
	const made = new Vector(width, height);
	made.fillStyle = ground;
	made.fillRect(0, 0, width, height);
	paint(made, width);
	return new XMLSerializer().serializeToString(made.svg);
}

/** @typedef {import('../vendor/preact.js').ComponentChildren} Children */
/**
 * @template Row
 * @typedef {{label: string, value: (row: Row) => string | number | null | undefined}} Column
 */
/**
 * @template Row
 * @typedef {string | Column<Row>} Field a text names the property of the row
 */

/**
 * The current width of an element.
 * @param {{current: Element | null}} ref
 */
export function useWidth(ref) {
	const [width, setWidth] = useState(0);
	useLayoutEffect(() => {
		const element = ref.current;
		if (!element) return undefined;
		const observer = new ResizeObserver(() => setWidth(Math.round(element.clientWidth)));
		observer.observe(element);
		setWidth(Math.round(element.clientWidth));
		return () => observer.disconnect();
	}, []);
	return width;
}

const COPIED = [
	'fill',
	'stroke',
	'stroke-width',
	'stroke-dasharray',
	'fill-opacity',
	'font-size',
	'font-weight',
	'font-family',
	'text-anchor'
];

/** The colour behind an element. @param {Element} of */
const groundOf = of => getComputedStyle(of.closest('.panel') ?? document.documentElement).backgroundColor;

/** A self-contained SVG with the current colours. @param {SVGSVGElement} svg */
export function standalone(svg) {
	const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
	const originals = [svg, ...svg.querySelectorAll('*')];
	[copy, ...copy.querySelectorAll('*')].forEach((element, i) => {
		const style = getComputedStyle(originals[i]);
		for (const name of COPIED) element.setAttribute(name, style.getPropertyValue(name));
		element.removeAttribute('class');
	});
	const {width, height} = svg.viewBox.baseVal;
	const ground = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
	ground.setAttribute('width', '100%');
	ground.setAttribute('height', '100%');
	ground.setAttribute('fill', groundOf(svg));
	copy.prepend(ground);
	copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
	copy.setAttribute('width', String(width));
	copy.setAttribute('height', String(height));
	return new XMLSerializer().serializeToString(copy);
}

/** @param {string} text @param {number} width @param {number} height */
async function painted(text, width, height) {
	const url = URL.createObjectURL(new Blob([text], {type: 'image/svg+xml'}));
	const image = new Image();
	image.src = url;
	await image.decode();
	const canvas = document.createElement('canvas');
	canvas.width = width * 2;
	canvas.height = height * 2;
	canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
	URL.revokeObjectURL(url);
	return canvas;
}

/** @param {HTMLCanvasElement} canvas @param {string} name */
const savePainted = (canvas, name) =>
	canvas.toBlob(blob => {
		if (blob) save(blob, name);
	}, 'image/png');

/** @template Row @param {Column<Row>[]} fields @param {Row[]} rows */
export function csv(fields, rows) {
	const cell = (/** @type {unknown} */ value) => {
		let text = value == null ? '' : String(value);
		// A spreadsheet would read this text as a formula.
		if (typeof value === 'string' && /^[=+\-@\t\r\n＝＋－＠]/.test(text)) text = `'${text}`;
		return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
	};
	return (
		[fields.map(field => field.label), ...rows.map(row => fields.map(field => field.value(row)))]
			.map(line => line.map(cell).join(','))
			.join('\r\n') + '\r\n'
	);
}

/**
 * @template {object} Row
 * @param {{title: string, said?: Children, name: string, legend?: [string, string][], fields: Field<Row>[],
 *   rows: Row[], draw?: (width: number) => {height: number, parts: Children}, after?: Children, level?: 2 | 3,
 *   paint?: (g: Painter, width: number) => void, height?: number, children?: Children}} props
 * legend: (colour token, name). draw: an SVG's parts. paint: draws on the canvas in `children`, of that height.
 */
export function Plot({
	title,
	said,
	name,
	legend,
	fields: given,
	rows,
	draw,
	after,
	level = 2,
	paint,
	height = 0,
	children
}) {
	const place = useRef(/** @type {HTMLElement | null} */ (null));
	const width = useWidth(place);
	const [asTable, setAsTable] = useState(false);
	const drawn = draw && width ? draw(width) : null;
	const fields = given.map(each =>
		typeof each === 'string'
			? {label: each, value: (/** @type {Row} */ row) => /** @type {Record<string, string | null>} */ (row)[each]}
			: each
	);
	const svg = () => place.current?.querySelector('svg.drawn');
	const png = async () => {
		const found = /** @type {SVGSVGElement | null | undefined} */ (svg());
		const canvas = place.current?.querySelector('canvas');
		if (canvas) savePainted(canvas, `${name}.png`);
		else if (found)
			savePainted(
				await painted(standalone(found), found.viewBox.baseVal.width, found.viewBox.baseVal.height),
				`${name}.png`
			);
	};
	const saveSvg = () => {
		const figure = /** @type {HTMLElement} */ (place.current);
		const text = paint
			? vector(paint, width, height, groundOf(figure))
			: standalone(/** @type {SVGSVGElement} */ (svg()));
		save(new Blob([text], {type: 'image/svg+xml'}), `${name}.svg`);
	};
	const saveCsv = () => save(new Blob([csv(fields, rows)], {type: 'text/csv'}), `${name}.csv`);
	const heading = level === 2 ? html`<h2>${title}</h2>` : html`<h3>${title}</h3>`;
	return html`<figure class="plot" ref=${place}>
		<figcaption>
			${heading}
			<span class="tools">
				<button class="plain" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>
					${asTable ? 'Plot' : 'Table'}
				</button>
				<button class="plain" onClick=${saveCsv}>CSV</button>
				<button class="plain" disabled=${asTable} onClick=${saveSvg}>SVG</button>
				<button class="plain" disabled=${asTable} onClick=${png}>PNG</button>
			</span>
		</figcaption>
		${asTable
			? html`<${Table}
					caption=${title}
					rows=${rows.map((row, i) => ({row, i}))}
					id=${each => each.i}
					columns=${fields.map((field, i) => ({
						name: String(i),
						label: field.label,
						number: rows[0] !== undefined && typeof field.value(rows[0]) === 'number',
						cell: each => field.value(each.row) ?? '–'
					}))}
				/>`
			: html`
					${legend &&
					html`<div class="legend">
						${legend.map(
							([colour, says]) => html`<span key=${says}>
								<i class="key-colour" style=${{background: colour.startsWith('var') ? colour : `var(--${colour})`}}></i>
								${says}
							</span>`
						)}
					</div>`}
					${draw
						? html`
								<svg
									class="drawn"
									role="img"
									aria-label=${`${title}. ${typeof said === 'string' ? said : ''} The button Table shows its numbers.`}
									viewBox=${`0 0 ${width || 900} ${drawn?.height ?? 200}`}
								>
									${drawn?.parts}
								</svg>
								${after}
							`
						: null}
				`}
		${children && html`<div class="stack tight" hidden=${asTable}>${children}</div>`}
		${said && html`<p class="said">${said}</p>`}
	</figure>`;
}
