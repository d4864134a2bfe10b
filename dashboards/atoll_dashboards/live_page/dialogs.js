// SPDX-License-Identifier: Apache-2.0
// Dialogs, one at a time, with the errors of the API; the dialog that asks for its token.

import { element, fill } from "./dom.js";

/**
 * Open a dialog. `body`: its nodes; `confirm`: label of its button; `act()`: the button's action, which may throw ApiError and
 * returns the next step as {body, confirm, act}, or nothing to close the dialog.
 */
export function open({ title, body, confirm, act }) {
  const content = element("div", { class: "dialog-body" });
  const problem = element("div", { class: "problem", role: "alert" });
  const button = element("button", { type: "submit", class: "primary" });
  const cancel = element("button", { type: "button", onclick: () => dialog.close() }, confirm ? "Cancel" : "Close");
  const buttons = element("div", { class: "buttons" }, cancel, confirm ? button : null);
  const form = element("form", { method: "dialog" }, element("h2", {}, title), content, problem, buttons);
  const dialog = element("dialog", { "aria-label": title }, form);
  let step = { body, confirm, act };

  const show = (next) => {
    step = next;
    fill(content, ...next.body);
    fill(button, next.confirm ?? "");
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!step.act || button.disabled) return;
    button.disabled = true;
    fill(problem);
    try {
      const next = await step.act();
      if (next) show(next);
      else dialog.close();
    } catch (error) {
      fill(problem, ...errorLines(error));
    } finally {
      button.disabled = false;
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  show(step);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** The error as lines, one for each mistake with its place. */
function errorLines(error) {
  if (!error.mistakes?.length) return [element("p", {}, error.message)];
  return error.mistakes.map(({ where, message }) =>
    element("p", {}, where && !message.startsWith(where) ? `${where}: ${message}` : message),
  );
}

/** A field with its label above it and an optional hint below. */
export function field(label, input, hint) {
  return element("label", { class: "field" }, element("span", {}, label), input, hint ? element("small", {}, hint) : null);
}

/** A choice of [value, text] pairs. */
export function choice(options, chosen) {
  const nodes = options.map(([value, text]) => element("option", { value, selected: value === chosen }, text));
  return element("select", {}, ...nodes);
}

let asking = null;

/** The reason for asking for a token, as a sentence; `error`: the API's answer, `sent`: the token that was sent. */
export function tokenReason(error, sent) {
  if (error.status !== 401) return error.message;
  return sent
    ? "The token of this page is not valid here: it may be from an earlier lab."
    : "This page was opened without a token, and the lab requires one.";
}

/** Ask for the token, in one dialog at a time; `reason`: shown in it. */
export function askToken(reason, given) {
  if (asking?.open) return;
  const input = element("input", { type: "password", autocomplete: "current-password", required: true, size: 44 });
  asking = open({
    title: "A token is needed",
    body: [
      element("p", {}, reason),
      element("p", {}, "Open the address that `atoll watch` printed, which contains the token, or enter the token here: `atoll status` on the machine of the lab prints the file that holds it."),
      field("Token", input),
    ],
    confirm: "Connect",
    act: () => given(input.value.trim()),
  });
}
