#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs as a unit of a booted Debian that has packages in /packages: installs the packages; starts, reloads, restarts and
# stops hawser's units; then upgrades, removes and purges the packages. Prints "ok - ..." or "not ok - ..." for each
# check.
set -u
apt="apt-get -q -y --no-install-recommends -o APT::Sandbox::User=root"

ok() { # WHAT COMMAND...
    what=$1
    shift
    if out=$("$@" 2>&1); then
        echo "ok - $what"
    else
        echo "not ok - $what"
        printf '%s\n' "$out" | tail -n 30 | sed 's/^/# /'
    fi
}
fails() { ! "$@"; }
is() { test "$1" = "$2" || { echo "$1, not $2"; return 1; }; }
says() { # TEXT COMMAND...: the output contains TEXT in one of up to ten attempts, 1 s apart
    text=$1
    shift
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$@" 2>&1 | grep -qF -- "$text" && return
        sleep 1
    done
    "$@" | tail -n 20
    return 1
}
pid() { systemctl show -P MainPID "$1"; }
logged() { journalctl -q -u "$1" --no-pager -o cat; }
failed() { systemctl list-units --failed --no-legend --plain; }

ok "installs" sh -c "$apt install /packages/first/*.deb"
ok "systemd finds no fault in the units" systemd-analyze --man=no verify hawserd.service hawser-verbs.service

ok "hawserd is enabled" systemctl is-enabled hawserd
ok "hawserd is running" systemctl is-active hawserd
ok "hawserd's user is there" getent passwd hawserd
ok "hawserd runs as that user" is "$(ps -o user= -p "$(pid hawserd)")" hawserd
ok "hawserd has CAP_NET_ADMIN alone" grep -q '^CapEff:\s*0000000000001000$' "/proc/$(pid hawserd)/status"
ok "hawserd's socket is there" test -S /run/hawser/hawserd.sock
ok "hawserd is seen by the command" sh -c 'hawser devmem status | grep "^hawserd: process"'
# For a file descriptor that is not a dma-buf, hawserd itself returns an error.
ok "hawserd answers root" says "is not a dma-buf" /packages/hawserd_client /run/hawser/hawserd.sock memfd:lo:4096
ok "hawserd refuses others, who are not in its policy" says "policy" setpriv --reuid=65534 --regid=65534 --clear-groups /packages/hawserd_client /run/hawser/hawserd.sock memfd:lo:4096
before=$(pid hawserd)
ok "hawserd restarts" systemctl restart hawserd
ok "as another process" fails is "$(pid hawserd)" "$before"
ok "hawserd comes back where it is killed" sh -c 'systemctl kill -s KILL hawserd; for i in $(seq 50); do sleep 0.2; systemctl is-active -q hawserd && exit; done; exit 1'
ok "hawserd stops" systemctl stop hawserd
ok "and is gone" is "$(systemctl is-active hawserd)" inactive
ok "hawserd starts" systemctl start hawserd

ok "hawser-verbs is not enabled by installing" is "$(systemctl is-enabled hawser-verbs)" disabled
ok "hawser-verbs is not started by installing" is "$(systemctl is-active hawser-verbs)" inactive
ok "hawser-verbs starts" systemctl start hawser-verbs
ok "hawser-verbs is running" systemctl is-active hawser-verbs
before=$(pid hawser-verbs)
ok "hawser-verbs's socket is there" says verbs.sock ls /run/hawser
echo "mr_bytes = nonsense" >>/etc/hawser/verbs.conf
ok "hawser-verbs reloads a policy with a fault" systemctl reload hawser-verbs
ok "and says what is wrong" says "verbs.conf" logged hawser-verbs
sed -i '$d' /etc/hawser/verbs.conf
ok "hawser-verbs reloads" systemctl reload hawser-verbs
ok "as the same process" is "$(pid hawser-verbs)" "$before"

one=$(pid hawserd)
ok "an upgrade" sh -c "$apt install /packages/second/*.deb"
ok "restarts hawserd" fails is "$(pid hawserd)" "$one"
ok "which is running" systemctl is-active hawserd
ok "restarts hawser-verbs where it runs" fails is "$(pid hawser-verbs)" "$before"
ok "which is running, too" sh -c 'systemctl is-active hawser-verbs || { journalctl -q -u hawser-verbs --no-pager; exit 1; }'
ok "hawser-verbs stops" systemctl stop hawser-verbs
ok "no unit has failed" is "$(failed)" ""

systemctl start hawser-verbs
ok "removes" sh -c "$apt remove hawser hawserd hawser-verbs hawser-nccl hawser-nixl libhawser1 libhawser-dev python3-hawser"
ok "no process of hawser's is left" fails sh -c 'ps -e -o pid,args | grep -w "[h]awserd\|bin/[h]awser"'
ok "purges" sh -c "dpkg --purge hawser hawserd hawser-verbs hawser-nccl hawser-nixl libhawser1 libhawser-dev python3-hawser"
ok "no unit is left" is "$(systemctl list-unit-files --no-legend 'hawserd*' 'hawser-verbs*')" ""
ok "still no unit has failed" is "$(failed)" ""
printf '\nall units done\n'
