// SPDX-License-Identifier: Apache-2.0
// The live page's pure modules, by node's own test runner; tests/unit/dashboards/test_live_page_modules.py runs all tests here.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";

const page = (name) => import(new URL(`../../../../dashboards/atoll_dashboards/live_page/${name}`, import.meta.url));

const { RingBuffer } = await page("ring_buffer.js");
const { GAP_S, Store } = await page("store.js");
const { downsample, gapsOf } = await page("downsample.js");
const { boundaries, segmentRates, sharedBoxes } = await page("chain.js");
const { hostHealth, machineLoads } = await page("host_health.js");
const { TimeRange } = await page("time_range.js");
const { boxFigures, sendingOf, STEPS, stepStates } = await page("panels.js");
const { fitsBehindAxis } = await page("charts.js");
const { whyNotReplayed } = await page("replay_controls.js");
const { tokenReason } = await page("dialogs.js");
const { LiveSource } = await page("live_source.js");
const { Replay } = await page("replay.js");
const format = await page("format.js");
const { plotsOf, plotDescription } = await page("plots.js");

const T = 1_800_000_000;
const ns = (t) => t * 1e9;
const SAT = { box: "sat", direction: "to_island" };

/** A link's points each 100 ms from `begin` on, sending at a constant rate. */
function linkPoints(begin, count, rateBitS = 8e6, sum = 0) {
  return Array.from({ length: count }, (_, index) => {
    const bytes = sum + (rateBitS / 80) * (index + 1);
    const fields = {
      in_bytes: bytes,
      out_bytes: bytes,
      dropped_packets: 0,
      dropped_queue_packets: 0,
      queue_bytes: 5000,
      queue_max_bytes: 9000,
    };
    return ["link", SAT, fields, ns(begin + (index + 1) / 10)];
  });
}

test("a ring keeps the newest points and finds what held at an instant", () => {
  const ring = new RingBuffer(300);
  for (let index = 0; index < 1000; index += 1) assert.ok(ring.push(index, index * 2));
  assert.equal(ring.length, 300);
  assert.equal(ring.first, 700);
  assert.equal(ring.at(850.5), 1700);
  assert.equal(ring.at(699), NaN);
  assert.equal(ring.at(2000, 5), NaN);
  assert.equal(ring.mean(996, 998), ((997 + 998) * 2) / 2);
});

test("a ring takes no point twice, so that overlapping answers do no harm", () => {
  const ring = new RingBuffer(10);
  ring.push(1, 1);
  assert.equal(ring.push(1, 2), false);
  assert.equal(ring.push(0.5, 2), false);
  assert.equal(ring.length, 1);
});

test("sums become rates; a box that begins anew makes a gap, not a negative rate", () => {
  const store = new Store();
  store.take(linkPoints(T, 10));
  const sent = store.series("link/sat/to_island/out");
  assert.ok(Math.abs(sent.mean(T, T + 1) - 8e6) < 10);
  store.take(
    linkPoints(T + 1, 2, 8e6, 0).map((point, index) =>
      index ? point : [...point.slice(0, 2), { ...point[2], out_bytes: 0 }, point[3]],
    ),
  );
  const values = Array.from({ length: sent.length }, (_, index) => sent.value(index));
  assert.ok(values.every((value) => !(value < 0)));
  assert.ok(values.some(Number.isNaN));
});

test("silence is a gap in the line and is found as such", () => {
  const store = new Store();
  store.take(linkPoints(T, 10));
  store.take(linkPoints(T + 5, 10, 8e6, 1e6));
  const sent = store.series("link/sat/to_island/out");
  const [[begin, end]] = gapsOf(sent, T, T + 6, T + 6, 1.5);
  assert.ok(Math.abs(begin - (T + 1)) < 0.11 && Math.abs(end - (T + 5.2)) < 0.11, `${begin - T} ${end - T}`);
  const [times, values] = downsample([sent], ["mean"], T, T + 6);
  assert.ok(times.length === values.length && values.includes(null));
  assert.deepEqual(
    gapsOf(sent, T, T + 20, T + 10, GAP_S.link)
      .at(-1)
      .map(Math.round),
    [T + 6, T + 10],
  );
});

test("sojourn is the queue by the rate that the link is configured to", () => {
  const store = new Store();
  store.configure({ sat: { kind: "link", is_link: true, to_island: { rate_bit_s: 16e6, queue_bytes: 100_000 }, to_world: {} } });
  store.take(linkPoints(T, 3));
  assert.equal(store.series("link/sat/to_island/sojourn").at(T + 1), (5000 * 8) / 16e6);
  store.take([["link_config", SAT, { rate_bit_s: 8e6 }, ns(T + 1)], ...linkPoints(T + 1, 1, 8e6, 1e6)]);
  assert.equal(store.series("link/sat/to_island/sojourn").at(T + 2), (5000 * 8) / 8e6);
});

test("RTTs of pings lie above the least of their own run, however that of the next one is", () => {
  const store = new Store();
  const ping = (t, ms) => ["ping", { target: "is" }, { rtt_ns: ms * 1e6, lost: 0 }, ns(t)];
  assert.equal(store.leastRtt(T), NaN);
  store.take([ping(T, 520), ping(T + 1, 500), ping(T + 2, 510)], "geo-1");
  store.take(linkPoints(T + 3, 1));
  store.take(linkPoints(T + 4, 1), "meo-1");
  assert.equal(store.leastRtt(T), 0.5, "the next run has not pinged yet");
  store.take([ping(T + 5, 150)], "meo-1");
  assert.deepEqual([store.leastRtt(T + 2), store.leastRtt(T + 6)], [0.5, 0.15]);
});

test("goodput and flows are sums over the hosts that speak", () => {
  const store = new Store();
  for (let second = 0; second < 5; second += 1) {
    const hosts = second < 3 ? ["i1", "i2"] : ["i1"];
    store.take(
      hosts.map((host) => [
        "load",
        { host },
        { flows_completed: 3 * second, flows_failed: 0, active: 4, received_bytes: 1e6 * second },
        ns(T + second),
      ]),
    );
  }
  assert.equal(store.series("goodput").at(T + 2), 16e6);
  assert.equal(store.series("flows").at(T + 2), 8);
  assert.equal(store.series("completed").at(T + 2), 6);
  for (const t of [9, 10])
    store.take([
      [
        "load",
        { host: "i1" },
        { flows_completed: 0, flows_failed: 0, active: 4, received_bytes: 9e6 + t * 1e6 },
        ns(T + t),
      ],
    ]);
  assert.equal(store.series("flows").at(T + 10), 4, "a host that fell silent does not count for ever");
});

test("memory is bounded, whatever comes", () => {
  const store = new Store(10, 5);
  store.take(linkPoints(T, 5000));
  for (const key of store.keys("")) assert.ok(store.series(key).length <= 100);
  for (let index = 0; index < 2000; index += 1) store.mark(T + index, "note", `note ${index}`);
  assert.equal(store.marks.length, 500);
});

test("long windows are drawn in buckets that do not move with the window, of means and of maxima", () => {
  const ring = new RingBuffer(10_000);
  for (let index = 0; index < 6000; index += 1) ring.push(T + index / 10, index % 10);
  const [times, means] = downsample([ring], ["mean"], T, T + 600);
  assert.ok(times.length <= 1002);
  assert.ok(means.slice(1, -1).every((value) => Math.abs(value - 4.5) < 1e-9));
  const [shifted, most] = downsample([ring], ["max"], T + 0.3, T + 600);
  assert.ok(most.slice(1, -1).every((value) => value === 9));
  assert.ok(shifted.filter((t) => times.includes(t)).length > 590);
});

test("series of different instants stand side by side without breaking each other's lines", () => {
  const [one, two] = [new RingBuffer(10), new RingBuffer(10)];
  for (let index = 0; index < 3; index += 1) {
    one.push(index, 1);
    two.push(index + 0.5, 2);
  }
  assert.deepEqual(downsample([one, two], ["mean", "mean"], 0, 3), [
    [0, 0.5, 1, 1.5, 2, 2.5],
    [1, undefined, 1, undefined, 1, undefined],
    [undefined, 2, undefined, 2, undefined, 2],
  ]);
});

test("between hops stands what the nearest counter says, and nothing where nobody counts", () => {
  const store = new Store();
  store.take([
    ...linkPoints(T, 20),
    ...linkPoints(T, 20).map(([name, , fields, t]) => [name, { box: "sat", direction: "to_world" }, fields, t]),
  ]);
  for (const second of [0, 1, 2]) {
    store.take([
      [
        "interface",
        { host: "pep-w", interface: "pep-w-w" },
        { rx_bytes: 1e6 * second, tx_bytes: 1e5 * second, rx_errors: 0, tx_errors: 0, rx_dropped: 0, tx_dropped: 0 },
        ns(T + second),
      ],
    ]);
  }
  const hops = [
    { name: "tap-w", kind: "tap" },
    { name: "pep-w", kind: "router" },
    { name: "sat", kind: "link", is_link: true },
    { name: "modem", kind: "external" },
  ];
  const nodes = boundaries(hops);
  assert.deepEqual(
    nodes.map((hop) => hop.name),
    ["pep-w", "sat", "modem"],
  );
  const rates = segmentRates(nodes, store, T + 2);
  assert.deepEqual(
    rates.map((rate) => Math.round(rate.to_island / 1e6)),
    [8, 8, 8, NaN],
  );
  assert.equal(Math.round(rates[0].to_world / 1e5), 8);
});

test("what only a box of several chains counts is shown as their sum, what a chain's own box counts as its own", () => {
  const hops = (...names) => names.map((name) => ({ name, kind: name.slice(0, 3), is_link: name === "sat" }));
  const chains = [
    { name: "coded", hops: hops("coder-w", "sat", "tap-i") },
    { name: "main", hops: hops("tap-w", "sat", "tap-i") },
  ];
  const shared = sharedBoxes(chains);
  assert.deepEqual([...shared], [["sat", ["coded", "main"]]], "taps count nothing");
  const store = new Store();
  store.take(linkPoints(T, 20));
  const counted = { rx_errors: 0, tx_errors: 0, rx_dropped: 0, tx_dropped: 0 };
  for (const second of [0, 1, 2])
    for (const side of ["w", "i"]) {
      const fields = { ...counted, rx_bytes: 4e5 * second, tx_bytes: 2e5 * second };
      store.take([["interface", { host: "coder-w", interface: `coder-w-${side}` }, fields, ns(T + second)]]);
    }
  const told = (chain) =>
    segmentRates(boundaries(chain.hops), store, T + 2, shared).map((rates) => [Math.round(rates.to_island), rates.of]);
  const together = [8_000_000, ["coded", "main"]];
  assert.deepEqual(told(chains[0]), [[3_200_000, null], [1_600_000, null], together]);
  assert.deepEqual(told(chains[1]), [together, together]);
});

test("steps are done up to where a run is, or ended; the one that failed is distinguished from those that were not reached", () => {
  const states = (run) => Object.fromEntries(stepStates(run).map((state, index) => [STEPS[index], state]));
  const going = states({ step: "measure", state: "running", broken: null });
  assert.deepEqual([going.clients, going.measure, going.stop], ["done", "now", ""]);
  const failed = states({ step: "check", state: "ended", broken: "the configuration test failed" });
  assert.deepEqual([failed.apply, failed.check, failed.settings], ["done", "broken", "not-reached"]);
  assert.equal(failed.analyse, "not-reached");
  const measured = states({ step: "record", state: "ended", broken: null });
  assert.deepEqual([measured.record, measured.analyse], ["done", ""], "without an analysis");
  assert.ok(stepStates(null).every((state) => state === ""));
});

test("a replayed run says in the end how it ended, and until then what it does", async () => {
  const step = (name, t, more) => ({ type: "step", step: name, t_ns: ns(t), ...more });
  const at = async (told, t) => {
    const whole = { finished: true, from_ns: ns(T), to_ns: ns(T + 9), metrics: true, picture: { boxes: {} }, ...told };
    const stream = () => ({ body: new Blob([]).stream() });
    const replay = new Replay({ ask: async () => whole, fetch: async () => stream() }, "geo-1", () => {});
    await replay.begin(assert.fail);
    const { verdict, step: name, broken } = replay.runAt(t);
    replay.end();
    return [verdict, name, broken];
  };
  const events = [step("apply", T), step("check", T + 3), step("check", T + 9, { state: "failed", message: "no" })];
  const failed = { outcome: "failed at step check: the configuration test failed\nw1 to i1: lost", events };
  assert.deepEqual(await at(failed, T + 4), [null, "check", null]);
  assert.deepEqual(await at(failed, T + 9), ["failed", "check", "the configuration test failed\nw1 to i1: lost"]);
  assert.deepEqual((await at({ ...failed, verdict: "invalid" }, T + 9)).slice(0, 2), ["failed", "check"], "analysed since");
  const begun = [step("measure", T)];
  assert.deepEqual(await at({ outcome: "cancelled at step measure", events: begun }, T + 9), [
    "cancelled",
    "measure",
    "",
  ]);
  assert.match((await at({ outcome: "running", events: begun }, T + 9)).join(), /^broken off,measure,.* killed/);
  assert.deepEqual(await at({ outcome: "completed", verdict: "valid", events: begun }, T + 9), [
    "valid",
    "analyse",
    null,
  ]);
  const analysis = [...begun, step("analyse", T + 8), step("analyse", T + 9, { state: "failed", message: "no tables" })];
  assert.deepEqual(await at({ outcome: "completed", events: analysis }, T + 9), ["failed", "analyse", "no tables"]);
});

test("a mean of minutes, as interfaces give in virtual time, is no rate of an instant", () => {
  const store = new Store();
  const counted = { rx_errors: 0, tx_errors: 0, rx_dropped: 0, tx_dropped: 0 };
  for (const t of [T, T + 300]) {
    const fields = { ...counted, rx_bytes: t - T, tx_bytes: t - T };
    store.take([["interface", { host: "coder-w", interface: "coder-w-w" }, fields, ns(t)]]);
  }
  const [rates] = segmentRates([{ name: "coder-w", kind: "router" }], store, T + 300);
  assert.deepEqual([rates.to_island, rates.to_world], [NaN, NaN]);
});

test("a host is silent when its like speak and it does no more, quiet when nothing is measured", () => {
  const hosts = [
    { name: "i1", role: "island-client" },
    { name: "i2", role: "island-client" },
    { name: "w1", role: "world-server" },
  ];
  const store = new Store();
  const load = (host, t, failed = 0) => [
    "load",
    { host },
    { flows_completed: 0, flows_failed: failed, active: 1, received_bytes: 0 },
    ns(t),
  ];
  store.take([load("i1", T), load("i2", T)]);
  for (let second = 1; second < 10; second += 1) store.take([load("i1", T + second, second)]);
  assert.deepEqual(
    hostHealth(hosts, store, T + 9).map((host) => host.state),
    ["trouble", "silent", "quiet"],
  );
  assert.equal(hostHealth(hosts, store, T + 9)[1].text, "no data for 9 s");
  assert.deepEqual(
    hostHealth(hosts, store, T + 60).map((host) => host.state),
    ["quiet", "quiet", "quiet"],
  );
});

test("errors and drops are those of the host they were counted at", () => {
  const hosts = ["w1", "w10"].map((name) => ({ name, role: "world-server" }));
  const store = new Store();
  for (let second = 0; second < 3; second += 1) {
    const received = { rx_bytes: 0, tx_bytes: 0, rx_errors: 0, tx_errors: 0, tx_dropped: 0 };
    const points = hosts.map(({ name }) => {
      const dropped = name === "w10" ? second : 0;
      return ["interface", { host: name, interface: "eth0" }, { ...received, rx_dropped: dropped }, ns(T + second)];
    });
    store.take(points);
  }
  assert.deepEqual(
    hostHealth(hosts, store, T + 2).map((host) => host.text),
    ["well", "drops or errors: eth0"],
  );
});

test("a view that is zoomed stays where it is, and goes back to what it followed", () => {
  let changes = 0;
  const view = new TimeRange(() => (changes += 1));
  assert.deepEqual(view.span(100, 0), [40, 100]);
  view.zoom(50, 60);
  assert.deepEqual(view.span(200, 0), [50, 60]);
  view.pan(0.5, 200, 0);
  assert.deepEqual(view.span(200, 0), [55, 65]);
  view.unzoom();
  view.pause(150);
  assert.deepEqual(view.span(200, 0), [90, 150]);
  view.pan(1, 200, 0);
  assert.deepEqual([view.range, view.paused], [null, null], "panned up to now it follows again");
  view.choose(null);
  assert.deepEqual(view.span(200, 10), [10, 200]);
  assert.ok(changes >= 6);
});

test("figures have three digits, SI prefixes and no exponents", () => {
  assert.deepEqual(format.quantity(15_834_000, "bit/s"), { figure: "15.8", unit: "Mbit/s" });
  assert.deepEqual(format.quantity(999_900, "B"), { figure: "1.00", unit: "MB" });
  assert.deepEqual(format.quantity(NaN, "B"), { figure: "", unit: "" });
  assert.equal(format.setting(16e6, "bit/s"), "16\u00a0Mbit/s");
  assert.equal(format.elapsed(-5), "\u22120:05");
  assert.equal(format.elapsed(3671.4), "1:01:11");
  assert.equal(format.elapsed(-0.2), "0:00");
});

test("a plot shows no figure, unit or dash where nothing is known", () => {
  for (const plot of plotsOf("sat")) {
    assert.deepEqual(plot.figure(new Store(), T), { figure: "", unit: "", detail: "" }, plot.id);
    assert.equal(plotDescription(plot, new Store(), T), `${plot.title}: no data`);
  }
});

test("machines tell how busy they are, until they tell no more", () => {
  const store = new Store();
  store.take([["machine", { machine: "emulation" }, { busy: 0.97, cpus: 2, memory_available_bytes: 4e9 }, ns(T)]]);
  assert.deepEqual(machineLoads(store, T + 1), [{ name: "emulation", busy: 0.97, cpus: 2, free_bytes: 4e9 }]);
  assert.deepEqual(machineLoads(store, T + 10), []);
});

test("a run that is being made is followed to its end, over a stream that is cut", async () => {
  const step = (name, t) => ({ type: "step", step: name, t_ns: ns(t) });
  const steps = [step("check", T)];
  const asked = [];
  let finished = false;
  let streams = 0;
  const line = (points) => `${JSON.stringify({ type: "points", t_ns: 0, run: "geo-1", points })}\n`;
  const server = createServer((request, answer) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    if (!pathname.endsWith("/points")) {
      const to_ns = steps.at(-1).t_ns;
      const picture = { boxes: {} };
      const run = { finished, outcome: "completed", metrics: true, verdict: null };
      answer.end(JSON.stringify({ ...run, from_ns: ns(T), to_ns, picture, events: [...steps] }));
      return;
    }
    asked.push(Object.fromEntries(searchParams));
    streams += 1;
    if (streams === 1) {
      steps.push(step("measure", T + 9));
      const event = ["event", { kind: "step" }, { text: "measure" }, ns(T + 9)];
      answer.write(line([...linkPoints(T, 100), event]));
      setTimeout(() => answer.destroy(), 200);
    } else {
      finished = true;
      steps.push(step("finish", T + 11));
      answer.end(line(linkPoints(T + 5, 50, 8e6, 5e6)) + line(linkPoints(T + 10, 20, 8e6, 1e7)));
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const get = (_, path, { signal }) => fetch(`http://127.0.0.1:${server.address().port}/${path}`, { signal });
  const api = { fetch: get, ask: async (...words) => (await get(...words)).json() };

  const seen = [];
  const replay = new Replay(api, "geo-1", () => seen.push([replay.loading, replay.description.events.length]));
  const failures = [];
  await replay.begin((error) => failures.push(error));
  assert.equal(replay.loading, true);
  while (replay.loading || !replay.description.finished) await new Promise((resolve) => setTimeout(resolve, 20));
  server.close();
  replay.end();
  assert.deepEqual(failures, []);
  const states = seen.map(String).filter((state, index, all) => state !== all[index - 1]);
  assert.deepEqual(states, ["false,1", "false,2", "true,2", "false,2", "false,3"]);
  assert.deepEqual(asked, [{ follow: "true" }, { follow: "true", from_ns: String(ns(T + 5)) }]);
  const sent = replay.store.series("link/sat/to_island/out");
  assert.equal(sent.length, 119);
  assert.equal(Math.round(sent.mean(T, T + 12)), 8e6);
  assert.equal(replay.to, T + 12);
  assert.equal(replay.position, replay.to);
});

/** A replay of a run whose record is what `told` has at that time, without points. */
async function replayOf(told) {
  const api = { ask: async () => ({ ...told }), fetch: async () => ({ body: new Blob([]).stream() }) };
  const replay = new Replay(api, "geo-1", () => {});
  await replay.begin(assert.fail);
  return replay;
}

const until = async (holds) => {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 20));
};

const RUN = { outcome: "running", verdict: null, metrics: true, picture: { boxes: {} }, from_ns: ns(T), to_ns: ns(T + 63) };

test("a run that was followed shows its verdict once it is analysed, although no event reports it", { timeout: 20_000 }, async () => {
  const told = { ...RUN, finished: false, events: [] };
  const replay = await replayOf(told);
  Object.assign(told, { finished: true, outcome: "completed" });
  await until(() => replay.description.finished && !replay.loading);
  assert.equal(replay.runAt(T + 63).verdict, "no verdict yet");
  told.verdict = "invalid";
  await until(() => replay.runAt(T + 63).verdict === "invalid");
  replay.end();
});

test("a run that failed or whose analysis did is not asked for its verdict for ever", async () => {
  const analysis = [{ type: "step", step: "analyse", state: "failed", message: "no tables", t_ns: ns(T + 63) }];
  for (const ended of [{ outcome: "failed at step check: no", events: [] }, { outcome: "completed", events: analysis }]) {
    const replay = await replayOf({ ...RUN, finished: true, ...ended });
    await until(() => !replay.loading);
    assert.equal(replay.ending, "failed");
  }
});

test("a replay opens where its load ends, says the verdict there, and plays from the begin of the measurement", async () => {
  const window = { start_ns: ns(T + 10), end_ns: ns(T + 60) };
  const events = [{ type: "step", step: "measure", t_ns: ns(T + 10) }];
  const replay = await replayOf({ ...RUN, finished: true, outcome: "completed", verdict: "valid", events, window });
  assert.deepEqual([replay.position, replay.ending, replay.runAt(T + 60).verdict], [T + 60, "valid", null]);
  replay.toggle(0);
  assert.equal(replay.position, T + 10);
  replay.toggle(1);
  replay.seek(T + 30);
  replay.toggle(2);
  assert.equal(replay.position, T + 30, "from elsewhere it goes on from there");
  const aborted = await replayOf({ ...RUN, finished: true, outcome: "cancelled at step measure", events, window: null });
  assert.equal(aborted.position, T + 63);
});

test("servers tell nothing any more when the flows do not, although they spoke a second longer", () => {
  const store = new Store();
  const load = (t) => ["load", { host: "i1" }, { flows_completed: 0, flows_failed: 0, active: 6, received_bytes: 0 }, ns(t)];
  const server = (t) => ["server", { host: "w1" }, { active: 6, sent_bytes: 71_750 * (t - T) }, ns(t)];
  store.take([server(T), load(T), server(T + 1), load(T + 1), server(T + 2)]);
  assert.deepEqual(sendingOf(store, "w1", T + 2), { sent: 574_000, active: 6 });
  assert.deepEqual(sendingOf(store, "w1", T + 4.5), { sent: NaN, active: NaN });
  const alone = new Store();
  alone.take([server(T), server(T + 1)]);
  assert.equal(sendingOf(alone, "w1", T + 2).active, 6, "where no client tells of flows they stand for themselves");
});

test("the first label of the time axis is left out where it would lie upon the other axis's", () => {
  assert.equal(fitsBehindAxis(4, "23:59:07", 16), false);
  assert.equal(fitsBehindAxis(31, "23:59:07", 16), true);
  assert.equal(fitsBehindAxis(16, "0:05", 16), true);
});

test("who looks at the page is told what to do there, not how the API is asked", () => {
  const refusal = { status: 401, message: "token missing: send Authorization: Bearer TOKEN" };
  const unknown = { status: 404, message: "there is no run 'geo-1' to replay; GET /v1/replays lists the runs" };
  const texts = [tokenReason(refusal, ""), tokenReason(refusal, "wrong"), whyNotReplayed("geo-1", unknown)];
  for (const text of texts) assert.doesNotMatch(text, /Bearer|GET|v1/);
  assert.equal(new Set(texts).size, 3);
  assert.equal(tokenReason({ status: 403, message: "ask it by its address" }, ""), "ask it by its address");
});

/** The page's view of a lab, with the daemon's messages and pictures as the test gives them. */
async function watched() {
  const daemon = { picture: null, socket: null, told: [] };
  const answers = { "v1/status": () => ({ pid: 1 }), "v1/picture": () => daemon.picture };
  const api = { ask: async (_, path) => answers[path](), events: () => (daemon.socket = { close() {} }) };
  const live = new LiveSource(api, { changed() {}, event: (event) => daemon.told.push(event.text ?? event.type) });
  const say = (message) => daemon.socket.onmessage({ data: JSON.stringify(message) });
  const draw = async (picture) => {
    daemon.picture = { experiment: "geo", run: null, ...picture };
    say({ type: "lab", seq: 1, lab: picture.lab, state: "up" });
    while (live.picture !== daemon.picture) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  const points = (t, count) => say({ type: "points", t_ns: ns(t + count / 10), points: linkPoints(t, count) });
  live.start();
  while (!daemon.socket?.onmessage) await new Promise((resolve) => setTimeout(resolve, 10));
  return { live, draw, points, say, told: daemon.told, vanish: () => daemon.socket.onclose() };
}

test("another lab begins with empty plots and its own links", async () => {
  const link = { kind: "link", is_link: true, to_island: { rate_bit_s: 5e6 } };
  const { live, draw, points } = await watched();
  await draw({ lab: "island", boxes: { sat: link } });
  points(T, 10);
  await draw({ lab: "island", boxes: { sat: link } });
  assert.equal(live.store.series("link/sat/to_island/out").length, 9);
  await draw({ lab: "atoll", boxes: { leo: link } });
  assert.deepEqual(live.store.links, ["leo"]);
  assert.equal(live.store.newest, NaN);
  live.stop();
});

test("the plots go on when the lab's clock is set back", async () => {
  const { live, draw, points, told } = await watched();
  await draw({ lab: "island", boxes: { sat: { kind: "link", is_link: true, to_island: { rate_bit_s: 5e6 } } } });
  points(T, 10);
  points(T - 60, 10);
  points(T - 59, 10);
  assert.equal(live.store.newest, T - 58);
  assert.ok(live.edge < T - 57);
  assert.equal(live.store.configured("sat", "to_island").rate_bit_s, 5e6);
  assert.equal(told.filter((text) => text.includes("set back")).length, 1);
  live.stop();
});

test("a run without metrics is told as such while it is going", async () => {
  const { live, draw } = await watched();
  const run = { id: "geo-1", step: "measure", elapsed_s: 1, duration_s: 9 };
  await draw({ lab: "island", boxes: {}, run: { ...run, metrics: true } });
  assert.equal(live.remark, "");
  await draw({ lab: "island", boxes: {}, run: { ...run, metrics: false } });
  assert.match(live.remark, /--no-metrics/);
  await draw({ lab: "island", boxes: {}, run: null });
  assert.equal(live.remark, "");
  live.stop();
});

test("a run and its verdict stay in sight when its lab goes", async () => {
  const { live, draw, say, told, vanish } = await watched();
  await draw({ lab: "island", boxes: {} });
  say({ type: "run", seq: 2, run: "geo-1" });
  say({ type: "step", seq: 3, step: "analyse" });
  say({ type: "work", seq: 4, what: "run", about: "geo", state: "end", verdict: "invalid", text: "run geo: invalid" });
  say({ type: "lab", seq: 5, lab: "island", state: "down" });
  vanish();
  live.stop();
  const { id, verdict, state, broken } = live.run;
  assert.deepEqual([id, verdict, state, broken], ["geo-1", "invalid", "ended", null]);
  assert.ok(told.includes("run geo: invalid"), told.join());
});

test("a run whose lab went before it was over does not look as if it went on", async () => {
  const { live, draw, say, vanish } = await watched();
  await draw({ lab: "island", boxes: {} });
  say({ type: "run", seq: 2, run: "geo-1" });
  vanish();
  live.stop();
  assert.deepEqual([live.run.id, live.run.state, live.run.verdict], ["geo-1", "ended", "connection lost"]);
});

test("boxes whose kind declares figures are shown with them: sums per second, others as they are", () => {
  const coded = { name: "coded_packets", unit: "packets", what: "sent" };
  const held = { name: "held_bytes", unit: "bytes", what: "waiting" };
  const boxes = { "coder-w": { kind: "coder", is_link: false, counters: [coded], levels: [held] }, "pep-w": { kind: "router" } };
  const store = new Store();
  store.configure(boxes);
  assert.ok(store.measurements.includes("coder"));
  assert.ok(!store.measurements.includes("router"));
  const point = (index) => ["coder", { box: "coder-w" }, { coded_packets: 5 * index, held_bytes: 1200 }, ns(T + index / 10)];
  store.take(Array.from({ length: 30 }, (_, index) => point(index)));
  store.take([["router", { box: "pep-w" }, { packets: 1 }, ns(T + 2)]]);
  const rows = boxFigures(boxes, store, T + 2.9);
  assert.deepEqual(
    rows.map((row) => [row.name, [...row.boxes]]),
    [
      ["held_bytes", [["coder-w", "1.20\u00a0kB"]]],
      ["coded_packets", [["coder-w", "50.0\u00a0packets/s"]]],
    ],
  );
  assert.deepEqual(boxFigures(boxes, store, T + 60)[0].boxes.get("coder-w"), "");
  assert.deepEqual(boxFigures({ "pep-w": boxes["pep-w"] }, store, T), []);
});
