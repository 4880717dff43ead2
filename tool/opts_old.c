/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/opts_old.h"

#include <string.h>

void opts_start(struct opts *o)
{
    size_t n = 0, s = 0;
    o->shrt[s++] = ':'; /* tells a missing argument from an unknown option */
    for (; o->opt[n].name && n + 2 < OPTS_MAX; n++) {
        const struct opt *p = &o->opt[n];
        o->lng[n] = (struct option){p->name, p->arg ? required_argument : no_argument, NULL, p->id};
        if (p->id < 128) {
            o->shrt[s++] = (char)p->id;
            if (p->arg)
                o->shrt[s++] = ':';
        }
    }
    o->lng[n++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    o->lng[n] = (struct option){0};
    o->shrt[s++] = 'h';
    o->shrt[s] = 0;
    optind = 0; /* glibc: start anew, with its hidden state too */
    opterr = 0;
}

static void help(const struct opts *o)
{
    printf("Usage: hawser %s %s\n\n%s\n\nOptions:\n", o->cmd, o->args, o->about);
    for (const struct opt *p = o->opt; p->name; p++) {
        char left[64];
        if (!p->help)
            continue;
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", p->id < 128 ? '-' : ' ', p->id < 128 ? p->id : ' ',
                 p->id < 128 ? "," : " ", p->name, p->arg ? " " : "", p->arg ? p->arg : "");
        printf("  %-28s %s\n", left, p->help);
    }
    printf("  %-28s %s\n", "-h, --help", "this text");
}

int opts_next(struct opts *o, int argc, char **argv, const char **arg)
{
    int id = getopt_long(argc, argv, o->shrt, o->lng, NULL);
    *arg = optarg;
    switch (id) {
    case -1:
        return OPT_END;
    case 'h':
    case OPT_HELP:
        help(o);
        return OPT_HELP;
    case ':':
        tool_usage(o->cmd, "option '%s' needs a value", argv[optind - 1]);
        return OPT_BAD;
    case '?': {
        /* optopt is the short option, an option's id given a value that it does not take, or 0 for a long one */
        const char *bad = argv[HW_MIN(optind, argc) - 1];
        if (optopt >= 128 || (optopt && strncmp(bad, "--", 2) == 0))
            tool_usage(o->cmd, "option '%s' takes no value", bad);
        else if (optopt)
            tool_usage(o->cmd, "there is no option '-%c'", optopt);
        else
            tool_usage(o->cmd, "there is no option '%s'", bad);
        return OPT_BAD;
    }
    default:
        return id;
    }
}

int common_option(struct common *c, int id, const char *arg)
{
    int rc = 0;
    switch (id) {
    case 'K':
        if (!strchr(arg, '=') || arg[0] == '=')
            return hw_fail(-EINVAL, "--knob takes NAME=VALUE, not '%s'", arg);
        rc = common_knob(c, arg, NULL);
        break;
    case OPT_TRANSPORT:
        rc = common_knob(c, "transport", arg);
        break;
    case OPT_REQUIRE_DEVMEM:
        rc = common_knob(c, "transport", "devmem");
        rc = rc ? rc : common_knob(c, "require_direct", "yes");
        break;
    case OPT_REQUIRE_DIRECT:
        rc = common_knob(c, "require_direct", "yes");
        break;
    case OPT_RAILS:
        rc = common_knob(c, "rails", arg);
        break;
    case OPT_REQUIRE_NICS:
        rc = common_knob(c, "require_nics", arg);
        break;
    case 'k':
        c->key_file = arg;
        break;
    case 'I':
        c->insecure = true;
        break;
    case 'v':
        c->verbose++;
        break;
    default:
        return 0;
    }
    return rc < 0 ? rc : 1;
}
