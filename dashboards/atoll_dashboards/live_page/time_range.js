// SPDX-License-Identifier: Apache-2.0
// The time range that plots show, and the instant that figures refer to. Pure: the newest instant is an argument.

/** Windows to choose from, in seconds; null: everything. */
export const WINDOWS = [10, 30, 60, 120, 300, 900, 3600, null];

export class TimeRange {
  /** `changed()` is called after every change. */
  constructor(changed) {
    this.window = 60;
    /** [from, to] while zoomed. */
    this.range = null;
    /** The instant at which the view was paused. */
    this.paused = null;
    /** The instant below the pointer. */
    this.hover = null;
    this.changed = changed;
  }

  /** The last instant shown, `edge` being the newest there is. */
  end(edge) {
    return this.range?.[1] ?? this.paused ?? edge;
  }

  /** [from, to] of all plots; `first`: the oldest instant there is. */
  span(edge, first) {
    if (this.range) return this.range;
    const end = this.end(edge);
    if (this.window !== null) return [end - this.window, end];
    return [Number.isFinite(first) && first < end - 1 ? first : end - 60, end];
  }

  /** The instant that figures refer to. */
  instant(edge) {
    return this.hover ?? this.end(edge);
  }

  zoom(from, to) {
    if (!(to - from >= 0.2)) return;
    this.range = [from, to];
    this.changed();
  }

  /** Back to the window before zooming; a pause stays. */
  unzoom() {
    this.range = null;
    this.changed();
  }

  pause(t) {
    this.paused = t;
    this.changed();
  }

  follow() {
    this.paused = null;
    this.range = null;
    this.changed();
  }

  /** Move by a share of the range shown. */
  pan(share, edge, first) {
    const [from, to] = this.span(edge, first);
    const step = (to - from) * share;
    if (this.range) this.range = [from + step, to + step];
    else this.paused = Math.min(edge, this.end(edge) + step);
    if (this.range === null && this.paused >= edge) this.paused = null;
    this.changed();
  }

  /** Choose the next longer (1) or shorter (-1) window. */
  widen(by) {
    const index = WINDOWS.indexOf(this.window) + by;
    this.choose(WINDOWS[Math.max(0, Math.min(WINDOWS.length - 1, index))]);
  }

  choose(seconds) {
    this.window = seconds;
    this.range = null;
    this.changed();
  }
}
