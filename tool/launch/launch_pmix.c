/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/launch/launch_pmix.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Follows the PMIx standard 4.1 (chapters 3 and 4, appendix D). The ABI has been the same since 2.0. */
#define LIBRARY  "libpmix.so.2"
#define NSPACE   256
#define KEY      512
#define GLOBAL   3
#define STRING   3
#define INT      6
#define UINT32   14
#define WILDCARD (UINT32_MAX - 1) /* PMIX_RANK_WILDCARD: the whole job */
#define LOOK_S   2                /* seconds to wait for values that the server has without asking other ranks */
#define MISSING  (-46)            /* PMIX_ERR_NOT_FOUND */
#define AGAIN_MS 50
#define OUR_KEY  "hawser.mesh"

struct pmix_proc {
    char nspace[NSPACE];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        char *string;
        int integer;
        uint32_t uint32;
        uint64_t room[4]; /* as large as the largest member of the original union */
    } data;
};
struct pmix_info {
    char key[KEY];
    uint32_t flags;
    struct pmix_value value;
};

struct launch_pmix {
    int (*Init)(struct pmix_proc *proc, struct pmix_info *info, size_t n);
    int (*Finalize)(const struct pmix_info *info, size_t n);
    int (*Put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*Commit)(void);
    int (*Get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *info, size_t n,
               struct pmix_value **value);
    const char *(*Error_string)(int status);
    struct pmix_proc self;
};

static int load_symbols(struct launch_pmix *p)
{
    static const char *const names[] = {"PMIx_Init",   "PMIx_Finalize", "PMIx_Put",
                                        "PMIx_Commit", "PMIx_Get",      "PMIx_Error_string"};
    void **to[] = {(void **)&p->Init,   (void **)&p->Finalize, (void **)&p->Put,
                   (void **)&p->Commit, (void **)&p->Get,      (void **)&p->Error_string};
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return hw_fail(
            -ENOENT,
            "the launcher does not provide the address of rank 0, and PMIx is not available (%s): use --meet HOST",
            dlerror());
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (!(*to[i] = dlsym(lib, names[i])))
            return hw_fail(-ENOENT, "%s has no function %s", LIBRARY, names[i]);
    return 0;
}

static int pmix_fail(const struct launch_pmix *p, int status, const char *what)
{
    return hw_fail(-EIO, "PMIx: %s: %s", what, p->Error_string(status));
}

/* Waits for a value. Some servers report a key as missing while the other rank has not yet published it, instead of
 * waiting (Open MPI 4.1.4 does so occasionally). This function then asks again. */
static int get_value(struct launch_pmix *p, uint32_t rank, const char *key, int seconds, struct pmix_value **value)
{
    struct pmix_proc proc = p->self;
    struct pmix_info wait = {.key = "pmix.timeout", .value = {.type = INT, .data = {.integer = seconds}}};
    char name[KEY] = "";
    uint64_t until = hw_deadline(seconds * 1000);
    int status;
    proc.rank = rank;
    snprintf(name, sizeof name, "%s", key);
    *value = NULL;
    while ((status = p->Get(&proc, name, &wait, 1, value)) == MISSING && hw_now() < until)
        (void)poll(NULL, 0, AGAIN_MS);
    return status || !*value ? pmix_fail(p, status, key) : 0;
}

static int get_string(struct launch_pmix *p, uint32_t rank, const char *key, int seconds, char *text, size_t cap)
{
    /* The value is leaked. Its destructors are macros in PMIx's headers, and the leak is a few kilobytes per job. */
    struct pmix_value *v;
    int rc = get_value(p, rank, key, seconds, &v);
    if (rc < 0)
        return rc;
    if (v->type != STRING || !v->data.string)
        return hw_fail(-EIO, "PMIx: %s is not a string", key);
    snprintf(text, cap, "%s", v->data.string);
    return 0;
}

int launch_pmix_open(struct launch_pmix **out, uint32_t *rank, uint32_t *size)
{
    struct launch_pmix *p = calloc(1, sizeof *p);
    struct pmix_value *v;
    if (!p)
        return hw_no_memory("PMIx");
    int rc = load_symbols(p);
    int status = rc == 0 ? p->Init(&p->self, NULL, 0) : 0;
    if (status)
        rc = pmix_fail(p, status, "joining the launcher's server");
    if (rc < 0) {
        free(p);
        return rc;
    }
    HW_KEEP_ERROR();
    *rank = p->self.rank;
    if (get_value(p, WILDCARD, "pmix.job.size", LOOK_S, &v) == 0 && v->type == UINT32)
        *size = v->data.uint32;
    *out = p;
    return 0;
}

void launch_pmix_close(struct launch_pmix *p)
{
    if (p)
        (void)p->Finalize(NULL, 0);
    free(p);
}

int launch_pmix_put(struct launch_pmix *p, const char *text)
{
    char name[KEY] = OUR_KEY;
    HW_AUTO_FREE char *copy = strdup(text);
    struct pmix_value v = {.type = STRING, .data = {.string = copy}};
    if (!copy)
        return hw_no_memory("PMIx");
    int status = p->Put(GLOBAL, name, &v);
    if (!status)
        status = p->Commit();
    return status ? pmix_fail(p, status, "publishing the address of rank 0") : 0;
}

int launch_pmix_get(struct launch_pmix *p, char *text, size_t cap, int timeout_ms)
{
    return get_string(p, 0, OUR_KEY, HW_MAX(timeout_ms / 1000, 1), text, cap);
}

int launch_pmix_host(struct launch_pmix *p, uint32_t rank, char *name, size_t cap)
{
    return get_string(p, rank, "pmix.hname", LOOK_S, name, cap);
}
