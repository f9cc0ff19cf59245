/* report - print an estimate as text, as JSON or on a page, and explain it */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "cmd/table.h"
#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/reversed.h"
#include "lib/base/fs.h"

/* ---- counts ---- */

/* The number of parameters that one token uses: only the top-k experts are counted. */
static uint64_t active_params(const struct costmodel *a, uint64_t params)
{
    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];
        uint64_t n = u->weight[WEIGHT_EXPERT].elements;

        if (u->all)
            params -= n - n / u->all * u->top;
    }
    return params;
}

/* Bytes of K's categories that are not allocated at the moment of its peak. */
static uint64_t bytes_apart(const struct rank_memory *k)
{
    uint64_t sum = 0;

    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        sum += k->bytes[c] - k->peak[c];
    return sum;
}

/* Cost model of the whole model on one rank; NULL on error. */
static struct costmodel *whole_costmodel(const struct request *r)
{
    const int origin[MESH_NAXES] = { 0 };
    struct costmodel *a = NULL;
    struct err e = { 0 };
    struct mesh one;

    mesh_one(&one);
    if (costmodel_open(&a, r->summary.model, &one, origin, r->stored, NULL, &e) < 0)
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
             ",\"total\":%" PRIu64 ",\"host\":%" PRIu64 ",\"temporary\":%" PRIu64
             ",\"moment\":\"%s\",\"apart\":%" PRIu64
             ",\"peak_moment\":\"%s\",\"not_at_peak\":%" PRIu64 "}",
             k->total, k->host, k->bytes[MEMORY_WORKING],
             memory_moment_names[k->moment], bytes_apart(k),
             memory_moment_names[k->moment], bytes_apart(k));
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
    struct costmodel *a = whole_costmodel(q);
    uint64_t params = costmodel_params(q->summary.model);
    struct str s = { 0 };

    str_add(&s, "{\"type\":\"estimate\",\"model\":");
    str_add_json(&s, q->path);
    str_add(&s, ",\"family\":");
    str_add_json(&s, q->summary.model->family);
    str_addf(&s, ",\"params\":%" PRIu64 ",\"active_params\":%" PRIu64, params,
             a ? active_params(a, params) : params);
    str_addf(&s, ",\"buffers\":%" PRIu64, costmodel_buffers(q->summary.model));
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
    str_addf(&s, ",\"tight\":%s",
             !q->gpu_memory ? "null"
             : r->tight     ? "true"
                            : "false");
    if (r->requests)
        str_addf(&s, ",\"requests\":%" PRIu64, r->requests);
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
    costmodel_close(a);
}

/* ---- text ---- */

/* Prints the weights' size in four types: what one device needs to load or train the
 * model. */
static void print_simple(const struct request *q)
{
    static const struct {
        const char *name;
        uint64_t half_bytes; /* size of an element in half bytes */
        bool trains;
    } rows[] = { { "f32", 8, true },
                 { "bf16", 4, true },
                 { "int8", 2, false },
                 { "int4", 1, false } };
    struct costmodel *a = whole_costmodel(q);
    uint64_t params = costmodel_params(q->summary.model);
    uint64_t all = params + costmodel_buffers(q->summary.model);
    char layer[32], total[32], train[32];

    printf("%-6s %14s %14s %20s\n", "dtype", "largest layer", "total size",
           "training with Adam");
    for (int i = 0; a && i < 4; i++)
        printf("%-6s %14s %14s %20s\n", rows[i].name,
               str_human(layer, a->largest * rows[i].half_bytes / 2),
               str_human(total, all * rows[i].half_bytes / 2),
               rows[i].trains ? str_human(train, params * 16) : "-");
    costmodel_close(a);
}

void report_add_rank(struct str *s, const struct request *q,
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

/* ---- the table: one row per kind of rank ---- */

enum { COLUMN_MAX = MEMORY_CATEGORIES + 5, CELL = 64, COLUMNS = 100, INDENT = 8 };

/* Short names of the categories, for column headings. */
static const char *const column_names[MEMORY_CATEGORIES] = {
    [MEMORY_WEIGHTS] = "weights",   [MEMORY_GRADIENTS] = "grads",
    [MEMORY_OPTIMIZER] = "optim",   [MEMORY_ACTIVATIONS] = "activations",
    [MEMORY_LOGITS] = "logits",     [MEMORY_WORKING] = "temp",
    [MEMORY_KV_CACHE] = "KV cache", [MEMORY_COMM] = "comm",
    [MEMORY_RUNTIME] = "runtime",   [MEMORY_FRAGMENTATION] = "frag",
};

/* The cells of one row. */
struct row {
    char cell[COLUMN_MAX][CELL];
    int n;
};

/* The unit of all numbers of a table, chosen by the largest total. */
struct table_unit {
    const char *name;
    double bytes;
};

static struct table_unit unit_of(const struct memory_estimate *e)
{
    uint64_t most = e->peak->total;

    if (most >= (uint64_t)10 << 30)
        return (struct table_unit){ "GiB", 1024. * 1024 * 1024 };
    if (most >= (uint64_t)10 << 20)
        return (struct table_unit){ "MiB", 1024. * 1024 };
    return (struct table_unit){ "KiB", 1024 };
}

static bool is_needed(const struct memory_estimate *e, int c)
{
    for (size_t i = 0; i < e->nkinds; i++)
        if (e->kind[i].peak[c])
            return true;
    return false;
}

static bool is_offloaded(const struct memory_estimate *e)
{
    for (size_t i = 0; i < e->nkinds; i++)
        if (e->kind[i].host)
            return true;
    return false;
}

static void add_cell(struct row *row, const char *text)
{
    snprintf(row->cell[row->n++], CELL, "%s", text);
}

static void add_bytes(struct row *row, struct table_unit unit, uint64_t bytes)
{
    snprintf(row->cell[row->n++], CELL, "%.2f", (double)bytes / unit.bytes);
}

static void fill_header(struct row *row, const struct report *r, struct table_unit unit)
{
    add_cell(row, unit.name);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (is_needed(r->estimate, c))
            add_cell(row, column_names[c]);
    add_cell(row, "total");
    if (is_offloaded(r->estimate))
        add_cell(row, "host");
    if (r->request->memory.train)
        add_cell(row, "peak at");
    if (r->request->gpu_memory)
        add_cell(row, "fits");
}

static void fill_row(struct row *row, const struct report *r, struct table_unit unit,
                     const struct rank_memory *k)
{
    struct str name = { 0 };

    report_add_rank(&name, r->request, k);
    add_cell(row, str_text(&name));
    str_clear(&name);
    for (int c = 0; c < MEMORY_CATEGORIES; c++)
        if (is_needed(r->estimate, c))
            add_bytes(row, unit, k->peak[c]);
    add_bytes(row, unit, k->total);
    if (is_offloaded(r->estimate))
        add_bytes(row, unit, k->host);
    if (r->request->memory.train)
        add_cell(row, memory_moment_names[k->moment]);
    if (r->request->gpu_memory)
        add_cell(row, k->total <= r->request->gpu_memory ? "yes" : "no");
}

void report_page(struct html *page, const struct report *r)
{
    const struct memory_estimate *e = r->estimate;
    struct table_unit unit = unit_of(e);
    char *heads[COLUMN_MAX];
    size_t nheads;
    struct row row = { 0 };

    fill_header(&row, r, unit);
    nheads = (size_t)row.n;
    for (size_t c = 0; c < nheads; c++) {
        const char *text = row.cell[c];
        bool words = !c || !strcmp(text, "peak at") || !strcmp(text, "fits");

        heads[c] = str_dupf("%s%s", words ? "" : ">", text);
    }
    html_table(page, (const char *const *)heads, nheads);
    for (size_t i = 0; i < e->nkinds; i++) {
        row.n = 0;
        fill_row(&row, r, unit, &e->kind[i]);
        for (int c = 0; c < row.n; c++)
            html_cell(page, "%s", row.cell[c]);
    }
    html_table_end(page);
    for (size_t c = 0; c < nheads; c++)
        free(heads[c]);
    if (r->ways_out && *r->ways_out) {
        html_heading(page, "What would fit");
        html_lines(page, r->ways_out);
    }
    if (r->request->assumed.len) {
        html_heading(page, "Assumed");
        html_text(page, r->request->assumed.s);
    }
    if (r->explanation) {
        html_heading(page, "How it is counted");
        html_lines(page, r->explanation);
    }
}

/* In a narrow window the categories go, the last first. */
static void print_kinds(const struct report *r)
{
    const struct memory_estimate *e = r->estimate;
    struct table_unit unit = unit_of(e);
    struct column column[COLUMN_MAX] = { { 0 } };
    struct row head = { 0 }, row;
    struct table *t;
    int total = 1;

    fill_header(&head, r, unit);
    while (strcmp(head.cell[total], "total"))
        total++;
    for (int c = 0; c < head.n; c++)
        column[c] = (struct column){ .head = head.cell[c],
                                     .gap = c > 0,
                                     .right = c > 0,
                                     .drop = c < total ? c : 0,
                                     .wraps = !c };
    t = table_new(column, head.n);
    for (size_t i = 0; i < e->nkinds; i++) {
        row.n = 0;
        fill_row(&row, r, unit, &e->kind[i]);
        for (int c = 0; c < row.n; c++)
            table_add(t, row.cell[c]);
        if (r->request->gpu_memory) /* the last column says whether it fits */
            table_paint(t, e->kind[i].total <= r->request->gpu_memory ? PAINT_GOOD
                                                                      : PAINT_BAD);
    }
    table_print(t);
}

/* A line that answers the question. */
static void print_verdict(const struct report *r)
{
    const struct request *q = r->request;
    enum paint paint = r->fits ? PAINT_GOOD : PAINT_BAD;
    char size[32];

    printf("%s%s%s in %s", terminal_paint(stdout, paint),
           !r->fits   ? "does not fit"
           : r->tight ? "tight"
                      : "fits",
           terminal_plain(stdout, paint), str_human(size, q->gpu_memory));
    if (r->tight)
        printf(": less than %g %% is left", 100 * q->margin);
    putchar('\n');
    if (r->requests)
        printf("at most %" PRIu64 " request%s of %" PRIu64 " tokens\n", r->requests,
               r->requests > 1 ? "s" : "", q->memory.seq);
}

void report_items(const char *head, const char *items)
{
    size_t at = strlen(head);
    int window = terminal_width(stdout);
    size_t most = window && window < COLUMNS ? (size_t)window : COLUMNS;

    fputs(head, stdout);
    while (*items) {
        const char *end = strstr(items, "; ");
        size_t n = end ? (size_t)(end - items) + 1 : strlen(items);

        if (at > INDENT && at + 1 + n > most) {
            printf("\n%*s", INDENT, "");
            at = INDENT;
        }
        printf(" %.*s", (int)n, items);
        at += 1 + n;
        items += n + (items[n] == ' ');
    }
    putchar('\n');
}

void report_text(const struct report *r)
{
    const struct request *q = r->request;
    uint64_t buffers = costmodel_buffers(q->summary.model);
    struct str line = { 0 };

    str_addf(&line, "%s: %s, %" PRIu64 " parameters", q->path, q->summary.model->family,
             costmodel_params(q->summary.model));
    if (buffers)
        str_addf(&line, " and %" PRIu64 " values of buffers", buffers);
    str_addf(&line, ", weights %s",
             q->memory.weights ? q->memory.weights->name : "as stored");
    cmd_puts(str_text(&line));
    str_clear(&line);
    if (q->assumed.len)
        report_items("assumed:", q->assumed.s);
    if (!q->layout)
        print_simple(q);
    if (!r->estimate) {
        printf("impossible:\n%s", r->obstacles);
        return;
    }
    if (q->detailed)
        print_kinds(r);
    if (q->gpu_memory && r->fits)
        print_verdict(r);
    if (!r->fits) {
        print_verdict(r);
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
                           const struct costmodel *a)
{
    const struct memory_options *m = &q->memory;
    bool halves = m->kv_format == FORMAT_CACHE_INT4;
    const char *scales = !m->kv_scales ? ""
                         : halves      ? " (and 2 for each 32)"
                                       : " (and 4 a head)";
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
        str_addf(out,
                 "temp           gradients of activations, at the peak of the backward "
                 "pass\n");
    }
    if (!m->train && m->cache_tokens) {
        str_addf(out, "activations    the most that values of one step need at once\n");
        str_addf(out,
                 "kv_cache       %" PRIu64
                 " elements a token on all layers x %g bytes%s x %" PRIu64
                 " tokens%s\n",
                 cache, format_bits(m->kv_format) / 8.0, scales,
                 m->cache_tokens / m->kv_block * m->kv_block,
                 windows ? ", where there is a window no more than it shows" : "");
    } else if (!m->train) {
        str_addf(out, "activations    the most that values of one step need at once\n");
        str_addf(out,
                 "kv_cache       %" PRIu64
                 " elements a token on all layers x %g bytes%s x %" PRIu64
                 " sequences%s\n",
                 cache, format_bits(m->kv_format) / 8.0, scales,
                 m->micro_batch * m->micro_batches,
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
            str_addf(out, "%s%s %s", before, column_names[c],
                     str_human(size, k->peak[c]));
            before = " + ";
        }
    str_addf(out, " = %s\n", str_human(size, k->total));
}

/* Explains tp-run's memory, from the program that is trained. */
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
    const struct costmodel_options opt = memory_costmodel(&q->memory);
    struct costmodel *a;
    struct err e = { 0 };

    if (!r->estimate || costmodel_open(&a, q->summary.model, &q->memory.mesh, origin,
                                       q->stored, &opt, &e) < 0)
        return xstrdup("");
    if (reversed_applies(&q->memory)) {
        explain_program(&out, q);
    } else {
        explain_states(&out, q);
        explain_values(&out, q, a);
        str_addf(&out, "fragmentation  %g %% of activations, logits, temp and comm\n",
                 q->memory.fragmentation * 100);
    }
    if (q->memory.train)
        explain_peak(&out, r->estimate->peak);
    costmodel_close(a);
    return str_steal(&out);
}
