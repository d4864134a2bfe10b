// SPDX-License-Identifier: Apache-2.0
// What passes between the hops of a chain, as far as somebody counts it there. Pure.

const MEAN_S = 1; // what is shown is the mean of the last second
const OLD_S = 3.2; // and nothing that is older than this

/** Taps only look on: what passes before one passes behind it, so that only the others bound a segment. */
export const boundaries = (hops) => hops.filter((hop) => hop.kind !== "tap");

/** The boxes that several chains pass, which count what all of these carry: name -> names of the chains. */
export function sharedBoxes(chains) {
  const users = new Map();
  for (const chain of chains)
    for (const { name } of boundaries(chain.hops)) users.set(name, [...(users.get(name) ?? []), chain.name]);
  return new Map([...users].filter(([, names]) => names.length > 1));
}

/**
 * Rates in bit/s between the drawn nodes of a chain, one more than there are `nodes`: [{to_island, to_world, of}]. NaN:
 * nobody counts there. `of`: the chains that the figures are of together, where only a box of `shared` counts; else null.
 */
export function segmentRates(nodes, store, t, shared = new Map()) {
  return [null, ...nodes].map((before, index) => segment(before, nodes[index], store, t, shared));
}

function segment(before, after, store, t, shared) {
  const told = [atWorldSide(after, store, t), atIslandSide(before, store, t)].filter(
    (rates) => Number.isFinite(rates?.to_island) || Number.isFinite(rates?.to_world),
  );
  const { box, ...rates } = told.find((each) => !shared.has(each.box)) ?? told[0] ?? { to_island: NaN, to_world: NaN };
  return { ...rates, of: shared.get(box) ?? null };
}

function atWorldSide(hop, store, t) {
  if (!hop) return null;
  const box = hop.name;
  if (hop.kind === "link")
    return {
      box,
      to_island: linkRate(store, box, "to_island", "in", t),
      to_world: linkRate(store, box, "to_world", "out", t),
    };
  return {
    box,
    to_island: interfaceRate(store, box, "w", "rx", t),
    to_world: interfaceRate(store, box, "w", "tx", t),
  };
}

function atIslandSide(hop, store, t) {
  if (!hop) return null;
  const box = hop.name;
  if (hop.kind === "link")
    return {
      box,
      to_island: linkRate(store, box, "to_island", "out", t),
      to_world: linkRate(store, box, "to_world", "in", t),
    };
  return {
    box,
    to_island: interfaceRate(store, box, "i", "tx", t),
    to_world: interfaceRate(store, box, "i", "rx", t),
  };
}

function linkRate(store, link, direction, what, t) {
  return store.series(`link/${link}/${direction}/${what}`).mean(t - MEAN_S, t);
}

/** A box's interfaces end in -w and -i in emulated labs; of machines whose interfaces are called otherwise nothing is told. */
function interfaceRate(store, box, side, way, t) {
  const key = store.keys(`interface/${box}/`).find((each) => each.endsWith(`-${side}/${way}_bytes`));
  return key ? store.series(key).at(t, OLD_S) : NaN;
}
