#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser sandbox plan` and `env`: applies the rules of docs/sandbox.md to suitable nodes (TAP). Usage:
sandbox_plan.py HAWSER"""
import copy
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
from sandbox_help import Tool, done, full, net, ok, rdma, scratch, why, with_addresses  # noqa: E402

EIGHT = ",".join(f"rdma{i}" for i in range(8))
HCAS = ",".join(f"mlx5_{i}:1" for i in range(8))


def defaults(t, s):
    p = t.plan(s)
    ok(p["netdevs"] == EIGHT and p["ibdevs"] == HCAS, "eight NICs with their RDMA devices and ports", p)
    ok("default route" in why(p, "nics", "eth0") and "--exclude ^eth[0-9]+$" in why(p, "nics", "eth1") and
       why(p, "nics", "lo") == "loopback", "and why not the others", p["nics"])
    ok(why(p, "rdma", "mlx5_8").startswith("its NIC eth0 is left out") and not why(p, "rdma", "mlx5_7"), "RDMA devices too")
    ok([g["gpu"] for g in p["gpus"] if g["in"]] == list(range(8)), "all GPUs")
    ok(p["gpus"][0]["pci"] == "0000:13:00.0" and p["nics"][-1]["rdma"] == ["mlx5_7"], "where they are")
    left = p["pci_left_out"]
    ok(set(left) == {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:03:00.1"}, "PCI devices that are not shown", left)
    ok(not any("manual" in x for x in json.dumps(p).split('"')), "no placeholder anywhere")
    text = t("plan", "--from", t.file(s)).stdout
    ok(f"netdevs: {EIGHT}\nibdevs:  {HCAS}\nGPUs:    8\n" in text, "the summary", text)
    ok(f"  hawser sandbox plan --peer-nics {EIGHT}\n" in text, "the line for the peer", text)
    ok(not any(line != line.rstrip() for line in text.splitlines()), "no blanks at lines' ends", repr(text))


def addresses(t, s):
    p = t.plan(s)
    ok(any("IP addresses are unknown" in w for w in p["warnings"]), "no addresses known: a warning", p["warnings"])
    s = with_addresses(s)
    p = t.plan(s)
    ok(p["netdevs"] == EIGHT and not p["warnings"], "each has one", p["warnings"])
    net(s, "rdma3")["addresses"] = ["fe80::1/64"]
    p = t.plan(s)
    ok(why(p, "nics", "rdma3") == "no IPv4 address" and "rdma3" in why(p, "rdma", "mlx5_3") and "mlx5_3" not in p["ibdevs"],
       "a NIC with IPv6 alone is left out, with its RDMA device", p)
    ok("0000:46:00.0" in p["pci_left_out"], "and its PCI device")
    r = t.plan(s, "--require-ipv4")
    ok(r.returncode == 1 and "rdma3 has no IPv4 address" in r.stderr and not r.stdout, "--require-ipv4: an error", r)
    ok(t.plan(s, "--require-ipv4", "--exclude", "^(eth[0-9]+|rdma3)$")["netdevs"] == EIGHT.replace("rdma3,", ""),
       "not for one that is left out anyway")
    r = t.plan(s, "--nics", "rdma3", "--require-ipv4")
    ok(r.returncode == 1, "but for one that is named", r)


def excluded(t, s):
    p = t.plan(s, "--exclude", "")
    ok(p["netdevs"] == "eth1," + EIGHT and "mlx5_9:1" in p["ibdevs"] and why(p, "nics", "eth0") == "it has a default route",
       "an empty --exclude excludes nothing, and the default route stays", p["netdevs"])
    p = t.plan(s, "--exclude", "^(eth[0-9]+|rdma[0-3])$")
    ok(p["netdevs"] == "rdma4,rdma5,rdma6,rdma7", "--exclude of one's own", p["netdevs"])
    r = t.plan(s, "--exclude", "(")
    ok(r.returncode == 2 and "regular expression" in r.stderr, "what is no regular expression", r)


def named(t, s):
    p = t.plan(s, "--nics", "eth1,rdma0")
    ok(p["netdevs"] == "eth1,rdma0" and p["ibdevs"] == "mlx5_0:1,mlx5_9:1", "--nics wins over --exclude, real names and ports", p)
    ok(why(p, "nics", "rdma1") == "not in the given list of NICs", "the others are not named")
    ok(t.plan(s, "--nics", "mlx5_2")["netdevs"] == "rdma2", "an RDMA device's name does for its NIC")
    p = t.plan(s, "--nics", "none")
    ok(p["netdevs"] == "" and p["ibdevs"] == "" and not p["warnings"], "--nics none", p)
    for bad in "rdma9", "rdma0,", "", "rdma0,,rdma1", "../x", "rdma0 rdma1":
        r = t.plan(s, "--nics", bad)
        ok(r.returncode == 2 and ("expected NICs as in" in r.stderr or "no NIC" in r.stderr), f"--nics '{bad}' is refused", r)


def kept_back(t, s):
    r = t.plan(s, "--nics", "eth0,rdma0")
    ok(r.returncode == 2 and "default route" in r.stderr and "--force" in r.stderr, "a default route, though named", r)
    p = t.plan(s, "--nics", "eth0,rdma0", "--force")
    ok(p["netdevs"] == "eth0,rdma0" and any("eth0 has a default route" in w for w in p["warnings"]), "with --force, and a warning", p)
    p = t.plan(s, "--force", "--exclude", "")
    ok(p["netdevs"] == "eth0,eth1," + EIGHT, "--force alone", p["netdevs"])
    r = t.plan(s, "--nics", "lo", "--force")
    ok(r.returncode == 2 and "loopback" in r.stderr, "never the loopback", r)
    s = with_addresses(s)
    at = net(s, "rdma2")["addresses"][0].split("/")[0]
    p = t.plan(s, "--bootstrap", at)
    ok(why(p, "nics", "rdma2") == "it has the bootstrap address" and p["netdevs"] == EIGHT.replace("rdma2,", ""),
       "the bootstrap address's NIC", p["netdevs"])
    v6 = net(s, "rdma4")["addresses"][1].split("/")[0]
    ok("rdma4" not in t.plan(s, "--bootstrap", v6)["netdevs"], "in IPv6 too")
    r = t.plan(s, "--bootstrap", at, "--nics", "rdma2")
    ok(r.returncode == 2 and "bootstrap" in r.stderr, "though named", r)
    ok(t.plan(s, "--bootstrap", at, "--force")["netdevs"] == EIGHT, "with --force")
    ok(any("no NIC has the bootstrap address" in w for w in t.plan(s, "--bootstrap", "10.200.0.1")["warnings"]), "nobody's: a warning")
    r = t.plan(s, "--bootstrap", "node1")
    ok(r.returncode == 2 and "'node1'" in r.stderr, "a name is no address", r)


def peers(t, s):
    p = t.plan(s, "--peer-nics", "rdma1,rdma0,rdma9,eth0")
    ok(p["netdevs"] == "rdma0,rdma1" and "peer has no NIC with this name" in why(p, "nics", "rdma2"), "only what the peer has too", p["netdevs"])
    ok(sum("peer's" in w for w in p["warnings"]) == 2, "and what only the peer has is said", p["warnings"])
    # two nodes, each with a NIC that the other lacks: passing the NIC list from the first to the second node and back
    # makes the lists equal
    a, b = with_addresses(s), with_addresses(s)
    net(a, "rdma1")["addresses"] = net(b, "rdma6")["addresses"] = []
    first = t.plan(a)["netdevs"]
    second = t.plan(b, "--peer-nics", first)["netdevs"]
    third = t.plan(a, "--peer-nics", second)["netdevs"]
    ok(second == third == "rdma0,rdma2,rdma3,rdma4,rdma5,rdma7", "the lines of two nodes make them symmetric", (first, second, third))
    ok(t.plan(s, "--peer-nics", "rdma0;rdma1").returncode == 2, "no list")


def no_rdma(t, a3):
    p = t.plan(a3)
    ok(p["netdevs"] == "eth1,eth2,eth3,eth4" and why(p, "nics", "eth0") == "it has a default route",
       "a name alone leaves out no NIC that has a GPU beside it", p)
    r = t.plan(a3, "--exclude", "^eth[0-9]+$")
    ok(r.returncode == 1, "unless the operator typed the expression", r)
    p = t.plan(a3, "--nics", "eth1,eth2")
    ok(p["netdevs"] == "eth1,eth2" and p["ibdevs"] == "" and any("NCCL_IB_HCA" in w for w in p["warnings"]),
       "named, with nothing known of RDMA: a warning that names NCCL_IB_HCA", p["warnings"])
    p = t.plan(a3, "--exclude", "")
    ok(p["netdevs"] == "eth1,eth2,eth3,eth4" and "0000:06:00.0" not in p["pci_left_out"] and "0000:00:0b.0" in p["pci_left_out"],
       "NICs without RDMA anywhere are NICs, with their PCI devices", p)


def nothing_left(t, s, a3):
    """Tests that an empty set of NICs, unless requested, is an error with the reason for each candidate."""
    f = t.file(a3)
    said = "no NIC is left for the sandbox"
    r = t("plan", "--from", f, "--exclude", "^eth[0-9]+$")
    ok(r.returncode == 1 and said in r.stderr and "eth0: it has a default route" in r.stderr and
       "eth1, eth2, eth3, eth4: --exclude ^eth[0-9]+$" in r.stderr and len(r.stderr.splitlines()) == 1 and "netdevs: none" in r.stdout,
       "plan: exit status 1, the reason of each candidate, and the plan", r)
    r = t("plan", "--json", "--from", f, "--exclude", "eth")
    ok(r.returncode == 1 and json.loads(r.stdout)["netdevs"] == "", "plan --json too", r)
    for action in (("sysfs", "--out", t.tmp / "none"), ("env",), ("cdi", "--no-sysfs"), ("run", "--", "true")):
        r = t(action[0], "--from", f, "--exclude", "eth", *action[1:])
        ok(r.returncode == (125 if action[0] == "run" else 1) and said in r.stderr and not r.stdout, f"{action[0]}: an error", r)
        r = t(action[0], "--from", f, "--exclude", "eth", "--nics", "none", *action[1:])
        ok(said not in r.stderr, f"{action[0]}: not with --nics none", r)
    r = t.plan({**a3, "net": [n for n in a3["net"] if n["name"] == "lo"]})
    ok(r.returncode == 1 and "this node has none" in r.stderr, "a node without NICs", r)
    only = copy.deepcopy(s)  # only InfiniBand devices, and no interface except lo
    for r in only["rdma"]:
        r["ports"][0]["files"]["link_layer"] = "InfiniBand"
        for g in r["ports"][0]["gids"]:
            del g["ndev"]
    only["net"] = [n for n in only["net"] if n["name"] == "lo"]
    p = t.plan(only)
    ok(isinstance(p, dict) and p["ibdevs"].startswith("mlx5_0:1") and p["netdevs"] == "", "RDMA devices without interfaces are something", p)


def others(t, hca8, laptop):
    p = t.plan(hca8, "--exclude", "")
    ok(why(p, "nics", "eth0") == "part of bond0" and why(p, "nics", "bond0") == "it has a default route" and
       why(p, "nics", "docker0") == "not a PCI network controller", "parts of a bond, the bond, a bridge", p["nics"])
    ok("bond0" in why(p, "rdma", "mlx5_bond_0") and p["netdevs"] == EIGHT, "and RDMA over it", p["rdma"])
    p = t.plan(hca8, "--nics", "eth0,rdma1", "--force")
    ok("eth0 is part of bond0, so no container can get it: take it out of bond0 first" in p["warnings"], "part of a bond that is named: a warning", p["warnings"])
    p = t.plan(laptop, "--exclude", "")
    ok([(g["gpu"], g["in"]) for g in p["gpus"]] == [(0, True), (None, True)], "a GPU of another maker has no number", p["gpus"])
    ok("enp0s31f6 is down" in p["warnings"], "a NIC that is down: a warning", p["warnings"])
    storage = copy.deepcopy(hca8)
    storage["rdma"] = [r for r in storage["rdma"] if r["name"] != "mlx5_7"]
    p = t.plan(storage)
    ok("this NIC has none" in why(p, "nics", "rdma7"), "no RDMA device, where others have one", p["nics"])
    ok(t.plan(storage, "--nics", "rdma7")["netdevs"] == "rdma7", "but if it is named")


def gids(t, s):
    p = t.plan(s)
    ok({r["gid_index"] for r in p["rdma"] if r["in"]} == {3}, "the GID of RoCE v2 over IPv4", p["rdma"])
    d = copy.deepcopy(s)
    rdma(d, "mlx5_5")["ports"][0]["gids"] = []
    p = t.plan(d)
    ok("no GID" in why(p, "rdma", "mlx5_5") and not why(p, "nics", "rdma5") and "mlx5_5" not in p["ibdevs"] and
       "RDMA device is left out" in p["pci_left_out"]["0000:96:00.0"],
       "a dangling NIC: no GID, so no RDMA device and no PCI device", p)
    ok(any("rdma5 moves without its RDMA device mlx5_5" in w for w in p["warnings"]), "and a warning", p["warnings"])
    ok("0000:96:00.0" not in t.plan(d, "--all-nics")["pci_left_out"], "--all-nics shows it all the same")
    for g in rdma(d, "mlx5_4")["ports"][0]["gids"]:
        g["ndev"] = "eth0"
    ok("mlx5_4" not in t.plan(d)["ibdevs"], "nor does a GID of a NIC that stays outside do")
    ib = copy.deepcopy(s)
    port = rdma(ib, "mlx5_0")["ports"][0]
    port["files"]["link_layer"] = "InfiniBand"
    for g in port["gids"]:
        del g["ndev"]
    ib["net"] = [n for n in ib["net"] if n["name"] != "rdma0"]
    p = t.plan(ib)
    ok("mlx5_0:1" in p["ibdevs"] and "0000:15:00.0" not in p["pci_left_out"], "InfiniBand needs no interface", p)
    ok("mlx5_0" not in t.plan(ib, "--nics", "rdma1")["ibdevs"] and t.plan(ib, "--nics", "mlx5_0")["ibdevs"] == "mlx5_0:1",
       "and is named by its own name")
    two = copy.deepcopy(s)  # one PCI function with two ports, as on a ConnectX-3
    r = rdma(two, "mlx5_0")
    r["ports"].append(dict(copy.deepcopy(r["ports"][0]), port=2))
    for g in r["ports"][1]["gids"]:
        g["ndev"] = "rdma0b"
    other = copy.deepcopy(net(two, "rdma0"))
    other.update(name="rdma0b", path=other["path"] + "b")
    other["files"]["dev_port"] = "1"
    two["net"].append(other)
    ok(t.plan(two)["ibdevs"].startswith("mlx5_0:1,mlx5_0:2,mlx5_1:1"), "two ports of one function")
    ok(t.plan(two, "--nics", "rdma0b")["ibdevs"] == "mlx5_0:2", "only that port whose NIC is there")
    bare = copy.deepcopy(s)
    bare["gids"] = False
    for r in bare["rdma"]:
        for port in r["ports"]:
            port["gids"] = []
    ok(t.plan(bare)["ibdevs"] == HCAS, "of a snapshot without GIDs, by the PCI function")


def gpus(t, s):
    p = t.plan(s, "--gpus", "0-1,7")
    ok([g["gpu"] for g in p["gpus"] if g["in"]] == [0, 1, 7] and why(p, "gpus", 2) == "not named by --gpus", "--gpus", p["gpus"])
    ok(p["pci_left_out"]["0000:43:00.0"] == "not named by --gpus", "the others are not shown")
    ok(not any(g["in"] for g in t.plan(s, "--gpus", "none")["gpus"]), "--gpus none")
    for bad in "8", "x", "", "1-", "3-1", "0,,1", "0-99999999":
        ok(t.plan(s, "--gpus", bad).returncode == 2, f"--gpus '{bad}' is refused")


def env(t, s, a3):
    def of(snap, *argv, **kw):
        r = t("env", "--json", "--from", t.file(snap), *argv, **kw)
        return {v["name"]: v for v in json.loads(r.stdout)["env"]} if r.returncode == 0 else r

    e = of(s)
    ok({k: v["value"] for k, v in e.items()} ==
       {"NCCL_IB_HCA": "=" + HCAS, "NCCL_SOCKET_IFNAME": "=" + EIGHT}, "names and ports; no GID index, which the move changes", e)
    ok(of(s, "--moved")["NCCL_IB_GID_INDEX"]["value"] == "3", "--moved: the GID's index too")
    ok(all(v["why"] for v in e.values()), "each with its reason")
    d = copy.deepcopy(s)
    rdma(d, "mlx5_1")["ports"][0]["gids"][3]["index"] = 5
    ok("NCCL_IB_GID_INDEX" not in of(d, "--moved"), "no GID index where it is not the same everywhere")
    e = of(a3, "--exclude", "")
    ok(e["NCCL_NET_PLUGIN"]["value"] == "hawser" and "NCCL_IB_HCA" not in e, "without RDMA: our plugin", e)
    ok(of(s, "--net-plugin", "none")["NCCL_NET_PLUGIN"]["value"] == "none", "--net-plugin")
    ok("NCCL_TOPO_FILE" not in of(s) and of(s, "--nccl-topo", "/t.xml")["NCCL_TOPO_FILE"]["value"] == "/t.xml", "NCCL_TOPO_FILE only with --nccl-topo")
    own = {"NCCL_IB_HCA": "=mlx5_3", "NCCL_DEBUG": "WARN", "NCCL_TOPO_FILE": ""}
    e = of(s, "--debug-all", "--nccl-topo", "/t.xml", env=own)
    ok(all(e[k]["value"] == v and e[k]["callers"] for k, v in own.items()) and not e["NCCL_DEBUG_SUBSYS"]["callers"],
       "the caller's own value wins, an empty one too", e)
    debug = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "RUNSC_DEBUG", "RUNSC_DEBUG_LOG",
             "RUNSC_STRACE", "RUNSC_STRACE_SYSCALLS"}
    ok(debug <= set(e) and not debug & set(of(s)), "--debug-all sets them all, and nothing else does")
    ok("5 to 10 times slower" in e["RUNSC_STRACE"]["why"], "and says what it costs")
    for name in debug:
        e = of(s, "--debug-all", env={name: "mine"})
        ok(e[name]["value"] == "mine" and len([k for k in e if k in debug]) == 8, f"{name} can be overridden by itself")
    ok(of(s, env={"NCCL_DEBUG": "WARN"})["NCCL_DEBUG"]["value"] == "WARN", "what the caller sets is handed on without --debug-all too")
    r = t("env", "--shell", "--from", t.file(s), env={"NCCL_IB_HCA": "it's; echo $HOME `id`"})
    out = subprocess.run(["sh", "-c", r.stdout + '\nprintf %s "$NCCL_IB_HCA"'], capture_output=True, text=True, check=True).stdout
    ok(out == "it's; echo $HOME `id`", "for a shell, whatever the value", (r.stdout, out))
    lines = t("env", "--from", t.file(s), env={"NCCL_DEBUG": "a\nB=c"}).stdout.splitlines()
    ok("NCCL_DEBUG=a?B=c" in lines and not any(x.startswith("B=") for x in lines), "a line each for --env-file", lines)


def usage(t, s):
    f = t.file(s)
    for argv, said in {("plan", "--frob"): "--frob", ("plan", "x"): "'x'", ("plan", "--from"): "needs a value",
                       ("plan", "--from", f, "--sysfs", "/"): "each specifies a machine", ("sysfs", "--from", f): "needs --out DIR",
                       ("frob",): "'frob'", (): "ACTION is missing"}.items():
        r = t(*argv)
        ok(r.returncode == 2 and said in r.stderr and not r.stdout, f"`{' '.join(map(str, argv))}`: exit 2, says {said}", r)
    r = t("plan", "--from", "/nonexistent")
    ok(r.returncode == 1 and "/nonexistent" in r.stderr, "a snapshot that is not there", r)


def main():
    with scratch() as d:
        tmp = pathlib.Path(d)
        t = Tool(sys.argv[1], tmp)
        s, a3, hca8, laptop = (t.snapshot(x) for x in full(tmp, "switch4", "a3-high", "hca8", "laptop"))
        defaults(t, s)
        addresses(t, s)
        excluded(t, s)
        named(t, s)
        kept_back(t, s)
        peers(t, s)
        no_rdma(t, a3)
        nothing_left(t, s, a3)
        others(t, hca8, laptop)
        gids(t, s)
        gpus(t, s)
        env(t, s, a3)
        usage(t, s)
    return done()


if __name__ == "__main__":
    sys.exit(main())
