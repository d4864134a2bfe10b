// SPDX-License-Identifier: Apache-2.0
// The keyboard. Keys do nothing while something is typed, a dialog is open, or a modifier is held.

import { open } from "./dialogs.js";
import { element } from "./dom.js";

const HELP = [
  ["Space", "pause, and go on; in a replay: play and pause"],
  ["\u2190 \u2192", "back and forth; in a replay by 5 s"],
  ["\u2191 \u2193", "see a longer or shorter time"],
  ["End", "back to what happens now; in a replay to the end"],
  ["Home", "in a replay: to the begin of the measurement"],
  ["Esc", "leave a zoomed stretch"],
  ["D", "dark or light"],
  ["S", "larger letters, for a projector"],
  ["R", "replay a run"],
  ["?", "this help"],
  ["drag", "across a plot: zoom into all of them; double-click: back"],
];

/** `actions`: name of a key as the browser has it -> what to do. */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=range]), select, textarea")) return;
    if (event.target.closest?.("[type=range]") && event.key !== " " && event.key.length > 1) return; // it moves by them
    if (event.key === " " && event.target.closest?.("button, a, summary")) return; // it presses that
    const act = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

export function help() {
  const rows = HELP.map(([keys, what]) =>
    element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)), element("td", {}, what)),
  );
  open({ title: "Keys", body: [element("table", { class: "help" }, element("tbody", {}, ...rows))] });
}
