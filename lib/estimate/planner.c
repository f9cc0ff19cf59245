/* planner - searches the layouts of a cluster for the fastest ones that fit */
#include "lib/estimate/planner.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/part.h"
#include "lib/estimate/reversed.h"
#include "lib/estimate/training.h"

const char *const planner_rules[RULES] = {
    [RULE_MODEL] = "the model cannot be sharded this way",
    [RULE_NODE] = "tensor ranks would not be on one node",
    [RULE_BATCH] = "the batch does not divide",
    [RULE_ZERO] =
        "ZeRO without replicas, its stage 2 in a pipeline, or what asks for another",
    [RULE_MEMORY] = "too large for the memory",
    [RULE_SEQUENCE] = "the sequence does not divide",
    [RULE_SCHEDULE] =
        "too few layers for the schedule, or a number of micro-batches that it lacks",
    [RULE_RECOMPUTE] = "recomputing attention: flash attention keeps no scores",
    [RULE_EXPERTS] = "no experts to shard over ep",
    [RULE_KEPT] = "the axes that are kept do not divide the devices",
    [RULE_FRAMEWORK] = "the framework does not have it",
};

const char *const planner_codes[RULES] = {
    [RULE_MODEL] = "model",         [RULE_NODE] = "node",
    [RULE_BATCH] = "batch",         [RULE_ZERO] = "zero",
    [RULE_MEMORY] = "memory",       [RULE_SEQUENCE] = "sequence",
    [RULE_SCHEDULE] = "schedule",   [RULE_RECOMPUTE] = "recompute",
    [RULE_EXPERTS] = "experts",     [RULE_KEPT] = "kept_axes",
    [RULE_FRAMEWORK] = "framework",
};

/* Choices tried for a mesh and micro-batch. */
enum { WAYS = RECOMPUTE_KINDS, STAGES = 4, MAX_ORDERS = 64 };

struct orders {
    struct pipe_order order[MAX_ORDERS];
    int n;
};

/* The divisors of a number, ascending. */
struct divisors {
    uint64_t *v;
    size_t n;
};

struct search {
    const struct model *m;
    const struct planner_options *o;
    struct planner_result *out;
    struct bubbles bubbles;
    struct training_cache known;
    struct reversed_programs programs; /* of the current tp and pp */
    struct costmodels ranks;           /* of the current tp and ep */
    const struct profile *profile;     /* of rank 0 of these */
    const int *run;                    /* [nlayers]: see runs_new */
    struct costmodels *taken;          /* [nprofiles]: those of every tp and ep tried */
    struct profile **profiles, **prompts;
    int **runs;
    size_t nprofiles;
    struct planned *found; /* all layouts that fit */
    size_t n, cap;
    int nlayers;
    bool experts;                   /* that can be sharded */
    bool almost;                    /* planner_result.almost */
    int etp;                        /* of what is tried */
    struct divisors devices, sizes; /* of the number of devices; of the batch */
};

void planner_options_init(struct planner_options *o)
{
    *o = (struct planner_options){ .top = 5, .zero = -1, .order = -1 };
}

static void reject(struct search *s, enum planner_rule rule)
{
    s->out->tried++;
    s->out->rejected[rule]++;
}

/* True for a plan of tp-run train: it searches only what that has, unless the options
 * fix something else. */
static bool is_ours(const struct search *s)
{
    return s->o->start.train && s->o->start.framework == FRAMEWORK_TP_RUN;
}

/* ---- one layout ---- */

/* The memory of the I'th kind of ranks on STAGE; false if it overflows. */
static bool rank_bytes(struct search *s, struct rank_memory *r, size_t i,
                       const struct memory_options *o, int stage)
{
    int coord[MESH_NAXES] = { [MESH_PP] = stage };
    struct err no;

    if (!reversed_applies(o))
        return memory_of_stage(r, costmodels_get(&s->ranks, i), o, stage);
    coord[MESH_TP] = costmodels_coord(&s->ranks, i)[MESH_TP];
    return reversed_largest(&s->programs, s->m, o, coord, &no) == 0 &&
           reversed_rank(r, &s->programs, s->m, s->o->stored, o, coord, &no) == 0;
}

/* Checks one stage's ranks; they differ if tp does not divide the heads. */
static bool stage_fits(struct search *s, struct memory_options *o, int stage,
                       struct planned *p)
{
    for (size_t i = 0; costmodels_get(&s->ranks, i); i++) {
        struct memory_options here = *o;
        struct rank_memory r;
        uint64_t states;

        if (!rank_bytes(s, &r, i, o, stage) ||
            (r.total > s->o->gpu_memory && r.total > s->o->all_memory))
            return false;
        p->memory = r.total > p->memory ? r.total : p->memory;
        p->host = r.host > p->host ? r.host : p->host;
        states = r.bytes[MEMORY_OPTIMIZER];
        if (here.offload != OFFLOAD_NONE) {
            here.offload = OFFLOAD_NONE;
            if (!rank_bytes(s, &r, i, &here, stage))
                return false;
            states = r.bytes[MEMORY_OPTIMIZER];
        }
        if (states > p->states)
            p->states = states;
    }
    return true;
}

/* For each depth the first layer of the run of identical layers it is in, on every
 * rank; a section between stacks ends a run. */
static int *runs_new(const struct costmodels *ranks, int ndepths)
{
    int *run = xcalloc((size_t)ndepths + 1, sizeof(*run));
    bool *begins = xcalloc((size_t)ndepths + 1, sizeof(*begins));
    const struct costmodel *a;

    for (size_t k = 0; (a = costmodels_get(ranks, k)); k++)
        for (int i = 0; i < a->nunits; i++) {
            const struct unit *u = &a->unit[i], *v = i ? u - 1 : NULL;
            bool inner = u->depth > 0 && u->depth < ndepths - 1;

            if (u->layer < 0 ? inner : !v || v->layer < 0 || u->like != v->like)
                begins[u->depth] = true;
            if (u->layer < 0 && inner)
                begins[u->depth + 1] = true;
        }
    for (int d = 0; d < ndepths; d++)
        run[d] = d && !begins[d] ? run[d - 1] : d;
    free(begins);
    return run;
}

/* True if all layers from FIRST to LAST are identical. */
static bool alike(const struct search *s, int first, int last)
{
    return first <= last && s->run[first] == s->run[last];
}

/* True if STAGE is dominated by the stage before it: identical layers, no more of them,
 * no more micro-batches in flight.  Never for the first stages, which also have the
 * sections before and after the layers. */
static bool is_less(const struct search *s, const struct memory_options *o, int stage)
{
    struct part now, before;

    if (stage < 1 + (o->fold != FOLD_NONE) ||
        (o->inflight && o->inflight[stage] > o->inflight[stage - 1]))
        return false;
    now = part_of(costmodels_get(&s->ranks, 0), o, stage);
    before = part_of(costmodels_get(&s->ranks, 0), o, stage - 1);
    for (int k = 0; k < now.n; k++) {
        const int *a = k ? now.first : before.first, *b = k ? before.first : now.first;
        const int *n = k ? before.count : now.count;

        if (!now.count[k] || now.count[k] > before.count[k] ||
            !alike(s, a[k], b[k] + n[k] - 1))
            return false;
    }
    return true;
}

/* Sets P's memory to the largest rank's; false if a rank does not fit.  The first stage
 * (most micro-batches in flight) and the last (logits) are checked first, as they are
 * usually the largest. */
static bool memory_fits(struct search *s, struct memory_options *o, struct planned *p)
{
    int pp = o->mesh.size[MESH_PP];

    if (!stage_fits(s, o, 0, p) || (pp > 1 && !stage_fits(s, o, pp - 1, p)))
        return false;
    for (int i = 1; i < pp - 1; i++)
        if (!is_less(s, o, i) && !stage_fits(s, o, i, p))
            return false;
    s->almost |= p->memory > s->o->gpu_memory;
    return p->memory <= s->o->gpu_memory;
}

static void set_rates(const struct search *s, struct planned *p)
{
    uint64_t tokens = s->o->global_batch * (s->o->start.train ? s->o->start.seq : 1);

    p->tokens = (double)tokens / p->step.seconds;
    p->utilisation =
        p->step.flops / (p->step.seconds * s->o->gpus * s->o->machine.peak);
}

static void set_layout(struct memory_options *o, const struct planned *p)
{
    o->mesh = p->mesh;
    o->zero = p->zero;
    o->hsdp = p->hsdp;
    o->etp = p->etp;
    o->recompute = p->recompute;
    o->sequence_parallel = p->sequence_parallel;
    o->micro_batch = p->micro_batch;
    o->micro_batches = p->micro_batches;
    o->fold = memory_fold(p->order.order);
    o->chunks = p->order.chunks;
}

/* What tp-run does in its reverse is told by its programs. */
static void set_own(struct search *s, struct memory_options *o,
                    const struct profile *profile)
{
    struct err no;

    o->own = reversed_applies(o) && o->mesh.size[MESH_SP] * o->mesh.size[MESH_EP] == 1
                 ? reversed_own(&s->programs, profile->a, o, &no)
                 : NULL;
}

/* What the plan's framework runs. */
static const struct abilities *has(const struct search *s)
{
    return &abilities[s->o->start.framework];
}

/* Sets the keys that a token of requests sees in the mean. */
static void set_keys(const struct search *s, struct memory_options *o)
{
    if (s->o->requests.tokens)
        o->seq = s->o->requests.tokens + s->o->requests.output / 2;
}

/* Times P's requests, and by what factor they miss what is wanted. */
static void time_requests(const struct search *s, struct planned *p,
                          struct memory_options *o)
{
    double first = s->o->requests.first, next = s->o->requests.next;
    uint64_t seq = o->seq;

    set_keys(s, o);
    step_requests(&p->step, &p->times, s->profile, s->prompts[p->apart], &s->o->machine,
                  o, s->o->requests.tokens, s->o->requests.output);
    o->seq = seq;
    p->late = 1;
    if (first > 0 && p->times.first / first > p->late)
        p->late = p->times.first / first;
    if (next > 0 && p->times.next / next > p->late)
        p->late = p->times.next / next;
}

/* Adds the layout to s->found; false if it does not fit. */
static bool try_one(struct search *s, const struct memory_options *layout,
                    const struct pipe_order *order)
{
    struct memory_options o = *layout;
    struct planned p = { .mesh = o.mesh,
                         .zero = o.zero,
                         .hsdp = o.hsdp,
                         .etp = o.etp,
                         .recompute = o.recompute,
                         .sequence_parallel = o.sequence_parallel,
                         .order = *order,
                         .micro_batch = o.micro_batch,
                         .micro_batches = o.micro_batches,
                         .profile = s->profile,
                         .apart = s->nprofiles - 1 };

    s->out->evaluated++;
    if (!memory_fits(s, &o, &p))
        return false;
    set_own(s, &o, s->profile);
    if (s->o->requests.tokens)
        time_requests(s, &p, &o);
    else
        step_time(&p.step, s->profile, &s->o->machine, &o, order, p.states, NULL);
    s->found = xgrow(s->found, &s->cap, s->n + 1, sizeof(p));
    s->found[s->n++] = p;
    return true;
}

/* ---- the search ---- */

static bool keeps(int kept, int value)
{
    return kept < 0 || kept == value;
}

/* True if the options leave WAY of recomputing. */
static bool takes(const struct search *s, enum recompute way)
{
    return !s->o->recompute || (s->o->recompute >> way & 1);
}

/* True if ORDER can have CHUNKS chunks, with EACH layers on a stage. */
static bool suits(const struct search *s, enum order order, int chunks, int pp,
                  int each)
{
    if (order_interleaves(order))
        return chunks > 1 && (chunks == s->o->chunks || each % chunks == 0);
    if (order == ORDER_DUALPIPE && pp % 2)
        return false;
    return chunks == order_chunks(order);
}

/* The schedules to try for PP stages.  GPipe needs as much time as 1f1b and more
 * memory; making v-min and v-half takes longer than all else; schedules that pair
 * passes are for hiding all-to-alls (EXCHANGES); without stages one schedule is enough.
 */
static void find_orders(const struct search *s, int pp, bool exchanges,
                        struct orders *out)
{
    int each = (s->nlayers + pp - 1) / pp, kept = s->o->chunks;
    bool many = pp > 1 && s->o->start.train;

    out->n = 0;
    for (int order = 0; order < ORDERS; order++) {
        if (s->o->order >= 0 ? s->o->order != order
                             : !(has(s)->orders >> order & 1) || order < ORDER_1F1B ||
                                   (order > ORDER_1F1B && !many) ||
                                   (order > ORDER_1F1B && is_ours(s)) ||
                                   order == ORDER_V_MIN || order == ORDER_V_HALF ||
                                   (order_pairs((enum order)order) && !exchanges))
            continue;
        for (int v = kept ? kept : 1; v <= (kept ? kept : each > 2 ? each : 2); v++)
            if (suits(s, (enum order)order, v, pp, each) && out->n < MAX_ORDERS)
                out->order[out->n++] = (struct pipe_order){ (enum order)order, v };
    }
}

/* True if WAY, on layout O, is a choice.  tp-run's programs tell whether it drops
 * anything; elsewhere attention keeps nothing without scores. */
static bool tries(struct search *s, const struct memory_options *o, enum recompute way)
{
    struct memory_options one = *o;
    bool some = false;

    one.recompute = way;
    set_own(s, &one, s->profile);
    for (int i = 0; one.own && i < o->mesh.size[MESH_PP]; i++)
        some |= one.own[i].again.instructions > 0;
    if (!way || some || reversed_applies(&one))
        return !way || some;
    if (way == RECOMPUTE_PRODUCTS) /* a habit of torchtitan's */
        return s->o->recompute || s->o->start.framework == FRAMEWORK_TORCHTITAN;
    return way != RECOMPUTE_ATTENTION || !o->flash;
}

/* Ranks of a node that share a layout's weights, if these are sharded and the groups
 * are several; else 0.  Frameworks that shard weights over all replicas alone have
 * none. */
static int node_group(const struct search *s, const struct memory_options *o)
{
    int copies = o->mesh.nranks / o->mesh.size[MESH_TP] / o->mesh.size[MESH_PP];
    int near = s->o->machine.per_node / o->mesh.size[MESH_TP];
    bool has = o->framework == FRAMEWORK_NONE || o->framework == FRAMEWORK_TORCHTITAN;

    return has && o->zero == 3 && !s->o->start.hsdp && near > 1 && near < copies &&
                   copies % near == 0
               ? near
               : 0;
}

/* Adds the layout with all replicas as one group, or if that is faster and fits with a
 * group for each node; false if it does not fit as one. */
static bool try_groups(struct search *s, struct memory_options *o,
                       const struct pipe_order *order)
{
    int given = o->hsdp, near = node_group(s, o);
    bool ok = try_one(s, o, order);

    if (!ok || !near)
        return ok;
    o->hsdp = near;
    if (!framework_lacks(o, s->experts) && try_one(s, o, order)) {
        struct planned *one = &s->found[s->n - 2], *node = one + 1;

        if (node->step.seconds < one->step.seconds)
            *one = *node;
        s->n--;
    }
    s->out->evaluated--;
    o->hsdp = given;
    return true;
}

/* Tries all ZeRO stages and recomputations of a mesh, micro-batch and schedule.  FULL
 * marks those for which a smaller micro-batch did not fit. */
static void try_states(struct search *s, struct memory_options *o,
                       const struct pipe_order *order, bool full[STAGES][WAYS])
{
    int copies = o->mesh.nranks / o->mesh.size[MESH_TP] / o->mesh.size[MESH_PP];

    for (int zero = 0; zero < (o->train ? STAGES : 1); zero++) {
        if (!keeps(s->o->zero, zero))
            continue;
        if ((zero && copies == 1) || (o->offload == OFFLOAD_PARAMS && zero < 3) ||
            (o->hsdp && (!zero || copies % o->hsdp)) ||
            (o->mesh.size[MESH_PP] > 1 &&
             (zero == 2 || (zero == 3 && habits_of(o).refuses)))) {
            reject(s, RULE_ZERO);
            continue;
        }
        if ((is_ours(s) && zero > 1 && s->o->zero < 0) ||
            (o->train && s->o->zero < 0 && !(has(s)->zero >> zero & 1))) {
            reject(s, RULE_FRAMEWORK);
            continue;
        }
        o->zero = zero;
        for (int way = 0; way < (o->train ? WAYS : 1); way++) {
            if (!takes(s, (enum recompute)way) || !tries(s, o, (enum recompute)way))
                continue;
            o->recompute = (enum recompute)way;
            if (framework_lacks(o, s->experts)) {
                reject(s, RULE_FRAMEWORK);
                continue;
            }
            full[zero][way] = full[zero][way] || !try_groups(s, o, order);
            if (full[zero][way])
                reject(s, RULE_MEMORY);
            else
                s->out->tried++;
        }
    }
}

/* Would groups of interleaved micro-batches differ in size?  Frameworks have none. */
static bool is_ragged(const struct search *s, const struct memory_options *o,
                      enum order order)
{
    uint64_t pp = (uint64_t)o->mesh.size[MESH_PP];

    return order_interleaves(order) && s->o->order < 0 && o->micro_batches > pp &&
           o->micro_batches % pp;
}

static void try_orders(struct search *s, struct memory_options *o,
                       const struct orders *orders, bool full[MAX_ORDERS][STAGES][WAYS])
{
    int pp = o->mesh.size[MESH_PP];

    for (int i = 0; i < orders->n; i++) {
        const struct pipe_order *order = &orders->order[i];

        o->inflight = NULL;
        o->fold = memory_fold(order->order);
        o->chunks = order->chunks;
        o->split = order_splits(order->order);
        if (o->train && pp * order->chunks <= s->nlayers &&
            o->micro_batches <= INT32_MAX && !is_ragged(s, o, order->order))
            o->inflight = bubbles_inflight(&s->bubbles, order->order, pp,
                                           (int)o->micro_batches, order->chunks);
        if (o->train && !o->inflight)
            reject(s, RULE_SCHEDULE);
        else
            try_states(s, o, order, full[i]);
    }
}

/* The layout of EACH requests of a replica: as many micro-batches as stages. */
static void spread_requests(struct memory_options *o, uint64_t each)
{
    uint64_t pp = (uint64_t)o->mesh.size[MESH_PP];

    o->micro_batches = each < pp ? each : pp;
    o->micro_batch = (each + o->micro_batches - 1) / o->micro_batches;
}

static void try_requests(struct search *s, const struct mesh *mesh,
                         const struct orders *orders, uint64_t each)
{
    bool full[MAX_ORDERS][STAGES][WAYS] = { 0 };
    struct memory_options o = s->o->start;

    o.cache = &s->known;
    o.mesh = *mesh;
    spread_requests(&o, each);
    try_orders(s, &o, orders, full);
}

static void try_mesh(struct search *s, const struct mesh *mesh)
{
    uint64_t copies = (uint64_t)mesh->size[MESH_DP] * (uint64_t)mesh->size[MESH_EP];
    uint64_t each = s->o->global_batch / copies, kept = s->o->micro_batch;
    bool full[MAX_ORDERS][STAGES][WAYS] = { 0 };
    struct orders orders;

    if (s->o->requests.tokens) {
        find_orders(s, mesh->size[MESH_PP], false, &orders);
        try_requests(s, mesh, &orders, (s->o->global_batch + copies - 1) / copies);
        return;
    }
    if (s->o->global_batch % copies) {
        reject(s, RULE_BATCH);
        return;
    }
    find_orders(s, mesh->size[MESH_PP], mesh->size[MESH_EP] > 1, &orders);
    if (!orders.n)
        reject(s, RULE_SCHEDULE);
    if (kept && each % kept)
        reject(s, RULE_BATCH);
    for (size_t i = 0; i < s->sizes.n && s->sizes.v[i] <= each; i++) {
        uint64_t size = s->sizes.v[i];
        struct memory_options o = s->o->start;

        o.cache = &s->known;
        if (each % size || (kept && kept != size))
            continue;
        o.mesh = *mesh;
        o.etp = s->etp;
        o.sequence_parallel = o.train && mesh->size[MESH_TP] > 1 && !is_ours(s);
        o.micro_batch = size;
        o.micro_batches = each / size;
        try_orders(s, &o, &orders, full);
    }
}

/* Tries all splits of REST ranks over sp, dp and pp. */
static void try_rest(struct search *s, int size[MESH_NAXES], int rest)
{
    for (size_t i = 0; i < s->devices.n; i++) {
        int sp = (int)s->devices.v[i];

        if (rest % sp || (s->o->size[MESH_SP] && s->o->size[MESH_SP] != sp))
            continue;
        if ((is_ours(s) || !has(s)->sequence) && sp > 1 && !s->o->size[MESH_SP]) {
            reject(s, RULE_FRAMEWORK);
            continue;
        }
        if (s->o->start.seq % (uint64_t)sp) {
            reject(s, RULE_SEQUENCE);
            continue;
        }
        for (size_t k = 0; k < s->devices.n; k++) {
            int pp = (int)s->devices.v[k], dp = rest / sp / pp;
            struct mesh mesh;
            struct err no;

            if (rest / sp % pp || (s->o->size[MESH_PP] && s->o->size[MESH_PP] != pp) ||
                (s->o->size[MESH_DP] && s->o->size[MESH_DP] != dp))
                continue;
            size[MESH_SP] = sp;
            size[MESH_PP] = pp;
            size[MESH_DP] = dp;
            if (mesh_set(&mesh, size, NULL, &no) < 0 ||
                model_check_mesh(s->m, &mesh, NULL) < 0)
                reject(s, RULE_MODEL);
            else
                try_mesh(s, &mesh);
        }
    }
}

/* The mean row of a prompt. */
static struct profile *prompt_profile(const struct search *s,
                                      const struct costmodels *ranks)
{
    struct memory_options o = s->o->start;

    o.train = o.flash = o.fused_loss = true;
    o.seq = s->o->requests.tokens;
    return profile_new(costmodels_get(ranks, 0), &o);
}

/* Makes the costmodels of MESH's tp and ep; they live until the end of the search. */
static int take_apart(struct search *s, const struct mesh *mesh, struct err *err)
{
    struct memory_options o = s->o->start;
    struct costmodels ranks = { 0 };
    size_t n = s->nprofiles;

    o.mesh = *mesh;
    if (costmodels_all(&ranks, s->m, s->o->stored, &o, err) < 0) {
        costmodels_clear(&ranks);
        return -1;
    }
    s->taken = xrealloc(s->taken, (n + 1) * sizeof(*s->taken));
    s->profiles = xrealloc(s->profiles, (n + 1) * sizeof(*s->profiles));
    s->prompts = xrealloc(s->prompts, (n + 1) * sizeof(*s->prompts));
    s->runs = xrealloc(s->runs, (n + 1) * sizeof(*s->runs));
    s->run = s->runs[n] = runs_new(&ranks, s->nlayers);
    s->ranks = s->taken[n] = ranks;
    set_keys(s, &o);
    s->profile = s->profiles[n] = profile_new(costmodels_get(&ranks, 0), &o);
    s->prompts[n] = s->o->requests.tokens ? prompt_profile(s, &ranks) : NULL;
    if (s->o->start.train)
        costmodels_drop_programs(&s->taken[n]);
    s->nprofiles++;
    return 0;
}

/* True if experts may be shared out over tensor ranks, too. */
static bool may_fold(const struct planner_options *o)
{
    return o->start.train && (o->etp || o->start.framework == FRAMEWORK_MEGATRON);
}

/* True if the model's experts can be dealt over EP ranks, ETP for each. */
static bool deals(const struct search *s, int etp, int ep)
{
    const int size[MESH_NAXES] = { [MESH_TP] = etp, [MESH_EP] = ep };
    struct mesh mesh;
    struct err no;

    return !etp || (mesh_set(&mesh, size, NULL, &no) == 0 &&
                    model_check_mesh(s->m, &mesh, NULL) == 0);
}

/* Tries TP tensor ranks, ETP of them for an expert; 0: all. */
static int try_tensor(struct search *s, int tp, int etp, struct err *err)
{
    int rest = s->o->gpus / tp, fold = etp ? tp / etp : 1;

    s->etp = etp;
    if (tp > s->o->machine.per_node) {
        reject(s, RULE_NODE);
        return 0;
    }
    for (size_t i = 0; i < (s->experts ? s->devices.n : 1); i++) {
        int ep = (int)s->devices.v[i];
        int size[MESH_NAXES] = { [MESH_TP] = tp, [MESH_EP] = ep };
        struct mesh mesh;
        struct err no;

        if (rest % ep || (s->o->size[MESH_EP] && s->o->size[MESH_EP] != ep * fold))
            continue;
        if (is_ours(s) && ep > 1 && !s->o->size[MESH_EP]) {
            reject(s, RULE_FRAMEWORK);
            continue;
        }
        if (mesh_set(&mesh, size, NULL, &no) < 0 ||
            model_check_mesh(s->m, &mesh, NULL) < 0 || !deals(s, etp, ep * fold)) {
            reject(s, RULE_MODEL);
            continue;
        }
        if (take_apart(s, &mesh, err) < 0)
            return -1;
        try_rest(s, size, rest / ep);
    }
    return 0;
}

int planned_ep(const struct planned *p)
{
    return p->mesh.size[MESH_EP] * (p->etp ? p->mesh.size[MESH_TP] / p->etp : 1);
}

bool planner_has_experts(const struct model *m)
{
    const int size[MESH_NAXES] = { [MESH_EP] = 2 };
    struct mesh mesh;
    struct err no;

    return mesh_set(&mesh, size, NULL, &no) == 0 &&
           model_check_mesh(m, &mesh, NULL) == 0;
}

static void find_divisors(struct divisors *out, uint64_t of)
{
    size_t cap = 0;

    for (uint64_t d = 1; d <= of / d; d++) {
        if (of % d)
            continue;
        out->v = xgrow(out->v, &cap, out->n + 1, sizeof(*out->v));
        out->v[out->n++] = d;
    }
    for (size_t i = out->n; i-- > 0;) { /* the cofactors */
        uint64_t d = of / out->v[i];

        if (d == out->v[i])
            continue;
        out->v = xgrow(out->v, &cap, out->n + 1, sizeof(*out->v));
        out->v[out->n++] = d;
    }
}

/* True if the fixed axes leave a whole number of devices to the others. */
static bool kept_divide(const struct planner_options *o)
{
    int rest = o->gpus;
    bool all = true;

    for (int a = 0; a < MESH_NAXES; a++) {
        int size = a == MESH_EP && may_fold(o) ? 0 : o->size[a];

        all &= size > 0;
        if (size && rest % size)
            return false;
        rest /= size ? size : 1;
    }
    return !all || rest == 1;
}

static int try_all(struct search *s, struct err *err)
{
    s->experts = planner_has_experts(s->m);
    if (!kept_divide(s->o)) {
        reject(s, RULE_KEPT);
        return 0;
    }
    if (!s->experts && s->o->size[MESH_EP] > 1) {
        reject(s, RULE_EXPERTS);
        return 0;
    }
    if (s->o->start.train && s->o->start.flash && !is_ours(s) &&
        takes(s, RECOMPUTE_ATTENTION))
        reject(s, RULE_RECOMPUTE);
    find_divisors(&s->devices, (uint64_t)s->o->gpus);
    find_divisors(&s->sizes, s->o->global_batch);
    for (size_t i = 0; i < s->devices.n; i++) {
        int tp = (int)s->devices.v[i];

        if (s->o->size[MESH_TP] && s->o->size[MESH_TP] != tp)
            continue;
        if ((!s->o->etp || s->o->etp == tp) && try_tensor(s, tp, 0, err) < 0)
            return -1;
        if (s->o->etp && tp > s->o->etp && tp % s->o->etp == 0 &&
            try_tensor(s, tp, s->o->etp, err) < 0)
            return -1;
        if (!s->o->etp && s->experts && may_fold(s->o) && tp > 1 &&
            try_tensor(s, tp, 1, err) < 0)
            return -1;
    }
    if (!s->out->tried)
        reject(s, RULE_KEPT);
    return 0;
}

/* ---- the fastest ---- */

/* Faster first; of equals the one that needs less. */
static int compare_plans(const void *a, const void *b)
{
    const struct planned *x = a, *y = b;

    if (x->late != y->late)
        return x->late < y->late ? -1 : 1;
    if (x->step.seconds != y->step.seconds)
        return x->step.seconds < y->step.seconds ? -1 : 1;
    if (x->zero != y->zero)
        return x->zero - y->zero;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    if (x->order.chunks != y->order.chunks)
        return x->order.chunks - y->order.chunks;
    return memcmp(x->mesh.size, y->mesh.size, sizeof(x->mesh.size));
}

/* Inserts P into the *N best, sorted, of at most MOST. */
static void insert(struct planned *best, size_t *n, size_t most,
                   const struct planned *p)
{
    size_t i = *n < most ? (*n)++ : most - 1;

    while (i > 0 && compare_plans(p, &best[i - 1]) < 0) {
        best[i] = best[i - 1];
        i--;
    }
    best[i] = *p;
}

/* Replaces P's bound by its simulated time; false if its schedule does not exist. */
static bool simulate(struct search *s, struct planned *p)
{
    struct memory_options o = s->o->start;

    if (p->simulated)
        return true;
    set_layout(&o, p);
    if (o.train && o.mesh.size[MESH_PP] > 1) {
        s->out->simulated++;
        set_own(s, &o, p->profile);
        if (!step_time(&p->step, p->profile, &s->o->machine, &o, &p->order, p->states,
                       &s->bubbles))
            return false;
    }
    p->simulated = true;
    set_rates(s, p);
    return true;
}

/* Sets how many requests P's layout has memory for. */
static void find_most(struct search *s, struct planned *p)
{
    uint64_t copies = (uint64_t)p->mesh.size[MESH_DP] * (uint64_t)p->mesh.size[MESH_EP];
    uint64_t least = 1, most = UINT32_MAX / 2;
    struct memory_options o = s->o->start;

    s->ranks = s->taken[p->apart];
    s->run = s->runs[p->apart];
    set_layout(&o, p);
    while (least < most) { /* least fits: fewer than asked for do */
        struct planned one = { .apart = p->apart };
        uint64_t middle = least + (most - least + 1) / 2;

        spread_requests(&o, middle);
        if (memory_fits(s, &o, &one))
            least = middle;
        else
            most = middle - 1;
    }
    p->most = least * copies;
}

/* Simulates the layouts by ascending bound, until no bound is below the time of the
 * last one wanted. */
static void find_fastest(struct search *s)
{
    size_t most = (size_t)s->o->top < s->n ? (size_t)s->o->top : s->n;
    struct planned *best = xcalloc(most + 1, sizeof(*best));
    size_t n = 0;

    if (s->n)
        qsort(s->found, s->n, sizeof(*s->found), compare_plans);
    for (size_t i = 0; i < s->n; i++) {
        struct planned *p = &s->found[i];

        if (n == most && p->late >= best[n - 1].late &&
            p->step.seconds > best[n - 1].step.seconds)
            break;
        if (simulate(s, p) && (n < most || compare_plans(p, &best[n - 1]) < 0))
            insert(best, &n, most, p);
    }
    for (size_t i = 0; i < n && s->o->requests.tokens; i++)
        find_most(s, &best[i]);
    s->out->plan = best;
    s->out->n = n;
    s->out->fit = s->n;
}

static bool differs(const struct planned *a, const struct planned *b,
                    enum planner_choice choice)
{
    static const enum mesh_axis axis[] = { [CHOICE_TP] = MESH_TP,
                                           [CHOICE_SP] = MESH_SP,
                                           [CHOICE_EP] = MESH_EP,
                                           [CHOICE_PP] = MESH_PP };

    switch (choice) {
    case CHOICE_ZERO:
        return a->zero != b->zero;
    case CHOICE_RECOMPUTE:
        return a->recompute != b->recompute;
    case CHOICE_SIZE:
        return a->micro_batch != b->micro_batch;
    case CHOICE_ORDER: /* only between pipelines */
        return a->mesh.size[MESH_PP] > 1 && b->mesh.size[MESH_PP] > 1 &&
               (a->order.order != b->order.order || a->order.chunks != b->order.chunks);
    default:
        return a->mesh.size[axis[choice]] != b->mesh.size[axis[choice]];
    }
}

/* For each choice of the best layout, finds the fastest one that differs in it. */
static void find_others(struct search *s)
{
    const struct planned *best = s->out->plan;
    struct planned *other = s->out->other;

    for (size_t i = 0; i < s->n && s->out->n; i++) {
        struct planned *p = &s->found[i];
        bool wanted = false;

        for (int c = 0; c < CHOICES; c++)
            wanted |= differs(p, best, (enum planner_choice)c) &&
                      (other[c].step.seconds <= 0 || compare_plans(p, &other[c]) < 0);
        if (!wanted || !simulate(s, p))
            continue;
        for (int c = 0; c < CHOICES; c++)
            if (differs(p, best, (enum planner_choice)c) &&
                (other[c].step.seconds <= 0 || compare_plans(p, &other[c]) < 0))
                other[c] = *p;
    }
}

/* ERR_NO if the plan is for tp-run and M has no derivative there. */
static int check_trainable(struct search *s, struct err *err)
{
    const int origin[MESH_NAXES] = { 0 };
    struct memory_options o = s->o->start;
    struct rank_memory r;

    mesh_one(&o.mesh);
    o.micro_batch = o.micro_batches = 1;
    return is_ours(s)
               ? reversed_rank(&r, &s->programs, s->m, s->o->stored, &o, origin, err)
               : 0;
}

/* Searches with OFFLOAD, and forgets what was tried before. */
static int try_offload(struct search *s, struct planner_options *o, int offload,
                       struct err *err)
{
    offload_set(&o->start, offload);
    s->o = o;
    free(s->devices.v);
    free(s->sizes.v);
    s->devices = s->sizes = (struct divisors){ 0 };
    *s->out = (struct planner_result){ .offload = offload };
    return try_all(s, err);
}

/* What costs least time first: activations are copied beside products. */
static const int try_in_turn[] = { OFFLOAD_STATES, OFFLOAD_OPTIMIZER,
                                   OFFLOAD_STATES + OFFLOAD_OPTIMIZER, OFFLOAD_PARAMS,
                                   OFFLOAD_STATES + OFFLOAD_PARAMS };

int planner_search(struct planner_result *out, const struct model *m,
                   const struct planner_options *o, struct err *err)
{
    struct search s = {
        .m = m, .o = o, .out = out, .nlayers = model_layers(m) ? model_layers(m) : 1
    };
    struct planner_options moved = *o;
    int ret;

    *out = (struct planner_result){ .offload = offload_word(&o->start) };
    ret = check_trainable(&s, err) < 0 ? -1 : try_all(&s, err);
    for (size_t i = 0; ret == 0 && !s.n && o->searches_offload &&
                       i < sizeof(try_in_turn) / sizeof(*try_in_turn);
         i++)
        ret = try_offload(&s, &moved, try_in_turn[i], err);
    out->almost = s.almost;
    if (ret == 0) {
        find_fastest(&s);
        find_others(&s);
    }
    for (size_t i = 0; i < s.nprofiles; i++) {
        profile_free(s.profiles[i]);
        profile_free(s.prompts[i]);
        costmodels_clear(&s.taken[i]);
        free(s.runs[i]);
    }
    free(s.profiles);
    free(s.prompts);
    free(s.taken);
    free(s.runs);
    free(s.found);
    free(s.devices.v);
    free(s.sizes.v);
    bubbles_clear(&s.bubbles);
    reversed_clear(&s.programs);
    return ret;
}

void planner_result_clear(struct planner_result *r)
{
    free(r->plan);
    *r = (struct planner_result){ 0 };
}
