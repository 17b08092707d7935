// What citations taught: who serves and why, the curve, the weights.

const MEANING = {
  similarity: "its embedding is like the query's",
  own: "words shared with its own text",
  window: "words shared with the turns around it",
  session: "words shared with its session",
  session_similarity: "something else of its session is like the query",
  neighbours: "the memories of the turns next to it are like the query",
  speaker: "the query names who said it",
  length: "it has many words",
  question: "it ends in a question",
  dated: "the query asks when, and it has a word of time",
  number: "it holds a figure",
  early: "it was said early in its session",
  cited: "cited for a question like this one",
  passed_over: "shown for a question like this one, and not cited",
};
const NAMES = { learned: "learned", prior: "base" };
const spaced = (name) => name.replaceAll("_", " ");

function learningView(data) {
  const waiting = "Learning the log anew, from its first answer …";
  const view = h("div", {}, h("p", { class: "count", role: "status" }, waiting));
  source.learning(data.id).then(
    (learned) => view.replaceChildren(...learnedParts(learned)),
    (error) => view.replaceChildren(failure(error)),
  );
  return view;
}

function learnedParts(learned) {
  const updates = plural(learned.updates, "update");
  const scale = "What each thing counts, in units of similarity: the bar is now, the mark where learning began.";
  return [
    h(
      "div",
      { class: "lead" },
      h("p", { class: `serves ${learned.ranking}` }, `The ${NAMES[learned.ranking]} ranking serves`),
      h("p", {}, sentence(learned.reason)),
      h("p", { class: "meta" }, learned.shared ? `${updates} from the answers of all users of this store` : updates),
    ),
    ...(learned.steps.length ? [curveFigure(learned.steps, learned.decisions)] : []),
    h("section", {}, h("h3", {}, "Decisions of the guard"), decisionList(learned.decisions)),
    h("section", {}, h("h3", {}, "Weights"), h("p", { class: "meta" }, scale), weightTable(learned.weights)),
  ];
}

function decisionList(decisions) {
  const entry = (ranking, label, title, reason) =>
    h("li", { class: ranking }, h("p", { class: "label" }, label), h("p", {}, h("strong", {}, title), reason));
  const later = decisions.map(({ ranking, answers, reason }, i) => {
    const title = ranking === "learned" ? "The learned ranking begins to serve" : "Back to the base ranking";
    return entry(ranking, `${i + 1} · after ${plural(answers, "answer")}`, title, `: ${reason}.`);
  });
  const first = entry("prior", "From the start", "The base ranking serves", ": it owes nothing to citations.");
  return h("ol", { class: "decisions" }, first, later);
}

function weightTable(weights) {
  const bar = bars(weights.flatMap(([, start, now]) => [start, now]));
  const heads = ["What", "Start", "Now"].map((name) => h("th", { scope: "col" }, name));
  const rows = weights.map(([name, start, now]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, spaced(name), h("small", {}, MEANING[name])),
      h("td", {}, figure(start, 2)),
      h("td", {}, figure(now, 2)),
      h("td", { class: "bars" }, bar(now, start)),
    ),
  );
  const last = h("th", { scope: "col", class: "bars" }, unseen("As a bar"));
  return h("table", { class: "weights" }, h("thead", {}, h("tr", {}, heads, last)), h("tbody", {}, rows));
}

// -- the curve ------------------------------------------------------------------------------------------------------

function curveFigure(steps, decisions) {
  const width = Math.max(1, Math.min(25, Math.ceil(steps.length / 4)));
  const mean = smoothed(steps, width);
  const frame = h("div", { class: "curve" });
  const draw = () => frame.replaceChildren(curve(steps, mean, decisions, Math.max(frame.clientWidth, 240)));
  new ResizeObserver(draw).observe(frame);
  const line = width > 1 ? `, the line the mean of the last ${width}` : "";
  const legend = ["prior", "learned"].map((r) => h("span", { class: r }, `${NAMES[r]} ranking serves`));
  return h(
    "figure",
    {},
    h(
      "figcaption",
      {},
      h("h3", {}, "Share of the shown memories that answers cited"),
      h("p", { class: "meta" }, `${plural(steps.at(-1)[0], "answer")}; a dot is an update${line}.`),
    ),
    frame,
    h("p", { class: "legend" }, legend),
    h("details", { class: "as-table" }, h("summary", {}, "The same as a table"), curveTable(steps, mean)),
  );
}

/** The mean over the last steps at each of them. */
function smoothed(steps, width) {
  let sum = 0;
  return steps.map(([, cited], i) => {
    sum += cited - (i >= width ? steps[i - width][1] : 0);
    return sum / Math.min(i + 1, width);
  });
}

function curveTable(steps, mean) {
  const body = h("tbody");
  const heads = ["Answers", "Cited", "Mean", "Serves"].map((name) => h("th", { scope: "col" }, name));
  const rows = steps.map(([answers, cited, learned], i) => {
    const serves = learned ? NAMES.learned : NAMES.prior;
    return [counted.format(answers), percent(cited), percent(mean[i]), serves];
  });
  const [, more] = paged(body, rows, AT_ONCE, (row) => [h("tr", {}, row.map((cell) => h("td", {}, cell)))]);
  return [h("table", {}, h("thead", {}, h("tr", {}, heads)), body), more];
}

function curve(steps, mean, decisions, width) {
  const [left, right, top, bottom] = [36, 6, 22, 40];
  const height = Math.round(Math.min(300, Math.max(200, width * 0.4)));
  const floor = height - bottom;
  const answers = steps.at(-1)[0];
  const most = Math.min(1, Math.ceil(Math.max(...steps.map(([, cited]) => cited), 0.2) * 5) / 5);
  const x = (n) => left + (n / answers) * (width - left - right);
  const y = (share) => floor - (share / most) * (floor - top);
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(part * most), y2: y(part * most) }),
    svg("text", { class: "tick", x: left - 8, y: y(part * most) + 4, "text-anchor": "end" }, percent(part * most)),
  ]);
  const ticks = round(answers, width < 480 ? 3 : 6).map((n) => {
    const place = { x: x(n), y: height - 8, "text-anchor": n === 0 ? "start" : x(n) > width - 24 ? "end" : "middle" };
    return svg("text", { class: "tick", ...place }, n ? counted.format(n) : "0 answers");
  });
  const lanes = [{ answers: 0, ranking: "prior" }, ...decisions].map((d, i) => {
    const [from, to] = [x(d.answers), x(decisions[i]?.answers ?? answers)];
    return svg("rect", { class: `lane ${d.ranking}`, x: from, y: floor + 5, width: to - from, height: 6 });
  });
  const switches = decisions.map((d, i) => [
    svg("line", { class: "switch", x1: x(d.answers), x2: x(d.answers), y1: top - 6, y2: floor + 11 }),
    svg("text", { class: "number", x: x(d.answers), y: top - 10, "text-anchor": "middle" }, String(i + 1)),
  ]);
  const dots = steps.map(([n, share]) => svg("circle", { class: "dot", cx: x(n), cy: y(share), r: 2 }));
  const from = Math.min(4, steps.length - 1); // a mean of fewer says little
  const path = steps.slice(from).map(([n], i) => `${i ? "L" : "M"}${x(n).toFixed(1)} ${y(mean[from + i]).toFixed(1)}`);
  const ends = `${percent(mean[from])} at first, ${percent(mean.at(-1))} after ${plural(answers, "answer")}`;
  const label = `Share cited: ${ends}. Another ranking began to serve ${plural(decisions.length, "time")}.`;
  const size = { viewBox: `0 0 ${width} ${height}`, width, height };
  const line = svg("path", { class: "mean", d: path.join("") });
  return svg("svg", { ...size, role: "img", "aria-label": label }, grid, ticks, lanes, dots, line, switches);
}

/** Round numbers from 0 to at most `end`, about so many. */
function round(end, about) {
  const power = 10 ** Math.floor(Math.log10(end / about));
  const step = Math.max(1, [1, 2, 5, 10].map((f) => f * power).find((s) => s >= end / about));
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}
