// SPDX-License-Identifier: Apache-2.0
// The health of hosts, from their own metrics. Pure.

import { OLD_S } from "./store.js";

const TROUBLE_S = 10; // how long errors are shown

/**
 * For each host of the picture {name, role, state, text}, `state` being
 * `well`, `trouble` (errors, drops, failed flows within the last ten seconds), `silent` (it has stopped reporting while others
 * of its role report), or `quiet`: nothing is being measured there.
 */
export function hostHealth(hosts, store, t) {
  const reporting = new Set(hosts.filter((host) => isHeard(store, host.name, t)).map((host) => host.role));
  const counted = errorsByHost(store);
  return hosts.map((host) => ({
    name: host.name,
    role: host.role,
    ...judged(host, store, t, reporting.has(host.role), counted.get(host.name) ?? []),
  }));
}

/** The series of errors and drops of each host: name -> keys. */
function errorsByHost(store) {
  const byHost = new Map();
  for (const key of store.keys("trouble/")) {
    const [, name] = key.split("/");
    byHost.set(name, [...(byHost.get(name) ?? []), key]);
  }
  return byHost;
}

function isHeard(store, name, t) {
  return Number.isFinite(store.hosts.get(name)?.at(t, OLD_S) ?? NaN);
}

function judged(host, store, t, othersReport, counted) {
  const heard = store.hosts.get(host.name);
  if (!isHeard(store, host.name, t)) {
    const before = heard ? heard.time(heard.before(t) - 1) : NaN;
    if (!othersReport || !Number.isFinite(before)) return { state: "quiet", text: "no figures" };
    return { state: "silent", text: `no data for ${Math.round(t - before)} s` };
  }
  const wrong = troubles(host.name, counted, store, t);
  return wrong.length ? { state: "trouble", text: wrong.join(", ") } : { state: "well", text: "well" };
}

function troubles(name, counted, store, t) {
  const texts = counted
    .filter((key) => store.series(key).mean(t - TROUBLE_S, t) > 0)
    .map((key) => `drops or errors: ${key.split("/").at(-1)}`);
  if (store.series(`load/${name}/failed`).mean(t - TROUBLE_S, t) > 0) texts.push("flows fail");
  return texts;
}

/** The load of the machines that hosts run on: [{name, busy, cpus, free_bytes}], those with a recent figure. */
export function machineLoads(store, t) {
  const latest = (name, figure) => store.series(`machine/${name}/${figure}`).at(t, OLD_S);
  return store
    .keys("machine/")
    .filter((key) => key.endsWith("/busy"))
    .map((key) => key.slice("machine/".length, -"/busy".length))
    .map((name) => ({
      name,
      busy: latest(name, "busy"),
      cpus: latest(name, "cpus"),
      free_bytes: latest(name, "memory_available_bytes"),
    }))
    .filter((machine) => Number.isFinite(machine.busy));
}
