/* metrics - what a server has done, in Prometheus' text format 0.0.4 */
#include "lib/serve/metrics.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum type { GAUGE, COUNTER, HISTOGRAM };

/* Upper bounds of buckets, ascending, 0 at the end; those of vLLM. */
static const double short_times[] = { .001, .005, .01, .02, .04, .06,  .08, .1,
                                      .25,  .5,   .75, 1,   2.5, 5,    7.5, 10,
                                      20,   40,   80,  160, 640, 2560, 0 };
static const double long_times[] = {
    .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,   20,
    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680, 0
};
static const double sizes[] = { 1,     2,     4,     8,      16,   32,   64,
                                128,   256,   512,   1024,   2048, 4096, 8192,
                                16384, 32768, 65536, 131072, 0 };
enum { BUCKETS = 24 };

static const struct row {
    const char *name;
    enum type type;
    const double *bound;
    const char *labels, *help;
} rows[] = {
#define ROW(NAME, name, type, buckets, labels, help) \
    { name, type, buckets, labels, help },
    METRICS(ROW)
#undef ROW
};

struct number {
    double value; /* of a histogram: the sum */
    uint64_t count[BUCKETS];
};

struct metrics {
    pthread_mutex_t lock;
    struct number of[METRIC_COUNT];
};

struct metrics *metrics_new(void)
{
    struct metrics *m = xcalloc(1, sizeof(*m));

    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void metrics_set(struct metrics *m, enum metric which, double x)
{
    pthread_mutex_lock(&m->lock);
    m->of[which].value = x;
    pthread_mutex_unlock(&m->lock);
}

void metrics_add(struct metrics *m, enum metric which, double x)
{
    pthread_mutex_lock(&m->lock);
    m->of[which].value += x;
    pthread_mutex_unlock(&m->lock);
}

void metrics_observe(struct metrics *m, enum metric which, double x)
{
    const double *bound = rows[which].bound;
    size_t i = 0;

    while (bound[i] > 0 && x > bound[i])
        i++;
    pthread_mutex_lock(&m->lock);
    m->of[which].value += x;
    m->of[which].count[i]++;
    pthread_mutex_unlock(&m->lock);
}

static void print_histogram(const struct row *row, const struct number *n,
                            const char *model, struct str *out)
{
    uint64_t total = 0;

    for (size_t i = 0;; i++) {
        total += n->count[i];
        str_addf(out, "vllm:%s_bucket{model_name=%s,le=\"", row->name, model);
        if (row->bound[i] <= 0)
            break;
        str_addf(out, "%.10g\"} %llu\n", row->bound[i], (unsigned long long)total);
    }
    str_addf(out, "+Inf\"} %llu\n", (unsigned long long)total);
    str_addf(out, "vllm:%s_sum{model_name=%s} %.10g\n", row->name, model, n->value);
    str_addf(out, "vllm:%s_count{model_name=%s} %llu\n", row->name, model,
             (unsigned long long)total);
}

/* A label's value: quoted, with \\, \" and \n escaped. */
static void quote(const char *text, struct str *out)
{
    str_addc(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            str_addc(out, '\\');
        if (*text == '\n')
            str_add(out, "\\n");
        else
            str_addc(out, *text);
    }
    str_addc(out, '"');
}

void metrics_print(struct metrics *m, const char *model, struct str *out)
{
    static const char *const types[] = { "gauge", "counter", "histogram" };
    struct number *now = xmalloc(sizeof(m->of));
    struct str name = { 0 };

    pthread_mutex_lock(&m->lock);
    memcpy(now, m->of, sizeof(m->of));
    pthread_mutex_unlock(&m->lock);
    quote(model, &name);
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const struct row *row = &rows[i];

        if (!i || strcmp(row->name, rows[i - 1].name) != 0)
            str_addf(out, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", row->name,
                     row->help, row->name, types[row->type]);
        if (row->type == HISTOGRAM)
            print_histogram(row, &now[i], str_text(&name), out);
        else
            str_addf(out, "vllm:%s{model_name=%s%s} %.17g\n", row->name,
                     str_text(&name), row->labels, now[i].value);
    }
    str_clear(&name);
    free(now);
}
