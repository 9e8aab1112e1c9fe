// The page from top to bottom, and what happens when somebody does something.

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, text: title }), children);
}
function cellLink(id) {
  const index = data.rows.findIndex((row) => row.id === id);
  return index < 0 ? el("code", { text: id }) : el("button", { class: "link ids", "data-cell": index, text: id });
}
function names(ids, most = 8) {
  const box = el("p", { class: "names" });
  const put = (count) => box.replaceChildren(...ids.slice(0, count).map((id) => el("span", {}, cellLink(id))),
    ...(ids.length > count ? [el("button", { class: "more", onclick: () => put(ids.length), text: `and ${ids.length - count} more` })] : []));
  put(most);
  return box;
}

function banner() {
  const counts = Object.fromEntries(VERDICTS.map((v) => [v, data.rows.filter((row) => row.verdict === v).length]));
  const { exit_code: code, exit_text: text } = data.head, decision = data.decision;
  const total = data.rows.length + data.pending.length;
  const unexpected = (...verdicts) => data.rows.filter((row) => verdicts.includes(row.verdict) && !row.expected).length;
  const unasked = data.rows.filter((row) => row.expected && row.verdict !== "PASS").length;
  const damage = data.head.damage;
  const [kind, answer] = damage.length ? ["bad", "✗ Not supported by the evidence: verdicts on this page are not to be relied upon"] : decision ? (decision.signed ? ["good", "✓ SIGNED"] : ["bad", "✗ NOT SIGNED"]) : {
    0: ["good", `✓ Nothing against shipping${unasked ? `: ${unasked} expected not to pass` : ""}`],
    1: ["bad", `✗ ${unexpected("FAIL", "ERROR")} of ${plural(total, "cell")} at fault`],
    6: ["open", `? Not enough to say: ${unexpected("INCONCLUSIVE", "INACTIVE")} of ${plural(total, "cell")} undecided`],
    5: ["open", data.rows.length ? `? Nothing was measured: ${total === 1 ? "the one cell" : `all ${total} cells`} refused` : "? Nothing to run"],
    2: ["open", `? Incomplete: ${data.pending.length} of ${plural(total, "cell")} without a verdict`],
  }[code] || ["open", `? ${text}`];
  const expected = data.rows.filter((row) => row.expected).length;
  const tally = VERDICTS.filter((v) => counts[v]).map((v) => {
    const button = badge(v, false, "button", { "aria-pressed": "true", "data-verdict": v, title: `${MEANING[v]}. Click to hide or show.` });
    button.querySelector(".word").textContent = `${counts[v]} ${v}`;
    return button;
  });
  return el("section", { id: "verdict", class: `banner ${kind}` }, el("p", { class: "answer", text: answer }),
    damage.length ? [el("ul", {}, damage.slice(0, 12).map((line) => el("li", { text: line }))), el("p", { text: `${damage.length > 12 ? `and ${damage.length - 12} more; ` : ""}matrixrun judge ${data.head.sweep} judges what is there; what is gone is run again by matrixrun run.` })] : null,
    el("p", { class: "soft", text: `${plural(total, "cell")}${data.pending.length ? `, ${data.pending.length} of them without a verdict` : ""}${expected ? `, ${expected} with the verdict that the matrix file expects (*)` : ""}; exit code ${code}: ${text}` }),
    noticesLine(),
    el("div", { class: "tally", role: "group", "aria-label": "show and hide verdicts" }, tally));
}

function noticesLine() {
  const noted = data.rows.filter((row) => row.notices), kinds = new Map();
  for (const row of noted) for (const kind of row.noticed) kinds.set(kind, (kinds.get(kind) || 0) + 1);
  if (!noted.length) return null;
  const total = noted.reduce((sum, row) => sum + row.notices, 0);
  return el("p", { class: "soft", id: "notices", text: `† ${plural(total, "notice")} in ${plural(noted.length, "cell")}, no faults but worth a look: ${[...kinds].map(([kind, count]) => `${kind} (${plural(count, "cell")})`).join(", ")}` });
}

function causeWords(one) {
  const found = one.localisation, causes = found.causes || [];
  if (!causes.length) return [el("span", { text: `: ${one.text}` })];
  const lines = causes.map((cause, i) => {
    const conditions = cause.conditions.flatMap((c, j) => [j ? " and " : "", el("code", { class: "cause", text: `${c.axis}${c.relation}${c.value}` })]);
    const needed = (cause.needed || []).length;
    const rest = needed && needed === cause.conditions.length ? (needed === 1 ? "; good with any other value" : "; good with any one of them changed") : "";
    const instead = (cause.instead || []).slice(0, 3).map((other) => other.map((c) => `${c.axis}${c.relation}${c.value}`).join(" and "));
    return el("span", { class: "cause-line" }, i ? "and where " : "where ", conditions, causes.length === 1 && cause.cells.length === found.failing ? `, without exception${rest}` : `: ${plural(cause.cells.length, "cell")}, without exception${rest}`,
      instead.length ? el("span", { class: "soft", text: `; the grid does not tell this from ${instead.join(" or ")}` }) : null);
  });
  if ((found.unexplained || []).length) lines.push(el("span", { class: "cause-line soft", text: `${plural(found.unexplained.length, "cell")} more: no combination of up to four values tells them from good ones.` }));
  return lines;
}
function why() {
  if (!data.groups.length) return null;
  const items = data.localised.map((one) => {
    const groups = data.groups.filter((group) => group.verdict === one.verdict), bad = ["FAIL", "ERROR"].includes(one.verdict);
    const cells = groups.reduce((n, group) => n + group.cells.length, 0);
    const told = groups.map((group) => el("div", { class: `finding ${bad ? "fault" : ""}` },
      el("span", { class: "tag", text: [plural(group.cells.length, "cell"), ...(group.faults || []), group.expected ? "expected" : ""].filter(Boolean).join(" · ") }),
      el("div", { text: (group.verdict === "FAIL" && group.cells.length > 1 ? "first: " : "") + group.reason }), names(group.cells, 4)));
    const narrowed = data.narrowed.filter(([verdict]) => verdict === one.verdict)
      .map(([, text]) => el("div", { class: "finding" }, el("span", { class: "tag", text: "by further cells" }), el("div", { text })));
    return el("li", {}, el("div", { class: "cause-head" }, badge(one.verdict), el("div", {}, el("span", { text: `${plural(cells, "cell")} ` }), causeWords(one))), narrowed,
      bad || data.rows.length <= 12 ? told : more(groups.length === 1 ? groups[0].reason : `${groups.length} reasons`, told));
  });
  return section("why", "What is not a PASS, and which settings bring it on", el("ul", { class: "why" }, items));
}

const CHANGE_SIGN = { worse: "▼ worse", changed: "◆ changed", better: "▲ better", same: "= same" };
function decisionSections() {
  const decision = data.decision;
  if (!decision) return [];
  const list = (items) => {
    const rest = items.slice(12).map((item) => el("li", { text: item }));
    return el("div", {}, el("ul", {}, items.slice(0, 12).map((item) => el("li", { text: item }))), rest.length ? more(`${rest.length} more`, el("ul", {}, rest)) : null);
  };
  const changes = (decision.changes || []).filter((change) => change.direction !== "same");
  return [
    section("decision", decision.signed ? "Signed" : "Why it is not signed", el("p", { class: "soft", text: `against ${decision.against}, ${decision.date}` }),
      (decision.reasons || []).length ? list(decision.reasons) : el("p", { text: "Nothing stands against it." }),
      (decision.accepted || []).length ? [el("h3", { text: "Let through by the policy" }), list(decision.accepted)] : null,
      (decision.notes || []).length ? [el("h3", { text: "Remarks" }), list(decision.notes)] : null),
    section("changes", `Changed since ${decision.against}`, changes.length
      ? el("div", { class: "scroll" }, el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["", "cell", "verdict", "what changed"].map((h) => el("th", { scope: "col", text: h })))),
        el("tbody", {}, changes.slice(0, 300).map((change) => el("tr", {}, el("td", { class: "change-sign", text: CHANGE_SIGN[change.direction] }), el("td", {}, cellLink(change.cell)),
          el("td", { class: "num" }, change.old === change.new ? badge(change.new) : [change.old ? badge(change.old) : "new", " → ", change.new ? badge(change.new) : "gone"]), el("td", { class: "reason", text: (change.differences || []).map((one) => one.text).join("; ") }))))))
      : el("p", { text: "Every cell is as it was." })),
  ];
}

function matrixSection() {
  const options = (chosen) => data.axes.map((axis) => el("option", { value: axis.name, text: axis.name, selected: axis.name === chosen }));
  const chooser = (key, name) => el("label", {}, name, el("select", { id: `choose-${key}`, onchange: (e) => { state[key] = e.target.value; renderMatrix(); writeAddress(); } }, options(state[key])));
  const filters = data.axes.map((axis) => el("label", {}, axis.name, el("select", { "data-filter": axis.name, onchange: (e) => { state.filters[axis.name] = e.target.value; refresh(); } },
    el("option", { value: "", text: "all" }), axis.values.map((word) => el("option", { value: word, text: word, selected: state.filters[axis.name] === word })))));
  const show = el("label", {}, "in each cell", el("select", { id: "choose-show", onchange: (e) => { state.show = e.target.value; renderMatrix(); writeAddress(); } },
    Object.entries(SHOW).map(([key, [name]]) => el("option", { value: key, text: name, selected: key === state.show }))));
  const search = el("label", {}, "find in cells and reasons  ( / )", el("input", { id: "search", type: "search", value: state.q, oninput: (e) => { state.q = e.target.value; refresh(); } }));
  const axes = data.axes.length ? [chooser("rows", "down"), chooser("cols", "across")] : [];
  const legend = VERDICTS.map((v) => el("span", {}, badge(v), ` ${MEANING[v]}`));
  if (data.rows.some((row) => row.notices)) legend.push(el("span", { text: "† has notices: open it to read them" }));
  return section("matrix", "Verdicts",
    el("div", { class: "controls" }, search, axes, show),
    data.axes.length > 1 ? more("filter by axis", el("div", { class: "controls" }, filters)) : null,
    el("div", { id: "multiples", onkeydown: moveFocus }), el("div", { class: "legend" }, legend));
}

function listSection() {
  return section("cells", "Cells", el("p", { id: "count", class: "soft", "aria-live": "polite" }),
    el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["verdict", "cell", "why", "same", "acceptance", "speedup"].map((h) => el("th", { scope: "col", text: h })))), el("tbody", { id: "list" })),
    el("p", {}, el("button", { id: "more", class: "more", onclick: () => { state.limit += 300; renderList(); } })));
}
function renderList() {
  const found = data.rows.map((row, index) => [row, index]).filter(([row]) => shown(row));
  document.getElementById("count").textContent = `${found.length} of ${plural(data.rows.length, "cell")}, worst first`;
  document.getElementById("list").replaceChildren(...found.slice(0, state.limit).map(([row, index]) => {
    const figures = row.figures || {}, speedup = row.speed && row.speed.speedup;
    return el("tr", {}, el("td", {}, badge(row.verdict, row.expected)), el("td", {}, el("button", { class: "link ids", "data-cell": index, text: row.id })),
      el("td", { class: "reason" }, row.reason, row.notices ? el("div", { class: "soft", text: `† ${plural(row.notices, "notice")}: ${row.noticed.join(", ")}` }) : null), el("td", { class: "num", "data-name": "same", text: percent(figures.exact) }),
      el("td", { class: "num", "data-name": "acceptance", text: fmt(figures.length) }), el("td", { class: "num", "data-name": "speedup", text: speedup ? times(speedup.value) : "" }));
  }));
  const left = found.length - state.limit, button = document.getElementById("more");
  button.hidden = left <= 0;
  button.textContent = `Show ${Math.min(300, left)} more of ${left}`;
}

function speedSection() {
  const known = data.rows.filter((row) => row.speed && row.speed.speedup);
  if (!known.length) return null;
  const batch = place("batch_size"), groups = new Map();
  for (const row of known) {
    const key = row.at.filter((_, i) => i !== batch).join(" ");
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  const sizes = batch < 0 ? [""] : data.axes[batch].values;
  const lines = [...groups.values()].sort((a, b) => Math.min(...a.map((r) => r.speed.speedup.value)) - Math.min(...b.map((r) => r.speed.speedup.value)));
  const body = el("tbody"), put = (count) => body.replaceChildren(...lines.slice(0, count).map((rows) => el("tr", {},
    el("td", { text: data.axes.filter((_, i) => i !== batch).map((axis) => axisWord(rows[0], axis.name)).join(" · ") || data.head.constant }),
    sizes.map((word, i) => speedCell(rows.find((row) => batch < 0 || row.at[batch] === i), word)))));
  put(40);
  return section("speed", "What would be lost by switching speculation off",
    el("p", { class: "soft", text: "Output tokens a second, on against off, with 95 % intervals over prompts (one launch each); time to first token (TTFT) and time per output token (TPOT), off → on. Least gain first." }),
    el("div", { class: "scroll" }, el("table", { class: "list" }, el("thead", {}, el("tr", {}, el("th", { text: "" }), sizes.map((word) => el("th", { scope: "col", text: word || "speedup" })))), body)),
    lines.length > 40 ? el("button", { class: "more", onclick: (e) => { put(lines.length); e.target.remove(); }, text: `Show all ${lines.length}` }) : null);
}
function speedCell(row, word) {
  if (!row) return el("td");
  const { on, off, speedup } = row.speed, slower = (speedup.high ?? speedup.value) < 1;
  const pair = (key, words) => (off[key] && on[key] ? `${words(off[key].value)} → ${words(on[key].value)}` : "");
  const lines = [`${fmt(off.tokens_per_second)} → ${fmt(on.tokens_per_second)} tokens/s`, `TTFT ${pair("first_token_seconds", seconds)}`, `TPOT ${pair("seconds_per_output_token", seconds)}`];
  return el("td", { class: "num", "data-name": word }, el("strong", { text: interval(speedup, times) }), slower ? " ▼ slower than off" : "", lines.map((line) => el("div", { class: "soft", text: line })));
}

function coveredSection() {
  const covered = data.covered;
  if (!covered) return null;
  const rows = covered.interactions.map((one) => el("tr", {}, el("td", { text: one.axes.join(" × ") }),
    el("td", { class: "num", "data-name": "decided", text: `${one.decided} of ${one.planned}` }),
    el("td", { class: "reason", "data-name": "open", text: (one.open || []).join("; ") + (one.planned - one.decided > (one.open || []).length ? " …" : "") })));
  const table = el("table", { class: "list" }, el("thead", {}, el("tr", {}, ["axes together", "came to a PASS or FAIL", "still open"].map((h) => el("th", { scope: "col", text: h })))), el("tbody", {}, rows));
  return section("covered", "Which combinations of settings were covered",
    el("p", { text: `${covered.decided} of ${covered.planned} planned combinations came to a PASS or FAIL.` }),
    el("ul", {}, covered.lines.map((line) => el("li", { text: line }))),
    rows.length > 15 ? more(`${rows.length} choices of axes`, table) : table);
}

function aboutSection() {
  const notes = data.head.notes.map((note) => el("li", { text: note }));
  const reasons = new Map();
  for (const [, reason] of data.excluded) reasons.set(reason, (reasons.get(reason) || 0) + 1);
  return [
    data.pending.length ? section("pending", "Without a verdict", el("p", { text: "The sweep was cut short before these cells ended." }), names([...data.pending], 30)) : null,
    notes.length || data.excluded.length ? section("about", "What this sweep can and cannot see", el("ul", {}, notes),
      data.excluded.length ? more(`${plural(data.excluded.length, "cell")} left out by the matrix file`, el("ul", {}, [...reasons].map(([reason, n]) => el("li", { text: `${plural(n, "cell")}: ${reason}` })))) : null) : null,
  ];
}

function openCell(index, focus = true) {
  state.cell = index;
  const box = document.getElementById("detail");
  if (index === null) {
    box.hidden = true;
  } else {
    const order = data.rows.map((_, i) => i).filter((i) => shown(data.rows[i])), at = order.indexOf(index);
    const go = (step) => openCell(order[at + step]);
    const rows = [el("button", { "aria-keyshortcuts": "k", disabled: at <= 0, onclick: () => go(-1), text: "← previous (k)" }),
      el("button", { "aria-keyshortcuts": "j", disabled: at < 0 || at + 1 >= order.length, onclick: () => go(1), text: "next (j) →" }),
      el("span", { class: "grow" }), el("button", { onclick: () => close(), text: "close (Esc)" })];
    box.replaceChildren(el("div", { class: "bar" }, rows), ...cellContent(index).filter(Boolean));
    box.hidden = false;
    box.scrollTop = 0;
    box.tabIndex = -1;
    if (focus) box.focus({ preventScroll: true });
  }
  document.body.classList.toggle("reading", index !== null);
  for (const button of document.querySelectorAll("#multiples [aria-current]")) button.removeAttribute("aria-current");
  const button = document.querySelector(`#multiples [data-cell="${index}"]`);
  if (button) button.setAttribute("aria-current", "true");
  writeAddress();
}
function close() {
  const from = state.cell;
  openCell(null);
  const button = document.querySelector(`#multiples [data-cell="${from}"]`);
  if (button) button.focus();
}

function refresh() {
  state.limit = 60;
  for (const button of document.querySelectorAll("[data-verdict]")) button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.verdict)));
  renderMatrix();
  renderList();
  writeAddress();
}

function build() {
  readAddress();
  const verdicts = data.rows.length ? [matrixSection(), listSection()] : [];
  const parts = [banner(), decisionSections(), why(), verdicts, speedSection(), coveredSection(), aboutSection()];
  document.getElementById("main").replaceChildren(...parts.flat().filter(Boolean));
  if (data.rows.length) refresh();
  openCell(state.cell, false);
}

document.addEventListener("click", (event) => {
  const cell = event.target.closest("[data-cell]"), verdict = event.target.closest("[data-verdict]");
  if (cell) openCell(Number(cell.dataset.cell));
  if (!verdict) return;
  const word = verdict.dataset.verdict;
  if (!state.hidden.delete(word)) state.hidden.add(word);
  refresh();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.cell !== null) return close();
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); }
  if (state.cell === null || !["j", "k"].includes(event.key)) return;
  const order = data.rows.map((_, i) => i).filter((i) => shown(data.rows[i])), next = order[order.indexOf(state.cell) + (event.key === "j" ? 1 : -1)];
  if (next !== undefined) openCell(next);
});
window.addEventListener("hashchange", build);
// On paper: the whole list, and the evidence of what is at fault (all of it would be thousands of pages).
window.addEventListener("beforeprint", () => {
  if (!data.rows.length) return;
  state.limit = 1000;
  renderList();
  const bad = state.cell === null ? data.rows.map((_, i) => i).filter((i) => ["FAIL", "ERROR"].includes(data.rows[i].verdict)).slice(0, 12) : [];
  document.getElementById("print-evidence").replaceChildren(...bad.map((i) => el("div", { class: "print-cell" }, cellContent(i).filter(Boolean))));
});
window.addEventListener("afterprint", () => document.getElementById("print-evidence").replaceChildren());
build();
