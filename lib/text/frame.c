/* frame - tokens around a text: the post-processors of a tokenizer.json */
#include "lib/text/frame.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/text/setting.h"

enum { MOST = 1 << 16 }; /* limit of the number of ids */

void frame_clear(struct frame *f)
{
    free(f->id);
    free(f->type);
    *f = (struct frame){ 0 };
}

static int add_typed(struct frame *f, long id, int type, const char *where,
                     struct err *err)
{
    if (f->n == MOST)
        return err_set(err, ERR_INPUT, "%s: too many tokens", where);
    f->id = xgrow(f->id, &f->cap, f->n + 1, sizeof(*f->id));
    f->type = xgrow(f->type, &f->type_cap, f->n + 1, sizeof(*f->type));
    f->type[f->n] = type;
    f->id[f->n++] = id;
    return 0;
}

static int add(struct frame *f, long id, const char *where, struct err *err)
{
    return add_typed(f, id, 0, where, err);
}

static int add_special(struct frame *f, const char *where, const cJSON *all,
                       const char *name, int type, struct err *err)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(all, name), "ids");
    const cJSON *j;

    if (!cJSON_IsArray(ids))
        return err_set(err, ERR_INPUT, "%s: no ids for '%s'", where, name);
    cJSON_ArrayForEach(j, ids)
    {
        long id;

        if (!setting_id(j, &id))
            return err_set(err, ERR_INPUT, "%s: a bad id", where);
        if (add_typed(f, id, type, where, err) < 0)
            return -1;
    }
    return 0;
}

static int type_of(const cJSON *part)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type_id");

    return cJSON_IsNumber(type) && type->valueint > 0 ? type->valueint : 0;
}

/* Reads the list WHICH of a template: "single" or "pair". */
static int read_template(struct frame *f, const char *where, const cJSON *j,
                         const char *which, struct err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(j, which);
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(j, "special_tokens"), *part;

    cJSON_ArrayForEach(part, list)
    {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(part, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "Sequence");
        const char *name = setting_string(special, "id");
        const char *side = setting_string(text, "id");

        if (special && !name)
            return err_set(err, ERR_INPUT, "%s: a bad template", where);
        if ((special
                 ? add_special(f, where, all, name, type_of(special), err)
                 : add_typed(f, side && !strcmp(side, "B") ? FRAME_PAIR : FRAME_TEXT,
                             type_of(text), where, err)) < 0)
            return -1;
    }
    return 0;
}

/* Reads BERT's and RoBERTa's form: a token before and a token after, as ["[CLS]",
 * 101]. */
static int read_around(struct frame *f, const char *where, const cJSON *j,
                       struct err *err)
{
    long cls, sep;

    if (!setting_id(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(j, "cls"), 1),
                    &cls) ||
        !setting_id(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(j, "sep"), 1),
                    &sep))
        return err_set(err, ERR_INPUT, "%s: bad cls or sep", where);
    return add(f, cls, where, err) < 0 || add(f, FRAME_TEXT, where, err) < 0
               ? -1
               : add(f, sep, where, err);
}

static int read_any(struct frame *f, const char *where, const cJSON *j, int depth,
                    struct err *err);

/* In a sequence each processor frames the output of the previous ones. */
static int read_sequence(struct frame *f, const char *where, const cJSON *j, int depth,
                         struct err *err)
{
    const cJSON *one;
    int ret = add(f, FRAME_TEXT, where, err);

    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(j, "processors"))
    {
        struct frame outer = { 0 }, both = { 0 };

        if (ret == 0)
            ret = read_any(&outer, where, one, depth + 1, err);
        for (size_t i = 0; i < outer.n && ret == 0; i++)
            if (outer.id[i] == FRAME_TEXT)
                for (size_t k = 0; k < f->n && ret == 0; k++)
                    ret = add(&both, f->id[k], where, err);
            else
                ret = add(&both, outer.id[i], where, err);
        both.trims = f->trims | outer.trims;
        both.prefix = outer.trims ? outer.prefix : f->prefix;
        frame_clear(&outer);
        frame_clear(f);
        *f = both;
    }
    return ret;
}

static int read_any(struct frame *f, const char *where, const cJSON *j, int depth,
                    struct err *err)
{
    const char *type = setting_type(j);

    if (!strcmp(type, "ByteLevel") || !strcmp(type, "RobertaProcessing")) {
        f->trims = setting_flag(j, "trim_offsets", true);
        f->prefix = setting_flag(j, "add_prefix_space", true);
    }
    if (!strcmp(type, "ByteLevel"))
        return add(f, FRAME_TEXT, where, err);
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(f, where, j, "single", err);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return read_around(f, where, j, err);
    if (!strcmp(type, "Sequence") && depth < 8)
        return read_sequence(f, where, j, depth, err);
    return err_set(err, ERR_INPUT, "%s of type '%s' is not known", where, type);
}

/* Without a frame, two texts are concatenated, the second with type 1. */
static int add_two(struct frame *f, const char *where, struct err *err)
{
    return add(f, FRAME_TEXT, where, err) < 0 ? -1
                                              : add_typed(f, FRAME_PAIR, 1, where, err);
}

/* Reads the frame of two texts: BERT's gives type 1 to the second text and what follows
 * it; RoBERTa's has one more separator between them.  In a sequence only one processor
 * may frame; otherwise *f stays empty, and pairs of texts are an error when they
 * occur. */
static int read_pair(struct frame *f, const char *where, const cJSON *j,
                     struct err *err)
{
    const char *type = setting_absent(j) ? "ByteLevel" : setting_type(j);
    const cJSON *one, *framing = NULL;
    struct frame around = { 0 };
    bool bert = !strcmp(type, "BertProcessing");
    int ret;

    if (!strcmp(type, "Sequence")) {
        cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(j, "processors"))
        {
            if (!strcmp(setting_type(one), "ByteLevel"))
                continue;
            if (framing || !strcmp(setting_type(one), "Sequence"))
                return 0;
            framing = one;
        }
        return read_pair(f, where, framing, err);
    }
    if (!strcmp(type, "ByteLevel"))
        return add_two(f, where, err);
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(f, where, j, "pair", err);
    if (read_around(&around, where, j, err) < 0) {
        frame_clear(&around);
        return -1;
    }
    ret = add(f, around.id[0], where, err) < 0 || add(f, FRAME_TEXT, where, err) < 0 ||
                  add(f, around.id[2], where, err) < 0 ||
                  (!bert && add(f, around.id[2], where, err) < 0) ||
                  add_typed(f, FRAME_PAIR, bert, where, err) < 0
              ? -1
              : add_typed(f, around.id[2], bert, where, err);
    frame_clear(&around);
    return ret;
}

int frame_open(struct frame *out, struct frame *pair, const char *path, const cJSON *j,
               struct err *err)
{
    struct frame f = { 0 }, two = { 0 };
    char *where = str_dupf("%s: post_processor", path);
    int ret = setting_absent(j) ? add(&f, FRAME_TEXT, where, err)
                                : read_any(&f, where, j, 0, err);

    if (ret == 0)
        ret = read_pair(&two, where, j, err);
    free(where);
    if (ret < 0) {
        frame_clear(&f);
        frame_clear(&two);
    } else {
        *out = f;
        *pair = two;
    }
    return ret;
}
