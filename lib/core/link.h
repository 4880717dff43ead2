/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link is one connection as a state machine. It creates and parses frames, keeps a window in bytes, counts frames
 * that have arrived completely, and settles the frames in flight when the connection has died. A link does no I/O: the
 * rail requests the memory of the next bytes to send or receive, makes the transport transfer some of them, and reports
 * their number. A link is not aware of operations or regions. The layer above provides frames (pull) and memory for
 * payloads (place), and is notified of frames that arrived, were confirmed or were lost.
 *
 * The counts make failover exact. Counted frames arrive in the order in which they were sent. A receiver's count
 * states that the first `received` frames are in place. While the link is up, the count is a confirmation. Once the
 * receiver has closed the link, the count is its last word, and the sender knows exactly which frames it must send
 * again on another link. No frame arrives twice or late, because the receiver reads nothing after its last word.
 *
 * A connection may have a second stream, which carries large payloads separately from their headers, in the order of
 * the headers. The link reports which stream the next bytes belong to.
 *
 * At most one thread at a time may call the functions of a link.
 */
#ifndef HW_LINK_H
#define HW_LINK_H

#include "base/base.h"
#include "mem/space.h"
#include "wire/link.h"

/* A contiguous range of bytes to send or receive, in memory of one kind. Received bytes are discarded if ptr is NULL.
 * The length may be 0. */
struct hw_piece {
    const struct hw_space *space;
    uint8_t *ptr;
    uint64_t len;
    const void *owner; /* owner of the memory, for hw_link_let_go(); never dereferenced */
};

/* Maximum number of pieces of an outgoing frame, and of an incoming frame at a time. */
#define HW_LINK_PIECES 256
#define HW_LINK_BATCH  32     /* a frame is added to a batch only while the batch has at most this many pieces */
#define HW_LINK_BUF    16384u /* size of the buffer for headers, extensions and copied payloads, in each direction */
#define HW_LINK_FLIGHT 1024   /* maximum number of counted frames in flight */

/* A frame to send, which pull() fills in. */
struct hw_link_out {
    uint8_t type;
    bool uncounted; /* temporary state, such as a confirmation, which is dropped if the link dies */
    bool patient;   /* the layer above does not wait for the confirmation */
    bool bulk;      /* see HW_LINK_BULK */
    uint32_t ext_len;
    uint8_t *ext; /* buffer of HW_LINK_EXT_MAX bytes for the extension */
    uint32_t n_pieces;
    struct hw_piece *piece; /* array of HW_LINK_PIECES pieces */
    void *token;            /* counted frames: passed to confirmed() or lost() */
};

/* An incoming frame. */
struct hw_link_in {
    uint8_t type;
    bool uncounted;
    const uint8_t *ext; /* valid until place() returns */
    uint32_t ext_len;
    uint32_t pay;    /* length of the payload in bytes */
    bool bulk;       /* see HW_LINK_BULK */
    bool dropped;    /* some bytes were discarded, because hw_link_let_go() released their memory */
    void *cookie;    /* set by place() for the callbacks that follow */
    uint64_t number; /* set by place() for the callbacks that follow */
    uint64_t share;  /* set by place() for the callbacks that follow */
};

struct hw_link;

/* Optional capabilities of a connection. */
struct hw_link_apart {
    bool tx, rx; /* large payloads of this direction use the second stream */
    bool held;   /* tx: payloads on the second stream may be read after the write, until hw_link_released() */
};

/* Callbacks into the layer above. A callback must not free the link or call functions of the link, except for
 * hw_link_confirm() in place() and arrived(). */
struct hw_link_ops {
    /* Fills in the next frame. budget is the free part of the window, or 0 if no more frames may be in flight. One
     * frame may exceed a budget above 0. With budget 0, only an uncounted frame may be sent. Returns false if there is
     * no frame now. */
    bool (*pull)(void *up, struct hw_link *l, uint64_t budget, struct hw_link_out *out);
    /* Called when a frame's header and extension have arrived. Fills piece[0, *n) with memory for the payload or its
     * first bytes; a piece without ptr discards its bytes. Returns 0, or a negative errno that ends the link. After
     * success arrived() or abandoned() is called once. */
    int (*place)(void *up, struct hw_link *l, struct hw_link_in *in, struct hw_piece *piece, uint32_t *n);
    /* Called when the pieces so far hold the first `at` bytes of a longer payload. Fills piece[0, *n) with memory for
     * at least one more byte. Returns 0, or a negative errno that ends the link. */
    int (*more)(void *up, struct hw_link *l, const struct hw_link_in *in, uint64_t at, struct hw_piece *piece,
                uint32_t *n);
    /* Called when the payload is in place. Returns 0, or a negative errno that ends the link, in which case the frame
     * is not counted. */
    int (*arrived)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* Called if the link ended before the payload was in place. */
    void (*abandoned)(void *up, struct hw_link *l, const struct hw_link_in *in);
    /* Called when the peer has received the frame of this token, with its payload of `pay` bytes, and the payload's
     * memory on this side is no longer read. */
    void (*confirmed)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* hw_link_settle() calls this function for each frame that the peer has not received, in the order of the frames.
     * The payload has `pay` bytes. */
    void (*lost)(void *up, struct hw_link *l, void *token, uint32_t pay);
    /* Copies the bytes of a piece, which the CPU cannot access, to host memory. Fails with a negative errno. */
    int (*load)(void *up, struct hw_link *l, const struct hw_piece *piece, uint8_t *to);
};

/* A counted frame in flight. */
struct hw_link_flight {
    void *token;
    uint64_t bytes; /* bytes of the whole frame */
    uint32_t pay;   /* bytes of the payload */
    uint64_t end;   /* value of tx.framed after the frame's last byte */
    uint64_t apart; /* value of tx.apart_framed after the frame's last byte */
};

struct hw_link {
    /* read by the layer above, which may also change window */
    /* Number of counted frames that arrived completely: the confirmation and, after hw_link_end(), the last word. */
    uint64_t received;
    uint64_t awaited; /* number of received frames up to the last frame whose confirmation the peer waits for */
    uint64_t started; /* counted frames from pull() */
    uint64_t said;    /* frames that the peer has confirmed */
    /* Frames for which confirmed() was called. Less than `said` while memory of the next frame is still being read. */
    uint64_t confirmed;
    uint64_t in_flight; /* bytes of the frames that are not confirmed */
    uint64_t gone;      /* payload bytes that were handed to the second stream */
    uint64_t released;  /* number of leading bytes of `gone` that are no longer read; UINT64_MAX after the end */
    uint64_t window;    /* bytes that may be in flight; the last frame may exceed the window */
    int ended;          /* 0, or the error that the link ended with */

    struct hw_link_apart apart; /* set by the layer above after hw_link_init() */

    /* for the link's use */
    const struct hw_link_ops *ops;
    void *up;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes; the first `end` bytes contain headers, extensions and small payloads */
        uint32_t end;
        /* pieces [piece_at, n_pieces) remain to be sent, including those in buf */
        struct hw_piece piece[HW_LINK_BATCH + HW_LINK_PIECES + 1];
        uint32_t piece_at, n_pieces;
        uint64_t payload; /* bytes of the pieces that are not in buf, including bytes already sent */
        bool dry;         /* pull() had no frame when it was last called */
        bool apart;       /* pieces [apart_at, n_pieces) are for the second stream; no frame is added after them */
        uint32_t apart_at;
        struct hw_link_copy {
            struct hw_link_copy *next;
            uint64_t until; /* in `held`: value of gone at the end of the batch that contained the copy */
            uint8_t data[];
        } * copies;                    /* copies of unsent bytes of some pieces, see hw_link_let_go() */
        struct hw_link_copy *held;     /* copies that are still being read, newest first */
        uint64_t apart_framed;         /* bytes of all payloads that use the second stream */
        uint64_t framed;               /* bytes of all frames from pull(), including uncounted frames */
        uint64_t written;              /* bytes of `framed` that were handed to the transport */
        struct hw_link_flight *flight; /* ring buffer: frame n is at n % ring */
        uint32_t ring;                 /* a power of two up to HW_LINK_FLIGHT; grows with use */
    } tx;
    struct {
        uint8_t *buf; /* HW_LINK_BUF bytes; [at, end) has been received but not parsed */
        uint32_t at, end;
        enum { HW_LINK_AT_HEAD, HW_LINK_AT_EXT, HW_LINK_AT_PAYLOAD } state;
        struct hw_link_head head;
        struct hw_link_in in;
        struct hw_piece piece[HW_LINK_PIECES];
        uint32_t piece_at, n_pieces;
        uint64_t placed; /* bytes of the payload for which there were pieces */
    } rx;
};

/* Initializes a link with this window. Fails with -ENOMEM. If the ring of frames cannot grow later, fewer frames are in
 * flight. */
int hw_link_init(struct hw_link *l, const struct hw_link_ops *ops, void *up, uint64_t window);
/* Frees the buffers. There is no callback for the tokens of frames that were not settled. */
void hw_link_free(struct hw_link *l);

/* ---- sending and receiving -------------------------------------------------------------------- */

/* Pulls frames if possible, and lists the next bytes to send as up to cap pieces in out. Returns the number of pieces,
 * or 0 if there is nothing to send now. */
uint32_t hw_link_tx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* Returns true if frames that were pulled are not completely sent. */
bool hw_link_has_unsent(const struct hw_link *l);
/* Returns true if the last hw_link_tx() found no further frame, and all that it returned was sent. */
bool hw_link_is_dry(const struct hw_link *l);
/* Returns true if the pieces from hw_link_tx() are for the second stream. */
bool hw_link_sends_apart(const struct hw_link *l);
/* Reports that the first n bytes from hw_link_tx() have been written. */
void hw_link_sent(struct hw_link *l, uint64_t n);
/* If apart.held is set, reports that the memory of the first n bytes of the second stream is no longer read. */
void hw_link_released(struct hw_link *l, uint64_t n);
/* Lists memory for the next bytes to read as up to cap pieces in out; cap is at least 2. Returns the number of pieces,
 * which is at least 1. Only pieces for the second stream may lack ptr; their bytes are to be discarded. Memory that was
 * not filled is returned again by the next call. */
uint32_t hw_link_rx(struct hw_link *l, struct hw_piece *out, uint32_t cap);
/* Returns true if the memory from hw_link_rx() is for bytes of the second stream. */
bool hw_link_reads_apart(const struct hw_link *l);
/* Reports that n bytes were read into the memory from hw_link_rx(). Returns 0, or a negative errno with which the
 * caller must call hw_link_end(). */
int hw_link_got(struct hw_link *l, uint64_t n);
/* Called after hw_link_got(). If the next byte to be parsed belongs in memory that the CPU cannot access, returns the
 * number of bytes that were read but not parsed, and points *data to them; otherwise returns 0. *data is valid until
 * the link is used again. The transport must read these bytes again, before all others. */
uint32_t hw_link_unread(struct hw_link *l, const uint8_t **data);

/* ---- confirmation, release of memory, and end ------------------------------------------------- */

/* Processes the peer's confirmation of the first count frames. Calls confirmed() in order, up to the first frame whose
 * memory is still being read. Does nothing after hw_link_end(). Fails with -EPROTO if one of the count frames was not
 * completely handed to the transport, because the peer cannot have received it. */
int hw_link_confirm(struct hw_link *l, uint64_t count);
/* Releases memory: after this call the link neither reads nor writes memory of this owner. The transport may read bytes
 * that it already has until l->released reaches the value that l->gone has now. Unsent bytes of pulled frames in the
 * owner's memory are copied. Further received bytes for the owner's memory are discarded, and the frame still arrives,
 * marked as `dropped`. Fails with -ENOMEM, or with another negative errno if the memory cannot be read. In these cases
 * only hw_link_end() releases the memory. */
int hw_link_let_go(struct hw_link *l, const void *owner);
/* Makes the present pieces of the incoming frame discard their remaining bytes; the frame arrives like any other.
 * Returns this frame, or NULL if none of the pieces had memory left to fill. */
struct hw_link_in *hw_link_drop(struct hw_link *l);
/* Returns the token of the first counted frame that is not completely sent, or NULL. */
void *hw_link_get_sending(const struct hw_link *l);
/* Returns true if memory of this owner remains to be sent or filled. */
bool hw_link_uses(const struct hw_link *l, const void *owner);
/* Returns true if the next bytes of the second stream are for memory of this owner. The transport must then stop its
 * transfer before hw_link_let_go(). */
bool hw_link_fills_apart(const struct hw_link *l, const void *owner);
/* Ends the link because the connection is closed, for this reason (not 0). Afterwards nothing is sent or received, no
 * memory is read, and `received` is final. Calls confirmed() for frames that the peer has confirmed and whose memory
 * was being read until now. */
void hw_link_end(struct hw_link *l, int why);
/* Returns true if count is a possible last word of the peer. Called after the end. */
bool hw_link_can_settle(const struct hw_link *l, uint64_t count);
/* Processes the peer's last word, after the end. Calls confirmed() for the unconfirmed frames among the first count
 * frames, and lost() for all later frames, in order. Fails with -EPROTO, without calling either, if the count
 * contradicts the frames that were sent or confirmed. */
int hw_link_settle(struct hw_link *l, uint64_t count);

#endif
