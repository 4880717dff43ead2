/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one connection as a state machine. It makes and parses frames, keeps a window in bytes, counts frames that
 * arrived completely, and settles the rest when the connection dies. It does no I/O: a transport asks for the memory of
 * the next bytes to send or receive, transfers some, and reports how many. A link does not know operations and regions:
 * the layer above provides frames (pull) and memory for payloads (place), and is told what arrived, was confirmed or
 * was lost.
 *
 * The counts make failover exact. Both directions number their counted frames 1, 2, 3... A receiver's count is a fact
 * about a prefix: the first `received` frames are in place. While the link is up the count is a confirmation; once the
 * receiver has closed the link the count is its last word, and the sender knows exactly which frames to send again on
 * another link. No frame arrives twice, and none arrives late: the receiver reads nothing after its last word.
 *
 * A connection may have a second stream, which carries large payloads apart from their heads, in the order of the
 * heads. The link reports for which stream the bytes are; a transport with one stream never sees the other.
 *
 * All functions of a link are called by one thread at a time: by the loop that owns the link.
 */
#ifndef HW_LINK_H
#define HW_LINK_H

#include "base/base.h"
#include "mem/space.h"
#include "wire/link.h"

/* A run of payload bytes in a space. ptr NULL (incoming only): the bytes are discarded. The length may be 0. */
struct hw_piece {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    const void *owner; /* the owner of the memory: for hw_link_let_go(), never dereferenced */
};

#define HW_LINK_PIECES 256    /* of an outgoing frame; of an incoming one, at a time */
#define HW_LINK_BATCH  32     /* with at most this many pieces waiting to be sent, one more frame is pulled */
#define HW_LINK_BUF    16384u /* bytes of heads, extensions and copied payloads in transit, each direction */
#define HW_LINK_FLIGHT 1024   /* counted frames in flight */

/* A frame to send, which pull() fills in. */
struct hw_link_out {
    uint8_t type;
    bool uncounted; /* soft state, like confirmations: dropped if the link dies */
    bool patient;   /* nobody waits for its confirmation */
    bool bulk;      /* see HW_LINK_BULK */
    uint32_t ext_len;
    uint8_t *ext; /* room of HW_LINK_EXT_MAX bytes for the extension */
    uint32_t n_pieces;
    struct hw_piece *piece; /* room for HW_LINK_PIECES */
    void *token;            /* counted: passed to confirmed() or lost(), once */
};

/* An incoming frame. */
struct hw_link_in {
    uint8_t type;
    bool uncounted;
    const uint8_t *ext; /* valid until place() returns */
    uint32_t ext_len;
    uint32_t pay;    /* bytes */
    bool bulk;       /* see HW_LINK_BULK */
    bool dropped;    /* some bytes were discarded, because hw_link_let_go() released their memory */
    void *cookie;    /* set by place() for the callbacks that follow */
    uint64_t number; /* likewise */
    uint64_t share;  /* likewise */
};

struct hw_link;

/* Capabilities of a connection beyond one stream each way whose bytes are copied when they are handed over. */
struct hw_link_apart {
    bool tx, rx; /* in this direction large payloads use the other stream */
    bool held;   /* tx: their memory is read after the write, until hw_link_released() */
};

/* The callbacks into the layer above. A callback must not free the link or call into it, except for hw_link_confirm()
 * in place() and arrived(). */
struct hw_link_ops {
    /* Fills in the next frame, whose payload is at most budget bytes; budget 0: the window is full, and only an
     * uncounted frame may be sent. False: there is none now. */
    bool (*pull)(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out);
    /* A frame's head and extension have arrived: fills piece[0, *n) with the memory for the payload, or its first bytes
     * (a piece without ptr discards its share). 0, or -errno, which ends the link. Afterwards arrived() or abandoned()
     * is called, once. */
    int (*place)(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    /* The pieces so far have `at` bytes of a longer payload: returns the next ones, of at least one byte. */
    int (*more)(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                uint32_t *n);
    /* The payload is in place. 0, or -errno, which ends the link; the frame then does not count. */
    int (*arrived)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* The link ended before the payload was in place. */
    void (*abandoned)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* The peer has the frame of this token, with its payload of this many bytes in place. */
    void (*confirmed)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* The peer does not have the frame of this token, with a payload of this many bytes, and will never get it by this
     * link (hw_link_settle). In order. */
    void (*lost)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* Copies a piece that the CPU cannot access to host memory. -errno. */
    int (*load)(void *up, struct hw_link *l, const struct hw_piece *piece, uint8_t *to);
};

/* A counted frame in flight. */
struct hw_link_flight {
    void *token;
    uint64_t bytes; /* of the frame */
    uint32_t pay;   /* of these, payload */
    uint64_t end;   /* of tx.framed, after its last byte */
    uint64_t apart; /* of tx.apart_framed, likewise */
};

struct hw_link {
    /* read by the layer above */
    /* counted frames that arrived completely: the confirmation, and after hw_link_end() the last word */
    uint64_t received;
    uint64_t awaited; /* of these, up to the last one for whose confirmation the peer waits */
    uint64_t started; /* counted frames from pull() */
    uint64_t said;    /* of these, the number that the peer has confirmed */
    /* of these, the number for which confirmed() was called: the memory of the others is still being read */
    uint64_t confirmed;
    uint64_t in_flight; /* bytes of those that are not confirmed */
    uint64_t gone;      /* bytes of payload that were handed to the other stream */
    uint64_t released;  /* of these, the first bytes whose memory is not read any more */
    uint64_t window;    /* bytes that may be in flight; a single frame may exceed it */
    int ended;          /* 0, or the error with which the link ended */

    struct hw_link_apart apart; /* set by the layer above after hw_link_init() */

    /* the link's own */
    const struct hw_link_ops *ops;
    void *up;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes, of which the first `end` contain heads, extensions, small payloads */
        uint32_t end;
        /* [piece_at, n_pieces) remain to be sent, including those in buf */
        struct hw_piece piece[HW_LINK_BATCH + HW_LINK_PIECES + 1];
        uint32_t piece_at, n_pieces;
        uint64_t payload; /* bytes of these that are not in buf, including those already sent */
        bool apart;       /* the pieces from apart_at on are for the other stream, and none follow them */
        uint32_t apart_at;
        struct hw_link_copy {
            struct hw_link_copy *next;
            uint64_t until; /* of gone, after its last byte */
            uint8_t data[];
        } * copies;                    /* of the unsent bytes of some of them, see hw_link_let_go() */
        struct hw_link_copy *held;     /* such copies that are still being read, newest first */
        uint64_t apart_framed;         /* bytes of all payloads that use the other stream */
        uint64_t framed;               /* bytes of all frames from pull(), including uncounted ones */
        uint64_t written;              /* of these, handed to the transport */
        struct hw_link_flight *flight; /* ring: frame n is at n % ring */
        uint32_t ring;                 /* a power of two, up to HW_LINK_FLIGHT; grows with use */
    } tx;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes: [at, end) is read and not parsed */
        uint32_t at, end;
        enum { HW_LINK_AT_HEAD, HW_LINK_AT_EXT, HW_LINK_AT_PAYLOAD } state;
        struct hw_link_head head;
        struct hw_link_in in;
        struct hw_piece piece[HW_LINK_PIECES];
        uint32_t piece_at, n_pieces;
        uint64_t placed; /* bytes of the payload for which there were pieces */
    } rx;
};

/* Makes a link with this window. -ENOMEM. Lack of memory later only reduces the number of frames in flight. */
int hw_link_init(struct hw_link *l, const struct hw_link_ops *ops, void *up, uint64_t window);
/* Frees the buffers. The link must have ended and be settled, or its session is gone: remaining tokens get no
 * callback. */
void hw_link_free(struct hw_link *l);

/* ---- for the transport ------------------------------------------------------------------------ */

/* Returns the next bytes to send, up to cap pieces, and pulls frames if there is room. Returns their number; 0: nothing
 * now. */
uint32_t hw_link_tx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* True if the pieces from hw_link_tx() are for the other stream. */
bool hw_link_sends_apart(const struct hw_link *l);
/* The first n bytes from hw_link_tx() are written. */
void hw_link_sent(struct hw_link *l, uint64_t n);
/* apart.held: the memory of the first n bytes of the other stream is not read any more. */
void hw_link_released(struct hw_link *l, uint64_t n);
/* Returns the memory for the next bytes to read: up to cap pieces (cap is at least 2). Returns their number, at least
 * 1; a piece without ptr is for the other stream only. The link returns the same memory again for bytes that the caller
 * did not read before it called another function. */
uint32_t hw_link_rx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* True if that memory is for bytes of the other stream. */
bool hw_link_reads_apart(const struct hw_link *l);
/* n bytes were read to that memory. 0, or the error with which the link must end: the caller then calls
 * hw_link_end(). */
int hw_link_got(struct hw_link *l, uint64_t n);
/* After hw_link_got(): bytes that were read and belong to memory that the CPU cannot access. Returns their number;
 * *data is valid until the link is used again: the transport reads them again, before all others. */
uint32_t hw_link_unread(struct hw_link *l, const uint8_t **data);

/* ---- for the layer above ---------------------------------------------------------------------- */

/* The peer has confirmed the first count frames: calls confirmed() for those whose memory is not read any more.
 * -EPROTO: the last byte of one of them was never handed to the transport, so that the peer cannot have it. */
int hw_link_confirm(struct hw_link *l, uint64_t count);
/* After this call the link neither reads nor writes memory of this owner; the transport may read what it has until
 * l->released reaches the present l->gone. Copies unsent bytes of the frame that is being sent if some are in the
 * owner's memory; discards further bytes for the owner's memory, and the frame still arrives, as `dropped`. -ENOMEM, or
 * the memory cannot be read: only hw_link_end() releases it. */
int hw_link_let_go(struct hw_link *l, const void *owner);
/* Discards the remaining payload of the incoming frame, and the frame arrives like any other. Returns that frame; NULL:
 * no payload had a destination. */
struct hw_link_in *hw_link_drop(struct hw_link *l);
/* The token of the frame whose bytes are sent next. NULL: none counts. */
void *hw_link_get_sending(const struct hw_link *l);
/* True if hw_link_tx() or hw_link_rx() may have returned memory of this owner that is not sent or filled. */
bool hw_link_uses(const struct hw_link *l, const void *owner);
/* True if the next bytes of the other stream are for memory of this owner: before hw_link_let_go() the transport stops
 * its transfer there. */
bool hw_link_fills_apart(const struct hw_link *l, const void *owner);
/* The connection is closed, for this reason (not 0): nothing is sent or received any more, no memory is read, and
 * `received` is final. */
void hw_link_end(struct hw_link *l, int why);
/* True if the peer's last word is possible. After the end. */
bool hw_link_can_settle(const struct hw_link *l, uint64_t count);
/* After the end, with the peer's last word: calls confirmed() for the first count frames, lost() for the others, in
 * order. -EPROTO without a call: the count contradicts what was sent or confirmed. */
int hw_link_settle(struct hw_link *l, uint64_t count);

#endif
