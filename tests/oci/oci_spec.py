#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser sandbox spec` and `cdi`, using only files: the additions; that a second run adds nothing and --undo
removes everything; and invalid input, including input that oci-hook refuses (TAP). Usage: oci_spec.py HAWSER"""
import copy
import json
import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
from sandbox_help import Tool, done, full, ok, scratch  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIG = 18446744073709551615
CONFIG = {
    "ociVersion": "1.0.2",
    "process": {"args": ["sh"], "cwd": "/", "env": ["PATH=/bin", "NCCL_IB_HCA=mine", "NCCL_SOCKET_IFNAME="],
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": BIG, "soft": 1024}]},
    "root": {"path": "rootfs"},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
               {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
               {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"}],
    "hooks": {"poststop": [{"path": "/bin/true"}]},
    "linux": {"namespaces": [{"type": "network"}, {"type": "mount"}],
              "resources": {"devices": [{"allow": False, "access": "rwm"}]},
              "seccomp": {"syscalls": [{"args": [{"value": BIG, "x": -1.5}]}]}},
}


class Bundle:
    def __init__(self, tmp, t, node):
        self.dir, self.t, self.node = tmp / "bundle", t, node
        self.dir.mkdir()
        self.file = self.dir / "config.json"

    def put(self, config):
        self.file.write_text(config if isinstance(config, str) else json.dumps(config))

    def spec(self, *argv):
        return self.t("spec", self.file, "--sysfs", self.node, *argv)

    def get(self):
        return json.loads(self.file.read_text())


def changed(b):
    b.put(CONFIG)
    os.chmod(b.file, 0o640)
    r = b.spec("--nics", "rdma0,rdma1", "--gpus", "0", "--nccl-topo", "/etc/topo.xml", "--journal-dir", "/j", "--no-arp", "--rdma", "no")
    c = b.get()
    ok(r.returncode == 0 and b.file.stat().st_mode & 0o777 == 0o640, "the configuration is changed in its place", r)
    ok([m["destination"] for m in c["mounts"]] == ["/proc", "/sys", "/sys/fs/cgroup", "/etc/topo.xml"] and
       c["mounts"][1]["source"] == str(b.dir / "hawser.sys") and {"bind", "ro"} <= set(c["mounts"][1]["options"]) and
       sorted(os.listdir(b.dir / "hawser.sys/class/infiniband")) == ["mlx5_0", "mlx5_1"] and
       "<system" in (b.dir / "hawser.nccl.xml").read_text(), "/sys is the rebuilt one, with cgroups on it; NCCL's XML", c["mounts"])
    args = ["nics=rdma0,rdma1", "sysfs=no", "rdma=no", "arp=no", "journal-dir=/j"]
    program = os.path.realpath(b.t.program)
    ok(c["hooks"] == {"poststop": [{"path": "/bin/true"}, {"path": program, "args": ["hawser", "oci-hook", "poststop", *args]}],
                      "createRuntime": [{"path": program, "args": ["hawser", "oci-hook", "createRuntime", *args]}]}, "hooks", c["hooks"])
    ok(c["process"]["env"][:3] == CONFIG["process"]["env"] and "NCCL_TOPO_FILE=/etc/topo.xml" in c["process"]["env"] and
       sum(x.startswith(("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME")) for x in c["process"]["env"]) == 2,
       "environment: the container's own values stay, an empty one too", c["process"]["env"])
    ok(c["process"]["rlimits"][1:] == [{"type": "RLIMIT_MEMLOCK", "hard": BIG, "soft": BIG}] and
       c["process"]["rlimits"][0] == CONFIG["process"]["rlimits"][0] and c["linux"]["seccomp"] == CONFIG["linux"]["seccomp"],
       "no limit of locked memory; numbers beyond 63 bits stay", c["process"]["rlimits"])
    ok("devices" not in c["linux"] and r.stderr.count("uverbs") == 2, "device files that are not there are told", r.stderr)
    text = b.file.read_bytes()
    again = b.spec("--nics", "rdma0,rdma1", "--gpus", "0", "--nccl-topo", "/etc/topo.xml", "--journal-dir", "/j", "--no-arp", "--rdma", "no")
    ok(again.returncode == 0 and b.file.read_bytes() == text, "a second time changes nothing", again)
    for note, gpus in ("none", 0), ("0", 1), ("all", 1):
        b.put({**CONFIG, "annotations": {"hawser.gpus": note}})
        r = b.spec("--nics", "rdma0,rdma1", "--gpus", "0")
        seen = [d.name for d in (b.dir / "hawser.sys/bus/pci/devices").iterdir() if (d / "class").read_text().startswith("0x03")]
        ok(r.returncode == 0 and len(seen) == gpus, f"--gpus 0 and the annotation hawser.gpus={note}: GPUs shown: {gpus}", (r, seen))
    b.put({**CONFIG, "annotations": {"hawser.gpus": "0-1"}})
    r = b.spec("--nics", "rdma0,rdma1", "--gpus", "0")
    ok(r.returncode == 2 and "the annotation hawser.gpus requests GPU 1, which the operator's settings leave out: not named by --gpus" in r.stderr,
       "the annotation cannot add a GPU", r)
    b.put(CONFIG)
    b.spec("--nics", "rdma2")
    c = b.get()
    ok(len(c["hooks"]["createRuntime"]) == 1 and "nics=rdma2" in c["hooks"]["createRuntime"][0]["args"] and len(c["mounts"]) == 3,
       "another plan takes the place of the first", c["hooks"])
    c["process"]["env"].append("LATER=1")
    b.put(c)
    r = b.spec("--undo")
    want = copy.deepcopy(CONFIG)
    want["process"]["env"].append("LATER=1")
    ok(r.returncode == 0 and b.get() == want and os.listdir(b.dir) == ["config.json"], "--undo takes away all that was added, and nothing else",
       (b.get(), os.listdir(b.dir)))
    text = b.file.read_bytes()
    ok(b.spec("--undo").returncode == 0 and b.file.read_bytes() == text, "--undo of nothing changes nothing")


def others(b, tmp):
    b.put({**CONFIG, "annotations": {"hawser.nics": "rdma3", "other": "x"}})
    r = b.spec("--out", tmp / "out.json", "--no-sysfs")
    c = json.loads((tmp / "out.json").read_text())
    ok(r.returncode == 0 and "nics=rdma3" in c["hooks"]["createRuntime"][0]["args"] and c["mounts"] == CONFIG["mounts"] and
       b.get()["annotations"] == {"hawser.nics": "rdma3", "other": "x"}, "--out; by annotations; --no-sysfs", c)
    b.spec("--nics", "none", "--no-sysfs")
    ok(b.get()["hooks"] == CONFIG["hooks"], "no NICs, no hooks", b.get())
    b.put({**CONFIG, "process": {**CONFIG["process"], "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 1, "soft": 1}]}})
    r = b.spec("--nics", "rdma0")
    ok(b.get()["process"]["rlimits"] == [{"type": "RLIMIT_MEMLOCK", "hard": 1, "soft": 1}] and "RLIMIT_MEMLOCK" in r.stderr,
       "a limit of the container's own stays, and is told", r)
    b.spec("--undo")


def warned(b):
    """Tests the warning that, without a user namespace, CAP_NET_ADMIN applies to the host's network devices."""
    caps = {k: ["CAP_KILL", "CAP_NET_ADMIN"] for k in ("bounding", "effective", "permitted")}
    for spaces, told in ((["network", "mount"], True), (["network", "mount", "user"], False)):
        b.put({**CONFIG, "process": {**CONFIG["process"], "capabilities": caps}, "linux": {**CONFIG["linux"], "namespaces": [{"type": t} for t in spaces]}})
        r = b.spec("--nics", "rdma0")
        ok(r.returncode == 0 and r.stderr.count("CAP_NET_ADMIN") == told, f"CAP_NET_ADMIN with {spaces}: {'a' if told else 'no'} warning", r)
    b.spec("--undo")


def refused(b):
    def without(*keys):
        return {k: v for k, v in CONFIG.items() if k not in keys}

    for what, config in (("an empty file", ""), ("half a file", json.dumps(CONFIG)[:200]), ("a list", "[]"), ("another JSON", {"a": 1}),
                         ("no root", without("root")), ("no process", without("process")), ("not Linux", without("linux")),
                         ("no network namespace", {**CONFIG, "linux": {"namespaces": [{"type": "mount"}]}}),
                         ("mounts that are none", {**CONFIG, "mounts": {"a": 1}}), ("hooks that are none", {**CONFIG, "hooks": [1]}),
                         ("a note that is not ours", {**CONFIG, "annotations": {"hawser.spec": "{}"}}),
                         ("an unknown annotation", {**CONFIG, "annotations": {"hawser.nic": "rdma0"}})):
        b.put(config)
        was = b.file.read_bytes()
        r = b.spec("--nics", "rdma0")
        said = [x for x in r.stderr.splitlines() if "warning" not in x]
        ok(r.returncode == 1 and len(said) == 1 and "config.json" in said[0] and b.file.read_bytes() == was and
           os.listdir(b.dir) == ["config.json"], f"{what}: refused, and nothing changed", r)
    b.put(CONFIG)
    r = b.spec("--nics", "nosuch")
    ok(r.returncode == 2 and "nosuch" in r.stderr and b.get() == CONFIG, "a NIC that is not there", r)


def cdi(t, node, tmp):
    out = tmp / "cdi.json"
    r = t("cdi", "--sysfs", node, "--nics", "rdma0", "--sysfs-out", tmp / "cdi.sys", "--out", out, "--name", "pair-1",
          env={"NCCL_DEBUG": "WARN"})
    c = json.loads(out.read_text())
    e = c["devices"][0]["containerEdits"]
    ok(r.returncode == 0 and (c["cdiVersion"], c["kind"], len(c["devices"]), c["devices"][0]["name"]) ==
       ("0.5.0", "hawser.dev/sandbox", 1, "pair-1"), "a specification", c)
    ok(set(e) == {"env", "mounts", "hooks"} and "NCCL_IB_HCA==mlx5_0:1" in e["env"] and
       e["mounts"] == [{"hostPath": str(tmp / "cdi.sys"), "containerPath": "/sys", "options": ["bind", "ro", "nosuid", "nodev", "noexec"]}] and
       [h["hookName"] for h in e["hooks"]] == ["createRuntime", "poststop"] and
       all(h["args"] == ["hawser", "oci-hook", h["hookName"], "nics=rdma0", "sysfs=no"] for h in e["hooks"]), "its edits", e)
    r = t("cdi", "--sysfs", node, "--nics", "rdma0", "--no-sysfs", "--no-env")
    ok(set(json.loads(r.stdout)["devices"][0]["containerEdits"]) == {"hooks"}, "without sysfs and environment", r)
    r = t("cdi", "--sysfs", ROOT / "tests/data/nodes/a3-high")
    c, example = json.loads(r.stdout), json.loads((ROOT / "examples/containers/cdi.json").read_text())
    for h in c["devices"][0]["containerEdits"]["hooks"]:
        h["path"] = "/usr/bin/hawser"
    ok(c == example, "examples/containers/cdi.json is what it writes of that node", c)
    e = example["devices"][0]["containerEdits"]
    ok([m["containerPath"] for m in e["mounts"]] == ["/sys"] and not [v for v in e["env"] if v.startswith("LD_")],
       "and shadows no library of the container's", e)
    for name in ("a/b", "", "-a", "a b"):
        r = t("cdi", "--sysfs", node, "--no-sysfs", "--name", name)
        ok(r.returncode != 0 and not r.stdout, f"the name '{name}' is refused", r)
    r = t("cdi", "--sysfs", node, "--no-sysfs", "--nics", "none", "--gpus", "none")
    ok(r.returncode == 1, "nothing to give is an error", r)


def hook(program, tmp):
    def call(text, *argv):
        return subprocess.run([program, "oci-hook", *argv], input=text, capture_output=True, text=True, timeout=60)

    for text in ("", "{", "[]", "{}", '{"ociVersion":"1.0","id":7}', '{"ociVersion":"1.0","id":"x","pid":-1}',
                 '{"ociVersion":"1.0","id":"x","pid":1,"bundle":"relative"}', '{"ociVersion":"1.0","id":"x","pid":1}',
                 '{"ociVersion":"1.0","id":"x","pid":1,"bundle":"/nosuch"}', "[" * 4000, " " * (2 << 20)):
        r = call(text, "createRuntime", "nics=rdma0")
        ok(r.returncode == 1 and len(r.stderr.splitlines()) == 1, f"oci-hook: {text[:50].strip() or 'nothing'}: refused in one line", r)
    for argv in (("nosuch",), ("createRuntime", "nics"), ("createRuntime", "nic=a"), ("createRuntime", "force=perhaps"),
                 ("createRuntime", "sysfs=relative")):
        ok(call("", *argv).returncode in (1, 2), f"oci-hook {' '.join(argv)}: refused")
    # a hook with work to do needs a process, which this state lacks
    (tmp / "idle").mkdir()
    (tmp / "idle/config.json").write_text('{"ociVersion":"1.0"}')
    state = json.dumps({"ociVersion": "1.0", "id": "x", "bundle": str(tmp / "idle")})
    for argv, idle in (((), True), (("sysfs=no",), True), (("nics=none",), True), (("nics=none", "sysfs=no"), True), (("offer=all",), True),
                       (("sysfs=yes",), False), (("sysfs=/x",), False), (("nics=none", "sysfs=yes"), False), (("nics=rdma0",), False)):
        r = call(state, "createRuntime", *argv)
        ok(r.returncode == (0 if idle else 1) and ("has no pid" in r.stderr) != idle,
           f"oci-hook {' '.join(argv) or 'without arguments'}: {'nothing' if idle else 'something'} to do", r)


def main(program):
    with scratch() as d:
        tmp = pathlib.Path(d)
        t = Tool(program, tmp)
        node = full(tmp, "switch4")[0]
        b = Bundle(tmp, t, node)
        changed(b)
        others(b, tmp)
        warned(b)
        refused(b)
        cdi(t, node, tmp)
        hook(program, tmp)
    return done()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
