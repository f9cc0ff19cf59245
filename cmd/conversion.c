/* conversion - checkpoints opened and written, the same in every program */
#include "cmd/conversion.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/family.h"
#include "lib/program/check.h"

const char *family_path(const struct cmd *cmd)
{
    const char *path = getenv("SHARDUTILS_FAMILY_PATH"), *fault;
    struct family_library *lib;
    struct err err = { 0 };

    if (!path || !*path || family_library_open(&lib, path, &err) < 0)
        return path;
    for (size_t i = 0; (fault = family_library_fault(lib, i)) != NULL; i++)
        cmd_warn(cmd, "%s: passed over", fault);
    family_library_free(lib);
    return path;
}

int open_checkpoint(const struct cmd *cmd, struct checkpoint **out, const char *path,
                    const struct open_options *o, struct err *err)
{
    static const struct open_options none = { 0 };
    struct checkpoint_options opt = { 0 };
    bool sharded;

    o = o ? o : &none;
    opt.family_file = o->family;
    opt.config = o->config;
    opt.moments = o->moments;
    opt.any_moments = o->any_moments;
    opt.masters = o->masters;
    opt.average = o->average;
    if (checkpoint_is_sharded(&sharded, path, err) < 0)
        return -1;
    opt.family_path = sharded ? NULL : family_path(cmd);
    if (checkpoint_open(out, path, &opt, err) < 0)
        return -1;
    warn_source(cmd, *out);
    if (!(*out)->model || (*out)->sharded ||
        check_config(NULL, (*out)->model, KEYS_CUTS, err) == 0)
        return 0;
    checkpoint_close(*out);
    return -1;
}

void warn_source(const struct cmd *cmd, const struct checkpoint *c)
{
    if (c->sharded)
        return;
    if (c->source.shadowed)
        cmd_warn(cmd, "%s: names other weights than %s, which is read",
                 c->source.shadowed, c->source.input[0].path);
    if (c->source.stripped)
        cmd_warn(cmd, "%s: names are read without '%s'", c->path, c->source.stripped);
    if (c->source.note)
        cmd_warn(cmd, "%s: %s", c->path, c->source.note);
}

/* Names what a source has that is not carried to what is made of it. */
static void warn_left(const struct cmd *cmd, const struct checkpoint *c)
{
    enum { SHOWN = 8 };
    struct str names = { 0 };

    if (c->sharded || !c->source.nleft)
        return;
    for (size_t i = 0; i < c->source.nleft && i < SHOWN; i++)
        str_addf(&names, "%s%s", i ? ", " : "", c->source.left[i]);
    if (c->source.nleft > SHOWN)
        str_addf(&names, " and %zu more", c->source.nleft - SHOWN);
    cmd_warn(cmd, "%s: not carried: %s", c->path, str_text(&names));
    str_clear(&names);
}

/* The same of an export. */
static void warn_not_exported(const struct cmd *cmd, const struct checkpoint *c,
                              const struct convert_result *result)
{
    if (result->averages)
        cmd_warn(cmd,
                 "%s: moving averages of weights are left out; --average exports them "
                 "in place of weights",
                 c->path);
    if (result->masters)
        cmd_warn(cmd,
                 "%s: f32 masters of weights are left out, as its optimizer keeps no "
                 "moments",
                 c->path);
}

void warn_untied(const struct cmd *cmd, const struct model *m)
{
    if (model_untied(m))
        cmd_warn(cmd, "%s: not tied, although the config says so", model_untied(m));
}

int open_to_cut(const struct cmd *cmd, struct checkpoint **out, const char *path,
                const struct open_options *o, struct err *err)
{
    struct checkpoint *c;

    if (open_checkpoint(cmd, &c, path, o, err) < 0)
        return -1;
    if (c->model && model_family(c->model)->own &&
        model_check_lines(c->model, err) < 0) {
        checkpoint_close(c);
        return -1;
    }
    *out = c;
    return 0;
}

int check_config(const struct cmd *cmd, const struct model *m, enum keys_need need,
                 struct err *err)
{
    struct str ignored = { 0 };
    int ret = keys_check(m, need, &ignored, err);

    if (ret == 0 && cmd && ignored.len)
        cmd_warn(cmd, "%s: not known to family %s and ignored: %s",
                 model_config_name(m), m->family, str_text(&ignored));
    str_clear(&ignored);
    if (ret == 0 && cmd)
        warn_untied(cmd, m);
    return ret;
}

struct meter {
    struct timespec began, shown;
};

static double seconds_since(const struct timespec *then)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then->tv_sec) +
           1e-9 * (double)(now.tv_nsec - then->tv_nsec);
}

/* One line on a terminal, renewed ten times a second: a bar, share, rate, time left. */
static void show_progress(void *arg, uint64_t done, uint64_t total)
{
    static const char filled[] = "####################",
                      empty[] = "                    ";
    struct meter *m = arg;
    double elapsed = seconds_since(&m->began), rate = (double)done / elapsed;
    double share = total ? (double)done / (double)total : 1;
    int width = (int)sizeof(filled) - 1, bar = (int)(share * width);
    char size[32];

    if (done < total && seconds_since(&m->shown) < 0.1)
        return;
    clock_gettime(CLOCK_MONOTONIC, &m->shown);
    fprintf(stderr, "\r[%.*s%.*s] %3.0f %%  %s/s  %.0f s left \033[K", bar, filled,
            width - bar, empty, 100 * share, str_human(size, (uint64_t)rate),
            rate > 0 ? (double)(total - done) / rate : 0);
    if (done >= total)
        fputs("\r\033[K", stderr);
}

/* What was written, in one line. */
static void tell_result(const struct cmd *cmd, const struct checkpoint *ckpt,
                        const char *output, const struct mesh *mesh,
                        const struct convert_result *result, bool dry)
{
    struct str shown = { 0 };
    char size[32], *line;
    int files = 1;

    for (int a = 0; mesh && a < MESH_NAXES; a++)
        if (a == MESH_TP || a == MESH_EP || a == MESH_PP)
            files *= mesh->size[a];
    str_human(size, result->bytes);
    line = mesh ? str_dupf("%s: %d rank file%s, %s", output, files,
                           files > 1 ? "s" : "", size)
                : str_dupf("%s: %zu tensors, %s", output, ckpt->nweights, size);
    if (dry)
        str_add_printable(&shown, line);
    else
        cmd_warn(cmd, "%s", line);
    if (dry)
        printf("would write %s\n", str_text(&shown));
    str_clear(&shown);
    free(line);
}

/* What a job of several made, and what the others have still to make. */
static void tell_part(const struct cmd *cmd, const char *output,
                      const struct convert_options *opt,
                      const struct convert_result *result)
{
    char size[32], *which = opt->first == opt->last
                                ? str_dupf("%d", opt->first)
                                : str_dupf("%d-%d", opt->first, opt->last);

    str_human(size, result->bytes);
    if (result->waits)
        cmd_warn(cmd, "%s: %s %s, %s; of %d files, %s are missing", output, which,
                 result->there ? "had been made" : "made", size, result->of,
                 result->missing);
    else
        cmd_warn(cmd, "%s: %s %s, %s; it is complete", output, which,
                 result->there ? "had been made" : "made", size);
    free(which);
}

static void tell_damage(void *arg, const char *text)
{
    cmd_warn(arg, "%s; this copy was not needed", text);
}

int run_convert(const struct cmd *cmd, struct checkpoint *ckpt, const char *output,
                converter *how, struct convert_options *opt,
                const struct write_options *w)
{
    struct convert_result result;
    struct meter meter;
    struct err err = { 0 };
    char size[32];

    if (ckpt->model)
        warn_untied(cmd, ckpt->model);
    clock_gettime(CLOCK_MONOTONIC, &meter.began);
    meter.shown = meter.began;
    opt->force = w->force;
    if (cmd_progress(w->quiet)) {
        opt->progress = show_progress;
        opt->arg = &meter;
    }
    if (w->dry && !opt->exports && how != convert)
        return cmd_usage(cmd, "-n: not for codes of 8 or 4 bits");
    opt->dry = w->dry;
    if (how(ckpt, output, opt, &result, &err) < 0)
        return cmd_fail(cmd, &err);
    if (w->dry) {
        tell_result(cmd, ckpt, output, opt->mesh, &result, true);
        return cmd_finish(cmd, EXIT_SUCCESS);
    }
    if (ckpt->sharded && !opt->some)
        checkpoint_check_spared(ckpt, tell_damage, (void *)cmd);
    if (result.overflows)
        cmd_warn(cmd, "%" PRIu64 " values became infinite in %s", result.overflows,
                 dtype_name(*opt->dtype));
    if (result.continued && !w->quiet)
        cmd_warn(cmd, "continued: %s had been written",
                 str_human(size, result.continued));
    cmd_note(cmd, "%s a second",
             str_human(size,
                       (uint64_t)((double)result.bytes / seconds_since(&meter.began))));
    if (!w->quiet)
        warn_left(cmd, ckpt);
    if (!w->quiet)
        warn_not_exported(cmd, ckpt, &result);
    if (!w->quiet && opt->some)
        tell_part(cmd, output, opt, &result);
    else if (!w->quiet)
        tell_result(cmd, ckpt, output, opt->mesh, &result, false);
    return cmd_finish(cmd, EXIT_SUCCESS);
}
