// SPDX-License-Identifier: Apache-2.0
// What is painted onto a plot besides its lines: the unit, stretches without data, instants that deserve a line.

import { gapsOf } from "./columns.js";

const SILENT_S = 1.5; // links tell their counters ten times a second: when they did not, nothing was told
const ROOM = 60; // pixels that a word in a gap needs

/** A font in the canvas's own pixels. */
const sharp = (font) => font.replace(/^[\d.]+/, (size) => String(Number(size) * devicePixelRatio));

/** Where an instant lies on the canvas. */
const placeOf = (plot, look, t) => plot.valToPos(t - (look.origin ?? 0), "x", true);

/** Paint within a context that is as before afterwards. */
function painting(plot, paint) {
  plot.ctx.save();
  paint(plot.ctx, plot.bbox);
  plot.ctx.restore();
}

/** The unit of the axis, above it. */
export function paintUnit(plot, text, { soft, font }) {
  painting(plot, (context, box) => {
    context.font = sharp(font);
    context.fillStyle = soft;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    context.fillText(text, 2 * devicePixelRatio, box.top - 5 * devicePixelRatio);
  });
}

/** Shade the stretches in which the series `ring`, which should speak all the time, was silent; with a word, where it fits. */
export function paintGaps(plot, ring, look, { gap, soft, font, word }) {
  const [from, to] = look.span;
  painting(plot, (context, box) => {
    for (const [begin, end] of gapsOf(ring, from, to, Math.min(look.edge, to), SILENT_S)) {
      const left = Math.max(box.left, placeOf(plot, look, begin));
      const width = Math.min(box.left + box.width, placeOf(plot, look, end)) - left;
      context.fillStyle = gap;
      context.fillRect(left, box.top, width, box.height);
      if (!word || width < ROOM * devicePixelRatio) continue;
      context.font = sharp(font);
      context.fillStyle = soft;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(word, left + width / 2, box.top + box.height / 2);
    }
  });
}

/** Whistles, changes and swaps as dotted lines, the position of a replay as a whole one. */
export function paintMarks(plot, marks, look, { mark, soft }) {
  const [from, to] = look.span;
  painting(plot, (context, box) => {
    const line = (t) => {
      if (t === null || t < from || t > to) return;
      const x = Math.round(placeOf(plot, look, t));
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
