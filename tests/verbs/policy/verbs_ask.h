/* SPDX-License-Identifier: Apache-2.0 */
/* Builds requests like an application, takes them with the schema, judges them, and settles them as if a kernel had
 * answered. */
#ifndef VERBS_ASK_H
#define VERBS_ASK_H

#include "tests/tap.h"
#include "verbs/policy/policy.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#define EX(c) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (c))

static struct vb_policy *P;
static struct vb_rules R;
static struct vb_usage U;
static struct vb_objects *O;
static struct vb_request Q;
static struct vb_verdict V;

/* Simulated memory of the application. */
static union {
    struct ib_uverbs_ioctl_hdr hdr;
    struct {
        uint8_t begin[sizeof(struct ib_uverbs_ioctl_hdr)];
        struct ib_uverbs_attr attr[20];
    };
} M;
static uint8_t in_bytes[20][512], out_bytes[20][512];

static int read_own(void *arg, uint64_t address, void *dst, size_t n)
{
    (void)arg;
    memcpy(dst, (const void *)(uintptr_t)address, n);
    return 0;
}

static void begin(uint16_t object, uint16_t method, uint32_t driver)
{
    memset(&M, 0, sizeof(M));
    M.hdr.object_id = object;
    M.hdr.method_id = method;
    M.hdr.driver_id = driver;
}

static void attr(uint16_t id, uint16_t len, uint64_t data)
{
    struct ib_uverbs_attr *a = &M.attr[M.hdr.num_attrs++];
    a->attr_id = id;
    a->len = len;
    a->flags = UVERBS_ATTR_F_MANDATORY;
    a->data = data;
}

/* Adds an attribute. As in the kernel, values of up to 8 bytes are stored in the attribute itself. */
static void attr_in(uint16_t id, const void *bytes, size_t n)
{
    uint8_t *mine = in_bytes[M.hdr.num_attrs];
    uint64_t data = (uintptr_t)mine;
    if (n > sizeof(in_bytes[0]))
        exit(1);
    memcpy(mine, bytes, n);
    if (n <= sizeof(data)) {
        data = 0;
        memcpy(&data, bytes, n);
    }
    attr(id, (uint16_t)n, data);
}

static void attr_out(uint16_t id, uint16_t len)
{
    attr(id, len, (uintptr_t)out_bytes[M.hdr.num_attrs]);
}

static void take(void)
{
    M.hdr.length = (uint16_t)(sizeof(M.hdr) + M.hdr.num_attrs * sizeof(M.attr[0]));
    if (vb_request_take(&Q, (uintptr_t)&M, read_own, NULL) < 0) {
        printf("Bail out! the request is none: %s\n", hw_error());
        exit(1);
    }
}

static int judged(void)
{
    take();
    vb_judge(&R, &U, O, &Q, &V);
    return V.rc;
}

static void write_begin(uint32_t command, uint32_t driver, const void *in, size_t n)
{
    uint64_t c = command;
    begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, driver);
    attr_in(UVERBS_ATTR_CORE_IN, in, n);
    attr_out(UVERBS_ATTR_CORE_OUT, 400);
    attr_in(UVERBS_ATTR_WRITE_CMD, &c, sizeof(c));
}

__attribute__((unused)) static int cmd_len(uint32_t command, const void *in, size_t n)
{
    write_begin(command, RDMA_DRIVER_RXE, in, n);
    return judged();
}
#define cmd(c, s) cmd_len(c, &(s), sizeof(s))

/* Checks that the call is refused with error err, by a rule whose name begins with the text `by`. */
#define refused(call, err, by, ...)                                                        \
    do {                                                                                   \
        int rc_ = (call);                                                                  \
        ok(rc_ == -(err) && strncmp(V.rule, by, strlen(by)) == 0 && *V.text, __VA_ARGS__); \
        diag("%s by '%s': %s", hw_errno_name(-rc_), V.rule, V.text);                       \
    } while (0)
#define passes(call, ...)                                \
    do {                                                 \
        if (!ok((call) == 0, __VA_ARGS__))               \
            diag("refused by '%s': %s", V.rule, V.text); \
    } while (0)

/* Writes the number of the object that Q creates to the place where the kernel would write it. Q must have been taken
 * and judged. */
static void made(uint32_t number)
{
    const struct vb_number *n = &Q.command->made;
    if (n->place == VB_CORE_OUT)
        memcpy((uint8_t *)Q.core_out + n->at, &number, sizeof(number));
    else if (n->place == VB_ATTR)
        vb_request_attr(&Q, n->at)->raw.data = number;
}

/* Reserves quota for Q, fills in the kernel's answer, and settles Q. */
__attribute__((unused)) static void runs(struct vb_objects *o, uint32_t number, int rc, bool trusted)
{
    uint64_t ticket;
    if (vb_reserve(o, &Q, &ticket) < 0)
        exit(1);
    made(number);
    vb_settle(o, &Q, ticket, rc, trusted);
}

static void policy(const char *text)
{
    vb_policy_free(P);
    memset(&R, 0, sizeof(R));
    if (vb_policy_parse(text, strlen(text), "p.ini", &P) < 0 || vb_policy_rules(P, NULL, NULL, 0, "rxe0", &R) < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
}

/* Starts a test with the given policy and with empty accounts. */
__attribute__((unused)) static void start(const char *text)
{
    vb_objects_free(O);
    memset(&U, 0, sizeof(U));
    policy(text);
    O = vb_objects_new(&U);
    if (!O)
        exit(1);
}

#endif
