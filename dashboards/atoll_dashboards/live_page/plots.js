// SPDX-License-Identifier: Apache-2.0
// The definitions of the plots: series, bounds, and the figure shown above each.

import { milliseconds, percent, quantity, setting, whole } from "./format.js";
import { OLD_S } from "./store.js";

const MEAN_S = 1; // figures of series with points each 100 ms are means of the last second

/**
 * The plots of one link: [{id, title, unit, floor, series, bound, gap, figure}].
 * `series`: {name, key, colour, kind, fold}, `colour` being a variable of the style sheet; `bound(store, t)`: the dashed line;
 * `figure(store, t)`: {figure, unit, detail}.
 */
export function plotsOf(link) {
  const island = `link/${link}/to_island/`;
  const world = `link/${link}/to_world/`;
  const bound = (name) => (store, t) => {
    const reported = store.series(`${island}set_${name}`).at(t);
    return Number.isFinite(reported) ? reported : store.configured(link, "to_island")[name];
  };
  const [linkRate, queueCapacity] = [bound("rate_bit_s"), bound("queue_bytes")];
  const ratePlot = {
    id: "rate",
    title: "Link to the island",
    unit: "bit/s",
    floor: 1e5,
    series: [
      { name: "sent", key: `${island}out`, colour: "--link", kind: "area", fold: "mean" },
      { name: "towards the world", key: `${world}out`, colour: "--back", kind: "line", fold: "mean" },
    ],
    bound: linkRate,
    boundName: "rate",
    figure(store, t) {
      const sent = store.series(`${island}out`).mean(t - MEAN_S, t);
      const rate = linkRate(store, t);
      return { ...quantity(sent, "bit/s"), detail: ofBound(sent, rate, setting(rate, "bit/s")) };
    },
  };
  const queuePlot = {
    id: "queue",
    title: "Queue",
    unit: "B",
    floor: 3000,
    series: [
      { name: "most in 100\u00a0ms", key: `${island}queue_max`, colour: "--queue", kind: "fill", fold: "max" },
      { name: "waiting", key: `${island}queue`, colour: "--queue-line", kind: "line", fold: "mean" },
    ],
    bound: queueCapacity,
    boundName: "capacity",
    figure(store, t) {
      const waiting = store.series(`${island}queue`).mean(t - MEAN_S, t);
      const capacity = queueCapacity(store, t);
      return { ...quantity(waiting, "B"), detail: ofBound(waiting, capacity, setting(capacity, "B")) };
    },
  };
  const sojournPlot = {
    id: "sojourn",
    title: "Sojourn",
    unit: "s",
    floor: 0.01,
    series: [
      { name: "queue \u00d7 8 / rate", key: `${island}sojourn`, colour: "--queue-line", kind: "line", fold: "max" },
      { name: "ping RTT above its least", key: "ping", above: true, colour: "--ping", kind: "points", fold: "max" },
    ],
    figure(store, t) {
      const rtt = store.ping.at(t, OLD_S);
      const detail = Number.isFinite(rtt) ? `ping RTT ${Math.round(rtt * 1e3)}\u00a0ms` : "";
      return { ...milliseconds(store.series(`${island}sojourn`).mean(t - MEAN_S, t)), detail };
    },
  };
  const dropsPlot = {
    id: "drops",
    title: "Drops",
    unit: "/s",
    floor: 10,
    series: [
      { name: "packets a second, to the island", key: `${island}dropped`, colour: "--drops", kind: "steps", fold: "mean" },
      { name: "to the world", key: `${world}dropped`, colour: "--back", kind: "line", fold: "mean" },
    ],
    figure: (store, t) => ({
      ...whole(store.series(`${island}dropped`).mean(t - MEAN_S, t), "packets/s"),
      detail: causes(store, island, t),
    }),
  };
  const goodputPlot = {
    id: "goodput",
    title: "Goodput",
    unit: "bit/s",
    floor: 1e5,
    series: [
      { name: "TCP payload at the clients", key: "goodput", colour: "--goodput", kind: "line", fold: "mean" },
      { name: "sent by uploads", key: "uploaded", colour: "--back", kind: "line", fold: "mean" },
    ],
    bound: linkRate,
    boundName: "rate",
    figure(store, t) {
      const payload = store.series("goodput").at(t, OLD_S);
      return { ...quantity(payload, "bit/s"), detail: ofBound(payload, linkRate(store, t), "the link") };
    },
  };
  const flowsPlot = {
    id: "flows",
    title: "Flows",
    unit: "",
    floor: 4,
    series: [
      { name: "open now", key: "flows", colour: "--flows", kind: "area", fold: "mean" },
      { name: "completed a second", key: "completed", colour: "--back", kind: "line", fold: "mean" },
    ],
    figure(store, t) {
      const done = store.series("completed").at(t, OLD_S);
      const failed = store.series("failed").at(t, OLD_S);
      const detail = [
        Number.isFinite(done) && `${quantity(done, "").figure} completed/s`,
        failed > 0 && `${quantity(failed, "").figure} failed/s`,
      ];
      return { ...whole(store.series("flows").at(t, OLD_S)), detail: detail.filter(Boolean).join(", ") };
    },
  };
  return [ratePlot, goodputPlot, queuePlot, sojournPlot, dropsPlot, flowsPlot];
}

/** "50 % of 16 Mbit/s"; nothing where the amount or its bound is not known. */
const ofBound = (amount, most, text) => (most && Number.isFinite(amount) ? `${percent(amount / most)} of ${text}` : "");

const CAUSES = {
  queue: "queue full",
  low_priority: "low-priority queue full",
  loss: "loss",
  aqm: "AQM",
  blocked: "link blocked",
  unsent: "overload of the engine",
};

/** The causes of the drops that the figure counts. */
function causes(store, base, t) {
  return Object.entries(CAUSES)
    .filter(([cause]) => store.series(`${base}dropped_${cause}`).mean(t - MEAN_S, t) > 0)
    .map(([, name]) => name)
    .join(", ");
}

/** A plot's figure as a sentence, for screen readers. */
export function plotDescription(plot, store, t) {
  const { figure, unit, detail } = plot.figure(store, t);
  return `${plot.title}: ${[`${figure} ${unit}`.trim(), detail].filter(Boolean).join(", ") || "no data"}`;
}
