/* unit-trainable - every family of encoders, or of two stacks, has a fixture of its
 * gradients (data/gradients.tsv), or stands in the list below with the reason */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/family.h"
#include "lib/program/program.h"
#include "lib/program/pass-reverse.h"
#include "lib/run/runner.h"
#include "lib/train/losses.h"
#include "tests/tap.h"

/* Families without a fixture: an operation of a model of theirs that has no derivative,
 * or what lines of training data have not; or no head that a loss is known for. */
static const struct {
    const char *family, *model;
    const char *why; /* in the message; NULL: not of the program */
} untrained[] = {
    { "deberta", "encoders/deberta", "'relate'" },
    { "deberta_v2", "encoders/deberta-v2", "'relate'" },
    { "xlnet", "encoders/xlnet", "'relate_xl'" },
    { "funnel", "encoders/funnel", "'relate_xl'" },
    { "convbert", "encoders/convbert", "'dynamic'" },
    { "mobilebert", "encoders/mobilebert", "'shift'" },
    { "prophetnet", "stacks/prophetnet", "'stream'" },
    { "speech_to_text", "stacks/speech-to-text", "'unfold'" },
    { "tapas", "encoders/tapas", NULL },             /* types of seven kinds */
    { "layoutlm", "encoders/layoutlm", NULL },       /* boxes on a page */
    { "visual_bert", "encoders/visual-bert", NULL }, /* rows of pictures */
    { .family = "dpr" },                             /* vectors alone */
    { .family = "longt5_encoder" },
    /* its encoder has no head, and its decoder is that of decoder-bert */
    { "bert_generation", "encoders/bert-generation", NULL },
};

/* The model of the config of DIR; NULL, having said so. */
static struct model *open_config(const char *dir)
{
    char *path = fs_join_dup(dir, "config.json"), *text = NULL;
    struct err err = { .text = "" };
    struct model *m = NULL;
    size_t len;

    if (fs_read_file(&text, &len, path, 1 << 24, &err) < 0 ||
        model_open(&m, path, text, NULL, NULL, &err) < 0)
        tap_ok(false, "%s", err.text);
    free(text);
    free(path);
    return m;
}

static char *dir_dup(const char *name)
{
    return str_dupf("%s/tests/data/%s%s", getenv("top_srcdir"),
                    strchr(name, '/') ? "" : "models/", name);
}

/* Adds the family of fixture NAME, and a space, to LIST. */
static void add_family(struct str *list, const char *name)
{
    char *dir = dir_dup(name);
    struct model *m = open_config(dir);

    if (m)
        str_addf(list, " %s ", model_family(m)->name);
    model_free(m);
    free(dir);
}

/* The families of all fixtures. */
static void list_fixtures(struct str *list)
{
    char *file = str_dupf("%s/tests/data/gradients.tsv", getenv("top_srcdir"));
    FILE *f = fopen(file, "r");
    char *line = NULL, *last = xstrdup("");
    size_t cap = 0;

    while (f && getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\t")] = '\0';
        if (!strcmp(line, last))
            continue;
        free(last);
        last = xstrdup(line);
        add_family(list, line);
    }
    tap_ok(f && list->len, "there are fixtures");
    if (f)
        fclose(f);
    free(line);
    free(last);
    free(file);
}

static bool has(const struct str *list, const char *family)
{
    char *word = str_dupf(" %s ", family);
    const bool found = strstr(str_text(list), word);

    free(word);
    return found;
}

/* The model of family NAME's example; NULL, having said so. */
static struct model *open_example(const struct family_library *lib, const char *name)
{
    struct str config = { 0 };
    struct err err = { .text = "" };
    struct model *m = NULL;
    struct family *f;

    if (family_find(&f, lib, name, &err) == 0) {
        json_print(&config, f->example);
        if (model_open_family(&m, name, str_text(&config), f, &err) < 0)
            m = NULL;
    }
    if (!m)
        tap_ok(false, "%s: %s", name, err.text);
    str_clear(&config);
    return m;
}

/* Is M an encoder, or does it have one; and has it a head that a loss is known for? */
static bool encodes(const struct model *m, bool *head)
{
    const struct program_options plain = { .tail = TAIL_NONE };
    const int coord[MESH_NAXES] = { 0 };
    struct err err = { .text = "" };
    enum loss_kind kind;
    struct program *p;
    struct mesh mesh;
    int32_t start;
    bool is;

    mesh_one(&mesh);
    if (program_build(&p, m, &mesh, coord, &plain, &err) < 0)
        return tap_ok(false, "%s", err.text), false;
    is = !p->causal || losses_source(m, &start);
    *head = losses_find(&kind, m, p->causal, &err) == 0;
    program_free(p);
    return is;
}

/* The place of FAMILY in the list, or its length. */
static size_t listed(const char *family)
{
    size_t i = 0;

    while (i < sizeof(untrained) / sizeof(*untrained) &&
           strcmp(untrained[i].family, family) != 0)
        i++;
    return i;
}

static void compare(const struct str *fixtures)
{
    const size_t n = sizeof(untrained) / sizeof(*untrained);
    struct family_library *lib = NULL;
    struct str lacks = { 0 }, twice = { 0 };
    struct err err = { .text = "" };
    size_t found = 0;

    if (family_library_open(&lib, NULL, &err) < 0)
        tap_ok(false, "%s", err.text);
    for (size_t i = 0; lib && i < family_library_count(lib); i++) {
        const char *name = family_library_name(lib, i);
        struct model *m = open_example(lib, name);
        bool head = false, in = listed(name) < n;

        if (m && encodes(m, &head)) {
            found++;
            if (!has(fixtures, name) && !in)
                str_addf(&lacks, " %s", name);
            if (in && (has(fixtures, name) || (!untrained[listed(name)].model && head)))
                str_addf(&twice, " %s", name);
        }
        model_free(m);
    }
    tap_ok(found > 40 && !lacks.len,
           "of %zu families with an encoder each has a fixture or a reason:%s", found,
           str_text(&lacks));
    tap_ok(!twice.len, "and no reason is out of date:%s", str_text(&twice));
    family_library_free(lib);
    str_clear(&lacks);
    str_clear(&twice);
}

/* NAME's program has no reverse, because of WHY. */
static void refuse(const char *name, const char *why)
{
    const struct program_options options = { .tail = TAIL_NLL, .reverse = true };
    char *path = dir_dup(name);
    struct checkpoint_options plain = { 0 };
    const int coord[MESH_NAXES] = { 0 };
    struct program *p = NULL;
    struct checkpoint *c;
    struct err err = { 0 };
    struct mesh mesh;

    mesh_one(&mesh);
    if (checkpoint_open(&c, path, &plain, &err) < 0) {
        tap_ok(false, "%s: %s", name, err.text);
    } else {
        tap_ok(program_build(&p, c->model, &mesh, coord, &options, &err) < 0 &&
                   err.kind == ERR_NO && strstr(err.text, why),
               "%s is refused: %s has no derivative", name, why);
        program_free(p);
        checkpoint_close(c);
    }
    free(path);
}

int main(void)
{
    struct str fixtures = { 0 };

    list_fixtures(&fixtures);
    compare(&fixtures);
    for (size_t i = 0; i < sizeof(untrained) / sizeof(*untrained); i++)
        if (untrained[i].why)
            refuse(untrained[i].model, untrained[i].why);
    str_clear(&fixtures);
    return tap_done();
}
