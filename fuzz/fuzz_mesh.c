/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of `hawser mesh`: messages between ranks ('m'), SLURM's host lists ('l'), and result files ('f'), which
 * are also evaluated. An accepted message encodes to the same bytes, and names and numbers are within their bounds. */
#include "fuzz.h"
#include "tool/launch/launch_env.h"
#include "tool/mesh/judge/mesh_judge.h"
#include "tool/mesh/show/mesh_json.h"

static void read_message(const uint8_t *data, size_t size)
{
    static struct mesh_message m;
    uint8_t again[MESH_MESSAGE];
    int rc = mesh_decode(data, size, &m);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc < 0)
        return;
    FUZZ_CHECK(m.hello.n_nics <= TP_MAX_NICS && m.answer.n_nics <= TP_MAX_NICS && m.order.n_targets <= MESH_TARGETS);
    FUZZ_CHECK(m.type != MESH_HELLO || (m.hello.rank < m.hello.size && m.hello.size <= MESH_RANKS));
    FUZZ_CHECK(memchr(m.hello.name, 0, sizeof(m.hello.name)) && memchr(m.answer.text, 0, sizeof(m.answer.text)));
    FUZZ_CHECK(mesh_encode(&m, again) == (int)size && memcmp(again, data, size) == 0);
}

static void read_list(const char *text)
{
    char **names = NULL;
    uint32_t n = 0;
    int rc = launch_nodelist(text, &names, &n);
    FUZZ_CHECK(rc == 0 ? n >= 1 && n <= MESH_RANKS : *hw_error() != 0 && names == NULL);
    for (uint32_t i = 0; names && i < n; i++)
        FUZZ_CHECK(*names[i] && strlen(names[i]) < MESH_NAME);
    launch_names_free(names, n);
}

static void read_file(const uint8_t *data, size_t size)
{
    struct mesh m;
    struct mesh_findings f;
    char text[512];
    FILE *in = fmemopen((void *)(uintptr_t)data, size, "r");
    if (!in)
        return;
    int rc = mesh_read(in, "input", &m);
    fclose(in);
    FUZZ_CHECK(rc == 0 || *hw_error());
    if (rc == 0 && m.n <= 64 && mesh_judge(&m, &f) == 0) {
        for (size_t i = 0; i < f.n; i++) {
            FUZZ_CHECK(f.f[i].node < (int)m.n && f.f[i].peer < (int)m.n);
            mesh_say(&m, &f.f[i], text, sizeof(text));
            FUZZ_CHECK(*text);
        }
        mesh_findings_free(&f);
    }
    mesh_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    hw_fail(0, "%s", "");
    if (data[0] == 'm') {
        read_message(data + 1, size - 1);
    } else if (data[0] == 'l') {
        char *text = fuzz_text(data + 1, size - 1);
        read_list(text);
        free(text);
    } else if (data[0] == 'f') {
        read_file(data + 1, size - 1);
    }
    return 0;
}
