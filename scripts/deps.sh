#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages for building and testing on Debian 12, and prints their names. Does nothing if no package is
# missing. Several sets may be named.
#   scripts/deps.sh        packages to build, test and run the demo
#   scripts/deps.sh ci     also for lint, fuzzing, the clang builds, and tests of completion, metrics and mesh's launchers
#   scripts/deps.sh wheel  also for the Python wheel (make wheel)
#   scripts/deps.sh deb    also for the Debian packages and their tests (make deb, make check-packages)
#   scripts/deps.sh vm     also for the VM lab (lab/vm, make check-vm)
set -eu

# locales: a test needs a locale with a decimal comma. hwloc-nox, ibverbs-*: programs that read the sandbox's sysfs.
# crun, runc, iproute2: the sandbox's containers. spin: the model of failover. python3-cffi, -pytest, -numpy: the Python
# binding and its tests. python3-venv: NIXL's wheels, which the demo uses.
packages="gcc g++ libc6-dev make meson ninja-build pkg-config libsodium-dev libmnl-dev libinih-dev libseccomp-dev libjansson-dev zlib1g-dev libfuse3-dev scdoc locales hwloc-nox ibverbs-utils ibverbs-providers crun runc iproute2 spin python3-cffi python3-pytest python3-numpy python3-venv"
for set in "$@"; do
    case $set in
    ci) packages="$packages abigail-tools git zsh fish mypy clang clang-format clang-tidy libclang-rt-14-dev llvm curl etcd-server prometheus prometheus-node-exporter openmpi-bin slurmctld slurmd slurm-client munge" ;;
    wheel) packages="$packages python3" ;;
    deb) packages="$packages build-essential debhelper dh-python dpkg-dev fakeroot lintian mmdebstrap pybuild-plugin-pyproject python3-all python3-setuptools python3-yaml systemd-container umoci" ;;
    vm) packages="$packages qemu-system-x86 busybox-static bash dash kmod zstd xz-utils util-linux debian-archive-keyring iproute2 ethtool perftest" ;;
    *)
        echo "deps.sh: unknown set of packages '$set'; usage: scripts/deps.sh [ci|wheel|deb|vm]..." >&2
        exit 2
        ;;
    esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deps.sh: this system is not Debian: install the equivalents of these packages manually: $packages" >&2
    exit 0
fi

missing=
for p in $packages; do
    # A package may have a line for each architecture. It counts as installed if it is installed for any of them.
    dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "deps.sh: packages are missing, and only root can install them. Run: sudo apt-get install$missing" >&2
    exit 1
fi
echo "deps.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -y -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # lists of words
if ! { $apt update && $apt install --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    echo "deps.sh: apt-get could not install:$missing" >&2
    exit 1
fi
