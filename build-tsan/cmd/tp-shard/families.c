/* families - list and print model families */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
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

/* Check the family NAME, the one in FILE, or all: what each rank of two stores, or what
 * is wrong. */
static int check(const struct family_library *lib, const char *name, const char *file,
                 struct err *err)
{
    size_t n = file || name ? 1 : family_library_count(lib);

    for (size_t i = 0; i < n; i++) {
        const char *one = name ? name : family_library_name(lib, i);
        struct str report = { 0 };
        struct family *f;
        int ret;

        if (file ? family_read(&f, lib, file, err) < 0
                 : family_find(&f, lib, one, err) < 0)
            return -1;
        ret = family_check(&report, f, err);
        if (ret == 0)
            printf("%s: sound; at tp 2 the ranks store\n%s", f->name,
                   str_text(&report));
        str_clear(&report);
        family_free(f);
        if (ret < 0)
            return -1;
    }
    return 0;
}

int families_main(const char *program, int argc, char **argv)
{
    const char *file = NULL;
    bool checks = false;
    const struct opt opts[] = {
        { OPT_STRING, '\0', "family", &file, "FILE", "print the family in FILE", NULL,
          NULL },
        { OPT_FLAG, '\0', "check", &checks, NULL,
          "verify it, or all, and print the shares at tp 2", NULL, NULL },
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
    /* a family is a word; what has a slash or an extension is its file */
    if (operand[0] && strpbrk(operand[0], "/."))
        file = operand[0];
    if (family_library_open(&lib, getenv("SHARDUTILS_FAMILY_PATH"), &err) < 0)
        return cmd_fail(&cmd, &err);
    if (checks)
        ret = check(lib, file ? NULL : operand[0], file, &err);
    else
        ret = file || operand[0] ? print(lib, operand[0], file, &err) : list(lib, &err);
    family_library_free(lib);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
