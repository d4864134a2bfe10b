// SPDX-License-Identifier: Apache-2.0
// Series as columns over common instants, as uPlot takes them: null breaks a line, undefined means no point there. Pure.

export const FINEST_S = 120; // longer windows are drawn in buckets
const BUCKETS = 1000;

/** The width of buckets in a window of so many seconds; 0: every point is drawn. */
export function bucketOf(window) {
  if (window <= FINEST_S) return 0;
  return [1, 2, 5, 10, 30, 60, 120, 300].find((width) => window / width <= BUCKETS) ?? 600;
}

/**
 * [times, values, ...] of the rings within [from, to], one point beyond each end included so that lines reach the edge.
 * `folds`: `mean` or `max` for each ring, how the points of a bucket are combined.
 */
export function downsample(rings, folds, from, to, origin = 0) {
  const width = bucketOf(to - from);
  const parts = rings.map((ring, index) =>
    width ? bucketed(ring, folds[index], from, to, width) : exact(ring, from, to),
  );
  return aligned(parts, origin);
}

function exact(ring, from, to) {
  const begin = Math.max(0, ring.before(from) - 1);
  const end = Math.min(ring.length, ring.before(to) + 1);
  const times = [];
  const values = [];
  for (let index = begin; index < end; index += 1) {
    times.push(ring.time(index));
    values.push(broken(ring.value(index)));
  }
  return { times, values };
}

/** Buckets begin at multiples of their width, so that they do not change while the window moves. */
function bucketed(ring, fold, from, to, width) {
  const times = [];
  const values = [];
  const end = Math.min(ring.length, ring.before(to + width));
  let index = ring.before(Math.floor(from / width) * width - width);
  while (index < end) {
    const begin = Math.floor(ring.time(index) / width) * width;
    let sum = 0;
    let most = -Infinity;
    let count = 0;
    let gap = false;
    for (; index < end && ring.time(index) < begin + width; index += 1) {
      const value = ring.value(index);
      if (Number.isNaN(value)) gap = true;
      else {
        sum += value;
        most = Math.max(most, value);
        count += 1;
      }
    }
    times.push(begin + width / 2);
    values.push(count && !gap ? (fold === "max" ? most : sum / count) : null);
  }
  return { times, values };
}

const broken = (value) => (Number.isNaN(value) ? null : value);

function aligned(parts, origin) {
  const times = [...new Set(parts.flatMap((part) => part.times))].sort((a, b) => a - b);
  const place = new Map(times.map((t, index) => [t, index]));
  const columns = parts.map((part) => {
    const column = new Array(times.length).fill(undefined);
    part.times.forEach((t, index) => (column[place.get(t)] = part.values[index]));
    return column;
  });
  return [times.map((t) => t - origin), ...columns];
}

/** Gaps longer than `age` within [from, to]: [[begin, end], ...]. `edge`: the instant up to which points can be there. */
export function gapsOf(ring, from, to, edge, age) {
  const gaps = [];
  if (!ring.length) return gaps;
  if (ring.first - from > age) gaps.push([from, Math.min(ring.first, to)]);
  for (let index = Math.max(0, ring.before(from) - 2); index < ring.length && ring.time(index) < to; index += 1) {
    if (!Number.isNaN(ring.value(index))) continue;
    const begin = ring.time(Math.max(0, index - 1));
    const next = ring.time(index + 1);
    if (next - begin > age) gaps.push([begin, next]);
  }
  if (edge - ring.last > age && ring.last < to) gaps.push([ring.last, edge]);
  return gaps.filter(([begin, end]) => end > from && begin < to);
}
