# SPDX-License-Identifier: Apache-2.0
"""The parts of hawser.h that the binding uses, written by hand for cffi. tests/python/test_layout.py compares every
structure and function with the header."""

CDEF = """
typedef struct hawser hawser;
typedef struct hawser_peer hawser_peer;
typedef struct hawser_mem hawser_mem;
typedef struct hawser_op hawser_op;
typedef void (*hawser_log_fn)(void *arg, int level, const char *line);

struct hawser_options {
    size_t size;
    uint32_t flags;
    hawser_log_fn log;
    void *log_arg;
    const void *key;
    size_t key_len;
    const char *const *knobs;
};
int hawser_open(const struct hawser_options *opts, hawser **out);
void hawser_close(hawser *h);
const char *hawser_error(void);
const char *hawser_version(void);
int hawser_progress(hawser *h, int timeout_ms);
int hawser_eventfd(hawser *h);

struct hawser_completion {
    uint32_t event;
    int32_t result;
    uint64_t user;
    uint64_t length;
    hawser_peer *peer;
    void *data;
};
int hawser_poll(hawser *h, struct hawser_completion *out, int n);
int hawser_poll_wait(hawser *h, struct hawser_completion *out, int n, int timeout_ms);
void hawser_data_free(void *data);

int hawser_listen(hawser *h, const char *addr, uint16_t port, uint16_t *bound);
int hawser_accept(hawser *h, int timeout_ms, hawser_peer **out);

struct hawser_connect_options {
    size_t size;
    const char *nics;
    const char *peer_nics;
    uint32_t channels;
    uint32_t flags;
    const void *key;
    size_t key_len;
    uint32_t gpu;
    uint32_t peer_gpu;
    const char *prefer;
};
int hawser_connect(hawser *h, const char *host, uint16_t port, const struct hawser_connect_options *opts,
                   int timeout_ms, hawser_peer **out);
int hawser_peer_state(hawser_peer *p);
const char *hawser_peer_name(hawser_peer *p);
void hawser_peer_close(hawser_peer *p);

int hawser_mem_register(hawser *h, int kind, void *ptr, size_t len, hawser_mem **out);
int hawser_mem_alloc(hawser *h, int kind, int device, size_t len, hawser_mem **out);
void *hawser_mem_ptr(hawser_mem *m);
int hawser_mem_load(hawser_mem *m, uint64_t offset, void *buf, size_t len);
int hawser_mem_store(hawser_mem *m, uint64_t offset, const void *buf, size_t len);
int hawser_mem_deregister(hawser_mem *m);
int hawser_export(hawser_mem *m, uint64_t offset, uint64_t len, uint32_t rights, hawser_peer *peer, uint8_t *key);
int hawser_revoke(hawser *h, const uint8_t *key);

struct hawser_region {
    uint64_t id, secret;
    uint64_t length;
    uint32_t rights;
    uint32_t reserved;
};
int hawser_import(const uint8_t *key, struct hawser_region *out);

struct hawser_vec {
    hawser_mem *mem;
    uint64_t offset;
    uint64_t length;
    const struct hawser_region *region;
    uint64_t remote_offset;
    const void *data;
};
struct hawser_op_options {
    size_t size;
    int timeout_ms;
    const void *notify;
    size_t notify_len;
    uint32_t stream;
    uint32_t tag;
    uint64_t user;
};
int hawser_write(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                 hawser_op **op);
int hawser_read(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op);
int hawser_send(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op);
int hawser_recv(hawser_peer *p, const struct hawser_vec *vecs, size_t n, const struct hawser_op_options *opts,
                hawser_op **op);
int hawser_stream_close(hawser_peer *p, uint32_t stream);
int hawser_notify(hawser_peer *p, const void *data, size_t len, const struct hawser_op_options *opts, hawser_op **op);

struct hawser_request {
    uint32_t kind;
    uint32_t flags;
    const struct hawser_vec *vecs;
    size_t n_vecs;
    const void *data;
    size_t len;
    const struct hawser_op_options *opts;
    hawser_op **op;
};
int hawser_submit(hawser_peer *p, const struct hawser_request *reqs, size_t n, size_t *started);
int hawser_notification(hawser_peer *p, void *buf, size_t cap, size_t *len);
int hawser_test(hawser_op *op);
int hawser_wait(hawser_op *op, int timeout_ms);
int hawser_cancel(hawser_op *op);
uint64_t hawser_op_bytes(const hawser_op *op);
uint64_t hawser_op_length(const hawser_op *op);
void hawser_op_free(hawser_op *op);

struct hawser_channel_stats {
    char nic[16];
    char peer_nic[16];
    char local[48], remote[48];
    uint32_t index;
    uint32_t up;
    uint32_t lost;
    uint32_t suspect;
    uint64_t tx_bytes;
    uint64_t rx_bytes;
    uint64_t tx_chunks, rx_chunks;
    uint64_t retaken_chunks;
    uint64_t retaken_bytes;
    uint64_t rx_device_bytes, rx_copied_bytes, tx_device_bytes;
};
struct hawser_path {
    char nic[16];
    char peer_nic[16];
    char local[48], remote[48];
    uint32_t state;
    uint32_t channels, channels_up;
    uint32_t reserved;
    char why[120];
};
int hawser_channel_stats(hawser_peer *p, struct hawser_channel_stats *out, size_t *n);
int hawser_paths(hawser_peer *p, struct hawser_path *out, size_t *n);
void hawser_knobs(void (*fn)(void *arg, const char *name, const char *env, const char *def, const char *unit,
                             const char *doc),
                  void *arg);
"""
