// Draws the charts of a run: one shared cursor, colours of the theme, options in the address.

const place = document.querySelector("[data-charts]");
const form = document.querySelector("#chart-options");
const OPTIONS = ["x", "smooth", "log", "from", "to", "axis"];
// Charts of one axis share a cursor.
const cursorOf = (chart) => ({ sync: { key: chart.x_label }, drag: { x: true, y: false, setScale: false } });
const WHOLE = [1, 10, 100, 1000, 10000, 100000].flatMap((n) => [n, 2 * n, 5 * n]);
let drawn = [];
let waiting = false;
let pressed = null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function shown(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1);
  return size >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

// Lines of several runs, which have points at different places: where a run has none, its line goes on.
function joined(chart) {
  if (!chart.parts) return chart;
  const [x, ...values] = uPlot.join(chart.parts.map((part) => [part.x, ...part.series.map((series) => series.values)]));
  const made = { ...chart, x, series: [], bands: [] };
  for (const part of chart.parts) {
    made.bands.push(...part.bands.map((pair) => pair.map((i) => i + made.series.length)));
    made.series.push(...part.series);
  }
  made.series = made.series.map((series, i) => ({ ...series, values: values[i] }));
  return made;
}

// Ticks with the digits that their distance needs: no two read alike.
function ticks(values, step) {
  const digits = step > 0 && step < 1 ? Math.min(8, Math.ceil(-Math.log10(step) - 1e-9)) : 0;
  return values.map((value) => {
    if (value == null) return "";
    return step > 0 && value !== 0 && Math.abs(value) < 1000 && digits < 8 ? String(+value.toFixed(digits)) : shown(value);
  });
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

// The value under the cursor; without one the last that is shown.
function told(chart, k, at) {
  const values = k ? chart.series[k - 1]?.values ?? [] : chart.x;
  const within = (_, i) => chart.x[i] <= (chart.cut[1] ?? Infinity);
  return shown(at == null ? values.filter(within).findLast((value) => value != null) : values[at]);
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
  const edges = new Set(chart.bands.flat());
  const names = [...new Set(chart.series.filter((_, i) => !edges.has(i)).map((series) => series.name))];
  const few = chart.x.length <= 60;
  return chart.series.map((series, i) => {
    const edge = edges.has(i);
    const alone = series.values.filter((value) => value != null).length < 3;  // two points are no course
    const stroke = series.level ? colour("--soft") : colour(`--c${(names.indexOf(series.name) % 6) + 1}`);
    return {
      label: series.name,
      stroke: edge ? "transparent" : series.raw ? `${stroke}55` : stroke,
      width: alone && !series.level ? 0 : series.raw || series.level ? 1 : 2,
      dash: series.level ? [4, 4] : names.indexOf(series.name) > 5 ? [8, 4] : undefined,
      fill: chart.stack ? `${stroke}33` : undefined,
      points: { show: (few || alone) && !edge && !series.raw && !series.level, size: 5, fill: stroke },
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
    font: "11px system-ui, sans-serif", size: 46, values: (plot, values, axis, space, step) => ticks(values, chart.log ? 0 : step) };
  const series = seriesOf(chart);
  const bands = chart.bands.map(([low, high]) => ({ series: [high + 1, low + 1], fill: `${series[low - 1].stroke}26` }));
  return {
    width, height: 200, cursor: cursorOf(chart), bands,
    hooks: { init: [(plot) => { plot.made = chart; }], drawClear: [drawMarks], setSelect: [cutTo] },
    scales: { x: { time: false, range: (plot, low, high) => cutOf(plot.chart ?? chart, low, high) }, y: chart.log ? { distr: 3 } : { range: range(chart) } },
    axes: [{ ...axis, size: 28, ...(chart.x_label === "step" ? { incrs: WHOLE } : {}) }, axis],
    legend: { live: true },
    series: [{ label: chart.x_label, value: (plot, _, k, at) => told(plot.chart ?? chart, k, at) }, ...series],
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
  const address = new URL(place.dataset.charts, location.href);
  for (const name of OPTIONS) address.searchParams.delete(name);
  for (const [name, value] of new FormData(form)) address.searchParams.append(name, value);
  const response = await fetch(address);
  if (!response.ok) return;
  const charts = (await response.json()).map(joined);
  const same = drawn.length === charts.length
    && charts.every((chart, i) => drawn[i].key === `${chart.id}:${chart.series.map((series) => series.name)}:${chart.log}`)
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
  grid.replaceChildren(charts.length ? "" : "There is no curve to draw.");
  drawn = charts.map((chart) => {
    const box = card(chart);
    grid.append(box);
    const plot = new uPlot(options(chart, box.clientWidth - 28), [chart.x, ...columns(chart)], box);
    return { plot, box, key: `${chart.id}:${chart.series.map((series) => series.name)}:${chart.log}` };
  });
  drawn.theme = colour("--bg");
}

export function refreshCharts() {
  if (waiting) return;
  waiting = true;
  setTimeout(() => { waiting = false; drawCharts(); }, 600);
}

function chosen(fresh) {
  const { from, to, axis, x } = form.elements;
  if (fresh && fresh === x) from.value = to.value = axis.value = "";
  if (!from.value && !to.value) axis.value = "";
  else axis.value ||= drawn[0]?.plot.made.x_label ?? "";
  form.querySelector("[data-do=whole]").hidden = !from.value && !to.value;
  const query = new URLSearchParams(location.search);
  for (const name of OPTIONS) query.delete(name);
  for (const [name, value] of new FormData(form)) {
    if (value && !(name === "smooth" && value === "0") && !(name === "x" && value === "step")) query.append(name, value);
  }
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
  refreshCharts();
}

// What a drag over a chart chose: its axis is cut, and the address says where.
function cutTo(plot) {
  const { left, width } = plot.select;
  const { from, to, axis } = form.elements;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (width < 4 || plot.root.parentElement !== pressed) return;
  axis.value = plot.made.x_label;
  [from.value, to.value] = [left, left + width].map((at) => +plot.posToVal(at, "x").toPrecision(6));
  chosen();
}

function cutOf(chart, low, high) {
  const [from, to] = chart.cut;
  const [left, right] = [from ?? low ?? 0, to ?? high ?? 1];
  return left < right ? [left, right] : [left - 1, left + 1];
}

export function wholeCharts() {
  form.elements.from.value = form.elements.to.value = "";
  chosen();
}

if (place) {
  form.addEventListener("input", (event) => chosen(event.target));
  form.addEventListener("submit", (event) => event.preventDefault());
  place.addEventListener("mousedown", (event) => { pressed = event.target.closest(".chart"); });
  place.addEventListener("dblclick", (event) => { if (event.target.closest(".chart")) wholeCharts(); });
  new ResizeObserver(() => drawn.forEach(({ plot, box }) =>
    plot.setSize({ width: box.clientWidth - 28, height: 200 }))).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
}
