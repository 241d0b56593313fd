// Draws the charts of a run: one shared cursor, colours of the theme, options in the address.

const place = document.querySelector("[data-charts]");
const cursor = { sync: { key: "run" }, drag: { x: true, y: false } };
const WHOLE = [1, 10, 100, 1000, 10000, 100000].flatMap((n) => [n, 2 * n, 5 * n]);
let drawn = [];
let waiting = false;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function shown(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

function columns(chart) {
  const drawable = (value) => (chart.log && value <= 0 ? null : value);
  if (!chart.stack) return chart.series.map((series) => series.values.map(drawable));
  let below = chart.x.map(() => 0);
  return chart.series.map((series) => {
    below = below.map((sum, i) => sum + (series.values[i] ?? 0));
    return below;
  });
}

// The value under the cursor; without one the last that there is.
function told(chart, k, at) {
  const { values } = chart.series[k - 1] ?? { values: [] };
  return shown(at == null ? values.findLast((value) => value != null) : values[at]);
}

function range(chart) {
  return (_, low, high) => {
    if (low == null) return [0, 1];
    if (chart.stack || (low === 0 && high === 0)) return [0, high * 1.05 || 1];
    return low === high ? [low - Math.abs(low) / 10, high + Math.abs(high) / 10]
      : uPlot.rangeNum(low, high, 0.1, true);
  };
}

function seriesOf(chart) {
  const names = [...new Set(chart.series.map((series) => series.name))];
  const few = chart.x.length <= 60;
  return chart.series.map((series, i) => {
    const edge = chart.band && (i === 1 || i === 2);
    const stroke = series.level ? colour("--soft") : colour(`--c${(names.indexOf(series.name) % 6) + 1}`);
    return {
      label: series.name,
      stroke: edge ? "transparent" : series.raw ? `${stroke}55` : stroke,
      width: series.raw || series.level ? 1 : 2,
      dash: series.level ? [4, 4] : undefined,
      fill: chart.stack ? `${stroke}33` : undefined,
      points: { show: few && !edge && !series.raw && !series.level, size: 5, fill: stroke },
      class: edge ? "edge" : undefined,
      value: (plot, _, k, at) => told(plot.chart ?? chart, k, at),
    };
  });
}

// Thin lines where the trainer started again, or where a step ended.
function drawMarks(plot) {
  const { left, top, width, height } = plot.bbox;
  const marks = (plot.chart ?? plot.made).marks.map((x) => Math.round(plot.valToPos(x, "x", true)));
  plot.ctx.save();
  plot.ctx.fillStyle = colour("--mark");
  for (const x of marks) if (x >= left && x <= left + width) plot.ctx.fillRect(x, top, devicePixelRatio, height);
  plot.ctx.restore();
}

function options(chart, width) {
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false },
    font: "11px system-ui, sans-serif", size: 46, values: (_, values) => values.map((value) => (value == null ? "" : shown(value))) };
  const bands = chart.band ? [{ series: [3, 2], fill: `${colour("--c1")}26` }] : [];
  return {
    width, height: 200, cursor, bands, hooks: { init: [(plot) => { plot.made = chart; }], drawClear: [drawMarks] },
    scales: { x: { time: false }, y: chart.log ? { distr: 3 } : { range: range(chart) } },
    axes: [{ ...axis, size: 28, ...(chart.x_label === "step" ? { incrs: WHOLE } : {}) }, axis],
    legend: { live: true },
    series: [{ label: chart.x_label, value: (plot, value) => shown(value ?? (plot.chart ?? chart).x.at(-1)) }, ...seriesOf(chart)],
  };
}

function card(chart) {
  const box = document.createElement("div");
  box.className = "card chart";
  box.id = `chart-${chart.id}`;
  const title = document.createElement("h3");
  title.textContent = chart.title;
  const unit = document.createElement("small");
  unit.textContent = chart.unit;
  title.append(unit);
  box.append(title);
  return box;
}

export async function drawCharts() {
  if (!place) return;
  const form = document.querySelector("#chart-options");
  const query = new URLSearchParams(new FormData(form));
  const response = await fetch(`${place.dataset.charts}?${query}`);
  if (!response.ok) return;
  const charts = await response.json();
  const same = drawn.length === charts.length
    && charts.every((chart, i) => drawn[i].key === `${chart.id}:${chart.series.length}:${chart.log}`)
    && drawn.theme === colour("--bg");
  if (same) {
    charts.forEach((chart, i) => {
      drawn[i].plot.chart = chart;
      drawn[i].plot.setData([chart.x, ...columns(chart)]);
    });
    return;
  }
  drawn.forEach(({ plot }) => plot.destroy());
  const grid = document.querySelector("#charts");
  grid.replaceChildren();
  drawn = charts.map((chart) => {
    const box = card(chart);
    grid.append(box);
    const plot = new uPlot(options(chart, box.clientWidth - 28), [chart.x, ...columns(chart)], box);
    return { plot, box, key: `${chart.id}:${chart.series.length}:${chart.log}` };
  });
  drawn.theme = colour("--bg");
}

export function refreshCharts() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; drawCharts(); }, 600);
}

if (place) {
  const form = document.querySelector("#chart-options");
  form.addEventListener("input", () => {
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (["", "0", "step"].includes(value)) query.delete(name);
    history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    refreshCharts();
  });
  new ResizeObserver(() => drawn.forEach(({ plot, box }) =>
    plot.setSize({ width: box.clientWidth - 28, height: 200 }))).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
}
