"""serve-soak.py TP_RUN MODEL [SECONDS [GARBAGE]] - tp-run serve under bad and good clients for a long time

GARBAGE (10^5) requests that are none, of several connections at a time, beside clients that stream, that leave in the
middle, and that ask for vectors of log-probabilities, for SECONDS (1800).  Afterwards the server answers as at first,
and has no more descriptors, running texts or blocks, and not much more memory.  Needs nothing but Python; ends with
status 1 at the first surprise."""
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

tp_run, model = sys.argv[1:3]
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1800
garbage = int(sys.argv[4]) if len(sys.argv) > 4 else 10**5
BODY = '{"prompt":"Hello","max_tokens":%d,"seed":%d,"ignore_eos":true,"stream":%s}'


def whole(method, path, body=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()


def broken(r):
    """Bytes that are no request, or one that is refused."""
    kind = r.randrange(8)
    if kind == 0:
        return bytes(r.randrange(256) for _ in range(r.randrange(400)))
    good = bytearray(whole("POST", r.choice(["/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/"]),
                           r.choice([BODY % (3, 1, "true"), '{"messages":[{"role":"user","content":"x"}]}', "[" * 99, ""])))
    if kind == 1:
        return bytes(good[: r.randrange(len(good))])
    if kind == 2:
        return bytes(good).replace(b"Content-Length: ", b"Content-Length: 9")
    if kind == 3:
        return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n{}" % r.randrange(2**40)
    if kind == 4:
        return bytes(good) * 3
    for _ in range(1 + r.randrange(6)):
        good[r.randrange(len(good))] = r.randrange(256)
    return bytes(good)


class Server:
    def __init__(self):
        self.process = subprocess.Popen([tp_run, "serve", "--backend", "cpu", "--listen", "127.0.0.1:0", "--body-timeout", "5",
                                         "--idle-timeout", "5", "--header-timeout", "5", model], stdout=subprocess.PIPE, text=True)
        url = urllib.parse.urlparse(json.loads(self.process.stdout.readline())["url"])
        self.at = (url.hostname, url.port)

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection(*self.at, timeout=120)
        c.request(method, path, body)
        answer = c.getresponse()
        text = answer.read().decode()
        c.close()
        return answer.status, text

    def metric(self, name):
        lines = self.ask("GET", "/metrics")[1].splitlines()
        return next(float(x.split()[-1]) for x in lines if x.startswith("vllm:" + name + "{"))

    def held(self):
        pid = self.process.pid
        with open(f"/proc/{pid}/statm") as f:
            pages = int(f.read().split()[1])
        return len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGESIZE")


def check(what, good):
    print("ok" if good else "NOT OK", "-", what, flush=True)
    if not good:
        os._exit(1)


server = Server()
try:
    stop = time.monotonic() + seconds
    left, counts, errors = [garbage], {"garbage": 0, "streams": 0, "left": 0, "told": 0}, []
    lock = threading.Lock()
    first = [server.ask("POST", "/v1/completions", BODY % (20, i, "false"))[1].split('"choices"')[1] for i in range(5)]

    def attack(seed):
        r = random.Random(seed)
        while True:
            with lock:
                if left[0] <= 0:
                    return
                left[0] -= 1
                counts["garbage"] += 1
            try:
                with socket.create_connection(server.at, timeout=20) as s:
                    s.sendall(broken(r))
                    if r.random() < .5:
                        s.shutdown(socket.SHUT_WR)
                        s.recv(4096)
            except OSError:
                pass

    def use(seed):
        r = random.Random(seed)
        while time.monotonic() < stop or left[0] > 0:
            i = r.randrange(5)
            try:
                if r.random() < .3:
                    with socket.create_connection(server.at, timeout=60) as s:
                        s.sendall(whole("POST", "/v1/completions", BODY % (200, i, "true")))
                        s.recv(200)
                    name = "left"
                elif r.random() < .3:
                    status, _ = server.ask("POST", "/v1/completions",
                                           '{"prompt":"%s","max_tokens":0,"echo":true,"logprobs":2}' % ("Hello " * (i + 1)))
                    name = "told"
                    if status != 200:
                        errors.append(status)
                else:
                    status, text = server.ask("POST", "/v1/completions", BODY % (20, i, "false"))
                    name = "streams"
                    if status == 200 and text.split('"choices"')[1].split('"usage"')[0] != first[i].split('"usage"')[0]:
                        errors.append(text)
                with lock:
                    counts[name] += 1
            except OSError as e:
                errors.append(e)

    def run(n, *functions):
        threads = [threading.Thread(target=f, args=(i,)) for f in functions for i in range(n)]
        for t in threads:
            t.start()
        return threads

    warm = run(4, use)  # what a server allocates when it is busy for the first time
    time.sleep(min(5, seconds / 4))
    files, memory = server.held()
    for t in warm + run(4, attack):
        t.join()
    print(counts, errors[:3])
    check("good clients are answered as alone", not errors)
    check("the server lives", server.process.poll() is None)
    for _ in range(600):
        if server.metric("num_requests_running") == 0 and server.held()[0] <= files:
            break
        time.sleep(.1)
    now = server.held()
    check("no text runs", server.metric("num_requests_running") == 0 and server.metric("num_requests_waiting") == 0)
    check("no block of the cache is held", server.metric("kv_cache_usage_perc") == 0)
    check(f"no descriptor is left: {files}, {now[0]}", now[0] <= files)
    check(f"nor much memory: {memory >> 20} MiB, {now[1] >> 20} MiB", now[1] < memory * 1.2 + (32 << 20))
    check("it answers as at first", all(server.ask("POST", "/v1/completions", BODY % (20, i, "false"))[1].split('"choices"')[1]
                                        .split('"usage"')[0] == first[i].split('"usage"')[0] for i in range(5)))
    server.process.terminate()
    check("and ends", server.process.wait(60) == 0)
finally:
    server.process.kill()
