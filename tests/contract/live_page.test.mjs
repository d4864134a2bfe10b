// SPDX-License-Identifier: Apache-2.0
// The page's side of tests/data/contract/live.jsonl; tests/contract/test_live_contract.py runs it by node.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const page = (name) => import(new URL(`../../dashboards/atoll_dashboards/live_page/${name}`, import.meta.url));

const { Store } = await page("store.js");
const { boundaries, segmentRates } = await page("chain.js");
const { hostHealth } = await page("host_health.js");

const examples = readFileSync(new URL("../data/contract/live.jsonl", import.meta.url), "utf8")
  .trimEnd()
  .split("\n")
  .map((line) => JSON.parse(line));
const told = (request) => examples.filter((each) => each.request === request).map((each) => each.answer);
const events = [...told("GET /v1/events"), ...told("GET /v1/replays/{id}").flatMap((replay) => replay.events)];
const samples = [...told("GET /v1/events"), ...told("GET /v1/replays/{id}/points")].filter((each) => each.points);

test("every event has the text that the log shows; samples have none", () => {
  const shown = events.filter((event) => event.text !== undefined);
  assert.ok(shown.length > 8);
  for (const { text, severity } of shown) {
    assert.ok(text.length > 3, text);
    assert.match(severity, /^(info|warning)$/);
  }
  const silent = new Set(events.filter((event) => event.text === undefined).map((event) => event.type));
  assert.deepEqual([...silent].sort(), ["hello", "points"]);
});

test("points of every kind are taken, and what links are set to", () => {
  assert.ok(samples.length > 2);
  for (const sample of samples) {
    const store = new Store();
    store.take(sample.points, sample.run);
    const instants = sample.points.filter(([measurement]) => measurement !== "event").map((point) => point[3] / 1e9);
    assert.equal(store.newest, Math.max(...instants));
    if (sample.points.some(([measurement]) => measurement.startsWith("link"))) assert.deepEqual(store.links, ["sat"]);
  }
});

test("pictures are drawn, with an experiment and without", () => {
  const replayed = told("GET /v1/replays/{id}").flatMap((replay) => replay.pictures);
  const pictures = [...told("GET /v1/picture"), ...replayed.map((each) => each.picture)];
  assert.ok(pictures.length > 2);
  for (const picture of pictures) {
    const store = new Store();
    store.configure(picture.boxes);
    const { to_island: way } = picture.boxes.sat;
    assert.equal(store.configured("sat", "to_island").rate_bit_s, way?.rate_bit_s);
    const states = hostHealth(picture.hosts, store, 0).map((host) => host.state);
    assert.deepEqual(states, picture.hosts.map(() => "quiet"));
    for (const chain of picture.chains) {
      const nodes = boundaries(chain.hops);
      assert.ok(nodes.some((hop) => hop.kind === "link"));
      assert.equal(segmentRates(nodes, store, 0).length, nodes.length + 1);
    }
  }
});
