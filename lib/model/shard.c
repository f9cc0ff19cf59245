/* shard - what each rank of a mesh stores of a model's tensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/model.h"
#include "lib/model/quant.h"
#include "lib/model/state.h"

static const char VOCAB[] =
    "vocab"; /* the symbol that --pad-vocab, --keep-vocab mean */

enum { PAD_MAX = 1 << 24 };

/* Padding needs tensors whose first axis is the vocabulary alone. */
static int check_padding(const struct model *m, const struct mesh *mesh,
                         struct err *err)
{
    const struct model_state *s = m->state;
    bool dealt = false;

    if (mesh->pad_vocab > PAD_MAX)
        return err_set(err, ERR_USAGE, "--pad-vocab %llu: more than %d",
                       (unsigned long long)mesh->pad_vocab, PAD_MAX);
    for (int i = 0; i < s->ndeals; i++)
        dealt |=
            s->deal[i].group < 0 && !strcmp(m->scope.sym[s->deal[i].sym].name, VOCAB);
    if (!dealt)
        return err_set(err, ERR_NO,
                       "--pad-vocab: family %s does not shard its vocabulary",
                       m->family);
    for (size_t i = 0; i < s->ndefs; i++)
        for (int k = 0; k < s->def[i].ndim; k++) {
            const struct axis *a = &s->def[i].axis[k];
            int sym = axis_dealt(a, &m->scope);

            if (sym >= 0 && !strcmp(m->scope.sym[sym].name, VOCAB) &&
                (k > 0 || a->n > 1 || a->leaf[0].n > 1))
                return err_set(
                    err, ERR_NO,
                    "--pad-vocab: the vocabulary is not the first axis of %s",
                    s->def[i].pattern);
        }
    return 0;
}

/* The layers of all stages must add up to those of the model. */
static int check_stages(const struct model *m, const struct mesh *mesh, struct err *err)
{
    int64_t sum = 0;

    for (int s = 0; s < mesh->size[MESH_PP]; s++)
        sum += mesh->stages[s] < 0 ? INT32_MAX : mesh->stages[s];
    if (sum == m->state->nlayers)
        return 0;
    return err_set(err, ERR_NO, "stages of %lld layers in all: the model has %d",
                   (long long)sum, m->state->nlayers);
}

/* The config keys that define symbol NAME, if they tell a user more than the name
 * ("moe_intermediate_size" for expert_ffn): *n bytes; NULL and 0 if not. */
static const char *telling(const struct model *m, const char *name, int *n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz_0123456789/* ";
    const struct family_entry *e = family_get(&m->state->family->symbols, name);
    const char *text = e ? json_string(e->json) : NULL;
    size_t len = text ? strcspn(text, "?") : 0; /* up to ??, the default */

    *n = 0;
    if (!len || strspn(text, plain) < len || strstr(text, name))
        return NULL;
    while (len && text[len - 1] == ' ')
        len--;
    *n = (int)len;
    return text;
}

static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;

    while (y) {
        uint64_t rest = x % y;

        x = y;
        y = rest;
    }
    return a / x * b;
}

struct share *model_shares(const struct model *m, const struct mesh *mesh,
                           const int coord[MESH_NAXES])
{
    struct share *share = xcalloc((size_t)m->scope.n + 1, sizeof(*share));

    for (int i = 0; i < m->scope.n; i++)
        share[i] = (struct share){ .count = m->scope.sym[i].value, .owned = true };
    for (int i = 0; i < m->state->ndeals; i++) {
        const struct deal_def *d = &m->state->deal[i];
        int parts = mesh->size[d->over], part = coord[d->over];
        bool vocab = d->group < 0 && !strcmp(m->scope.sym[d->sym].name, VOCAB);

        if (vocab && mesh->keep_vocab)
            continue;
        if (vocab && mesh->pad_vocab)
            share[d->sym] =
                deal_padded(m->scope.sym[d->sym].value,
                            common_multiple(mesh->pad_vocab, d->grain), parts, part);
        else if (d->group < 0)
            share[d->sym] =
                deal_units(m->scope.sym[d->sym].value, d->grain, parts, part);
        else
            deal_groups(m->scope.sym[d->group].value, m->scope.sym[d->within].value,
                        parts, part, &share[d->group], &share[d->within]);
    }
    return share;
}

/* ---- which meshes are possible ---- */

/* Can M be sharded over N ranks along AXIS of MESH? */
static bool is_valid(const struct model *m, const struct mesh *mesh, int axis, int n)
{
    const struct model_state *s = m->state;
    struct mesh tried = *mesh;
    int coord[MESH_NAXES] = { 0 };
    bool valid = true, packed = false;

    tried.size[axis] = n;
    for (size_t i = 0; i < s->ndefs; i++)
        packed |= s->def[i].companion_of >= 0;
    for (int i = 0; i < s->ndeals && valid; i++) {
        const struct axis_symbol *sym = &m->scope.sym[s->deal[i].sym];

        valid = (int)s->deal[i].over != axis || (uint64_t)n <= sym->value ||
                (mesh->keep_vocab && !strcmp(sym->name, VOCAB));
    }
    for (; packed && coord[axis] < n && valid; coord[axis]++) {
        struct share *share = model_shares(m, &tried, coord);

        valid = quant_check_cut(m, share, NULL) == 0;
        free(share);
    }
    return valid;
}

/* Appends to *err, after the refusal RET of MESH, what sizes of AXIS are possible. */
static int add_valid(const struct model *m, const struct mesh *mesh, int axis,
                     struct err *err, int ret)
{
    enum { MOST_TRIED = 256 };
    struct str text = { 0 };
    int from = 0;

    if (!err)
        return ret;
    for (int n = 1; n <= MOST_TRIED + 1; n++) {
        bool valid = n <= MOST_TRIED && is_valid(m, mesh, axis, n);

        if (valid && !from)
            from = n;
        if (valid || !from)
            continue;
        str_addf(&text, text.len ? ", %d" : "%d", from);
        if (from < n - 1)
            str_addf(&text, n - 1 == from + 1 ? ", %d" : " to %d", n - 1);
        from = 0;
    }
    snprintf(err->text + strlen(err->text), sizeof(err->text) - strlen(err->text),
             "; valid %s: %s%s", mesh_axis_names[axis], str_text(&text),
             axis == MESH_TP && m->state->nlayers > 1 ? "; or use --pp" : "");
    str_clear(&text);
    return ret;
}

int model_check_mesh(const struct model *m, const struct mesh *mesh, struct err *err)
{
    const struct model_state *s = m->state;
    bool used[MESH_NAXES] = { [MESH_DP] = true, [MESH_SP] = true, [MESH_PP] = true };

    for (int i = 0; i < s->ndeals; i++) {
        const struct deal_def *d = &s->deal[i];
        const struct axis_symbol *sym = &m->scope.sym[d->sym];
        int n;
        const char *keys = telling(m, sym->name, &n);

        used[d->over] = true;
        if ((uint64_t)mesh->size[d->over] > sym->value &&
            !(mesh->keep_vocab && !strcmp(sym->name, VOCAB)))
            return add_valid(
                m, mesh, d->over, err,
                !keys ? err_set(err, ERR_NO, "%s %d: the model has %llu %s",
                                mesh_axis_names[d->over], mesh->size[d->over],
                                (unsigned long long)sym->value, sym->name)
                      : err_set(err, ERR_NO, "%s %d: the model's %.*s is %llu",
                                mesh_axis_names[d->over], mesh->size[d->over], n, keys,
                                (unsigned long long)sym->value));
    }
    for (int a = 0; a < MESH_NAXES; a++)
        if (mesh->size[a] > 1 && !used[a])
            return err_set(err, ERR_NO, "%s %d: family %s shards nothing over %s",
                           mesh_axis_names[a], mesh->size[a], m->family,
                           mesh_axis_names[a]);
    if (!mesh->stages && mesh->size[MESH_PP] > (s->nlayers ? s->nlayers : 1))
        return err_set(err, ERR_NO, "pp %d: the model has %d layers",
                       mesh->size[MESH_PP], s->nlayers);
    if (mesh->stages && check_stages(m, mesh, err) < 0)
        return -1;
    return mesh->pad_vocab ? check_padding(m, mesh, err) : 0;
}

struct cutter {
    const struct model *model;
    struct mesh mesh;
    int coord[MESH_NAXES];
    struct share *share;
    bool (
        *cut)[MESH_NAXES]; /* [ndefs]: mesh axes that shard the definition's tensors */
    struct runs (*runs)[MODEL_MAX_DIMS]; /* [ndefs]: filled on first use */
    bool *known;                         /* [ndefs]: runs are filled */
    enum slice_order order;
};

int model_dealt_over(const struct model *m, int sym)
{
    const struct model_state *s = m->state;

    for (int i = 0; i < s->ndeals; i++)
        if (s->deal[i].sym == sym || s->deal[i].group == sym ||
            s->deal[i].within == sym)
            return (int)s->deal[i].over;
    return -1;
}

/* The same on the cutter's mesh, which may not shard the vocabulary. */
static int over_axis(const struct cutter *c, int sym)
{
    if (sym >= 0 && c->mesh.keep_vocab && !strcmp(c->model->scope.sym[sym].name, VOCAB))
        return -1;
    return model_dealt_over(c->model, sym);
}

static void find_cuts(struct cutter *c, size_t def)
{
    const struct model_state *s = c->model->state;
    const struct tensor_def *d = &s->def[def];

    for (int k = 0; k < d->ndim; k++)
        for (int i = 0; i < d->axis[k].n; i++)
            for (int j = 0; j < d->axis[k].leaf[i].n; j++) {
                int over = over_axis(c, d->axis[k].leaf[i].digit[j].sym);

                if (over >= 0)
                    c->cut[def][over] = true;
            }
    for (int k = 0; k < 2; k++)
        if (d->capture[k] >= 0 && over_axis(c, d->capture[k]) >= 0)
            c->cut[def][over_axis(c, d->capture[k])] = true;
    c->cut[def][MESH_PP] = d->section >= 0;
}

int cutter_open(struct cutter **out, const struct model *m, const struct mesh *mesh,
                const int coord[MESH_NAXES], struct err *err)
{
    struct cutter *c;

    if (model_check_mesh(m, mesh, err) < 0)
        return -1;
    c = xcalloc(1, sizeof(*c));
    c->model = m;
    c->mesh = *mesh;
    memcpy(c->coord, coord, sizeof(c->coord));
    c->share = model_shares(m, mesh, coord);
    if (quant_check_cut(m, c->share, err) < 0) {
        free(c->share);
        free(c);
        return add_valid(m, mesh, MESH_TP, err, -1);
    }
    c->cut = xcalloc(m->state->ndefs + 1, sizeof(*c->cut));
    c->runs = xcalloc(m->state->ndefs + 1, sizeof(*c->runs));
    c->known = xcalloc(m->state->ndefs + 1, sizeof(*c->known));
    for (size_t i = 0; i < m->state->ndefs; i++)
        find_cuts(c, i);
    *out = c;
    return 0;
}

void cutter_set_order(struct cutter *c, enum slice_order order)
{
    c->order = order;
}

void cutter_free(struct cutter *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->model->state->ndefs; i++)
        for (int k = 0; k < MODEL_MAX_DIMS; k++)
            runs_clear(&c->runs[i][k]);
    free(c->share);
    free(c->cut);
    free(c->runs);
    free(c->known);
    free(c);
}

int model_layers(const struct model *m)
{
    return m->state->nlayers;
}

int model_part(const struct model *m, int section, int layer)
{
    const struct model_section *sec;

    if (section < 0)
        return m->state->nlayers + 1;
    sec = &m->state->section[section];
    if (sec->repeated)
        return 1 + sec->depth + layer;
    return !sec->depth                       ? 0
           : sec->depth == m->state->nlayers ? m->state->nlayers + 1
                                             : sec->depth;
}

int model_stage(const struct model *m, const struct mesh *mesh, int section, int layer)
{
    const struct model_section *sec = &m->state->section[section];
    int nlayers = m->state->nlayers, last = mesh->size[MESH_PP] - 1, depth, stage = 0;

    if (!sec->repeated && (!sec->depth || sec->depth == nlayers))
        return sec->depth ? last : 0;
    depth = sec->repeated ? sec->depth + layer : sec->depth - 1;
    for (; stage < last; stage++) {
        int first, count;

        mesh_stage(mesh, nlayers, stage, &first, &count);
        if (depth < first + count)
            break;
    }
    return stage;
}

/* Does the rank's stage run a line of section I, of layer LAYER, or of any layer if
 * -1? */
static bool runs_section(const struct cutter *c, int i, int layer)
{
    const struct model_state *s = c->model->state;
    const struct model_section *sec = &s->section[i];
    int stage = c->coord[MESH_PP], first, count;

    if (!sec->repeated || layer >= 0)
        return model_stage(c->model, &c->mesh, i, layer) == stage;
    mesh_stage(&c->mesh, s->nlayers, stage, &first, &count);
    return first < sec->depth + sec->count && sec->depth < first + count;
}

static bool on_stage(const struct cutter *c, const struct model_tensor *t)
{
    const struct tensor_def *d = &c->model->state->def[t->kind];

    if (c->mesh.size[MESH_PP] == 1)
        return true;
    if (t->section >= 0)
        return runs_section(c, t->section, t->layer);
    if (!d->read_by) /* such as a stored copy of a tied tensor: on the first stage */
        return c->coord[MESH_PP] == 0;
    for (int i = 0; i < c->model->state->nsections; i++)
        if (d->read_by >> i & 1 && runs_section(c, i, -1))
            return true;
    return false;
}

/* Does an earlier stage hold T, too? */
static bool earlier_stage(struct cutter *c, const struct model_tensor *t)
{
    int stage = c->coord[MESH_PP];
    bool found = false;

    if (t->section >= 0)
        return false;
    for (c->coord[MESH_PP] = 0; c->coord[MESH_PP] < stage && !found;
         c->coord[MESH_PP]++)
        found = on_stage(c, t);
    c->coord[MESH_PP] = stage;
    return found;
}

/* Rows of padding in a tensor whose first axis is A. */
static uint64_t padding_of(const struct cutter *c, const struct axis *a,
                           const struct runs *runs)
{
    int sym = axis_dealt(a, &c->model->scope);

    if (sym < 0 || !c->share[sym].pad)
        return 0;
    return (c->share[sym].count + c->share[sym].pad + a->block - 1) / a->block -
           runs->count;
}

/* True if the runs are in the order of the axis, without gaps. */
static bool in_order(const struct runs *r)
{
    uint64_t next = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].start != next)
            return false;
        next += r->v[i].count;
    }
    return true;
}

void cutter_slice(struct cutter *c, size_t tensor, struct slice *out)
{
    const struct model_tensor *t = &c->model->tensor[tensor];
    const struct tensor_def *d = &c->model->state->def[t->kind];
    int expert = d->capture[1] >= 0 ? d->capture[1]
                 : d->section < 0   ? d->capture[0]
                                    : -1;

    *out = (struct slice){ .held = on_stage(c, t), .primary = true, .ndim = t->ndim };
    if (expert >= 0 && t->expert >= 0) {
        const struct share *s = &c->share[expert];

        out->held &= (uint64_t)t->expert >= s->start &&
                     (uint64_t)t->expert < s->start + s->count;
    }
    if (!c->known[t->kind]) {
        for (int k = 0; k < t->ndim; k++)
            (c->order == SLICE_ORIGINAL ? axis_ordered_runs : axis_runs)(
                &c->runs[t->kind][k], t->axis[k], &c->model->scope, c->share);
        c->known[t->kind] = true;
    }
    for (int k = 0; k < t->ndim; k++) {
        out->runs[k] = &c->runs[t->kind][k];
        out->cut |= out->runs[k]->count != t->axis[k]->size ||
                    (c->order == SLICE_BY_UNIT && !in_order(out->runs[k]));
    }
    if (c->mesh.pad_vocab && t->ndim)
        out->pad = padding_of(c, t->axis[0], out->runs[0]);
    out->cut |= out->pad > 0;
    for (int a = 0; a < MESH_NAXES; a++)
        if (a != MESH_PP && !c->cut[t->kind][a] && c->coord[a] > 0)
            out->primary = false;
    if (out->held && earlier_stage(c, t))
        out->primary = false;
}

static bool is_whole(const struct model *m, const struct mesh *mesh, size_t tensor,
                     int axis, uint64_t block)
{
    int coord[MESH_NAXES] = { 0 };
    bool whole = true;

    for (; coord[MESH_TP] < mesh->size[MESH_TP] && whole; coord[MESH_TP]++) {
        struct cutter *c;
        struct slice slice;
        struct err err;

        if (cutter_open(&c, m, mesh, coord, &err) < 0)
            return false;
        cutter_slice(c, tensor, &slice);
        for (size_t i = 0; i < slice.runs[axis]->n; i++)
            whole &= slice.runs[axis]->v[i].start % block == 0 &&
                     slice.runs[axis]->v[i].count % block == 0;
        cutter_free(c);
    }
    return whole;
}

void cutter_tell_whole(const struct model *m, const struct mesh *mesh, size_t tensor,
                       int axis, uint64_t block, struct err *err)
{
    struct mesh tried = *mesh;
    struct str text = { 0 };

    for (int n = 1; n < mesh->size[MESH_TP]; n++) {
        tried.size[MESH_TP] = n;
        if (is_whole(m, &tried, tensor, axis, block))
            str_addf(&text, text.len ? ", %d" : "%d", n);
    }
    if (text.len)
        snprintf(err->text + strlen(err->text), sizeof(err->text) - strlen(err->text),
                 "; whole blocks at tp: %s", str_text(&text));
    str_clear(&text);
}
