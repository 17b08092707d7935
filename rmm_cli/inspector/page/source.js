// Where the data come from: a server on this machine, or blocks of this very file.

const page = JSON.parse(byId("page").textContent);
const mayDelete = Boolean(page.write);
const USERS_AT_ONCE = 50;

async function asked(method, path, values, body) {
  const headers = { "X-Inspector-Token": page.token };
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    const address = `api/${path}?${new URLSearchParams(values)}`;
    response = await fetch(address, { method, headers, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("rmm inspect does not answer: it was stopped. Start it again, and open the address it prints.");
  }
  const answer = await response.json().catch(() => ({ error: `the answer was ${response.status}, and no JSON` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

const served = {
  users: (find, start) => asked("GET", "users", { find, start }),
  user: (user) => asked("GET", "user", { user }),
  learning: (user) => asked("GET", "learning", { user }),
  explain: (user, query) => asked("POST", "explain", {}, { user, query }),
  deleteMemory: (user, memory) => asked("DELETE", "memory", { user, memory }),
  forgetUser: (user) => asked("DELETE", "user", { user }),
};

const block = (id) => JSON.parse(byId(id).textContent);

function place(user) {
  const found = page.users.findIndex((row) => row.id === user);
  if (found < 0) throw new Error("this file holds no such user");
  return found;
}

const filed = {
  users: async (find, start) => {
    const rows = page.users.filter((row) => row.id.toLowerCase().includes(find.toLowerCase()));
    return { total: page.users.length, matching: rows.length, rows: rows.slice(start, start + USERS_AT_ONCE) };
  },
  user: async (user) => block(`user-${place(user)}`),
  learning: async (user) => block(`learning-${page.shared ? 0 : place(user)}`),
};

const source = page.token ? served : filed;

/** A user's data, with what follows from them. */
function known(data) {
  const turns = new Map();
  for (const { id, turns: own } of data.held) for (const turn of own) turns.set(`${turn.index} ${id}`, turn);
  for (const memory of data.memories) {
    memory.turns = memory.evidence.map(([session, index]) => turns.get(`${index} ${session}`));
    memory.shown = [];
  }
  data.memory = new Map(data.memories.map((memory) => [memory.id, memory]));
  for (const answer of data.answers) {
    for (const [id, cited] of answer.shown) data.memory.get(id)?.shown.push({ answer, cited: Boolean(cited) });
  }
  return data;
}

/** What a memory is found by: all it says and said, and what it rests on. */
function haystack(memory) {
  memory.haystack ??= [
    memory.summary,
    ...memory.history.map(([summary]) => summary),
    ...memory.turns.filter(Boolean).map((turn) => `${turn.speaker}: ${turn.text}`),
  ]
    .join("\n")
    .toLowerCase();
  return memory.haystack;
}

const found = (memories, wanted) =>
  wanted.length ? memories.filter((m) => wanted.every((word) => haystack(m).includes(word))) : memories;
