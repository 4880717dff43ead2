/* SPDX-License-Identifier: Apache-2.0 */
/* Writes docs/verbs-schema.md from the tables in verbs/schema/schema_*.c. Without an argument, it prints the document.
 * With a file as its argument, it tests whether the file matches the tables. */
#include "tests/tap.h"
#include "verbs/schema/schema.h"

#include <rdma/ib_user_ioctl_cmds.h>

static const char *const kinds[] = {[VB_IN] = "in",
                                    [VB_OUT] = "out",
                                    [VB_HANDLE] = "number",
                                    [VB_HANDLE_NEW] = "new number",
                                    [VB_FD] = "descriptor",
                                    [VB_FD_NEW] = "new descriptor",
                                    [VB_RAW_FD] = "any descriptor"};

static bool is_write(const struct vb_command *c)
{
    return c->object == UVERBS_OBJECT_DEVICE && c->method == UVERBS_METHOD_INVOKE_WRITE;
}

static const char *where(enum vb_where w)
{
    return w == VB_MEMORY ? "application" : "broker";
}

/* Writes a length range, such as "24", "16-24" or "8 and more". */
static void lengths(FILE *f, uint32_t min, uint32_t max)
{
    if (max == UINT32_MAX)
        fprintf(f, "%u and more", min);
    else if (max <= min)
        fprintf(f, "%u", min);
    else
        fprintf(f, "%u-%u", min, max);
}

static void counted(FILE *f, const struct vb_command *c)
{
    if (c->makes)
        fprintf(f, "makes %s", vb_type_name(c->makes));
    if (c->ends)
        fprintf(f, "ends %s", vb_type_name(c->ends));
}

static void addresses(FILE *f, const struct vb_address *a, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        fprintf(f, "%s%s at %u", i ? ", " : "", a[i].name, a[i].at);
}

static void write_commands(FILE *f)
{
    const struct vb_command *c;

    fputs("## Commands of INVOKE_WRITE\n"
          "The columns \"in\" and \"out\" have the lengths of CORE_IN and CORE_OUT in bytes. A longer CORE_IN must "
          "have zeros after "
          "the greatest length,\nwhich are removed. A longer CORE_OUT is filled with zeros.\n\n"
          "| command | number | runs in | in | out | counted | besides |\n|---|---|---|---|---|---|---|\n",
          f);
    for (unsigned i = 0; (c = vb_schema_at(i)) != NULL; i++) {
        if (!is_write(c) || c->where == VB_REFUSED)
            continue;
        fprintf(f, "| %s | 0x%x | %s | ", c->name, c->command, where(c->where));
        lengths(f, c->in_min, c->in_max);
        fprintf(f, " | %u | ", c->out_min);
        counted(f, c);
        fputs(" | ", f);
        addresses(f, c->addresses, c->n_addresses);
        if (c->fd.place != VB_NOWHERE)
            fprintf(f, "%s at %u of CORE_%s", kinds[c->fd.kind], c->fd.at, c->fd.place == VB_CORE_IN ? "IN" : "OUT");
        if (c->zero_at)
            fprintf(f, "0 at %u: no work requests in line", c->zero_at);
        fputs(" |\n", f);
    }
}

static void methods(FILE *f)
{
    const struct vb_command *c;

    fputs("\n## Methods\n"
          "An attribute's length is given if it has one. The kernel requires attributes with *, and an attribute with "
          "+ may be "
          "longer. The lengths of\nUHW_IN and UHW_OUT depend on the driver. If an attribute is a memory address, the "
          "stub "
          "makes the request in the application.\n\n"
          "| object/method | name | runs in | counted | attributes |\n|---|---|---|---|---|\n",
          f);
    for (unsigned i = 0; (c = vb_schema_at(i)) != NULL; i++) {
        if (is_write(c) || c->where == VB_REFUSED)
            continue;
        fprintf(f, "| %u/%u | %s | %s | ", c->object, c->method, c->name, where(c->where));
        counted(f, c);
        fputs(" |", f);
        for (const struct vb_attr_rule *a = c->attrs; a->kind != VB_END; a++) {
            fprintf(f, "%s 0x%x %s%s: ", a == c->attrs ? "" : ",", a->id, a->name, a->mandatory ? "*" : "");
            fputs(a->memory ? "memory address" : kinds[a->kind], f);
            if ((a->min || a->max) && !a->driver) {
                fputc(' ', f);
                lengths(f, a->min, a->max);
                fputs(a->more ? "+" : "", f);
            }
        }
        fputs(" |\n", f);
    }
}

static void refused(FILE *f)
{
    const struct vb_command *c;

    fputs("\n## Known requests that are refused\n| object/method | name | why |\n|---|---|---|\n", f);
    for (unsigned i = 0; (c = vb_schema_at(i)) != NULL; i++) {
        if (c->where != VB_REFUSED)
            continue;
        if (is_write(c))
            fprintf(f, "| write 0x%x ", c->command);
        else
            fprintf(f, "| 0x%x/0x%x ", c->object, c->method);
        fprintf(f, "| %s | %s |\n", c->name, c->why);
    }
}

static void drivers(FILE *f)
{
    const struct vb_driver *d;

    fputs(
        "\n## What drivers add\nA longer UHW_OUT is cut to the length in the table, but not below 64 bytes. Commands "
        "that a "
        "driver's table does not list have no UHW_IN.\n\"by INVOKE_WRITE\": the method fails with EPROTONOSUPPORT, and "
        "the library then uses the command of INVOKE_WRITE.\n",
        f);
    for (unsigned i = 0; (d = vb_driver_at(i)) != NULL; i++) {
        fprintf(f,
                "\n### %s (driver %u)%s\n| command | UHW_IN | UHW_OUT | runs in | addresses |\n|---|---|---|---|---|\n",
                d->name, d->id, d->doorbells ? ", posts by write()" : "");
        for (unsigned p = 0; p < d->n_parts; p++) {
            const struct vb_driver_part *part = &d->parts[p];
            const struct vb_command *c = vb_schema(part->object, part->method, part->command);
            fprintf(f, "| %s | ", c->name);
            lengths(f, part->in_min, part->in_max);
            fprintf(f, " | %u | ", HW_MAX(part->out_max, VB_UHW_OUT_ANY));
            fputs(part->by_write ? "by INVOKE_WRITE" : where(part->memory ? VB_MEMORY : c->where), f);
            fputs(" | ", f);
            addresses(f, part->addresses, part->n_addresses);
            fputs(" |\n", f);
        }
    }
}

static void document(FILE *f)
{
    fputs("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
          "# Requests that a program may make to a verbs device\n\n"
          "`tests/verbs/schema/verbs_schema_doc.c` writes this page from the tables of `verbs/schema/schema_*.c`; "
          "`house-verbs-schema` fails if the page is out of date.\n\n"
          "A request that is not listed fails with EOPNOTSUPP. An attribute that is not listed makes the request fail "
          "with "
          "EPROTONOSUPPORT if it is\nmarked mandatory, as with an older kernel, and otherwise is removed. A policy can "
          "forbid more. The column \"runs in\" says \"broker\" if the broker\nmakes the request, on the application's "
          "open file, and \"application\" if the stub makes it in the application's address space.\n\n",
          f);
    write_commands(f);
    methods(f);
    refused(f);
    drivers(f);
}

/* Returns true if the file equals the wanted text. Otherwise, reports the first wanted line that differs. */
static bool same(char *want, FILE *have)
{
    char line[8192], *rest = want, *next;
    unsigned n = 0;

    while ((next = strsep(&rest, "\n")) != NULL && rest) {
        n++;
        if (!fgets(line, sizeof(line), have) || strncmp(line, next, strlen(next)) != 0 ||
            strcmp(line + strlen(next), "\n") != 0) {
            diag("line %u should be: %s", n, next);
            return false;
        }
    }
    return n > 0 && !fgets(line, sizeof(line), have);
}

int main(int argc, char **argv)
{
    FILE *have, *f;
    char *want = NULL;
    size_t size;

    if (argc < 2) {
        document(stdout);
        return 0;
    }
    have = fopen(argv[1], "r");
    f = open_memstream(&want, &size);
    if (!f || !ok(have != NULL, "%s can be read", argv[1]))
        return 1;
    document(f);
    fclose(f);
    if (!ok(same(want, have), "%s is what the schema says", argv[1]))
        diag("to renew it: BUILD/tests/verbs/schema/verbs_schema_doc >docs/verbs-schema.md");
    fclose(have);
    free(want);
    return tap_done();
}
