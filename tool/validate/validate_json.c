/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/validate/validate_json.h"

static void write_nics(struct hw_json *j, const char *name, const struct tp_nic *nics, size_t n)
{
    hw_json_array(j, name);
    for (size_t i = 0; i < n; i++) {
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", nics[i].nic);
        output_json_counts(j, &nics[i]);
        hw_json_end(j);
    }
    hw_json_end(j);
}

int validate_json(FILE *out, const struct validated *v)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-validate-1");
    hw_json_str(&j, "host", v->host);
    hw_json_str(&j, "nic", v->nic);
    if (v->gpus) {
        hw_json_i64(&j, "gpu", v->gpu);
        hw_json_i64(&j, "peer_gpu", v->peer_gpu);
        hw_json_object(&j, "received");
        verdict_json(&j, "here", &v->here);
        verdict_json(&j, "there", &v->there);
        hw_json_end(&j);
    }
    hw_json_u64(&j, "channels", v->channels);
    hw_json_u64(&j, "proved", v->proved);
    hw_json_str(&j, "why", v->why && *v->why ? v->why : NULL);
    write_nics(&j, "per_nic", v->own, v->n_own);
    write_nics(&j, "peer_per_nic", v->peer_nics, v->n_peer);
    if (v->peer)
        output_json_channels(&j, v->peer);
    hw_json_end(&j);
    int rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "writing the JSON line") : 0;
}
