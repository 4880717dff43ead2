# SPDX-License-Identifier: Apache-2.0
"""Tests the container image that scripts/image.sh builds, and runs the containers of examples/containers with crun."""
import importlib
import json
import os
import re
import shutil

from chroot import ROOT, Missing, run
from tap import ok

yaml = importlib.import_module("yaml")  # imported by name, because yaml has no type annotations
EXAMPLES = ROOT / "examples/containers"
IMAGE = re.compile(r"hawser:\d+\.\d+\.\d+")
# Folders in which a mount would hide libraries of the image: NCCL, CUDA, the driver.
LIBRARIES = re.compile(r"/(usr/)?(local/)?(lib\w*|cuda[^/]*|nvidia)(/|$)|/opt/nvidia|/usr$|/$")
# A new network namespace, which represents the node's namespace in a Pod with hostNetwork, and cgroup version 2, which
# crun requires.
ENTER = ["unshare", "--net", "--mount", "sh", "-ec", 'ip link set lo up; mount -t sysfs none /sys; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"', "enter"]


def copy_nccl(nccl, folder):
    """Copies the tests' NCCL, and the library on which it depends, into a folder."""
    shutil.copy(nccl, folder / "libnccl.so.2")
    shutil.copy(nccl.parents[1] / "cuda/libfakecuda.so", folder)


class Bundle:
    """The image, unpacked by umoci in a folder from which crun runs containers."""

    def __init__(self, folder):
        self.folder, self.n = folder, 0
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))

    def command(self, args, mounts=(), env=(), user=None, caps=(), readonly=True):
        """Writes config.json for a command. Returns the argv that runs the command in ENTER's network."""
        c = json.loads(json.dumps(self.config))
        p = c["process"]
        p.update(terminal=False, args=list(args), noNewPrivileges=True, capabilities={k: list(caps) for k in ("bounding", "effective", "permitted")})
        p["env"] += [f"{k}={v}" for k, v in env]
        if user is not None:
            p["user"] = {"uid": user, "gid": user}
        c["root"]["readonly"] = readonly
        c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] not in ("network", "user", "cgroup")]
        c["linux"].pop("uidMappings", None)
        c["linux"].pop("gidMappings", None)
        c["linux"].pop("resources", None)
        c["mounts"] = [m for m in c["mounts"] if m["destination"] != "/sys/fs/cgroup"]
        c["mounts"] += [{"destination": to, "type": "bind", "source": str(source), "options": ["bind", "ro" if ro else "rw"]} for source, to, ro in mounts]
        self.n += 1
        bundle = self.folder.parent / f"bundle{self.n}"
        bundle.mkdir()
        c["root"]["path"] = str(self.folder / "rootfs")
        (bundle / "config.json").write_text(json.dumps(c), encoding="utf-8")
        return ["crun", "--cgroup-manager=disabled", "--root", self.folder.parent / "crun", "run", "--bundle", bundle, f"hawser-test-{os.getpid()}-{self.n}"]

    def run(self, *args, **more):
        return run([*ENTER, *self.command(args, **more)])


def make_bundle(dist, folder):
    out = folder / "image"
    status, text = run([ROOT / "scripts/image.sh", dist, out])
    if status and "mmdebstrap failed" in text:
        raise Missing(text.strip().splitlines()[-1])
    ok(status == 0, "image: scripts/image.sh makes it", text)
    version = json.loads((out / "index.json").read_text(encoding="utf-8"))["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
    ok((out / "oci-layout").exists() and re.fullmatch(r"\d+\.\d+\.\d+", version), "image: an OCI layout, named by the version", version)
    status, text = run(["umoci", "unpack", "--image", f"{out}:{version}", folder / "unpacked"])
    ok(status == 0, "image: umoci unpacks it", text)
    return Bundle(folder / "unpacked"), version


def use_image(bundle, version):
    process = bundle.config["process"]
    ok(process["args"][0] == "hawser" and process["user"]["uid"] == 65534, "image: its entry point and user", process)
    status, text = bundle.run("hawser", "--version")
    ok(status == 0 and text.startswith(f"hawser {version}\n"), "image: crun runs hawser --version", text)
    status, text = bundle.run("hawser", "doctor")
    ok(status in (0, 1) and re.search(r"^\d+ passed, ", text, re.M), "image: crun runs hawser doctor", text)
    root = bundle.folder / "rootfs"
    loader = [f for f in root.glob("usr/**/libnccl*") if not re.search(r"/hawser/nccl/|libnccl-net-hawser\.so$", str(f))]
    ok(not loader, "image: no NCCL in it, and no libnccl-net.so where the loader finds it", loader)


# ---- examples/containers ----------------------------------------------------------------------------

def read_pod(path, version):
    """Returns the only Pod in a file, after checking the file's form and contents."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    pod = document["spec"]["template"]["spec"] if document["kind"] == "DaemonSet" else document["spec"]
    if document["kind"] == "DaemonSet":
        labels = document["spec"]["template"]["metadata"]["labels"]
        ok(document["apiVersion"] == "apps/v1" and document["spec"]["selector"]["matchLabels"].items() <= labels.items(), f"{path.name}: a DaemonSet of its own Pods")
    containers = pod.get("initContainers", []) + pod["containers"]
    volumes = {v["name"] for v in pod["volumes"]}
    mounts = [m for c in containers for m in c.get("volumeMounts", [])]
    ok({m["name"] for m in mounts} == volumes, f"{path.name}: each mount has its volume", mounts)
    ours = [c for c in containers if IMAGE.fullmatch(c["image"])]
    ok(ours and all(c["image"] == f"hawser:{version}" for c in ours), f"{path.name}: the image of this version")
    ok(all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} and not c["securityContext"]["allowPrivilegeEscalation"] for c in ours),
       f"{path.name}: our containers have no capability")
    shadows = [m["mountPath"] for m in mounts if LIBRARIES.search(m["mountPath"].removeprefix("/opt/hawser"))]
    variables = [e["name"] for c in containers for e in c.get("env", []) if e["name"].startswith("LD_")]
    ok(not shadows and not variables, f"{path.name}: nothing is mounted over libraries, and env replaces no LD_LIBRARY_PATH", shadows, variables)
    return pod


def run_daemonset(bundle, version, folder):
    pod = read_pod(EXAMPLES / "daemonset.yaml", version)
    serve = pod["containers"][0]
    secret = pod["volumes"][0]["secret"]
    ok(pod["hostNetwork"] and serve["ports"][0]["containerPort"] == int(serve["args"][serve["args"].index("--port") + 1]), "daemonset.yaml: the port is serve's")
    key = folder / "key"
    key.mkdir()
    (key / "job.key").write_bytes(os.urandom(32).hex().encode())
    os.chown(key / "job.key", 0, pod["securityContext"]["fsGroup"])
    (key / "job.key").chmod(secret["defaultMode"])
    user = pod["securityContext"]["runAsUser"]
    mount = serve["volumeMounts"][0]
    mounts = [(key, mount["mountPath"], mount["readOnly"])]
    server = bundle.command(["hawser", *serve["args"]], mounts=mounts, user=user, readonly=serve["securityContext"]["readOnlyRootFilesystem"])
    client = bundle.command(["hawser", "bench", "127.0.0.1", "--key-file", f"{mount['mountPath']}/job.key", "--size", "1MiB", "--iters", "20", "--json", "-"],
                            mounts=mounts, user=user)
    script = ('"$@" >"$OUT" 2>&1 & for i in $(seq 200); do grep -q "hawser bench" "$OUT" && break; sleep 0.1; done; '
              '$CLIENT; rc=$?; $KILL; wait; cat "$OUT"; exit $rc')
    kill = " ".join(map(str, [*server[:4], "kill", server[-1], "INT"]))
    status, text = run([*ENTER, "sh", "-c", script, "sh", *server], OUT=str(folder / "serve.out"), CLIENT=" ".join(map(str, client)), KILL=kill)
    ok(status == 0 and '"bad_bytes":0' in text.replace(" ", ""), "daemonset.yaml: it serves under crun, and hawser bench with the key measures", status, text)


def run_nccl(bundle, version, folder, nccl):
    pod = read_pod(EXAMPLES / "nccl.yaml", version)
    init, main = pod["initContainers"][0], pod["containers"][0]
    plugin = folder / "plugin"
    plugin.mkdir()
    status, text = bundle.run(*init["command"], mounts=[(plugin, init["volumeMounts"][0]["mountPath"], False)], user=init["securityContext"]["runAsUser"])
    ok(status == 0 and sorted(f.name for f in plugin.iterdir()) == ["libnccl-net-hawser.so", "libnccl-net.so"], "nccl.yaml: the init container leaves two names", text)
    # The user's image contains a separate NCCL, with the library that it needs, in LD_LIBRARY_PATH.
    own = folder / "own"
    own.mkdir()
    copy_nccl(nccl, own)
    mount = main["volumeMounts"][0]
    mounts = [(plugin, mount["mountPath"], mount["readOnly"]), (own, "/opt/own", True)]
    env = [(e["name"], e["value"]) for e in main["env"]] + [("LD_LIBRARY_PATH", "/opt/own")]
    status, text = bundle.run(*main["command"], "hawser", "nccl", "check", mounts=mounts, env=env)
    ok(status == 0 and re.search(r"PASS +nccl.library .*/opt/own/libnccl.so.2", text) and re.search(r"PASS +nccl.link +/opt/hawser/nccl/libnccl-net.so is hawser.s", text),
       "nccl.yaml: the container's own NCCL is used, and uses the plugin by both names", status, text)


def run_spec(bundle, folder, build):
    """Tests the image's config.json with the additions of `hawser sandbox spec` for a node with GPUs and NICs."""
    config = folder / "spec.json"
    config.write_text(json.dumps(bundle.config), encoding="utf-8")
    status, text = run([build / "hawser", "sandbox", "spec", config, "--sysfs", ROOT / "tests/data/nodes/a3-high", "--sysfs-out", folder / "spec.sys"])
    c = json.loads(config.read_text(encoding="utf-8"))
    added = [m["destination"] for m in c["mounts"] if m not in bundle.config["mounts"]]
    variables = set(c["process"]["env"]) - set(bundle.config["process"]["env"])
    ok(status == 0 and added == ["/sys"] and "NCCL_NET_PLUGIN=hawser" in variables and not [v for v in variables if v.startswith("LD_")],
       "image: hawser sandbox spec mounts /sys alone, and asks NCCL for the plugin by its name", text, added, variables)


def try_image(dist, folder, build):
    folder.mkdir()
    nccl = build / "tests/fakes/nccl/libfakenccl.so"
    bundle, version = make_bundle(dist, folder)
    use_image(bundle, version)
    run_spec(bundle, folder, build)
    run_daemonset(bundle, version, folder)
    run_nccl(bundle, version, folder, nccl)
