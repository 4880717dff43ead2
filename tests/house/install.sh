#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs into a staging folder, builds examples/transfer.c with only pkg-config, like a user, against the shared and
# the static library, and runs both programs (TAP).
#   install.sh BUILD SOURCE PREFIX LIBDIR SANITIZERS MAN(yes|no) CC...
set -u
build=$1 source=$2 prefix=$3 libdir=$4 sanitizers=$5 man=$6
shift 6
if [ "$sanitizers" != none ]; then
    echo "1..0 # SKIP built with $sanitizers: what strangers install is not"
    exit 77
fi
stage=$(mktemp -d) || exit 1
trap 'rm -rf "$stage"' EXIT
n=0 failed=0

ok() { # WHAT COMMAND...
    what=$1
    shift
    n=$((n + 1))
    if out=$("$@" 2>&1); then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        printf '%s\n' "$out" | sed 's/^/# /'
        failed=1
    fi
}

ok "meson install into a staging folder" meson install -C "$build" --no-rebuild --destdir "$stage"
files="include/hawser.h bin/hawser share/doc/hawser/LICENSE
    $libdir/libhawser.so $libdir/libhawser.so.1 $libdir/libhawser.a $libdir/pkgconfig/hawser.pc"
[ "$man" = yes ] && files="$files share/man/man1/hawser.1 share/man/man3/hawser.3 share/man/man7/hawser.7"
files="$files $libdir/libnccl-net-hawser.so"
[ -e "$build/nixl/libplugin_HAWSER.so" ] && files="$files $libdir/nixl/libplugin_HAWSER.so"
for f in $files; do
    ok "installed $f" test -s "$stage$prefix/$f"
done
private=$stage$prefix/$libdir/hawser/nccl
for f in libnccl-net.so libnccl-net-hawser.so; do
    ok "$f in a folder of its own is the plugin" test "$private/$f" -ef "$stage$prefix/$libdir/libnccl-net-hawser.so"
done
ok "no libnccl-net.so where the loader finds it unasked" test ! -e "$stage$prefix/$libdir/libnccl-net.so"
exported() { # VALUE; prints the LD_LIBRARY_PATH that `hawser nccl env` exports if LD_LIBRARY_PATH is VALUE
    env -u NCCL_NET_PLUGIN LD_LIBRARY_PATH="$1" "$stage$prefix/bin/hawser" nccl env | sed -n "s/^export LD_LIBRARY_PATH='\(.*\)'.*/\1/p"
}
ok "hawser nccl env adds that folder" test "$(exported "$stage$prefix/$libdir")" = "$(realpath "$private")"
ok "and once only" test -z "$(exported "$private")"
conf=$(find "$stage" -path '*/hawser/verbs.conf')
ok "a policy for hawser verbs" cmp "$conf" "$source/verbs/policy/policy.ini"
echo "# the operator's" >>"$conf"
ok "installing again keeps the operator's" \
    sh -ec 'meson install -C "$1" --no-rebuild --destdir "$2" && tail -n 1 "$3" | grep -q operator' - "$build" "$stage" "$conf"

unset PKG_CONFIG_PATH
export PKG_CONFIG_LIBDIR="$stage$prefix/$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$stage"
ok "pkg-config knows the version" pkg-config --exact-version="$(sed -n "s/.*version: .\(.*\).,/\1/p" "$source/meson.build" | head -n 1)" hawser
shared=$(pkg-config --cflags --libs hawser)
# Name the static library's file, because with -l the linker prefers the shared library in the same folder.
static=$(pkg-config --static --cflags --libs hawser | sed 's/-lhawser\b/-l:libhawser.a/; s/-lsodium\b/-l:libsodium.a/')
strict="-std=c99 -pedantic -Wall -Wextra -Werror"
# shellcheck disable=SC2086 # lists of flags
{
    ok "the example against the shared library" "$@" $strict "$source/examples/transfer.c" -o "$stage/shared" $shared
    ok "the example against the static library" "$@" $strict "$source/examples/transfer.c" -o "$stage/static" $static
    for e in kv_push pingpong; do
        ok "$e against the shared library" "$@" $strict "$source/examples/$e.c" -o "$stage/$e" $shared
    done
}
ok "the shared example runs" env LD_LIBRARY_PATH="$stage$prefix/$libdir" "$stage/shared"
ok "the static example runs" "$stage/static"
ok "the static example needs no libhawser.so" sh -c "test -s '$stage/static' && ! readelf -d '$stage/static' | grep -q 'libhawser\|libsodium'"
plain=$(PKG_CONFIG_LIBDIR="$build/meson-uninstalled" PKG_CONFIG_SYSROOT_DIR='' pkg-config --cflags --libs hawser)
# shellcheck disable=SC2086 # lists of flags
ok "the example against the build folder, with hawser-uninstalled.pc" "$@" $strict "$source/examples/transfer.c" -o "$stage/plain" $plain
ok "the example runs with the library of the build folder" env LD_LIBRARY_PATH="$build" "$stage/plain"
echo "1..$n"
exit $failed
