// Canvas drawing as SVG: a context with those methods of a canvas that the dashboard's plots use.
const SVG = 'http://www.w3.org/2000/svg';
const ANCHOR = /** @type {Record<string, string>} */ ({start: 'start', center: 'middle', end: 'end'});

/** @param {string} name @param {Record<string, string | number>} attributes */
function element(name, attributes) {
	const made = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
	return made;
}

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
 * @param {(g: CanvasRenderingContext2D, width: number) => void} paint
 * @param {number} width
 * @param {number} height
 * @param {string} ground its colour
 */
export function vector(paint, width, height, ground) {
	const made = new Vector(width, height);
	made.fillStyle = ground;
	made.fillRect(0, 0, width, height);
	paint(/** @type {any} */ (made), width);
	return new XMLSerializer().serializeToString(made.svg);
}
