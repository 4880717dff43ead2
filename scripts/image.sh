#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds a container image from the Debian packages, as an OCI layout, which skopeo, umoci, podman and buildah can read.
#   scripts/image.sh DIST OUT     DIST: folder with packages for this system's Debian; OUT: folder for the layout, replaced if it
#                                 exists
# The image's tag is the version of the packages. The image has the command, the NCCL plugin and the NIXL backend;
# examples/containers shows how to use it. Needs root, mmdebstrap, umoci and a Debian mirror.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
dist=$1 out=$2
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get update --print-uris | sed -n "s,^'\(.*\)/dists/[a-z]*/\(In\)\?Release' .*,\1,p" | head -n 1)
[ -n "$mirror" ] || { echo "image: the system's apt sources contain no Debian mirror" >&2; exit 1; }
debs=()
for name in libhawser1 hawser hawser-nccl hawser-nixl; do
    deb=$(find "$dist" -name "${name}_*.deb")
    [ -f "$deb" ] || { echo "image: $dist must contain exactly one package $name: run 'make deb'" >&2; exit 1; }
    debs+=("$deb")
done
version=$(dpkg-deb -f "${debs[0]}" Version)
work=$(mktemp -d -p /var/tmp hawser-image.XXXXXX)
trap 'rm -rf "$work"' EXIT

# Leaves out translations, and documentation except copyright files. mmdebstrap itself leaves out files that are
# specific to one installation, such as machine-id.
if ! mmdebstrap --variant=minbase --format=tar --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='mkdir "$1/packages"' --customize-hook="copy-in ${debs[*]} /packages" \
    --customize-hook='chroot "$1" sh -c "apt-get -q -y --no-install-recommends install /packages/*.deb"' --customize-hook='rm -r "$1/packages"' \
    "$suite" "$work/root.tar" "$mirror" >"$work/log" 2>&1 </dev/null; then
    tail -n 20 "$work/log" >&2
    echo "image: mmdebstrap failed" >&2
    exit 1
fi
rm -rf "$out"
umoci init --layout "$out"
umoci new --image "$out:$version"
umoci raw add-layer --image "$out:$version" "$work/root.tar"
umoci config --image "$out:$version" --config.entrypoint hawser --config.cmd help --config.user 65534:65534 \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --config.env LC_ALL=C.UTF-8 \
    --config.label org.opencontainers.image.title=hawser --config.label "org.opencontainers.image.version=$version" \
    --config.label org.opencontainers.image.licenses=Apache-2.0
umoci gc --layout "$out"
echo "image: $out:$version ($(($(du -s "$out" | cut -f 1) >> 10)) MiB)"
