#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests PyTorch over hawser and over NCCL's own sockets: steps of DistributedDataParallel and of FSDP, and the
collective operations that they and expert parallelism use, with two and four ranks. NCCL's algorithm, protocol and
channels are the same for both networks, so every bit of the results must be equal too: losses, parameters and outputs.
They must also be correct: equal to those of one process with all ranks' data, except for rounding; outputs of whole
numbers must be exact. Over hawser, also tests faults: a killed rank ends the other rank's wait, and an aborted group
can be replaced with another one.

Part of `tests/gpu/run nccl`. Separately: nccl_train.py [OPTION...]. Each rank is a process that NCCL treats as a
separate host; with fewer GPUs than ranks, ranks share GPUs. Ends with the line "N passed, N failed, N skipped". Skipped
without PyTorch or two GPUs. --cpu tries the script without GPUs and without NCCL."""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
NETWORKS = ("hawser", "Socket")
# Makes two GPUs of one host communicate like GPUs of two nodes, with the same settings for both networks. Includes the
# parameters that the plugin and its tuner would otherwise change (nccl/params.c, nccl/tuner.c).
COMMON = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0",
    "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MIN_NCHANNELS": "4", "NCCL_MAX_NCHANNELS": "4",
    "NCCL_NTHREADS": "512", "NCCL_BUFFSIZE": "8388608", "NCCL_P2P_NET_CHUNKSIZE": "524288",
    "NCCL_ALLOC_P2P_NET_LL_BUFFERS": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
OF = {"hawser": {"NCCL_NET_PLUGIN": "hawser"}, "Socket": {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}}
OUT = ("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_DEBUG_FILE", "NCCL_TUNER_PLUGIN", "NCCL_CONF_FILE")


# ---- a rank -----------------------------------------------------------------------------------------------------


def bits(tensors):
    """Returns a hash of every bit of the tensors."""
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()


class Rank:
    def __init__(self, a):
        import torch
        import torch.distributed as dist

        self.a, self.torch, self.dist = a, torch, dist
        self.rank, self.world = a.rank, a.world
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_num_threads(1)
        self.device = torch.device("cpu")
        if not a.cpu:
            self.device = torch.device("cuda", a.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        self.meet("meet")

    def meet(self, where):
        self.dist.init_process_group("gloo" if self.a.cpu else "nccl", init_method=f"file://{self.a.dir}/{where}", rank=self.rank,
                                     world_size=self.world, timeout=datetime.timedelta(seconds=60))

    def sync(self):
        if not self.a.cpu:
            self.torch.cuda.synchronize()

    def model(self):
        nn, width = self.torch.nn, self.a.width

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x):
                return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

        self.torch.manual_seed(7)
        return nn.Sequential(*(Block() for _ in range(self.a.layers)), nn.Linear(width, 16)).to(self.device)

    def batch(self, step, rank):
        g = self.torch.Generator().manual_seed(1000 * step + rank)
        x = self.torch.randn(32, self.a.width, generator=g)
        return x.to(self.device), (x[:, :16] * 0.5 + 0.1).to(self.device)

    def train(self, model, ranks):
        """Trains with the data of `ranks`. Returns the losses, and the median time of a step in ms."""
        torch = self.torch
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        losses, times = [], []
        for step in range(self.a.steps):
            both = [self.batch(step, r) for r in ranks]
            x, want = torch.cat([b[0] for b in both]), torch.cat([b[1] for b in both])
            self.sync()
            t0 = time.monotonic()
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), want)
            loss.backward()
            optimizer.step()
            self.sync()
            times.append((time.monotonic() - t0) * 1e3)
            losses.append(loss.item())
        return losses, sorted(times)[len(times) // 2]

    def ddp(self):
        net = self.torch.nn.parallel.DistributedDataParallel(self.model(), device_ids=None if self.a.cpu else [self.device.index])
        losses, ms = self.train(net, [self.rank])
        return {"losses": losses, "ms": ms, "bits": bits(net.parameters())}

    def fsdp(self):
        from torch.distributed.fsdp import fully_shard

        net = self.model()
        for part in net:
            fully_shard(part)
        fully_shard(net)
        losses, ms = self.train(net, [self.rank])
        return {"losses": losses, "ms": ms, "bits": bits(p.full_tensor() for p in net.parameters())}

    def alone(self):
        losses, ms = self.train(self.model(), range(self.world))
        return {"losses": losses, "ms": ms}

    def collectives(self):
        """Runs collective operations on whole numbers, whose results are exact. Returns a list of wrong results."""
        torch, dist, n, me, wrong = self.torch, self.dist, self.world, self.rank, []

        def of(rank, count, salt):
            i = torch.arange(count, dtype=torch.int64, device=self.device)
            return ((i * 2654435761 + salt * 97) % 251 + rank * rank).float()

        for count in (2, 1000, 65536, 1 << 20, 4 << 20) if not self.a.cpu else (2, 1000, 65536):
            part = count // n
            if part:
                out = torch.full((part * n,), float("nan"), device=self.device)
                dist.all_to_all_single(out, torch.cat([of(me, part, to) for to in range(n)]))
                if not torch.equal(out, torch.cat([of(r, part, me) for r in range(n)])):
                    wrong.append(f"alltoall of {4 * part * n} bytes")
            x = of(me, count, 0)
            dist.all_reduce(x)
            total = sum(of(r, count, 0) for r in range(n))
            if not torch.equal(x, total):
                wrong.append(f"all_reduce of {4 * count} bytes")
            out = torch.full((count * n,), float("nan"), device=self.device)
            dist.all_gather_into_tensor(out, of(me, count, 1))
            if not torch.equal(out, torch.cat([of(r, count, 1) for r in range(n)])):
                wrong.append(f"all_gather of {4 * count} bytes")
            out = torch.full((count,), float("nan"), device=self.device)
            dist.reduce_scatter_tensor(out, torch.cat([of(me, count, to) for to in range(n)]))
            if not torch.equal(out, sum(of(r, count, me) for r in range(n))):
                wrong.append(f"reduce_scatter of {4 * count} bytes")
        return {"wrong": wrong}

    def killed(self):
        """Kills rank 1 during an operation. Rank 0 must not wait forever, but must exit with NCCL's error."""
        x = self.torch.ones(4 << 20 if not self.a.cpu else 1 << 16, device=self.device)
        for i in range(1000000):
            self.dist.all_reduce(x)
            x.fill_(1)
            if i == 50:
                self.sync()
                print("the others have until now", flush=True)
            if i > 50 and self.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            self.sync()

    def aborted(self):
        """Aborts a group with operations in flight on all ranks, and creates a new group."""
        torch, dist = self.torch, self.dist
        x = torch.ones(16 << 20, device=self.device)
        for again in range(3):
            works = [dist.all_reduce(x, async_op=True) for _ in range(20)]
            if self.rank == again % 2:
                time.sleep(0.01)
            dist.distributed_c10d._abort_process_group()
            del works
            torch.cuda.synchronize()
            self.meet(f"again{again}")
            y = torch.full((1 << 20,), float(self.rank + 1), device=self.device)
            dist.all_reduce(y)
            if not bool((y == self.world * (self.world + 1) / 2).all()):
                return {"wrong": f"the all_reduce after abort {again + 1}"}
        dist.barrier()
        dist.destroy_process_group()
        return {"wrong": None}

    def run(self):
        if self.a.fault == "killed":
            self.killed()
        if self.a.fault == "aborted":
            return self.tell(self.aborted())
        out = {"collectives": self.collectives(), "ddp": self.ddp(), "fsdp": self.fsdp()}
        if self.rank == 0:
            out["alone"] = self.alone()
        self.dist.barrier()
        self.dist.destroy_process_group()
        self.tell(out)

    def tell(self, out):
        path = pathlib.Path(self.a.dir) / f"rank{self.rank}.json"
        path.write_text(json.dumps(out), encoding="utf-8")
        if self.a.cpu:
            os._exit(0)  # gloo's threads may crash at the interpreter's exit


# ---- starting the ranks ----------------------------------------------------------------------------------------------


def plugin_folder(a):
    for place in [a.plugin_dir] if a.plugin_dir else [str(HERE / "../../build/nccl"), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]:
        if place and os.path.exists(f"{place}/libnccl-net-hawser.so"):
            return os.path.realpath(place)
    return None


def launch(a, network, world, folder, fault=None):
    """Returns (results, error, logs). Either `results` or `error` is None. With the fault "killed", the results are the
    ranks' exit statuses."""
    with tempfile.TemporaryDirectory() as d:
        if folder and network == "hawser":  # NCCL 2.27.3 to 2.29.7 look for libnccl-net.so after the last communicator
            os.symlink(f"{folder}/libnccl-net-hawser.so", f"{d}/libnccl-net.so")
            folder = f"{folder}:{d}"
        ranks = []
        for rank in range(world):
            env = {k: v for k, v in os.environ.items() if k not in OUT}
            env.update(COMMON)
            env.update(OF[network])
            env.update(NCCL_HOSTID=f"hawser-{rank}", LD_LIBRARY_PATH=f"{folder}:{env.get('LD_LIBRARY_PATH', '')}",
                       LOCAL_RANK=str(rank % max(a.gpus, 1)), PYTHONUNBUFFERED="1")
            env.setdefault("NCCL_SOCKET_IFNAME", "lo")
            if fault == "aborted":
                env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # else PyTorch may end a rank before the rank aborts
            argv = [sys.executable, __file__, "--rank", str(rank), "--world", str(world), "--dir", d, "--width", str(a.width),
                    "--layers", str(a.layers), "--steps", str(a.steps), *(["--cpu"] if a.cpu else []), *(["--fault", fault] if fault else [])]
            log = open(f"{d}/log{rank}", "w+", encoding="utf-8", errors="replace")
            ranks.append((subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True), log))
        end = time.monotonic() + a.each
        while time.monotonic() < end and any(p.poll() is None for p, _ in ranks) and (fault == "killed" or not any(p.poll() for p, _ in ranks)):
            time.sleep(0.1)
        faults, logs = [], []
        late = fault == "killed" or not any(p.poll() for p, _ in ranks)
        for rank, (p, log) in enumerate(ranks):
            if p.poll() is None:
                if late:
                    faults.append(f"rank {rank}: not done within {a.each} s")
                os.killpg(p.pid, signal.SIGKILL)
            elif p.returncode and fault != "killed":
                faults.append(f"rank {rank}: exit status {p.returncode}")
            p.wait()
            log.seek(0)
            logs.append(log.read())
            log.close()
        for rank, text in enumerate(logs):
            used = {line.split("Using network ")[1].split()[0] for line in text.splitlines() if "Using network " in line}
            if not a.cpu and not faults and used != {network}:
                faults.append(f"rank {rank}: NCCL's network is {', '.join(sorted(used)) or 'not told'}, not {network}")
        if faults:
            for rank, text in enumerate(logs):
                print("\n".join(f"# rank {rank}: {x[:300]}" for x in text.splitlines() if " NCCL INFO " not in x)[-3000:])
            return None, "; ".join(faults), logs
        if fault == "killed":
            return [p.returncode for p, _ in ranks], None, logs
        return [json.loads((pathlib.Path(d) / f"rank{r}.json").read_text(encoding="utf-8")) for r in range(world)], None, logs


def near(a, b, within):
    return len(a) == len(b) and all(abs(x - y) <= within * max(abs(x), abs(y), 1e-6) for x, y in zip(a, b))


def judge(ok, what, world, got):
    """Checks the results in `got`, which is {network: results of the ranks}."""
    for network, ranks in got.items():
        where = f"{what} over {network}"
        wrong = sorted({w for r in ranks for w in r["collectives"]["wrong"]})
        ok(not wrong, f"{where}: alltoall, all_reduce, all_gather and reduce_scatter, exactly", "; ".join(wrong))
        alone = ranks[0]["alone"]["losses"]
        for kind in "ddp", "fsdp":
            mean = [sum(r[kind]["losses"][i] for r in ranks) / world for i in range(len(alone))]
            ok(near(mean, alone, 2e-3) and mean[-1] < mean[0], f"{where}: {kind}'s losses are those of one process with all data, and fall",
               f"{mean} and {alone}")
            ok(len({r[kind]["bits"] for r in ranks}) == 1, f"{where}: {kind}: all ranks end with the same parameters")
    if len(got) < len(NETWORKS):
        return
    ours, theirs = (got[n] for n in NETWORKS)
    for kind in "ddp", "fsdp":
        ok(all(x[kind]["losses"] == y[kind]["losses"] for x, y in zip(ours, theirs)), f"{what}: {kind}: every loss is bitwise that over {NETWORKS[1]}",
           f"{[x[kind]['losses'] for x in ours]} and {[y[kind]['losses'] for y in theirs]}")
        ok(all(x[kind]["bits"] == y[kind]["bits"] for x, y in zip(ours, theirs)), f"{what}: {kind}: and every parameter in the end")
        print(f"# {what}: {kind}: a step takes {ours[0][kind]['ms']:.1f} ms over hawser, {theirs[0][kind]['ms']:.1f} over NET/Socket of the same setting")


def misfortunes(a, ok, folder):
    ends, why, logs = launch(a, "hawser", 2, folder, "killed")
    said = [x for x in logs[0].splitlines() if "NET/hawser" in x and "WARN" in x or "remote process exited" in x or "ncclRemoteError" in x or
            a.cpu and "RuntimeError" in x]
    ok(not why and ends[1] == -signal.SIGKILL and ends[0] not in (0, None) and "until now" in logs[0] and said,
       "over hawser: one of two ranks is killed in the middle: the other ends with an error that says so",
       why or f"ends: {ends}; said: {said[:3]}; last: {logs[0][-600:]}")
    if said:
        print("# " + said[0][:300])
    if a.cpu:
        return
    results, why, _ = launch(a, "hawser", 2, folder, "aborted")
    ok(not why and not any(r["wrong"] for r in results), "over hawser: groups are given up with operations in flight, three times, and the next one's results are right",
       why or str(results))


def run(argv=None):
    """(passed, failed, skipped)"""
    a = argparse.ArgumentParser(prog="nccl_train.py", description=__doc__)
    a.add_argument("--ranks", default="2,4")
    a.add_argument("--plugin-dir", help="where libnccl-net-hawser.so is; by default build/nccl, or on LD_LIBRARY_PATH")
    a.add_argument("--width", type=int, default=1024)
    a.add_argument("--layers", type=int, default=4)
    a.add_argument("--steps", type=int, default=6)
    a.add_argument("--each", type=int, default=90, help="seconds for one set of ranks")
    a.add_argument("--cpu", action="store_true", help="gloo in NCCL's place: tries this script, and proves nothing of hawser")
    for hidden in "--rank", "--world":
        a.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    a.add_argument("--dir", help=argparse.SUPPRESS)
    a.add_argument("--fault", help=argparse.SUPPRESS)
    a = a.parse_args(argv)
    if a.rank is not None:
        Rank(a).run()
        return 0, 0, 0
    probe = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], capture_output=True, text=True)
    if probe.returncode:
        print("skipped: train: no PyTorch for", sys.executable)
        return 0, 0, 1
    a.gpus = int(probe.stdout)
    if a.gpus < 2 and not a.cpu:
        print(f"skipped: train: {a.gpus} GPUs, two are needed")
        return 0, 0, 1
    folder = "" if a.cpu else plugin_folder(a)
    if folder is None:
        print("failed: train: no libnccl-net-hawser.so: build first, or name its folder by --plugin-dir")
        return 0, 1, 0
    count = [0, 0]

    def ok(good, what, why=""):
        count[not good] += 1
        print(f"{'passed' if good else 'failed'}: {what}{'' if good else ': ' + why}", flush=True)

    if a.cpu:
        print("# --cpu: gloo stands for both networks, neither NCCL nor hawser is there")
    for world in map(int, a.ranks.split(",")):
        what = f"{world} ranks" + (f" on {a.gpus} GPUs" if not a.cpu and world > a.gpus else "")
        got = {}
        for network in NETWORKS:
            results, why, _ = launch(a, network, world, folder)
            if why:
                ok(False, f"{what} over {network}", why)
            else:
                got[network] = results
        judge(ok, what, world, got)
    misfortunes(a, ok, folder)
    return count[0], count[1], 0


if __name__ == "__main__":
    passed, failed, skipped = run()
    if not any(x.startswith("--rank=") or x == "--rank" for x in sys.argv):
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)
