/* unit-keys - the library against the table of what becomes of each key of each class
 *
 * tests/data/keys, written by tests/oracle/config-keys.py beside transformers: a config
 * whose change gives transformers' logits must be taken, one that was refused must be
 * refused still, by the config alone or later by the shapes of its weights. */
#include <stdlib.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/model/keys.h"
#include "lib/model/model.h"
#include "lib/program/program.h"
#include "tests/tap.h"

/* A copy of BASE with the member at PATH ("a.b") set to the JSON text VALUE, or without
 * it. */
static char *change(const cJSON *base, const char *path, const char *value)
{
    cJSON *config = cJSON_Duplicate(base, true), *at = config;
    const char *dot;
    char *text;

    while ((dot = strchr(path, '.')) != NULL) {
        char *name = xstrndup(path, (size_t)(dot - path));

        at = cJSON_GetObjectItemCaseSensitive(at, name);
        free(name);
        path = dot + 1;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(at, path);
    if (strcmp(value, "absent") != 0)
        cJSON_AddItemToObject(at, path, cJSON_Parse(value));
    text = cJSON_PrintUnformatted(config);
    cJSON_Delete(config);
    return text;
}

/* Is CONFIG taken?  What it ignores goes to IGNORED. */
static bool takes(const char *config, struct str *ignored, struct err *err)
{
    const struct program_options options = { .tail = TAIL_NONE };
    const int origin[MESH_NAXES] = { 0 };
    struct model *m = NULL;
    struct program *p = NULL;
    struct mesh mesh;
    bool taken;

    mesh_one(&mesh);
    taken = model_open(&m, "config.json", config, NULL, NULL, err) == 0 &&
            keys_check(m, KEYS_NUMBERS, ignored, err) == 0 &&
            program_build(&p, m, &mesh, origin, &options, err) == 0;
    program_free(p);
    model_free(m);
    return taken;
}

/* One line of the table. */
struct row {
    char *type, *key, *value, *verdict;
};

static bool next_row(struct row *r, char **line)
{
    char **column[] = { &r->type, &r->key, &r->value, &r->verdict };
    char *p = *line, *end = strchr(p, '\n');

    if (!end)
        return false;
    *end = '\0';
    *line = end + 1;
    for (int i = 0; i < 4; i++) {
        *column[i] = p;
        p += strcspn(p, "\t");
        if (*p)
            *p++ = '\0';
    }
    return true;
}

/* One row of two is tried, with SHORT of five: neighbours differ in a value. */
static void test_table(const cJSON *bases, char *table)
{
    int same = 0, refused = 0, found = 0, wrong = 0, every = (int)tap_one_of(2, 5);
    struct row r;

    for (int n = 0; next_row(&r, &table); n++) {
        const cJSON *base = cJSON_GetObjectItemCaseSensitive(bases, r.type);
        struct str ignored = { 0 };
        struct err err = { 0 };
        char *config;
        bool taken;

        if (!base || n % every || !strcmp(r.verdict, "fails"))
            continue;
        config = change(base, r.key, r.value);
        taken = takes(config, &ignored, &err);
        if (!strcmp(r.verdict, "same")) {
            same++;
            if (!taken) {
                wrong++;
                printf("# %s %s = %s: %s\n", r.type, r.key, r.value, err.text);
            }
        } else {
            refused++;
            found += !taken;
        }
        free(config);
        str_clear(&ignored);
    }
    tap_ok(same * every > 2000 && wrong == 0,
           "%d changes that transformers shares are taken", same);
    tap_ok(found * 10 > refused * 8,
           "of %d that are refused, the configs alone tell %d", refused, found);
    tap_ok(refused * 100 <= 15 * (same + refused),
           "no more than 15 %% of all are refused: %d", refused);
}

/* Is CONFIG taken by a training?  *balanced: with a balance loss by default. */
static bool trains(const char *config, bool *balanced, struct err *err)
{
    struct str ignored = { 0 };
    struct model *m = NULL;
    double balance;
    bool taken = model_open(&m, "config.json", config, NULL, NULL, err) == 0 &&
                 keys_check(m, KEYS_TRAINING, &ignored, err) == 0;

    *balanced = taken && model_number(m, "balance", &balance) && balance > 0;
    model_free(m);
    str_clear(&ignored);
    return taken;
}

/* training.tsv, of oracle/training-keys.py: what acts in training alone is refused, or
 * asks for a balance loss, as nothing else does.  phimoe is
 * refused whatever its keys: its experts are drawn (pass-reverse.c). */
static void test_training(const cJSON *bases, char *table)
{
    int acts = 0, same = 0, wrong = 0, balances = 0;
    struct row r;

    while (next_row(&r, &table)) {
        const cJSON *base = cJSON_GetObjectItemCaseSensitive(bases, r.type);
        bool balanced, is = !strcmp(r.verdict, "acts");
        struct err err = { .text = "" };
        char *config;

        if (!base || !strcmp(r.type, "phimoe"))
            continue;
        config = change(base, r.key, r.value);
        acts += is;
        same += !is;
        if ((trains(config, &balanced, &err) && !balanced) == is ||
            (is && !balanced && !strstr(err.text, r.key))) {
            wrong++;
            printf("# %s %s = %s: %s\n", r.type, r.key, r.value, err.text);
        }
        balances += balanced;
        free(config);
    }
    tap_ok(acts > 10 && same > 10 && !wrong,
           "of %d values of keys that act in training, the %d that do are refused, or "
           "computed (%d)",
           acts + same, acts, balances);
}

static void test_bases(const cJSON *bases)
{
    const cJSON *base;

    cJSON_ArrayForEach(base, bases)
    {
        char *config = cJSON_PrintUnformatted(base);
        struct str ignored = { 0 };
        struct err err = { 0 };

        if (!tap_ok(takes(config, &ignored, &err) && !ignored.len,
                    "%s as transformers saves it has no key that is ignored",
                    base->string))
            printf("# %s%s\n", err.text, str_text(&ignored));
        free(config);
        str_clear(&ignored);
    }
}

static char *read_file(const char *name)
{
    const char *top = getenv("top_srcdir");
    char *path = str_dupf("%s/tests/data/keys/%s", top ? top : ".", name), *text;
    struct err err = { 0 };

    if (fs_read_file(&text, NULL, path, 1 << 24, &err) < 0) {
        tap_ok(false, "%s", err.text);
        text = xstrdup("");
    }
    free(path);
    return text;
}

int main(void)
{
    char *base = read_file("base.json"), *table = read_file("verdicts.tsv");
    char *training = read_file("training.tsv");
    cJSON *bases = cJSON_Parse(base);

    tap_ok(cJSON_IsObject(bases), "base.json is an object");
    test_bases(bases);
    test_table(bases, table);
    test_training(bases, training);
    free(training);
    tap_ok(keys_is_harmless("_name_or_path") && keys_is_harmless("resid_pdrop") &&
               !keys_is_harmless("layer_types"),
           "the common list has names, dropouts and no layer types");
    cJSON_Delete(bases);
    free(base);
    free(table);
    return tap_done();
}
