# SPDX-License-Identifier: Apache-2.0
"""Lists where each command of README.md and docs/*.md is run. A new or changed command in a page needs a row here.

HERE: docs.py runs the command. `where` is "here" for this machine, or "" if the prompt (`node1$` or `node2$`) names a
      node. `swap` has replacements that shorten the run, or adapt the command to this machine. `ends` is true if the
      command runs until it is interrupted. `status` has the expected exit statuses.
BY:   another test runs the command. docs.py searches the test's source for words that identify the command.
NOT:  no test runs the command, for the reason given."""
from typing import NamedTuple


class Here(NamedTuple):
    where: str = "here"
    swap: tuple[tuple[str, str], ...] = ()
    ends: bool = False
    status: tuple[int, ...] = (0,)


class By(NamedTuple):
    test: str
    words: tuple[str, ...]


# doctor may report faults of the machine, which are not faults of the page.
LOOK = Here(status=(0, 1))
LAB_LOOK = Here("", status=(0, 1))
NODE = Here("")  # the prompt selects the node
SHORT = Here("", (("bench", "bench --iters 3"),))

HERE = {
    '(umask 077; head -c 32 /dev/urandom | base64 > job.key)': Here(),
    'eval "$(hawser nccl env)"': Here(),
    'hawser bench node1 --key-file job.key': SHORT,
    'hawser bench node1 --key-file job.key --bidir --report report.html': SHORT,
    'hawser bench node1 --key-file job.key --blocks 1024x64KiB': SHORT,
    'hawser bench node1 --key-file job.key --compare-raw': SHORT,
    'hawser bench node1 --key-file job.key -t 10s -i 1s': Here("", (("10s -i 1s", "1s -i 500ms"),)),
    'hawser bugreport --out report.txt --mask-addresses': Here(),
    'hawser doctor': LOOK,
    'hawser doctor node1 --key-file job.key': LAB_LOOK,
    'hawser drill node1 --key-file job.key': Here("", (("drill", "drill --duration 4s"),)),
    'hawser help knobs': Here(),
    'hawser lab down': Here(),
    'hawser lab exec a -- hawser serve': Here(),
    'hawser lab exec a -- hawser serve --key-file job.key &': Here(),
    'hawser lab exec b -- hawser bench 198.18.0.1': Here(swap=(("bench", "bench --size 16MiB --iters 3"),)),
    'hawser lab exec b -- hawser bench 198.18.0.1 --key-file job.key': Here(swap=(("bench", "bench --iters 3"),)),
    'hawser lab link a eth1 down': Here(),
    'hawser lab up': Here(),
    'hawser lab up --nics 4 --rate 1gbit,1gbit,1gbit,250mbit': Here(),
    'hawser metrics': Here(),
    'hawser metrics --listen 127.0.0.1:9420': Here(swap=(("9420", "PORT"),), ends=True),
    'hawser metrics --textfile /var/lib/prometheus/node-exporter/hawser.prom':
        Here(swap=(("/var/lib/prometheus/node-exporter/", ""),), ends=True),
    'hawser sandbox env': LOOK,  # 1 if no GPU or no NIC is available
    'hawser sandbox plan': LOOK,
    'hawser sandbox snapshot --out node.json': Here(),
    'hawser sandbox status': LOOK,  # 1 without permission to read root's journals
    'hawser sandbox sysfs --out /run/c1/sys': Here(swap=(("/run/c1/", ""),), status=(0, 1)),
    'hawser serve --key-file job.key': NODE,
    'hawser top': Here(ends=True),
    'hawser top --json --once': Here(),
    'hawser validate node1 --key-file job.key': NODE,
    'hawser validate node1 --key-file job.key --nic eth1': NODE,
}

DEVMEM = By("tests/vm/devmem/test_devmem.sh", ("--require-devmem", "validate --gpus 0"))
DMNIC = By("tests/vm/devmem/dmnic.sh", ("ip link set dm$i netns n$i", "split=on ntuple=on rss=3 rule=4:5000:3"))  # dmnic_probe makes the same requests
HOSTS = By("tests/tool/test_nccl_tool.py", ('"--hosts", "a,b", "--ssh"', "lab exec"))
MOVE = By("tests/sandbox/sandbox_move_tool.py", ('"move", "box", "--netns"', '"sandbox", "watch"', '"restore"'))
KV_PUSH = By("tests/nixl/nixl_examples.py", ('"kv_push.py"', '"prefill", "127.0.0.1"', '"decode", port'))
NIXL = By("tests/wheel/wheel_run.py", ('"nixl-install"', '"nixl", "check"', '"paths"'))
OCI = By("tests/oci/oci_run.py", ("oci-hook createRuntime", '"offer=rdma0,rdma1", "sysfs=yes"'))
OWN_NETNS = By("tests/oci/oci_run.py", ('"mount", "-t", "sysfs", "none", "/sys"', '"mount", "-t", "cgroup2"', '"type", "veth"'))
RUN = By("tests/lab/lab_containers.py", ('"sandbox", "run", "--nics", "eth1,eth2,eth3", "--peer"', '"sandbox", "plan"'))
SPEC = By("tests/oci/oci_spec.py", ('t("spec"', 't("cdi"'))
SYMPTOMS = By("tests/lab/lab_symptoms.py", ('"shared-subnet"', "stall@12:send", '"--require-devmem"', '"4,3"', '"sandbox", "plan"'))
TCPXLIKE = By("tests/lab/lab_symptoms.py", ("NCCL_DYNAMIC_CHUNK_SIZE", '"TCPXLIKE_LOOPBACK": "exit"', "rx_rule_manager", "HAWSER_CUDA_LIBRARY", "SOCKET_IFNAME"))
ARP = By("tests/lab/lab_symptoms.py", ("arp_ignore", "arp_announce", '"ip", "neigh", "flush", "all"'))
VERBS = By("tests/verbs/agent/verbs_oci.py", ('verbs("spec"', '"verbs", "run", "--policy"', '"verbs", "agent", "--policy"', 'verbs("status"', 'verbs("audit"'))

BY = {
    'PYTHONPATH=python HAWSER_LIBRARY=build/libhawser.so.1 python3 examples/python/kv_push.py': By("tests/python/test_examples.py", ('"kv_push.py"',)),
    'PYTHONPATH=python HAWSER_LIBRARY=build/libhawser.so.1 python3 examples/python/weights.py dies': By("tests/python/test_examples.py", ('"weights.py"', '"dies"')),
    'apt install ./dist/*.deb': By("tests/packages/run", ("README_INSTALL",)),
    'ethtool -G dm1 tcp-data-split on': DMNIC,
    'ethtool -K dm1 ntuple on': DMNIC,
    'ethtool -N dm1 flow-type tcp4 dst-port 5000 action 3': DMNIC,
    'ethtool -X dm1 equal 3': DMNIC,
    'hawser bench NODE': By("tests/lab/lab_fabrics.py", ('"bench"', "not used")),
    'hawser bench NODE --transport devmem --gpus 0 --key-file KEY': DEVMEM,
    'hawser devmem plan eth1': By("tests/vm/devmem/test_hawserd.sh", ("devmem plan",)),
    'hawser drill HOST --key-file KEY --take eth1 --faults 3 --report drill.html': By("tests/tool/tool_drill.py", ('"--take"', '"--faults"', '"--report"')),
    'hawser drill NODE': By("tests/tool/tool_drill.py", ('"drill"', "--marks")),
    'hawser lab exec a -- hawser doctor --only rdma': SYMPTOMS,
    'hawser lab exec a -- hawser doctor 198.18.0.2': SYMPTOMS,
    'hawser lab exec a -- hawser sandbox plan --nics eth1,eth2,eth3 --peer 198.18.0.2': SYMPTOMS,
    'hawser lab exec a -- hawser validate 198.18.1.2 --nic eth1 --size 4MiB': SYMPTOMS,
    'export TCPX=$PWD/build/tests/fakes/plugins/libnccl-net-tcpxlike.so TCPXLIKE_LOOPBACK=1 HAWSER_SAME_MACHINE=yes': TCPXLIKE,
    'export HAWSER_CUDA_LIBRARY=$PWD/build/tests/fakes/cuda/libfakecuda.so FAKECUDA_GPUS=2': TCPXLIKE,
    'export NCCL_DYNAMIC_CHUNK_SIZE=524288 NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth0,eth1 NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0': TCPXLIKE,
    'export NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=$(mktemp -d)': TCPXLIKE,
    'python3 -c \'import os, signal, socket; s = socket.socket(socket.AF_UNIX); '
    's.bind(os.environ["NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX"] + "/rx_rule_manager"); s.listen(); signal.pause()\' &': TCPXLIKE,
    'hawser lab up --nics 2': SYMPTOMS,
    'hawser lab up --nics 4,3': SYMPTOMS,
    'hawser lab up --fabric shared-subnet': SYMPTOMS,
    'hawser lab exec a -- env TCPXLIKE_LOOPBACK=exit hawser serve --transport netplugin:$TCPX &': TCPXLIKE,
    'hawser lab exec b -- hawser serve --transport netplugin:$TCPX &': TCPXLIKE,
    'hawser lab exec b -- hawser serve --transport devmem &': SYMPTOMS,
    'hawser lab exec b -- hawser serve &': SYMPTOMS,
    'hawser lab exec a -- hawser validate 198.18.0.1 --transport netplugin:$TCPX --gpus 0 --knob same_machine=auto': TCPXLIKE,
    'hawser lab exec a -- hawser validate 198.18.0.1 --transport netplugin:$TCPX --gpus 0': TCPXLIKE,
    'hawser lab exec a -- env TCPXLIKE_FAULT=stall@12:send hawser validate 198.18.0.2 --transport netplugin:$TCPX --channels 1 --timeout 4s': SYMPTOMS,
    'hawser lab exec a -- env TCPXLIKE_FAULT=fail-regmr hawser validate 198.18.0.2 --transport netplugin:$TCPX --channels 4':
        By("tests/tool/tool_netplugin.py", ("fail-regmr", '"validate"')),
    'hawser lab exec a -- hawser validate 198.18.0.2 --transport devmem --require-devmem --knob same_machine=yes': SYMPTOMS,
    'hawser lab exec a -- hawser doctor --only nic': SYMPTOMS,
    'hawser lab exec a -- hawser doctor 198.18.1.2': SYMPTOMS,
    'hawser lab exec a -- sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2': ARP,
    'hawser lab exec b -- sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2': ARP,
    'hawser lab exec a -- ip neigh flush all': ARP,
    'hawser lab exec b -- ip neigh flush all': ARP,
    'hawser mesh --hosts FILE --baseline last-week.jsonl': By("tests/tool/mesh/mesh_launch.py", ('"--hosts"', '"--baseline"')),
    'hawser nccl bench --hosts a,b': HOSTS,
    "hawser nccl bench --hosts a,b --ssh 'hawser lab exec lab/{} --'": HOSTS,
    'hawser nccl bench --vs-socket': By("tests/tool/test_nccl_tool.py", ('"--vs-socket"',)),
    'hawser nccl check': By("tests/tool/test_nccl_tool.py", ('"check"',)),
    'hawser nixl check': NIXL,
    'hawser oci-hook createRuntime offer=rdma0,rdma1 sysfs=yes': OCI,
    'hawser sandbox cdi --out /run/cdi/hawser.json': SPEC,
    'hawser sandbox env --nics rdma0,rdma1 > env.list': By("tests/sandbox/sandbox_plan.py", ('"env"', "a line each for --env-file")),
    'hawser sandbox move c1 --netns 4711 --nics rdma0,rdma1=eth1': MOVE,
    'hawser sandbox plan --nics rdma0,rdma1 --peer NODE2': RUN,
    'hawser sandbox restore c1': MOVE,
    'hawser sandbox run --nics rdma0,rdma1 --peer NODE2 -- COMMAND': RUN,
    'hawser sandbox run --nics rdma0,rdma1 -- COMMAND...': RUN,
    'hawser sandbox run -- CMD': By("tests/oci/oci_run.py", ('"sandbox", "run"',)),
    'hawser sandbox spec BUNDLE/config.json --nics rdma0,rdma1': SPEC,
    'hawser sandbox spec config.json': SPEC,
    'hawser sandbox spec config.json --nics rdma0': SPEC,
    'hawser sandbox watch c1 &': MOVE,
    'hawser sandbox plan --nics v0': OWN_NETNS,
    'hawser serve &': RUN,
    'hawser serve --transport devmem --key-file KEY': By("tests/vm/devmem/test_devmem.sh", ("serve",)),
    'hawser validate NODE --transport devmem --gpus 0 --require-devmem --key-file KEY': DEVMEM,
    'hawser verbs agent --policy /etc/hawser/verbs.conf': VERBS,
    'hawser verbs agent --socket /run/hawser/verbs.sock --policy /etc/hawser/verbs.conf &': VERBS,
    'hawser verbs run --policy /etc/hawser/verbs.conf -- ib_write_bw 10.0.0.2': By("tests/vm/verbs/test_verbs.sh", ("ib_write_bw", "verbs run")),
    'hawser verbs run --policy /etc/hawser/verbs.conf -- ib_write_bw NODE': By("tests/vm/verbs/test_verbs.sh", ("ib_write_bw", "verbs run")),
    'hawser verbs spec config.json': VERBS,
    'hawser verbs spec config.json --socket /run/hawser/verbs.sock && crun run mine': VERBS,
    'hawser verbs status; hawser verbs audit --follow': VERBS,
    'ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up': OWN_NETNS,
    'ip link set dm1 netns n1; ip -n n1 addr add 10.9.0.2/24 dev dm1; ip -n n1 link set dm1 up': DMNIC,
    'lab/vm/build-module 7 lab/dmnic /tmp/dmnic-7': By("tests/vm/devmem/test_dmnic.sh", ("build-module lab/dmnic",)),
    'mount -t sysfs none /sys && mount -t cgroup2 none /sys/fs/cgroup': OWN_NETNS,
    'unshare -n -m': By("tests/oci/oci_help.py", ('"unshare", "-n", "-m"',)),
    'make check': By(".ci/run", ("make check BUILD=",)),
    'make deb': By("tests/packages/run", ("`make deb`",)),
    'make demo': By(".ci/run", ("make demo BUILD=",)),
    'make wheel': By("tests/wheel/wheel_run.py", ("scripts/wheel.py",)),
    'pip install dist/hawser_transfer-*.whl': NIXL,
    'pip install nixl-cu12': By("tests/wheel/wheel_run.py", ('f"nixl-cu12=={NIXL}"',)),
    'python examples/nixl/kv_push.py': KV_PUSH,
    'python examples/nixl/kv_push.py decode 5555': KV_PUSH,
    'python examples/nixl/kv_push.py prefill node1 5555': KV_PUSH,
    'python -m hawser nixl-install': NIXL,
    'python -m hawser paths': NIXL,
    'srun -N 64 --ntasks-per-node=1 hawser mesh --key-file job.key --report mesh.html': By("tests/tool/mesh/mesh_launch.py", ("srun", '"--report"')),
    'export HAWSER_MESH_KEY=$(head -c 32 /dev/urandom | base64)': By("tests/tool/nccl_launch.py", ("HAWSER_MESH_KEY",)),
    'mpirun -N 8 --hostfile HOSTS -x HAWSER_MESH_KEY hawser nccl bench': By("tests/tool/nccl_launch.py", ("mpirun", "--hostfile", "HAWSER_MESH_KEY")),
    'srun -N 4 --ntasks-per-node=1 hawser nccl bench': By("tests/tool/nccl_launch.py", ("SLURM_PROCID", "SLURM_NTASKS")),
    'srun -N 4 --ntasks-per-node=8 --gpus-per-task=1 hawser nccl bench': By("tests/tool/nccl_launch.py", ("SLURM_PROCID", "SLURM_NTASKS")),
    'torchrun --nnodes 4 --nproc_per_node 1 --node_rank N --master_addr HOST --no_python hawser nccl bench': By("tests/tool/nccl_launch.py", ("by_torchrun",)),
    'systemd-sysusers && systemctl start hawserd': By("tests/packages/units.sh", ("systemctl is-active hawserd", "getent passwd hawserd")),
}

KUBERNETES = "needs a Kubernetes cluster"
SRIOV = "needs a NIC with virtual functions"
SLURM = "test mesh_launch runs srun, with the key in a file"
GUEST = "boots a guest; test_lab and test_dmnic do the same by tests/vm/run (make check-vm)"
MODEL = "needs a model and GPUs; docs/inference.md says what was run in its place"

NOT = {
    "export CRED=$(head -c 32 /dev/urandom | base64 -w0 | munge)": SLURM,
    "export SGLANG_DISAGGREGATION_NIXL_BACKEND=HAWSER": MODEL,
    "hawser nccl bench --hosts a,b --ssh 'srun --overlap -w {} -N1 -n1'": "needs two hosts with GPUs in one allocation of SLURM",
    "hawser nccl bench --hosts pod1,pod2 --ssh 'kubectl exec -i {} --'": KUBERNETES,
    "python -m sglang.launch_server --disaggregation-mode prefill --disaggregation-transfer-backend nixl ...": MODEL,
    "echo mlx5_5 hca_handle=8 hca_object=2000 >/sys/fs/cgroup/web/rdma.max": "needs an mlx5 NIC; test_verbs_cgroup sets the limit for rxe",
    "ip link set eth0 vf 3 mac 02:00:00:00:00:03 vlan 30 max_tx_rate 20000 spoofchk on trust off": SRIOV,
    "podman run --env-file env.list -e NCCL_DEBUG=WARN --device hawser.dev/sandbox=all ...": "needs an image, and podman, which no test has",
    "rdma dev set mlx5_5 netns web": "needs an mlx5 NIC",
    "rdma system set netns exclusive": "changes the whole machine; test_sandbox_move_rdma plays the kernel's answers",
    "socat -u UNIX-CONNECT:/run/hawser-metrics/24487.0 -": "the process's number; tool_top reads such sockets by itself",
    "scp job.key node2:": "the nodes of a lab share one file system",
    "srun -N 64 sh -c 'export HAWSER_MESH_KEY=$(printf %s \"$CRED\" | unmunge -m /dev/null); exec hawser mesh'": SLURM,
    "lab/vm/run --kernel 6.12 --program build/hawser --log kernel.log --out files mytest.sh 1 2": GUEST,
    "lab/vm/run --kernel 7 --program ip --module veth -c 'ip link add type veth; ip link'": GUEST,
    "lab/vm/run --kernel 7 --program ip --program ethtool --program build/tests/vm/dmnic_probe --file /tmp/dmnic-7/dmnic.ko "
    "--file tests/vm/tap.sh --file tests/vm/devmem/dmnic.sh -c '. /dmnic.sh up # insmod; a namespace, an address, rules for port 5000 "
    "to queue 3 each transfer 1 \"queue=3 bytes=1000000\" \"bytes=1000000 dev=dm0\"; cat recv send down'": GUEST,
    **dict.fromkeys(("hawser lab exec b -- ip route add default dev eth1 table 100", "hawser lab exec b -- ip rule add from 198.18.1.2 table 100"),
                    "the remedy that validate prints, applied by hand"),
    **dict.fromkeys((
        "export VLLM_NIXL_SIDE_CHANNEL_HOST=PREFILL", "export VLLM_NIXL_SIDE_CHANNEL_HOST=DECODE",
        *(f"vllm serve MODEL --port 8000 --kv-transfer-config '{{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"{role}\", "
          "\"kv_connector_extra_config\": {\"backends\": [\"HAWSER\"]}}'" for role in ("kv_producer", "kv_consumer")),
        "python tests/v1/kv_connector/nixl_integration/toy_proxy_server.py --prefiller-hosts PREFILL --prefiller-ports 8000 "
        "--decoder-hosts DECODE --decoder-ports 8000 --port 8192"), MODEL),
}
