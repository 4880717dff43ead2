/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of --map, --gpus or --nics for a node with 6 GPUs and 5 interfaces. The first byte selects the option. Every
 * plan must be complete and consistent. */
#include "fuzz.h"
#include "node/plan.h"

enum { GPUS = 6, NICS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hw_pci_dev pci[GPUS + NICS];
    static struct hw_gpu gpu[GPUS];
    static struct hw_netdev netdev[NICS];
    struct hw_node n = {.pci = pci,
                        .gpu = gpu,
                        .netdev = netdev,
                        .n_pci = GPUS + NICS,
                        .n_gpu = GPUS,
                        .n_cuda = GPUS,
                        .n_netdev = NICS};
    for (int i = 0; i < GPUS + NICS; i++) {
        pci[i] = (struct hw_pci_dev){.class = 0x020000, .path = {.root = "pci0000:00", .depth = 2}};
        pci[i].path.at[0].slot = (uint8_t)(i % 2);
        pci[i].path.at[1].bus = (uint8_t)(1 + i);
        if (i < GPUS)
            gpu[i] = (struct hw_gpu){pci[i].path.at[1], i, i};
        else
            netdev[i - GPUS] = (struct hw_netdev){.pci = i, .speed = -1, .state = "up"};
    }
    for (int i = 0; i < NICS; i++)
        snprintf(netdev[i].name, sizeof(netdev[i].name), "eth%d", i);
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    struct hw_plan_want want = {0};
    struct hw_plan p;
    *(data[0] % 3 == 0 ? &want.map : data[0] % 3 == 1 ? &want.gpus : &want.nics) = text;
    hw_fail(0, "%s", "");
    int rc = hw_plan_make(&p, &n, &want);
    FUZZ_CHECK(rc == 0 || ((rc == -EINVAL || rc == -ENODEV) && *hw_error()));
    for (size_t k = 0; rc == 0 && k < p.n_gpus; k++) {
        unsigned seen = 0;
        FUZZ_CHECK(p.gpu[k].gpu >= 0 && p.gpu[k].gpu < GPUS && (k == 0 || p.gpu[k].gpu > p.gpu[k - 1].gpu));
        FUZZ_CHECK(p.gpu[k].n_nics > 0);
        FUZZ_CHECK(!p.gpu[k].mapped || want.map);
        for (size_t i = 0; i < p.gpu[k].n_nics; i++) {
            int nic = p.gpu[k].nic[i];
            FUZZ_CHECK(nic >= 0 && nic < NICS && !(seen & 1u << nic) && !p.why[nic]);
            /* a NIC that was chosen by the user occurs in the user's text */
            FUZZ_CHECK((!want.nics && !p.gpu[k].mapped) || strstr(text, netdev[nic].name));
            seen |= 1u << nic;
        }
    }
    FUZZ_CHECK(rc < 0 || want.gpus || p.n_gpus == GPUS);
    hw_plan_free(&p);
    free(text);
    return 0;
}
