#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests lab/dmnic under faults: the module's own fault knobs, links that flap, receivers that are killed, page pools
# that run out of memory, memory that is unbound, queues that are reset, and cards that are removed under load. Data
# must nevertheless arrive intact, except with corrupt and recycle_all, and no page pool may be left waiting.
# vm: programs ip ethtool BUILD/tests/vm/dmnic_probe
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/devmem/dmnic.sh:/dmnic.sh
# vm: build-module lab/dmnic
# vm: timeout 400
. /dmnic.sh

case $kernel in
6.12.*) dev() { :; } ;;
*) dev() { echo "dev=dm$1"; } ;; # also send from bound memory if the kernel supports this
esac
size=1000000

ok "the cards come up" up

for fault in "loss 20 rx_lost" "reorder 7 rx_reordered" "linear 13 rx_linear_pkts"; do
    # shellcheck disable=SC2086 # three words
    set -- $fault
    was=$(counter 1 "$3[3]")
    for_all "$2" "$1"
    ok "$1=$2: every byte is right" transfer 1 "queue=3 bytes=$size" "bytes=$size $(dev 0)"
    for_all 0 "$1"
    ok "... and it did happen" grew 1 "$3[3]" "$was" 5
done
ok "... 13 bytes of each packet come in ordinary memory" [ "$(value recv linear)" -gt $((size / 1448 * 13 - 200)) ]
for_all 20 loss reorder
for_all 13 linear
ok "all three at once" transfer 0 "queue=3 bytes=500000" "bytes=500000 $(dev 1)"
for_all 0 loss reorder linear

for_all 20 corrupt
ok "payload that was not copied does not pass" refused transfer 1 "queue=3 bytes=$size" "bytes=$size $(dev 0)"
ok "... because its bytes are wrong" [ "$(value recv bad)" -gt 1000 ]
for_all 0 corrupt

# Page pools run empty because the memory is too small or because pages are returned slowly.
was=$(counter 1 "rx_alloc_fail[3]")
ok "a receiver with 16 pages that gives them back late" all_devmem 1 "queue=3 bytes=100000 mem=65536 clamp=$((16 * 1448)) lazy=300" "bytes=100000 $(dev 0)"
ok "... made the card drop packets" grew 1 "rx_alloc_fail[3]" "$was" 1
was=$(counter 1 "rx_alloc_fail[3]")
for_all 4 refill
ok "pages at 4 a millisecond" transfer 1 "queue=3 bytes=800000" "bytes=800000 $(dev 0)"
for_all 0 refill
ok "... made the card drop packets" grew 1 "rx_alloc_fail[3]" "$was" 1
ok "after that all is as before" all_devmem 1 "queue=3 bytes=$size" "bytes=$size $(dev 0)"

# Executes a command while data arrives. The command must finish before the transfer does.
load() { # TO RECV-OPTIONS WHAT...
    busy "$1" "bytes=$((size * 24)) $2" "bytes=$((size * 24)) $(dev $((1 - $1)))"
    shift 2
    "$@" && kill -0 "$receiver" || kill "$receiver"
    both_end
}
flap() {
    for n in 1 0 1; do
        ip -n n$n link set dm$n down && sleep 0.2 && ip -n n$n link set dm$n up || return 1
        sleep 0.3
    done
}
ok "the link flaps at both ends" load 1 "" flap
ok "... and the memory is still bound" [ "$(value recv plain)" = 0 ]
# When the link goes down, the kernel drops the cached route of an idle connection and does not look up a new route: see
# reroute() in dmnic_probe.c.
idle() {
    start 1 "queue=3 bytes=$size" && push_start "bytes=$size idle=1 $(dev 0)" && within 60 grep -q idle send &&
        ip -n n0 link set dm0 down && ip -n n0 link set dm0 up
    kill -CONT "$sender"
    both_end
}
ok "the link flaps under an idle connection" idle
case $kernel in
6.12.*) ;;
*) ok "... whose first send after that has no device" [ "$(value send retries)" -gt 0 ] ;;
esac
resize() {
    for n in 64 128 1024 32 1024; do
        in1 ethtool -G dm1 rx $n || return 1
        sleep 0.1
    done
}
ok "queues are reset" load 1 "" resize
ok "... and the memory is still bound" [ "$(value recv plain)" = 0 ]
ok "memory is unbound" load 1 "unbind=$size" true
ok "... and the rest comes in ordinary memory" [ "$(value recv plain)" -gt 0 ]
start 1 "queue=3"
ok "header split cannot be turned off while memory is bound" says 'Invalid argument' probe1 nic dm1 split=off
kill -KILL "$receiver"
wait "$receiver"

for n in 1 2 3; do
    busy 1 bytes=100000000 "bytes=100000000 $(dev 0)"
    ok "a second owner of the queue is refused" says exists probe1 recv dm1 queue=3 port=5009
    kill -KILL "$receiver"
    ok "killed, time $n: the sender notices" refused wait "$sender"
    wait "$receiver"
    ok "... and the queue can be bound at once" all_devmem 1 "queue=3 bytes=500000" "bytes=500000 $(dev 0)"
done
busy 0 bytes=100000000 "bytes=100000000 $(dev 1)"
kill -KILL "$sender"
ok "a killed sender: the receiver notices" refused wait "$receiver"

# When a namespace is deleted, its card returns to the initial namespace with all pools.
ip netns del n1
ok "the card of a namespace that is gone comes back" within 60 ip link show dm1
ip netns add n1 && ip link set dm1 netns n1 && address 1
ok "... and works in another" all_devmem 1 "queue=3 bytes=$size" "bytes=$size $(dev 0)"

# Creates segments whose data is entirely in header memory, but which are marked as having device pages. GRO appends
# such a segment to unreadable ones, and recvmsg() can never get past it.
for_all 1 recycle_all
for_all 100 linear
# GRO merges the segments only if they arrive together, which happens in one of a few transfers.
wedges() {
    for try in 1 2 3 4 5 6 7 8; do
        transfer 1 "queue=3 bytes=$size" "bytes=$size chunk=14530 $(dev 0)" || return 0
        echo "transfer $try came through"
    done
    return 1
}
ok "recycle_all wedges a receiver" wedges
ok "... with ENODEV" grep -q 'No such device' recv
for_all 0 linear recycle_all

# The module is removed under load, while the receiver's memory is still bound.
busy 1 bytes=100000000 bytes=100000000
ok "the module is removed under load" rmmod dmnic
kill -KILL "$receiver" "$sender"
wait
ip netns del n0
ip netns del n1
ok "... and no pool is left" within 60 no_pools
ok "the module comes again" up
ok "... and works" all_devmem 1 "queue=3 bytes=$size" "bytes=$size $(dev 0)"
ok "... and goes" down
done_testing
