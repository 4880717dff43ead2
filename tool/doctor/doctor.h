/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser doctor`: a table of checks, each a function that examines a machine, or a pair, and reports its findings.
 *
 * Everything that a check may use is in struct dr_machine: files below a root, an environment, and recorded answers of
 * other sources (ethtool, netlink, CUDA). dr_probe() fills it from this machine; tests fill it themselves. A value that
 * could not be read is a -errno, for which a check reports SKIP with the reason, and never PASS.
 */
#ifndef HW_TOOL_DOCTOR_H
#define HW_TOOL_DOCTOR_H

#include "mem/cuda.h"
#include "net/nic.h"
#include "tool/opts.h"
#include "tool/peer/proto.h"

#include <stdio.h>
#include <sys/resource.h>

#define DR_MAX_NICS  32
#define DR_MAX_ADDRS 4
#define DR_MAX_GPUS  32
#define DR_TEXT      400

enum dr_outcome { DR_PASS, DR_WARN, DR_FAIL, DR_SKIP, DR_OUTCOMES };
enum dr_group { DR_KERNEL, DR_NIC, DR_GPU, DR_LIMITS, DR_TCPX, DR_RDMA, DR_PAIR, DR_NCCL, DR_NIXL, DR_GROUPS };

/* Values of ETHTOOL_A_RINGS_TCP_DATA_SPLIT (linux/ethtool.h). */
enum dr_split { DR_SPLIT_UNKNOWN, DR_SPLIT_OFF, DR_SPLIT_ON };

/* A NIC. int fields hold -errno if they could not be read. */
struct dr_nic {
    char name[HAWSER_NIC_NAME];
    char driver[32], version[32]; /* "": not said */
    bool physical;                /* it has a hardware device */
    bool up;                      /* administratively up */
    struct hw_nic addr[DR_MAX_ADDRS];
    int n_addrs;
    int split;              /* enum dr_split: what the driver reports */
    int thresh;             /* hds-thresh: packets up to this many bytes are not split */
    int buf_len;            /* rx-buf-len: most bytes of a packet in one buffer */
    int gro_hw;             /* rx-gro-hw: 0 off, 1 on; -EOPNOTSUPP: the driver has no such setting */
    int ntuple;             /* 0 off, 1 on */
    int rules;              /* number of flow rules */
    int queues, queues_max; /* receive queues, including combined ones */
    int rss_queues;         /* number of different queues in the indirection table */
    int rss_last;           /* the highest of them */
    int devmem_rc;          /* 0: devmem_pkts is the sum of its statistics rx_devmem_pkts*, now and a moment later */
    uint64_t devmem_pkts[2];
    uint64_t rx_pkts[2]; /* all received packets, likewise */
};

struct dr_machine {
    int root;
    const char *const *env; /* "NAME=VALUE", NULL-terminated */
    char release[65];       /* uname -r */
    char arch[65];          /* uname -m */
    struct rlimit memlock, nofile;
    int netdev_rc;       /* result of the query for the netlink family "netdev" */
    uint64_t netdev_ops; /* bit i: it has command i */
    int hawserd;         /* result of asking hawserd for admission: 0 or -errno, and the reason */
    char hawserd_why[HW_ERR_TEXT];
    struct dr_nic nic[DR_MAX_NICS];
    int n_nics;                 /* or -errno */
    char cuda_why[HW_ERR_TEXT]; /* with n_gpus < 0 */
    struct hw_gpu_info gpu[DR_MAX_GPUS];
    int n_gpus;                   /* number of the CUDA driver, or -errno */
    unsigned moment_ms;           /* between the two readings of devmem_pkts */
    const struct nccl_look *nccl; /* for group nccl; NULL: not examined */
    const struct nixl_look *nixl; /* for group nixl; NULL: not examined */
};

/* Both sides of a session, for the checks of group pair. */
#define DR_MAX_LINKS ((size_t)TP_MAX_NICS * TP_MAX_NICS)
struct dr_link {
    uint8_t here, there; /* index into facts' nic */
    bool routed;         /* no common subnet: they are reached by routes (reach_is_rail()) */
    int forward;         /* connect from here to there: 0 or -errno */
    /* from there to here: 0, -EHOSTUNREACH, -ENODATA (not tried: an older hawser), or -EBADMSG: connected, but
     * full-sized packets do not pass */
    int reverse;
    uint32_t mtu; /* of the path, as the kernel knows it; 0: unknown */
};
struct dr_pair {
    const char *peer; /* "198.18.0.2:20000" */
    int connected;    /* 0 or -errno, and why */
    int asked;        /* result of asking the peer: 0 or -errno, and the reason */
    char why[HW_ERR_TEXT];
    struct tp_facts here, there;
    bool clock;        /* offset_ns and round_trip_ns were measured */
    int64_t offset_ns; /* there minus here */
    uint64_t round_trip_ns;
    struct dr_link link[DR_MAX_LINKS];
    size_t n_links;
};

struct dr_result {
    const struct dr_check *check;
    enum dr_outcome outcome;
    char subject[48]; /* "eth1"; "" */
    char found[DR_TEXT];
    char mend[DR_TEXT]; /* a command; "" */
    char keep[DR_TEXT]; /* the remedy lasts until the next boot (or shell): how to make it permanent; "" */
};

struct dr_report {
    const struct dr_machine *m;
    const struct dr_pair *pair; /* NULL: no peer */
    const struct dr_check *now;
    struct dr_result *r;
    size_t n, cap;
    bool broken; /* no memory */
};

struct dr_check {
    const char *id; /* "nic.mtu" */
    enum dr_group group;
    const char *title;
    const char *why;
    void (*run)(struct dr_report *d);
};

extern const struct dr_check dr_checks[];
extern const size_t dr_n_checks;
const char *dr_group_name(enum dr_group g);
const char *dr_outcome_name(enum dr_outcome o);

/* Runs the checks of the groups (bit i: enum dr_group i) over m and, for DR_PAIR, pair; DR_NCCL needs m->nccl, DR_NIXL
 * m->nixl. -ENOMEM. Freed by dr_free(). */
int dr_run(struct dr_report *d, const struct dr_machine *m, const struct dr_pair *pair, unsigned groups);
void dr_free(struct dr_report *d);
size_t dr_count(const struct dr_report *d, enum dr_outcome o);
/* Prints lines: equal findings about several subjects become one. color: for a terminal. why: reasons also for passed
 * checks. */
void dr_print(FILE *out, const struct dr_report *d, bool color, bool why);
struct hw_json;
/* Writes one object, schema hawser-doctor-1; key: see sys/json.h. */
void dr_write_json(struct hw_json *j, const char *key, const struct dr_report *d);
/* Prints it alone. -EIO. */
int dr_print_json(FILE *out, const struct dr_report *d);
/* Output options of a command that runs checks. */
struct run;
struct dr_finish {
    bool json, why;
    const char *report;    /* an HTML file; NULL: none */
    const struct run *run; /* for the file; NULL: only this machine */
};
extern const struct opt dr_finish_opts[];
/* Finishes: prints the report to stdout if rc is not negative (json: as an object), else why the command cmd failed
 * (hw_error()). Frees the report. Returns the exit status: TOOL_FAILED if a check failed. */
int dr_finish(struct dr_report *d, int rc, const char *cmd, const struct dr_finish *how);

/* For checks: adds a result about subject (NULL: the machine). */
void dr_say(struct dr_report *d, enum dr_outcome o, const char *subject, const char *fmt, ...) HW_PRINTF(4, 5);
/* Adds the remedy's command to the last result. If the command does not survive a boot and dr_keep_of() knows it, the
 * permanent form is added automatically. */
void dr_mend(struct dr_report *d, const char *fmt, ...) HW_PRINTF(2, 3);
/* Writes the permanent form of a command: sysctl, ip link, ip route, ethtool, modprobe, ulimit, writes below /proc and
 * /sys, export. "": it is permanent. */
void dr_keep_of(const char *mend, char *out, size_t cap);
/* Returns the environment's value, or NULL. */
const char *dr_env(const struct dr_machine *m, const char *name);
/* Converts "6.18.44-foo" to 6018. 0 if it has another form. */
unsigned dr_kernel(const char *release);
/* Returns whether this driver in this kernel receives into device memory (tx: sends from it). DR_MAY: in some kernels
 * between. */
enum dr_can { DR_CANNOT, DR_MAY, DR_CAN };
enum dr_can dr_devmem_driver(const char *driver, const char *release, bool tx);
/* Returns true if GPUDirect-TCPX was meant to run here, by its directory or its variables. */
bool dr_tcpx_meant(const struct dr_machine *m);
/* Calls fn for each relevant NIC: those with a hardware device, or without any those that are up. Reports SKIP itself
 * if there is none. */
void dr_each_nic(struct dr_report *d, void (*fn)(struct dr_report *d, const struct dr_nic *n));
/* Returns true if this driver supports devmem in any kernel. */
bool dr_has_devmem(const struct dr_nic *n);
/* Returns the index of a NIC that shares a subnet with this one, or -1. */
int dr_shares_subnet(const struct dr_machine *m, int nic);

/* Reads this machine. root: from hw_root_open(); the caller keeps it. gpus: ask CUDA too. Never fails: unreadable
 * values are recorded as such. */
void dr_probe(struct dr_machine *m, int root, bool gpus);

/* The checks, by group. */
void dr_kernel_version(struct dr_report *d);
void dr_kernel_devmem(struct dr_report *d);
void dr_kernel_tcp_mem(struct dr_report *d);
void dr_kernel_sock_mem(struct dr_report *d);
void dr_kernel_congestion(struct dr_report *d);
void dr_limits_memlock(struct dr_report *d);
void dr_limits_nofile(struct dr_report *d);
void dr_nic_link(struct dr_report *d);
void dr_nic_speed(struct dr_report *d);
void dr_nic_pcie(struct dr_report *d);
void dr_nic_mtu(struct dr_report *d);
void dr_nic_devmem(struct dr_report *d);
void dr_nic_hawserd(struct dr_report *d);
void dr_nic_split(struct dr_report *d);
void dr_nic_buffers(struct dr_report *d);
void dr_nic_gro_hw(struct dr_report *d);
void dr_nic_rail(struct dr_report *d);
void dr_nic_ntuple(struct dr_report *d);
void dr_nic_queues(struct dr_report *d);
void dr_nic_rss(struct dr_report *d);
void dr_nic_irqs(struct dr_report *d);
void dr_gpu_driver(struct dr_report *d);
void dr_gpu_dmabuf(struct dr_report *d);
void dr_gpu_gpudirect(struct dr_report *d);
void dr_gpu_bar1(struct dr_report *d);
void dr_gpu_peermem(struct dr_report *d);
void dr_tcpx_plugin(struct dr_report *d);
void dr_tcpx_path(struct dr_report *d);
void dr_tcpx_manager(struct dr_report *d);
void dr_tcpx_prefix(struct dr_report *d);
void dr_tcpx_chunk(struct dr_report *d);
void dr_tcpx_names(struct dr_report *d);
void dr_tcpx_sync(struct dr_report *d);
void dr_tcpx_packets(struct dr_report *d);
void dr_rdma_gids(struct dr_report *d);
void dr_rdma_arp_ignore(struct dr_report *d);
void dr_rdma_arp_announce(struct dr_report *d);
void dr_rdma_arp_filter(struct dr_report *d);
void dr_rdma_rp_filter(struct dr_report *d);
void dr_pair_session(struct dr_report *d);
void dr_pair_version(struct dr_report *d);
void dr_pair_machine(struct dr_report *d);
void dr_pair_kernel(struct dr_report *d);
void dr_pair_nics(struct dr_report *d);
void dr_pair_mtu(struct dr_report *d);
void dr_pair_forward(struct dr_report *d);
void dr_pair_reverse(struct dr_report *d);
void dr_pair_path_mtu(struct dr_report *d);
void dr_pair_clock(struct dr_report *d);
void dr_nccl_library(struct dr_report *d);
void dr_nccl_list(struct dr_report *d);
void dr_nccl_load(struct dr_report *d);
void dr_nccl_table(struct dr_report *d);
void dr_nccl_init(struct dr_report *d);
void dr_nccl_nics(struct dr_report *d);
void dr_nccl_network(struct dr_report *d);
void dr_nccl_link(struct dr_report *d);
void dr_nccl_tuner(struct dr_report *d);
void dr_nccl_env_plugin(struct dr_report *d);
void dr_nccl_environment(struct dr_report *d);
void dr_nixl_wheel(struct dr_report *d);
void dr_nixl_version(struct dr_report *d);
void dr_nixl_backend(struct dr_report *d);
void dr_nixl_load(struct dr_report *d);

#endif
