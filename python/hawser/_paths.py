# SPDX-License-Identifier: Apache-2.0
"""Paths of the files that hawser provides for other programs. They are in the wheel's folder `native`, which is laid out
like a build folder, or in the folder of the system packages hawser-nccl and hawser-nixl."""
from __future__ import annotations

import pathlib
import sysconfig

NATIVE = pathlib.Path(__file__).resolve().parent / "native"
SYSTEM = pathlib.Path("/usr/lib", sysconfig.get_config_var("MULTIARCH") or "", "hawser")
PROGRAM = "hawser"
NCCL_PLUGIN = "nccl/libnccl-net-hawser.so"
NIXL_PLUGIN = "nixl/libplugin_HAWSER.so"
NIXL_VERSIONS = "nixl/versions"


def native_file(name: str, what: str) -> pathlib.Path:
    """Returns the path of a file of the wheel or the system packages. Raises FileNotFoundError if neither has the file."""
    for path in (NATIVE / name, SYSTEM / name):
        if path.is_file():
            return path
    raise FileNotFoundError(f"this installation of hawser has no {what} ({NATIVE / name}): install the wheel hawser-transfer, "
                            "which `make wheel` builds, or the Debian packages that `make deb` builds")


def nccl_plugin_path() -> str:
    """Returns the path of the NCCL plugin, for NCCL_NET_PLUGIN.

    NCCL 2.27.3 to 2.29.7 also need libnccl-net.so on the loader's path. `hawser nccl env` prints all settings. Raises
    FileNotFoundError if the installation has no plugin."""
    return str(native_file(NCCL_PLUGIN, "NCCL plugin"))


def nixl_plugin_dir() -> str:
    """Returns the folder that contains the NIXL backend, libplugin_HAWSER.so, and nothing else that NIXL would load.

    If NIXL_PLUGIN_DIR is this folder, NIXL does not find its own backends. `python -m hawser nixl-install` installs
    hawser's backend next to NIXL's backends instead. Raises FileNotFoundError if the installation has no backend."""
    return str(native_file(NIXL_PLUGIN, "NIXL backend").parent)
