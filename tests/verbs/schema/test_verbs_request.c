/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the schema, and requests that are taken, rebuilt and returned. Some requests were recorded from real programs
 * (tests/data/verbs); others are built by hand. */
#include "tests/tap.h"
#include "verbs_hand.h"

#include <dirent.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#define EXTENDED IB_USER_VERBS_CMD_FLAG_EXTENDED
#define INVOKE   UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE

static void fine(bool split, const char *what)
{
    const char *wrong = rebuild(split);

    if (!ok(!wrong, "%s: made anew%s", what, split ? " for the stub" : ""))
        diag("%s", wrong);
}

/* ---- the schema itself ---- */

static bool rules_are_sane(const struct vb_attr_rule *rules)
{
    unsigned n = 0;

    for (const struct vb_attr_rule *a = rules; a->kind != VB_END; a++, n++) {
        for (const struct vb_attr_rule *b = rules; b < a; b++)
            if (a->id == b->id)
                return false;
        if (!a->name || (a->max && a->max < a->min) || (a->memory && a->kind != VB_IN))
            return false;
    }
    return n < 64; /* check_attrs() has one bit per attribute */
}

static bool command_is_sane(const struct vb_command *c)
{
    bool write = c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INVOKE_WRITE;
    const struct vb_number *numbers[] = {&c->made, &c->ended};

    if (vb_schema(c->object, c->method, c->command) != c || !c->name || (c->where == VB_REFUSED) != (c->why != NULL))
        return false;
    if (c->where == VB_REFUSED)
        return true;
    if (write != !c->attrs || (!write && (!rules_are_sane(c->attrs) || c->in_min || c->zero_at)))
        return false;
    if (write && (c->in_min < 4 /* so that CORE_IN always exists (see put_in_order()) */ || c->in_max < c->in_min ||
                  (c->zero_at && c->zero_at + 4u > c->in_min)))
        return false;
    if (c->fd.place != VB_NOWHERE &&
        (c->fd.at % 4 || c->fd.at + 4u > (c->fd.place == VB_CORE_IN ? c->in_min : c->out_min)))
        return false;
    for (unsigned i = 0; i < 2; i++) {
        const struct vb_attr_rule *a = c->attrs;
        if (numbers[i]->place == VB_CORE_IN && numbers[i]->at + 4u > c->in_min)
            return false;
        if (numbers[i]->place == VB_CORE_OUT && numbers[i]->at + 4u > c->out_min)
            return false;
        while (a && numbers[i]->place == VB_ATTR && a->id != numbers[i]->at)
            if ((a++)->kind == VB_END)
                return false;
        if (numbers[i]->place == VB_ATTR &&
            (!a || !a->mandatory || (i ? a->kind != VB_HANDLE : a->kind != VB_HANDLE_NEW && a->kind != VB_FD_NEW)))
            return false;
    }
    for (unsigned i = 0; i < c->n_addresses; i++)
        if (c->addresses[i].driver || c->addresses[i].at + 8u > c->in_min)
            return false;
    return (c->ends != VB_NONE) == (c->ended.place != VB_NOWHERE);
}

static void schema(void)
{
    const struct vb_command *c;
    const struct vb_driver *d;
    bool sane = true;
    unsigned n;

    ok(rules_are_sane(vb_write_attrs), "the attributes of INVOKE_WRITE make sense");
    for (n = 0; (c = vb_schema_at(n)) != NULL; n++)
        if (!command_is_sane(c)) {
            sane = false;
            diag("%s", c->name);
        }
    ok(sane && n > 80, "so does each of %u commands", n);
    sane = true;
    for (n = 0; (d = vb_driver_at(n)) != NULL; n++) {
        if (vb_driver(d->id) != d)
            sane = false;
        for (unsigned i = 0; i < d->n_parts; i++) {
            const struct vb_driver_part *p = &d->parts[i];
            c = vb_schema(p->object, p->method, p->command);
            if (!c || c->where == VB_REFUSED || vb_driver_part(d, c) != p || p->in_min > p->in_max ||
                (p->by_write && (c->command || !c->attrs)))
                sane = false;
            for (unsigned j = 0; j < p->n_addresses; j++)
                if (!p->addresses[j].driver || p->addresses[j].at + 8u > p->in_max)
                    sane = false;
            if (!sane)
                diag("%s's %s", d->name, c ? c->name : "?");
        }
    }
    ok(sane && n == 5, "so does what %u drivers add", n);
    /* All commands in uverbs_def_write_intf of Linux 7.3. */
    static const uint8_t plain[] = {0,  1,  2,  3,  4,  5,  8,  9,  11, 13, 14, 16, 17, 18, 19, 20, 21, 23,
                                    24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40};
    static const uint8_t extended[] = {1, 18, 24, 26, 50, 51, 52, 53, 54, 55, 56, 57};
    unsigned missing = 0, known = 0;
    for (unsigned i = 0; i < sizeof(plain); i++)
        missing += !vb_schema(INVOKE, plain[i]);
    for (unsigned i = 0; i < sizeof(extended); i++)
        missing += !vb_schema(INVOKE, EXTENDED | extended[i]);
    for (uint32_t i = 0; i < 256; i++)
        known += (vb_schema(INVOKE, i) != NULL) + (vb_schema(INVOKE, EXTENDED | i) != NULL);
    is_int(missing, 0, "no write command of the kernel's is missing");
    is_int(known, sizeof(plain) + sizeof(extended), "and there is none besides");
    ok(!vb_schema(200, 0, 0) && !vb_schema(UVERBS_OBJECT_DEVICE, 200, 0) && !vb_schema(INVOKE, 0x40000003) &&
           !vb_driver(0),
       "what is not there is not found");
    is_str(vb_type_name(VB_RWQ_TABLE), "rwq_table", "types have names");
    for (int t = 0; t < VB_TYPES; t++)
        if (!vb_type_name((enum vb_type)t))
            ok(false, "type %d has no name", t);
}

/* ---- recorded requests of rdma-core ---- */

struct record {
    struct ask before, after;
    struct memory then, now; /* memory before and after */
    char program[64];
    int result;
};

static size_t unhex(const char *text, uint8_t *out, size_t cap)
{
    unsigned byte;
    size_t n = 0;

    while (n < cap && sscanf(text + 2 * n, "%2x", &byte) == 1)
        out[n++] = (uint8_t)byte;
    return n;
}

/* Reads the next record from a file in the format that tests/vm/programs/verbs_record.c writes. */
static bool record_next(FILE *f, struct record *rec)
{
    static char line[2 * 65536 + 128];
    static uint8_t bytes[65536];
    unsigned long long at;
    unsigned attr = 0;
    int skip;
    bool after = false;

    memset(rec, 0, sizeof(*rec));
    while (fgets(line, sizeof(line), f)) {
        struct ask *a = after ? &rec->after : &rec->before;
        if (sscanf(line, "request %63s", rec->program) == 1) {
            continue;
        } else if (strncmp(line, "header ", 7) == 0) {
            unhex(line + 7, (uint8_t *)&rec->before.hdr, sizeof(rec->before.hdr));
        } else if (strncmp(line, "attr ", 5) == 0 && attr < HW_ARRAY_LEN(a->attr)) {
            unhex(line + 5, (uint8_t *)&a->attr[attr++], sizeof(a->attr[0]));
        } else if (sscanf(line, "memory %*u %llx %n", &at, &skip) == 1) {
            size_t n = unhex(line + skip, bytes, sizeof(bytes));
            map(after ? &rec->now : &rec->then, at, n, bytes);
        } else if (sscanf(line, "result %d", &rec->result) == 1) {
            after = true;
            attr = 0;
        } else if (strncmp(line, "end", 3) == 0) {
            rec->after.hdr = rec->before.hdr;
            return true;
        }
    }
    return false;
}

/* Like a kernel, copies the recorded outputs to the output buffers of the rebuilt request. */
static bool replay_outputs(struct record *rec, uint32_t split)
{
    for (unsigned i = 0; i < r.n; i++) {
        struct ib_uverbs_attr raw;
        const struct vb_attr *a = &r.attr[i];
        if (!a->rule || (a->rule->kind != VB_OUT && a->rule->kind != VB_HANDLE_NEW && a->rule->kind != VB_FD_NEW))
            continue;
        memcpy(&raw, built + layout.attr_at[i], sizeof(raw));
        raw.flags = rec->after.attr[i].flags;
        if (a->rule->kind != VB_OUT)
            raw.data = rec->after.attr[i].data;
        else if (raw.len > 0) {
            struct span *s = span_of(&rec->now, a->raw.data, raw.len);
            if (!s || raw.data - WINDOW < split)
                return false;
            memcpy(built + (raw.data - WINDOW), s->bytes + (a->raw.data - s->at), raw.len);
        }
        memcpy(built + layout.attr_at[i], &raw, sizeof(raw));
    }
    return true;
}

/* Returns true if the application sees the same results as in the recording. */
static bool same_after(struct record *rec)
{
    for (unsigned i = 0; i < r.n; i++) {
        const struct vb_attr *a = &r.attr[i];
        struct ib_uverbs_attr *raw =
            (void *)map(&rec->then, HEADER + sizeof(rec->before.hdr) + i * sizeof(*raw), sizeof(*raw), NULL);
        struct span *then, *now;
        if (memcmp(raw, &rec->after.attr[i], sizeof(*raw)) != 0)
            return false;
        if (a->rule->kind != VB_OUT || raw->len == 0)
            continue;
        then = span_of(&rec->then, raw->data, raw->len);
        now = span_of(&rec->now, raw->data, raw->len);
        if (!then || !now ||
            memcmp(then->bytes + (raw->data - then->at), now->bytes + (raw->data - now->at), raw->len) != 0)
            return false;
    }
    return true;
}

#define KEPT_MAX 4096 /* bytes of each output that the recorder keeps (BYTES_MAX) */
static void recorded_file(const char *name, unsigned *total)
{
    static struct record rec;
    char path[512], text[160];
    unsigned n = 0, wrong = 0, memory = 0, unkept = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/verbs/%s", TEST_DATA, name);
    f = fopen(path, "r");
    if (!f) {
        ok(false, "%s can be read", path);
        return;
    }
    while (record_next(f, &rec)) {
        const char *why = NULL;
        int rc;

        for (unsigned i = 0; i < rec.before.hdr.num_attrs; i++) {
            const struct ib_uverbs_attr *a = &rec.before.attr[i];
            if (a->len > KEPT_MAX) {
                map(&rec.then, a->data, a->len, NULL);
                map(&rec.now, a->data, a->len, NULL);
                unkept++;
            }
        }
        rc = take(&rec.then, &rec.before);
        n++;
        vb_request_text(&r, text, sizeof(text));
        memory += rc == 0 && r.where == VB_MEMORY;
        if (rec.result == -ENOSPC)
            why = rc == -ENOSPC ? NULL : "the probe is not answered ENOSPC";
        else if (rc < 0)
            why = hw_error();
        else if ((why = rebuild(r.where == VB_MEMORY)) == NULL && rec.result >= 0) {
            if (!replay_outputs(&rec, r.where == VB_MEMORY ? SPLIT : 0))
                why = "the recording lacks an output";
            vb_request_collect(&r, built, &layout);
            if (!why && (vb_request_give(&r, mem_write, &rec.then) < 0 || !same_after(&rec)))
                why = "the results are not those of then";
        }
        if (why) {
            wrong++;
            diag("%s, request %u, %s: %s", name, n, text, why);
        }
        unmap_all(&rec.then);
        unmap_all(&rec.now);
    }
    fclose(f);
    *total += n;
    ok(wrong == 0 && n >= 5, "%s: %u requests of a program's, %u of them for its own memory", name, n, memory);
    if (unkept > 0)
        diag("the bytes of %u large outputs were not recorded", unkept);
}

static void recorded(void)
{
    struct dirent **files;
    unsigned total = 0;
    int n = scandir(TEST_DATA "/verbs", &files, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        size_t len = strlen(files[i]->d_name);
        if (len > 4 && strcmp(files[i]->d_name + len - 4, ".txt") == 0)
            recorded_file(files[i]->d_name, &total);
        free(files[i]);
    }
    if (n >= 0)
        free(files);
    ok(total >= 100, "recorded requests: %u", total);
}

/* ---- requests built by hand ----
 * They follow rdma-core 44 and the kernel's headers. */

/* Takes and rebuilds a request. If the stub runs the request, also rebuilds it for the stub. Returns true if the
 * request was taken. */
static bool taken(struct memory *m, const struct ask *a, enum vb_where where, const char *what)
{
    int rc = take(m, a);

    if (!ok(rc == 0 && r.where == where, "%s: taken", what)) {
        diag("%d, %s, where %d", rc, rc ? hw_error() : "", r.where);
        return false;
    }
    fine(false, what);
    if (where == VB_MEMORY)
        fine(true, what);
    return true;
}

static uint64_t address_of(const struct vb_address *a)
{
    uint64_t v;

    memcpy(&v, (uint8_t *)(a->driver ? r.uhw_in : r.core_in) + a->at, sizeof(v));
    return v;
}

/* Returns the file descriptor that the kernel finds in CORE_IN. */
static int32_t built_fd(const struct vb_core_fd *fd)
{
    struct ib_uverbs_attr in;
    int32_t n;

    memcpy(&in, built + layout.attr_at[1], sizeof(in));
    memcpy(&n, built + (in.data - WINDOW) + fd->at, sizeof(n));
    return in.attr_id == UVERBS_ATTR_CORE_IN ? n : -2;
}

static void mlx5(void)
{
    struct memory m = {0};
    struct ask a = ask(RDMA_DRIVER_MLX5, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    const uint32_t devx[8] = {[2] = 1};
    const uint64_t cq[4] = {0x7e1234560000, 0x7e1234568000}, qp[7] = {0x1111000, 0x2222000, [5] = 0x3333000};
    int32_t fd = 7;

    say(&a, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, OUT_AT);
    say(&a, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, OUT_AT + 8);
    say(&a, UVERBS_ATTR_UHW_IN, sizeof(devx), UHW_IN_AT);
    say(&a, UVERBS_ATTR_UHW_OUT, sizeof(struct mlx5_ib_alloc_ucontext_resp), UHW_OUT_AT);
    map(&m, UHW_IN_AT, sizeof(devx), devx);
    if (taken(&m, &a, VB_BROKER, "mlx5 GET_CONTEXT"))
        ok(r.uhw_in_len == sizeof(devx) && ((uint32_t *)r.uhw_in)[2] == 1 &&
               r.uhw_out_len == sizeof(struct mlx5_ib_alloc_ucontext_resp) && !r.core_in,
           "the flag that asks for DEVX can be seen");

    a = ask(RDMA_DRIVER_MLX5, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    is_int(take(&m, &a), -EPROTONOSUPPORT, "mlx5's CQ_CREATE is to be asked for by INVOKE_WRITE");
    a = ask(RDMA_DRIVER_RXE, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    is_int(take(&m, &a), -EINVAL, "rxe's is not, and lacks all attributes");

    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, IB_USER_VERBS_CMD_CREATE_CQ, sizeof(struct ib_uverbs_create_cq), 8, sizeof(cq),
                  8);
    map(&m, UHW_IN_AT, sizeof(cq), cq);
    map(&m, IN_AT + offsetof(struct ib_uverbs_create_cq, comp_channel), sizeof(fd), &fd);
    if (taken(&m, &a, VB_MEMORY, "mlx5 CREATE_CQ")) {
        ok(r.part->n_addresses == 2 && address_of(&r.part->addresses[0]) == cq[0] &&
               address_of(&r.part->addresses[1]) == cq[1],
           "its two addresses are where the schema says");
        ok(r.command->fd.place == VB_CORE_IN && r.command->fd.kind == VB_FD &&
               *(int32_t *)((uint8_t *)r.core_in + r.command->fd.at) == 7,
           "and its completion channel too");
        *(int32_t *)((uint8_t *)r.core_in + r.command->fd.at) = 101;
        ok(!rebuild(true) && built_fd(&r.command->fd) == 101, "which the broker can give another number");
    }
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(struct ib_uverbs_resize_cq), 8, 16, 0);
    taken(&m, &a, VB_MEMORY, "mlx5 RESIZE_CQ");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, IB_USER_VERBS_CMD_CREATE_QP, sizeof(struct ib_uverbs_create_qp), 32, sizeof(qp),
                  40);
    map(&m, UHW_IN_AT, sizeof(qp), qp);
    if (taken(&m, &a, VB_MEMORY, "mlx5 CREATE_QP"))
        ok(r.part->n_addresses == 3 && address_of(&r.part->addresses[2]) == 0x3333000,
           "with the address of a send queue");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP,
                  sizeof(struct ib_uverbs_ex_create_qp), 40, 24, 40);
    is_int(take(&m, &a), -EINVAL, "mlx5 EX_CREATE_QP: a part of the driver's that is too short");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, IB_USER_VERBS_CMD_CREATE_SRQ, sizeof(struct ib_uverbs_create_srq), 16, 32, 8);
    taken(&m, &a, VB_MEMORY, "mlx5 CREATE_SRQ");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_WQ,
                  sizeof(struct ib_uverbs_ex_create_wq), 24, 48, 8);
    taken(&m, &a, VB_MEMORY, "mlx5 EX_CREATE_WQ");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP,
                  sizeof(struct ib_uverbs_ex_modify_qp), 8, 16, 16);
    taken(&m, &a, VB_BROKER, "mlx5 EX_MODIFY_QP with ECE");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_MLX5, EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW,
                  sizeof(struct ib_uverbs_create_flow), 8, 24, 0);
    *map(&m, UHW_IN_AT, 24, NULL) = 1;
    is_int(take(&m, &a), -EOPNOTSUPP, "mlx5 EX_CREATE_FLOW with counters, whose address the kernel would read");
    unmap_all(&m);
}

static void others(void)
{
    struct memory m = {0};
    struct ask a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, 0, 0);
    const struct ib_uverbs_reg_mr reg = {.start = 0x7e0000123000, .length = 1 << 20, .access_flags = 7};
    const struct ib_uverbs_open_xrcd xrcd = {.fd = 5, .oflags = 0100};
    char text[160];
    uint32_t number;

    map(&m, IN_AT, sizeof(reg), &reg);
    if (taken(&m, &a, VB_MEMORY, "rxe REG_MR")) {
        is_str(vb_request_text(&r, text, sizeof(text)), "REG_MR length=1048576 access_flags=0x7", "its text");
        ok(r.command->n_addresses == 1 && address_of(&r.command->addresses[0]) == 0x7e0000123000, "its address");
        vk_run(built, WINDOW, SPLIT, layout.header, vb_write_attrs, 9);
        vb_request_collect(&r, built, &layout);
        ok(vb_request_number(&r, &r.command->made, &number) == 0 &&
               (uint8_t)number == vk_byte(9, UVERBS_ATTR_CORE_OUT, 0),
           "its number, once it has run");
        is_int(vb_request_number(&r, &r.command->ended, &number), -ENOENT, "it ends nothing");
    }
    a.attr[2].len = 20;
    ok(take(&m, &a) == 0 && r.core_out_len == 20, "a longer output is the kernel's business");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, 0, 100);
    if (taken(&m, &a, VB_MEMORY, "rxe REG_MR with two outputs"))
        is_int(r.uhw_out_len, VB_UHW_OUT_ANY, "one that no driver wants is cut");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_SIW, IB_USER_VERBS_CMD_REG_MR, 40, 12, 8, 8);
    taken(&m, &a, VB_MEMORY, "siw REG_MR");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_MODIFY_SRQ, 16, 0, 8, 0);
    if (taken(&m, &a, VB_MEMORY, "rxe MODIFY_SRQ, to whose address the kernel writes"))
        is_int((SPLIT - (layout.header - WINDOW)) % 16, 24 % 16 + 4,
               "its header is where others' are, but for attributes");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_IRDMA, IB_USER_VERBS_CMD_REG_MR, 40, 12, 8, 0);
    taken(&m, &a, VB_MEMORY, "irdma REG_MR");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_IRDMA, IB_USER_VERBS_CMD_CREATE_CQ, 32, 8, 16, 8);
    taken(&m, &a, VB_BROKER, "irdma CREATE_CQ, whose addresses are looked up only");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_EFA, IB_USER_VERBS_CMD_CREATE_QP, sizeof(struct ib_uverbs_create_qp), 32, 24, 64);
    taken(&m, &a, VB_BROKER, "efa CREATE_QP");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_OPEN_XRCD, 16, 4, 0, 0);
    map(&m, IN_AT, sizeof(xrcd), &xrcd);
    if (taken(&m, &a, VB_BROKER, "OPEN_XRCD"))
        ok(r.command->fd.kind == VB_RAW_FD && *(int32_t *)((uint8_t *)r.core_in + r.command->fd.at) == 5,
           "its descriptor");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, 8, 4, 0, 0);
    if (taken(&m, &a, VB_BROKER, "CREATE_COMP_CHANNEL"))
        ok(r.command->fd.place == VB_CORE_OUT && r.command->fd.kind == VB_FD_NEW && r.command->fd.at == 0,
           "a descriptor comes out of it");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_DEALLOC_PD, 4, 0, 0, 0);
    a.attr[1].data = 0xdeadbeef00000005; /* only the low 4 bytes count */
    if (taken(&m, &a, VB_BROKER, "DEALLOC_PD"))
        ok(vb_request_number(&r, &r.command->ended, &number) == 0 && number == 5 && r.attr[1].raw.data == 5,
           "its number, which lies in the attribute");
    unmap_all(&m);
    /* An extended command that is shorter than its struct. The missing bytes read as 0. */
    a = ask_write(&m, RDMA_DRIVER_RXE, EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP,
                  offsetof(struct ib_uverbs_ex_create_qp, create_flags), 40, 0, 32);
    memset(map(&m, IN_AT, 4, NULL), 0xff, offsetof(struct ib_uverbs_ex_create_qp, create_flags));
    memset(r.copy, 0xff, sizeof(r.copy)); /* leftovers of an earlier request */
    if (taken(&m, &a, VB_BROKER, "rxe EX_CREATE_QP of an older library")) {
        memset(r.core_out, 0xff, r.core_out_len); /* the kernel's answer */
        ok(((struct ib_uverbs_ex_create_qp *)r.core_in)->comp_mask == UINT32_MAX &&
               ((struct ib_uverbs_ex_create_qp *)r.core_in)->source_qpn == 0,
           "what it does not know is 0");
    }
    unmap_all(&m);
}

/* Builds a REG_MR request of Linux 6.17, in which all three outputs are mandatory. */
static struct ask reg_mr(bool address)
{
    struct ask a = ask(RDMA_DRIVER_MLX5, UVERBS_OBJECT_MR, 5);

    say(&a, 0, 0, 0);           /* HANDLE */
    say(&a, 9, 4, OUT_AT);      /* LKEY */
    say(&a, 10, 4, OUT_AT + 8); /* RKEY */
    say(&a, 1, 0, 3);           /* PD */
    say(&a, 3, 8, 0x5000);      /* IOVA */
    say(&a, 5, 8, 0x2000);      /* LENGTH */
    say(&a, 6, 4, 7);           /* ACCESS_FLAGS */
    if (address) {
        say(&a, 4, 8, 0x5000); /* ADDR */
    } else {
        say(&a, 7, 0, 12); /* FD */
        say(&a, 8, 8, 0);  /* FD_OFFSET */
    }
    return a;
}

static void methods(void)
{
    struct memory m = {0};
    struct ask a = reg_mr(true);
    uint32_t number;

    map(&m, OUT_AT, 64, NULL);
    taken(&m, &a, VB_MEMORY, "the newer REG_MR of memory");
    say(&a, UVERBS_ATTR_UHW_OUT, 16, OUT_AT + 16);
    if (taken(&m, &a, VB_MEMORY, "with an output of the driver's")) {
        vk_run(built, WINDOW, SPLIT, layout.header, r.command->attrs, 3);
        vb_request_collect(&r, built, &layout);
        ok(vb_request_number(&r, &r.command->made, &number) == 0 && number == vk_number(3, 0) &&
               vb_request_give(&r, mem_write, &m) == 0 && *map(&m, OUT_AT + 8, 4, NULL) == vk_byte(3, 10, 0) &&
               ((struct ib_uverbs_attr *)map(&m, HEADER + 24, 16, NULL))->data == vk_number(3, 0) &&
               ((struct ib_uverbs_attr *)map(&m, HEADER + 40, 16, NULL))->flags ==
                   (UVERBS_ATTR_F_MANDATORY | UVERBS_ATTR_F_VALID_OUTPUT),
           "what comes out of it is given");
    }
    a = reg_mr(false);
    if (taken(&m, &a, VB_BROKER, "the newer REG_MR of a dma-buf")) {
        is_int(vb_attr_fd(vb_request_attr(&r, 7)), 12, "its descriptor");
        vb_attr_set_fd(vb_request_attr(&r, 7), -1);
        is_int(vb_request_attr(&r, 7)->raw.data_s64, -1, "can be another");
    }
    a = ask(RDMA_DRIVER_MLX5, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4, OUT_AT);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4, OUT_AT);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, 1);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, 0);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, 0);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, 0);
    say(&a, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, 0xffffffff);
    if (taken(&m, &a, VB_BROKER, "NCCL's probe for dma-bufs")) {
        is_int(vb_attr_fd(vb_request_attr(&r, UVERBS_ATTR_REG_DMABUF_MR_FD)), -1, "is one");
        vb_attr_set_fd(vb_request_attr(&r, UVERBS_ATTR_REG_DMABUF_MR_FD), 9);
        is_int(vb_request_attr(&r, UVERBS_ATTR_REG_DMABUF_MR_FD)->raw.data, 9, "can be none");
    }
    ok(!vb_request_attr(&r, 77), "an attribute that is not there");
    unmap_all(&m);
}

int main(void)
{
    schema();
    recorded();
    mlx5();
    others();
    methods();
    return tap_done();
}
