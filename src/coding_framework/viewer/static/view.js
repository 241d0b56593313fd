// Keys, theme, copying, and what a page does while its run goes on. Charts are in charts.js.
import { drawCharts, refreshCharts } from "./charts.js";

const $ = (selector) => document.querySelector(selector);

function say(text) {
  const toast = $("#toast");
  toast.textContent = text;
  toast.classList.add("on");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => toast.classList.remove("on"), 1600);
}

function themeNow() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  return document.documentElement.dataset.theme ?? dark;
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
  } catch {
    say("the browser does not allow copying here");
  }
}

function codeText() {
  const rows = document.querySelectorAll(".code tr:not(.note, .hunk, .removed)");
  return [...rows].map((row) => row.querySelector("td.t:last-child")?.textContent ?? "").join("\n");
}

const actions = {
  theme() {
    const next = themeNow() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
    drawCharts();
  },
  help() {
    const keys = $("#keys");
    if (keys.open) keys.close();
    else keys.showModal();
  },
  wrap() {
    const wraps = localStorage.getItem("wrap") !== "1";
    localStorage.setItem("wrap", wraps ? "1" : "0");
    applyWrap();
  },
  copy: () => copy(codeText(), "code"),
};

function applyWrap() {
  const wraps = localStorage.getItem("wrap") === "1";
  document.querySelectorAll(".code").forEach((code) => code.classList.toggle("wrap", wraps));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do]?.();
});

// --- keys ---------------------------------------------------------------------------------------

let going = false;

function moveRow(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("on"));
  const next = Math.min(rows.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by));
  rows.forEach((row) => row.classList.remove("on"));
  rows[next].classList.add("on");
  (rows[next].matches("a") ? rows[next] : rows[next].querySelector("a"))?.focus({ preventScroll: true });
  rows[next].scrollIntoView({ block: "nearest" });
}

function turnBy(by) {
  const turns = [...document.querySelectorAll("[data-turn]")];
  turns[turns.findIndex((turn) => turn.hasAttribute("aria-current")) + by]?.click();
}

function up() {
  const crumbs = document.querySelectorAll(".crumbs a");
  crumbs[crumbs.length - 1]?.click();
}

const keys = {
  j: () => moveRow(1),
  k: () => moveRow(-1),
  u: up,
  n: () => $('[data-key="n"]')?.click(),
  p: () => $('[data-key="p"]')?.click(),
  "[": () => turnBy(-1),
  "]": () => turnBy(1),
  d: () => $('[data-key="d"]')?.click(),
  w: actions.wrap,
  "/": () => $("#search")?.focus(),
  f: () => { $("[data-wide]")?.setAttribute("open", ""); $("#facets input")?.focus(); },
  g: () => { going = true; setTimeout(() => { going = false; }, 1200); },
  t: actions.theme,
  y: actions.copy,
  Y: () => copy(location.href, "address"),
  "?": actions.help,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=radio], [type=checkbox]), select, textarea");
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || ($("#keys")?.open && event.key !== "?")) return;
  if (going) {
    going = false;
    const to = event.key === "r" ? "/" : $(`[data-go="${CSS.escape(event.key)}"]`)?.href;
    if (to) location.href = to;
    return;
  }
  const view = document.querySelector(`[data-view="${CSS.escape(event.key)}"]`);
  const act = view ? () => view.click() : keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

// --- while the run goes on ----------------------------------------------------------------------

const run = document.body.dataset.run;
let source = null;
let lastId = "";

function listen() {
  if (!run || source) return;
  source = new EventSource(`/run/${run}/events`);
  const live = $("#live");
  source.onopen = () => { live.hidden = false; live.textContent = "live"; live.classList.remove("away"); };
  source.onerror = () => { live.textContent = "waiting for the viewer"; live.classList.add("away"); };
  // Another server, or a tab that was hidden: what it missed is told by the versions in the id.
  source.addEventListener("hello", (event) => {
    if (lastId && lastId !== event.lastEventId) changed(["conversations", "state", "steps", "system"]);
    lastId = event.lastEventId;
  });
  source.addEventListener("changed", (event) => {
    lastId = event.lastEventId;
    changed(JSON.parse(event.data));
  });
}

function changed(names) {
  for (const name of names) htmx.trigger(document.body, `changed-${name}`);
  if (names.includes("steps") || names.includes("system")) refreshCharts();
}

// A browser has six connections to a server: tabs that nobody sees give theirs back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else {
    listen();
  }
});

document.addEventListener("htmx:afterSettle", applyWrap);
// What somebody has ticked or chosen on the list of runs stays.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.hasAttribute?.("data-quiet") && event.target.querySelector(":checked")) event.preventDefault();
});
document.querySelectorAll("form.inline select").forEach((select) => {
  if (select.form.id !== "chart-options" && select.form.action.includes("/compare") === false)
    select.addEventListener("change", () => select.form.requestSubmit());
});
if (innerWidth <= 1000) $("[data-wide]")?.removeAttribute("open");
applyWrap();
if (!document.hidden) listen();
drawCharts();
