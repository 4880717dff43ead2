#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Updates the kernel's user-space headers in sys/uapi. They are needed because Debian 12's linux-libc-dev has no
# linux/netdev.h, and its ethtool_netlink.h predates hds-thresh. The headers are copied unchanged from the linux-libc-dev of
# a newer suite. Nothing is installed, and apt's own lists do not change, because a private apt folder is used.
#   scripts/uapi.sh [SUITE]      (default: trixie-backports)
set -eu
suite=${1-trixie-backports}
here=$(cd "$(dirname "$0")/.." && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -E '/debian/?$' | head -n 1)
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:?no Debian mirror in the sources of apt} $suite main" >"$dir/sources.list"
apt="-o Dir::Etc::sourcelist=$dir/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$dir/lists -o Dir::Cache=$dir/cache"
cd "$dir"
# shellcheck disable=SC2086 # a list of options
{ apt-get -q $apt update && apt-get -q $apt download linux-libc-dev; } >&2
dpkg -x linux-libc-dev_*.deb x
for h in netdev.h ethtool_netlink.h ethtool_netlink_generated.h; do
    install -m 644 "x/usr/include/linux/$h" "$here/sys/uapi/linux/$h"
done
echo "sys/uapi was updated from $(ls linux-libc-dev_*.deb)"
