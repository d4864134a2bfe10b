// SPDX-License-Identifier: Apache-2.0
// The drawing of the active chains: world at the left, island at the right, rates between the hops. The functions that
// compute the rates are pure.

import { fill, say, shape } from "./dom.js";
import { bitRate, setting, settingMs } from "./format.js";
import { OLD_S } from "./store.js";

const LEAST_STEP = 170; // between the middles of drawn nodes: a rate has room between a link and an end
const LEAST_BETWEEN = 216; // the same between a link and a box
const MOST_STEP = 340;
const END = 92;
const ABOVE = 44; // the middle of a row: names of taps need more room below it than rates above it
const BELOW = 60;
const NAMED = 24; // more above it for several chains: their names, and the chains that rates belong to
const MAGNIFIED = 1.12; // a unit of the drawing, in pixels, at letters of the usual size
const WIRE = 9; // distance of a direction's line from the middle
const SIZES = { link: [128, 62], end: [88, 62], box: [84, 44] };
const SHARE_OF_HEIGHT = 0.28; // of the window, that several chains take up
const MOST_COMPACT = 0.75; // smaller letters are illegible
const SMALLEST = 0.58; // the scale of a chain of one link on a telephone; longer ones are scrolled
const MEAN_S = 1; // rates and queues are means of the last second, as in the figure above the queue's plot

export class ChainDrawing {
  #place;
  #drawn = "";
  #rows = [];
  #shared = new Map();

  constructor(place) {
    this.#place = place;
  }

  /** Draw a picture (`GET v1/picture`), unless it is drawn already, and write the rates of an instant into it. */
  show(picture, store, t) {
    const unit = MAGNIFIED * Number(document.documentElement.dataset.scale ?? 1) * compact(picture);
    const room = Math.floor(this.#place.clientWidth / unit / 8) * 8;
    const content = JSON.stringify([picture?.chains, picture?.hosts?.length, picture?.boxes, room, unit]);
    if (content !== this.#drawn) {
      this.#drawn = content;
      this.#draw(picture, room, unit);
    }
    for (const row of this.#rows) {
      const rates = segmentRates(row.nodes, store, t, this.#shared);
      row.segments.forEach((segment, index) => showRates(segment, rates[index]));
      for (const [name, gauge] of row.gauges) showQueue(gauge, name, store, t, this.#shared.has(name));
    }
  }

  #draw(picture, room, unit) {
    const several = picture?.chains.length > 1;
    const chains = (picture?.chains ?? []).filter((chain) => chain.hops.length);
    const longest = Math.max(1, ...chains.map((chain) => boundaries(chain.hops).length));
    const least = longest > 1 ? LEAST_BETWEEN : LEAST_STEP;
    const step = Math.min(MOST_STEP, Math.max(least, (room - 2 * END) / (longest + 1)));
    const width = 2 * END + (longest + 1) * step;
    const above = ABOVE + (several ? NAMED : 0);
    const height = Math.max(1, chains.length) * (above + BELOW);
    this.#shared = sharedBoxes(chains);
    this.#rows = chains.map((chain, index) => {
      const middle = index * (above + BELOW) + above;
      return drawRow(chain, picture, middle, width, several ? `${chain.name}: ${carried(chain)}` : "");
    });
    const labels = chains.map((chain) => `${chain.name}: world, ${chain.hops.map((hop) => hop.name).join(", ")}, island`);
    const label = labels.join("; ") || "no chain";
    const attributes = { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chain-drawing" };
    const drawing = shape("svg", attributes, ...this.#rows.map((row) => row.group));
    const shrunk = width > room ? Math.max(SMALLEST, room / width) : 1;
    drawing.setAttribute("width", (width * unit * shrunk).toFixed(0));
    fill(this.#place, drawing);
  }
}

/** The scale of several chains, so that the plots below stay visible: a share of the usual size. */
function compact(picture) {
  const tall = (picture?.chains.length ?? 1) * (ABOVE + NAMED + BELOW) * MAGNIFIED;
  return Math.max(MOST_COMPACT, Math.min(1, (innerHeight * SHARE_OF_HEIGHT) / tall));
}

/** The traffic of a chain: a branch's selectors; `main` carries the rest. */
function carried({ carries }) {
  const parts = Object.entries(carries).map(([key, part]) => `${key} ${part}`);
  return parts.length ? parts.join(", ") : "all else";
}

function drawRow(chain, picture, middle, width, name) {
  const nodes = boundaries(chain.hops);
  const step = (width - 2 * END) / (nodes.length + 1);
  const places = [END / 2 + 6, ...nodes.map((_, at) => END + step * (at + 1)), width - END / 2 - 6];
  const group = shape("g", { class: "row" });
  const halves = [SIZES.end, ...nodes.map(sizeOf), SIZES.end].map(([wide]) => wide / 2);
  const segments = places
    .slice(1)
    .map((right, at) => drawSegment(group, places[at] + halves[at], right - halves[at + 1], middle));
  drawTaps(group, chain.hops, segments, middle);
  const gauges = new Map();
  drawEnd(group, places[0], middle, "world", hostsOf(picture, "world-server", "server"));
  if (name) group.append(shape("text", { class: "chain-name", x: places[0] - halves[0], y: middle - ABOVE - 7 }, name));
  nodes.forEach((hop, at) => drawNode(group, places[at + 1], middle, hop, picture, gauges));
  drawEnd(group, places.at(-1), middle, "island", hostsOf(picture, "island-client", "client"));
  return { group, nodes, segments, gauges };
}

const sizeOf = (hop) => (hop.is_link ? SIZES.link : SIZES.box);

function hostsOf(picture, role, word) {
  const count = (picture.hosts ?? []).filter((host) => host.role === role).length;
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function drawSegment(group, from, to, middle) {
  const texts = {};
  const wires = {};
  for (const [direction, side, begin, end] of [
    ["to_island", -1, from, to],
    ["to_world", 1, to, from],
  ]) {
    const y = middle + side * WIRE;
    const head = end > begin ? -7 : 7;
    wires[direction] = shape("line", { class: `wire ${direction}`, x1: begin, y1: y, x2: end + head, y2: y });
    const arrow = shape("path", { class: `arrow ${direction}`, d: `M${end} ${y}l${head} -4v8z` });
    const below = side < 0 ? -WIRE - 9 : WIRE + 21;
    texts[direction] = shape("text", { class: `rate ${direction}`, x: (from + to) / 2, y: middle + below }, "");
    group.append(wires[direction], arrow, texts[direction]);
  }
  const of = shape("text", { class: "rates-of", x: (from + to) / 2, y: middle - ABOVE + 7 });
  group.append(of);
  return { from, to, texts, wires, of };
}

/** Draw taps on the wire, with their names below. */
function drawTaps(group, hops, segments, middle) {
  let at = 0;
  const seen = segments.map(() => []);
  for (const hop of hops) {
    if (hop.kind === "tap") seen[at].push(hop);
    else at += 1;
  }
  seen.forEach((taps, index) => {
    const { from, to } = segments[index];
    taps.forEach((tap, number) => {
      const x = from + (to - from) * tapPosition(number, taps.length, index === segments.length - 1);
      group.append(
        shape("line", { class: "tap-stem", x1: x, y1: middle - WIRE, x2: x, y2: middle + 38 }),
        shape("circle", { class: "tap", cx: x, cy: middle - WIRE, r: 3 }),
        shape("circle", { class: "tap", cx: x, cy: middle + WIRE, r: 3 }),
        shape("text", { class: "tap-name", x, y: middle + 50 }, tap.name),
      );
    });
  });
}

/** The position of a tap on its segment: off the rate in the middle, while there is room. */
function tapPosition(number, count, last) {
  if (count === 1) return last ? 0.13 : 0.87;
  return count === 2 ? [0.13, 0.87][number] : (number + 1) / (count + 1);
}

function drawEnd(group, x, middle, name, below) {
  const [width, height] = SIZES.end;
  group.append(
    shape("rect", { class: "node end", x: x - width / 2, y: middle - height / 2, width, height, rx: height / 2 }),
    shape("text", { class: "node-name", x, y: middle - 1 }, name),
    shape("text", { class: "node-what", x, y: middle + 15 }, below),
  );
}

function drawNode(group, x, middle, hop, picture, gauges) {
  const [width, height] = sizeOf(hop);
  const left = x - width / 2;
  const kind = hop.is_link ? "link" : "box";
  group.append(shape("rect", { class: `node ${kind}`, x: left, y: middle - height / 2, width, height, rx: 6 }));
  if (!hop.is_link) {
    group.append(
      shape("text", { class: "node-name", x, y: middle - 1 }, hop.name),
      shape("text", { class: "node-what", x, y: middle + 14 }, hop.kind),
    );
    return;
  }
  const { to_island: island, to_world: world } = picture.boxes?.[hop.name] ?? {};
  const bar = shape("rect", { class: "queue-bar", x: left + 10, y: middle + 15, width: 0, height: 7, rx: 1.5 });
  const figure = shape("text", { class: "queue-figure", x, y: middle + 50 }, "");
  group.append(
    shape("text", { class: "node-name", x, y: middle - 12 }, hop.name),
    shape("text", { class: "node-what", x, y: middle + 5 }, island ? `${rateOf(island)}, ${settingMs(island.delay_ns)}` : "link"),
    shape("rect", { class: "queue-room", x: left + 10, y: middle + 15, width: width - 20, height: 7, rx: 1.5 }),
    bar,
    figure,
  );
  if (world) {
    const toIsland = `to the island ${rateOf(island)}, ${queueOf(island)}`;
    const toWorld = `to the world ${rateOf(world)}, ${settingMs(world.delay_ns)}, ${queueOf(world)}`;
    group.append(shape("title", {}, `${toIsland}; ${toWorld}`));
  }
  gauges.set(hop.name, { bar, figure, width: width - 20 });
}

const rateOf = (way) => setting(way.rate_bit_s, "bit/s");
const queueOf = (way) => `queue ${setting(way.queue_bytes, "B")}`;

function showRates(segment, rates) {
  for (const direction of ["to_island", "to_world"]) {
    const rate = rates[direction];
    say(segment.texts[direction], bitRate(rate));
    const width = Number.isFinite(rate) && rate > 0 ? Math.min(7, Math.max(1.5, Math.log10(rate) - 2)) : 1.5;
    segment.wires[direction].setAttribute("stroke-width", width.toFixed(1));
    segment.wires[direction].classList.toggle("idle", !(rate > 0));
  }
  say(segment.of, rates.of ? inAll(rates.of) : "");
}

/** The chains that a common rate is the sum of. */
const inAll = (chains) => (chains.length > 2 ? `${chains.length} chains in all` : `${chains.join(" + ")} in all`);

function showQueue(gauge, link, store, t, shared) {
  const waiting = store.series(`link/${link}/to_island/queue`).mean(t - MEAN_S, t);
  const capacity = store.configured(link, "to_island").queue_bytes;
  const share = capacity > 0 && Number.isFinite(waiting) ? Math.min(1, waiting / capacity) : 0;
  gauge.bar.setAttribute("width", (share * gauge.width).toFixed(1));
  gauge.bar.classList.toggle("full", share > 0.97);
  say(gauge.figure, Number.isFinite(waiting) ? `queue ${Math.round(share * 100)}\u00a0%${shared ? ", shared" : ""}` : "");
}

/** The hops that bound a segment: all but taps, which only copy frames. */
export const boundaries = (hops) => hops.filter((hop) => hop.kind !== "tap");

/** The boxes of more than one chain, whose counters are sums over those chains: name -> names of the chains. */
export function sharedBoxes(chains) {
  const users = new Map();
  for (const chain of chains)
    for (const { name } of boundaries(chain.hops)) users.set(name, [...(users.get(name) ?? []), chain.name]);
  return new Map([...users].filter(([, names]) => names.length > 1));
}

/**
 * Rates in bit/s between the drawn nodes of a chain, one more than there are `nodes`: [{to_island, to_world, of}]. NaN: no
 * counter there. `of`: the chains whose sum the figures are, where only a box of `shared` counts; else null.
 */
export function segmentRates(nodes, store, t, shared = new Map()) {
  return [null, ...nodes].map((before, index) => segment(before, nodes[index], store, t, shared));
}

function segment(before, after, store, t, shared) {
  const counted = [ratesAt(after, "w", store, t), ratesAt(before, "i", store, t)].filter(
    (rates) => Number.isFinite(rates?.to_island) || Number.isFinite(rates?.to_world),
  );
  const { box, ...rates } = counted.find((each) => !shared.has(each.box)) ?? counted[0] ?? { to_island: NaN, to_world: NaN };
  return { ...rates, of: shared.get(box) ?? null };
}

/** The rates that a hop counts at one of its sides: w, towards the world, or i, towards the island. */
function ratesAt(hop, side, store, t) {
  if (!hop) return null;
  const box = hop.name;
  const [arriving, leaving] = side === "w" ? ["to_island", "to_world"] : ["to_world", "to_island"];
  return hop.is_link
    ? { box, [arriving]: linkRate(store, box, arriving, "in", t), [leaving]: linkRate(store, box, leaving, "out", t) }
    : { box, [arriving]: interfaceRate(store, box, side, "rx", t), [leaving]: interfaceRate(store, box, side, "tx", t) };
}

function linkRate(store, link, direction, counter, t) {
  return store.series(`link/${link}/${direction}/${counter}`).mean(t - MEAN_S, t);
}

/** The rate of a box's interface. In emulated labs their names end in -w and -i; NaN for other names. */
function interfaceRate(store, box, side, counter, t) {
  const key = store.keys(`interface/${box}/`).find((each) => each.endsWith(`-${side}/${counter}_bytes`));
  return key ? store.series(key).at(t, OLD_S) : NaN;
}
