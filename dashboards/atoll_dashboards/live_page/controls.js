// SPDX-License-Identifier: Apache-2.0
// The controls of a lab: start and stop a run, change a chain, change a latency, each with a dialog that confirms it.

import { choice, field, open } from "./dialogs.js";
import { element } from "./dom.js";
import { settingMs } from "./format.js";

export class Controls {
  #api;

  constructor(api) {
    this.#api = api;
  }

  /** `picture`: the lab at present, as for all of these. */
  startRun(picture) {
    const file = element("input", { type: "file", accept: ".yaml,.yml,.json" });
    const duration = element("input", { type: "text", placeholder: "as described", size: 12 });
    const applied = picture?.experiment;
    open({
      title: "Start a run",
      body: [
        element("p", {}, applied ? `Runs ${applied}, which is applied, or a file.` : "No experiment is applied yet: choose a file."),
        field("Experiment", file, applied ? `none chosen: ${applied}` : "an experiment.yaml"),
        field("Duration", duration, "such as 60 s"),
      ],
      confirm: "Start the run",
      act: async () => {
        const changed = duration.value.trim();
        const parameters = new URLSearchParams(changed ? { set: `duration=${changed}` } : {});
        const body = file.files.length ? { yaml: await file.files[0].text() } : { json: {} };
        await this.#api.ask("POST", `v1/runs?${parameters}`, body);
      },
    });
  }

  stopRun(run) {
    open({
      title: "Stop the run?",
      body: [element("p", {}, `${run} is cancelled. Its measurements so far stay in its directory.`)],
      confirm: "Stop the run",
      act: async () => void (await this.#api.ask("DELETE", `v1/runs/${encodeURIComponent(run)}`)),
    });
  }

  async changeLatency(picture, server) {
    const hosts = (picture?.hosts ?? []).filter((host) => host.role === "world-server");
    const servers = hosts.map((host) => [host.name, host.name]);
    const classes = Object.entries(picture?.classes ?? {}).map(([name, rtt]) => [name, `${name} (${settingMs(rtt)})`]);
    const classOf = (name) => picture?.latencies?.[name]?.class ?? "";
    const name = choice(servers, server);
    const latency = choice([...classes, ["", "not delayed"]], classOf(server ?? servers[0]?.[0]));
    name.addEventListener("change", () => (latency.value = classOf(name.value)));
    const request = (dry) => {
      const path = `v1/latencies/${encodeURIComponent(name.value)}${dry ? "?dry_run=true" : ""}`;
      return latency.value ? this.#api.ask("PUT", path, { json: { class: latency.value } }) : this.#api.ask("DELETE", path);
    };
    this.#change("Change a latency", [field("World server", name), field("Terrestrial latency", latency)], request);
  }

  async changeChain(picture) {
    const lab = await this.#api.ask("GET", "v1/lab");
    const chains = picture?.chains ?? [];
    const names = chains.map((chain) => [chain.name, chain.name]);
    const name = choice(names, "main");
    const hopsOf = () => chains.find((chain) => chain.name === name.value)?.hops.map((hop) => hop.name) ?? [];
    const parts = [...lab.boxes, ...lab.taps].map((part) => part.name);
    const editor = new ChainEditor(parts, hopsOf());
    name.addEventListener("change", () => editor.set(hopsOf()));
    const request = (dry) => {
      const carries = chains.find((chain) => chain.name === name.value)?.carries ?? {};
      const body = name.value === "main" ? { chain: editor.hops } : { chain: editor.hops, carries };
      const path = `v1/chains/${encodeURIComponent(name.value)}${dry ? "?dry_run=true" : ""}`;
      return this.#api.ask("PUT", path, { json: body });
    };
    this.#change("Change a chain", [field("Chain", name), editor.node], request);
  }

  /** Open a dialog of two steps: the list of changes, then the change itself. */
  #change(title, body, request) {
    const perform = async () => void (await request(false));
    open({
      title,
      body,
      confirm: "Show changes",
      act: async () => {
        const { lines } = await request(true);
        if (!lines.length) return { body: [element("p", {}, "No changes: the lab already has this configuration.")] };
        const list = element("ul", { class: "changes" }, ...lines.map((line) => element("li", {}, line)));
        const head = `${lines.length} change${lines.length === 1 ? "" : "s"}, made under traffic and verified by probes; if they fail, the changes are rolled back.`;
        return { body: [element("p", {}, head), list], confirm: "Apply changes", act: perform };
      },
    });
  }
}

/** An ordered list of hops, edited by buttons: it works by keyboard and on a touch screen. */
class ChainEditor {
  #parts;
  #list = element("ol", { class: "hops", "aria-label": "hops from world to island" });
  #rest = element("div", { class: "spare", "aria-label": "boxes and taps that can be added" });

  constructor(parts, hops) {
    this.#parts = parts;
    this.hops = hops;
    this.node = element("div", { class: "field" }, element("span", {}, "From world to island"), this.#list, this.#rest);
    this.#show();
  }

  set(hops) {
    this.hops = [...hops];
    this.#show();
  }

  #show() {
    this.#list.replaceChildren(...this.hops.map((hop, index) => this.#hop(hop, index)));
    const spare = this.#parts.filter((part) => !this.hops.includes(part));
    this.#rest.replaceChildren(
      ...spare.map((part) => button(`+ ${part}`, `add ${part}`, () => this.set([...this.hops, part]))),
    );
  }

  #hop(hop, index) {
    const moved = (by) => {
      const hops = this.hops.filter((_, at) => at !== index);
      hops.splice(Math.max(0, index + by), 0, hop);
      this.set(hops);
    };
    return element(
      "li",
      {},
      button("\u2190", `move ${hop} towards the world`, () => moved(-1)),
      element("span", {}, hop),
      button("\u2192", `move ${hop} towards the island`, () => moved(1)),
      button("\u00d7", `remove ${hop}`, () => this.set(this.hops.filter((_, at) => at !== index))),
    );
  }
}

function button(text, label, onclick) {
  return element("button", { type: "button", "aria-label": label, title: label, onclick }, text);
}
