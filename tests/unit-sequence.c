/* unit-sequence - what ranks that share a sequence send one another is what the
 * formulas say, and what they exchange comes back */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/runner.h"
#include "lib/run/sequence.h"
#include "tests/tap.h"

/* ---- there and back ---- */

struct shape {
    size_t n;
    uint64_t groups, per, dim;
};

/* Element of row ROW, column COL. */
static float element(size_t row, size_t col)
{
    return (float)(row * 1000 + col);
}

static int exchange(void *arg, struct comm *comm, struct err *err)
{
    const struct shape *shape = arg;
    struct sequence s;
    struct link link;
    int32_t rows;
    struct head_part h;
    size_t cols = shape->groups * shape->per * shape->dim, part;
    float *x, *heads, *back;
    int ret = -1;

    link_init(&link, &backend_cpu, NULL);
    sequence_init(&s, comm, &link, comm->size);
    sequence_begin(&s, shape->n);
    rows = (int32_t)s.count;
    s.rows = &rows;
    h = sequence_heads(&s, shape->groups, shape->per, shape->per, shape->dim);
    part = heads_cols(&h);
    x = xcalloc(s.count * cols + 1, sizeof(*x));
    back = xcalloc(s.count * cols + 1, sizeof(*back));
    heads = xcalloc(s.gathered * part + 1, sizeof(*heads));
    for (size_t i = 0; i < s.count; i++)
        for (size_t k = 0; k < cols; k++)
            x[i * cols + k] = element(s.first + i, k);
    if (sequence_to_heads(&s, &h, shape->per, heads, x, err) < 0)
        goto out;
    for (size_t i = 0; i < shape->n; i++)
        for (size_t k = 0; k < part; k++) {
            uint64_t head = k / shape->dim, g = head / h.within_count;
            uint64_t col = ((h.group_start + g) * shape->per + h.within_start +
                            head % h.within_count) *
                               shape->dim +
                           k % shape->dim;

            if (heads[i * part + k] != element(i, col)) {
                err_set(err, ERR_INPUT, "row %zu has other heads", i);
                goto out;
            }
        }
    if (sequence_to_rows(&s, &h, shape->per, back, heads, err) < 0)
        goto out;
    ret = memcmp(x, back, s.count * cols * sizeof(*x)) == 0
              ? 0
              : err_set(err, ERR_INPUT, "rank %d: not the rows it sent", comm->rank);
out:
    sequence_clear(&s);
    link_clear(&link);
    free(x);
    free(heads);
    free(back);
    return ret;
}

static void comes_back(int ranks, size_t n, uint64_t groups, uint64_t per)
{
    struct shape shape = { n, groups, per, 4 };
    struct err err = { .text = "" };
    int sig;

    if (!tap_ok(launch_ranks(ranks, exchange, &shape, &sig, &err) == 0,
                "%zu rows of %d groups of %d heads go to %d ranks and come back", n,
                (int)groups, (int)per, ranks))
        printf("# %s\n", err.text);
}

/* ---- volumes ---- */

struct volume {
    struct checkpoint *c;
    int sp, across;
    uint64_t want; /* bytes that each rank sends */
};

enum { TOKENS = 48 };

static int run_once(void *arg, struct comm *comm, struct err *err)
{
    const struct volume *run = arg;
    struct program_options options = { .tail = TAIL_NLL };
    struct engine_limits limits = { .tokens = TOKENS, .wanted = 1, .context = TOKENS };
    int32_t ids[TOKENS];
    struct segment step = { .input = { ids }, .targets = ids, .n = TOKENS };
    struct runner_machine machine = { .threads = 1, .across = run->across };
    struct runner r;
    struct mesh mesh;
    int ret;

    for (int i = 0; i < TOKENS; i++)
        ids[i] = i % 50;
    mesh_one(&mesh);
    if (mesh_set(&mesh, (int[MESH_NAXES]){ [MESH_SP] = run->sp }, NULL, err) < 0 ||
        runner_open(&r, run->c, &mesh, &machine, comm, &options, &limits, err) < 0)
        return -1;
    ret = engine_step(r.engine, &step, 1, err);
    if (ret == 0 && engine_moved_bytes(r.engine) != run->want)
        ret = err_set(err, ERR_INPUT, "rank %d has sent %llu bytes, not %llu",
                      comm->rank, (unsigned long long)engine_moved_bytes(r.engine),
                      (unsigned long long)run->want);
    runner_close(&r);
    return ret;
}

/* Elements a layer that each of P ranks sends of N tokens: by heads (2 h + 2 h_kv) N/P
 * (P-1)/P, in a ring 2 h_kv N (P-1)/P (DeepSpeed-Ulysses, section 3.2; Ring Attention,
 * section 3). */
static void moves(struct checkpoint *c, int p, bool ring)
{
    double layers, heads, kv_heads, dim;
    struct err err = { .text = "" };
    struct volume run = { .c = c, .sp = p, .across = ring ? 1 : p };
    uint64_t h, kv;
    int sig;

    model_number(c->model, "layers", &layers);
    model_number(c->model, "heads", &heads);
    model_number(c->model, "kv_heads", &kv_heads);
    model_number(c->model, "head_dim", &dim);
    h = (uint64_t)(heads * dim);
    kv = (uint64_t)(kv_heads * dim);
    run.want = (ring ? 2 * kv * (uint64_t)p : 2 * h + 2 * kv) * TOKENS /
               (uint64_t)(p * p) * (uint64_t)(p - 1) * (uint64_t)layers * sizeof(float);
    if (!tap_ok(launch_ranks(p, run_once, &run, &sig, &err) == 0,
                "%d ranks send as many bytes %s as the formula says", p,
                ring ? "in a ring" : "by heads"))
        printf("# %s\n", err.text);
}

int main(void)
{
    char *path = str_dupf("%s/examples/bard", getenv("top_srcdir"));
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct checkpoint *c;

    for (int ranks = 1; ranks <= 6; ranks++) {
        comes_back(ranks, 48, 6, 1);  /* a head each */
        comes_back(ranks, 47, 3, 2);  /* groups, and fewer of them than ranks */
        comes_back(ranks, 13, 1, 7);  /* one group for all */
        comes_back(ranks, 3, 12, 1);  /* fewer rows than ranks */
        comes_back(ranks, 29, 12, 1); /* 12 heads on 5 ranks: 3, 3, 2, 2, 2 */
    }
    if (checkpoint_open(&c, path, &options, &err) < 0) {
        tap_ok(false, "%s", err.text);
    } else {
        moves(c, 3, false); /* 6 heads in 3 groups */
        for (int p = 2; p <= 6; p++)
            if (TOKENS % p == 0)
                moves(c, p, true);
        checkpoint_close(c);
    }
    free(path);
    return tap_done();
}
