#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tests attacks on hawserd that depend on the kernel: ended connections and held ports, file descriptors on which system
# calls block, operations that hawserd's filters must block, and random messages and file descriptors while hawserd is
# killed. These tests use their own simulated cards; test_hawserd.sh tests attacks with the cards of lab/dmnic.
# vm: kernels 7
# vm: programs BUILD/helper/hawserd BUILD/tests/helper/test_hawserd_ends BUILD/tests/helper/test_hawserd_guard
# vm: programs BUILD/tests/helper/test_hawserd_hang BUILD/tests/helper/test_hawserd_program ip
# vm: programs BUILD/tests/helper/test_hawserd_attack BUILD/tests/helper/test_hawserd_state BUILD/tests/helper/test_hawserd_storm
# vm: files tests/vm/tap.sh:/tap.sh
# vm: modules tcp_diag? fuse
# vm: timeout 600
. /tap.sh

whole() { # PROGRAM...: the program passes without skipping anything
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
