/* unigram - the most likely segmentation of a text, given each piece's probability
 * (Kudo 2018) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"
#include "lib/text/subword.h"

/* Score of an unknown character, relative to the least likely piece. */
static const double PENALTY = 10;

struct unigram {
    const struct vocab *vocab;
    double *score; /* [vocab_size]: logarithms of probabilities */
    double unknown_score;
    long unknown; /* or -1 */
    bool byte_fallback;
};

static void unigram_free(void *model)
{
    struct unigram *u = model;

    if (!u)
        return;
    free(u->score);
    free(u);
}

/* Parses the score X as serde_json in the `tokenizers` library does: the digits as an
 * integer, times or divided by a power of ten, which rounds twice.  The rounding
 * decides between segmentations of repeated characters that are otherwise equally
 * likely.  Uses the shortest decimal text of X, which the files have. */
static double read_score(double x)
{
    struct str text = { 0 };
    char power[8];
    uint64_t digits = 0;
    int exponent = 0;
    double value;

    str_add_double(&text, fabs(x));
    for (const char *p = str_text(&text), *point = NULL; *p; p++) {
        if (*p == 'e') {
            exponent += (int)strtol(p + 1, NULL, 10);
            break;
        }
        if (*p == '.')
            point = p;
        else if (*p >= '0' && *p <= '9') {
            digits = digits * 10 + (uint64_t)(*p - '0');
            exponent -= point != NULL;
        }
    }
    str_clear(&text);
    value = (double)digits;
    snprintf(power, sizeof(power), "1e%d", abs(exponent) % 400);
    value = exponent < 0 ? value / strtod(power, NULL) : value * strtod(power, NULL);
    return copysign(value, x);
}

static int read_pieces(struct unigram *u, struct vocab *v, const char *path,
                       const cJSON *pieces, struct err *err)
{
    uint32_t id = 0;
    double least = 0;
    const cJSON *j;

    cJSON_ArrayForEach(j, pieces)
    {
        const cJSON *text = cJSON_GetArrayItem(j, 0), *score = cJSON_GetArrayItem(j, 1);

        if (!cJSON_IsArray(j) || !cJSON_IsString(text) || !cJSON_IsNumber(score))
            return err_set(err, ERR_INPUT, "%s: vocab: number %u is no piece", path,
                           id);
        u->score[id] = read_score(score->valuedouble);
        if (!id || u->score[id] < least)
            least = u->score[id];
        vocab_add(v, text->valuestring, id++);
    }
    u->unknown_score = least - PENALTY;
    return 0;
}

static int unigram_open(void **out, struct vocab **vocab, const char *path,
                        const cJSON *model, struct err *err)
{
    const cJSON *pieces = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    const cJSON *unknown = cJSON_GetObjectItemCaseSensitive(model, "unk_id");
    size_t n = (size_t)cJSON_GetArraySize(pieces);
    struct unigram *u;

    if (!cJSON_IsArray(pieces))
        return err_set(err, ERR_INPUT, "%s: Unigram needs vocab", path);
    u = xcalloc(1, sizeof(*u));
    u->vocab = *vocab = vocab_new(n, n);
    u->score = xcalloc(n + 1, sizeof(*u->score));
    u->byte_fallback = setting_flag(model, "byte_fallback", false);
    u->unknown = -1;
    if (read_pieces(u, *vocab, path, pieces, err) < 0) {
        unigram_free(u);
        return -1;
    }
    if (!setting_absent(unknown) &&
        (!setting_id(unknown, &u->unknown) || (size_t)u->unknown >= n)) {
        unigram_free(u);
        return err_set(err, ERR_INPUT, "%s: unk_id is not in the vocabulary", path);
    }
    *out = u;
    return 0;
}

/* The best segmentation up to each position of the text: its score and last piece. */
struct node {
    double score;
    size_t start; /* SIZE_MAX: none */
    long id;
};

static void offer(struct node *to, double score, size_t start, long id)
{
    if (to->start == SIZE_MAX || score > to->score)
        *to = (struct node){ score, start, id };
}

/* Viterbi from left to right; among equal scores the first wins. */
static int find_path(const struct unigram *u, const char *text, size_t len,
                     struct node *node, struct err *err)
{
    size_t longest = vocab_longest(u->vocab), used;

    for (size_t i = 0; i <= len; i++)
        node[i] = (struct node){ 0, SIZE_MAX, 0 };
    for (size_t at = 0; at < len; at += used) {
        double here = node[at].score;
        size_t most = len - at < longest ? len - at : longest;
        bool known = false;

        chars_at(text + at, len - at, &used);
        for (size_t n = used; n <= most; n++) {
            long id;

            if (at + n < len && ((unsigned char)text[at + n] & 0xc0) == 0x80)
                continue;
            id = vocab_id(u->vocab, text + at, n);
            if (id < 0)
                continue;
            offer(&node[at + n], here + u->score[id], at, id);
            known |= n == used;
        }
        if (!known && u->unknown < 0)
            return err_set(err, ERR_INPUT, "the vocabulary lacks '%.*s'", (int)used,
                           text + at);
        if (!known)
            offer(&node[at + used], here + u->unknown_score, at, u->unknown);
    }
    return 0;
}

/* A run of unknown characters becomes one piece: its bytes, or the unknown token. */
static void add_unknown(const struct unigram *u, const char *text, size_t start,
                        size_t end, struct tokens *out)
{
    size_t len = end - start;
    long id = vocab_id(u->vocab, text += start, len);
    bool all = u->byte_fallback && id < 0;

    for (size_t i = 0; i < len && all; i++)
        all = vocab_byte(u->vocab, (unsigned char)text[i]) >= 0;
    for (size_t i = 0; i < len && all; i++)
        tokens_add_part(out, (uint32_t)vocab_byte(u->vocab, (unsigned char)text[i]),
                        start, end);
    if (!all)
        tokens_add_part(out, (uint32_t)(id < 0 ? u->unknown : id), start, end);
}

static int unigram_encode(const void *model, const char *text, size_t len,
                          struct tokens *out, struct err *err)
{
    const struct unigram *u = model;
    struct node *node = xmalloc(sizeof(*node) * (len + 1));
    size_t *cut = xmalloc(sizeof(*cut) * (len + 1)), n = 0, run = 0;
    int ret = find_path(u, text, len, node, err);

    /* positions of the pieces' ends, last first */
    for (size_t end = len; end && ret == 0; end = node[end].start)
        cut[n++] = end;
    for (size_t start = 0; n--; start = cut[n]) {
        bool unknown = u->unknown >= 0 && node[cut[n]].id == u->unknown;

        if (unknown) {
            run += cut[n] - start;
            if (!n)
                add_unknown(u, text, cut[n] - run, cut[n], out);
            continue;
        }
        if (run)
            add_unknown(u, text, start - run, start, out);
        run = 0;
        tokens_add_part(out, (uint32_t)node[cut[n]].id, start, cut[n]);
    }
    free(node);
    free(cut);
    return ret;
}

static long unigram_unknown(const void *model)
{
    return ((const struct unigram *)model)->unknown;
}

const struct subword_kind unigram_kind = { .type = "Unigram",
                                           .open = unigram_open,
                                           .encode = unigram_encode,
                                           .unknown = unigram_unknown,
                                           .free = unigram_free };
