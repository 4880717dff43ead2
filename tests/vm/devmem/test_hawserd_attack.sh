#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests attacks on hawserd that depend on the kernel: ends of connections and held ports, file descriptors on which system
# calls block, what a process may do behind hawserd's filters, random messages and file descriptors while hawserd is killed.
# Their cards are those of the tests; test_hawserd.sh has attacks with those of lab/dmnic.
# vm: kernels 7
# vm: programs BUILD/helper/hawserd BUILD/tests/helper/test_hawserd_ends BUILD/tests/helper/test_hawserd_guard
# vm: programs BUILD/tests/helper/test_hawserd_hang BUILD/tests/helper/test_hawserd_program ip
# vm: programs BUILD/tests/helper/test_hawserd_attack BUILD/tests/helper/test_hawserd_state BUILD/tests/helper/test_hawserd_storm
# vm: files tests/vm/tap.sh:/tap.sh
# vm: modules tcp_diag? fuse
# vm: timeout 400
. /tap.sh

whole() { # PROGRAM...: all of it, with nothing skipped
    "$@" >/tmp/whole.out 2>&1
    status=$?
    grep -v '^ok [0-9]* - [^#]*$' /tmp/whole.out
    [ $status = 0 ] && ! grep -q '# SKIP' /tmp/whole.out
}
echo 'nobody:x:65534:65534::/:/bin/false' >>/etc/passwd
ok "ends of connections" whole test_hawserd_ends
ok "descriptors that hang" whole test_hawserd_hang "$(command -v hawserd)"
ok "what is given up" whole test_hawserd_guard
ok "messages, descriptors and users at random" whole test_hawserd_attack 4
ok "victims whose ports were attackers'" whole test_hawserd_storm 5
ok "each call of the kernel's fails, and hawserd is killed at each" whole test_hawserd_state
ok "the program" whole test_hawserd_program "$(command -v hawserd)"
done_testing
