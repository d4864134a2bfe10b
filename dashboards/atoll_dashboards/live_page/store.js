// SPDX-License-Identifier: Apache-2.0
// The store of metrics: points (`atoll metrics names`) in, time series out. Pure: no clock, no page.
//
// Everything the page shows is a function of a store and an instant, so that live, paused and replayed views share the code.

import { RingBuffer } from "./ring_buffer.js";

export const HOUR_S = 3600;
const HOSTS_S = 900; // a laboratory has more than a hundred of them
const MARKS = 500;
const RUNS = 100; // more than an hour has

/** Older figures of series with a point each second are not shown, in seconds. */
export const OLD_S = 3.2;

/** The time in seconds without a point after which a line is broken: ten periods of points each 100 ms, three of others. */
export const GAP_S = { link: 1.05, ping: 1.05, other: OLD_S };

const VALID = 1.25; // a source's last figure counts for so many of its intervals, so that a late one has not ended
const SHORTEST_S = 0.2; // shorter intervals yield no rate: bytes come in bursts

const DROPS = ["queue", "low_priority", "loss", "aqm", "blocked", "unsent"];

export class Store {
  #series = new Map();
  #sums = new Map();
  #links = new Map();
  #hosts = new Map();
  #kinds = new Set(); // of boxes with counters of their own: names of measurements
  #run = null;
  #least = []; // {run, from, rtt}: the first ping of each run, and its least RTT so far

  /** `seconds`: the time that series cover; `hostSeconds`: the same for series of single hosts. */
  constructor(seconds = HOUR_S, hostSeconds = HOSTS_S) {
    /** Capacities of series with points each 100 ms, with points each second, and of single hosts. */
    this.fast = seconds * 10;
    this.slow = seconds;
    this.host = hostSeconds;
    this.newest = NaN;
    /** {t, kind, text} of whistles, changes and swaps, which get a line in every plot. */
    this.marks = [];
  }

  /** Names of the links that have points or a configuration. */
  get links() {
    return [...this.#links.keys()];
  }

  /** The instants at which hosts reported: name -> ring. */
  get hosts() {
    return this.#hosts;
  }

  /** Names of the measurements that are kept; others only show that their host is alive. */
  get measurements() {
    return [...Object.keys(HANDLERS), ...this.#kinds];
  }

  /** A series by its key; an empty one if no point of it has come. */
  series(key) {
    return this.#series.get(key) ?? EMPTY;
  }

  keys(prefix) {
    return [...this.#series.keys()].filter((key) => key.startsWith(prefix));
  }

  /** Take the configuration of links from `picture.boxes`, until points report it, and the kinds of boxes with counters. */
  configure(boxes) {
    for (const [name, box] of Object.entries(boxes ?? {})) {
      if (box.counters || box.levels) this.#kinds.add(box.kind);
      if (!box.is_link) continue;
      for (const direction of ["to_island", "to_world"]) {
        if (box[direction]) this.#setting(name, direction).now = box[direction];
      }
    }
  }

  /** The last reported configuration of a link's direction: {rate_bit_s, delay_ns, queue_bytes}. */
  configured(link, direction) {
    return this.#links.get(link)?.[direction]?.now ?? {};
  }

  /** The first ping series. */
  get ping() {
    return this.series(this.keys("ping/")[0]);
  }

  /** The least RTT, in seconds, of the run that pinged at an instant. */
  leastRtt(t) {
    return (this.#least.findLast(({ from }) => from <= t) ?? this.#least[0])?.rtt ?? NaN;
  }

  /** Take points as docs/api.md has them: [measurement, tags, fields, t_ns]. `run`: the run they belong to, null between runs. */
  take(points, run = null) {
    this.#run = run ?? this.#run;
    const touched = new Touched();
    for (const [measurement, tags, fields, tNs] of points) {
      const t = tNs / 1e9;
      if (!Number.isFinite(t)) continue;
      if (measurement !== "event" && !(t <= this.newest)) this.newest = t;
      this.#heard(tags, t);
      if (this.#kinds.has(measurement)) this.#box(tags.box, fields, t);
      else HANDLERS[measurement]?.(this, tags, fields, t, touched);
    }
    this.#total(touched);
  }

  // For the handlers below

  /** Add a value as it is; after a gap, with a break before it. */
  gauge(key, t, value, gap, capacity = this.slow) {
    if (!Number.isFinite(value)) return;
    const ring = this.#ring(key, capacity);
    if (ring.length && t - ring.last > gap) ring.push(ring.last + gap / 4, NaN);
    ring.push(t, value);
  }

  /** Add the rate at which a sum grows, times `factor`. None over a gap or when the sum restarts. */
  rate(key, t, sum, factor, gap, capacity = this.slow) {
    if (!Number.isFinite(sum)) return;
    const before = this.#sums.get(key);
    if (before && t <= before.t) return;
    this.#sums.set(key, { t, sum });
    if (!before) return;
    const ring = this.#ring(key, capacity);
    if (t - before.t > gap || sum < before.sum) ring.push(ring.length ? Math.max(ring.last, before.t) + 1e-3 : t, NaN);
    else ring.push(t, ((sum - before.sum) * factor) / (t - before.t));
  }

  /**
   * Add the rates of TCP payload that a source received and sent, by its sum. A source that has ended counts as 0 from then on; an end at the
   * instant of a figure, or before it, ends that figure's validity.
   */
  moved(source, t, { received_bytes, sent_bytes, ended }, capacity = this.slow) {
    for (const [way, sum] of Object.entries({ received: received_bytes, sent: sent_bytes })) {
      const key = `${way}/${source}/bit_s`;
      const since = t - (this.#sums.get(key)?.t ?? -Infinity);
      if (!ended || since > SHORTEST_S) this.rate(key, t, sum, 8, GAP_S.other, capacity);
      if (ended) this.ends(key, t);
    }
  }

  /** Sum up the points before this instant: a source that ends at it counted until then. */
  settle(touched, t) {
    if (!(touched.newest < t)) return;
    this.#total(touched);
    touched.clear();
  }

  /** Set a series to 0 from this instant on; sums no longer include it. */
  ends(key, t) {
    const ring = this.series(key);
    if (ring.length) ring.push(Math.max(t, ring.last + 1e-3), 0);
  }

  link(tags, fields, t) {
    const base = `link/${tags.box}/${tags.direction}/`;
    const gap = GAP_S.link;
    const { fast } = this;
    const setting = this.#setting(tags.box, tags.direction);
    this.rate(`${base}in`, t, fields.in_bytes, 8, gap, fast);
    this.rate(`${base}out`, t, fields.out_bytes, 8, gap, fast);
    this.rate(`${base}dropped`, t, fields.dropped_packets, 1, gap, fast);
    for (const cause of DROPS) {
      this.rate(`${base}dropped_${cause}`, t, fields[`dropped_${cause}_packets`], 1, gap, fast);
    }
    this.gauge(`${base}queue`, t, fields.queue_bytes, gap, fast);
    this.gauge(`${base}queue_max`, t, fields.queue_max_bytes, gap, fast);
    const rate = setting.now?.rate_bit_s;
    if (rate > 0) this.gauge(`${base}sojourn`, t, (fields.queue_bytes * 8) / rate, gap, fast);
  }

  linkConfig(tags, fields, t) {
    const setting = this.#setting(tags.box, tags.direction);
    setting.now = { ...setting.now, ...fields };
    const base = `link/${tags.box}/${tags.direction}/`;
    for (const name of ["rate_bit_s", "queue_bytes", "delay_ns"])
      this.gauge(`${base}set_${name}`, t, fields[name], Infinity);
  }

  /** A ping and its RTT in seconds; NaN: it was lost. */
  pinged(target, t, rtt) {
    if (!(rtt > 0)) return;
    this.gauge(`ping/${target}`, t, rtt, GAP_S.ping, this.fast);
    const least = this.#least.at(-1);
    if (least?.run === this.#run) least.rtt = Math.min(least.rtt, rtt);
    else this.#least.push({ run: this.#run, from: t, rtt });
    if (this.#least.length > RUNS) this.#least.shift();
  }

  mark(t, kind, text) {
    const last = this.marks.at(-1);
    if (last && (t < last.t || (t === last.t && text === last.text))) return;
    this.marks.push({ t, kind, text });
    if (this.marks.length > MARKS) this.marks.shift();
  }

  /** A box's counters: each as it is, and the rate at which it grows. */
  #box(box, fields, t) {
    for (const [name, value] of Object.entries(fields)) {
      this.gauge(`box/${box}/${name}`, t, value, GAP_S.link, this.fast);
      this.rate(`box/${box}/${name}/rate`, t, value, 1, GAP_S.link, this.fast);
    }
  }

  #ring(key, capacity) {
    if (!this.#series.has(key)) this.#series.set(key, new RingBuffer(capacity));
    return this.#series.get(key);
  }

  #setting(link, direction) {
    if (!this.#links.has(link)) this.#links.set(link, { to_island: {}, to_world: {} });
    return this.#links.get(link)[direction] ?? {};
  }

  #heard(tags, t) {
    if (!tags.host) return;
    if (!this.#hosts.has(tags.host)) this.#hosts.set(tags.host, new RingBuffer(this.host));
    this.#hosts.get(tags.host).push(t, 1);
  }

  /** A host's figure at an instant: its last one, valid for about one interval; NaN if it is older. */
  #validAt(key, t) {
    const ring = this.#series.get(key);
    const interval = ring.last - ring.time(ring.length - 2);
    return ring.at(t, Math.min(GAP_S.other, VALID * (interval || GAP_S.other)));
  }

  /** Update the sums over hosts, once for all points that came together, from each host's valid figure. */
  #total(touched) {
    for (const [total, prefix, suffix] of TOTALS) {
      const fresh = touched.has(total) ? this.keys(prefix).filter((key) => key.endsWith(suffix)) : [];
      if (!fresh.length) continue;
      const t = Math.max(...fresh.map((key) => this.#series.get(key).last));
      const parts = fresh.map((key) => this.#validAt(key, t)).filter(Number.isFinite);
      const sum = parts.reduce((before, part) => before + part, 0);
      if (parts.length) this.gauge(total, t, sum, GAP_S.other);
    }
  }
}

/** Names of sums whose parts have new points, and the newest instant of those. */
class Touched extends Set {
  newest = NaN;

  at(t, ...totals) {
    for (const total of totals) this.add(total);
    if (!(t <= this.newest)) this.newest = t;
  }
}

const EMPTY = new RingBuffer(1);

/** [series, prefix and suffix of its addends] */
const TOTALS = [
  ["goodput", "received/", "/bit_s"],
  ["uploaded", "sent/", "/bit_s"],
  ["flows", "load/", "/active"],
  ["completed", "load/", "/completed"],
  ["failed", "load/", "/failed"],
];

const SHOWN_EVENTS = new Set(["whistle", "change", "swap", "applied", "note"]);

/** The handler of each measurement of the table; those of box kinds have one in common. */
const HANDLERS = {
  link: (store, tags, fields, t) => store.link(tags, fields, t),
  link_config: (store, tags, fields, t) => store.linkConfig(tags, fields, t),
  ping: (store, tags, fields, t) => store.pinged(tags.target, t, fields.rtt_ns / 1e9),
  load(store, tags, fields, t, touched) {
    if (fields.ended) store.settle(touched, t);
    const base = `load/${tags.host}/`;
    store.gauge(`${base}active`, t, fields.active, GAP_S.other, store.host);
    store.rate(`${base}completed`, t, fields.flows_completed, 1, GAP_S.other, store.host);
    store.rate(`${base}failed`, t, fields.flows_failed, 1, GAP_S.other, store.host);
    store.moved(tags.host, t, fields, store.host);
    touched.at(t, ...TOTALS.map(([total]) => total));
  },
  transfer(store, tags, fields, t, touched) {
    if (fields.ended) store.settle(touched, t);
    store.moved(`transfer-${tags.host}-${tags.transfer ?? ""}`, t, fields);
    touched.at(t, "goodput", "uploaded");
  },
  server(store, tags, fields, t) {
    store.gauge(`server/${tags.host}/active`, t, fields.active, GAP_S.other, store.host);
    store.rate(`server/${tags.host}/sent`, t, fields.sent_bytes, 8, GAP_S.other, store.host);
  },
  interface(store, tags, fields, t) {
    const base = `interface/${tags.host}/${tags.interface}/`;
    for (const name of ["rx_bytes", "tx_bytes"]) store.rate(base + name, t, fields[name], 8, GAP_S.other, store.host);
    const bad = fields.rx_errors + fields.tx_errors + fields.rx_dropped + fields.tx_dropped;
    store.rate(`trouble/${tags.host}/${tags.interface}`, t, bad, 1, Infinity, store.host);
  },
  capture(store, tags, fields, t) {
    store.rate(`trouble/${tags.host}/capture ${tags.point}`, t, fields.dropped_packets, 1, GAP_S.other, store.host);
  },
  tcp(store, tags, fields, t) {
    const bad = fields.listen_drops + (fields.checksum_errors ?? 0); // agents before 1.3 do not report the latter
    store.rate(`trouble/${tags.host}/TCP`, t, bad, 1, Infinity, store.host);
  },
  machine(store, tags, fields, t) {
    const base = `machine/${tags.machine}/`;
    for (const name of ["busy", "cpus", "memory_available_bytes"]) {
      store.gauge(base + name, t, fields[name], GAP_S.other, store.host);
    }
  },
  event(store, tags, fields, t) {
    if (SHOWN_EVENTS.has(tags.kind)) store.mark(t, tags.kind, fields.text ?? tags.kind);
  },
};
