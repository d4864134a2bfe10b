// SPDX-License-Identifier: Apache-2.0
// Dark or light, and how large letters are: kept in this browser.

const SCALES = [1, 1.25, 1.5, 1.8];

const kept = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // storage may be forbidden: then nothing is kept
  }
};

function keep(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // as above
  }
}

/** Whether dark, by the user's choice or else by the system's. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Take up what was kept; `changed()`: colours or sizes are others now. */
export function begin(changed) {
  const theme = kept("atoll-theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  setScale(Number(kept("atoll-scale")) || 1);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

export function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  keep("atoll-theme", theme);
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
