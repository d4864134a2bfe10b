// SPDX-License-Identifier: Apache-2.0
// How the hosts are, judged by what they tell of themselves. Pure.

const SILENT_S = 3.2; // all of them speak once a second
const TROUBLE_S = 10; // how long errors stay in sight

/**
 * For each host of the picture {name, role, state, text}, `state` being
 * `well`, `trouble` (errors, drops, failed flows within the last ten seconds), `silent` (others of its role speak, it did,
 * and does not any more), or `quiet`: nothing is being measured there.
 */
export function healthOf(hosts, store, t) {
  const speaking = new Set(hosts.filter((host) => isHeard(store, host.name, t)).map((host) => host.role));
  const counted = errorsByHost(store);
  return hosts.map((host) => ({
    name: host.name,
    role: host.role,
    ...judged(host, store, t, speaking.has(host.role), counted.get(host.name) ?? []),
  }));
}

/** What counts errors and drops of each host: name -> keys of series. */
function errorsByHost(store) {
  const found = new Map();
  for (const key of store.keys("trouble/")) {
    const [, name] = key.split("/");
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(key);
  }
  return found;
}

function isHeard(store, name, t) {
  return Number.isFinite(store.hosts.get(name)?.at(t, SILENT_S) ?? NaN);
}

function judged(host, store, t, othersSpeak, counted) {
  const heard = store.hosts.get(host.name);
  if (!isHeard(store, host.name, t)) {
    const before = heard ? heard.time(heard.before(t) - 1) : NaN;
    if (!othersSpeak || !Number.isFinite(before)) return { state: "quiet", text: "no figures" };
    return { state: "silent", text: `silent for ${Math.round(t - before)} s` };
  }
  const wrong = troubles(host.name, counted, store, t);
  return wrong.length ? { state: "trouble", text: wrong.join(", ") } : { state: "well", text: "well" };
}

function troubles(name, counted, store, t) {
  const found = counted
    .filter((key) => store.series(key).mean(t - TROUBLE_S, t) > 0)
    .map((key) => `drops or errors: ${key.split("/").at(-1)}`);
  if (store.series(`load/${name}/failed`).mean(t - TROUBLE_S, t) > 0) found.push("flows fail");
  return found;
}

/** How busy the machines are that hosts run on: [{name, busy, cpus, free_bytes}], those that told it of late. */
export function machinesOf(store, t) {
  const latest = (name, figure) => store.series(`machine/${name}/${figure}`).at(t, SILENT_S);
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
