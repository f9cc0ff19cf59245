/* init - random initial weights, distributed as in the model's reference code */
#include "lib/train/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"
#include "lib/model/option.h"

static const double TWO_PI = 6.283185307179586476925286766559;

struct start {
    bool drawn;        /* normal; else constant VALUE */
    double value;      /* the constant or the standard deviation */
    uint64_t stream;   /* of the random number generator */
    uint64_t from, to; /* elements [from, to) of the global tensor are 0 */
};

struct init {
    uint64_t seed;
    struct start *start; /* [program->nweights] */
};

/* ---- roles of weights ---- */

enum role { ROLE_UNKNOWN, ROLE_DRAWN, ROLE_ZERO, ROLE_ONE };

static enum role role_of(const struct inst *i)
{
    switch (i->op) {
    case OP_ADD_VECTOR:
    case OP_CHOOSE:
        return ROLE_ZERO;
    case OP_RMSNORM:
    case OP_LAYERNORM:
    case OP_RMS_APPLY:
    case OP_LAYER_APPLY:
        return i->norm.plus_one ? ROLE_ZERO : ROLE_ONE;
    default:
        return ROLE_DRAWN;
    }
}

static int kind_of(const struct program *p, int weight)
{
    return p->model->tensor[p->weight[weight].tensor].kind;
}

/* The role of each kind of tensor.  By kind, because an instruction with experts names
 * only the first expert's weight. */
static enum role *find_roles(const struct program *p)
{
    enum role *role = xcalloc(model_kinds(p->model) + 1, sizeof(*role));

    for (int i = 0; i < p->nforward; i++) {
        const struct inst *in = &p->inst[i];

        if (in->weight >= 0)
            role[kind_of(p, in->weight)] = role_of(in);
        if (in->weight2 >= 0)
            role[kind_of(p, in->weight2)] = ROLE_ZERO;
    }
    return role;
}

/* ---- the family's definitions ---- */

/* The default standard deviation.  A config's 0 means unset, as in transformers. */
static int find_deviation(const struct model *m, double *out, struct err *err)
{
    static const char usual[] = "initializer_range ? initializer_range : 0.02";
    bool own = family_get(&model_family(m)->symbols, "init_std") != NULL;
    const char *text = own ? "init_std" : usual;
    struct expr_value v;

    if (model_eval(m, text, strlen(text), -1, &v, err) < 0)
        return err_prefix(err, "%s", model_config_name(m));
    if (v.kind != EXPR_NUMBER || !(v.number >= 0))
        return err_set(err, ERR_INPUT,
                       "%s: the standard deviation of the weights is %s",
                       model_config_name(m),
                       v.kind == EXPR_NULL     ? "not there"
                       : v.kind == EXPR_NUMBER ? "below 0"
                                               : "no number");
    *out = v.number;
    return 0;
}

/* FNV-1a (Fowler, Noll and Vo) of the tensor's key, layer and expert.  Not of its name,
 * which depends on the file. */
static uint64_t stream_of(const struct model_tensor *t)
{
    char *name = str_dupf("%s.%d.%d", t->key, t->layer, t->expert);
    uint64_t h = 0xCBF29CE484222325;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001B3;
    free(name);
    return h;
}

/* Zeros ROW of an embedding table. */
static void zero_row(struct start *s, const struct model_tensor *t, uint64_t row)
{
    uint64_t cols = 1;

    for (int k = 1; k < t->ndim; k++)
        cols *= t->axis[k]->size;
    s->from = row * cols;
    s->to = s->from + cols;
}

static int set_start(struct start *s, const struct program *p, int weight,
                     enum role role, double deviation, struct err *err)
{
    const struct model_tensor *t = &p->model->tensor[p->weight[weight].tensor];
    uint64_t row;
    double number;
    bool is;

    *s = (struct start){ .drawn = role != ROLE_ZERO && role != ROLE_ONE,
                         .value = role == ROLE_ONE ? 1 : 0,
                         .stream = stream_of(t) };
    if (s->drawn)
        s->value = deviation;
    if (option_number(p->model, t, "init", &is, &number, err) < 0)
        return -1;
    if (is) {
        s->drawn = true;
        s->value = number;
    }
    if (option_padding(p->model, t, &is, &row, err) < 0)
        return -1;
    if (is)
        zero_row(s, t, row);
    return 0;
}

/* ---- opening ---- */

int init_open(struct init **out, const struct program *program, uint64_t seed,
              struct err *err)
{
    struct init *x = xcalloc(1, sizeof(*x));
    enum role *role = find_roles(program);
    double deviation = 0;
    int ret;

    x->seed = seed;
    x->start = xcalloc((size_t)program->nweights + 1, sizeof(*x->start));
    ret = find_deviation(program->model, &deviation, err);
    for (int i = 0; i < program->nweights && ret == 0; i++)
        ret = set_start(&x->start[i], program, i, role[kind_of(program, i)], deviation,
                        err);
    free(role);
    if (ret < 0)
        init_close(x);
    else
        *out = x;
    return ret;
}

void init_close(struct init *x)
{
    if (x)
        free(x->start);
    free(x);
}

/* ---- random numbers ---- */

/* Elements [4 BLOCK, 4 BLOCK + 4): normal, mean 0, variance 1 (Box and Muller 1958). */
static void draw(const struct init *x, uint64_t stream, uint64_t block, double out[4])
{
    struct rng rng;

    rng_init(&rng, x->seed, stream);
    rng.counter = block;
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)rng_u32(&rng) + 0.5) * 0x1p-32;
        double angle = TWO_PI * 0x1p-32 * (double)rng_u32(&rng);
        double r = sqrt(-2 * log(u));

        out[i] = r * cos(angle);
        out[i + 1] = r * sin(angle);
    }
}

void init_fill(const struct init *x, int i, uint64_t whole, size_t n, float *out)
{
    const struct start *s = &x->start[i];
    double block[4];

    for (size_t k = 0; k < n; k++) {
        uint64_t at = whole + k;

        if (s->drawn && (k == 0 || at % 4 == 0))
            draw(x, s->stream, at / 4, block);
        out[k] = (float)(s->drawn ? s->value * block[at % 4] : s->value);
        if (at >= s->from && at < s->to)
            out[k] = 0;
    }
}

/* Numbers on their way to the device: N in V, for elements from FIRST of a weight. */
struct filling {
    struct parameters *p;
    const struct init *init;
    int weight, ret;
    struct err *err;
    size_t first, n;
    float v[1 << 14];
};

/* Copies what this rank has of the weight. */
static void flush(struct filling *f)
{
    const struct parameters *p = f->p;
    const struct parameter *row = &p->row[f->weight];
    const bool part = row->trained && parameters_gathers(p);
    size_t low = part ? (size_t)row->first : 0;
    size_t high = part ? (size_t)(row->first + row->count) : (size_t)row->n;
    size_t from = f->first > low ? f->first : low;
    size_t end = f->first + f->n < high ? f->first + f->n : high;

    if (f->ret == 0 && from < end)
        f->ret = parameters_put(f->p, f->weight, f->v + (from - f->first), from,
                                end - from, f->err);
    f->first += f->n;
    f->n = 0;
}

static void fill_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct filling *f = arg;
    size_t room = sizeof(f->v) / sizeof(*f->v);

    (void)owned;
    (void)here; /* the runs are in this order */
    while (n) {
        size_t some = n < room - f->n ? n : room - f->n;

        init_fill(f->init, f->weight, whole, some, f->v + f->n);
        f->n += some;
        whole += some;
        n -= some;
        if (f->n == room)
            flush(f);
    }
}

int init_parameters(struct parameters *p, uint64_t seed, struct err *err)
{
    struct filling *f = xmalloc(sizeof(*f));
    struct init *x;
    int ret;

    *f = (struct filling){ .p = p, .err = err };
    ret = init_open(&x, p->program, seed, err);
    f->init = x;
    for (int i = 0; i < p->program->nweights && ret == 0; i++) {
        f->weight = i;
        f->first = 0;
        parameters_runs(p, i, fill_run, f);
        flush(f);
        ret = f->ret;
    }
    if (f->init)
        init_close(x);
    free(f);
    return ret;
}
