// One memory, in a dialog: what was said, what became of it, when it was cited. And what to ask before it is deleted.

const ORDER = ["told", "noted", "rewritten", "cited"];

function eventsOf(memory) {
  const versions = [...memory.history.map(([summary]) => summary), memory.summary];
  const events = memory.turns.map((turn) => ({ kind: "told", at: turn?.at ?? memory.created, turn }));
  if (memory.kind === "topic") events.push({ kind: "noted", at: memory.created, text: versions[0] });
  memory.history.forEach(([, at], i) => events.push({ kind: "rewritten", at, text: versions[i + 1] }));
  for (const { answer, cited } of memory.shown) {
    if (cited) events.push({ kind: "cited", at: answer.at, text: answer.query });
  }
  return events.sort((a, b) =>
    a.at < b.at ? -1 : a.at > b.at ? 1 : ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind),
  );
}

function eventEntry({ kind, at, turn, text }) {
  const label = (name, ...more) => h("p", { class: "label" }, name, h("span", { class: "at" }, when(at), more));
  const quiet = (words) => h("p", { class: "quiet" }, words);
  const parts = {
    told: () =>
      turn
        ? [label(speaker(turn), ", ", when(at, CLOCK)), said(turn.text), attachments(turn)]
        : [label("Said"), quiet("This turn is not stored any more.")],
    noted: () => [label("Noted as"), said(text, { class: "version" })],
    rewritten: () => [label("Rewritten as"), said(text, { class: "version" })],
    cited: () => [label("Cited"), text === null ? quiet("for a question that is not stored") : said(text)],
  };
  return h("li", { class: kind }, parts[kind]());
}

const speaker = (turn) => said(turn.speaker, { class: "speaker" }, "bdi");
const attachments = (turn) =>
  (turn.attachments ?? []).map(([kind, caption, uri]) =>
    said(`${kind}: ${[caption, uri].filter(Boolean).join(" · ")}`, { class: "attachment" }),
  );

/** Show a memory until the dialog is closed. */
function openDetail(data, id, closed) {
  const dialog = byId("detail");
  const memory = data.memory.get(id);
  const close = () => dialog.close();
  const gone = () => h("h2", { id: "detail-title" }, "It was deleted, or came after this page was loaded");
  const kind = { topic: "Topic", unfiled: "Unfiled turn" }[memory?.kind] ?? "Memory";
  dialog.replaceChildren(
    h(
      "header",
      {},
      h("p", { class: "kind" }, kind),
      h("button", { type: "button", class: "close", onclick: close }, "Close"),
    ),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-labelledby": "detail-title" },
      memory ? aboutMemory(memory) : gone(),
    ),
  );
  if (memory && mayDelete) {
    const button = h("button", { type: "button", class: "danger", onclick: () => askToDelete(data, memory) });
    button.append("Delete this memory …");
    dialog.append(h("footer", {}, button));
  }
  dialog.onclose = closed;
  dialog.onclick = (event) => event.target === dialog && close(); // beside it
  if (!dialog.open) dialog.showModal();
  dialog.querySelector(".close").focus();
}

const aboutMemory = (memory) => [
  said(memory.summary, { id: "detail-title", class: memory.summary.length > 200 ? "long" : "" }, "h2"),
  h("p", { class: "meta" }, facts(memory, true)),
  h("ol", { class: "events" }, eventsOf(memory).map(eventEntry)),
  h("p", { class: "id" }, "id ", h("code", {}, memory.id)),
];

/** Ask before something that cannot be undone. */
function ask(title, parts, label, step) {
  const dialog = byId("confirm");
  const failed = h("p", { class: "error", role: "alert" });
  const run = async () => {
    go.disabled = true;
    try {
      await step();
      dialog.close();
    } catch (error) {
      failed.textContent = error.message;
      go.disabled = false;
    }
  };
  const go = h("button", { type: "button", class: "danger", onclick: run }, label);
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const buttons = h("div", { class: "buttons" }, cancel, go);
  dialog.replaceChildren(h("h2", { id: "confirm-title" }, title), ...parts, failed, buttons);
  dialog.showModal();
  cancel.focus();
}

function askToDelete(data, memory) {
  const told = "It goes with its earlier versions and the turns that no other memory rests on. This cannot be undone.";
  ask("Delete this memory?", [h("p", {}, told)], "Delete", async () => {
    await source.deleteMemory(data.id, memory.id);
    go(address(data.id, here()[1]), "The memory is deleted.");
  });
}

function askToForget(data) {
  const kept = `${plural(data.memories.length, "memory", "memories")}, ${plural(data.turns, "turn")}`;
  const told = `${kept} and all answers are deleted, and the store is rewritten without them. This cannot be undone.`;
  ask("Forget this user?", [said(data.id, {}, "bdi"), h("p", {}, told)], "Forget", async () => {
    await source.forgetUser(data.id);
    go("#/", "The user is forgotten.");
  });
}
