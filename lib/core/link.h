/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link: one connection as a state machine. It frames, keeps a window in bytes, counts what arrived whole, and settles
 * what is left when the connection dies. It does no I/O: a transport asks where the next bytes come from or go to,
 * moves some, and says how many. It knows nothing of operations and regions: the layer above gives frames (pull), says
 * where payloads go (place), and is told what arrived, what is confirmed and what is lost.
 *
 * Counting is what makes failover exact. Both directions number their counted frames 1, 2, 3... A receiver's count is a
 * fact about a prefix: the first `received` frames are in place. While the link lives the count is a confirmation; once
 * the receiver has closed the link the count is its last word, and the sender knows exactly which frames to send again
 * on another link. No frame arrives twice, and none arrives late: the receiver reads nothing more after its last word.
 *
 * A connection may have a second stream, which carries large payloads apart from their heads, in the order of the
 * heads. The link tells for which stream the bytes are that it gives out; a transport with one stream never meets the
 * other.
 *
 * All functions of one link are called by one thread at a time: by the loop that owns the link.
 */
#ifndef HW_LINK_H
#define HW_LINK_H

#include "base/base.h"
#include "mem/space.h"
#include "wire/link.h"

/* A run of payload bytes in a space. ptr NULL (incoming only): the bytes go nowhere. The length may be 0. */
struct hw_piece {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    const void *owner; /* whose memory it is: for hw_link_let_go(), and never followed */
};

#define HW_LINK_PIECES 256    /* of a frame that is sent; of one that comes in, at a time */
#define HW_LINK_BATCH  32     /* pieces that wait to be sent, with which one more frame is pulled */
#define HW_LINK_BUF    16384u /* bytes of heads, extensions and copied payloads on their way, each direction */
#define HW_LINK_FLIGHT 1024   /* counted frames in flight */

/* A frame to send, which pull() fills in. */
struct hw_link_out {
    uint8_t type;
    bool uncounted; /* soft state, like confirmations: dropped where the link dies */
    bool patient;   /* nobody waits for its confirmation */
    bool bulk;      /* see HW_LINK_BULK */
    uint32_t ext_len;
    uint8_t *ext; /* room for HW_LINK_EXT_MAX bytes, to write the extension to */
    uint32_t n_pieces;
    struct hw_piece *piece; /* room for HW_LINK_PIECES */
    void *token;            /* counted: handed to confirmed() or lost(), once */
};

/* A frame that comes in. */
struct hw_link_in {
    uint8_t type;
    bool uncounted;
    const uint8_t *ext; /* valid until place() returns */
    uint32_t ext_len;
    uint32_t pay;    /* bytes */
    bool bulk;       /* see HW_LINK_BULK */
    bool dropped;    /* some went nowhere, since hw_link_let_go() took their place */
    void *cookie;    /* what place() stored, for those that follow */
    uint64_t number; /* likewise */
    uint64_t share;  /* likewise */
};

struct hw_link;

/* What a connection can do beside one stream each way, whose bytes are copied when they are handed over. */
struct hw_link_apart {
    bool tx, rx; /* in this direction large payloads travel apart */
    bool held;   /* tx: their memory is read after that, until hw_link_released() says otherwise */
};

/* What the layer above provides. A function may not free the link, nor call into it, but for hw_link_confirm() in
 * place() and arrived(). */
struct hw_link_ops {
    /* Fills in the next frame, whose payload is at most budget bytes; budget 0: the window is full, and only an
     * uncounted frame may go. False: there is none now. */
    bool (*pull)(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out);
    /* A frame's head and extension are here: fills piece[0, *n) with where the payload, or its first bytes, go (a piece
     * without ptr drops its share). 0, or -errno, which ends the link. Then arrived() or abandoned() is called, once.
     */
    int (*place)(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    /* The pieces so far hold `at` bytes of the payload, which is longer: the next ones, of at least one byte. */
    int (*more)(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                uint32_t *n);
    /* The payload is in place. 0, or -errno, which ends the link; the frame then does not count. */
    int (*arrived)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* The link ended before the payload was in place. */
    void (*abandoned)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* The peer has the frame of this token, and its payload of so many bytes is in place there. */
    void (*confirmed)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* The peer does not have the frame of this token, with a payload of so many bytes, and never will by this link
     * (hw_link_settle). In order. */
    void (*lost)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* Copies a piece that the CPU cannot use to host memory. -errno. */
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
    uint64_t received;  /* counted frames that arrived whole: the confirmation, and after hw_link_end() the last word */
    uint64_t awaited;   /* of these, up to the last one whose confirmation somebody waits for */
    uint64_t started;   /* counted frames that pull() gave */
    uint64_t said;      /* of these, the peer says that it has the first so many */
    uint64_t confirmed; /* of these, confirmed() was called for so many: the memory of the others is read still */
    uint64_t in_flight; /* bytes of those that are not confirmed */
    uint64_t gone;      /* bytes of payload that were handed to the other stream */
    uint64_t released;  /* of these, the memory of the first so many is read no more */
    uint64_t window;    /* bytes that may be in flight; a single frame may exceed it */
    int ended;          /* 0, or why the link ended */

    struct hw_link_apart apart; /* set by the layer above after hw_link_init() */

    /* the link's own */
    const struct hw_link_ops *ops;
    void *up;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes, of which the first `end` hold heads, extensions, small payloads */
        uint32_t end;
        struct hw_piece piece[HW_LINK_BATCH + HW_LINK_PIECES + 1]; /* [piece_at, n_pieces) is to be sent, of buf too */
        uint32_t piece_at, n_pieces;
        uint64_t payload; /* bytes of these that are not in buf, with what was sent of them */
        bool apart;       /* those from apart_at on are for the other stream, and nothing is laid out behind them */
        uint32_t apart_at;
        struct hw_link_copy {
            struct hw_link_copy *next;
            uint64_t until; /* of gone, after its last byte */
            uint8_t data[];
        } * copies;                    /* of what was left of some of them, see hw_link_let_go() */
        struct hw_link_copy *held;     /* such copies that are read still, newest first */
        uint64_t apart_framed;         /* bytes of all payloads that travel apart */
        uint64_t framed;               /* bytes of all frames that pull() gave, the uncounted ones too */
        uint64_t written;              /* of these, handed to the transport */
        struct hw_link_flight *flight; /* ring: frame n is at n % ring */
        uint32_t ring;                 /* a power of two, up to HW_LINK_FLIGHT; it grows with use */
    } tx;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes: [at, end) is read and not parsed */
        uint32_t at, end;
        enum { HW_LINK_AT_HEAD, HW_LINK_AT_EXT, HW_LINK_AT_PAYLOAD } state;
        struct hw_link_head head;
        struct hw_link_in in;
        struct hw_piece piece[HW_LINK_PIECES];
        uint32_t piece_at, n_pieces;
        uint64_t placed; /* bytes of the payload for which pieces were given */
    } rx;
};

/* Makes a link with this window. -ENOMEM. Where there is no memory later on, fewer frames are in flight. */
int hw_link_init(struct hw_link *l, const struct hw_link_ops *ops, void *up, uint64_t window);
/* Frees the buffers. The link has ended and is settled, or its session is gone: tokens left are told nothing. */
void hw_link_free(struct hw_link *l);

/* ---- for the transport ------------------------------------------------------------------------ */

/* The next bytes to send, pulling frames where there is room: up to cap pieces. Returns how many; 0: nothing now. */
uint32_t hw_link_tx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* True if what hw_link_tx() gave is for the other stream. */
bool hw_link_sends_apart(const struct hw_link *l);
/* The first n bytes of what hw_link_tx() gave are written. */
void hw_link_sent(struct hw_link *l, uint64_t n);
/* apart.held: of the bytes that went by the other stream the memory of the first n is read no more. */
void hw_link_released(struct hw_link *l, uint64_t n);
/* Where the next bytes read go, at once: up to cap pieces (cap is at least 2). Returns how many, at least 1; a piece
 * without ptr is for the other stream only. The link offers the same place again for bytes that the caller did not read
 * before it called another function. */
uint32_t hw_link_rx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* True if that is for bytes of the other stream. */
bool hw_link_reads_apart(const struct hw_link *l);
/* n bytes were read to there. 0, or why the link has to end: the caller then calls hw_link_end(). */
int hw_link_got(struct hw_link *l, uint64_t n);
/* After hw_link_got(): bytes that were read and belong to memory that the CPU cannot use. Returns how many, at *data
 * until the link is used again: the transport reads them once more, before all others. */
uint32_t hw_link_unread(struct hw_link *l, const uint8_t **data);

/* ---- for the layer above ---------------------------------------------------------------------- */

/* The peer says that it has the first count frames: calls confirmed() for those, once their memory is read no more.
 * -EPROTO: the last byte of one of them was never handed to the transport, so that the peer cannot have it. */
int hw_link_confirm(struct hw_link *l, uint64_t count);
/* From here on memory of this owner is neither read nor written by the link; the transport reads what it holds until
 * l->released has come to the present l->gone. The unsent bytes of the frame that is being sent are copied, if some are
 * the owner's; what is left to receive into the owner's memory goes nowhere, and the frame still arrives, as `dropped`.
 * -ENOMEM, or the memory cannot be read: only hw_link_end() lets go of it. */
int hw_link_let_go(struct hw_link *l, const void *owner);
/* What is left of the payload that comes in goes nowhere, and the frame arrives like any other. Returns that frame;
 * NULL: nothing of a payload was to go anywhere. */
struct hw_link_in *hw_link_drop(struct hw_link *l);
/* The token of the frame whose bytes are sent next. NULL: none counts. */
void *hw_link_get_sending(const struct hw_link *l);
/* True if hw_link_tx() or hw_link_rx() may have given out memory of this owner that is not sent or filled. */
bool hw_link_uses(const struct hw_link *l, const void *owner);
/* True if the next bytes of the other stream go to memory of this owner: before hw_link_let_go() the transport stops
 * what it has under way there. */
bool hw_link_fills_apart(const struct hw_link *l, const void *owner);
/* The connection is closed, for this reason (not 0): nothing is sent or received any more, no memory is read, and
 * `received` is final. */
void hw_link_end(struct hw_link *l, int why);
/* True if the peer's last word can be true. After the end. */
bool hw_link_can_settle(const struct hw_link *l, uint64_t count);
/* After the end, with the peer's last word: confirmed() for the first count frames, lost() for the others, in order.
 * -EPROTO, and nothing is called: the count contradicts what was sent or confirmed. */
int hw_link_settle(struct hw_link *l, uint64_t count);

#endif
