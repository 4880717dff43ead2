# SPDX-License-Identifier: Apache-2.0
"""Two nodes on this machine: network namespaces that are connected by one veth pair for each NIC, or one namespace for
both."""
import os
import shutil
import sys

from compare.run import Failure

# tbf counts frames without their checksum: a frame of 1514 bytes has 1448 bytes of payload (with TCP timestamps)
FRAME_SHARE = 1448 / 1514
CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


class Nodes:
    """Nodes a and b. on(node, argv) returns a command that runs argv in the node.

    rates: the rate of each NIC, as tc(8) reads it. congestion: the congestion control to set in both nodes, or None."""

    def __init__(self, run, hawser, nics, rates=None, congestion=None):
        self.run, self.nics, self.hawser = run, nics, hawser
        self.name = f"peers{os.getpid()}-{len(run.undo)}"
        self.how = "hawser lab"
        try:
            if not hawser:
                raise Failure("no hawser")
            run.undo.append(lambda: run.call([hawser, "lab", "down", "--name", self.name]))  # succeeds without a lab
            run.call([hawser, "lab", "up", "--name", self.name, "--nics", str(nics)] +
                     (["--rate", ",".join(rates)] if rates else []))
            self.prefix = {n: [hawser, "lab", "exec", f"{self.name}/{n}", "--"] for n in "ab"}
        except Failure as e:
            if os.geteuid() or not shutil.which("ip") or (rates and not shutil.which("tc")):
                raise Failure(f"no nodes: {e}; and `ip netns` needs root and iproute2") from None
            print(f"# nodes by `ip netns`, since: {e}", file=sys.stderr)
            self.make_by_ip(rates)
        self.congestion = {n: set_congestion(run, self.on(n, []), congestion) for n in "ab"}

    def make_by_ip(self, rates):
        self.how = "ip netns"
        self.prefix = {}
        for n in "ab":
            ns = f"{self.name}-{n}"
            self.run.call(["ip", "netns", "add", ns])
            self.run.undo.append(lambda ns=ns: self.run.call(["ip", "netns", "del", ns]))
            self.run.call(["ip", "-n", ns, "link", "set", "lo", "up"])
            self.prefix[n] = ["ip", "netns", "exec", ns]
        for i in range(self.nics):
            self.run.call(["ip", "link", "add", f"eth{i}", "netns", f"{self.name}-a", "mtu", "1500", "type", "veth",
                           "peer", "name", f"eth{i}", "netns", f"{self.name}-b"])
            for k, n in enumerate("ab"):
                ns = f"{self.name}-{n}"
                self.run.call(["ip", "-n", ns, "address", "add", f"198.18.{i}.{k + 1}/24", "dev", f"eth{i}"])
                self.run.call(["ip", "-n", ns, "link", "set", f"eth{i}", "up"])
                if rates:
                    self.run.call(["tc", "-n", ns, "qdisc", "add", "dev", f"eth{i}", "root", "tbf", "rate", rates[i],
                                   "burst", "256kb", "latency", "20ms"])

    def on(self, node, argv):
        return self.prefix[node] + argv

    def address(self, node):
        """Returns the address of a node's first NIC, which is the same with `hawser lab` and `ip netns` (RFC 2544's
        range for benchmarks)."""
        return f"198.18.0.{'ab'.index(node) + 1}"

    def devices(self):
        return [f"eth{i}" for i in range(self.nics)]

    def set_link(self, node, nic, up):
        word = "up" if up else "down"
        if self.how == "hawser lab":
            self.run.call([self.hawser, "lab", "link", "--name", self.name, node, nic, word])
        else:
            self.run.call(["ip", "-n", f"{self.name}-{node}", "link", "set", nic, word])


class OneNode(Nodes):
    """One node for both ends, over its loopback. Uses the machine's own namespace if no other can be created."""

    def __init__(self, run, hawser, congestion=None):
        try:
            super().__init__(run, hawser, 1, congestion=congestion)
            self.prefix["b"] = self.prefix["a"]
            self.how += ", both ends in one node"
        except Failure as e:
            print(f"# in this machine's own network namespace, since: {e}", file=sys.stderr)
            self.prefix, self.how, self.congestion = {"a": [], "b": []}, "this machine's own namespace", {}
        for n in "ab":  # reads the setting without changing it
            self.congestion[n] = set_congestion(run, self.on("a", []), None)

    def address(self, node):
        return "127.0.0.1"

    def devices(self):
        return ["lo"]

    def set_link(self, node, nic, up):
        raise Failure("no link to set: both ends use the loopback")


def set_congestion(run, prefix, name):
    """Sets the congestion control of a node if name is not None. Returns the node's congestion control."""
    if name:
        run.call([*prefix, "sh", "-c", f"echo {name} >{CONGESTION}"])
    got = run.call([*prefix, "cat", CONGESTION]).strip()
    if name and got != name:
        raise Failure(f"congestion control {got}, wanted {name}")
    return got
