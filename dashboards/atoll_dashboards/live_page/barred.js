// SPDX-License-Identifier: Apache-2.0
// Buttons that cannot be pressed for a while, and why: whoever comes there by keyboard or hears the page is told, too.

import { say } from "./dom.js";

/** Why chains and latencies cannot be changed: the lab is `busy` with {what, about}, or `away`; "" if they can. */
export function whyBarred(busy, away = false) {
  if (away) return "no lab is up";
  return busy ? `${busy.what} ${busy.about} is going on: chains and latencies can be changed when it is over` : "";
}

/**
 * Bar a button, or give it free (`reason` ""). Unlike one that is disabled it stays where the keyboard comes, so that the
 * reason can be read: it is the button's title, and what `told`, the id of an element that says it, describes it by.
 */
export function bar(button, reason, told) {
  if (reason === (button.dataset.barred ?? "")) return;
  if (reason) {
    button.dataset.free ??= button.title;
    button.setAttribute("aria-disabled", "true");
    button.setAttribute("aria-describedby", told);
  } else {
    button.removeAttribute("aria-disabled");
    button.removeAttribute("aria-describedby");
  }
  button.title = reason || (button.dataset.free ?? "");
  button.dataset.barred = reason;
}

export const isBarred = (button) => button.getAttribute("aria-disabled") === "true";

/** The element that says the reason. */
export function tellBarred(place, reason) {
  say(place, reason);
  place.hidden = !reason;
}
