# SPDX-License-Identifier: Apache-2.0
"""Installs the NIXL backend into the plugin folder of an installed NIXL, and removes it."""
from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import sys
import tempfile
from typing import NamedTuple

from ._paths import NIXL_PLUGIN, NIXL_VERSIONS, native_file

ANY_VERSION = "HAWSER_NIXL_ANY_VERSION"  # also identifies hawser's backend, because each release contains this name
PLUGIN = pathlib.PurePath(NIXL_PLUGIN).name


class NixlError(Exception):
    """The text describes the failure and the remedy."""


class Nixl(NamedTuple):
    """An installed NIXL. The wheels nixl-cu12 and nixl-cu13 are treated in the same way."""
    name: str
    version: str
    plugins: pathlib.Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_nixl(folder: str | None) -> list[Nixl]:
    """Returns each NIXL in this Python or, if `folder` is not None, in that folder. Raises NixlError if there is none."""
    found: dict[str, Nixl] = {}
    for dist in importlib.metadata.distributions(path=sys.path if folder is None else [folder]):
        name = (dist.metadata["Name"] or "").lower().replace("_", "-")
        if not re.fullmatch(r"nixl-cu\d+", name) or name in found:
            continue
        plugins = pathlib.Path(str(dist.locate_file(f".{name.replace('-', '_')}.mesonpy.libs/plugins")))
        if plugins.is_dir():
            found[name] = Nixl(name, dist.version, plugins)
    if not found:
        where = f"in {folder}" if folder is not None else f"among the packages of {sys.executable}"
        raise NixlError(f"no NIXL wheel {where}: run `pip install nixl-cu12` or `pip install nixl-cu13` "
                        "first, or use --dir to specify the folder in which NIXL is installed")
    return list(found.values())


def check_version(nixl: Nixl) -> None:
    """Raises NixlError if the backend would refuse this NIXL."""
    tried = native_file(NIXL_VERSIONS, "list of NIXL's versions").read_text(encoding="utf-8").split()
    if nixl.version not in tried and os.environ.get(ANY_VERSION) != "1":
        raise NixlError(f"{nixl} was not tested, and the backend would refuse it; tested versions are {', '.join(tried)}. "
                        f"Set {ANY_VERSION}=1 here and where NIXL runs to continue at your own risk")


def is_ours(path: pathlib.Path) -> bool:
    """Returns whether the file is a release of hawser's backend."""
    return path.is_file() and ANY_VERSION.encode() in path.read_bytes()


def refuse_foreign(path: pathlib.Path) -> None:
    """Raises NixlError if the path exists and is not hawser's backend."""
    if os.path.lexists(path) and not is_ours(path):
        raise NixlError(f"{path} is not hawser's backend (which contains the text {ANY_VERSION}): leaving it unchanged")


def suggest_user(error: OSError, nixl: Nixl) -> str:
    """Returns the remedy for a missing permission, or an empty string for another error."""
    return f"; run this as the user who installed {nixl.name}" if isinstance(error, PermissionError) else ""


def install_backend(nixl: Nixl) -> str:
    """Copies the backend into NIXL's plugin folder unless the backend is already there. Returns a line that describes
    the result."""
    source = native_file(NIXL_PLUGIN, "NIXL backend")
    target = nixl.plugins / PLUGIN
    check_version(nixl)
    refuse_foreign(target)
    if target.exists() and target.read_bytes() == source.read_bytes():
        return f"{nixl}: {target} is already installed"
    try:
        # Replace the file atomically: a NIXL that starts at the same time finds either the old or the new file.
        fd, half = tempfile.mkstemp(prefix=".hawser-", dir=nixl.plugins)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(source.read_bytes())
            os.chmod(half, 0o644)
            os.replace(half, target)
        except BaseException:
            os.unlink(half)
            raise
    except OSError as e:
        raise NixlError(f"cannot write {target}: {e.strerror}{suggest_user(e, nixl)}") from None
    return f"{nixl}: installed {target}"


def remove_backend(nixl: Nixl) -> str:
    """Removes the backend if it is installed. Returns a line that describes the result."""
    target = nixl.plugins / PLUGIN
    refuse_foreign(target)
    if not target.exists():
        return f"{nixl}: {target} is not installed"
    try:
        target.unlink()
    except OSError as e:
        raise NixlError(f"cannot remove {target}: {e.strerror}{suggest_user(e, nixl)}") from None
    return f"{nixl}: removed {target}"
