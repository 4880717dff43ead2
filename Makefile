# SPDX-License-Identifier: Apache-2.0
# A thin wrapper around meson. `make demo` and `make check` also install the packages that they need (Debian 12, as root).
#   make          build into build/          make asan    ASan and UBSan: build-asan/, tests
#   make check    install, build, test       make tsan    ThreadSanitizer: build-tsan/, tests
#   make demo     install, build, show       make lint    clang-format, clang-tidy
#   make install  PREFIX=, DESTDIR=          make fuzz    each fuzz target for FUZZ_RUNS runs
#   make wheel    install, build: the Python wheel in dist/ (x86-64; fetches build tools from the package index)
#   make deb      install, build: Debian packages in dist/    make image    a container image of them in dist/image
#   make check-packages tests of the packages and the image in a clean Debian, under systemd and crun; SUITES="bookworm trixie"
#   make sim      runs SEEDS= schedules of the simulator, beginning with seed SEED=
#   make check-vm tests in guests with newer kernels (QEMU without KVM; the first run fetches Debian's kernels)
BUILD ?= build
PREFIX ?= /usr/local
FUZZ_RUNS ?= 100000
SEED ?= 1
SEEDS ?= 100000
# Warnings are errors in a git checkout, where the sources are developed, but not for users who only build a release.
WERROR ?= $(if $(wildcard .git),true,false)

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@command -v meson >/dev/null || { echo "make: meson is not installed: run 'make deps' as root first" >&2; exit 1; }
	@meson setup --prefix $(PREFIX) -Dwerror=$(WERROR) -Dtests=enabled $(BUILD) $(MESONFLAGS)

deps:
	@scripts/deps.sh

check: deps
	@$(MAKE) --no-print-directory all
	@scripts/run-tests.sh $(BUILD)

check-packages:
	@scripts/deps.sh deb
	@$(MAKE) --no-print-directory all
	@tests/packages/run $(BUILD) $(SUITES)

vm-deps:
	@scripts/deps.sh vm

check-vm: vm-deps
	@$(MAKE) --no-print-directory all
	@tests/vm/run $(BUILD)

demo: deps
	@$(MAKE) --no-print-directory $(BUILD)/build.ninja
	@scripts/demo.sh $(BUILD)

# Tests in which a sanitizer finds nothing new are left out: single-threaded programs under ThreadSanitizer; tests of the
# source tree; real container runtimes and launchers, because their library libpmix leaks; repeated runs of the same code,
# with the tests' own plugins or with one thread instead of four; and models.
NOT_ASAN = ^(house-|model_|wheel|tool_user|tool_top_(prometheus|docs|plugins)|mesh_(hosts|mpirun|srun|torchrun)|nccl_launch|test_mesh_sim|sim_planted|test_(peers|streams)_netplugin|oci_|tool_gpus_fails|topo_run|driver_rude|tool_netplugin_slow|verbs_oci_(crun|runc)|driver_(test|plain)|tool_netplugin_gpu|test_sandbox_move_(all|kill|fail)|faults_nic_(read|send))
NOT_TSAN = ^(house-|model_|wheel|tool_user|tool_top|mesh_|test_mesh|tool_drill|tool_field|nccl_launch|test_(peers|streams)_netplugin|sim_|test_.*_threads1|driver_hawser_processes|tool_netplugin_(trace|slow)|nccl_tool_(bench|hosts)|tool_gpus|lab_|nccl_tool_(check|env|fails|gpu)|test_gather|driver_(test|plain|rude|tcpxlike)|tool_netplugin_gpu|corpus_|oci_|test_pattern|sandbox_|test_sandbox|test_hawserd|test_doctor|test_report|test_verbs_|verbs_oci_|topo_run|test_node|test_nccl_abi|faults_nic_(read|send))

asan: deps
	@$(MAKE) --no-print-directory BUILD=build-asan MESONFLAGS="-Db_sanitize=address,undefined" all
	@WITHOUT='$(NOT_ASAN)' scripts/run-tests.sh build-asan -t 4

tsan: deps
	@$(MAKE) --no-print-directory BUILD=build-tsan MESONFLAGS="-Db_sanitize=thread" all
	@WITHOUT='$(NOT_TSAN)' scripts/run-tests.sh build-tsan -t 6

lint:
	@scripts/deps.sh ci
	@scripts/lint.sh build-lint

sim: all
	@ninja -C $(BUILD) tests/sim/sim
	@$(BUILD)/tests/sim/sim --seeds $(SEED):$(SEEDS)

fuzz:
	@scripts/deps.sh ci
	@fuzz/run -runs=$(FUZZ_RUNS)

install: all
	@meson install -C $(BUILD) --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

wheel:
	@scripts/deps.sh wheel
	@scripts/wheel.py build-wheel dist

deb:
	@scripts/deps.sh deb
	@scripts/deb.sh build-deb dist

image: deb
	@scripts/image.sh dist dist/image

clean:
	rm -rf build build-*/ dist

.PHONY: all deps check vm-deps check-vm check-packages demo asan tsan lint sim fuzz install wheel deb image clean
