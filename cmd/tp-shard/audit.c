/* audit - tells what is wrong with a model's directory */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/str.h"
#include "lib/reshard/inspect.h"

enum { MOST_DEFAULT_JOBS = 8 };

static void print_json(const struct inspection_finding *f)
{
    struct str line = { 0 };

    str_addf(&line, "{\"type\":\"finding\",\"severity\":\"%s\",\"file\":",
             inspection_words[f->level]);
    str_add_json(&line, f->file);
    str_add(&line, ",\"tensor\":");
    if (f->tensor)
        str_add_json(&line, f->tensor);
    else
        str_add(&line, "null");
    str_addf(&line, ",\"others\":%" PRIu64 ",\"finding\":", f->others);
    str_add_json(&line, f->text);
    str_addc(&line, '}');
    cmd_puts(line.s);
    str_clear(&line);
}

static void print_text(const struct inspection_finding *f)
{
    struct str line = { 0 };

    str_addf(&line, "%s: %s: ", inspection_words[f->level], f->file);
    if (f->tensor)
        str_addf(&line, "%s: ", f->tensor);
    str_add(&line, f->text);
    if (f->others)
        str_addf(&line, " (and of its kind %" PRIu64 " more)", f->others);
    cmd_puts(line.s);
    str_clear(&line);
}

static void print_summary(const struct inspection *o, bool json, bool quiet)
{
    const uint64_t *n = o->found;
    char size[32];

    if (json)
        printf("{\"type\":\"summary\",\"files\":%" PRIu64 ",\"tensors\":%" PRIu64
               ",\"bytes\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"warnings\":%" PRIu64
               ",\"notes\":%" PRIu64 "}\n",
               o->files, o->tensors, o->bytes, n[INSPECTION_ERROR],
               n[INSPECTION_WARNING], n[INSPECTION_NOTE]);
    else if (!quiet)
        printf("%" PRIu64 " error%s, %" PRIu64 " warning%s, %" PRIu64
               " note%s: %" PRIu64 " weight file%s, %" PRIu64 " tensors, %s read\n",
               n[INSPECTION_ERROR], n[INSPECTION_ERROR] == 1 ? "" : "s",
               n[INSPECTION_WARNING], n[INSPECTION_WARNING] == 1 ? "" : "s",
               n[INSPECTION_NOTE], n[INSPECTION_NOTE] == 1 ? "" : "s", o->files,
               o->files == 1 ? "" : "s", o->tensors, str_human(size, o->bytes));
}

static int default_jobs(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > MOST_DEFAULT_JOBS ? MOST_DEFAULT_JOBS : (int)n;
}

int audit_main(const char *program, int argc, char **argv)
{
    struct inspect_options how = { .threads = default_jobs() };
    const char *family = NULL;
    bool json = false, quiet = false;
    const struct opt opts[] = {
        { OPT_FLAG, '\0', "headers", &how.headers, NULL,
          "read no weights, only their headers", NULL, NULL },
        FAMILY_OPTION(family),
        { OPT_COUNT, 'j', "jobs", &how.threads, "N",
          "read with N threads (default: one a processor)", NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { OPT_FLAG, 'q', "quiet", &quiet, NULL, "print errors only", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "audit",
        .program = program,
        .synopsis = "[OPTION]... DIRECTORY",
        .summary = "Tell what is wrong with a model's files; status 1 if results would "
                   "change",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct inspection o = { 0 };
    struct err err = { 0 };
    int status;

    if (how.threads < 1 || how.threads > 256)
        return cmd_usage(&cmd, "--jobs: from 1 to 256");
    how.family_file = family;
    how.family_path = family_path(&cmd);
    if (inspect(&o, operand[0], &how, &err) < 0) {
        inspection_clear(&o);
        return cmd_fail(&cmd, &err);
    }
    for (int level = 0; level < INSPECTION_LEVELS; level++)
        for (const struct inspection_finding *f = o.first[level]; f; f = f->next)
            if (json)
                print_json(f);
            else if (!quiet || level == INSPECTION_ERROR)
                print_text(f);
    print_summary(&o, json, quiet);
    status = o.found[INSPECTION_ERROR] ? ERR_NO : EXIT_SUCCESS;
    inspection_clear(&o);
    return cmd_finish(&cmd, status);
}
