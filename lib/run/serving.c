/* serving - the sizes of an engine for texts that come one by one */
#include "lib/run/serving.h"

#include <stdint.h>

#include "lib/run/cache.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Tokens in the cache, where the user asks for no number of texts or tokens and PLACES
 * texts may be in generation; 0: enough for all of them. */
static size_t cache_of(const struct serving *s, size_t places)
{
    size_t most = s->context > s->source ? s->context : s->source, each = most;

    if (places <= SERVING_ROOM && s->texts)
        return 0;
    if (!s->texts)
        each = least(most, SERVING_EACH);
    each = cache_blocks(each, least(places, SERVING_ROOM), 0) * CACHE_BLOCK;
    most = cache_blocks(most, 1, 0) * CACHE_BLOCK;
    return each > most ? each : most;
}

/* With sequence parallelism a step has one text, and each text has its own part of the
 * cache, of which CACHED blocks are permitted. */
static size_t places_of_sequences(const struct serving *s, const struct mesh *mesh,
                                  size_t places, size_t cached)
{
    size_t fit = cached / cache_blocks(s->context, 1, 0);

    if (!s->requests)
        places = least(places, (size_t)mesh->size[MESH_PP]);
    return fit && fit < places ? fit : places;
}

size_t serving_snapshots(size_t sequences)
{
    return least(2 * sequences, SERVING_SNAPSHOTS);
}

struct engine_limits serving_limits(const struct serving *s, const struct mesh *mesh)
{
    size_t replicas = (size_t)mesh->size[MESH_DP] * (size_t)mesh->size[MESH_EP];
    size_t texts = s->texts ? (s->texts + replicas - 1) / replicas : SIZE_MAX;
    size_t cached = s->cache_tokens ? s->cache_tokens / CACHE_BLOCK : SIZE_MAX;
    size_t places = least(s->requests ? s->requests : SERVING_REQUESTS, texts);
    struct engine_limits l = { .tokens = SERVING_CHUNK * (size_t)mesh->size[MESH_SP],
                               .context = s->context,
                               .source = s->source };

    l.sources = l.source > SERVING_CHUNK ? l.source : l.source ? SERVING_CHUNK : 0;
    if (mesh->size[MESH_SP] > 1) {
        l.sequences = places_of_sequences(s, mesh, places, cached);
        l.segments = 1;
        l.wanted = 1 + s->told;
        return l;
    }
    l.sequences = l.segments = least(places, cached);
    l.drafts = s->drafts;
    l.drafted = least(l.segments * s->drafts, SERVING_DRAFTED);
    l.wanted = l.segments + l.drafted + s->told;
    l.snapshots = s->texts == 1 ? 0 : serving_snapshots(l.sequences);
    l.cache = s->cache_tokens           ? s->cache_tokens
              : s->requests && s->texts ? 0
                                        : cache_of(s, places);
    l.running = l.sequences > 1 || l.drafted ? l.sequences + l.drafted : 0;
    return l;
}
