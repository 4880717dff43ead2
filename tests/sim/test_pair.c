/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which rails of a pair of NICs a session distrusts if one of the rails is suspect, and which rail carries the
 * session's own frames. */
#include "core/session.h"
#include "tests/tap.h"

#include <string.h>

enum { RAILS = 5 };

static struct hw_loop loop;
static struct hw_session session;
static unsigned suspected; /* bit mask */

static void wake(void *arg)
{
    (void)arg;
}

static void note_suspected(void *up, unsigned rail)
{
    (void)up;
    suspected |= 1u << rail;
}

static uint32_t get_mark(void *up)
{
    (void)up;
    return 0;
}

static void lose_parcel(void *up, struct hw_parcel *p)
{
    (void)up;
    (void)p;
}

static void note_death(void *up, int why)
{
    (void)up;
    (void)why;
}

static const struct hw_session_ops ops = {
    .suspected = note_suspected, .mark = get_mark, .lost = lose_parcel, .died = note_death};
static const struct hw_rail_io io = {0};
static const struct hw_rail_limits limits = {.window = 1 << 20, .check = 20, .ping = 100, .dead = 1000};

static struct hw_rail *rail(unsigned i)
{
    return &session.rail[i].rail;
}

/* Returns a bit mask of the rails that may carry new data. */
static unsigned get_sound(void)
{
    unsigned sound = 0;
    for (unsigned i = 0; i < RAILS; i++)
        sound |= (unsigned)hw_session_is_sound(&session, i) << i;
    return sound;
}

/* Makes the session send a last word about rail 3, and returns a bit mask of the rails that got the last word. */
static unsigned send_word(void)
{
    struct hw_word mine;
    unsigned took = 0;
    hw_session_give_up(&session, 3, hw_session_hello(&session, 3, &mine));
    for (unsigned i = 0; i < RAILS; i++)
        took |= (unsigned)(atomic_load(&rail(i)->inbox) != NULL) << i;
    return took;
}

static void suspect(unsigned i)
{
    suspected = 0;
    atomic_store(&rail(i)->suspect, true);
    rail(i)->ops->suspected(rail(i)->up, rail(i));
}

int main(void)
{
    struct hw_loop *loops[RAILS] = {&loop, &loop, &loop, &loop, &loop};
    static const uint64_t heard[RAILS] = {1000, 900, 1100, 200, 3000};
    hw_loop_init(&loop, wake, NULL);
    if (hw_session_init(&session, true, &loop, loops, RAILS, &ops, &io, NULL, &limits) < 0)
        return 1;
    for (unsigned i = 0; i < RAILS; i++) {
        hw_session_pair(&session, i, i < 3 ? 7 : i);
        atomic_store(&session.rail[i].live, true);
        atomic_store(&rail(i)->heard, heard[i]);
    }
    is_int(get_sound(), 0x1f, "all rails get data");
    suspect(0);
    is_int(get_sound(), 0x1c, "no data for a suspect rail, and for one of its pair that heard the peer earlier still");
    is_int(suspected, 0x3, "the layer above is told of both");
    ok(atomic_load(&rail(1)->asked) && !atomic_load(&rail(2)->asked) && !atomic_load(&rail(3)->asked),
       "the peer is asked to answer on the distrusted rail");
    atomic_store(&rail(1)->heard, 999);
    ok(!hw_session_is_sound(&session, 1), "what it heard before does not help");
    atomic_store(&rail(1)->heard, 1001);
    ok(hw_session_is_sound(&session, 1), "once it hears the peer it gets data again");

    is_int(send_word(), 0x10, "the session's own frames use the rail that heard the peer last");
    suspect(4);
    is_int(get_sound(), 0xe, "a rail with a pair of NICs of its own is alone");
    is_int(send_word(), 0x14, "the session's own frames avoid a suspect rail");

    struct hw_parcel returned[3] = {{.small = true}, {.small = true}, {.small = true}};
    suspect(3);
    for (unsigned i = 0; i < 3; i++)
        hw_session_send(&session, 3, &returned[i]);
    for (unsigned i = 0; i < RAILS; i++)
        rail(i)->state = HW_RAIL_UP;
    (void)hw_loop_turn(&loop, 1, 100, NULL, NULL);
    unsigned took = 0;
    for (const struct hw_parcel *p = rail(2)->small.first; p; p = p->next)
        took++;
    is_int(took, 1 + 3, "parcels of a suspect rail use the rail of each pair of NICs that heard the peer last");
    for (unsigned i = 0; i < RAILS; i++) {
        atomic_store(&session.rail[i].live, false);
        rail(i)->state = HW_RAIL_DOWN;
    }
    hw_session_die(&session, -ESHUTDOWN);
    for (unsigned i = 0; i < RAILS; i++)
        hw_rail_wake(rail(i)); /* returns the parcels, which then end */
    for (int i = 0; i < 10; i++)
        (void)hw_loop_turn(&loop, i, 100, NULL, NULL);
    hw_session_free(&session);
    return tap_done();
}
