// SPDX-License-Identifier: Apache-2.0
// Rates between the hops of a chain, from the counters of its boxes. Pure.

const MEAN_S = 1; // rates are means of the last second
const OLD_S = 3.2; // older figures are not shown

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

function linkRate(store, link, direction, what, t) {
  return store.series(`link/${link}/${direction}/${what}`).mean(t - MEAN_S, t);
}

/** The rate of a box's interface. In emulated labs their names end in -w and -i; NaN for other names. */
function interfaceRate(store, box, side, counter, t) {
  const key = store.keys(`interface/${box}/`).find((each) => each.endsWith(`-${side}/${counter}_bytes`));
  return key ? store.series(key).at(t, OLD_S) : NaN;
}
