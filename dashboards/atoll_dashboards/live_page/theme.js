// SPDX-License-Identifier: Apache-2.0
// Colour theme and font size, kept in this browser's storage.

const SCALES = [1, 1.25, 1.5, 1.8];

const kept = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // storage may be forbidden; then nothing is kept
  }
};

function keep(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // as above
  }
}

const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => document.documentElement.dataset.theme === "dark";

/** Apply the kept theme, or the system's; `changed()` is called when the system's theme changes. */
export function begin(changed) {
  const follow = () => {
    const chosen = kept("atoll-theme");
    setTheme(["dark", "light"].includes(chosen) ? chosen : system.matches ? "dark" : "light");
  };
  follow();
  setScale(Number(kept("atoll-scale")));
  system.addEventListener("change", () => {
    follow();
    changed();
  });
}

export function switchTheme() {
  setTheme(isDark() ? "light" : "dark");
  keep("atoll-theme", document.documentElement.dataset.theme);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

export function switchScale() {
  const now = Number(document.documentElement.dataset.scale ?? 1);
  setScale(SCALES[(SCALES.indexOf(now) + 1) % SCALES.length]);
}

function setScale(scale) {
  const known = SCALES.includes(scale) ? scale : 1;
  document.documentElement.dataset.scale = String(known);
  document.documentElement.style.setProperty("--scale", String(known));
  keep("atoll-scale", String(known));
}
