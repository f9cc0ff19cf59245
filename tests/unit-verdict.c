/* unit-verdict - accuracy and F1 of labels, entities and answers are those of
 * scikit-learn, seqeval and SQuAD (oracle/verdicts.py) */
#include "lib/train/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "tests/tap.h"

enum { FIELDS = 9, MOST = 128 };

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

/* An answer that is said, those that are right, exact match and F1. */
static void check_answer(char **field)
{
    double exact = 0, f1 = 0;
    char *is[MOST];
    const size_t n = split(field[2], '/', is, MOST);

    squad_add(&exact, &f1, field[1], strlen(field[1]), (const char *const *)is, n);
    tap_ok(near(exact, field[3]) && fabs(f1 - strtod(field[4], NULL)) < 2e-7, /* f32 */
           "'%s' for '%s': exact match %g, f1 %.9g; %s and %s are SQuAD's", field[1],
           field[2], exact, f1, field[3], field[4]);
}

/* Spans of ids, and which of the logits' are taken. */
static void check_spans(void)
{
    const float x[] = { 5, 5, 0, 2, 1, 0, 3, 1, 0, 4 };
    const int32_t ids[] = { 7, 8, 9, 8, 7 };
    size_t first = 0, last = 0;
    double exact = 0, f1 = 0;
    bool says;

    says = squad_best(x, 1, 5, false, &first, &last);
    tap_ok(says && first == 3 && last == 4, "the best span is of the context");
    says = squad_best(x, 1, 5, true, &first, &last);
    tap_ok(!says, "where there may be none, none is better");
    tap_ok(!squad_best(x, 2, 2, false, &first, &last), "of no token there is none");
    squad_add_ids(&exact, &f1, ids, 3, ids + 1, 4);
    tap_ok(exact < 0.5 && fabs(f1 - 6. / 7) < 1e-12, "F1 counts each id once");
    squad_add_ids(&exact, &f1, ids, 2, ids, 2);
    tap_ok(exact > 0.5 && fabs(f1 - 13. / 7) < 1e-12, "equal spans are exact");
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
        if (!strncmp(line[i], "squad\t", 6)) {
            (void)split(line[i], '\t', field, FIELDS);
            check_answer(field);
        } else if (split(line[i], '\t', field, FIELDS) == FIELDS) {
            check(field);
        }
    check_spans();
    verdict_open(&none, LOSS_TAGS, 3, NULL);
    tap_ok(isnan(verdict_accuracy(&none)) && isnan(verdict_f1(&none)) &&
               isnan(verdict_class_f1(&none, 0)),
           "of nothing there is none");
    verdict_clear(&none);
    free(text);
    free(path);
    return tap_done();
}
