// Spans on a canvas: what is narrower than a pixel gives that pixel to the one that takes most of it.
import { opKind } from '../plots/scale.js';
import { WAITS, firstAfter } from './trace.js';

/** @typedef {import('./trace.js').Trace} Trace */
/** @typedef {{from: number, to: number}} View nanoseconds */
/** @typedef {Record<string, string>} Colours */

export const LEFT = 72;
export const TOP = 20;
export const LANE = 20;
const CURVE = 34;

/** @param {Trace} trace */
export const heightOf = (trace) => TOP + trace.threads.length * LANE + CURVE + 22;

/** Colours as they are now: a canvas knows no custom properties. @returns {Colours} */
export function colours() {
  const probe = document.createElement('span');
  document.body.append(probe);
  const found = /** @type {Colours} */ ({});
  for (const name of ['ink', 'soft', 'line', 'lane', 'accent', 'paper', 'at-barrier', 'starving', 'idle', 'useful', 'products', 'attention', 'elementwise', 'loss-op', 'update-op', 'other-op']) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

/** The colour of each kind of call, and of waits. @param {Trace} trace @param {Colours} known */
function paints(trace, known) {
  const ofKind = trace.kinds.map(([op]) => /** @type {string} */ (known[opKind(op)]));
  const ofCall = trace.callKind.map((kind) => /** @type {string} */ (ofKind[kind]));
  return (/** @type {number} */ what) => (what >= 0 ? /** @type {string} */ (ofCall[what]) : /** @type {string} */ (known[WAITS[what]?.[1] ?? 'idle']));
}

/** @param {number} ns @param {number} span */
export function timeSaid(ns, span) {
  return span > 5e6 ? `${(ns / 1e6).toLocaleString('en-US', { maximumFractionDigits: span > 1e8 ? 0 : 2 })} ms` : `${(ns / 1e3).toLocaleString('en-US', { maximumFractionDigits: 1 })} µs`;
}

/**
 * @param {CanvasRenderingContext2D} g
 * @param {number} width
 * @param {Trace} trace
 * @param {View} view
 * @param {Colours} known
 * @param {import('./trace.js').Place | null} chosen
 * @param {number} origin where time is counted from
 */
export function paint(g, width, trace, view, known, chosen, origin = 0) {
  const height = heightOf(trace);
  const right = width - 8;
  const perNs = (right - LEFT) / (view.to - view.from);
  const x = (/** @type {number} */ time) => LEFT + (time - view.from) * perNs;
  const ink = /** @type {string} */ (known['ink']);
  const soft = /** @type {string} */ (known['soft']);
  const paintOf = paints(trace, known);
  g.clearRect(0, 0, width, height);
  g.font = '11px system-ui, "DejaVu Sans", sans-serif';
  const columns = Math.max(1, Math.ceil(right - LEFT));
  const busy = new Float64Array(columns);

  trace.threads.forEach((of, thread) => {
    const y = TOP + thread * LANE;
    g.fillStyle = soft;
    g.textAlign = 'end';
    g.fillText(`thread ${thread}`, LEFT - 8, y + 13);
    g.fillStyle = /** @type {string} */ (known['lane']);
    g.fillRect(LEFT, y, right - LEFT, LANE - 4);
    let pixel = -1;
    let most = 0;
    let colour = '';
    const flush = () => { if (pixel >= 0) { g.fillStyle = colour; g.fillRect(LEFT + pixel, y, 1, LANE - 4); } pixel = -1; };
    for (let i = firstAfter(of, view.from); i < of.length; i += 1) {
      const begin = Math.max(/** @type {number} */ (of.begin[i]), view.from);
      if (begin >= view.to) break;
      const end = Math.min(/** @type {number} */ (of.end[i]), view.to);
      const what = /** @type {number} */ (of.what[i]);
      const from = (begin - view.from) * perNs;
      const until = (end - view.from) * perNs;
      if (what >= 0) {
        for (let c = Math.floor(from); c < until && c < columns; c += 1) busy[c] = /** @type {number} */ (busy[c]) + Math.min(until, c + 1) - Math.max(from, c);
      }
      if (until - from < 1) {
        const place = Math.floor(from);
        if (place !== pixel) { flush(); pixel = place; most = 0; }
        if (until - from >= most) { most = until - from; colour = paintOf(what); }
      } else {
        flush();
        g.fillStyle = paintOf(what);
        g.fillRect(LEFT + from, y, until - from - (until - from > 4 ? 0.6 : 0), LANE - 4);
        if (until - from > 46 && what >= 0) {
          const op = trace.kinds[/** @type {number} */ (trace.callKind[what])]?.[0] ?? '';
          const words = op.slice(0, Math.floor((until - from - 6) / 6.2));
          if (words.length > 2) { g.fillStyle = '#fff'; g.textAlign = 'start'; g.strokeStyle = '#0008'; g.lineWidth = 2; g.strokeText(words, LEFT + from + 4, y + 12); g.fillText(words, LEFT + from + 4, y + 12); }
        }
      }
    }
    flush();
  });

  const foot = TOP + trace.threads.length * LANE + CURVE;
  g.fillStyle = /** @type {string} */ (known['useful']);
  g.globalAlpha = 0.75;
  for (let c = 0; c < columns; c += 1) {
    const tall = (/** @type {number} */ (busy[c]) / trace.threads.length) * (CURVE - 10);
    g.fillRect(LEFT + c, foot - tall, 1, tall);
  }
  g.globalAlpha = 1;
  g.fillStyle = soft;
  g.textAlign = 'end';
  g.fillText('busy cores', LEFT - 8, foot - 6);
  g.strokeStyle = /** @type {string} */ (known['line']);
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(LEFT, foot + 0.5);
  g.lineTo(right, foot + 0.5);
  g.stroke();

  let begin = 0;
  g.textAlign = 'start';
  trace.stepEnd.forEach((end, step) => {
    if (end >= view.from && begin <= view.to) {
      g.strokeStyle = ink;
      g.setLineDash([3, 3]);
      g.beginPath();
      g.moveTo(Math.round(x(end)) + 0.5, 4);
      g.lineTo(Math.round(x(end)) + 0.5, foot);
      g.stroke();
      g.setLineDash([]);
      const left = Math.max(LEFT, x(begin));
      if (x(end) - left > 54) { g.fillStyle = soft; g.fillText(`step ${trace.firstStep + step}`, left + 4, 13); }
    }
    begin = end;
  });

  const raw = (view.to - view.from) / Math.max(2, width / 130);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const stride = unit * /** @type {number} */ ([1, 2, 5, 10].find((factor) => unit * factor >= raw));
  g.fillStyle = soft;
  g.textAlign = 'center';
  for (let tick = Math.ceil((view.from - origin) / stride) * stride + origin; tick <= view.to; tick += stride) {
    g.fillRect(Math.round(x(tick)), foot, 1, 5);
    g.fillText(timeSaid(tick - origin, stride * 10), Math.min(Math.max(x(tick), LEFT + 18), right - 20), foot + 17);
  }
  if (chosen) {
    const of = trace.threads[chosen.thread];
    if (of) {
      const from = Math.max(LEFT, x(/** @type {number} */ (of.begin[chosen.index])));
      const until = Math.min(right, x(/** @type {number} */ (of.end[chosen.index])));
      g.strokeStyle = ink;
      g.lineWidth = 2;
      g.strokeRect(from - 1, TOP + chosen.thread * LANE - 2, Math.max(3, until - from + 2), LANE);
    }
  }
}
