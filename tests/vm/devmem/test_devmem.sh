#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the devmem transport: hawser serve in one namespace and validate and bench in the other, each with its own
# hawserd, over the simulated cards and the kernel's own devmem path. The fake driver provides GPU memory through
# udmabuf. hawser itself verifies every transfer, so a wrong byte changes the exit status.
# vm: programs ip BUILD/hawser BUILD/helper/hawserd BUILD/tests/vm/dmnic_probe
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/devmem/dmnic.sh:/dmnic.sh BUILD/tests/fakes/cuda/libfakecuda.so:/libfakecuda.so
# vm: modules tcp_diag?
# vm: build-module lab/dmnic
# vm: timeout 600
. /dmnic.sh

# A slow machine may pause occasionally. With these timeouts, hawser does not treat a pause as a failed path.
export HAWSER_STALL_MS=15000 HAWSER_HANDSHAKE_MS=60000 HAWSER_PEER_TIMEOUT_MS=60000
export HAWSER_CUDA_LIBRARY=/libfakecuda.so FAKECUDA_UDMABUF=1 FAKECUDA_GPUS=2 FAKECUDA_MEMORY=512 HAWSER_DEVMEM_POOL=16MiB
key=/tmp/key
head -c 32 /dev/urandom >$key
chmod 600 $key
echo 1024 >/sys/module/udmabuf/parameters/size_limit_mb
case $kernel in 6.12*) sends=false ;; *) sends=true ;; esac

daemon() { # N
    ip netns exec "n$1" hawserd --socket "/tmp/hawserd$1" --state "/tmp/hawserd$1.state" >>"/tmp/hawserd$1.log" 2>&1 &
    eval "hawserd$1=$!"
    within 60 test -S "/tmp/hawserd$1"
}
kill_daemon() { # N SIGNAL
    eval "kill -$2 \$hawserd$1; wait \$hawserd$1"
    rm -f "/tmp/hawserd$1"
    true
}
cards() {
    insmod /dmnic.ko "$@" || return 1
    for i in 0 1; do
        ip netns add n$i && ip link set dm$i netns n$i && ip -n n$i link set lo up && address $i && daemon $i || return 1
    done
}
serve() { # OPTIONS
    : >/tmp/serve.log
    ip netns exec n1 hawser serve --transport devmem --knob devmem_socket=/tmp/hawserd1 --key-file $key -v "$@" >/tmp/serve.log 2>&1 &
    server=$!
    within 60 grep -q serves /tmp/serve.log
}
unserve() {
    kill "$server"
    wait "$server"
    true
}
# In a guest, connecting may take longer than the tool waits. A run that fails for this reason is retried up to twice;
# other failures are not retried.
run() { # COMMAND OPTIONS
    command=$1
    shift
    for try in 1 2 3; do
        ip netns exec n0 timeout 100 hawser "$command" 10.9.0.2 --transport devmem --knob devmem_socket=/tmp/hawserd0 \
            --key-file $key -v "$@" >/tmp/run.log 2>&1
        rc=$?
        grep -q 'no connection to its NICs was established before\|Connection timed out' /tmp/run.log || break
    done
    cat /tmp/run.log
    [ $rc = 0 ] || sed 's/^/serve: /' /tmp/serve.log
    return $rc
}
bench() { # OPTIONS: runs bench with two channels and 4 MB of data
    run bench --gpus 0 --channels 2 --size 512K --iters 8 --depth 4 "$@"
}
# Prints a value in kB that the last run reported in GB.
devmem_gb() { # here|there tx|rx|copied
    awk -v side="$1" -v what="$2" '
        $1 == "here" || $1 == "there" { at = $1 }
        $1 == "devmem:" && at == side { v["tx"] = $2; v["rx"] = $7; more = 1; next }
        more { # the line goes on
            v["copied"] = $1; more = 0
            print v[what] * 1e6; found = 1 }
        END { if (!found) print 0 }' /tmp/run.log
}
all_of_it() { # BYTES in thousands: the other end received at least this much into device memory and copied nothing
    echo "into device memory: $(devmem_gb there rx) kB, copied: $(devmem_gb there copied) kB"
    [ "$(devmem_gb there rx)" -ge "$1" ] && [ "$(devmem_gb there copied)" = 0 ]
}
two_gpus() { # OPTIONS
    run bench --gpus 0:0,1:1 --require-devmem --channels 1 --size 512K --iters 8 --depth 4 "$@"
}
straight() { # N: exactly N lines report that the NIC wrote all data into GPU memory, and no line reports otherwise
    [ "$(grep -c 'device path 100.00 %, staged 0.00 %, copied 0.00 %' /tmp/run.log)" = "$1" ] &&
        [ "$(grep -c 'device path' /tmp/run.log)" -le $(($1 + 1)) ] # the heading may match too
}
agrees() { grep -q "the NIC's own count, rx_devmem_pkts: [1-9]" /tmp/run.log && ! grep WARNING: /tmp/run.log; }
falls_back() { # WORDS: the transfer falls back to tcp and succeeds, and serve reports WORDS as the reason
    bench || return 1
    grep -q "using plain tcp instead of devmem to [a-z]*: .*$1" /tmp/serve.log
}
background() { # OPTIONS: starts a longer bench in the background
    : >/tmp/long.log
    ip netns exec n0 timeout 200 hawser bench 10.9.0.2 --transport devmem --knob devmem_socket=/tmp/hawserd0 --key-file $key -v \
        --gpus 0 --channels 2 --window 1MiB --size 512K --iters "${iters-200}" --depth 4 >/tmp/long.log 2>&1 &
    long=$!
    at=$(counter 1 'rx_devmem_pkts[3]')
    within 100 moved_since "$at"
}
moved_since() { [ "$(counter 1 'rx_devmem_pkts[3]')" -gt $(($1 + 100)) ]; }
background_ends() {
    wait "$long"
    rc=$?
    cat /tmp/long.log
    return $rc
}
# Executes $1 in the middle of a transfer, which must succeed.
meanwhile() {
    background || return 1
    "$1"
    background_ends
}

flap() {
    for n in 1 0; do
        ip -n n$n link set dm$n down
        sleep 0.3
        ip -n n$n link set dm$n up
    done
}
restart() {
    kill_daemon 1 KILL
    daemon 1
}
unbind() {
    kill_daemon 1 TERM
}
move_route() { # makes the card's traffic unroutable for one second
    ip -n n0 route add unreachable 10.9.0.2/32
    sleep 1
    ip -n n0 route del unreachable 10.9.0.2/32
}

ok "two cards, two daemons" cards
ok "a server" serve
ok "validate, GPU to GPU, nothing but devmem" run validate --gpus 0 --require-devmem --channels 2 --size 2M --timeout 90s
ok "bench, write" bench --require-devmem
ok "... all of it came into device memory, and no CPU copied a byte of it" all_of_it 4000
if $sends; then
    ok "... and most was sent from there" [ "$(devmem_gb here tx)" -ge 2000 ]
else
    ok "... and this kernel does not send from there, and says so" grep -q 'is sent through the host' /tmp/run.log
fi
ok "bench, read" bench --require-devmem --op read
ok "... likewise" [ "$(devmem_gb here rx)" -ge 4000 ]
ok "... and the NIC's own count agrees" agrees
ok "bench, messages" bench --require-devmem --op send
ok "odd sizes" run bench --gpus 0 --require-devmem --size 1,100,4097,70001 --iters 5
ok "host memory, by way of a GPU's" run bench --require-devmem --size 256K --iters 8
ok "eight channels" bench --require-devmem --channels 8
for how in '' --per-process; do
    ok "two GPUs over one NIC $how" two_gpus $how
    ok "... all of it straight into each of them" straight 2
    ok "... and the NIC's own count agrees" agrees
done
ok "the second GPU alone" run validate --gpus 1:1 --require-devmem --channels 2 --size 2M --timeout 90s
ok "... straight into it, both ways" straight 2
ok "two GPUs, validated" run validate --gpus 0:0,1:1 --require-devmem --channels 2 --size 2M --timeout 90s
ok "... straight into each of them, both ways" straight 4
ok "all payload to one GPU's memory, and another GPU: refused" refused run bench --gpus 1:1 --require-devmem \
    --knob devmem_memory=cuda:0 --size 64K --iters 2

for_all 40 loss
ok "one packet in 40 is lost" bench --require-devmem
for_all 0 loss
for_all 10 reorder
ok "one in 10 is late" bench --require-devmem
for_all 0 reorder
for_all 13 linear
ok "13 bytes of each stay in header memory" bench
ok "... and are copied from there, they alone" [ "$(devmem_gb there copied)" -lt 200 ]
ok "... which is not what --require-direct asks for" refused bench --require-devmem
for_all 0 linear
for_all 4 refill
ok "pages come at 4 a millisecond" bench --require-devmem
for_all 0 refill
ok "a pool of 1 MiB" bench --require-devmem --knob devmem_pool=1MiB

ok "the link flaps" meanwhile flap
ok "hawserd is killed, and another comes" meanwhile restart
ok "... and all is devmem again" bench --require-devmem
ok "the route is gone for a second" meanwhile move_route
iters=400 background
kill -KILL "$long"
wait "$long"
ok "after a client that was killed" bench --require-devmem
unserve
ok "a server that was ended, and another" serve
ok "... serves by devmem" bench --require-devmem
kill -KILL "$server"
wait "$server"
ok "a server that was killed, and another" serve
ok "... serves by devmem too" bench --require-devmem
ok "hawserd goes in the middle: the rest goes by tcp" meanwhile unbind
ok "with none, everything does, and it is said" falls_back 'hawserd'
ok "... or nothing, where devmem is required" refused bench --require-devmem
daemon 1
unserve
ok "a server that must not do without" serve --require-devmem
ok "a node does not talk to itself by devmem: it is told why" refused ip netns exec n1 hawser bench 10.9.0.2 --key-file $key \
    --transport devmem --knob devmem_socket=/tmp/hawserd1 --size 64K --iters 2 --require-devmem
unserve
kill_daemon 0 TERM
kill_daemon 1 TERM
ok "nothing is left" down
[ $failed = 0 ] || sed 's/^/# hawserd: /' /tmp/hawserd1.log
done_testing
