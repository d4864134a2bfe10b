// SPDX-License-Identifier: Apache-2.0
// What passes between the hops of a chain, as far as somebody counts it there. Pure.

const MEAN_S = 1; // what is shown is the mean of the last second
const OLD_S = 3.2; // and nothing that is older than this

/** Rates in bit/s between the drawn nodes of a chain: [{to_island, to_world}], one more than there are `nodes`; NaN: nobody counts there. */
export function segmentRates(nodes, store, t) {
  return Array.from({ length: nodes.length + 1 }, (_, index) => segment(nodes[index - 1], nodes[index], store, t));
}

/** Taps only look on: what passes before one passes behind it, so that only the others bound a segment. */
export const boundaries = (hops) => hops.filter((hop) => hop.kind !== "tap");

function segment(before, after, store, t) {
  const known = [atWorldSide(after, store, t), atIslandSide(before, store, t)].filter(Boolean);
  const pick = (name) => known.map((rates) => rates[name]).find(Number.isFinite) ?? NaN;
  return { to_island: pick("to_island"), to_world: pick("to_world") };
}

function atWorldSide(hop, store, t) {
  if (!hop) return null;
  if (hop.kind === "link")
    return {
      to_island: linkRate(store, hop.name, "to_island", "in", t),
      to_world: linkRate(store, hop.name, "to_world", "out", t),
    };
  return {
    to_island: interfaceRate(store, hop.name, "w", "rx", t),
    to_world: interfaceRate(store, hop.name, "w", "tx", t),
  };
}

function atIslandSide(hop, store, t) {
  if (!hop) return null;
  if (hop.kind === "link")
    return {
      to_island: linkRate(store, hop.name, "to_island", "out", t),
      to_world: linkRate(store, hop.name, "to_world", "in", t),
    };
  return {
    to_island: interfaceRate(store, hop.name, "i", "tx", t),
    to_world: interfaceRate(store, hop.name, "i", "rx", t),
  };
}

export function linkRate(store, link, direction, what, t) {
  return store.series(`link/${link}/${direction}/${what}`).mean(t - MEAN_S, t);
}

/** A box's interfaces end in -w and -i in emulated labs; of machines whose interfaces are called otherwise nothing is told. */
function interfaceRate(store, box, side, way, t) {
  const key = store.keys(`interface/${box}/`).find((each) => each.endsWith(`-${side}/${way}_bytes`));
  return key ? store.series(key).at(t, OLD_S) : NaN;
}
