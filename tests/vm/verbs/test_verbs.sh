#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the verbs broker with the kernel's own RDMA (rdma_rxe): unmodified programs of rdma-core and perftest with both
# ends brokered, by `hawser verbs run` and in crun's containers; operations that a policy forbids; and agents and
# brokers that are killed.
# vm: programs ip rdma crun ibv_devinfo ibv_rc_pingpong ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat
# vm: programs BUILD/hawser
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
[container far]
destinations = 10.9.0.0/16
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
has() { # ACTION WHAT...: the action succeeds, and its output contains each WHAT
    # shellcheck disable=SC2086 # words
    hawser verbs $1 >has.out && cat has.out || return 1
    shift
    for what; do grep -q -- "$what" has.out || return 1; done
}

mkdir -p /run/hawser
ok "a device comes up" device_up
ibv_devinfo -v >devinfo.native 2>&1

# ---- programs without a container
same() { # FILE: the output equals that of a native run, except for limits, which the policy sets
    grep -v '^\s*max_' "$1" | diff devinfo.same -
}
grep -v '^\s*max_' devinfo.native >devinfo.same
printf '[default]\ndevices = rxe0\nallow = odp\n' >policy.odp
hawser verbs run --policy policy.odp -- ibv_devinfo -v >devinfo.brokered 2>devinfo.err
ok "ibv_devinfo -v prints what it prints natively" same devinfo.brokered
$run ibv_devinfo -v >devinfo.brokered 2>devinfo.err
ok "limits are the policy's" grep -q 'max_mr_size:.*0x100000$' devinfo.brokered
ok "what it forbids is not there" refused grep -q ODP_SUPPORT devinfo.brokered
with=$run
ok "ibv_rc_pingpong" both ibv_rc_pingpong -g 1 -n 20
ok "ibv_rc_pingpong -e" both ibv_rc_pingpong -g 1 -n 20 -e
for program in ib_write_bw ib_read_bw ib_send_bw; do
    ok "$program" both $program -d rxe0 -x 1 -s 65536 -n 10
done
for program in ib_write_lat ib_read_lat ib_send_lat; do
    ok "$program" both $program -d rxe0 -x 1 -n 20
done
with_server=
ok "one end brokered, one native" both ibv_rc_pingpong -g 1 -n 20


# ---- operations that the policy forbids; the other end is native
ok "a destination that is not allowed" refused_by 'destinations' both ibv_rc_pingpong -g 2 -n 10
ok "a queue pair of type UD" refused_by 'qp_types' both ib_send_bw -c UD -d rxe0 -x 1
ok "more memory than allowed" refused_by 'mr_bytes' both ib_write_bw -d rxe0 -x 1 -s 4194304
ok "a device that is not there, to a policy that has none" says 'No IB devices\|Failed' sh -c '
    printf "[default]\nmr_bytes = 1M\n" >/tmp/none && hawser verbs run --policy /tmp/none -- ibv_devinfo -v'
unset with_server

# ---- containers
mount -t cgroup2 cgroup2 /sys/fs/cgroup
socket=/run/hawser/verbs.sock
agent_up() {
    hawser verbs agent --policy policy --socket $socket --audit audit >>agent.log 2>&1 &
    agent=$!
    within 30 [ -S $socket ]
}
ok "the agent comes up" agent_up
for name in near1 near2 far; do
    section=
    [ $name != far ] || section="--container far"
    # shellcheck disable=SC2086 # no word, or two words
    ok "a bundle for container $name" sh -ec '. /verbs.sh
        bundle $1
        hawser verbs spec /run/$1/config.json --socket $2 --device uverbs0 $3 $4' - $name $socket $section
done
with="container near1" with_server="container near2"
container near1 ibv_devinfo -v >devinfo.container 2>devinfo.err
ok "ibv_devinfo in a container" diff devinfo.brokered devinfo.container
ok "ibv_rc_pingpong between two" both ibv_rc_pingpong -g 1 -n 20
ok "ibv_rc_pingpong -e" both ibv_rc_pingpong -g 1 -n 20 -e
# Runs only on one kernel, because containers are slow in a guest.
programs=ib_write_bw
case $kernel in 7*) programs="ib_write_bw ib_read_bw ib_send_bw ib_write_lat ib_read_lat ib_send_lat" ;; esac
for program in $programs; do
    case $program in *_bw) arguments="-s 65536 -n 10" ;; *) arguments="-n 20" ;; esac
    # shellcheck disable=SC2086 # words
    ok "$program" both $program -d rxe0 -x 1 $arguments
done
with="container far" with_server=
ok "another container, of a section that has no way to there" refused_by 'destinations' both ibv_rc_pingpong -g 1 -n 10
ok "and the audit file names all of it" has "audit audit" ' far: ibv_rc_pingpong ([0-9]*) on rxe0: MODIFY_QP.*: EPERM by destinations: GID ::ffff:10.7.0.1 is not in any of the allowed prefixes'
ok "a queue pair of type UD" refused_by 'qp_types' both ib_send_bw -c UD -d rxe0 -x 1
ok "more memory than allowed" refused_by 'mr_bytes' both ib_write_bw -d rxe0 -x 1 -s 4194304
cat >refuse.sh <<'END'
ibv_rc_pingpong -g 1 -s 4194304
touch /tmp/refused
until [ -e /tmp/told ]; do sleep 0.1; done
END
: >audit
container far sh /tmp/refuse.sh >refuse.out 2>&1 &
far=$!
ok "a container that is refused memory, and goes on" within 60 [ -e refused ]
ok "the audit file: to whom, what, by which rule" has "audit audit" ' far: ibv_rc_pingpong ([0-9]*) on rxe0: REG_MR.*: ENOMEM by mr_bytes = 1'
ok "status: how often" within 20 has status '^far: process .* policy far$' ' requests, .*, 1 refused, ' 'rxe0 (uverbs0): open 0 times.* pinned, 1 refused$'
touch told
ok "it ends" wait $far
with="container near1" with_server="container near2"

# ---- what is killed
long() { # ...: runs a transfer in the background
    both_run ib_write_bw -d rxe0 -x 1 -s 65536 -D 4 >long.out 2>&1 &
    long=$!
    within 60 moving
}
moving() { rdma res show qp | grep -c 'state RTS' | grep -qx '[2-9]'; }
ok "a transfer is under way" long
ok "status: its containers, and what they have" has status '^near1: ' '^near2: ' 'rxe0 (uverbs0): open 1 time, 1 pd, 1 mr, 1 cq, 1 qp, 128KiB pinned, 0 refused'
kill -KILL $agent
wait $agent
# The transfer was also complete if perftest reports that it cannot determine the speed because the clock stopped (see
# both()).
ended() { wait $long || grep -q "Can't produce a report" end.server end.client; }
ok "the agent is killed, and it goes on to its end" ended
ok "and nothing is left" within 30 no_objects
ok "with no agent no container starts" refused container near1 true
rm -f $socket
ok "another agent" agent_up
ok "and it is as before" both ibv_rc_pingpong -g 1 -n 20
ok "a transfer is under way" long
kill $agent
wait $agent
wait $long
ok "when the agent is ended, its containers lose their devices, and no object stays" within 30 no_objects
ok "what the audit file has is JSON lines" has "audit --json audit" '^{"time":.*"container":"far".*"program":"ibv_rc_pingpong".*"rule":"mr_bytes = '
for name in near1 near2 far; do umount "/run/$name/rootfs"; done
umount /sys/fs/cgroup
ok "the device goes" device_down
done_testing
