/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_attack: registered memory, the device's access to the memory, and its limits. */
#include "verbs_attack.h"

#include <fcntl.h>
#include <sys/mman.h>

static int reg(const void *p, uint32_t access, uint32_t *number)
{
    struct ib_uverbs_reg_mr in;
    struct ib_uverbs_reg_mr_resp out = {0};
    struct request r;
    mr_of(&in, pd, p, 4096);
    in.access_flags = access;
    write_cmd(&r, IB_USER_VERBS_CMD_REG_MR, &in, sizeof(in), &out, sizeof(out));
    const int rc = go(dev, &r);
    *number = out.mr_handle;
    return rc;
}

/* Checks that a page can be registered for writing by the device if and only if the program itself may write to the
 * page: neither a registration for writing nor one for reading that is extended later may give more access. Reading by
 * the device is harmless, and for reading, the kernel pins readable memory without FOLL_FORCE (since Linux 6.2). */
int device_writes(const void *p, int writable)
{
    uint32_t mr = 0;
    int bad = 0;
    int rc = reg(p, IB_UVERBS_ACCESS_LOCAL_WRITE, &mr);
    if (rc == 0)
        CHECK(dereg_mr(dev, mr) == 0, "DEREG");
    if ((rc == 0) != writable) {
        printf("%p: to be written, registered: %s\n", p, strerror(-rc));
        bad++;
    }
    CHECK((rc = reg(p, 0, &mr)) == 0 || !writable, "to be read: %s", strerror(-rc));
    if (rc)
        return bad;
    const int more = rereg_mr(dev, mr, REREG_ACCESS, NULL, 0, IB_UVERBS_ACCESS_LOCAL_WRITE);
    const int other = rereg_mr(dev, mr, REREG_ACCESS | REREG_TRANS, p, 4096, IB_UVERBS_ACCESS_LOCAL_WRITE);
    if (!writable && (more == 0 || other == 0)) {
        printf("%p: to be read, then to be written: %s; registered anew: %s\n", p, strerror(-more), strerror(-other));
        bad++;
    }
    CHECK(dereg_mr(dev, mr) == 0, "DEREG");
    return bad;
}

/* Tests REREG_MR, of which rxe supports only a change of access rights (since Linux 6.3). Includes memory to which the
 * program itself must not write: kernels that do not check how the memory was pinned are vulnerable to
 * CVE-2026-52908. */
int rereg(void)
{
    uint32_t mr = 0;
    const int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const void *file = mmap(NULL, 4096, PROT_READ, MAP_SHARED, exe, 0);
    CHECK(exe >= 0 && file != MAP_FAILED, "a file to read");
    CHECK(reg_mr(dev, pd, area, 4096, &mr) == 0, "REG_MR");
    const int rc =
        rereg_mr(dev, mr, REREG_ACCESS, NULL, 0, IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_READ);
    printf("other access: %s\n", rc ? strerror(-rc) : "done");
    CHECK(rc == 0 || rc == -EOPNOTSUPP, "%d", rc);
    CHECK(rereg_mr(dev, 77, REREG_ACCESS, NULL, 0, IB_UVERBS_ACCESS_LOCAL_WRITE) < 0, "an MR that is not there");
    CHECK(dereg_mr(dev, mr) == 0 && pinned() == 0, "DEREG");
    return device_writes(file, 0);
}

/* Tests the quota alone, without other operations. */
int quota(void)
{
    uint32_t mr = 0, last = 0;
    unsigned n = 0;
    int rc = reg_mr(dev, pd, area, EVIL, &mr);
    CHECK(rc < 0, "8 MiB at once");
    printf("8 MiB at once: %s\n", strerror(-rc));
    while (n < 64 && (rc = reg_mr(dev, pd, area + (size_t)n * 65536, 65536, &mr)) == 0) {
        last = mr;
        n++;
    }
    printf("%u of 64 KiB each, then: %s\n", n, strerror(-rc));
    CHECK(n == 16 && pinned() == ALLOWED, "not what the policy has");
    CHECK(dereg_mr(dev, last) == 0, "DEREG");
    CHECK(reg_mr(dev, pd, area, 65536, &mr) == 0, "what is given back can be had again");
    CHECK(dereg_mr(dev, mr) == 0, "DEREG");
    /* The method of Linux 6.17, where the core expects the driver to set the MR's length (uverbs_std_types_mr.c).
     * mlx5's driver does; rxe's does not, so such an MR appears to have 0 bytes. The broker then cannot tell whether
     * the MR is the requested one, so the MR's bytes count against the quota until the context is closed. */
    uint64_t length = 0;
    for (n = 0; n < 100 && (rc = reg_mr_method(dev, pd, area, 65536, &mr)) == 0; n++) {
        CHECK(query_mr(dev, mr, &length) == 0, "QUERY_MR %u", mr);
        CHECK(dereg_mr(dev, mr) == 0, "DEREG");
    }
    printf("%u times by the method of Linux 6.17, of %llu bytes as the kernel says: %s\n", n,
           (unsigned long long)length, strerror(-rc));
    CHECK(n == 100 || (n == 0 && rc == -EPROTONOSUPPORT) || (n == 1 && length == 0 && rc == -ENOMEM), "given back");
    CHECK(pinned() == ALLOWED - 65536, "something is pinned");
    return 0;
}
