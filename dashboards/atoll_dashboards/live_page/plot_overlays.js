// SPDX-License-Identifier: Apache-2.0
// Overlays of a plot: the unit, gaps without data, lines at marked instants.

import { gapsOf } from "./downsample.js";

const SILENT_S = 1.5; // links report ten times a second; a longer silence is a gap
const ROOM = 60; // width in pixels of the text in a gap

/** A font scaled to the canvas's pixels. */
const sharp = (font) => font.replace(/^[\d.]+/, (size) => String(Number(size) * devicePixelRatio));

/** The horizontal position of an instant on the canvas. */
const pixelOf = (plot, look, t) => plot.valToPos(t - (look.origin ?? 0), "x", true);

/** Draw, and restore the state of the context. */
function drawing(plot, draw) {
  plot.ctx.save();
  draw(plot.ctx, plot.bbox);
  plot.ctx.restore();
}

/** The unit of the axis, above it. */
export function drawUnit(plot, text, { soft, font }) {
  drawing(plot, (context, box) => {
    context.font = sharp(font);
    context.fillStyle = soft;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    context.fillText(text, 2 * devicePixelRatio, box.top - 5 * devicePixelRatio);
  });
}

/** Shade the gaps of the series `ring`, which should have points all the time; `text` is written where it fits. */
export function drawGaps(plot, ring, look, { gap, soft, font, text }) {
  const [from, to] = look.span;
  drawing(plot, (context, box) => {
    for (const [begin, end] of gapsOf(ring, from, to, Math.min(look.edge, to), SILENT_S)) {
      const left = Math.max(box.left, pixelOf(plot, look, begin));
      const width = Math.min(box.left + box.width, pixelOf(plot, look, end)) - left;
      context.fillStyle = gap;
      context.fillRect(left, box.top, width, box.height);
      if (!text || width < ROOM * devicePixelRatio) continue;
      context.font = sharp(font);
      context.fillStyle = soft;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(text, left + width / 2, box.top + box.height / 2);
    }
  });
}

/** Draw whistles, changes and swaps as dotted lines, the position of a replay as a solid one. */
export function drawMarks(plot, marks, look, { mark, soft }) {
  const [from, to] = look.span;
  drawing(plot, (context, box) => {
    const line = (t) => {
      if (t === null || t < from || t > to) return;
      const x = Math.round(pixelOf(plot, look, t));
      context.beginPath();
      context.moveTo(x, box.top);
      context.lineTo(x, box.top + box.height);
      context.stroke();
    };
    context.lineWidth = devicePixelRatio;
    context.strokeStyle = mark;
    context.setLineDash([devicePixelRatio * 2, devicePixelRatio * 3]);
    for (const { t } of marks) line(t);
    context.setLineDash([]);
    context.strokeStyle = soft;
    line(look.position);
  });
}
