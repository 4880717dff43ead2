#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser verbs` with containers of real runtimes, and without containers. Runs a program under the broker on a
machine that has no RDMA device, but a device node that looks like one. Also tests agents and brokers that die, and
invalid arguments. Prints TAP. Exits with status 77 if this machine cannot run the tests. Usage: verbs_oci.py HAWSER APP
crun|runc|run, where APP is the program."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import reachable  # noqa: E402
from oci_help import inside, skip_all  # noqa: E402
from sandbox_help import full, ok  # noqa: E402

HAWSER, APP, PART = (*map(os.path.abspath, sys.argv[1:3]), sys.argv[3])
SECONDS = 60
POLICY = "[default]\ndevices = *\n[container gpu]\nmax_qps = 3\n"

WAYS = [a + b for a in ("", "openat2_") for b in ("rdwr", "wronly", "rdonly")]


def nodes(**errno):
    """Returns the results that the program should report for each node and each way to open the node."""
    return {f"{node}_{way}": e for node, e in errno.items() for way in WAYS}


# The results that the program must report. With runc, write() causes no notification, which does not matter here.
WANTED = {
    **nodes(node="EACCES", node2="ENOENT", rdma_cm="ENOENT"),
    "file": "ok", "file960": "ok", "null": "ok", "threads": "ok", "fork": "ok", "verbs_null": "ENOTTY", "verbs_closed": "EBADF",
    "open_missing": "ENOENT", "stat_node": "ok",
    "ptrace": "EPERM", "vm_readv": "EPERM", "vm_writev": "EPERM", "io_uring": "EPERM", "userfaultfd": "EPERM", "listener": "EPERM",
    "mknod": "EPERM", "netlink_rdma": "EPROTONOSUPPORT", "netlink_route": "ok", "tcp": "ok", "i386": "killed", "x32": "killed",
}


def sh(*argv, **more):
    if "input" not in more:
        more.setdefault("stdin", subprocess.PIPE)  # as in oci_run.py
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=SECONDS, **more)


def must(*argv):
    r = sh(*argv)
    assert r.returncode == 0, r
    return r.stdout


def until(fn, what):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        got = fn()
        if got:
            return got
        time.sleep(0.02)
    raise TimeoutError(what)


def said(text):
    return dict(x.split(" ", 1) for x in text.splitlines() if " " in x)


def as_wanted(text, what, *more, **other):
    got, want = said(text), {**WANTED, **other}
    if os.uname().machine != "x86_64":
        want = {k: v for k, v in want.items() if k not in ("i386", "x32")}
    wrong = [f"{k}: {got.get(k)}, and not {v}" for k, v in want.items() if got.get(k) != v]
    ok(not wrong, f"{what}: it gets what it may, and nothing else", "\n".join([text, *more, *wrong]))


def verbs(*argv, **more):
    return sh(HAWSER, "verbs", *argv, **more)


class Host:
    def __init__(self, tmp, stack):
        self.tmp, self.sock, self.state, self.audit = tmp, tmp / "agent.sock", tmp / "state", tmp / "audit.jsonl"
        self.policy, self.dev, self.stack = tmp / "policy", tmp / "dev", stack
        self.policy.write_text(POLICY)
        self.dev.mkdir()
        os.mknod(self.dev / "uverbs0", 0o20666, os.makedev(231, 192))
        os.chmod(self.dev / "uverbs0", 0o666)
        os.chmod(tmp, 0o755)
        self.hawser, self.app = (reachable.copy(x, tmp) for x in (HAWSER, APP))  # copies that other users can execute
        must("mount", "-t", "sysfs", "none", "/sys")
        must("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
        self.agents = []
        stack.callback(self.end)

    def end(self):
        for p in self.agents:
            p.kill()
            p.wait()

    def agent(self):
        log = open(self.tmp / "agent.log", "a")
        p = subprocess.Popen([HAWSER, "verbs", "agent", "--policy", self.policy, "--socket", self.sock, "--state-dir", self.state,
                              "--audit", self.audit], stderr=log, stdout=log)
        log.close()
        self.agents.append(p)

        def listening():
            assert p.poll() is None, self.log()
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self.sock))
                return True
        until(listening, "the agent")
        return p

    def log(self):
        return (self.tmp / "agent.log").read_text()

    def status(self):
        return json.loads(verbs("status", "--json", "--state-dir", self.state).stdout)


# ---- containers ----------------------------------------------------------------------------------

def docker_like():
    """Returns a profile that lists permitted calls, with conditions similar to those in Docker's default profile."""
    header = next(p for p in map(pathlib.Path, ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h"))
                  if p.exists())
    names = sorted(set(re.findall(r"#define __NR_([a-z0-9_]+) ", header.read_text())) - {"socket", "clone", "clone3", "reboot", "mseal", "personality"})
    names += ["socketcall", "_llseek", "mmap2", "no_such_call"]  # calls of other architectures, and an unknown call
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
            "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"},
                         {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]},
                         {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
                          "args": [{"index": 0, "value": 2114060288, "op": "SCMP_CMP_MASKED_EQ"}]},
                         *({"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": v, "op": "SCMP_CMP_EQ"}]}
                           for v in (0, 8, 4294967295)),
                         {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}


class Runtime:
    def __init__(self, host, name):
        self.host, self.name, self.n = host, name, 0
        self.base = [shutil.which(name), "--root", str(host.tmp / "runtime")]
        if name == "crun":
            self.base.insert(1, "--cgroup-manager=disabled")
        self.bundle = host.tmp / "bundle"
        root = self.bundle / "rootfs"
        for d in ("proc", "sys", "dev", "tmp", "usr"):
            (root / d).mkdir(parents=True, exist_ok=True)
        for d in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink("/" + d):
                (root / d).symlink_to("usr/" + d)
            else:
                (root / d).mkdir()
        (root / "app").touch()
        self.file = self.bundle / "config.json"

    def __call__(self, *argv, **more):
        return sh(*self.base, *argv, cwd=self.bundle, **more)

    def config(self, *args, seccomp=None, annotations=None):
        bind = [d for d in ("/usr", "/bin", "/lib", "/lib64", "/sbin") if os.path.isdir(d) and not os.path.islink(d)]
        caps = ["CAP_DAC_OVERRIDE", "CAP_MKNOD"]
        c = {"ociVersion": "1.0.2",
             "process": {"user": {"uid": 0, "gid": 0}, "args": ["/app", *args, "/tmp/file"], "cwd": "/",
                         "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", *(f"{k}={v}" for k, v in os.environ.items() if k.endswith("SAN_OPTIONS"))],
                         "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 900, "soft": 512}],
                         "capabilities": {k: caps for k in ("bounding", "effective", "permitted")}},
             "root": {"path": "rootfs", "readonly": True},
             "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
                        {"destination": "/app", "type": "bind", "source": APP, "options": ["bind", "ro"]},
                        *({"destination": d, "type": "bind", "source": d, "options": ["bind", "ro"]} for d in bind)],
             "annotations": dict(annotations or {}),
             "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")],
                       "devices": [{"path": "/dev/infiniband/uverbs0", "type": "c", "major": 231, "minor": 192, "fileMode": 0o666}]}}
        if seccomp:
            c["linux"]["seccomp"] = seccomp
        self.file.write_text(json.dumps(c))

    def spec(self, *argv):
        return verbs("spec", self.file, "--runtime", self.name, "--socket", self.host.sock, "--dev", self.host.dev, *argv)

    def new(self):
        self.n += 1
        return f"{self.name}-{self.n}"

    @contextlib.contextmanager
    def waiting(self, *argv):
        """Runs a container whose program waits for lines of input."""
        self.config("wait", seccomp=docker_like() if "list" in argv else None)
        r = self.spec("--container", "gpu")
        assert r.returncode == 0, r
        ident = self.new()
        p = subprocess.Popen([*self.base, "run", ident], cwd=self.bundle, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
        try:
            ok(ask(p) == "null ok", f"{ident} runs", self.host.log())  # the runtime has read the configuration, which the next container changes
            yield ident, p
        finally:
            self("delete", "-f", ident)
            p.kill()
            p.wait()
            p.stdin.close()
            p.stdout.close()


def ask(p):
    p.stdin.write("\n")
    p.stdin.flush()
    return p.stdout.readline().strip()


def filtered(pid):
    return re.search(r"^Seccomp:\s*(\d)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1] == "2"


def undo(rt, host):
    rt.config("all", seccomp=docker_like(), annotations={"hawser.verbs.max_qps": "3"})
    was = json.loads(rt.file.read_text())
    first = rt.spec("--container", "gpu")
    once = json.loads(rt.file.read_text())
    rt.spec("--container", "gpu")
    ok(first.returncode == 0 and "uverbs0 was removed from" in first.stderr and once == json.loads(rt.file.read_text()),
       "spec twice is spec once", first)
    ok(once["process"]["rlimits"][0] == {"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024} and
       once["mounts"][-1] == {"destination": "/dev/infiniband/uverbs0", "type": "bind", "source": str(host.dev / "uverbs0"),
                              "options": ["bind", "ro", "nosuid", "nodev", "noexec"]} and "devices" not in once["linux"] and
       once["annotations"]["hawser.verbs.policy"] == "gpu", "spec: limit, mount, devices, annotation", once)
    r = sh(HAWSER, "sandbox", "spec", rt.file, "--no-sysfs", "--nics", "none")
    ok("no setting" not in r.stderr, "hawser sandbox spec minds its own annotations", r)
    if r.returncode == 0:
        sh(HAWSER, "sandbox", "spec", rt.file, "--no-sysfs", "--undo")
    r = rt.spec("--undo")
    ok(r.returncode == 0 and json.loads(rt.file.read_text()) == was, "spec --undo: as it was", rt.file.read_text()[:2000])
    ok(rt.spec("--undo").returncode == 0 and json.loads(rt.file.read_text()) == was, "and again")
    for what, edit, why in (
            ("no limit of locked memory", lambda c: None, "no RLIMIT_MEMLOCK"),
            ("a small one", lambda c: c["process"]["rlimits"].append({"type": "RLIMIT_MEMLOCK", "hard": 65536, "soft": 65536}), "is 65536"),
            ("none, as it is unlimited", lambda c: c["process"]["rlimits"].append({"type": "RLIMIT_MEMLOCK", "hard": 2**64 - 1, "soft": 2**64 - 1}), ""),
            ("none, as it has a capability", lambda c: c["process"]["capabilities"]["effective"].append("CAP_IPC_LOCK"), "")):
        c = json.loads(json.dumps(was))
        edit(c)
        rt.file.write_text(json.dumps(c))
        r = rt.spec()
        ok(r.returncode == 0 and (why in r.stderr if why else "MEMLOCK" not in r.stderr), f"{what}: told", r)
    for cap, told in (("SYS_ADMIN", True), ("DAC_READ_SEARCH", True), ("SYS_BOOT", True), ("PERFMON", True), ("CHECKPOINT_RESTORE", True),
                      ("CHOWN", False), ("NET_BIND_SERVICE", False)):
        c = json.loads(json.dumps(was))
        c["process"]["capabilities"]["bounding"].append(f"CAP_{cap}")
        rt.file.write_text(json.dumps(c))
        r = rt.spec()
        ok(r.returncode == 0 and (f"the container has CAP_{cap}, with which" in r.stderr) == told, f"CAP_{cap}: {'told' if told else 'fine'}", r)
    number = {"type": "c", "major": 231, "access": "rw"}
    for rules, told in (([], True), ([{"allow": False}], False), ([{"allow": False}, {**number, "allow": True, "minor": 192}], False),
                        ([{"allow": False}, {**number, "allow": True}], True), ([{"allow": True}, {**number, "allow": False}], False),
                        ([{"allow": False}, {"allow": True, "type": "c", "access": "m"}, {"allow": True, "type": "b"}], False)):
        rt.file.write_text(json.dumps({**was, "linux": {**was["linux"], "resources": {"devices": rules}}}))
        r = rt.spec()
        ok(r.returncode == 0 and ("of this device" in r.stderr) == told, f"rules {rules}: {'told' if told else 'fine'}", r)
    for what, edit, why in (
            ("a mount of the nodes", lambda c: c["mounts"].append({"destination": "/dev/infiniband", "type": "bind", "source": "/dev/infiniband",
                                                                   "options": ["rbind"]}), "without the broker"),
            ("a mount of /dev", lambda c: c["mounts"].append({"destination": "/host", "source": "/dev", "options": ["rbind"]}), "without the broker"),
            ("a mount of everything", lambda c: c["mounts"].append({"destination": "/host", "source": "/", "options": ["rbind", "nodev"]}), "without the broker"),
            ("another listener", lambda c: c["linux"].update(seccomp={"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x"}), "/x"),
            ("no container of Linux", lambda c: c.pop("linux"), "Linux"),
            ("another section", lambda c: c["annotations"].update({"hawser.verbs.policy": "other"}), "other"),
            ("a note that is not ours", lambda c: c["annotations"].update({"hawser.verbs.spec": "{}"}), "hawser.verbs.spec")):
        c = json.loads(json.dumps(was))
        edit(c)
        rt.file.write_text(json.dumps(c))
        r = rt.spec("--container", "gpu")
        ok(r.returncode == 1 and why in r.stderr and json.loads(rt.file.read_text()) == c, f"{what}: refused, and as it was", r)
    rt.file.write_text(json.dumps(was))
    del was["linux"]["devices"]
    rt.file.write_text(json.dumps(was))
    r = verbs("spec", rt.file, "--dev", host.tmp / "nosuch")
    ok(r.returncode == 1 and "no RDMA device" in r.stderr, "a machine without a device: said so", r)
    r = verbs("spec", rt.file, "--dev", host.dev, "--device", "uverbs0,uverbs7")
    ok(r.returncode == 1 and "uverbs7" in r.stderr, "a device that is not there", r)
    r = verbs("spec", rt.file, "--dev", host.dev, "--device", "none", "--out", host.tmp / "out.json")
    ok(r.returncode == 0 and json.loads(rt.file.read_text()) == was and
       "seccomp" in json.loads((host.tmp / "out.json").read_text())["linux"], "into another file, without a device", r)


def orders(rt, host):
    """Tests `hawser sandbox spec` and `hawser verbs spec` on one bundle, in several orders and repeatedly. The
    container must have access to the plan's devices only through the broker."""
    machine = full(host.tmp, "switch4")[0]
    dev = machine / "dev/infiniband"
    dev.mkdir(parents=True)
    for n, number in *((f"uverbs{i}", (231, 192 + i)) for i in (0, 2, 3, 4)), ("rdma_cm", (10, 58)):
        os.mknod(dev / n, 0o20666, os.makedev(*number))

    def step(kind, *argv):
        if kind == "s":
            return sh(HAWSER, "sandbox", "spec", rt.file, "--sysfs", machine, "--nics", "rdma0,rdma1", "--gpus", "none", "--no-sysfs", *argv)
        return verbs("spec", rt.file, "--runtime", rt.name, "--socket", host.sock, "--dev", dev, *argv)

    rules = [{"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "major": 231, "minor": 192, "access": "rw"},
             {"allow": True, "type": "c", "access": "m"}]
    for order in ("sv", "vs", "svs", "vsv", "vss", "svvs", "vssv"):
        for own in True, False:
            rt.config("all", annotations={"other": "x"})
            c = json.loads(rt.file.read_text())
            if own:
                c["linux"]["resources"] = {"devices": rules}
            else:
                del c["linux"]["devices"]
            rt.file.write_text(json.dumps(c))
            was = json.loads(rt.file.read_text())
            done = [step(kind) for kind in order]
            what = f"{order}{'' if own else ', nothing of its own'}"
            c = json.loads(rt.file.read_text())
            native = [d for d in c["linux"].get("devices", []) if "infiniband" in d["path"]]
            native += [x for x in c["linux"].get("resources", {}).get("devices", []) if x["allow"] and "major" in x]
            ok(all(r.returncode == 0 for r in done) and not native, f"{what}: no device and no rule is the container's own", (done, native))
            known = "s" in order[:order.rfind("v")]
            want = {0} if own and not known else {0, 2, 3} if own else {2, 3} if known else {0, 2, 3, 4}
            bound = {int(m["destination"][-1]) for m in c["mounts"] if "infiniband/uverbs" in m["destination"]}
            ok(bound == want, f"{what}: the nodes are its own and those of the plan; all, where there is neither", bound)
            if order[-1] == "s":
                ok(("verbs spec` again" in done[-1].stderr) == (not known), f"{what}: others are told", done[-1])
            del c["hooks"]  # the hooks would search this machine for the plan's NICs
            c["linux"].pop("resources", None)  # this machine may have no cgroup controllers
            c["process"]["rlimits"] = [x for x in c["process"]["rlimits"] if x["type"] != "RLIMIT_MEMLOCK"]  # may require CAP_SYS_RESOURCE
            rt.file.write_text(json.dumps(c))
            r = rt("run", rt.new())
            as_wanted(r.stdout + r.stderr, f"{what}: in the container", stat_node="ok" if 0 in bound else "ENOENT",
                      **nodes(node="EACCES" if 0 in bound else "ENOENT", node2="EACCES" if 2 in bound else "ENOENT"))
            for back in "sv", "vs":
                rt.file.write_text(json.dumps(was))
                for kind in order:
                    step(kind)
                r = [step(kind, "--undo") for kind in back]
                ok(all(x.returncode == 0 for x in r) and json.loads(rt.file.read_text()) == was, f"{what}: undone, {back}: as it was",
                   (r, rt.file.read_text()))
    rt.config("all")
    step("s")
    step("v")
    step("s", "--undo")
    step("v")
    c = json.loads(rt.file.read_text())
    ok([m["destination"] for m in c["mounts"] if "infiniband" in m["destination"]] == ["/dev/infiniband/uverbs0"] and "devices" not in c["linux"],
       "the plan is taken away: its nodes are, too", c)
    for what, edit, why in (
            ("a plan without an RDMA device", lambda c: c["linux"].pop("devices"), "--device"),
            ("a node that is another device here", lambda c: c["linux"]["devices"][0].update(minor=193), "231:193")):
        rt.config("all")
        sh(HAWSER, "sandbox", "spec", rt.file, "--sysfs", machine, "--nics", "none", "--no-sysfs")
        c = json.loads(rt.file.read_text())
        edit(c)
        rt.file.write_text(json.dumps(c))
        r = step("v")
        ok(r.returncode == 1 and why in r.stderr and json.loads(rt.file.read_text()) == c, f"{what}: refused", r)
    r = step("v", "--device", "uverbs0")
    ok(r.returncode == 0, "unless it is named", r)


def containers(host, name):
    rt = Runtime(host, name)
    rt.config("all")
    r = rt("run", "try")
    if r.returncode != 0:
        skip_all(f"{name} cannot run a container here: {(r.stderr or r.stdout).strip().splitlines()[-1:]}")
    ok(said(r.stdout).get("file") == "ok" and said(r.stdout).get("ptrace") == "ok", "without a broker it may all of it", r)
    undo(rt, host)

    rt.config("all")
    rt.spec()
    r = rt("run", rt.new())
    ok(r.returncode != 0 and str(host.sock) in r.stderr + r.stdout, "no agent: no container, and the runtime says why", r)

    agent = host.agent()
    orders(rt, host)
    for what, profile in (("no profile", None), ("a list of what is allowed", docker_like())):
        rt.config("all", seccomp=profile)
        r = rt.spec("--container", "gpu")
        ok(r.returncode == 0, f"{what}: spec", r)
        r = rt("run", rt.new())
        ok(r.returncode == 0, f"{what}: it runs", r)
        as_wanted(r.stdout, f"{what}")
    ok("has ended" in until(lambda: "has ended" in host.log() and host.log(), "the brokers' ends"), "a broker ends with its container")

    rt.config("all")
    rt.spec("--container", "nosuch")
    r = rt("run", rt.new())
    ok("ENOSYS" in said(r.stdout).get("null", "") and "nosuch" in host.log(), "a section that is not there: ENOSYS, and the log says it", r)

    with rt.waiting() as (a, p), rt.waiting("list") as (b, q):
        ok(ask(p) == "null ok" and ask(q) == "null ok", "two containers", host.log())
        s = {x["container"]: x for x in host.status()}
        ok(set(s) == {a, b} and s[a]["section"] == "gpu" and s[a]["devices"] == [], "status --json: both", s)
        r = verbs("status", "--state-dir", host.state)
        ok(r.returncode == 0 and f"{a}: process {s[a]['pid']}, broker {s[a]['broker']}" in r.stdout and "policy gpu" in r.stdout,
           "status: as text", r)
        broker, tracers = s[a]["broker"], pathlib.Path(f"/proc/{s[a]['broker']}/task/{s[a]['broker']}/children").read_text().split()
        ok(filtered(broker) and not filtered(agent.pid) and not any(map(filtered, tracers)), "the broker has a filter of system calls, "
           "the agent and its tracer have none", (broker, agent.pid, tracers))
        r = rt("exec", a, "/app", "all", "/tmp/other")
        as_wanted(r.stdout, "exec")
        os.kill(s[a]["broker"], signal.SIGKILL)
        ok(ask(p) == "null ENOSYS", "its broker is killed: ENOSYS")
        ok(ask(q) == "null ok", "the other container goes on")
        r = verbs("status", "--state-dir", host.state)
        ok(r.returncode == 1 and f"{a}: the broker has died" in r.stdout, "status says so", r)
        agent.kill()
        agent.wait()
        ok(ask(q) == "null ok", "the agent is killed: the container goes on")
        agent = host.agent()
        with rt.waiting() as (_, t):
            ok(ask(t) == "null ok" and ask(q) == "null ok", "and another agent takes new ones")
            agent.terminate()
            ok(agent.wait(SECONDS) == 0, "SIGTERM ends it", host.log())
            ok(ask(t) == "null ENOSYS", "and its brokers: ENOSYS")
        ok(ask(q) == "null ok", "but not those of the one before")


# ---- without a runtime ---------------------------------------------------------------------------

def usage():
    for argv, code, why in (
            ((), 2, "ACTION is missing"), (("nosuch",), 2, "nosuch"), (("agent",), 2, "--policy"), (("agent", "--policy", "/nosuch"), 1, "/nosuch"),
            (("agent", "--policy", "/nosuch", "more"), 2, "more"), (("agent", "--containers", "0"), 2, "--containers"),
            (("agent", "--policy", "/nosuch", "--socket", "x.sock"), 2, "absolute"),
            (("run", "--policy", "/nosuch"), 2, "COMMAND is missing"), (("run", "true"), 2, "--policy"), (("run", "--policy", "/nosuch", "true"), 125, "/nosuch"),
            (("run", "--user", "nosuch", "true"), 2, "nosuch"), (("run", "--user", "0", "true"), 2, "root"),
            (("run", "--user", "1:x", "true"), 2, "1:x"), (("spec",), 2, "config.json"), (("spec", "/nosuch"), 1, "/nosuch"),
            (("spec", "x", "--runtime", "youki"), 2, "youki"), (("spec", "x", "--socket", "y"), 2, "absolute"), (("status", "x"), 2, "x"),
            (("audit", "/nosuch"), 1, "/nosuch"), (("audit", "a", "b"), 2, "b"), (("audit", "--nosuch"), 2, "nosuch")):
        r = verbs(*argv)
        ok(r.returncode == code and why in r.stderr and not r.stdout, f"verbs {' '.join(argv)}: {code}", r)
        if code == 2:
            hint = re.search(r"^Try `hawser (.*)`\.$", r.stderr, re.M)
            r = sh(HAWSER, *hint[1].split()) if hint else r
            ok(hint and r.returncode == 0 and "Usage: hawser verbs" in r.stdout, f"verbs {' '.join(argv)}: what it says to try helps", r)
    for action in ("agent", "run", "spec", "status", "audit"):
        r = verbs(action, "--help")
        ok(r.returncode == 0 and "Usage:" in r.stdout, f"verbs {action} --help", r)


def audit(host):
    line = {"time": "2026-01-31T12:00:00.000Z", "container": "web", "pid": 7, "program": "ib\u001b[2J", "device": "rxe0", "command": "REG_MR length=1",
            "rule": "max_mrs = 1", "text": "there is one", "errno": "EMFILE"}
    host.audit.write_text(json.dumps(line) + "\n" + json.dumps({"time": "t", "left_out": 5}) + "\n")
    want = "2026-01-31T12:00:00.000Z web: ib?[2J (7) on rxe0: REG_MR length=1: EMFILE by max_mrs = 1: there is one\nt refusals that were not recorded: 5\n"
    r = verbs("audit", host.audit)
    ok(r.returncode == 0 and r.stdout == want, "audit: as text, with nothing that steers a terminal", r)
    r = verbs("audit", host.audit, "--json")
    ok(r.returncode == 0 and r.stdout == host.audit.read_text(), "audit --json: as it is", r)
    p = subprocess.Popen([HAWSER, "verbs", "audit", "--follow", host.audit], stdout=subprocess.PIPE, text=True)
    ok([p.stdout.readline() for _ in range(2)] == want.splitlines(True), "audit --follow: what there is")
    with host.audit.open("a") as f:
        f.write('{"time":"a","left')
        f.flush()
        time.sleep(0.3)
        f.write('_out":1}\n')
    ok(p.stdout.readline() == "a refusals that were not recorded: 1\n", "a line that comes in two parts")
    host.audit.rename(host.tmp / "old")
    host.audit.write_text('{"time":"b","left_out":2}\n')
    ok(p.stdout.readline() == "b refusals that were not recorded: 2\n", "another file of that name")
    p.terminate()
    ok(p.wait(SECONDS) == 0, "and ends when asked to")
    p.stdout.close()
    r = verbs("audit", "-", input="no JSON\n{}\n")
    ok(r.returncode == 1 and "not an audit record" in r.stderr and len(r.stdout.splitlines()) == 1, "lines that are none: said so", r)


def private_dev(host):
    """Mounts a /dev in this mount namespace with the device nodes of a machine that has an RDMA device."""
    new = host.tmp / "newdev"
    new.mkdir()
    must("mount", "-t", "tmpfs", "none", new)
    for n in ("null", "zero", "full", "random", "urandom", "tty"):
        (new / n).touch()
        must("mount", "--bind", f"/dev/{n}", new / n)
    (new / "fd").symlink_to("/proc/self/fd")
    (new / "shm").mkdir()
    (new / "infiniband").mkdir()
    os.mknod(new / "infiniband/uverbs0", 0o20666, os.makedev(231, 192))
    os.chmod(new / "infiniband/uverbs0", 0o666)
    must("mount", "--move", new, "/dev")


def run(host):
    def argv(*more, policy=host.policy):
        return [HAWSER, "verbs", "run", "--policy", str(policy), "--state-dir", str(host.state), *map(str, more)]

    usage()
    audit(host)
    r = verbs("status", "--state-dir", host.tmp / "nosuch")
    ok(r.returncode == 1 and "nosuch" in r.stderr and not r.stdout, "status of a folder that is not there", r)
    host.state.mkdir()
    r = verbs("status", "--state-dir", host.state)
    ok(r.returncode == 0 and "No broker of a container" in r.stdout, "status: nobody", r)
    ok(verbs("status", "--json", "--state-dir", host.state).stdout.strip() == "[]", "status --json: nobody")

    private_dev(host)
    r = sh(APP, "all", host.tmp / "file")
    ok(said(r.stdout)["node_rdwr"] != "EACCES", "without a broker the node could be opened, if there were a driver", r)
    r = sh(*argv("--", APP, "all", host.tmp / "file"))
    as_wanted(r.stdout, "run", r.stderr)
    ok(r.returncode == 0 and "uid 0" in r.stdout, "run: as root", r)
    ok("no RDMA device" in r.stderr or os.path.isdir("/sys/class/infiniband_verbs"), "and says that there is no device", r)
    (host.tmp / "his").mkdir(mode=0o777)
    os.chmod(host.tmp / "his", 0o777)
    r = sh(*argv("--user", "65534:65534", "--", host.app, "all", host.tmp / "his/file"))
    as_wanted(r.stdout, "run --user", r.stderr)
    ok("uid 65534" in r.stdout, "run --user: it is that user", r)
    caps = sh(*argv("--", "grep", "-E", "^(CapEff|CapBnd|NoNewPrivs)", "/proc/self/status")).stdout
    bad = sum(1 << c for c in (12, 13, 17, 19, 21, 27))  # NET_ADMIN, NET_RAW, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, MKNOD
    ok("NoNewPrivs:\t1" in caps and not any(int(x, 16) & bad for x in re.findall(r"Cap\w+:\t(\w+)", caps)), "run: without the strong capabilities", caps)
    r = sh("setpriv", "--securebits=+no_setuid_fixup", "--inh-caps=+mknod", "--ambient-caps=+mknod",
           *argv("--user", "65534", "--", "grep", "-E", "^Cap(Inh|Prm|Eff|Amb)", "/proc/self/status"))
    ok(re.findall(r"\w+:\t(\w+)", r.stdout) == [16 * "0"] * 4, "run --user: without any capability, also where securebits would keep them", r)
    r = sh(*argv("--container", "gpu", "--", "sh", "-c", "ulimit -n; exit 7"), preexec_fn=lambda: __import__("resource").setrlimit(7, (512, 4096)))
    ok(r.returncode == 7 and r.stdout == "1024\n", "run: exit status, and descriptors enough", r)
    r = sh(*argv("--container", "nosuch", "--", "true"))
    ok(r.returncode == 125 and "nosuch" in r.stderr, "run: no such section", r)
    r = sh(*argv("--state-dir", host.policy, "--", "echo", "up"))
    ok(r.returncode == 125 and "not a folder" in r.stderr and not r.stdout, "run: no place for its state: not run", r)
    r = sh(*argv("--state-dir", host.tmp / "new/state", "--", "echo", "up"))
    ok(r.returncode == 0 and r.stdout == "up\n", "run: a place that is to be made", r)
    ok(sh(*argv("--", "/nonexistent")).returncode == 127 and sh(*argv("--", "/etc/passwd")).returncode == 126, "run: 127 and 126")
    ok(sh(*argv("--", "sh", "-c", "kill -9 $$")).returncode == 137, "run: a killed command")
    bad_policy = host.tmp / "bad"
    bad_policy.write_text("[default]\nnosuch = 1\n")
    r = sh(*argv("--", "true", policy=bad_policy))
    ok(r.returncode == 125 and "nosuch" in r.stderr, "run: a policy with an error", r)
    r = sh("setpriv", "--reuid=65534", "--clear-groups", host.hawser, *argv("--", "true")[1:])
    ok(r.returncode == 125 and "root" in r.stderr, "run: not root", r)

    p = subprocess.Popen(argv("--", "sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"), stdout=subprocess.PIPE)
    p.stdout.readline()
    p.terminate()
    ok(p.wait(SECONDS) == 3, "run: SIGTERM is handed on", p.returncode)
    p.stdout.close()

    def waiting():
        for f in host.state.glob("*.status"):  # status sockets of killed brokers
            f.unlink()
        p = subprocess.Popen(argv("--", APP, "wait", "x"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ok(ask(p) == "null ok", "run: a command that waits")
        return p, host.status()[0]

    p, s = waiting()
    os.kill(s["broker"], signal.SIGKILL)
    ok(ask(p) == "null ENOSYS", "run: its broker is killed: ENOSYS")
    p.stdin.close()
    ok(p.wait(SECONDS) == 0, "and it ends as it likes")
    p.stdout.close()

    p, s = waiting()
    p.kill()
    p.wait()
    ok(ask(p) == "null ENOSYS", "run: hawser is killed: ENOSYS, and the command lives")
    until(lambda: not os.path.exists(f"/proc/{s['broker']}"), "the broker's end")
    p.stdin.close()
    ok(p.stdout.read() == "", "until it ends")
    p.stdout.close()

    p, s = waiting()
    p.stdin.close()
    ok(p.wait(SECONDS) == 0 and not os.path.exists(f"/proc/{s['broker']}") and host.status() == [], "run: the broker ends with it")
    p.stdout.close()


def main():
    def work(folder, stack):
        host = Host(folder, stack)
        run(host) if PART == "run" else containers(host, PART)

    need = ("unshare", "mount", "setpriv") + ((PART,) if PART != "run" else ())
    return inside(need, "hawser-verbs-", work)


if __name__ == "__main__":
    sys.exit(main())
