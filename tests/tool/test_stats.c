/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the NIC and GPU statistics that a run reports: rx_devmem_pkts is read only if the transport can change the
 * counter, and is summed over batches. Also tests the shares of the device path, staging and copies, and how
 * --require-direct evaluates these shares.
 */
#include "tests/lib/context/pairhelp.h"

#include "tool/load/stats.h"
#include "tool/report/verdict.h"

#include <linux/sockios.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static _Thread_local unsigned asked; /* number of ethtool ioctls */

int ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    asked += request == SIOCETHTOOL;
    return (int)syscall(SYS_ioctl, fd, request, arg);
}

static void test_reading(void)
{
    struct pair p = ph_pair(0, NULL, 0, NULL);
    struct tp_nic nics[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    step("reading");
    asked = 0;
    must(stats_nics(p.ab, stats_has_devmem("tcp"), nics, &n));
    is_int(asked, 0, "over tcp no NIC is asked for rx_devmem_pkts");
    ok(n > 0 && !nics[0].has_devmem_pkts, "and none has it");
    n = TP_MAX_NICS;
    must(stats_nics(p.ab, stats_has_devmem("devmem"), nics, &n));
    ok(asked > 0, "over devmem each is: %u calls", asked);
    ok(stats_has_devmem("netplugin:x"), "over plugins too: GPUDirect-TCPX moves that counter");
    ph_close(&p);
}

static struct tp_nic nic_of(uint64_t rx, uint64_t device, uint64_t copied)
{
    return (struct tp_nic){.nic = "eth1", .rx_bytes = rx, .rx_device_bytes = device, .rx_copied_bytes = copied};
}

static void test_ends(void)
{
    struct tp_nic sum[2], a = nic_of(0, 0, 0), b = nic_of(10, 10, 0), c = nic_of(30, 30, 0);
    size_t n = 0;
    a.has_devmem_pkts = b.has_devmem_pkts = c.has_devmem_pkts = 1;
    a.devmem_pkts = 100;
    b.devmem_pkts = 107;
    c.devmem_pkts = 120;
    stats_add(sum, &n, 2, &a, 1, &b, 1);
    stats_add(sum, &n, 2, &b, 1, &c, 1);
    ok(n == 1 && sum[0].devmem_pkts == 20 && sum[0].devmem_before == 100 && sum[0].devmem_after == 120,
       "a difference keeps the counter's value before the first batch and after the last");
}

#define BIG 8193 /* size in bytes of the smallest operation that must not be staged */

static void one(const char *what, struct tp_nic nic, uint64_t received, uint64_t size, struct verdict want)
{
    const struct verdict v = verdict_of(&nic, 1, received, size);
    ok(v.device == want.device && v.staged == want.staged && v.copied == want.copied && v.passed == want.passed,
       "%s: device %llu, staged %llu, copied %llu, %s", what, (unsigned long long)v.device,
       (unsigned long long)v.staged, (unsigned long long)v.copied, v.passed ? "passed" : "not passed");
}

static void test_verdicts(void)
{
    one("all by the NIC", nic_of(100, 100, 0), 100, BIG, (struct verdict){.device = 100, .passed = true});
    one("tcp", nic_of(100, 0, 0), 100, BIG, (struct verdict){.staged = 100});
    one("one byte left with the headers", nic_of(100, 99, 1), 100, BIG, (struct verdict){.device = 99, .copied = 1});
    one("one chunk staged", nic_of(100, 60, 0), 100, BIG, (struct verdict){.device = 60, .staged = 40});
    one("into another GPU's memory, and copied from there", nic_of(100, 100, 100), 100, BIG,
        (struct verdict){.copied = 100});
    one("half of a lost channel's came twice", nic_of(150, 150, 0), 100, BIG,
        (struct verdict){.device = 100, .passed = true});
    one("what small operations carried", nic_of(100, 0, 0), 100, BIG - 1,
        (struct verdict){.staged = 100, .passed = true});
    one("nothing", nic_of(0, 0, 0), 0, BIG, (struct verdict){.passed = true});
    struct verdict all = {.passed = true}, good = {.device = 5, .passed = true}, bad = {.copied = 3};
    verdict_add(&all, &good);
    verdict_add(&all, &bad);
    ok(all.device == 5 && all.copied == 3 && !all.passed, "of all GPUs the sum, and not passed where one is not");
}

int main(void)
{
    watchdog(30);
    test_reading();
    test_ends();
    test_verdicts();
    return tap_done();
}
