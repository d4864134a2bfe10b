// SPDX-License-Identifier: Apache-2.0
// Elements made without markup: whatever comes from elsewhere is text and stays text.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Attributes that are null or false are left out; `onclick` and the like are listeners. */
export function element(name, attributes = {}, ...children) {
  return dressed(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function shape(name, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG, name), attributes, children);
}

function dressed(node, attributes, children) {
  for (const [name, given] of Object.entries(attributes)) {
    if (given === null || given === undefined || given === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), given);
    else node.setAttribute(name, given === true ? "" : given);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Put these children in place of all that an element has. */
export function fill(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** The element of that id, which the page has. */
export const byId = (id) => document.getElementById(id);

/** Set a text only where it differs, so that nothing is drawn or read out again for nothing. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
