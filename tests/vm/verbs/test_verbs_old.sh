#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the verbs broker on a kernel without mseal() (Linux 6.10), PIDFD_THREAD (6.9) and MFD_NOEXEC_SEAL (6.3), with a
# subset of the tests in test_verbs.sh and test_verbs_attack.sh.
# vm: kernels 6.1
# vm: programs ip rdma crun ibv_devinfo ibv_rc_pingpong ib_write_bw BUILD/hawser BUILD/tests/vm/verbs_attack
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh /etc/libibverbs.d/rxe.driver:/etc/libibverbs.d/rxe.driver
# vm: files /usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so:/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so
# vm: modules veth crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 300
. /verbs.sh
logs="$logs agent.log"

cat >policy <<END
[default]
devices = rxe0
destinations = 10.7.0.0/24
qp_types = rc
mr_bytes = 1M
allow = odp
END
run="hawser verbs run --policy /tmp/policy --audit /tmp/audit --"
refused_by() { # RULE COMMAND...: the command fails, and the audit file names the rule
    rule=$1
    shift
    : >audit
    if "$@"; then return 1; fi
    cat audit end.client end.server
    grep -q "$rule" audit && within 30 no_objects
}
held() { # ATTACK...: the attack fails under the broker, and no objects are left
    timeout 100 $run verbs_attack "$@" && within 30 no_objects
}

mkdir -p /run/hawser
ok "a device comes up" device_up
# Compares everything except limits, which the policy sets.
ibv_devinfo -v | grep -v '^\s*max_' >devinfo.native
$run ibv_devinfo -v 2>devinfo.err | grep -v '^\s*max_' >devinfo.brokered
ok "ibv_devinfo -v prints what it prints natively" diff devinfo.native devinfo.brokered

# ---- programs without a container, both ends brokered
with=$run
ok "ibv_rc_pingpong" both ibv_rc_pingpong -g 1 -n 20
ok "ibv_rc_pingpong -e" both ibv_rc_pingpong -g 1 -n 20 -e
ok "ib_write_bw" both ib_write_bw -d rxe0 -x 1 -s 65536 -n 10
with_server=
ok "a destination that is not allowed" refused_by destinations both ibv_rc_pingpong -g 2 -n 10
unset with_server

# ---- attacks
ok "the window cannot be changed" held window
ok "a length that changes under way" held flip length 1
ok "an address that changes under way" held flip pointer 1
ok "all of a request, at random" held chaos 1 1
ok "forbidden calls" held forbidden
ok "fork, exec, vfork, CLONE_VM" held forks
ok "eight threads" held threads 8
ok "children killed wherever they are" held kills 5
ok "a signal every 3 ms" held signals 1

# ---- containers
mount -t cgroup2 cgroup2 /sys/fs/cgroup
socket=/run/hawser/verbs.sock
hawser verbs agent --policy policy --socket $socket --audit audit >>agent.log 2>&1 &
agent=$!
ok "the agent comes up" within 30 [ -S $socket ]
for name in near1 near2; do
    ok "a bundle for container $name" sh -ec '. /verbs.sh
        bundle $1
        hawser verbs spec /run/$1/config.json --socket $2 --device uverbs0' - $name $socket
done
with="container near1" with_server="container near2"
ok "ibv_rc_pingpong between two containers" both ibv_rc_pingpong -g 1 -n 20
ok "ib_write_bw" both ib_write_bw -d rxe0 -x 1 -s 65536 -n 10
with_server=
ok "a destination that is not allowed" refused_by destinations both ibv_rc_pingpong -g 2 -n 10
kill $agent
ok "the agent ends" wait $agent
ok "nothing is left" within 30 no_objects
for name in near1 near2; do umount "/run/$name/rootfs"; done
umount /sys/fs/cgroup
ok "the device goes" device_down
done_testing
