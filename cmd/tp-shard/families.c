/* families - list and print model families */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/table.h"
#include "cmd/tp-shard/tp-shard.h"
#include "cmd/conversion.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/estimate/torch.h"
#include "lib/program/check.h"
#include "lib/model/family.h"

static int list(const struct family_library *lib, struct err *err)
{
    for (size_t i = 0; i < family_library_count(lib); i++) {
        const char *name = family_library_name(lib, i);
        struct family *f;
        char *line;

        if (family_find(&f, lib, name, err) < 0)
            return -1;
        line = str_dupf("%-12s %s", name, f->summary ? f->summary : "");
        cmd_puts(line);
        free(line);
        family_free(f);
    }
    return 0;
}

static int print(const struct family_library *lib, const char *name, const char *file,
                 struct err *err)
{
    struct str text = { 0 };
    struct family *f;

    if (file ? family_read(&f, lib, file, err) < 0
             : family_find(&f, lib, name, err) < 0)
        return -1;
    family_print(&text, f);
    fputs(str_text(&text), stdout);
    if (!str_ends(str_text(&text), "\n"))
        putchar('\n');
    str_clear(&text);
    family_free(f);
    return 0;
}

/* Checks family NAME, the one in FILE, or all; prints what each of two ranks stores, or
 * the error. */
static int check(const struct family_library *lib, const char *name, const char *file,
                 struct err *err)
{
    size_t n = file || name ? 1 : family_library_count(lib);

    for (size_t i = 0; i < n; i++) {
        const char *one = name ? name : family_library_name(lib, i);
        struct str report = { 0 };
        struct family *f;
        char *called;
        int ret;

        if (file ? family_read(&f, lib, file, err) < 0
                 : family_find(&f, lib, one, err) < 0)
            return -1;
        called = xstrdup(f->name);
        ret = family_check(&report, f, torch_check, err);
        if (ret == 0)
            printf("%s: sound; at tp 2 the ranks store\n%s", called, str_text(&report));
        free(called);
        str_clear(&report);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* ---- the table ---- */

enum { COLUMNS = 7 };

static void add_word(struct str *s, const char *word)
{
    str_addf(s, "%s%s", s->len ? " " : "", word);
}

static void add_words(struct str *s, const struct json *list)
{
    for (const struct json *j = list ? list->first : NULL; j; j = j->next)
        if (json_string(j))
            add_word(s, j->text);
}

/* Adds the mesh axes that shard some tensor of F. */
static void add_axes(struct str *s, const struct family *f)
{
    static const char *const axes[] = { "tp", "ep", NULL };

    for (int a = 0; axes[a]; a++)
        for (size_t i = 0; i < f->deal.n; i++) {
            const char *over = json_string(json_get(f->deal.v[i].json, "over"));

            if (over && !strcmp(over, axes[a])) {
                add_word(s, over);
                break;
            }
        }
}

static bool has_line(const struct family *f, const char *name)
{
    for (size_t i = 0; i < f->nsections; i++)
        for (size_t k = 0; k < f->section[i].n; k++)
            if (!name || !strcmp(f->section[i].line[k].name, name))
                return true;
    return false;
}

/* Can SYMBOL of F be true for some config? */
static bool may_hold(const struct family *f, const char *symbol)
{
    const struct family_entry *e = family_get(&f->symbols, symbol);

    return e && json_string(e->json) && strcmp(e->json->text, "false") != 0;
}

/* Adds the heads that F's models may have, by the symbols that select them. */
static void add_heads(struct str *s, const struct family *f)
{
    static const char *const heads[][2] = {
        { "mlm", "masked" },     { "scored", "score" },      { "classify", "classify" },
        { "tagged", "tag" },     { "tag", "tag" },           { "answers", "answer" },
        { "choices", "choice" }, { "nsp", "next-sentence" }, { "pooler", "pooler" }
    };

    if (has_line(f, "logits") && !family_get(&f->symbols, "mlm") &&
        (!family_get(&f->symbols, "lm") || may_hold(f, "lm")))
        add_word(s, "lm");
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        if (may_hold(f, heads[i][0]))
            add_word(s, heads[i][1]);
    if (has_line(f, "last_hidden_state"))
        add_word(s, "none");
}

static void fill_row(struct str *row, const struct family *f)
{
    str_add(&row[0], f->name);
    add_words(&row[1], f->types);
    add_words(&row[2], f->policies);
    add_axes(&row[3], f);
    str_add(&row[4], has_line(f, NULL) ? "yes" : "no");
    str_add(&row[5],
            family_get(&f->captures, "expert") || family_get(&f->deal, "experts")
                ? "yes"
                : "");
    add_heads(&row[6], f);
    for (int c = 0; c < COLUMNS; c++)
        if (!row[c].len)
            str_addc(&row[c], '-');
}

static int table(const struct family_library *lib, struct err *err)
{
    static const struct column columns[COLUMNS] = {
        { "family", 0, 0, false, 0, false },
        { "model types", 2, 0, false, 0, true },
        { "parallelformers", 2, 0, false, 4, false },
        { "cut", 2, 0, false, 1, false },
        { "runs", 2, 0, false, 3, false },
        { "experts", 2, 0, false, 2, false },
        { "heads", 2, 0, false, 0, true }
    };
    struct table *t = table_new(columns, COLUMNS);
    int ret = 0;

    for (size_t i = 0; i < family_library_count(lib) && ret == 0; i++) {
        struct str row[COLUMNS] = { 0 };
        struct family *f;

        ret = family_find(&f, lib, family_library_name(lib, i), err);
        if (ret < 0)
            break;
        fill_row(row, f);
        for (int c = 0; c < COLUMNS; c++) {
            table_add(t, str_text(&row[c]));
            str_clear(&row[c]);
        }
        family_free(f);
    }
    table_print(t);
    return ret;
}

/* The words of S as a list. */
static void add_list(struct str *out, const char *key, const char *words)
{
    const char *before = "";
    size_t n;

    str_addf(out, ",\"%s\":[", key);
    for (const char *p = words; *p && strcmp(words, "-") != 0; p += n + (p[n] == ' ')) {
        char *word;

        n = strcspn(p, " ");
        word = xstrndup(p, n);
        str_add(out, before);
        str_add_json(out, word);
        before = ",";
        free(word);
    }
    str_addc(out, ']');
}

static void print_family(const struct family *f)
{
    struct str row[COLUMNS] = { 0 }, out = { 0 };

    fill_row(row, f);
    str_add(&out, "{\"type\":\"family\",\"name\":");
    str_add_json(&out, f->name);
    add_list(&out, "model_types", str_text(&row[1]));
    add_list(&out, "parallelformers", str_text(&row[2]));
    add_list(&out, "axes", str_text(&row[3]));
    str_addf(&out, ",\"runs\":%s", strcmp(row[4].s, "yes") ? "false" : "true");
    str_addf(&out, ",\"experts\":%s", strcmp(row[5].s, "yes") ? "false" : "true");
    add_list(&out, "heads", str_text(&row[6]));
    str_addc(&out, '}');
    puts(out.s);
    for (int c = 0; c < COLUMNS; c++)
        str_clear(&row[c]);
    str_clear(&out);
}

/* A line for each family, or for NAME, or the one in FILE. */
static int json_lines(const struct family_library *lib, const char *name,
                      const char *file, struct err *err)
{
    bool one = name || file;
    size_t n = one ? 1 : family_library_count(lib);

    for (size_t i = 0; i < n; i++) {
        const char *called = name ? name : family_library_name(lib, i);
        struct family *f;

        if (file ? family_read(&f, lib, file, err) < 0
                 : family_find(&f, lib, called, err) < 0)
            return -1;
        print_family(f);
        family_free(f);
    }
    return 0;
}

int families_main(const char *program, int argc, char **argv)
{
    const char *file = NULL;
    bool checks = false, tables = false, json = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "family", &file, "FILE", "print the family in FILE", NULL,
          NULL },
        { OPT_FLAG, '\0', "check", &checks, NULL,
          "verify it, or all, and print the shares at tp 2", NULL, NULL },
        { OPT_FLAG, '\0', "table", &tables, NULL,
          "list with model types, axes, experts and heads", NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "the same, or of NAME, as JSON", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "families",
        .program = program,
        .synopsis = "[OPTION]... [NAME|FILE]",
        .summary = "List the known model families, or print one with what it inherits",
        .opts = opts,
        .min_args = 0,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct family_library *lib = NULL;
    struct err err = { 0 };
    int ret;

    if (file && operand[0])
        return cmd_usage(&cmd, "--family and NAME exclude one another");
    if (json && checks)
        return cmd_usage(&cmd, "--json and --check exclude one another");
    if (tables && (file || operand[0] || checks))
        return cmd_usage(&cmd, "--table lists all families");
    /* an argument with a slash or an extension is a file */
    if (operand[0] && strpbrk(operand[0], "/."))
        file = operand[0];
    if (family_library_open(&lib, family_path(&cmd), &err) < 0)
        return cmd_fail(&cmd, &err);
    if (checks)
        ret = check(lib, file ? NULL : operand[0], file, &err);
    else if (json)
        ret = json_lines(lib, file ? NULL : operand[0], file, &err);
    else if (tables)
        ret = table(lib, &err);
    else
        ret = file || operand[0] ? print(lib, operand[0], file, &err) : list(lib, &err);
    family_library_free(lib);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
