/* inputs - the input texts of a command */
#include "cmd/tp-run/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/named.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/reshard/nonfinite.h"

const char *const input_format_names[] = { "auto", "text", "json", NULL };
const char *const input_invalid_names[] = { "refuse", "replace", NULL };

void inputs_drop(struct input *in)
{
    free(in->name);
    free(in->id);
    free(in->why);
    free(in->prompt);
    free(in->settings);
    ids_clear(&in->ids);
    ids_clear(&in->source);
    named_clear(in);
}

void inputs_clear(struct inputs *in)
{
    for (size_t i = 0; i < in->n; i++)
        inputs_drop(&in->v[i]);
    free(in->v);
    *in = (struct inputs){ .format = in->format, .keeps_empty = in->keeps_empty };
}

int inputs_add(struct inputs *in, struct input *one, int ret)
{
    if (ret < 0) {
        inputs_drop(one);
        return -1;
    }
    in->v = xrealloc(in->v, sizeof(*in->v) * (in->n + 1));
    in->v[in->n++] = *one;
    return 0;
}

int inputs_encode(const struct session *s, struct ids *out, const char *name,
                  const char *text, size_t len, struct err *err)
{
    int ret = session_encode(s, out, text, len, err);

    if (ret < 0 && !strncmp(err->text, "not UTF-8", 9))
        err_prefix(err, "%s", name);
    return ret;
}

void inputs_keep_text(const struct inputs *in, struct input *one, const char *text,
                      size_t len)
{
    if (!in->keeps_text)
        return;
    free(one->prompt);
    one->prompt = xstrndup(text, len);
}

int inputs_add_text(struct inputs *in, const struct session *s, const char *name,
                    const char *text, size_t len, struct err *err)
{
    struct input one = { .name = xstrdup(name) };

    inputs_keep_text(in, &one, text, len);
    return inputs_add(in, &one, inputs_encode(s, &one.ids, name, text, len, err));
}

int inputs_add_pair(struct inputs *in, const struct session *s, const char *name,
                    const char *text, const char *pair, struct err *err)
{
    struct input one = { .name = xstrdup(name) };
    struct ids types = { 0 };
    int ret = session_encode_pair(s, &one.ids, &types, one.pair, text, pair, err);

    if (ret == 0 && types.n)
        named_take(&one, FEED_TOKEN_TYPES, &types);
    ids_clear(&types);
    return inputs_add(in, &one, ret);
}

int inputs_add_ids(struct inputs *in, const struct session *s, const char *name,
                   const char *list, struct err *err)
{
    struct input one = { .name = xstrdup(name) };

    return inputs_add(in, &one, session_parse_ids(s, &one.ids, list, name, err));
}

void inputs_make_bad(struct inputs *in, const struct session *s, size_t i,
                     struct err *err)
{
    struct input *one = &in->v[i];
    struct input bad = { .name = xstrdup(one->name), .line = one->line, .bad = true };
    const char *text;

    if (!str_starts(err->text, one->name))
        err_prefix(err, "%s", one->name);
    cmd_warn(s->cmd, "%s", err->text);
    text = err->text + strlen(one->name);
    bad.why = xstrdup(text + strspn(text, ": "));
    bad.id = one->id;
    one->id = NULL;
    *err = (struct err){ 0 };
    inputs_drop(one);
    *one = bad;
    in->nbad++;
}

int inputs_refuse(struct inputs *in, const struct session *s, size_t i, struct err *err)
{
    if (!in->v[i].line)
        return -1;
    inputs_make_bad(in, s, i, err);
    return 0;
}

int inputs_take(struct inputs *in, const struct session *s, struct input *one, int ret,
                struct err *err)
{
    if (ret < 0 && err->kind != ERR_INPUT) {
        inputs_drop(one);
        return -1;
    }
    (void)!inputs_add(in, one, 0);
    if (ret < 0)
        inputs_make_bad(in, s, in->n - 1, err);
    return 0;
}

int inputs_add_tensors(struct inputs *in, const struct session *s, const char *path,
                       struct err *err)
{
    struct input one = { .name = xstrdup(path) };

    return inputs_add(in, &one, named_add_tensors(&one, s, path, err));
}

int inputs_not_finite(const struct inputs *in, const struct session *s, size_t i,
                      const char *what, size_t tokens, struct err *err)
{
    struct str weight = { 0 };
    bool of_line = in->v[i].line != 0;
    char *text = str_dupf("text %zu%s%s%s has NaN or infinite %s after %zu token%s",
                          i + 1, of_line ? " (" : "", of_line ? in->v[i].name : "",
                          of_line ? ")" : "", what, tokens, tokens == 1 ? "" : "s");

    if (nonfinite_find(&weight, s->checkpoint, err) == 0 && weight.len)
        err_set(err, ERR_INPUT, "%s, and %s", str_text(&weight), text);
    else if (!err->kind)
        err_set(err, ERR_NO, "%s, and all weights that are stored are finite", text);
    str_clear(&weight);
    free(text);
    return -1;
}

void inputs_add_bad(struct str *out, const struct inputs *in, size_t i)
{
    const struct input *one = &in->v[i];

    str_addf(out, "{\"type\":\"%s\"", one->empty ? "empty" : "error");
    inputs_add_place(out, one);
    if (one->why) {
        str_add(out, ",\"error\":");
        str_add_json(out, one->why);
    }
    str_add(out, "}\n");
}

void inputs_print_bad(const struct inputs *in, size_t i)
{
    struct str out = { 0 };

    inputs_add_bad(&out, in, i);
    fputs(str_text(&out), stdout);
    str_clear(&out);
}

struct inputs_sizes inputs_sizes(const struct inputs *in)
{
    struct inputs_sizes s = { 0 };

    for (size_t i = 0; i < in->n; i++) {
        const struct input *one = &in->v[i];

        if (one->bad)
            continue;
        s.longest = one->ids.n > s.longest ? one->ids.n : s.longest;
        s.tokens += one->ids.n;
        s.sources += one->rows[ROWS_SOURCE];
        for (int k = 0; k < ROWS_MOST; k++)
            s.rows[k] = one->rows[k] > s.rows[k] ? one->rows[k] : s.rows[k];
    }
    s.source = s.rows[ROWS_SOURCE];
    return s;
}

void inputs_limit(const struct inputs_sizes *s, struct engine_limits *limits)
{
    for (int k = ROWS_OWN; k < ROWS_MOST; k++)
        limits->rows[k] = s->rows[k] * (limits->segments + !limits->segments);
}

void inputs_add_id(struct str *out, const struct input *in)
{
    if (in->id)
        str_addf(out, ",\"id\":%s", in->id);
}

void inputs_add_place(struct str *out, const struct input *in)
{
    const char *colon = in->line ? strrchr(in->name, ':') : NULL;
    char *file = colon ? xstrndup(in->name, (size_t)(colon - in->name)) : NULL;

    str_add(out, ",\"file\":");
    str_add_json(out, file ? file : in->name);
    if (in->line)
        str_addf(out, ",\"line\":%zu", in->line);
    inputs_add_id(out, in);
    free(file);
}

int inputs_status(const struct inputs *in, int status)
{
    return status == 0 && in->nbad ? ERR_INPUT : status;
}

/* ---- encoder inputs ---- */

/* Prepends the model's start id to IDS. */
static void begin_text(const struct session *s, struct ids *ids)
{
    struct ids out = { 0 };

    ids_add(&out, s->start);
    for (size_t i = 0; i < ids->n; i++)
        ids_add(&out, ids->v[i]);
    ids_clear(ids);
    *ids = out;
}

/* Checks that all IDS are below the symbol VOCAB; the encoder may have its own
 * vocabulary. */
static int check_ids(const struct input *one, const struct session *s,
                     const struct ids *ids, const char *vocab, struct err *err)
{
    double n;

    if (!model_number(s->checkpoint->model, "source_vocab", &n) ||
        !model_number(s->checkpoint->model, vocab, &n))
        return 0;
    for (size_t i = 0; i < ids->n; i++)
        if ((double)ids->v[i] >= n)
            return err_set(err, ERR_INPUT, "%s: id %d is not in the %s of %.0f",
                           one->name, (int)ids->v[i],
                           ids == &one->source ? "source's vocabulary" : "vocabulary",
                           n);
    return 0;
}

static int check_source(const struct input *one, const struct session *s,
                        struct err *err)
{
    double most;

    if (model_number(s->checkpoint->model, "source_context", &most) &&
        (double)one->rows[ROWS_SOURCE] > most)
        return err_set(
            err, ERR_INPUT, "%s: the source has %zu %s, more than the model's %.0f",
            one->name, one->rows[ROWS_SOURCE], one->source.n ? "tokens" : "rows", most);
    return check_ids(one, s, &one->source, "source_vocab", err) < 0
               ? -1
               : check_ids(one, s, &one->ids, "vocab", err);
}

/* Does S's model make its source of another input than ids? */
static bool has_features(const struct session *s)
{
    return rows_root(&s->rows, ROWS_SOURCE) != ROWS_SOURCE;
}

/* The ids become the source, and the decoder reads them one later: after the start id,
 * or where the symbol "shifted" is 2, after the last of them. */
static void shift(struct input *one, const struct session *s)
{
    double how = 0;

    one->source = one->ids;
    one->ids = (struct ids){ 0 };
    if (!one->source.n)
        return;
    (void)!model_number(s->checkpoint->model, "shifted", &how);
    ids_add(&one->ids, how > 1 ? one->source.v[one->source.n - 1] : s->start);
    for (size_t i = 0; i + 1 < one->source.n; i++)
        ids_add(&one->ids, one->source.v[i]);
}

static int use(struct input *one, const struct session *s, enum input_use use,
               struct err *err)
{
    if (!s->source && one->source.n)
        return err_set(err, ERR_INPUT, "%s: family %s has no encoder input", one->name,
                       s->checkpoint->model->family);
    if (s->source && !has_features(s) && !one->source.n && use == INPUT_PROMPT) {
        one->source = one->ids;
        one->ids = (struct ids){ 0 };
    }
    if (s->source && !has_features(s) && !one->source.n && use == INPUT_SHIFTED)
        shift(one, s);
    if (s->source && has_features(s) && one->source.n)
        return err_set(err, ERR_INPUT, "%s: family %s reads no ids as its source",
                       one->name, s->checkpoint->model->family);
    if (named_check(one, s, err) < 0)
        return -1;
    if (!s->source)
        return 0;
    if (!one->rows[ROWS_SOURCE])
        return err_set(err, ERR_INPUT, "%s: family %s needs an encoder input, a source",
                       one->name, s->checkpoint->model->family);
    if (check_source(one, s, err) < 0)
        return -1;
    if (use != INPUT_GIVEN && use != INPUT_SHIFTED)
        begin_text(s, &one->ids);
    return 0;
}

int inputs_use(struct inputs *in, const struct session *s, enum input_use how,
               struct err *err)
{
    for (size_t i = 0; i < in->n; i++)
        if (!in->v[i].bad && !in->v[i].empty && use(&in->v[i], s, how, err) < 0 &&
            inputs_refuse(in, s, i, err) < 0)
            return -1;
    return 0;
}

/* ---- broadcast to all ranks ---- */

static int share(const struct session *s, void *p, size_t n, struct err *err)
{
    struct comm *c = s->launcher.world;

    return comm_run(c, comm_broadcast(p, n, 0), err);
}

static int share_name(const struct session *s, char **name, struct err *err)
{
    uint64_t n = *name ? strlen(*name) : 0;

    if (share(s, &n, sizeof(n), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher))
        *name = xcalloc(n + 1, 1);
    return share(s, *name, n, err);
}

int inputs_share(struct inputs *in, const struct session *s, int ret, struct err *err)
{
    uint64_t n = in->n, bad = in->nbad, empty = in->nempty;

    ret = launcher_agree(&s->launcher, ret, err);
    if (ret < 0 || !s->launcher.world)
        return ret;
    if (share(s, &n, sizeof(n), err) < 0 || share(s, &bad, sizeof(bad), err) < 0 ||
        share(s, &empty, sizeof(empty), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher)) {
        in->v = xcalloc(n + 1, sizeof(*in->v));
        in->n = n;
        in->nbad = bad;
        in->nempty = empty;
    }
    for (size_t i = 0; i < n; i++)
        if (share_name(s, &in->v[i].name, err) < 0 ||
            share(s, &in->v[i].line, sizeof(in->v[i].line), err) < 0 ||
            share(s, &in->v[i].bad, sizeof(in->v[i].bad), err) < 0 ||
            share(s, &in->v[i].empty, sizeof(in->v[i].empty), err) < 0 ||
            share(s, in->v[i].pair, sizeof(in->v[i].pair), err) < 0 ||
            share(s, &in->v[i].choices, sizeof(in->v[i].choices), err) < 0 ||
            session_share_ids(s, &in->v[i].ids, err) < 0 ||
            session_share_ids(s, &in->v[i].source, err) < 0 ||
            named_share(&in->v[i], s, err) < 0)
            return -1;
    return 0;
}
