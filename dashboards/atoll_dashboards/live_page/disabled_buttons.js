// SPDX-License-Identifier: Apache-2.0
// Temporarily disabled buttons that stay focusable, so that keyboard users and screen readers get the reason.

import { say } from "./dom.js";

/** The reason why chains and latencies cannot be changed: the lab is `busy` with {what, about}, or `away`; "" if they can. */
export function disabledReason(busy, away = false) {
  if (away) return "no lab is up";
  return busy ? `${busy.what} ${busy.about} is going on: chains and latencies can be changed when it is over` : "";
}

/**
 * Disable a button for a reason, or enable it again (`reason` ""). It gets `aria-disabled` instead of `disabled`, so that it
 * keeps its place in the tab order and the reason can be read: as its title, and in the element with the id `description`.
 */
export function setDisabled(button, reason, description) {
  if (reason === (button.dataset.reason ?? "")) return;
  if (reason) {
    button.dataset.free ??= button.title;
    button.setAttribute("aria-disabled", "true");
    button.setAttribute("aria-describedby", description);
  } else {
    button.removeAttribute("aria-disabled");
    button.removeAttribute("aria-describedby");
  }
  button.title = reason || (button.dataset.free ?? "");
  button.dataset.reason = reason;
}

export const isDisabled = (button) => button.getAttribute("aria-disabled") === "true";

/** Show the reason in its element. */
export function showDisabledReason(place, reason) {
  say(place, reason);
  place.hidden = !reason;
}
