#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs containers of real runtimes, and `hawser sandbox run`, with veth NICs in a new network namespace. Tests what the
containers can see, and that all NICs and settings return to the host, whichever process is killed (TAP; exits 77 if
this machine cannot run the tests). Usage: oci_run.py HAWSER STATE crun|runc|run, where STATE is a program that prints
the contents of a network namespace."""
import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from oci_help import inside, skip_all  # noqa: E402
from sandbox_help import full, ok, skip  # noqa: E402

HAWSER, STATE, PART = (*map(os.path.abspath, sys.argv[1:3]), sys.argv[3])
NICS = "rdma0", "rdma1"
SECONDS = 30


def sh(*argv, **more):
    if "input" not in more:
        more.setdefault("stdin", subprocess.PIPE)  # not /dev/null: crun changes the owner of its stdin
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, **more)


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


# ---- the host ------------------------------------------------------------------------------------

class Host:
    """A network namespace with the NICs rdma0 and rdma1, and a NIC that is never moved. The NICs' peers are in another
    namespace."""

    def __init__(self, tmp, stack):
        self.tmp, self.journal = tmp, tmp / "journal"
        # a sysfs of this namespace, and the cgroup version that both runtimes support
        must("mount", "-t", "sysfs", "none", "/sys")
        must("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
        self.peer = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        stack.callback(self.end)
        until(lambda: os.readlink(f"/proc/{self.peer.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "the peer's namespace")
        pathlib.Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
        must("ip", "link", "set", "lo", "up")
        for i, nic in enumerate((*NICS, "mgmt0")):
            must("ip", "link", "add", nic, "mtu", 1400 + i, "type", "veth", "peer", "name", f"peer{i}", "netns", self.peer.pid)
            must("nsenter", "-t", self.peer.pid, "-n", "ip", "link", "set", f"peer{i}", "up")
            must("ip", "addr", "add", f"10.9.{i}.1/16", "dev", nic)
            must("ip", "addr", "add", f"fd00:{i}::1/64", "dev", nic, "nodad")
            must("ip", "link", "set", nic, "up")
            must("ip", "route", "add", f"10.{20 + i}.0.0/16", "via", f"10.9.{i}.9", "dev", nic, "onlink")
        must("ip", "rule", "add", "from", "10.9.1.1", "lookup", "77")
        must("ip", "route", "add", "10.30.0.0/16", "dev", "rdma1", "table", "77")
        must("ip", "neigh", "add", "10.9.0.7", "lladdr", "02:00:00:00:00:07", "dev", "rdma0", "nud", "permanent")
        self.was = self.state()

    def end(self):
        self.peer.kill()
        self.peer.wait()

    def state(self):
        return must(STATE)

    def back(self, what):
        """Checks that the original state is restored, and that no journals are left."""
        now = self.state()
        for _ in range(20):
            if now == self.was:
                break
            time.sleep(0.3)
            now = self.state()
        a, b = set(self.was.splitlines()), set(now.splitlines())
        left = os.listdir(self.journal) if self.journal.is_dir() else []
        left = [f for f in left if not f.startswith(".") and f != "lock"]
        ok(a == b and not left, f"{what}: the host has everything back",
           "\n".join([*("- " + x[:200] for x in sorted(a - b)), *("+ " + x[:200] for x in sorted(b - a)), *left]))

    def sandbox(self, *argv, **more):
        return sh(HAWSER, "sandbox", argv[0], "--journal-dir", self.journal, *argv[1:], **more)

    def has(self, nic):
        return os.path.exists(f"/sys/class/net/{nic}")


# ---- a container ---------------------------------------------------------------------------------

LOOK = """
echo net; ls /sys/class/net
echo addr; ip -o addr show scope global
echo ibv; ibv_devices
echo topo; lstopo --no-caches --of console
echo env; env
echo limit; cat /proc/self/limits
echo dev; ls /dev/infiniband
echo mounts; cat /proc/mounts
echo end
"""
PARTS = "net", "addr", "ibv", "topo", "env", "limit", "dev", "mounts", "end"


def parts(text):
    out, at = {}, None
    for line in text.splitlines():
        if line in PARTS:
            at = line
            out[at] = []
        elif at:
            out[at].append(line)
    return out


class Runtime:
    def __init__(self, host, name):
        self.host, self.name, self.n = host, name, 0
        self.base = [shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin"), "--root", str(host.tmp / "runtime")]
        if name == "crun":
            self.base.insert(1, "--cgroup-manager=disabled")
        self.bundle = host.tmp / "bundle"
        root = self.bundle / "rootfs"
        for d in ("proc", "sys", "dev", "tmp", "usr", "etc/libibverbs.d"):
            (root / d).mkdir(parents=True, exist_ok=True)
        for d in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink("/" + d):
                (root / d).symlink_to("usr/" + d)
            else:
                (root / d).mkdir()

    def __call__(self, *argv, **more):
        r = sh(*self.base, *argv, cwd=self.bundle, **more)
        hooks = self.host.tmp / "hooks"
        r.stderr += hooks.read_text() if hooks.exists() else ""
        return r

    def config(self, script, annotations=None, hooks=None, args=()):
        """Writes a bundle whose program is a shell script that uses the host's programs. `hooks` is the program of the
        createRuntime hook, or None for a bundle without hooks. The createRuntime and poststop hooks both get args."""
        bind = [d for d in ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/libibverbs.d") if os.path.isdir(d) and not os.path.islink(d)]
        c = {"ociVersion": "1.0.2",
             "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh", "-c", script], "cwd": "/",
                         "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NCCL_SOCKET_FAMILY=AF_INET"],
                         "rlimits": [{"type": "RLIMIT_CORE", "hard": 18446744073709551615, "soft": 0}],
                         "capabilities": {k: ["CAP_DAC_OVERRIDE"] for k in ("bounding", "effective", "permitted")}},
             "root": {"path": "rootfs", "readonly": True},
             "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
                        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "noexec", "nodev", "ro"]},
                        *({"destination": d, "type": "bind", "source": d, "options": ["bind", "ro"]} for d in bind)],
             "annotations": dict(annotations or {}),
             "linux": {"namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")]}}
        if self.name == "crun":  # crun would otherwise discard the output of hooks
            c["annotations"]["run.oci.hooks.stderr"] = str(self.host.tmp / "hooks")
            (self.host.tmp / "hooks").write_text("")
        if hooks:
            c["hooks"] = {k: [{"path": str(p), "args": ["hawser", "oci-hook", k, f"journal-dir={self.host.journal}", *args],
                               "env": ["PATH=/usr/bin:/bin"]}]
                          for k, p in (("createRuntime", hooks), ("poststop", HAWSER))}
        (self.bundle / "config.json").write_text(json.dumps(c))

    def new(self):
        self.n += 1
        return f"{self.name}-{self.n}"

    @contextlib.contextmanager
    def running(self, ident):
        """Runs a container in the foreground, and yields when the container's program is running."""
        p = subprocess.Popen([*self.base, "run", ident], cwd=self.bundle, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert p.stdout.readline() == "up\n", p.communicate(timeout=30)
            # wait for the record: a runtime that is killed before it has recorded its container no longer knows the
            # container
            until(lambda: '"running"' in self("state", ident).stdout, "the runtime's note")
            yield p
        finally:
            self("delete", "-f", ident)
            p.kill()
            p.wait()
            p.stdout.close()


def os_devices(topo):
    return sorted(set(re.findall(r'(?:Net|OpenFabrics) "([^"]+)"', "\n".join(topo))) - {"lo"})


def usual(p, what):
    """Checks the properties that are the same for every method of giving NICs to a container."""
    ok(sorted(p.get("net", ())) == ["lo", *NICS], f"{what}: /sys/class/net is the plan", p)
    ok([(x.split()[1], x.split()[3]) for x in p["addr"]] ==
       [("rdma0", "10.9.0.1/16"), ("rdma0", "fd00::1/64"), ("rdma1", "10.9.1.1/16"), ("rdma1", "fd00:1::1/64")],
       f"{what}: ip shows the NICs with their addresses", p["addr"])
    sys_ = [x.split() for x in p["mounts"] if x.split()[1].startswith("/sys")]
    top = {m[1]: m for m in sys_}
    ok("ro" in top["/sys"][3].split(",") and top["/sys"][2] != "sysfs" and top["/sys/fs/cgroup"][2].startswith("cgroup") and
       "ro" in top["/sys/fs/cgroup"][3].split(","), f"{what}: /sys is ours, read-only, and cgroups are where they were", sys_)


def memlock():
    """Returns whether root can raise limits on this machine. Root may lack CAP_SYS_RESOURCE."""
    return sh("prlimit", "--memlock=unlimited:unlimited", "true").returncode == 0


def own_limit(rt):
    """Sets a limit in the container's configuration, which hawser then keeps."""
    f = rt.bundle / "config.json"
    c = json.loads(f.read_text())
    c["process"]["rlimits"].append({"type": "RLIMIT_MEMLOCK", "hard": 65536, "soft": 65536})
    f.write_text(json.dumps(c))


def by_spec(rt, node, host):
    rt.config(LOOK)
    lift = memlock()
    if not lift:
        own_limit(rt)
    r = host.sandbox("spec", rt.bundle / "config.json", "--sysfs", node, "--nics", ",".join(NICS))
    ok(r.returncode == 0, "the bundle is given the plan", r)
    r = rt("run", rt.new())
    p = parts(r.stdout)
    if not ok("end" in p and r.returncode == 0, "by spec: it runs", r):
        return
    usual(p, "by spec")
    ok(sorted(x.split()[0] for x in p["ibv"] if "mlx" in x) == ["mlx5_0", "mlx5_1"], "by spec: ibv_devices sees the plan", p["ibv"])
    ok(os_devices(p["topo"]) == ["mlx5_0", "mlx5_1", *NICS], "by spec: lstopo sees the plan's NICs and RDMA devices, and no other",
       p["topo"])
    ok("NCCL_IB_HCA==mlx5_0:1,mlx5_1:1" in p["env"] and "NCCL_SOCKET_IFNAME==rdma0,rdma1" in p["env"] and
       "NCCL_SOCKET_FAMILY=AF_INET" in p["env"], "by spec: its environment", p["env"])
    limit = "unlimited" if lift else "65536"
    ok(any(re.match(rf"Max locked memory +{limit} +{limit} ", x) for x in p["limit"]),
       f"by spec: {'memory may be locked' if lift else 'its own limit of locked memory stays (no CAP_SYS_RESOURCE here to lift it)'}", p["limit"])
    ok(len(p["dev"]) == 2 and all(x.startswith("uverbs") for x in p["dev"]), "by spec: /dev/infiniband", p["dev"])
    host.back("by spec")


def by_exec(rt, node, host):
    rt.config("echo up; sleep 60")
    if not memlock():
        own_limit(rt)
    was = json.loads((rt.bundle / "config.json").read_text())
    must(HAWSER, "sandbox", "spec", rt.bundle / "config.json", "--sysfs", node, "--nics", "rdma0", "--journal-dir", host.journal)
    ident = rt.new()
    with rt.running(ident):
        r = rt("exec", ident, "sh", "-c", "env; ls /sys/class/net")
        ok("NCCL_IB_HCA==mlx5_0:1" in r.stdout and r.stdout.endswith("lo\nrdma0\n"), "exec: what runs later sees the same", r)
        state = json.dumps({"ociVersion": "1.0", "id": ident, "pid": 0, "status": "stopped"})
        r = sh(HAWSER, "oci-hook", "poststop", f"journal-dir={host.journal}", input=state)
        ok(r.returncode == 1 and "still running" in r.stderr and not host.has("rdma0"), "poststop of another one with its id takes nothing", r)
    host.back("a container deleted while it runs")
    r = host.sandbox("spec", rt.bundle / "config.json", "--undo")
    ok(r.returncode == 0 and not (rt.bundle / "hawser.sys").exists() and
       json.loads((rt.bundle / "config.json").read_text()) == was, "undone", r)


def by_hook(rt, node, host):
    mine, offer = {"hawser.nics": "rdma0,rdma1"}, ["offer=rdma0,rdma1", "sysfs=yes"]
    rt.config(LOOK, mine, HAWSER, offer)
    r = rt("run", rt.new())
    p = parts(r.stdout)
    if ok("end" in p and r.returncode == 0, "by hook: it runs", r):
        usual(p, "by hook")
        ok(os_devices(p["topo"]) == [], "by hook: lstopo sees no other NIC (and of these, which hang on no PCI device, none)", p["topo"])
    host.back("by hook")
    must(HAWSER, "sandbox", "sysfs", "--sysfs", node, "--nics", "rdma1", "--out", host.tmp / "folder")
    rt.config(LOOK, {"hawser.nics": "rdma1"}, HAWSER, ["offer=rdma0,rdma1", f"sysfs={host.tmp / 'folder'}"])
    p = parts(rt("run", rt.new()).stdout)
    ok(os_devices(p.get("topo", ())) == ["mlx5_1", "rdma1"] and p["net"] == ["lo", "rdma1"], "by hook: a folder on /sys", p.get("net"))
    for args in ((), offer):
        rt.config("ls /sys/class/net", {}, HAWSER, args)
        r = rt("run", rt.new())
        ok(r.returncode == 0 and r.stdout == "lo\n", f"a hook with {args or 'no arguments'} does nothing for a container that asks for nothing", r)
    for bad, args, said in (({"hawser.nics": "rdma0,nosuch"}, offer, "nosuch"), (mine, ["offer=rdma0,rdma1", "sysfs=/nosuch"], "/nosuch"),
                            (mine, [], "offer"), ({"hawser.nics": "mgmt0"}, offer, "mgmt0"), ({**mine, "hawser.force": "yes"}, offer, "hawser.force"),
                            ({"hawser.nic": "rdma0"}, offer, "hawser.nic"), ({**mine, "hawser.journal-dir": "/tmp"}, offer, "hawser.journal-dir")):
        rt.config("echo up", bad, HAWSER, args)
        r = rt("run", rt.new())
        ok(r.returncode != 0 and "up" not in r.stdout and said in r.stderr, f"{bad} and {args}: no container, and why", r)
    host.back("refused containers")


def killed(rt, host):
    mine = ["nics=rdma0,rdma1", "sysfs=yes"]
    rt.config("echo up; sleep 60", {}, HAWSER, mine)
    ident = rt.new()
    with rt.running(ident) as p:
        ok(not host.has("rdma0"), "the container has the NICs")
        rt("kill", ident, "KILL")
        ok(p.wait(SECONDS) == 137, "a killed container ends", p.returncode)
        if rt.name == "crun":  # in the foreground, crun deletes the container itself; runc does not
            until(lambda: host.has("rdma0"), "the NICs")
    host.back("killed container")
    ident = rt.new()
    with rt.running(ident) as p:
        p.kill()
        p.wait()
        s = json.loads(host.sandbox("status", "--json").stdout)
        ok([(x["id"], x["state"]) for x in s] == [(ident, "running")], "the runtime is killed: its container runs on", s)
    host.back("killed runtime")

    # The hook is killed in the middle of the move, after its journal has been created.
    wrapper = host.tmp / "hook"
    wrapper.write_text(f"#!/bin/sh\necho $$ > {host.tmp}/pid\nexec {HAWSER} oci-hook createRuntime journal-dir={host.journal} {' '.join(mine)}\n")
    wrapper.chmod(0o755)
    rt.config("echo up; sleep 0.1", {}, wrapper)
    for after in (0, 0.002, 0.01):
        for _ in range(10):  # on a busy machine, the hook may finish before it is killed
            ident = rt.new()
            if kill_hook(rt, host, ident, after):
                break
            host.back("a hook that was done before")
        else:
            ok(False, f"the hook could not be killed {after} s after its journal was there")
        if (host.journal / f"{ident}.journal").exists():
            ok(True, f"a journal is left: {host.sandbox('status').stdout.splitlines()[0]}")
            if after:
                r = host.sandbox("restore", ident)
                ok(r.returncode == 0, "restored by hand", r)
            else:  # the next container's hook returns the NICs to the host first
                rt.config("ls /sys/class/net", {}, HAWSER, mine)
                r = rt("run", rt.new())
                ok(r.returncode == 0 and r.stdout == "lo\nrdma0\nrdma1\n", "the next container has the NICs", r)
                rt.config("echo up; sleep 0.1", {}, wrapper)
        host.back(f"hook killed {after} s after its journal was there")


HOSTILE = """
ip link set lo up
ip link set rdma0 down
ip link set rdma0 name mine mtu 900 txqueuelen 7 address 02:de:ad:00:00:01
ip link set mine promisc on mode dormant gso_max_size 3000
ip link property add dev mine altname mgmt0 altname peer0 altname another
ip link set rdma1 name rdma0
ip addr add 10.66.0.1/24 dev rdma0
ip route add 10.67.0.0/16 dev rdma0
ip rule add from all lookup 99
ip link set mine name rdma1
ip link add br0 type bridge
ip link set rdma1 master br0
echo changed; ip -o link | wc -l
"""


def hostile(rt, host):
    """Tests a container in a user namespace that administers its own network."""
    rt.config(HOSTILE, {}, HAWSER, ["nics=rdma0,rdma1"])
    f = rt.bundle / "config.json"
    c = json.loads(f.read_text())
    c["linux"]["namespaces"].append({"type": "user"})
    c["linux"]["uidMappings"] = c["linux"]["gidMappings"] = [{"containerID": 0, "hostID": 100000, "size": 65536}]
    for k in ("bounding", "effective", "permitted"):
        c["process"]["capabilities"][k].append("CAP_NET_ADMIN")
    # The container's root is an unprivileged user on the host, so it can only read files that everyone may read.
    for d in (host.tmp, rt.bundle):
        os.chmod(d, 0o755)
    f.write_text(json.dumps(c))
    r = rt("run", rt.new())
    if "changed" not in r.stdout:
        return skip("a hostile container in a user namespace", f"{rt.name} runs none here: {(r.stderr or r.stdout).strip().splitlines()[-1:]}")
    ok(r.returncode == 0, "a hostile container in a user namespace", r)
    ok(os.stat("/dev/null").st_uid == 0, "/dev/null is still root's")
    return host.back("a container that renamed, swapped, changed and bridged its NICs")


def kill_hook(rt, host, ident, after):
    """Runs a container whose hook is killed `after` seconds after its journal appears. Returns False if the hook had
    already finished."""
    journal, pid = host.journal / f"{ident}.journal", host.tmp / "pid"
    p = subprocess.Popen([*rt.base, "run", ident], cwd=rt.bundle, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not journal.exists() and p.poll() is None:
        pass
    time.sleep(after)
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        fd = os.pidfd_open(int(pid.read_text()))
        if b"oci-hook" in pathlib.Path(f"/proc/{int(pid.read_text())}/cmdline").read_bytes():
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        os.close(fd)
    said = p.communicate(timeout=60)[0]
    rt("delete", "-f", ident)
    return "up" not in said.splitlines() and p.returncode != 0


def containers(host, name):
    rt = Runtime(host, name)
    rt.config("echo up")
    r = rt("run", "try")
    if r.returncode != 0:
        skip_all(f"{name} cannot run a container here: {(r.stderr or r.stdout).strip().splitlines()[-1:]}")
    node = full(host.tmp, "switch4")[0]
    (node / "dev/infiniband").mkdir(parents=True)
    for i in range(16):
        os.mknod(node / f"dev/infiniband/uverbs{i}", 0o20600, os.makedev(231, 192 + i))
    by_spec(rt, node, host)
    by_exec(rt, node, host)
    by_hook(rt, node, host)
    hostile(rt, host)
    killed(rt, host)


# ---- without a runtime ---------------------------------------------------------------------------

def run(host):
    def hawser(*argv, **more):
        return host.sandbox("run", "--nics", ",".join(NICS), *argv, **more)

    def command(*argv):
        return [HAWSER, "sandbox", "run", "--nics", ",".join(NICS), "--journal-dir", str(host.journal), "--id", "box", "--", *argv]

    r = sh(*command("sh", "-c", LOOK + "exit 7"))
    p = parts(r.stdout)
    ok(r.returncode == 7 and "end" in p, "run: the exit status is the command's", r)
    ok(sorted(p["net"]) == ["lo", *NICS] and os_devices(p["topo"]) == [] and "NCCL_SOCKET_IFNAME==rdma0,rdma1" in p["env"], "run: it sees the plan and nothing else", p)
    ok(len(p["addr"]) == 4 and "10.9.0.1/16" in p["addr"][0], "run: the NICs have their addresses", p["addr"])
    host.back("run")
    r = sh(*command("sh", "-c", "echo $NCCL_SOCKET_IFNAME"), env={**os.environ, "NCCL_SOCKET_IFNAME": "mine"})
    ok(r.stdout == "mine\n", "run: the caller's own value wins", r)
    ok(sh(*command("/nonexistent")).returncode == 127 and sh(*command("/etc/passwd")).returncode == 126, "run: 127 and 126")
    ok(host.sandbox("run", "--nics", "nosuch", "--", "true").returncode == 125, "run: 125 where it cannot begin")
    ok(sh(*command("sh", "-c", "kill -9 $$")).returncode == 137, "run: a killed command")
    host.back("killed command")

    p = subprocess.Popen(command("sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"), stdout=subprocess.PIPE)
    p.stdout.readline()
    p.terminate()
    ok(p.wait(SECONDS) == 3, "run: SIGTERM is handed on", p.returncode)
    p.stdout.close()
    host.back("SIGTERM")

    pid, tty = pty.fork()
    if pid == 0:
        os.execv(HAWSER, command("sh", "-c", "echo up; sleep 60"))
    text = b""
    while b"up" not in text:
        text += os.read(tty, 1000)
    gone, status = 0, 0
    while not gone:  # repeated, as a shell that is about to fork defers the first signal until its child has exited
        with contextlib.suppress(OSError):
            os.write(tty, b"\x03")
        time.sleep(0.2)
        gone, status = os.waitpid(pid, os.WNOHANG)
    os.close(tty)
    ok(os.waitstatus_to_exitcode(status) == 130, "run: Ctrl-C", status)
    host.back("Ctrl-C")

    for how in ("restore", "the next run"):
        p = subprocess.Popen(command("sh", "-c", "echo up; exec sleep 60"), stdout=subprocess.PIPE, text=True)
        p.stdout.readline()
        inner = json.loads(host.sandbox("status", "--json").stdout)[0]["holder"]
        p.kill()
        p.wait()
        p.stdout.close()
        until(lambda: not os.path.exists(f"/proc/{inner}"), "the command's end")
        ok(not host.has("rdma0"), "run: hawser is killed, and its command with it")
        r = host.sandbox("restore", "box") if how == "restore" else sh(*command("true"))
        ok(r.returncode == 0, f"given back by {how}", r)
        host.back(f"killed hawser, {how}")

    # a foreign namespace in which none of our processes run
    other = subprocess.Popen(["unshare", "-n", "sleep", "60"])
    until(lambda: os.readlink(f"/proc/{other.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "a namespace")
    r = hawser("--netns", other.pid, "--no-sysfs", "--", "readlink", "/proc/self/ns/net")
    ok(r.stdout.strip() == os.readlink(f"/proc/{other.pid}/ns/net"), "run: in a namespace that is there", r)
    other.kill()
    other.wait()
    host.back("another namespace")


def main():
    def work(folder, stack):
        host = Host(folder, stack)
        run(host) if PART == "run" else containers(host, PART)

    need = ("unshare", "nsenter", "ip", "lstopo", "ibv_devices", "mount") + ((PART,) if PART != "run" else ())
    return inside(need, "hawser-oci-", work)


if __name__ == "__main__":
    sys.exit(main())
