#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the simulated card of lab/dmnic through the kernel's own interface: steering, receiving into bound memory and
# sending from it in both directions, requests that the card refuses, and that nothing is left behind.
# vm: programs ip ethtool BUILD/tests/vm/dmnic_probe
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/devmem/dmnic.sh:/dmnic.sh
# vm: build-module lab/dmnic
# vm: timeout 300
. /dmnic.sh

ok "no queues at all are refused" says Invalid insmod /dmnic.ko queues=0
ok "too many pairs are refused" says Invalid insmod /dmnic.ko pairs=9
ok "the cards come up" up
ok "both have carrier" within 20 sh -c 'ip -n n0 link show dm0 up | grep -q LOWER_UP && ip -n n1 link show dm1 up | grep -q LOWER_UP'
ok "their addresses are always the same" sh -c 'ip -n n0 link show dm0 | grep -q 02:64:6d:6e:00:00 && ip -n n1 link show dm1 | grep -q 02:64:6d:6e:00:01'
ok "they answer each other" in0 ping -c 2 -W 10 10.9.0.2
ok "a card cannot be deleted" says 'not supported' ip -n n0 link del dm0
ok "an MTU beyond 9000 is refused" refused ip -n n0 link set dm0 mtu 9001

# Bindings and rules whose prerequisites are missing are refused.
probe1 nic dm1 split=off
case $kernel in
6.12.*) ok "bind-rx without header split: no data" says 'No data available' probe1 recv dm1 queue=3 ;;
*) ok "bind-rx without header split: invalid" says 'Invalid argument' probe1 recv dm1 queue=3 ;;
esac
probe1 nic dm1 split=on
ok "a queue that is not there" says 'Invalid argument\|Numerical result' probe1 recv dm1 queue=4
ok "a rule for such a queue" says 'Invalid argument' probe1 nic dm1 rule=4:6000:4
ok "a rule where there is none" says 'No such file' probe1 nic dm1 unrule=17
ok "rules are listed" sh -c 'ip netns exec n1 dmnic_probe nic dm1 rules | grep -q "0: port 5000 queue 3"'

for to in 1 0; do
    for host in 10.9.0.$((to + 1)) fd00:9::$((to + 1)); do
        was=$(counter $to "rx_devmem_bytes[3]")
        ok "ordinary memory to dm$to's bound memory, $host" all_devmem $to "queue=3 bytes=1000000" "bytes=1000000"
        ok "... and the card counts it" grew $to "rx_devmem_bytes[3]" "$was" 1000000
    done
done
unset host

case $kernel in
6.12.*)
    ok "bind-tx is not known to 6.12" says 'not supported' probe0 bindtx dm0
    for what in "bound memory to bound memory" "... is not copied"; do skip "$what" "Linux 6.12 cannot send device memory"; done
    ;;
*)
    for to in 1 0; do
        for host in 10.9.0.$((to + 1)) fd00:9::$((to + 1)); do
            was=$(counter $((1 - to)) tx_devmem_bytes)
            ok "bound memory to dm$to's bound memory, $host" all_devmem $to "queue=3 bytes=1000000" "bytes=1000000 dev=dm$((1 - to)) mem=524288"
            ok "... is not copied, and is counted" sh -c '[ "$1" = 0 ] && [ $(($2 - $3)) -ge 1000000 ]' - \
                "$(value send copied)" "$(counter $((1 - to)) tx_devmem_bytes)" "$was"
        done
    done
    unset host
    ok "bound memory to an ordinary receiver" transfer 1 "bytes=1000000" "bytes=1000000 dev=dm0"
    ok "... which gets ordinary data" [ "$(value recv plain)" = 1000000 ]
    ;;
esac

# Two receivers, each with its own queue, memory and flow.
probe1 nic dm1 rule=4:5001:2 >rules
two() {
    probe1 recv dm1 queue=2 port=5001 bytes=1000000 seed=77 >recv2 2>&1 &
    other=$!
    within 60 grep -q ready recv2 || return 1
    probe0 send 10.9.0.2 port=5001 bytes=1000000 seed=77 >send2 2>&1 &
    other_sender=$!
    all_devmem 1 "queue=3 bytes=1000000" "bytes=1000000" && wait $other_sender && wait $other && cat recv2 && [ "$(value recv2 devmem)" = 1000000 ]
}
ok "two queues at once" two
probe1 nic dm1 unrule=2
ok "one owner, three connections" sh -c '. /dmnic.sh
    start 1 "queue=3 bytes=300000 conns=3" && for i in 1 2 3; do
        probe0 send 10.9.0.2 port=5000 bytes=300000 seed=$$ || exit 1
    done
    wait $receiver && [ "$(value recv devmem)" = 900000 ]'

# On 7.x, binding to a card that is down succeeds, and the page pool is created when the card is brought up.
ip -n n1 link set dm1 down
case $kernel in
6.12.*) ok "bind-rx on a card that is down" says 'Network is down' probe1 recv dm1 queue=3 ;;
*)
    start 1 "queue=3 bytes=1000000"
    ip -n n1 link set dm1 up
    push_start "bytes=1000000"
    ok "bind-rx on a card that is down" both_end
    ok "... holds when it is up" [ "$(value recv devmem)" = 1000000 ]
    ;;
esac
ip -n n1 link set dm1 up

for mtu in 4148 9000; do
    for i in 0 1; do ip -n n$i link set dm$i mtu $mtu; done
    ok "MTU $mtu" all_devmem 1 "queue=3 bytes=1000000" "bytes=1000000"
    [ $mtu = 9000 ] || ok "... nearly all of it in whole pages" [ "$(value recv frags)" -lt $((1000000 / 4096 + 60)) ]
done
for_all 1 large
ok "merged packets, MTU 9000" all_devmem 1 "queue=3 bytes=1000000" "bytes=1000000"
for i in 0 1; do ip -n n$i link set dm$i mtu 1500; done
ok "merged packets, MTU 1500" all_devmem 1 "queue=3 bytes=1000000" "bytes=1000000"
ok "... in whole pages" [ "$(value recv frags)" -lt 500 ]
for_all 0 large

# Data that steering does not direct to the bound queue also arrives correctly, but in ordinary memory.
probe1 nic dm1 unrule=0
ok "without its rule a flow" transfer 1 "queue=3 bytes=1000000" "bytes=1000000"
ok "... arrives as ordinary data" [ "$(value recv plain)" = 1000000 ]
probe1 nic dm1 ntuple=off
ok "without ntuple all rules are gone" sh -c '! ip netns exec n1 dmnic_probe nic dm1 rules | grep .'
ok "... and none can be made" says 'not supported' probe1 nic dm1 rule=4:5000:3
probe1 nic dm1 ntuple=on rule=4:5000:2 rss=1 >rules
ok "a rule names the queue" all_devmem 1 "queue=2 bytes=1000000" "bytes=1000000"
was=$(counter 1 "rx_pkts[0]")
ok "what has no rule goes by the indirection table" transfer 1 "bytes=1000000 port=5001" "bytes=1000000 port=5001"
ok "... which has queue 0 only" grew 1 "rx_pkts[0]" "$was" 600

ok "the module goes" down
ok "and comes again" up queues=5 pairs=2 netmem_tx=0
ok "without sending device memory" says 'not supported' probe0 bindtx dm0
ok "with a second pair" ip link show dm3
probe1 nic dm1 rule=4:5002:4 >rules
ok "and works" all_devmem 1 "queue=4 bytes=1000000 port=5002" "bytes=1000000 port=5002"
ok "and goes" down
done_testing
