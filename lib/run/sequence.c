/* sequence - sequence parallelism: how ranks share the tokens of a step */
#include "lib/run/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/deal.h"

void sequence_init(struct sequence *s, struct comm *comm, struct link *link, int across)
{
    *s = (struct sequence){
        .comm = comm, .link = link, .across = across, .ring = comm->size / across
    };
}

void sequence_clear(struct sequence *s)
{
    if (s->packed)
        s->link->ops->release(s->link->device, s->packed);
    s->packed = NULL;
}

/* ---- rows ---- */

static struct share rows_of(const struct sequence *s, int rank)
{
    return deal_units(s->n, 1, s->comm->size, rank);
}

/* First rank of this rank's set of neighbours. */
static int neighbour(const struct sequence *s)
{
    return s->comm->rank / s->across * s->across;
}

void sequence_runs(const struct sequence *s, int place, struct rows_run run[ROWS_RUNS])
{
    const int chunk[ROWS_RUNS] = { place, 2 * s->ring - 1 - place };

    for (int i = 0; i < ROWS_RUNS; i++) {
        struct share rows = deal_units(s->n, 1, 2 * s->ring, chunk[i]);

        run[i] = (struct rows_run){ rows.start, rows.count };
    }
}

void sequence_place(const struct sequence *s, int place, size_t *first, size_t *count)
{
    struct share begin = rows_of(s, place * s->across);
    struct share end = rows_of(s, (place + 1) * s->across - 1);
    struct rows_run run[ROWS_RUNS];

    *first = begin.start;
    *count = end.start + end.count - begin.start;
    if (!s->trains)
        return;
    sequence_runs(s, place, run);
    *first = 0;
    *count = run[0].count + run[1].count;
}

/* The rows of RANK among those of its neighbours, for a step that is divided. */
static struct share within(const struct sequence *s, int rank)
{
    struct share rows = rows_of(s, rank);
    size_t first, count;

    sequence_place(s, rank / s->across, &first, &count);
    if (s->trains)
        return deal_units(count, 1, s->across, rank % s->across);
    rows.start -= first;
    return rows;
}

/* The rows of RANK, for a step that is divided. */
static void runs_of(const struct sequence *s, int rank, struct rows_run run[ROWS_RUNS])
{
    struct share rows = within(s, rank);
    size_t begin = rows.start, end = rows.start + rows.count, at = 0, first, count;

    if (s->trains) {
        sequence_runs(s, rank / s->across, run);
    } else {
        sequence_place(s, rank / s->across, &first, &count);
        run[0] = (struct rows_run){ first, count };
        run[1] = (struct rows_run){ first + count, 0 };
    }
    for (int i = 0; i < ROWS_RUNS; i++) { /* the run's rows are [at, over) of these */
        size_t over = at + run[i].count, low = begin > at ? begin : at;
        size_t high = end < over ? end : over;

        run[i].first += low < over ? low - at : 0;
        run[i].count = high > low ? high - low : 0;
        at = over;
    }
}

void sequence_begin(struct sequence *s, size_t n)
{
    struct share mine;

    s->n = n;
    s->shared = s->comm->size == 1 || (!s->trains && n < (size_t)s->comm->size);
    s->first = s->begin = 0;
    s->count = s->gathered = n;
    s->run[0] = (struct rows_run){ 0, n };
    s->run[1] = (struct rows_run){ n, 0 };
    if (s->shared)
        return;
    sequence_place(s, s->comm->rank / s->across, &s->begin, &s->gathered);
    mine = within(s, s->comm->rank);
    s->first = s->begin + mine.start;
    s->count = mine.count;
    runs_of(s, s->comm->rank, s->run);
}

size_t rows_run_meet(const struct rows_run *run, size_t before, size_t begin, size_t n,
                     size_t *place, size_t *first)
{
    size_t low = run->first > begin ? run->first : begin;
    size_t end = run->first + run->count, high = begin + n < end ? begin + n : end;

    *place = before + low - run->first;
    *first = low - begin;
    return low < high ? high - low : 0;
}

int64_t sequence_own(const struct sequence *s, size_t row)
{
    size_t at = 0;

    for (int i = 0; i < ROWS_RUNS; at += s->run[i++].count)
        if (row >= s->run[i].first && row < s->run[i].first + s->run[i].count)
            return (int64_t)(at + row - s->run[i].first);
    return -1;
}

size_t sequence_rows_most(const struct sequence *s, size_t tokens)
{
    size_t size = (size_t)s->comm->size, rows = (tokens + size - 1) / size;
    size_t shared = size - 1 < tokens ? size - 1 : tokens;

    if (s->trains)
        return (sequence_gathered_most(s, tokens) + (size_t)s->across - 1) /
               (size_t)s->across;
    return rows > shared ? rows : shared;
}

size_t sequence_gathered_most(const struct sequence *s, size_t tokens)
{
    size_t chunks = 2 * (size_t)s->ring, most;

    if (s->trains)
        most = s->ring == 1 ? tokens : (tokens + chunks - 1) / chunks * 2;
    else
        most = sequence_rows_most(s, tokens) * (size_t)s->across;
    return most < tokens ? most : tokens;
}

/* ---- heads ---- */

/* The heads of neighbour PART. */
static struct head_part part_of(const struct sequence *s, const struct head_part *all,
                                uint64_t per, int part)
{
    struct head_part h = *all;
    struct share group, within;

    deal_groups(h.groups, per, s->across, part, &group, &within);
    h.group_start = group.start;
    h.group_count = group.count;
    h.within_start = h.within == per ? within.start : 0;
    h.within_count = h.within == per ? within.count : h.within;
    return h;
}

struct head_part sequence_heads(const struct sequence *s, uint64_t groups, uint64_t per,
                                uint64_t within, uint64_t dim)
{
    struct head_part all = { .groups = groups, .within = within, .dim = dim };

    return part_of(s, &all, per, s->comm->rank % s->across);
}

uint64_t heads_cols(const struct head_part *h)
{
    return h->group_count * h->within_count * h->dim;
}

/* ---- communication ---- */

/* Runs OP on the heads H: this rank's rows of TO from FROM. */
static int copy_part(struct sequence *s, enum op op, const struct head_part *h,
                     float *to, const float *from, struct err *err)
{
    struct inst inst = {
        .op = op, .nsrc = 1, .weight = -1, .weight2 = -1, .heads = *h
    };
    uint64_t part = heads_cols(h), whole = h->groups * h->within * h->dim;
    bool pack = op == OP_HEADS_PACK;
    struct call call = { .inst = &inst };

    call.y =
        (struct buffer){ to, s->rows, s->count, pack ? part : whole, FORMAT_F32, 0 };
    call.x[0] = (struct buffer){ (void *)(uintptr_t)from, s->rows,    s->count,
                                 pack ? whole : part,     FORMAT_F32, 0 };
    return s->link->ops->kernel[op](s->link->device, &call, err);
}

/* Sets *out to device memory for N floats of one rank's part. */
static int room(struct sequence *s, size_t n, float **out, struct err *err)
{
    const struct backend *ops = s->link->ops;

    if (n * sizeof(float) > s->packed_bytes || !s->packed) {
        sequence_clear(s);
        s->packed_bytes = 0;
        s->grown++;
        s->packed =
            ops->alloc(s->link->device, n * sizeof(float), "an exchange of heads", err);
        if (!s->packed)
            return -1;
        s->packed_bytes = n * sizeof(float);
    }
    *out = s->packed;
    return 0;
}

static int send(struct sequence *s, const float *x, size_t n, int to, struct err *err)
{
    s->moved += n * sizeof(*x);
    return n == 0 ? 0 : link_send(s->link, s->comm, x, n * sizeof(*x), to, err);
}

static int receive(struct sequence *s, float *x, size_t n, int from, struct err *err)
{
    return n == 0 ? 0 : link_receive(s->link, s->comm, x, n * sizeof(*x), from, err);
}

/* Columns of the neighbour with the most heads. */
static size_t widest(const struct sequence *s, const struct head_part *h, uint64_t per)
{
    size_t most = 0;

    for (int i = 0; i < s->across; i++) {
        struct head_part part = part_of(s, h, per, i);

        most = heads_cols(&part) > most ? heads_cols(&part) : most;
    }
    return most;
}

void sequence_plan(struct sequence *s, const struct head_part *h, uint64_t per,
                   size_t tokens)
{
    uint64_t bytes = sequence_rows_most(s, tokens) * widest(s, h, per) * sizeof(float);

    if (s->across > 1 && bytes > s->most)
        s->most = bytes;
}

int sequence_open(struct sequence *s, struct err *err)
{
    float *packed;
    int ret = s->most ? room(s, s->most / sizeof(*packed), &packed, err) : 0;

    s->grown = 0;
    return ret;
}

int sequence_to_heads(struct sequence *s, const struct head_part *h, uint64_t per,
                      float *y, const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base;
    float *packed;

    if (s->shared || s->across == 1)
        return copy_part(s, OP_HEADS_PACK, h, y, x, err);
    if (room(s, s->count * widest(s, h, per), &packed, err) < 0)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct head_part part = part_of(s, h, per, to);

        if (copy_part(s, OP_HEADS_PACK, &part, packed, x, err) < 0 ||
            send(s, packed, s->count * heads_cols(&part), base + to, err) < 0)
            return -1;
    }
    for (int i = 0; i < s->across; i++) {
        struct share rows = within(s, base + i);
        float *at = y + rows.start * heads_cols(h);

        if (i == me ? copy_part(s, OP_HEADS_PACK, h, at, x, err) < 0
                    : receive(s, at, rows.count * heads_cols(h), base + i, err) < 0)
            return -1;
    }
    return 0;
}

int sequence_to_rows(struct sequence *s, const struct head_part *h, uint64_t per,
                     float *y, const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base;
    size_t cols = heads_cols(h);
    float *packed;

    if (s->across == 1)
        return copy_part(s, OP_HEADS_UNPACK, h, y, x, err);
    if (room(s, s->count * widest(s, h, per), &packed, err) < 0)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct share rows = within(s, base + to);
        size_t first = s->shared ? 0 : rows.start;
        size_t count = s->shared ? s->count : rows.count;

        if (send(s, x + first * cols, count * cols, base + to, err) < 0)
            return -1;
    }
    for (int i = 0; i < s->across; i++) {
        struct head_part part = part_of(s, h, per, i);
        const float *own = x + (s->shared ? 0 : within(s, s->comm->rank).start) * cols;

        if (i != me &&
            receive(s, packed, s->count * heads_cols(&part), base + i, err) < 0)
            return -1;
        if (copy_part(s, OP_HEADS_UNPACK, &part, y, i == me ? own : packed, err) < 0)
            return -1;
    }
    return 0;
}

/* The columns of neighbour PART, or ALIKE all of H. */
static struct head_part term_of(const struct sequence *s, const struct head_part *h,
                                uint64_t per, bool alike, int part)
{
    return alike ? *h : part_of(s, h, per, part);
}

/* Adds X, of this rank's rows, to the columns H of Y; TERM is room for as many. */
static int add_part(struct sequence *s, const struct head_part *h, float *y,
                    const float *x, float *term, struct err *err)
{
    struct inst inst = { .op = OP_ADD, .nsrc = 2, .weight = -1, .weight2 = -1 };
    struct call call = { .inst = &inst };

    if (copy_part(s, OP_HEADS_PACK, h, term, y, err) < 0)
        return -1;
    call.y = (struct buffer){ term, s->rows, s->count, heads_cols(h), FORMAT_F32, 0 };
    call.x[0] = call.x[1] = call.y;
    call.x[1].data = (void *)(uintptr_t)x;
    return s->link->ops->kernel[OP_ADD](s->link->device, &call, err) < 0
               ? -1
               : copy_part(s, OP_HEADS_UNPACK, h, y, term, err);
}

void sequence_plan_sum(struct sequence *s, const struct head_part *h, uint64_t per,
                       bool alike, size_t tokens)
{
    uint64_t cols = alike ? heads_cols(h) : widest(s, h, per);
    uint64_t bytes = sequence_rows_most(s, tokens) * cols * 2 * sizeof(float);

    if (s->across > 1 && bytes > s->most)
        s->most = bytes;
}

int sequence_sum_rows(struct sequence *s, const struct head_part *h, uint64_t per,
                      bool alike, float *y, const float *x, struct err *err)
{
    int base = neighbour(s), me = s->comm->rank - base;
    size_t cols = heads_cols(h), most = alike ? cols : widest(s, h, per);
    struct head_part last = { 0 };
    float *packed;

    if (s->across == 1)
        return copy_part(s, OP_HEADS_UNPACK, h, y, x, err);
    if (room(s, 2 * s->count * most, &packed, err) < 0)
        return -1;
    for (int i = 1; i < s->across; i++) {
        int to = (me + i) % s->across;
        struct share rows = within(s, base + to);

        if (send(s, x + rows.start * cols, rows.count * cols, base + to, err) < 0)
            return -1;
    }
    for (int i = 0; i < s->across; i++) {
        struct head_part part = term_of(s, h, per, alike, i);
        const float *term = i == me ? x + within(s, base + me).start * cols : packed;
        bool adds = i > 0 && (alike || (part.group_start == last.group_start &&
                                        part.within_start == last.within_start));

        if (i != me &&
            receive(s, packed, s->count * heads_cols(&part), base + i, err) < 0)
            return -1;
        if ((adds ? add_part(s, &part, y, term, packed + s->count * most, err)
                  : copy_part(s, OP_HEADS_UNPACK, &part, y, term, err)) < 0)
            return -1;
        last = part;
    }
    return 0;
}

int sequence_collect(struct sequence *s, float *y, const float *x, size_t cols,
                     struct err *err)
{
    struct comm *c = s->comm;
    struct rows_run run[ROWS_RUNS];

    for (int i = 0; i < ROWS_RUNS; x += s->run[i++].count * cols) {
        const size_t bytes = s->run[i].count * cols * sizeof(*x);

        if (c->rank == 0 && bytes)
            memcpy(y + s->run[i].first * cols, x, bytes);
        else if (bytes && c->ops->send(c, x, bytes, 0, err) < 0)
            return -1;
    }
    for (int r = 1; r < c->size && c->rank == 0; r++) {
        runs_of(s, r, run);
        for (int i = 0; i < ROWS_RUNS; i++)
            if (run[i].count &&
                c->ops->receive(c, y + run[i].first * cols,
                                run[i].count * cols * sizeof(*y), r, err) < 0)
                return -1;
    }
    return 0;
}

int sequence_scatter(struct sequence *s, float *y, const float *x, size_t cols,
                     struct err *err)
{
    struct comm *c = s->comm;
    struct rows_run run[ROWS_RUNS];

    for (int r = 1; r < c->size && c->rank == 0; r++) {
        runs_of(s, r, run);
        for (int i = 0; i < ROWS_RUNS; i++)
            if (run[i].count &&
                c->ops->send(c, x + run[i].first * cols,
                             run[i].count * cols * sizeof(*x), r, err) < 0)
                return -1;
    }
    for (int i = 0; i < ROWS_RUNS; y += s->run[i++].count * cols) {
        const size_t bytes = s->run[i].count * cols * sizeof(*y);

        if (c->rank == 0 && bytes)
            memcpy(y, x + s->run[i].first * cols, bytes);
        else if (bytes && c->ops->receive(c, y, bytes, 0, err) < 0)
            return -1;
    }
    return 0;
}
