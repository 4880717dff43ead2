#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests a hostile crun container with Docker's default capabilities and CAP_IPC_LOCK (tests/vm/programs/verbs_tenant.c):
# which resources it can take from other containers through its user ID, and what access it can gain through its
# broker's processes and its stubs.
# vm: kernels 7
# vm: programs ip rdma crun BUILD/hawser BUILD/tests/vm/verbs_tenant
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/verbs/verbs.sh:/verbs.sh
# vm: modules veth crc32_generic? rdma_rxe ib_uverbs
# vm: timeout 300
. /verbs.sh
logs="agent.log evil.out good.out"
socket=/run/hawser/verbs.sock
printf '[default]\ndevices = rxe0\nmr_bytes = 1M\n' >policy
caps='["CAP_CHOWN","CAP_DAC_OVERRIDE","CAP_FSETID","CAP_FOWNER","CAP_MKNOD","CAP_NET_RAW","CAP_SETGID","CAP_SETUID","CAP_SETFCAP",
"CAP_SETPCAP","CAP_NET_BIND_SERVICE","CAP_SYS_CHROOT","CAP_KILL","CAP_AUDIT_WRITE","CAP_IPC_LOCK"]'
tenant() { # NAME: creates a bundle named NAME
    bundle "$1" || return 1
    echo "$caps" | tr -d '\n' >caps
    sed -i "s/\"bounding\": \[\], \"effective\": \[\], \"permitted\": \[\]/\"bounding\": C, \"effective\": C, \"permitted\": C/
        s/\"noNewPrivileges\": true/\"noNewPrivileges\": false/
        s/\"rlimits\": \[/&{\"type\": \"RLIMIT_NOFILE\", \"hard\": 65536, \"soft\": 1024}, /" "/run/$1/config.json"
    sed -i "s/: C\b/: $(cat caps)/g" "/run/$1/config.json"
    hawser verbs spec "/run/$1/config.json" --socket $socket --device uverbs0
}
evil() { timeout -s KILL 100 sh -c '. /verbs.sh; container evil verbs_tenant "$@"' - "$@" >evil.out 2>&1; }
good() { timeout -s KILL 100 sh -c '. /verbs.sh; container good verbs_tenant "$@"' - "$@" >good.out 2>&1; }
no_broker() { ! cat /proc/[0-9]*/comm 2>/dev/null | grep hawser-broker; }

mkdir -p /run/hawser
ok "a device comes up" device_up
mount -t cgroup2 cgroup2 /sys/fs/cgroup # crun needs this mount
hawser verbs agent --policy policy --socket $socket --audit audit >agent.log 2>&1 &
agent=$!
ok "the agent comes up" within 30 [ -S $socket ]
for name in evil good late; do ok "a bundle for container $name" tenant $name; done

ok "a program that gives up CAP_IPC_LOCK is held by its RLIMIT_MEMLOCK" evil dropped
ok "the stub's pages cannot be written by what /proc has of them" evil files
ok "its broker's user reads and writes nothing of its processes" evil asthem

# ---- resources that the kernel counts per user: the programs of both containers run as root
good opens &
good=$!
ok "a container that runs already" within 60 [ -e open ]
evil inotify &
evil=$!
ok "all of root's inotify instances and watches are taken" within 60 [ -e taken ]
ok "another container starts, and opens a device" timeout -s KILL 100 sh -c '. /verbs.sh; container late verbs_tenant open'
touch go
ok "so does one that ran already" wait $good
touch give
ok "they are given back" wait $evil
rm -rf taken give watched

# ---- a stopped broker
evil stop &
evil=$!
ok "a container stops its broker" within 60 [ -e taken ]
ok "its status says so" says 'evil: the broker does not answer' hawser verbs status
ok "another container notices nothing" good open
touch give
wait $evil # when the first process of a PID namespace exits, the kernel kills all others in the namespace
ok "it ends with its container" within 30 no_broker
rm -f taken give
evil stop &
evil=$!
ok "once more" within 60 [ -e taken ]
kill $agent
ok "the agent ends" wait $agent
ok "and so does the broker, by force" within 30 no_broker
touch give
wait $evil
ok "nothing is left" within 30 no_objects
for name in evil good late; do umount "/run/$name/rootfs"; done
umount /sys/fs/cgroup
ok "the device goes" device_down
done_testing
