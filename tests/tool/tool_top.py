#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser top` and `hawser metrics` (TAP): with a server and a bench; with the NCCL plugin and the NIXL backend;
with processes that report false values, never stop sending, or send nothing; over HTTP and as a file; and in a lab
where a NIC disappears. Debian's Prometheus scrapes the metrics and answers every query of the dashboard.
docs/metrics.md must list exactly the existing metrics.
Usage: tool_top.py PART HAWSER [NCCL-DRIVER PLUGIN FAKECUDA [NIXL-TEST BACKEND]], where PART is works, hostile, http,
plugins, prometheus, docs or lab"""
import contextlib
import http.client
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok, skip  # noqa: E402

PART, HAWSER = sys.argv[1], sys.argv[2]
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="hawser-top."))
SOCKETS = FOLDER / "s"
ENV = {**os.environ, "HAWSER_METRICS_DIR": str(SOCKETS), "LC_ALL": "C", "TERM": "xterm"}
PATIENCE = 60  # seconds, enough for a busy machine


def run(*argv, **options):
    return subprocess.run([HAWSER, *map(str, argv)], capture_output=True, text=True, timeout=PATIENCE, check=False, env=ENV, **options)


STARTED: list[subprocess.Popen] = []


def start(argv, **options):
    """Starts a program. main() kills the program if it is still running at the end."""
    p = subprocess.Popen(argv, env=ENV, **options)
    STARTED.append(p)
    return p


def wait_until(test, what):
    end = time.monotonic() + PATIENCE
    while not (result := test()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)
    return result


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stop(p, sig=signal.SIGTERM):
    p.send_signal(sig)
    return p.wait(PATIENCE)


@contextlib.contextmanager
def pair(*bench, node=lambda name, argv: argv, host="127.0.0.1", port=None):
    """Starts a server and a bench that runs until it is killed."""
    port = port or free_port()
    serve = start(node("a", [HAWSER, "serve", "--port", str(port)]), stdout=subprocess.PIPE, text=True)
    serve.stdout.readline()
    load = start(node("b", [HAWSER, "bench", f"{host}:{port}", "--duration", "300s", "--size", "1MiB", *bench]), stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL)
    try:
        yield serve, load
    finally:
        for p in (load, serve):
            stop(p, signal.SIGKILL if p is load else signal.SIGTERM)


def view(*argv):
    r = run("top", "--once", "--json", "--interval", "300ms", *argv)
    return json.loads(r.stdout)["contexts"] if r.returncode == 0 else []


def moving():
    c = view()
    return c if len(c) == 2 and all(x["sent_bytes_per_second"] + x["received_bytes_per_second"] > 0 for x in c) else None


def samples(text):
    """Returns [(name, {label: value}, number)]."""
    found = re.findall(r'^(\w+)(?:\{(.*)\})? (\S+)$', text, re.M)
    return [(n, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(v)) for n, labels, v in found]


def works():
    r = run("top", "--once", "--interval", "100ms")
    ok(r.returncode == 0 and "No hawser context" in r.stdout, "with nothing there top says so", r)
    with pair() as (serve, load):
        both = wait_until(moving, "bytes that move")
        ok({c["kind"] for c in both} == {"serve", "library"}, "both are found", both)
        kinds = {c["kind"]: c for c in both}
        ok(kinds["serve"]["pid"] == serve.pid and kinds["library"]["pid"] == load.pid, "with their process IDs", both)
        rail = kinds["library"]["rails"][0]
        ok(rail["nic"] == "lo" and rail["rails_up"] == rail["rails"] >= 1 and rail["tcp_rtt_seconds"] > 0, "and rails", rail)
        r = run("top", "--once")
        ok(r.returncode == 0 and re.search(rf"^ *{serve.pid} hawser +serve ", r.stdout, re.M), "a table has them", r.stdout)
        ok(max(map(len, r.stdout.splitlines())) <= 80 and "\033" not in r.stdout, "of 80 columns, without escapes where it is no terminal", r.stdout)
        p = start([HAWSER, "top", "-i", "200ms"], stdout=subprocess.PIPE, text=True)
        heads = 0
        for line in p.stdout:
            heads += line.startswith("hawser top")
            if heads == 3:
                break
        ok(heads == 3 and stop(p, signal.SIGINT) == 0, "it goes on until Ctrl-C")
        p.stdout.close()
        terminal()
        text = run("metrics").stdout
        mine = [x for x in samples(text) if x[1].get("pid") == str(load.pid)]
        ok(any(n == "hawser_sent_bytes_total" and v > 0 and labels["peer"].startswith("127.0.0.1:") for n, labels, v in mine), "metrics has the bytes", text)
        ok(all({"pid", "context", "process", "kind"} <= set(labels) for _, labels, _ in mine), "and whose they are", mine)
        series = [(n, tuple(labels.items())) for n, labels, _ in samples(text)]
        ok(len(series) == len(set(series)), "no series is there twice")
        stop(load, signal.SIGKILL)
        wait_until(lambda: len(view()) == 1, "a killed process that is gone")
        ok(True, "a killed process is gone from the table")
        ok(wait_until(lambda: [v for n, _, v in samples(run("metrics").stdout) if n == "hawser_peers_lost_total" and v == 1], "a lost peer"),
           "and to the other side a peer that was lost")
        ok(any(SOCKETS.glob(f"{load.pid}.*")), "its socket is still there: it may be about to listen")
        for s in SOCKETS.glob(f"{load.pid}.*"):
            os.utime(s, (1, 1), follow_symlinks=False)
        run("metrics")
        ok(not list(SOCKETS.glob(f"{load.pid}.*")), "an old one is removed by whoever looks")
    ok(not list(SOCKETS.iterdir()), "nothing is left", list(SOCKETS.iterdir()))
    quiet = start([HAWSER, "serve", "--port", str(free_port()), "--knob", "metrics=no"], stdout=subprocess.PIPE, text=True)
    quiet.stdout.readline()
    ok(not list(SOCKETS.iterdir()), "knob metrics=no: no socket")
    stop(quiet)
    quiet.stdout.close()


def terminal():
    """Tests top on a terminal: it draws, exits on q, and restores the terminal's settings."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(HAWSER, [HAWSER, "top", "-i", "200ms"], ENV)
    seen, asked, end = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if select.select([fd], [], [], 1)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
        if not asked and seen.count(b"hawser top") >= 3:
            os.write(fd, b"q")
            asked = True
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    ok(asked and status == 0, "the key q ends it", status)
    ok(seen.startswith(b"\033[?1049h") and seen.endswith(b"\033[?25h\033[?1049l"), "and the terminal is as before", seen[:40], seen[-40:])


class Liar:
    """A socket with the given name. say() writes the answer to each client."""

    def __init__(self, name, say):
        self.say, self.stopped = say, False
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(SOCKETS / name))
        self.socket.listen(8)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                c, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(c,), daemon=True).start()

    def answer(self, c):
        with contextlib.suppress(OSError):
            self.say(c, self)
        c.close()

    def close(self):
        self.stopped = True
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def stream(c, liar):
    while not liar.stopped:
        c.sendall(b"hawser_peers 1\n" * 4096)


def silence(c, liar):
    while not liar.stopped:
        time.sleep(0.05)


def say(text):
    return lambda c, liar: c.sendall(text)


def hostile():
    SOCKETS.mkdir(mode=0o700)
    end = b"# EOF\n"
    evil = b'hawser_info{version="1",transport="\xff",process="\x1b[31m\x07evil\xc3\x28",kind="a\nb"} 1\n'
    labels = b'hawser_info{version="1",transport="tcp",process="\x1b[31mevil\xff",kind="liar"} 1\nhawser_peers 7\n'
    many = b"".join(b'hawser_sent_bytes_total{peer="p%d",id="%d",nic="x",peer_nic="y"} %d\n' % (i, i, i) for i in range(5000))
    liars = [Liar("1.1", stream), Liar("1.2", silence), Liar("1.3", say(evil + end)), Liar("1.4", say(labels + end)), Liar("1.5", say(many + end)),
             Liar("1.6", say(b"hawser_peers 1\n")), Liar("1.7", say(b"")), Liar("1.8", say(b"hawser_peers 99999999999999999999999999999999999\nx 1\n" + end))]
    (SOCKETS / "1.9").write_text("a file")
    (SOCKETS / "1.10").symlink_to(SOCKETS / "1.4")
    (SOCKETS / "not-a-name").write_text("")
    os.mkfifo(SOCKETS / "1.11")
    began = time.monotonic()
    c = {x["context"]: x for x in view()}
    ok(time.monotonic() - began < PATIENCE / 2, "they hold nobody up")
    ok({n: x["state"] for n, x in c.items()} == {1: "bad", 2: "silent", 3: "bad", 4: "answered", 5: "answered", 6: "bad", 7: "bad", 8: "answered"},
       "each is judged by itself; a link, a file and a FIFO are left alone", {n: x["state"] for n, x in c.items()})
    ok(c[4]["process"] == "?[31mevil?" and c[4]["kind"] == "liar", "nothing that a terminal would obey is shown", c[4])
    ok({x["pid"] for x in c.values()} == {os.getpid()}, "the process ID is the kernel's word, not theirs", c)
    r = run("top", "--once", "--interval", "100ms")
    ok(r.returncode == 0 and "does not answer" in r.stdout and "bad answer" in r.stdout and "\033" not in r.stdout, "the table says who does not answer", r.stdout[:2000])
    r = run("metrics")
    ok(r.returncode == 0 and r.stdout.isascii() and "\033" not in r.stdout, "what is passed on is plain text")
    state = {labels["state"]: v for n, labels, v in samples(r.stdout) if n == "hawser_exporter_contexts"}
    ok(state == {"answered": 3, "silent": 1, "bad": 4, "foreign": 3}, "and counts them", state)
    names = {n for n, _, _ in samples(r.stdout)}
    ok(all(n.startswith("hawser_") for n in names), "with no names but ours", names)
    for x in liars:
        x.close()
    if os.geteuid() == 0:
        os.chmod(SOCKETS, 0o777)
        r = run("metrics")
        ok(r.returncode == 1 and "other users can replace files" in r.stderr, "a folder in which others may replace files is refused", r)
        os.chmod(SOCKETS, 0o700)
        os.chown(SOCKETS, 65534, 65534)
        r = run("metrics", "--dir", SOCKETS)
        ok(r.returncode == 1 and "belongs to user 65534" in r.stderr, "so is another user's", r)
        os.chown(SOCKETS, 0, 0)
    r = run("metrics", "--dir", FOLDER / "none")
    ok(r.returncode == 1 and "No such file" in r.stderr, "a folder that is not there is an error where it was named", r)


def get(port, method="GET", path="/metrics"):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    c.request(method, path)
    r = c.getresponse()
    body = r.read().decode()
    c.close()
    return r.status, body, dict(r.getheaders())


def by_http():
    port = free_port()
    for addr, word in (("0.0.0.0", "only loopback"), ("192.0.2.1:9", "only loopback"), ("host.example", "must be a loopback")):
        r = run("metrics", "--listen", addr)
        ok(r.returncode in (1, 2) and word in r.stderr, f"--listen {addr} is refused", r)
    with pair():
        wait_until(moving, "bytes that move")
        p = start([HAWSER, "metrics", "--listen", f"127.0.0.1:{port}"])

        def is_there():
            with contextlib.suppress(OSError):
                return get(port)
            return None
        status, body, headers = wait_until(is_there, "an answer")
        ok(status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), "GET /metrics", status, headers)
        ok(any(n == "hawser_sent_bytes_total" and v > 0 for n, _, v in samples(body)), "has the bytes", body)
        ok(int(headers["Content-Length"]) == len(body), "and their length", headers)
        ok(get(port, "HEAD")[0::2][0] == 200 and get(port, "HEAD")[1] == "", "HEAD has no body")
        ok(get(port, path="/other")[0] == 404 and get(port, path="/")[0] == 200, "other pages say where it is")
        ok(get(port, "POST")[0] == 405, "POST is refused")
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"\x16\x03\x01\n\n")
            ok(s.recv(100).startswith(b"HTTP/1.1 400"), "something else too")
        with socket.create_connection(("127.0.0.1", port)) as s:
            said = b""
            with contextlib.suppress(OSError):  # closing the socket with unread data resets the connection
                s.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 10000)
                said = s.recv(100)
            ok(said == b"" or said.startswith(b"HTTP/1.1 431"), "and a head without end", said)
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        ok(get(port)[0] == 200, "40 who say nothing are dropped in time")
        for s in idle:
            s.close()
        ok(stop(p) == 0, "it ends when it is asked to")
        out = FOLDER / "out"
        out.mkdir()
        r = run("metrics", "--textfile", out / "hawser.prom", "--once")
        text = (out / "hawser.prom").read_text(encoding="ascii")
        ok(r.returncode == 0 and samples(text), "a file for node_exporter", r)
        ok(stat.S_IMODE((out / "hawser.prom").stat().st_mode) == 0o644 and len(list(out.iterdir())) == 1, "that others may read, and nothing beside it", list(out.iterdir()))
        p = start([HAWSER, "metrics", "--textfile", out / "hawser.prom", "--interval", "1s"])
        first = (out / "hawser.prom").stat().st_ino
        wait_until(lambda: (out / "hawser.prom").stat().st_ino != first, "a new file")
        ok(stop(p) == 0 and len(list(out.iterdir())) == 1, "is renewed", list(out.iterdir()))
        os.mkfifo(FOLDER / "pipe")
        r = run("metrics", "--textfile", FOLDER / "pipe", "--once")
        ok(r.returncode == 1 and "not a regular file" in r.stderr and (FOLDER / "pipe").is_fifo(), "what is no regular file, as /dev/full, is not replaced", r.stderr)
        r = run("metrics", "--textfile", FOLDER / "none" / "x.prom")
        ok(r.returncode == 1 and "No such file" in r.stderr, "where it cannot be, that is said at once", r)


def paths(**labels):
    """Returns the bytes by (direction, path), from the contexts with these labels."""
    found = {}
    for name, of, value in samples(run("metrics").stdout):
        if name == "hawser_path_bytes_total" and labels.items() <= of.items():
            way = of["direction"], of["path"]
            found[way] = found.get(way, 0) + value
    return found


def watch(argv, kind, also=lambda: True):
    """Runs a program. Returns whether metrics showed a context of that kind with operations, and also() was true,
    before the program exited."""
    p = start(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = []
    reader = threading.Thread(target=p.stdout.read, daemon=True)
    reader.start()
    try:
        wait_until(lambda: (found_kind(kind) and also() and found.append(kind) is None) or p.poll() is not None, kind)
    finally:
        p.kill()
        p.wait()
        reader.join()
    return bool(found)


def found_kind(kind):
    return any(n == "hawser_operations_total" and labels["kind"] == kind and v > 0 for n, labels, v in samples(run("metrics").stdout))


def plugins():
    driver, plugin, fakecuda = sys.argv[3:6]
    ok(watch([driver, "bench", plugin, "--seconds", "50"], "nccl", lambda: paths(kind="nccl")["sent", "reference"] > 0),
       "the NCCL plugin is seen at work, and that it sends without a copy")
    if len(sys.argv) > 6:
        again = ["sh", "-c", 'while "$0" "$1" >/dev/null; do :; done']  # repeated, because one run is short
        ok(watch([*again, *sys.argv[6:8]], "nixl"), "so is the NIXL backend")
    else:
        skip("so is the NIXL backend", "it is not built: no C++ compiler")
    ENV.update({"HAWSER_CUDA_LIBRARY": fakecuda, "FAKECUDA_GPUS": "1"})
    with pair("--gpus", "0"):
        wait_until(moving, "bytes that move")
        ok(wait_until(lambda: paths(kind="serve").get(("received", "staged"), 0) > 0 and paths(kind="library").get(("sent", "staged"), 0) > 0, "staged bytes"),
           "GPU memory goes through pinned host memory")
        ok(sum(v for n, labels, v in samples(run("metrics").stdout) if n == "hawser_registered_bytes" and labels["memory"] == "cuda") > 0, "and is registered")


# ---- Prometheus ------------------------------------------------------------------------------------------------


def dashboard():
    """Returns [(panel, query)] of examples/grafana/hawser.json, with values for its variables."""
    board = json.loads((ROOT / "examples/grafana/hawser.json").read_text(encoding="utf-8"))
    values = {"$instance": ".*", "$process": ".*", "$__rate_interval": "10s"}
    found = []
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            query = re.sub(r"\$\w+", lambda m: values[m[0]], target["expr"])
            found.append((panel["title"], query))
    return found


def ask(port, query):
    status, body, _ = get(port, path="/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    return json.loads(body)["data"]["result"] if status == 200 else None


def prometheus():
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        skip("Prometheus scrapes the metrics", "there is no prometheus: apt-get install prometheus")
        return
    page, port, node = free_port(), free_port(), free_port()
    textfiles = FOLDER / "text"
    textfiles.mkdir()
    config = FOLDER / "prometheus.yml"
    targets = {"hawser": page, **({"node": node} if shutil.which("prometheus-node-exporter") else {})}
    config.write_text("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" + "".join(
        f"  - {{job_name: {name}, static_configs: [{{targets: ['127.0.0.1:{p}']}}]}}\n" for name, p in targets.items()), encoding="ascii")
    programs = [[HAWSER, "metrics", "--listen", f"127.0.0.1:{page}", "--textfile", str(textfiles / "hawser.prom"), "--interval", "1s"],
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={FOLDER}/tsdb", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]]
    if "node" in targets:
        programs.append(["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={textfiles}",
                         f"--web.listen-address=127.0.0.1:{node}"])
    with pair() as (_, load):
        wait_until(moving, "bytes that move")
        with open(FOLDER / "log", "wb") as log:
            running = [start(p, stdout=log, stderr=log) for p in programs]
        try:
            def scraped(query):
                def test():
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        return ask(port, query)
                    return None
                return wait_until(test, query)
            rate = scraped('sum by (kind) (rate(hawser_sent_bytes_total{job="hawser"}[10s])) > 0')
            ok({"kind": "library"} in [r["metric"] for r in rate], "Prometheus has the bytes that the bench sends", rate)
            ok(scraped(f'hawser_info{{job="hawser",pid="{load.pid}"}}'), "and knows the process")
            for panel, query in dashboard():
                result = scraped(query)
                ok(result, f"the dashboard's {panel!r} has something to show: {query}", result)
            if "node" in targets:
                ok(scraped('hawser_sent_bytes_total{job="node",kind="library"} > 0'), "node_exporter passes the file on")
                ok(ask(port, 'node_textfile_scrape_error{job="node"} == 0'), "without an error")
            else:
                skip("node_exporter passes the file on", "there is no prometheus-node-exporter")
            text = run("metrics").stdout
        finally:
            for p in running:
                stop(p)
    lint = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)
    ok(lint.returncode == 0 and lint.stderr == "", "promtool finds nothing to say", lint)


def docs():
    SOCKETS.mkdir(mode=0o700)
    text = run("metrics").stdout
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    helps = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.M))
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.M)
    listed = {name: (kind, labels, text.strip()) for name, kind, labels, text in rows}
    ok(len(kinds) > 20 and set(listed) == set(kinds), "docs/metrics.md lists every metric, and no other", set(listed) ^ set(kinds))
    ok({n: r[0] for n, r in listed.items()} == kinds, "with its type", listed)
    wrong = [(n, r[2], helps[n]) for n, r in listed.items() if r[2] != helps.get(n)]
    ok(not wrong, "and what it is", wrong)
    used = {m for _, query in dashboard() for m in re.findall(r"\bhawser_\w+", query)}
    ok(len(used) > 15 and used <= set(kinds), "the dashboard asks for no other", used - set(kinds))
    unused = set(kinds) - used - {"hawser_info", "hawser_start_time_seconds"}
    ok(not unused, "and shows all of them", unused)


def lab():
    name = f"top{os.getpid()}"
    if run("lab", "up", "--name", name, "--nics", "2", "--loss", "0.5%").returncode:
        print("1..0 # SKIP no lab here")
        return 77
    try:
        with pair(node=lambda n, argv: [HAWSER, "lab", "exec", f"{name}/{n}", "--", *argv], host="198.18.0.1"):
            both = wait_until(moving, "bytes that move")
            ok(len({r["nic"] for c in both for r in c["rails"]}) == 2, "a row for each NIC", both)
            ok(wait_until(lambda: sum(r["tcp_retransmits"] for c in view() for r in c["rails"]) > 0, "a segment that was lost"), "what TCP sent again is counted")
            nics = sorted({r["nic"] for c in both for r in c["rails"]})
            run("lab", "link", "--name", name, "a", nics[-1], "down")

            def lost():
                return [r for c in view() for r in c["rails"] if r["nic"] == nics[-1] and r["failovers"] > 0 and r["rails_up"] == 0]
            ok(wait_until(lost, "a failover"), "a NIC that goes is a failover of its rails")
            ok(wait_until(moving, "bytes that go on"), "and bytes go on by the other")
            run("lab", "link", "--name", name, "a", nics[-1], "up")
            ok(wait_until(lambda: [r for c in view() for r in c["rails"] if r["nic"] == nics[-1] and r["rails_up"] > 0], "a rail that is back"), "when it is back its rails are up")
    finally:
        run("lab", "down", "--name", name)
    return done()


def main():
    part = {"works": works, "hostile": hostile, "http": by_http, "plugins": plugins, "prometheus": prometheus, "docs": docs, "lab": lab}[PART]
    try:
        rc = part()
    finally:
        for p in STARTED:
            p.kill()
        subprocess.run(["rm", "-rf", FOLDER], check=True)
    return rc if PART == "lab" else done()


if __name__ == "__main__":
    sys.exit(main())
