/* SPDX-License-Identifier: Apache-2.0 */
/* hawser lab: the actions up, down, list, exec, link and rate. */
#include "lab/lab.h"
#include "sys/json.h"
#include "tool/opts.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* Exit codes of exec if the command did not run, as in env(1). */
enum { EXIT_LAB = 125, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_FOUND = 127 };

struct lab_args {
    const char *name;
    bool json;
};

static const struct opt name_opts[] = {
    OPT_TEXT("name", 'l', "LAB", struct lab_args, name, "the lab's name (default: lab)"),
    {0},
};

/* Splits "LAB/a" or "a", and sets *name to LAB if the text contains a lab. Fails with -EINVAL if the text is invalid or
 * --name specifies a different lab. */
static int split_node(const char *text, const char **name, char lab[HW_LAB_NAME_MAX + 1], const char **node)
{
    const char *slash = strchr(text, '/');
    *node = slash ? slash + 1 : text;
    if (!slash)
        return 0;
    size_t len = (size_t)(slash - text);
    if (len == 0 || len > HW_LAB_NAME_MAX || **node == 0)
        return hw_fail(-EINVAL, "'%s' is not a node: use NODE or LAB/NODE, as in a or lab/a", text);
    memcpy(lab, text, len);
    lab[len] = 0;
    if (*name && strcmp(*name, lab) != 0)
        return hw_fail(-EINVAL, "'%s' and --name %s specify two different labs", text, *name);
    *name = lab;
    return 0;
}

/* Lists are parsed after all options, because they depend on the numbers of nodes and NICs. The number of NICs is
 * parsed first. */
static const struct list {
    const char *name;
    int (*parse)(const char *text, struct hw_lab_spec *spec);
} lists[] = {{"nics", hw_lab_parse_nics},
             {"names", hw_lab_parse_names},
             {"rate", hw_lab_parse_rates},
             {"delay", hw_lab_parse_delays},
             {"loss", hw_lab_parse_losses}};

struct up_args {
    struct hw_lab_spec spec;
    const char *list[HW_ARRAY_LEN(lists)];
    unsigned mtu;
};

static int parse_fabric(void *args, const char *text)
{
    return hw_lab_parse_fabric(text, &((struct up_args *)args)->spec.fabric);
}

static const struct opt up_opts[] = {
    OPT_TEXT("name", 'l', "LAB", struct up_args, spec.name, "the lab's name (default: lab)"),
    OPT_NUMBER("nodes", 'N', "COUNT", struct up_args, spec.nodes, HW_LAB_MIN_NODES, HW_LAB_MAX_NODES,
               "number of nodes, from 2 to 64; their names are a, b, ..., z, aa, ... (default: 2)"),
    OPT_TEXT("nics", 0, "COUNT[,..]", struct up_args, list[0],
             "number of NICs, from 1 to 32: one number for all nodes, or one for each node, as in 4,3 (default: 4)"),
    OPT_CALL("fabric", 0, "FABRIC", parse_fabric,
             "the network: subnet, routed, gcp, shared-subnet or bridge; see hawser(1) (default: subnet)"),
    OPT_TEXT("names", 'x', "NAME[,..]", struct up_args, list[1],
             "prefix of the NICs' names, before the number: one for all nodes, or one for each node, as in eth,enp "
             "(default: eth)"),
    OPT_TEXT("rate", 'r', "RATE[,..]", struct up_args, list[2],
             "rate limit: one for all of a node's NICs, or one for each NIC, as in 1gbit,1gbit,250mbit,none (default: "
             "none)"),
    OPT_TEXT(
        "delay", 0, "TIME[,..]", struct up_args, list[3],
        "one-way delay between nodes: one for all of a node's NICs, or one for each NIC, as in 10ms,0 (default: 0)"),
    OPT_TEXT("loss", 0, "PERCENT[,..]", struct up_args, list[4],
             "packet loss between nodes: one for all of a node's NICs, or one for each NIC, as in 0.1%,0 (default: 0)"),
    OPT_NUMBER("mtu", 0, "BYTES", struct up_args, mtu, 576, 65535, "the NICs' MTU, 576 to 65535 (default: 1500)"),
    {0},
};

static int lab_up(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "lab up",
        .args = "[OPTION...]",
        .about = "Creates network namespaces as nodes, and connects their NICs. If root makes a lab, it exists until "
                 "`hawser lab down`, and `ip netns` shows the nodes as hawser-LAB-NODE. A lab of another user is in a "
                 "user namespace, which exists until `hawser lab down` ends the hawser-lab process that keeps it.",
        .rows = up_opts};
    struct up_args a = {.spec = {.nodes = 2, .nics = 4}};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    for (size_t i = 0; i < HW_ARRAY_LEN(lists); i++)
        if (a.list[i] && lists[i].parse(a.list[i], &a.spec) < 0)
            return tool_usage(o.cmd, "--%s: %s", lists[i].name, hw_error());
    a.spec.mtu = a.mtu;
    rc = hw_lab_up(&a.spec);
    if (rc == -EINVAL)
        return tool_usage(o.cmd, "%s", hw_error());
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

static int lab_down(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "lab down",
        .args = "[OPTION...]",
        .about = "Removes a lab, and ends the programs that run in the lab. It is not an error if the "
                 "lab does not exist. Also removes what is left of a lab after a crash.",
        .rows = name_opts,
        .too_many = "specify a lab with --name"};
    struct lab_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    rc = hw_lab_down(a.name);
    if (rc == -EINVAL)
        return tool_usage(o.cmd, "%s", hw_error());
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

static const char *get_lab_nic_state(const struct hw_lab_nic *n)
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
            printf("  %-4s %-6s %-16s %-11s mtu %-6u rate %s\n", l->node[k].name, n->link.name, addr,
                   get_lab_nic_state(n), n->link.mtu, hw_lab_format_rate(n->rate, rate, sizeof(rate)));
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
            hw_json_str(j, "state", get_lab_nic_state(n));
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
    static const struct opt rows[] = {
        OPT_TEXT("name", 'l', "LAB", struct lab_args, name, "show this lab only"),
        OPT_FLAG("json", 'j', struct lab_args, json,
                 "print a JSON array of labs with their nodes and NICs; a rate is in bits per second, or null if it is "
                 "not limited"),
        {0},
    };
    static const struct opts o = {.cmd = "lab list",
                                  .args = "[OPTION...]",
                                  .about = "Shows the labs with their nodes and NICs, in their current state.",
                                  .rows = rows,
                                  .too_many = "specify a lab with --name"};
    struct lab_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    const char *name = a.name;
    enum { MAX = 256 };
    HW_AUTO_FREE char(*names)[HW_LAB_NAME_MAX + 1] = calloc(MAX, sizeof(*names));
    HW_AUTO_FREE struct hw_lab_info *info = malloc(sizeof(*info));
    struct hw_json j;
    int result = TOOL_OK, n = 1;
    if (!names || !info)
        return tool_fail(o.cmd, "out of memory");
    if (!name) {
        n = hw_lab_names(names, MAX);
        if (n > MAX)
            fprintf(stderr, "hawser lab list: only %d of %d labs are shown\n", MAX, n);
        n = HW_MIN(n, (int)MAX);
    }
    if (a.json) {
        hw_json_init(&j, stdout);
        hw_json_array(&j, NULL);
    }
    for (int i = 0; i < n; i++) {
        if (hw_lab_info(name ? name : names[i], info) < 0) {
            (void)tool_fail(o.cmd, "%s", hw_error());
            if (name) /* without a name, a lab may belong to root or disappear: report this, but do not fail */
                result = TOOL_FAILED;
        } else if (a.json)
            list_json(&j, info);
        else
            list_text(info);
    }
    if (a.json) {
        hw_json_end(&j);
        if (hw_json_finish(&j) < 0)
            result = tool_fail(o.cmd, "writing to standard output failed");
    }
    return result;
}

static void print_warning(const char *line)
{
    fprintf(stderr, "hawser lab exec: %s\n", line);
}

static int lab_exec(int argc, char **argv)
{
    static const struct opts o = {.cmd = "lab exec",
                                  .args = "[OPTION...] NODE -- COMMAND [ARGUMENT...]",
                                  .about =
                                      "Executes COMMAND in a node (a, b, ..., or LAB/a), with the node's own "
                                      "/sys. The exit status is the\ncommand's; 125 if the node cannot be entered, "
                                      "126 if the command could not be executed, 127 if it was not found.",
                                  .rows = name_opts,
                                  .least = 1,
                                  .most = 1,
                                  .too_few = "NODE is missing",
                                  .too_many = "needs one NODE, then --, then the command"};
    struct lab_args a = {0};
    const char *node;
    char lab[HW_LAB_NAME_MAX + 1];
    bool cannot_run;
    int dashes = 1;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0)
        dashes++;
    int rc = opts_parse(&o, &a, dashes, argv); /* only up to the --, because the rest is the command */
    if (rc != OPTS_GO)
        return rc;
    if (dashes + 1 >= argc)
        return tool_usage(o.cmd, "needs one NODE, then --, then the command");
    if (split_node(argv[optind], &a.name, lab, &node) < 0)
        return tool_usage(o.cmd, "%s", hw_error());
    rc = hw_lab_exec(a.name, node, argv + dashes + 1, print_warning, &cannot_run);
    (void)tool_fail(o.cmd, "%s", hw_error());
    return !cannot_run ? EXIT_LAB : rc == -ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUNNABLE;
}

/* Implements `link` and `rate`. Their arguments are a node, a NIC and a word. */
static int lab_nic(int argc, char **argv, bool link)
{
    const struct opts o = {
        .cmd = link ? "lab link" : "lab rate",
        .args = link ? "[OPTION...] NODE NIC up|down" : "[OPTION...] NODE NIC RATE",
        .about =
            link ? "Brings a NIC of a node up, or takes it down. While the NIC is down, the other side has no carrier. "
                   "NIC is the NIC's name, such as eth1, or only its number, 1."
                 : "Sets the rate of a NIC (eth1, or 1), in both directions: 250mbit, 1.5gbit, none. In a lab of "
                   "two nodes without bridge or\nrouter, the NIC of the other node is on the same cable, so its rate "
                   "changes too.",
        .rows = name_opts,
        .least = 3,
        .most = 3,
        .too_few = link ? "needs NODE, NIC and up or down" : "needs NODE, NIC and RATE"};
    struct lab_args a = {0};
    const char *node;
    char lab[HW_LAB_NAME_MAX + 1];
    uint64_t rate = 0;
    unsigned nic;
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    const char *word = argv[optind + 2];
    bool up = strcmp(word, "up") == 0;
    if (split_node(argv[optind], &a.name, lab, &node) < 0 || hw_lab_parse_nic(argv[optind + 1], &nic) < 0 ||
        (!link && hw_lab_parse_rate(word, &rate) < 0))
        return tool_usage(o.cmd, "%s", hw_error());
    if (link && !up && strcmp(word, "down") != 0)
        return tool_usage(o.cmd, "'%s' is not up or down", word);
    rc = link ? hw_lab_link(a.name, node, nic, up) : hw_lab_rate(a.name, node, nic, rate);
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

static const struct tool_action actions[] = {
    {"up", lab_up, "create a lab"},
    {"down", lab_down, "remove a lab, and end the programs in it"},
    {"list", lab_list, "show labs, nodes and NICs"},
    {"exec", lab_exec, "run a command in a node"},
    {"link", lab_link, "bring a NIC up, or take it down"},
    {"rate", lab_rate, "change a NIC's rate, such as 250mbit or 1.5gbit; none: no limit"},
    {0},
};

int cmd_lab(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "lab",
        .about =
            "Makes a cluster on this machine. Its nodes a, b and so on are network namespaces, each with NICs eth0, "
            "eth1 and so on. By default, NIC i of the k-th node has the address 198.18.i.k/24. Works as root, and "
            "without root in a user namespace.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
