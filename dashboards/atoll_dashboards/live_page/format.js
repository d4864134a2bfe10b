// SPDX-License-Identifier: Apache-2.0
// Numbers as text: three significant digits, SI prefixes, a proper minus sign; empty for unknown amounts.

const NOTHING = { figure: "", unit: "" };

export const PREFIXES = ["", "k", "M", "G", "T"];

/** The power of 1000 of an amount's prefix: 0 for "", 1 for k, ... */
export function prefixOf(amount) {
  const size = Math.abs(amount);
  if (!(size >= 1000)) return 0;
  return Math.min(PREFIXES.length - 1, Math.floor(Math.log10(size * 1.0005) / 3));
}

/** Three significant digits, never an exponent: 0.25, 15.8, 980. */
export function digits(amount) {
  const size = Math.abs(amount);
  if (size === 0) return "0";
  if (size < 0.005) return "0.00";
  return amount.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** An amount with an SI prefix before its unit, as {figure, unit}; both empty for NaN. */
export function quantity(amount, unit) {
  if (!Number.isFinite(amount)) return NOTHING;
  const power = prefixOf(amount);
  const scaled = amount / 1000 ** power;
  const isWhole = power === 0 && Number.isInteger(amount);
  return { figure: isWhole ? String(amount) : digits(scaled), unit: PREFIXES[power] + unit };
}

/** The same as one text: "15.8 Mbit/s". */
export function quantityText(amount, unit) {
  const { figure, unit: prefixed } = quantity(amount, unit);
  return figure && `${figure}\u00a0${prefixed}`;
}

/** A whole number as {figure, unit}. */
export function whole(number, unit = "") {
  return Number.isFinite(number) ? { figure: String(Math.round(number)), unit } : NOTHING;
}

export const bitRate = (bitS) => quantityText(bitS, "bit/s");
export const byteCount = (bytes) => quantityText(bytes, "B");

/** A setting without trailing zeros: 16 Mbit/s, 250 ms, 100 kB. */
export function setting(amount, unit) {
  if (!Number.isFinite(amount)) return "";
  const power = prefixOf(amount);
  return `${Number((amount / 1000 ** power).toPrecision(4))}\u00a0${PREFIXES[power]}${unit}`;
}

/** Seconds as milliseconds, as {figure, unit}. */
export function milliseconds(seconds) {
  return Number.isFinite(seconds) ? { figure: digits(seconds * 1e3), unit: "ms" } : NOTHING;
}

export function settingMs(ns) {
  return Number.isFinite(ns) ? `${Number((ns / 1e6).toPrecision(4))}\u00a0ms` : "";
}

/** A share as a percentage without decimals. */
export const percent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)}\u00a0%` : "");

const two = (count) => String(count).padStart(2, "0");

/** Seconds since an origin as m:ss or h:mm:ss, with `tenths` if asked; negative before it. */
export function elapsed(seconds, tenths = false) {
  if (!Number.isFinite(seconds)) return "";
  const unit = tenths ? 10 : 1;
  const count = Math.round(Math.abs(seconds) * unit);
  const whole = Math.floor(count / unit);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const head = hours ? `${hours}:${two(minutes)}` : String(minutes);
  const sign = seconds < 0 && count > 0 ? "\u2212" : "";
  return `${sign}${head}:${two(whole % 60)}${tenths ? `.${count % 10}` : ""}`;
}

/** Seconds since 1970 as the time of day here. */
export function timeOfDay(t) {
  if (!Number.isFinite(t)) return "";
  const date = new Date(t * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
