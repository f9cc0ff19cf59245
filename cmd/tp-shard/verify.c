/* verify - checks a checkpoint's consistency */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/tp-shard/tp-shard.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/steps.h"
#include "lib/reshard/audit.h"

struct verify {
    const char *against, *sums, *ranks;
    bool json, quiet;
    int jobs;
    size_t tensors, archives; /* of a training framework's checkpoint */
};

enum { MOST_DEFAULT_JOBS = 8 };

static const uint64_t MAX_LIST = UINT64_C(1) << 30;

static void print_finding(void *arg, const char *file, const char *tensor,
                          const char *text)
{
    const struct verify *v = arg;
    struct str line = { 0 };

    if (v->json) {
        str_add(&line, "{\"type\":\"finding\",\"file\":");
        str_add_json(&line, file);
        str_add(&line, ",\"tensor\":");
        if (tensor)
            str_add_json(&line, tensor);
        else
            str_add(&line, "null");
        str_add(&line, ",\"finding\":");
        str_add_json(&line, text);
        str_addc(&line, '}');
    } else {
        str_addf(&line, "%s: ", file);
        if (tensor)
            str_addf(&line, "%s: ", tensor);
        str_add(&line, text);
    }
    cmd_puts(line.s);
    str_clear(&line);
}

/* Parses a list of parts such as "0,3-5"; *out is NULL when LIST is. */
static int choose_parts(bool **out, const char *list, int nparts, struct err *err)
{
    bool *chosen = list ? xcalloc((size_t)nparts, sizeof(*chosen)) : NULL;
    char *copy = list ? xstrdup(list) : NULL;
    int ret = -1;

    for (char *word = copy, *next; word; word = next) {
        char *dash;
        int first, last;

        next = strchr(word, ',');
        if (next)
            *next++ = '\0';
        dash = strchr(word, '-');
        if (dash)
            *dash = '\0';
        if (!str_int(word, &first) || first < 0 ||
            !str_int(dash ? dash + 1 : word, &last) || last < first) {
            err_set(err, ERR_USAGE, "--ranks: '%s' is not a list such as 0,2-3", list);
            goto out;
        }
        if (last >= nparts) {
            err_set(err, ERR_USAGE, "--ranks: there are rank files 0 to %d",
                    nparts - 1);
            goto out;
        }
        for (int p = first; p <= last; p++)
            chosen[p] = true;
    }
    *out = chosen;
    chosen = NULL;
    ret = 0;
out:
    free(copy);
    free(chosen);
    return ret;
}

static int verify_sharded(struct audit *a, const struct verify *v, const char *path,
                          struct err *err)
{
    static const struct checkpoint_options tensors_only = { .no_model = true };
    struct checkpoint *c = NULL;
    bool *part = NULL;
    int ret = -1;

    if (checkpoint_open(&c, path, &tensors_only, err) < 0) {
        if (err->kind != ERR_INPUT)
            return -1;
        a->finding(a->arg, MANIFEST_NAME, NULL, err->text);
        a->findings++;
        return 0;
    }
    if (choose_parts(&part, v->ranks, c->manifest.nparts, err) < 0)
        goto out;
    a->part = part;
    if (audit_checkpoint(a, c, err) < 0)
        goto out;
    ret = v->against ? audit_against(a, c, v->against, err) : 0;
out:
    free(part);
    checkpoint_close(c);
    return ret;
}

static int verify_list(struct audit *a, const struct verify *v, const char *path,
                       struct err *err)
{
    struct source s;
    char *lines;
    int ret = -1;

    if (fs_read_file(&lines, NULL, v->sums, MAX_LIST, err) < 0)
        return -1;
    if (source_open(&s, path, NULL, err) == 0) {
        ret = audit_compare(a, &s, v->sums, lines, err);
        source_clear(&s);
    } else if (err->kind == ERR_INPUT) {
        a->finding(a->arg, path, NULL, err->text);
        a->findings++;
        ret = 0;
    }
    free(lines);
    return ret;
}

/* A checkpoint of a training framework has no manifest: checks that its pieces are all
 * there, and the checksums of their archives. */
static int verify_foreign(struct audit *a, struct verify *v, const char *path,
                          struct err *err)
{
    struct source s;
    int ret;

    if (source_open(&s, path, NULL, err) < 0) {
        if (err->kind != ERR_INPUT)
            return -1;
        a->finding(a->arg, path, NULL, err->text);
        a->findings++;
        return 0;
    }
    v->tensors = s.n;
    v->archives = s.narchives;
    ret = audit_archives(a, &s, err);
    source_clear(&s);
    return ret;
}

/* All checkpoints of the run of tp-run train in DIR; *is: it is one. */
static void verify_run(struct audit *a, struct verify *v, const char *dir, bool *is,
                       struct err *err)
{
    struct steps s;
    char *newest;

    *is = false;
    if (steps_newest(&newest, dir, err) < 0 || !newest)
        return;
    *is = true;
    free(newest);
    if (steps_find_all(&s, dir, err) < 0)
        return;
    for (size_t i = 0; i < s.n; i++) {
        char *path = steps_path_dup(dir, s.v[i]);
        struct err one = { 0 };

        verify_sharded(a, v, path, &one);
        free(path);
        if (one.kind && !(one.kind == ERR_INPUT && a->findings)) {
            *err = one;
            break;
        }
    }
    steps_clear(&s);
}

static void print_summary(const struct verify *v, const struct audit *a)
{
    char size[32];

    if (v->json)
        printf("{\"type\":\"summary\",\"files\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"findings\":%" PRIu64 "}\n",
               a->files, a->bytes, a->findings);
    else if (!a->findings && !v->quiet)
        printf("intact: %" PRIu64 " files, %s", a->files, str_human(size, a->bytes));
    if (!v->json && !a->findings && !v->quiet && v->tensors)
        printf("; each piece of %zu tensors once, %zu archives by their CRC-32s",
               v->tensors, v->archives);
    if (!v->json && !a->findings && !v->quiet)
        putchar('\n');
}

static int default_jobs(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > MOST_DEFAULT_JOBS ? MOST_DEFAULT_JOBS : (int)n;
}

int verify_main(const char *program, int argc, char **argv)
{
    struct verify v = { .jobs = default_jobs() };
    const struct opt opts[] = {
        { OPT_STRING, '\0', "against", &v.against, "DIR",
          "compare with the directory it was cut from", NULL, NULL },
        { OPT_STRING, '\0', "sums", &v.sums, "FILE",
          "compare with a list that sum wrote", NULL, NULL },
        { OPT_STRING, '\0', "ranks", &v.ranks, "LIST", "these rank files only: 0,2-3",
          NULL, NULL },
        { OPT_COUNT, 'j', "jobs", &v.jobs, "N",
          "read N files at a time (default: one a processor)", NULL, NULL },
        { OPT_FLAG, '\0', "json", &v.json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { OPT_FLAG, 'q', "quiet", &v.quiet, NULL, "print findings only", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "verify",
        .program = program,
        .synopsis = "[OPTION]... CHECKPOINT",
        .summary = "Compare CHECKPOINT with its manifest or checksums; status 1 tells "
                   "of damage",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct audit a = { .finding = print_finding, .arg = &v };
    bool found, sharded, foreign, run;
    struct err err = { 0 };

    if (v.jobs < 1 || v.jobs > 256)
        return cmd_usage(&cmd, "--jobs: from 1 to 256");
    a.threads = v.jobs;
    if (fs_find(&found, operand[0], &err) < 0 ||
        checkpoint_is_sharded(&sharded, operand[0], &err) < 0 ||
        source_find_foreign(&foreign, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!found)
        err_set(&err, ERR_INPUT, "%s: no such file or directory", operand[0]);
    else if (!sharded && foreign && !v.sums && !v.ranks && !v.against)
        verify_foreign(&a, &v, operand[0], &err);
    else if (!sharded && !v.sums && !v.ranks && !v.against &&
             (verify_run(&a, &v, operand[0], &run, &err), run || err.kind))
        ;
    else if (!sharded && !v.sums)
        err_set(&err, ERR_INPUT,
                "%s: no %s; --sums compares with a list, 'diff' two directories",
                operand[0], MANIFEST_NAME);
    else if (sharded && v.sums)
        return cmd_usage(&cmd, "--sums is for directories without %s", MANIFEST_NAME);
    else if (!sharded && (v.ranks || v.against))
        return cmd_usage(&cmd, "--ranks and --against are for sharded checkpoints");
    else if (sharded)
        verify_sharded(&a, &v, operand[0], &err);
    else
        verify_list(&a, &v, operand[0], &err);
    if (err.kind && !(err.kind == ERR_INPUT && a.findings))
        return cmd_fail(&cmd, &err);
    print_summary(&v, &a);
    return cmd_finish(&cmd, a.findings ? ERR_NO : EXIT_SUCCESS);
}
