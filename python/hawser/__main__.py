# SPDX-License-Identifier: Apache-2.0
"""python -m hawser: prints where the wheel's files are, and installs the NIXL backend next to NIXL's own backends."""
from __future__ import annotations

import argparse
import sys

from ._library import find_library
from ._nixl import NixlError, find_nixl, install_backend, remove_backend
from ._paths import NCCL_PLUGIN, NIXL_PLUGIN, PROGRAM, native_file


def show_paths() -> int:
    """Prints one line for each part of hawser, with its path or a note that this installation lacks the part."""
    print(f"library       {find_library()}")
    for what, name in (("program", PROGRAM), ("NCCL plugin", NCCL_PLUGIN), ("NIXL backend", NIXL_PLUGIN)):
        try:
            print(f"{what:13} {native_file(name, what)}")
        except FileNotFoundError:
            print(f"{what:13} not in this installation")
    return 0


def change_nixl(folder: str | None, remove: bool) -> int:
    """Installs the backend into each NIXL, or removes it. Returns 0, or 1 if there is no NIXL or something failed."""
    status = 0
    try:
        for nixl in find_nixl(folder):
            try:
                print((remove_backend if remove else install_backend)(nixl))
            except NixlError as e:
                print(f"hawser nixl-install: {e}", file=sys.stderr)
                status = 1
    except (NixlError, FileNotFoundError) as e:
        print(f"hawser nixl-install: {e}", file=sys.stderr)
        status = 1
    return status


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hawser",
                                     description="Shows the paths of hawser's parts in this Python installation, and "
                                                 "installs the NIXL backend.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("paths", help="print the paths of the library, the program, the NCCL plugin and the NIXL backend")
    nixl = commands.add_parser(
        "nixl-install", help="copy hawser's backend into the installed NIXL, or remove it",
        description="Copies libplugin_HAWSER.so into the plugin folder of the installed NIXL, where agents find it next to "
                    "NIXL's own backends. Remove the backend before you uninstall NIXL; otherwise pip leaves the "
                    "plugin folder behind.")
    nixl.add_argument("--remove", action="store_true", help="remove the backend")
    nixl.add_argument("--dir", metavar="DIR",
                      help="use the NIXL in this folder (from `pip install --target DIR`) instead of this Python's")
    args = parser.parse_args(argv)
    return show_paths() if args.command == "paths" else change_nixl(args.dir, args.remove)


if __name__ == "__main__":
    sys.exit(main())
