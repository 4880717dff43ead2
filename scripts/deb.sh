#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from this source tree and checks them with lintian.
#   scripts/deb.sh BUILD DIST [VERSION]
# BUILD: a separate folder. DIST: the folder for the packages. VERSION: replaces the version in debian/changelog, for tests of
# upgrades.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEB_BUILD_OPTIONS=noautodbgsym
unset MAKEFLAGS MFLAGS MAKEOVERRIDES # BUILD= and other variables of a calling make must not be passed to debian/rules
build=$1 dist=$2 version=${3-}
cd "$(dirname "$0")/.."
mkdir -p "$build" "$dist"
build=$(cd "$build" && pwd) dist=$(cd "$dist" && pwd)
log=$build/log

# The sources are always copied to the same folder, because ccache's results depend on the folder's name.
rm -rf "$build"/hawser "$build"/*.deb "$build"/*.changes
mkdir "$build/hawser"
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -coz --exclude-standard | tar -c --null -T - --ignore-failed-read 2>/dev/null
else
    tar -c --exclude='./build*' --exclude=./dist --exclude='./.*' .
fi | tar -x -C "$build/hawser"
cd "$build/hawser"
if [ -n "$version" ]; then
    sed -i "1s/(.*)/($version)/" debian/changelog
fi

if ! dpkg-buildpackage --build=binary --no-sign -j"$(nproc)" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" | cut -c 1-200 >&2
    echo "deb: dpkg-buildpackage failed; the complete log is $log" >&2
    exit 1
fi
if ! lintian --fail-on error,warning --info --tag-display-limit 0 ../*.changes >"$log.lintian" 2>&1; then
    cat "$log.lintian" >&2
    echo "deb: lintian found faults in the packages" >&2
    exit 1
fi
rm -f "$dist"/*.deb
mv ../*.deb "$dist"
for deb in "$dist"/*.deb; do
    echo "deb: ${deb##*/} ($(($(stat -c %s "$deb") >> 10)) KiB)"
done
