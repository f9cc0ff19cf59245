/* unit-init - drawn weights are as transformers draws them, and the same on every mesh
 *
 * oracle/make-init.py says what data/init.tsv is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/train/init.h"
#include "tests/tap.h"

enum { MOST = 64, NAME = 160 };

/* A tensor of a model as it should begin. */
struct wanted {
    char name[NAME];
    bool normal;
    double value;
    int row; /* of zeros, or -1 */
};

struct model_wanted {
    char name[40];
    struct wanted v[MOST];
    int n;
};

/* The lines of the next model. */
static bool read_wanted(FILE *f, struct model_wanted *w)
{
    w->n = 0;
    for (;;) {
        struct wanted *one = &w->v[w->n];
        long at = ftell(f);
        char name[sizeof(w->name)] = "", how[16];

        if (w->n == MOST || fscanf(f, "%39s %159s %15s %lf %d", name, one->name, how,
                                   &one->value, &one->row) != 5)
            return w->n > 0;
        if (w->n && strcmp(name, w->name) != 0) {
            fseek(f, at, SEEK_SET);
            return true;
        }
        memcpy(w->name, name, sizeof(name));
        one->normal = !strcmp(how, "normal");
        w->n++;
    }
}

/* NAME with # for numbers between dots. */
static void collapse(char out[NAME], const char *name)
{
    size_t n = 0;

    for (const char *p = name; *p && n + 1 < NAME; p++) {
        size_t digits = p > name && p[-1] == '.' ? strspn(p, "0123456789") : 0;

        if (digits && p[digits] == '.') {
            out[n++] = '#';
            p += digits - 1;
        } else {
            out[n++] = *p;
        }
    }
    out[n] = '\0';
}

static const struct wanted *find_wanted(const struct model_wanted *w, const char *name)
{
    char flat[NAME];

    collapse(flat, name);
    for (int i = 0; i < w->n; i++) {
        const char *known = w->v[i].name; /* a hub's file may lack the first part */

        if (!strcmp(known, flat) ||
            (str_starts(known, "transformer.") && !strcmp(known + 12, flat)))
            return &w->v[i];
    }
    return NULL;
}

/* ---- the whole tensors that the ranks of a mesh draw ---- */

struct whole {
    float **tensor; /* [ntensors], NULL: nobody has it */
    size_t *n;
    size_t ntensors;
};

struct giving {
    float *here, *whole;
};

static void give_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct giving *g = arg;

    (void)owned; /* copies must agree: the last one counts */
    memcpy(g->whole + whole, g->here + here, n * sizeof(float));
}

static int draw_rank(struct whole *w, struct checkpoint *c, const struct mesh *mesh,
                     const int coord[MESH_NAXES], uint64_t seed, struct err *err)
{
    const struct program_options options = { .tail = TAIL_NLL, .reverse = true };
    struct parameters p;
    struct device *device = NULL;
    struct program *program;
    int ret = -1;

    if (program_build(&program, c->model, mesh, coord, &options, err) < 0)
        return -1;
    if (backend_cpu.open(&device, 1, 0, err) == 0 &&
        parameters_open(&p, c, program, &backend_cpu, device, OPTIMIZER_SGD,
                        (struct parameters_owner){ .size = 1 }, err) == 0) {
        ret = init_parameters(&p, seed, err);
        for (int i = 0; i < program->nweights && ret == 0; i++) {
            size_t t = program->weight[i].tensor;
            struct giving g = { .here = p.row[i].weight };

            w->n[t] = (size_t)parameters_whole(&p, i);
            if (!w->tensor[t])
                w->tensor[t] = xcalloc(w->n[t] + 1, sizeof(float));
            g.whole = w->tensor[t];
            parameters_runs(&p, i, give_run, &g);
        }
        parameters_close(&p);
    }
    if (device)
        backend_cpu.close(device);
    program_free(program);
    return ret;
}

static int draw(struct whole *w, struct checkpoint *c, const struct mesh *mesh,
                uint64_t seed, struct err *err)
{
    int coord[MESH_NAXES];

    w->ntensors = c->model->ntensors;
    w->tensor = xcalloc(w->ntensors + 1, sizeof(*w->tensor));
    w->n = xcalloc(w->ntensors + 1, sizeof(*w->n));
    for (int r = 0; r < mesh->nranks; r++) {
        mesh_coord(mesh, r, coord);
        if (draw_rank(w, c, mesh, coord, seed, err) < 0)
            return -1;
    }
    return 0;
}

static void clear(struct whole *w)
{
    for (size_t i = 0; i < w->ntensors; i++)
        free(w->tensor[i]);
    free(w->tensor);
    free(w->n);
}

static bool are_same(const struct whole *a, const struct whole *b)
{
    for (size_t i = 0; i < a->ntensors; i++)
        if (a->n[i] != b->n[i] ||
            (a->n[i] && memcmp(a->tensor[i], b->tensor[i], a->n[i] * sizeof(float))))
            return false;
    return true;
}

/* ---- moments ---- */

/* Why the N numbers at X, rows of COLS, are not what is wanted: a fresh text, or NULL.
 * Mean and variance lie within five of their standard errors. */
static char *differs(const float *x, size_t n, size_t cols, const struct wanted *w)
{
    double sum = 0, squares = 0, most;
    size_t counted = 0;

    for (size_t i = 0; i < n; i++) {
        bool zero = w->row >= 0 && i / cols == (size_t)w->row;

        if (zero || !w->normal) {
            if (x[i] != (float)(zero ? 0 : w->value))
                return str_dupf("element %zu is %g", i, (double)x[i]);
            continue;
        }
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        counted++;
    }
    if (!w->normal)
        return NULL;
    most = 5 / sqrt((double)counted);
    if (fabs(sum / (double)counted) > most * w->value ||
        fabs(squares / (double)counted / (w->value * w->value) - 1) > most * sqrt(2))
        return str_dupf("mean %g, deviation %g, not %g", sum / (double)counted,
                        sqrt(squares / (double)counted), w->value);
    return NULL;
}

static void try_moments(const struct model_wanted *w, const struct checkpoint *c,
                        const struct whole *made)
{
    char *why = NULL;
    int seen = 0;

    for (size_t i = 0; i < made->ntensors && !why; i++) {
        const struct model_tensor *t = &c->model->tensor[i];
        const struct wanted *one = find_wanted(w, t->name);
        char *what;

        if (!made->n[i])
            continue;
        seen++;
        what = one ? differs(made->tensor[i], made->n[i],
                             made->n[i] / (size_t)t->axis[0]->size, one)
                   : xstrdup("PyTorch has none");
        if (what)
            why = str_dupf("%s: %s", t->name, what);
        free(what);
    }
    if (!tap_ok(!why && seen > 4, "%s: weights begin as transformers' do", w->name))
        printf("# %s\n", why ? why : "no tensor");
    free(why);
}

static void try_model(const char *models, const struct model_wanted *w)
{
    static const int sizes[][2] = { { 1, 1 }, { 2, 1 }, { 3, 1 }, { 1, 2 }, { 2, 2 } };
    char *path = fs_join_dup(models, w->name);
    struct checkpoint_options options = { 0 };
    struct whole one = { 0 };
    struct err err = { .text = "" };
    struct checkpoint *c;

    if (checkpoint_open(&c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", w->name, err.text);
        free(path);
        return;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        int size[MESH_NAXES] = { [MESH_TP] = sizes[i][0], [MESH_PP] = sizes[i][1] };
        struct whole other = { 0 };
        struct mesh mesh;

        if (mesh_set(&mesh, size, NULL, &err) < 0 ||
            model_check_mesh(c->model, &mesh, &err) < 0)
            continue;
        if (draw(i ? &other : &one, c, &mesh, 1, &err) < 0)
            tap_ok(false, "%s: %s", w->name, err.text);
        else if (i == 0)
            try_moments(w, c, &one);
        else
            tap_ok(are_same(&one, &other), "%s: the same bits on tp %d, pp %d", w->name,
                   sizes[i][0], sizes[i][1]);
        clear(&other);
    }
    if (!strcmp(w->name, "llama-gqa")) {
        struct whole other = { 0 };
        struct mesh mesh;

        mesh_one(&mesh);
        tap_ok(draw(&other, c, &mesh, 2, &err) == 0 && !are_same(&one, &other),
               "another seed draws others");
        clear(&other);
    }
    clear(&one);
    checkpoint_close(c);
    free(path);
}

/* The file NAME of FROM in TO, with the text NEW for OLD, which it has. */
static void copy_changed(const char *from, const char *to, const char *name,
                         const char *old, const char *new)
{
    char *in = fs_join_dup(from, name), *out = fs_join_dup(to, name), *text, *at;
    struct str s = { 0 };
    struct err err;
    size_t n;
    FILE *f;

    if (fs_read_file(&text, &n, in, 1 << 24, &err) < 0)
        abort();
    at = old ? strstr(text, old) : text;
    if (!at)
        abort();
    str_addn(&s, text, (size_t)(at - text));
    str_add(&s, new);
    at += old ? strlen(old) : 0;
    str_addn(&s, at, n - (size_t)(at - text));
    f = fopen(out, "w");
    if (!f || fwrite(str_text(&s), 1, s.len, f) != s.len || fclose(f) != 0)
        abort();
    str_clear(&s);
    free(text);
    free(in);
    free(out);
}

/* As in PyTorch, the padding token -1 is the last row. */
static void try_last_row(const char *models)
{
    char dir[] = "/tmp/unit-init-XXXXXX", *from = fs_join_dup(models, "cohere");
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct whole made = { 0 };
    struct checkpoint *c;
    struct mesh mesh;
    bool first = false, last = false;

    if (!mkdtemp(dir))
        abort();
    copy_changed(from, dir, "model.safetensors", NULL, "");
    copy_changed(from, dir, "config.json", "\"pad_token_id\": 0",
                 "\"pad_token_id\": -1");
    mesh_one(&mesh);
    if (tap_ok(checkpoint_open(&c, dir, &options, &err) == 0 &&
                   draw(&made, c, &mesh, 1, &err) == 0,
               "a padding token may be counted from the end")) {
        const struct model_tensor *t = c->model->tensor;
        size_t i = 0, cols;

        while (!strstr(t[i].name, "embed_tokens"))
            i++;
        cols = made.n[i] / (size_t)t[i].axis[0]->size;
        for (size_t k = 0; k < cols; k++) {
            first |= made.tensor[i][k] != 0;
            last |= made.tensor[i][made.n[i] - 1 - k] != 0;
        }
        tap_ok(first && !last, "its row is zeros, and the first is not");
        clear(&made);
        checkpoint_close(c);
    }
    if (fs_remove_tree(dir, &err) < 0)
        abort();
    free(from);
}

int main(int argc, char **argv)
{
    char *data = str_dupf("%s/tests/data", getenv("top_srcdir"));
    char *models = fs_join_dup(data, "models");
    char *init = fs_join_dup(data, "init.tsv");
    struct model_wanted *w = xmalloc(sizeof(*w));
    FILE *f = fopen(init, "r");

    tap_ok(f != NULL, "what transformers draws is there");
    while (f && read_wanted(f, w))
        if (argc < 2 || !strcmp(argv[1], w->name))
            try_model(models, w);
    if (f)
        fclose(f);
    try_last_row(models);
    free(w);
    free(init);
    free(models);
    free(data);
    return tap_done();
}
