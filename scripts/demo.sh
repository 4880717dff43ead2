#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the programs that the demo needs and runs the demo: scripts/demo.sh BUILD. If NIXL's wheel is available, it is
# installed under BUILD, and the demo includes a KV push through NIXL.
set -eu
build=$1
here=$(dirname "$0")

nixl=$(ninja -C "$build" -t targets all | sed -n 's,^\(nixl/libplugin_HAWSER\.so\): .*,\1,p')
# shellcheck disable=SC2086 # $nixl is one target or empty
ninja -C "$build" hawser $nixl
push=
if [ -n "$nixl" ]; then
    push=$("$here/demo_nixl.py" "$build") || push=
fi
exec "$build/hawser" demo --out "$build/demo" ${push:+--kv-push "$push"}
