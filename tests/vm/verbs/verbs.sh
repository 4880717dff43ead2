# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of the verbs broker: rxe0 on a veth pair with the addresses 10.7.0.1 (GID 1) and 10.8.0.1 (GID 2),
# the two ends of a program, containers, and leak tests. A test that includes this file must list
# tests/vm/tap.sh:/tap.sh and tests/vm/verbs/verbs.sh:/verbs.sh in `# vm: files`.
. /tap.sh
logs="end.server end.client"
providers=/usr/lib/x86_64-linux-gnu/libibverbs

device_up() {
    ip link add v0 type veth peer name v1 && ip link set v0 mtu 4200 && ip link set v1 mtu 4200 &&
        ip addr add 10.7.0.1/24 dev v0 && ip addr add 10.8.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up &&
        rdma link add rxe0 type rxe netdev v0 && within 20 gids && objects >/tmp/objects.none
}
gids() { grep -q 0a08:0001 /sys/class/infiniband/rxe0/ports/1/gids/2; }
device_down() { rdma link del rxe0 && ip link del v0; }

# Prints the objects of rxe0, including the PD, CQ and QP that the kernel creates there for management.
objects() { rdma res show | grep rxe0; }
no_objects() {
    objects >/tmp/objects.now
    diff /tmp/objects.none /tmp/objects.now
}

listens() { grep -q ":$(printf %04X "$1") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; }
ready() { listens 18515 || ! kill -0 $server 2>/dev/null; }
# Runs both ends of PROGRAM through $with, or the server through $with_server. Port 18515 is the default of these
# programs. Succeeds if both ends succeed and leave no objects behind. perftest measures the clock before it prints its
# report, and fails if the machine pauses meanwhile; only this failure is retried.
both() { # PROGRAM ARGS...
    for _ in 1 2 3; do
        both_run "$@" && within 30 no_objects && return
        grep -q "Can't produce a report" end.server end.client || return 1
    done
    return 1
}
both_run() {
    : >end.client
    ${with_server-$with} "$@" >end.server 2>&1 &
    server=$!
    within 60 ready && listens 18515 && $with "$@" 127.0.0.1 >end.client 2>&1
    status=$?
    [ $status = 0 ] || kill_server
    wait $server && [ $status = 0 ]
}
# Ends the server, which may wait forever if its other end has failed. The first process of a container reacts only to
# KILL.
kill_server() {
    # shellcheck disable=SC2086 # words
    set -- ${with_server-$with}
    [ "${1-}" != container ] || crun kill "$2" KILL
    kill $server 2>/dev/null
    true
}

# Creates an OCI bundle /run/NAME for crun. Its container sees / without the file systems mounted there, runs
# /tmp/NAME.cmd, and uses the guest's network.
bundle() { # NAME
    mkdir -p "/run/$1/rootfs" && mount --bind / "/run/$1/rootfs" || return 1
    cat >"/run/$1/config.json" <<END
{"ociVersion": "1.0.2", "hostname": "$1", "root": {"path": "rootfs"},
 "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh", "/tmp/$1.cmd"], "env": ["PATH=/usr/bin"], "cwd": "/tmp",
  "noNewPrivileges": true, "rlimits": [{"type": "RLIMIT_MEMLOCK", "hard": 4194304, "soft": 4194304}],
  "capabilities": {"bounding": [], "effective": [], "permitted": []}},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
  {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
  {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
  {"destination": "/tmp", "type": "none", "source": "/tmp", "options": ["bind"]}],
 "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]}}
END
}
# Runs the bundle without pivot_root(), which Linux 6.12 refuses if / is the initramfs.
container() { # NAME PROGRAM ARGS...
    name=$1
    shift
    echo "exec $*" >"/tmp/$name.cmd"
    crun --cgroup-manager=disabled run --no-pivot --bundle "/run/$name" "$name"
}

# Tests for leaks: runs pairs of REG_MR and DEREG_MR in one process, then short-lived processes in one container, up to
# the given numbers, and each for up to the given seconds. The broker and the kernel must then hold the same resources
# as before.
broker_of() { # PID of `hawser verbs run`: prints the child process that serves
    for p in /proc/[0-9]*; do
        case $(sed 's/.*) //' "$p/stat" 2>/dev/null) in
        "S $1 "* | "R $1 "*) case $(readlink "$p/exe") in */hawser) echo "${p#/proc/}" ;; esac ;;
        esac
    done
}
weigh() { # prints the file descriptors, threads and mappings of the broker of $runner
    broker=$(broker_of $runner)
    echo "fds $(ls "/proc/$broker/fd" | wc -l) threads $(ls "/proc/$broker/task" | wc -l) maps $(wc -l <"/proc/$broker/maps")"
}
still() { weigh >after && diff before after; }
adds_up() { # PAIRS LIVES SECONDS
    cat >many.sh <<'END'
verbs_attack pairs 50 >/dev/null
for i in 1 2 3; do verbs_attack life >/dev/null; done
touch /tmp/warm
until [ -e /tmp/go ]; do sleep 0.1; done
verbs_attack pairs "$1" "$3" || exit 1
end=$(($(date +%s) + $3)) lives=0
while [ $lives -lt "$2" ] && [ "$(date +%s)" -lt $end ]; do
    verbs_attack life >/dev/null || exit 1
    lives=$((lives + 1))
done
echo "$lives lives"
touch /tmp/done
until [ -e /tmp/end ]; do sleep 0.1; done
END
    $run sh many.sh "$@" >many.out 2>&1 &
    runner=$!
    ok "a container that goes on" within 60 [ -e warm ]
    weigh >before
    touch go
    ok "up to $1 pairs of REG_MR and DEREG_MR, up to $2 short lives, $3 s each" within $((2 * $3 + 190)) [ -e done ]
    sed 's/^/# /' many.out before
    ok "the broker holds what it held" within 20 still
    ok "and so does the kernel" within 20 no_objects
    touch end
    ok "it ends" wait $runner
}
