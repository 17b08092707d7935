// A user's memories, on a timeline.

const AT_ONCE = 100;

function memoriesView(data) {
  const hasTopics = data.memories.some((m) => m.kind === "topic");
  const state = { text: "", kind: hasTopics ? "topic" : "all", order: "newest" };
  const results = h("div");
  const count = h("p", { role: "status", class: "count" });
  const draw = () => {
    const ofKind = data.memories.filter((m) => state.kind === "all" || m.kind === state.kind);
    const wanted = words(state.text);
    const matching = found(ofKind, wanted);
    const all = plural(ofKind.length, "memory", "memories");
    count.textContent = wanted.length ? `${counted.format(matching.length)} of ${all} match` : all;
    if (matching.length) results.replaceChildren(...timeline(data, byTime(matching, state.order), wanted));
    else results.replaceChildren(nothing(wanted.length ? "Nothing holds all of these words." : "Nothing is here yet."));
  };
  const set = (name) => (value) => {
    state[name] = value;
    draw();
  };
  const typed = settled(() => set("text")(search.value));
  const search = h("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false", oninput: typed });
  const kinds = [["topic", "Topics"], ["unfiled", "Unfiled turns"], ["all", "All"]];
  const orders = [["newest", "Newest"], ["oldest", "Oldest"]];
  draw();
  return h(
    "div",
    {},
    h(
      "search",
      { class: "tools" },
      h("div", { class: "field" }, h("label", { for: "search" }, "Search memories and what was said"), search),
      choice("Which memories", "kind", kinds, state.kind, set("kind")),
      choice("Which first", "order", orders, state.order, set("order")),
    ),
    count,
    results,
  );
}

function byTime(memories, order) {
  const oldest = [...memories].sort((a, b) => (a.updated < b.updated ? -1 : a.updated > b.updated ? 1 : 0));
  return order === "oldest" ? oldest : oldest.reverse();
}

/** Memories by month, in the order they are in. */
function timeline(data, memories, wanted) {
  let month = "";
  return paged(h("ol", { class: "timeline" }), memories, AT_ONCE, (memory) => {
    const entry = timelineEntry(data, memory, wanted);
    const before = month;
    month = MONTH.format(new Date(memory.updated));
    return month === before ? [entry] : [h("li", { class: "month" }, h("h3", {}, month)), entry];
  });
}

function timelineEntry(data, memory, wanted) {
  const earlier = [...memory.history].reverse().map(([summary, until]) =>
    h(
      "div",
      { class: "formerly" },
      h("p", { class: "label" }, h("span", {}, "Until ", when(until, SHORT))),
      marked(summary, wanted, { class: "clamped" }),
    ),
  );
  const summary = marked(memory.summary, wanted, { class: "clamped" }, "span");
  return h(
    "li",
    { class: `entry ${memory.kind}` },
    when(memory.updated, DAY, { class: "date" }),
    h(
      "div",
      { class: "body" },
      h("a", { href: address(data.id, "memories", memory.id) }, summary),
      h("p", { class: "meta" }, facts(memory)),
      earlier,
    ),
  );
}

/** What else is known of a memory, in few words, or some more. */
function facts(memory, more = false) {
  const seen = memory.shown.length;
  const cited = memory.shown.filter((s) => s.cited).length;
  const times = memory.history.length;
  return [
    memory.kind === "topic" ? plural(memory.evidence.length, "turn") : "unfiled",
    times > 0 && `rewritten ${times === 1 ? "once" : `${times} times`}`,
    seen > 0 && (more ? `cited by ${cited} of ${plural(seen, "answer")} that saw it` : `cited ${cited} of ${seen}`),
    !seen && memory.cited && `last cited ${SHORT.format(new Date(memory.cited))}`,
  ]
    .filter(Boolean)
    .join(" · ");
}
