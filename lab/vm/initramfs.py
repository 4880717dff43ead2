# SPDX-License-Identifier: Apache-2.0
"""Builds the archive from which the VM lab boots: a cpio archive with busybox, shells, programs and the libraries that
they need, kernel modules with their dependencies, any files and folders, and /init. The archive is built for each boot,
which takes well under a second. It is not compressed, because decompression would take the guest more time than reading.
"""
import lzma
import os
import shutil
import stat
import subprocess

LIBDIR = "usr/lib/x86_64-linux-gnu"  # where Debian's ld.so searches without a cache


class VmError(Exception):
    """An error with a message for the user."""


# Links as in Debian 12 and later, and from sbin to bin. A file below a link is stored at the link's target.
LINKS = {"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/sbin": "usr/bin"}


class Archive:
    """Maps paths without the leading slash to contents. A later entry replaces an earlier one with the same path."""

    def __init__(self):
        self.entry = {}
        self.seen = set()  # libraries that have been added, and programs whose libraries have been added
        for d in "usr/bin", "usr/lib64", LIBDIR, "dev", "proc", "sys", "tmp", "run", "root", "out", "var":
            self.mkdir(d)
        for link, to in {**LINKS, "var/run": "/run"}.items():
            self.entry[link] = (stat.S_IFLNK | 0o777, os.path.relpath("/" + to, "/" + os.path.dirname(link)).encode(), (0, 0))
        self.put("dev/console", stat.S_IFCHR | 0o600, rdev=(5, 1))  # for the output of /init before devtmpfs is mounted

    @staticmethod
    def place(path):
        path = os.path.normpath("/" + path).lstrip("/")
        for link, to in LINKS.items():
            if path.startswith(link + "/"):
                return to + path[len(link):]
        return path

    def mkdir(self, path):
        path = self.place(path)
        while path:
            self.entry.setdefault(path, (stat.S_IFDIR | 0o755, b"", (0, 0)))
            path = os.path.dirname(path)

    def put(self, path, mode, data=b"", rdev=(0, 0)):
        path = self.place(path)
        self.mkdir(os.path.dirname(path))
        self.entry[path] = (mode, data, rdev)

    def file(self, src, dst, mode=0):
        """Adds one file and, if the file is a program or a library, the libraries that it needs."""
        try:
            with open(src, "rb") as f:
                data = f.read()
            mode |= stat.S_IMODE(os.stat(src).st_mode)
        except OSError as e:
            raise VmError(f"cannot read {src}: {e.strerror}") from e
        self.put(dst, stat.S_IFREG | mode, data)
        if data.startswith(b"\x7fELF") and not dst.endswith(".ko"):
            self.libraries(src)

    def libraries(self, src):
        real = os.path.realpath(src)
        if real in self.seen:
            return
        self.seen.add(real)
        # A static program is not an error, although ldd then exits with status 1.
        r = subprocess.run(["ldd", real], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
        for line in r.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if path.startswith("not found"):
                raise VmError(f"{src} needs {name}, which was not found")
            if arrow:
                lib, dst = path.split(" (")[0], f"{LIBDIR}/{name}"
            elif name.startswith("/"):  # the loader, by the path that the program specifies
                lib = dst = name.split(" (")[0]
            else:
                continue  # the vdso, or "statically linked"
            if lib not in self.seen:
                self.seen.add(lib)
                with open(lib, "rb") as f:
                    self.put(dst, stat.S_IFREG | 0o755, f.read())

    def tree(self, src, dst):
        """Adds a folder and everything below it. Links remain links."""
        if not os.path.isdir(src):
            raise VmError(f"{src} is not a folder")
        self.mkdir(dst)
        for folder, dirs, files in os.walk(src):
            to = os.path.normpath(os.path.join(dst, os.path.relpath(folder, src)))
            for name in dirs + files:
                path = os.path.join(folder, name)
                if os.path.islink(path):
                    self.put(f"{to}/{name}", stat.S_IFLNK | 0o777, os.readlink(path).encode())
                elif name in dirs:
                    self.mkdir(f"{to}/{name}")
                elif os.path.isfile(path):
                    self.file(path, f"{to}/{name}")

    def program(self, name, dst=None):
        path = name if "/" in name else shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if path is None:
            raise VmError(f"there is no program '{name}' in PATH, /usr/sbin or /sbin")
        self.file(path, dst or f"usr/bin/{os.path.basename(name)}")

    def text(self, path, text, mode=0o644):
        self.put(path, stat.S_IFREG | mode, text.encode())

    def write(self, out):
        """Writes the archive in the "newc" format (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst)."""
        for ino, (path, (mode, data, rdev)) in enumerate([*sorted(self.entry.items()), ("TRAILER!!!", (0, b"", (0, 0)))], 1):
            name = path.encode() + b"\0"
            fields = [ino, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name), 0]
            head = b"070701" + b"".join(b"%08X" % f for f in fields) + name
            out.write(head + b"\0" * (-len(head) % 4))
            out.write(data)
            out.write(b"\0" * (-len(data) % 4))


def base(archive):
    """Adds the files of every guest: busybox's commands, dash as sh (busybox's sh prefers its own ip to iproute2's) and bash.
    """
    busybox = shutil.which("busybox")
    if not busybox:
        raise VmError("busybox is not installed; `scripts/deps.sh vm` installs what the VM lab needs")
    archive.file(busybox, "usr/bin/busybox")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            archive.put(f"usr/bin/{name}", stat.S_IFLNK | 0o777, b"busybox")
    archive.program("dash", "usr/bin/sh")
    archive.program("bash")
    archive.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    archive.text("etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n")
    archive.text("etc/hosts", "127.0.0.1 localhost vm\n")


class Modules:
    """The modules of an unpacked kernel, by name."""

    def __init__(self, root, release):
        self.dir, self.rel = root / "lib/modules" / release, f"usr/lib/modules/{release}"
        self.path, self.needs, self.before = {}, {}, {}
        for line in (self.dir / "modules.dep").read_text().splitlines():
            path, needs = line.split(":")
            self.path[self.name(path)] = path
            self.needs[self.name(path)] = [self.name(n) for n in reversed(needs.split())]
        for line in (self.dir / "modules.softdep").read_text().splitlines():
            # a line "softdep NAME pre: A B post: C" lists modules to load first, if they exist
            words = line.split()
            if words[:1] == ["softdep"] and "pre:" in words:
                pre = words[words.index("pre:") + 1:]
                self.before[words[1]] = [self.name(w) for w in (pre[:pre.index("post:")] if "post:" in pre else pre)]
        self.builtin = {self.name(line) for line in (self.dir / "modules.builtin").read_text().splitlines()}
        self.release = release

    @staticmethod
    def name(path):
        return os.path.basename(path).split(".")[0].replace("-", "_")

    def order(self, name, out, optional=False):
        """Appends name and its dependencies to out, in load order."""
        name = self.name(name)
        if name in out or name in self.builtin:
            return
        if name not in self.path:
            if optional:
                return
            raise VmError(f"Linux {self.release} has no module '{name}'")
        for n in self.needs[name]:
            self.order(n, out)
        for n in self.before.get(name, []):
            self.order(n, out, optional=True)
        if name not in out:
            out.append(name)

    def add(self, archive, names):
        """Adds the modules and their dependencies to the archive, and a modules.dep for modprobe. Returns the paths to
        load, in order."""
        order = []
        for name in names:
            self.order(name.rstrip("?"), order, optional=name.endswith("?"))
        dep, paths = [], []
        for name in order:
            data = (self.dir / self.path[name]).read_bytes()
            path = self.path[name]
            if path.endswith(".xz"):
                data, path = lzma.decompress(data), path[:-3]  # decompression in the guest would take longer
            archive.put(f"{self.rel}/{path}", stat.S_IFREG | 0o644, data)
            paths.append(f"/{self.rel}/{path}")
            dep.append(f"{path}: " + " ".join(self.path[n].removesuffix(".xz") for n in reversed(self.needs[name])))
        archive.text(f"{self.rel}/modules.dep", "\n".join(dep) + "\n")
        return paths
