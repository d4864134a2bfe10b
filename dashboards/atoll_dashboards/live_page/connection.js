// SPDX-License-Identifier: Apache-2.0
// The stream of events and samples of whichever keeper there is: kept up, taken up again after the last event seen.

const LONGEST_WAIT_S = 5;
const LAST = 200; // events of a keeper that this page sees for the first time

/**
 * `told(message)`: each message. `changed(state, detail)`: `open`, `detail` having {status, same}, `same` if it is the keeper
 * of before; `absent`: no keeper or no lab is there, or it went away, `detail` having {message, retry_s, reached}, `reached`
 * if that was the answer; `refused`: a token is wanted, `detail` being the ApiError.
 */
export class Connection {
  #api;
  #told;
  #changed;
  #socket = null;
  #timer = 0;
  #wait = 0;
  #last = 0;
  #keeper = null;
  #life = 0; // counts starts and stops: what an earlier one began has no say any more

  constructor(api, told, changed) {
    this.#api = api;
    this.#told = told;
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

  /** A WebSocket does not say why it was refused, so the status is asked for first. */
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
    const same = status.pid === this.#keeper;
    this.#keeper = status.pid;
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
      this.#told(message);
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
