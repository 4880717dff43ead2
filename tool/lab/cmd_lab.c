/* SPDX-License-Identifier: Apache-2.0 */
/* hawser lab: up, down, list, exec, link, rate. */
#include "base/size.h"
#include "lab/lab.h"
#include "sys/json.h"
#include "tool/opts_old.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of exec where the command did not run, as env(1) has them. */
enum { EXIT_LAB = 125, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_FOUND = 127 };

#define NAME_OPT                                              \
    {                                                         \
        "name", 'n', "LAB", "the lab's name; default \"lab\"" \
    }

/* "LAB/a" or "a": *name becomes LAB where the first is said. -EINVAL where --name says another one. */
static int split_node(const char *text, const char **name, char lab[HW_LAB_NAME_MAX + 1], const char **node)
{
    const char *slash = strchr(text, '/');
    *node = slash ? slash + 1 : text;
    if (!slash)
        return 0;
    size_t len = (size_t)(slash - text);
    if (len == 0 || len > HW_LAB_NAME_MAX || **node == 0)
        return hw_fail(-EINVAL, "'%s' is no node: a, or LAB/a", text);
    memcpy(lab, text, len);
    lab[len] = 0;
    if (*name && strcmp(*name, lab) != 0)
        return hw_fail(-EINVAL, "'%s' and --name %s are two labs", text, *name);
    *name = lab;
    return 0;
}

static int parse_count(const char *text, uint64_t min, uint64_t max, unsigned *out)
{
    uint64_t v;
    int rc = hw_parse_u64(text, min, max, &v);
    if (rc == 0)
        *out = (unsigned)v;
    return rc;
}

static int lab_up(int argc, char **argv)
{
    static const struct opt opt[] = {
        NAME_OPT,
        {"nodes", 'N', "COUNT", "nodes a, b, c, ...; 2 to 26, default 2"},
        {"nics", 'i', "COUNT[,..]", "NICs eth0, eth1, ...; for all nodes, or one for each: 4,3; 1 to 32, default 4"},
        {"fabric", 'f', "FABRIC",
         "how they are joined: subnet (the default), routed, gcp, shared-subnet or bridge; see hawser(1)"},
        {"names", 'x', "NAME[,..]", "of the NICs, without the number; for all nodes, or one for each: eth,enp"},
        {"rate", 'r', "RATE[,..]", "one for all NICs, or one for each: 1gbit,1gbit,250mbit,none; default none"},
        {"delay", 'd', "TIME[,..]", "what a packet takes from node to node; for all NICs, or one for each: 10ms,0"},
        {"loss", 'l', "PERCENT[,..]", "packets lost on the way from node to node, alike: 0.1%"},
        {"mtu", 'm', "BYTES", "576 to 65535, default 1500"},
        {0},
    };
    struct opts o = {
        "lab up",
        "[OPTION...]",
        "Makes nodes as network namespaces, joined NIC by NIC. As root they stay until `hawser lab down` and\n"
        "`ip netns` shows them as hawser-LAB-NODE; others get the lab in a user namespace, kept by a process\n"
        "named hawser-lab that `down` ends.",
        opt,
        {{0}},
        {0}};
    struct hw_lab_spec spec = {.nodes = 2, .nics = 4};
    /* read last, since they need the number of nodes and NICs; this one first */
    static const struct {
        const char *name;
        int (*parse)(const char *text, struct hw_lab_spec *spec);
    } lists[] = {{"nics", hw_lab_parse_nics},
                 {"names", hw_lab_parse_names},
                 {"rate", hw_lab_parse_rates},
                 {"delay", hw_lab_parse_delays},
                 {"loss", hw_lab_parse_losses}};
    const char *arg, *list[HW_ARRAY_LEN(lists)] = {NULL};
    unsigned mtu = 0;
    int id, rc = 0;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        switch (id) {
        case 'n':
            spec.name = arg;
            break;
        case 'N':
            rc = parse_count(arg, HW_LAB_MIN_NODES, HW_LAB_MAX_NODES, &spec.nodes);
            break;
        case 'f':
            rc = hw_lab_parse_fabric(arg, &spec.fabric);
            break;
        case 'i':
            list[0] = arg;
            break;
        case 'x':
            list[1] = arg;
            break;
        case 'r':
            list[2] = arg;
            break;
        case 'd':
            list[3] = arg;
            break;
        case 'l':
            list[4] = arg;
            break;
        case 'm':
            rc = parse_count(arg, 576, 65535, &mtu);
            break;
        default:
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        }
        if (rc < 0)
            return tool_usage(o.cmd, "--%s: %s", id == 'N' ? "nodes" : id == 'f' ? "fabric" : "mtu", hw_error());
    }
    if (optind < argc)
        return tool_usage(o.cmd, "'%s' is too much: it takes options only", argv[optind]);
    for (size_t i = 0; i < HW_ARRAY_LEN(lists); i++)
        if (list[i] && lists[i].parse(list[i], &spec) < 0)
            return tool_usage(o.cmd, "--%s: %s", lists[i].name, hw_error());
    spec.mtu = mtu;
    rc = hw_lab_up(&spec);
    if (rc == -EINVAL)
        return tool_usage(o.cmd, "%s", hw_error());
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

static int lab_down(int argc, char **argv)
{
    static const struct opt opt[] = {NAME_OPT, {0}};
    struct opts o = {
        "lab down",
        "[OPTION...]",
        "Takes a lab away, with the programs that run in it. Nothing there is no error; what a crash left of\n"
        "one is taken away too.",
        opt,
        {{0}},
        {0}};
    const char *arg, *name = NULL;
    int id;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        if (id != 'n')
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        name = arg;
    }
    if (optind < argc)
        return tool_usage(o.cmd, "'%s' is too much; a lab is named by --name", argv[optind]);
    int rc = hw_lab_down(name);
    if (rc == -EINVAL)
        return tool_usage(o.cmd, "%s", hw_error());
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

static const char *state_of(const struct hw_lab_nic *n)
{
    return !n->link.up ? "down" : n->link.running ? "up" : "no-carrier";
}

static void list_text(const struct hw_lab_info *l)
{
    printf("%s: %u nodes%s\n", l->name, l->nodes, l->user ? ", in a user namespace" : "");
    for (unsigned k = 0; k < l->nodes; k++) {
        for (unsigned i = 0; i < l->node[k].nics; i++) {
            const struct hw_lab_nic *n = &l->node[k].nic[i];
            char addr[INET_ADDRSTRLEN] = "-", rate[32];
            if (n->addr.s_addr)
                inet_ntop(AF_INET, &n->addr, addr, sizeof(addr));
            printf("  %-4s %-6s %-16s %-11s mtu %-6u rate %s\n", l->node[k].name, n->link.name, addr, state_of(n),
                   n->link.mtu, hw_lab_format_rate(n->rate, rate, sizeof(rate)));
        }
    }
}

static void list_json(struct hw_json *j, const struct hw_lab_info *l)
{
    hw_json_object(j, NULL);
    hw_json_str(j, "name", l->name);
    hw_json_str(j, "kind", l->user ? "user" : "root");
    hw_json_array(j, "nodes");
    for (unsigned k = 0; k < l->nodes; k++) {
        hw_json_object(j, NULL);
        hw_json_str(j, "name", l->node[k].name);
        hw_json_array(j, "nics");
        for (unsigned i = 0; i < l->node[k].nics; i++) {
            const struct hw_lab_nic *n = &l->node[k].nic[i];
            char addr[INET_ADDRSTRLEN];
            hw_json_object(j, NULL);
            hw_json_str(j, "name", n->link.name);
            hw_json_str(j, "address", n->addr.s_addr ? inet_ntop(AF_INET, &n->addr, addr, sizeof(addr)) : NULL);
            hw_json_str(j, "state", state_of(n));
            hw_json_u64(j, "mtu", n->link.mtu);
            if (n->rate)
                hw_json_u64(j, "rate_bits", n->rate);
            else
                hw_json_null(j, "rate_bits");
            hw_json_end(j);
        }
        hw_json_end(j);
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_end(j);
}

static int lab_list(int argc, char **argv)
{
    static const struct opt opt[] = {
        {"name", 'n', "LAB", "this lab only"},
        {"json", 'j', NULL, "an array of labs, with nodes and NICs; rates in bits a second, null without a limit"},
        {0},
    };
    struct opts o = {"lab list", "[OPTION...]", "Shows the labs, their nodes and NICs, as the kernel has them now.",
                     opt,        {{0}},         {0}};
    const char *arg, *name = NULL;
    bool json = false;
    int id;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        if (id == 'n')
            name = arg;
        else if (id == 'j')
            json = true;
        else
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
    }
    if (optind < argc)
        return tool_usage(o.cmd, "'%s' is too much; a lab is named by --name", argv[optind]);

    enum { MAX = 256 };
    char(*names)[HW_LAB_NAME_MAX + 1] = calloc(MAX, sizeof(*names));
    struct hw_lab_info *info = malloc(sizeof(*info));
    struct hw_json j;
    int result = TOOL_OK, n = 1;
    if (!names || !info) {
        result = tool_fail(o.cmd, "out of memory");
        goto out;
    }
    if (!name) {
        n = hw_lab_names(names, MAX);
        if (n > MAX)
            fprintf(stderr, "hawser lab list: only %d of %d labs are shown\n", MAX, n);
        n = HW_MIN(n, (int)MAX);
    }
    if (json) {
        hw_json_init(&j, stdout);
        hw_json_array(&j, NULL);
    }
    for (int i = 0; i < n; i++) {
        if (hw_lab_info(name ? name : names[i], info) < 0) {
            (void)tool_fail(o.cmd, "%s", hw_error());
            if (name) /* of all, some may be root's, or go just now: worth a line, but no failure */
                result = TOOL_FAILED;
        } else if (json)
            list_json(&j, info);
        else
            list_text(info);
    }
    if (json) {
        hw_json_end(&j);
        if (hw_json_finish(&j) < 0)
            result = tool_fail(o.cmd, "writing to stdout failed");
    }
out:
    free(info);
    free(names);
    return result;
}

static void warn(const char *line)
{
    fprintf(stderr, "hawser lab exec: %s\n", line);
}

static int lab_exec(int argc, char **argv)
{
    static const struct opt opt[] = {NAME_OPT, {0}};
    struct opts o = {
        "lab exec",
        "[OPTION...] NODE -- COMMAND [ARGUMENT...]",
        "Becomes COMMAND in a node (a, b, ..., or LAB/a), with the node's own /sys. Its exit status is the\n"
        "command's; 125 where the lab or node failed, 126 and 127 where the command could not be run or found.",
        opt,
        {{0}},
        {0}};
    const char *arg, *name = NULL, *node;
    char lab[HW_LAB_NAME_MAX + 1];
    bool cannot_run;
    int id, dashes = 1;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0)
        dashes++;
    opts_start(&o);
    while ((id = opts_next(&o, dashes, argv, &arg)) != OPT_END) { /* only up to the --: the rest is the command's */
        if (id != 'n')
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        name = arg;
    }
    if (optind >= dashes)
        return tool_usage(o.cmd, "which NODE?");
    if (optind + 1 < dashes || dashes + 1 >= argc)
        return tool_usage(o.cmd, "it needs one NODE, then --, then the command");
    if (split_node(argv[optind], &name, lab, &node) < 0)
        return tool_usage(o.cmd, "%s", hw_error());
    int rc = hw_lab_exec(name, node, argv + dashes + 1, warn, &cannot_run);
    (void)tool_fail(o.cmd, "%s", hw_error());
    return !cannot_run ? EXIT_LAB : rc == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

/* `link` and `rate` alike: a node, a NIC and a word. */
static int lab_nic(int argc, char **argv, bool link)
{
    static const struct opt opt[] = {NAME_OPT, {0}};
    struct opts o = {link ? "lab link" : "lab rate",
                     link ? "[OPTION...] NODE NIC up|down" : "[OPTION...] NODE NIC RATE",
                     link ? "Sets a NIC (eth1, or 1; by number where --names gave another name) up or down, at that "
                            "end; the other end loses its carrier."
                          : "Sets the rate of a NIC (eth1, or 1), both ways: 250mbit, 1.5gbit, none. In a lab of two "
                            "nodes the NIC has\n"
                            "one cable, which is the other node's NIC too.",
                     opt,
                     {{0}},
                     {0}};
    const char *arg, *name = NULL, *node;
    char lab[HW_LAB_NAME_MAX + 1];
    uint64_t rate = 0;
    unsigned nic;
    int id;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        if (id != 'n')
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        name = arg;
    }
    if (argc - optind != 3)
        return tool_usage(o.cmd, "it needs NODE, NIC and %s", link ? "up or down" : "RATE");
    const char *word = argv[optind + 2];
    bool up = strcmp(word, "up") == 0;
    if (split_node(argv[optind], &name, lab, &node) < 0 || hw_lab_parse_nic(argv[optind + 1], &nic) < 0 ||
        (!link && hw_lab_parse_rate(word, &rate) < 0))
        return tool_usage(o.cmd, "%s", hw_error());
    if (link && !up && strcmp(word, "down") != 0)
        return tool_usage(o.cmd, "'%s' is neither up nor down", word);
    int rc = link ? hw_lab_link(name, node, nic, up) : hw_lab_rate(name, node, nic, rate);
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

static int lab_link(int argc, char **argv)
{
    return lab_nic(argc, argv, true);
}

static int lab_rate(int argc, char **argv)
{
    return lab_nic(argc, argv, false);
}

static const struct action {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *args, *summary;
} actions[] = {
    {"up", lab_up, "[OPTION...]", "make a lab; options: see below"},
    {"down", lab_down, "", "take it away, with what runs in it; nothing there is no error"},
    {"list", lab_list, "[--json]", "labs, nodes and NICs"},
    {"exec", lab_exec, "NODE -- COMMAND [ARGUMENT...]", "run a command in a node"},
    {"link", lab_link, "NODE NIC up|down", "set a NIC up or down"},
    {"rate", lab_rate, "NODE NIC RATE", "change a NIC's rate: 250mbit, 1.5gbit, none"},
};

int cmd_lab(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage("lab", "which of up, down, list, exec, link, rate?");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        printf("Usage: hawser lab ACTION [--name LAB] [ARGUMENT...]\n\n"
               "A cluster out of one machine: nodes a, b, ... are network namespaces, each with NICs eth0, eth1, ...\n"
               "NIC i of the k-th node has the address 198.18.i.k/24, in other fabrics another one within\n"
               "198.18.0.0/15. Works as root, and without through a user namespace.\n\n");
        for (size_t i = 0; i < HW_ARRAY_LEN(actions); i++)
            printf("  %-5s %-52s %s\n", actions[i].name, actions[i].args, actions[i].summary);
        printf("\nOptions of up: [--fabric F] [--nodes 2] [--nics 4[,..]] [--names eth[,..]] [--rate R[,..]] "
               "[--delay T[,..]]\n               [--loss P[,..]] [--mtu 1500]\n"
               "`hawser lab ACTION --help` says more.\n");
        return TOOL_OK;
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(actions); i++) {
        if (strcmp(argv[1], actions[i].name) == 0)
            return actions[i].run(argc - 1, argv + 1);
    }
    return tool_usage("lab", "there is no '%s', only up, down, list, exec, link and rate", argv[1]);
}
