#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hawser mesh` as people start it: by Open MPI, SLURM, torchrun, ssh or by hand, in a lab of network namespaces (TAP).
In one run a NIC is rate-limited, a rank is killed and another one is stopped: all three must be named. With RUNS, in so
many runs each one of these faults is alone, and what mesh names must be that and nothing else; without a fault nothing.
Usage: mesh_launch.py HAWSER hand|hosts|mpirun|srun|torchrun [RUNS [TORCHRUN]]
TORCHRUN: a program of that name; without it the variables that torchrun exports are set by hand."""
import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tap import done, ok  # noqa: E402

HAWSER, LAUNCHER = sys.argv[1], sys.argv[2]
RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 0
TORCHRUN = sys.argv[4] if len(sys.argv) > 4 else None
LAB = f"mesh{os.getpid()}"
NODES = 8
RATE, SLOW = "40mbit", "12mbit"
LETTERS = "abcdefgh"
# Short measurements of little: eight nodes on two CPUs. A rank's deadline is long for a machine that is busy.
OPTIONS = ["--size", "32KiB", "--depth", "4", "--quick", "--duration", "150ms", "--pings", "50", "--deadline", "5s", "--wait", "60s"]
NEEDS = {"mpirun": ["mpirun"], "srun": ["slurmctld", "slurmd", "srun", "munged"], "hand": [], "hosts": [], "torchrun": []}


def lab(what, *argv):
    return subprocess.run([HAWSER, "lab", what, "--name", LAB, *argv], check=True, timeout=120, capture_output=True, text=True)


def address(node):
    return f"198.18.0.{LETTERS.index(node) + 1}"


def inside(node, *argv):
    """In a node whose host name is its own, too."""
    return [HAWSER, "lab", "exec", f"{LAB}/{node}", "--", "unshare", "-u", "sh", "-c", 'hostname node$0; exec "$@"', node, *map(str, argv)]


def ranks(node):
    """Processes of hawser mesh in that node."""
    there = os.stat(f"/run/netns/hawser-{LAB}-{node}").st_ino
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.stat(p / "ns/net").st_ino == there and (p / "comm").read_text().strip() == "hawser":
                found.append(int(p.name))
    return found


def signal_ranks(node, sig):
    for pid in ranks(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sig)


class Launcher:
    """Starts all ranks; the JSON lines come to self.json."""

    def __init__(self, folder):
        self.folder = folder
        self.json = folder / "result"
        self.key = secrets.token_hex(16)
        self.extra = []

    def mesh(self):
        return [HAWSER, "mesh", *OPTIONS, *self.extra, "--json", self.json]

    def start(self):
        """Processes, of which the first one's end is the end of the run."""
        raise NotImplementedError

    def stop(self):
        pass


class ByHand(Launcher):
    """A process a node, as torchrun or our own variables want it."""

    def environment(self, rank, node):
        return {"HAWSER_MESH_RANK": rank, "HAWSER_MESH_SIZE": NODES, "HAWSER_MESH_MEET": address("a"), "HAWSER_MESH_NAME": f"node{node}"}

    def start(self):
        every = []
        for rank, node in enumerate(LETTERS):
            env = {**os.environ, "HAWSER_MESH_KEY": self.key, **{k: str(v) for k, v in self.environment(rank, node).items()}}
            every.append(subprocess.Popen(inside(node, *self.mesh()), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return every


class Torchrun(ByHand):
    def environment(self, rank, node):
        if TORCHRUN:
            return {}
        # what torchrun --nnodes 8 --nproc-per-node 1 exports
        return {"RANK": rank, "WORLD_SIZE": NODES, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "MASTER_ADDR": address("a"),
                "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "mesh", "OMP_NUM_THREADS": 1}

    def start(self):
        if not TORCHRUN:
            return super().start()
        # --redirects and --tee: Debian 12's torch 1.13 cannot read its own defaults under Python 3.11
        every = []
        for rank, node in enumerate(LETTERS):
            command = [TORCHRUN, "--nnodes", NODES, "--node_rank", rank, "--nproc_per_node", 1, "--master_addr", address("a"), "--master_port", 29500,
                       "--redirects", 1, "--tee", 1, "--log_dir", self.folder, "--no_python", *self.mesh()]
            env = {**os.environ, "HAWSER_MESH_KEY": self.key}
            every.append(subprocess.Popen(inside(node, *command), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return every


class Hosts(Launcher):
    """hawser mesh --hosts: what reaches a host is no ssh, but alike."""

    def start(self):
        (self.folder / "hosts").write_text("".join(f"{n} addr={address(n)} rack=r{i // 4} # {i}\n" for i, n in enumerate(LETTERS)))
        command = [HAWSER, "mesh", "--hosts", self.folder / "hosts", "--ssh", f"{HAWSER} lab exec {LAB}/{{}} --", *OPTIONS, *self.extra, "--json", self.json]
        return [subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)]


class Mpirun(Launcher):
    def __init__(self, folder):
        super().__init__(folder)
        self.agent = folder / "agent"
        self.agent.write_text(f"""#!/bin/sh
host=$1; shift
case $host in {" ".join(f"{address(n)}) n={n} ;;" for n in LETTERS)} esac
exec {HAWSER} lab exec {LAB}/$n -- unshare -u sh -c 'hostname node$0; exec sh -c "$1"' $n "$*"
""")
        self.agent.chmod(0o755)
        (folder / "hostfile").write_text("".join(f"{address(n)} slots=1\n" for n in LETTERS))

    def start(self):
        command = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent, "--hostfile", self.folder / "hostfile", "-n", NODES,
                   "--map-by", "ppr:1:node", "-enable-recovery", "-x", "HAWSER_MESH_KEY", *self.mesh()]
        env = {**os.environ, "HAWSER_MESH_KEY": self.key}
        return [subprocess.Popen(inside("a", *command), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)]


class Srun(Launcher):
    """slurmctld in node a, slurmd in each, one munged for all."""

    def __init__(self, folder):
        super().__init__(folder)
        folder.chmod(0o755)  # munged wants to be reached
        self.daemons = []
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise

    def begin(self):
        d = self.folder
        names = "".join(f"NodeName=node{n} NodeAddr={address(n)} State=UNKNOWN\n" for n in LETTERS)
        (d / "slurm.conf").write_text(f"""ClusterName=mesh
SlurmctldHost=nodea({address("a")})
AuthType=auth/munge
AuthInfo=socket={d}/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool.%n
SlurmctldPidFile={d}/slurmctld.pid
SlurmdPidFile={d}/slurmd.%n.pid
SlurmctldLogFile={d}/slurmctld.log
SlurmdLogFile={d}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=5
{names}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        (d / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nCgroupMountpoint={d}/cgroup\n")
        (d / "etchosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address(n)} node{n}\n" for n in LETTERS))
        (d / "munge.key").write_bytes(os.urandom(128))
        (d / "munge.key").chmod(0o600)
        for name in ["state", "cgroup", *(f"spool.node{n}" for n in LETTERS)]:
            (d / name).mkdir()
        munged = ["munged", "-F", f"--key-file={d}/munge.key", f"--socket={d}/munge.socket", f"--pid-file={d}/munged.pid", f"--log-file={d}/munged.log",
                  f"--seed-file={d}/munge.seed", "--force"]
        self.daemons.append(subprocess.Popen(munged, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self.daemon("a", "slurmctld", "-D")
        for n in LETTERS:
            self.daemon(n, "slurmd", "-D", "-N", f"node{n}")
        end = time.monotonic() + 60
        while True:
            told = subprocess.run(self.inside("a", "sinfo", "-h", "-t", "idle", "-o", "%D"), capture_output=True, text=True, timeout=60, check=False)
            if told.stdout.strip() == str(NODES):
                return
            if time.monotonic() > end:
                raise SystemExit(f"Bail out! SLURM did not start: {told.stdout} {told.stderr}")
            time.sleep(0.5)

    def inside(self, node, *argv):
        d = self.folder
        script = f'hostname node$0; mount --bind {d}/etchosts /etc/hosts; SLURM_CONF={d}/slurm.conf exec "$@"'
        return [HAWSER, "lab", "exec", f"{LAB}/{node}", "--", "unshare", "-u", "-m", "sh", "-c", script, node, *map(str, argv)]

    def daemon(self, node, *argv):
        self.daemons.append(subprocess.Popen(self.inside(node, *argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def start(self):
        env = {**os.environ, "HAWSER_MESH_KEY": self.key}
        return [subprocess.Popen(self.inside("a", "srun", "-N", NODES, *self.mesh()), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)]

    def stop(self):
        for p in reversed(self.daemons):
            p.terminate()
        for p in reversed(self.daemons):
            try:
                p.wait(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


KINDS = {"hand": ByHand, "hosts": Hosts, "mpirun": Mpirun, "srun": Srun, "torchrun": Torchrun}


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def wait_for_ranks(count):
    """Until that many nodes have processes of mesh, and measure for a while."""
    end = time.monotonic() + 60
    while sum(bool(ranks(n)) for n in LETTERS) < count and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(2.5)


def run(launcher, faults):
    """faults: what happens to which nodes. The findings of a run as (what, node, NIC), its exit status, and what it said."""
    launcher.json.unlink(missing_ok=True)
    hung = [n for n, f in faults.items() if f == "hung"]
    for node in (n for n, f in faults.items() if f == "slow"):
        lab("rate", node, "eth1", SLOW)
    every = launcher.start()
    try:
        if set(faults.values()) & {"dead", "hung"}:
            wait_for_ranks(NODES)
        for node, fault in faults.items():
            if fault in ("dead", "hung"):
                signal_ranks(node, signal.SIGKILL if fault == "dead" else signal.SIGSTOP)
        end = time.monotonic() + 150
        while every[0].poll() is None and not launcher.json.exists() and time.monotonic() < end:
            time.sleep(0.1)
        for node in hung:  # or the launcher waits for it
            signal_ranks(node, signal.SIGCONT)
            time.sleep(1)
            signal_ranks(node, signal.SIGKILL)
        text = every[0].communicate(timeout=120)[0].decode(errors="replace")
        for p in every[1:]:
            text += p.communicate(timeout=60)[0].decode(errors="replace")
    finally:
        for p in every:
            p.kill()
            p.wait()
        for n in LETTERS:
            signal_ranks(n, signal.SIGKILL)
            lab("rate", n, "eth1", RATE)
    lines = read(launcher.json) if launcher.json.exists() else []
    found = [(f["what"], f.get("node"), f.get("nic")) for f in lines if f["type"] == "finding"]
    return found, every[0].returncode, text, [f["text"] for f in lines if f["type"] == "finding"]


def name_of(node):
    return node if LAUNCHER == "hosts" else f"node{node}"


def is_named(fault, node, found):
    name = name_of(node)
    if fault == "slow":
        return any(f[0] in ("port", "sends", "receives") and f[1:] == (name, "eth1") for f in found)
    return ({"dead": "died", "hung": "silent"}[fault], name, None) in found


def try_all_at_once(launcher):
    """On a machine that is busy with other tests, a path may stand out besides."""
    faults = {"b": "slow", "d": "dead", "g": "hung"}
    found, code, text, said = run(launcher, faults)
    for node, fault in faults.items():
        ok(is_named(fault, node, found), f"{LAUNCHER}: {fault} at {name_of(node)} is named", said, text[-3000:])
    others = [f for f in found if f[0] not in ("path", "some") and f[1] not in [name_of(n) for n in faults]]
    ok(others == [], f"{LAUNCHER}: and no other node", others, said)
    if LAUNCHER != "mpirun":  # with -enable-recovery its own status is 0 whatever ranks say
        ok(code != 0, f"{LAUNCHER}: the exit status says that there are findings", code)
    again = subprocess.run([HAWSER, "mesh", "--read", launcher.json], capture_output=True, text=True, timeout=60, check=False)
    ok(again.returncode == 1, f"{LAUNCHER}: so does that of --read", again.returncode, again.stderr)


def try_fault(launcher, fault):
    good, wrong = 0, []
    for i in range(RUNS):
        node = LETTERS[1 + (i * 3 + 2) % (NODES - 1)]
        found, code, text, said = run(launcher, {} if fault == "none" else {node: fault})
        right = found == [] if fault == "none" else len(found) == 1 and is_named(fault, node, found)
        # of mpirun and torchrun the status is their own; where a rank was killed, others' too
        status = code == (1 if fault != "none" else 0) or LAUNCHER in ("mpirun", "torchrun") or fault in ("dead", "hung")
        good += right and status
        if not (right and status):
            wrong.append(f"run {i}, {fault} at {name_of(node)}: exit {code}, {said}\n{text[-1500:]}")
        print(f"# {LAUNCHER}, {fault} at {name_of(node)}: {said}", flush=True)
    ok(good == RUNS, f"{LAUNCHER}: {fault}: {good} of {RUNS} runs name it rightly", *wrong[:3])


def more_by_hand(launcher):
    """What is the same under every launcher."""
    launcher.extra = ["--report", launcher.folder / "report.html", "--load", "--wait", "10s"]
    launcher.json.unlink(missing_ok=True)
    every = launcher.start()
    every[LETTERS.index("d")].kill()
    text = every[0].communicate(timeout=120)[0].decode()
    for p in every[1:]:
        p.communicate(timeout=60)
    said = [f["text"] for f in read(launcher.json) if f["type"] == "finding"]
    ok(every[0].returncode == 1 and said == ["rank 3 never came (waited for 10 s)"], "a rank that never comes is named", text, said)
    page = (launcher.folder / "report.html").read_text(encoding="utf-8")
    ok("never came" in page and "<svg" in page and "<script" not in page, "the report has the finding and a heat map, and no script")
    ok("across the middle" in text and "all to all" in text, "loads of all nodes at once are measured", text)
    again = subprocess.run([HAWSER, "mesh", "--read", launcher.json, "--baseline", launcher.json], capture_output=True, text=True, timeout=60, check=False)
    ok(again.returncode == 1 and "1 finding\n" in again.stdout, "a saved run is judged to the same, and differs from itself in nothing", again.stdout, again.stderr)
    launcher.extra = []
    every = launcher.start()
    time.sleep(6)
    signal_ranks("a", signal.SIGINT)
    text = every[0].communicate(timeout=120)[0].decode()
    ok("interrupted" in text and "# hawser" in text, "interrupted, it tells what it has", text)
    for n in LETTERS:
        signal_ranks(n, signal.SIGKILL)
    for p in every[1:]:
        p.communicate(timeout=60)


def refuses(folder):
    """What is said before anything is measured."""
    none = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_MESH", "SLURM", "OMPI", "PMIX", "RANK", "WORLD_SIZE"))}
    own = {"HAWSER_MESH_RANK": "1", "HAWSER_MESH_SIZE": "2", "HAWSER_MESH_MEET": "198.18.0.77"}
    (folder / "one").write_text("a\n")
    (folder / "bad").write_text("a\nb nonsense\n")
    (folder / "no.json").write_text("{}\n")
    for env, argv, code, why in (({}, [], 2, "no launcher"), ({"HAWSER_MESH_RANK": "1"}, [], 2, "HAWSER_MESH_SIZE"),
                                 ({**own, "HAWSER_MESH_KEY": "short"}, [], 2, "16 to 4096 are needed"), ({**own, "HAWSER_MESH_SIZE": "x"}, [], 2, "HAWSER_MESH_SIZE"),
                                 (own, ["--wait", "1s"], 2, "was not found at 198.18.0.77"), ({"SLURM_PROCID": "0"}, [], 2, "start it by srun"),
                                 ({}, ["--hosts", folder / "one"], 2, "two at least"), ({}, ["--hosts", folder / "bad"], 2, "line 2"),
                                 ({}, ["--read", folder / "no.json"], 2, "line 1"), ({}, ["--read", folder / "none"], 2, "No such file")):
        p = subprocess.run([HAWSER, "mesh", *map(str, argv)], env={**none, **env}, capture_output=True, text=True, timeout=60, check=False)
        ok(p.returncode == code and why in p.stderr, f"refused: {why}", p.returncode, p.stderr)


def main():
    missing = [p for p in NEEDS[LAUNCHER] if not shutil.which(p)]
    if os.geteuid() != 0 or missing:
        print(f"1..0 # SKIP {'not installed: ' + ', '.join(missing) if missing else 'namespaces that ranks can be found in need root'}")
        return 77
    lab("up", "--nodes", str(NODES), "--nics", "2", "--rate", RATE)
    launcher = None
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as d:
            launcher = KINDS[LAUNCHER](pathlib.Path(d))
            try:
                for fault in ("none", "slow", "dead", "hung") if RUNS else ():
                    try_fault(launcher, fault)
                if not RUNS:
                    try_all_at_once(launcher)
                if LAUNCHER == "hand" and not RUNS:
                    more_by_hand(launcher)
                    refuses(pathlib.Path(d))
            finally:
                launcher.stop()
    finally:
        lab("down")
    return done()


sys.exit(main())
