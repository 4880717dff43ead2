#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vm: kernels 6.1 6.12 7
# vm: modules veth sch_netem rdma_rxe rdma_ucm ib_uverbs crc32_generic?
# vm: programs ip tc rdma BUILD/hawser
# vm: files tests/vm/test_lab.sh:/data/copy
# Tests the VM lab's guarantees for the tests that run in the lab.
n=0
ok() { # STATUS TEXT
    n=$((n + 1))
    [ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}
try() { # TEXT COMMAND...
    text=$1
    shift
    "$@" >/tmp/tried 2>&1
    status=$?
    [ $status = 0 ] || sed 's/^/# /' /tmp/tried
    ok $status "$text"
}

try "root runs this" [ "$(id -u)" = 0 ]
case $(uname -r) in
6.1.*) ;;
*)
    try "a kernel that knows devmem TCP" expr "$(uname -r)" : '6\.1[2-9]\|[7-9]\.'
    try "udmabuf is there" [ -c /dev/udmabuf ]
    ;;
esac
try "our own program runs, with its libraries" hawser --version
try "a file is where it was wanted" cmp /data/copy "$0"
try "sh does not shadow iproute2's ip" sh -c 'ip -V | grep iproute2'

ip link add v0 type veth peer name v1
ip netns add other
ip link set v1 netns other
ip address add 198.18.7.1/24 dev v0
ip link set v0 up
ip -n other address add 198.18.7.2/24 dev v1
ip -n other link set v1 up
try "packets go to another network namespace" ping -c 1 -W 20 198.18.7.2
try "tc delays them" tc qdisc add dev v0 root netem delay 1ms
try "an RDMA device on a veth" rdma link add rxe0 type rxe netdev v0
try "it is a verbs device" [ -c /dev/infiniband/uverbs0 ]
rdma link delete rxe0
ip netns delete other
ip link delete v0 2>/dev/null

try "modprobe knows what else a module needs" modprobe -r sch_netem
try "and loads it again" modprobe sch_netem

echo "1..$n"
