/* beams - beam search: the best continuations of a text, several at a time */
#include "lib/run/beams.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* The score of all beams but one at the beginning, when they are one sequence. */
static const float SHADOW = -1e9F;

/* A text of the scheduler; a beam or several that are the same. */
struct branch {
    uint64_t id;
    int32_t *ids;       /* [search.n]: its new tokens */
    struct likely *top; /* [search.candidates] */
    struct draw draw;   /* of its next token, without its position */
    bool known;         /* .top is */
    size_t parent;      /* among the branches of the step before */
    size_t children;
    bool continued; /* one of them is its text, the others are forks */
};

struct beam {
    float score;
    size_t branch;
};

/* A beam and a next token. */
struct continuation {
    size_t beam, at; /* its place among the candidates of all beams */
    int32_t id;
    float score;
    double key; /* by which it is chosen */
};

struct search {
    struct search *next;
    struct scheduler_text text;
    struct beams_how how;
    size_t candidates;
    size_t n; /* new tokens */
    struct draw draw;
    uint64_t forks; /* so far */
    bool begun;
    struct branch *branch, *child; /* [nbranches], of at most how.n */
    size_t nbranches;
    struct beam *beam, *heir;  /* [nbeams], the same */
    struct continuation *best; /* [how.n * candidates]: scratch */
    size_t nbeams;
    struct beams_found *found; /* [nfound], of at most how.n, the best first */
    size_t nfound;
};

struct beams {
    struct beams_options o;
    struct search *first,
        **end;    /* in order; those that have begun stand before others */
    size_t taken; /* places */
};

struct beams *beams_new(const struct beams_options *options)
{
    struct beams *b = xcalloc(1, sizeof(*b));

    b->o = *options;
    b->end = &b->first;
    return b;
}

static void free_branch(struct branch *b)
{
    free(b->ids);
    free(b->top);
}

static void free_search(struct search *s)
{
    for (size_t i = 0; i < s->nbranches; i++)
        free_branch(&s->branch[i]);
    for (size_t i = 0; i < s->nfound; i++)
        free(s->found[i].ids);
    free(s->branch);
    free(s->child);
    free(s->beam);
    free(s->heir);
    free(s->best);
    free(s->found);
    free(s);
}

void beams_free(struct beams *b)
{
    struct search *next;

    for (struct search *s = b ? b->first : NULL; s; s = next) {
        next = s->next;
        free_search(s);
    }
    free(b);
}

size_t beams_candidates(const struct beams_how *how, size_t nstop)
{
    return how->n * (nstop > 1 ? 1 + nstop : 2);
}

void beams_submit(struct beams *b, const struct scheduler_text *t,
                  const struct beams_how *how)
{
    struct search *s = xcalloc(1, sizeof(*s));

    assert(t->how && t->how->of == PICK_SCORES && how->n > 1);
    s->text = *t;
    s->how = *how;
    s->candidates = (size_t)t->how->likely;
    if (t->draw)
        s->draw = *t->draw;
    s->branch = xcalloc(how->n, sizeof(*s->branch));
    s->child = xcalloc(how->n, sizeof(*s->child));
    s->beam = xcalloc(how->n, sizeof(*s->beam));
    s->heir = xcalloc(how->n, sizeof(*s->heir));
    s->best = xcalloc(how->n * s->candidates, sizeof(*s->best));
    s->found = xcalloc(how->n + 1, sizeof(*s->found));
    *b->end = s;
    b->end = &s->next;
}

void beams_gain(struct beams *b, const struct scheduler_gain *gain)
{
    for (struct search *s = b->first; s && s->begun; s = s->next)
        for (size_t i = 0; s->text.tag == gain->tag && i < s->nbranches; i++) {
            struct branch *own = &s->branch[i];

            if (own->id != gain->id)
                continue;
            memcpy(own->top, gain->likely + 1, s->candidates * sizeof(*own->top));
            own->known = true;
        }
    scheduler_hold(b->o.scheduler, gain->id);
}

/* ---- a step of a search ---- */

static int begin(struct beams *b, struct search *s, struct err *err)
{
    struct branch *only = &s->branch[0];

    s->text.draw = s->text.draw ? &s->draw : NULL;
    if (scheduler_submit(b->o.scheduler, &s->text, &only->id, err) < 0)
        return -1;
    only->draw = s->draw;
    only->top = xcalloc(s->candidates, sizeof(*only->top));
    s->nbranches = 1;
    s->nbeams = s->how.n;
    for (size_t i = 0; i < s->nbeams; i++)
        s->beam[i] = (struct beam){ i ? SHADOW : 0, 0 };
    s->begun = true;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct continuation *x = a, *y = b;

    return x->key != y->key ? (x->key < y->key ? 1 : -1)
                            : (x->at > y->at) - (x->at < y->at);
}

static int by_score(const void *a, const void *b)
{
    const struct continuation *x = a, *y = b;

    return x->score != y->score ? (x->score < y->score ? 1 : -1)
                                : (x->at > y->at) - (x->at < y->at);
}

/* s->best[*n] = the continuations of this step, the best first. */
static size_t find_best(struct search *s)
{
    const bool drawn = s->text.how->processors->v[PROCESSOR_TEMPERATURE].number > 0;
    size_t n = 0;

    for (size_t i = 0; i < s->nbeams; i++)
        for (size_t k = 0; k < s->candidates; k++) {
            const struct branch *of = &s->branch[s->beam[i].branch];
            const struct likely *one = &of->top[k];
            struct draw draw = of->draw;
            const float score = s->beam[i].score + one->logprob;

            if (one->id < 0)
                break;
            draw.position += s->text.n + s->n;
            s->best[n] = (struct continuation){ i, i * s->candidates + k, one->id,
                                                score, (double)score };
            if (drawn)
                s->best[n].key += pick_noise(&draw, one->id);
            n++;
        }
    qsort(s->best, n, sizeof(*s->best), by_key);
    n = n < s->candidates ? n : s->candidates;
    qsort(s->best, n, sizeof(*s->best), by_score);
    return n;
}

static float score_at(const struct search *s, float sum, size_t n)
{
    return sum / (float)pow((double)n, s->how.length_penalty);
}

/* IDS[s->n + 1], which it takes, has ended with the sum SUM. */
static void add_found(struct search *s, int32_t *ids, float sum)
{
    const float score = score_at(s, sum, s->n + 1);
    size_t at = s->nfound;

    while (at > 0 && s->found[at - 1].score < score) {
        s->found[at] = s->found[at - 1];
        at--;
    }
    s->found[at] = (struct beams_found){ ids, s->n + 1, score };
    if (s->nfound < s->how.n)
        s->nfound++;
    else
        free(s->found[s->how.n].ids);
}

/* The tokens of C. */
static int32_t *ids_of(const struct search *s, const struct continuation *c)
{
    const struct branch *of = &s->branch[s->beam[c->beam].branch];
    int32_t *ids = xcalloc(s->n + 1, sizeof(*ids));

    if (s->n)
        memcpy(ids, of->ids, s->n * sizeof(*ids));
    ids[s->n] = c->id;
    return ids;
}

/* Beam H of the next step is C, whose tokens are IDS. */
static void add_heir(struct search *s, size_t h, size_t *nchildren,
                     const struct continuation *c, int32_t *ids)
{
    const size_t parent = s->beam[c->beam].branch;
    size_t at = 0;

    while (at < *nchildren &&
           memcmp(s->child[at].ids, ids, (s->n + 1) * sizeof(*ids)) != 0)
        at++;
    s->heir[h] = (struct beam){ c->score, at };
    if (at < *nchildren) {
        free(ids);
        return;
    }
    s->child[at] =
        (struct branch){ .id = s->branch[parent].id,
                         .ids = ids,
                         .top = xcalloc(s->candidates, sizeof(*s->child->top)),
                         .draw = s->branch[parent].draw,
                         .parent = parent };
    s->branch[parent].children++;
    ++*nchildren;
}

/* Divides the N best continuations into those that end and beams.  Returns whether all
 * end. */
static bool divide(struct beams *b, struct search *s, size_t n, size_t *nheirs,
                   size_t *nchildren)
{
    bool all = true;

    *nheirs = *nchildren = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t *ids = ids_of(s, &s->best[i]);
        const bool ends = b->o.ends(b->o.arg, s->text.tag, ids, s->n + 1);

        all &= ends;
        if (ends && i < s->how.n)
            add_found(s, ids, s->best[i].score);
        else if (!ends && *nheirs < s->how.n)
            add_heir(s, (*nheirs)++, nchildren, &s->best[i], ids);
        else
            free(ids);
    }
    return all;
}

/* Can a beam, the best of which has the sum BEST, become better than what is found? */
static bool can_improve(const struct search *s, float best)
{
    const bool longest = s->how.early == BEAMS_NEVER && s->how.length_penalty > 0;

    if (s->nfound < s->how.n)
        return true;
    return s->how.early != BEAMS_EARLY &&
           score_at(s, best, longest ? s->text.how->most - s->text.n : s->n + 1) >
               s->found[s->nfound - 1].score;
}

/* Its draws are no other beam's. */
static struct draw draw_of_fork(struct search *s)
{
    struct draw d = s->draw;

    /* Weyl's sequence, as of SplitMix64: no two of a search are the same */
    d.seed += ++s->forks * 0x9e3779b97f4a7c15U;
    return d;
}

/* The branches become texts with the tokens of their children. */
static int grow(struct beams *b, struct search *s, size_t nchildren, struct err *err)
{
    struct branch *old = s->branch;

    for (size_t i = 0; i < s->nbranches; i++)
        if (!old[i].children)
            scheduler_cancel(b->o.scheduler, old[i].id);
    for (size_t i = 0; i < nchildren; i++) {
        struct branch *parent = &old[s->child[i].parent];

        if (!parent->continued) {
            parent->continued = true;
            continue;
        }
        s->child[i].draw = draw_of_fork(s);
        if (scheduler_fork(b->o.scheduler, parent->id,
                           s->text.draw ? &s->child[i].draw : NULL, s->text.tag,
                           &s->child[i].id, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < nchildren; i++)
        scheduler_append(b->o.scheduler, s->child[i].id, s->child[i].ids + s->n, 1);
    return 0;
}

/* The children are the branches. */
static void take_over(struct search *s, size_t nheirs, size_t nchildren)
{
    struct branch *old = s->branch;
    struct beam *beams = s->beam;

    for (size_t i = 0; i < s->nbranches; i++)
        free_branch(&old[i]);
    s->branch = s->child;
    s->child = old;
    s->nbranches = nchildren;
    s->beam = s->heir;
    s->heir = beams;
    s->nbeams = nheirs;
    s->n++;
}

static int finish(struct beams *b, struct search *s, struct err *err)
{
    for (size_t i = 0; i < s->nbranches; i++)
        scheduler_cancel(b->o.scheduler, s->branch[i].id);
    if (!s->nfound)
        return err_set(err, ERR_INPUT, "every continuation of a text is forbidden");
    return b->o.found(b->o.arg, s->text.tag, s->found, s->nfound, err);
}

/* Goes on with S, whose beams have all gained.  *OVER: it is. */
static int advance(struct beams *b, struct search *s, bool *over, struct err *err)
{
    const size_t n = find_best(s);
    size_t nheirs, nchildren;
    const bool all = divide(b, s, n, &nheirs, &nchildren);
    int ret;

    *over = all || !can_improve(s, s->heir[0].score);
    ret = *over ? finish(b, s, err) : grow(b, s, nchildren, err);
    take_over(s, nheirs, nchildren);
    return ret;
}

static bool is_ready(const struct search *s)
{
    for (size_t i = 0; i < s->nbranches; i++)
        if (!s->branch[i].known)
            return false;
    return s->begun;
}

int beams_advance(struct beams *b, struct err *err)
{
    for (struct search **at = &b->first, *s; (s = *at);) {
        bool over = false;

        if (!s->begun && b->taken && b->taken + s->how.n > b->o.places)
            break;
        if (!s->begun) {
            b->taken += s->how.n;
            if (begin(b, s, err) < 0)
                return -1;
        } else if (is_ready(s) && advance(b, s, &over, err) < 0)
            return -1;
        if (!over) {
            at = &s->next;
            continue;
        }
        b->taken -= s->how.n;
        *at = s->next;
        if (!s->next)
            b->end = at;
        free_search(s);
    }
    return b->first != NULL;
}
