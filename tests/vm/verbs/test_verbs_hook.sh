#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests a container of `hawser sandbox spec` with its hook and `hawser verbs spec`: a NIC moves into the container's
# network namespace, and of two RDMA devices the container sees, and uses through the broker, only the planned one.
# rdma_rxe removes its device if the device's NIC moves, so the NIC stays in place and a VLAN on the NIC moves instead.
# Since Linux 7, rxe can send from another namespace.
# vm: kernels 7
# vm: programs ip rdma crun ibv_devinfo ibv_rc_pingpong BUILD/hawser
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh /etc/libibverbs.d/rxe.driver:/etc/libibverbs.d/rxe.driver
# vm: files /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so:/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
# vm: modules veth 8021q crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 120
. /verbs.sh
logs="agent.log in.out"
config=/run/c1/config.json socket=/run/hawser/verbs.sock

cat >policy <<END
[default]
devices = rxe*
destinations = 10.11.0.0/24
END
# Runs both ends in the container.
cat >inside.sh <<'END'
. /tap.sh
echo "sys: $(echo /sys/class/infiniband/* /sys/class/infiniband_verbs/uverbs*)"
echo "dev: $(echo /dev/infiniband/*)"
echo "net: $(echo /sys/class/net/*) $(ip -o -4 address show dev v0.5 | grep -o 'inet [0-9.]*')"
rdma link 2>&1
gid=$(ibv_devinfo -v | sed -n 's/.*GID\[ *\([0-9]*\)\]:.*10\.11\.0\.1,.*/\1/p')
timeout 30 ibv_rc_pingpong -g "$gid" -n 20 &
server=$!
within 20 grep -q ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && timeout 30 ibv_rc_pingpong -g "$gid" -n 20 10.11.0.1 &&
    wait $server && echo "pingpong: ok"
END
said() { grep -qx "$1" in.out; }

two_devices() {
    device_up && ip link add w0 type veth peer name w1 && ip addr add 10.9.0.1/24 dev w0 && ip link set w0 up && ip link set w1 up &&
        rdma link add rxe1 type rxe netdev w0 && ip link add link v0 name v0.5 type vlan id 5 && ip addr add 10.11.0.1/24 dev v0.5 &&
        ip link set v0.5 up && within 20 grep -rqs 0a0b:0001 /sys/class/infiniband/rxe0/ports/1/gids
}
own_network() {
    bundle c1 && sed -i 's/{"type": "uts"}/&, {"type": "network"}/; /RLIMIT/d' $config
}
mkdir -p /run/hawser
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ok "two devices come up" two_devices
ok "a container with a network of its own" own_network
hawser verbs agent --policy policy --socket $socket --audit audit >agent.log 2>&1 &
agent=$!
ok "the agent comes up" within 30 [ -S $socket ]
ok "hawser sandbox spec" hawser sandbox spec $config --nics v0.5
ok "hawser verbs spec" hawser verbs spec $config --socket $socket
ok "it runs" sh -c '. /verbs.sh; container c1 sh /tmp/inside.sh >in.out 2>&1'
ok "its /sys has the planned device alone" said 'sys: /sys/class/infiniband/rxe0 /sys/class/infiniband_verbs/uverbs0'
ok "so has its /dev" said 'dev: /dev/infiniband/uverbs0'
ok "netlink says nothing of RDMA" said 'Failed to open NETLINK_RDMA socket'
ok "the NIC has come, with its address" said 'net: /sys/class/net/lo /sys/class/net/v0.5 inet 10.11.0.1'
ok "and verbs work over it" said 'pingpong: ok'
ok "the NIC is back" within 20 sh -c 'ip -o -4 address show dev v0.5 | grep -q 10.11.0.1/24'
ok "nothing is left" within 20 no_objects
ok "both are undone" sh -c 'hawser verbs spec $1 --undo && hawser sandbox spec $1 --undo && hawser verbs spec $1 --undo' - $config
kill $agent
wait $agent
umount /run/c1/rootfs /sys/fs/cgroup
ok "the devices go" sh -c '. /verbs.sh; ip link del v0.5; rdma link del rxe1; ip link del w0; device_down'
done_testing
