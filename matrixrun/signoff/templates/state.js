"use strict";
// What the page knows and shows. All text from models and engines is written as text nodes only.

const data = JSON.parse(document.getElementById("index").textContent);
const VERDICTS = ["FAIL", "ERROR", "INCONCLUSIVE", "INACTIVE", "REFUSED", "PASS"];
const SIGN = { PASS: "✓", FAIL: "✗", ERROR: "!", INCONCLUSIVE: "?", INACTIVE: "○", REFUSED: "-" };
const MEANING = {
  PASS: "nothing found, and enough was observed",
  FAIL: "a fault that the off arm does not explain",
  ERROR: "a launch crashed, hung or was lost",
  INCONCLUSIVE: "nothing found, but not enough to say so",
  INACTIVE: "the engine hardly drafted at all",
  REFUSED: "the engine refused the configuration",
};
const MANY = 120;

const state = { q: "", hidden: new Set(), filters: {}, rows: "", cols: "", show: "verdict", cell: null, limit: 60 };
let launches = null;
const details = new Map();

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function launchOf(id) {
  launches ??= JSON.parse(document.getElementById("launches").textContent);
  return launches[id];
}

// A cell's evidence is parsed when it is first opened.
function detailOf(place) {
  if (!details.has(place)) {
    details.set(place, JSON.parse(document.getElementById(`cell-${place}`).textContent));
  }
  return details.get(place);
}

function axisWord(row, axis) {
  const place = data.axes.findIndex((one) => one.name === axis);
  return place < 0 ? "" : data.axes[place].values[row.at[place]];
}

function shown(row) {
  if (state.hidden.has(row.verdict)) return false;
  for (const [axis, word] of Object.entries(state.filters)) if (word && axisWord(row, axis) !== word) return false;
  if (!state.q) return true;
  const text = `${row.id} ${row.verdict} ${row.reason}`.toLowerCase();
  return state.q.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

// -- figures in words -----------------------------------------------------------------------

function fmt(value, digits = 3) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size >= 1e5 || (size < 1e-4 && size > 0) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}
function percent(value) {
  return value === undefined || value === null ? "" : `${Number((100 * value).toPrecision(value > 0.99 && value < 1 ? 4 : 3))} %`;
}
function seconds(value) {
  return value < 1 ? `${fmt(1000 * value)} ms` : `${fmt(value)} s`;
}
function interval(estimate, words = fmt) {
  if (!estimate) return "";
  const range = estimate.low === undefined ? "" : ` (${words(estimate.low)} to ${words(estimate.high)})`;
  return words(estimate.value) + range;
}
function times(value) {
  return `${fmt(value)}×`;
}
function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function badge(verdict, expected, tag = "span", props = {}) {
  const words = [el("span", { class: "sign", "aria-hidden": "true", text: SIGN[verdict] }), " ", el("span", { class: "word", text: verdict })];
  if (expected) words.push(el("span", { class: "star", title: "the matrix file expects this verdict", text: "*" }));
  return el(tag, { ...props, class: `v v-${verdict} ${props.class || ""}` }, words);
}

// -- the address holds what is shown, so that a view can be sent to somebody ------------------

function writeAddress() {
  const parts = new URLSearchParams();
  if (state.cell !== null) parts.set("cell", data.rows[state.cell].id);
  if (state.q) parts.set("q", state.q);
  if (state.hidden.size) parts.set("hide", [...state.hidden].join(","));
  if (state.show !== "verdict") parts.set("show", state.show);
  if (state.rows) parts.set("rows", state.rows);
  if (state.cols) parts.set("cols", state.cols);
  for (const [axis, word] of Object.entries(state.filters)) if (word) parts.set(`axis.${axis}`, word);
  try {
    history.replaceState(null, "", `#${parts}`);
  } catch {
    // A page opened within a frame or an archive may not change its address; nothing is lost.
  }
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  state.q = parts.get("q") || "";
  state.hidden = new Set((parts.get("hide") || "").split(",").filter((word) => VERDICTS.includes(word)));
  state.show = parts.get("show") || "verdict";
  state.filters = {};
  const names = data.axes.map((axis) => axis.name);
  for (const name of names) if (parts.get(`axis.${name}`)) state.filters[name] = parts.get(`axis.${name}`);
  const [rows, cols] = defaultAxes();
  state.rows = names.includes(parts.get("rows")) ? parts.get("rows") : rows;
  state.cols = names.includes(parts.get("cols")) ? parts.get("cols") : cols;
  const place = data.rows.findIndex((row) => row.id === parts.get("cell"));
  state.cell = place < 0 ? null : place;
}

// Speculation across; down, the axis with most values: few small tables rather than many.
function defaultAxes() {
  const names = data.axes.map((axis) => axis.name);
  const cols = names.includes("speculation") ? "speculation" : names[names.length - 1] || "";
  const others = data.axes.filter((axis) => axis.name !== cols);
  others.sort((a, b) => b.values.length - a.values.length);
  return [others.length ? others[0].name : "", cols];
}
