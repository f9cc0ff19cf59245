/* trainmix - mixtures: the weights of --data, and the cursors of checkpoints */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/train.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

/* The number before a ':' at the beginning of GIVEN, and the path behind it; 0 and
 * GIVEN if there is none. */
static const char *split(const char *given, double *weight)
{
    const char *end = strchr(given, ':');
    char *number = end ? xstrndup(given, (size_t)(end - given)) : NULL;
    bool is = number && *number && strspn(number, "0123456789.e-+") == strlen(number) &&
              str_double(number, weight);

    free(number);
    if (!is)
        *weight = 0;
    return is ? end + 1 : given;
}

int train_mix_split(struct opt_list *given, double **weight, struct err *err)
{
    size_t weighed = 0;

    *weight = xcalloc(given->n + 1, sizeof(**weight));
    for (size_t i = 0; i < given->n; i++) {
        const char *path = split(given->v[i], &(*weight)[i]);

        if (path == given->v[i])
            continue;
        if (!((*weight)[i] > 0))
            return err_set(err, ERR_USAGE, "--data %s: a weight must be above 0",
                           given->v[i]);
        given->v[i] = path;
        weighed++;
    }
    if (weighed && weighed < given->n)
        return err_set(err, ERR_USAGE,
                       "--data: %zu of %zu have a weight; give it of all or of none",
                       weighed, given->n);
    return 0;
}

int train_mix_note(struct train_list *list, const double *weight, size_t n,
                   bool continues, struct err *err)
{
    for (size_t i = 0; i < n && i < list->n; i++) {
        if (continues && list->v[i].weight != weight[i])
            return err_set(err, ERR_USAGE,
                           "--data: %s has the weight %g; the run was begun with %g",
                           list->v[i].path, weight[i], list->v[i].weight);
        list->v[i].weight = weight[i];
    }
    return 0;
}

char *train_mix_cursors_dup(struct data *d, uint64_t samples)
{
    struct str out = { 0 };
    size_t n = data_sources(d);
    struct data_cursor *c = xcalloc(n + 1, sizeof(*c));

    if (n)
        data_cursors(d, samples, c);
    str_addc(&out, '[');
    for (size_t i = 0; i < n; i++)
        str_addf(&out, "%s{\"epoch\":%" PRIu64 ",\"sample\":%" PRIu64 "}", i ? "," : "",
                 c[i].epoch, c[i].sample);
    str_addc(&out, ']');
    free(c);
    return str_steal(&out);
}

int train_mix_check(const struct train *t, struct err *err)
{
    char *now;
    int ret = 0;

    if (!t->cursors || !t->resumed)
        return 0;
    now = train_mix_cursors_dup(t->data, t->state.samples);
    if (strcmp(now, t->cursors) != 0)
        ret = err_set(err, ERR_INPUT,
                      "the sources of --data would go on from %s, and the checkpoint "
                      "says %s",
                      now, t->cursors);
    free(now);
    return ret;
}
