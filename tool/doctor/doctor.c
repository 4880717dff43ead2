/* SPDX-License-Identifier: Apache-2.0 */
/* The table of checks, and the code that runs them. */
#include "tool/doctor/doctor.h"

/* A check is one row of this table and one function, which reports the results. The last text of a row says why the
 * check matters, in a sentence for readers who do not know the subject. */
const struct dr_check dr_checks[] = {
    {"kernel.version", DR_KERNEL, "kernel version",
     "TCP straight into GPU memory (devmem) needs Linux 6.12 to receive and 6.16 to send", dr_kernel_version},
    {"kernel.devmem", DR_KERNEL, "CONFIG_NET_DEVMEM",
     "without CONFIG_NET_DEVMEM, the kernel refuses to bind GPU memory to a NIC's queue", dr_kernel_devmem},
    {"kernel.tcp-mem", DR_KERNEL, "TCP buffers",
     "the sizes of the TCP buffers limit the window, and a connection transfers at most one window per round trip",
     dr_kernel_tcp_mem},
    {"kernel.sock-mem", DR_KERNEL, "socket buffer limits",
     "programs that set their own socket buffer sizes (NCCL, or hawser with the knobs sndbuf and rcvbuf) are silently "
     "limited to this value",
     dr_kernel_sock_mem},
    {"kernel.congestion", DR_KERNEL, "congestion control",
     "bbr paces packets with timers, which costs much CPU time within a data centre and gains nothing there",
     dr_kernel_congestion},
    {"nic.link", DR_NIC, "link", "a NIC without a link transfers nothing", dr_nic_link},
    {"nic.speed", DR_NIC, "link speed", "a slow NIC adds little bandwidth to a transfer", dr_nic_speed},
    {"nic.pcie", DR_NIC, "PCIe link", "a PCIe link that trained below the NIC's maximum limits the NIC", dr_nic_pcie},
    {"nic.mtu", DR_NIC, "MTU",
     "small packets cost CPU time, and each fills only a part of a page in GPU memory; with an MTU of 4148 or more, a "
     "full-size IPv4 packet fills at least one page",
     dr_nic_mtu},
    {"nic.devmem", DR_NIC, "driver and devmem", "only some drivers can receive into, or send from, GPU memory",
     dr_nic_devmem},
    {"nic.hawserd", DR_NIC, "hawserd",
     "hawserd binds queues to GPU memory for programs that lack the privilege to do so", dr_nic_hawserd},
    {"nic.header-split", DR_NIC, "header split",
     "headers must be placed in host memory when the payload goes to GPU memory", dr_nic_split},
    {"nic.rx-buf-len", DR_NIC, "receive buffers",
     "a packet larger than one buffer is split across several, so buffers smaller than a page cause more fragments",
     dr_nic_buffers},
    {"nic.gro-hw", DR_NIC, "rx-gro-hw", "mlx5 splits headers only while rx-gro-hw is on", dr_nic_gro_hw},
    {"nic.rail", DR_NIC, "routed rail",
     "the subnet of a /31 or /32 address has at most one peer, and the NIC reaches others only by routes; without a "
     "route, traffic to them leaves through another NIC or fails",
     dr_nic_rail},
    {"nic.ntuple", DR_NIC, "flow steering",
     "a flow that is not steered to a queue bound to GPU memory arrives as ordinary data", dr_nic_ntuple},
    {"nic.queues", DR_NIC, "receive queues",
     "GPU memory needs dedicated receive queues, in addition to the queues for ordinary traffic", dr_nic_queues},
    {"nic.rss", DR_NIC, "RSS indirection",
     "ordinary traffic that arrives on a queue bound to GPU memory cannot be read by the CPU", dr_nic_rss},
    {"nic.irqs", DR_NIC, "interrupts and NUMA",
     "if another NUMA node handles a NIC's interrupts, every packet moves between the nodes", dr_nic_irqs},
    {"gpu.driver", DR_GPU, "driver",
     "only the open kernel modules of driver 515 and later export GPU memory as dma-bufs", dr_gpu_driver},
    {"gpu.dma-buf", DR_GPU, "dma-buf export",
     "devmem TCP needs GPU memory exported as a dma-buf, and so does RDMA without nvidia_peermem", dr_gpu_dmabuf},
    {"gpu.gpudirect", DR_GPU, "GPUDirect RDMA",
     "without GPUDirect RDMA, NICs cannot access GPU memory, and data is copied through host memory", dr_gpu_gpudirect},
    {"gpu.bar1", DR_GPU, "BAR1 window",
     "NICs can access only as much GPU memory at a time as fits into the window that the GPU exposes on PCI",
     dr_gpu_bar1},
    {"gpu.peermem", DR_GPU, "nvidia_peermem", "RDMA to GPU memory needs nvidia_peermem if dma-bufs cannot be exported",
     dr_gpu_peermem},
    {"limits.memlock", DR_LIMITS, "locked memory",
     "RDMA registrations and pinned buffers count against the limit of locked memory", dr_limits_memlock},
    {"limits.nofile", DR_LIMITS, "open files",
     "each connection uses a file descriptor, and one peer may use 256 connections", dr_limits_nofile},
    {"tcpx.plugin", DR_TCPX, "network plugin", "NCCL uses a plugin through its symbol ncclNetPlugin_vN",
     dr_tcpx_plugin},
    {"tcpx.path", DR_TCPX, "plugin on the loader's path",
     "NCCL finds a plugin with dlopen(), which searches LD_LIBRARY_PATH", dr_tcpx_path},
    {"tcpx.manager", DR_TCPX, "receive datapath manager",
     "RxDM, which TCPX reaches through sockets, provides TCPX with GPU memory and steers TCPX's flows",
     dr_tcpx_manager},
    {"tcpx.prefix", DR_TCPX, "socket prefix",
     "the plugin looks for RxDM's sockets in /tmp by default, but RxDM creates them in /run/tcpx", dr_tcpx_prefix},
    {"tcpx.chunk-size", DR_TCPX, "NCCL_DYNAMIC_CHUNK_SIZE",
     "with NCCL_DYNAMIC_CHUNK_SIZE=0, the default, tasks of zero bytes break TCPX's stream", dr_tcpx_chunk},
    {"tcpx.nics", DR_TCPX, "NICs in TCPX's variables",
     "TCPX ignores the name of a NIC that does not exist, or ends the job", dr_tcpx_names},
    {"tcpx.recv-sync", DR_TCPX, "RECV_SYNC",
     "RECV_SYNC adds bytes to the stream, so both sides must use the same value; the default is off", dr_tcpx_sync},
    {"tcpx.packets", DR_TCPX, "rx_devmem_pkts",
     "the NIC's counter rx_devmem_pkts shows whether packets are really placed in GPU memory, which logs may not show",
     dr_tcpx_packets},
    {"rdma.gids", DR_RDMA, "GIDs", "RoCE addresses a port by a GID; without a GID, no queue pair can connect",
     dr_rdma_gids},
    {"rdma.arp-ignore", DR_RDMA, "arp_ignore",
     "if arp_ignore is 0 and several NICs are in one subnet, each NIC answers ARP requests for the others' addresses, "
     "and traffic may go to the wrong NIC",
     dr_rdma_arp_ignore},
    {"rdma.arp-announce", DR_RDMA, "arp_announce",
     "with several NICs in one subnet, a NIC may send ARP requests with another NIC's address, which corrupts the "
     "peer's ARP table",
     dr_rdma_arp_announce},
    {"rdma.arp-filter", DR_RDMA, "arp_filter",
     "if arp_filter is on, only the NIC that routing would use answers ARP requests, so several NICs in one subnet "
     "need a routing rule each",
     dr_rdma_arp_filter},
    {"rdma.rp-filter", DR_RDMA, "rp_filter",
     "if rp_filter is strict, the kernel drops a packet that arrives on a NIC other than the NIC of the route to its "
     "sender",
     dr_rdma_rp_filter},
    {"pair.session", DR_PAIR, "session", "all other checks of a pair of nodes use the session between them",
     dr_pair_session},
    {"pair.version", DR_PAIR, "hawser version", "different versions may use different protocols", dr_pair_version},
    {"pair.machine", DR_PAIR, "two machines",
     "packets between addresses of one kernel do not normally reach a NIC, so nothing is placed in GPU memory (TCPX's "
     "\"rx no cmsg\")",
     dr_pair_machine},
    {"pair.kernel", DR_PAIR, "kernels", "the kernels of both nodes may support different features", dr_pair_kernel},
    {"pair.nics", DR_PAIR, "NICs of both nodes", "a NIC without a partner on the other node adds no bandwidth",
     dr_pair_nics},
    {"pair.mtu", DR_PAIR, "MTUs of both nodes", "packets larger than the smaller MTU may be lost", dr_pair_mtu},
    {"pair.forward", DR_PAIR, "connections there",
     "each NIC of this node must reach the NICs of its subnet on the peer", dr_pair_forward},
    {"pair.reverse", DR_PAIR, "connections back",
     "NCCL and RDMA connect in both directions, which firewalls and ARP settings often prevent", dr_pair_reverse},
    {"pair.path-mtu", DR_PAIR, "path MTU",
     "if full-size packets are lost, connections are established but hang with the first large message",
     dr_pair_path_mtu},
    {"pair.clock", DR_PAIR, "clocks", "logs of two nodes can be compared only if their clocks agree", dr_pair_clock},
    {"nccl.library", DR_NCCL, "NCCL", "the version of NCCL decides which plugins NCCL can load", dr_nccl_library},
    {"nccl.plugins", DR_NCCL, "NCCL_NET_PLUGIN",
     "if NCCL_NET_PLUGIN is set, NCCL tries the plugins that the variable lists, in order, and no others",
     dr_nccl_list},
    {"nccl.load", DR_NCCL, "loading plugins",
     "NCCL loads a plugin with dlopen(), and by default prints nothing if loading fails", dr_nccl_load},
    {"nccl.table", DR_NCCL, "plugins' tables",
     "NCCL uses the newest ncclNetPlugin_vN that both NCCL and the plugin support", dr_nccl_table},
    {"nccl.init", DR_NCCL, "starting plugins", "NCCL skips a plugin that fails to start or has no device",
     dr_nccl_init},
    {"nccl.nics", DR_NCCL, "plugins' devices", "the devices' speeds determine how many channels NCCL creates",
     dr_nccl_nics},
    {"nccl.network", DR_NCCL, "network", "NCCL uses the first plugin that works and that NCCL_NET allows",
     dr_nccl_network},
    {"nccl.link", DR_NCCL, "libnccl-net.so",
     "versions 2.27.3 to 2.29.7 of NCCL forget the plugin's name when the last communicator is destroyed, and then "
     "look for libnccl-net.so",
     dr_nccl_link},
    {"nccl.tuner", DR_NCCL, "tuner",
     "a tuner chooses the algorithm, the protocol and the number of channels; hawser's tuner is made for TCP",
     dr_nccl_tuner},
    {"nccl.env-plugin", DR_NCCL, "libnccl-env.so",
     "NCCL 2.28.7 and later may read all parameters from the plugin libnccl-env.so", dr_nccl_env_plugin},
    {"nccl.environment", DR_NCCL, "variables",
     "some variables prevent NCCL from using hawser's plugin, and others override settings that the plugin makes",
     dr_nccl_environment},
    {"nixl.wheel", DR_NIXL, "NIXL", "the backend must match the NIXL that your program's Python uses", dr_nixl_wheel},
    {"nixl.version", DR_NIXL, "NIXL's version",
     "NIXL has changed its virtual functions without changing its API version, so the backend refuses untested "
     "versions",
     dr_nixl_version},
    {"nixl.backend", DR_NIXL, "backend HAWSER",
     "NIXL looks for backends in NIXL_PLUGIN_DIR, or in its own folder if NIXL_PLUGIN_DIR is not set", dr_nixl_backend},
    {"nixl.load", DR_NIXL, "loading the backend",
     "NIXL loads the backend with dlopen() when create_backend(\"HAWSER\") is called", dr_nixl_load},
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
