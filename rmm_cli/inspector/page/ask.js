// A query: both rankings side by side; in a file, which has no embedder, the memories that hold its words.

const ORDERS = [
  { by: "prior", title: "Base order", note: "The prior: it owes nothing to citations.", shown: "prior_shown" },
  { by: "learned", title: "Learned order", note: "What citations made of it.", shown: "shown" },
];

function askView(data) {
  const results = h("div");
  const count = h("p", { role: "status", class: "count" });
  const input = h("input", { type: "search", id: "query", autocomplete: "off" });
  const button = h("button", { type: "submit", class: "primary" }, source.explain ? "Rank" : "Find");
  const submitted = async (event) => {
    event.preventDefault();
    if (!input.value.trim()) return;
    button.disabled = true;
    count.textContent = "Searching …";
    try {
      const [told, parts] = source.explain ? await ranked(data, input.value) : filtered(data, input.value);
      count.textContent = told;
      results.replaceChildren(...parts);
    } catch (error) {
      count.textContent = "";
      results.replaceChildren(failure(error));
    }
    button.disabled = false;
  };
  const label = source.explain ? "What would be brought up for this?" : "Find memories by their words";
  const note =
    "A file holds no embedder, so this box finds the memories that hold all of the words. " +
    "To see both rankings side by side, serve the store: rmm inspect.";
  return h(
    "div",
    {},
    h(
      "form",
      { class: "ask", role: "search", onsubmit: submitted },
      h("label", { for: "query" }, label),
      h("div", {}, input, button),
    ),
    !source.explain && h("p", { class: "note" }, note),
    count,
    results,
  );
}

function filtered(data, text) {
  const matching = found(data.memories, words(text));
  const told = `${counted.format(matching.length)} of ${plural(data.memories.length, "memory", "memories")} match`;
  return [told, matching.length ? timeline(data, byTime(matching, "newest"), words(text)) : []];
}

async function ranked(data, query) {
  const explained = await source.explain(data.id, query);
  if (!explained.candidates.length) return ["", [nothing("Nothing is remembered that could be brought up.")]];
  const bar = bars(explained.candidates.flatMap((c) => c.terms.map(([, value]) => value)));
  const columns = ORDERS.map((order) => orderColumn(data, explained, order, bar));
  const serving = explained.ranking === "learned" ? "The learned order" : "The base order";
  const told = `${plural(explained.candidates.length, "candidate")}. ${serving} serves: ${explained.reason}.`;
  return [told, [h("div", { class: "columns", onpointerover: paired, onfocusin: paired }, columns)]];
}

function orderColumn(data, explained, { by, title, note, shown }, bar) {
  const serves = explained.ranking === by;
  const sorted = [...explained.candidates].sort((a, b) => a[by].rank - b[by].rank);
  const entry = (candidate) => [
    rankedEntry(data, candidate, by, serves ? candidate.shown : candidate[shown], serves && bar),
  ];
  return h(
    "section",
    { class: by, "aria-labelledby": `order-${by}` },
    h("h3", { id: `order-${by}` }, title, serves && h("span", { class: "tag" }, "serves")),
    h("p", { class: "meta" }, note),
    paged(h("ol", { class: "ranking" }), sorted, 10, entry),
  );
}

function rankedEntry(data, candidate, by, shown, bar) {
  const up = candidate.prior.rank - candidate.learned.rank;
  const [way, told, arrow] = up > 0 ? ["up", "up by", "↑"] : ["down", "down by", "↓"];
  const moved = h("span", { class: way }, unseen(told), ` ${arrow}${Math.abs(up)}`);
  const line = [
    h("span", {}, unseen("score "), figure(candidate[by].score, 2)),
    by === "learned" && up !== 0 && moved,
    shown !== null && h("span", { class: "tag" }, `shown as ${shown}`),
  ];
  const adds = unseen("what adds up to it");
  return h(
    "li",
    { class: shown === null ? null : "would", "data-memory": candidate.id },
    h("span", { class: "rank" }, unseen("rank "), String(candidate[by].rank)),
    h(
      "div",
      {},
      h("a", { href: address(data.id, "ask", candidate.id) }, said(candidate.summary, { class: "clamped" }, "span")),
      bar
        ? h("details", { class: "terms" }, h("summary", { class: "meta" }, line, adds), termTable(candidate, bar))
        : h("p", { class: "meta" }, line),
    ),
  );
}

function termTable(candidate, bar) {
  const adding = candidate.terms.filter(([, value]) => Math.abs(value) >= 0.005);
  const rows = adding.map(([name, value]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", title: MEANING[name] }, spaced(name)),
      h("td", {}, figure(value, 2)),
      h("td", { class: "bars" }, bar(value)),
    ),
  );
  return h("table", {}, h("caption", { class: "unseen" }, "What each thing adds to the score"), h("tbody", {}, rows));
}

/** The same memory stands out in both lists. */
function paired(event) {
  const id = event.target.closest("[data-memory]")?.dataset.memory;
  for (const item of event.currentTarget.querySelectorAll("[data-memory]")) {
    item.classList.toggle("paired", item.dataset.memory === id);
  }
}
