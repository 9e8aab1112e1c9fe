// Small charts as SVG. Each line differs by its dashes too, and is named at its end.

const NS = "http://www.w3.org/2000/svg";
function svg(tag, props, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(props || {})) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}
function label(x, y, text, props = {}) {
  return svg("text", { x, y, ...props }, String(text));
}
function frame(width, height, title) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title }, svg("title", {}, title));
}

// How many tokens have at least a regret, on against the control: log-log, steps.
function regretChart(detail) {
  const arms = [["on", "on"], ["null", "control"], ["off", "off"]].filter(([arm]) => detail.curves && detail.curves[arm]);
  const points = arms.flatMap(([arm]) => detail.curves[arm].points);
  if (!points.length) return null;
  const width = 640, height = 260, left = 52, right = 86, top = 14, bottom = 40;
  const marks = [detail.floor, detail.ceiling].filter((x) => x > 0);
  const low = Math.min(1e-3, ...points.map((p) => p[0])), high = Math.max(1, ...marks, ...points.map((p) => p[0])) * 1.3;
  const most = Math.max(...points.map((p) => p[1]), 2);
  const x = (v) => left + ((width - left - right) * Math.log(Math.max(v, low) / low)) / Math.log(high / low);
  const y = (n) => height - bottom - ((height - top - bottom) * Math.log(Math.max(n, 0.7) / 0.7)) / Math.log(most / 0.7);
  const chart = frame(width, height, "tokens with at least a regret, on arm against control");
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
    chart.append(svg("line", { class: "axis", x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: height - bottom }));
    chart.append(label(x(10 ** power), height - bottom + 16, 10 ** power, { "text-anchor": "middle" }));
  }
  for (let power = 0; 10 ** power <= most; power++) chart.append(label(left - 8, y(10 ** power) + 4, 10 ** power, { "text-anchor": "end" }));
  chart.append(svg("path", { class: "axis", d: `M${left} ${top}V${height - bottom}H${width - right}` }));
  chart.append(label(left, height - 6, "regret of an emitted token, nats (log scale); up: tokens with at least that much"));
  if (detail.ceiling > 0) {
    chart.append(svg("line", { class: "limit", x1: x(detail.ceiling), x2: x(detail.ceiling), y1: top, y2: height - bottom }));
    // Right of it are the arms' own labels.
    chart.append(label(x(detail.ceiling) - 4, top + 10, `ceiling ${fmt(detail.ceiling)}`, { "text-anchor": "end" }));
  }
  const ends = [];
  for (const [arm, name] of [...arms].reverse()) {
    const curve = detail.curves[arm].points;
    if (!curve.length) continue;
    let path = `M${x(curve[0][0])} ${height - bottom}V${y(curve[0][1])}`;
    for (const [nats, count] of curve.slice(1)) path += `H${x(nats)}V${y(count)}`;
    chart.append(svg("path", { class: arm, d: path }));
    ends.push([arm, name, x(curve[0][0]), curve[0][0]]);
  }
  ends.sort((a, b) => b[2] - a[2]).forEach(([arm, name, , worst], row) => {
    chart.append(label(width - right + 6, top + 14 + 16 * row, `${name} ≤ ${fmt(worst)}`, { class: arm }));
  });
  return chart;
}

// Acceptance at each draft position with interval, and the band that is expected.
function acceptanceChart(rates) {
  const at = rates.filter((rate) => rate.position !== undefined);
  if (!at.length) return null;
  const step = 74, left = 44, top = 16, height = 210, bottom = 40, width = left + step * at.length + 20;
  const y = (v) => height - bottom - (height - top - bottom) * Math.min(1, Math.max(0, v));
  const chart = frame(Math.max(width, 300), height, "acceptance rate at each draft position");
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(svg("line", { class: "axis", x1: left, x2: width - 20, y1: y(v), y2: y(v) }));
    chart.append(label(left - 8, y(v) + 4, v, { "text-anchor": "end" }));
  }
  at.forEach((rate, place) => {
    const x = left + step * (place + 0.5), { value, low, high } = rate.estimate;
    if (rate.expected) chart.append(svg("rect", { class: "band", x: x - 22, width: 44, y: y(rate.expected.high), height: Math.max(2, y(rate.expected.low) - y(rate.expected.high)) }));
    if (low !== undefined) chart.append(svg("path", { class: "on", d: `M${x} ${y(low)}V${y(high)}M${x - 7} ${y(low)}h14M${x - 7} ${y(high)}h14` }));
    chart.append(svg("circle", { class: "dot", cx: x, cy: y(value), r: 4.5 }));
    chart.append(label(x + 9, y(value) - 6, fmt(value), { class: "ink" }));
    chart.append(label(x, height - bottom + 16, rate.position + 1, { "text-anchor": "middle" }));
  });
  chart.append(label(left, height - 6, "draft position"));
  return chart;
}

// Speedups of the cells that differ in batch size alone, with intervals, about the line at 1.
function speedupChart(cells) {
  const known = cells.filter((cell) => cell.row.speed && cell.row.speed.speedup);
  if (!known.length) return null;
  const width = 560, left = 84, line = 30, height = 26 + line * known.length + 22;
  const values = known.flatMap(({ row: { speed: { speedup: s } } }) => [s.low ?? s.value, s.high ?? s.value]);
  const low = Math.min(0.8, ...values) * 0.95, high = Math.max(1.25, ...values) * 1.05;
  const x = (v) => left + ((width - left - 90) * Math.log(v / low)) / Math.log(high / low);
  const chart = frame(width, height, "speedup by batch size");
  chart.append(svg("line", { class: "limit", x1: x(1), x2: x(1), y1: 6, y2: height - 20 }));
  chart.append(label(x(1), height - 4, "1× (as fast as off)", { "text-anchor": "middle" }));
  known.forEach(({ row, word, here }, place) => {
    const { value, low: from, high: to } = row.speed.speedup, y = 20 + line * place;
    chart.append(label(left - 10, y + 4, word, { "text-anchor": "end", class: here ? "ink" : "" }));
    if (from !== undefined) chart.append(svg("path", { class: "on", d: `M${x(from)} ${y}H${x(to)}M${x(from)} ${y - 6}v12M${x(to)} ${y - 6}v12` }));
    chart.append(svg("circle", { class: "dot", cx: x(value), cy: y, r: here ? 6 : 4 }));
    chart.append(label(x(to ?? value) + 10, y + 4, times(value), { class: "ink" }));
  });
  return chart;
}

function meter(share) {
  return svg("svg", { class: "meter", viewBox: "0 0 100 10", width: 140, height: 10, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "axis", x: 0, y: 0, width: 100, height: 10 }),
    svg("rect", { class: "dot-off", x: 0, y: 0, width: Math.max(0.5, 100 * share), height: 10 }));
}
