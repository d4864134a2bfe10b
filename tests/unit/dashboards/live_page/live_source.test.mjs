// SPDX-License-Identifier: Apache-2.0
// What the page says of its connection: it is connecting until it knows what is up, and says plainly when it is not connected.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError } from "../../../../dashboards/atoll_dashboards/live_page/api.js";
import { LiveSource } from "../../../../dashboards/atoll_dashboards/live_page/live_source.js";

const turn = () => new Promise((resolve) => setImmediate(resolve));
const PICTURE = { lab: "island", experiment: null, place: "mininet", boxes: {}, run: null };

/** An API whose answers are given one by one. */
class Asked {
  constructor() {
    this.waiting = [];
    this.sockets = [];
  }

  ask(_method, path) {
    return new Promise((answer, refuse) => this.waiting.push({ path, answer, refuse }));
  }

  events() {
    this.sockets.push({ close() {} });
    return this.sockets.at(-1);
  }

  async next(path) {
    for (;;) {
      const at = this.waiting.findIndex((each) => each.path === path);
      if (at >= 0) return this.waiting.splice(at, 1)[0];
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

function begun() {
  const api = new Asked();
  const live = new LiveSource(api, { changed() {}, event() {}, refused() {} });
  live.start();
  assert.equal(live.state().text, "connecting");
  return { api, live };
}

/** The same once a daemon has answered and its events come. */
async function connected() {
  const { api, live } = begun();
  (await api.next("v1/status")).answer({ pid: 1, busy: null });
  await turn();
  api.sockets[0].onopen();
  return { api, live };
}

test("it is connecting until the picture of the lab has come", async () => {
  const { api, live } = await connected();
  assert.equal(live.state().text, "connecting");
  (await api.next("v1/picture")).answer(PICTURE);
  await turn();
  assert.equal(live.state().text, "up, no experiment applied");
  live.stop();
});

test("it says that no lab is up yet only when a daemon says so", async () => {
  const { api, live } = await connected();
  (await api.next("v1/picture")).refuse(new ApiError(409, "no lab is up"));
  await turn();
  assert.equal(live.state().text, "no lab is up yet");
  live.stop();
});

test("without an answer it is not connected; a daemon that has no lab is no lost connection", async () => {
  const { api, live } = begun();
  (await api.next("v1/status")).refuse(new ApiError(0, "nobody answers at this address any more"));
  await turn();
  assert.equal(live.state().text, "not connected");
  assert.match(live.banner(), /^Nobody answers at this address any more\. Trying again in 1 s\.$/);
  (await api.next("v1/status")).refuse(new ApiError(503, "no lab is up"));
  await turn();
  assert.equal(live.state().text, "no lab");
  live.stop();
});

test("after its connection broke it is not connected until a daemon says that the lab has ended", async () => {
  const { api, live } = await connected();
  (await api.next("v1/picture")).answer(PICTURE);
  await turn();
  api.sockets[0].onclose();
  assert.equal(live.state().text, "not connected");
  assert.match(live.banner(), /^The connection was lost at .*: the figures shown are older\./);
  (await api.next("v1/status")).refuse(new ApiError(503, "no lab is up"));
  await turn();
  assert.equal(live.state().text, "lab ended");
  live.stop();
});

test("it connects again once it has a token", async () => {
  const { api, live } = begun();
  (await api.next("v1/status")).refuse(new ApiError(401, "a token is needed"));
  await turn();
  assert.equal(live.state().text, "not connected: a token is needed");
  live.start();
  assert.equal(live.state().text, "connecting");
  live.stop();
});
