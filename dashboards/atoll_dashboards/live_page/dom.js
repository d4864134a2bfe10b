// SPDX-License-Identifier: Apache-2.0
// Elements made without markup: data from elsewhere is inserted as text only.

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
    if (given === null || given === undefined || given === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), given);
    else node.setAttribute(name, given === true ? "" : given);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Replace all children of an element. */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Set a text only where it differs, so that nothing is redrawn or read out again needlessly. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
