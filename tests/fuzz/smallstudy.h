/* smallstudy - a study as Optuna keeps it, and how a changed one is read */
#ifndef TESTS_FUZZ_SMALLSTUDY_H
#define TESTS_FUZZ_SMALLSTUDY_H

#include "lib/base/fs.h"
#include "lib/sweep/storage/storage.h"

static const char study[] =
    "INSERT INTO studies VALUES (1, 's');"
    "INSERT INTO study_directions VALUES (1, 'MINIMIZE', 1, 0), (2, 'MAXIMIZE', 1, 1);"
    "INSERT INTO study_user_attributes VALUES (1, 1, 'note', '\"x\"');"
    "INSERT INTO trials VALUES (1, 0, 1, 'COMPLETE', '2026-01-02 03:04:05.000006',"
    " '2026-01-02 03:04:06.000000'), (2, 1, 1, 'RUNNING', '2026-01-02 03:04:05', NULL),"
    " (3, 2, 1, 'PRUNED', NULL, NULL), (4, 3, 1, 'WAITING', NULL, NULL);"
    "INSERT INTO trial_params VALUES (1, 1, 'x', 0.5, '{\"name\": "
    "\"FloatDistribution\","
    " \"attributes\": {\"step\": null, \"low\": 0.0, \"high\": 1.0, \"log\": false}}'),"
    " (2, 1, 'n', 3, '{\"name\": \"IntDistribution\", \"attributes\": {\"log\": false,"
    " \"step\": 1, \"low\": 1, \"high\": 8}}'), (3, 2, 'c', 1, '{\"name\":"
    " \"CategoricalDistribution\", \"attributes\": {\"choices\": [\"a\", 2, null]}}');"
    "INSERT INTO trial_values VALUES (1, 1, 0, 1.5, 'FINITE'), (2, 1, 1, NULL,"
    " 'INF_POS');"
    "INSERT INTO trial_intermediate_values VALUES (1, 3, 1, 0.25, 'FINITE'),"
    " (2, 3, 2, NULL, 'NAN');"
    "INSERT INTO trial_system_attributes VALUES (1, 4, 'fixed_params', '{\"x\": "
    "0.1}');";

enum { MOST_STUDIES = 4 };

/* List and load what is in the storage URL. */
static inline void load_all(const char *url)
{
    struct err err = { 0 };
    struct storage *st;
    char **names;
    size_t n;

    if (storage_open(&st, url, false, NULL, &err) < 0)
        return;
    if (st->ops->list(st, &names, &n, &err) == 0) {
        for (size_t i = 0; i < n && i < MOST_STUDIES; i++) {
            struct study s = { 0 };

            if (st->ops->load(st, &s, names[i], &err) > 0)
                study_clear(&s);
        }
        fs_list_free(names, n);
    }
    storage_close(st);
}

#endif
