/* cluster - the machine that a plan is made for, and what is assumed of it
 *
 * Attention reaches half of what its fastest kernels do, and a fifth of what weights
 * and gradients are exchanged is hidden behind products: that is what published runs
 * ask for (tests/bench/planner.sh), by whatever means they did it.  Memory moves nine
 * tenths of what data sheets say, 3.0 of 3.35 TB/s on an H100, links four fifths: sums
 * over eight H100 move about 360 of 450 GB/s.  A hop of a collective takes 2.5 us
 * within a node (a sum over eight devices 35 us) and 5 us between nodes. */
#include "cmd/mem-estimate/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "lib/pipe/calibration.h"

static const double ATTENTION_SHARE = 0.5, MEMORY_SHARE = 0.9;
static const double LINK_SHARE = 0.8, LINK_LATENCY = 2.5e-6, NET_LATENCY = 5e-6;
static const double HIDDEN = 0.2, NET = 50e9;
enum { PER_NODE = 8 };

/* "400Gbit" or "50GB", a second, in bytes; false for anything else. */
static bool parse_rate(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {
        { "Gbit", 1e9 / 8 }, { "Mbit", 1e6 / 8 }, { "GB", 1e9 }, { "MB", 1e6 }
    };

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (str_ends(text, units[i].unit)) {
            char *number =
                str_dupf("%.*s", (int)(strlen(text) - strlen(units[i].unit)), text);
            bool ok = str_double(number, out) && *out > 0;

            free(number);
            *out *= units[i].bytes;
            return ok;
        }
    return false;
}

/* Where the next assumption is to be written. */
static struct str *next(struct str *assumed)
{
    if (assumed->len)
        str_add(assumed, "; ");
    return assumed;
}

static void set_link(struct machine *m, const struct gpu *gpu, struct str *assumed)
{
    m->link = gpu->link_rate * LINK_SHARE;
    str_addf(next(assumed), "links at %.0f %% of %g GB/s", 100 * LINK_SHARE,
             gpu->link_rate / 1e9);
}

static void set_device(struct machine *m, const struct gpu *gpu, struct str *assumed)
{
    m->peak = gpu->tflops * 1e12;
    m->product = m->peak * gpu->achievable;
    m->memory = gpu->memory_rate * MEMORY_SHARE;
    str_addf(next(assumed), "products at %.0f %% of %g TFLOP/s", 100 * gpu->achievable,
             gpu->tflops);
    str_addf(next(assumed), "memory at %.0f %% of %g GB/s", 100 * MEMORY_SHARE,
             gpu->memory_rate / 1e9);
    set_link(m, gpu, assumed);
}

/* Rates as they were measured; those between ranks only where there were several. */
static int set_measured(struct machine *m, const char *path, bool *links,
                        struct err *err)
{
    struct calibration c;

    if (calibration_read(&c, path, err) < 0)
        return -1;
    *links = c.bandwidth > 0;
    m->peak = c.product;
    m->product = c.product * c.prefill_share;
    m->memory = c.memory_read * c.decode_share;
    if (c.bandwidth > 0)
        m->link = c.bandwidth;
    if (c.latency > 0)
        m->link_latency = c.latency;
    calibration_clear(&c);
    if (m->product <= 0 || m->memory <= 0)
        return err_set(err, ERR_INPUT, "%s: a rate is 0", path);
    return 0;
}

/* No calibration tells of attention; where products are of fewer bits it is not. */
static void set_attention(struct machine *m, const struct gpu *gpu, struct str *assumed)
{
    if (gpu) {
        m->attention = gpu->tflops * 1e12 * gpu->attention * ATTENTION_SHARE;
        str_addf(next(assumed), "attention at %.0f %% of %g TFLOP/s",
                 100 * gpu->attention * ATTENTION_SHARE, gpu->tflops);
    } else {
        m->attention = m->product * ATTENTION_SHARE;
        str_addf(next(assumed), "attention at %.0f %% of products",
                 100 * ATTENTION_SHARE);
    }
}

int cluster_machine(struct machine *m, const struct cluster_options *o,
                    const struct gpu *gpu, bool train, struct str *assumed,
                    struct err *err)
{
    bool links = false;

    *m = (struct machine){ .net = NET,
                           .link_latency = -1,
                           .net_latency = NET_LATENCY,
                           .hidden = HIDDEN,
                           .per_node = o->per_node ? o->per_node : PER_NODE };
    if (o->net && !parse_rate(o->net, &m->net))
        return err_set(err, ERR_USAGE, "--net: '%s' is no rate such as 400Gbit or 50GB",
                       o->net);
    if (gpu && !o->calibration)
        set_device(m, gpu, assumed);
    if (o->calibration && set_measured(m, o->calibration, &links, err) < 0)
        return -1;
    if (o->calibration && gpu && !links)
        set_link(m, gpu, assumed);
    set_attention(m, gpu, assumed);
    if (m->link <= 0) {
        m->link = m->net;
        str_addf(next(assumed), "links as the network");
    }
    if (m->link_latency < 0) {
        m->link_latency = LINK_LATENCY;
        str_addf(next(assumed), "%g us a hop in a node", LINK_LATENCY * 1e6);
    }
    if (!o->per_node)
        str_addf(next(assumed), "%d devices a node", PER_NODE);
    if (!o->net)
        str_addf(next(assumed), "network %g GB/s", NET / 1e9);
    str_addf(next(assumed), "%g us a hop between nodes", NET_LATENCY * 1e6);
    if (train)
        str_addf(next(assumed), "%.0f %% of exchanges hidden by products",
                 100 * HIDDEN);
    return 0;
}
