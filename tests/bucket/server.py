# SPDX-License-Identifier: MIT
"""A local S3 server (moto), and a proxy in front of it that misbehaves as stores and networks do."""

import hashlib
import http.client
import re
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Store:
    """moto's server, with one bucket."""

    bucket = "bucket"

    def __init__(self):
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        for _ in range(600):
            try:
                self.request("PUT", f"/{self.bucket}")
                return
            except OSError:
                time.sleep(0.1)
        sys.exit("moto does not start")

    def request(self, method, path, body=b"", **headers):
        """The body of the reply."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20300101/us-east-1/s3/aws4_request"}
        connection.request(method, path, body, {**signed, **headers})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {text[:300]!r}")
        return text

    def names(self, prefix=""):
        """The objects' names below a prefix, at most 1,000."""
        text = self.request("GET", f"/{self.bucket}?list-type=2&prefix={quote(prefix)}").decode()
        return re.findall(r"<Key>([^<]*)</Key>", text)

    def get(self, name):
        return self.request("GET", f"/{self.bucket}/{quote(name)}")

    def put(self, name, body):
        self.request("PUT", f"/{self.bucket}/{quote(name)}", body)

    def close(self):
        self.process.kill()
        self.process.wait()


class Proxy:
    """Forwards to the store. `fault(method, path)` returns what happens to a request, or None:
    an int: this status instead; "cut": half the request's body, then the end; "cut reply": half the reply's;
    "half": half the body is stored, with the reply to all of it; "old list": a listing as it once was."""

    def __init__(self, store):
        self.store, self.fault = store, lambda method, path: None
        self.bytes_per_second = None
        self.retry_after = None
        self.skew = 0  # seconds, of the clock
        self.latency = 0  # seconds, of each request
        self.conditions = 0  # requests with If-None-Match
        self.requests = 0
        self.faults = 0
        self.lists = {}
        self.port = free_port()
        self.open()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def open(self):
        proxy = self
        self.is_open = True

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                proxy.forward(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, *_):  # a client that was killed
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        """Connections are refused from now on, and those that are open end."""
        self.is_open = False
        self.server.shutdown()
        self.server.server_close()

    def heal(self):
        self.fault = lambda method, path: None
        self.bytes_per_second = self.retry_after = None
        self.skew = self.latency = 0

    def throttle(self, count):
        if self.bytes_per_second:
            time.sleep(count / self.bytes_per_second)

    def read_body(self, handler):
        if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b""
            while size := int(handler.rfile.readline().split(b";")[0], 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
            return body
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))

    def forward(self, handler):
        self.requests += 1
        self.conditions += "If-None-Match" in handler.headers
        time.sleep(self.latency)
        if not self.is_open:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        fault = self.fault(handler.command, handler.path)
        self.faults += fault is not None
        if fault == "cut":
            handler.rfile.read(int(handler.headers.get("Content-Length") or 0) // 2)
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        body = self.read_body(handler)
        self.throttle(len(body))
        if isinstance(fault, int):
            return self.refuse(handler, fault)
        if fault == "half":
            whole, body = body, body[: len(body) // 2]
        headers = {name: value for name, value in handler.headers.items()
                   if name.lower() not in ("host", "connection", "transfer-encoding", "content-length",
                                           "content-md5", "x-amz-content-sha256")}  # fmt: skip
        if fault != "half" and "x-amz-content-sha256" in handler.headers:
            headers["x-amz-content-sha256"] = handler.headers["x-amz-content-sha256"]
        connection = http.client.HTTPConnection("127.0.0.1", self.store.port, timeout=60)
        connection.request(handler.command, handler.path, body, headers)
        reply = connection.getresponse()
        content = reply.read()
        reply_headers = dict(reply.getheaders())
        connection.close()
        if fault == "half":
            reply_headers["ETag"] = f'"{hashlib.md5(whole).hexdigest()}"'
        if handler.command == "GET" and "list-type=2" in handler.path:
            if fault == "old list" and handler.path in self.lists:
                content = self.lists[handler.path]
            else:
                self.lists[handler.path] = content
        if self.skew:
            reply_headers["Date"] = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + self.skew))
        handler.send_response_only(reply.status)
        for name, value in reply_headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "server"):
                handler.send_header(name, value)
        length = reply_headers.get("Content-Length", "0") if handler.command == "HEAD" else str(len(content))
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if fault == "cut reply":
            content = content[: len(content) // 2]
            handler.close_connection = True
        for start in range(0, len(content), 4096):
            self.throttle(len(content[start : start + 4096]))
            handler.wfile.write(content[start : start + 4096])

    def refuse(self, handler, status):
        code = {403: "ExpiredToken", 500: "InternalError", 503: "SlowDown", 507: "QuotaExceeded"}[status]
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>a fault</Message></Error>".encode()
        handler.send_response_only(status)
        if self.retry_after is not None:
            handler.send_header("Retry-After", str(self.retry_after))
        handler.send_header("Content-Type", "application/xml")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(text)
