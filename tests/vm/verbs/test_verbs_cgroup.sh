#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests a container's limit on RDMA objects (rdma.max, cgroup v2), with the kernel's own RDMA: objects that the broker
# or the stub creates for a container are charged to the container's cgroup.
# vm: programs ip rdma crun ibv_rc_pingpong BUILD/hawser BUILD/tests/vm/verbs_attack
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh /etc/libibverbs.d/rxe.driver:/etc/libibverbs.d/rxe.driver
# vm: files /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so:/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
# vm: modules veth crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 300
. /verbs.sh
logs="agent.log boxed.out end.server end.client"
socket=/run/hawser/verbs.sock box=/sys/fs/cgroup/box

printf '[default]\ndevices = rxe0\n' >policy
box_up() {
    mount -t cgroup2 cgroup2 /sys/fs/cgroup && echo +rdma >/sys/fs/cgroup/cgroup.subtree_control && mkdir $box
}
limit() { echo "rxe0 hca_handle=$1 hca_object=$2" >$box/rdma.max; }
# Runs the container inside the cgroup $box; the agent runs outside.
boxed() { sh -c 'echo $$ >$0/cgroup.procs; . /verbs.sh; container "$@"' $box box "$@"; }
none_charged() { ! grep -q 'hca_object=[1-9]' $box/rdma.current; }

mkdir -p /run/hawser
ok "a device comes up" device_up
ok "a cgroup that counts RDMA objects" box_up
hawser verbs agent --policy policy --socket $socket --audit audit >agent.log 2>&1 &
agent=$!
ok "the agent comes up" within 30 [ -S $socket ]
ok "a bundle" sh -c '. /verbs.sh; bundle box && hawser verbs spec /run/box/config.json --socket $0 --device uverbs0' $socket
limit 4 1
boxed ibv_rc_pingpong -g 1 >boxed.out 2>&1
ok "a PD is all that one object leaves" grep -q "Couldn't register MR\|Couldn't create CQ\|Couldn't create QP" boxed.out
limit 4 3
boxed ibv_rc_pingpong -g 1 >boxed.out 2>&1
ok "with three a QP is one too many" grep -q "Couldn't create QP" boxed.out
limit 0 16
boxed ibv_rc_pingpong -g 1 >boxed.out 2>&1
ok "with no handle there is no context" grep -q "Couldn't get context" boxed.out
limit 4 16
echo 'ibv_rc_pingpong -g 1 >/dev/null & within() { for _ in $(seq 600); do "$@" && return; sleep 0.1; done; false; }
within grep -q ":4853 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; touch /tmp/there; within [ -e /tmp/go ]
ibv_rc_pingpong -g 1 127.0.0.1 && wait' >inside.sh
boxed sh /tmp/inside.sh >boxed.out 2>&1 &
boxed=$!
ok "with enough a program gets on" within 60 [ -e there ]
ok "and what it has is charged to its cgroup" grep -q 'rxe0 hca_handle=1 hca_object=[4-9]' $box/rdma.current
touch go
ok "to its end" wait $boxed
ok "nothing is charged any more" within 20 none_charged
ok "and nothing is left" within 20 no_objects
kill $agent
wait $agent
umount /run/box/rootfs
ok "its cgroup is empty" within 20 rmdir $box
umount /sys/fs/cgroup
ok "the device goes" device_down
done_testing
