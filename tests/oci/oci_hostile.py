#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks on the OCI hook, `hawser sandbox spec` and `hawser verbs spec` by tenants who can write a container's
annotations, root file system or network namespace. Nothing of the host may be exposed, moved or changed (TAP; exits 77
if this machine cannot run the attacks). Usage: oci_hostile.py HAWSER STATE PART, where STATE is a program that prints
the contents of a network namespace."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from oci_help import inside  # noqa: E402
from sandbox_help import full, ok  # noqa: E402

HAWSER, STATE, PART = (*map(os.path.abspath, sys.argv[1:3]), sys.argv[3])
SECONDS = 30


def sh(*argv, **more):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, check=False, **more)


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
        time.sleep(0.01)
    raise TimeoutError(what)


class Host:
    """A network namespace with the NICs rdma0 and rdma1, a NIC of another tenant, and the NIC with the default
    route."""

    def __init__(self, tmp, stack):
        self.tmp, self.journal = tmp, tmp / "journal"
        must("mount", "-t", "sysfs", "none", "/sys")
        pathlib.Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
        must("ip", "link", "set", "lo", "up")
        for i, nic in enumerate(("rdma0", "rdma1", "other0", "def0")):
            must("ip", "link", "add", nic, "type", "veth", "peer", "name", f"peer{i}")
            must("ip", "link", "set", f"peer{i}", "up")
            must("ip", "addr", "add", f"10.9.{i}.1/24", "dev", nic)
            must("ip", "link", "set", nic, "up")
        must("ip", "route", "add", "default", "via", "10.9.3.254", "dev", "def0")
        self.was = must(STATE)
        self.stack = stack

    def same(self, what):
        with contextlib.suppress(TimeoutError):
            until(lambda: must(STATE) == self.was, what)
        a, b = set(self.was.splitlines()), set(must(STATE).splitlines())
        ok(a == b and not self.left(), what, "\n".join([*("- " + x[:200] for x in sorted(a - b)), *("+ " + x[:200] for x in sorted(b - a)), *self.left()]))

    def left(self):
        return os.listdir(self.journal) if self.journal.is_dir() else []

    def has(self, nic):
        return os.path.exists(f"/sys/class/net/{nic}")

    @contextlib.contextmanager
    def container(self, *spaces):
        """Starts a process in new namespaces, like the process that exists when a runtime calls createRuntime."""
        p = subprocess.Popen(["unshare", *(spaces or ("-n", "-m", "--propagation", "private")), "sleep", "600"])
        try:
            until(lambda: os.readlink(f"/proc/{p.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "a namespace")
            yield p
        finally:
            p.kill()
            p.wait()

    def bundle(self, config_annotations):
        b = self.tmp / "bundle"
        (b / "rootfs/sys").mkdir(parents=True, exist_ok=True)
        (b / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {},
                                                   "annotations": config_annotations, "linux": {"namespaces": [{"type": "network"}]}}))
        return b

    def hook(self, stage, pid, *args, config=None, state=None, ident="box", **more):
        s = {"ociVersion": "1.0", "id": ident, "pid": pid, "status": "created", "bundle": str(self.bundle(config or {})),
             "annotations": state or {}}
        return sh(HAWSER, "oci-hook", stage, f"journal-dir={self.journal}", *args, input=json.dumps(s), **more)


# ---- annotations ---------------------------------------------------------------------------------

def annotations(host):
    """Tests a tenant's annotations: they can choose among the NICs that the hook's arguments offer, but cannot add to
    these."""
    def attack(notes, args, said, what):
        for where in ("config", "state"):
            with host.container() as c:
                r = host.hook("createRuntime", c.pid, *args, **{where: notes})
                took = sorted(n for n in ("rdma0", "rdma1", "other0", "def0") if not host.has(n))
                ok(r.returncode == 1 and said in r.stderr and not took, f"{what} (in the {where})", (r, took))
                host.hook("poststop", 0, *args)

    attack({"hawser.nics": "def0", "hawser.force": "yes"}, ["offer=rdma0,def0"], "hawser.force", "force, for the NIC with the default route")
    attack({"hawser.nics": "def0", "hawser.force": "yes"}, [], "hawser.force", "force, where the arguments say nothing")
    attack({"hawser.nics": "def0"}, ["offer=rdma0,def0", "force=no"], "def0", "a NIC with the default route, though offered")
    attack({"hawser.nics": "other0"}, ["offer=rdma0,rdma1"], "other0", "a NIC that is not offered")
    attack({"hawser.nics": "rdma0,other0"}, ["nics=rdma0,rdma1"], "other0", "a NIC besides those of the arguments")
    attack({"hawser.nics": "rdma0"}, [], "offer", "NICs where the arguments offer none")
    attack({"hawser.nics": "all"}, ["sysfs=yes"], "offer", "all NICs, where the arguments offer none")
    for key, value in (("exclude", ""), ("all-nics", "yes"), ("arp", "no"), ("id", "victim"), ("sysfs", "yes"), ("sysfs", "/etc"),
                       ("journal-dir", "/tmp"), ("offer", "all"), ("forces", "yes")):
        attack({"hawser.nics": "rdma0", f"hawser.{key}": value}, ["offer=rdma0"], f"hawser.{key}", f"hawser.{key}={value}")
    for notes in ({"hawser.gpus": "0"}, {"hawser.bootstrap": "10.9.0.1"}, {"hawser.require-ipv4": "yes"}, {"hawser.rdma": "auto"}):
        with host.container() as c:
            r = host.hook("createRuntime", c.pid, "offer=rdma0,other0", config=notes)
            ok(r.returncode == 0 and host.has("rdma0") and host.has("other0"), f"{notes} alone: it gets no NIC", r)
            host.hook("poststop", 0)
    host.same("and nothing has changed")
    # annotations may still choose
    for notes, args, want in (({"hawser.nics": "rdma1"}, ["offer=rdma0,rdma1"], {"rdma1"}), ({"hawser.nics": "all"}, ["offer=rdma0,rdma1"], {"rdma0", "rdma1"}),
                              ({}, ["offer=rdma0,rdma1"], set()), ({}, ["nics=rdma0"], {"rdma0"}), ({"hawser.nics": "rdma1"}, ["nics=rdma0,rdma1"], {"rdma1"}),
                              ({"hawser.nics": "none"}, ["nics=rdma0"], set()), ({"hawser.nics": "none"}, [], set()), ({}, [], set()), ({}, ["sysfs=no"], set()),
                              ({"hawser.nics": "rdma0,rdma1", "hawser.bootstrap": "10.9.7.7"}, ["offer=rdma0,rdma1"], {"rdma0", "rdma1"})):
        with host.container() as c:
            r = host.hook("createRuntime", c.pid, *args, config=notes)
            took = {n for n in ("rdma0", "rdma1", "other0", "def0") if not host.has(n)}
            ok(r.returncode == 0 and took == want, f"{notes} and {args}: {sorted(want) or 'nothing'}", (r, took))
            c.kill()
            c.wait()
            # at the end, an invalid annotation must not prevent NICs from returning
            r = host.hook("poststop", 0, *args, config={**notes, "hawser.nonsense": "x"}, state={"hawser.force": "yes"})
            ok(r.returncode == 0 and all(host.has(n) for n in ("rdma0", "rdma1", "other0", "def0")), "poststop reads no annotation", r)
    host.same("all is back")


# ---- two hooks at once ----------------------------------------------------------------------------

def races(host):
    """Tests poststop for an id whose createRuntime is still running: poststop must not take the NICs of the container
    that runs afterwards."""
    with host.container() as c:
        state = {"ociVersion": "1.0", "id": "box", "pid": c.pid, "bundle": str(host.bundle({}))}
        args = [HAWSER, "oci-hook", "createRuntime", f"journal-dir={host.journal}", "nics=rdma0,rdma1"]
        for _ in range(20):  # the hook is stopped in the middle of the move
            p = subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            p.stdin.write(json.dumps(state))
            p.stdin.close()
            while not (host.journal / "box.journal").exists() and p.poll() is None:
                pass
            p.send_signal(signal.SIGSTOP)
            if '"under way"' in must(HAWSER, "sandbox", "status", "--json", "--journal-dir", host.journal):
                break
            p.send_signal(signal.SIGCONT)
            p.wait()
            sh(HAWSER, "sandbox", "restore", "box", "--journal-dir", host.journal)
        else:
            ok(False, "the hook could not be stopped in its middle")
        stop = subprocess.Popen([HAWSER, "oci-hook", "poststop", f"journal-dir={host.journal}"], stdin=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        stop.stdin.write(json.dumps({**state, "pid": 0}))
        stop.stdin.close()
        time.sleep(0.5)
        p.send_signal(signal.SIGCONT)
        ok(p.wait(SECONDS) == 0, "createRuntime goes on")
        said = stop.stderr.read()
        ok(stop.wait(SECONDS) == 1 and "still running" in said, "poststop of the same id says that the container runs", said)
        ok(not host.has("rdma0") and not host.has("rdma1"), "which keeps its NICs")
        p.stderr.close()
        stop.stderr.close()
    host.hook("poststop", 0)
    host.same("all is back")


# ---- root file systems ----------------------------------------------------------------------------

def rootfs(host):
    """Tests that no content of an image at or under /sys redirects a mount or a file to another place."""
    target = host.tmp / "target"
    (target / "fs/cgroup").mkdir(parents=True)
    root = host.tmp / "bundle/rootfs"

    def clear():
        for f in sorted(root.rglob("*"), reverse=True):
            f.rmdir() if f.is_dir() and not f.is_symlink() else f.unlink()

    def link_sys():
        (root / "sys").symlink_to(target)

    def link_relative():
        (root / "sys").symlink_to("../../target")

    def link_below():
        (root / "sys").mkdir()
        (root / "sys/fs").symlink_to(target / "fs")

    def link_cgroup():
        (root / "sys/fs").mkdir(parents=True)
        (root / "sys/fs/cgroup").symlink_to(target / "fs/cgroup")

    def file():
        (root / "sys").write_text("x")

    def absent():
        pass

    for how, fine in ((link_sys, False), (link_relative, False), (link_below, False), (link_cgroup, False), (file, False), (absent, False)):
        with host.container() as c:
            host.bundle({})
            clear()
            how()
            r = sh(HAWSER, "oci-hook", "createRuntime", f"journal-dir={host.journal}", "nics=rdma0", "sysfs=yes",
                   input=json.dumps({"ociVersion": "1.0", "id": "box", "pid": c.pid, "bundle": str(host.tmp / "bundle")}))
            mounts = pathlib.Path(f"/proc/{c.pid}/mountinfo").read_text() + pathlib.Path("/proc/self/mountinfo").read_text()
            ok((r.returncode == 0) == fine and str(target) not in mounts and host.has("rdma0") and
               sorted(str(f.relative_to(target)) for f in target.rglob("*")) == ["fs", "fs/cgroup"],
               f"an image whose /sys is {how.__name__}: refused, with no mount and no file elsewhere", (r, mounts))
            clear()
    # a container in the host's mount namespace, where nothing may be mounted
    with host.container("-n") as c:
        was = pathlib.Path("/proc/self/mountinfo").read_text()
        r = host.hook("createRuntime", c.pid, "nics=rdma0", "sysfs=yes")
        ok(r.returncode == 1 and "mount namespace" in r.stderr and host.has("rdma0") and pathlib.Path("/proc/self/mountinfo").read_text() == was,
           "a container without a mount namespace of its own: refused, with no mount left", r)
    # a process that has exited, and a process id that was never used
    with host.container() as c:
        pid = c.pid
    for p in pid, 2 ** 22 + 5:
        r = host.hook("createRuntime", p, "nics=rdma0", "sysfs=yes")
        ok(r.returncode == 1 and "ended" in r.stderr and host.has("rdma0"), "a process that is no more: refused", r)
    # the host's own network and mount namespaces
    r = host.hook("createRuntime", os.getpid(), "nics=rdma0")
    ok(r.returncode == 1 and host.has("rdma0"), "a process in the host's own network namespace: refused", r)
    host.same("nothing has changed")


# the record of spec

def notes(host):
    """Tests that spec refuses a record written by a tenant, and annotations that request more than the options
    offer."""
    node = full(host.tmp, "switch4")[0]
    b = host.tmp / "forged"
    b.mkdir()
    file = b / "config.json"
    hook = {"path": "/bin/true", "args": ["true"]}
    evil = {"path": "/tenant/program", "args": ["x"]}
    config = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"args": ["sh"]},
              "hooks": {"createRuntime": [hook]}, "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
              "linux": {"namespaces": [{"type": "network"}], "resources": {"devices": [{"allow": False, "access": "rwm"}]}}}
    forged = {"added": [["linux/resources/devices", {"allow": False, "access": "rwm"}]],
              "replaced": [["hooks/createRuntime", hook, evil],
                           ["mounts", config["mounts"][0], {"destination": "/host", "type": "none", "source": "/", "options": ["bind"]}]],
              "made": []}
    for argv in (["--nics", "rdma0"], ["--undo"]):
        file.write_text(json.dumps({**config, "annotations": {"hawser.spec": json.dumps(forged)}}))
        was = file.read_bytes()
        r = sh(HAWSER, "sandbox", "spec", file, "--sysfs", node, *argv)
        text = file.read_text()
        ok("/tenant/program" not in json.dumps(json.loads(text).get("hooks")) and '"/host"' not in json.dumps(json.loads(text)["mounts"]) and
           {"allow": False, "access": "rwm"} in json.loads(text)["linux"]["resources"]["devices"],
           f"{argv}: a forged note brings in no hook and no mount, and takes no rule away", text)
        ok(r.returncode == 1 and "hawser.spec" in r.stderr and file.read_bytes() == was, "it is refused, with nothing changed", r)
    # a tenant's configuration cannot use the record of another tenant
    file.write_text(json.dumps(config))
    must(HAWSER, "sandbox", "spec", file, "--sysfs", node, "--nics", "rdma0")
    true = json.loads(file.read_text())
    other = host.tmp / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({**config, "annotations": {"hawser.spec": true["annotations"]["hawser.spec"]}}))
    r = sh(HAWSER, "sandbox", "spec", other / "config.json", "--sysfs", node, "--undo")
    ok(r.returncode == 1 and "hawser.spec" in r.stderr, "the annotation of another bundle is not this one's", r)
    for key, value in (("force", "yes"), ("exclude", ""), ("all-nics", "yes"), ("sysfs", "/etc")):
        (other / "config.json").write_text(json.dumps({**config, "annotations": {f"hawser.{key}": value}}))
        r = sh(HAWSER, "sandbox", "spec", other / "config.json", "--sysfs", node, "--nics", "rdma0")
        ok(r.returncode == 1 and f"hawser.{key}" in r.stderr, f"spec: hawser.{key} is refused", r)
    for want, argv in (("eth1", []), ("rdma3", ["--nics", "rdma0,rdma1"])):
        (other / "config.json").write_text(json.dumps({**config, "annotations": {"hawser.nics": want}}))
        r = sh(HAWSER, "sandbox", "spec", other / "config.json", "--sysfs", node, *argv)
        ok(r.returncode != 0 and want in r.stderr, f"spec: an annotation for {want} where the options give {argv or 'what fits'}", r)


def verbs_notes(host):
    """Tests that `hawser verbs spec` reverts the changes recorded by an earlier run. A record that was written by a
    tenant, or that belongs to another configuration, must not restore any device, rule or seccomp profile."""
    machine = full(host.tmp, "switch4")[0]
    dev = machine / "dev/infiniband"
    dev.mkdir(parents=True)
    for i in 0, 2:
        os.mknod(dev / f"uverbs{i}", 0o20666, os.makedev(231, 192 + i))
    b = host.tmp / "forged"
    b.mkdir()
    file, kept = b / "config.json", b / "config.json.hawser"
    profile = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read", "write", "ioctl"], "action": "SCMP_ACT_ALLOW"}]}
    config = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"args": ["sh"], "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 900, "soft": 512}]},
              "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
              "linux": {"namespaces": [{"type": "network"}], "seccomp": profile, "resources": {"devices": [{"allow": False, "access": "rwm"}]}}}
    memory = {"path": "/dev/mem", "type": "c", "major": 1, "minor": 1, "fileMode": 0o666}
    forged = {"seccomp": None, "mounts": [], "devices": [[0, memory]], "rules": [[1, {"allow": True, "access": "rwm"}]],
              "limit": {"type": "RLIMIT_NOFILE", "hard": 2**40, "soft": 2**40}, "section": True}

    def verbs(*argv, file=file):
        return sh(HAWSER, "verbs", "spec", file, "--dev", dev, *argv)

    def sandbox(*argv, file=file):
        return sh(HAWSER, "sandbox", "spec", file, "--sysfs", machine, "--nics", "rdma0", "--no-sysfs", *argv)

    def refused(r, was, what, file=file):
        text = file.read_text()
        c = json.loads(text)
        ok("/dev/mem" not in json.dumps(c["linux"]) and {"allow": True, "access": "rwm"} not in c["linux"]["resources"]["devices"] and
           "defaultAction" in c["linux"].get("seccomp", {}) and c["process"]["rlimits"][0]["hard"] < 2**40,
           f"{what}: no device, no rule, no limit, and the profile stays", text)
        ok(r.returncode == 1 and "hawser.verbs.spec" in r.stderr and text == was, f"{what}: refused, with nothing changed", r)

    for what, spec in (("verbs spec", verbs), ("verbs spec --undo", lambda: verbs("--undo")), ("sandbox spec", sandbox)):
        for note in json.dumps(forged), json.dumps({**forged, "filter": profile}):
            file.write_text(json.dumps({**config, "annotations": {"hawser.verbs.spec": note}}))
            was = file.read_text()
            refused(spec(), was, f"{what}, a forged note")

    # the genuine record, and other configurations that refer to it
    file.write_text(json.dumps(config))
    r = verbs()
    true = json.loads(file.read_text())
    ok(r.returncode == 0 and kept.exists() and kept.stat().st_mode & 0o777 == 0o600 and len(true["annotations"]["hawser.verbs.spec"]) < 32,
       "the note is in a file beside the configuration, and the annotation has its name", (r, true["annotations"]))
    name = true["annotations"]["hawser.verbs.spec"]
    other = host.tmp / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({**true, "annotations": {"hawser.verbs.spec": name}}))
    r = verbs("--undo", file=other / "config.json")
    ok(r.returncode == 1 and "hawser.verbs.spec" in r.stderr, "the annotation of another bundle is not this one's", r)
    (other / "config.json").write_text(json.dumps({**config, "annotations": {"hawser.spec": name}}))
    (other / "config.json.hawser").write_text(kept.read_text())
    r = sandbox("--undo", file=other / "config.json")
    ok(r.returncode == 1 and "hawser.spec" in r.stderr, "a note of verbs spec is none of sandbox spec's", r)

    # a configuration that was rewritten while the record of an older one still exists keeps its own profile
    file.write_text(json.dumps({**config, "linux": {k: v for k, v in config["linux"].items() if k != "seccomp"}}))
    verbs()
    name = json.loads(file.read_text())["annotations"]["hawser.verbs.spec"]
    for argv in [], ["--undo"]:
        file.write_text(json.dumps({**config, "annotations": {"hawser.verbs.spec": name}}))
        was = file.read_text()
        refused(verbs(*argv), was, f"{argv}: the note of an older configuration, which had no profile")

    # both commands store their records in the same file
    file.write_text(json.dumps(config))
    kept.unlink()
    steps = [verbs(), sandbox(), verbs(), sandbox("--undo"), verbs("--undo")]
    ok(all(r.returncode == 0 for r in steps) and json.loads(file.read_text()) == config and not kept.exists(),
       "verbs, sandbox, verbs, and both undone: as it was, with no note left", (steps, file.read_text(), os.listdir(b)))
    steps = [sandbox(), verbs(), sandbox(), verbs("--undo"), sandbox("--undo")]
    c = json.loads(file.read_text())
    ok(all(r.returncode == 0 for r in steps) and not c.pop("annotations", None) and c == config and not kept.exists(),
       "and the other way round, but for annotations that are empty", (steps, file.read_text(), os.listdir(b)))


def main():
    parts = {"annotations": annotations, "races": races, "rootfs": rootfs, "notes": notes, "verbs_notes": verbs_notes}
    return inside(("unshare", "ip", "mount"), "hawser-hostile-", lambda folder, stack: parts[PART](Host(folder, stack)))


if __name__ == "__main__":
    sys.exit(main())
