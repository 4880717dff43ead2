#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests the command `hawser lab`: exit codes, messages, and the input, status and signals that exec passes on.
# tests/lab/test_lab.c tests the lab itself.
#   lab_test.sh HAWSER
set -u
hawser=$1
lab=c$$
n=0
failed=0
out=$(mktemp)
trap '"$hawser" lab down --name "$lab" 2>/dev/null; rm -f "$out"' EXIT

report() { # 0|1 WHAT
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/# /' "$out"
        failed=1
    fi
}
# exits CODE WHAT COMMAND...   stores the output in $out
exits() {
    want=$1 what=$2
    shift 2
    timeout 20 "$@" >"$out" 2>&1 </dev/null
    got=$?
    [ "$got" = "$want" ] || echo "exit $got, wanted $want" >>"$out"
    report "$([ "$got" = "$want" ]; echo $?)" "$what"
}
says() { # TEXT
    grep -qF -- "$1" "$out"
    report $? "says '$1'"
}

exits 2 "no action" "$hawser" lab
exits 2 "an unknown action" "$hawser" lab sideways
says "'sideways'"
exits 0 "help" "$hawser" lab --help
says "exec"
for a in up down list exec link rate; do
    exits 0 "help of $a" "$hawser" lab "$a" --help
    exits 2 "$a with an unknown option" "$hawser" lab "$a" --wobble
done
exits 2 "a bad rate" "$hawser" lab up --name "$lab" --rate 12parsecs
says "'12parsecs'"
exits 2 "too few rates" "$hawser" lab up --name "$lab" --rate 1gbit,1gbit
says "2 rates, but the number of NICs is 4"
exits 2 "too many nodes" "$hawser" lab up --name "$lab" --nodes 65
exits 2 "NICs that are no number" "$hawser" lab up --name "$lab" --nics four
exits 2 "too many numbers of NICs" "$hawser" lab up --name "$lab" --nics 1,2,3
exits 2 "a strange fabric" "$hawser" lab up --name "$lab" --fabric mesh
says "'mesh' is not a fabric: expected subnet, routed, gcp, shared-subnet or bridge"
exits 2 "names that are none" "$hawser" lab up --name "$lab" --names eth0
exits 2 "a bad delay" "$hawser" lab up --name "$lab" --delay 10
says "--delay: '10' is not a delay"
exits 2 "a bad loss" "$hawser" lab up --name "$lab" --loss 100%
exits 2 "a bad MTU" "$hawser" lab up --name "$lab" --mtu 100
exits 2 "a bad name" "$hawser" lab up --name ../x
says "'../x'"
exits 2 "exec of nothing" "$hawser" lab exec a
exits 2 "exec without a node" "$hawser" lab exec -- true
exits 2 "exec without --" "$hawser" lab exec a true
exits 2 "two names for one lab" "$hawser" lab exec --name x y/a -- true
exits 2 "link neither up nor down" "$hawser" lab link a eth0 sideways
exits 2 "link of what is no NIC" "$hawser" lab link a wlan up
exits 0 "down where nothing is" "$hawser" lab down --name "$lab"
exits 125 "exec in no lab" "$hawser" lab exec "$lab/a" -- true
says "no lab '$lab'"
exits 1 "link in no lab" "$hawser" lab link "$lab/a" eth0 up
exits 1 "list of no lab" "$hawser" lab list --name "$lab"

if ! "$hawser" lab up --name "$lab" --nics 2 --rate 1gbit,none >"$out" 2>&1; then
    if grep -q "needs root\|no rights" "$out"; then
        n=$((n + 1))
        echo "ok $n - a lab # SKIP $(cat "$out")"
    else
        report 1 "up"
    fi
    echo "1..$n"
    exit $failed
fi
exits 1 "up over it" "$hawser" lab up --name "$lab"
says "hawser lab down --name $lab"
exits 0 "list" "$hawser" lab list --name "$lab"
says "198.18.1.2"
says "1gbit"
"$hawser" lab list --json >"$out" 2>/dev/null # may also list other users' labs
python3 - "$lab" "$out" <<'END'
import json, sys
lab = [l for l in json.load(open(sys.argv[2])) if l["name"] == sys.argv[1]][0]
assert [n["name"] for n in lab["nodes"]] == ["a", "b"]
nic = lab["nodes"][1]["nics"][0]
assert nic == {"name": "eth0", "address": "198.18.0.2", "state": "up", "mtu": 1500, "rate_bits": 10**9}, nic
assert lab["nodes"][0]["nics"][1]["rate_bits"] is None
END
report $? "list --json"
exits 7 "exec passes the exit status on" "$hawser" lab exec --name "$lab" a -- sh -c 'exit 7'
exits 143 "and a signal" "$hawser" lab exec "$lab/a" -- sh -c 'kill -TERM $$'
exits 127 "a command that there is not" "$hawser" lab exec "$lab/a" -- /nonexistent/command
exits 126 "a command that is none" "$hawser" lab exec "$lab/a" -- /dev/null
exits 0 "options behind -- are the command's" "$hawser" lab exec "$lab/a" -- test -- = --
exits 125 "a node that there is not" "$hawser" lab exec "$lab/z" -- true
echo through | "$hawser" lab exec "$lab/b" -- cat >"$out" 2>&1
says "through"
# exec replaces the process with the command, so signals reach the command.
"$hawser" lab exec "$lab/b" -- sleep 60 >"$out" 2>&1 &
pid=$!
for _ in $(seq 200); do # ThreadSanitizer alone takes seconds to start on a busy machine
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sleep ] && break
    sleep 0.1
done
kill -INT "$pid" # ignored by background jobs of a shell
kill -TERM "$pid" # not HUP, which nohup makes the command ignore
wait "$pid" 2>/dev/null
report "$([ $? = 143 ]; echo $?)" "a signal reaches the command"
exits 0 "link down" "$hawser" lab link "$lab/a" eth1 down
exits 0 "list" "$hawser" lab list --name "$lab"
says "no-carrier"
exits 0 "link up" "$hawser" lab link --name "$lab" a 1 up
exits 0 "rate" "$hawser" lab rate "$lab/b" eth1 1.5gbit
exits 0 "list" "$hawser" lab list --name "$lab"
says "1.5gbit"
exits 1 "a NIC that there is not" "$hawser" lab link "$lab/a" eth7 up
# Test `hawser doctor` with a pair of nodes, over each NIC and in both directions.
served=$(mktemp)
"$hawser" lab exec "$lab/b" -- "$hawser" serve >"$served" 2>&1 &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    grep -q "serves on" "$served" && break
    sleep 0.2
done
exits 0 "doctor of two nodes" "$hawser" lab exec "$lab/a" -- "$hawser" doctor 198.18.0.2
says "PASS  pair.nics         2 on each node"
says "PASS  pair.forward      eth0 -> eth0, eth1 -> eth1: connected"
says "PASS  pair.reverse      eth0 <- eth0, eth1 <- eth1: connected"
says "PASS  pair.path-mtu     eth0 -> eth0, eth1 -> eth1: 1500, and 128 KiB arrived in both directions"
# Lose large packets only from b to a: tbf drops packets that are larger than its burst.
"$hawser" lab exec "$lab/b" -- tc qdisc replace dev eth1 root tbf rate 1gbit burst 600 latency 50ms
exits 1 "doctor where one direction loses large packets" "$hawser" lab exec "$lab/a" -- "$hawser" doctor 198.18.0.2
says "FAIL  pair.path-mtu     eth1 -> eth1: a connection from the peer was established, but 128 KiB did not arrive within 3 s"
"$hawser" lab exec "$lab/b" -- tc qdisc del dev eth1 root
"$hawser" lab link "$lab/b" eth1 down
exits 0 "doctor with a NIC down there" "$hawser" lab exec "$lab/a" -- "$hawser" doctor 198.18.0.2
says "WARN  pair.nics         here eth1: not used, because no NIC of the other node that is up is in its subnet"
kill "$pid"
wait "$pid" 2>/dev/null
rm -f "$served"
exits 0 "down" "$hawser" lab down --name "$lab"
exits 0 "down again" "$hawser" lab down --name "$lab"
exits 1 "list of it" "$hawser" lab list --name "$lab"
echo "1..$n"
exit $failed
