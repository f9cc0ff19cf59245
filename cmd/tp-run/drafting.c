/* drafting - the draft of a program that generates text */
#include "cmd/tp-run/drafting.h"

#include <inttypes.h>
#include <string.h>

static bool looks_up(const struct drafting *d)
{
    return !strcmp(d->what, "lookup");
}

static int check(const struct drafting *d, const struct session *s, struct err *err)
{
    if (!d->what && d->most)
        return err_set(err, ERR_USAGE, "--draft-tokens needs --draft");
    if (d->what && d->most > DRAFTS_MOST)
        return err_set(err, ERR_USAGE, "--draft-tokens %d: at most %d", d->most,
                       DRAFTS_MOST);
    if (d->what && s->mesh.size[MESH_SP] > 1)
        return err_set(err, ERR_USAGE,
                       "--draft: not with --sp, whose ranks share a text's tokens");
    if (d->what && s->source && !looks_up(d))
        return err_set(err, ERR_USAGE,
                       "--draft %s: a draft model has no source; use --draft lookup",
                       d->what);
    return 0;
}

int drafting_open(struct drafting *d, const struct session *s, struct err *err)
{
    if (check(d, s, err) < 0)
        return -1;
    return d->what && !looks_up(d)
               ? session_open_beside(s, &d->checkpoint, d->what, err)
               : 0;
}

void drafting_close(struct drafting *d)
{
    checkpoint_close(d->checkpoint);
    d->checkpoint = NULL;
}

size_t drafting_most(const struct drafting *d)
{
    return !d->what ? 0 : d->most ? (size_t)d->most : DRAFTS_MOST;
}

int drafting_start(struct drafter **out, const struct drafting *d,
                   const struct session *s, const struct runner *r,
                   const struct engine_limits *limits, bool draws, uint64_t vocab,
                   struct err *err)
{
    const struct drafter_model model = {
        .checkpoint = d->checkpoint,
        .machine = s->machine,
        .texts = limits->sequences * (size_t)r->nreplicas,
        .context = limits->context,
        .vocab = vocab,
        .draws = draws,
        .deterministic = s->opt.same_bits,
        .rounded = s->opt.compute == COMPUTE_BF16,
        .beside = r,
    };

    *out = NULL;
    if (!d->what)
        return 0;
    if (r->program->dynamic_rope)
        return err_set(
            err, ERR_INPUT,
            "--draft: the model's rotary angles depend on each length that a "
            "text has had, so that drafted tokens cannot be taken back");
    if (r->world->rank)
        return 0;
    if (looks_up(d))
        *out = drafter_lookup();
    return looks_up(d) ? 0 : drafter_open(out, &model, err);
}

int drafting_report(const struct session *s, const struct runner *r,
                    const struct drafter *of, struct comm *comm, struct err *err)
{
    struct ledger more = { 0 };

    if (of)
        drafter_memory(of, &more);
    return session_report_with(s, r, &more, comm, err);
}

void drafting_note(const struct session *s, const struct drafter *of,
                   const struct scheduler *scheduler)
{
    const struct scheduler_counts c = scheduler_counts(scheduler);
    const struct drafter_gain gain = of ? drafter_gain(of) : (struct drafter_gain){ 0 };

    if (!of)
        return;
    cmd_note(s->cmd,
             "draft: %" PRIu64 " of %" PRIu64
             " drafted tokens were right; %.2f tokens a "
             "text and step",
             c.accepted, c.drafted,
             c.growing ? 1 + (double)c.accepted / (double)c.growing : 1);
    if (gain.trials)
        cmd_note(s->cmd, "draft: %.2f times as fast as without%s", gain.last,
                 gain.given_up ? "; given up" : "");
}
