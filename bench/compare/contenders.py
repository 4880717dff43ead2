# SPDX-License-Identifier: Apache-2.0
"""The contenders that bench/rivals compares, their settings, and their wheels."""
import dataclasses
import os
import pathlib
import sys
import time
import zipfile

from compare.run import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "nixl"))
from nixl_wheels import NEWEST, Missing, Wheels  # noqa: E402

POLITE = {"poll_s": 50e-6}
MOONCAKE = "mooncake-transfer-engine-non-cuda"
PACKAGES = {"numpy": "numpy", "nixl": f"nixl-cu12=={NEWEST}", "cffi": "cffi", "pycparser": "pycparser",
            "mooncake": MOONCAKE}


def has_nvidia_gpu():
    """Returns whether this machine has an NVIDIA GPU. NIXL's UCX then refuses UCX_TLS without cuda_copy."""
    def read(path):
        try:
            return path.read_text(encoding="ascii").strip()
        except OSError:
            return ""
    return any(read(d / "vendor") == "0x10de" and read(d / "class").startswith("0x03")
               for d in pathlib.Path("/sys/bus/pci/devices").glob("*"))


UCX = {"UCX_TLS": "tcp,cuda_copy" if has_nvidia_gpu() else "tcp"}
DEEP_QUEUE = {"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "16384"}  # with the default, a list of 8192 pieces fails
RAILS = {"UCX_MAX_RMA_RAILS": "4", "UCX_MAX_RNDV_RAILS": "4", "UCX_MAX_EAGER_RAILS": "4"}  # with four NICs
# All contenders use the system's congestion control, which the harness sets for all contenders.
ALIKE = {"HAWSER_CONGESTION": "system"}
QUIET = {"NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "fatal", "GLOG_minloglevel": "3"}


@dataclasses.dataclass
class Contender:
    name: str
    what: str
    config: dict
    packages: tuple
    settings: dict
    only_lists: bool = False
    python: str = ""
    folders: tuple = ()

    def environment(self, nodes):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HAWSER_", "NIXL_", "UCX_", "MC_", "PYTHON"))}
        path = os.pathsep.join(map(str, (*self.folders, ROOT / "bench", ROOT / "python")))
        env = kept | ALIKE | QUIET | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | self.settings
        if "UCX_TLS" in self.settings:
            env["UCX_NET_DEVICES"] = ",".join(nodes.devices())
            env |= RAILS if nodes.nics > 1 else {}
        return env


def list_contenders(build):
    """Returns all contenders. build has libhawser and the NIXL backend."""
    plugin = {"NIXL_PLUGIN_DIR": str(build / "nixl")}
    nixl = ("numpy", "nixl")
    hawser, ucx = {"mover": "nixl", "backend": "HAWSER"}, {"mover": "nixl", "backend": "UCX"}
    return [
        Contender("hawser", "NIXL, backend HAWSER, looks every 50 us", hawser | POLITE, nixl, plugin),
        Contender("hawser-spin", "NIXL, backend HAWSER, looks all the time", hawser, nixl, plugin),
        Contender("ucx", "NIXL, backend UCX, looks every 50 us", ucx | POLITE, nixl, UCX),
        Contender("ucx-spin", "NIXL, backend UCX, looks all the time", ucx, nixl, UCX),
        Contender("c-api", "hawser.h's calls, each waits", {"mover": "c-api"}, ("cffi", "pycparser"),
                  {"HAWSER_LIBRARY": str(build / "libhawser.so.1")}),
        Contender("mooncake", "Mooncake's transfer engine, protocol tcp, looks every 50 us",
                  {"mover": "mooncake"} | POLITE, ("mooncake",), {}),
        Contender("mooncake-deep", "the same with a longer queue, for lists alone", {"mover": "mooncake"} | POLITE,
                  ("mooncake",), DEEP_QUEUE, only_lists=True),
    ]


def unpack_wheels(folder, cache):
    """Unpacks each wheel of a folder (a wheel is a zip file). Returns a dict from package to folder."""
    found = {}
    for wheel in sorted(pathlib.Path(folder).glob("*.whl")):
        at = cache / wheel.stem
        if not at.exists():
            half = at.with_name(at.name + ".half")
            with zipfile.ZipFile(wheel) as z:
                z.extractall(half)
            half.rename(at)
        for key, package in PACKAGES.items():
            if wheel.name.startswith(package.partition("==")[0].replace("-", "_") + "-"):
                found[key] = at
    return found


def find_packages(names, folder, cache, seconds):
    """Returns the Python to use, a dict from package to folder, and a dict from missing package to reason. The packages
    are from a folder of wheels or, if folder is not given, from the package index."""
    cache.mkdir(parents=True, exist_ok=True)
    if folder:
        found = unpack_wheels(folder, cache)
        return sys.executable, found, {n: f"no wheel of it in {folder}" for n in names if n not in found}
    wheels, until, found, missing = Wheels(cache), time.monotonic() + seconds, {}, {}
    try:
        found["numpy"] = wheels.prepare(until)
    except Missing as e:
        raise Failure(f"no wheels: {e}") from None
    for n in names:
        try:
            found[n] = found.get(n) or wheels.install(cache / (NEWEST if n == "nixl" else n), PACKAGES[n], until)
        except Missing as e:
            missing[n] = str(e)
    return str(wheels.python), found, missing


def name_version(folder):
    """Returns the name and version of an unpacked wheel."""
    info = next(folder.glob("*.dist-info"), None)
    return info.name.removesuffix(".dist-info").replace("-", " ") if info else folder.name


def equip_contenders(run, contenders, folder, cache, seconds):
    """Gives each contender its Python and packages. Returns the contenders that have all their packages, and a list of
    the packages' versions."""
    names = sorted({p for c in contenders for p in c.packages})
    python, found, missing = find_packages(names, folder, cache, seconds)
    ready = []
    for c in contenders:
        lacking = [p for p in c.packages if p not in found]
        if lacking:
            run.skip(c.name, f"{lacking[0]}: {missing[lacking[0]]}")
            continue
        c.python, c.folders = python, tuple(found[p] for p in c.packages)
        ready.append(c)
    return ready, [name_version(found[n]) for n in names if n in found]
