// The matrix of verdicts: two axes, one small table for each combination of the others.

const SHOW = {
  verdict: ["verdict", (row) => row.verdict],
  exact: ["same token by token", (row) => percent(row.figures && row.figures.exact)],
  length: ["mean acceptance length", (row) => fmt(row.figures && row.figures.length)],
  speedup: ["speedup, on against off", (row) => (row.speed && row.speed.speedup ? times(row.speed.speedup.value) : "")],
  regret: ["largest regret (nats)", (row) => fmt(row.figures && row.figures.regret)],
  visible: ["smallest visible fault rate", (row) => percent(row.figures && row.figures.visible)],
};

function place(name) {
  return data.axes.findIndex((axis) => axis.name === name);
}

function multiplesOf() {
  const used = [place(state.rows), place(state.cols)];
  const groups = new Map();
  data.rows.forEach((row, index) => {
    const key = row.at.filter((_, i) => !used.includes(i)).join(" ");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(index);
  });
  const order = [...groups.values()];
  const rest = (index) => data.rows[index].at.filter((_, i) => !used.includes(i));
  return order.sort((a, b) => compare(rest(a[0]), rest(b[0])));
}
function compare(a, b) {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] - b[i];
  return 0;
}

function renderMatrix() {
  const box = document.getElementById("multiples");
  const tables = multiplesOf().filter((group) => group.some((i) => shown(data.rows[i])));
  box.className = `multiples ${data.rows.length > MANY ? "dense" : ""} ${state.show === "verdict" ? "" : "figures"}`;
  box.replaceChildren(...tables.map(multiple));
  if (!tables.length) box.append(el("p", { text: "No cell is left by these filters." }));
  const first = box.querySelector("button[aria-current]") || box.querySelector(".grid button");
  if (first) first.tabIndex = 0;
}

function multiple(group) {
  const used = [state.rows, state.cols];
  const title = data.axes.filter((axis) => !used.includes(axis.name)).map((axis) => axisWord(data.rows[group[0]], axis.name)).join(" · ");
  const bad = group.filter((i) => ["FAIL", "ERROR"].includes(data.rows[i].verdict)).length;
  const at = new Map(group.map((i) => [`${axisWord(data.rows[i], state.rows)}\n${axisWord(data.rows[i], state.cols)}`, i]));
  const present = (axis) => {
    const one = data.axes[place(axis)];
    return one ? one.values.filter((word) => group.some((i) => axisWord(data.rows[i], axis) === word)) : [""];
  };
  const rows = present(state.rows), cols = state.cols === state.rows ? [""] : present(state.cols);
  const body = rows.map((r) => el("tr", {}, el("th", { scope: "row", text: r }), cols.map((c) => {
    const index = at.get(`${r}\n${state.cols === state.rows ? r : c}`);
    return el("td", {}, index === undefined ? null : cellButton(index));
  })));
  return el("div", { class: "multiple" }, el("table", { class: "grid" },
    el("caption", {}, title || "all cells", bad ? el("span", { class: "v v-FAIL at-fault", text: `${bad} at fault` }) : null),
    el("thead", {}, el("tr", {}, el("td"), cols.map((c) => el("th", { scope: "col", text: c })))),
    el("tbody", {}, body)));
}

function cellButton(index) {
  const row = data.rows[index];
  const word = SHOW[state.show][1](row);
  const button = badge(row.verdict, row.expected, "button", {
    class: shown(row) ? "" : "out", "data-cell": index, tabindex: -1, title: `${row.id}\n${row.verdict}: ${row.reason}${row.notices ? `\n${plural(row.notices, "notice")}: ${row.noticed.join(", ")}` : ""}`,
    "aria-label": `${row.id}: ${row.verdict}${state.show === "verdict" ? "" : `, ${SHOW[state.show][0]} ${word || "unknown"}`}${row.notices ? `, ${plural(row.notices, "notice")}` : ""}`,
    "aria-current": index === state.cell ? "true" : null,
  });
  button.querySelector(".word").textContent = state.show === "verdict" ? row.verdict : word || "·";
  if (row.notices) button.append(" ", el("span", { class: "noted", text: "†" }));
  return button;
}

// Arrow keys move between cells by where they lie on the screen; Enter opens one.
function moveFocus(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const from = event.target.closest("button[data-cell]");
  if (!step || !from) return;
  event.preventDefault();
  const at = middle(from);
  let best = null, least = Infinity;
  for (const button of document.querySelectorAll("#multiples button[data-cell]")) {
    const [x, y] = middle(button), along = (x - at[0]) * step[0] + (y - at[1]) * step[1];
    const aside = Math.abs((x - at[0]) * step[1]) + Math.abs((y - at[1]) * step[0]);
    if (button !== from && along > 4 && along + 4 * aside < least) [best, least] = [button, along + 4 * aside];
  }
  if (!best) return;
  from.tabIndex = -1;
  best.tabIndex = 0;
  best.focus();
}
function middle(node) {
  const box = node.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
}
