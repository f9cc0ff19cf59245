/* cluster - the machine of a plan, and what is assumed about it
 *
 * Attention has the rate of its fastest kernels (gpu.c); FlashAttention-2, older ones
 * and single products have half the rate of FlashAttention-2, which fits published runs
 * best (tests/bench/planner.sh); beside the share of experts' products it is the one
 * constant that was chosen so.
 * Memory at nine
 * tenths of the data sheet (3.0 of 3.35 TB/s on an H100), links at four fifths (an
 * all-reduce over eight H100 moves about 360 of 450 GB/s; NCCL counts on 235 of 300 of
 * an A100). A hop of a small message takes 2.5 us inside a node (an all-reduce over
 * eight devices 35 us) and 5 us between nodes, of a large collective 3.4 and 14 us
 * (NCCL, src/graph/tuning.cc: Ring, Simple). */
#include "cmd/mem-estimate/cluster.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/request.h"
#include "lib/base/mem.h"
#include "lib/pipe/calibration.h"

static const double OLDER_SHARE = 0.5, UNKNOWN_SHARE = 0.5, MEMORY_SHARE = 0.9;
/* Products with experts, which are many and small, of what large products reach: fits
 * ten published runs on Hopper and Grace Blackwell (tests/bench/planner.sh). */
static const double GROUPED_SHARE = 0.65;
static const double LINK_SHARE = 0.8, LINK_LATENCY = 2.5e-6, NET_LATENCY = 5e-6;
static const double RING_LINK_LATENCY = 3.4e-6, RING_NET_LATENCY = 14e-6;
static const double NET = 50e9;
/* Of devices without a row in the table: PCIe 4; and of a host: eight channels of
 * DDR4-3200, of each of two sockets, at half of their peak. */
static const double HOST = 31e9, HOST_MEMORY = 200e9;
/* Of a device whose kernels are not known: half a tile at each edge of what rows see.
 */
enum { TILE_KEYS = 128 };
enum { PER_NODE = 8 };

/* Parses "400Gbit", "400Gb" or "50GB" per second ("/s" or "ps" may follow) to bytes/s;
 * false for anything else, such as the ambiguous "gb". */
static bool parse_rate(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = { { "Gbit", 1e9 / 8 }, { "Mbit", 1e6 / 8 }, { "Tbit", 1e12 / 8 },
                  { "Gb", 1e9 / 8 },   { "Mb", 1e6 / 8 },   { "Tb", 1e12 / 8 },
                  { "GB", 1e9 },       { "MB", 1e6 },       { "TB", 1e12 } };
    size_t n = strlen(text);

    if (n > 2 && (!strcmp(text + n - 2, "/s") || !strcmp(text + n - 2, "ps")))
        n -= 2;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        size_t width = strlen(units[i].unit);
        char *number;
        bool ok;

        if (n <= width || memcmp(text + n - width, units[i].unit, width) != 0)
            continue;
        number = xstrndup(text, n - width);
        ok = str_double(number, out) && isfinite(*out) && *out > 0;
        free(number);
        *out *= units[i].bytes;
        return ok;
    }
    return false;
}

/* Receives the assumptions: as text and as JSON objects. */
struct notes {
    struct str *text, *codes;
};

__attribute__((format(printf, 3, 4))) static void
note(const struct notes *n, const char *code, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    assumption_add(n->text, n->codes, code, what);
}

static void set_link(struct machine *m, const struct gpu *gpu,
                     const struct notes *notes)
{
    m->link = gpu->link_rate * LINK_SHARE;
    note(notes, "links", "links at %.0f %% of %g GB/s", 100 * LINK_SHARE,
         gpu->link_rate / 1e9);
}

static void set_device(struct machine *m, const struct gpu *gpu, enum gpu_rate rate,
                       const struct notes *notes)
{
    enum gpu_rate wide = rate < GPU_FP8 ? rate : gpu_rate_of(gpu, GPU_BF16);

    m->peak = gpu->tflops[rate] * 1e12;
    m->product = m->peak * gpu_share(gpu, rate);
    m->grouped = GROUPED_SHARE;
    m->head = gpu->tflops[wide] * 1e12 * gpu_share(gpu, wide);
    m->memory = gpu->memory_rate * MEMORY_SHARE;
    note(notes, "products", "%s products at %.0f %% of %g TFLOP/s",
         gpu_rate_names[rate], 100 * gpu_share(gpu, rate), gpu->tflops[rate]);
    note(notes, "memory_rate", "memory at %.0f %% of %g GB/s", 100 * MEMORY_SHARE,
         gpu->memory_rate / 1e9);
    set_link(m, gpu, notes);
}

/* Sets the rates of a calibration; *links if it has rates between ranks. */
static int set_measured(struct machine *m, const char *path, bool *links,
                        struct err *err)
{
    struct calibration c;

    if (calibration_read(&c, path, err) < 0)
        return -1;
    *links = c.bandwidth > 0;
    m->peak = c.product;
    m->product = m->head = c.product * c.prefill_share;
    m->memory = c.memory_read * c.decode_share;
    m->hides = true;
    if (c.bandwidth > 0)
        m->link = c.bandwidth;
    if (c.latency > 0)
        m->link_latency = m->ring_link_latency = c.latency;
    calibration_clear(&c);
    if (m->product <= 0 || m->memory <= 0)
        return err_set(err, ERR_INPUT, "%s: a rate is 0", path);
    return 0;
}

/* Sets the rates of a device file. */
static int set_file(struct machine *m, const struct measured *device,
                    enum gpu_rate rate, struct err *err)
{
    if (device->product[rate] <= 0)
        return err_set(err, ERR_USAGE,
                       "--gpu-file: %s has no rate of products in %s (--compute)",
                       device->name, gpu_rate_names[rate]);
    m->peak = m->product = m->head = device->product[rate];
    m->attention = device->attention;
    m->memory = device->weights;
    m->hides = true;
    m->light = device->weights / device->values;
    m->instruction = device->instruction;
    m->backward = device->backward > 0 ? device->backward : 1;
    m->reverse = device->backward > 0 ? device->reverse : 1;
    if (device->link > 0)
        m->link = device->link;
    if (device->latency > 0)
        m->link_latency = m->ring_link_latency = device->latency;
    return 0;
}

/* Sets attention's rate, which calibrations lack; it is a 16-bit rate even if products
 * have fewer bits. */
static void set_attention(struct machine *m, const struct gpu *gpu, enum gpu_rate rate,
                          bool older, const struct notes *notes)
{
    if (gpu) {
        double peak, share = gpu->attention.share;

        if (older) {
            share = gpu->attention2 * OLDER_SHARE;
        } else {
            m->start_keys = gpu->attention.start_keys;
            m->edge_keys = gpu->attention.edge_keys;
        }
        peak = gpu->tflops[rate < GPU_BF16 ? rate : gpu_rate_of(gpu, GPU_BF16)];
        m->attention = peak * 1e12 * share;
        note(notes, "attention", "attention at %.0f %% of %g TFLOP/s", 100 * share,
             peak);
    } else {
        m->attention = m->product * UNKNOWN_SHARE;
        note(notes, "attention", "attention at %.0f %% of products",
             100 * UNKNOWN_SHARE);
    }
}

int cluster_machine(struct machine *m, const struct cluster_options *o,
                    const struct gpu *gpu, enum gpu_rate rate, struct str *assumed,
                    struct str *codes, struct err *err)
{
    const struct notes all = { assumed, codes }, *notes = &all;
    bool links = false;

    if (gpu)
        rate = gpu_rate_of(gpu, rate);
    if (gpu && !o->calibration && gpu->tflops[rate] <= 0)
        return err_set(err, ERR_USAGE, "--compute %s: %s has no such products",
                       gpu_rate_names[rate], gpu->name);

    *m = (struct machine){ .net = NET,
                           .light = 1,
                           .backward = 1,
                           .grouped = 1,
                           .reverse = 1,
                           .edge_keys = TILE_KEYS / 2,
                           .link_latency = -1,
                           .net_latency = NET_LATENCY,
                           .ring_link_latency = RING_LINK_LATENCY,
                           .ring_net_latency = RING_NET_LATENCY,
                           .host = gpu ? gpu->host_rate : HOST,
                           .host_memory = HOST_MEMORY,
                           .per_node = o->per_node ? o->per_node : PER_NODE };
    if (o->net && !parse_rate(o->net, &m->net))
        return err_set(err, ERR_USAGE,
                       "--net: '%s' is no rate such as 400Gbit (400Gb, bits) or 50GB "
                       "(bytes)",
                       o->net);
    if (o->host_bandwidth && !parse_rate(o->host_bandwidth, &m->host_memory))
        return err_set(err, ERR_USAGE,
                       "--host-bandwidth: '%s' is no rate such as 200GB",
                       o->host_bandwidth);
    if (o->offload)
        note(notes, "host", "%g GB/s to the host, whose memory has %g GB/s",
             m->host / 1e9, m->host_memory / 1e9);
    if (gpu && !o->calibration)
        set_device(m, gpu, rate, notes);
    if (o->device && set_file(m, o->device, rate, err) < 0)
        return -1;
    if (o->calibration && set_measured(m, o->calibration, &links, err) < 0)
        return -1;
    if (gpu && !o->calibration && o->experts)
        note(notes, "experts", "products with experts at %.0f %% of that",
             100 * GROUPED_SHARE);
    if (o->calibration && gpu && !links)
        set_link(m, gpu, notes);
    if (!o->device)
        set_attention(m, gpu, rate, o->older, notes);
    if (o->link && !parse_rate(o->link, &m->link))
        return err_set(err, ERR_USAGE, "--link: '%s' is no rate such as 50GB", o->link);
    if (m->link <= 0) {
        m->link = m->net;
        note(notes, "links", "links as the network");
    }
    if (m->link_latency < 0) {
        m->link_latency = LINK_LATENCY;
        note(notes, "link_latency", "%g us a hop in a node, %g of a large collective",
             LINK_LATENCY * 1e6, RING_LINK_LATENCY * 1e6);
    }
    if (!o->per_node)
        note(notes, "gpus_per_node", "%d devices a node", PER_NODE);
    if (!o->net)
        note(notes, "net", "network %g GB/s", NET / 1e9);
    note(notes, "net_latency", "%g us a hop between nodes, %g of a large collective",
         NET_LATENCY * 1e6, RING_NET_LATENCY * 1e6);
    return 0;
}
