/* plan - one step of a replica, as rank 0 has decided it */
#include "lib/run/plan.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* How a plan travels: a head, the parts, the changes, the picks, the edits, the ids
 * that are possible, the numbers of each part's arrays; or the head and a failure. Each
 * begins at a multiple of 8 bytes. */
struct head {
    uint64_t bytes; /* in all */
    uint32_t kind, n, nchanges, npicks, nedits, nallowed;
};

/* The arrays of a segment are its inputs and its labels; their numbers have four
 * bytes. */
enum { TARGETS = FEEDS_MOST, ARRAYS, NUMBER = 4, UNIT = 8 };

struct sent {
    struct plan_part part;
    uint64_t n, start, length, sequence;
    uint64_t rows[ROWS_MOST];
    uint32_t arrays; /* a set of 1 << index */
    int32_t adapter;
};

void plan_clear(struct plan *p)
{
    free(p->part);
    free(p->segment);
    free(p->change);
    free(p->pick);
    free(p->edit);
    free(p->allowed);
    free(p->wanted);
    free(p->draw);
    free(p->bytes);
    *p = (struct plan){ 0 };
}

void plan_reset(struct plan *p)
{
    p->kind = PLAN_STEP;
    p->n = p->nchanges = p->npicks = p->nedits = p->nallowed = p->nbytes = 0;
}

void plan_add(struct plan *p, const struct plan_part *part, const struct segment *s)
{
    p->part = xgrow(p->part, &p->cap_part, p->n + 1, sizeof(*p->part));
    p->segment = xgrow(p->segment, &p->cap_segment, p->n + 1, sizeof(*p->segment));
    p->part[p->n] = *part;
    p->part[p->n].first = p->n ? p->part[p->n - 1].first + p->part[p->n - 1].npicks : 0;
    p->part[p->n].npicks = p->npicks - p->part[p->n].first;
    p->segment[p->n++] = *s;
}

void plan_change(struct plan *p, struct plan_change change)
{
    p->change = xgrow(p->change, &p->cap_changes, p->nchanges + 1, sizeof(*p->change));
    p->change[p->nchanges++] = change;
}

static void add_edits(struct plan *p, const struct edit *v, size_t n)
{
    if (!n)
        return;
    p->edit = xgrow(p->edit, &p->cap_edits, p->nedits + n, sizeof(*p->edit));
    memcpy(p->edit + p->nedits, v, n * sizeof(*v));
    p->nedits += n;
}

static void add_allowed(struct plan *p, const uint32_t *v, size_t n)
{
    if (!n)
        return;
    p->allowed =
        xgrow(p->allowed, &p->cap_allowed, p->nallowed + n, sizeof(*p->allowed));
    memcpy(p->allowed + p->nallowed, v, n * sizeof(*v));
    p->nallowed += n;
}

struct pick_edits plan_edits(const struct plan *p, const struct plan_pick *pick)
{
    return (struct pick_edits){ .v = p->edit + pick->edit,
                                .n = (size_t)pick->nedits,
                                .allowed =
                                    pick->nallowed ? p->allowed + pick->allowed : NULL,
                                .words = (size_t)pick->nallowed };
}

void plan_pick(struct plan *p, const struct plan_pick *pick,
               const struct pick_edits *edits)
{
    p->pick = xgrow(p->pick, &p->cap_picks, p->npicks + 1, sizeof(*p->pick));
    memset(&p->pick[p->npicks], 0, sizeof(*p->pick)); /* all of it travels */
    p->pick[p->npicks].row = pick->row;
    p->pick[p->npicks].known = pick->known;
    p->pick[p->npicks].pick = pick->pick;
    p->pick[p->npicks].edit = p->nedits;
    p->pick[p->npicks].nedits = edits->n;
    p->pick[p->npicks].allowed = p->nallowed;
    p->pick[p->npicks++].nallowed = edits->allowed ? edits->words : 0;
    add_edits(p, edits->v, edits->n);
    add_allowed(p, edits->allowed, edits->allowed ? edits->words : 0);
}

const struct segment *plan_segments(struct plan *p)
{
    p->wanted = xgrow(p->wanted, &p->cap_wanted, p->npicks + 1, sizeof(*p->wanted));
    p->draw = xgrow(p->draw, &p->cap_draws, p->npicks + 1, sizeof(*p->draw));
    for (size_t i = 0; i < p->npicks; i++) {
        p->wanted[i] = p->pick[i].row;
        p->draw[i] = p->pick[i].pick.draw;
    }
    for (size_t i = 0; i < p->n; i++) {
        const struct plan_part *part = &p->part[i];

        p->segment[i].wanted = p->wanted + part->first;
        p->segment[i].nwanted = (size_t)part->npicks;
        p->segment[i].save = part->save;
        p->segment[i].nsaves = (size_t)part->nsaves;
        p->segment[i].draw = part->draws ? p->draw + part->first : NULL;
    }
    return p->segment;
}

/* ---- as bytes ---- */

static const void *array_of(const struct segment *s, size_t i)
{
    return i == TARGETS ? s->targets : s->input[i];
}

static size_t bytes_of(const struct segment *s, size_t i, const struct runner *r)
{
    const struct program_input *in = &r->program->input[i == TARGETS ? FEED_IDS : i];
    size_t rows = s->rows[in->rows];

    if (in->rows == ROWS_TOKENS && (in == &r->program->input[FEED_IDS] || !rows))
        rows = s->n;
    return NUMBER * rows * in->feed->axis.size;
}

/* Appends X[bytes]. */
static void put(struct plan *p, const void *x, size_t bytes)
{
    size_t end = p->nbytes + (bytes + UNIT - 1) / UNIT * UNIT;

    p->bytes = xgrow(p->bytes, &p->cap_bytes, end + UNIT, 1);
    if (bytes)
        memcpy(p->bytes + p->nbytes, x, bytes);
    memset(p->bytes + p->nbytes + bytes, 0, end - p->nbytes - bytes);
    p->nbytes = end;
}

/* Takes the next BYTES bytes from *at on. */
static const void *take(const struct plan *p, size_t *at, size_t bytes)
{
    const void *x = p->bytes + *at;

    *at += (bytes + UNIT - 1) / UNIT * UNIT;
    return x;
}

static void pack(struct plan *p, const struct runner *r)
{
    struct head head = { .kind = (uint32_t)p->kind,
                         .n = (uint32_t)p->n,
                         .nchanges = (uint32_t)p->nchanges,
                         .npicks = (uint32_t)p->npicks,
                         .nedits = (uint32_t)p->nedits,
                         .nallowed = (uint32_t)p->nallowed };

    p->nbytes = 0;
    put(p, &head, sizeof(head));
    if (p->kind == PLAN_FAILED)
        put(p, &p->failure, sizeof(p->failure));
    for (size_t i = 0; i < head.n; i++) {
        const struct segment *s = &p->segment[i];
        struct sent sent;

        memset(&sent, 0, sizeof(sent)); /* what lies between members travels, too */
        sent.part = p->part[i];
        sent.n = s->n;
        sent.start = s->start;
        sent.length = s->length;
        sent.sequence = s->sequence;
        sent.adapter = s->adapter;
        for (int k = 0; k < ROWS_MOST; k++)
            sent.rows[k] = s->rows[k];
        for (size_t k = 0; k < ARRAYS; k++)
            sent.arrays |= array_of(s, k) ? 1U << k : 0;
        put(p, &sent, sizeof(sent));
    }
    put(p, p->change, head.nchanges * sizeof(*p->change));
    put(p, p->pick, head.npicks * sizeof(*p->pick));
    put(p, p->edit, head.nedits * sizeof(*p->edit));
    put(p, p->allowed, head.nallowed * sizeof(*p->allowed));
    for (size_t i = 0; i < head.n; i++)
        for (size_t k = 0; k < ARRAYS; k++)
            if (array_of(&p->segment[i], k))
                put(p, array_of(&p->segment[i], k), bytes_of(&p->segment[i], k, r));
    head.bytes = p->nbytes;
    memcpy(p->bytes, &head, sizeof(head));
}

static void unpack(struct plan *p, const struct runner *r)
{
    const struct head *head;
    size_t at = 0, parts;

    head = take(p, &at, sizeof(*head));
    p->kind = (enum plan_kind)head->kind;
    if (p->kind == PLAN_FAILED)
        memcpy(&p->failure, take(p, &at, sizeof(p->failure)), sizeof(p->failure));
    parts = at;
    for (uint32_t i = 0; i < head->n; i++) {
        const struct sent *sent = take(p, &at, sizeof(*sent));
        struct segment s = { .n = sent->n,
                             .start = sent->start,
                             .length = sent->length,
                             .sequence = sent->sequence,
                             .adapter = sent->adapter };

        for (int k = 0; k < ROWS_MOST; k++)
            s.rows[k] = (size_t)sent->rows[k];
        p->npicks += sent->part.npicks;
        plan_add(p, &sent->part, &s);
    }
    for (uint32_t i = 0; i < head->nchanges; i++) {
        struct plan_change change;

        memcpy(&change, take(p, &at, sizeof(change)), sizeof(change));
        plan_change(p, change);
    }
    p->pick = xgrow(p->pick, &p->cap_picks, p->npicks + 1, sizeof(*p->pick));
    memcpy(p->pick, take(p, &at, head->npicks * sizeof(*p->pick)),
           head->npicks * sizeof(*p->pick));
    add_edits(p, take(p, &at, head->nedits * sizeof(*p->edit)), head->nedits);
    add_allowed(p, take(p, &at, head->nallowed * sizeof(*p->allowed)), head->nallowed);
    for (size_t i = 0; i < p->n; i++) {
        const struct sent *sent = take(p, &parts, sizeof(*sent));

        for (size_t k = 0; k < ARRAYS; k++)
            if (sent->arrays & 1U << k) {
                const void *v = take(p, &at, bytes_of(&p->segment[i], k, r));

                if (k == TARGETS)
                    p->segment[i].targets = v;
                else
                    p->segment[i].input[k] = v;
            }
    }
}

/* ---- to the ranks ---- */

/* Sends the bytes to the other ranks of C. */
static int send_group(const struct plan *p, struct comm *c, struct err *err)
{
    for (int to = 1; to < c->size; to++)
        if (c->ops->send(c, p->bytes, p->nbytes, to, err) < 0)
            return -1;
    return 0;
}

/* From the first rank of a stage to the others: to the first of each tensor group, and
 * from there. */
static int pass_on(const struct plan *p, const struct runner *r, struct err *err)
{
    if (r->groups.tensor->rank > 0)
        return 0;
    if (r->groups.sequence->rank == 0 && send_group(p, r->groups.sequence, err) < 0)
        return -1;
    return send_group(p, r->groups.tensor, err);
}

int plan_send(struct plan *p, struct runner *r, int replica, struct err *err)
{
    if (r->world->size == 1)
        return 0;
    pack(p, r);
    for (int stage = 0; stage < r->nstages; stage++)
        if (runner_send_down(r, replica, stage, p->bytes, p->nbytes, err) < 0)
            return -1;
    return replica == r->replica ? pass_on(p, r, err) : 0;
}

int plan_receive(struct plan *p, struct runner *r, struct err *err)
{
    struct comm *from = r->groups.tensor->rank     ? r->groups.tensor
                        : r->groups.sequence->rank ? r->groups.sequence
                                                   : r->world;
    struct head head;

    plan_reset(p);
    if (from->ops->receive(from, &head, sizeof(head), 0, err) < 0)
        return -1;
    p->bytes = xgrow(p->bytes, &p->cap_bytes, head.bytes + UNIT, 1);
    p->nbytes = head.bytes;
    memcpy(p->bytes, &head, sizeof(head));
    if (head.bytes > sizeof(head) &&
        from->ops->receive(from, p->bytes + sizeof(head), head.bytes - sizeof(head), 0,
                           err) < 0)
        return -1;
    unpack(p, r);
    return pass_on(p, r, err);
}
