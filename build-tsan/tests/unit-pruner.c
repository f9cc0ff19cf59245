/* unit-pruner - every decision of every pruner, against Optuna's on the same studies */
#include <stdlib.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/sweep/pruner/pruner.h"
#include "tests/tap.h"

enum { TRIALS = 64, STEPS = 64, RUNGS = 16 };

struct record {
    int64_t steps[STEPS];
    double values[STEPS], rungs[RUNGS];
};

static struct record records[TRIALS];
static struct curve curves[TRIALS];

static double element(const struct json *list, int i)
{
    const struct json *j = list->first;
    double x = NAN;

    while (i--)
        j = j->next;
    json_double(j, &x);
    return x;
}

/* Replay one study of the fixture; returns whether every decision agrees. */
static bool replay(const struct json *study, const struct pruner_choice *choice)
{
    struct pruner_task task = { .study_name = "fixture", .trials = curves };

    task.maximize = json_is_true(json_get(study, "maximize"));
    for (const struct json *e = json_get(study, "events")->first; e; e = e->next) {
        size_t number = (size_t)element(e, 0);
        struct curve *c = &curves[number];
        struct record *r = &records[number];
        int64_t step = (int64_t)element(e, 1);
        bool prune = element(e, 3) > 0;
        struct pruner_verdict v;

        while (task.n <= number) {
            curves[task.n] = (struct curve){ .number = (int)task.n,
                                             .steps = records[task.n].steps,
                                             .values = records[task.n].values,
                                             .rungs = records[task.n].rungs };
            task.n++;
        }
        if (step < 0) {
            c->value = element(e, 2);
            c->state = prune ? PAST_PRUNED : PAST_COMPLETE;
            continue;
        }
        r->steps[c->n] = step;
        r->values[c->n++] = element(e, 2);
        task.self = c;
        pruner_judge(&v, choice, &task);
        for (int k = v.first_rung; k < v.end_rung; k++)
            r->rungs[k] = v.rung_value;
        c->nrungs = v.end_rung > v.first_rung ? (size_t)v.end_rung : c->nrungs;
        if (v.prune != prune) {
            printf("# trial %zu, step %d: optuna says %d\n", number, (int)step, prune);
            return false;
        }
    }
    return true;
}

static void test_specs(void)
{
    static const char *const bad[] = {
        "medium",
        "median:warmup",
        "median:warm=1",
        "median:warmup=x",
        "median:warmup=-1",
        "successive-halving:reduction=1",
        "median+threshold",
        "patient+nobody",
        "percentile:percentile=101",
        "median:startup=1.5",
    };
    struct pruner_choice c = { 0 };
    struct err err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        tap_ok(pruner_parse(&c, bad[i], &err) < 0 && err.kind == ERR_USAGE,
               "'%s' is a usage error: %s", bad[i], err.text);
    tap_ok(pruner_parse(&c, "threshold:upper=1e+3", &err) == 0,
           "a plus sign in an exponent starts no second pruner");
}

int main(void)
{
    const char *top = getenv("top_srcdir");
    char *path = fs_join_dup(top ? top : ".", "tests/data/sweep/pruners.json");
    struct json_doc doc;
    struct err err;
    char *text;
    size_t len;

    if (fs_read_file(&text, &len, path, 1 << 24, &err) < 0 ||
        json_parse(&doc, path, text, len, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    for (const struct json *s = doc.root->first; s; s = s->next) {
        const char *spec = json_string(json_get(s, "pruner"));
        struct pruner_choice choice;

        memset(records, 0, sizeof(records));
        tap_ok(pruner_parse(&choice, spec, &err) == 0 && replay(s, &choice),
               "%s decides as Optuna does over %u reports, %s", spec,
               json_get(s, "events")->n,
               json_is_true(json_get(s, "maximize")) ? "maximizing" : "minimizing");
    }
    test_specs();
    json_clear(&doc);
    free(text);
    free(path);
    return tap_done();
}
