"""A server of chat completions that answers right (digits backwards) and may go away; or a program that samples."""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def answer(prompt):
    return prompt.split()[1][::-1]


class Handler(BaseHTTPRequestHandler):
    asked = 0

    def reply(self, body, code=200):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply({"data": []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Handler.asked += 1
        if not Path(body["model"], "config.json").is_file():
            self.reply({"error": "no such model"}, 404)
        elif Handler.asked > goes_away_after:
            self.server.socket.close()
        else:
            text = answer(body["messages"][-1]["content"])
            choice = {"message": {"content": text}, "finish_reason": "stop"}
            self.reply({"choices": [choice], "usage": {"completion_tokens": len(text)}})

    def log_message(self, *_):
        pass


if sys.argv[1] == "serve":
    goes_away_after = int(sys.argv[3])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
else:
    request = json.loads(Path(sys.argv[2]).read_text())
    assert request["purpose"] == "evaluate"
    lines = [json.loads(x) for x in Path(request["tasks"]).read_text().splitlines()]
    print("what I was asked:", lines)
    if sys.argv[1] in ("is killed", "is killed once") and not (told := Path(sys.argv[3])).exists():
        told.touch(exist_ok=True)
        if sys.argv[1] == "is killed":
            told.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "waits":
        Path(sys.argv[3]).write_text(request["tasks"])
        time.sleep(600)
    if sys.argv[1] == "fails":
        sys.exit(3)
    with open(Path(request["rollouts"]), "w") as f:
        for n, x in enumerate(lines):
            for _ in range(request["attempts"] - (n == 0)):  # one is missing
                f.write(
                    json.dumps({"task": x["task"], "prompt": x["prompt"], "text": answer(x["prompt"]), "reward": 0})
                    + "\n"
                )
