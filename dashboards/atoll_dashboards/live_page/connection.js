// SPDX-License-Identifier: Apache-2.0
// The connection to the daemon's stream of events and samples, resumed after the last event seen.

const LONGEST_WAIT_S = 5;
const LAST = 200; // events read from a daemon that is new to this page

/**
 * `received(message)` is called for each message, `changed(state, detail)` for each state: `open`, `detail` is {status, same},
 * `same` if the daemon is that of the connection before; `absent`: no daemon or no lab is there, or it has ended, `detail` is
 * {message, retry_s, reached}, `reached` if a daemon answered so; `refused`: a token is required, `detail` is the ApiError.
 */
export class Connection {
  #api;
  #received;
  #changed;
  #socket = null;
  #timer = 0;
  #wait = 0;
  #last = 0;
  #daemon = null;
  #life = 0; // counts starts and stops, so that late answers to an earlier connection are ignored

  constructor(api, received, changed) {
    this.#api = api;
    this.#received = received;
    this.#changed = changed;
  }

  start() {
    this.stop();
    this.#wait = 0;
    this.#connect(this.#life);
  }

  stop() {
    this.#life += 1;
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#socket = null;
  }

  /** Ask for the status first: a WebSocket reports no reason when it is refused. */
  async #connect(life) {
    let status;
    try {
      status = await this.#api.ask("GET", "v1/status");
    } catch (error) {
      if (life !== this.#life) return;
      if (error.status === 401 || error.status === 403) this.#changed("refused", error);
      else this.#later(error.message, error.status !== 0);
      return;
    }
    if (life !== this.#life) return;
    const same = status.pid === this.#daemon;
    this.#daemon = status.pid;
    if (!same) this.#last = 0;
    this.#listen(same, status);
  }

  #listen(same, status) {
    const socket = this.#api.events(same ? { samples: true, after: this.#last } : { samples: true, last: LAST });
    this.#socket = socket;
    socket.onopen = () => {
      this.#wait = 0;
      this.#changed("open", { status, same });
    };
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.seq && message.type !== "hello") this.#last = message.seq;
      this.#received(message);
    };
    socket.onclose = () => {
      if (this.#socket !== socket) return;
      this.#socket = null;
      this.#later("the connection to the lab has ended", false);
    };
  }

  #later(message, reached) {
    this.#wait = Math.min(LONGEST_WAIT_S, this.#wait + 1);
    this.#changed("absent", { message, retry_s: this.#wait, reached });
    const life = this.#life;
    this.#timer = setTimeout(() => this.#connect(life), this.#wait * 1000);
  }
}
