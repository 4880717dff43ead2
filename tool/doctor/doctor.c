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
    {"kernel.tcp-mem", DR_KERNEL, "TCP buffers", "a connection transfers at most one window per round trip",
     dr_kernel_tcp_mem},
    {"kernel.sock-mem", DR_KERNEL, "socket buffer limits",
     "programs that set their buffers themselves (knobs sndbuf and rcvbuf, NCCL) silently get no more than this",
     dr_kernel_sock_mem},
    {"kernel.congestion", DR_KERNEL, "congestion control",
     "bbr paces by timers, which costs much CPU time within a data centre and gains nothing there",
     dr_kernel_congestion},
    {"nic.link", DR_NIC, "link", "a NIC without a link transfers nothing", dr_nic_link},
    {"nic.speed", DR_NIC, "link speed", "the slowest NIC of a transfer adds the least bandwidth", dr_nic_speed},
    {"nic.pcie", DR_NIC, "PCIe link", "a PCIe link that trained below the NIC's maximum limits the NIC", dr_nic_pcie},
    {"nic.mtu", DR_NIC, "MTU",
     "small packets cost CPU time, and in GPU memory leave fragments smaller than a page; from 4148 up they fill pages",
     dr_nic_mtu},
    {"nic.devmem", DR_NIC, "driver and devmem", "only some drivers can receive into, or send from, GPU memory",
     dr_nic_devmem},
    {"nic.hawserd", DR_NIC, "hawserd", "hawserd binds queues to GPU memory for programs that lack the privilege",
     dr_nic_hawserd},
    {"nic.header-split", DR_NIC, "header split",
     "headers must be placed in host memory when the payload goes to GPU memory", dr_nic_split},
    {"nic.rx-buf-len", DR_NIC, "receive buffers",
     "a packet is cut into pieces of at most a buffer: buffers smaller than a page make more pieces", dr_nic_buffers},
    {"nic.gro-hw", DR_NIC, "rx-gro-hw", "mlx5 has no header split without it", dr_nic_gro_hw},
    {"nic.rail", DR_NIC, "routed rail",
     "a NIC whose address has no subnet of its own (/31, /32) reaches its peers by routes; without one its traffic "
     "leaves through another NIC",
     dr_nic_rail},
    {"nic.ntuple", DR_NIC, "flow steering", "a flow that is not steered to the bound queue arrives as ordinary data",
     dr_nic_ntuple},
    {"nic.queues", DR_NIC, "receive queues",
     "GPU memory needs receive queues of its own, in addition to those of ordinary traffic", dr_nic_queues},
    {"nic.rss", DR_NIC, "RSS indirection",
     "ordinary traffic that arrives on a queue bound to GPU memory cannot be read by the CPU", dr_nic_rss},
    {"nic.irqs", DR_NIC, "interrupts and NUMA",
     "an interrupt handled on another NUMA node moves every packet between the nodes", dr_nic_irqs},
    {"gpu.driver", DR_GPU, "driver", "only the open kernel modules, 515 or later, export GPU memory as dma-bufs",
     dr_gpu_driver},
    {"gpu.dma-buf", DR_GPU, "dma-buf export", "devmem TCP and RDMA take GPU memory as a dma-buf", dr_gpu_dmabuf},
    {"gpu.gpudirect", DR_GPU, "GPUDirect RDMA",
     "without it NICs cannot access GPU memory, and data is copied through the host", dr_gpu_gpudirect},
    {"gpu.bar1", DR_GPU, "BAR1 window", "NICs cannot access GPU memory beyond the window that the GPU exposes on PCI",
     dr_gpu_bar1},
    {"gpu.peermem", DR_GPU, "nvidia_peermem", "RDMA to GPU memory needs it if dma-bufs cannot be exported",
     dr_gpu_peermem},
    {"limits.memlock", DR_LIMITS, "locked memory", "RDMA registrations and pinned buffers count against it",
     dr_limits_memlock},
    {"limits.nofile", DR_LIMITS, "open files", "each connection uses one; a peer may use 256", dr_limits_nofile},
    {"tcpx.plugin", DR_TCPX, "network plugin", "NCCL loads a plugin by its symbol ncclNetPlugin_vN", dr_tcpx_plugin},
    {"tcpx.path", DR_TCPX, "plugin on the loader's path", "NCCL finds a plugin by dlopen, in LD_LIBRARY_PATH",
     dr_tcpx_path},
    {"tcpx.manager", DR_TCPX, "receive datapath manager",
     "RxDM gives TCPX GPU memory and steers its flows, over sockets that RxDM creates", dr_tcpx_manager},
    {"tcpx.prefix", DR_TCPX, "socket prefix",
     "the plugin looks in /tmp by default; RxDM creates its sockets in /run/tcpx", dr_tcpx_prefix},
    {"tcpx.chunk-size", DR_TCPX, "NCCL_DYNAMIC_CHUNK_SIZE",
     "at its default of 0, tasks of zero bytes break TCPX's stream", dr_tcpx_chunk},
    {"tcpx.nics", DR_TCPX, "NICs in TCPX's variables", "an unknown name is ignored, or ends the job", dr_tcpx_names},
    {"tcpx.recv-sync", DR_TCPX, "RECV_SYNC",
     "it adds bytes to the stream, so both sides must have the same value; it is off by default", dr_tcpx_sync},
    {"tcpx.packets", DR_TCPX, "rx_devmem_pkts",
     "the NIC's own counter of packets placed in GPU memory shows what logs may not", dr_tcpx_packets},
    {"rdma.gids", DR_RDMA, "GIDs", "RoCE addresses a port by a GID; without one no queue pair connects", dr_rdma_gids},
    {"rdma.arp-ignore", DR_RDMA, "arp_ignore",
     "with several NICs in one subnet, each answers ARP for the others' addresses, and traffic goes to the wrong NIC",
     dr_rdma_arp_ignore},
    {"rdma.arp-announce", DR_RDMA, "arp_announce",
     "with several NICs in one subnet, a NIC may send ARP requests with another's address, which corrupts the peer's "
     "ARP table",
     dr_rdma_arp_announce},
    {"rdma.arp-filter", DR_RDMA, "arp_filter",
     "with several NICs in one subnet, only the NIC that routing would use answers ARP, which is right only with a "
     "rule per NIC",
     dr_rdma_arp_filter},
    {"rdma.rp-filter", DR_RDMA, "rp_filter",
     "in strict mode it drops packets that arrive on another NIC than the one with the route back to their sender",
     dr_rdma_rp_filter},
    {"pair.session", DR_PAIR, "session", "all other checks of a pair use this session", dr_pair_session},
    {"pair.version", DR_PAIR, "hawser version", "two versions may speak different protocols", dr_pair_version},
    {"pair.machine", DR_PAIR, "two machines",
     "packets between addresses of one kernel never reach a NIC, so nothing is placed in GPU memory (TCPX's \"rx no "
     "cmsg\")",
     dr_pair_machine},
    {"pair.kernel", DR_PAIR, "kernels", "the kernels of both nodes may support different features", dr_pair_kernel},
    {"pair.nics", DR_PAIR, "NICs of both", "a NIC without a partner in its subnet is not used", dr_pair_nics},
    {"pair.mtu", DR_PAIR, "MTUs of both", "the smaller MTU counts, and larger packets may be lost", dr_pair_mtu},
    {"pair.forward", DR_PAIR, "connections there",
     "each NIC of this node must reach the NICs of its subnet on the peer", dr_pair_forward},
    {"pair.reverse", DR_PAIR, "connections back",
     "NCCL and RDMA connect in both directions, which firewalls and ARP settings often prevent", dr_pair_reverse},
    {"pair.path-mtu", DR_PAIR, "path MTU",
     "if full-size packets are lost, connections are established but hang with the first large message",
     dr_pair_path_mtu},
    {"pair.clock", DR_PAIR, "clocks", "logs of two nodes can be compared only if their clocks agree", dr_pair_clock},
    {"nccl.library", DR_NCCL, "NCCL", "its version decides which plugins it can load", dr_nccl_library},
    {"nccl.plugins", DR_NCCL, "NCCL_NET_PLUGIN", "NCCL tries the plugins that it names, in order, and no others",
     dr_nccl_list},
    {"nccl.load", DR_NCCL, "loading plugins", "NCCL finds a plugin by dlopen(), and prints nothing if that fails",
     dr_nccl_load},
    {"nccl.table", DR_NCCL, "plugins' tables",
     "NCCL uses the newest ncclNetPlugin_vN that both it and the plugin support", dr_nccl_table},
    {"nccl.init", DR_NCCL, "starting plugins", "NCCL skips a plugin that does not start or has no device",
     dr_nccl_init},
    {"nccl.nics", DR_NCCL, "plugins' devices", "their speeds determine how many channels NCCL makes", dr_nccl_nics},
    {"nccl.network", DR_NCCL, "network", "NCCL uses the first plugin that works and that NCCL_NET allows",
     dr_nccl_network},
    {"nccl.link", DR_NCCL, "libnccl-net.so",
     "NCCL 2.27.3 to 2.29.7 forget the plugin's name with the last communicator, and then look for this file",
     dr_nccl_link},
    {"nccl.tuner", DR_NCCL, "tuner", "a tuner chooses algorithm, protocol and channels; hawser's is made for TCP",
     dr_nccl_tuner},
    {"nccl.env-plugin", DR_NCCL, "libnccl-env.so", "from 2.28.7 NCCL may read all parameters from such a plugin",
     dr_nccl_env_plugin},
    {"nccl.environment", DR_NCCL, "variables",
     "some prevent NCCL from using the plugin, others override a part of what it sets", dr_nccl_environment},
    {"nixl.wheel", DR_NIXL, "NIXL", "the backend must match the NIXL that your program's Python uses", dr_nixl_wheel},
    {"nixl.version", DR_NIXL, "NIXL's version",
     "NIXL has changed its virtual functions without changing its API version, so the backend refuses untested "
     "versions",
     dr_nixl_version},
    {"nixl.backend", DR_NIXL, "backend HAWSER",
     "NIXL looks for backends in one folder: NIXL_PLUGIN_DIR, or if that is not set, its own", dr_nixl_backend},
    {"nixl.load", DR_NIXL, "loading the backend", "NIXL loads it by dlopen() when create_backend(\"HAWSER\") is called",
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
            dr_say(d, DR_SKIP, NULL, "nothing to check on this machine");
    }
    return d->broken ? hw_no_memory("the checks' results") : 0;
}
