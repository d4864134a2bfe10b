// SPDX-License-Identifier: Apache-2.0
// The controls of a replay: play and pause, position, speed; and the list of runs to choose from.

import { open } from "./dialogs.js";
import { byId, element, fill, say } from "./dom.js";
import { elapsed } from "./format.js";
import { endingOf, Replay, SPEEDS, steady } from "./replay.js";

export class ReplayControls {
  #api;
  #callbacks;

  /** `callbacks`: {changed, begun(replay), left, failed(error), refused(error)}. */
  constructor(api, callbacks) {
    this.#api = api;
    this.#callbacks = callbacks;
    this.replay = null;
    /** Id of the run that is being opened. */
    this.opening = null;
    fill(byId("speed"), ...SPEEDS.map((speed) => element("option", { value: String(speed) }, `${speed}\u00d7`)));
    byId("play").addEventListener("click", () => this.toggle());
    byId("position").addEventListener("input", ({ target }) => this.replay?.seek(Number(target.value) + this.replay.origin));
    byId("speed").addEventListener("change", ({ target }) => {
      if (this.replay) this.replay.speed = Number(target.value);
    });
  }

  async open(id) {
    this.opening = id;
    const replay = new Replay(this.#api, id, this.#callbacks.changed);
    try {
      await replay.begin(this.#callbacks.failed);
    } catch (error) {
      if (this.opening === id) this.#cannot(id, error);
      return;
    }
    if (this.opening !== id) {
      replay.end(); // another one was chosen meanwhile, or none
      return;
    }
    this.replay?.end();
    replay.speed = Number(byId("speed").value);
    this.replay = replay;
    this.opening = null;
    this.#callbacks.begun(replay);
    this.#callbacks.changed();
  }

  /** Show why a run cannot be replayed; one that was shown before stays. */
  #cannot(id, error) {
    if (error.status === 401 || error.status === 403) {
      this.#callbacks.refused(error);
      return;
    }
    this.opening = null;
    const dialog = open({ title: "This run cannot be replayed", body: [element("p", {}, whyNotReplayed(id, error))] });
    dialog.addEventListener("close", () => this.replay || this.#callbacks.left());
  }

  leave() {
    this.opening = null;
    this.replay?.end();
    this.replay = null;
    this.#callbacks.left();
  }

  toggle() {
    if (!this.replay) return;
    this.replay.toggle(steady());
    const next = () => {
      if (!this.replay?.playing) return;
      this.replay.tick(steady());
      requestAnimationFrame(next);
    };
    next();
  }

  /** Move by so many seconds. */
  seek(by) {
    this.replay?.seek(this.replay.position + by);
  }

  show() {
    const { replay } = this;
    byId("player").hidden = !replay;
    if (!replay) return;
    const slider = byId("position");
    const [least, most] = [replay.from - replay.origin, replay.to - replay.origin];
    if (Number(slider.min) !== least) slider.min = String(least);
    if (Number(slider.max) !== most) slider.max = String(most);
    slider.value = String(replay.position - replay.origin);
    const time = `${elapsed(replay.position - replay.origin)} of ${elapsed(most)}`;
    slider.setAttribute("aria-valuetext", time);
    say(byId("time"), time);
    say(byId("play"), replay.playing ? "Pause" : "Play");
  }
}

/** The reason why a run cannot be replayed, as a sentence. */
export function whyNotReplayed(id, error) {
  if (error.status !== 404) return error.message;
  return `There is no run ${id} in the directory of runs. The button "Replay" lists the runs there; \`atoll watch DIRECTORY\` opens one from elsewhere.`;
}

/** List the runs to choose from; `chosen(id)` and `refused(error)` are called. */
export async function chooseReplay(api, chosen, refused) {
  let replays;
  try {
    ({ replays } = await api.ask("GET", "v1/replays"));
  } catch (error) {
    if (error.status === 401) refused(error);
    else open({ title: "Replay", body: [element("p", {}, error.message)] });
    return;
  }
  const dialog = open({
    title: "Replay a run",
    body: replays.length ? [list()] : [element("p", {}, "There are no runs yet in the directory of runs.")],
  });

  function list() {
    const rows = replays.map((each) => {
      const onclick = () => (dialog.close(), chosen(each.id));
      const pick = element("button", { type: "button", class: "plain", onclick }, each.id);
      const verdict = endingOf(each).word ?? each.verdict ?? "not analysed";
      const cells = [
        new Date(each.began_t_ns / 1e6).toLocaleString(),
        each.place,
        each.duration_s ? elapsed(each.duration_s) : "",
        each.finished ? verdict : "in progress",
      ];
      return element("tr", {}, element("th", { scope: "row" }, pick), ...cells.map((text) => element("td", {}, text)));
    });
    return element("table", { class: "replays" }, element("tbody", {}, ...rows));
  }
}
