/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that the NIXL backend receives from other agents: connection information, which is part of NIXL's metadata,
 * and pieces of notifications. Accepted values encode and decode to the same values. */
#include "base/base.h"
#include "fuzz.h"
#include "nixl/blob.h"

static void check_info(const uint8_t *data, size_t size)
{
    struct hx_info info, again;
    uint8_t out[HX_INFO], once_more[HX_INFO];
    memset(&info, 0, sizeof(info));
    memset(&again, 0, sizeof(again));
    int rc = hx_info_decode(data, size, &info);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc)
        return;
    FUZZ_CHECK(size == HX_INFO && info.port);
    for (size_t i = 0; i < HX_ADDRS; i++)
        FUZZ_CHECK(info.addr[i].family == 0 || info.addr[i].family == 4 || info.addr[i].family == 6);
    hx_info_encode(out, &info);
    FUZZ_CHECK(hx_info_decode(out, sizeof(out), &again) == 0);
    hx_info_encode(once_more, &again);
    FUZZ_CHECK(memcmp(out, once_more, sizeof(out)) == 0);
}

static void check_note(const uint8_t *data, size_t size)
{
    struct hx_note note, again;
    uint8_t head[HX_NOTE + HX_NAME_MAX];
    int rc = hx_note_decode(data, size, &note);
    FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
    if (rc)
        return;
    /* All pointers of the piece point into the input, and the piece lies within its notification. */
    FUZZ_CHECK((const uint8_t *)note.name == data + HX_NOTE && note.data == data + HX_NOTE + note.name_len &&
               note.data + note.len == data + size);
    FUZZ_CHECK(note.total <= HX_NOTE_MAX && note.offset <= note.total && note.len <= note.total - note.offset);
    FUZZ_CHECK(note.len || !note.total);
    hx_note_encode(head, &note);
    uint8_t *whole = malloc(size);
    if (!whole)
        abort();
    memcpy(whole, head, HX_NOTE + note.name_len);
    memcpy(whole + HX_NOTE + note.name_len, note.data, note.len);
    FUZZ_CHECK(hx_note_decode(whole, size, &again) == 0 && again.id == note.id && again.total == note.total &&
               again.offset == note.offset && again.name_len == note.name_len && again.len == note.len &&
               memcmp(again.name, note.name, note.name_len) == 0);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hw_fail(0, "%s", "");
    check_info(data, size);
    check_note(data, size);
    return 0;
}
