// SPDX-License-Identifier: GPL-2.0
/* Selects a packet's receive queue by the matching rule with the lowest number or, if no rule matches, by the
 * indirection table. */
#include "dmnic.h"

#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/ip.h>

/* Reads the headers in place, because the stack passes frames with all headers in the linear part. */
void dmnic_parse(const struct sk_buff *skb, struct dmnic_cb *cb, struct dmnic_flow *flow)
{
    const u8 *data = skb->data;
    unsigned int have = skb_headlen(skb);
    const struct tcphdr *tcp;
    unsigned int l4;
    __be16 proto;

    BUILD_BUG_ON(sizeof(*cb) > sizeof_field(struct sk_buff, cb));
    memset(cb, 0, sizeof(*cb));
    memset(flow, 0, sizeof(*flow));
    if (have < ETH_HLEN)
        return;
    proto = ((const struct ethhdr *)data)->h_proto;
    if (proto == htons(ETH_P_IP) && have >= ETH_HLEN + sizeof(struct iphdr)) {
        const struct iphdr *ip = (const struct iphdr *)(data + ETH_HLEN);

        l4 = ETH_HLEN + ip->ihl * 4;
        flow->proto = ip->protocol;
        flow->ip[0] = ip->saddr;
        flow->ip[1] = ip->daddr;
        if (ip->version != 4 || ip->ihl < 5 || ip_is_fragment(ip))
            return;
    } else if (proto == htons(ETH_P_IPV6) && have >= ETH_HLEN + sizeof(struct ipv6hdr)) {
        const struct ipv6hdr *ip6 = (const struct ipv6hdr *)(data + ETH_HLEN);

        l4 = ETH_HLEN + sizeof(*ip6); /* this card does not treat packets with extension headers as TCP */
        flow->v6 = true;
        flow->proto = ip6->nexthdr;
        memcpy(&flow->ip[0], &ip6->saddr, 16);
        memcpy(&flow->ip[4], &ip6->daddr, 16);
    } else {
        return;
    }
    if (flow->proto != IPPROTO_TCP || have < l4 + sizeof(*tcp))
        return;
    tcp = (const struct tcphdr *)(data + l4);
    if (tcp->doff < 5 || have < l4 + tcp->doff * 4)
        return;
    flow->ports = true;
    flow->port[0] = tcp->source;
    flow->port[1] = tcp->dest;
    cb->v6 = flow->v6;
    cb->l3 = ETH_HLEN;
    cb->l4 = l4;
    cb->hdr = l4 + tcp->doff * 4;
}

/* Computes the Toeplitz hash. The key shifts by one bit for each bit of the input. */
static u32 toeplitz(const u8 *key, const void *input, unsigned int len)
{
    u32 window = (u32)key[0] << 24 | key[1] << 16 | key[2] << 8 | key[3];
    const u8 *in = input;
    u32 hash = 0;

    for (unsigned int i = 0; i < len; i++) {
        for (int bit = 7; bit >= 0; bit--) {
            if (in[i] >> bit & 1)
                hash ^= window;
            window = window << 1 | (key[i + 4] >> bit & 1);
        }
    }
    return hash;
}

static u32 flow_hash(const struct dmnic *nic, const struct dmnic_flow *flow)
{
    unsigned int len = flow->v6 ? 32 : 8;
    u8 in[36];

    BUILD_BUG_ON(sizeof(in) + 4 > DMNIC_KEY);
    if (flow->proto == 0)
        return 0;
    memcpy(in, flow->ip, len);
    if (flow->ports) {
        memcpy(in + len, flow->port, 4);
        len += 4;
    }
    return toeplitz(nic->key, in, len);
}

static bool differs(const __be32 *a, const __be32 *b, const __be32 *mask, int words)
{
    for (int i = 0; i < words; i++) {
        if ((a[i] ^ b[i]) & mask[i])
            return true;
    }
    return false;
}

static bool rule_matches(const struct ethtool_rx_flow_spec *fs, const struct dmnic_flow *flow)
{
    if (!flow->ports || flow->v6 != (fs->flow_type == TCP_V6_FLOW))
        return false;
    if (flow->v6) {
        const struct ethtool_tcpip6_spec *h = &fs->h_u.tcp_ip6_spec, *m = &fs->m_u.tcp_ip6_spec;

        return !differs(&flow->ip[0], h->ip6src, m->ip6src, 4) && !differs(&flow->ip[4], h->ip6dst, m->ip6dst, 4) &&
               !((flow->port[0] ^ h->psrc) & m->psrc) && !((flow->port[1] ^ h->pdst) & m->pdst);
    }
    {
        const struct ethtool_tcpip4_spec *h = &fs->h_u.tcp_ip4_spec, *m = &fs->m_u.tcp_ip4_spec;

        return !differs(&flow->ip[0], &h->ip4src, &m->ip4src, 1) && !differs(&flow->ip[1], &h->ip4dst, &m->ip4dst, 1) &&
               !((flow->port[0] ^ h->psrc) & m->psrc) && !((flow->port[1] ^ h->pdst) & m->pdst);
    }
}

int dmnic_steer(struct dmnic *nic, const struct dmnic_flow *flow, u32 *hash)
{
    int queue = -2;

    *hash = flow_hash(nic, flow);
    if (nic->ndev->features & NETIF_F_NTUPLE && flow->ports) {
        rcu_read_lock();
        for (unsigned int i = 0; i < DMNIC_RULES && queue == -2; i++) {
            const struct dmnic_rule *rule = rcu_dereference(nic->rules[i]);

            if (rule && rule_matches(&rule->fs, flow))
                queue = rule->fs.ring_cookie == RX_CLS_FLOW_DISC ? -1 : (int)rule->fs.ring_cookie;
        }
        rcu_read_unlock();
    }
    return queue == -2 ? (int)READ_ONCE(nic->indir[*hash % DMNIC_INDIR]) : queue;
}

/* Rules are changed under the device's lock (rtnl on 6.12). The data path only reads rules. */
static struct dmnic_rule *rule_at(struct dmnic *nic, u32 location)
{
    return rcu_dereference_protected(nic->rules[location], true);
}

int dmnic_rule_add(struct dmnic *nic, struct ethtool_rx_flow_spec *fs)
{
    struct dmnic_rule *rule, *old;
    u32 at = fs->location;

    if (!(nic->ndev->features & NETIF_F_NTUPLE))
        return -EOPNOTSUPP;
    if (fs->flow_type != TCP_V4_FLOW && fs->flow_type != TCP_V6_FLOW) /* also refuses FLOW_EXT and FLOW_RSS */
        return -EOPNOTSUPP;
    if (fs->flow_type == TCP_V4_FLOW ? fs->m_u.tcp_ip4_spec.tos : fs->m_u.tcp_ip6_spec.tclass)
        return -EOPNOTSUPP;
    /* the upper bits of ring_cookie select virtual functions */
    if (fs->ring_cookie != RX_CLS_FLOW_DISC && fs->ring_cookie >= nic->nq)
        return -EINVAL;
    if (at & RX_CLS_LOC_SPECIAL) {
        if (nic->like == DMNIC_MLX5) /* mellanox/mlx5/core/en_fs_ethtool.c, validate_flow(): an ordinary location */
            return -ENOSPC;
        if (nic->like == DMNIC_GVE || at != RX_CLS_LOC_ANY)
            return nic->like == DMNIC_GVE ? -EINVAL : -EOPNOTSUPP;
        for (at = 0; at < DMNIC_RULES && rule_at(nic, at); at++)
            ;
        if (at == DMNIC_RULES)
            return -ENOSPC;
    }
    if (at >= DMNIC_RULES)
        return -EINVAL;
    rule = kzalloc(sizeof(*rule), GFP_KERNEL);
    if (!rule)
        return -ENOMEM;
    fs->location = at;
    rule->fs = *fs;
    old = rule_at(nic, at);
    rcu_assign_pointer(nic->rules[at], rule);
    if (old)
        kfree_rcu(old, rcu);
    return 0;
}

int dmnic_rule_del(struct dmnic *nic, u32 location)
{
    struct dmnic_rule *rule = location < DMNIC_RULES ? rule_at(nic, location) : NULL;

    if (!rule)
        return -ENOENT;
    RCU_INIT_POINTER(nic->rules[location], NULL);
    kfree_rcu(rule, rcu);
    return 0;
}

void dmnic_rules_clear(struct dmnic *nic)
{
    for (u32 i = 0; i < DMNIC_RULES; i++)
        dmnic_rule_del(nic, i);
}

int dmnic_rule_get(struct dmnic *nic, struct ethtool_rxnfc *info)
{
    struct dmnic_rule *rule = info->fs.location < DMNIC_RULES ? rule_at(nic, info->fs.location) : NULL;

    if (!rule) /* mellanox/mlx5/core/en_fs_ethtool.c:814, broadcom/bnxt/bnxt_ethtool.c:1141,
                  meta/fbnic/fbnic_ethtool.c:676 */
        return nic->like == DMNIC_PLAIN || nic->like == DMNIC_MLX5 ? -ENOENT : -EINVAL;
    info->fs = rule->fs;
    info->data = DMNIC_RULES;
    return 0;
}

int dmnic_rules_list(struct dmnic *nic, struct ethtool_rxnfc *info, u32 *locations)
{
    u32 room = info->rule_cnt, n = 0;

    info->data = DMNIC_RULES;
    for (u32 i = 0; i < DMNIC_RULES; i++) {
        if (!rule_at(nic, i))
            continue;
        if (locations && n == room) {
            /* mellanox/mlx5/core/en_fs_ethtool.c:826 stops when the buffer is full */
            if (nic->like == DMNIC_MLX5 || nic->like == DMNIC_BNXT)
                return 0;
            return -EMSGSIZE;
        }
        if (locations)
            locations[n] = i;
        n++;
    }
    /* if the buffer has more space, mlx5's function also reads a location that does not exist, and fails */
    if (locations && nic->like == DMNIC_MLX5 && n < room)
        return -EINVAL;
    /* google/gve/gve_flow_rule.c:234 does not report the number of rules */
    if (!locations || nic->like != DMNIC_GVE)
        info->rule_cnt = n;
    if (locations && nic->like == DMNIC_BNXT) /* broadcom/bnxt/bnxt_ethtool.c:1119 */
        info->data = n;
    return 0;
}
