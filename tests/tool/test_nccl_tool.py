#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser nccl` without NCCL or a GPU: with tests/fakes/nccl on tests/fakes/cuda, and with minimal plugins (TAP).
Usage: test_nccl_tool.py HAWSER env|check|bench|fails|gpu|hosts|lab LIBFAKECUDA LIBFAKENCCL LIBMINI LIBMINI_V8
LIBMINI_OLD"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

HAWSER, PART, CUDA, NCCL, MINI, MINI_V8, MINI_OLD = sys.argv[1:]


def env(tmp, **more):
    """Returns an environment with tmp as HOME and without this machine's NCCL and hawser variables."""
    e = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "HAWSER_", "FAKENCCL_", "LD_LIBRARY_PATH"))}
    e.update({"HAWSER_CUDA_LIBRARY": CUDA, "FAKECUDA_GPUS": "2", "FAKENCCL_DIR": str(tmp), "HOME": str(tmp)})
    for k, v in more.items():
        if v is None:
            e.pop(k, None)
        else:
            e[k] = str(v)
    return e


def run(tmp, *argv, tool=HAWSER, timeout=100, **more):
    return subprocess.run([tool, "nccl", *map(str, argv)], capture_output=True, text=True, timeout=timeout, env=env(tmp, **more))


LIB = "lib/hawser/nccl"  # the plugin's folder under the prefix


def installed(tmp, plugin):
    """Installs a copy of the program under tmp as `make install` does, with the given plugin and the link
    libnccl-net.so."""
    (tmp / "bin").mkdir(exist_ok=True)
    (tmp / LIB).mkdir(parents=True, exist_ok=True)
    shutil.copy(HAWSER, tmp / "bin/hawser")
    place(tmp / LIB, plugin, "libnccl-net-hawser.so")
    link = tmp / LIB / "libnccl-net.so"
    link.unlink(missing_ok=True)
    link.symlink_to("libnccl-net-hawser.so")
    return tmp / "bin/hawser"


def place(folder, plugin, name):
    folder.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    shutil.copy(plugin, folder / name)
    return folder


# ---- env ------------------------------------------------------------------------------------------

def part_env(tmp):
    tool = installed(tmp, MINI)
    r = run(tmp, "env", tool=tool)
    ok(r.returncode == 0 and not r.stderr and re.search(r"^export NCCL_NET_PLUGIN='hawser'$", r.stdout, re.M), "env: the plugin's name", r)
    ok(f"export LD_LIBRARY_PATH='{tmp}/{LIB}'" in r.stdout, "and the folder that it was installed to", r)
    ok("export NCCL_NET=" not in r.stdout and "NCCL_NTHREADS=512" in r.stdout, "no more than is needed, and what the plugin sets", r)
    bad = [x for x in r.stdout.splitlines() if not x.startswith(("#", "export "))]
    ok(not bad, "each line is a comment or an export", bad)
    r = run(tmp, "env", tool=tool, LD_LIBRARY_PATH=tmp / LIB)
    ok("export LD_LIBRARY_PATH" not in r.stdout, "no folder where the loader finds it", r)
    r = run(tmp, "env", tool=tool, NCCL_NET="Socket", NCCL_NET_PLUGIN="none", NCCL_BUFFSIZE="4194304", NCCL_TUNER_PLUGIN="a\nb'c")
    ok("export NCCL_NET='hawser'" in r.stdout and re.search(r"NCCL_BUFFSIZE=8388608\n.*\n.*not set: you have set NCCL_BUFFSIZE", r.stdout),
       "another network is overruled, an own parameter is left, both said", r)
    ok("NCCL_TUNER_PLUGIN=a?b'c" in r.stdout, "what is set elsewhere stands in comments only", r)

    shell = 'eval "$("$0" nccl env)"; printf "%s|%s|%s" "$NCCL_NET_PLUGIN" "$NCCL_NET" "$LD_LIBRARY_PATH"'
    e = env(tmp, LD_LIBRARY_PATH="/a b:/c", NCCL_NET="IB")
    r = subprocess.run(["sh", "-c", shell, tool], capture_output=True, text=True, env=e, timeout=30)
    ok(r.stdout == f"hawser|hawser|{tmp}/{LIB}:/a b:/c" and not r.stderr, "eval takes it", r)
    quoted = tmp / "it's $HOME"
    quoted.mkdir()
    r = subprocess.run(["sh", "-c", shell, installed(quoted, MINI)], capture_output=True, text=True, env=env(tmp), timeout=30)
    ok(r.stdout == f"hawser||{quoted}/{LIB}" and not r.stderr, "from a folder with quotes in its name too", r)

    r = run(tmp, "env", "--json", tool=tool, NCCL_MAX_NCHANNELS="4", NCCL_NCHANNELS_PER_NET_PEER="4", NCCL_NSOCKS_PERTHREAD="4", NCCL_P2P_NET_CHUNKSIZE="2097152",
            NCCL_SOCKET_FAMILY="AF_INET6")
    j = json.loads(r.stdout)
    by = {x["name"]: x for x in j["set_by_plugin"]}
    ok(r.returncode == 0 and j["schema"] == "hawser-nccl-env-1" and j["tune"] is True and j["plugin_missing"] is None and
       [x["name"] for x in j["export"]] == ["NCCL_NET_PLUGIN", "LD_LIBRARY_PATH"] and j["export"][1]["prepend"], "as JSON", r)
    ok(by["NCCL_P2P_PER_CHANNEL_NET_BW"]["overridden_by"] == "NCCL_NCHANNELS_PER_NET_PEER" and by["NCCL_P2P_PER_CHANNEL_NET_BW"]["overridden_value"] == "4" and
       by["NCCL_NTHREADS"]["overridden_by"] is None, "which parameters the user overrides", by)
    weights = {(x["name"], x["weight"]) for x in j["conflicts"]}
    ok(weights >= {("NCCL_NCHANNELS_PER_NET_PEER", "caution"), ("NCCL_NSOCKS_PERTHREAD", "note"), ("NCCL_SOCKET_FAMILY", "note"), ("NCCL_P2P_NET_CHUNKSIZE", "caution")} and
       any("31-bit" in x["text"] for x in j["conflicts"]), "conflicts and their weight", j["conflicts"])
    r = run(tmp, "env", "--json", tool=tool, HAWSER_NCCL_TUNE="0")
    ok(json.loads(r.stdout)["tune"] is False and "HAWSER_NCCL_TUNE" in r.stdout, "HAWSER_NCCL_TUNE=0", r)

    (tmp / ".nccl.conf").write_text("# a comment=1\nNCCL_NET=Socket\nNCCL_BUFFSIZE=1048576\nnonsense\n")
    j = json.loads(run(tmp, "env", "--json", tool=tool, NCCL_BUFFSIZE="8388608").stdout)
    at = {x["name"]: x for x in j["conflicts"]}
    ok(at["NCCL_NET"]["from"] == f"{tmp}/.nccl.conf" and at["NCCL_NET"]["weight"] == "wrong" and "NCCL_BUFFSIZE" not in at,
       "~/.nccl.conf counts, and not over the environment", j)
    (tmp / "other.conf").write_text("NCCL_PROTO=LL\n")
    j = json.loads(run(tmp, "env", "--json", tool=tool, NCCL_CONF_FILE=tmp / "other.conf").stdout)
    ok([x["name"] for x in j["conflicts"]] == ["NCCL_PROTO"], "NCCL_CONF_FILE in its place", j)
    (tmp / ".nccl.conf").unlink()

    (tmp / LIB / "libnccl-net-hawser.so").unlink()
    r = run(tmp, "env", tool=tool)
    ok(r.returncode == 1 and "libnccl-net-hawser.so was not found near" in r.stderr, "no plugin: exit 1, and where it was looked for", r)
    for argv, said in ([], "ACTION is missing; it must be one of env, check, bench"), (["nope"], "unknown action 'nope'"), (["env", "x"], "takes options only"), \
            (["check", "--nccl"], "needs a value"), (["env", "--nope"], "unknown option"), (["env", "--help=x"], "option '--help=x' takes no value"):
        r = run(tmp, *argv)
        ok(r.returncode == 2 and said in r.stderr, f"`nccl {' '.join(argv)}`: exit 2, says {said}", r)


# ---- check ----------------------------------------------------------------------------------------

def check(tmp, *argv, nccl=NCCL, tool=HAWSER, **more):
    r = run(tmp, "check", "--json", *(["--nccl", nccl] if nccl else []), *argv, tool=tool, **more)
    try:
        j = json.loads(r.stdout)
    except json.JSONDecodeError:
        return r, {}
    found = {}
    for c in j["checks"]:
        found.setdefault(c["id"], []).append(c)
    assert (r.returncode == 1) == (j["failed"] > 0), r
    return r, found


def has(found, what, outcome, text="", subject=None):
    return any(c["outcome"] == outcome and text in c["found"] and (subject is None or c["subject"] == subject)
               for c in found.get(what, []))


def part_check(tmp):
    tool = installed(tmp, MINI)
    lib = tmp / LIB
    good = {"tool": tool, "LD_LIBRARY_PATH": lib, "NCCL_NET_PLUGIN": "hawser"}
    r, f = check(tmp, **good)
    ok(r.returncode == 0 and has(f, "nccl.network", "PASS", "hawser, with table v11") and has(f, "nccl.library", "PASS", "2.28.9"),
       "ours is found: exit 0", r)
    ok(has(f, "nccl.nics", "PASS", "lane0 (24000 Mb/s, GPU memory), lane1 (24001 Mb/s, GPU memory)") and
       has(f, "nccl.table", "PASS", "NCCL uses table v11 of the plugin, which has v8, v11") and has(f, "nccl.link", "PASS", f"{lib}/libnccl-net.so is hawser's"),
       "its devices, tables and link", f)
    ok(not any(c["outcome"] == "FAIL" for x in f.values() for c in x) and all(c["group"] == "nccl" for x in f.values() for c in x),
       "nothing failed", f)
    r = run(tmp, "check", "--nccl", NCCL, **good)
    ok(r.returncode == 0 and re.search(r"^PASS  nccl.network +hawser", r.stdout, re.M), "as lines", r)
    r = subprocess.run([HAWSER, "doctor", "--only", "nccl"], capture_output=True, text=True, timeout=60,
                       env=env(tmp, LD_LIBRARY_PATH=lib, NCCL_NET_PLUGIN="hawser"))
    ok("nccl.network" in r.stdout and "hawser, with table v1" in r.stdout, "doctor --only nccl says it too", r)

    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": None})
    ok(r.returncode == 0 and has(f, "nccl.plugins", "PASS", "libnccl-net.so, which is hawser's"), "unset: libnccl-net.so is ours", r)
    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": ""})
    ok(r.returncode == 0 and has(f, "nccl.plugins", "PASS", "empty") and not has(f, "nccl.environment", "FAIL", subject="NCCL_NET_PLUGIN"),
       "empty: the same, and no conflict", f)
    r, f = check(tmp, tool=tool)
    ok(r.returncode == 1 and has(f, "nccl.plugins", "FAIL", "not found") and has(f, "nccl.network", "FAIL", "IB or Socket") and
       has(f, "nccl.init", "PASS", "2 devices", "libnccl-net-hawser.so") and f["nccl.plugins"][0]["mend"].startswith('eval "$(hawser nccl env)"') and
       "export" not in f["nccl.plugins"][0]["mend"],
       "not asked for: NCCL's own; ours would work", f)
    r, f = check(tmp, tool=tool, NCCL_NET_PLUGIN="hawser")
    ok(r.returncode == 1 and has(f, "nccl.load", "FAIL", "cannot open shared object file", "hawser") and
       f"LD_LIBRARY_PATH={lib}" in f["nccl.load"][0]["mend"], "not on the loader's path: which folder", f)
    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": "none"})
    ok(r.returncode == 1 and has(f, "nccl.plugins", "FAIL", "loads no plugin") and has(f, "nccl.environment", "FAIL", subject="NCCL_NET_PLUGIN"),
       "none", f)
    r, f = check(tmp, **{**good, "NCCL_NET": "Socket"})
    ok(r.returncode == 1 and has(f, "nccl.network", "FAIL", "its own network Socket") and has(f, "nccl.environment", "FAIL", subject="NCCL_NET"),
       "NCCL_NET=Socket", f)
    r, f = check(tmp, **{**good, "NCCL_NET": "HAWSER"})
    ok(r.returncode == 0 and has(f, "nccl.network", "PASS"), "NCCL_NET in capitals is the same name", f)
    r, f = check(tmp, **{**good, "MINI_NAME": "other", "NCCL_NET": "hawser"})
    ok(r.returncode == 1 and has(f, "nccl.network", "FAIL", "NCCL will fail"), "NCCL_NET that no plugin has", f)

    place(lib, MINI_V8, "libnccl-net-first.so")
    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": "nosuch,hawser"})
    ok(r.returncode == 0 and has(f, "nccl.load", "WARN", "cannot open", "nosuch") and has(f, "nccl.network", "PASS"),
       "another that is not there is passed over", f)
    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": f"{lib}/libnccl-net-hawser.so"})
    ok(r.returncode == 0 and has(f, "nccl.network", "PASS", "v11"), "ours by its path", f)
    r, f = check(tmp, **{**good, "NCCL_NET_PLUGIN": "libnccl-net-hawser.so"})
    ok(r.returncode == 0 and has(f, "nccl.network", "PASS", "v11"), "and by its file's name", f)
    place(tmp / "taken", MINI, "libnccl-net-other.so")
    r, f = check(tmp, **{**good, "LD_LIBRARY_PATH": f"{lib}:{tmp}/taken", "NCCL_NET_PLUGIN": "other,hawser", "MINI_NAME": "mine"})
    ok(r.returncode == 1 and has(f, "nccl.network", "FAIL", "'mine' of plugin other, which precedes hawser"), "one before ours is taken", f)

    # faults in the plugin, each detected by a separate check
    for fault, what, text in (
            ("init-exit", "nccl.init", "called exit(1) during init(); its last output: 'mini: starting, as it should mini: no luck today'"),
            ("init-crash", "nccl.init", "was killed by signal 6 (Aborted) during init()"),
            ("init-fail", "nccl.init", "init() failed with ncclResult_t 3"),
            ("devices-fail", "nccl.init", "devices() failed with ncclResult_t 2"),
            ("properties-crash", "nccl.init", "was killed by signal 6 (Aborted) during getProperties()"),
            ("finalize-exit", "nccl.init", "called exit(0) during finalize()"),
            ("load-crash", "nccl.load", "was killed by signal 6 (Aborted) during loading")):
        r, f = check(tmp, **good, MINI_FAULT=fault)
        ok(r.returncode == 1 and has(f, what, "FAIL", text, "hawser") and has(f, "nccl.network", "FAIL"), f"{fault}: {what} says so", f)
    r, f = check(tmp, **good, MINI_DEVICES="0")
    ok(r.returncode == 1 and has(f, "nccl.init", "FAIL", "the plugin has 0 devices"), "no device", f)
    r, f = check(tmp, **good, MINI_DEVICES="100")
    ok(r.returncode == 0 and has(f, "nccl.init", "PASS", "100 devices"), "more devices than are told", f)
    start = time.monotonic()
    r, f = check(tmp, **good, MINI_FAULT="init-hang")
    ok(r.returncode == 1 and has(f, "nccl.init", "FAIL", "did not end within 10 s during init()") and time.monotonic() - start < 60,
       "one that hangs is given up", f)
    (lib / "libnccl-net-hawser.so").write_text("no library")
    r, f = check(tmp, **good)
    ok(r.returncode == 1 and has(f, "nccl.load", "FAIL", "file too short"), "what is no library", f)
    place(lib, MINI_OLD, "libnccl-net-hawser.so")
    r, f = check(tmp, **good)
    ok(r.returncode == 1 and has(f, "nccl.table", "FAIL", "the plugin's tables: v4, v5; NCCL needs one of v6 to v11"), "tables that are too old", f)
    place(lib, MINI_V8, "libnccl-net-hawser.so")
    r, f = check(tmp, **good)
    ok(r.returncode == 0 and has(f, "nccl.network", "PASS", "table v8") and has(f, "nccl.nics", "PASS", "lane1 (8001 Mb/s)"),
       "v8 alone, whose speed lies elsewhere", f)

    place(lib, MINI, "libnccl-net-hawser.so")
    place(lib, MINI, "libnccl-net.so")
    r, f = check(tmp, **good)
    ok(r.returncode == 0 and has(f, "nccl.link", "PASS", "is hawser's"), "a libnccl-net.so beside our plugin that is no link, as in the Python wheel", f)
    (lib / "libnccl-net.so").unlink()
    r, f = check(tmp, **good)
    ok(r.returncode == 0 and has(f, "nccl.link", "WARN", "missing") and
       re.search(r'ln -s .*/libnccl-net.so; eval "\$\(hawser nccl env\)"$', f["nccl.link"][0]["mend"]), "no libnccl-net.so: the link, and LD_LIBRARY_PATH for it", f)
    place(lib, MINI, "libnccl-tuner.so")
    place(lib, MINI, "libnccl-env.so")
    r, f = check(tmp, **good)
    ok(has(f, "nccl.tuner", "WARN", "libnccl-tuner.so") and has(f, "nccl.env-plugin", "WARN", "libnccl-env.so"), "a tuner and an env plugin", f)
    r, f = check(tmp, **good, NCCL_TUNER_PLUGIN="nosuch", NCCL_BUFFSIZE="1048576")
    ok(has(f, "nccl.tuner", "WARN", "is not found") and has(f, "nccl.environment", "WARN", "NCCL limits NCCL_P2P_NET_CHUNKSIZE", "NCCL_BUFFSIZE"),
       "a tuner that is not there; a partial override", f)
    place(lib, MINI, "libnccl-tuner-mine.so")
    r, f = check(tmp, **good, NCCL_TUNER_PLUGIN="mine")
    ok(has(f, "nccl.tuner", "WARN", "libnccl-tuner-mine.so, set by NCCL_TUNER_PLUGIN"), "a tuner by its short name", f)
    r, f = check(tmp, **good, NCCL_TUNER_PLUGIN="None")
    ok(has(f, "nccl.tuner", "WARN", "NCCL uses its own cost model"), "no tuner", f)
    r, f = check(tmp, nccl="/nowhere/libnccl.so.2", **good)
    ok(r.returncode == 1 and has(f, "nccl.library", "FAIL", "/nowhere") and has(f, "nccl.network", "PASS", "v11"), "a library that was named and is not there", f)
    r, f = check(tmp, nccl=CUDA, **good)
    ok(has(f, "nccl.library", "FAIL", "no working ncclGetVersion"), "a library that is no NCCL", f)


# ---- bench ----------------------------------------------------------------------------------------

def bench(tmp, *argv, timeout=100, **more):
    return run(tmp, "bench", "--nccl", NCCL, *argv, timeout=timeout, **more)


def rows(r):
    return [json.loads(x) for x in r.stdout.splitlines()] if r.stdout.startswith("{") else []


def part_bench(tmp):
    told = tmp / "report"
    # 2 if the size is divided between the two ranks
    ops = {"all_reduce": 1, "sendrecv": 1, "alltoall": 2, "all_gather": 2, "reduce_scatter": 2, "broadcast": 1}
    r = bench(tmp, "--op", ",".join(ops), "--size", "8,100,100000", "--iters", 5, "--warmup", 1, FAKENCCL_REPORT=told,
              NCCL_DEBUG_FILE="/dev/null", NCCL_NET="Nonsense")
    lines = [x.split() for x in r.stdout.splitlines() if x and not x.startswith("#")]
    ok(r.returncode == 0 and not r.stderr and [(x[0], x[2]) for x in lines] ==
       [(s, op) for op, parts in ops.items() for s in ("8", "100" if parts == 1 else "96", "100000")],
       "bench: a line for each operation and size", r)
    ok(all(x[7] == "0" and float(x[4]) > 0 for x in lines), "no errors, some time", r.stdout)
    ok(all(abs(float(x[6]) - float(x[5]) * 1 / ops[x[2]]) < 0.01 for x in lines),
       "busbw of two ranks: algbw, and half of it where each rank has a part", r.stdout)
    ok("NCCL 2.28.9" in r.stdout and "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1" in r.stdout and "NCCL_HOSTID=hawser-bench-1" in r.stdout and
       "# hawser: network hawser; NCCL_NET_PLUGIN=hawser" in r.stdout, "what was set is said", r.stdout)
    seen = [dict(w.split("=", 1) for w in x.split(" ") if "=" in w) for x in told.read_text().splitlines()]
    ok(len(seen) == 2 and {x["NCCL_HOSTID"] for x in seen} == {"hawser-bench-0", "hawser-bench-1"} and
       all(x["NCCL_P2P_DISABLE"] == x["NCCL_SHM_DISABLE"] == "1" and x["NCCL_NET_PLUGIN"] == "hawser" and "NCCL_NET" not in x and
           "NCCL_DEBUG_FILE" not in x for x in seen), "two ranks, each on a host of its own", seen)

    r = bench(tmp, "--size", "4KiB", "--iters", 3, "--gpus", 4, "--json", "-", FAKECUDA_GPUS=4, FAKECUDA_MEMORY=256)
    j = rows(r)
    ok(r.returncode == 0 and len(j) == 2 and all(x["ranks"] == 4 and x["errors"] == 0 and x["checked"] == 4 * 2 * 1024 and
       x["network"] == "hawser" for x in j) and abs(j[0]["busbw_GBps"] / j[0]["algbw_GBps"] - 1.5) < 1e-6, "four ranks; JSON", r)

    told.unlink()
    r = bench(tmp, "--vs-socket", "--raw", "1,2", "--op", "all_reduce", "--size", "4KiB", "--iters", 4, "--warmup", 1, "--rounds", 3, "--json",
              tmp / "out.jsonl", "--set", "NCCL_NTHREADS=256", "--report", tmp / "out.html", FAKENCCL_SLOW="Socket:20000",
              FAKENCCL_REPORT=told, NCCL_BUFFSIZE="65536", NCCL_NSOCKS_PERTHREAD="8")
    page = (tmp / "out.html").read_text()
    ok("Bus bandwidth" in page and "Against NET/Socket" in page and page.count("socket-4x4-8ch") >= 2 and "Explanation of the columns" in page,
       "--report: a page of the same make as bench's", page[-2000:])
    j = [json.loads(x) for x in (tmp / "out.jsonl").read_text().splitlines()]
    by = {x["config"]: x for x in j if "config" in x}
    ok(r.returncode == 0 and list(by) == ["hawser", "socket", "socket-1x1-16ch", "socket-4x4-8ch"] and
       all(len(x["rounds_us"]) == 3 for x in by.values()), "--vs-socket: four configurations, three rounds", r)
    ours = by["hawser"]
    ok(ours["ratio_default"] > 2 and ours["ratio_tuned"] > 2 and by["socket"]["ratio_default"] is None and
       abs(ours["ratio_default"] - by["socket"]["time_us"] / ours["time_us"]) < 1e-6 and
       ours["ratio_tuned"] <= min(by[c]["time_us"] for c in by if "ch" in c) / ours["time_us"] + 1e-6 and
       ours["tuned_best"] in ("socket-1x1-16ch", "socket-4x4-8ch") and ours["cpu_s_per_GB"] > 0, "how many times as fast", ours)
    ok(all(x["first_ms"] > 0 for x in by.values()) and r.stdout.count("# the first all_reduce of a communicator: hawser ") == 1,
       "how long the first operation took", r.stdout)
    raw = [x for x in j if x["op"] == "raw"]
    ok([x["streams"] for x in raw] == [1, 2] and all(x["wire_GBps"] > 0 for x in raw) and
       abs(ours["of_raw"] - ours["wire_GBps"] / max(x["wire_GBps"] for x in raw)) < 1e-9 and "plain sockets, 2 streams" in r.stdout,
       "plain sockets in the same run, and ours' part of them", j)
    seen = [dict(w.split("=", 1) for w in x.split(" ") if "=" in w) for x in told.read_text().splitlines()]
    turns = [x["network"] + x.get("NCCL_MIN_NCHANNELS", "") for x in seen[::2]]
    ok(turns == ["hawser", "Socket", "Socket16", "Socket8", "Socket", "Socket16", "Socket8", "hawser", "Socket16", "Socket8", "hawser", "Socket"],
       "fresh processes in turns, and each is first once", turns)
    ok(all((x.get("NCCL_NTHREADS") == "256") == (x["network"] == "hawser") for x in seen) and
       all(x.get("NCCL_BUFFSIZE") == {"hawser": "65536", "Socket8": "16777216"}.get(t) for x, t in zip(seen[::2], turns)) and
       all(x.get("NCCL_NSOCKS_PERTHREAD") == {"hawser": "8", "Socket8": "4", "Socket16": "1"}.get(t) for x, t in zip(seen[::2], turns)),
       "--set and the user's parameters are for ours alone", seen)
    tool = installed(tmp, MINI)
    told.unlink()
    r = bench(tmp, "--size", 8, "--iters", 1, "--op", "sendrecv", tool=tool, FAKENCCL_REPORT=told, LD_LIBRARY_PATH="/nowhere")
    ok(r.returncode == 0 and f"LD_LIBRARY_PATH={tmp}/{LIB}:/nowhere" in told.read_text(), "the plugin beside this program is measured", told.read_text())
    ok(not list(tmp.glob("fakenccl-*")), "no communicator is left")

    for argv, said in (["--op", "bogus"], "unknown operation 'bogus'"), (["--size", "x"], "'x'"), (["--gpus", "1"], "'1'"), \
            (["--rounds", "0"], "'0'"), (["--set", "X"], "NAME=VALUE"), (["--raw", "0"], "'0'"), (["--timeout", "0"], "--timeout"), \
            (["stray"], "options only"), (["--lab", "x", "--raw", "1"], "loopback"), (["--rank", "nonsense"], ""):
        r = bench(tmp, *argv)
        ok(r.returncode == 2 and said in r.stderr and not r.stdout, f"`nccl bench {' '.join(argv)}`: exit 2", r)
    r = bench(tmp, "--op", "all_reduce", "--size", "8", "--json", "-", "--sockets", "NCCL_NSOCKS_PERTHREAD=2,NCCL_MIN_NCHANNELS=8",
              "--sockets", "default", FAKENCCL_REPORT=tmp / "report2")
    seen = [dict(w.split("=", 1) for w in x.split(" ") if "=" in w) for x in (tmp / "report2").read_text().splitlines()]
    tuned = [x for x in seen if x.get("NCCL_NSOCKS_PERTHREAD") == "2" and x.get("NCCL_MIN_NCHANNELS") == "8"]
    ok(r.returncode == 0 and [x["config"] for x in rows(r)] == ["hawser", "sockets-1", "sockets-2"] and len(seen) == 6 and
       len(tuned) == 2 and all(x["NCCL_NET"] == "Socket" for x in tuned), "--sockets: NCCL's own with these variables", r, seen)
    for word in ("X", "=1", "default,"):
        r = bench(tmp, "--sockets", word)
        ok(r.returncode == 2 and "NAME=VALUE" in r.stderr, f"--sockets {word}: exit 2", r)
    r = bench(tmp, "--op", "alltoall", "--size", "4")
    ok(r.returncode == 1 and "needs at least 8 bytes" in r.stderr, "too small to be dealt out", r)


def alive(tmp):
    """Returns the process ids of our ranks that are still running."""
    pids = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (p / "comm").read_text() == "hawser-rank\n" and f"FAKENCCL_DIR={tmp}".encode() in (p / "environ").read_bytes().split(b"\0"):
                pids.append(p.name)
        except OSError:
            pass
    return pids


def part_fails(tmp):
    quick = ["--size", "8,4KiB", "--iters", 2, "--warmup", 1]
    r = bench(tmp, *quick, FAKENCCL_FAULT="wrong:1:4")
    ok(r.returncode == 1 and "rank 1: all_reduce of 8 bytes: 1 of 4 elements is wrong; the first is element 1" in r.stderr and
       re.search(r"^ +8 .*all_reduce.* 1 +\S+$", r.stdout, re.M), "a wrong element of the last operation is found", r)
    r = bench(tmp, *quick, "--op", "sendrecv", FAKENCCL_FAULT="wrong:0:7", FAKENCCL_REPORT=tmp / "x")
    ok(r.returncode == 1 and "rank 0: sendrecv of 4096 bytes: 1 of 2048 elements is wrong; the first is element 512" in r.stderr,
       "and of the last one under the clock", r)
    for fault, said in (("die", "ended with status 3 before its work was done"), ("crash", "was killed by signal 6"),
                        ("error", "ncclAllReduce: remote process exited or there was a network error: the fault that was asked for"),
                        ("async", "transferring data with NCCL: remote process exited")):
        r = bench(tmp, *quick, FAKENCCL_FAULT=f"{fault}:1:3")
        ok(r.returncode == 1 and f"hawser: rank 1 (GPU 1)" in r.stderr and said in r.stderr, f"a rank that has {fault}: named", r)
    ok("dies as it was told" in bench(tmp, *quick, FAKENCCL_FAULT="die:0:2").stderr, "with what it said last")
    start = time.monotonic()
    r = bench(tmp, *quick, "--timeout", "2s", FAKENCCL_FAULT="hang:1:3")
    ok(r.returncode == 1 and "no answer from rank 0 (GPU 0), 1 (GPU 1) within 2 s during all_reduce of 8 bytes" in r.stderr and
       "rank 1 hangs as it was told" in r.stderr and time.monotonic() - start < 30, "a rank that hangs: given up, its last words", r)
    r = bench(tmp, *quick, "--timeout", "2s", FAKENCCL_FAULT="hang:1:0")
    ok(r.returncode == 1 and "no answer from rank 0 (GPU 0), 1 (GPU 1) within 2 s during the creation of the communicator" in r.stderr,
       "one that hangs there", r)
    r = bench(tmp, *quick, FAKENCCL_FAULT="die:1:0")
    ok(r.returncode == 1 and "rank 1 (GPU 1) ended with status 3" in r.stderr, "a rank that dies while the communicator is made", r)
    r = bench(tmp, *quick, "--vs-socket", "--rounds", 1, "--json", "-", FAKENCCL_FAULT="die:1:3", FAKENCCL_FAULT_NET="hawser")
    ok(r.returncode == 1 and {x["config"] for x in rows(r)} == {"socket", "socket-1x1-16ch", "socket-4x4-8ch"}, "the others go on without it", r)
    r = bench(tmp, *quick, FAKENCCL_DEAF="1")
    ok(r.returncode == 1 and "uses NCCL's network Socket instead" in r.stderr and "hawser nccl check" in r.stderr,
       "a network that is not ours is no result", r)
    r = bench(tmp, *quick, FAKENCCL_MUTE="1")
    ok(r.returncode == 1 and "did not report which network it uses" in r.stderr, "nor is one that is not told", r)
    r = bench(tmp, *quick, FAKECUDA_GPUS="1")
    ok(r.returncode == 1 and "fewer than two GPUs; this host has 1" in r.stderr, "one GPU: exit 1, and why", r)
    r = bench(tmp, *quick, HAWSER_CUDA_LIBRARY="/nowhere/libcuda.so.1")
    ok(r.returncode == 1 and "install NVIDIA's driver" in r.stderr, "no driver: what to do", r)
    r = bench(tmp, *quick, "--gpus", 3)
    ok(r.returncode == 1 and "3 GPUs were requested, but this host has 2" in r.stderr, "more than there are", r)
    r = bench(tmp, "--size", "1GiB", "--iters", 1, FAKECUDA_MEMORY="64")
    ok(r.returncode == 1 and "CUDA_ERROR_OUT_OF_MEMORY" in r.stderr, "no GPU memory", r)
    r = run(tmp, "bench", "--nccl", "/nowhere/libnccl.so.2", *quick)
    ok(r.returncode == 1 and "give the path of its library with --nccl" in r.stderr, "no NCCL: what to do", r)
    r = run(tmp, "bench", "--nccl", CUDA, *quick)
    ok(r.returncode == 1 and "has no ncclGetVersion" in r.stderr, "a library that is no NCCL", r)
    p = subprocess.Popen([HAWSER, "nccl", "bench", "--nccl", NCCL, "--size", "8", "--iters", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env=env(tmp, FAKENCCL_FAULT="hang:1:3"))
    time.sleep(2)
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=20)
    ok(p.returncode == 130 and "interrupted" in said[1], "interrupted: it ends", said)
    p = subprocess.Popen([HAWSER, "nccl", "bench", "--nccl", NCCL, "--size", "8", "--iters", "2"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, env=env(tmp, FAKENCCL_FAULT="hang:1:3"))
    time.sleep(2)
    born = alive(tmp)
    p.kill()
    p.wait()
    for _ in range(50):
        if not alive(tmp):
            break
        time.sleep(0.1)
    ok(len(born) == 2 and not alive(tmp), "killed: its ranks go with it", born)


def part_gpu(tmp):
    """Tests `tests/gpu/run nccl` and tests/gpu/nccl_train.py without a GPU."""
    script = pathlib.Path(__file__).parents[1] / "gpu/run"

    def gpu(*argv, **more):
        return subprocess.run(["bash", script, "nccl", "--parts", "table", "--tool", HAWSER, "--nccl", NCCL, "--sizes", "8,1MiB", "--rounds", "1",
                               "--op", "all_reduce", *argv, "--", "--iters", "2"], capture_output=True, text=True, timeout=100, env=env(tmp, **more))

    r = gpu("--raw", "1", FAKENCCL_SLOW="Socket:100000")
    ok(r.returncode == 0 and r.stdout.endswith("\n8 passed, 0 failed, 0 skipped\n") and "MISSED: all_reduce 8" not in r.stdout and
       re.search(r"^met: all_reduce 1 MiB: [\d.]+x the best tuned", r.stdout, re.M), "tests/gpu/run nccl", r)
    ok(re.search(r"^\| all_reduce \| 1 MiB \| ([\d.]+ \| ){5}[\d.]+x \| [\d.]+x \| \d+ % \| [\d.]+ / [\d.]+ \|$", r.stdout, re.M) and
       "Plain sockets, 1 streams" in r.stdout, "its table", r)
    r = gpu("--raw", "", FAKENCCL_SLOW="hawser:500000")  # on a busy machine, the other transports may take 100 ms
    ok(r.returncode == 0 and "MISSED: all_reduce 1 MiB" in r.stdout and "MISSED: all_reduce 8 B" in r.stdout, "an aim that is missed is told", r)
    r = gpu("--raw", "", FAKENCCL_FAULT="wrong:1:6", FAKENCCL_FAULT_NET="hawser")
    ok(r.returncode == 1 and "failed: hawser: all_reduce 8 B: 1 of " in r.stdout and r.stdout.endswith("\n7 passed, 1 failed, 0 skipped\n"),
       "wrong data fails", r)
    r = gpu("--raw", "", FAKENCCL_DEAF="1")
    ok(r.returncode == 1 and r.stdout.endswith("\n6 passed, 1 failed, 0 skipped\n"), "and so does what was not measured", r)
    r = gpu(FAKECUDA_GPUS="1")
    ok(r.returncode == 0 and "skipped: nccl: hawser nccl bench: NCCL transfers nothing with fewer than two GPUs" in r.stdout and
       r.stdout.endswith("\n0 passed, 0 failed, 1 skipped\n"), "one GPU: skipped, and why", r)
    r = gpu("--parts", "four", "--four-sizes", "64,1MiB", FAKECUDA_GPUS="4")
    ok(r.returncode == 0 and r.stdout.endswith("\n16 passed, 0 failed, 0 skipped\n") and "| alltoall | 1 MiB |" in r.stdout,
       "four ranks: all_reduce and alltoall, over four networks", r)
    r = gpu("--parts", "four")
    ok(r.returncode == 0 and "skipped: nccl: hawser nccl bench: 4 GPUs were requested, but this host has 2" in r.stdout and
       r.stdout.endswith("\n0 passed, 0 failed, 1 skipped\n"), "two GPUs: no four ranks, and why", r)
    r = gpu("--parts", "hosts")
    ok(r.returncode == 0 and "hosts a,b" in r.stdout and r.stdout.endswith("\n10 passed, 0 failed, 0 skipped\n"), "two GPUs as two hosts", r)
    r = gpu("--parts", "hosts", FAKENCCL_FAULT="wrong:1:6", FAKENCCL_FAULT_NET="hawser")
    ok(r.returncode == 1 and r.stdout.endswith("\n9 passed, 1 failed, 0 skipped\n"), "wrong data fails there", r)
    r = gpu("--parts", "table,none")
    ok(r.returncode == 1 and "there is no part 'none'" in r.stdout, "a part that is not there", r)
    r = subprocess.run([sys.executable, script.parent / "nccl_train.py"], capture_output=True, text=True, timeout=100,
                       env=env(tmp, CUDA_VISIBLE_DEVICES="", PYTHONDONTWRITEBYTECODE="1"))
    ok(r.returncode == 0 and re.search("^skipped: train: (no PyTorch|0 GPUs)", r.stdout, re.M) and
       r.stdout.endswith("\n0 passed, 0 failed, 1 skipped\n"), "no PyTorch, or no GPU for it: skipped, and why", r)


def part_hosts(tmp):
    """Tests two host names that both refer to this machine. The test runs a shell in place of ssh."""
    ssh = tmp / "ssh"
    ssh.write_text('#!/bin/sh\necho "Welcome to $1, hawser user"\nHOST=$1 && export HOST && shift && exec sh -c "$*"\n')
    ssh.chmod(0o755)
    reach = ["--ssh", f"{ssh}", "--hosts", "node1,node2"]
    quick = ["--size", "8,4KiB", "--iters", 2, "--warmup", 1, "--rounds", 1]
    one = {"FAKECUDA_GPUS": "1"}

    told = tmp / "report"
    r = bench(tmp, *reach, *quick, "--json", tmp / "out.jsonl", "--set", "NCCL_NTHREADS=256", FAKENCCL_REPORT=told, NCCL_BUFFSIZE="65536", **one)
    j = [json.loads(x) for x in (tmp / "out.jsonl").read_text().splitlines()] if (tmp / "out.jsonl").exists() else []
    ok(r.returncode == 0 and not r.stderr and [(x["config"], x["op"], x["size"]) for x in j] == [
        (c, op, z) for op in ("all_reduce", "sendrecv") for z in (8, 4096) for c in ("hawser", "socket")] +
       [("hawser bench", "write", 8), ("hawser bench", "write", 4096)], "hawser, sockets and our own transfer between two hosts", (r, j))
    ok(all(x["errors"] == 0 and x["checked"] > 0 and x["hosts"] == "node1,node2" and x["algbw_GBps"] > 0 for x in j), "all of it checked", j)
    ok("# rank 1: host node2, GPU 0, NCCL_HOSTID=hawser-bench-1" in r.stdout and "# tcpx: not measured, because not all hosts have" in r.stdout and
       "# hawser bench: write from host node2 to host node1" in r.stdout and len(re.findall(r"^ +\S+ +- write +hawser bench ", r.stdout, re.M)) == 2,
       "one table, and what is not in it", r.stdout)
    seen = [dict(w.split("=", 1) for w in x.split(" ") if "=" in w) for x in told.read_text().splitlines()]
    ok(len(seen) == 4 and all(x["NCCL_HOSTID"] == f"hawser-bench-{x['rank']}" and "NCCL_P2P_DISABLE" not in x for x in seen) and
       [x.get("NCCL_NTHREADS") for x in seen] == ["256", "256", None, None] and [x.get("NCCL_BUFFSIZE") for x in seen] == ["65536"] * 2 + [None] * 2,
       "their variables came along", seen)
    r = bench(tmp, *reach, *quick, "--op", "sendrecv", "--json", "-", "--tcpx", MINI, FAKECUDA_GPUS="2")
    j = rows(r)
    ok(r.returncode == 0 and [(x["config"], x.get("network")) for x in j if x["size"] == 8] == [
        ("hawser", "hawser"), ("socket", "Socket"), ("tcpx", "GPUDirectTCPX_v7"), ("hawser bench", None)] and
       all(x["ranks"] == 4 for x in j if "ranks" in x), "TCPX where it is on all hosts; two GPUs of each host", (r, j))
    r = bench(tmp, "--ssh", "/nowhere/ssh", "--hosts", f"localhost,{os.uname().nodename}", *quick, "--op", "sendrecv", "--json", "-", **one)
    ok(r.returncode == 0 and len(rows(r)) == 6, "this host is reached without ssh", r)

    r = bench(tmp, *reach, *quick, FAKENCCL_FAULT="die:1:3", **one)
    ok(r.returncode == 1 and "rank 1 (host node2, GPU 0) ended with status 3" in r.stderr and "last output of rank 1 on node2" in r.stderr and
       "dies as it was told" in r.stderr and not alive(tmp), "a rank that dies: named with its host, and its last words", r)
    r = bench(tmp, *reach, *quick, FAKENCCL_FAULT="crash:0:3", FAKENCCL_FAULT_NET="hawser", **one)
    ok(r.returncode == 1 and "rank 0 (host node1, GPU 0) ended with status 134" in r.stderr and "killed by signal 6" in r.stderr and
       re.search(r"all_reduce +socket", r.stdout) and "hawser bench" in r.stdout, "one that crashes; the others go on", r)
    start = time.monotonic()
    r = bench(tmp, *reach, *quick, "--timeout", "2s", FAKENCCL_FAULT="hang:1:3", **one)
    ok(r.returncode == 1 and "no answer from rank 0 (host node1, GPU 0), 1 (host node2, GPU 0) within 2 s" in r.stderr and
       time.monotonic() - start < 40, "one that hangs: given up", r)
    for _ in range(50):
        if not alive(tmp):
            break
        time.sleep(0.1)
    ok(not alive(tmp), "and gone")
    r = bench(tmp, "--ssh", "false", "--hosts", "node1,node2", *quick, **one)
    ok(r.returncode == 1 and "host node1: the command that starts hawser on this host has ended (with --hosts, see --ssh and --remote)" in r.stderr, "a host that is not reached", r)
    r = bench(tmp, *reach, "--remote", "/nowhere/hawser", *quick, **one)
    ok(r.returncode == 1 and re.search("host node1: the command that starts hawser on this host has ended .*last output: .*not found", r.stderr), "no program there", r)
    other = tmp / "other"
    other.write_text("#!/usr/bin/env python3\nimport sys, struct\nsys.stdout.buffer.write(b'hawser-nccl-agent'.ljust(20, b'\\0') + "
                     "b'9.9.9'.ljust(44, b'\\0') + struct.pack('II', 1, 1))\nsys.stdout.flush()\nsys.stdin.read()\n")
    other.chmod(0o755)
    r = bench(tmp, *reach, "--remote", other, *quick, **one)
    ok(r.returncode == 1 and "host node1 runs hawser 9.9.9, but this host runs " in r.stderr, "another version there: both are named", r)
    r = bench(tmp, *reach, *quick, FAKECUDA_GPUS="0")
    ok(r.returncode == 1 and "host node1: " in r.stderr and "NO_DEVICE" in r.stderr, "a host with no GPU", r)
    r = bench(tmp, *reach, "--gpus", 2, *quick, **one)
    ok(r.returncode == 1 and "not all hosts have 2 GPUs" in r.stderr, "more GPUs than there are", r)
    for argv, said in (["--hosts", "one"], "two hosts"), (["--hosts", "a,a"], "appears twice"), (["--hosts", "a;b,c"], "not a host name"), \
            (["--hosts", "a,-oProxyCommand=x"], "not a host name"), (["--hosts", "a,b", "--lab", "x"], "cannot be combined"), (["--ssh", "x"], "need --hosts"), \
            (["--hosts", "a,b", "--remote", "a b"], "give a different path"):
        r = bench(tmp, *argv, **one)
        ok(r.returncode == 2 and said in r.stderr and not r.stdout, f"`nccl bench {' '.join(argv)}`: exit 2", r)
    p = subprocess.Popen([HAWSER, "nccl", "bench", "--nccl", NCCL, *map(str, [*reach, *quick])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         env=env(tmp, FAKENCCL_FAULT="hang:1:3", **one))
    for _ in range(100):
        if len(alive(tmp)) == 2:
            break
        time.sleep(0.1)
    born = alive(tmp)
    p.kill()
    p.wait()
    for _ in range(50):
        if not alive(tmp):
            break
        time.sleep(0.1)
    ok(len(born) == 2 and not alive(tmp), "killed: the ranks on its hosts go with it", born)


def part_lab(tmp):
    name = f"nccl{os.getpid()}"
    up = subprocess.run([HAWSER, "lab", "up", "--name", name, "--nics", "1"], capture_output=True, text=True)
    if up.returncode:
        print(f"1..0 # SKIP no lab: {up.stderr.strip()}")
        sys.exit(77)
    try:
        told = tmp / "report"
        r = bench(tmp, "--lab", name, "--size", "4KiB", "--iters", 2, "--json", "-", FAKENCCL_REPORT=told)
        ok(r.returncode == 0 and [x["errors"] for x in rows(r)] == [0, 0], "each rank in a node of a lab", r)
        spaces = {w for x in told.read_text().splitlines() for w in x.split(" ") if w.startswith("netns=")}
        ok(len(spaces) == 2 and f"netns={os.stat('/proc/self/ns/net').st_ino}" not in spaces, "which are two, and not here", spaces)
        told.unlink()
        r = bench(tmp, "--hosts", "a,b", "--ssh", f"{HAWSER} lab exec {name}/{{}} --", "--size", "8,64KiB", "--iters", 2, "--rounds", 1, "--json", "-",
                  FAKECUDA_GPUS="1", FAKENCCL_REPORT=told)
        j = rows(r)
        ok(r.returncode == 0 and [x["errors"] for x in j] == [0] * 10 and [x["op"] for x in j[-2:]] == ["write"] * 2,
           "--hosts: its nodes as two hosts, and our own transfer between them", r)
        spaces = {w for x in told.read_text().splitlines() for w in x.split(" ") if w.startswith("netns=")}
        ok(len(spaces) == 2 and f"netns={os.stat('/proc/self/ns/net').st_ino}" not in spaces, "in two namespaces", spaces)
        r = bench(tmp, "--lab", "nosuchlab", "--size", "8")
        ok(r.returncode == 1 and "ended with status 125" in r.stderr and not r.stdout and "nosuchlab" in r.stderr, "a lab that is not there", r)
    finally:
        subprocess.run([HAWSER, "lab", "down", "--name", name], check=True)


with tempfile.TemporaryDirectory() as d:
    {"env": part_env, "check": part_check, "bench": part_bench, "fails": part_fails, "lab": part_lab, "gpu": part_gpu, "hosts": part_hosts}[PART](pathlib.Path(d))
sys.exit(done())
