// SPDX-License-Identifier: Apache-2.0
// Keyboard shortcuts. They are off while text is typed, a dialog is open, or a modifier is held.

import { open } from "./dialogs.js";
import { element } from "./dom.js";

const HELP = [
  ["Space", "pause or resume; in a replay: play or pause"],
  ["\u2190 \u2192", "backwards and forwards; in a replay by 5 s"],
  ["\u2191 \u2193", "longer or shorter time window"],
  ["End", "back to the present; in a replay to the end"],
  ["Home", "in a replay: to the start of the measurement"],
  ["Esc", "leave the zoom"],
  ["D", "dark or light theme"],
  ["S", "larger text, for a projector"],
  ["R", "replay a run"],
  ["?", "this help"],
  ["drag", "across a plot: zoom into all of them; double-click: back"],
];

/** Listen for keys; `actions`: name of a key (KeyboardEvent.key) -> function. */
export function listen(actions) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=range]), select, textarea")) return;
    if (event.target.closest?.("[type=range]") && event.key !== " " && event.key.length > 1) return; // the slider uses it
    if (event.key === " " && event.target.closest?.("button, a, summary")) return; // it presses that button
    const act = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

export function help() {
  const rows = HELP.map(([keys, action]) =>
    element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)), element("td", {}, action)),
  );
  open({ title: "Keys", body: [element("table", { class: "help" }, element("tbody", {}, ...rows))] });
}
