/* spawn - the command of a trial: its words, its environment, and its check */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/sweep/format/words.h"

extern char **environ;

static void add_variable(char ***env, size_t *n, char *text)
{
    *env = xrealloc(*env, (*n + 2) * sizeof(**env));
    (*env)[(*n)++] = text;
    (*env)[*n] = NULL;
}

/* What the variable of parameter NAME is called: what is no letter or digit becomes
 * '_'. */
static char *variable_dup(const char *name)
{
    char *variable = str_dupf("HPO_%s", name);

    for (char *p = variable; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
                    *p))
            *p = '_';
    return variable;
}

/* Is VARIABLE one that does not name a parameter? */
static bool is_taken(const char *variable)
{
    static const char *const taken[] = {
        "HPO_STUDY",       "HPO_STORAGE",    "HPO_TRIAL_NUMBER", "HPO_TRIAL_DIR",
        "HPO_PARAMS_JSON", "HPO_RESULT",     "HPO_REPORT",       "HPO_SLOT",
        "HPO_ATTEMPT",     "HPO_PARENT",     "HPO_RESUME",       "HPO_CHECKPOINT",
        "HPO_MEMBER",      "HPO_GENERATION",
    };

    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        if (!strcmp(taken[i], variable))
            return true;
    return false;
}

/* The caller's environment, what a trial is told, and HPO_NAME=value of each
 * parameter. */
static char **environment_new(const struct loop *l, const struct job *job,
                              const double *x)
{
    const struct space *space = &l->s->file.space;
    const struct devices *d = &l->o->devices;
    bool masked = d->nslots || l->o->no_devices;
    char **env = NULL;
    size_t n = 0;

    for (char **e = environ; *e; e++)
        if (!str_starts(*e, "HPO_") &&
            !(masked && str_starts(*e, "CUDA_VISIBLE_DEVICES=")))
            add_variable(&env, &n, xstrdup(*e));
    add_variable(&env, &n, str_dupf("HPO_STUDY=%s", l->s->name));
    add_variable(&env, &n, str_dupf("HPO_STORAGE=%s", l->url));
    add_variable(&env, &n, str_dupf("HPO_TRIAL_NUMBER=%d", job->number));
    add_variable(&env, &n, str_dupf("HPO_TRIAL_DIR=%s", job->dir));
    add_variable(&env, &n, str_dupf("HPO_PARAMS_JSON=%s/params.json", job->dir));
    add_variable(&env, &n, str_dupf("HPO_RESULT=%s/result.json", job->dir));
    add_variable(&env, &n, str_dupf("HPO_REPORT=%s/report", job->dir));
    add_variable(&env, &n, str_dupf("HPO_CHECKPOINT=%s/checkpoint", job->dir));
    add_variable(&env, &n, str_dupf("HPO_SLOT=%d", job->slot));
    for (char **v = job->variables; v && *v; v++)
        add_variable(&env, &n, xstrdup(*v));
    if (masked)
        add_variable(
            &env, &n,
            str_dupf("CUDA_VISIBLE_DEVICES=%s", d->nslots ? d->masks[job->slot] : ""));
    add_variable(&env, &n, str_dupf("HPO_ATTEMPT=%d", job->attempt));
    for (size_t i = 0; i < space->n; i++) {
        char *variable = isnan(x[i]) ? NULL : variable_dup(space->params[i].name);
        struct str text = { 0 };

        if (variable && !is_taken(variable)) {
            str_addf(&text, "%s=", variable);
            dist_write_word(&text, &space->params[i].dist, x[i]);
            add_variable(&env, &n, str_steal(&text));
        }
        free(variable);
    }
    return env;
}

/* The path of PROGRAM, owned; *out is NULL when there is none.  Mostly it is the last
 * trial's. */
static int find_program(char **out, struct loop *l, const char *program,
                        struct err *err)
{
    if (!l->program || strcmp(l->program, program) != 0) {
        char *path;

        if (job_which(&path, program, getenv("PATH"), err) < 0)
            return -1;
        free(l->program);
        free(l->program_path);
        l->program = xstrdup(program);
        l->program_path = path;
    }
    *out = l->program_path ? xstrdup(l->program_path) : NULL;
    return 0;
}

/* The words to execute, the program's path first. */
static char **words_new(struct loop *l, const struct job *job, const double *x,
                        struct err *err)
{
    char **words, *path;

    if (l->o->shell) {
        words = xcalloc(4, sizeof(*words));
        words[0] = xstrdup("/bin/sh");
        words[1] = xstrdup("-c");
        words[2] = xstrdup(l->command[0]);
    } else if (l->command) {
        words = words_expand_new(l->command, &l->s->file.space, x, l->o->mark);
    } else {
        char *json = str_dupf("%s/params.json", job->dir);

        words = sweepfile_command_new(&l->s->file, x, json, getenv, err);
        free(json);
        if (!words)
            return NULL;
    }
    if (find_program(&path, l, words[0], err) < 0 ||
        (!path && err_set(err, ERR_USAGE, "%s: no such program", words[0]) < 0)) {
        words_free(words);
        return NULL;
    }
    free(words[0]);
    words[0] = path;
    return words;
}

static int start_words(struct loop *l, struct job *job, char **words, const double *x,
                       struct err *err)
{
    char **env = words ? environment_new(l, job, x) : NULL;
    struct str params = { 0 };
    int ret = -1;

    if (words) {
        sweepfile_write_params(&params, &l->s->file.space, x);
        str_addc(&params, '\n');
        if (l->log >= 0) {
            struct str command = { 0 };

            words_quote(&command, words);
            free(job->command);
            job->command = str_steal(&command);
        }
        ret = job_start(job, words, env, params.s, &l->o->limits, err);
        if (ret == 0)
            guard_set(&l->guard, job->slot, job->pid, job->number);
    }
    str_clear(&params);
    words_free(words);
    words_free(env);
    return ret;
}

/* Wait until JOB's command has ended; a signal that ends the run ends it. */
static int await(struct loop *l, struct job *job)
{
    int status = 0;

    while (waitpid(job->pid, &status, WNOHANG) == 0) {
        signals_wait(l);
        if (l->signal && !job->killed) {
            job->killed = clock_seconds();
            job_kill(job, SIGTERM);
        } else if (job->killed &&
                   (l->hurry || clock_seconds() - job->killed > JOB_GRACE)) {
            job_kill(job, SIGKILL);
        }
    }
    job_kill(job, SIGKILL); /* what is left of its group */
    guard_set(&l->guard, job->slot, 0, 0);
    job->pid = 0;
    return job->status = status;
}

int spawn_feasible(struct loop *l, struct job *job, const double *x, struct err *err)
{
    char **words = words_expand_new(l->require, &l->s->file.space, x, l->o->mark);
    char *path;
    int status;

    if (job_which(&path, words[0], getenv("PATH"), err) < 0 ||
        (!path && err_set(err, ERR_USAGE, "%s: no such program", words[0]) < 0)) {
        words_free(words);
        return -1;
    }
    free(words[0]);
    words[0] = path; /* looked up before the first trial */
    if (start_words(l, job, words, x, err) < 0)
        return -1;
    status = await(l, job);
    if (l->signal)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        return WEXITSTATUS(status);
    return err_set(err, ERR_SYSTEM,
                   "trial %d: the check of --require failed: see %s/stderr",
                   job->number, job->dir);
}

/* What JOB is to begin with must be here: runs that share a study may have different
 * files. */
static int check_checkpoint(const struct job *job, struct err *err)
{
    bool found;

    if (!job->checkpoint)
        return 0;
    if (fs_find(&found, job->checkpoint, err) < 0)
        return -1;
    return found ? 0
                 : err_set(err, ERR_SYSTEM,
                           "trial %d: begins with %s, which is not there: runs of one "
                           "study need the same files",
                           job->number, job->checkpoint);
}

int spawn_command(struct loop *l, struct job *job, const double *x, struct err *err)
{
    if (check_checkpoint(job, err) < 0)
        return -1;
    return start_words(l, job, words_new(l, job, x, err), x, err);
}

/* With --shell a parameter is known by its variable alone. */
static int check_variables(const struct space *space, struct err *err)
{
    char **all = xcalloc(space->n + 1, sizeof(*all));
    int ret = 0;

    for (size_t i = 0; i < space->n && ret == 0; i++) {
        all[i] = variable_dup(space->params[i].name);
        if (is_taken(all[i]))
            ret = err_set(err, ERR_USAGE, "--shell: %s is not that of parameter '%s'",
                          all[i], space->params[i].name);
        for (size_t k = 0; k < i && ret == 0; k++)
            if (!strcmp(all[k], all[i]))
                ret = err_set(err, ERR_USAGE, "--shell: '%s' and '%s' are both %s",
                              space->params[k].name, space->params[i].name, all[i]);
    }
    words_free(all);
    return ret;
}

/* The one word of --shell names no parameter in braces: nothing is replaced there. */
static int check_shell(const struct loop *l, struct err *err)
{
    const struct space *space = &l->s->file.space;
    const char *name;
    char *variable;
    int at;

    if (!l->command || !l->command[0] || l->command[1])
        return err_set(err, ERR_USAGE, "--shell takes one word after --");
    if (l->o->mark)
        return err_set(err, ERR_USAGE, "--shell and --replace exclude one another");
    at = words_find_name(l->command[0], space);
    if (at < 0)
        return check_variables(space, err);
    name = space->params[at].name;
    variable = variable_dup(name);
    err_set(err, ERR_USAGE, "with --shell {%s} is not replaced: write $%s", name,
            variable);
    free(variable);
    return -1;
}

/* What can be known to be wrong before the first trial. */
int spawn_check(struct loop *l, struct err *err)
{
    const struct sweepfile *f = &l->s->file;
    struct job job = { .dir = l->base };
    struct rng rng;
    double *x;
    char **words;

    if (!l->command && !sweepfile_has_command(f))
        return err_set(err, ERR_USAGE, "no command: write it after --");
    if (l->o->mark && !*l->o->mark)
        return err_set(err, ERR_USAGE, "--replace takes a mark such as @");
    if (l->o->shell
            ? check_shell(l, err) < 0
            : l->command && words_check(l->command, &f->space, l->o->mark, err) < 0)
        return -1;
    x = xcalloc(f->space.n, sizeof(*x));
    rng_init(&rng, 0, 0);
    sampler_prior(x, &f->space, &rng);
    space_settle(&f->space, x);
    words = words_new(l, &job, x, err);
    free(x);
    words_free(words);
    return words ? 0 : -1;
}

/* Bytes of a file that are looked at, and of a script whose words are; and how many
 * scripts may lead from the command to the last one. */
enum { PROGRAM_MAX = 64 << 20, SCRIPT_MAX = 1 << 16, DEPTH = 2 };

/* Do the N bytes of TEXT name our variables, or the file of parameters? */
static bool mentions(const char *text, size_t n)
{
    return memmem(text, n, "HPO_", 4) || memmem(text, n, "params.json", 11);
}

static bool some_speaks(const char *text, const char *dir, int depth);

/* Does the file PATH, or one that it names?  One too large to be looked at may. */
static bool file_speaks(const char *path, int depth)
{
    char *text, *dir;
    uint64_t size;
    size_t n;
    bool yes;

    if (fs_read_regular(&text, &n, path, PROGRAM_MAX, NULL) < 0)
        return fs_size(&size, path, NULL) == 0 && size > PROGRAM_MAX;
    yes = mentions(text, n);
    if (!yes && depth && n <= SCRIPT_MAX && !memchr(text, '\0', n)) {
        dir = xstrndup(path, (size_t)(fs_basename(path) - path));
        yes = some_speaks(text, dir, depth - 1);
        free(dir);
    }
    free(text);
    return yes;
}

/* Does the file WORD, or the Python module of that name, of the directory DIR, which
 * ends in '/' unless it is ""? */
static bool speaks(const char *word, const char *dir, int depth)
{
    static const char *const suffixes[] = { "", ".py", "/__main__.py" };
    bool yes = false;

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes) && !yes; i++) {
        size_t n = *word == '/' ? 0 : strlen(dir);
        char *path = str_dupf("%.*s%s%s", (int)n, dir, word, suffixes[i]);

        for (char *c = path + n; i && *c && c < path + n + strlen(word); c++)
            if (*c == '.')
                *c = '/';
        yes = file_speaks(path, depth);
        free(path);
    }
    return yes;
}

/* Does TEXT, or a file that it names, as seen from here or from DIR? */
static bool some_speaks(const char *text, const char *dir, int depth)
{
    char *copy = xstrdup(text), *save = NULL;
    bool yes = mentions(text, strlen(text));

    for (char *w = strtok_r(copy, " \t\r\n;&|()<>=,\"'`", &save); w && !yes;
         w = strtok_r(NULL, " \t\r\n;&|()<>=,\"'`", &save))
        yes = speaks(w, "", depth) || (*dir && speaks(w, dir, depth));
    free(copy);
    return yes;
}

/* Does WORD of a command, the first one being a PROGRAM? */
static bool word_speaks(const char *word, bool program)
{
    char *path = NULL;
    bool yes = speaks(word, "", DEPTH) || some_speaks(word, "", DEPTH);

    if (!yes && program && job_which(&path, word, getenv("PATH"), NULL) == 0 && path)
        yes = file_speaks(path, DEPTH);
    free(path);
    return yes;
}

bool spawn_uses_parameters(const struct loop *l)
{
    const struct sweepfile *f = &l->s->file;
    bool yes = !l->command && !f->ncommand; /* a program has ${args} */
    size_t n = 0;

    if (l->command && !l->o->shell)
        yes = words_name_some(l->command, &f->space, l->o->mark);
    for (; l->command && l->command[n] && !yes; n++)
        yes = word_speaks(l->command[n], n == 0);
    for (n = 0; !l->command && n < f->ncommand && !yes; n++)
        yes = strstr(f->command[n], "${args") ||
              words_find_name(f->command[n], &f->space) >= 0 ||
              word_speaks(f->command[n], n == 0);
    return yes;
}

/* Append the words of LINE, which are checked. */
static int read_line(struct loop *l, size_t *n, char *line, struct err *err)
{
    char *save = NULL;

    for (char *w = strtok_r(line, " \t\r", &save); w;
         w = strtok_r(NULL, " \t\r", &save)) {
        l->require = xrealloc(l->require, (*n + 2) * sizeof(*l->require));
        l->require[*n] = xstrdup(w);
        l->require[++*n] = NULL;
        if (words_check(l->require + *n - 1, &l->s->file.space, l->o->mark, err) < 0)
            return -1;
    }
    return 0;
}

int spawn_read_require(struct loop *l, struct err *err)
{
    const char *file = l->o->require;
    char *text, *path;
    int ret = 0, number = 1;
    size_t n = 0;

    if (!file)
        return 0;
    if (fs_read_file(&text, NULL, file, 1 << 16, err) < 0)
        return -1;
    for (char *line = text, *end; line && ret == 0; line = end, number++) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        if (read_line(l, &n, line, err) < 0) {
            ret = err_prefix(err, "%s:%d", file, number);
            err->kind = ERR_INPUT;
        }
    }
    free(text);
    if (ret < 0)
        return -1;
    if (!n)
        return err_set(err, ERR_INPUT, "%s: no command", file);
    if (job_which(&path, l->require[0], getenv("PATH"), err) < 0)
        return -1;
    if (!path)
        return err_set(err, ERR_USAGE, "%s: %s: no such program", file, l->require[0]);
    free(path);
    return 0;
}
