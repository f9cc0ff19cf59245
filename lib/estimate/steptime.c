/* steptime - the time of one step of a layout
 *
 * A ring all-reduce over n ranks moves 2 (n-1)/n of the bytes in 2 (n-1) hops,
 * all-gather and reduce-scatter half of that.  A backward pass costs two forward
 * passes, for the gradients of inputs and of weights, attention a little more;
 * recomputation costs one more forward pass; of tp-run both are summed over the
 * instructions of its program.  ZeRO-3 gathers weights in the forward and
 * the backward pass of every micro-batch and reduce-scatters gradients (once per step
 * where a pipeline stage keeps them, habits.h); ZeRO-2
 * reduce-scatters gradients for every micro-batch; the others reduce once per step
 * (Rajbhandari et al. 2020, section 7). Sequence ranks exchange heads (Ulysses, Jacobs
 * et al. 2023) or pass keys and values round a ring (Liu et al. 2023), whichever is
 * faster.  Nothing overlaps with products unless the schedule pairs passes: what
 * frameworks hide, they lose again by kernels that share the device.
 *
 * Offloading (ZeRO-Offload, Ren et al. 2021): gradients go to the host, and updated
 * weights back; the update reads and writes the states, the gradient and the weight in
 * the host's memory, which the devices of a node share, as their copies do.  Offloaded
 * parameters come for each gathering (ZeRO-Infinity, Rajbhandari et al. 2021).
 * Activations are copied beside the products of other layers, which they delay only
 * where the link is slower (Megatron's and DeepSpeed's copies have a stream of their
 * own).  An HSDP group shards the weights; the groups all-reduce what each rank has of
 * the gradients. */
#include "lib/estimate/steptime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/part.h"
#include "lib/estimate/training.h"

/* States are read and written, gradients read, weights written. */
const double step_update_passes = 2.5;
/* The backward pass of attention has five products instead of two, at 63 instead of 73
 * % of an A100's peak (Dao 2023, section 4.1). */
static const double ATTENTION_SLOWER = 73.0 / 63, ATTENTION_BACK = 2.5 * 73 / 63;
double step_back(double plain, double attention)
{
    return 2 * plain + ATTENTION_BACK * attention;
}

double step_reverse(double plain, double attention)
{
    return plain + ATTENTION_SLOWER * attention;
}

/* Gradient bytes per collective, like Megatron's buckets. */
enum { MESSAGE_BYTES = 100 << 20 };

/* Work of rank R of PP under ORDER: *all, and *again, what is recomputed. */
static void rank_work(const struct profile *p, const struct pipe_order *order, int pp,
                      int r, struct work *all, struct work *again)
{
    enum fold fold = memory_fold(order->order);
    int stages = fold == FOLD_TWICE ? pp : pp * order->chunks;
    struct mesh virtual = { .size = { [MESH_PP] = stages } };

    memset(all, 0, sizeof(*all));
    memset(again, 0, sizeof(*again));
    for (int c = 0; c < order->chunks; c++) {
        int first, count;
        int stage = fold != FOLD_NONE && c ? stages - 1 - r : c * pp + r;

        mesh_stage(&virtual, p->depths, stage, &first, &count);
        work_add_layers(all, p->all, first, count);
        work_add_layers(again, p->again, first, count);
    }
    if (fold ==
        FOLD_TWICE) { /* each of the two stages gets half of the micro-batches */
        work_add(all, all, -0.5);
        work_add(again, again, -0.5);
    }
}

/* ---- collectives ---- */

/* Seconds of COUNT all-reduces of BYTES in all over N devices of a node. */
static double sum_seconds(const struct machine *m, double bytes, int n, double count)
{
    return n < 2 ? 0 : 2.0 * (n - 1) * (bytes / n / m->link + count * m->link_latency);
}

/* Seconds of COUNT all-gathers of BYTES in all over N devices of a node. */
static double collect_seconds(const struct machine *m, double bytes, int n,
                              double count)
{
    return n < 2 ? 0 : (n - 1) * (bytes / n / m->link + count * m->link_latency);
}

/* Seconds of W's collectives over tp for TOKENS tokens. */
static double tensor_seconds(const struct machine *m, const struct memory_options *o,
                             const struct work *w, double tokens)
{
    int tp = o->mesh.size[MESH_TP];

    /* each tensor rank routes its own tokens where experts are not cut as attention is
     */
    bool folded = o->etp && o->etp < tp;
    double bytes = w->reduced - (folded ? w->combined : 0);
    double count = w->reductions - (folded ? w->combinations : 0);

    return sum_seconds(m, tokens * bytes, tp, count) +
           collect_seconds(m, tokens * w->gathered, tp, w->gathers);
}

struct reach {
    double rate, latency;
};

/* The link of a group whose ranks span SPREAD neighbouring devices. */
static struct reach reach_of(const struct machine *m, int spread)
{
    return spread <= m->per_node ? (struct reach){ m->link, m->link_latency }
                                 : (struct reach){ m->net, m->net_latency };
}

/* Seconds of COUNT all-gathers or reduce-scatters of BYTES in all over N ranks, STRIDE
 * devices apart.  Each device of a node has a ring to the other nodes, while the node's
 * devices exchange their parts; the slower of the two counts.  The hops are those of
 * one ring through all ranks, as NCCL counts them (src/graph/tuning.cc). */
static double gather_seconds(const struct machine *m, int n, int stride, double bytes,
                             double count)
{
    int near = m->per_node / stride, far;
    double within, between;

    near = near < 1 ? 1 : near > n ? n : near;
    far = (n + near - 1) / near;
    within = bytes * (near - 1) / near / m->link;
    between = bytes / near * (far - 1) / far / m->net;
    return (within > between ? within : between) +
           count * ((n - far) * m->ring_link_latency + (far - 1) * m->ring_net_latency);
}

/* Seconds of dispatching TOKENS of W to their experts over EP ranks, STRIDE devices
 * apart. A token crosses the network once for each node that has one of its experts,
 * then goes on inside the node (DeepSeek-AI 2024, section 3.2.2); the slower of the two
 * counts.  The number of nodes is the mean number of different bins of N that TOP balls
 * hit; N is smaller if the router is limited to some groups of experts. */
static double routed_seconds(const struct profile *p, const struct machine *m,
                             const struct work *w, double tokens, int ep, int stride)
{
    int nodes = (ep * stride + m->per_node - 1) / m->per_node;
    double n = nodes * p->reach > 1 ? nodes * p->reach : 1, copies, within, between = 0;
    struct reach over = reach_of(m, ep * stride);

    nodes = nodes > ep ? ep : nodes;
    within = tokens * w->routed * (ep - 1) / ep / m->link;
    if (nodes > 1) {
        copies = p->top > 0 ? n * (1 - pow(1 - 1 / n, p->top)) / p->top : 1;
        between = tokens * w->routed * copies * (nodes - 1) / nodes / m->net;
        within *= nodes < ep;
    }
    return (within > between ? within : between) + (ep - 1) * w->routes * over.latency;
}

/* Seconds of communication over sp and ep for TOKENS of W in the forward pass. */
static double all_to_all_seconds(const struct profile *p, const struct machine *m,
                                 const struct memory_options *o, const struct work *w,
                                 double tokens)
{
    int tp = o->mesh.size[MESH_TP], sp = o->mesh.size[MESH_SP];
    int ep = o->mesh.size[MESH_EP];
    int etp = o->etp ? o->etp : tp;
    struct reach over_sp = reach_of(m, tp * sp);
    double seconds = 0;

    if (sp > 1) {
        double ring =
            (sp - 1) * (tokens * w->keys / over_sp.rate + w->layers * over_sp.latency);
        double heads = (sp - 1) * (tokens * (w->heads + w->keys) / sp / over_sp.rate +
                                   4 * w->layers * over_sp.latency);

        seconds = ring;
        if (p->least >= sp && heads < seconds)
            seconds = heads;
    }
    if (ep * tp / etp > 1) /* dispatch and combine */
        seconds +=
            2 * routed_seconds(p, m, w, tokens * etp / tp, ep * tp / etp, etp * sp);
    return seconds;
}

/* ---- training ---- */

/* Seconds of one rank and one micro-batch. */
struct rank_times {
    double forward, back;                       /* compute of both passes */
    double sums, all_to_all;                    /* collectives of a forward pass; */
    double back_sums;                           /* of a backward pass over tp */
    double again, again_sums, again_all_to_all; /* recomputation */
    double weight; /* compute of the weight gradients, part of back */
};

/* Seconds of W's products for one token. */
static double product_seconds(const struct machine *m, const struct work *w)
{
    return (w->products - w->head) / m->product + w->head / m->head;
}

/* Seconds of attention for one token. */
static double attention_seconds(const struct machine *m, const struct work *w)
{
    return (w->attention + m->start_keys * w->started + m->edge_keys * w->masked) /
           m->attention;
}

/* Seconds of W for TOKENS without attention.  Memory traffic is not hidden behind
 * products, so small products and short rows take longer. */
static double plain_seconds(const struct machine *m, const struct memory_options *o,
                            const struct work *w, double tokens)
{
    double whole = o->sequence_parallel ? w->whole / o->mesh.size[MESH_TP] : w->whole;

    return tokens * product_seconds(m, w) +
           tokens * w->grouped * (1 / m->grouped - 1) / m->product +
           (m->light * tokens * (w->cut + whole + w->scores) + w->matrices) /
               m->memory +
           w->instructions * m->instruction;
}

/* A rank's work and its times. */
struct rank_known {
    struct work all, again, back;
    struct rank_times t;
    double flops;
};

/* The backward pass of tp-run, from its program. */
static void find_reverse(struct rank_times *t, const struct work *back,
                         const struct machine *m, const struct memory_options *o,
                         double tokens)
{
    t->back = m->reverse * step_reverse(plain_seconds(m, o, back, tokens),
                                        tokens * attention_seconds(m, back));
    t->weight = t->back / 2; /* its passes are not split */
    t->back_sums = tensor_seconds(m, o, back, tokens);
}

/* Fills in k->t and k->flops from the work in K. */
static void find_times(struct rank_known *k, const struct profile *p,
                       const struct machine *m, const struct memory_options *o)
{
    int tp = o->mesh.size[MESH_TP];
    double tokens = (double)o->micro_batch * (double)o->seq / o->mesh.size[MESH_SP];
    double plain, attention;
    const struct work all = k->all;
    struct work again = k->again;
    struct rank_times t = { 0 };

    k->flops =
        tokens * (3 * (all.products + all.attention - all.repeated * (1 - 1.0 / tp)) -
                  all.frozen);
    plain = plain_seconds(m, o, &all, tokens);
    attention = tokens * attention_seconds(m, &all);
    t.forward = plain + attention;
    t.back =
        m->backward * (step_back(plain, attention) - tokens * all.frozen / m->product);
    t.weight = m->backward * (tokens * (all.products - all.frozen) / m->product);
    t.sums = t.back_sums = tensor_seconds(m, o, &all, tokens);
    t.all_to_all = all_to_all_seconds(p, m, o, &all, tokens);
    if (o->own && m->reverse > 0)
        find_reverse(&t, &k->back, m, o, tokens);
    attention = tokens * attention_seconds(m, &again);
    if (o->recompute == RECOMPUTE_ATTENTION && !o->own)
        t.again = attention + tokens * again.scores / m->memory;
    if (o->recompute == RECOMPUTE_PRODUCTS && !o->own) {
        /* attention's results and every second product are there, and what is summed */
        again.products /= 2;
        again.grouped /= 2;
        t.again = plain_seconds(m, o, &again, tokens);
    }
    if (o->recompute == RECOMPUTE_FULL || o->own) {
        t.again = plain_seconds(m, o, &again, tokens) + attention;
        t.again_sums = tensor_seconds(m, o, &again, tokens);
        t.again_all_to_all = all_to_all_seconds(p, m, o, &again, tokens);
    }
    k->t = t;
}

/* Times of rank R.  K holds those of the previous rank, whose work is usually equal. */
static struct rank_times rank_times(struct rank_known *k, const struct profile *p,
                                    const struct machine *m,
                                    const struct memory_options *o,
                                    const struct pipe_order *order, int r,
                                    double *flops)
{
    struct work all, again, back = { 0 };

    rank_work(p, order, o->mesh.size[MESH_PP], r, &all, &again);
    if (o->own) {
        again = o->own[r].again;
        back = o->own[r].back;
    }
    if (!r || memcmp(&all, &k->all, sizeof(all)) != 0 ||
        memcmp(&again, &k->again, sizeof(again)) != 0 ||
        memcmp(&back, &k->back, sizeof(back)) != 0) {
        k->all = all;
        k->again = again;
        k->back = back;
        find_times(k, p, m, o);
    }
    *flops += k->flops;
    return k->t;
}

static double forward_of(const struct rank_times *t)
{
    return t->forward + t->sums + t->all_to_all;
}

static double input_of(const struct rank_times *t)
{
    return t->back - t->weight + t->back_sums + t->all_to_all + t->again +
           t->again_sums + t->again_all_to_all;
}

/* Weight elements of a stage without experts; TRAINED: only trained ones. */
static double stage_weights(const struct profile *p, int first, int count, bool trained)
{
    const struct work *end = &p->all[first + count], *begin = &p->all[first];
    double n = trained ? end->trained - begin->trained : end->weights - begin->weights;

    for (int i = 0; i < p->a->ncommons; i++)
        if (costmodel_holds(p->a, &p->a->common[i], first, count))
            n += (double)(trained ? p->a->common[i].sum.trained
                                  : p->a->common[i].sum.elements);
    return n;
}

/* Expert elements of COUNT layers from FIRST; TRAINED: only trained ones. */
static double stage_experts(const struct profile *p, int first, int count, bool trained)
{
    const struct work *from = &p->all[first], *to = &p->all[first + count];

    return trained ? to->trained_experts - from->trained_experts
                   : to->experts - from->experts;
}

/* Elements of rank 0's stage that a rank has of what O shards at ZeRO stage LEAST and
 * above. */
static double own_elements(const struct profile *p, const struct memory_options *o,
                           bool trained, int least)
{
    bool shards = o->zero >= least;
    int first, count;

    mesh_stage(&o->mesh, p->depths, 0, &first, &count);
    return stage_weights(p, first, count, trained) /
               (shards ? (double)part_group(o, WEIGHT_MATRIX) : 1) +
           stage_experts(p, first, count, trained) /
               (shards ? (double)part_group(o, WEIGHT_EXPERT) : 1);
}

/* Bytes a second that each of RANKS devices of a node copies to or from its memory at
 * once: the rate of the device's link, or its share of that of the memory. */
static double host_rate(const struct machine *m, int ranks)
{
    double share = m->host_memory / ranks;

    return share < m->host ? share : m->host;
}

/* Seconds per step that offloading costs. */
static double host_seconds(const struct profile *p, const struct machine *m,
                           const struct memory_options *o, double states)
{
    int ranks = o->mesh.nranks < m->per_node ? o->mesh.nranks : m->per_node;
    double trained = own_elements(p, o, true, 1), steps = (double)o->micro_batches;
    double grads = trained * (double)o->grad_bytes,
           each = (double)o->other->block_bytes;
    double moved = grads * (o->zero >= 2 ? steps : 1);

    if (o->offload == OFFLOAD_NONE)
        return 0;
    moved += o->offload == OFFLOAD_PARAMS
                 ? 2 * steps * own_elements(p, o, false, 3) * each
                 : trained * each;
    return moved / host_rate(m, ranks) +
           ranks * (2 * states + grads + trained * each) / m->host_memory;
}

/* Seconds of gathering or scattering a stage's weights (TRAINED: trained ones) over
 * their replicas, BYTES per element, in MESSAGES collectives; 0: as many as buckets.
 * Experts are not replicated over ep. */
static double spread_seconds(const struct profile *p, const struct machine *m,
                             const struct memory_options *o, bool trained,
                             uint64_t bytes, double messages)
{
    int tp = o->mesh.size[MESH_TP], ep = o->mesh.size[MESH_EP], first, count;
    int some = (int)part_group(o, WEIGHT_EXPERT),
        all = (int)part_group(o, WEIGHT_MATRIX);
    int most = o->mesh.size[MESH_DP] * o->mesh.size[MESH_SP];
    double weights, experts, more, groups = 0;

    mesh_stage(&o->mesh, p->depths, 0, &first, &count);
    weights = stage_weights(p, first, count, trained) * (double)bytes;
    experts = stage_experts(p, first, count, trained) * (double)bytes;
    if (o->fold == FOLD_TWICE) {
        mesh_stage(&o->mesh, p->depths, o->mesh.size[MESH_PP] - 1, &first, &count);
        weights += stage_weights(p, first, count, trained) * (double)bytes;
        experts += stage_experts(p, first, count, trained) * (double)bytes;
    }
    if (messages <= 0)
        messages = weights / MESSAGE_BYTES + 1;
    more = experts > 0 ? messages : 0;
    if (trained) /* the groups add up what their ranks have */
        groups =
            2 * gather_seconds(m, most * ep / all, tp * all, weights / all, messages) +
            2 * gather_seconds(m, most / some, tp * ep * some, experts / some, more);
    return gather_seconds(m, all, tp, weights, messages) +
           gather_seconds(m, some, tp * ep, experts, more) + groups;
}

/* Seconds per step of communicating weights and gradients over the replicas. */
static double data_seconds(const struct profile *p, const struct machine *m,
                           const struct memory_options *o)
{
    int n = o->mesh.size[MESH_DP] * o->mesh.size[MESH_EP] * o->mesh.size[MESH_SP];
    double steps = (double)o->micro_batches;
    double grads, weights, messages = 0;

    if (n < 2)
        return 0;
    if (o->zero == 3) { /* a collective per layer, and for the sections at both ends */
        int first, count;

        mesh_stage(&o->mesh, p->depths, 0, &first, &count);
        messages = count + 2;
    }
    grads = spread_seconds(p, m, o, true, o->grad_bytes, messages);
    weights = spread_seconds(p, m, o, o->zero < 3, o->other->block_bytes, messages);
    switch (o->zero) {
    case 0:
        return 2 * grads;
    case 1:
        return grads + weights;
    case 2:
        return steps * grads + weights;
    default: /* frameworks that keep a stage's weights gathered do so for the step */
        if (o->mesh.size[MESH_PP] > 1 && habits_of(o).keeps_stage)
            return weights + grads;
        return steps * (2 * weights + grads);
    }
}

/* Paired passes: communication of one pass overlaps with the products of the other. */
static void overlap_all_to_all(struct rank_times *t)
{
    double work = t->forward + t->back + t->again;
    double all_to_all = 2 * t->all_to_all + t->again_all_to_all;
    double left = all_to_all > work ? (all_to_all - work) / all_to_all : 0;

    t->all_to_all *= left;
    t->again_all_to_all *= left;
}

/* Duration of the pipeline.  Without BUBBLES a lower bound: the busiest rank's own
 * work; if the backward pass is not split, plus the time until the first micro-batch
 * reaches the rank and the last one returns from it. */
static double pipe_span(const struct memory_options *o, const struct pipe_order *order,
                        const struct pipe_times *times, struct bubbles *bubbles)
{
    bool split = order->order >= ORDER_ZB_H1;
    double bound = 0, way = 0, message = 0;

    if (bubbles)
        return bubbles_span(bubbles, order->order, o->mesh.size[MESH_PP],
                            (int)o->micro_batches, order->chunks, times);
    if (times->bandwidth > 0)
        message = times->message_bytes / times->bandwidth;
    message += times->latency;
    for (int r = 0; r < o->mesh.size[MESH_PP]; r++) {
        double one = times->forward[r] + times->input[r] + times->weight[r];
        double all = one * (double)o->micro_batches + (split ? 0 : way);

        bound = all > bound ? all : bound;
        way += one / order->chunks + 2 * message;
    }
    return bound;
}

/* Seconds by which what a micro-batch leaves on the host takes longer to stage R's
 * link, or through the host's memory, than the stage's PASS that it is copied beside.
 */
static double copied_seconds(const struct profile *p, const struct machine *m,
                             const struct memory_options *o, int r, double pass)
{
    int ranks = o->mesh.nranks < m->per_node ? o->mesh.nranks : m->per_node;
    struct tally over = { 0 };
    struct training t;
    struct part part;
    double seconds;

    if (!o->away)
        return 0;
    part_open(&part, p->a, o, r);
    training_open(&t, &over, p->a, o, &part, r);
    seconds = (double)t.copied / host_rate(m, ranks);
    training_close(&t);
    part_clear(&part);
    return seconds > pass ? seconds - pass : 0;
}

static bool time_training(struct step_time *out, const struct profile *p,
                          const struct machine *m, const struct memory_options *o,
                          const struct pipe_order *order, uint64_t states,
                          struct bubbles *bubbles)
{
    int pp = o->mesh.size[MESH_PP], tp = o->mesh.size[MESH_TP];
    double steps = (double)o->micro_batches, most = 0, span, flops = 0, waits = 0;
    double tokens = (double)o->micro_batch * (double)o->seq / o->mesh.size[MESH_SP];
    double *v = xmalloc((size_t)pp * 3 * sizeof(*v));
    struct reach next = reach_of(m, o->mesh.nranks);
    struct pipe_times times = { .forward = v, .input = v + pp, .weight = v + 2 * pp };
    struct rank_times busy = { 0 };
    struct rank_known known = { .flops = 0 };

    for (int r = 0; r < pp; r++) {
        struct rank_times t = rank_times(&known, p, m, o, order, r, &flops);
        double to, from;

        if (order_pairs(order->order) && pp > 1)
            overlap_all_to_all(&t);
        to = copied_seconds(p, m, o, r, forward_of(&t));
        from = copied_seconds(p, m, o, r, input_of(&t) + t.weight);
        v[r] = forward_of(&t) + to;
        v[pp + r] = input_of(&t) + from;
        v[2 * pp + r] = t.weight;
        if (v[r] + v[pp + r] + t.weight <= most)
            continue;
        most = v[r] + v[pp + r] + t.weight;
        busy = t;
        waits = to + from; /* counted apart */
    }
    times.latency = next.latency;
    times.bandwidth = next.rate;
    times.message_bytes = tokens * p->boundary / (o->sequence_parallel ? tp : 1);
    span = pp > 1 ? pipe_span(o, order, &times, bubbles) : most * steps;
    free(v);
    if (span < 0)
        return false;
    out->compute = steps * (busy.forward + busy.back + busy.again);
    out->tensor = steps * (busy.sums + busy.back_sums + busy.again_sums);
    out->all_to_all = steps * (2 * busy.all_to_all + busy.again_all_to_all);
    out->pipeline = span > most * steps ? span - most * steps : 0; /* or rounding */
    out->data = data_seconds(p, m, o);
    out->host = host_seconds(p, m, o, (double)states) + steps * waits;
    if (o->offload == OFFLOAD_NONE)
        out->data += step_update_passes * (double)states / m->memory;
    out->flops = flops * steps * tp * o->mesh.size[MESH_SP] * o->mesh.size[MESH_EP] *
                 o->mesh.size[MESH_DP];
    return true;
}

/* ---- inference ---- */

/* Bytes of an element of the weights of P's rank, as O has them. */
static double weight_element(const struct profile *p, const struct memory_options *o)
{
    double bytes = 0, elements = 0;

    if (o->weights)
        return (double)o->weights->block_bytes / (double)o->weights->block;
    for (int i = 0; i < p->a->nunits; i++)
        for (int c = 0; c < WEIGHT_CLASSES; c++) {
            bytes += (double)p->a->unit[i].weight[c].bytes;
            elements += (double)p->a->unit[i].weight[c].elements;
        }
    return bytes > 0 ? bytes / elements : (double)o->other->block_bytes;
}

/* What a stage of inference works on in a step. */
struct inputs {
    double texts;                 /* sequences that get one token */
    double tokens;                /* of prompts beside them, */
    const struct profile *prompt; /* whose mean rows this is of; or NULL */
};

/* A step of inference on stage R. */
static struct rank_times token_times(const struct profile *p, const struct machine *m,
                                     const struct memory_options *o,
                                     const struct inputs *in, int r, double *flops)
{
    const struct pipe_order order = { ORDER_1F1B, 1 };
    int sp = o->mesh.size[MESH_SP];
    double texts = in->texts, tokens = texts + in->tokens, read, touched, elements;
    struct work w, again, of_prompt = { 0 };
    struct rank_times t = { 0 };

    rank_work(p, &order, o->mesh.size[MESH_PP], r, &w, &again);
    if (in->prompt)
        rank_work(in->prompt, &order, o->mesh.size[MESH_PP], r, &of_prompt, &again);
    *flops += tokens * (w.products - w.repeated * (1 - 1.0 / o->mesh.size[MESH_TP])) -
              in->tokens * w.head + texts * w.attention +
              in->tokens * of_prompt.attention;
    /* an expert's weights are read if any token of the ep ranks chooses it */
    touched = 1 - pow(1 - p->chosen, tokens * o->mesh.size[MESH_EP]);
    /* bytes that products read; an embedding table is read one row per token */
    elements = w.matrices / (double)o->compute_bytes - (1 - touched) * w.experts;
    read = (elements * weight_element(p, o) + texts * w.cached / sp) / m->memory;
    t.forward = tokens * product_seconds(m, &w) - in->tokens * w.head / m->head +
                texts * w.attention / sp / m->attention;
    if (in->prompt) /* of whose rows the head sees the last alone */
        t.forward +=
            in->tokens * (attention_seconds(m, &of_prompt) / sp +
                          m->light * (of_prompt.cut + of_prompt.whole) / m->memory);
    if (!m->hides)
        t.forward += read;
    else if (read > t.forward)
        t.forward = read;
    t.forward += w.instructions * m->instruction;
    t.sums = tensor_seconds(m, o, &w, tokens);
    if (sp > 1) { /* partial results of each head are reduced */
        struct reach over = reach_of(m, o->mesh.size[MESH_TP] * sp);

        t.all_to_all =
            2.0 * (sp - 1) *
            (tokens * w.heads / 2 / sp / over.rate + w.layers * over.latency);
    }
    if (o->mesh.size[MESH_EP] > 1) {
        struct memory_options alone = *o;

        alone.mesh.size[MESH_SP] = 1;
        t.all_to_all += all_to_all_seconds(p, m, &alone, &w, tokens);
    }
    return t;
}

/* Micro-batches follow one another through the stages.  A round takes the time of one
 * micro-batch through all stages, or of all micro-batches on the slowest stage. */
static void time_inference(struct step_time *out, const struct profile *p,
                           const struct machine *m, const struct memory_options *o,
                           const struct inputs *in)
{
    int pp = o->mesh.size[MESH_PP];
    double steps = (double)o->micro_batches, round = 0, most = 0, flops = 0;
    struct reach next = reach_of(m, o->mesh.nranks);
    struct rank_times busy = { 0 };

    for (int r = 0; r < pp; r++) {
        struct rank_times t = token_times(p, m, o, in, r, &flops);

        round += forward_of(&t);
        if (forward_of(&t) <= most)
            continue;
        most = forward_of(&t);
        busy = t;
    }
    round +=
        (pp - 1) * (next.latency + (in->texts + in->tokens) * p->boundary / next.rate);
    out->compute = steps * busy.forward;
    out->tensor = steps * busy.sums;
    out->all_to_all = steps * busy.all_to_all;
    out->pipeline = pp > 1 && round > most * steps ? round - most * steps : 0;
    out->seconds = out->compute + out->tensor + out->all_to_all + out->pipeline;
    /* all ranks of sp have the same tokens */
    out->flops = flops * steps * o->mesh.size[MESH_TP] * o->mesh.size[MESH_EP] *
                 o->mesh.size[MESH_DP];
}

/* TO = sum of WEIGHT[i] * FROM[i]. */
static void mix_steps(struct step_time *to, const struct step_time from[2],
                      const double weight[2])
{
    double *a = (double *)to;

    for (size_t i = 0; i < sizeof(*to) / sizeof(double); i++)
        a[i] = weight[0] * ((const double *)&from[0])[i] +
               weight[1] * ((const double *)&from[1])[i];
}

void step_requests(struct step_time *out, struct request_times *times,
                   const struct profile *p, const struct profile *prompt,
                   const struct machine *m, const struct memory_options *o,
                   uint64_t tokens, uint64_t output)
{
    double texts = (double)o->micro_batch, most = (double)o->prefill;
    double part = most > 0 && most < (double)tokens ? most : (double)tokens;
    double parts = ceil((double)tokens / part), all = texts * (double)tokens;
    /* steps of a request; those that have a part of one prompt, or of several */
    double steps = (double)output + parts, mixed = texts * parts, cycle;
    struct step_time kind[2]; /* without prompts, and with */
    double number[2];

    memset(kind, 0, sizeof(kind));
    part = (double)tokens / parts;
    if (mixed > steps) { /* every step has some */
        part = all / steps;
        part = most > 0 && part > most ? most : part;
        mixed = all / part;
    }
    number[0] = mixed < steps ? steps - mixed : 0;
    number[1] = mixed;
    time_inference(&kind[0], p, m, o, &(struct inputs){ texts, 0, NULL });
    time_inference(&kind[1], p, m, o, &(struct inputs){ texts - 1, part, prompt });
    cycle = number[0] * kind[0].seconds + number[1] * kind[1].seconds;
    times->first = parts * kind[1].seconds;
    times->next = output ? (cycle - times->first) / (double)output : 0;
    if (mixed > steps) { /* prompts wait for their turn */
        times->next = kind[1].seconds;
        times->first = cycle - (double)output * times->next;
    }
    for (int i = 0; i < 2; i++)
        number[i] /= (double)output;
    mix_steps(out, kind, number);
}

bool step_time(struct step_time *out, const struct profile *p, const struct machine *m,
               const struct memory_options *o, const struct pipe_order *order,
               uint64_t states, struct bubbles *bubbles)
{
    memset(out, 0, sizeof(*out));
    if (!o->train)
        time_inference(out, p, m, o,
                       &(struct inputs){ (double)o->micro_batch, 0, NULL });
    else if (!time_training(out, p, m, o, order, states, bubbles))
        return false;
    out->seconds = out->compute + out->tensor + out->all_to_all + out->pipeline +
                   out->data + out->host;
    return true;
}
