/* SPDX-License-Identifier: Apache-2.0 */
#include "nixl/xfer.h"
#include "nixl/agent.h"

#include <algorithm>
#include <cerrno>

namespace hx
{

/* minimum ns between two checks that drive the connection, unless look_ns has passed; see may_skip() */
constexpr uint64_t drive_ns = 2000;
/* ns since a check of the same request last drove the connection, after which a check always drives it */
constexpr uint64_t look_ns = 1000000;

static uint64_t now_ns()
{
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/* If memory runs out, the operations are canceled, but some are never freed. */
Request::~Request()
{
    try {
        abandon();
    } catch (...) {
    }
}

/* ---- preparing ------------------------------------------------------------------------------------------ */

nixl_status_t Request::add_pair(const nixlMetaDesc &local, const nixlMetaDesc &remote)
{
    const auto *l = static_cast<const LocalMD *>(local.metadataP);
    const auto *r = static_cast<const RemoteMD *>(remote.metadataP);
    if (!l || !r)
        return NIXL_ERR_NOT_FOUND;
    if (local.len != remote.len)
        return NIXL_ERR_MISMATCH;
    /* The application and the remote agent choose these addresses and lengths, so a sum could overflow. The checks
     * therefore only subtract. */
    if (local.addr < l->base || local.addr - l->base > l->len || local.len > l->len - (local.addr - l->base) ||
        remote.addr < r->base || remote.addr - r->base > r->region->length ||
        remote.len > r->region->length - (remote.addr - r->base))
        return NIXL_ERR_INVALID_PARAM;
    if (regs_.empty() || regs_.back() != l->reg)
        regs_.push_back(l->reg);
    if (regions_.empty() || regions_.back() != r->region)
        regions_.push_back(r->region);
    hawser_vec v = {};
    v.mem = l->reg->mem;
    v.offset = local.addr - l->base;
    v.length = local.len;
    v.region = r->region.get();
    v.remote_offset = remote.addr - r->base;
    vecs_.push_back(v);
    return NIXL_SUCCESS;
}

nixl_status_t Request::resolve(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote)
{
    if (local.size() != remote.size())
        return NIXL_ERR_MISMATCH;
    vecs_.reserve(local.size());
    for (size_t i = 0; i < local.size(); i++) {
        nixl_status_t rc = add_pair(local[i], remote[i]);
        if (rc != NIXL_SUCCESS)
            return rc;
    }
    return NIXL_SUCCESS;
}

/* ---- posting -------------------------------------------------------------------------------------------- */

nixl_status_t Request::post(std::shared_ptr<Link> link, std::vector<std::string> pieces)
{
    if (state_ == State::waiting || state_ == State::moving)
        return NIXL_ERR_REPOST_ACTIVE;
    if (link_ != link)
        leave_link();
    std::unique_lock link_lock(link->mu);
    std::unique_lock lock(mu_);
    if (link->state == Link::State::dead || link->removed)
        return link->removed ? NIXL_ERR_NOT_FOUND : link->why;
    link_ = std::move(link);
    link_->posted.insert(this);
    pieces_ = std::move(pieces);
    next_vec_ = next_piece_ = 0;
    result_ = NIXL_SUCCESS;
    if (link_->state == Link::State::connecting) {
        link_->waiting.push_back(this);
        state_ = State::waiting;
        return NIXL_IN_PROG;
    }
    state_ = State::moving;
    advance();
    return state_ == State::done ? result_ : NIXL_IN_PROG;
}

void Request::begin()
{
    std::unique_lock lock(mu_);
    state_ = State::moving;
    advance();
}

void Request::give_up(nixl_status_t status)
{
    std::unique_lock lock(mu_);
    result_ = status;
    state_ = State::done;
}

/* Ends a running transfer, because the application has removed the agent. */
void Request::end_removed()
{
    std::unique_lock lock(mu_);
    if (state_ == State::moving)
        fail(NIXL_ERR_NOT_FOUND, "the application removed the agent");
}

/* Ends a running transfer if the application deregisters its memory. */
void Request::end_stale()
{
    std::unique_lock lock(mu_);
    if (state_ != State::moving)
        return;
    std::shared_lock mem_lock(agent_.mem_mu);
    if (is_stale())
        fail(NIXL_ERR_NOT_FOUND, "its memory was deregistered while the transfer was in flight");
}

void Request::fail(nixl_status_t status, const char *reason)
{
    if (result_ == NIXL_SUCCESS) {
        result_ = status;
        agent_.log(std::string("a transfer failed: ") + reason);
    }
    next_vec_ = vecs_.size();
    next_piece_ = pieces_.size();
    for (hawser_op *op : ops_)
        (void)hawser_cancel(op);
}

bool Request::fits_one_operation() const
{
    return write_ && pieces_.size() == 1 && vecs_.size() <= HAWSER_MAX_VECS;
}

/* Returns whether the application has deregistered any of the memory. The caller holds Agent::mem_mu. */
bool Request::is_stale() const
{
    return std::any_of(regs_.begin(), regs_.end(), [](const auto &reg) { return !reg->mem; });
}

void Request::post_vecs()
{
    if (next_vec_ == vecs_.size())
        return;
    std::shared_lock mem_lock(agent_.mem_mu);
    if (is_stale())
        return fail(NIXL_ERR_NOT_FOUND, "its memory was deregistered after the transfer had been created");
    while (next_vec_ < vecs_.size()) {
        hawser_op_options o = {};
        o.size = sizeof(o);
        o.timeout_ms = agent_.options().timeout_ms;
        if (fits_one_operation()) {
            o.notify = pieces_[0].data();
            o.notify_len = pieces_[0].size();
        }
        size_t n = std::min<size_t>(vecs_.size() - next_vec_, HAWSER_MAX_VECS);
        hawser_op *op = nullptr;
        int rc = (write_ ? hawser_write : hawser_read)(link_->peer, &vecs_[next_vec_], n, &o, &op);
        if (rc == -EAGAIN)
            return;
        if (rc)
            return fail(status_of(rc), hawser_error());
        next_vec_ += n;
        if (o.notify)
            next_piece_ = 1;
        ops_.push_back(op);
    }
}

/* Posts the notification. The data of all operations must be in place. */
void Request::post_pieces()
{
    while (next_piece_ < pieces_.size()) {
        hawser_op_options o = {};
        o.size = sizeof(o);
        o.timeout_ms = agent_.options().timeout_ms;
        hawser_op *op = nullptr;
        const std::string &p = pieces_[next_piece_];
        int rc = hawser_notify(link_->peer, p.data(), p.size(), &o, &op);
        if (rc == -EAGAIN)
            return;
        if (rc)
            return fail(status_of(rc), hawser_error());
        next_piece_++;
        ops_.push_back(op);
    }
}

/* Frees operations that have ended, up to the first that has not. */
void Request::reap()
{
    size_t ended = 0;
    for (; ended < ops_.size(); ended++) {
        int rc = hawser_test(ops_[ended]);
        if (rc == -EAGAIN)
            break;
        if (rc)
            fail(status_of(rc), hawser_error());
        hawser_op_free(ops_[ended]);
        ops_[ended] = nullptr;
    }
    ops_.erase(ops_.begin(), ops_.begin() + static_cast<std::ptrdiff_t>(ended));
}

/* Advances as far as possible without blocking. The caller holds Link::mu and mu_. */
void Request::advance()
{
    reap();
    if (!link_->peer && result_ == NIXL_SUCCESS && (next_vec_ < vecs_.size() || next_piece_ < pieces_.size()))
        fail(NIXL_ERR_REMOTE_DISCONNECT, "the connection to the agent was closed");
    post_vecs();
    if (ops_.empty() && next_vec_ == vecs_.size())
        post_pieces();
    if (ops_.empty() && next_vec_ == vecs_.size() && next_piece_ == pieces_.size())
        state_ = State::done;
}

/* ---- afterwards ------------------------------------------------------------------------------------------- */

/* Returns whether a check may report "in progress" without driving the connection. hawser_test() does the ready work of
 * the whole connection, which costs a system call. If many requests are checked in turn, one call every drive_ns serves
 * all of them, and each request recognizes its own end by its confirmed bytes. A failure confirms no bytes, so look_ns
 * bounds the time until a failure is detected. */
bool Request::may_skip(uint64_t now)
{
    if (ops_.empty() || hawser_op_bytes(ops_[0]) == hawser_op_length(ops_[0]))
        return false;
    if (now - link_->driven_ns.load(std::memory_order_relaxed) >= drive_ns || now - looked_ns_ >= look_ns) {
        looked_ns_ = now;
        link_->driven_ns.store(now, std::memory_order_relaxed);
        return false;
    }
    return true;
}

nixl_status_t Request::check()
{
    switch (state_.load()) {
    case State::idle:
        return NIXL_ERR_NOT_POSTED;
    case State::waiting:
        return NIXL_IN_PROG;
    case State::done:
        return result_;
    default:
        break;
    }
    {
        std::unique_lock lock(mu_);
        if (may_skip(now_ns()))
            return NIXL_IN_PROG;
    }
    std::shared_lock link_lock(link_->mu);
    std::unique_lock lock(mu_);
    if (state_ == State::moving)
        advance();
    return state_ == State::done ? result_ : NIXL_IN_PROG;
}

void Request::leave_link()
{
    if (!link_)
        return;
    std::unique_lock link_lock(link_->mu);
    link_->posted.erase(this);
}

void Request::abandon()
{
    if (!link_)
        return;
    std::unique_lock link_lock(link_->mu);
    link_->posted.erase(this);
    auto &w = link_->waiting;
    w.erase(std::remove(w.begin(), w.end(), this), w.end());
    std::unique_lock lock(mu_);
    for (hawser_op *op : ops_)
        (void)hawser_cancel(op);
    for (hawser_op *op : ops_)
        agent_.keep_op(op);
    ops_.clear();
    result_ = NIXL_ERR_CANCELED;
    state_ = State::done;
}

} // namespace hx
