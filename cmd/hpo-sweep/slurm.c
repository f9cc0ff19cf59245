/* slurm - write the array script whose tasks share a sweep */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/sweep/format/words.h"

struct array {
    struct wish wish;
    int tasks, at_once, trials, per_trial;
    bool requeue;     /* tasks that reach their limit */
    const char *mark; /* of --replace, or NULL */
    const char *output;
};

static void add_option(struct str *out, const char *name, const char *value)
{
    char *word = value ? str_dupf("--%s=%s", name, value) : NULL;
    char *words[] = { word, NULL };

    if (value) {
        str_addc(out, ' ');
        words_quote(out, words);
    }
    free(word);
}

static void add_number(struct str *out, const char *name, uint64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, n);
    add_option(out, name, text);
}

/* A job's name: Slurm takes the rest of the line, so nothing but plain letters. */
static void add_name(struct str *out, const char *path)
{
    for (const char *p = fs_basename(path); *p; p++)
        str_addc(out, strchr("\"'` \t\n$\\%", *p) ? '_' : *p);
}

/* The command that is a task. */
static void add_run(struct str *out, const struct array *a, char *const *sweep,
                    char *const *command)
{
    const struct wish *w = &a->wish;

    str_add(out, "hpo-sweep run --share --quiet");
    add_option(out, "storage", w->where.storage);
    add_option(out, "study", w->where.study);
    add_option(out, "sampler", w->sampler);
    add_option(out, "pruner", w->pruner);
    for (size_t i = 0; i < w->directions.n; i++)
        add_option(out, "direction", w->directions.v[i]);
    for (size_t i = 0; i < w->metrics.n; i++)
        add_option(out, "metric", w->metrics.v[i]);
    if (w->has_seed)
        add_number(out, "seed", w->seed);
    if (a->trials)
        add_number(out, "trials", (uint64_t)a->trials);
    if (a->per_trial) {
        add_option(out, "devices", "all");
        add_number(out, "devices-per-trial", (uint64_t)a->per_trial);
    }
    add_option(out, "replace", a->mark);
    str_addc(out, ' ');
    words_quote(out, sweep);
    if (command) {
        str_add(out, " -- ");
        words_quote(out, command);
    }
}

/* Slurm never requeues a job that reaches its limit: the task asks for it.  It has
 * SIGUSR1 then and SIGTERM when it is cancelled, so that it can be. */
static const char at_limit[] =
    " &\n"
    "run=$!\n"
    "limit=\n"
    "trap 'limit=yes; kill -TERM $run' USR1\n"
    "trap 'kill -TERM $run' TERM\n"
    "while wait $run; status=$?; kill -0 $run 2> /dev/null; do :; done\n"
    "[ -z \"$limit\" ] || scontrol requeue \"$SLURM_JOB_ID\"\n"
    "exit $status\n";

static void write_script(struct str *out, const struct array *a, char *const *sweep,
                         char *const *command)
{
    str_add(out, "#!/bin/sh\n#SBATCH --job-name=");
    add_name(out, sweep[0]);
    str_addf(out, "\n#SBATCH --array=0-%d", a->tasks - 1);
    if (a->at_once)
        str_addf(out, "%%%d", a->at_once);
    str_addf(out,
             "\n#SBATCH --signal=B:%s@60\n%s"
             "# Tasks draw their trials from one study; the storage must be on a file\n"
             "# system that all nodes see.\n%s",
             a->requeue ? "USR1" : "TERM",
             a->requeue ? "#SBATCH --requeue\n#SBATCH --open-mode=append\n" : "",
             a->requeue ? "" : "exec ");
    add_run(out, a, sweep, command);
    str_add(out, a->requeue ? at_limit : "\n");
}

/* What a task would refuse is refused here. */
static int check(const struct array *a, const char *path, char *const *command,
                 struct err *err)
{
    struct sampler_choice sampler;
    struct sweepfile file;
    int ret;

    if (a->mark && !*a->mark)
        return err_set(err, ERR_USAGE, "--replace takes a mark such as @");
    if (!strcmp(path, "-"))
        return err_set(err, ERR_USAGE, "the tasks cannot read standard input");
    if (sweepfile_read(&file, path, err) < 0)
        return -1;
    ret = wish_check(&a->wish, &sampler, &file, err);
    if (ret == 0 && !a->trials && !file.run_cap && !sampler.sampler->ends)
        ret = err_set(err, ERR_USAGE, "a sweep without an end: give --trials");
    if (ret == 0 && command)
        ret = words_check(command, &file.space, a->mark, err);
    else if (ret == 0 && !sweepfile_has_command(&file))
        ret = err_set(err, ERR_USAGE, "no command: write it after --");
    sweepfile_clear(&file);
    return ret;
}

int slurm_main(const char *program, int argc, char **argv)
{
    struct array a = { .tasks = 4 };
    const struct opt opts[] = {
        WISH_OPTIONS(a.wish),
        { OPT_INT, '\0', "trials", &a.trials, "N", "finished trials to reach", NULL,
          NULL },
        { OPT_COUNT, '\0', "tasks", &a.tasks, "N", "tasks of the array", NULL, NULL },
        { OPT_COUNT, '\0', "at-once", &a.at_once, "N", "tasks that may run at once",
          NULL, NULL },
        { OPT_FLAG, '\0', "requeue", &a.requeue, NULL,
          "tasks that reach their limit begin again", NULL, NULL },
        { OPT_STRING, '\0', "replace", &a.mark, "MARK",
          "@: name parameters as @lr@, not {lr}", NULL, NULL },
        { OPT_COUNT, '\0', "devices-per-trial", &a.per_trial, "N",
          "deal a task's GPUs to trials", NULL, NULL },
        { OPT_STRING, 'o', "output", &a.output, "FILE", "the script", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "slurm",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... SWEEP [-- COMMAND [WORD]...]",
                             .summary = "Write the script of a Slurm array",
                             .min_args = 1,
                             .max_args = 1,
                             .stop_at_command = true };
    char **operand = cmd_parse(&cmd, argc, argv);
    char **command = cmd_command(&cmd, argc, argv);
    char *sweep[] = { operand[0], NULL };
    struct str text = { 0 };
    struct err err = { 0 };
    int ret = check(&a, operand[0], command, &err);

    if (ret == 0) {
        write_script(&text, &a, sweep, command);
        if (a.output && strcmp(a.output, "-"))
            ret = output_write(a.output, text.s, text.len, false, &err);
        else
            fputs(text.s, stdout);
    }
    str_clear(&text);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}
