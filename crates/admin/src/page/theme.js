// Light or dark: what was chosen here last, or what the system says. Loaded before the page is drawn.
"use strict";

{
  const THEMES = ["automatic", "light", "dark"];
  const root = document.documentElement;
  let theme = "automatic";
  try {
    theme = localStorage.getItem("theme") ?? theme;
  } catch {
    // Without storage a choice lasts as long as the page.
  }

  const apply = () => {
    if (theme === "automatic") {
      delete root.dataset.theme;
    } else {
      root.dataset.theme = theme;
    }
    const button = document.getElementById("theme");
    if (button) {
      button.firstChild.textContent = { automatic: "◐", light: "☀", dark: "☾" }[theme];
      button.lastChild.textContent = ` ${theme}`;
      button.setAttribute("aria-label", `Theme: ${theme}. Change it`);
    }
  };

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // As above.
      }
      apply();
    });
  });
}
