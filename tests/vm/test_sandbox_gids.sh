#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the GIDs of a NIC that moves into a container, where the kernel creates the GIDs again at other indexes: `hawser
# sandbox run`, the hook and `hawser sandbox env --moved` must report the kernel's state after the move. rdma_rxe
# removes its device if the device's NIC moves, so the NIC stays in place and a VLAN on the NIC moves instead. Before
# the move, the table has a gap before the VLAN's GID; afterwards, the VLAN's GID fills the gap.
# vm: kernels 7
# vm: programs ip rdma crun BUILD/hawser
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh
# vm: modules veth 8021q crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 120
. /verbs.sh
logs="run.out env.out in.out"
table=/sys/class/infiniband/rxe0/ports/1
config=/run/c1/config.json

# Prints the index of the VLAN's RoCE v2 GID over IPv4 in a port's folder. The table has 1024 entries.
index() { # FOLDER
    for g in $(grep -l ffff:0a0b:0001 "$1"/gids/*); do
        grep -qs "RoCE v2" "$1/gid_attrs/types/${g##*/}" && echo "${g##*/}"
    done
}
has_index() { [ -n "$(index $table)" ]; }
vlan_up() {
    device_up && ip link add link v0 name v0.5 type vlan id 5 && ip addr add 10.11.0.1/24 dev v0.5 && ip link set v0.5 up &&
        within 20 has_index
}
gap() {
    ip addr del 10.7.0.1/24 dev v0 && within 20 gone 0a07:0001
}
gone() { ! grep -q "$1" $table/gids/*; }
there() { grep -q "$1" $table/gids/*; }
gap_again() { # the VLAN's GID is placed after another GID, which is then removed
    ip addr del 10.11.0.1/24 dev v0.5 && within 20 gone 0a0b:0001 && ip addr add 10.7.0.1/24 dev v0 && within 20 there 0a07:0001 &&
        ip addr add 10.11.0.1/24 dev v0.5 && within 20 there 0a0b:0001 && gap
}
# In the container: compares the environment with the contents of /sys.
cat >/tmp/inside.sh <<'END'
table=/sys/class/infiniband/rxe0/ports/1
for g in $(grep -l ffff:0a0b:0001 $table/gids/*); do
    grep -qs "RoCE v2" $table/gid_attrs/types/${g##*/} && echo "env $NCCL_IB_GID_INDEX sys ${g##*/}"
done
echo "$NCCL_IB_HCA $NCCL_SOCKET_IFNAME"
END
own_network() {
    bundle c1 && sed -i 's/{"type": "uts"}/&, {"type": "network"}/; /RLIMIT/d' $config
}
mkdir -p /run/hawser
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ok "an RDMA device, and a VLAN that has GIDs of it" vlan_up
ok "a gap in its table" gap
was=$(index $table)
timeout 30 hawser sandbox run --nics v0.5 -- sh /tmp/inside.sh >run.out 2>&1
now=$(index $table)
echo "# before $was, after $now: $(head -1 run.out)"
inside=$(sed -n 's/^env \(.*\) sys .*/\1/p' run.out)
ok "the index has changed by the move" [ "$inside" != "$was" ]
ok "the environment and /sys of the command say the same" grep -qx "env $inside sys $inside" run.out
ok "the names are those of the plan" grep -qx '=rxe0:1 =v0.5' run.out
ok "the VLAN is back" within 20 sh -c 'ip -o -4 address show dev v0.5 | grep -q 10.11.0.1/24'

# Reads the kernel's table from the container's namespace while the NIC is there.
ip netns add c
hawser sandbox move byhand --netns c --nics v0.5 >move.out 2>&1
ok "moved by hand" within 20 has_index
sleep 1
kernel=$(index $table)
ip netns exec c hawser sandbox env --moved --nics v0.5 >env.out 2>&1
ok "sandbox env --moved says the kernel's index" grep -qx "NCCL_IB_GID_INDEX=$kernel" env.out
ok "restored" hawser sandbox restore byhand
ip netns del c

ok "a container with a network of its own" own_network
ok "hawser sandbox spec" hawser sandbox spec $config --nics v0.5
ok "promises no index" sh -c "! grep -q NCCL_IB_GID_INDEX $config"
ok "a gap once more" gap_again
was=$(index $table)
ok "it runs" sh -c '. /verbs.sh; container c1 sh /tmp/inside.sh >in.out 2>&1'
sys=$(sed -n 's/^env .*sys //p' in.out)
echo "# before $was: $(head -1 in.out)"
ok "its /sys has the GID at one place, and not where it was" [ -n "$sys" -a "$sys" != "$was" ]
ok "undone" hawser sandbox spec $config --undo
umount /run/c1/rootfs /sys/fs/cgroup
ok "the devices go" sh -c '. /verbs.sh; ip link del v0.5; device_down'
done_testing
