/* feeds - the inputs of a step in device memory */
#include "lib/run/feeds.h"

#include <string.h>

/* ---- rows ---- */

void segment_cut(struct segment *s, const struct program *p,
                 const void *const input[FEEDS_MOST], const size_t rows[ROWS_MOST],
                 size_t done)
{
    size_t known = rows[ROWS_TOKENS];

    for (int i = 0; i < p->ninputs; i++) {
        const struct program_input *in = &p->input[i];
        bool by_token = in->rows == ROWS_TOKENS;

        s->input[i] = NULL;
        if (!input[i] || (!by_token && done) ||
            (by_token && i != FEED_IDS && known && done >= known))
            continue;
        s->input[i] = (const char *)input[i] +
                      done * (by_token ? in->feed->axis.size : 0) * sizeof(int32_t);
    }
    memset(s->rows, 0, sizeof(s->rows));
    if (!done)
        memcpy(s->rows, rows, sizeof(s->rows));
    s->rows[ROWS_TOKENS] = known > done && known - done < s->n ? known - done : 0;
}

void segment_source(struct segment *s, const struct program *p, const int32_t *ids,
                    size_t n)
{
    s->input[FEED_SOURCE] = ids;
    rows_source(&p->rows, s->rows, n);
}

void segment_count(const struct segment *s, const struct program *p,
                   size_t rows[ROWS_MOST])
{
    memcpy(rows, s->rows, sizeof(s->rows));
    rows[ROWS_TOKENS] = s->n;
    rows_count(&p->rows, rows);
    rows[ROWS_WANTED] = s->nwanted;
}

/* Counts the rows of all segments, and of this rank. */
static void count_rows(struct feeds *f, const struct segment *s, size_t n,
                       struct feeds_part *part)
{
    size_t all[ROWS_MOST] = { 0 };

    for (size_t i = 0; i < n; i++) {
        segment_count(&s[i], f->p, part[i].rows);
        for (int k = 0; k < f->p->rows.n; k++) {
            part[i].first[k] = all[k];
            all[k] += part[i].rows[k];
        }
    }
    sequence_begin(f->tokens, all[ROWS_TOKENS]);
    sequence_begin(f->source, all[ROWS_SOURCE]);
    memcpy(f->rows, all, sizeof(all));
    f->rows[ROWS_TOKENS] = f->tokens->count;
    f->rows[ROWS_SOURCE] = f->source->count;
    f->rows[ROWS_TABLE] = (size_t)f->p->rows.v[ROWS_TABLE].bound;
    for (int k = ROWS_OWN; k < f->p->rows.n; k++)
        if (f->p->rows.v[k].how == HOW_SHARE)
            f->rows[k] =
                (size_t)rows_share(&f->p->rows, k, f->rows[f->p->rows.v[k].parent])
                    .count;
}

/* ---- the upload buffer ---- */

static void add_offsets(struct feeds *f, size_t n)
{
    struct feeds_offsets *o = &f->at;
    struct upload *u = f->upload;
    size_t unit = sizeof(int32_t);

    for (int k = 0; k < f->p->rows.n; k++) {
        int32_t rows = (int32_t)f->rows[k];

        o->rows[k] = upload_add(u, &rows, 1, unit);
        o->first[k] = upload_add(u, NULL, n, unit);
    }
    for (int i = 0; i < f->p->ninputs; i++)
        if (f->p->input[i].read)
            o->input[i] = upload_add(
                u, NULL, f->room[f->p->input[i].rows] * f->p->input[i].feed->axis.size,
                unit);
    for (int k = 0; k <= ROWS_ONE; k++)
        o->target[k] = upload_add(u, NULL, f->room[k], unit);
    o->length = upload_add(u, NULL, f->room[ROWS_TOKENS], unit);
    o->output = upload_add(u, NULL, f->room[ROWS_WANTED], unit);
    o->draw = upload_add(u, NULL, f->room[ROWS_WANTED], sizeof(struct draw));
    o->factor = upload_add(u, f->factor, STEP_FACTORS, sizeof(f->factor[0]));
    o->token[ROWS_TOKENS] = upload_add(u, NULL, f->room[ROWS_TOKENS], sizeof(uint64_t));
    if (f->p->nforward < f->p->ninsts) {
        o->token[ROWS_ONE] = upload_add(u, NULL, f->room[ROWS_ONE], sizeof(uint64_t));
        o->token[ROWS_SOURCE] =
            upload_add(u, NULL, f->room[ROWS_SOURCE], sizeof(uint64_t));
    }
    o->seed = upload_add(u, &f->seed, 1, sizeof(f->seed));
    if (f->p->nforward < f->p->ninsts)
        o->weight = upload_add(u, NULL, f->room[ROWS_TOKENS], sizeof(float));
}

void feeds_plan(struct feeds *f, const uint64_t most[ROWS_MOST], size_t segments)
{
    for (int k = 0; k < f->p->rows.n; k++)
        f->rows[k] = (size_t)most[k];
    f->rows[ROWS_TABLE] = (size_t)f->p->rows.v[ROWS_TABLE].bound;
    memcpy(f->room, f->rows, sizeof(f->room));
    add_offsets(f, segments);
}

void feeds_ready(struct feeds *f)
{
    const struct upload *u = f->upload;
    const struct feeds_offsets *o = &f->at;

    for (int k = 0; k < f->p->rows.n; k++) {
        f->view.rows[k] = upload_at(u, o->rows[k]);
        f->view.first[k] = upload_at(u, o->first[k]);
    }
    for (int i = 0; i < f->p->ninputs; i++)
        if (f->p->input[i].read)
            f->view.input[i] = upload_at(u, o->input[i]);
    for (int k = 0; k <= ROWS_ONE; k++)
        f->view.target[k] = upload_at(u, o->target[k]);
    f->view.length = upload_at(u, o->length);
    f->view.output = upload_at(u, o->output);
    f->view.draw = upload_at(u, o->draw);
    f->view.factor = upload_at(u, o->factor);
    f->view.token[ROWS_TOKENS] = upload_at(u, o->token[ROWS_TOKENS]);
    for (int k = ROWS_ONE; k <= ROWS_SOURCE && f->p->nforward < f->p->ninsts; k++)
        f->view.token[k] = upload_at(u, o->token[k]);
    for (int k = ROWS_OWN; k < f->p->rows.n; k++)
        if (f->p->rows.v[k].how == HOW_SHARE)
            f->view.token[k] =
                f->view.token[f->p->rows.v[k].parent] +
                rows_share(&f->p->rows, k, f->rows[f->p->rows.v[k].parent]).start;
    f->view.seed = upload_at(u, o->seed);
    if (f->p->nforward < f->p->ninsts)
        f->view.weight = upload_at(u, o->weight);
}

/* ---- inputs ---- */

/* Rows [first, first + n) of a segment go to the rows from TO on. */
struct span {
    size_t to, first, n;
};

/* How ranks share the rows of space ROWS; NULL: they do not. */
static const struct sequence *sharing_of(const struct feeds *f, int rows)
{
    return rows == ROWS_TOKENS ? f->tokens : rows == ROWS_SOURCE ? f->source : NULL;
}

/* This rank's rows of the segment PART that are in its run I; some may be empty. */
static struct span span_of(const struct feeds *f, const struct feeds_part *part,
                           int rows, int i)
{
    const struct sequence *s = sharing_of(f, rows);
    struct span span = { part->first[rows], 0, i ? 0 : part->rows[rows] };
    size_t before = 0;

    if (!s || s->comm->size == 1)
        return span;
    for (int k = 0; k < i; k++)
        before += s->run[k].count;
    span.n = rows_run_meet(&s->run[i], before, part->first[rows], part->rows[rows],
                           &span.to, &span.first);
    return span;
}

/* Place of token AT among those that have the same two numbers of input OF. */
static int32_t place_among(const struct program *p, const struct segment *s,
                           const struct model_feed *f, size_t at)
{
    size_t cols = p->input[f->of].feed->axis.size, first = 0;
    size_t a = (size_t)f->column[0], b = (size_t)f->column[1];
    const int32_t *x = s->input[f->of], *own;

    if (!x || (s->rows[ROWS_TOKENS] && at >= s->rows[ROWS_TOKENS]))
        return (int32_t)(s->start + at);
    own = x + at * cols;
    while (x[first * cols + a] != own[a] || x[first * cols + b] != own[b])
        first++;
    return (int32_t)(at - first);
}

/* Fills Y with what is there for the rows of SPAN of segment S. */
static void fill(int32_t *y, const struct program *p, const struct segment *s,
                 const struct model_feed *f, struct span span)
{
    const int32_t *ids = s->input[FEED_IDS];
    bool tokens = !strcmp(f->rows, p->rows.v[ROWS_TOKENS].name);
    size_t start = tokens ? s->start : 0, separator = 0;

    if (f->fill == FILL_BEFORE || f->fill == FILL_AFTER)
        while (separator < s->n && ids[separator] != f->separator)
            separator++;
    for (size_t i = 0; i < span.n; i++) {
        size_t at = span.first + i;

        switch (f->fill) {
        case FILL_ZERO:
        case FILL_CHOSEN: /* not one number a row: put_chosen */
            y[i] = 0;
            break;
        case FILL_POSITION:
            y[i] = (int32_t)(start + at);
            break;
        case FILL_FIRST:
            y[i] = start + at == 0;
            break;
        case FILL_BEFORE:
            y[i] = separator < s->n && at < separator;
            break;
        case FILL_AFTER:
            y[i] = at >= separator + 2;
            break;
        case FILL_ALIKE:
            y[i] = place_among(p, s, f, at);
            break;
        }
    }
}

/* The rows of SPAN, of COLS columns each, of a text that chooses adapter CHOSEN. */
static void put_chosen(float *y, struct span span, size_t cols, int chosen)
{
    memset(y, 0, span.n * cols * sizeof(*y));
    for (size_t i = 0; chosen && i < span.n; i++)
        y[i * cols + (size_t)chosen - 1] = 1;
}

/* Copies or fills in the rows of SPAN of input I of segment S. */
static void put_span(struct feeds *f, int i, const struct segment *s, struct span span)
{
    const struct program_input *in = &f->p->input[i];
    size_t cols = in->feed->axis.size, known = span.n;
    int32_t *y = (int32_t *)upload_host(f->upload, f->at.input[i]) + span.to * cols;

    if (in->feed->fill == FILL_CHOSEN) {
        put_chosen((float *)y, span, cols, s->adapter);
        return;
    }
    if (in->rows == ROWS_TOKENS && i != FEED_IDS && s->rows[ROWS_TOKENS])
        known = s->rows[ROWS_TOKENS] <= span.first ? 0
                : s->rows[ROWS_TOKENS] - span.first < span.n
                    ? s->rows[ROWS_TOKENS] - span.first
                    : span.n;
    if (!s->input[i])
        known = 0;
    if (known)
        memcpy(y, (const int32_t *)s->input[i] + span.first * cols,
               known * cols * sizeof(*y));
    span.first += known;
    span.n -= known;
    if (cols == 1)
        fill(y + known, f->p, s, in->feed, span);
    else
        memset(y + known * cols, 0, span.n * cols * sizeof(*y));
}

/* Copies or fills in this rank's rows of input I of segment S. */
static void put_input(struct feeds *f, int i, const struct segment *s,
                      const struct feeds_part *part)
{
    for (int k = 0; k < ROWS_RUNS; k++)
        put_span(f, i, s, span_of(f, part, f->p->input[i].rows, k));
}

/* Converts row ROW of the step to a row of this rank.  -1: it is on another rank, as
 * all are but on the first one if they are replicated. */
static int32_t own_row(const struct sequence *s, size_t row)
{
    if (s->comm->size == 1)
        return (int32_t)row;
    return s->comm->rank && s->shared ? -1 : (int32_t)sequence_own(s, row);
}

/* By what rows that are no tokens are dropped. */
static void put_tokens(struct feeds *f, const struct segment *s,
                       const struct feeds_part *part)
{
    uint64_t *source = upload_host(f->upload, f->at.token[ROWS_SOURCE]);
    uint64_t *one = upload_host(f->upload, f->at.token[ROWS_ONE]);

    one[part->first[ROWS_ONE]] = s->token;
    for (int k = 0; k < ROWS_RUNS; k++) {
        const struct span span = span_of(f, part, ROWS_SOURCE, k);

        for (size_t i = 0; i < span.n; i++)
            source[span.to + i] = s->token + span.first + i;
    }
}

/* What a segment has besides inputs: its labels, and its output rows. */
static void put_outputs(struct feeds *f, const struct segment *s,
                        const struct feeds_part *part)
{
    struct upload *u = f->upload;
    size_t wanted = part->first[ROWS_WANTED];
    int32_t *length = upload_host(u, f->at.length);
    int32_t *target = upload_host(u, f->at.target[ROWS_TOKENS]);
    int32_t *taken = upload_host(u, f->at.output);
    int32_t *taken_target = upload_host(u, f->at.target[ROWS_WANTED]);
    struct draw *draw = upload_host(u, f->at.draw);
    int32_t *whole = upload_host(u, f->at.target[ROWS_ONE]);
    uint64_t *token = upload_host(u, f->at.token[ROWS_TOKENS]);

    whole[part->first[ROWS_ONE]] = s->targets && s->n ? s->targets[s->n - 1] : -1;
    for (int k = 0; k < ROWS_RUNS; k++) {
        const struct span span = span_of(f, part, ROWS_TOKENS, k);

        for (size_t i = 0; i < span.n; i++) {
            size_t at = span.first + i;

            length[span.to + i] = (int32_t)(s->length ? s->length : s->start + s->n);
            token[span.to + i] = s->token + at;
            target[span.to + i] = s->targets ? s->targets[at] : -1;
        }
    }
    if (f->p->nforward < f->p->ninsts)
        put_tokens(f, s, part);
    for (size_t i = 0; i < s->nwanted; i++) {
        taken[wanted + i] =
            own_row(f->tokens, part->first[ROWS_TOKENS] + (size_t)s->wanted[i]);
        taken_target[wanted + i] = s->targets ? s->targets[s->wanted[i]] : -1;
        if (s->draw)
            draw[wanted + i] = s->draw[i];
    }
}

/* N, rounded up to one of few numbers. */
static size_t round_up(size_t n)
{
    size_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

/* The rows that the step is launched for; kernels find in device memory how many there
 * are. */
static void find_room(struct feeds *f, const uint64_t *most)
{
    static const int spaces[] = { ROWS_TOKENS, ROWS_WANTED, ROWS_ONE };

    memcpy(f->room, f->rows, sizeof(f->room));
    for (size_t i = 0; most && i < sizeof(spaces) / sizeof(*spaces); i++) {
        int k = spaces[i];
        size_t n = round_up(f->rows[k]);

        if (f->rows[k])
            f->room[k] = n < most[k] ? n : (size_t)most[k];
    }
}

void feeds_begin(struct feeds *f, const struct segment *s, size_t n,
                 const uint64_t *most, struct feeds_part *part)
{
    const struct program *p = f->p;
    int32_t *every;

    count_rows(f, s, n, part);
    find_room(f, most);
    add_offsets(f, most ? f->room[ROWS_ONE] : n);
    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k < p->rows.n; k++) {
            int32_t *first = upload_host(f->upload, f->at.first[k]);

            first[i] = sharing_of(f, k) ? own_row(sharing_of(f, k), part[i].first[k])
                                        : (int32_t)part[i].first[k];
        }
        for (int k = 0; k < p->ninputs; k++)
            if (p->input[k].read && p->input[k].rows != ROWS_TABLE)
                put_input(f, k, &s[i], &part[i]);
        put_outputs(f, &s[i], &part[i]);
    }
    if (p->nforward < p->ninsts) {
        float *weight = upload_host(f->upload, f->at.weight);

        for (size_t i = 0; i < f->room[ROWS_TOKENS]; i++)
            weight[i] = 1;
    }
    every = p->input[FEED_EVERY].read ? upload_host(f->upload, f->at.input[FEED_EVERY])
                                      : NULL;
    for (size_t i = 0; every && i < f->rows[ROWS_TABLE]; i++)
        every[i] = (int32_t)i;
}
