# SPDX-License-Identifier: Apache-2.0
"""The launchers of `hawser mesh`, in a lab of eight nodes, and the faults that mesh must report: a rate-limited NIC, a
killed rank and a stopped rank. Used by mesh_launch.py and bench/mesh_launchers."""
import contextlib
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time

LETTERS = "abcdefgh"
NODES = len(LETTERS)
RATE, SLOW = "40mbit", "12mbit"
# The measurements are short and small, because all eight nodes run on one machine.
OPTIONS = ["-v", "--size", "32KiB", "--depth", "4", "--quick", "--duration", "150ms"]
BEGUN = re.compile(r"hawser mesh: one way: .* pairs? in")  # printed when the first pairs have been measured
ROUND = re.compile(r"(hawser mesh: one way: .* pairs? in[\s\S]*){2}")  # printed after the first round
BEGIN_S, RUN_S, END_S = 240, 150, 60  # timeouts of the first measurement, the result, and the exit
FOUND = {"slow": ("port", "sends", "receives"), "dead": ("died",), "hung": ("silent",)}


def address(node):
    return f"198.18.0.{LETTERS.index(node) + 1}"


class Lab:
    """Eight nodes with two NICs each. Use as a context manager."""

    def __init__(self, hawser, name):
        self.hawser, self.name = str(hawser), name

    def __enter__(self):
        self.call("up", "--nodes", str(NODES), "--nics", "2", "--rate", RATE)
        return self

    def __exit__(self, *_):
        self.call("down")

    def call(self, what, *argv):
        return subprocess.run([self.hawser, "lab", what, "--name", self.name, *argv], check=True, timeout=120, capture_output=True, text=True)

    def inside(self, node, *argv):
        """Returns the argv that runs a command in a node, with a host name for that node."""
        return [self.hawser, "lab", "exec", f"{self.name}/{node}", "--", "unshare", "-u", "sh", "-c", 'hostname node$0; exec "$@"', node, *map(str, argv)]

    def list_ranks(self, node):
        """Returns the hawser mesh processes that run in a node."""
        there = os.stat(f"/run/netns/hawser-{self.name}-{node}").st_ino
        found = []
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (p / "comm").read_text().strip() == "hawser" and os.stat(p / "ns/net").st_ino == there:
                    found.append(int(p.name))
        return found

    def signal_ranks(self, node, sig):
        for pid in self.list_ranks(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)


class Output:
    """Collects the output of a process in a thread."""

    def __init__(self, process):
        self.process, self.text = process, ""
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.text += line.decode(errors="replace")

    def wait_for(self, pattern, seconds):
        """Returns whether a matching line appeared before the process exited or the timeout expired."""
        end = time.monotonic() + seconds
        while not pattern.search(self.text) and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        return bool(pattern.search(self.text))

    def end(self, seconds):
        """Waits for the process to exit, and kills it on timeout. Returns whether it exited in time."""
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.process.kill()
            self.process.wait()
            self.thread.join(END_S)


class Launcher:
    """Starts all ranks; the JSON lines are written to self.json."""

    needs: list[str] = []
    prefix = "node"  # prefix of a node's name in mesh's output; the node's letter follows
    own_status = False  # whether the exit status is the launcher's instead of mesh's

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, folder
        self.json = folder / "result"
        self.key = secrets.token_hex(16)
        self.extra = []

    @classmethod
    def list_missing(cls):
        return [p for p in cls.needs if not shutil.which(p)]

    def name_of(self, node):
        return self.prefix + node

    def mesh(self):
        return [self.lab.hawser, "mesh", *OPTIONS, *self.extra, "--json", self.json]

    def popen(self, argv, env):
        env = {**os.environ, "HAWSER_MESH_KEY": self.key, **{k: str(v) for k, v in env.items()}}
        return subprocess.Popen([str(a) for a in argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def start(self):
        """Starts the processes. The run ends when the first process exits."""
        raise NotImplementedError

    def stop(self):
        pass


class ByHand(Launcher):
    """One process per node, with hawser's own environment variables."""

    def environment(self, rank, node):
        return {"HAWSER_MESH_RANK": rank, "HAWSER_MESH_SIZE": NODES, "HAWSER_MESH_MEET": address("a"), "HAWSER_MESH_NAME": f"node{node}"}

    def start(self):
        return [self.popen(self.lab.inside(node, *self.mesh()), self.environment(rank, node)) for rank, node in enumerate(LETTERS)]


class TorchrunVariables(ByHand):
    """One process per node, with the variables that torchrun --nnodes 8 --nproc-per-node 1 exports."""

    def environment(self, rank, node):
        return {"RANK": rank, "WORLD_SIZE": NODES, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": rank, "MASTER_ADDR": address("a"),
                "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "mesh", "OMP_NUM_THREADS": 1}


class Torchrun(Launcher):
    needs = ["torchrun"]
    own_status = True

    def start(self):
        # --redirects and --tee are passed because torch 1.13 from Debian 12 cannot parse its own defaults on Python
        # 3.11
        return [self.popen(self.lab.inside(node, "torchrun", "--nnodes", NODES, "--node_rank", rank, "--nproc_per_node", 1, "--master_addr", address("a"),
                                           "--master_port", 29500, "--redirects", 1, "--tee", 1, "--log_dir", self.folder, "--no_python", *self.mesh()), {})
                for rank, node in enumerate(LETTERS)]


class Hosts(Launcher):
    """hawser mesh --hosts, with a replacement for ssh."""

    prefix = ""

    def start(self):
        (self.folder / "hosts").write_text("".join(f"{n} addr={address(n)} rack=r{i // 4} # {i}\n" for i, n in enumerate(LETTERS)))
        return [self.popen([self.lab.hawser, "mesh", "--hosts", self.folder / "hosts", "--ssh", f"{self.lab.hawser} lab exec {self.lab.name}/{{}} --", *OPTIONS,
                            *self.extra, "--json", self.json], {})]


class Mpirun(Launcher):
    needs = ["mpirun"]
    own_status = True  # 0 with -enable-recovery

    def __init__(self, lab, folder):
        super().__init__(lab, folder)
        self.agent = folder / "agent"
        self.agent.write_text(f"""#!/bin/sh
host=$1; shift
case $host in {" ".join(f"{address(n)}) n={n} ;;" for n in LETTERS)} esac
exec {lab.hawser} lab exec {lab.name}/$n -- unshare -u sh -c 'hostname node$0; exec sh -c "$1"' $n "$*"
""")
        self.agent.chmod(0o755)
        (folder / "hostfile").write_text("".join(f"{address(n)} slots=1\n" for n in LETTERS))

    def start(self):
        return [self.popen(self.lab.inside("a", "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent, "--hostfile", self.folder / "hostfile",
                                           "-n", NODES, "--map-by", "ppr:1:node", "-enable-recovery", "-x", "HAWSER_MESH_KEY", *self.mesh()), {})]


class Srun(Launcher):
    """slurmctld in node a, slurmd in each node, and one munged shared by all nodes."""

    needs = ["slurmctld", "slurmd", "srun", "munged"]

    def __init__(self, lab, folder):
        super().__init__(lab, folder)
        folder.chmod(0o755)  # munged must be reachable
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
        self.start_daemon("a", "slurmctld", "-D")
        for n in LETTERS:
            self.start_daemon(n, "slurmd", "-D", "-N", f"node{n}")
        self.wait_until_idle(60)

    def wait_until_idle(self, seconds):
        """Waits until all nodes accept jobs."""
        end = time.monotonic() + seconds
        while True:
            told = subprocess.run(self.inside("a", "sinfo", "-h", "-t", "idle", "-o", "%D"), capture_output=True, text=True, timeout=60, check=False)
            if told.stdout.strip() == str(NODES):
                return
            if time.monotonic() > end:
                raise SystemExit(f"Bail out! SLURM did not start: {told.stdout} {told.stderr}")
            time.sleep(0.2)

    def inside(self, node, *argv):
        d = self.folder
        script = f'hostname node$0; mount --bind {d}/etchosts /etc/hosts; SLURM_CONF={d}/slurm.conf exec "$@"'
        return [self.lab.hawser, "lab", "exec", f"{self.lab.name}/{node}", "--", "unshare", "-u", "-m", "sh", "-c", script, node, *map(str, argv)]

    def start_daemon(self, node, *argv):
        self.daemons.append(subprocess.Popen(self.inside(node, *argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def start(self):
        return [self.popen(self.inside("a", "srun", "-N", NODES, *self.mesh()), {})]

    def stop(self):
        for p in reversed(self.daemons):
            p.terminate()
        for p in reversed(self.daemons):
            try:
                p.wait(timeout=10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


class Run:
    """The result of a run: findings as (what, node, NIC) and as text, the exit status, and the output."""

    def __init__(self, launcher, faults, pause=0.0):
        """faults maps nodes to faults. Faults of ranks are injected `pause` seconds after the first measurement.
        self.ended is true if all processes exited in time."""
        lab = launcher.lab
        launcher.json.unlink(missing_ok=True)
        for node in (n for n, f in faults.items() if f == "slow"):
            lab.call("rate", node, "eth1", SLOW)
        begin = time.monotonic()
        every = launcher.start()
        outputs = [Output(p) for p in every]
        self.ended = True
        try:
            begun = outputs[0].wait_for(BEGUN, BEGIN_S)
            if begun and set(faults.values()) & {"dead", "hung"}:
                time.sleep(pause)
            for node, fault in faults.items():
                if fault in ("dead", "hung"):
                    lab.signal_ranks(node, signal.SIGKILL if fault == "dead" else signal.SIGSTOP)
            end = time.monotonic() + RUN_S
            while begun and every[0].poll() is None and not launcher.json.exists() and time.monotonic() < end:
                time.sleep(0.05)
            self.seconds = time.monotonic() - begin
            self.ended = begun and launcher.json.exists()
            if self.ended:  # the file is written last, and a launcher may wait for a hung rank
                for node in (n for n, f in faults.items() if f == "hung"):
                    lab.signal_ranks(node, signal.SIGKILL)
                self.ended = all([o.end(END_S) for o in outputs])
        finally:
            for n in LETTERS:
                lab.signal_ranks(n, signal.SIGKILL)
            for o in outputs:
                o.end(0)
            for node in (n for n, f in faults.items() if f == "slow"):
                lab.call("rate", node, "eth1", RATE)
        self.code = every[0].returncode
        self.text = "".join(o.text for o in outputs)
        lines = read_lines(launcher.json) if launcher.json.exists() else []
        found = self.findings = [f for f in lines if f["type"] == "finding"]
        self.found = [(f["what"], f.get("node"), f.get("nic")) for f in found]
        self.said = [f["text"] for f in found]


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def is_named(fault, name, found):
    return any(f[0] in FOUND[fault] and f[1] == name and f[2] == ("eth1" if fault == "slow" else None) for f in found)
