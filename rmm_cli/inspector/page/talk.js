// What was said, session by session; and what answers were shown and cited.

function sessionsView(data) {
  const newest = [...data.held].reverse();
  const pending = newest.filter((s) => s.pending);
  const rest = newest.filter((s) => !s.pending);
  const list = (sessions) => paged(h("ul", { class: "rows" }), sessions, AT_ONCE, (s) => [sessionEntry(s)]);
  const part = (title, sessions) => h("section", {}, title && h("h3", {}, title), list(sessions));
  if (!newest.length) return nothing("No session is stored.");
  return h(
    "div",
    {},
    pending.length > 0 && part("Pending: not reflected yet, or not to their end", pending),
    rest.length > 0 && part(pending.length > 0 && "Reflected", rest),
  );
}

function sessionEntry(session) {
  const talk = h("div", { class: "talk" });
  const opened = () => {
    if (!talk.childElementCount) {
      talk.append(...paged(h("ol", { class: "turns" }), session.turns, AT_ONCE, (turn) => [turnEntry(turn)]));
    }
  };
  const name = said(session.id, { class: "one-line" }, "bdi");
  const summary = h(
    "summary",
    {},
    when(session.at, LONG, { class: "name" }),
    h("span", { class: "meta" }, `${plural(session.turns.length, "turn")} · `, name),
  );
  if (session.pending) {
    const left = plural(session.turns.length - session.reflected, "turn");
    summary.append(h("span", { class: "why" }, `${left} not reflected: ${session.pending}`));
  }
  return h("li", {}, h("details", { ontoggle: opened }, summary, talk));
}

function turnEntry(turn) {
  const title = "All it says is known already: it is not filed again";
  return h(
    "li",
    { class: turn.role },
    h(
      "p",
      { class: "label" },
      speaker(turn),
      h("span", { class: "at" }, when(turn.at, CLOCK)),
      turn.from_memory && h("span", { class: "tag", title }, "from memory"),
    ),
    said(turn.text),
    attachments(turn),
  );
}

function answersView(data) {
  const newest = [...data.answers].reverse();
  if (!newest.length) return nothing("No answer has said yet what it cites. Each that does is an entry here.");
  const shown = newest.flatMap((answer) => answer.shown);
  const cited = shown.filter(([, c]) => c).length;
  const told = `The last ${plural(newest.length, "answer")} cited ${percent(cited / shown.length)} of what was shown.`;
  return h(
    "div",
    {},
    h("p", { class: "count" }, told),
    paged(h("ol", { class: "answers" }), newest, 50, (answer) => [answerEntry(data, answer)]),
  );
}

function answerEntry(data, answer) {
  const title = "Both rankings shared the places, by the toss of a coin";
  const shown = answer.shown.map(([id, cited]) => {
    const memory = data.memory.get(id);
    const link = () =>
      h("a", { href: address(data.id, "answers", id) }, said(memory.summary, { class: "one-line" }, "span"));
    return h(
      "li",
      { class: cited ? "cited" : null },
      h("span", { class: "mark" }, cited ? "cited" : unseen("not cited")),
      memory ? link() : h("span", {}, "not in the bank any more"),
    );
  });
  return h(
    "li",
    {},
    h(
      "p",
      { class: "label" },
      h("span", {}, when(answer.at), ", ", when(answer.at, CLOCK)),
      answer.duel && h("span", { class: "tag", title }, "duel"),
    ),
    answer.query === null
      ? h("p", { class: "quiet" }, "What was asked is not stored.")
      : said(answer.query, { class: "query" }),
    h("ol", { class: "slate" }, shown),
  );
}
