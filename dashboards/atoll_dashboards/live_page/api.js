// SPDX-License-Identifier: Apache-2.0
// The API (docs/api.md) as this page asks it, and the token it is asked with.

const KEPT_AS = "atoll-token";

/** What the API answered instead of doing it; `mistakes`: [{where, message, line}]. `status` 0: it could not be reached. */
export class ApiError extends Error {
  constructor(status, message, mistakes = []) {
    super(message);
    this.status = status;
    this.mistakes = mistakes;
  }
}

export class Api {
  /** `base`: URL that `v1/...` is relative to. */
  constructor(base) {
    this.base = base;
    try {
      this.token = sessionStorage.getItem(KEPT_AS) ?? "";
    } catch {
      this.token = ""; // storage may be forbidden: then nothing is kept
    }
  }

  keep(token) {
    this.token = token;
    try {
      sessionStorage.setItem(KEPT_AS, token);
    } catch {
      // as above
    }
  }

  /** Ask and have the answer's JSON. Throws ApiError. */
  async ask(method, path, { json, yaml, signal } = {}) {
    const answer = await this.fetch(method, path, { json, yaml, signal });
    try {
      return await answer.json();
    } catch {
      throw new ApiError(answer.status, `${path} was answered by something that is no JSON`);
    }
  }

  /** The same with the answer as it comes, for long ones. */
  async fetch(method, path, { json, yaml, signal } = {}) {
    const headers = this.token ? { Authorization: `Bearer ${this.token}` } : {};
    if (json !== undefined) headers["Content-Type"] = "application/json";
    if (yaml !== undefined) headers["Content-Type"] = "application/yaml";
    const body = json === undefined ? yaml : JSON.stringify(json);
    let answer;
    try {
      answer = await fetch(new URL(path, this.base), { method, headers, body, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "nobody answers at this address any more");
    }
    if (!answer.ok) throw await refusal(answer);
    return answer;
  }

  /** The WebSocket of events and samples. */
  events(parameters) {
    const url = new URL(`v1/events?${new URLSearchParams(parameters)}`, this.base);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return new WebSocket(url, this.token ? ["atoll.v1", `bearer.${this.token}`] : ["atoll.v1"]);
  }
}

async function refusal(answer) {
  try {
    const { error } = await answer.json();
    return new ApiError(answer.status, error.message, error.mistakes);
  } catch {
    return new ApiError(answer.status, `the answer was ${answer.status} ${answer.statusText}`);
  }
}

/** JSON lines of a body as they come. */
export async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) yield JSON.parse(line);
    }
    if (rest.trim()) yield JSON.parse(rest);
  } finally {
    reader.cancel().catch(() => {}); // who stops asking leaves no request behind
  }
}

/** What stands behind the # of the address; a token there is taken away, so that it stays in no history and no bookmark. */
export function takeFragment() {
  const said = new URLSearchParams(location.hash.slice(1));
  const found = { token: said.get("token"), run: said.get("run") };
  if (said.has("token")) {
    said.delete("token");
    showFragment(said.get("run"));
  }
  return found;
}

/** Put the run that is replayed into the address, or nothing. */
export function showFragment(run) {
  const fragment = run ? `#${new URLSearchParams({ run })}` : "";
  history.replaceState(null, "", location.pathname + location.search + fragment);
}
