// SPDX-License-Identifier: Apache-2.0
// The plots: a panel with a figure and a uPlot each, all over the same time range.

import { downsample } from "./downsample.js";
import { element, fill } from "./dom.js";
import { digits, elapsed, prefixOf, PREFIXES, timeOfDay } from "./format.js";
import { drawGaps, drawMarks, drawUnit } from "./plot_overlays.js";
import { plotsOf, plotDescription } from "./plots.js";
import uPlot from "./uplot.js";

const STEPS_S = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
const AXIS = 3; // width of the axis at the left, in em
const RIGHT = 1.2; // width of the margin at the right, in em
const LABEL = 0.78; // font size of labels, in em
const LETTER = 0.6; // width of a digit, in font sizes of a label

export class Charts {
  #place;
  #view;
  #charts = [];
  #link = null;

  /** `place`: the element that contains them. */
  constructor(place, view) {
    this.#place = place;
    this.#view = view;
  }

  /** Rebuild all charts with the present colours and font size; `link`: the link whose plots they are. */
  build(link) {
    this.#link = link;
    for (const chart of this.#charts) chart.destroy();
    this.#charts = plotsOf(link).map((plot) => new Chart(plot, link, this.#view));
    fill(this.#place, ...this.#charts.map((chart) => chart.panel));
    for (const chart of this.#charts) chart.begin();
  }

  /**
   * Show the series of a store. `look`: {edge, span, instant, origin, position, none}; `origin`: instant 0 of the time axis,
   * null: time of day; `position`: of a replay, else null; `none`: the text shown without points.
   */
  show(store, link, look) {
    if (link !== this.#link) this.build(link);
    for (const chart of this.#charts) chart.show(store, look);
  }
}

class Chart {
  #plot;
  #view;
  #uplot = null;
  #look = null;
  #store = null;
  #power = 0;
  #witness;
  #ofRun; // links report all the time, other sources during a run
  #watcher = null;

  constructor(plot, link, view) {
    this.#plot = plot;
    this.#witness = `link/${link}/to_island/out`;
    this.#ofRun = plot.series.every((series) => !series.key.startsWith("link/"));
    this.#view = view;
    this.figure = element("span", { class: "figure" });
    this.unit = element("span", { class: "unit" });
    this.detail = element("span", { class: "detail" });
    this.canvas = element("div", { class: "canvas", role: "img" });
    const keys = plot.series.map((series) => legendEntry(series.name, series.colour, series.kind));
    if (plot.bound) keys.push(legendEntry(plot.boundName, "--ink", "bound"));
    const title = element("h2", { id: `title-${plot.id}` }, plot.title);
    this.panel = element(
      "section",
      { class: "panel chart", id: `chart-${plot.id}`, "aria-labelledby": `title-${plot.id}` },
      element(
        "header",
        {},
        element("div", { class: "titles" }, title, element("p", { class: "keys" }, ...keys)),
        element("p", { class: "now" }, this.figure, this.unit, this.detail),
      ),
      this.canvas,
    );
  }

  /** Create the plot; called when the panel is in the page and has a size. */
  begin() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const empty = [[], ...this.#plot.series.map(() => []), ...(this.#plot.bound ? [[]] : [])];
    this.#uplot = new uPlot(this.#options(width, height), empty, this.canvas);
    this.#watcher = new ResizeObserver(() => {
      const size = this.canvas.getBoundingClientRect();
      if (size.width > 0 && size.height > 0) this.#uplot.setSize({ width: size.width, height: size.height });
    });
    this.#watcher.observe(this.canvas);
  }

  destroy() {
    this.#watcher?.disconnect();
    this.#uplot?.destroy();
  }

  show(store, look) {
    this.#store = store;
    this.#look = look;
    const [from, to] = look.span;
    const origin = look.origin ?? 0;
    const { series, bound } = this.#plot;
    const rings = series.map((each) => (each.key === "ping" ? store.ping : store.series(each.key)));
    const folds = series.map((each) => each.fold);
    const columns = downsample(rings, folds, from, to, origin);
    series.forEach((each, index) => {
      if (!each.above) return;
      columns[index + 1] = columns[index + 1].map((rtt, at) => rtt && rtt - store.leastRtt(columns[0][at] + origin));
    });
    if (bound) this.#addBound(columns, (t) => bound(store, t), from, to, origin);
    const missing = !rings.some((ring) => ring.length) && (this.#ofRun || look.position !== null);
    this.canvas.dataset.none = missing ? look.none : "";
    this.#uplot.batch(() => {
      this.#uplot.setData(columns, false);
      this.#uplot.setScale("x", { min: from - origin, max: to - origin });
    });
    const current = this.#plot.figure(store, look.instant);
    this.figure.textContent = current.figure;
    this.unit.textContent = current.unit;
    this.detail.textContent = current.detail;
    this.canvas.setAttribute("aria-label", plotDescription(this.#plot, store, look.instant));
  }

  /** The bound is drawn from edge to edge, whatever points there are. */
  #addBound(columns, bound, from, to, origin) {
    const [times] = columns;
    if (!(times[0] <= from - origin)) addRow(columns, 0, from - origin);
    if (!(times.at(-1) >= to - origin)) addRow(columns, times.length, to - origin);
    columns.push(times.map((t) => bound(t + origin) ?? null));
  }

  #options(width, height) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const size = parseFloat(style.fontSize);
    const font = `${Math.round(size * LABEL)}px ${style.getPropertyValue("--letters")}`;
    const axis = {
      font,
      stroke: colour("--soft"),
      ticks: { show: false },
      grid: { stroke: colour("--grid"), width: 1 },
      labelFont: font,
    };
    const paints = { font, soft: colour("--soft"), gap: colour("--gap"), mark: colour("--mark") };
    const view = this.#view;
    return {
      width,
      height,
      padding: [size * 1.3, size * RIGHT, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: "atoll", setSeries: false },
        points: { show: false },
        y: false,
        drag: { x: true, y: false, setScale: false, dist: 6 },
        bind: { dblclick: () => () => view.unzoom() },
      },
      scales: {
        x: { time: false, auto: false },
        y: { range: (_, _low, high) => [0, Math.max(this.#plot.floor, (high ?? 0) * 1.06)] },
      },
      series: [{}, ...this.#plot.series.map((each) => drawn(each, colour)), ...(this.#plot.bound ? [boundLine(colour)] : [])],
      axes: [
        {
          ...axis,
          incrs: STEPS_S,
          space: size * 4.2,
          size: size * 1.7,
          gap: size * 0.3,
          grid: { show: false },
          values: (plot, splits, _axis, _space, step) => splits.map((t) => this.#timeOf(plot, t, step, size)),
        },
        { ...axis, space: size * 1.9, size: size * AXIS, gap: size * 0.35, values: (_, splits) => this.#amounts(splits) },
      ],
      hooks: {
        setSelect: [(plot) => this.#selected(plot)],
        setCursor: [(plot) => this.#pointed(plot)],
        drawClear: [(plot) => this.#store && this.#paintGaps(plot, paints)],
        draw: [
          (plot) => this.#store && drawMarks(plot, this.#store.marks, this.#look, paints),
          (plot) => drawUnit(plot, this.#unitOfAxis(), paints),
        ],
      },
    };
  }

  /** Where a text replaces all points, no text is written into the gaps. */
  #paintGaps(plot, paints) {
    const text = this.canvas.dataset.none ? "" : "no data";
    drawGaps(plot, this.#store.series(this.#witness), this.#look, { ...paints, text });
  }

  /** The label of an instant; null if it would be cut off at the right, or overlap the 0 of the other axis. */
  #timeOf(plot, t, step, size) {
    const { min, max } = plot.scales.x;
    if (max - t < (max - min) * 0.015) return null;
    const text = this.#look?.origin == null ? timeOfDay(t) : elapsed(t, step < 1);
    const wide = plot.width - (AXIS + RIGHT) * size;
    return fitsBehindAxis(((t - min) / (max - min)) * wide, text, size) ? text : null;
  }

  #amounts(splits) {
    this.#power = prefixOf(splits.at(-1) ?? 0);
    const scale = this.#plot.unit === "s" ? 1e-3 : 1000 ** this.#power;
    return splits.map((amount) => String(Number(digits(amount / scale))));
  }

  #unitOfAxis() {
    const { unit } = this.#plot;
    return unit === "s" ? "ms" : PREFIXES[this.#power] + unit;
  }

  #selected(plot) {
    const { left, width } = plot.select;
    if (!(width > 0)) return;
    const origin = this.#look?.origin ?? 0;
    const range = [plot.posToVal(left, "x") + origin, plot.posToVal(left + width, "x") + origin];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.#view.zoom(...range);
  }

  #pointed(plot) {
    const left = plot.cursor.left ?? -1;
    const t = left >= 0 && this.#look ? plot.posToVal(left, "x") + (this.#look.origin ?? 0) : null;
    if (t === this.#view.hover) return;
    this.#view.hover = t;
    this.#view.changed();
  }
}

/** Whether a label whose middle is `at` pixels right of the axis at the left stays clear of that axis's labels. */
export const fitsBehindAxis = (at, text, size) => at >= (text.length * LETTER * LABEL * size) / 2;

function addRow(columns, index, t) {
  columns.forEach((column, at) => column.splice(index, 0, at === 0 ? t : undefined));
}

function legendEntry(name, colour, kind) {
  const node = element("span", { class: `key ${kind}` }, name);
  node.style.setProperty("--swatch", `var(${colour})`);
  return node;
}

function drawn({ colour: name, kind }, colour) {
  const stroke = colour(name);
  const base = { stroke, width: 1.25, points: { show: false } };
  if (kind === "area") return { ...base, fill: colour(`${name}-fill`) };
  if (kind === "fill") return { ...base, stroke: "transparent", fill: colour(`${name}-fill`) };
  if (kind === "steps") return { ...base, fill: colour(`${name}-fill`), paths: uPlot.paths.stepped({ align: -1 }) };
  if (kind === "points")
    return { ...base, paths: () => null, points: { show: true, size: 3.5, width: 0, fill: stroke } };
  return base;
}

const boundLine = (colour) => ({ stroke: colour("--ink"), width: 1, dash: [5, 4], points: { show: false } });
