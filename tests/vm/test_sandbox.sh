#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests moving NICs to a container and back on other kernels. Runs the sandbox tests that depend on how the kernel
# treats devices that change their namespace (inode numbers in sysfs, names, attributes, copies), and tests device types
# that this machine's kernel may lack: dummy, VLAN, ipvlan.
# vm: kernels 6.1 7
# vm: programs ip tc nsenter unshare readlink diff BUILD/hawser BUILD/tests/sandbox/test_sandbox_move BUILD/tests/sandbox/test_sandbox_move_hostile
# vm: programs BUILD/tests/sandbox/test_sandbox_move_attrs
# vm: files tests/vm/tap.sh:/tap.sh
# vm: modules veth bridge macvlan dummy 8021q ipvlan sch_tbf sch_ingress cls_u32
# vm: timeout 300
. /tap.sh

run() {
    $1 >out 2>&1
    status=$?
    grep -v '^ok' out | cut -c 1-400 | tail -n 60
    return $status
}
for t in test_sandbox_move test_sandbox_move_hostile test_sandbox_move_attrs; do
    ok "$t" run $t
done

mkdir -p /run/hawser
# Prints a device's attributes without its index.
state() { ip -d -o link show dev "$1" | sed 's/^[0-9]*: //'; ip -o addr show dev "$1" | sed 's/^[0-9]*: //'; }
container() {
    unshare -n sleep 600 &
    box=$!
    while [ "$(readlink /proc/$box/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
}
inside() { nsenter -t "$box" -n "$@"; }
# there_and_back NIC: a tenant changes many attributes of the NIC; the NIC returns to the host with its original
# attributes.
there_and_back() {
    sleep 2 # duplicate address detection
    state "$1" >was
    container
    hawser sandbox move c --netns "$box" --nics "$1" || return 1
    inside ip link set "$1" down
    inside ip link set "$1" name mine mtu 1300 txqueuelen 3 group 5 alias tenant
    inside ip link property add dev mine altname lo-and-behold 2>err
    inside ip link set mine mode dormant
    inside ip addr add 10.99.0.1/24 dev mine
    if [ -n "$2" ]; then inside ip link set mine type $2; fi
    hawser sandbox restore c || return 1
    kill "$box"
    sleep 2
    state "$1" >now
    diff was now
}
# copied NIC COMMAND...: a tenant deletes the NIC, and COMMAND creates a similar one.
copied() {
    nic=$1 index=$(cat "/sys/class/net/$1/ifindex") mac=$(cat "/sys/class/net/$1/address")
    shift
    container
    hawser sandbox move c --netns "$box" --nics "$nic" || return 1
    inside ip link del "$nic"
    inside ip link add name "$nic" index "$index" address "$mac" "$@" || return 1
    hawser sandbox restore c 2>err
    status=$?
    kill "$box"
    wait "$box" 2>/dev/null
    [ $status = 1 ] && [ ! -e "/sys/class/net/$nic" ] && { grep -q 'replaced' err || grep -q 'not found, and the container is running' err; }
    status=$?
    sed 's/^/# /' err
    hawser sandbox restore c 2>/dev/null
    return $status
}
ip link add low type veth peer name far && ip link set low up && ip link set far up
ip link add dum0 type dummy && ip link set dum0 up && ip addr add 10.1.0.1/24 dev dum0
ip link add link low name low.5 type vlan id 5 egress-qos-map 3:3 2:1 && ip link set low.5 up && ip addr add 10.2.0.1/24 dev low.5
ip link add link far name ipv0 type ipvlan mode l2 && ip link set ipv0 up && ip addr add 10.3.0.1/24 dev ipv0
ok "a dummy device comes back as it was" there_and_back dum0
ok "a VLAN device comes back as it was" there_and_back low.5 "vlan loose_binding on reorder_hdr off ingress-qos-map 1:5 egress-qos-map 2:6 4:4"
ok "an ipvlan device comes back as it was" there_and_back ipv0
ok "a copy of a dummy device gets nothing" copied dum0 type dummy
done_testing
