/* devices - which GPUs each of the jobs that run at the same time may use */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/job/devices.h"

struct names {
    char **v; /* [n] */
    int n;
};

/* The words of LIST between commas; false when one is empty. */
static bool split(struct names *out, const char *list)
{
    *out = (struct names){ 0 };
    out->v = xcalloc(strlen(list) + 1, sizeof(*out->v));
    for (const char *p = list; *p; p++) {
        size_t len = strcspn(p, ",");

        if (!len || (p[len] && !p[len + 1]))
            return false;
        out->v[out->n++] = xstrndup(p, len);
        p += len;
        if (!*p)
            break;
    }
    return true;
}

static void names_clear(struct names *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->v[i]);
    free(a->v);
}

/* Numbers become the inherited names that they count. */
static int translate(struct names *a, const struct names *mask, struct err *err)
{
    for (int i = 0; i < a->n; i++) {
        int at;

        if (str_int(a->v[i], &at)) {
            if (at < 0 || at >= mask->n)
                return err_set(err, ERR_USAGE,
                               "device %s of %d that CUDA_VISIBLE_DEVICES leaves",
                               a->v[i], mask->n);
            free(a->v[i]);
            a->v[i] = xstrdup(mask->v[at]);
        }
    }
    return 0;
}

static int check_distinct(const struct names *a, struct err *err)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(a->v[i], a->v[k]))
                return err_set(err, ERR_USAGE, "device %s is named twice", a->v[i]);
    return 0;
}

static void fill(struct devices *d, const struct names *a, int per)
{
    d->nslots = a->n / per;
    d->masks = xcalloc((size_t)d->nslots, sizeof(*d->masks));
    for (int i = 0; i < d->nslots; i++) {
        struct str mask = { 0 };

        for (int k = 0; k < per; k++)
            str_addf(&mask, "%s%s", k ? "," : "", a->v[i * per + k]);
        d->masks[i] = str_steal(&mask);
    }
}

int devices_deal(struct devices *d, const char *list, int per, const char *inherited,
                 struct err *err)
{
    bool all = !strcmp(list, "all");
    struct names names = { 0 }, mask = { 0 };
    int ret = -1;

    if (all && !inherited)
        return err_set(err, ERR_USAGE, "all devices: CUDA_VISIBLE_DEVICES is not set");
    if (!split(&names, all ? inherited : list) || !names.n) {
        err_set(err, ERR_USAGE, "'%s' is no list of devices", all ? inherited : list);
        goto out;
    }
    if (!all && inherited &&
        (!split(&mask, inherited) || translate(&names, &mask, err) < 0)) {
        if (err->kind == ERR_NONE)
            err_set(err, ERR_USAGE, "CUDA_VISIBLE_DEVICES: '%s' is no list of devices",
                    inherited);
        goto out;
    }
    if (check_distinct(&names, err) < 0)
        goto out;
    if (per < 1 || names.n % per) {
        err_set(err, ERR_USAGE, "%d devices are not a multiple of %d per trial",
                names.n, per);
        goto out;
    }
    fill(d, &names, per);
    ret = 0;
out:
    names_clear(&names);
    names_clear(&mask);
    return ret;
}

void devices_clear(struct devices *d)
{
    for (int i = 0; i < d->nslots; i++)
        free(d->masks[i]);
    free(d->masks);
    *d = (struct devices){ 0 };
}
