// SPDX-License-Identifier: Apache-2.0
// Colour theme and font size, in this browser's storage.

const SCALES = [1, 1.25, 1.5, 1.8];

const stored = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // storage may be forbidden; then nothing is stored
  }
};

function store(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // as above
  }
}

const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () => document.documentElement.dataset.theme === "dark";

/** Apply the stored theme, or the system's; `changed()` is called when the system's theme changes. */
export function begin(changed) {
  const follow = () => {
    const chosen = stored("atoll-theme");
    setTheme(["dark", "light"].includes(chosen) ? chosen : system.matches ? "dark" : "light");
  };
  follow();
  setScale(Number(stored("atoll-scale")));
  system.addEventListener("change", () => {
    follow();
    changed();
  });
}

export function switchTheme() {
  setTheme(isDark() ? "light" : "dark");
  store("atoll-theme", document.documentElement.dataset.theme);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

export function switchScale() {
  const now = Number(document.documentElement.dataset.scale ?? 1);
  setScale(SCALES[(SCALES.indexOf(now) + 1) % SCALES.length]);
}

function setScale(scale) {
  const text = String(SCALES.includes(scale) ? scale : 1);
  document.documentElement.dataset.scale = text;
  document.documentElement.style.setProperty("--scale", text);
  store("atoll-scale", text);
}
