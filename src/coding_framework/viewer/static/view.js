// Keys, theme, copying, and what a page does while its run goes on. Charts are in charts.js.
import { drawCharts, refreshCharts, wholeCharts } from "./charts.js";

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
  whole: wholeCharts,
};

function applyWrap() {
  const wraps = localStorage.getItem("wrap") === "1";
  document.querySelectorAll(".code").forEach((code) => code.classList.toggle("wrap", wraps));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) actions[button.dataset.do]?.();
});

// A browser makes no click of a press whose link was rendered anew before its release: it is made here.
let pressed = null;

document.addEventListener("pointerdown", (event) => { pressed = event.target.closest("a"); });
document.addEventListener("pointerup", (event) => {
  const link = event.target.closest("a");
  if (event.button === 0 && pressed && !pressed.isConnected && link?.href === pressed.href)
    link.dispatchEvent(new MouseEvent("click", event));
  pressed = null;
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

// A browser has six connections to a server. Of the pages of one run that can be seen one listens
// and tells the others; beyond four runs a page looks every three seconds instead.
const { events } = document.body.dataset;
const channel = events ? new BroadcastChannel(events) : null;
const ALL = ["conversations", "deploy", "state", "steps", "system"];
let lastId = "";
let state = "";
let leads = false;
let missed = false;
// What is cheap to show follows a change at once, and all that comes within the next moment together;
// what costs much follows some seconds after a change, once for all that came meanwhile.
// (A throttle of htmx's ends with the element: one that replaces itself has none.)
const SOON_MS = 800;
const SELDOM_MS = 8000;
const due = {};
let stop = () => {};

function show(now) {
  state = now;
  const live = $("#live");
  live.hidden = false;
  live.textContent = { live: "live", away: "waiting for the viewer" }[now];
  live.classList.toggle("away", now === "away");
}

function render(event) {
  if (document.hidden) missed = true;
  else htmx.trigger(document.body, event);
}

// One render for all changes of a while. again: whether there was one that is not shown yet.
function hold(event, ms, again) {
  due[event] = again;
  setTimeout(() => {
    const waits = due[event];
    delete due[event];
    if (!waits) return;
    render(event);
    if (ms === SOON_MS) hold(event, ms, false);
  }, ms);
}

function changed(names) {
  if (document.hidden) {
    missed = true;
    return;
  }
  for (const name of names) {
    if (`changed-${name}` in due) due[`changed-${name}`] = true;
    else {
      render(`changed-${name}`);
      hold(`changed-${name}`, SOON_MS, false);
    }
    if (!(`seldom-${name}` in due)) hold(`seldom-${name}`, SELDOM_MS, true);
  }
  if (["steps", "system", "deploy"].some((name) => names.includes(name))) refreshCharts();
}

function tell(names, now) {
  channel.postMessage({ names, id: lastId, state: now });
  show(now);
  changed(names);
}

const ended = (signal) => new Promise((resolve) => { signal.addEventListener("abort", resolve); });

async function lead(signal) {
  const source = new EventSource(events);
  leads = true;
  source.onopen = () => tell([], "live");
  source.onerror = () => tell([], "away");
  // Another server, or a page that was hidden: the versions in the id say whether it missed anything.
  source.addEventListener("hello", (event) => {
    const before = lastId;
    lastId = event.lastEventId;
    tell(before && before !== lastId ? ALL : [], "live");
  });
  source.addEventListener("changed", (event) => {
    lastId = event.lastEventId;
    tell(JSON.parse(event.data), "live");
  });
  await ended(signal);
  leads = false;
  source.close();
  return true;
}

async function leadOrLook(signal) {
  for (const slot of [0, 1, 2, 3]) {
    const led = await navigator.locks.request(
      `stream ${slot}`, { ifAvailable: true }, (lock) => lock && lead(signal));
    if (led) return;
  }
  const timer = setInterval(() => tell(ALL, "live"), 3000);
  await ended(signal);
  clearInterval(timer);
}

function listen() {
  if (!events) return;
  const hidden = new AbortController();
  const { signal } = hidden;
  stop = () => hidden.abort();
  if (!navigator.locks) lead(signal);
  else {
    channel.postMessage({ asks: true });
    navigator.locks.request(`listen ${events}`, { signal }, () => leadOrLook(signal)).catch(() => {});
  }
}

if (channel) {
  channel.onmessage = ({ data }) => {
    if (data.asks) {
      if (leads && state) channel.postMessage({ names: [], id: lastId, state });
      return;
    }
    lastId = data.id;
    show(data.state);
    changed(data.names);
  };
}

document.addEventListener("visibilitychange", () => {
  stop();
  if (document.hidden) return;
  if (missed) changed(ALL);
  missed = false;
  listen();
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
