#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds what the demo needs, and shows it: scripts/demo.sh BUILD. A KV push through NIXL is part of the demo where NIXL's
# wheel can be had: it is installed below BUILD.
set -eu
build=$1
here=$(dirname "$0")

nixl=$(ninja -C "$build" -t targets all | sed -n 's,^\(nixl/libplugin_HAWSER\.so\): .*,\1,p')
# shellcheck disable=SC2086 # one target or none
ninja -C "$build" hawser $nixl
push=
if [ -n "$nixl" ]; then
    push=$("$here/demo_nixl.py" "$build") || push=
fi
exec "$build/hawser" demo --out "$build/demo" ${push:+--kv-push "$push"}
