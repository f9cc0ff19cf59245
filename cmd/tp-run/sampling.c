/* sampling - how the tokens of a text are chosen: options, and the model's settings */
#include "cmd/tp-run/sampling.h"

#include "cmd/tp-run/asked.h"

const char *const finish_names[] = { NULL, "stop", "length", "context", NULL };

int sampling_check(const struct sampling *s, struct err *err)
{
    if (s->draw.temperature < 0 || !(s->draw.top_p > 0 && s->draw.top_p <= 1))
        return err_set(err, ERR_USAGE,
                       "--temperature must be at least 0, --top-p above 0 and at most "
                       "1");
    return 0;
}

static int take_settings(struct sampling *s, struct session *session, struct err *err)
{
    struct asked a;

    if (asked_read(&a, session, err) < 0)
        return -1;
    if (!s->given.n && a.max_new)
        s->max_tokens = a.max_new;
    else if (!s->given.n && a.max_length) {
        s->max_tokens = a.max_length;
        s->max_length = a.max_length;
    }
    if (!s->given.temperature)
        s->draw.temperature = a.sampling.temperature;
    if (!s->given.k)
        s->draw.top_k = a.sampling.top_k;
    if (!s->given.p)
        s->draw.top_p = a.sampling.top_p;
    if (a.start >= 0 && session->source)
        session->start = a.start;
    s->first_new = a.first_new;
    s->last_new = a.last_new;
    return 0;
}

int sampling_settle(struct sampling *s, struct session *session, struct err *err)
{
    if (!s->ignore &&
        launcher_agree(&session->launcher, take_settings(s, session, err), err) < 0)
        return -1;
    if ((!s->given.k && !s->given.p) || s->given.temperature || s->draw.temperature > 0)
        return 0;
    return err_set(err, ERR_USAGE, "--%s needs --temperature",
                   s->given.k ? "top-k" : "top-p");
}

enum finish sampling_end(const struct sampling *s, uint64_t context, size_t n,
                         uint64_t new)
{
    if (new >= s->max_tokens || (s->max_length && n >= s->max_length))
        return LENGTH;
    return context && n > context ? CONTEXT : UNFINISHED;
}

size_t sampling_most(const struct sampling *s, uint64_t context, size_t n)
{
    size_t most = s->max_tokens < SIZE_MAX - n ? n + (size_t)s->max_tokens : SIZE_MAX;

    if (s->max_length && most > s->max_length)
        most = (size_t)s->max_length;
    return context && most > context ? (size_t)context : most;
}

int32_t sampling_forced(const struct sampling *s, uint64_t context, size_t n,
                        uint64_t new, int32_t id)
{
    if (s->first_new >= 0 && n == 1)
        id = s->first_new;
    if (s->last_new >= 0 && sampling_end(s, context, n + 1, new + 1) == LENGTH)
        id = s->last_new;
    return id;
}

bool sampling_is_stop(const struct session *session, int32_t id)
{
    for (size_t i = 0; i < session->stop.n; i++)
        if (session->stop.v[i] == id)
            return true;
    return false;
}
