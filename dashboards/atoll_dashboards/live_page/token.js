// SPDX-License-Identifier: Apache-2.0
// The dialog that asks for the API's token.

import { field, open } from "./dialogs.js";
import { element } from "./dom.js";

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
      element(
        "p",
        {},
        "Open the address that `atoll watch` printed, which contains the token, or enter the token here: `atoll status` on the machine of the lab prints the file that holds it.",
      ),
      field("Token", input),
    ],
    confirm: "Connect",
    act: () => given(input.value.trim()),
  });
}
