// SPDX-License-Identifier: Apache-2.0
// The client of the API (docs/api.md), and its token.

const STORED_AS = "atoll-token";

/** The API's error; `mistakes`: [{where, message, line}]. `status` 0: it could not be reached. */
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
      this.token = sessionStorage.getItem(STORED_AS) ?? "";
    } catch {
      this.token = ""; // storage may be forbidden; then nothing is stored
    }
  }

  keep(token) {
    this.token = token;
    try {
      sessionStorage.setItem(STORED_AS, token);
    } catch {
      // as above
    }
  }

  /** Send a request and return the answer's JSON. Throws ApiError. */
  async ask(method, path, { json, yaml, signal } = {}) {
    const answer = await this.fetch(method, path, { json, yaml, signal });
    try {
      return await answer.json();
    } catch {
      throw new ApiError(answer.status, `${path} was not answered with JSON`);
    }
  }

  /** Send a request and return the answer as a stream. Throws ApiError. */
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
      throw new ApiError(0, "this address no longer answers");
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

/** The messages of type `points` of a run as they come; `parameters`: those of the API. Throws ApiError. */
export async function* pointsOf(api, run, parameters, signal) {
  const path = `v1/replays/${encodeURIComponent(run)}/points?${new URLSearchParams(parameters)}`;
  const answer = await api.fetch("GET", path, { signal });
  for await (const message of linesOf(answer.body)) if (message.type === "points") yield message;
}

/** JSON lines of a body as they come. */
async function* linesOf(body) {
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
    reader.cancel().catch(() => {}); // a consumer that stops leaves no request open
  }
}

/** Read the fragment of the address. A token is removed from it, so that no history or bookmark contains it. */
export function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const [token, run] = [fragment.get("token"), fragment.get("run")];
  if (token !== null) showFragment(run);
  return { token, run };
}

/** Put the replayed run into the address, or nothing. */
export function showFragment(run) {
  const fragment = run ? `#${new URLSearchParams({ run })}` : "";
  history.replaceState(null, "", location.pathname + location.search + fragment);
}
