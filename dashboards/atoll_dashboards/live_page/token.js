// SPDX-License-Identifier: Apache-2.0
// Asking for the token of the API.

import { field, open } from "./dialogs.js";
import { element } from "./dom.js";

let asking = null;

/** Why a token is asked for, for who looks at the page; `error`: what the API answered, `sent`: the token it was asked with. */
export function whyAsked(error, sent) {
  if (error.status !== 401) return error.message;
  return sent
    ? "The token that this page has is not the one that is wanted here: it may be from before."
    : "This page came without a token, and the lab is shown only to who has it.";
}

/** Ask once, until it is given; `reason`: why. */
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
        "Open the address that `atoll watch` has printed, which has the token, or enter the token here: `atoll status` on the machine of the lab says in which file it is.",
      ),
      field("Token", input),
    ],
    confirm: "Go on",
    act: () => given(input.value.trim()),
  });
}
