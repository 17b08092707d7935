// Where one is, as #/user/view/memory, each part encoded; and what stands there.

const VIEWS = [
  ["memories", "Memories", memoriesView],
  ["sessions", "Sessions", sessionsView],
  ["answers", "Answers", answersView],
  ["learning", "Learning", learningView],
  ["ask", "Query", askView],
];
const main = byId("main");
let shown = null; // the user whose page is drawn
let turn = 0; // counts the places gone to: what was loaded for an earlier one is dropped
let news = ""; // what to say when the next place is drawn

const address = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

function here() {
  try {
    return location.hash.slice(2).split("/").map(decodeURIComponent);
  } catch {
    return [""];
  }
}

/** Go somewhere, and load it anew: something has changed. */
function go(hash, told) {
  shown = null;
  news = told;
  location.hash = hash;
}

async function route() {
  const [user, view = "memories", memory] = here();
  const mine = ++turn;
  if (!memory) byId("detail").close();
  try {
    if (!user) await showUsers(mine);
    else if (shown?.data.id !== user) await showUser(user, mine);
    if (mine !== turn || !user) return;
    showView(view);
    if (memory) openDetail(shown.data, memory, () => here()[2] && (location.hash = address(user, view)));
  } catch (error) {
    if (mine !== turn) return;
    shown = null;
    main.classList.remove("loading");
    trail(user);
    main.replaceChildren(failure(error));
  }
}

/** Draw a place that is loaded, and have its title read out unless it is the first. */
function arrive(title, ...parts) {
  main.classList.remove("loading");
  main.replaceChildren(...parts);
  announce(news);
  news = "";
  if (turn > 1) title.focus();
}

// -- a user ---------------------------------------------------------------------------------------------------------

async function showUser(user, mine) {
  main.classList.add("loading");
  announce("Loading …");
  const data = known(await source.user(user));
  if (mine !== turn) return;
  const links = VIEWS.map(([view, title]) => h("a", { href: address(user, view), "data-view": view }, title));
  shown = { data, views: {}, links, panel: h("div", { class: "panel" }) };
  const title = said(user, { tabindex: "-1" }, "h1");
  const declined = h("p", { class: "note" }, "This user does not consent: nothing more is stored.");
  const forget = h("button", { type: "button", class: "danger", onclick: () => askToForget(data) });
  forget.append("Forget this user …");
  trail(user);
  arrive(
    title,
    h("div", { class: "who" }, title, !data.consents && declined, figures(data)),
    h("nav", { class: "views", "aria-label": "Views of this user" }, links),
    shown.panel,
    ...(mayDelete ? [h("p", { class: "forget" }, forget)] : []),
  );
}

function figures(data) {
  const entry = (name) => {
    const warn = name === "pending" && data.pending > 0;
    return h("div", { class: warn ? "warn" : null }, h("dt", {}, name), h("dd", {}, counted.format(data[name])));
  };
  return h("dl", { class: "figures" }, ["topics", "unfiled", "turns", "sessions", "pending"].map(entry));
}

function showView(wanted) {
  const [view, title, make] = VIEWS.find(([name]) => name === wanted) ?? VIEWS[0];
  for (const link of shown.links) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown.views[view] ??= h("section", {}, h("h2", { class: "unseen" }, title), make(shown.data));
  if (shown.panel.firstChild !== shown.views[view]) shown.panel.replaceChildren(shown.views[view]);
  document.title = `${title} · ${shown.data.id.slice(0, 80)} · ${page.store}`;
}

// -- all users ------------------------------------------------------------------------------------------------------

async function showUsers(mine) {
  shown = null;
  const list = h("ul", { class: "users" });
  const count = h("p", { role: "status", class: "count" });
  const more = h("button", { type: "button", class: "more", onclick: () => add(list.childElementCount) });
  let last = 0;
  const add = async (start) => {
    const own = ++last;
    const answer = await source.users(find.value, start).catch((error) => ({ error }));
    if (own !== last) return;
    if (answer.error) throw answer.error;
    if (!start) list.replaceChildren();
    list.append(...answer.rows.map(userEntry));
    const left = answer.matching - list.childElementCount;
    more.hidden = left <= 0;
    more.textContent = `Show more of ${counted.format(left)}`;
    const all = plural(answer.total, "user");
    count.textContent = find.value ? `${counted.format(answer.matching)} of ${all} match` : all;
    if (start) list.children[start]?.querySelector("a").focus();
  };
  const typed = settled(() => add(0).catch((error) => list.replaceChildren(failure(error))));
  const find = h("input", { type: "search", id: "find", autocomplete: "off", spellcheck: "false", oninput: typed });
  await add(0);
  if (mine !== turn) return;
  document.title = page.store;
  trail();
  const title = said(page.store, { tabindex: "-1" }, "h1");
  const field = h("div", { class: "field" }, h("label", { for: "find" }, "Find a user"), find);
  arrive(title, h("div", { class: "who" }, title), h("search", { class: "tools" }, field), count, list, more);
}

function userEntry(row) {
  const counts = [
    plural(row.topics, "topic"),
    `${counted.format(row.unfiled)} unfiled`,
    plural(row.sessions, "session"),
    plural(row.turns, "turn"),
  ];
  const pending = row.pending > 0 && h("span", { class: "warn" }, ` · ${counted.format(row.pending)} pending`);
  return h(
    "li",
    {},
    h("a", { href: address(row.id) }, said(row.id, { class: "clamped" }, "span")),
    h("p", { class: "meta" }, counts.join(" · "), pending),
  );
}

// -- around it ------------------------------------------------------------------------------------------------------

/** The way back from where one is. */
function trail(user) {
  const store = h("a", { href: "#/" }, said(page.store, { class: "one-line" }, "span"));
  byId("trail").replaceChildren(h("li", {}, "reflective-memory"), ...(user === undefined ? [] : [h("li", {}, store)]));
}

function about() {
  if (!page.token) return ["A copy of a store, written ", when(page.written), `: ${page.size} of data. Times are UTC.`];
  const told = mayDelete ? "memories and users can be deleted here" : "nothing can be changed here";
  return [`The store as it is; ${told}. Times are UTC.`];
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
byId("about").append(...about());
addEventListener("hashchange", route);
route();
