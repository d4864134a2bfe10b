// SPDX-License-Identifier: Apache-2.0
// Goodput of the live page: what has ended counts for nothing from its end on.

import assert from "node:assert/strict";
import { test } from "node:test";

const page = (name) => import(new URL(`../../../../dashboards/atoll_dashboards/live_page/${name}`, import.meta.url));

const { Store } = await page("store.js");
const { plotsOf } = await page("plots.js");

const T = 1_800_000_000;
const ns = (t) => Math.round(t * 1e9);
const load = (t, bytes) => [
  "load",
  { host: "i1" },
  { flows_completed: 0, flows_failed: 0, active: 1, received_bytes: bytes },
  ns(t),
];
const transfer = (t, bytes, more = {}) => ["transfer", { host: "is" }, { received_bytes: bytes, ...more }, ns(t)];

/** A load of 1 Mbit/s for nine seconds beside a transfer of 8 Mbit/s, which is over at 3.4 s; `end`: its last points. */
function taken(end) {
  const store = new Store();
  for (let second = 0; second < 9; second += 1) {
    const points = [load(T + second, 125_000 * second)];
    if (second <= 3) points.push(transfer(T + second + 0.1, 1_000_000 * second));
    if (second === 3) points.push(...end);
    store.take(points);
  }
  return store;
}

test("a transfer that says it is over counts for nothing from then on", () => {
  const goodput = taken([transfer(T + 3.4, 3_300_000, { ended: 1 })]).series("goodput");
  assert.equal(Math.round(goodput.at(T + 2.2)), 9e6);
  for (const t of [3.41, 4, 5, 8]) assert.equal(Math.round(goodput.at(T + t)), 1e6, `at ${t} s`);
});

test("of an older run, which does not say so, its rate holds no longer than its interval", () => {
  const goodput = taken([]).series("goodput");
  assert.equal(Math.round(goodput.at(T + 3.1)), 9e6);
  for (const t of [5, 6, 8]) assert.equal(Math.round(goodput.at(T + t)), 1e6, `at ${t} s`);
});

test("bytes that come right after a figure, and an end that is told of an instant before it, are no rate", () => {
  const late = taken([transfer(T + 3.101, 3_050_000, { ended: 1 })]).series("goodput");
  assert.ok(Math.max(...Array.from({ length: late.length }, (_, index) => late.value(index) || 0)) < 9.1e6);
  assert.equal(Math.round(late.at(T + 4)), 1e6);
  const before = taken([transfer(T + 2.9, 3_000_000, { ended: 1 })]).series("goodput");
  assert.equal(Math.round(before.at(T + 4)), 1e6);
});

test("when all is over goodput and flows are nothing at once, not what they were", () => {
  const store = taken([transfer(T + 3.4, 3_300_000, { ended: 1 })]);
  store.take([["load", { host: "i1" }, { active: 0, ended: 1 }, ns(T + 8.001)]]);
  const figures = Object.fromEntries(plotsOf("sat").map((plot) => [plot.id, plot.figure(store, T + 8.5).figure]));
  assert.deepEqual([figures.goodput, figures.flows], ["0", "0"]);
});

test("uploads are a series of their own", () => {
  const store = new Store();
  for (let second = 0; second < 4; second += 1) {
    const sent = ["transfer", { host: "i2" }, { sent_bytes: 1_000_000 * second }, ns(T + second)];
    store.take([load(T + second, 125_000 * second), sent]);
  }
  assert.deepEqual([store.series("goodput").at(T + 3), store.series("uploaded").at(T + 3)], [1e6, 8e6]);
});

test("a source that is a little late does not make a dip", () => {
  const store = new Store();
  for (let second = 0; second < 6; second += 1)
    store.take([transfer(T + second, 1_000_000 * second), load(T + second - 0.2 + 0.4 * (second % 2), 125_000 * second)]);
  const goodput = store.series("goodput");
  for (let index = 1; index < goodput.length; index += 1) assert.ok(goodput.value(index) > 8.5e6);
});

test("points of a last second and ends that come in one message are both seen", () => {
  const of = (host, t, fields) => ["load", { host }, { flows_completed: 0, flows_failed: 0, ...fields }, ns(t)];
  const active = (t, bytes) => ["i1", "i2"].map((host) => of(host, t, { active: 3, received_bytes: bytes }));
  const ended = (t) => ["i1", "i2"].map((host) => of(host, t, { active: 0, ended: 1 }));
  const store = new Store();
  store.take(active(T + 18, 0));
  store.take([...active(T + 19, 125_000), ...ended(T + 20)]);
  const figures = (t) => ["goodput", "flows"].map((key) => Math.round(store.series(key).at(t)));
  assert.deepEqual(figures(T + 19.5), [2e6, 6]);
  assert.deepEqual(figures(T + 20.5), [0, 0]);
});
