/* measured - rates of a device, fitted to measurements
 *
 * Time is linear in the unknowns: FLOPs times seconds per FLOP, bytes times seconds per
 * byte, instructions times seconds per instruction.  A decoded token is bound by the
 * weights that it reads, as in steptime.c. */
#include "lib/estimate/measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/estimate/steptime.h"

enum { VERSION = 1, MAX_BYTES = 1 << 20, ROUNDS = 20000 };

/* The unknowns: seconds per FLOP for each type of product, then these. */
enum { ATTENTION = GPU_RATES, VALUES, WEIGHTS, INSTRUCTION, UNKNOWNS };

/* Weight of a rate's deviation from its probe, relative to that of a step; and
 * attention's assumed fraction of the products' rate if it was not measured. */
static const double PULL = 0.02, ATTENTION_SHARE = 0.5;
/* Lower limits, as fractions of the probes' seconds: products and attention are no
 * faster than the probe of products; caches may be ten times as fast as memory. */
static const double CACHED = 0.1;
/* Seconds of an instruction whose deviation counts as 100 %. */
static const double INSTRUCTION_SCALE = 1e-6;

/* Normal equations, in units of the probes' values. */
struct normal {
    double a[UNKNOWNS][UNKNOWNS], b[UNKNOWNS], unit[UNKNOWNS], least[UNKNOWNS];
};

static void add_equation(struct normal *s, const double x[UNKNOWNS], double y)
{
    for (int i = 0; i < UNKNOWNS; i++) {
        for (int k = 0; k < UNKNOWNS; k++)
            s->a[i][k] += x[i] * s->unit[i] * x[k] * s->unit[k];
        s->b[i] += x[i] * s->unit[i] * y;
    }
}

/* Solves the least squares with lower limits, by coordinate descent.  The matrix has
 * full rank: each unknown has an equation of its own. */
static void solve(const struct normal *s, double out[UNKNOWNS])
{
    double x[UNKNOWNS] = { 0 };

    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < UNKNOWNS; i++) {
            double rest = s->b[i];

            for (int k = 0; k < UNKNOWNS; k++)
                rest -= k == i ? 0 : s->a[i][k] * x[k];
            x[i] = rest / s->a[i][i];
            x[i] = x[i] > s->least[i] ? x[i] : s->least[i];
        }
    for (int i = 0; i < UNKNOWNS; i++)
        out[i] = x[i] * s->unit[i];
}

/* ---- calibrations ---- */

/* The type of C's products, or -1 if unknown. */
static int rate_of(const struct calibration *c)
{
    static const struct {
        const char *weights;
        enum gpu_rate rate;
    } types[] = { { "F32", GPU_FP32 }, { "BF16", GPU_BF16 }, { "F16", GPU_FP16 } };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(c->weights, types[i].weights))
            return (int)types[i].rate;
    return -1;
}

/* Sets X to the work of parts [BEGIN, END) of C, for a step or for a TOKEN; returns the
 * measured seconds. */
static double sum_parts(double x[UNKNOWNS], const struct calibration *c, int begin,
                        int end, bool token)
{
    double seconds = 0;

    memset(x, 0, UNKNOWNS * sizeof(*x));
    for (int i = begin; i < end; i++) {
        const struct calibrated *p = &c->part[i];
        const struct calibrated_work *w = token ? &p->token : &p->step;

        seconds += token ? p->decode : p->prefill;
        x[INSTRUCTION] += w->instructions;
        x[WEIGHTS] += w->weights;
        x[token ? WEIGHTS : VALUES] += w->values;
        if (token)
            continue;
        x[rate_of(c)] += w->products;
        x[ATTENTION] += w->attention;
    }
    return seconds;
}

static double total(const double x[UNKNOWNS], const double each[UNKNOWNS])
{
    double sum = 0;

    for (int i = 0; i < UNKNOWNS; i++)
        sum += x[i] * each[i];
    return sum;
}

/* Adds C's equations, divided by the time of the whole step. */
static void add_calibration(struct normal *s, const struct calibration *c)
{
    const int end[] = { 0, 1, c->nlayers + 1, c->nlayers + 2 };
    double x[UNKNOWNS];

    for (int token = 0; token < 2; token++) {
        double whole = sum_parts(x, c, 0, c->nlayers + 2, token);

        for (int i = 1; i < 4 && whole > 0; i++) {
            double seconds = sum_parts(x, c, end[i - 1], end[i], token);

            for (int k = 0; k < UNKNOWNS; k++)
                x[k] /= whole;
            add_equation(s, x, seconds / whole);
        }
    }
}

/* Predicted seconds of a pass with work W at EACH, with products of C's type;
 * *attention is the part of attention. */
static double forward(const struct calibration *c, const struct calibrated_work *w,
                      const double each[UNKNOWNS], double *attention)
{
    double x[UNKNOWNS] = {
        [VALUES] = w->values, [WEIGHTS] = w->weights, [INSTRUCTION] = w->instructions
    };

    x[rate_of(c)] = w->products;
    *attention = w->attention * each[ATTENTION];
    return total(x, each) + *attention;
}

/* Mean ratio of measured and predicted time of the backward passes of the N
 * calibrations C; 0 if none was measured.  OWN: predicted from their own work. */
static double backward(const struct calibration *c, size_t n,
                       const double each[UNKNOWNS], bool own)
{
    double sum = 0, measured = 0;

    for (size_t i = 0; i < n; i++) {
        double attention, took = forward(&c[i], &c[i].training.work, each, &attention);
        double update = step_update_passes * c[i].training.states * each[WEIGHTS];
        double back = c[i].training.seconds - took - update;

        if (c[i].training.seconds <= 0 || back <= 0 ||
            (own && c[i].training.reverse.instructions <= 0))
            continue;
        if (own) {
            took = forward(&c[i], &c[i].training.reverse, each, &attention);
            sum += back / step_reverse(took - attention, attention);
        } else {
            sum += back / step_back(took - attention, attention);
        }
        measured++;
    }
    return measured > 0 ? sum / measured : 0;
}

static int check(const struct calibration *c, const char *path, struct err *err)
{
    if (!c->works)
        return err_set(err, ERR_INPUT,
                       "%s: lacks the work of its parts: measured with sp, or by an "
                       "older tp-run bench",
                       path);
    if (rate_of(c) < 0)
        return err_set(err, ERR_INPUT,
                       "%s: measured with weights in %s, not F32, BF16 or F16", path,
                       c->weights);
    if (!(c->product > 0 && c->memory_read > 0))
        return err_set(err, ERR_INPUT, "%s: a rate is 0", path);
    return 0;
}

int measured_fit(struct measured *out, const struct calibration *c,
                 const char *const *paths, size_t n, struct err *err)
{
    struct normal s = { 0 };
    struct measured m = { .name = "measured", .memory = n ? c[0].memory : 0 };
    double product = 0, memory = 0, each[UNKNOWNS];
    bool has[GPU_RATES] = { false };

    for (size_t i = 0; i < n; i++) {
        if (check(&c[i], paths[i], err) < 0)
            return -1;
        has[rate_of(&c[i])] = true;
        product = c[i].product > product ? c[i].product : product;
        memory = c[i].memory_read > memory ? c[i].memory_read : memory;
        m.memory = c[i].memory < m.memory ? c[i].memory : m.memory;
        m.link = c[i].bandwidth > m.link ? c[i].bandwidth : m.link;
        if (c[i].latency > 0 && (m.latency <= 0 || c[i].latency < m.latency))
            m.latency = c[i].latency;
    }
    for (int i = 0; i < UNKNOWNS; i++) {
        double pull[UNKNOWNS] = { 0 };

        s.unit[i] = i < GPU_RATES      ? 1 / product
                    : i == ATTENTION   ? 1 / (product * ATTENTION_SHARE)
                    : i == INSTRUCTION ? INSTRUCTION_SCALE
                                       : 1 / memory;
        s.least[i] = i < ATTENTION      ? 1
                     : i == ATTENTION   ? ATTENTION_SHARE
                     : i == INSTRUCTION ? 0
                                        : CACHED;
        pull[i] = PULL / s.unit[i];
        add_equation(&s, pull, i == INSTRUCTION ? 0 : PULL);
    }
    for (size_t i = 0; i < n; i++)
        add_calibration(&s, &c[i]);
    solve(&s, each);
    for (int k = 0; k < GPU_RATES; k++)
        m.product[k] = has[k] ? 1 / each[k] : 0;
    m.attention = 1 / each[ATTENTION];
    m.values = 1 / each[VALUES];
    m.weights = 1 / each[WEIGHTS];
    m.instruction = each[INSTRUCTION];
    m.backward = backward(c, n, each, false);
    m.reverse = backward(c, n, each, true);
    *out = m;
    return 0;
}

double measured_seconds(const struct measured *m, const struct calibration *c,
                        bool token)
{
    double x[UNKNOWNS], each[UNKNOWNS] = { [ATTENTION] = 1 / m->attention,
                                           [VALUES] = 1 / m->values,
                                           [WEIGHTS] = 1 / m->weights,
                                           [INSTRUCTION] = m->instruction };

    for (int k = 0; k < GPU_RATES; k++)
        each[k] = m->product[k] > 0 ? 1 / m->product[k] : 0;
    sum_parts(x, c, 0, c->nlayers + 2, token);
    return total(x, each);
}

/* ---- files ---- */

bool measured_may_be_called(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return false;
    return n > 0 && n < sizeof(((struct measured *)NULL)->name);
}

/* The number KEY of OBJ, above 0; if MAY, from 0, and null or absence is 0. */
static int number(double *out, const struct json_doc *doc, const struct json *obj,
                  const char *key, bool may, struct err *err)
{
    const struct json *j = json_get(obj, key);

    *out = 0;
    if (may && (!j || j->type == JSON_NULL))
        return 0;
    if (!json_double(j, out) || !isfinite(*out) || !(may ? *out >= 0 : *out > 0))
        return json_error(doc, j ? j : obj, err, "'%s' is no number %s", key,
                          may ? "from 0" : "above 0");
    return 0;
}

static int parse(struct measured *m, const struct json_doc *doc, struct err *err)
{
    const struct json *root = doc->root, *products = json_get(root, "products");
    const char *type = json_string(json_get(root, "type"));
    const char *name = json_string(json_get(root, "name"));
    uint64_t version;
    bool any = false;

    if (type && !strcmp(type, "calibration"))
        return json_error(doc, root, err,
                          "is of tp-run bench; mem-estimate calibrate makes a device "
                          "of it");
    if (!type || strcmp(type, "device") != 0)
        return json_error(doc, root, err, "is not a device file");
    if (!json_u64(json_get(root, "version"), &version) || version != VERSION)
        return json_error(doc, root, err,
                          "is of another version than %d; 'mem-estimate calibrate' "
                          "makes a new one",
                          VERSION);
    if (!name || !measured_may_be_called(name))
        return json_error(doc, json_get(root, "name"), err,
                          "'name' is no line of 1 to %zu bytes", sizeof(m->name) - 1);
    snprintf(m->name, sizeof(m->name), "%s", name);
    if (!json_u64(json_get(root, "memory"), &m->memory) || m->memory < 1 << 20)
        return json_error(doc, json_get(root, "memory"), err,
                          "'memory' is no number of bytes from 1 MiB");
    for (int k = 0; k < GPU_RATES; k++) {
        if (number(&m->product[k], doc, products, gpu_rate_names[k], true, err) < 0)
            return -1;
        any |= m->product[k] > 0;
    }
    if (!any)
        return json_error(doc, products ? products : root, err,
                          "'products' names the rate of no type");
    if (number(&m->attention, doc, root, "attention", false, err) < 0 ||
        number(&m->weights, doc, root, "weights", false, err) < 0 ||
        number(&m->values, doc, root, "values", false, err) < 0 ||
        number(&m->instruction, doc, root, "instruction", true, err) < 0 ||
        number(&m->backward, doc, root, "backward", true, err) < 0 ||
        number(&m->reverse, doc, root, "reverse", true, err) < 0 ||
        number(&m->link, doc, root, "link", true, err) < 0 ||
        number(&m->latency, doc, root, "latency", true, err) < 0)
        return -1;
    return 0;
}

int measured_parse(struct measured *out, const char *name, const char *text, size_t n,
                   struct err *err)
{
    struct measured m = { 0 };
    struct json_doc doc;
    int ret;

    if (json_parse(&doc, name, text, n, err) < 0)
        return -1;
    ret = parse(&m, &doc, err);
    json_clear(&doc);
    if (ret == 0)
        *out = m;
    return ret;
}

int measured_read(struct measured *out, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_file(&text, &n, path, MAX_BYTES, err) < 0)
        return -1;
    ret = measured_parse(out, path, text, n, err);
    free(text);
    return ret;
}

static void print_number(struct str *out, const char *key, double x)
{
    str_addf(out, ",\"%s\":", key);
    if (x > 0)
        str_add_double(out, x);
    else
        str_add(out, "null");
}

void measured_print(struct str *out, const struct measured *m)
{
    str_addf(out, "{\"type\":\"device\",\"version\":%d,\"name\":", VERSION);
    str_add_json(out, m->name);
    str_addf(out, ",\"memory\":%llu,\"products\":{", (unsigned long long)m->memory);
    for (int k = 0, any = 0; k < GPU_RATES; k++) {
        if (m->product[k] <= 0)
            continue;
        str_addf(out, "%s\"%s\":", any++ ? "," : "", gpu_rate_names[k]);
        str_add_double(out, m->product[k]);
    }
    str_addc(out, '}');
    print_number(out, "attention", m->attention);
    print_number(out, "weights", m->weights);
    print_number(out, "values", m->values);
    print_number(out, "instruction", m->instruction);
    print_number(out, "backward", m->backward);
    print_number(out, "reverse", m->reverse);
    print_number(out, "link", m->link);
    print_number(out, "latency", m->latency);
    str_add(out, "}\n");
}
