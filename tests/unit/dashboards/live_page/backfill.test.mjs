// SPDX-License-Identifier: Apache-2.0
// The live page beside a run that is going: what it missed, what the lab is busy with, how the run was judged.

import assert from "node:assert/strict";
import { test } from "node:test";

const page = (name) => import(new URL(`../../../../dashboards/atoll_dashboards/live_page/${name}`, import.meta.url));

const { gapsOf } = await page("downsample.js");
const { LiveSource } = await page("live_source.js");

const T = 1_800_000_000;
const ns = (t) => Math.round(t * 1e9);
const OUT = "link/sat/to_island/out";

/** A second of a link's points from `begin` on, as one message; it sends 8 Mbit/s since T. */
function second(begin, run = "geo-1") {
  const points = Array.from({ length: 10 }, (_, index) => {
    const bytes = Math.round((begin - T + index / 10) * 1e6);
    return ["link", { box: "sat", direction: "to_island" }, { in_bytes: bytes, out_bytes: bytes }, ns(begin + index / 10)];
  });
  return { type: "points", t_ns: points.at(-1)[3], run, points };
}

const until = async (holds) => {
  for (let tries = 0; !holds(); tries += 1) {
    assert.ok(tries < 3000, "waited for in vain");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};

/** A page that has just been opened; `spool(request, write)`: what is answered to who asks for the run's points. */
async function opened({ run, spool, busy = null }) {
  const daemon = { socket: null, asked: [], told: [] };
  const answers = {
    "v1/status": { pid: 1, busy },
    "v1/picture": { lab: "island", experiment: "geo", boxes: { sat: { kind: "link", is_link: true } }, run },
  };
  const api = {
    ask: async (_, path) => answers[path],
    events: () => (daemon.socket = { close() {} }),
    fetch: async (_, path, { signal }) => {
      const url = new URL(path, "http://localhost");
      daemon.asked.push([url.pathname, Object.fromEntries(url.searchParams)]);
      const body = new ReadableStream({
        async start(stream) {
          const write = (message) => stream.enqueue(new TextEncoder().encode(`${JSON.stringify(message)}\n`));
          signal.addEventListener("abort", () => stream.error(signal.reason));
          await spool(Object.fromEntries(url.searchParams), write);
          stream.close();
        },
      });
      return { body };
    },
  };
  const live = new LiveSource(api, { changed() {}, event: (event) => daemon.told.push(event.text) });
  live.start();
  await until(() => daemon.socket?.onopen);
  daemon.socket.onopen();
  const say = (message) => daemon.socket.onmessage({ data: JSON.stringify(message) });
  return { live, say, daemon };
}

const RUN = { id: "geo-1", step: "measure", elapsed_s: 20, duration_s: 60, metrics: true };

test("a page that is opened in the middle of a run shows it from its begin, without a gap and nothing twice", async () => {
  let goOn = null;
  const written = new Promise((resolve) => (goOn = resolve));
  const spool = async (_, write) => {
    // Of a run without metrics events are told before what was counted.
    write({ type: "points", t_ns: ns(T + 22), run: "geo-1", points: [["event", { kind: "note" }, { text: "note" }, ns(T + 22)]] });
    for (let t = 0; t < 19; t += 1) write(second(T + t));
    await written; // the spool's last second comes after the first one that is told live
    for (let t = 19; t < 23; t += 1) write(second(T + t));
  };
  const { live, say, daemon } = await opened({ run: RUN, spool });
  say(second(T + 21));
  await until(() => live.store.newest > T + 18.8);
  say(second(T + 22));
  assert.ok(live.store.newest < T + 19, "what comes live waits");
  goOn();
  await until(() => live.store.newest > T + 22.8);
  const ring = live.store.series(OUT);
  assert.equal(ring.length, 229);
  for (let index = 0; index < ring.length; index += 1) assert.ok(Math.abs(ring.value(index) - 8e6) < 100);
  assert.deepEqual(gapsOf(ring, T, T + 23, T + 23, 1.5), []);
  say(second(T + 23));
  assert.ok(live.store.newest > T + 23.8, "from then on it is live");
  const [[path, { measurements, follow }]] = daemon.asked;
  assert.equal(path, "/v1/replays/geo-1/points");
  assert.ok(measurements.split(",").includes("transfer") && !measurements.includes("delay_class"));
  assert.equal(follow, "true");
  live.stop();
});

test("of a long run only what the plots need is asked for of what is long ago, and of no more than an hour", async () => {
  const spool = async ({ follow }, write) => write(second(follow ? T + 7300 : T + 6000));
  const { live, say, daemon } = await opened({ run: { ...RUN, elapsed_s: 7300 }, spool });
  say(second(T + 7300));
  await until(() => daemon.asked.length === 2 && live.store.newest > T + 7300);
  const [[, long], [, recent]] = daemon.asked;
  assert.ok(Math.abs(Number(long.from_ns) / 1e9 - (T + 3700)) < 5);
  assert.ok(!long.measurements.includes("interface") && recent.measurements.includes("interface"));
  assert.equal(long.to_ns, recent.from_ns);
  live.stop();
});

test("what cannot be had of a run's past is missing, and what is live goes on", async () => {
  const spool = async () => {
    throw new Error("nobody answers");
  };
  const { live, say } = await opened({ run: RUN, spool });
  say(second(T + 21));
  await until(() => live.store.newest > T + 21);
  assert.deepEqual(gapsOf(live.store.series(OUT), T, T + 22, T + 22, 1.5), [[T, live.store.series(OUT).first]]);
  live.stop();
});

test("without a run nothing of the past is asked for", async () => {
  const { live, say, daemon } = await opened({ run: null, spool: async () => {} });
  say(second(T, null));
  await until(() => live.store.newest > T);
  assert.deepEqual(daemon.asked, []);
  live.stop();
});

test("a lab that goes while its run's past is read takes nothing of it along; who leaves the page reads no more", async () => {
  let goOn = null;
  const spool = async (_, write) => {
    write(second(T));
    await new Promise((resolve) => (goOn = resolve));
    write(second(T + 1));
  };
  const { live, say, daemon } = await opened({ run: RUN, spool });
  say(second(T + 1));
  say(second(T + 2));
  await until(() => live.store.newest > T);
  assert.equal(live.state().text, "reading the run so far");
  daemon.socket.onclose();
  goOn();
  await until(() => live.store.newest > T + 2.8);
  live.stop();
  const { live: left, say: tell } = await opened({ run: RUN, spool });
  tell(second(T + 1));
  await until(() => left.store.newest > T);
  left.stop();
  goOn();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(left.store.newest < T + 1);
});

test("while the lab is busy its chains and latencies are disabled, with the reason", async () => {
  const { live, say } = await opened({ run: null, busy: { what: "run", about: "geo", since_ns: 1 }, spool: async () => {} });
  assert.match(live.disabledReason, /^run geo is going on: .* when it is over$/);
  say({ type: "work", seq: 1, t_ns: 1, what: "run", about: "geo", state: "end", verdict: "valid", reasons: [] });
  assert.equal(live.disabledReason, "");
  say({ type: "work", seq: 2, t_ns: 1, what: "apply", about: "meo", state: "begin" });
  assert.match(live.disabledReason, /^apply meo /);
  live.stop();
});

test("the reasons of an invalid run are shown with it and in the log", async () => {
  const { live, say, daemon } = await opened({ run: null, spool: async () => {} });
  const reasons = ["a departure was 9.10 ms late, bound 5 ms", "capture island is missing"];
  say({ type: "run", seq: 1, t_ns: 1, run: "geo-1" });
  const text = `run geo: invalid: ${reasons.join("; ")}`;
  say({ type: "work", seq: 2, t_ns: 1, what: "run", about: "geo", state: "end", verdict: "invalid", reasons, text });
  assert.deepEqual([live.run.verdict, live.run.reasons], ["invalid", reasons]);
  assert.ok(daemon.told.includes(text));
  live.stop();
});
