# SPDX-License-Identifier: Apache-2.0
"""Debian trees for the package tests. mmdebstrap creates the trees, which are kept as archives. The tests unpack them,
run commands in them, and boot them with systemd."""
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("HAWSER_PACKAGES_CACHE") or ROOT / ".cache/packages")
LIMIT = 300  # default time limit of one command, in seconds
DEVICES = "null zero full random urandom tty"
# Uses new mount, PID and network namespaces, so a package cannot leave processes running and cannot download anything.
ENTER = f"""
ip link set lo up
root=$1; shift
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
for d in {DEVICES}; do : >"$root/dev/$d"; mount --bind /dev/$d "$root/dev/$d"; done
ln -s /proc/self/fd "$root/dev/fd"
printf %s "$BINDS" | while IFS='|' read -r to from; do mkdir -p "$root/$to"; mount --bind "$from" "$root/$to"; done
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CCACHE_DIR=/ccache "$@"
"""
# The container gets cgroup version 2, whichever version this machine uses, in a separate cgroup.
BOOT = """
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir "/sys/fs/cgroup/$2"
echo 0 >"/sys/fs/cgroup/$2/cgroup.procs"
systemd-nspawn --quiet --register=no --keep-unit --private-network --resolv-conf=off --timezone=off --console=pipe -D "$1" --boot || rc=$?
echo 0 >/sys/fs/cgroup/cgroup.procs
find "/sys/fs/cgroup/$2" -depth -type d -exec rmdir {} +
exit ${rc:-0}
"""


class Missing(Exception):
    """A required program or resource that this machine or its network lacks."""


def run(argv, limit=LIMIT, cwd=None, stdin=subprocess.DEVNULL, **env):
    """Runs a command. Returns its exit status, and its stdout and stderr as one string."""
    try:
        r = subprocess.run([str(a) for a in argv], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, cwd=cwd, check=False,
                           env={**os.environ, **env})
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace") + f"\nstopped after {limit} s"
    return r.returncode, r.stdout.decode(errors="replace")


def find_mirror():
    """Returns the Debian mirror in this system's apt sources."""
    text = run(["apt-get", "update", "--print-uris"])[1]
    found = re.search(r"^'(.*)/dists/[a-z]+/(?:In)?Release' ", text, re.M)
    if not found:
        raise Missing("the system's apt sources name no Debian mirror")
    return found[1]


def make_archive(suite, what, contents, hooks, files):
    """Returns the archive of a minimal Debian that shell hooks have changed; "$1" in a hook is the root of the tree.
    Creates the archive again if `contents` or the hooks have changed since the last time. The hooks find `files` in the
    tree's folder /packages, which is removed afterwards."""
    CACHE.mkdir(parents=True, exist_ok=True)
    archive, stamp = CACHE / f"{suite}-{what}.tar", CACHE / f"{suite}-{what}.stamp"
    want = hashlib.sha256("\0".join([contents, *hooks]).encode()).hexdigest()
    if archive.exists() and stamp.exists() and stamp.read_text(encoding="utf-8") == want:
        return archive
    half = CACHE / f"{suite}-{what}.half"
    copy = f'mkdir "$1/packages" && cp -r {" ".join(shlex.quote(str(f)) for f in files)} "$1/packages"' if files else "true"
    status, text = run(["mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", "--skip=cleanup/apt", "--dpkgopt=force-unsafe-io", f"--customize-hook={copy}",
                        *(f"--customize-hook={h}" for h in hooks), '--customize-hook=rm -rf "$1/packages"', suite, half, find_mirror()], limit=580)
    if status:
        half.unlink(missing_ok=True)
        raise Missing(f"mmdebstrap {suite}: {(text.strip().splitlines() or ['no output'])[-1]}")
    half.replace(archive)
    stamp.write_text(want, encoding="utf-8")
    return archive


class Tree:
    """A Debian tree in a folder. No mounts remain after a command."""

    def __init__(self, folder, archive):
        self.root = pathlib.Path(folder)
        self.root.mkdir(parents=True)
        status, text = run(["tar", "-x", "-f", archive, "-C", self.root, "--numeric-owner"])
        if status:
            raise Missing(text)

    def run(self, *argv, limit=LIMIT, binds=None):
        """Runs a command in the tree, in new namespaces with a loopback device and no other network. `binds` maps names
        in the tree's root to folders of this machine, which are mounted there while the command runs."""
        return run(["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec", ENTER, "enter", self.root, *argv], limit=limit,
                   BINDS="".join(f"{to}|{source}\n" for to, source in (binds or {}).items()))

    def shell(self, script, *argv, **more):
        return self.run("sh", "-c", script, "sh", *argv, **more)

    def boot(self, script, limit=LIMIT):
        """Boots the tree's systemd, which runs the script as a unit and then exits. Returns the exit status and the
        script's output."""
        shutil.copy(script, self.root / "boot.sh")
        unit = self.root / "etc/systemd/system/hawser-test.service"
        # Ordered only after basic.target, because the script starts and stops other units.
        unit.write_text("[Unit]\nAfter=basic.target\n[Service]\nType=oneshot\nStandardOutput=file:/boot.out\nStandardError=inherit\n"
                        f"TimeoutStartSec={limit}\nEnvironment=HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8\n"
                        "ExecStart=/bin/sh /boot.sh\nExecStopPost=/bin/systemctl --no-block exit 0\n[Install]\nWantedBy=multi-user.target\n",
                        encoding="utf-8")
        wants = self.root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / unit.name).symlink_to(f"../{unit.name}")
        name = f"hawser-test-{os.getpid()}"
        status, text = run(["unshare", "--mount", "sh", "-ec", BOOT, "boot", self.root, name], limit=limit + 30)
        # systemd-nspawn also creates a cgroup with this name in systemd's version 1 hierarchy.
        for left in pathlib.Path("/sys/fs/cgroup").glob(f"*/{name}"):
            run(["find", left, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"])
        out = self.root / "boot.out"
        return status, (out.read_text(encoding="utf-8", errors="replace") if out.exists() else "") + ("" if status == 0 else text)
