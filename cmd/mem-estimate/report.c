/* report - print an estimate for people, as JSON, explained, or drawn */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/reversed.h"
#include "lib/base/fs.h"
#include "lib/plot/canvas.h"

/* ---- counts ---- */

/* Of PARAMS those that one token uses: of the experts, as many as it is sent to. */
static uint64_t active_params(const struct anatomy *a, uint64_t params)
{
    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];
        uint64_t n = u->weight[WEIGHT_EXPERT].elements;

        if (u->all)
            params -= n - n / u->all * u->top;
    }
    return params;
}

/* Bytes of K's categories that are not there at the moment of its peak. */
static uint64_t bytes_apart(const struct rank_memory *k)
{
    uint64_t sum = 0;

    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        sum += k->bytes[c] - k->peak[c];
    return sum;
}

/* The whole model on one rank; NULL when it cannot be had. */
static struct anatomy *whole_anatomy(const struct request *r)
{
    const int origin[MESH_NAXES] = { 0 };
    struct anatomy *a = NULL;
    struct err e = { 0 };
    struct mesh one;

    mesh_one(&one);
    if (anatomy_open(&a, r->outline.model, &one, origin, r->stored, NULL, &e) < 0)
        return NULL;
    return a;
}

/* ---- JSON ---- */

static void add_mesh(struct str *s, const int size[MESH_NAXES])
{
    str_addc(s, '{');
    for (int a = 0; a < MESH_NAXES; a++)
        str_addf(s, "%s\"%s\":%d", a ? "," : "", mesh_axis_names[a], size[a]);
    str_addc(s, '}');
}

static void add_rank(struct str *s, const struct rank_memory *k)
{
    str_add(s, "{\"coords\":");
    add_mesh(s, k->coord);
    str_addf(s, ",\"count\":%" PRIu64, k->count);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        str_addf(s, ",\"%s\":%" PRIu64, memory_category_names[c], k->bytes[c]);
    str_addf(s,
             ",\"total\":%" PRIu64 ",\"host\":%" PRIu64
             ",\"moment\":\"%s\",\"apart\":%" PRIu64 "}",
             k->total, k->host, memory_moment_names[k->moment], bytes_apart(k));
}

void report_add_lines(struct str *s, const char *lines)
{
    str_addc(s, '[');
    for (const char *p = lines; *p;) {
        size_t n = strcspn(p, "\n");

        if (p != lines)
            str_addc(s, ',');
        str_add_jsonn(s, p, n);
        p += n + (p[n] == '\n');
    }
    str_addc(s, ']');
}

void report_json(const struct report *r)
{
    const struct request *q = r->request;
    const struct memory_estimate *e = r->estimate;
    struct anatomy *a = whole_anatomy(q);
    uint64_t params = anatomy_params(q->outline.model);
    struct str s = { 0 };

    str_add(&s, "{\"type\":\"estimate\",\"model\":");
    str_add_json(&s, q->path);
    str_add(&s, ",\"family\":");
    str_add_json(&s, q->outline.model->family);
    str_addf(&s, ",\"params\":%" PRIu64 ",\"active_params\":%" PRIu64, params,
             a ? active_params(a, params) : params);
    str_addf(&s, ",\"mode\":\"%s\",\"mesh\":", q->memory.train ? "train" : "infer");
    add_mesh(&s, q->memory.mesh.size);
    str_addf(&s, ",\"framework\":\"%s\",\"ranks\":[",
             framework_names[habits_framework(&q->memory)]);
    for (size_t i = 0; e && i < e->nkinds; i++) {
        str_add(&s, i ? "," : "");
        add_rank(&s, &e->kind[i]);
    }
    str_addc(&s, ']');
    if (e)
        str_addf(&s, ",\"peak\":%" PRIu64, e->peak->total);
    else
        str_add(&s, ",\"peak\":null");
    if (q->gpu_memory)
        str_addf(&s, ",\"gpu_memory\":%" PRIu64, q->gpu_memory);
    else
        str_add(&s, ",\"gpu_memory\":null");
    str_addf(&s, ",\"fits\":%s",
             !e               ? "false"
             : !q->gpu_memory ? "null"
             : r->fits        ? "true"
                              : "false");
    if (r->obstacles && *r->obstacles) {
        str_add(&s, ",\"reasons\":");
        report_add_lines(&s, r->obstacles);
    }
    if (r->ways_out) {
        str_add(&s, ",\"ways_out\":");
        report_add_lines(&s, r->ways_out);
    }
    if (r->explanation) {
        str_add(&s, ",\"explanation\":");
        report_add_lines(&s, r->explanation);
    }
    str_add(&s, ",\"assumed\":");
    str_add_json(&s, str_text(&q->assumed));
    str_addf(&s, ",\"assumptions\":[%s]", str_text(&q->codes));
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
    anatomy_close(a);
}

/* ---- text ---- */

/* Weights alone, in four types: what one device needs to load or train the model. */
static void print_simple(const struct request *q)
{
    static const struct {
        const char *name;
        uint64_t half_bytes; /* of an element */
        bool trains;
    } rows[] = { { "f32", 8, true },
                 { "bf16", 4, true },
                 { "int8", 2, false },
                 { "int4", 1, false } };
    struct anatomy *a = whole_anatomy(q);
    uint64_t params = anatomy_params(q->outline.model);
    char layer[32], total[32], train[32];

    printf("%-6s %14s %14s %20s\n", "dtype", "largest layer", "total size",
           "training with Adam");
    for (int i = 0; a && i < 4; i++)
        printf("%-6s %14s %14s %20s\n", rows[i].name,
               str_human(layer, a->largest * rows[i].half_bytes / 2),
               str_human(total, params * rows[i].half_bytes / 2),
               rows[i].trains ? str_human(train, params * 16) : "-");
    anatomy_close(a);
}

static void add_coord(struct str *s, const struct request *q,
                      const struct rank_memory *k)
{
    for (int a = 0; a < MESH_NAXES; a++)
        if (q->memory.mesh.size[a] > 1)
            str_addf(s, "%s%s%d", s->len ? " " : "", mesh_axis_names[a], k->coord[a]);
    if (!s->len)
        str_add(s, "rank 0");
    if (k->count > 1)
        str_addf(s, " x%" PRIu64, k->count);
}

/* Does any kind of rank need bytes of category C? */
static bool is_needed(const struct memory_estimate *e, int c)
{
    for (size_t i = 0; i < e->nkinds; i++)
        if (e->kind[i].bytes[c])
            return true;
    return false;
}

static bool is_apart(const struct memory_estimate *e)
{
    for (size_t i = 0; i < e->nkinds; i++)
        if (bytes_apart(&e->kind[i]))
            return true;
    return false;
}

/* Of the longest name of a kind, but no less than 18. */
static int name_width(const struct report *r)
{
    size_t width = 18;

    for (size_t i = 0; i < r->estimate->nkinds; i++) {
        struct str name = { 0 };

        add_coord(&name, r->request, &r->estimate->kind[i]);
        width = name.len > width ? name.len : width;
        str_clear(&name);
    }
    return (int)width;
}

static void print_kind(const struct report *r, const struct rank_memory *k, int width)
{
    struct str name = { 0 };
    char size[32], apart[32];

    add_coord(&name, r->request, k);
    printf("%-*s", width, str_text(&name));
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (is_needed(r->estimate, c))
            printf(" %13s", str_human(size, k->bytes[c]));
    snprintf(apart, sizeof(apart), "%s%s", bytes_apart(k) ? "-" : "",
             str_human(size, bytes_apart(k)));
    if (is_apart(r->estimate))
        printf(" %13s", apart);
    printf(" %13s", str_human(size, k->total));
    if (r->request->gpu_memory)
        printf("  %s", k->total <= r->request->gpu_memory ? "fits" : "does not fit");
    if (k->host)
        printf("  host %s", str_human(size, k->host));
    putchar('\n');
    str_clear(&name);
}

/* A table with a row for each kind of rank, without the columns that are empty. */
static void print_kinds(const struct report *r)
{
    const struct memory_estimate *e = r->estimate;
    int width = name_width(r);

    printf("%-*s", width, "rank");
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (is_needed(e, c))
            printf(" %13s", memory_category_names[c]);
    if (is_apart(e))
        printf(" %13s", "not at once");
    printf(" %13s\n", "total");
    for (size_t i = 0; i < e->nkinds; i++)
        print_kind(r, &e->kind[i], width);
}

void report_text(const struct report *r)
{
    const struct request *q = r->request;
    uint64_t params = anatomy_params(q->outline.model);
    char size[32], *line;

    line = str_dupf("%s: %s, %" PRIu64 " parameters, weights %s", q->path,
                    q->outline.model->family, params,
                    q->memory.weights ? q->memory.weights->name : "as stored");
    cmd_puts(line);
    free(line);
    if (q->assumed.len)
        printf("assumed: %s\n", q->assumed.s);
    if (!q->layout)
        print_simple(q);
    if (!r->estimate) {
        printf("impossible:\n%s", r->obstacles);
        return;
    }
    if (q->detailed)
        print_kinds(r);
    if (q->gpu_memory && r->fits)
        printf("fits in %s\n", str_human(size, q->gpu_memory));
    if (!r->fits) {
        printf("does not fit in %s\n", str_human(size, q->gpu_memory));
        if (r->ways_out && *r->ways_out)
            printf("what would fit:\n%s", r->ways_out);
    }
    if (r->explanation)
        fputs(r->explanation, stdout);
}

/* ---- explanation ---- */

static void explain_states(struct str *out, const struct request *q)
{
    const struct memory_options *m = &q->memory;
    int group = m->mesh.size[MESH_DP] * m->mesh.size[MESH_EP] * m->mesh.size[MESH_SP];

    str_addf(out, "weights        this rank's elements x %s%s\n",
             m->weights ? m->weights->name : "their stored types",
             m->train && m->zero == 3 ? " / shard group" : "");
    if (!m->train)
        return;
    str_addf(out, "gradients      trained elements x %" PRIu64 " bytes%s\n",
             m->grad_bytes, m->zero >= 2 ? " / shard group" : "");
    str_addf(out, "optimizer      %s states%s%s\n", optimizer_names[m->optimizer],
             m->master && m->other->block_bytes < 4 ? " + 4 bytes of master weights"
                                                    : "",
             m->zero >= 1 ? " / shard group" : "");
    str_addf(out, "shard group    %s = %d ranks\n", m->hsdp ? "--hsdp" : "dp x ep x sp",
             m->hsdp && m->hsdp < group ? m->hsdp : group);
}

static void explain_values(struct str *out, const struct request *q,
                           const struct anatomy *a)
{
    const struct memory_options *m = &q->memory;
    const char *scales = m->kv_scale ? " (and 4 a head)" : "";
    const struct unit *u = NULL;
    uint64_t cache = 0;
    bool windows = false;

    for (int i = 0; i < a->nunits; i++) {
        if (a->unit[i].layer >= 0)
            u = &a->unit[i];
        for (int k = 0; k < a->unit[i].ncaches; k++) {
            uint64_t window = a->unit[i].cache[k].window;

            cache += a->unit[i].cache[k].cols;
            windows |= window && window < m->seq;
        }
    }
    str_addf(out, "tokens         micro-batch %" PRIu64 " x seq %" PRIu64 " / sp %d\n",
             m->micro_batch, m->seq, m->mesh.size[MESH_SP]);
    if (m->train && u) {
        str_addf(out,
                 "activations    a layer reads again %" PRIu64 " + %" PRIu64
                 " elements a token (cut + whole over tp) x %" PRIu64 " bytes\n",
                 u->kept.columns.cut, u->kept.columns.whole, m->compute_bytes);
        str_addf(out, "               recompute %s, attention scores %s\n",
                 recompute_names[m->recompute],
                 m->flash ? "not kept: a sum for each head" : "kept");
        str_addf(out,
                 "logits         tokens x %" PRIu64 " columns x %" PRIu64 " bytes\n",
                 a->vocab, memory_of_logit(a, m));
        str_addf(
            out,
            "working        gradients of values, at the worst moment of the backward "
            "pass\n");
    }
    if (!m->train && m->cache_tokens) {
        str_addf(out, "activations    the most that values of one step need at once\n");
        str_addf(out,
                 "kv_cache       %" PRIu64 " elements a token on all layers x %" PRIu64
                 " bytes%s x %" PRIu64 " tokens%s\n",
                 cache, m->kv_bytes, scales,
                 m->cache_tokens / m->kv_block * m->kv_block,
                 windows ? ", where there is a window no more than it shows" : "");
    } else if (!m->train) {
        str_addf(out, "activations    the most that values of one step need at once\n");
        str_addf(out,
                 "kv_cache       %" PRIu64 " elements a token on all layers x %" PRIu64
                 " bytes%s x %" PRIu64 " sequences%s\n",
                 cache, m->kv_bytes, scales, m->micro_batch * m->micro_batches,
                 windows ? ", where there is a window for its tokens alone" : "");
    }
}

static void explain_peak(struct str *out, const struct rank_memory *k)
{
    const char *before = "";
    char size[32];

    str_addf(out, "peak           %s: ",
             k->moment == MOMENT_LOSS ? "at the loss" : "in the backward pass");
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (k->peak[c]) {
            str_addf(out, "%s%s %s", before, memory_category_names[c],
                     str_human(size, k->peak[c]));
            before = " + ";
        }
    str_addf(out, " = %s\n", str_human(size, k->total));
}

/* Of tp-run, by the program that is trained. */
static void explain_program(struct str *out, const struct request *q)
{
    str_addf(out,
             "weights        this rank's elements x 4 bytes, as gradients; the "
             "optimizer's twice\n"
             "activations    values and gradients of %" PRIu64 " x %" PRIu64
             " tokens where the program that is trained puts\n"
             "               them, of each micro-batch in flight: tp-run program "
             "--train prints it\n",
             q->memory.micro_batch, q->memory.seq);
}

char *report_explanation_dup(const struct report *r)
{
    struct str out = { 0 };
    const struct request *q = r->request;
    const int origin[MESH_NAXES] = { 0 };
    const struct anatomy_options opt = memory_anatomy(&q->memory);
    struct anatomy *a;
    struct err e = { 0 };

    if (!r->estimate || anatomy_open(&a, q->outline.model, &q->memory.mesh, origin,
                                     q->stored, &opt, &e) < 0)
        return xstrdup("");
    if (reversed_applies(&q->memory)) {
        explain_program(&out, q);
    } else {
        explain_states(&out, q);
        explain_values(&out, q, a);
        str_addf(&out,
                 "fragmentation  %g %% of activations, logits, working and comm\n",
                 q->memory.fragmentation * 100);
    }
    if (q->memory.train)
        explain_peak(&out, r->estimate->peak);
    anatomy_close(a);
    return str_steal(&out);
}

/* ---- picture ---- */

int report_plot(const struct report *r, const char *path, struct err *err)
{
    const struct memory_estimate *e = r->estimate;
    const double right = 90, row = 26, top = 50, width = 760;
    double scale = (double)e->peak->total, height = top + row * (double)e->nkinds + 24;
    double left = 130, legend = left;
    struct canvas *c;

    if ((double)r->request->gpu_memory > scale)
        scale = (double)r->request->gpu_memory;
    if (canvas_open(&c, path, width, height, err) < 0)
        return -1;
    for (size_t i = 0; i < e->nkinds; i++) {
        struct str name = { 0 };
        double needs;

        add_coord(&name, r->request, &e->kind[i]);
        needs = canvas_text_width(c, 10, str_text(&name)) + 16;
        left = needs > left ? needs : left;
        str_clear(&name);
    }
    scale = scale > 0 ? (width - left - right) / scale : 0;
    for (int k = 0; k < MEMORY_CATEGORIES; k++) {
        if (!is_needed(e, k))
            continue;
        canvas_rectangle(c, legend, 14, 10, 10, canvas_colour(k));
        canvas_text(c, legend + 14, 19, 10, ALIGN_LEFT, canvas_ink,
                    memory_category_names[k]);
        legend += 24 + canvas_text_width(c, 10, memory_category_names[k]);
    }
    for (size_t i = 0; i < e->nkinds; i++) {
        double x = left, y = top + row * (double)i;
        struct str name = { 0 };
        char size[32];

        add_coord(&name, r->request, &e->kind[i]);
        canvas_text(c, left - 8, y + 9, 10, ALIGN_RIGHT, canvas_ink, str_text(&name));
        for (int k = 0; k < MEMORY_CATEGORIES; k++) {
            double w = (double)e->kind[i].peak[k] * scale;

            if (w > 0)
                canvas_rectangle(c, x, y, w, 18, canvas_colour(k));
            x += w;
        }
        canvas_text(c, x + 6, y + 9, 10, ALIGN_LEFT, canvas_ink,
                    str_human(size, e->kind[i].total));
        str_clear(&name);
    }
    if (r->request->gpu_memory) {
        double x = left + (double)r->request->gpu_memory * scale;
        char size[32];

        canvas_line(c, x, top - 8, x, height - 20, 1, canvas_ink);
        canvas_text(c, x, height - 10, 10, ALIGN_CENTRE, canvas_ink,
                    str_human(size, r->request->gpu_memory));
    }
    return canvas_close(c, err);
}
