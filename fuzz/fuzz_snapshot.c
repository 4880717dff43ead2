/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot from an untrusted file. An accepted snapshot can be planned, can be rebuilt as a sysfs tree and as NCCL's
 * XML, and is unchanged after it is written and read again. */
#include "fuzz.h"
#include "sandbox/plan/env.h"
#include "sandbox/sysfs/sysfs.h"

static char *written(const struct sbx_snapshot *s, size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    FUZZ_CHECK(f && sbx_snapshot_write(s, f) == 0 && fclose(f) == 0);
    return text;
}

/* Checks that no name can refer to a file outside the tree. */
static void check(const struct sbx_node *n)
{
    FUZZ_CHECK(n->kind == SBX_DIR || n->n_child == 0);
    for (size_t i = 0; i < n->n_child; i++) {
        const struct sbx_node *c = n->child[i];
        FUZZ_CHECK(c->up == n && *c->name && *c->name != '.' && !strchr(c->name, '/'));
        FUZZ_CHECK(i == 0 || strcmp(n->child[i - 1]->name, c->name) < 0);
        FUZZ_CHECK(c->kind != SBX_LINK || c->data[0] != '/');
        check(c);
    }
}

static void use(const struct sbx_snapshot *s, const struct sbx_want *want)
{
    struct sbx_plan p;
    struct sbx_tree t;
    struct sbx_env e;
    char *text = NULL;
    size_t len;
    int made = sbx_plan_make(&p, s, want);
    FUZZ_CHECK(made == 0 || made == -ENXIO); /* -ENXIO: no NIC is left, but the plan is complete */
    FUZZ_CHECK(p.n_nic == s->n_net && p.n_rdma == s->n_rdma);
    /* building fails if the tree has a file in place of a folder */
    int rc = sbx_sysfs_build(&t, s, &p);
    FUZZ_CHECK(rc == 0 || rc == -EEXIST || rc == -E2BIG || rc == -EINVAL || rc == -ENAMETOOLONG);
    check(t.root);
    sbx_tree_free(&t);
    FILE *f = open_memstream(&text, &len);
    FUZZ_CHECK(f && sbx_nccl_topo(s, &p, f) == 0 && sbx_plan_text(&p, s, f) == 0 && sbx_plan_json(&p, s, f) == 0 &&
               fclose(f) == 0);
    free(text);
    FUZZ_CHECK(sbx_env_make(&e, &p, &(struct sbx_env_want){.debug_all = true}) == 0);
    sbx_env_free(&e);
    sbx_plan_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_snapshot s, again;
    hw_fail(0, "%s", "");
    int rc = sbx_snapshot_parse(&s, (const char *)data, size);
    if (rc < 0) {
        FUZZ_CHECK(*hw_error());
    } else {
        size_t a_len, b_len;
        char *a = written(&s, &a_len);
        FUZZ_CHECK(sbx_snapshot_parse(&again, a, a_len) == 0);
        char *b = written(&again, &b_len);
        FUZZ_CHECK(a_len == b_len && memcmp(a, b, a_len) == 0);
        free(a);
        free(b);
        sbx_snapshot_free(&again);
        use(&s, &(struct sbx_want){0});
        use(&s, &(struct sbx_want){.exclude = "", .force = true, .keep_nics = true});
    }
    sbx_snapshot_free(&s);
    return 0;
}
