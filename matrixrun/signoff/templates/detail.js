// One cell's evidence.

function block(title, ...children) {
  const content = children.flat(Infinity).filter((child) => child !== null && child !== undefined);
  return content.length ? el("div", { class: "block" }, el("h3", { text: title }), content) : null;
}
function pairsTable(pairs) {
  return el("table", { class: "pairs" }, el("tbody", {}, pairs.map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row", text: name }), el("td", { class: "num" }, typeof value === "object" && value !== null ? value : String(value))))));
}
function table(head, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "list" },
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col", text: name })))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, place) => el("td", { class: place ? "num" : "", "data-name": head[place], text: value })))))));
}
function more(title, ...children) {
  return el("details", {}, el("summary", { text: title }), children);
}
function words(value) {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : fmt(value, 6);
}

function cellContent(place) {
  const row = data.rows[place], detail = detailOf(place);
  return [
    el("h2", { id: "detail-title" }, badge(row.verdict, row.expected), " ", row.id),
    el("p", { class: "soft", text: data.axes.map((axis, i) => `${axis.name} ${axis.values[row.at[i]]}`).join(" · ") }),
    el("p", {}, el("strong", { text: row.reason })),
    row.expected ? el("p", { text: "* The matrix file expects this verdict." }) : null,
    changeBlock(row), findingsBlock(detail), divergenceBlock(detail), regretBlock(detail), acceptanceBlock(detail), accuracyBlock(detail), coverageBlock(detail),
    powerBlock(row, detail), speedBlock(place, row), reuseBlock(detail), launchBlock(detail),
    detail.metrics && Object.keys(detail.metrics).length
      ? block("All figures", more(plural(Object.keys(detail.metrics).length, "figure"), pairsTable(Object.entries(detail.metrics).map(([k, v]) => [k, fmt(v, 6)])))) : null,
  ];
}

function changeBlock(row) {
  const decision = data.decision, change = decision && decision.changes.find((one) => one.cell === row.id);
  if (!change) return null;
  const told = (change.differences || []).map((one) => el("li", { text: one.text }));
  return block(`Since ${decision.against}`, told.length ? el("ul", {}, told) : el("p", { class: "soft", text: "as it was" }));
}

function findingsBlock(detail) {
  const found = [...(detail.findings || [])].sort((a, b) => (a.severity === "fault" ? 0 : 1) - (b.severity === "fault" ? 0 : 1));
  return block("Findings", found.length ? found.map((one) => el("div", { class: `finding ${one.severity}` },
    el("span", { class: "tag", text: `${one.severity} ${one.kind}` }), el("div", { text: one.text }),
    Object.keys(one.numbers || {}).length ? more("figures", numbersTable(one.numbers)) : null)) : el("p", { class: "soft", text: "none" }));
}
function numbersTable(numbers) {
  return el("div", {}, pairsTable(Object.entries(numbers).filter(([, v]) => typeof v !== "string" || !v.includes("\n")).map(([k, v]) => [k, words(v)])),
    Object.entries(numbers).filter(([, v]) => typeof v === "string" && v.includes("\n")).map(([k, v]) => [el("p", { class: "soft", text: k }), el("pre", { text: v })]).flat());
}

function divergenceBlock(detail) {
  if (detail.missing) return block("Answers", el("p", { class: "soft", text: detail.missing }));
  const sites = detail.divergences || [], all = detail.forks || 0;
  const sentence = all
    ? `${all} of ${plural(detail.compared || 0, "request")} leave the off arm's tokens somewhere${sites.length < all ? `; the ${sites.length} that matter most` : ""}. Only a first difference compares like with like: what follows is conditioned on other text.`
    : `All ${plural(detail.compared || 0, "request")} are the same token by token.`;
  return block("Token differences", el("p", { text: sentence }), sites.map((site) => siteCard(site, detail)));
}
const RELATION = {
  explained: "explained: within what rounding accounts for", unexplained: "UNEXPLAINED by every off evaluation", suspected: "suspected, not settled",
  length_only: "one answer ends earlier", unscored: "not scored",
};
function relation(site, detail) {
  // Beyond the floor it is no rounding that explains a token, but how far the off arm's own evaluations lie apart.
  if (site.relation === "explained" && site.gap > detail.floor) return `below the ceiling of ${fmt(detail.ceiling)} nats that the off arm's own evaluations give`;
  return RELATION[site.relation] || site.relation;
}
function siteCard(site, detail) {
  const head = `request ${site.request} (${site.category}), token ${site.position}: ${relation(site, detail)}` +
    (site.gap === undefined || site.gap === null ? "" : site.gap < 0.005 ? "; a tie on the off arm"
      : `; the off arm prefers another token by ${fmt(site.gap)} nats (${fmt(Math.exp(site.gap))} times as likely)`);
  return el("div", { class: "site" }, el("strong", { text: head }),
    site.same_until_here ? null : el("p", { class: "soft", text: "The answers differed before this place already; regret is the target's own view of the on arm's text." }),
    texts(site), tokenTable(site), odds(site));
}
function texts(site) {
  if (site.shared_text === undefined || site.shared_text === null) return null;
  const line = (name, arm) => arm.text === undefined || arm.text === null ? [] : [el("dt", { text: name }),
    el("dd", {}, el("span", { class: "shared", text: `…${site.shared_text}` }), el("mark", { text: arm.text || "(ends here)" }))];
  return el("dl", { class: "texts" }, line("on", site.on), line("off", site.off), line("control", site.null));
}
function tokenTable(site) {
  const arms = [["on", site.on], ["off", site.off], ["control", site.null]];
  const count = Math.max(...arms.map(([, arm]) => (arm.tokens || []).length));
  const positions = [...Array(count).keys()].map((i) => site.start + i);
  const here = (position) => (position === site.position ? "here" : "");
  return el("div", { class: "scroll" }, el("table", { class: "tokens ids" },
    el("thead", {}, el("tr", {}, el("th", { text: "position" }), positions.map((p) => el("td", { class: here(p), text: p === site.position ? `▸ ${p}` : p })))),
    el("tbody", {}, arms.map(([name, arm]) => el("tr", {}, el("th", { scope: "row", text: name }), positions.map((p, i) => {
      const own = (arm.tokens || [])[i], theirs = (site.off.tokens || [])[i];
      return el("td", { class: `${here(p)} ${own === theirs ? "" : "differs"}`, text: own === undefined ? "∅" : own });
    }))))));
}
function odds(site) {
  const arms = [["on", site.on], ["off", site.off], ["control", site.null]].filter(([, arm]) => arm.top && arm.top.length);
  if (!arms.length) return null;
  return el("div", {}, el("p", { class: "soft", text: `What each arm held most likely at token ${site.position}, as it reported it:` }),
    el("div", { class: "odds" }, arms.flatMap(([name, arm]) => arm.top.map((one, i) =>
      [el("span", { text: i ? "" : name }), el("code", { text: one.token }), meter(one.probability), el("span", { class: "num", text: percent(one.probability) })]).flat())));
}

function regretBlock(detail) {
  if (!detail.curves || !detail.curves.on) return null;
  const chart = regretChart(detail);
  const text = chart
    ? `Regret: how much the target itself, scoring on the off arm, prefers its best token to the one emitted. ${fmt(detail.curves.on.scored)} tokens of the on arm are valued, beside the control's ${fmt((detail.curves.null || {}).scored)}. A fault is what lies beyond the ceiling in the on arm.`
    : `All ${fmt(detail.curves.on.scored)} valued tokens are the target's own best, in the on arm and in the control (regret 0; ceiling ${fmt(detail.ceiling)} nats).`;
  return block("Regret against the control", el("p", { class: chart ? "soft" : "", text }), chart);
}

function acceptanceBlock(detail) {
  const rates = detail.acceptance || [];
  if (!rates.length) return null;
  const whole = rates.filter((rate) => rate.position === undefined);
  const expected = rates.some((rate) => rate.expected);
  return block("Acceptance", pairsTable(whole.map((rate) => [rate.name.replaceAll("_", " "),
    interval(rate.estimate) + (rate.expected ? `; expected ${fmt(rate.expected.low)} to ${fmt(rate.expected.high)}` : "")])),
    acceptanceChart(rates),
    el("p", { class: "soft", text: "Bars: intervals, clustered by request. " + (expected ? "Shaded: the band of the approved sweep." : "No expectations were given for this cell.") }));
}

function coverageBlock(detail) {
  const entries = Object.entries(detail.coverage || {});
  return entries.length ? block("What was exercised", pairsTable(entries.map(([name, count]) =>
    [name.replace(/^rejections\.position\.(\d+)$/, (_, n) => `rejections at draft position ${Number(n) + 1}`).replaceAll(".", " "), count]))) : null;
}

function accuracyBlock(detail) {
  const m = detail.metrics || {};
  if (m["accuracy/documents"] === undefined) return null;
  const right = (arm) => percent(m[`accuracy/right.${arm}`]);
  return block("Task accuracy", pairsTable([
    ["documents", fmt(m["accuracy/documents"])],
    ["right, off", right("off")], ["right, control", right("null")], ["right, on", right("on")],
    ...(m["accuracy/lost"] === undefined ? [] : [["lost and gained", `${fmt(m["accuracy/lost"])} and ${fmt(m["accuracy/gained"])} (p = ${fmt(m["accuracy/p_value"])})`]]),
  ]));
}

function powerBlock(row, detail) {
  const m = detail.metrics || {};
  if (m["power/prompts"] === undefined) return null;
  return block("What this promises", pairsTable([
    ["prompts compared", `${fmt(m["power/prompts"])} (needed for the claim: ${fmt(m["power/required"])})`],
    ["smallest share of faulty requests that would show", percent(m["power/visible_fault_rate"])],
    ["confidence for this cell", percent(m["power/confidence"])],
    ["confidence for the whole sweep", percent(m["power/sweep_confidence"])],
    ["sensitivity assumed", fmt(m["power/sensitivity"])],
    ["tokens compared", fmt(m["exposure/tokens"])],
    ["verification steps with a rejection", fmt(m["exposure/steps_with_rejection"])],
  ]));
}

function siblings(place) {
  const batch = data.axes.findIndex((axis) => axis.name === "batch_size"), row = data.rows[place];
  if (batch < 0) return [{ row, word: "this cell", here: true }];
  const same = data.rows.filter((other) => other.at.every((value, i) => i === batch || value === row.at[i]));
  same.sort((a, b) => a.at[batch] - b.at[batch]);
  return same.map((other) => ({ row: other, word: data.axes[batch].values[other.at[batch]], here: other === row }));
}
function speedBlock(place, row) {
  const speed = row.speed || {};
  if (!speed.on || !speed.off) return null;
  const line = (name, key, words) => [name, interval(speed.off[key], words), interval(speed.on[key], words)];
  return block("Speed", table(["", "off", "on"], [
    line("time to first token (median)", "first_token_seconds", seconds),
    line("time per output token", "seconds_per_output_token", seconds),
    ["output tokens a second", fmt(speed.off.tokens_per_second), fmt(speed.on.tokens_per_second)],
  ]), el("p", {}, "Speedup, on against off: ", el("strong", { text: interval(speed.speedup, times) })), speedupChart(siblings(place)),
  el("p", { class: "soft", text: "95 % intervals over prompts; each arm was launched once, so what differs between launches is not in them." }));
}

function reuseBlock(detail) {
  const known = (detail.turns || []).filter((turn) => turn.cached_on !== undefined || turn.cached_off !== undefined);
  return known.length ? block("Prompt tokens taken from the cache", table(["turn", "requests", "prompt tokens", "from cache, off", "from cache, on"],
    known.map((t) => [t.turn === 1 ? "first" : `${t.turn}. time`, t.requests, t.prompt_tokens, t.cached_off ?? "", t.cached_on ?? ""]))) : null;
}

const ROLE = { on: "on arm (speculation)", A: "off arm A (scores)", B: "control launch B (off)" };
function launchBlock(detail) {
  const ids = Object.entries(detail.launches || {}).filter(([, id]) => id && launchOf(id));
  if (!ids.length) return null;
  const facts = ids.map(([, id]) => launchOf(id).facts || {});
  const [on, off] = [ids.find(([role]) => role === "on"), ids.find(([role]) => role === "A")];
  return block("How each arm was run", ids.map(([role, id]) => launchView(role, launchOf(id))),
    on && off ? differences(launchOf(on[1]).facts || {}, launchOf(off[1]).facts || {}) : null);
}
function launchView(role, launch) {
  const copy = el("button", { class: "copy", onclick: () => navigator.clipboard && navigator.clipboard.writeText(launch.command), text: "Copy" });
  const versions = ["engine", "version", "torch_version", "cuda_runtime_version", "python_version", "device", "dtype"].filter((k) => (launch.facts || {})[k] !== undefined);
  return el("div", { class: "site" }, el("strong", { text: `${ROLE[role] || role}: ${launch.end}` }), " ", launch.command ? copy : null,
    launch.command ? el("pre", { text: launch.command }) : null,
    pairsTable([...versions.map((k) => [k.replaceAll("_", " "), launch.facts[k]]),
      ...Object.entries(launch.checkpoints || {}).map(([k, v]) => [`${k} content hash`, v]),
      ...(launch.hardware ? [["hardware", hardware(launch.hardware)]] : []),
      ...(launch.ready_seconds ? [["ready after", seconds(launch.ready_seconds)]] : [])]),
    launch.facts && Object.keys(launch.facts).length ? more("all that the engine reports of itself", pairsTable(Object.entries(launch.facts).map(([k, v]) => [k, words(v)]))) : null,
    launch.log ? more("end of its log", el("pre", { text: launch.log })) : null);
}
function hardware(one) {
  return Object.entries(one).filter(([, v]) => v !== "" && !(Array.isArray(v) && !v.length)).map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ");
}
function differences(on, off) {
  const names = [...new Set([...Object.keys(on), ...Object.keys(off)])].sort().filter((k) => JSON.stringify(on[k]) !== JSON.stringify(off[k]));
  return names.length ? more(`what the engine reports differently in both arms (${names.length})`, table(["", "off", "on"],
    names.map((k) => [k, off[k] === undefined ? "" : words(off[k]), on[k] === undefined ? "" : words(on[k])]))) : null;
}
