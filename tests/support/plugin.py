"""Installs the kubectl plugin with a fake kubectl."""

import json
import stat
import sys
from pathlib import Path

from tests.support.kubectl import FakeApi
from toolchain import plugin

# A fake kubectl. Its command `proxy` serves the objects of a JSON file.
KUBECTL = """#!{python}
import http.server, json, os, pathlib, socketserver, sys
from urllib.parse import urlsplit

here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
if "nobody" in " ".join(sys.argv):
    sys.exit("error: context nobody does not exist")
if sys.argv[1] != "proxy":
    sys.exit(1)
answers = json.loads((here / "answers").read_text())

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        found = answers.get(urlsplit(self.path).path)
        body = json.dumps(found or {{"reason": "NotFound", "message": "none"}}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

    def address_string(self):
        return ""

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

path = sys.argv[2].partition("=")[2]
assert oct(os.stat(os.path.dirname(path)).st_mode)[-3:] == "700"
server = Server(path, Handler)
print("Starting to serve on", path, flush=True)
server.serve_forever()
"""


def install(folder: Path, found: FakeApi) -> Path:
    plugin.main(folder)
    kubectl = folder / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    lists = {path: {"items": items} for path, items in found.lists.items()}
    (folder / "answers").write_text(json.dumps({**found.objects, **lists}))
    return folder
