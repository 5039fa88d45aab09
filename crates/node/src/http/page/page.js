"use strict";
// Asks /live now and then, keeps the last five minutes, draws. What comes from the node is only
// ever set as text.
const EVERY = 2000, KEEP = 300000, MINUTE = 60000;
const CLASSES = ["client-write", "client-read", "replication", "balancer", "scan", "delete"];
const SVG = "http://www.w3.org/2000/svg";
const WIDE = 400, HIGH = 170, LEFT = 52, RIGHT = 24, TOP = 8, LOW = 24;
let samples = [], paused = false, lastAnswer = 0;

const byId = (id) => document.getElementById(id);
const kind = (name) => "k" + Math.max(0, CLASSES.indexOf(name));

function make(space, tag, attributes, children) {
  const made = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...(children || []));
  return made;
}
const html = (tag, attributes, children) => make(null, tag, attributes, children);
const svg = (tag, attributes, children) => make(SVG, tag, attributes, children);

function size(bytes) {
  if (bytes < 1024) return Math.round(bytes) + " B";
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    bytes /= 1024;
    if (bytes < 1024) return bytes.toFixed(1) + " " + unit;
  }
  return (bytes / 1024).toFixed(1) + " PiB";
}
function time(us) {
  if (us < 1000) return Math.round(us) + " µs";
  return us < 1e6 ? +(us / 1000).toPrecision(3) + " ms" : +(us / 1e6).toPrecision(3) + " s";
}
const ago = (seconds) => seconds === null ? "never" : seconds + " s ago";
const round = (bytes) => size(bytes).replace(".0 ", " ");

function fill(table, rows) {
  const cells = (row) => html("tr", {}, row.map((cell) => html("td", {}, [String(cell)])));
  table.tBodies[0].replaceChildren(...rows.map(cells));
}

function table(heads) {
  const head = heads.map((text) => html("th", { scope: "col" }, [text]));
  return html("table", {}, [
    html("caption"), html("thead", {}, [html("tr", {}, head)]), html("tbody")]);
}
const scroll = (label, what) =>
  html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, [what]);

// What was counted after `before`.
function since(now, before) {
  const old = new Map(before || []);
  return now.map(([at, count]) => [at, count - (old.get(at) || 0)]).filter(([, n]) => n > 0);
}
const total = (buckets) => buckets.reduce((sum, [, count]) => sum + count, 0);
function quantile(buckets, share) {
  let left = total(buckets) * share;
  for (const [at, count] of buckets) {
    left -= count;
    if (left <= 0) return 2 ** (at / 4);
  }
  return 0;
}
function cdf(buckets) {
  const all = total(buckets), points = [];
  let sum = 0;
  for (const [at, count] of buckets) {
    if (!points.length) points.push([2 ** (Math.max(0, at - 1) / 4), 0]);
    sum += count;
    points.push([2 ** (at / 4), 100 * sum / all]);
  }
  return points;
}

// A chart: lines, an axis of y from 0, one of x that may be logarithmic.
function draw(chart, series, { x, y, says, empty }) {
  const wide = WIDE - LEFT - RIGHT, high = HIGH - TOP - LOW;
  const scale = x.log ? Math.log : (value) => value;
  const [low, top] = [scale(x.from), scale(x.to)];
  const across = (value) => LEFT + wide * (scale(value) - low) / (top - low || 1);
  const up = (value) => TOP + high * (1 - value / y.to);
  const parts = [];
  for (const tick of y.ticks) {
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: up(tick), y2: up(tick) }));
    parts.push(svg("text", { x: LEFT - 5, y: up(tick) + 4, "text-anchor": "end" }, [y.label(tick)]));
  }
  for (const tick of x.ticks) {
    const at = across(tick);
    if (x.log) parts.push(svg("line", { class: "grid", x1: at, x2: at, y1: TOP, y2: TOP + high }));
    parts.push(svg("text", { x: at, y: HIGH - 7, "text-anchor": "middle" }, [x.label(tick)]));
  }
  for (const one of series) {
    if (!one.points.length) continue;
    const path = one.points.map(([a, b], i) =>
      (i ? "L" : "M") + across(a).toFixed(1) + " " + up(b).toFixed(1)).join("");
    parts.push(svg("path", { class: "series " + one.style, d: path }));
  }
  if (!series.some((one) => one.points.length)) {
    parts.push(svg("text", { x: LEFT + wide / 2, y: TOP + high / 2, "text-anchor": "middle" }, [empty]));
  }
  chart.replaceChildren(...parts);
  chart.setAttribute("aria-label", says);
}

// Round ticks from 0 to at least `most`.
function upTo(most, binary) {
  const base = binary ? 1024 ** Math.floor(Math.log(Math.max(most, 1)) / Math.log(1024)) : 1;
  const ten = 10 ** Math.floor(Math.log10(Math.max(most / base, binary ? 1 : 4) / 4));
  const step = base * ten * [1, 2, 2.5, 5, 10].find((by) => base * ten * by * 4 >= most || by === 10);
  const whole = binary ? step : Math.max(1, Math.ceil(step));
  return { to: whole * 4, ticks: [0, whole, whole * 2, whole * 3, whole * 4] };
}
const overTime = () => ({
  from: -KEEP / 1000, to: 0, ticks: [-300, -240, -180, -120, -60, 0],
  label: (s) => s ? s / 60 + " min" : "now" });

// A logarithmic axis around all points, with at most seven ticks.
function around(series, base, label, otherwise) {
  const all = series.flatMap((one) => one.points.map(([value]) => value));
  const log = (value) => Math.log(value) / Math.log(base) + 1e-9;
  let [low, top] = all.length ? [Math.floor(log(Math.min(...all))), Math.ceil(log(Math.max(...all)) - 2e-9)] : otherwise;
  if (top <= low) top = low + 1;
  const by = Math.ceil((top - low) / 6), ticks = [];
  for (let at = low; at <= top; at += by) ticks.push(base ** at);
  return { log: true, from: base ** low, to: base ** top, ticks, label };
}
const percent = { to: 100, ticks: [0, 25, 50, 75, 100], label: (share) => share + " %" };

const CHARTS = [
  ["rate", "Throughput by class, a second"], ["queue", "Queue: waiting and under way"],
  ["latency", "Latency, share of transfers"], ["runs", "Run length, share of runs"]];

function section(name, number) {
  const parts = { charts: {} };
  const charts = CHARTS.map(([key, title]) => {
    parts.charts[key] = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img" });
    return html("div", { class: "chart" }, [html("h3", {}, [title]), parts.charts[key]]);
  });
  parts.legend = html("ul", { class: "legend" });
  parts.classes = table(["Class", "Transfers", "Bytes", "Waiting", "Under way", "Wait p99", "Device p99"]);
  parts.slowest = table(["Took", "Waited", "Device", "Class", "Bytes", "Where", "Ended"]);
  parts.slowest.caption.append("The slowest ten transfers of the last minute");
  const head = "disk-" + number;
  parts.all = html("section", { "aria-labelledby": head }, [
    html("h2", { id: head }, ["Disk " + name]), parts.legend,
    html("div", { class: "charts" }, charts),
    scroll("Classes of the disk " + name, parts.classes),
    scroll("Slowest transfers of the disk " + name, parts.slowest)]);
  return parts;
}

let shown = new Map();
function sections(disks) {
  const names = disks.map((disk) => disk.name);
  if (names.length === shown.size && names.every((name) => shown.has(name))) return;
  shown = new Map(names.map((name, number) => [name, section(name, number)]));
  byId("disks").replaceChildren(...[...shown.values()].map((parts) => parts.all));
}

const find = (sample, disk, name) =>
  sample.disks.get(disk)?.classes.find((one) => one.class === name);

function overHistory(disk, name, value) {
  const points = [], now = samples.at(-1).at;
  samples.forEach((sample, i) => {
    const of = value(find(sample, disk, name), i && find(samples[i - 1], disk, name),
      i && sample.at - samples[i - 1].at);
    if (of !== null) points.push([(sample.at - now) / 1000, of]);
  });
  return points;
}

function drawDisk(parts, disk) {
  const names = disk.classes.map((one) => one.class);
  const line = (name, dashed) => svg("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" },
    [svg("path", { class: "series " + kind(name) + (dashed ? " dashed" : ""), d: "M0 5H20" })]);
  parts.legend.replaceChildren(...names.map((name) => html("li", {}, [line(name), name])),
    html("li", { class: "dim" }, ["in the latency: solid the device, dashed the wait"]));
  const rate = names.map((name) => ({ style: kind(name), points: overHistory(disk.name, name,
    (now, before, took) => now && before && took > 0 ? 1000 * (now.bytes - before.bytes) / took : null) }));
  const queue = names.map((name) => ({ style: kind(name), points: overHistory(disk.name, name,
    (now) => now ? now.waiting + now.running : null) }));
  const most = (series) => Math.max(0, ...series.flatMap((one) => one.points.map(([, value]) => value)));
  const last = (one) => one.points.length ? one.points.at(-1)[1] : 0;
  const each = (series, label) => names.map((name, i) => name + " " + label(last(series[i]))).join(", ");
  draw(parts.charts.rate, rate, { x: overTime(), y: { ...upTo(most(rate), true), label: round },
    says: "Now, a second: " + each(rate, size), empty: "Not yet measured" });
  draw(parts.charts.queue, queue, { x: overTime(), y: { ...upTo(most(queue)), label: String },
    says: "Now: " + each(queue, String), empty: "Nothing yet" });
  drawShares(parts, disk);
}

function drawShares(parts, disk) {
  const now = samples.at(-1);
  const base = samples.find((one) => one !== now && now.at - one.at <= MINUTE + EVERY);
  const before = base && base.disks.get(disk.name);
  const span = base ? `the last ${Math.round((now.at - base.at) / 1000)} s` : "all since the start";
  const latency = [], rows = [];
  for (const one of disk.classes) {
    const old = before && before.classes.find((other) => other.class === one.class);
    const wait = since(one.queue_us, old && old.queue_us);
    const device = since(one.service_us, old && old.service_us);
    latency.push({ style: kind(one.class), points: cdf(device) });
    latency.push({ style: kind(one.class) + " dashed", points: cdf(wait) });
    const p99 = (of) => of.length ? time(quantile(of, 0.99)) : "";
    rows.push([one.class, one.ops, size(one.bytes), one.waiting, one.running, p99(wait), p99(device)]);
  }
  fill(parts.classes, rows);
  parts.classes.caption.textContent = "Counts since the start; times of " + span;
  const runs = [{ style: "k0", points: cdf(since(disk.run_bytes, before && before.run_bytes)) }];
  const empty = base ? "Nothing in " + span : "Nothing yet";
  draw(parts.charts.latency, latency, { x: around(latency, 10, time, [1, 6]), y: percent,
    says: "Distribution over " + span + "; the table has the 99th percentiles", empty });
  draw(parts.charts.runs, runs, { x: around(runs, 4, round, [6, 12]), y: percent,
    says: "Distribution of run lengths over " + span, empty });
  fill(parts.slowest, disk.slowest.map((slow) => [
    time(slow.wait_us + slow.service_us), time(slow.wait_us), time(slow.service_us), slow.class,
    size(slow.bytes), slow.file === null ? "page cache" : `file ${slow.file} at ${size(slow.offset)}`,
    ago(Math.round(slow.ago_ms / 1000))]));
}

function tell(now) {
  const fact = (id, text) => { byId(id).textContent = text; };
  fact("up", Math.floor(now.up_ms / 1000) + " s");
  fact("space", `${size(now.used)} of ${size(now.capacity)}`);
  fact("left", size(now.remaining));
  fact("busy", `${now.connections} connections, ${now.reading} reading, ${now.writing} writing`);
  const texts = now.findings.map((one) => one.text);
  const told = texts.length ? texts : ["Nothing is slow or has failed."];
  byId("findings").className = now.findings.length ? "bad" : "";
  byId("findings").replaceChildren(...told.map((text) => html("li", {}, [text])));
  fill(byId("volumes"), now.volumes.map((one) =>
    [one.path, one.type, size(one.used), size(one.free), one.replicas, size(one.trash),
      size(one.previous)]));
  fill(byId("namenodes"), now.namenodes.map((one) => [one.address, one.pool || "", one.state,
    one.active ? "active" : "", ago(one.heartbeat_s), ago(one.report_s)]));
}

function keep(now) {
  const last = samples.at(-1);
  if (last && now.up_ms < last.at) samples = []; // It was started again.
  samples.push({ at: now.up_ms, disks: new Map(now.disks.map((disk) => [disk.name, disk])) });
  samples = samples.filter((one) => now.up_ms - one.at <= KEEP);
  for (const one of samples) {
    if (now.up_ms - one.at <= MINUTE + 2 * EVERY) continue;
    for (const disk of one.disks.values()) { // Only numbers are needed of what is older.
      disk.run_bytes = disk.slowest = [];
      for (const of of disk.classes) of.queue_us = of.service_us = [];
    }
  }
}

async function look() {
  if (!paused && !document.hidden) {
    try {
      const answer = await fetch("/live", { signal: AbortSignal.timeout(5 * EVERY) });
      if (!answer.ok) throw new Error("status " + answer.status);
      const now = await answer.json();
      keep(now);
      tell(now);
      sections(now.disks);
      for (const disk of now.disks) drawDisk(shown.get(disk.name), disk);
      lastAnswer = Date.now();
      byId("state").textContent = "Live, every 2 s";
    } catch (error) {
      const since = lastAnswer ? Math.round((Date.now() - lastAnswer) / 1000) + " s ago" : "never";
      byId("state").textContent = `No answer (${error.message}); the last one came ${since}`;
    }
  }
  setTimeout(look, EVERY);
}

byId("pause").hidden = false;
byId("pause").addEventListener("click", (event) => {
  paused = !paused;
  event.currentTarget.textContent = paused ? "Go on" : "Pause";
  byId("state").textContent = paused ? "Paused" : "Live, every 2 s";
});
look();
