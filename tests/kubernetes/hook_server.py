"""A server of webhooks whose answers are data, and which keeps the requests that it gets.

A path has an answer, a dictionary. Its members are those of the field `response` of a review, and:
  patch      a list is sent in base64, a text as it is;
  review     members of the review itself, over those that are right;
  raw        the whole answer: [code, headers, body];
  how        what else than an answer comes: see `Handler.misbehave`.
"""
import base64
import http.server
import json
import os
import socket
import ssl
import struct
import subprocess
import threading

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(directory, name):
    """Makes a certificate that signs others. Returns it in PEM."""
    openssl(directory, "req", "-x509", *KEY, "-days", "2", "-subj", "/CN=" + name, "-keyout", name + ".key", "-out",
            name + ".crt")
    with open(os.path.join(directory, name + ".crt")) as file:
        return file.read()


def certificate(directory, issuer, name, names):
    """Makes a certificate for some names. Returns a context of TLS that has it."""
    openssl(directory, "req", *KEY, "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".csr")
    with open(os.path.join(directory, name + ".ext"), "w") as file:
        file.write("subjectAltName=" + names + "\n")
    openssl(directory, "x509", "-req", "-in", name + ".csr", "-CA", issuer + ".crt", "-CAkey", issuer + ".key",
            "-CAcreateserial", "-days", "2", "-extfile", name + ".ext", "-out", name + ".crt")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(os.path.join(directory, name + end) for end in [".crt", ".key"]))
    return context


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        path, _, query = self.path.partition("?")
        review = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = self.server.hooks.take(path, query, self.headers, review)
        if "how" in answer:
            self.misbehave(answer["how"])
        elif "raw" in answer:
            code, headers, body = answer["raw"]
            self.send(code, headers, body.encode())
        else:
            body = json.dumps(reviewed(review, answer)).encode() + b" " * answer.get("blanks", 0)
            self.send(200, {"Content-Type": "application/json"}, body)

    def do_GET(self):
        self.server.hooks.take(self.path, "", self.headers, None)
        self.send(200, {}, b"{}")

    def misbehave(self, how):
        self.close_connection = True
        if how == "hang":
            self.server.hooks.ended.wait(20)
        elif how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        elif how == "garbage":
            self.wfile.write(b"\0\1garbage\r\n\r\n")
        elif how == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        elif how in ["endless", "slow"]:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            part = b" " * (10000 if how == "endless" else 1)
            try:
                while not self.server.hooks.ended.wait(0.05):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            except OSError:
                pass  # The other side does not read any more.
        else:
            assert how == "close", how

    def send(self, code, headers, body):
        try:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            if code not in [204, 304]:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(b"" if code in [204, 304] else body)
        except OSError:
            pass  # The other side does not read any more.

    def log_message(self, *_):
        pass


def reviewed(review, answer):
    """Returns the review with an answer to another one."""
    response = {"uid": review["request"]["uid"], "allowed": True}
    response.update({name: value for name, value in answer.items() if name not in ["review", "blanks"]})
    if isinstance(response.get("patch"), list):
        response["patch"] = base64.b64encode(json.dumps(response["patch"]).encode()).decode()
        response.setdefault("patchType", "JSONPatch")
    found = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
    return {**found, **answer.get("review", {})}


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, hooks, context):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hooks, self.context = hooks, context
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        # The handshake is made by the thread of the connection.
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, *_):
        pass  # Clients that refuse a certificate are meant to.


class Hooks:
    """The listeners with their certificates, the answers by paths, and the requests."""

    def __init__(self, directory):
        self.bundle = authority(directory, "ca")
        self.other_bundle = authority(directory, "other")
        contexts = {"right": certificate(directory, "ca", "right", "IP:127.0.0.1,DNS:localhost,DNS:hook.system.svc"),
                    "named": certificate(directory, "ca", "named", "DNS:a.example.com,DNS:b.example.com"),
                    "numbered": certificate(directory, "ca", "numbered", "IP:10.0.0.1"), "plain": None}
        self.ended = threading.Event()
        self.answers, self.requests, self.lock = {}, [], threading.Lock()
        self.listeners = {name: Listener(self, context) for name, context in contexts.items()}

    def url(self, path, listener="right", host="127.0.0.1"):
        return f"https://{host}:{self.listeners[listener].server_address[1]}{path}"

    def take(self, path, query, headers, review):
        with self.lock:
            self.requests.append((path, query, headers, review))
            answers = self.answers.get(path, {})
            # A list has an answer for each request, and the last one for all further ones.
            if isinstance(answers, list):
                return answers.pop(0) if len(answers) > 1 else answers[0]
            return answers

    def taken(self, prefix):
        """Returns the requests to the paths with a prefix, which are forgotten."""
        with self.lock:
            found = [request for request in self.requests if request[0].startswith(prefix)]
            self.requests = [request for request in self.requests if not request[0].startswith(prefix)]
        return found

    def close(self):
        self.ended.set()
        for listener in self.listeners.values():
            listener.shutdown()
            listener.server_close()
