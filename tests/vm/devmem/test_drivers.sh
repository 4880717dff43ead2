#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests hawserd, plan and doctor with cards that behave like gve, mlx5, bnxt and fbnic (dmnic's like= parameter). One
# load of the module creates all four. Queues can be bound whatever rules exist, data arrives in the queues, and
# afterwards the card is restored, so an XDP program can be attached.
# vm: programs ip ethtool BUILD/hawser BUILD/helper/hawserd BUILD/tests/vm/hawserd_client BUILD/tests/vm/dmnic_probe BUILD/tests/vm/xdp_hold
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/devmem/dmnic.sh:/dmnic.sh
# vm: modules tcp_diag?
# vm: build-module lab/dmnic
# vm: timeout 150
. /dmnic.sh

sock=/tmp/hawserd.sock
state=/tmp/hawserd.state
case $kernel in 6.12.*) new=false ;; *) new=true ;; esac

client() { in1 hawserd_client $sock "$@"; }
prints() { # WHAT COMMAND...
    what=$1
    shift
    "$@" >/tmp/prints.out 2>&1
    cat /tmp/prints.out
    grep -q -- "$what" /tmp/prints.out
}
card() { in1 ethtool -x "$dm" && in1 ethtool -n "$dm" && in1 hawser devmem status --state /tmp/none --json "$dm" | sed 's/"hawserd":[^,]*,//'; }
as_before() {
    card >/tmp/card.now 2>&1
    diff /tmp/card.was /tmp/card.now
}
is_now() { # TEXT: the status in JSON contains TEXT
    in1 hawser devmem status --state /tmp/none --json "$dm" | tr -d ' \n' >/tmp/is_now.out
    cat /tmp/is_now.out
    grep -q "$1" /tmp/is_now.out
}
serve() {
    ip netns exec n1 hawserd --socket $sock --state $state -v >>/tmp/hawserd.log 2>&1 &
    hawserd=$!
    within 20 answers
}
answers() { ! client | grep -q 'ENOENT\|ECONNREFUSED'; }
start_client() { # STEPS...: starts a client that keeps running
    : >/tmp/client
    ip netns exec n1 hawserd_client $sock "$@" wait >/tmp/client 2>&1 &
    client=$!
    within 30 grep -q ready /tmp/client
}
shows() { grep -q "$1" /tmp/client || { cat /tmp/client; return 1; }; }
end_client() {
    kill -KILL "$client"
    wait "$client"
    true
}
xdp() { # [frags]: attaches an XDP program, which remains attached until unxdp
    : >/tmp/xdp
    ip netns exec n1 xdp_hold "$dm" "$@" >/tmp/xdp 2>&1 &
    xdp=$!
    within 20 grep -q 'attached\|refused\|no program' /tmp/xdp
    cat /tmp/xdp
    grep -q attached /tmp/xdp
}
unxdp() { # restores rx-gro-hw, which the kernel turned off for the XDP program (dev_disable_gro_hw(), net/core/dev.c)
    kill "$xdp"
    wait "$xdp"
    [ "$like" != bnxt ] || in1 ethtool -K "$dm" rx-gro-hw on
}
grown() { [ "$(in1 dmnic_probe stat "$dm" 'rx_devmem_bytes')" -gt $(($1 + 20000)) ]; }

likes="gve mlx5 bnxt fbnic"
insmod /dmnic.ko queues=4 pairs=4 like="$(echo $likes | tr ' ' ,)"
ip netns add n0 && ip netns add n1 && ip -n n0 link set lo up && ip -n n1 link set lo up
ok "a name that is no driver's" refused insmod /dmnic.ko like=e1000
pair=0
servers=
for like in $likes; do
    for i in 0 1; do
        d=dm$((2 * pair + i))
        ip link set $d netns n$i && ip -n n$i addr add 10.9.$pair.$((i + 1))/24 dev $d && ip -n n$i link set $d mtu 4148 up
    done
    ip netns exec n0 hawserd_client - serve:10.9.$pair.1:6000:300000 >/tmp/server.$pair 2>&1 &
    servers="$servers $!"
    pair=$((pair + 1))
done
ok "hawserd comes up" serve
in1 hawser doctor --only nic >/tmp/doctor 2>&1
sed 's/^/# /' /tmp/doctor | grep 'gro-hw\|buf-len\|header-split'
ok "doctor: gve's receive buffers" grep -q 'WARN  nic.rx-buf-len  *dm1: 2048 bytes: packets of the NIC.s MTU, 4148' /tmp/doctor
ok "doctor: mlx5 wants rx-gro-hw" grep -q 'WARN  nic.gro-hw  *dm3: off' /tmp/doctor
ok "doctor: gve and mlx5 do not split headers yet" grep -q 'WARN  nic.header-split  *dm1, dm3: off' /tmp/doctor
if $new; then
    ok "doctor: bnxt says that it does, and hds-thresh" grep -q 'WARN  nic.header-split  *dm5: on, but.* 640 bytes' /tmp/doctor
    ok "doctor: fbnic too" grep -q 'WARN  nic.header-split  *dm7: on, but.* 1506 bytes' /tmp/doctor
else
    ok "doctor: bnxt and fbnic say that they do" grep -q 'PASS  nic.header-split  *dm5, dm7: on' /tmp/doctor
fi

# Binds and releases memory with the card's current settings. HOW describes the settings in test names.
bound_and_back() { # HOW
    card >/tmp/card.was 2>&1
    ok "$like, $1: a queue is bound" prints '^rx [0-9]* [0-9]* 2$' client rx:"$dm":4194304:1
    ok "$like, $1: all is as it was" within 10 as_before
}

pair=0
for like in $likes; do
    dm=dm$((2 * pair + 1))
    ok "$like: the driver is named so" prints "^driver: $like" in1 ethtool -i $dm
    # foreign rules, the first at location 0, because unfilled entries of a list would read as 0
    in1 ethtool -K $dm ntuple on
    for port in 7001 7002 7003; do
        in1 ethtool -N $dm flow-type tcp4 dst-port $port action 3 loc $((7 * (port - 7001)))
    done
    card >/tmp/card.was 2>&1
    ok "$like: status counts the rules" grep -q '"rules":3,' /tmp/card.was
    case $like in
    gve) what='rx-buf-len: hawserd sets it to 4096 (now 2048)' ;;
    mlx5) what='rx-gro-hw: hawserd turns it on' ;;
    *) what='header split: \(hawserd sets it with hds-thresh 0\|on according to the driver\)' ;;
    esac
    ok "$like: plan says what would be changed" prints "$what" in1 hawser devmem plan $dm

    was=$(in1 dmnic_probe stat $dm rx_devmem_bytes)
    ok "$like: a queue is bound, a connection steered" start_client rx:$dm:4194304:1 connect:10.9.$pair.1:6000 steer ask
    ok "$like: it is that which no rule leads to" shows '^rx [0-9]* [0-9]* 2$'
    ok "$like: and the rule leads there" shows '^steer [0-9]* 2$'
    ok "$like: bytes come into bound memory" within 30 grown "$was"
    case $like in
    gve) ok "gve: receive buffers are pages meanwhile" is_now '"rx_buf_len":4096' ;;
    mlx5)
        ok "mlx5: rx-gro-hw is on meanwhile" is_now '"rx_gro_hw":true'
        ok "mlx5: and the journal has it" grep -q '^gro-hw$' $state
        ;;
    esac
    end_client
    ok "$like: all is as it was" within 10 as_before
    ok "$like: an XDP program for single buffers may come" xdp
    $new && ok "$like: and keeps memory away: it is named" prints 'rx E[A-Z]* .*XDP' client rx:$dm:1048576:1
    unxdp
    if $new; then
        xdp frags
        ok "$like: one for several does, too: EEXIST names it" prints 'rx EEXIST .*XDP program' client rx:$dm:1048576:1
        unxdp
    fi
    case $new,$like in
    true,mlx5 | true,bnxt) ok "$like: pieces of 16 KiB" prints 'piece=16384$' client piece:16384 rx:$dm:1048576:1 ;;
    *) ok "$like: pieces of 16 KiB are pages" prints 'piece=0$' client piece:16384 rx:$dm:1048576:1 ;;
    esac
    ok "$like: all is as it was" within 10 as_before

    case $like in
    mlx5)
        in1 ethtool -K $dm rx-gro-hw on
        bound_and_back "rx-gro-hw on"
        ;;
    bnxt)
        in1 ethtool -K $dm rx-gro-hw off
        ok "bnxt: without rx-gro-hw it reports no header split" is_now '"header_split":"off"'
        bound_and_back "rx-gro-hw off"
        ;;
    gve | fbnic) # an operator set these for other programs, so hawserd must not undo them
        [ $like = gve ] || ! $new || in1 dmnic_probe nic $dm thresh=0
        in1 dmnic_probe nic $dm split=on
        bound_and_back "configured before"
        $new && ok "$like: what was configured before is still" refused xdp
        in1 dmnic_probe nic $dm split=auto
        ;;
    esac
    ok "$like: memory is bound" start_client rx:$dm:1048576:1
    pair=$((pair + 1))
    [ $pair = 4 ] || kill -KILL $client
done
kill -KILL $hawserd
wait $hawserd
ok "hawserd is killed" within 30 grep -q gone /tmp/client
ok "undo takes all back" in1 hawser devmem undo --state $state
for dm in dm3 dm5 dm7; do
    ok "$dm: an XDP program may come" xdp
    unxdp
done
# shellcheck disable=SC2086 # a list
kill $servers
rmmod dmnic
ip netns del n0
ip netns del n1
ok "no page pool is left" within 20 no_pools
[ $failed = 0 ] || sed 's/^/# hawserd: /' /tmp/hawserd.log
done_testing
