/* SPDX-License-Identifier: Apache-2.0 */
/* The table of checks, and the code that runs them. */
#include "tool/doctor/doctor.h"

/* A check is one row here and one function, which reports at least one result. The reason is a sentence for readers who
 * do not know the subject. */
const struct dr_check dr_checks[] = {
    {"kernel.version", DR_KERNEL, "kernel version",
     "TCP straight into GPU memory (devmem) needs Linux 6.12 to receive and 6.16 to send", dr_kernel_version},
    {"kernel.devmem", DR_KERNEL, "CONFIG_NET_DEVMEM",
     "without it the kernel refuses to bind GPU memory to a NIC's queue", dr_kernel_devmem},
    {"kernel.tcp-mem", DR_KERNEL, "TCP buffers", "a connection moves at most one window per round trip",
     dr_kernel_tcp_mem},
    {"kernel.sock-mem", DR_KERNEL, "socket buffer limits",
     "programs that set their buffers themselves (knobs sndbuf and rcvbuf, NCCL) get no more than this, silently",
     dr_kernel_sock_mem},
    {"kernel.congestion", DR_KERNEL, "congestion control",
     "bbr paces by timers: within a data centre that costs more CPU than all else and gains nothing",
     dr_kernel_congestion},
    {"nic.link", DR_NIC, "link", "a NIC without a link carries nothing", dr_nic_link},
    {"nic.speed", DR_NIC, "link speed", "the slowest NIC of a transfer adds the least", dr_nic_speed},
    {"nic.pcie", DR_NIC, "PCIe link", "a slot that trained below what the NIC can caps it", dr_nic_pcie},
    {"nic.mtu", DR_NIC, "MTU",
     "small packets cost CPU, and in GPU memory leave fragments that fill no page; from 4148 on they do", dr_nic_mtu},
    {"nic.devmem", DR_NIC, "driver and devmem", "only some drivers can receive into, or send from, GPU memory",
     dr_nic_devmem},
    {"nic.hawserd", DR_NIC, "hawserd", "it binds queues to GPU memory for programs that may not do that themselves",
     dr_nic_hawserd},
    {"nic.header-split", DR_NIC, "header split", "headers must go to host memory when the payload goes to the GPU's",
     dr_nic_split},
    {"nic.rx-buf-len", DR_NIC, "receive buffers",
     "a piece of a packet is at most as large as a buffer: smaller than a page, there are more of them",
     dr_nic_buffers},
    {"nic.gro-hw", DR_NIC, "rx-gro-hw", "mlx5 has no header split without it", dr_nic_gro_hw},
    {"nic.rail", DR_NIC, "routed rail",
     "a NIC whose address has no subnet of its own (/31, /32) reaches its peers by routes; without one its traffic "
     "leaves "
     "by another NIC",
     dr_nic_rail},
    {"nic.ntuple", DR_NIC, "flow steering", "a flow that is not steered to the bound queue arrives as ordinary data",
     dr_nic_ntuple},
    {"nic.queues", DR_NIC, "receive queues", "GPU memory needs a queue of its own, beside those of ordinary traffic",
     dr_nic_queues},
    {"nic.rss", DR_NIC, "RSS indirection",
     "ordinary traffic that lands on a queue bound to GPU memory is lost to the CPU", dr_nic_rss},
    {"nic.irqs", DR_NIC, "interrupts and NUMA", "an interrupt handled on the far NUMA node drags every packet across",
     dr_nic_irqs},
    {"gpu.driver", DR_GPU, "driver", "only the open kernel modules, 515 or later, export GPU memory as dma-bufs",
     dr_gpu_driver},
    {"gpu.dma-buf", DR_GPU, "dma-buf export", "devmem TCP and RDMA take GPU memory as a dma-buf", dr_gpu_dmabuf},
    {"gpu.gpudirect", DR_GPU, "GPUDirect RDMA", "without it NICs cannot reach the GPU's memory, and hosts must copy",
     dr_gpu_gpudirect},
    {"gpu.bar1", DR_GPU, "BAR1 window", "memory beyond the window that the GPU shows on PCI cannot be reached by NICs",
     dr_gpu_bar1},
    {"gpu.peermem", DR_GPU, "nvidia_peermem", "RDMA into GPU memory needs it where there is no dma-buf export",
     dr_gpu_peermem},
    {"limits.memlock", DR_LIMITS, "locked memory", "RDMA registrations and pinned rings count against it",
     dr_limits_memlock},
    {"limits.nofile", DR_LIMITS, "open files", "each connection is one; a peer may have 256", dr_limits_nofile},
    {"tcpx.plugin", DR_TCPX, "network plugin", "NCCL loads a plugin by its symbol ncclNetPlugin_vN", dr_tcpx_plugin},
    {"tcpx.path", DR_TCPX, "plugin on the loader's path", "NCCL finds a plugin by dlopen, in LD_LIBRARY_PATH",
     dr_tcpx_path},
    {"tcpx.manager", DR_TCPX, "receive datapath manager",
     "TCPX has RxDM hand out GPU memory and steer flows, over sockets that it makes", dr_tcpx_manager},
    {"tcpx.prefix", DR_TCPX, "socket prefix", "the plugin looks in /tmp unless told otherwise; RxDM binds in /run/tcpx",
     dr_tcpx_prefix},
    {"tcpx.chunk-size", DR_TCPX, "NCCL_DYNAMIC_CHUNK_SIZE", "at its default of 0 zero-byte tasks break TCPX's stream",
     dr_tcpx_chunk},
    {"tcpx.nics", DR_TCPX, "NICs in TCPX's variables", "a name that is not there is passed over, or ends the job",
     dr_tcpx_names},
    {"tcpx.recv-sync", DR_TCPX, "RECV_SYNC",
     "it adds bytes to the stream, so that both ends must agree; it is off in effect", dr_tcpx_sync},
    {"tcpx.packets", DR_TCPX, "rx_devmem_pkts",
     "the NIC's own count of packets that landed in GPU memory; logs may mislead, this does not", dr_tcpx_packets},
    {"rdma.gids", DR_RDMA, "GIDs", "RoCE addresses a port by a GID; with none no queue pair connects", dr_rdma_gids},
    {"rdma.arp-ignore", DR_RDMA, "arp_ignore",
     "with several NICs in one subnet each answers for the others' addresses, and traffic goes to the wrong one",
     dr_rdma_arp_ignore},
    {"rdma.arp-announce", DR_RDMA, "arp_announce",
     "with several NICs in one subnet a NIC may ask with another's address and spoil the peer's ARP table",
     dr_rdma_arp_announce},
    {"rdma.arp-filter", DR_RDMA, "arp_filter",
     "with several NICs in one subnet it lets only the NIC that routing would use answer: right only with a rule per "
     "NIC",
     dr_rdma_arp_filter},
    {"rdma.rp-filter", DR_RDMA, "rp_filter",
     "strict, it drops packets that arrive by another NIC than the route back to their sender", dr_rdma_rp_filter},
    {"pair.session", DR_PAIR, "session", "all else about a pair is asked over it", dr_pair_session},
    {"pair.version", DR_PAIR, "hawser version", "two versions may not speak the same protocol", dr_pair_version},
    {"pair.machine", DR_PAIR, "two machines",
     "packets between addresses of one kernel never reach a NIC, so nothing lands in GPU memory: devmem cannot loop "
     "back "
     "(TCPX's \"rx no cmsg\")",
     dr_pair_machine},
    {"pair.kernel", DR_PAIR, "kernels", "what one kernel can the other may not", dr_pair_kernel},
    {"pair.nics", DR_PAIR, "NICs of both", "a NIC without a partner in its subnet stays idle", dr_pair_nics},
    {"pair.mtu", DR_PAIR, "MTUs of both", "the smaller one counts, and larger packets may vanish", dr_pair_mtu},
    {"pair.forward", DR_PAIR, "connections there", "each NIC here must reach its subnet's NICs there", dr_pair_forward},
    {"pair.reverse", DR_PAIR, "connections back", "NCCL and RDMA connect both ways; firewalls and ARP often do not",
     dr_pair_reverse},
    {"pair.path-mtu", DR_PAIR, "path MTU",
     "where full packets vanish, connections stand and then hang with the first large message", dr_pair_path_mtu},
    {"pair.clock", DR_PAIR, "clocks", "logs of two nodes can be laid side by side only if their clocks agree",
     dr_pair_clock},
    {"nccl.library", DR_NCCL, "NCCL", "its version decides which plugins it can take", dr_nccl_library},
    {"nccl.plugins", DR_NCCL, "NCCL_NET_PLUGIN", "NCCL tries the plugins that it names, in order, and no other",
     dr_nccl_list},
    {"nccl.load", DR_NCCL, "loading plugins", "NCCL finds a plugin by dlopen; where it does not, it says nothing",
     dr_nccl_load},
    {"nccl.table", DR_NCCL, "plugins' tables", "NCCL takes the newest ncclNetPlugin_vN that it and the plugin know",
     dr_nccl_table},
    {"nccl.init", DR_NCCL, "starting plugins", "NCCL passes over a plugin that does not start or has no device",
     dr_nccl_init},
    {"nccl.nics", DR_NCCL, "plugins' devices", "their speeds decide how many channels NCCL makes", dr_nccl_nics},
    {"nccl.network", DR_NCCL, "network", "the first plugin that works and that NCCL_NET does not forbid",
     dr_nccl_network},
    {"nccl.link", DR_NCCL, "libnccl-net.so",
     "NCCL 2.27.3 to 2.29.7 forget the plugin's name with the last communicator, and look for this one", dr_nccl_link},
    {"nccl.tuner", DR_NCCL, "tuner", "it chooses algorithm, protocol and channels; ours knows what TCP is good at",
     dr_nccl_tuner},
    {"nccl.env-plugin", DR_NCCL, "libnccl-env.so", "from 2.28.7 on NCCL may ask it for all parameters",
     dr_nccl_env_plugin},
    {"nccl.environment", DR_NCCL, "variables",
     "some keep the plugin out, others take part of what it sets and leave the rest", dr_nccl_environment},
    {"nixl.wheel", DR_NIXL, "NIXL", "the backend is for the NIXL that your program's Python has", dr_nixl_wheel},
    {"nixl.version", DR_NIXL, "NIXL's version",
     "NIXL has changed its virtual functions once without another API version, so the backend refuses what was not "
     "tried",
     dr_nixl_version},
    {"nixl.backend", DR_NIXL, "backend HAWSER",
     "NIXL looks for backends in one folder: NIXL_PLUGIN_DIR, or where that is not set, its own", dr_nixl_backend},
    {"nixl.load", DR_NIXL, "loading the backend", "NIXL loads it by dlopen, when create_backend(\"HAWSER\") is called",
     dr_nixl_load},
};
const size_t dr_n_checks = HW_ARRAY_LEN(dr_checks);

int dr_run(struct dr_report *d, const struct dr_machine *m, const struct dr_pair *pair, unsigned groups)
{
    *d = (struct dr_report){.m = m, .pair = pair};
    for (size_t i = 0; i < dr_n_checks && !d->broken; i++) {
        d->now = &dr_checks[i];
        size_t before = d->n;
        if (!(groups & 1u << d->now->group) || (d->now->group == DR_PAIR && !pair) ||
            (d->now->group == DR_NCCL && !m->nccl) || (d->now->group == DR_NIXL && !m->nixl))
            continue;
        d->now->run(d);
        if (d->n == before)
            dr_say(d, DR_SKIP, NULL, "nothing here that it is about");
    }
    return d->broken ? hw_no_memory("the checks' results") : 0;
}
