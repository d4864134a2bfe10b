// SPDX-License-Identifier: Apache-2.0
// Elements made without markup, data from elsewhere as text only; buttons that stay focusable while they are disabled.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that are null or false are left out; `onclick` and the like are listeners. */
export function element(name, attributes = {}, ...children) {
  return build(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function shape(name, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, name), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, given] of Object.entries(attributes)) {
    if (given == null || given === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), given);
    else node.setAttribute(name, given === true ? "" : given);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Replace all children of an element. */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child != null));
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Set a text only where it differs, so that nothing is redrawn or read out again needlessly. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
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
