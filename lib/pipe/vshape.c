/* vshape - schedules of V shape from repeated building blocks
 *
 * All passes take one step here.  The blocks are repeated, passes of weight gradients
 * fill the steps between; then each pass moves to the earliest free step where what it
 * needs is done and its rank holds no more than it did at most; at the end of each
 * rank, where no forward pass is left, input gradients go before those of weights. */
#include "lib/pipe/vshape.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* A rank's passes of a micro-batch, in the order in which it goes through them; and
 * gradients of weights, which are counted over both stages. */
enum pass { DOWN, UP, UP_INPUT, DOWN_INPUT, WEIGHTS, PASSES };

enum { PERIOD = 6, ROUNDS = 2 };

struct cell {
    int pass;  /* PASSES: none */
    int index; /* of the micro-batch; of WEIGHTS among those of the rank */
};

struct shape {
    int ranks, n, steps; /* n: micro-batches */
    struct cell *cell;   /* [ranks][steps] */
    int *held;           /* [steps]: chunks that a rank holds after a step */
    int *done;           /* [DOWN_INPUT + 1][ranks][n]: the step of a pass */
    int *input;          /* [ranks][2 n]: steps of input gradients, ascending */
    int *ninput;         /* [ranks] */
    int cap;             /* chunks */
};

static struct cell *at(const struct shape *s, int r, int step)
{
    return &s->cell[(size_t)r * (size_t)s->steps + (size_t)step];
}

static int *done(const struct shape *s, int pass, int r, int i)
{
    return &s->done[((size_t)pass * (size_t)s->ranks + (size_t)r) * (size_t)s->n +
                    (size_t)i];
}

static bool is_input(const struct cell *c)
{
    return c->pass == UP_INPUT || c->pass == DOWN_INPUT;
}

/* What a pass adds to what its rank holds. */
static int added(const struct cell *c)
{
    return c->pass < UP_INPUT ? 1 : c->pass == WEIGHTS ? -1 : 0;
}

/* The steps of rank R's passes in the first block (the authors' scheduler,
 * zbv_greedy.py). */
static void find_block(int block[WEIGHTS], enum vshape shape, int p, int r)
{
    int gap = shape == VSHAPE_MIN ? 2 * (p % 3 == 0) : 3 * (p % 2 == 0);

    if (shape == VSHAPE_MIN) {
        block[DOWN] = r;
        block[UP] = 2 * p - r - 1;
        block[UP_INPUT] = 2 * p + gap + r;
        block[DOWN_INPUT] = 4 * p + gap - r - 1;
        return;
    }
    block[DOWN] = 2 * r;
    block[UP] = 3 * p - r - 2;
    block[UP_INPUT] = 3 * p + gap + 2 * r - 1;
    block[DOWN_INPUT] = 6 * p + gap - r - 2;
}

/* Gives rank R's gradients of weights that are not there yet the free steps from FROM
 * on, each after its input gradient. */
static void add_weights(struct shape *s, int r, int from)
{
    int made = 0, due = 0;

    for (int step = 0; made < 2 * s->n; step++) {
        struct cell *c = at(s, r, step);

        if (is_input(c))
            due++;
        else if (c->pass == WEIGHTS)
            made++;
        else if (c->pass == PASSES && step >= from && made < due)
            *c = (struct cell){ WEIGHTS, made++ };
    }
}

/* Sets s->held of rank R; the most. */
static int find_held(struct shape *s, int r)
{
    int held = 0, most = 0;

    for (int step = 0; step < s->steps; step++) {
        held += added(at(s, r, step));
        s->held[step] = held;
        most = held > most ? held : most;
    }
    return most;
}

static void repeat(struct shape *s, enum vshape shape)
{
    for (int r = 0; r < s->ranks; r++) {
        int block[WEIGHTS], most;

        find_block(block, shape, s->ranks, r);
        for (int pass = 0; pass < WEIGHTS; pass++)
            for (int i = 0; i < s->n; i++)
                *at(s, r, block[pass] + PERIOD * i) = (struct cell){ pass, i };
        add_weights(s, r, 0);
        most = find_held(s, r);
        s->cap = most > s->cap ? most : s->cap;
    }
}

/* The pass that C on rank R waits for on another rank, or where the V turns: its step,
 * or -1: none. */
static int needed(const struct shape *s, const struct cell *c, int r)
{
    int last = s->ranks - 1, i = c->index;

    switch ((enum pass)c->pass) {
    case DOWN:
        return r ? *done(s, DOWN, r - 1, i) : -1;
    case UP:
        return r < last ? *done(s, UP, r + 1, i) : *done(s, DOWN, r, i);
    case UP_INPUT:
        return r ? *done(s, UP_INPUT, r - 1, i) : *done(s, UP, r, i);
    case DOWN_INPUT:
        return r < last ? *done(s, DOWN_INPUT, r + 1, i) : *done(s, UP_INPUT, r, i);
    case WEIGHTS:
    case PASSES:
        break;
    }
    return -1;
}

/* The last step before which C cannot begin. */
static int earliest(const struct shape *s, const struct cell *c, int r)
{
    int step = needed(s, c, r), before;

    if (c->pass == WEIGHTS)
        return s->input[(size_t)r * 2 * (size_t)s->n + (size_t)c->index];
    if (c->pass > DOWN) {
        before = *done(s, c->pass - 1, r, c->index);
        step = before > step ? before : step;
    }
    if (c->index > 0) {
        before = *done(s, c->pass, r, c->index - 1);
        step = before > step ? before : step;
    }
    return step;
}

static void note_done(struct shape *s, const struct cell *c, int r, int step)
{
    int *input = &s->input[(size_t)r * 2 * (size_t)s->n], k;

    if (c->pass == WEIGHTS)
        return;
    *done(s, c->pass, r, c->index) = step;
    if (!is_input(c))
        return;
    for (k = s->ninput[r]++; k > 0 && input[k - 1] > step; k--)
        input[k] = input[k - 1];
    input[k] = step;
}

/* Moves every pass forward as far as it can go. */
static void move_all(struct shape *s)
{
    size_t all = (size_t)s->ranks * (size_t)s->steps;
    int *held = xcalloc(all, sizeof(*held)), *own = s->held;

    for (int r = 0; r < s->ranks; r++) {
        s->held = held + (size_t)r * (size_t)s->steps;
        find_held(s, r);
    }
    s->held = own;
    memset(s->ninput, 0, (size_t)s->ranks * sizeof(*s->ninput));
    for (int step = 0; step < s->steps; step++)
        for (int r = 0; r < s->ranks; r++) {
            int *mine = held + (size_t)r * (size_t)s->steps;
            struct cell c = *at(s, r, step);
            int to = step, first, most = 0;

            if (c.pass == PASSES)
                continue;
            first = earliest(s, &c, r);
            for (int k = step - 1; k > first; k--) {
                most = mine[k] > most ? mine[k] : most;
                if (added(&c) > 0 && most + 1 > s->cap)
                    break;
                if (at(s, r, k)->pass == PASSES)
                    to = k;
            }
            at(s, r, step)->pass = PASSES;
            *at(s, r, to) = c;
            for (int k = to; k < step; k++)
                mine[k] += added(&c);
            note_done(s, &c, r, to);
        }
    free(held);
}

/* Keeps the order of each rank's passes, and begins each as soon as it can. */
static void squeeze(struct shape *s)
{
    size_t all = (size_t)s->ranks * (size_t)s->steps;
    struct cell *was = s->cell;
    int *next = xcalloc((size_t)s->ranks * 2, sizeof(*next)), *now = next + s->ranks;
    bool more = true;

    s->cell = xmalloc(all * sizeof(*s->cell));
    for (size_t i = 0; i < all; i++)
        s->cell[i] = (struct cell){ PASSES, 0 };
    memset(s->done, -1,
           (size_t)WEIGHTS * (size_t)s->ranks * (size_t)s->n * sizeof(int));
    while (more) {
        more = false;
        for (int r = 0; r < s->ranks; r++)
            for (; next[r] < s->steps; next[r]++) {
                const struct cell *c =
                    &was[(size_t)r * (size_t)s->steps + (size_t)next[r]];
                int first;

                if (c->pass == PASSES)
                    continue;
                first = needed(s, c, r);
                if (first < 0 && c->pass != WEIGHTS && (c->pass != DOWN || r))
                    break;
                now[r] = first + 1 > now[r] ? first + 1 : now[r];
                if (c->pass != WEIGHTS)
                    *done(s, c->pass, r, c->index) = now[r];
                *at(s, r, now[r]++) = *c;
                more = true;
            }
    }
    free(was);
    free(next);
}

/* The step of rank R's last forward pass. */
static int last_forward(const struct shape *s, int r)
{
    int step = s->steps - 1;

    while (at(s, r, step)->pass > UP)
        step--;
    return step;
}

/* Behind its last forward pass a rank's input gradients go first. */
static void end_early(struct shape *s)
{
    for (int r = 0; r < s->ranks; r++)
        for (int step = last_forward(s, r) + 1; step < s->steps; step++)
            if (at(s, r, step)->pass == WEIGHTS)
                at(s, r, step)->pass = PASSES;
    squeeze(s);
    move_all(s);
    squeeze(s);
    for (int r = 0; r < s->ranks; r++)
        add_weights(s, r, last_forward(s, r) + 1);
    squeeze(s);
}

/* Rank R's passes in order; gradients of weights follow those of inputs. */
static void write_row(struct action_table *t, const struct shape *s, int r)
{
    static const enum action_kind kinds[] = { ACTION_FORWARD, ACTION_FORWARD,
                                              ACTION_INPUT, ACTION_INPUT };
    struct cell *late = xcalloc((size_t)s->n * 2, sizeof(*late));
    int nlate = 0;

    for (int step = 0; step < s->steps; step++) {
        const struct cell *c = at(s, r, step), *of = c;
        enum action_kind kind = ACTION_WEIGHT;

        if (c->pass == PASSES)
            continue;
        if (is_input(c))
            late[nlate++] = *c;
        if (c->pass == WEIGHTS)
            of = &late[c->index];
        else
            kind = kinds[c->pass];
        action_add(t, r, kind,
                   of->pass == DOWN || of->pass == DOWN_INPUT ? r : t->stages - 1 - r,
                   of->index);
    }
    free(late);
}

void vshape_make(struct action_table *t, enum vshape shape)
{
    size_t p = (size_t)t->ranks, n = (size_t)t->micro_batches, all;
    struct shape s = { .ranks = t->ranks, .n = t->micro_batches };

    s.steps = 6 * t->ranks + (PERIOD + 2) * t->micro_batches + PERIOD;
    all = p * (size_t)s.steps;
    s.cell = xmalloc(all * sizeof(*s.cell));
    for (size_t i = 0; i < all; i++)
        s.cell[i] = (struct cell){ PASSES, 0 };
    s.held = xcalloc((size_t)s.steps, sizeof(*s.held));
    s.done = xcalloc(WEIGHTS * p * n, sizeof(*s.done));
    s.input = xcalloc(2 * p * n, sizeof(*s.input));
    s.ninput = xcalloc(p, sizeof(*s.ninput));
    repeat(&s, shape);
    for (int i = 0; i < ROUNDS; i++) {
        move_all(&s);
        squeeze(&s);
        end_early(&s);
    }
    for (int i = t->ranks; i < t->stages; i++)
        t->rank_of[i] = t->stages - 1 - i;
    for (int r = 0; r < t->ranks; r++)
        write_row(t, &s, r);
    free(s.cell);
    free(s.held);
    free(s.done);
    free(s.input);
    free(s.ninput);
}
