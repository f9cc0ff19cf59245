/* choice - the backend of a run: the first that can run all of its programs */
#include "lib/run/choice.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/program/roundable.h"

/* ---- what a backend can run ---- */

/* Asks about R->inst with each format that its weights from FIRST on have. */
static int ask(const struct backend *b, struct device_request *r,
               const struct held *held, int first, struct err *err)
{
    int n =
        r->program->weight[first].experts ? (int)r->program->weight[first].experts : 1;

    for (int i = first; i < first + n; i++) {
        if (i > first && held[i].format == held[i - 1].format)
            continue;
        r->weight = held[i].format;
        if (backend_supports(b, r, err) < 0)
            return -1;
    }
    return 0;
}

static int ask_instruction(const struct backend *b, struct device_request *r,
                           const struct held *held, struct err *err)
{
    const struct inst *inst = r->inst;
    bool weighs = false;

    /* a fused operation: with those of its parts */
    for (int k = inst->parts ? 1 : 0; k <= inst->parts; k++) {
        if ((inst[k].weight >= 0 && ask(b, r, held, inst[k].weight, err) < 0) ||
            (inst[k].weight2 >= 0 && ask(b, r, held, inst[k].weight2, err) < 0))
            return -1;
        weighs |= inst[k].weight >= 0;
    }
    r->weight = FORMAT_F32;
    return weighs ? 0 : backend_supports(b, r, err);
}

/* What the engine runs around attention where ranks share a sequence. */
static int ask_sequence(const struct backend *b, const struct device_request *like,
                        struct err *err)
{
    static const enum op ops[] = { OP_HEADS_PACK, OP_HEADS_UNPACK, OP_MERGE,
                                   OP_CACHE_READ };
    int n = like->program->mesh.size[MESH_SP] == 1 ? 0 : like->program->nslots ? 4 : 3;

    for (int i = 0; i < n; i++) {
        struct inst inst = { .op = ops[i], .weight = -1, .weight2 = -1 };
        struct device_request r = *like;

        r.inst = &inst;
        if (backend_supports(b, &r, err) < 0)
            return -1;
    }
    return 0;
}

/* Products of a training that rounds have weights in bf16 or f16. */
static void round_held(struct held *held, const struct program *p)
{
    bool *rounded = roundable_new(p);

    for (int i = 0; i < p->nweights; i++)
        if (rounded[i] && held[i].format == FORMAT_F32)
            held[i].format = p->half ? FORMAT_F16 : FORMAT_BF16;
    free(rounded);
}

static int ask_all(const struct backend *b, const struct choice_need *need,
                   enum weights_form form, struct err *err)
{
    const struct program *p = need->program;
    struct device_request r = { .program = p, .cache = need->kept };
    struct held *held;
    int ret;

    if (held_find(&held, need->checkpoint, p, form, need->trains, err) < 0)
        return -1;
    if (need->trains && (p->rounded || p->half))
        round_held(held, p);
    ret = ask_sequence(b, &r, err);
    for (int i = 0; i < p->ninsts && ret == 0; i++) {
        r.inst = &p->inst[i];
        r.reverse = i >= p->nforward;
        r.bf16 = p->inst[i].parts ? 0 : program_bf16(p, r.inst);
        ret = ask_instruction(b, &r, held, err);
    }
    free(held);
    return ret;
}

int choice_supports(const struct backend *b, const struct choice_need *need,
                    enum weights_form *form, struct err *err)
{
    int bits = need->trains ? 0 : model_code_bits(need->checkpoint->model);
    enum weights_form own = bits == 4   ? WEIGHTS_INT4
                            : bits == 8 ? WEIGHTS_INT8
                                        : WEIGHTS_STORED;
    enum weights_form asked = need->form;

    if (asked == WEIGHTS_CODES && own != WEIGHTS_STORED)
        asked = own;
    if (asked == WEIGHTS_STORED && own != WEIGHTS_STORED) {
        struct err no = { 0 };

        if (ask_all(b, need, own, &no) == 0)
            asked = own;
        else if (no.kind != ERR_NO)
            return err_set(err, no.kind, "%s", no.text);
    }
    if ((asked == need->form || need->form == WEIGHTS_CODES) &&
        ask_all(b, need, asked, err) < 0)
        return -1;
    for (int op = 0; need->trains && op < ARRAY_UPDATES; op++)
        if (backend_supports_array(b, (enum array_op)op, err) < 0)
            return -1;
    if (need->trains && backend_supports_array(b, need->update, err) < 0)
        return -1;
    if (form)
        *form = asked;
    return 0;
}

bool choice_fuses(void *arg, const struct program *p, const struct inst *inst)
{
    return choice_takes(arg, p, inst, 0);
}

bool choice_takes(void *arg, const struct program *p, const struct inst *inst,
                  unsigned bf16)
{
    struct choice_builder *f = arg;
    struct device_request r = {
        .program = p, .inst = inst, .cache = f->need.kept, .bf16 = bf16
    };
    struct err no = { 0 };

    if (!f->held && !f->fails) {
        enum weights_form form;

        f->need.program = p;
        f->fails = choice_supports(f->backend, &f->need, &form, &no) < 0 ||
                   held_find(&f->held, f->need.checkpoint, p, form, false, &no) < 0;
    }
    return !f->fails && ask_instruction(f->backend, &r, f->held, &no) == 0;
}

/* ---- the choice ---- */

int choice_candidates(struct choice_asked *asked, const char *name, struct err *err)
{
    const struct backend *one = name ? backend_find(name, err) : NULL;

    asked->n = 0;
    asked->named = name != NULL;
    if (name && !one)
        return -1;
    if (name)
        asked->of[asked->n++] = one;
    for (size_t i = 0; !name && backend_at(i); i++)
        if (backend_at(i)->probe()) {
            assert(asked->n < CHOICE_BACKENDS);
            asked->of[asked->n++] = backend_at(i);
        }
    return 0;
}

/* What a rank can run on. */
struct ballot {
    int n;
    struct {
        char name[16];
        char reason[CHOICE_REASON]; /* why not; empty: it can */
    } of[CHOICE_BACKENDS];
};

/* REASON = why B cannot do it all, or "". */
static int find_reason(char reason[CHOICE_REASON], const struct backend *b,
                       const struct choice_asked *asked,
                       const struct choice_need *needs, size_t n, struct err *err)
{
    struct err no = { 0 };

    reason[0] = '\0';
    if (asked->devices && !b->count)
        err_set(&no, ERR_NO, "it has no devices to choose (--devices)");
    else if (asked->collectives && !b->collectives)
        err_set(&no, ERR_NO, "it does not use NCCL (--comm nccl)");
    for (size_t i = 0; i < n && !no.kind; i++)
        if (choice_supports(b, &needs[i], NULL, &no) < 0 && no.kind != ERR_NO) {
            *err = no;
            return -1;
        }
    snprintf(reason, CHOICE_REASON, "%.*s", CHOICE_REASON - 1, no.text);
    return 0;
}

static int vote(struct ballot *b, const struct choice_asked *asked,
                const struct choice_need *needs, size_t n, struct err *err)
{
    for (; b->n < asked->n; b->n++) {
        const struct backend *one = asked->of[b->n];

        snprintf(b->of[b->n].name, sizeof(b->of->name), "%s", one->name);
        if (find_reason(b->of[b->n].reason, one, asked, needs, n, err) < 0)
            return -1;
    }
    return 0;
}

/* Why rank R cannot run on NAME; NULL: it can. */
static const char *objection(const struct ballot *r, const char *name)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->of[i].name, name))
            return r->of[i].reason[0] ? r->of[i].reason : NULL;
    return "there is no such device that can be used";
}

/* REASON = why the first rank that cannot run on NAME cannot; "": all can. */
static void find_objection(char reason[CHOICE_REASON], const struct ballot *all,
                           int ranks, const char *name)
{
    reason[0] = '\0';
    for (int r = 0; r < ranks && !reason[0]; r++) {
        const char *why = objection(&all[r], name);

        if (why && r)
            snprintf(reason, CHOICE_REASON, "rank %d: %.160s", r, why);
        else if (why)
            snprintf(reason, CHOICE_REASON, "%s", why);
    }
}

static bool any_has(const struct ballot *all, int ranks, const char *name)
{
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < all[r].n; i++)
            if (!strcmp(all[r].of[i].name, name))
                return true;
    return false;
}

/* "; --backend cpu can", or "": of those of this machine that were not asked for. */
static void find_other(char *text, size_t size, const struct choice_asked *asked,
                       const struct choice_need *needs, size_t n)
{
    const struct choice_asked any = { .devices = asked->devices,
                                      .collectives = asked->collectives };
    char reason[CHOICE_REASON];
    struct err none = { 0 };

    text[0] = '\0';
    for (size_t i = 0; backend_at(i) && !text[0]; i++) {
        const struct backend *b = backend_at(i);

        if (b != asked->of[0] && find_reason(reason, b, &any, needs, n, &none) == 0 &&
            !reason[0] && b->probe())
            snprintf(text, size, "; --backend %s can", b->name);
    }
}

int choice_make(struct choice *out, const struct choice_asked *asked,
                const struct choice_need *needs, size_t n, struct comm *world,
                struct err *err)
{
    int ranks = world ? world->size : 1, ret, collected = 0;
    struct ballot *all = xcalloc((size_t)ranks + 1, sizeof(*all));
    struct ballot *mine = &all[ranks];
    struct str reasons = { 0 };
    char other[64];

    *out = (struct choice){ 0 };
    ret = vote(mine, asked, needs, n, err);
    /* collective: a rank that has failed takes part, too */
    if (world)
        collected = comm_run(world, comm_all_gather(mine, all, sizeof(*mine)),
                             ret < 0 ? NULL : err);
    else
        all[0] = *mine;
    if (ret < 0 || collected < 0) {
        free(all);
        return -1;
    }
    for (size_t i = 0; backend_at(i) && !out->ops; i++) {
        const struct backend *b = backend_at(i);
        char reason[CHOICE_REASON];

        if (!any_has(all, ranks, b->name))
            continue;
        find_objection(reason, all, ranks, b->name);
        if (!reason[0]) {
            out->ops = b;
            continue;
        }
        str_addf(&reasons, "%s%s: %s", reasons.len ? "; " : "", b->name, reason);
        if (!out->instead_of) {
            out->instead_of = b;
            memcpy(out->reason, reason, sizeof(reason));
        }
    }
    free(all);
    if (!out->ops && asked->named) {
        find_other(other, sizeof(other), asked, needs, n);
        ret = err_set(err, ERR_NO, "--backend %s%s", str_text(&reasons), other);
    } else if (!out->ops)
        ret = err_set(err, ERR_NO, "no backend can: %s", str_text(&reasons));
    str_clear(&reasons);
    return ret;
}
