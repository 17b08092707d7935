// Elements out of names, properties and children. A child that is a string becomes a text node: nothing on this page
// makes markup out of a string.

function built(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const h = (name, properties = {}, ...children) => built(document.createElement(name), properties, children);
const svg = (name, properties = {}, ...children) =>
  built(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
const byId = (id) => document.getElementById(id);

/** Something for those who listen to the page, and not for those who see it. */
const unseen = (text) => h("span", { class: "unseen" }, text);

/** What somebody said: its direction is its own, and ends with it. */
const said = (text, properties = {}, name = "p") =>
  h(name, { dir: "auto", ...properties, class: `said ${properties.class ?? ""}`.trim() }, text);

/** The same, with the words that were searched for marked. */
function marked(text, wanted, properties = {}, name = "p") {
  const element = said("", properties, name);
  const lower = text.toLowerCase();
  const usable = lower.length === text.length ? wanted : []; // else a letter changed its length, and places do not fit
  let at = 0;
  for (;;) {
    const hits = usable.map((word) => [lower.indexOf(word, at), word.length]).filter(([place]) => place >= 0);
    if (!hits.length) break;
    const [place, length] = hits.reduce((a, b) => (b[0] < a[0] ? b : a));
    element.append(text.slice(at, place), h("mark", {}, text.slice(place, place + length)));
    at = place + length;
  }
  element.append(text.slice(at));
  return element;
}

const words = (text) => text.toLowerCase().split(/\s+/u).filter(Boolean);

const counted = new Intl.NumberFormat("en");
const plural = (count, one, many = `${one}s`) => `${counted.format(count)} ${count === 1 ? one : many}`;
const figure = (value, digits) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(digits);
const percent = (share) => `${Math.round(100 * share)}%`;
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const shape = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
const LONG = shape({ day: "numeric", month: "long", year: "numeric" });
const SHORT = shape({ day: "numeric", month: "short", year: "numeric" });
const DAY = shape({ day: "numeric", month: "short" });
const MONTH = shape({ month: "long", year: "numeric" });
const CLOCK = shape({ hour: "2-digit", minute: "2-digit" });

function when(iso, as = SHORT, properties = {}) {
  const at = new Date(iso);
  const title = `${LONG.format(at)}, ${CLOCK.format(at)} UTC`;
  return h("time", { datetime: iso, title, ...properties }, as.format(at));
}

/** Say something to those who listen to the page. */
const announce = (text) => {
  byId("status").textContent = text;
};

const nothing = (text) => h("p", { class: "empty" }, text);
const failure = (error) => h("p", { class: "error", role: "alert" }, error.message);

/** A list that is drawn in parts, the next one when asked for; `draw` gives the elements of one item. */
function paged(list, items, size, draw) {
  let drawn = 0;
  const more = h("button", { type: "button", class: "more", onclick: () => next().focus() });
  const next = () => {
    const part = items.slice(drawn, drawn + size).flatMap(draw);
    list.append(...part);
    drawn = Math.min(drawn + size, items.length);
    const left = items.length - drawn;
    more.textContent = `Show ${counted.format(Math.min(size, left))} more of ${counted.format(left)}`;
    more.hidden = !left;
    const reached = part.map((element) => element.querySelector("a, summary")).find(Boolean) ?? part[0];
    if (reached?.tabIndex < 0) reached.setAttribute("tabindex", "-1");
    return reached;
  };
  next();
  return [list, more];
}

/** A function that waits until it was not called for a moment. */
function settled(step, wait = 120) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(step, wait);
  };
}

/** A choice of one among few, as radio buttons. */
function choice(label, name, options, chosen, onchange) {
  const button = ([value, text]) => {
    const input = h("input", { type: "radio", name, checked: value === chosen, onchange: () => onchange(value) });
    return h("label", {}, input, h("span", {}, text));
  };
  return h("fieldset", { class: "choice" }, h("legend", { class: "unseen" }, label), options.map(button));
}

/** Bars of numbers, all on one scale around one zero. */
function bars(numbers) {
  const low = Math.min(0, ...numbers);
  const span = Math.max(0, ...numbers) - low || 1;
  return (value, start) => {
    const bar = h("span", { class: value < 0 ? "bar below" : "bar", "aria-hidden": "true" }, h("i"));
    bar.style.setProperty("--zero", -low / span);
    bar.style.setProperty("--now", Math.abs(value) / span);
    if (start !== undefined) {
      bar.style.setProperty("--start", (start - low) / span);
      bar.append(h("b"));
    }
    return bar;
  };
}
