# SPDX-License-Identifier: Apache-2.0
# Shared by the tests of lab/dmnic. Creates two namespaces with a card each, runs transfers, and checks their results.
# dm0 is in namespace n0 with the addresses 10.9.0.1 and fd00:9::1; dm1 is in n1 with .2 and ::2. Queue 3 of each card
# is outside RSS and receives port 5000.
. /tap.sh
logs="recv send"
knobs=/sys/module/dmnic/parameters

in0() { ip netns exec n0 "$@"; }
in1() { ip netns exec n1 "$@"; }
probe0() { in0 dmnic_probe "$@"; }
probe1() { in1 dmnic_probe "$@"; }

address() { # N: brings card N up in its namespace
    ip -n "n$1" addr add "10.9.0.$(($1 + 1))/24" dev "dm$1" && ip -n "n$1" addr add "fd00:9::$(($1 + 1))/64" dev "dm$1" nodad &&
        ip -n "n$1" link set "dm$1" up
}
up() { # MODULE PARAMETERS...
    insmod /dmnic.ko "$@" || return 1
    for i in 0 1; do
        ip netns add n$i && ip link set dm$i netns n$i && ip -n n$i link set lo up && address $i || return 1
        ip netns exec n$i dmnic_probe nic dm$i split=on ntuple=on rss=3 rule=4:5000:3 rule=6:5000:3 >rules || return 1
    done
}
# Removes everything, and checks that no card, no page pool waiting for its pages, and no module is left.
down() {
    rmmod dmnic && ip netns del n0 && ip netns del n1 && within 60 no_pools
}
no_pools() { dmnic_probe pools net | grep -q '^pools=0 '; }

value() { sed -n "s/.*\b$2=\([0-9]*\).*/\1/p" "$1" | tail -n 1; }
counter() { ip netns exec "n$1" dmnic_probe stat "dm$1" "$2"; }
grew() { # N COUNTER BEFORE LEAST
    now=$(counter "$1" "$2")
    echo "$2 of dm$1: $3, then $now"
    [ $((now - $3)) -ge "$4" ]
}
for_all() { # VALUE PARAMETER...
    v=$1
    shift
    for k in "$@"; do echo "$v" >"$knobs/$k"; done
}

# Starts a receiver in namespace TO and sets $receiver to its pid. Options are lists of words.
start() { # TO RECV-OPTIONS
    to=$1
    : >recv
    : >send
    # shellcheck disable=SC2086 # a list; if a name occurs twice, its first value counts
    ip netns exec "n$to" dmnic_probe recv "dm$to" $2 port=5000 seed=$$ >>recv 2>&1 &
    receiver=$!
    within 60 grep -q 'ready\|dmnic_probe' recv && grep -q ready recv
}
push_start() { # SEND-OPTIONS: sends to the receiver that start() started; sets $sender to the pid
    # shellcheck disable=SC2086
    ip netns exec "n$((1 - to))" dmnic_probe send ${host-10.9.0.$((to + 1))} $1 port=5000 seed=$$ >send 2>&1 &
    sender=$!
}
both_end() { # both ends succeed; kills the receiver if the sender has failed
    wait "$sender"
    sent=$?
    [ $sent = 0 ] || kill "$receiver" 2>/dev/null
    wait "$receiver" && [ $sent = 0 ]
}
# Runs a complete transfer. With dev=dm0 or dev=dm1 among SEND-OPTIONS, the data is sent from bound memory.
transfer() { # TO RECV-OPTIONS SEND-OPTIONS
    start "$1" "$2" && push_start "$3" && both_end
}
# Like transfer, and checks that all data arrived in bound memory.
all_devmem() {
    transfer "$@" && [ "$(value recv devmem)" = "$(value recv got)" ] && [ "$(value recv plain)" = 0 ]
}
# Starts a long transfer, and returns when packets are arriving.
busy() { # TO RECV-OPTIONS SEND-OPTIONS
    was=$(counter "$1" "rx_pkts[3]")
    start "$1" "queue=3 $2" && push_start "$3" && within 60 grew "$1" "rx_pkts[3]" "$was" 200 >/dev/null
}
