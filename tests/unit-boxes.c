/* unit-boxes - a tensor whose pieces lie in many ranges of many files */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/ckpt/boxes.h"
#include "tests/tap.h"

enum { DIMS = 3, FILES = 3, MOST = 64, ROOM = 1 << 16, TRIALS = 400 };

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

/* A tensor of 16-bit numbers, each its own index, stored in pieces. */
struct trial {
    int ndim;
    uint64_t shape[DIMS], elements;
    struct box box[MOST];
    uint64_t start[MOST][DIMS], size[MOST][DIMS], stride[MOST][DIMS];
    size_t n;
    uint16_t file[FILES][ROOM];
    uint64_t used[FILES];
    FILE *open[FILES];
};

/* Cuts pieces in two at random places along random axes. */
static void cut(struct trial *t)
{
    t->n = 1;
    memset(t->start[0], 0, sizeof(t->start[0]));
    memcpy(t->size[0], t->shape, sizeof(t->shape));
    for (uint64_t cuts = below(MOST - 1); cuts; cuts--) {
        size_t i = (size_t)below(t->n), axis = (size_t)below((uint64_t)t->ndim);

        if (t->size[i][axis] < 2)
            continue;
        memcpy(t->start[t->n], t->start[i], sizeof(t->start[i]));
        memcpy(t->size[t->n], t->size[i], sizeof(t->size[i]));
        t->size[i][axis] = 1 + below(t->size[i][axis] - 1);
        t->start[t->n][axis] += t->size[i][axis];
        t->size[t->n][axis] -= t->size[i][axis];
        t->n++;
    }
}

/* Gives piece I an order of axes of its own and a gap after each run. */
static uint64_t lay_out(struct trial *t, size_t i)
{
    int order[DIMS] = { 0, 1, 2 };
    uint64_t step = 1, gap = below(3) ? 0 : below(5);

    for (int k = t->ndim - 1; k > 0 && !below(2); k--) {
        int other = (int)below((uint64_t)k + 1), kept = order[k];

        order[k] = order[other];
        order[other] = kept;
    }
    for (int k = t->ndim - 1; k >= 0; k--) {
        t->stride[i][order[k]] = step;
        step = step * t->size[i][order[k]] + gap;
    }
    return step;
}

static void store(struct trial *t)
{
    memset(t->used, 0, sizeof(t->used));
    for (size_t i = 0; i < t->n; i++) {
        int f = (int)below(FILES);
        bool packed = !below(2);
        uint64_t room = lay_out(t, i), at = t->used[f] + below(4);

        if (packed) /* the strides that NULL means */
            for (uint64_t k = (uint64_t)t->ndim, step = 1; k-- > 0;) {
                t->stride[i][k] = step;
                step *= t->size[i][k];
                room = step;
            }
        t->box[i] = (struct box){
            f, 2 * at, t->start[i], t->size[i], packed ? NULL : t->stride[i], NULL
        };
        t->used[f] = at + room;
        for (uint64_t e = 0; e < t->elements; e++) {
            uint64_t rest = e, place = at;
            bool inside = true;

            for (int k = t->ndim - 1; k >= 0; k--) {
                uint64_t x = rest % t->shape[k] - t->start[i][k];

                rest /= t->shape[k];
                inside = inside && x < t->size[i][k];
                place += x * t->stride[i][k];
            }
            if (inside)
                t->file[f][place] = (uint16_t)e;
        }
    }
}

static int trial_fd(void *arg, int input, const char **name, struct err *err)
{
    struct trial *t = arg;

    (void)err;
    *name = "piece";
    return fileno(t->open[input]);
}

static bool try_one(struct trial *t)
{
    uint16_t got[ROOM];
    struct pool pool = { 0 };
    const struct boxes *b;
    struct err err = { 0 };
    bool same;

    t->ndim = 1 + (int)below(DIMS);
    t->elements = 1;
    for (int k = 0; k < t->ndim; k++)
        t->elements *= t->shape[k] = 1 + below(12);
    cut(t);
    store(t);
    for (int f = 0; f < FILES; f++) {
        rewind(t->open[f]);
        fwrite(t->file[f], 2, ROOM, t->open[f]);
        fflush(t->open[f]);
    }
    same = boxes_new(&b, &pool, t->ndim, t->shape, t->box, t->n, "p", "t", &err) == 0;
    for (int r = 0; r < 8 && same; r++) {
        uint64_t first = below(t->elements), n = 1 + below(t->elements - first);

        same = boxes_read(b, 2, first, n, got, trial_fd, t, &err) == 0;
        for (uint64_t e = 0; e < n; e++)
            same = same && got[e] == first + e;
    }
    if (same && t->ndim == 3) { /* some rows of one matrix of a stack */
        uint64_t row = t->shape[2], matrix = below(t->shape[0]);
        uint64_t from = below(t->shape[1]), rows = 1 + below(t->shape[1] - from);
        uint64_t first = (matrix * t->shape[1] + from) * row;

        same =
            boxes_cut(&b, &pool, b, 2, first, rows * row, row, "p", "t", &err) == 0 &&
            boxes_read(b, 2, 0, rows * row, got, trial_fd, t, &err) == 0;
        for (uint64_t e = 0; e < rows * row; e++)
            same = same && got[e] == first + e;
    }
    if (same && t->ndim == 1) {
        uint64_t first = below(t->elements), n = 1 + below(t->elements - first);

        same = boxes_cut(&b, &pool, b, 2, first, n, 1, "p", "t", &err) == 0 &&
               boxes_read(b, 2, 0, n, got, trial_fd, t, &err) == 0;
        for (uint64_t e = 0; e < n; e++)
            same = same && got[e] == first + e;
    }
    if (!same)
        printf("#   %d axes, %zu pieces: %s\n", t->ndim, t->n, err.text);
    pool_clear(&pool);
    return same;
}

static void refuse(const uint64_t shape[2], const struct box *box, size_t n,
                   const char *why)
{
    struct pool pool = { 0 };
    const struct boxes *b;
    struct err err = { 0 };

    tap_ok(boxes_new(&b, &pool, 2, shape, box, n, "p", "t", &err) < 0 &&
               err.kind == ERR_INPUT && strstr(err.text, why),
           "refused: %s", why);
    pool_clear(&pool);
}

int main(void)
{
    static const uint64_t origin[2] = { 0, 0 }, below_it[2] = { 2, 0 };
    static const uint64_t shape[2] = { 4, 3 }, half[2] = { 2, 3 }, most[2] = { 3, 3 };
    static const uint64_t huge[2] = { UINT64_MAX, 3 };
    const struct box hole[] = { { .start = origin, .size = half } };
    const struct box twice[] = { { .start = origin, .size = most },
                                 { .start = below_it, .size = half } };
    const struct box outside[] = { { .start = below_it, .size = most } };
    struct trial *t = xcalloc(1, sizeof(*t));
    int good = 0;

    for (int f = 0; f < FILES; f++)
        t->open[f] = tmpfile();
    for (int i = 0; i < TRIALS; i++)
        good += try_one(t);
    tap_ok(good == TRIALS, "%d of %d tensors in random pieces are read back", good,
           TRIALS);
    refuse(shape, hole, 1, "its pieces have 6 of 12 elements");
    refuse(shape, twice, 2, "two pieces overlap");
    refuse(shape, outside, 1, "a piece reaches beyond its shape");
    refuse(huge, hole, 1, "its shape overflows");
    for (int f = 0; f < FILES; f++)
        fclose(t->open[f]);
    free(t);
    return tap_done();
}
