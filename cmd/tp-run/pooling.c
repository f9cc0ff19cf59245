/* pooling - how the vectors of a model's tokens become one vector of a text */
#include "cmd/tp-run/pooling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { MAX_JSON = 1 << 20 };

/* Takes one step of modules.json. */
static int take_module(struct pooling *p, char **where, const struct json_doc *doc,
                       const struct json *module, struct err *err)
{
    const char *type = json_string(json_get(module, "type"));
    const char *path = json_string(json_get(module, "path"));
    const char *step = type ? strrchr(type, '.') : NULL;

    if (!type || !path)
        return json_error(doc, module, err, "a module has a \"type\" and a \"path\"");
    step = step ? step + 1 : type;
    if (!strcmp(step, "Transformer"))
        return 0;
    if (!strcmp(step, "Normalize")) {
        p->normalize = true;
        return 0;
    }
    if (strcmp(step, "Pooling") != 0)
        return json_error(doc, module, err,
                          "embed has no module '%s'; --pooling gives vectors without "
                          "what this file lists",
                          type);
    if (*where)
        return json_error(doc, module, err, "a second pooling");
    if (!fs_is_plain_name(path))
        return json_error(doc, module, err, "'%s' is not a plain file name", path);
    *where = xstrdup(path);
    return 0;
}

int pooling_parse_modules(struct pooling *p, char **where, const char *name,
                          const char *text, size_t n, struct err *err)
{
    struct json_doc doc;
    int ret = 0;

    *where = NULL;
    if (json_parse(&doc, name, text, n, err) < 0)
        return -1;
    if (doc.root->type != JSON_ARRAY)
        ret = json_error(&doc, doc.root, err, "expected a list of modules");
    else
        for (const struct json *m = doc.root->first; m && ret == 0; m = m->next)
            ret = take_module(p, where, &doc, m, err);
    if (ret < 0) {
        free(*where);
        *where = NULL;
    }
    json_clear(&doc);
    return ret;
}

/* The pooling called NAME, or -1. */
static int kind_of(const char *name)
{
    static const char *const KINDS[][2] = { [POOL_MEAN] = { "mean", "mean_tokens" },
                                            [POOL_CLS] = { "cls", "cls_token" },
                                            [POOL_LAST] = { "lasttoken",
                                                            "lasttoken" } };

    for (int k = POOL_MEAN; k <= POOL_LAST; k++)
        if (!strcmp(name, KINDS[k][0]) || !strcmp(name, KINDS[k][1]))
            return k;
    return -1;
}

/* Two forms: "pooling_mode": "cls", or a truth for each, "pooling_mode_cls_token". */
int pooling_parse_config(struct pooling *p, const char *name, const char *text,
                         size_t n, struct err *err)
{
    static const char KEY[] = "pooling_mode";
    const char *mode = NULL;
    struct json_doc doc;
    int ret = 0;

    if (json_parse(&doc, name, text, n, err) < 0)
        return -1;
    for (const struct json *m = doc.root->type == JSON_OBJECT ? doc.root->first : NULL;
         m && ret == 0; m = m->next) {
        const char *rest = str_starts(m->key, KEY) ? m->key + sizeof(KEY) - 1 : NULL;
        const char *given = NULL;

        if (rest && !*rest)
            given = json_string(m) ? json_string(m) : "";
        else if (rest && *rest == '_' && json_is_true(m))
            given = rest + 1;
        if (!given)
            continue;
        p->kind = kind_of(given);
        if (p->kind < 0)
            ret = json_error(&doc, m, err,
                             "embed pools by mean, cls or lasttoken; --pooling chooses "
                             "one of its own");
        else if (mode)
            ret = json_error(&doc, m, err,
                             "a second way to pool: embed does not join vectors; "
                             "--pooling chooses one");
        mode = given;
    }
    if (ret == 0 && !mode)
        ret = json_error(&doc, doc.root, err, "has no way to pool");
    json_clear(&doc);
    return ret;
}

static int read_config(struct pooling *p, const char *dir, const char *where,
                       struct err *err)
{
    char *below = fs_join_dup(dir, where), *path = fs_join_dup(below, "config.json");
    char *text = NULL;
    size_t n;
    int ret = -1;

    if (fs_read_regular(&text, &n, path, MAX_JSON, err) == 0)
        ret = pooling_parse_config(p, path, text, n, err);
    free(text);
    free(path);
    free(below);
    return ret;
}

int pooling_read(struct pooling *p, const char *dir, struct err *err)
{
    char *path = fs_join_dup(dir, "modules.json");
    char *text = NULL, *where = NULL;
    size_t n;
    int ret = fs_read_optional(&text, &n, path, MAX_JSON, err);

    *p = (struct pooling){ .kind = POOL_MEAN };
    if (ret == 0 && text)
        ret = pooling_parse_modules(p, &where, path, text, n, err);
    if (ret == 0 && where)
        ret = read_config(p, dir, where, err);
    free(where);
    free(text);
    free(path);
    return ret;
}

void pooling_apply(const struct pooling *p, const float *x, size_t rows, size_t cols,
                   float *out)
{
    double squares = 0;

    for (size_t c = 0; c < cols; c++) {
        double sum = 0;

        if (p->kind == POOL_MEAN)
            for (size_t r = 0; r < rows; r++)
                sum += (double)x[r * cols + c];
        out[c] = p->kind == POOL_MEAN   ? (float)(sum / (double)rows)
                 : p->kind == POOL_LAST ? x[(rows - 1) * cols + c]
                                        : x[c];
        squares += (double)out[c] * (double)out[c];
    }
    for (size_t c = 0; p->normalize && c < cols && squares > 0; c++)
        out[c] = (float)((double)out[c] / sqrt(squares));
}
