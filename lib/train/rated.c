/* rated - lines whose samples have numbers that other programs computed
 *
 * Choices of which one is right; answers that are good or bad; texts that a model has
 * drawn, with rewards and their likelihoods; what a teacher thinks of each token. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/train/textline.h"

/* ---- numbers and ids ---- */

static int missing(const char *key, struct err *err)
{
    return err_set(err, ERR_INPUT, "no '%s'", key);
}

/* Appends the ids of the list J, which KEY names. */
static int add_ids(const struct texts_options *o, const struct json *j, const char *key,
                   struct tokens *out, struct err *err)
{
    const uint64_t limit = o->vocab ? o->vocab : INT32_MAX;

    if (j->type != JSON_ARRAY)
        return err_set(err, ERR_INPUT, "'%s' is no list", key);
    for (j = j->first; j; j = j->next) {
        uint64_t id;

        if (!json_u64(j, &id))
            return err_set(err, ERR_INPUT, "'%s' holds what is no id", key);
        if (id >= limit)
            return err_set(err, ERR_INPUT, "id %llu, and the vocabulary has %llu",
                           (unsigned long long)id, (unsigned long long)limit);
        tokens_add(out, (uint32_t)id);
    }
    return 0;
}

static int read_number(const struct json *j, const char *key, double *out,
                       struct err *err)
{
    if (!j)
        return missing(key, err);
    return json_double(j, out) ? 0 : err_set(err, ERR_INPUT, "'%s' is no number", key);
}

/* A log-likelihood. */
static int read_likelihood(const struct json *j, const char *key, double *out,
                           struct err *err)
{
    if (read_number(j, key, out, err) < 0)
        return -1;
    return *out > LIKELIHOOD_SLACK
               ? err_set(err, ERR_INPUT, "'%s' is %g, and no log-likelihood is above 0",
                         key, *out)
               : 0;
}

/* The N numbers of the list J; or, where a number MAY be one for all, that. */
static int read_numbers(const struct json *j, const char *key, bool may, double *out,
                        size_t n, struct err *err)
{
    size_t i = 0;
    double x;

    if (may && json_double(j, &x)) {
        while (i < n)
            out[i++] = x;
        return 0;
    }
    if (j->type != JSON_ARRAY)
        return err_set(err, ERR_INPUT, "'%s' is no list", key);
    if (j->n != n)
        return err_set(err, ERR_INPUT, "%u numbers in '%s' for %zu tokens", j->n, key,
                       n);
    for (j = j->first; j; j = j->next)
        if (read_number(j, key, &out[i++], err) < 0)
            return -1;
    return 0;
}

/* Appends PROMPT and COMPLETION, two texts or two lists of ids, as a document. */
static int add_answer(const struct texts_options *o, const struct json *prompt,
                      const struct json *completion, const char *key, struct line *line,
                      struct err *err)
{
    struct line one = { 0 };
    struct str text = { 0 };
    int ret;

    if (prompt->type == JSON_STRING && completion->type == JSON_STRING) {
        str_addn(&text, prompt->text, prompt->n);
        ret = line_encode_pair(o, &text, completion->text, completion->n, &one, err);
        line_end(o, &one.ids);
    } else if (prompt->type == JSON_ARRAY && completion->type == JSON_ARRAY) {
        ret = add_ids(o, prompt, "prompt", &one.ids, err);
        one.given = one.ids.n;
        if (ret == 0)
            ret = add_ids(o, completion, key, &one.ids, err);
    } else {
        ret = err_set(err, ERR_INPUT, "'prompt' and '%s' are both texts, or both ids",
                      key);
    }
    if (ret == 0 && (!one.given || one.given >= one.ids.n))
        ret = err_set(err, ERR_INPUT, "an empty '%s'", one.given ? key : "prompt");
    if (ret == 0) {
        line_add_part(line, one.given);
        for (size_t i = 0; i < one.ids.n; i++)
            tokens_add(&line->ids, one.ids.id[i]);
    }
    str_clear(&text);
    line_clear(&one);
    return ret;
}

/* ---- choices ---- */

/* Appends a choice: ids, or a text after that of the line. */
static int add_choice(const struct texts_options *o, const struct json *text,
                      const struct json *choice, struct line *line, struct err *err)
{
    struct tokens ids = { 0 }, types = { 0 };
    size_t range[2];
    int ret = 0;

    if (choice->type == JSON_STRING && text && text->type == JSON_STRING) {
        ret =
            !o->tokenizer
                ? err_set(err, ERR_INPUT, "a text, and there is no tokenizer.json")
                : tokenizer_encode_pair(o->tokenizer, text->text, text->n, choice->text,
                                        choice->n, &ids, &types, range, err);
        for (size_t i = 0; i < ids.n && ret == 0; i++)
            if (o->vocab && ids.id[i] >= o->vocab)
                ret = err_set(err, ERR_INPUT, "id %u, and the vocabulary has %llu",
                              ids.id[i], (unsigned long long)o->vocab);
    } else if (choice->type == JSON_ARRAY && !text) {
        ret = add_ids(o, choice, "choices", &ids, err);
    } else {
        ret = err_set(err, ERR_INPUT,
                      "'choices' are texts beside a 'text', or lists of ids");
    }
    if (ret == 0 && !ids.n)
        ret = err_set(err, ERR_INPUT, "an empty choice");
    if (ret == 0)
        line_add_part(line, 0);
    for (size_t i = 0; i < ids.n && ret == 0; i++) {
        tokens_add(&line->ids, ids.id[i]);
        if (o->types)
            tokens_add(&line->types,
                       i < types.n && types.id[i] < o->types ? types.id[i] : 0);
    }
    tokens_clear(&ids);
    tokens_clear(&types);
    return ret;
}

static int read_choices(const struct texts_options *o, const struct json *root,
                        struct line *line, struct err *err)
{
    const struct json *choices = json_get(root, "choices"),
                      *text = json_get(root, "text"), *label = json_get(root, "label");
    uint64_t right;

    if (!text)
        text = json_get(root, "prompt");
    if (!choices || !label)
        return missing(choices ? "label" : "choices", err);
    if (choices->type != JSON_ARRAY || choices->n < 2)
        return err_set(err, ERR_INPUT, "'choices' is no list of two or more");
    for (const struct json *c = choices->first; c; c = c->next)
        if (add_choice(o, text, c, line, err) < 0)
            return -1;
    if (label->type == JSON_NULL)
        return 0;
    if (!json_u64(label, &right) || right >= choices->n)
        return err_set(err, ERR_INPUT, "'label' is no number of a choice, from 0 to %u",
                       choices->n - 1);
    line_add_value(line, (double)right);
    return 0;
}

/* ---- answers that are good or bad ---- */

static int read_judged(const struct texts_options *o, const struct json *root,
                       struct line *line, struct err *err)
{
    static const char *const keys[] = { "completion", "KL_completion" },
                             *const known[] = { "reference_logps",
                                                "reference_KL_logps" };
    const struct json *prompt = json_get(root, "prompt"),
                      *label = json_get(root, "label");
    double good;

    if (!prompt || !label)
        return missing(prompt ? "label" : "prompt", err);
    for (int k = 0; k < 2; k++) {
        const struct json *answer = json_get(root, keys[k]);

        if (!answer && k)
            break;
        if (!answer)
            return missing(keys[k], err);
        if (add_answer(o, prompt, answer, keys[k], line, err) < 0)
            return -1;
        if (o->unscored)
            continue;
        if (read_likelihood(json_get(root, known[k]), known[k], &line->reference[k],
                            err) < 0)
            return -1;
        line->reference[k] = -line->reference[k];
    }
    if (label->type == JSON_TRUE || label->type == JSON_FALSE)
        good = label->type == JSON_TRUE;
    else if (!json_double(label, &good) || (good != 0 && good != 1))
        return err_set(err, ERR_INPUT, "'label' is neither true nor false");
    line_add_value(line, good);
    return 0;
}

/* ---- drawn texts ---- */

/* None of X[N] is above 0, and the sum of their probabilities at most MOST. */
static int check_likelihoods(const char *key, const double *x, size_t n, double most,
                             struct err *err)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (x[i] > LIKELIHOOD_SLACK)
            return err_set(err, ERR_INPUT,
                           "'%s' has %g, and no log-likelihood is above 0", key, x[i]);
        sum += exp(x[i]);
    }
    return sum > most
               ? err_set(err, ERR_INPUT, "'%s': a place has probabilities of %g in all",
                         key, sum)
               : 0;
}

/* The log-likelihoods of the tokens of DRAWN, as generate prints them. */
static int read_logprobs(const struct json *list, double *out, size_t n,
                         struct err *err)
{
    size_t i = 0;

    if (list->type != JSON_ARRAY || list->n != n)
        return err_set(err, ERR_INPUT, "%u 'logprobs' for %zu tokens", list->n, n);
    for (const struct json *one = list->first; one; one = one->next, i++)
        if (read_likelihood(one->type == JSON_OBJECT ? json_get(one, "logprob") : one,
                            "logprob", &out[i], err) < 0)
            return -1;
    return 0;
}

/* The sample of DRAWN: PROMPT and its ids, or all of them.  REFERENCE: its list of
 * likelihoods, or NULL.  .value has for each token that was drawn its advantage, and
 * its log-likelihoods by the model that drew it and by the reference; NaN: not known.
 */
static int read_drawn(const struct texts_options *o, const struct json *prompt,
                      const struct json *drawn, const struct json *reference,
                      double advantage, struct line *line, struct err *err)
{
    const struct json *ids = json_get(drawn, "ids"),
                      *given = json_get(drawn, "advantage"),
                      *old = json_get(drawn, prompt ? "logprobs" : "old_logprobs");
    size_t n;
    double *x;
    int ret = 0;

    if (!ids)
        return missing("ids", err);
    if (!prompt && !old)
        return missing("old_logprobs", err);
    if ((prompt && add_ids(o, prompt, "prompt_ids", &line->ids, err) < 0) ||
        add_ids(o, ids, "ids", &line->ids, err) < 0)
        return -1;
    n = prompt ? ids->n : old->n;
    if (n >= line->ids.n || !n)
        return err_set(err, ERR_INPUT,
                       "%zu tokens of %zu were drawn; one at least comes before them, "
                       "and one is drawn",
                       n, line->ids.n);
    line->given = line->ids.n - n;
    x = xcalloc(3 * n, sizeof(*x));
    for (size_t i = 0; i < n; i++) {
        x[i] = advantage;
        x[n + i] = x[2 * n + i] = (double)NAN;
    }
    if (given)
        ret = read_numbers(given, "advantage", true, x, n, err);
    else if (isnan(advantage) && !o->unscored)
        ret = missing("advantage", err);
    if (ret == 0 && old)
        ret = prompt ? read_logprobs(old, x + n, n, err)
                     : read_numbers(old, "old_logprobs", false, x + n, n, err);
    if (ret == 0 && old)
        ret = check_likelihoods("old_logprobs", x + n, n, INFINITY, err);
    if (ret == 0 && !reference && o->references && !o->unscored)
        ret = missing("ref_logprobs", err);
    if (ret == 0 && reference && !o->unscored)
        ret = read_numbers(reference, "ref_logprobs", false, x + 2 * n, n, err);
    if (ret == 0 && reference && !o->unscored)
        ret = check_likelihoods("ref_logprobs", x + 2 * n, n, INFINITY, err);
    for (size_t i = 0; i < n && ret == 0; i++)
        for (size_t k = 0; k < 3; k++)
            line_add_value(line, x[k * n + i]);
    free(x);
    return ret;
}

/* The advantage of each of the choices: its reward less their mean, divided by their
 * standard deviation (GRPO, Shao et al. 2024; 1e-4 is added to that, as trl does). NaN:
 * it has no reward. */
static int find_advantages(const struct texts_options *o, const struct json *choices,
                           double *out, struct err *err)
{
    double sum = 0, squares = 0, mean, deviation;
    size_t n = 0, i = 0;

    for (const struct json *c = choices->first; c; c = c->next, i++) {
        const struct json *reward = json_get(c, "reward");

        out[i] = (double)NAN;
        if (!reward || reward->type == JSON_NULL)
            continue;
        if (read_number(reward, "reward", &out[i], err) < 0)
            return -1;
        sum += out[i];
        n++;
    }
    mean = sum / (double)n;
    while (i-- > 0)
        squares += isnan(out[i]) ? 0 : (out[i] - mean) * (out[i] - mean);
    deviation = o->unscaled ? 1 : sqrt(squares / (double)(n > 1 ? n - 1 : 1)) + 1e-4;
    for (i = 0; i < choices->n; i++)
        out[i] = (out[i] - mean) / deviation;
    if (n == 1 && !o->unscored)
        return err_set(err, ERR_INPUT,
                       "one 'reward': an advantage is over others of the same prompt");
    return 0;
}

static int read_choices_drawn(const struct texts_options *o, const struct json *root,
                              struct line *line, struct err *err)
{
    const struct json *prompt = json_get(root, "prompt_ids"),
                      *choices = json_get(root, "choices"),
                      *reference = json_get(root, "ref_logprobs"), *r;
    double *advantage;
    size_t i = 0, n = 0;
    int ret;

    if (!choices)
        return read_drawn(o, prompt, root, reference, (double)NAN, line, err);
    if (choices->type != JSON_ARRAY || !choices->n)
        return err_set(err, ERR_INPUT, "'choices' is no list of one or more");
    if (!prompt)
        return missing("prompt_ids", err);
    if (reference && (reference->type != JSON_ARRAY || reference->n != choices->n))
        return err_set(err, ERR_INPUT, "'ref_logprobs' is no list for each choice");
    advantage = xcalloc(choices->n, sizeof(*advantage));
    ret = find_advantages(o, choices, advantage, err);
    r = reference ? reference->first : NULL;
    for (const struct json *c = choices->first; c && ret == 0; c = c->next, i++) {
        const struct json *reward = json_get(c, "reward");

        if (!reward || reward->type != JSON_NULL || o->unscored)
            ret = read_drawn(o, prompt, c, r, advantage[i],
                             n++ ? line_more(line) : line, err);
        r = r ? r->next : NULL;
    }
    free(advantage);
    return ret;
}

/* ---- teachers ---- */

static int compare_ids(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* A token's likelihood is in a place once. */
static int check_once(const struct tokens *t, struct err *err)
{
    uint32_t *id = xmalloc((t->n + 1) * sizeof(*id));
    int ret = 0;

    for (size_t k = 0; k < t->n; k++)
        id[k] = t->id[k];
    if (t->n)
        qsort(id, t->n, sizeof(*id), compare_ids);
    for (size_t k = 1; k < t->n && ret == 0; k++)
        if (id[k] == id[k - 1])
            ret =
                err_set(err, ERR_INPUT,
                        "'teacher_ids' has token %" PRIu32 " twice in a place", id[k]);
    free(id);
    return ret;
}

/* .value has the number of tokens that the teacher tells of in each place, and in each
 * their ids and log-probabilities. */
static int read_taught(const struct texts_options *o, const struct json *root,
                       struct line *line, struct err *err)
{
    const struct json *ids = json_get(root, "ids"), *prompt = json_get(root, "prompt"),
                      *text = json_get(root, "text"),
                      *completion = json_get(root, "completion"),
                      *top = json_get(root, "teacher_ids"),
                      *p = json_get(root, "teacher_logprobs");
    struct tokens some = { 0 };
    int ret = 0;

    if (ids)
        ret = add_ids(o, ids, "ids", &line->ids, err);
    else if (text && text->type == JSON_STRING)
        ret = line_encode(o, text->text, text->n, &line->ids, err);
    else if (prompt && completion)
        ret = add_answer(o, prompt, completion, "completion", line, err);
    else
        ret = missing("ids", err);
    if (text && !ids)
        line_end(o, &line->ids);
    if (ret < 0)
        return -1;
    line->given = line->parts ? line->part[0].given : 1;
    line->parts = 0;
    if (line->ids.n < 2)
        return err_set(err, ERR_INPUT, "%zu tokens; two are needed to predict one",
                       line->ids.n);
    if (o->unscored)
        return 0;
    if (!top || !p)
        return missing(top ? "teacher_logprobs" : "teacher_ids", err);
    if (top->type != JSON_ARRAY || p->type != JSON_ARRAY || !top->n || top->n != p->n ||
        top->n >= line->ids.n)
        return err_set(
            err, ERR_INPUT,
            "'teacher_ids' and 'teacher_logprobs' are lists of lists for the "
            "same last tokens");
    line->given = line->ids.n - top->n;
    line_add_value(line, top->first->n);
    for (top = top->first, p = p->first; top && ret == 0;
         top = top->next, p = p->next) {
        double *x;

        some.n = 0;
        ret = add_ids(o, top, "teacher_ids", &some, err);
        if (ret == 0 && (!some.n || some.n != (size_t)line->value[0]))
            ret = err_set(err, ERR_INPUT,
                          "'teacher_ids' has not as many tokens in each place");
        if (ret == 0)
            ret = check_once(&some, err);
        x = xcalloc(some.n + 1, sizeof(*x));
        if (ret == 0)
            ret = read_numbers(p, "teacher_logprobs", false, x, some.n, err);
        if (ret == 0)
            ret = check_likelihoods("teacher_logprobs", x, some.n, 1.01, err);
        for (size_t k = 0; k < some.n && ret == 0; k++) {
            line_add_value(line, some.id[k]);
            line_add_value(line, x[k]);
        }
        free(x);
    }
    tokens_clear(&some);
    return ret;
}

int rated_read(const struct texts_options *o, const struct json *text,
               struct line *line, struct err *err)
{
    if (text->type != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "no object");
    switch (o->labels) {
    case TEXTS_CHOICES:
        return read_choices(o, text, line, err);
    case TEXTS_JUDGED:
        return read_judged(o, text, line, err);
    case TEXTS_DRAWN:
        return read_choices_drawn(o, text, line, err);
    default:
        return read_taught(o, text, line, err);
    }
}
