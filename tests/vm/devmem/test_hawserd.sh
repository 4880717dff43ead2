#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests hawserd with the simulated card and the kernel's own devmem path: binding, steering, invalid requests, and the
# state that killed clients and daemons leave behind. The card's state is compared as ethtool shows it.
# vm: programs ip ethtool setpriv BUILD/hawser BUILD/helper/hawserd BUILD/tests/vm/hawserd_client BUILD/tests/vm/dmnic_probe
# vm: files tests/vm/tap.sh:/tap.sh tests/vm/devmem/dmnic.sh:/dmnic.sh
# vm: modules tcp_diag?
# vm: build-module lab/dmnic
# vm: timeout 500
. /dmnic.sh

sock=/tmp/hawserd.sock
state=/tmp/hawserd.state

client() { in1 hawserd_client $sock "$@"; }
as_nobody() { # COMMAND...: runs the command in n1 as user 65534
    in1 sh -c 'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"' - "$@"
}
# Prints the card's state as an operator sees it: first RSS and rules, then the state that hawser reads, because the
# ethtool of Debian 12 does not show hds-thresh.
card() {
    in1 ethtool -x dm1 && in1 ethtool -n dm1 &&
        in1 hawser devmem status --state /tmp/none --json dm1 | sed 's/"hawserd":[^,]*,//'
}
# Each query takes a while, so the twenty attempts of "within 2" allow enough time.
as_before() {
    card >/tmp/card.now 2>&1
    diff /tmp/card.was /tmp/card.now
}
serve() { # OPTIONS
    # not through in1, which runs in another shell process: $! has to be the process id of hawserd
    ip netns exec n1 hawserd --socket $sock --state $state -v "$@" >>/tmp/hawserd.log 2>&1 &
    hawserd=$!
    within 20 answers
}
answers() { ! client | grep -q 'ENOENT\|ECONNREFUSED'; }
unserve() {
    kill "$hawserd" && wait "$hawserd"
}
start_client() { # STEPS...: starts a client that keeps running
    : >/tmp/client
    ip netns exec n1 hawserd_client $sock "$@" wait >/tmp/client 2>&1 &
    client=$!
    within 30 grep -q ready /tmp/client
}
end_client() {
    kill -KILL "$client"
    wait "$client"
    true
}
prints() { # WHAT COMMAND...
    what=$1
    shift
    "$@" >/tmp/prints.out 2>&1
    cat /tmp/prints.out
    grep -q "$what" /tmp/prints.out
}
shows() { grep -q "$1" /tmp/client || { cat /tmp/client; return 1; }; }
bound() { in1 hawser devmem status --state /tmp/none --json dm1 | grep -o '"queue":[0-9]*' | tr -d '\n'; }
uses() { # QUEUES: ordinary traffic uses exactly these queues
    in1 ethtool -x dm1 >/tmp/uses.out
    cat /tmp/uses.out
    [ "$(sed -n 's/^  *[0-9]*: *//p' /tmp/uses.out | tr -s ' \n' '\n' | grep . | sort -un | tr '\n' ' ')" = "$1 " ]
}

insmod /dmnic.ko queues=8
for i in 0 1; do
    ip netns add n$i && ip link set dm$i netns n$i && ip -n n$i link set lo up && address $i
done
in0 dmnic_probe nic dm0 split=off
card >/tmp/card.was 2>&1
cat /tmp/card.was | sed 's/^/# /'

# ---- plan and status, without hawserd
ok "plan says what would be" prints 'removed from RSS: 7, 6' in1 hawser devmem plan --queues 2 dm1
ok "and that header split would be turned on" grep -q 'header split: hawserd turns it on' /tmp/prints.out
ok "planning changes nothing" as_before
ok "plan is hindered where the policy forbids" says 'obstacle' in1 hawser devmem plan --queues 9 dm1
case $kernel in
6.12.*) ok "status: this kernel receives only" prints 'but not for sending' in1 hawser devmem status ;;
*) ok "status: this kernel receives and sends" prints 'for receiving and for sending' in1 hawser devmem status ;;
esac
ok "a client where no daemon is" prints 'start hawserd\|systemctl start' client

# ---- binding and steering
ok "hawserd comes up" serve
ok "it has one capability" sh -c "grep -q 'CapEff:.*0000000000001000' /proc/$hawserd/status"
ok "and a filter" grep -q 'Seccomp:.*2' /proc/$hawserd/status
ok "two queues are bound" start_client rx:dm1:4194304:2
ok "the two highest" shows '^rx 1 [0-9]* 7,6$'
ok "the kernel says so too" [ "$(bound)" = '"queue":6"queue":7' ]
ok "ordinary traffic uses the others" uses "0 1 2 3 4 5"
ok "status names hawserd" prints '7: dma-buf [0-9]* by hawserd' in1 hawser devmem status --state $state dm1
ok "ordinary traffic works" in0 ping -c 3 -W 10 10.9.0.2
ok "undo refuses while it lives" says 'is already running (process ID' in1 hawser devmem undo --state $state
ok "a second hawserd too" says 'is already running (process ID' in1 hawserd --socket /tmp/other --state $state
ok "another client cannot have more than there is" prints 'rx EBUSY dm1: 6 queues requested, 5 available' client rx:dm1:1048576:6
ok "but the rest" prints '^rx [0-9]* [0-9]* 5,4,3$' client rx:dm1:1048576:3
ok "which then is free again" prints '^rx [0-9]* [0-9]* 5$' client rx:dm1:1048576:1
end_client
ok "the killed client's queues go back, and all is as it was" within 2 as_before

# ---- steered data arrives in the queue
ip netns exec n0 hawserd_client - serve:10.9.0.1:6000:300000 >/tmp/server 2>&1 &
server=$!
ip netns exec n1 hawserd_client - serve:10.9.0.2:6000:1 >/tmp/server1 2>&1 &
server1=$!
within 20 grep -q ready /tmp/server
within 20 grep -q ready /tmp/server1
was7=$(counter 1 "rx_devmem_bytes[7]")
ok "a connection is steered" start_client rx:dm1:4194304:1 connect:10.9.0.1:6000 steer ask
ok "to the binding's queue" shows '^steer [0-9]* 7$'
ok "there is a rule" prints 'Total 1 rules' in1 ethtool -n dm1
ok "its bytes come into bound memory" within 30 grew 1 "rx_devmem_bytes[7]" "$was7" 20000
end_client
ok "rule and binding are gone" within 10 as_before # the kernel checks once a second whether a pool has all pages back
ok "a connection that ends" start_client rx:dm1:4194304:1 connect:10.9.0.1:6000 steer close
ok "takes its rule along" within 10 prints 'Total 0 rules' in1 ethtool -n dm1
end_client
# ---- connections that end while they are steered, but whose sockets remain: another user may reuse the ports
ok "a connection that is dissolved" start_client rx:dm1:4194304:1 connect:10.9.0.1:6000 steer dissolve
ok "takes its rule along, though its socket stays" within 10 prints 'Total 0 rules' in1 ethtool -n dm1
end_client
ok "20 that are dissolved while they are steered" start_client rx:dm1:4194304:1 race:10.9.0.1:6000:20
ok "some in time for a rule, some not" shows '^race [1-9][0-9]* [0-9]*$'
ok "no rule stays" within 10 prints 'Total 0 rules' in1 ethtool -n dm1
ok "and the journal has none" refused grep '^rule' $state
end_client
# ---- stopped clients keep their queues and do not delay other clients
ok "a client that is stopped" start_client rx:dm1:4194304:2
kill -STOP "$client"
ok "another one is served" prints '^rx [0-9]* [0-9]* 5$' client rx:dm1:1048576:1
kill -CONT "$client"
end_client
ok "and all is as it was" within 2 as_before
ok "a rule can be released alone" prints 'release 0' client rx:dm1:1048576:1 connect:10.9.0.1:6000 steer release steer
ok "one connection has one rule" prints 'steer EEXIST' client rx:dm1:1048576:1 connect:10.9.0.1:6000 steer steer
ok "an end on this machine is refused" prints 'steer EINVAL both ends' client rx:dm1:1048576:1 connect:10.9.0.2:6000 steer
ok "and all is as it was" within 2 as_before

# ---- unsuitable memory
ok "a memfd is no dma-buf" prints 'rx EBADF' client memfd:dm1:65536
ok "one page for two queues" prints 'rx EINVAL the dma-buf has 4096 bytes' client rx:dm1:4096:2
ok "a NIC that is not there" prints 'rx ENODEV' client rx:eth9:65536:1
# an unknown name, for which the kernel would otherwise load a module on behalf of hawserd
modprobe_was=$(cat /proc/sys/kernel/modprobe)
printf '#!/bin/sh\necho "$@" >>/tmp/modprobe.log\n' >/tmp/modprobe
chmod +x /tmp/modprobe
echo /tmp/modprobe >/proc/sys/kernel/modprobe
in1 ifconfig no-such-1 >/tmp/modprobe.out 2>&1
ok "what asks for such a module is seen" within 5 grep -q netdev-no-such-1 /tmp/modprobe.log
rm -f /tmp/modprobe.log
ok "a NIC that is named as a module is" prints 'rx ENODEV' client rx:no-such-2:65536:1 tx:no-such-3:65536
ok "no module is asked for" [ ! -s /tmp/modprobe.log ]
echo "$modprobe_was" >/proc/sys/kernel/modprobe
in1 ip link property add dev dm1 altname another
ok "another name of a NIC" prints 'rx ENODEV another is an alternative name of NIC dm1' client rx:another:65536:1
in1 ip link property del dev dm1 altname another
ok "a NIC that cannot" prints 'rx EOPNOTSUPP\|rx EBUSY\|rx EINVAL' client rx:lo:65536:1
case $kernel in
6.12.*) ok "sending is not for this kernel" prints 'tx EOPNOTSUPP' client tx:dm1:65536 ;;
*) ok "binding for sending" prints '^tx [0-9]* [0-9]* $' client tx:dm1:65536 ;;
esac
ip -n n1 link set dm1 down
ok "a NIC that is down" prints 'rx ENETDOWN' client rx:dm1:65536:1
ip -n n1 link set dm1 up && ip -n n1 addr replace fd00:9::2/64 dev dm1 nodad
ok "all is as it was" within 2 as_before

# ---- four at once
many=
for i in 1 2 3 4; do
    ip netns exec n1 hawserd_client $sock rx:dm1:1048576:3 wait >/tmp/many.$i 2>&1 &
    many="$many $!"
done
within 30 sh -c '[ $(cat /tmp/many.* | grep -c ready) = 4 ]'
ok "of four that ask for three queues of eight, two get them" [ "$(cat /tmp/many.* | grep -c '^rx [0-9]')" = 2 ]
ok "the others are told" [ "$(cat /tmp/many.* | grep -c '^rx EBUSY')" = 2 ]
ok "no queue is had twice" [ "$(sed -n 's/^rx [0-9]* [0-9]* //p' /tmp/many.* | tr , '\n' | sort | uniq -d | wc -l)" = 0 ]
# shellcheck disable=SC2086 # a list
kill -KILL $many
ok "all is as it was" within 2 as_before

# ---- the daemon is killed
ok "a client holds queues and a rule" start_client rx:dm1:4194304:3 connect:10.9.0.1:6000 steer
kill -KILL $hawserd
wait $hawserd
ok "hawserd is killed, and its client learns it" within 30 grep -q gone /tmp/client
ok "the kernel has dropped the binding" within 30 sh -c '[ -z "$1" ]' - "$(bound)"
ok "RSS and the rule are still as hawserd left them" refused as_before
ok "status points that out" prints 'hawser devmem undo' in1 hawser devmem status --state $state
ok "undo takes it back" in1 hawser devmem undo --state $state
ok "all is as it was" as_before
ok "undoing once more is nothing" in1 hawser devmem undo --state $state

ok "hawserd comes up" serve
ok "a client holds queues" start_client rx:dm1:4194304:3
kill -KILL $hawserd
wait $hawserd
ok "killed again, the next one undoes it at its start" serve
ok "all is as it was" within 2 as_before

# ---- an RSS table set by an operator, and a queue bound by another process
unserve
in1 ethtool -X dm1 equal 5
in1 ethtool -K dm1 ntuple on
in1 dmnic_probe nic dm1 split=on rule=4:7777:2 >/dev/null
card >/tmp/card.was 2>&1
ok "hawserd comes up" serve
ok "queues that are out of RSS come first" start_client rx:dm1:4194304:3
ok "they do" shows '^rx 1 [0-9]* 7,6,5$'
ok "and RSS is not touched" uses "0 1 2 3 4"
ok "a queue that a rule leads to is left alone" prints '^rx [0-9]* [0-9]* 4,3,1$' client rx:dm1:1048576:3
end_client
ok "all is as it was" within 2 as_before
unserve

# ---- policy
mkdir -p /etc
echo 'nobody:x:65534:65534::/:/bin/false' >>/etc/passwd
chmod 666 /dev/udmabuf
mkdir -p /tmp/nobody && chown 65534 /tmp/nobody
state=/tmp/nobody/state
cat >/tmp/policy <<'END'
[user 65534]
nics = dm1
queues = 4-5
max-rules = 1
END
ok "hawserd with a policy, as another user" serve --policy /tmp/policy --user nobody
ok "root is not in it" prints 'open EACCES' client
ok "its user gets what it says" prints '^rx [0-9]* [0-9]* 5,4$' as_nobody hawserd_client $sock rx:dm1:1048576:2
ok "and no more" prints 'rx EBUSY.*not allowed by the policy' as_nobody hawserd_client $sock rx:dm1:1048576:3
: >/tmp/client
as_nobody hawserd_client $sock rx:dm1:1048576:2 wait >/tmp/client 2>&1 &
client=$!
ok "it holds queues" within 30 grep -q ready /tmp/client
kill -KILL $hawserd
wait $hawserd
wait $client
ok "hawserd of that user is killed, and root undoes what it left" in1 hawser devmem undo --state $state
ok "the journal is that user's still" [ "$(stat -c %u $state $state.lock | tr '\n' ' ')" = "65534 65534 " ]
ok "and its next hawserd takes it" serve --policy /tmp/policy --user nobody
unserve
state=/tmp/hawserd.state
ok "all is as it was" within 2 as_before

ok "hawserd comes up once more" serve
ok "a client of another network namespace is refused" prints 'open EXDEV' in0 hawserd_client $sock
ok "a client that holds queues" start_client rx:dm1:4194304:2 connect:10.9.0.1:6000 steer ask
ok "the card goes while they are bound" rmmod dmnic
end_client
ok "hawserd lives on" prints 'rx ENODEV' client rx:dm1:65536:1
ok "and ends well" unserve
ok "its journal is empty" sh -c '! grep -q nic /tmp/hawserd.state'
kill "$server" "$server1"
ip netns del n0
ip netns del n1
ok "no page pool is left" within 20 no_pools
grep -q error /tmp/hawserd.log && sed 's/^/# hawserd: /' /tmp/hawserd.log
done_testing
