// SPDX-License-Identifier: Apache-2.0
// Asking for the token of the API.

import { field, open } from "./dialogs.js";
import { element } from "./dom.js";

let asking = null;

/** Ask once, until it is given; `message`: what the API said. */
export function askToken(message, given) {
  if (asking?.open) return;
  const input = element("input", { type: "password", autocomplete: "current-password", required: true, size: 44 });
  asking = open({
    title: "A token is needed",
    body: [
      element("p", {}, message),
      element(
        "p",
        {},
        "`atoll status` on the machine of the lab says in which file it is; `atoll watch` prints an address that has it.",
      ),
      field("Token", input),
    ],
    confirm: "Go on",
    act: () => given(input.value.trim()),
  });
}
