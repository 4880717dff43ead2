#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests a program that attacks the verbs broker (tests/vm/programs/verbs_attack.c) through the kernel's own RDMA. Where
# possible, each attack is first run natively, to show that it succeeds without a policy.
# vm: kernels 7
# vm: programs ip rdma BUILD/hawser BUILD/tests/vm/verbs_attack
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh
# vm: modules veth crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 300
. /verbs.sh
cat >policy <<END
[default]
devices = rxe0
qp_types = rc
mr_bytes = 1M
qp_wr = 64
max_mws = 0
END
run="hawser verbs run --policy /tmp/policy --audit /tmp/audit --"
held() { # ATTACK...: the attack fails under the broker, and no objects are left
    timeout 200 $run verbs_attack "$@" && within 30 no_objects
}
lands() { # ATTACK...: the attack succeeds natively in at least one of ten runs
    for try in 1 2 3 4 5 6 7 8 9 10; do
        timeout 100 verbs_attack "$@" >lands.out
        status=$?
        cat lands.out
        [ $status = 1 ] && grep -q 'NOT HELD\|^line' lands.out && return
    done
    false
}

mkdir -p /run/hawser
ok "a device comes up" device_up

# ---- fields of requests that change in flight
for what in length pointer odp command wr type; do
    case $what-$kernel in
    odp-6.1.* | odp-6.12.*) skip "natively: flip $what" "rxe of this kernel has no on-demand paging" ;;
    *) ok "natively: flip $what" lands flip $what 0.5 ;;
    esac
    ok "flip $what" held flip $what 1
done
ok "natively: chaos" lands chaos 1.5 1
ok "chaos" held chaos 2 1

# ---- the stub's memory, and forbidden calls
ok "natively: forbidden calls" refused verbs_attack forbidden
ok "forbidden calls" held forbidden
ok "the window cannot be changed, by the device neither" held window
verbs_attack rereg >rereg.native 2>&1
ok "other access to memory" held rereg
ok "as natively" sh -c "$run verbs_attack rereg | grep '^other access' >rereg.out; grep '^other access' rereg.native | diff - rereg.out"

# ---- requests and descriptors
ok "malformed requests" held malformed
ok "descriptors that are no device" held foreign
ok "natively: the quota" lands quota
ok "the quota" held quota
ok "the user's own limit on locked memory" hawser verbs run --policy policy --user user -- verbs_attack memlock
verbs_attack pass sock >pass.out 2>&1 &
ok "natively: an open file of another program's" lands take sock
wait
rm -f sock
$run verbs_attack pass sock >pass.out 2>&1 &
pass=$!
ok "an open file of another container's" held take sock
ok "and it is still that one's" wait $pass

# ---- processes
ok "fork, exec, vfork, CLONE_VM" held forks
ok "eight threads" held threads 8
ok "children killed wherever they are" held kills 15
ok "a signal every 3 ms" held signals 1
ok "stopped and continued" held stops 1

# ---- leaks; tests/vm/verbs/soak_verbs runs the full number of iterations
adds_up 10000 1000 4
ok "the device goes" device_down
done_testing
