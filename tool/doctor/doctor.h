/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser doctor`: a table of checks. Each check is a function that examines one machine, or a pair of machines, and
 * reports its findings.
 *
 * A check of one machine, except in the groups nccl and nixl, uses only the data in struct dr_machine: files below a
 * root directory, an environment, resource limits, and recorded answers, for example from ethtool, netlink and CUDA.
 * dr_probe() fills the structure from this machine; tests fill the structure themselves. An int field that could not be
 * read holds a negative errno, so that no check mistakes it for a value.
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

/* Values of ETHTOOL_A_RINGS_TCP_DATA_SPLIT (linux/ethtool_netlink.h). */
enum dr_split { DR_SPLIT_UNKNOWN, DR_SPLIT_OFF, DR_SPLIT_ON };

/* A NIC. An int field, except n_addrs, holds a negative errno if the value could not be read. */
struct dr_nic {
    char name[HAWSER_NIC_NAME];
    char driver[32], version[32]; /* empty if unknown */
    bool physical;                /* has a hardware device */
    bool up;                      /* administratively up */
    struct hw_nic addr[DR_MAX_ADDRS];
    int n_addrs;
    int split;              /* enum dr_split, as the driver reports the setting */
    int thresh;             /* hds-thresh: packets of up to this many bytes are not split */
    int buf_len;            /* rx-buf-len: maximum number of bytes of a packet in one receive buffer */
    int gro_hw;             /* rx-gro-hw: 0 off, 1 on; -EOPNOTSUPP if the driver has no such setting */
    int ntuple;             /* n-tuple filters: 0 off, 1 on */
    int rules;              /* number of flow rules */
    int queues, queues_max; /* receive queues, including combined queues */
    int combined_max; /* maximum number of combined queues; 0 if the driver has only separate receive queues; negative
                         errno if unknown */
    int rss_queues;   /* number of distinct queues in the RSS indirection table */
    int rss_last;     /* highest queue number in the RSS indirection table */
    /* devmem_rc is 0 if devmem_pkts is valid. devmem_pkts is the sum of the NIC's statistics rx_devmem_pkts*, read
     * twice, moment_ms apart. */
    int devmem_rc;
    uint64_t devmem_pkts[2];
    uint64_t rx_pkts[2]; /* all received packets, read at the same two times */
};

struct dr_machine {
    int root;
    const char *const *env; /* "NAME=VALUE", NULL-terminated */
    char release[65];       /* uname -r */
    char arch[65];          /* uname -m */
    struct rlimit memlock, nofile;
    int netdev_rc;       /* result of the query for the netlink family "netdev": 0 or a negative errno */
    uint64_t netdev_ops; /* bit i is set if the family has command i */
    int hawserd;         /* 0 if hawserd admits this user, else a negative errno with the reason in hawserd_why */
    char hawserd_why[HW_ERR_TEXT];
    struct dr_nic nic[DR_MAX_NICS];
    int n_nics;                 /* number of NICs, or a negative errno */
    char cuda_why[HW_ERR_TEXT]; /* reason if n_gpus is negative */
    struct hw_gpu_info gpu[DR_MAX_GPUS];
    int n_gpus;                   /* number of entries of gpu[], or a negative errno */
    unsigned moment_ms;           /* milliseconds between the two readings of devmem_pkts and rx_pkts */
    const struct nccl_look *nccl; /* for group nccl; NULL if NCCL was not examined */
    const struct nixl_look *nixl; /* for group nixl; NULL if NIXL was not examined */
};

/* Data for the checks of group pair. */
#define DR_MAX_LINKS ((size_t)TP_MAX_NICS * TP_MAX_NICS)
struct dr_link {
    uint8_t here, there; /* indexes into nic[] of the pair's facts "here" and "there" */
    bool routed;         /* neither NIC has a subnet, so they reach each other only by routes (reach_is_rail()) */
    int forward;         /* result of connecting from here to there: 0 or a negative errno */
    /* Result of connecting from there to here: 0; -EHOSTUNREACH if the connection failed or the listener's answer did
     * not arrive; -ENODATA if the peer did not try; or -EBADMSG if the connection was established but 128 KiB did not
     * arrive in both directions. */
    int reverse;
    uint32_t mtu; /* path MTU that the kernel reports; 0 if unknown */
};
struct dr_pair {
    /* address and port, for example "198.18.0.2:20000", or the host that the user named if there is no connection */
    const char *peer;
    int connected; /* 0, or a negative errno with the reason in why */
    int asked;     /* 0 if dr_pair_ask() succeeded, or a negative errno with the reason in why */
    char why[HW_ERR_TEXT];
    struct tp_facts here, there;
    bool clock;        /* true if offset_ns and round_trip_ns were measured */
    int64_t offset_ns; /* the peer's clock minus this node's clock */
    uint64_t round_trip_ns;
    struct dr_link link[DR_MAX_LINKS];
    size_t n_links;
};

struct dr_result {
    const struct dr_check *check;
    enum dr_outcome outcome;
    char subject[48]; /* for example "eth1"; empty for the whole machine */
    char found[DR_TEXT];
    char mend[DR_TEXT]; /* command that fixes or examines the problem; empty if none */
    /* how to make the fix permanent; empty if the fix is permanent or if dr_keep_of() does not recognize the command */
    char keep[DR_TEXT];
};

struct dr_report {
    const struct dr_machine *m;
    const struct dr_pair *pair; /* NULL if there is no peer */
    const struct dr_check *now;
    struct dr_result *r;
    size_t n, cap;
    bool broken; /* out of memory */
};

struct dr_check {
    const char *id; /* for example "nic.mtu" */
    enum dr_group group;
    const char *title;
    const char *why;
    void (*run)(struct dr_report *d);
};

extern const struct dr_check dr_checks[];
extern const size_t dr_n_checks;
const char *dr_group_name(enum dr_group g);
const char *dr_outcome_name(enum dr_outcome o);

/* Runs the checks of the groups (bit i: enum dr_group i) on m and, for DR_PAIR, on pair. DR_NCCL needs m->nccl and
 * DR_NIXL needs m->nixl. Returns 0 or -ENOMEM. The caller frees the report with dr_free(). */
int dr_run(struct dr_report *d, const struct dr_machine *m, const struct dr_pair *pair, unsigned groups);
void dr_free(struct dr_report *d);
size_t dr_count(const struct dr_report *d, enum dr_outcome o);
/* Prints the report as lines. Equal findings about several subjects share one line. With color, uses terminal
 * colours. With why, prints the reason for passed and skipped checks too. */
void dr_print(FILE *out, const struct dr_report *d, bool color, bool why);
struct hw_json;
/* Writes the report as one JSON object with schema hawser-doctor-1. sys/json.h describes key. */
void dr_write_json(struct hw_json *j, const char *key, const struct dr_report *d);
/* Prints the report as a complete JSON document. Returns 0, or a negative errno such as -EIO with hw_error(). */
int dr_print_json(FILE *out, const struct dr_report *d);
/* Output options of a command that runs checks. */
struct run;
struct dr_finish {
    bool json, why;
    const char *report;    /* HTML file to write, or NULL */
    const struct run *run; /* run described in the HTML file; NULL if the file describes only this machine */
};
extern const struct opt dr_finish_opts[];
/* If rc is not negative, prints the report to stdout, as lines or as JSON, and writes how->report. Otherwise prints why
 * the command cmd failed, from hw_error(). Frees the report. Returns the exit status, which is TOOL_FAILED if any check
 * failed. */
int dr_finish(struct dr_report *d, int rc, const char *cmd, const struct dr_finish *how);

/* Adds a result about subject, or about the whole machine if subject is NULL. Checks call this function. */
void dr_say(struct dr_report *d, enum dr_outcome o, const char *subject, const char *fmt, ...) HW_PRINTF(4, 5);
/* Adds a command that fixes or examines the problem to the last result. If the command's effect does not survive a
 * reboot and dr_keep_of() recognizes the command, its permanent form is added too. */
void dr_mend(struct dr_report *d, const char *fmt, ...) HW_PRINTF(2, 3);
/* Writes the permanent form of a command to out. Known commands are sysctl -w, modprobe, ip link set with mtu, ip route
 * add, ip addr add, ethtool -G, -K, -L and -X, ulimit -l and -n, export, unset, and echo to files below /proc and /sys.
 * Any other command gives an empty string. */
void dr_keep_of(const char *mend, char *out, size_t cap);
/* Returns the value of an environment variable, or NULL if the variable is not set. */
const char *dr_env(const struct dr_machine *m, const char *name);
/* Converts a release such as "6.18.44-foo" to 6018. Returns 0 if the release does not start with a version. */
unsigned dr_kernel(const char *release);
/* Returns whether this driver in this kernel can receive into device memory, or with tx send from device memory.
 * DR_MAY: the driver gained the ability in some version between 6.12 and 7.3, and this kernel is between the two. */
enum dr_can { DR_CANNOT, DR_MAY, DR_CAN };
enum dr_can dr_devmem_driver(const char *driver, const char *release, bool tx);
/* Returns true if /run/tcpx exists or an environment variable begins with NCCL_GPUDIRECTTCPX_. */
bool dr_tcpx_meant(const struct dr_machine *m);
/* Calls fn for each NIC that has a hardware device. If no NIC has one, calls fn for each NIC that is up. Reports
 * SKIP if there is no NIC to examine. */
void dr_each_nic(struct dr_report *d, void (*fn)(struct dr_report *d, const struct dr_nic *n));
/* Returns true if some kernel's version of the NIC's driver is known to support devmem. */
bool dr_has_devmem(const struct dr_nic *n);
/* Returns the index of another NIC that shares an IPv4 subnet with NIC number nic, or -1. NICs that are
 * down do not count. */
int dr_shares_subnet(const struct dr_machine *m, int nic);

/* Fills m from this machine. root is a descriptor from hw_root_open(), which the caller closes. CUDA is queried only if
 * gpus is true. Never fails: an int of m or of its NICs, except n_addrs, that cannot be read becomes a negative errno,
 * and other values stay 0 or empty. */
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
