/* SPDX-License-Identifier: Apache-2.0 */
/* Attaches an XDP program to a NIC (generic XDP, which every NIC supports), prints "attached", and runs until it is
 * killed. The XDP program passes every packet. If the kernel refuses the XDP program, prints the reason and exits with
 * 1. For tests/vm/devmem/test_drivers.sh. */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int cmd, union bpf_attr *attr)
{
    return (int)syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

int main(int argc, char **argv)
{
    const struct bpf_insn pass[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT},
    };
    if (argc < 2)
        return 2;
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP};
    load.insns = (uintptr_t)pass;
    load.insn_cnt = 2;
    load.license = (uintptr_t) "GPL";
    load.prog_flags = argc > 2 ? BPF_F_XDP_HAS_FRAGS : 0;
    int prog = bpf(BPF_PROG_LOAD, &load);
    if (prog < 0) {
        printf("no program: %s\n", strerror(errno));
        return 1;
    }
    union bpf_attr link = {0};
    link.link_create.prog_fd = (unsigned)prog;
    link.link_create.target_ifindex = if_nametoindex(argv[1]);
    link.link_create.attach_type = BPF_XDP;
    link.link_create.flags = XDP_FLAGS_SKB_MODE;
    if (bpf(BPF_LINK_CREATE, &link) < 0) {
        printf("refused: %s\n", strerror(errno));
        return 1;
    }
    printf("attached\n");
    fflush(stdout);
    pause();
    return 0;
}
