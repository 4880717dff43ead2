/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks createRuntime and poststop. */
#include "net/sysfs.h"
#include "oci/oci.h"
#include "sandbox/move/again.h"
#include "sandbox/netdev/netdev.h"
#include "sandbox/sysfs/sysfs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the container's state and configuration ----------------------------------------------------- */

/* Reads the container's state from fd. */
static int read_state(struct sbx_oci *o, int fd)
{
    HW_AUTO_FREE char *text = NULL;
    size_t len;
    int rc = hw_file_read(fd, SBX_OCI_STATE_MAX, "the state of the container, on standard input", &text, &len);
    return rc < 0 ? rc : sbx_oci_state(o, text, len);
}

/* Reads config.json from the bundle that the state refers to. */
static int read_bundle_config(struct sbx_oci *o)
{
    HW_AUTO_FREE char *text = NULL;
    char path[5000];
    size_t len;
    if (!o->bundle)
        return hw_fail(-EINVAL, "the state of the container has no bundle");
    snprintf(path, sizeof(path), "%s/config.json", o->bundle);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    int rc = hw_file_read(fd, SBX_OCI_CONFIG_MAX, path, &text, &len);
    hw_close(&fd);
    return rc < 0 ? rc : sbx_oci_config(o, text, len);
}

static const char *id_of_container(const struct sbx_oci *o)
{
    return o->set.value[SBX_KEY_ID] ? o->set.value[SBX_KEY_ID] : o->id;
}

/* ---- journals of other containers ------------------------------------------------------------------ */

enum { HEAL_MAX = 256 };
struct ended {
    char id[HEAL_MAX][SB_ID_MAX + 1];
    size_t n;
};

static int collect_ended_container(const struct sb_status *s, void *arg)
{
    struct ended *e = arg;
    if ((s->state == SB_STATE_ENDED || s->state == SB_STATE_BROKEN) && e->n < HEAL_MAX)
        memcpy(e->id[e->n++], s->id, sizeof(s->id));
    return 0;
}

void sbx_heal(const char *journal_dir, const struct hw_logger *log)
{
    struct ended *e = calloc(1, sizeof(*e));
    if (!e || sb_status(journal_dir, NULL, collect_ended_container, e) < 0)
        sb_log(log, HAWSER_LOG_WARN, "looking for containers that have ended: %s", e ? hw_error() : "out of memory");
    for (size_t i = 0; e && i < e->n; i++) {
        struct sb_restore_options r = {.id = e->id[i], .journal_dir = journal_dir, .ended = true, .log = log};
        if (sb_restore(&r, NULL) < 0)
            sb_log(log, HAWSER_LOG_WARN, "restoring the NICs of %s, which has ended or whose move was interrupted: %s",
                   e->id[i], hw_error());
    }
    free(e);
}

/* ---- createRuntime -------------------------------------------------------------------------------- */

struct here {
    const struct sbx_oci *o;
    bool done;
};

static int check_already_moved(const struct sb_status *s, void *arg)
{
    struct here *h = arg;
    h->done = s->state == SB_STATE_RUNNING && s->holder == h->o->pid;
    return 0;
}

static int mount_container_sysfs(const struct sbx_oci *o, const struct sbx_snapshot *s, const struct sbx_plan *p)
{
    const char *how = o->set.value[SBX_KEY_SYSFS];
    if (!how || strcmp(how, "no") == 0)
        return 0;
    if (!o->root)
        return hw_fail(-EINVAL, "config.json has no root.path, below which sys could be mounted");
    if (*how == '/') {
        HW_AUTO_CLOSE int folder = sbx_mount_open(how);
        return folder < 0 ? folder : sbx_mount_in(o->pid, o->start, o->root, NULL, folder);
    }
    struct sbx_tree t __attribute__((cleanup(sbx_tree_free))) = {0};
    int rc = sbx_sysfs_build(&t, s, p);
    return rc < 0 ? rc : sbx_mount_in(o->pid, o->start, o->root, &t, -1);
}

static int move_container_nics(const struct sbx_oci *o, const struct sbx_snapshot *s, const struct sbx_plan *p)
{
    char pid[16];
    struct sb_nic nic[SB_NICS_MAX];
    const char *rdma = o->set.value[SBX_KEY_RDMA], *arp = o->set.value[SBX_KEY_ARP];
    struct sb_move_options m = {.id = id_of_container(o),
                                .netns = pid,
                                .start = o->start,
                                .nic = nic,
                                .journal_dir = o->set.value[SBX_KEY_JOURNAL_DIR],
                                .rdma = !rdma || *rdma == 'a' ? SB_RDMA_AUTO
                                        : *rdma == 'y'        ? SB_RDMA_REQUIRE
                                                              : SB_RDMA_LEAVE,
                                .no_arp = arp && *arp == 'n',
                                .log = o->log,
                                .force = sbx_settings_yes(&o->set, SBX_KEY_FORCE)};
    for (size_t i = 0; i < s->n_net; i++) {
        if (!sbx_nic_in(p, i))
            continue;
        if (m.n == SB_NICS_MAX)
            return hw_fail(-E2BIG, "too many NICs: at most %d", SB_NICS_MAX);
        nic[m.n++] = (struct sb_nic){.name = s->net[i].name};
    }
    snprintf(pid, sizeof(pid), "%d", (int)o->pid);
    return m.n ? sb_move(&m) : 0;
}

/* Sets up the container's /sys for the NICs as they are after the move. On failure, restores the NICs. The kernel
 * removes mounts in the container when the container ends. */
static int equip_container(const struct sbx_oci *o, struct sbx_snapshot *s, struct sbx_plan *p,
                           const struct sbx_want *want)
{
    struct sb_restore_options r = {
        .id = id_of_container(o), .journal_dir = o->set.value[SBX_KEY_JOURNAL_DIR], .log = o->log};
    HW_AUTO_FREE char *nics = sbx_plan_nics(p);
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)o->pid);
    int rc = !nics ? hw_no_memory("the NICs' names") : *nics ? sbx_again_in(s, p, want, pid, o->start, o->log) : 0;
    if (rc == 0)
        rc = mount_container_sysfs(o, s, p);
    if (rc == 0 || (nics && !*nics))
        return rc;
    HW_KEEP_ERROR();
    if (sb_restore(&r, NULL) < 0)
        sb_log(o->log, HAWSER_LOG_WARN, "restoring the NICs: %s", hw_error());
    return rc;
}

static int prepare_container(const struct sbx_oci *o)
{
    const char *journals = o->set.value[SBX_KEY_JOURNAL_DIR];
    struct here h = {.o = o};
    struct sbx_snapshot s __attribute__((cleanup(sbx_snapshot_free))) = {0};
    struct sbx_plan p __attribute__((cleanup(sbx_plan_free))) = {0};
    int rc = sb_status(journals, id_of_container(o), check_already_moved, &h);
    if (h.done)
        return 0;
    if (rc < 0 && rc != -ENOENT)
        return rc;
    sbx_heal(journals, o->log);
    int root = hw_root_open("/");
    rc = root < 0 ? root : sbx_snapshot_take(&s, root, &(struct sbx_take){.live = true});
    hw_close(&root);
    if (rc < 0)
        return rc;
    struct sbx_want want = sbx_settings_want(&o->set);
    rc = sbx_plan_make(&p, &s, &want);
    if (rc < 0 || (rc = move_container_nics(o, &s, &p)) < 0)
        return rc;
    return equip_container(o, &s, &p, &want);
}

int sbx_hook_create(struct sbx_oci *o, int fd)
{
    int rc = read_state(o, fd);
    if (rc < 0 || (rc = read_bundle_config(o)) < 0 || (rc = sbx_settings_ask(&o->set)) <= 0)
        return rc;
    if (!o->pid)
        return hw_fail(-EINVAL, "the state of the container has no pid");
    o->start = sb_process_start(o->pid);
    if (!o->start)
        return hw_fail(-ESRCH, "the container's process %d has ended", (int)o->pid);
    return prepare_container(o);
}

/* ---- poststop ------------------------------------------------------------------------------------- */

#define GRACE_MS 5000

static int check_still_running(const struct sb_status *s, void *arg)
{
    *(bool *)arg = s->state == SB_STATE_RUNNING;
    return 0;
}

/* Waits up to GRACE_MS for the container to end. If the container with this ID is still running after that, it is
 * probably not the container that has stopped, but a container that got the same ID from another runtime or from the
 * argument id=. A container that was just killed may take a moment to end. */
static int await_container_end(const char *journals, const char *id)
{
    const struct timespec pause = {.tv_nsec = 20 * HW_MS};
    uint64_t deadline = hw_deadline(GRACE_MS);
    for (;;) {
        bool running = false;
        int rc = sb_status(journals, id, check_still_running, &running);
        if (rc < 0 && rc != -ENOENT)
            return rc;
        if (!running)
            return 0;
        if (hw_now() > deadline)
            return hw_fail(
                -EBUSY, "%s is still running and keeps its NICs; `hawser sandbox restore %s` takes them back", id, id);
        nanosleep(&pause, NULL);
    }
}

int sbx_hook_stop(struct sbx_oci *o, int fd)
{
    unsigned lost = 0;
    /* Do not read annotations or the bundle, which may have been deleted. The journal is sufficient to restore the
     * NICs. */
    o->no_annotations = true;
    int rc = read_state(o, fd);
    if (rc < 0)
        return rc;
    /* .ended is needed, because a new container with this ID may be created between the check below and the restore */
    struct sb_restore_options r = {
        .id = id_of_container(o), .journal_dir = o->set.value[SBX_KEY_JOURNAL_DIR], .ended = true, .log = o->log};
    rc = await_container_end(r.journal_dir, r.id);
    if (rc < 0 || (rc = sb_restore(&r, &lost)) < 0)
        return rc;
    return lost ? hw_fail(-ENODEV, "%u of the container's NICs %s lost", lost, lost == 1 ? "is" : "are") : 0;
}
