// SPDX-License-Identifier: GPL-2.0
/* The path of a packet. A sender's skb is queued on the ring of the receive queue that the peer's steering selects. The
 * skb stays there with its payload unread until the peer polls. The poll then splits the skb into packets and copies
 * the bytes, at the time when a real card's DMA would read them. If the sender reuses memory before its completion, the
 * wrong bytes arrive. */
#include "dmnic.h"

#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/random.h>
#include <linux/tcp.h>
#include <net/ip.h>

static bool one_in(unsigned int n)
{
    return n && get_random_u32_below(n) == 0;
}

/* Stands in for DMA: without an IOMMU, a bus address is a physical address. Memory without a page, such as a GPU's BAR,
 * cannot be accessed by this card. */
static void *dma_memory(dma_addr_t addr)
{
    return pfn_valid(PHYS_PFN(addr)) ? phys_to_virt(addr) : NULL;
}

/* Returns the address of a fragment's bytes. Memory that the CPU must not read (a net_iov) has only a bus address. */
static const u8 *frag_memory(const skb_frag_t *frag)
{
    netmem_ref netmem = skb_frag_netmem(frag);

    if (netmem_is_net_iov(netmem))
        return dma_memory(page_pool_get_dma_addr_netmem(netmem) + skb_frag_off(frag));
    return skb_frag_address(frag);
}

static bool read_skb(const struct sk_buff *skb, u32 off, u8 *to, u32 len)
{
    u32 start = skb_headlen(skb), n;

    if (off < start) {
        n = min(len, start - off);
        memcpy(to, skb->data + off, n);
        to += n;
        off += n;
        len -= n;
    }
    for (int i = 0; i < skb_shinfo(skb)->nr_frags && len; i++) {
        const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];
        u32 end = start + skb_frag_size(frag);

        if (off < end) {
            const u8 *from = frag_memory(frag);

            if (!from)
                return false;
            n = min(len, end - off);
            memcpy(to, from + (off - start), n);
            to += n;
            off += n;
            len -= n;
        }
        start = end;
    }
    return len == 0;
}

netdev_tx_t dmnic_xmit(struct sk_buff *skb, struct net_device *ndev)
{
    struct dmnic *nic = netdev_priv(ndev), *peer = nic->peer;
    u64 *stat = nic->q[skb_get_queue_mapping(skb)].stat;
    u32 len = skb->len, pkts = max_t(u32, 1, skb_shinfo(skb)->gso_segs);
    bool devmem = !skb_frags_readable(skb);
    struct dmnic_flow flow;
    struct dmnic_queue *q;
    unsigned long irq;
    int queue;
    u32 payload;
    bool full;

    dmnic_parse(skb, DMNIC_CB(skb), &flow);
    payload = skb->data_len;
    if (!READ_ONCE(peer->up) || skb_has_frag_list(skb) || (skb_is_gso(skb) && !DMNIC_CB(skb)->hdr)) {
        stat[DMNIC_TX_DROPS]++;
        dev_kfree_skb_any(skb);
        return NETDEV_TX_OK;
    }
    stat[DMNIC_TX_PACKETS] += pkts;
    stat[DMNIC_TX_BYTES] += len;
    if (devmem) {
        stat[DMNIC_TX_DEVMEM_PKTS] += pkts;
        stat[DMNIC_TX_DEVMEM_BYTES] += payload;
    }
    skb_tx_timestamp(skb);
    queue = dmnic_steer(peer, &flow, &DMNIC_CB(skb)->hash);
    if (queue < 0) { /* one of the peer's rules drops the packet, so it is sent and then discarded there */
        dev_consume_skb_any(skb);
        return NETDEV_TX_OK;
    }
    q = &peer->q[queue];
    spin_lock_irqsave(&q->ring.lock, irq);
    full = skb_queue_len(&q->ring) >= READ_ONCE(peer->ring);
    if (full)
        q->stat[DMNIC_RX_MISSED] += pkts;
    else
        __skb_queue_tail(&q->ring, skb);
    spin_unlock_irqrestore(&q->ring.lock, irq);
    if (full)
        dev_kfree_skb_any(skb);
    else
        napi_schedule(&q->napi);
    return NETDEV_TX_OK;
}

/* Takes a page for payload. The fault "refill" limits the number of pages per millisecond, and unused pages do not
 * carry over. */
static netmem_ref take_page(struct dmnic_queue *q)
{
    unsigned int limit = READ_ONCE(dmnic_faults.refill);

    if (limit) {
        u64 now = ktime_get_ns();

        if (now - q->refill_at >= NSEC_PER_MSEC) {
            q->refill_at = now;
            q->refill_credit = limit;
        }
        if (q->refill_credit == 0)
            return 0;
        q->refill_credit--;
    }
    return dmnic_pool_take(q->pool);
}

static bool add_payload(struct dmnic_queue *q, struct sk_buff *n, const struct sk_buff *skb, u32 off, u32 len)
{
    bool skip = one_in(READ_ONCE(dmnic_faults.corrupt));

    if (skip)
        q->stat[DMNIC_RX_CORRUPTED]++;
    for (int i = 0; len; i++) {
        u32 size = min_t(u32, len, q->nic->buf_len ?: q->page);
        netmem_ref netmem;
        u8 *to;

        if (i == MAX_SKB_FRAGS) {
            q->stat[DMNIC_RX_ERRORS]++;
            return false;
        }
        netmem = take_page(q);
        if (!netmem) {
            q->stat[DMNIC_RX_ALLOC_FAIL]++;
            return false;
        }
        /* From here on, freeing the skb returns its fragments to the pool. An skb without fragments is not marked: GRO
         * would chain it to marked skbs, and recvmsg() fails permanently if readable bytes follow unreadable bytes. */
        skb_mark_for_recycle(n);
        skb_add_rx_frag_netmem(n, i, netmem, 0, size, q->page);
        to = dma_memory(page_pool_get_dma_addr_netmem(netmem));
        if (!to || (!skip && !read_skb(skb, off, to, size))) {
            q->stat[DMNIC_RX_ERRORS]++;
            return false;
        }
        off += size;
        len -= size;
    }
    return true;
}

/* Adapts the headers of one packet that is cut from a larger packet, as a card would. TCP checksums are not computed,
 * because the wire is memory and arriving packets are marked as verified. */
static void cut_headers(u8 *head, const struct dmnic_cb *cb, u32 len, u32 mss, bool last)
{
    struct tcphdr *tcp = (struct tcphdr *)(head + cb->l4);

    if (cb->v6) {
        struct ipv6hdr *ip6 = (struct ipv6hdr *)(head + cb->l3);

        ip6->payload_len = htons(cb->hdr - cb->l4 + len);
    } else {
        struct iphdr *ip = (struct iphdr *)(head + cb->l3);

        ip->tot_len = htons(cb->hdr - cb->l3 + len);
        ip->id = htons(ntohs(ip->id) + cb->off / mss);
        ip_send_check(ip);
    }
    tcp->seq = htonl(ntohl(tcp->seq) + cb->off);
    if (!last)
        tcp->fin = tcp->psh = 0;
    if (cb->off)
        tcp->cwr = 0;
}

/* Returns the packet with the next len bytes of skb's payload, or NULL after counting an error. */
static struct sk_buff *build(struct dmnic_queue *q, struct sk_buff *skb, u32 len)
{
    struct dmnic_cb *cb = DMNIC_CB(skb);
    u32 mss = skb_shinfo(skb)->gso_size;
    u32 head = cb->hdr ?: skb->len, inl = 0;
    struct sk_buff *n;

    if (cb->hdr) {
        inl = min(len, READ_ONCE(dmnic_faults.linear));
        if (q->nic->split && len <= READ_ONCE(q->nic->hds_thresh))
            inl = len;
    }
    /* GRO and TCP must not split a head that contains payload, because the payload would become a readable fragment
     * among unreadable fragments. They do not split heads from kmalloc(). */
    if (inl || !cb->hdr) {
        n = alloc_skb(NET_SKB_PAD + NET_IP_ALIGN + head + inl, GFP_ATOMIC);
        if (n)
            skb_reserve(n, NET_SKB_PAD + NET_IP_ALIGN);
    } else {
        n = napi_alloc_skb(&q->napi, head);
    }
    if (!n) {
        q->stat[DMNIC_RX_ALLOC_FAIL]++;
        return NULL;
    }
    if (!read_skb(skb, 0, skb_put(n, head), head) || (inl && !read_skb(skb, cb->hdr + cb->off, skb_put(n, inl), inl))) {
        q->stat[DMNIC_RX_ERRORS]++;
        goto drop;
    }
    if (cb->hdr) {
        if (mss)
            cut_headers(n->data, cb, len, mss, cb->hdr + cb->off + len == skb->len);
        if (!add_payload(q, n, skb, cb->hdr + cb->off + inl, len - inl))
            goto drop;
        if (READ_ONCE(dmnic_faults.recycle_all))
            skb_mark_for_recycle(n);
        if (mss && len > mss) {
            skb_shinfo(n)->gso_size = mss;
            skb_shinfo(n)->gso_segs = DIV_ROUND_UP(len, mss);
            skb_shinfo(n)->gso_type = cb->v6 ? SKB_GSO_TCPV6 : SKB_GSO_TCPV4;
        }
        if (!skb_frags_readable(n)) {
            q->stat[DMNIC_RX_DEVMEM_PKTS]++;
            q->stat[DMNIC_RX_DEVMEM_BYTES] += n->data_len;
        }
        if (inl) {
            q->stat[DMNIC_RX_LINEAR_PKTS]++;
            q->stat[DMNIC_RX_LINEAR_BYTES] += inl;
        }
    }
    q->stat[DMNIC_RX_PACKETS]++;
    q->stat[DMNIC_RX_BYTES] += n->len;
    n->ip_summed = CHECKSUM_UNNECESSARY;
    if (q->nic->ndev->features & NETIF_F_RXHASH && cb->hash)
        skb_set_hash(n, cb->hash, cb->hdr ? PKT_HASH_TYPE_L4 : PKT_HASH_TYPE_L3);
    skb_record_rx_queue(n, q->idx);
    n->protocol = eth_type_trans(n, q->nic->ndev);
    return n;
drop:
    kfree_skb(n);
    return NULL;
}

static void release_held(struct dmnic_queue *q)
{
    struct sk_buff *n = q->held;

    q->held = NULL;
    if (n)
        napi_gro_receive(&q->napi, n);
}

static void deliver(struct dmnic_queue *q, struct sk_buff *n)
{
    if (!q->held && one_in(READ_ONCE(dmnic_faults.reorder))) {
        q->stat[DMNIC_RX_REORDERED]++;
        q->held = n;
        q->held_for = 3;
        return;
    }
    napi_gro_receive(&q->napi, n);
    if (q->held && --q->held_for == 0)
        release_held(q);
}

/* Cuts the next packet from q->cur and delivers it. */
static void receive_one(struct dmnic_queue *q, int budget)
{
    struct sk_buff *skb = q->cur, *n = NULL;
    struct dmnic_cb *cb = DMNIC_CB(skb);
    u32 mss = skb_shinfo(skb)->gso_size, left = cb->hdr ? skb->len - cb->hdr - cb->off : 0;
    u32 len = mss && !READ_ONCE(dmnic_faults.large) ? min(left, mss) : left;
    u32 frame = cb->hdr ? cb->hdr + (mss ? min(len, mss) : len) : skb->len;

    if (frame > q->nic->ndev->mtu + VLAN_ETH_HLEN)
        q->stat[DMNIC_RX_ERRORS]++;
    else if (one_in(READ_ONCE(dmnic_faults.loss)))
        q->stat[DMNIC_RX_LOST]++;
    else
        n = build(q, skb, len);
    cb->off += len;
    if (len == left) {
        q->cur = NULL;
        /* nothing reads the skb's bytes after this, so this is the sender's completion */
        napi_consume_skb(skb, budget);
    }
    if (n)
        deliver(q, n);
}

int dmnic_poll(struct napi_struct *napi, int budget)
{
    struct dmnic_queue *q = container_of(napi, struct dmnic_queue, napi);
    int work = 0;

    while (work < budget) {
        if (!q->cur)
            q->cur = skb_dequeue(&q->ring);
        if (!q->cur)
            break;
        receive_one(q, budget);
        work++;
    }
    if (work < budget) {
        release_held(q); /* no packet is left that could overtake the held packet */
        napi_complete_done(napi, work);
    }
    return work;
}

void dmnic_queue_purge(struct dmnic_queue *q)
{
    skb_queue_purge(&q->ring);
    kfree_skb(q->cur);
    kfree_skb(q->held);
    q->cur = q->held = NULL;
}
