"""The endpoint that cookbooks are tried against when they name a model."""

import json
import re
from http.server import BaseHTTPRequestHandler


class Endpoint(BaseHTTPRequestHandler):
    """An endpoint of OpenAI's kind that follows the offline rules, and reflects by repeating what was said."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(request)
        text, call = self.answer(request["messages"], request.get("tools", ()))
        if not request.get("stream"):
            return self.reply("application/json", json.dumps(self.body("message", text, [call] if call else None)))
        chunks = [self.body("delta", text[i : i + 3]) for i in range(0, len(text), 3)]
        if call:
            arguments = call["function"]["arguments"]
            named = {**call, "index": 0, "function": {**call["function"], "arguments": arguments[:4]}}
            rest = {"index": 0, "function": {"arguments": arguments[4:]}}
            chunks += [self.body("delta", None, [named]), self.body("delta", None, [rest])]
        chunks.append({**self.body("delta", None), "choices": []})  # as endpoints end that count tokens
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        return self.reply("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))

    def answer(self, messages, tools):
        prompt = "\n".join(m["content"] for m in messages if m["role"] in ("system", "user"))
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        if "extracted_memories" in prompt:
            said = re.findall(r"^\[(\d+)\] (.*[^?])$", prompt.rpartition("Now the real one.")[2], re.MULTILINE)
            found = [{"summary": text, "reference": [int(n)]} for n, text in said if "Assistant:" not in text]
            return json.dumps({"extracted_memories": found}), None
        if "history_summaries" in prompt:
            return "Add()", None
        found = messages[-1]["content"] if messages[-1]["role"] == "tool" else None
        reply = self.server.rules.reply(prompt, asked.rpartition("</memories>")[2].strip(), tools, found)
        if not reply.tool:
            return reply.text, None
        function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
        return "", {"id": "call-1", "type": "function", "function": function}

    @staticmethod
    def body(kind, text, calls=None):
        said = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "finish_reason": None if kind == "delta" else "stop", kind: said}
        return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}

    def reply(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass
