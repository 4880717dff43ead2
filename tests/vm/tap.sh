# SPDX-License-Identifier: Apache-2.0
# Shared by the tests in guests: TAP output and waiting. $logs lists files that are shown after a failure.
cd /tmp || exit 1
tests=0 failed=0 logs=
kernel=$(uname -r)

ok() { # TEXT COMMAND...
    tests=$((tests + 1))
    text=$1
    shift
    if "$@" >/tmp/ok.out 2>&1; then
        echo "ok $tests - $text"
    else
        failed=1
        echo "not ok $tests - $text"
        sed 's/^/# /' /tmp/ok.out
        for f in $logs; do [ ! -s $f ] || sed "s/^/# $f: /" $f; done
    fi
}

skip() { # TEXT WHY
    tests=$((tests + 1))
    echo "ok $tests - $1 # SKIP $2"
}

done_testing() {
    echo "1..$tests"
    exit $failed
}

refused() { ! "$@"; }
says() { # WHAT COMMAND...: the command fails, and its output contains WHAT
    what=$1
    shift
    if "$@" >/tmp/says.out 2>&1; then return 1; fi
    cat /tmp/says.out
    grep -q "$what" /tmp/says.out
}
within() { # SECONDS COMMAND...: repeats the command until it succeeds, in ten attempts per second, 0.1 s apart
    left=$(($1 * 10))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}
