/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metric.h"

#define RAIL "peer,id,nic,peer_nic"

const struct hw_metric_info hw_metrics[HW_METRICS] = {
    [HW_METRIC_INFO] = {"hawser_info", false, "version,transport,process,kind",
                        "Always 1; the labels describe the context."},
    [HW_METRIC_START] = {"hawser_start_time_seconds", false, "",
                         "Time at which the context was opened, in seconds since 1970."},
    [HW_METRIC_CPU] = {"hawser_cpu_seconds_total", true, "", "CPU time of the context's progress threads, in seconds."},
    [HW_METRIC_PROCESS_CPU] = {"hawser_process_cpu_seconds_total", true, "",
                               "CPU time of the whole process, in seconds. This includes time that "
                               "waiting callers spend on the work of progress threads."},
    [HW_METRIC_THREADS] = {"hawser_threads", false, "", "Progress threads."},
    [HW_METRIC_PEERS] = {"hawser_peers", false, "", "Connected peers."},
    [HW_METRIC_PEERS_LOST] = {"hawser_peers_lost_total", true, "",
                              "Peers that died without either side closing the connection."},
    [HW_METRIC_REGISTERED] = {"hawser_registered_bytes", false, "memory",
                              "Bytes of memory that the application has registered."},
    [HW_METRIC_OPS] = {"hawser_operations_total", true, "op",
                       "Operations that this side started and that have ended, successfully or not."},
    [HW_METRIC_OPS_FAILED] = {"hawser_operation_failures_total", true, "op",
                              "Operations that this side started and that failed."},
    [HW_METRIC_OPS_BYTES] = {"hawser_operation_bytes_total", true, "op",
                             "Bytes of the operations that this side started and that succeeded."},
    [HW_METRIC_OPS_IN_FLIGHT] = {"hawser_operations_in_flight", false, "",
                                 "Operations that this side started and that are in flight."},
    [HW_METRIC_PATH_BYTES] =
        {"hawser_path_bytes_total", true, "direction,path",
         "Payload, by how it moved between the network and memory. device: moved by the NIC or a net plugin. copied: "
         "copied to its destination, although the transport can place payload directly. staged: GPU memory, copied "
         "through pinned host memory. reference: sent without a copy."},
    [HW_METRIC_SENT] = {"hawser_sent_bytes_total", true, RAIL,
                        "Payload of operations and notifications that the peer has confirmed."},
    [HW_METRIC_RECEIVED] = {"hawser_received_bytes_total", true, RAIL,
                            "Payload of operations and notifications that arrived completely."},
    [HW_METRIC_RESENT] = {"hawser_resent_bytes_total", true, RAIL,
                          "Payload that was sent again because a rail over this pair of NICs was lost."},
    [HW_METRIC_FAILOVERS] =
        {"hawser_failovers_total", true, RAIL,
         "Number of times that a rail over this pair of NICs was lost while neither side was closing."},
    [HW_METRIC_RAILS] = {"hawser_rails", false, RAIL, "Rails over this pair of NICs, not counting idle spare rails."},
    [HW_METRIC_RAILS_UP] = {"hawser_rails_up", false, RAIL, "Rails that are connected."},
    [HW_METRIC_RAILS_SUSPECT] =
        {"hawser_rails_suspect", false, RAIL,
         "Connected rails that get no new work because the peer's kernel acknowledges nothing."},
    [HW_METRIC_RETRANSMITS] = {"hawser_tcp_retransmits_total", true, RAIL,
                               "TCP segments that the kernel retransmitted."},
    [HW_METRIC_RTT] = {"hawser_tcp_rtt_seconds", false, RAIL,
                       "Round-trip time of the slowest rail, as measured by TCP, in seconds."},
};
