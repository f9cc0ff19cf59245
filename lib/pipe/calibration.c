/* calibration - what a machine takes for each part of a model, measured */
#include "lib/pipe/calibration.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

enum { VERSION = 1, MAX_PARTS = 1 << 16 };

bool calibration_is_text(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '{';
}

/* The number KEY of OBJ, at least 0; a null where it MAY be absent is 0. */
static int number(double *out, const struct json_doc *doc, const struct json *obj,
                  const char *key, bool may, struct err *err)
{
    const struct json *j = json_get(obj, key);

    *out = 0;
    if (may && (!j || j->type == JSON_NULL))
        return 0;
    if (!json_double(j, out) || !(*out >= 0) || !isfinite(*out))
        return json_error(doc, j ? j : obj, err, "'%s' is no number from 0", key);
    return 0;
}

static const struct {
    const char *key;
    size_t at;
} works[] = {
    { "products", offsetof(struct calibrated_work, products) },
    { "attention", offsetof(struct calibrated_work, attention) },
    { "values", offsetof(struct calibrated_work, values) },
    { "weights", offsetof(struct calibrated_work, weights) },
    { "instructions", offsetof(struct calibrated_work, instructions) },
};
enum { WORKS = sizeof(works) / sizeof(*works) };

/* The work KEY of part J to *W; *ALL becomes false where it is not told. */
static int parse_work(struct calibrated_work *w, bool *all, const struct json_doc *doc,
                      const struct json *j, const char *key, struct err *err)
{
    const struct json *obj = json_get(j, key);

    if (!obj) {
        *all = false;
        return 0;
    }
    for (int i = 0; i < WORKS; i++)
        if (number((double *)((char *)w + works[i].at), doc, obj, works[i].key, false,
                   err) < 0)
            return -1;
    return 0;
}

static int parse_training(struct calibration *c, const struct json_doc *doc,
                          struct err *err)
{
    const struct json *j = json_get(doc->root, "training");

    if (!j || j->type == JSON_NULL)
        return 0;
    if (number(&c->training.seconds, doc, j, "seconds", false, err) < 0 ||
        number(&c->training.states, doc, j, "states", false, err) < 0)
        return -1;
    if (json_get(j, "reverse") &&
        parse_work(&c->training.reverse, &c->works, doc, j, "reverse", err) < 0)
        return -1;
    return parse_work(&c->training.work, &c->works, doc, j, "work", err);
}

/* What files of later releases tell besides. */
static int parse_machine(struct calibration *c, const struct json_doc *doc,
                         struct err *err)
{
    const struct json *weights = json_get(doc->root, "weights");
    const struct json *memory = json_get(doc->root, "memory");

    c->works = weights && memory;
    if (!c->works)
        return 0;
    if (!json_string(weights) || strlen(json_string(weights)) >= sizeof(c->weights))
        return json_error(doc, weights, err, "'weights' is no type");
    snprintf(c->weights, sizeof(c->weights), "%s", json_string(weights));
    if (!json_u64(memory, &c->memory))
        return json_error(doc, memory, err, "'memory' is no number of bytes");
    return parse_training(c, doc, err);
}

static int parse_parts(struct calibration *c, const struct json_doc *doc,
                       struct err *err)
{
    const struct json *list = json_get(doc->root, "parts");
    int i = 0;

    if (!list || list->type != JSON_ARRAY || list->n < 2 || list->n > MAX_PARTS)
        return json_error(doc, list ? list : doc->root, err,
                          "'parts' is no list of embedding, layers and head");
    c->nlayers = (int)list->n - 2;
    c->part = xcalloc(list->n, sizeof(*c->part));
    for (const struct json *j = list->first; j; j = j->next, i++)
        if (number(&c->part[i].prefill, doc, j, "prefill", false, err) < 0 ||
            number(&c->part[i].decode, doc, j, "decode", false, err) < 0 ||
            parse_work(&c->part[i].step, &c->works, doc, j, "step", err) < 0 ||
            parse_work(&c->part[i].token, &c->works, doc, j, "token", err) < 0)
            return -1;
    return 0;
}

static int parse(struct calibration *c, const struct json_doc *doc, struct err *err)
{
    const struct {
        const char *key;
        double *to;
        bool may;
    } numbers[] = {
        { "memory_read", &c->memory_read, false },
        { "product", &c->product, false },
        { "prefill_share", &c->prefill_share, false },
        { "decode_share", &c->decode_share, false },
        { "latency", &c->latency, true },
        { "bandwidth", &c->bandwidth, true },
        { "message", &c->message, false },
    };
    const char *type = json_string(json_get(doc->root, "type"));
    uint64_t version;

    if (!type || strcmp(type, "calibration") != 0)
        return json_error(doc, doc->root, err, "is no calibration file");
    if (!json_u64(json_get(doc->root, "version"), &version) || version != VERSION)
        return json_error(
            doc, doc->root, err,
            "is of another version than %d; 'tp-run bench' makes a new one", VERSION);
    if (!json_u64(json_get(doc->root, "tokens"), &c->tokens) || c->tokens == 0)
        return json_error(doc, doc->root, err, "'tokens' is no number from 1");
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        if (number(numbers[i].to, doc, doc->root, numbers[i].key, numbers[i].may, err) <
            0)
            return -1;
    if (parse_machine(c, doc, err) < 0)
        return -1;
    return parse_parts(c, doc, err);
}

int calibration_parse(struct calibration *out, const char *name, const char *text,
                      size_t n, struct err *err)
{
    struct calibration c = { 0 };
    struct json_doc doc;
    int ret;

    if (json_parse(&doc, name, text, n, err) < 0)
        return -1;
    ret = parse(&c, &doc, err);
    json_clear(&doc);
    if (ret < 0)
        calibration_clear(&c);
    else
        *out = c;
    return ret;
}

int calibration_read(struct calibration *out, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_file(&text, &n, path, 1 << 24, err) < 0)
        return -1;
    ret = calibration_parse(out, path, text, n, err);
    free(text);
    return ret;
}

void calibration_clear(struct calibration *c)
{
    free(c->part);
    *c = (struct calibration){ 0 };
}

static void print_number(struct str *out, const char *key, double x, bool known)
{
    str_addf(out, ",\"%s\":", key);
    if (known)
        str_add_double(out, x);
    else
        str_add(out, "null");
}

static void print_work(struct str *out, const char *key,
                       const struct calibrated_work *w)
{
    str_addf(out, ",\"%s\":{", key);
    for (int i = 0; i < WORKS; i++) {
        str_addf(out, "%s\"%s\":", i ? "," : "", works[i].key);
        str_add_double(out, *(const double *)((const char *)w + works[i].at));
    }
    str_addc(out, '}');
}

void calibration_print(struct str *out, const struct calibration *c)
{
    str_addf(out, "{\"type\":\"calibration\",\"version\":%d,\"tokens\":%llu", VERSION,
             (unsigned long long)c->tokens);
    print_number(out, "memory_read", c->memory_read, true);
    print_number(out, "product", c->product, true);
    print_number(out, "prefill_share", c->prefill_share, true);
    print_number(out, "decode_share", c->decode_share, true);
    print_number(out, "latency", c->latency, c->latency > 0);
    print_number(out, "bandwidth", c->bandwidth, c->bandwidth > 0);
    print_number(out, "message", c->message, true);
    if (c->works) {
        str_add(out, ",\"weights\":");
        str_add_json(out, c->weights);
        str_addf(out, ",\"memory\":%llu", (unsigned long long)c->memory);
        str_add(out, ",\"training\":");
        if (c->training.seconds > 0) {
            str_add(out, "{\"seconds\":");
            str_add_double(out, c->training.seconds);
            print_number(out, "states", c->training.states, true);
            print_work(out, "work", &c->training.work);
            if (c->training.reverse.instructions > 0)
                print_work(out, "reverse", &c->training.reverse);
            str_addc(out, '}');
        } else {
            str_add(out, "null");
        }
    }
    str_add(out, ",\"parts\":[");
    for (int i = 0; i < c->nlayers + 2; i++) {
        str_addf(out, "%s\n {\"part\":", i ? "," : "");
        if (i == 0)
            str_add(out, "\"begin\"");
        else if (i == c->nlayers + 1)
            str_add(out, "\"end\"");
        else
            str_addf(out, "\"layer.%d\"", i - 1);
        print_number(out, "prefill", c->part[i].prefill, true);
        print_number(out, "decode", c->part[i].decode, true);
        if (c->works) {
            print_work(out, "step", &c->part[i].step);
            print_work(out, "token", &c->part[i].token);
        }
        str_addc(out, '}');
    }
    str_add(out, "]}\n");
}
