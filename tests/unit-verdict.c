/* unit-verdict - accuracy and F1 of labels and entities are those of scikit-learn and
 * seqeval (oracle/verdicts.py) */
#include "lib/train/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "tests/tap.h"

enum { FIELDS = 9, MOST = 64 };

/* Splits TEXT at each MARK into PART[most]; returns their number. */
static size_t split(char *text, char mark, char **part, size_t most)
{
    size_t n = 0;

    while (text && n < most) {
        char *end = strchr(text, mark);

        part[n++] = text;
        if (end)
            *end++ = '\0';
        text = end;
    }
    return n;
}

static size_t numbers(char *text, int32_t *out)
{
    char *part[MOST];
    size_t n = split(text, ',', part, MOST);

    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)strtol(part[i], NULL, 10);
    return n;
}

static bool near(double a, const char *want)
{
    return strcmp(want, "nan") ? fabs(a - strtod(want, NULL)) < 1e-8 : isnan(a);
}

static void check(char **field)
{
    const size_t classes = (size_t)strtoul(field[1], NULL, 10);
    char *is[MOST], *says[MOST], *name[MOST], none[] = "";
    int32_t a[MOST], b[MOST];
    struct verdict v;
    size_t n;

    if (split(field[2], ',', name, MOST) != classes)
        for (size_t k = 0; k < classes; k++)
            name[k] = none;
    verdict_open(&v, LOSS_TAGS, classes, (const char *const *)name);
    n = split(field[3], '/', is, MOST);
    (void)split(field[4], '/', says, MOST);
    for (size_t i = 0; i < n; i++) {
        const size_t places = numbers(is[i], a);

        (void)numbers(says[i], b);
        verdict_add(&v, a, b, places);
    }
    tap_ok(near(verdict_accuracy(&v), field[5]) && near(verdict_f1(&v), field[6]) &&
               near(verdict_precision(&v), field[7]) &&
               near(verdict_recall(&v), field[8]),
           "%s of %zu: accuracy %.9g, f1 %.9g; %s and %s are theirs", field[0], classes,
           verdict_accuracy(&v), verdict_f1(&v), field[5], field[6]);
    verdict_clear(&v);
}

int main(void)
{
    char *path = str_dupf("%s/tests/data/verdicts.tsv", getenv("top_srcdir"));
    char *text, *line[MOST], *field[FIELDS];
    struct verdict none;
    struct err err;
    size_t len, n;

    if (fs_read_file(&text, &len, path, 1 << 20, &err) < 0)
        return tap_ok(false, "%s", err.text), tap_done();
    n = split(text, '\n', line, MOST);
    for (size_t i = 0; i < n; i++)
        if (split(line[i], '\t', field, FIELDS) == FIELDS)
            check(field);
    verdict_open(&none, LOSS_TAGS, 3, NULL);
    tap_ok(isnan(verdict_accuracy(&none)) && isnan(verdict_f1(&none)) &&
               isnan(verdict_class_f1(&none, 0)),
           "of nothing there is none");
    verdict_clear(&none);
    free(text);
    free(path);
    return tap_done();
}
