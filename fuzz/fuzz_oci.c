/* SPDX-License-Identifier: Apache-2.0 */
/* The input from a container runtime. The first byte selects a state ('s') or a config.json. A config.json is unchanged
 * after it is written and read again. Adding the sandbox's parts twice has the same result as adding them once, and
 * removing the parts restores the original. */
#include "fuzz.h"
#include "oci/note.h"
#include "oci/spec.h"

static json_t *again(const json_t *o)
{
    char *text = sbx_oci_dump(o);
    FUZZ_CHECK(text);
    json_t *b = sbx_oci_load(text, strlen(text));
    FUZZ_CHECK(b && json_equal(o, b));
    free(text);
    return b;
}

static void edit(const char *text, size_t len)
{
    static const char *const arg[] = {"nics=rdma0", NULL};
    struct sbx_dev dev = {"/dev/infiniband/uverbs0", 231, 192};
    struct sbx_devs devs = {&dev, 1};
    struct sbx_plan plan = {0};
    struct hw_logger quiet = {0};
    struct sbx_spec sp = {.plan = &plan,
                          .env = {.debug_all = true},
                          .sysfs = "/run/hawser/all.sys",
                          .topo = "/run/hawser/all.nccl.xml",
                          .topo_at = "/topo.xml",
                          .program = "/usr/bin/hawser",
                          .hook_arg = arg,
                          .dev = &devs,
                          .memlock = true,
                          .log = &quiet};
    json_t *o = sbx_oci_load(text, len), *notes = json_object();
    if (!o || sbx_spec_undo(o, notes) != 0) { /* a record that exists only in the configuration is not trusted */
        FUZZ_CHECK(!o || sbx_note_name(o, SBX_NOTE_SANDBOX) || *hw_error());
        json_decref(notes);
        FUZZ_CHECK(*hw_error());
        json_decref(o);
        return;
    }
    json_t *a = again(o), *b;
    int rc = sbx_spec_apply(a, &sp, notes);
    FUZZ_CHECK(rc == 0 || rc == -EINVAL);
    if (rc == 0) {
        b = again(a);
        FUZZ_CHECK(sbx_spec_apply(b, &sp, notes) == 0 && json_equal(a, b));
        json_decref(b);
        b = again(a);
        FUZZ_CHECK(sbx_spec_undo(b, notes) == 1);
        FUZZ_CHECK(sbx_spec_undo(b, notes) == 0);
        FUZZ_CHECK(json_equal(b, o) || memmem(text, len, "null", 4)); /* null values are removed */
        json_decref(b);
    }
    json_decref(a);
    json_decref(o);
    json_decref(notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sbx_oci o = {0};
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    hw_fail(0, "%s", "");
    int rc = *data == 's' ? sbx_oci_state(&o, text, size - 1) : sbx_oci_config(&o, text, size - 1);
    FUZZ_CHECK(rc == 0 || *hw_error());
    if (rc == 0 && *data == 's')
        FUZZ_CHECK(o.id && o.pid >= 0 && (!o.bundle || *o.bundle == '/'));
    if (rc == 0)
        FUZZ_CHECK(!o.root || *o.root == '/');
    for (int k = 0; k < SBX_KEYS; k++) /* values that only arguments can set are not set */
        FUZZ_CHECK(!o.set.value[k] || k == SBX_KEY_GPUS || k == SBX_KEY_PEER_NICS || k == SBX_KEY_BOOTSTRAP ||
                   k == SBX_KEY_REQUIRE_IPV4 || k == SBX_KEY_RDMA);
    sbx_oci_free(&o);
    if (*data != 's')
        edit(text, size - 1);
    return 0;
}
