/* unit-serving - the sizes of an engine for texts to come */
#include "lib/base/rng.h"
#include "lib/run/cache.h"
#include "lib/run/serving.h"
#include "tests/tap.h"

static const struct mesh alone = { .size = { 1, 1, 1, 1, 1 }, .nranks = 1 };

static struct mesh ranks(enum mesh_axis axis, int n)
{
    struct mesh m = alone;

    m.size[axis] = n;
    m.nranks = n;
    return m;
}

/* Texts, of which nothing is known but their longest length. */
static void check_unknown(void)
{
    const struct serving few = { .context = 1000 }, far = { .context = 100000 };
    const struct engine_limits a = serving_limits(&few, &alone),
                               b = serving_limits(&far, &alone);

    tap_ok(a.sequences == 256 && a.segments == 256 && a.wanted == 256 &&
               a.running == 256 && a.tokens == 512 && a.context == 1000 && !a.drafts,
           "256 texts may be in generation, beside 512 tokens of prompts");
    tap_ok(a.cache == 32 * 1008 && b.cache == 32 * 8192,
           "the cache has room for 32 of them, or of 8192 tokens");
    tap_ok(a.snapshots == 64, "and states have 64 snapshots");
    tap_ok(a.source == 0 && a.sources == 0, "there is no source");
}

/* Texts whose number is known. */
static void check_known(void)
{
    const struct mesh two = ranks(MESH_DP, 2), experts = ranks(MESH_EP, 2);
    const struct serving three = { .context = 50, .texts = 3 },
                         one = { .context = 50, .texts = 1 },
                         many = { .context = 50, .texts = 400 };
    const struct engine_limits a = serving_limits(&three, &alone),
                               b = serving_limits(&three, &two),
                               c = serving_limits(&one, &alone),
                               d = serving_limits(&many, &alone);

    tap_ok(a.sequences == 3 && b.sequences == 2 &&
               serving_limits(&three, &experts).sequences == 2,
           "no more than there are, shared out over the replicas");
    tap_ok(a.cache == 0 && a.running == 3 && a.snapshots == 6,
           "the cache has room for all of a few");
    tap_ok(c.sequences == 1 && c.running == 0 && c.wanted == 1 && c.snapshots == 0,
           "a text alone has no other beside its prompt, and shares no state");
    tap_ok(d.sequences == 256 && d.cache == 32 * 64, "of many, 256");
}

/* What the user says. */
static void check_asked(void)
{
    const struct serving requests = { .context = 50, .requests = 40, .texts = 400 },
                         tokens = { .context = 50, .cache_tokens = 100, .texts = 9 },
                         open = { .context = 50, .requests = 40 },
                         source = { .context = 9, .source = 700, .texts = 2 },
                         near = { .context = 9, .source = 7, .texts = 2 };
    const struct engine_limits a = serving_limits(&requests, &alone),
                               b = serving_limits(&tokens, &alone),
                               c = serving_limits(&open, &alone);

    tap_ok(a.sequences == 40 && a.cache == 0, "--requests of a known number: all fit");
    tap_ok(b.sequences == 6 && b.cache == 100,
           "--cache-tokens: no more texts than blocks");
    tap_ok(c.sequences == 40 && c.cache == 32 * 64, "of an unknown number, 32 do");
    tap_ok(serving_limits(&source, &alone).sources == 700 &&
               serving_limits(&near, &alone).sources == 512,
           "a step has room for the longest source, and for 512 rows");
}

/* Ranks that share a text's tokens have one text in a step. */
static void check_shared(void)
{
    const struct mesh two = ranks(MESH_SP, 2);
    struct mesh staged = two;
    const struct serving any = { .context = 50, .texts = 9, .told = 5 },
                         some = { .context = 50, .texts = 9, .requests = 4 },
                         tight = { .context = 50, .cache_tokens = 130, .requests = 4 };
    struct engine_limits l = serving_limits(&any, &two);

    tap_ok(l.segments == 1 && l.sequences == 1 && l.wanted == 6 && l.tokens == 1024 &&
               l.cache == 0 && l.running == 0,
           "--sp: one text, and twice the tokens");
    staged.size[MESH_PP] = 3;
    tap_ok(serving_limits(&any, &staged).sequences == 3, "one for each stage");
    tap_ok(serving_limits(&some, &two).sequences == 4, "or as many as are asked for");
    tap_ok(serving_limits(&tight, &two).sequences == 2,
           "but no more than have room for their longest");
}

/* Drafted tokens and prompts that are told need rows. */
static void check_rows(void)
{
    const struct serving one = { .context = 50, .texts = 1, .drafts = 3 },
                         all = { .context = 50, .texts = 9, .drafts = 8, .told = 64 };
    const struct engine_limits a = serving_limits(&one, &alone),
                               b = serving_limits(&all, &alone);

    tap_ok(a.wanted == 4 && a.running == 4 && a.drafts == 3 && a.segments == 1,
           "a text with drafts has their rows");
    tap_ok(b.wanted == 9 + 64 + 64 && b.running == 9 + 64 && b.drafts == 8,
           "many share 64, beside the rows of prompts");
}

/* Whatever is asked for, the longest text has room. */
static void check_any(void)
{
    bool right = true;
    struct rng r;

    rng_init(&r, 3, 0);
    for (int i = 0; i < 20000; i++) {
        const struct serving s = { .context = 1 + rng_below(&r, 300),
                                   .source = rng_below(&r, 2) * rng_below(&r, 700),
                                   .requests = rng_below(&r, 3) * rng_below(&r, 99),
                                   .texts = rng_below(&r, 2) * rng_below(&r, 999),
                                   .drafts = rng_below(&r, 9),
                                   .told = rng_below(&r, 2) * 64 };
        const struct mesh m = ranks(MESH_DP, 1 + (int)rng_below(&r, 3));
        const struct engine_limits l = serving_limits(&s, &m);
        const size_t longest = s.context > s.source ? s.context : s.source;

        right &= l.sequences > 0 && l.segments == l.sequences &&
                 (!l.cache || l.cache >= cache_blocks(longest, 1, 0) * CACHE_BLOCK) &&
                 l.drafted <= 64 && (l.drafted > 0) == (s.drafts > 0) &&
                 l.wanted == l.sequences + l.drafted + s.told &&
                 (l.running == l.sequences + l.drafted || l.sequences == 1) &&
                 (!s.requests || l.sequences <= s.requests);
    }
    tap_ok(right, "the longest text has room in the cache, and each text its rows");
}

int main(void)
{
    check_unknown();
    check_known();
    check_asked();
    check_shared();
    check_rows();
    check_any();
    return tap_done();
}
