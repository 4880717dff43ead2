/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the knob table: defaults, environment variables, lists, bounds, and error messages for refused values. */
#include "base/knob.h"
#include "tests/tap.h"

#include <unistd.h>

extern char **environ;

static struct hw_knobs defaults(void)
{
    struct hw_knobs k;
    memset(&k, 0xa5, sizeof(k));
    is_int(hw_knobs_load(&k, NULL), 0, "the defaults load");
    return k;
}

static void check_defaults(void)
{
    struct hw_knobs k = defaults();

    is_int(k.channels, 0, "channels");
    is_int(k.window, 16777216, "window");
    is_int(k.threads, 0, "threads");
    is_int(k.pin, 1, "pin");
    is_int(k.spin_us, 50, "spin_us");
    is_int(k.sndbuf, 0, "sndbuf");
    is_int(k.rcvbuf, 0, "rcvbuf");
    is_int(k.splice, 1, "splice");
    is_int(k.stall_ms, 500, "stall_ms");
    is_int(k.peer_timeout_ms, 10000, "peer_timeout_ms");
    is_int(k.handshake_ms, 5000, "handshake_ms");
    is_int(k.op_timeout_ms, 60000, "op_timeout_ms");
    is_int(k.keepalive_ms, 5000, "keepalive_ms");
    is_int(k.max_peers, 4096, "max_peers");
    is_str(k.nics, "", "nics");
}

/* Sets a knob, and checks that hw_knob_text() then writes `shown`. */
static void good(const char *name, const char *value, const char *shown)
{
    struct hw_knobs k = defaults();
    const char *n, *found = NULL;
    char buf[300], mine[300] = "";
    int rc = hw_knob_set(&k, name, value);

    for (size_t i = 0; hw_knob_text(&k, i, &n, buf, sizeof(buf)); i++)
        if (strcmp(n, name) == 0) {
            found = n;
            strcpy(mine, buf);
        }
    ok(rc == 0 && found && strcmp(mine, shown) == 0, "%s=%s is %s (rc %d, got %s)", name, value, shown, rc, mine);
}

static void bad(const char *name, const char *value, const char *says)
{
    struct hw_knobs k, before;
    memset(&k, 0, sizeof(k));
    hw_knobs_load(&k, NULL);
    before = k;
    hw_fail(0, "stale");
    int rc = hw_knob_set(&k, name, value);
    ok(rc == -EINVAL && memcmp(&k, &before, sizeof(k)) == 0 && strstr(hw_error(), says), "%.20s=%.*s refused: %s",
       name ? name : "(null)", value ? (int)strcspn(value, "\n") : 6, value ? value : "(null)", hw_error());
}

static void bounds(void)
{
    static const char *const yes[] = {"yes", "1", "true", "on", "YES", "On"};
    static const char *const no[] = {"no", "0", "false", "off", "FALSE", "oFF"};
    char text[300];

    good("channels", "0", "0");
    good("channels", "64", "64");
    bad("channels", "-1", "channels='-1': must be a whole number from 0 to 64 (connections)");
    bad("channels", "65", "from 0 to 64");
    bad("channels", "4K", "from 0 to 64");
    bad("channels", "", "from 0 to 64");
    bad("channels", " 4", "from 0 to 64");
    bad("channels", "18446744073709551620", "from 0 to 64");
    bad("channels", NULL, "from 0 to 64");
    good("window", "65536", "64KiB");
    good("window", "1GiB", "1GiB");
    good("window", "70000", "70000B");
    bad("window", "65535", "window='65535': must be a size from 64KiB to 1GiB");
    bad("window", "1073741825", "from 64KiB to 1GiB");
    bad("window", "1XB", "from 64KiB to 1GiB");
    bad("window", "16777216TiB", "from 64KiB to 1GiB");
    bad("window", "16", "from 64KiB to 1GiB"); /* older versions expected a number of pieces */
    good("threads", "64", "64");
    bad("threads", "65", "from 0 to 64");
    good("spin_us", "1000000", "1000000");
    bad("spin_us", "1000001", "(us)");
    good("devmem_piece", "0", "0B");
    good("devmem_piece", "2MiB", "2MiB");
    bad("devmem_piece", "2097153", "to 2MiB");
    good("stall_ms", "50", "50");
    good("stall_ms", "60000", "60000");
    bad("stall_ms", "49", "(ms)");
    bad("stall_ms", "60001", "from 50 to 60000");
    bad("stall_ms", "1s", "(ms)");
    for (size_t i = 0; i < HW_ARRAY_LEN(yes); i++) {
        good("pin", yes[i], "yes");
        good("splice", no[i], "no");
    }
    bad("pin", "maybe", "yes or no");
    bad("pin", "", "yes or no");
    bad("pin", "2", "yes or no");
    good("nics", "eth1,eth2", "eth1,eth2");
    good("nics", "", "");
    bad("nics", "eth1, eth2", "byte 5 of the value is 0x20");
    bad("nics", "eth1\n", "byte 4 of the value is 0x0a");
    bad("nics", "\xc3\xa9th0", "byte 0 of the value is 0xc3");
    memset(text, 'n', sizeof(text));
    text[255] = 0;
    good("plugin_devices", text, text);
    text[255] = 'n';
    text[256] = 0;
    bad("plugin_devices", text, "256 bytes long: at most 255");
}

static void unknown(void)
{
    char text[3000];

    bad("windows", "1", "unknown knob 'windows'; did you mean 'window' (");
    bad("chanels", "1", "'channels'");
    bad("keepalive-ms", "1", "'keepalive_ms'");
    bad("STALL_MS", "1", "'stall_ms'");
    bad("spin", "1", "'spin_us'");
    bad("STALL", "1", "'stall_ms'");
    bad("", "1", "unknown knob ''");
    bad(NULL, "1", "unknown knob ''");
    bad("windwo", "1", "did you mean 'window'");
    bad("frobnicate", "1", "unknown knob 'frobnicate': see hawser(7)");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    bad(text, "1", "unknown knob 'xxx");
    text[31] = 0;
    bad(text, "1", "unknown knob 'xxx");
    text[32 - 2] = 0;
    bad(text, "1", "unknown knob 'xxx");
}

/* Tests that a removed knob is refused with a hint in a call, in a list and in the environment. */
static void gone(void)
{
    static const struct {
        const char *name, *env, *instead;
    } was[] = {
        {"chunk", "HAWSER_CHUNK", "knob window limits the bytes in flight"},
        {"min_chunk", "HAWSER_MIN_CHUNK", "the engine chooses the chunk size"},
        {"inline_max", "HAWSER_INLINE_MAX", "8 KiB"},
        {"max_ops", "HAWSER_MAX_OPS", "65536 operations"},
        {"notify_queue", "HAWSER_NOTIFY_QUEUE", "1 MiB of notifications"},
        {"unexpected", "HAWSER_UNEXPECTED", "1 MiB of messages"},
    };
    struct hw_knobs k = defaults(), before = k;
    char item[64];

    for (size_t i = 0; i < HW_ARRAY_LEN(was); i++) {
        bad(was[i].name, "65536", was[i].instead);
        ok(strstr(hw_error(), "was removed"), "and says that it was removed");
        snprintf(item, sizeof item, "%s=1", was[i].name);
        is_int(hw_knobs_load(&k, (const char *const[]){item, NULL}), -EINVAL, item);
        ok(strstr(hw_error(), was[i].instead), "in a list too: %s", hw_error());
        setenv(was[i].env, "1", 1);
        is_int(hw_knobs_load(&k, NULL), -EINVAL, was[i].env);
        ok(strstr(hw_error(), was[i].env) && strstr(hw_error(), was[i].instead), "the variable too: %s", hw_error());
        unsetenv(was[i].env);
    }
    bad("MAX-OPS", "1", "knob 'max_ops' was removed");
    ok(memcmp(&k, &before, sizeof(k)) == 0, "nothing has changed");
}

static void lists(void)
{
    struct hw_knobs k = defaults(), before = k;
    char big[400];

    is_int(hw_knobs_load(&k, (const char *const[]){"channels=7", "nics=a,b", "pin=off", "channels=8", NULL}), 0,
           "a list loads");
    is_int(k.channels, 8, "the last one wins");
    is_str(k.nics, "a,b", "text is taken");
    ok(!k.pin, "a bool is taken");
    is_int(hw_knobs_load(&k, (const char *const[]){"nics=", NULL}), 0, "an empty value is a value");
    is_int(k.channels, 0, "a load starts from the defaults");
    is_int(hw_knobs_load(&k, (const char *const[]){"nics=a=b", NULL}), 0, "the first '=' parts name and value");
    is_str(k.nics, "a=b", "the rest is the value");

    k = before;
    is_int(hw_knobs_load(&k, (const char *const[]){"channels=5", "channels", NULL}), -EINVAL, "no '='");
    ok(strstr(hw_error(), "'channels' has no value"), "says so: %s", hw_error());
    is_int(hw_knobs_load(&k, (const char *const[]){"channels=5", "=5", NULL}), -EINVAL, "no name");
    is_int(hw_knobs_load(&k, (const char *const[]){"channels=5", "", NULL}), -EINVAL, "nothing");
    is_int(hw_knobs_load(&k, (const char *const[]){"channels=5", "windw=5", NULL}), -EINVAL, "an unknown name");
    ok(strstr(hw_error(), "'window'"), "suggests: %s", hw_error());
    memset(big, 'y', sizeof(big));
    big[sizeof(big) - 1] = 0;
    big[300] = '=';
    is_int(hw_knobs_load(&k, (const char *const[]){big, NULL}), -EINVAL, "a very long name");
    ok(memcmp(&k, &before, sizeof(k)) == 0, "after all these failures nothing has changed");
}

static void environment(void)
{
    struct hw_knobs k;

    setenv("HAWSER_CHANNELS", "9", 1);
    setenv("HAWSER_NCCL_SOMETHING", "whatever", 1);
    setenv("HAWSER_NO_SUCH_KNOB", "1", 1);
    setenv("hawser_window", "1MiB", 1);
    is_int(hw_knobs_load(&k, NULL), 0, "the environment loads, names of others and all");
    is_int(k.channels, 9, "HAWSER_CHANNELS counts");
    is_int(k.window, 16777216, "hawser_window does not");
    is_int(hw_knobs_load(&k, (const char *const[]){"channels=2", NULL}), 0, "with a list");
    is_int(k.channels, 2, "the list goes over the environment");
    setenv("HAWSER_PEER_TIMEOUT_MS", "soon", 1);
    is_int(hw_knobs_load(&k, NULL), -EINVAL, "a bad value in the environment is refused");
    ok(strstr(hw_error(), "HAWSER_PEER_TIMEOUT_MS='soon'"), "and the variable named: %s", hw_error());
    setenv("HAWSER_PEER_TIMEOUT_MS", "", 1);
    is_int(hw_knobs_load(&k, NULL), -EINVAL, "so is an empty one");
    unsetenv("HAWSER_PEER_TIMEOUT_MS");
    unsetenv("HAWSER_CHANNELS");
}

struct seen {
    int n, wrong;
    struct hw_knobs *k;
};

/* Checks that setting a knob's environment variable to the default value has the same result as not setting it. */
static void each(void *arg, const char *name, const char *env, const char *def, const char *unit, const char *doc)
{
    struct seen *s = arg;
    struct hw_knobs k;
    const char *shown;
    char buf[300];
    int same = hw_knob_text(s->k, (size_t)s->n, &shown, buf, sizeof(buf)) && strcmp(shown, name) == 0;

    s->n++;
    setenv(env, def, 1);
    same = same && hw_knobs_load(&k, NULL) == 0 && hw_knob_set(&k, name, def) == 0 && hw_knob_set(&k, name, buf) == 0 &&
           memcmp(&k, s->k, sizeof(k)) == 0;
    unsetenv(env);
    same = same && strncmp(env, "HAWSER_", 7) == 0 && *unit && strlen(doc) > 10 &&
           !strpbrk(env, "abcdefghijklmnopqrstuvwxyz");
    s->wrong += !same;
    if (!same)
        diag("%s %s %s %s %s", name, env, def, unit, doc);
}

int main(void)
{
    struct hw_knobs k;
    struct seen s = {.k = &k};
    const char *name;
    char buf[8];

    clearenv();
    check_defaults();
    bounds();
    unknown();
    gone();
    lists();
    environment();
    k = defaults();
    hawser_knobs(each, &s);
    size_t known = 0;
    while (hw_knob_text(&k, known, &name, buf, sizeof(buf)))
        known++;
    ok(known >= 30, "%zu knobs", known);
    is_int(s.n, known, "hawser_knobs() shows every knob");
    is_int(s.wrong, 0, "with its own name, variable, default, unit and documentation");
    ok(!hw_knob_text(&k, SIZE_MAX, &name, buf, sizeof(buf)), "nor a last");
    return tap_done();
}
