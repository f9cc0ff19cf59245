/* exportzero - DeepSpeed's universal form, as load_checkpoint reads it with
 * load_universal_checkpoint
 *
 * The file latest_universal names a directory with zero/NAME/fp32.pt of each parameter
 * and, with an optimizer, exp_avg.pt, exp_avg_sq.pt and step.pt; with
 * zero/optimizer_state.pt; and with the model states, which stages 0 to 2 look for
 * under one name and stage 3 under another.  Facts: DeepSpeed 0.19.8,
 * checkpoint/{ds_to_universal,universal_checkpoint}.py, runtime/base_optimizer.py and
 * runtime/zero/stage3.py. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/ckpt/pickler.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/exportgroups.h"

static const char LATEST[] = "latest_universal", ZERO[] = "zero",
                  MODEL[] = "mp_rank_00_model_states.pt",
                  MODEL_3[] = "zero_pp_rank_0_mp_rank_00_model_states.pt",
                  OPTIMIZER[] = "optimizer_state.pt", STEP[] = "step.pt";
static const char WRITTEN_LIKE[] = "0.19.8"; /* the version whose form this is */

/* What a parameter has files of, and the role of it. */
static const struct part {
    const char *file, *role;
} parts[] = {
    { "fp32.pt", "master" },
    { "exp_avg.pt", "exp_avg" },
    { "exp_avg_sq.pt", "exp_avg_sq" },
};

enum { NPARTS = sizeof(parts) / sizeof(*parts) };

struct zero {
    char *tag;
    struct torchsave model; /* the model states: a storage for each weight */
};

/* Is weight I a parameter, and not carried along as a buffer? */
static bool is_parameter(const struct exporting *e, size_t i)
{
    return e->ckpt->which[i] >= 0 && dtype_is_float(e->ckpt->tensor[i].dtype);
}

/* The name of the directory, which the caller frees. */
static char *tag_dup(const struct exporting *e)
{
    return str_dupf("global_step%llu", (unsigned long long)e->run.step);
}

/* ---- pickles ---- */

static void put_flag(struct str *s, const char *name, bool on)
{
    pickler_text(s, name);
    pickler_bool(s, on);
}

static void put_number(struct str *s, const char *name, uint64_t value)
{
    pickler_text(s, name);
    pickler_count(s, value);
}

static void put_none(struct str *s, const char *name)
{
    pickler_text(s, name);
    pickler_none(s);
}

static void put_group(struct str *s, const struct exporting_run *r, bool undecayed)
{
    exportgroups_begin(s, r, undecayed ? 0 : r->decay);
    pickler_begin_list(s);
    pickler_count(s, undecayed);
    pickler_end_list(s);
    pickler_end_dict(s);
}

static void put_groups(struct str *s, const struct exporting_run *r)
{
    pickler_text(s, "param_groups");
    pickler_begin_list(s);
    put_group(s, r, false);
    put_group(s, r, true);
    pickler_end_list(s);
}

/* The shapes of the parameters that decay, or of the others. */
static void put_shapes(struct str *s, const struct exporting *e, bool undecayed)
{
    pickler_begin_dict(s);
    for (size_t i = 0; i < e->ckpt->nweights; i++) {
        const struct tensor *t = &e->ckpt->tensor[i];

        if (!is_parameter(e, i) || exporting_undecayed(e, i) != undecayed)
            continue;
        pickler_text(s, t->name);
        pickler_size(s, t->shape, t->ndim);
    }
    pickler_end_dict(s);
}

/* What model states say beside the weights. */
static void put_states(struct str *s, const struct exporting *e)
{
    static const char *const unset[] = { "optimizer",    "frozen_param_shapes",
                                         "lr_scheduler", "frozen_param_fragments",
                                         "data_sampler", "random_ltd" };

    pickler_text(s, "buffer_names");
    pickler_begin_list(s);
    for (size_t i = 0; i < e->ckpt->nweights; i++)
        if (!is_parameter(e, i))
            pickler_text(s, e->ckpt->tensor[i].name);
    pickler_end_list(s);
    pickler_text(s, "param_shapes");
    pickler_begin_list(s);
    put_shapes(s, e, false);
    put_shapes(s, e, true);
    pickler_end_list(s);
    pickler_text(s, "shared_params"); /* tied ones: the config says so */
    pickler_begin_dict(s);
    pickler_end_dict(s);
    for (size_t i = 0; i < sizeof(unset) / sizeof(*unset); i++)
        put_none(s, unset[i]);
    put_number(s, "skipped_steps", 0);
    put_number(s, "global_steps", e->run.step);
    put_number(s, "dp_world_size", 1);
    put_number(s, "mp_world_size", 1);
    pickler_text(s, "ds_config");
    pickler_begin_dict(s);
    pickler_end_dict(s);
    pickler_text(s, "ds_version");
    pickler_text(s, WRITTEN_LIKE);
}

/* ---- layout ---- */

static int lay_out(struct exporting *e, struct err *err)
{
    const struct checkpoint *c = e->ckpt;
    struct zero *z = e->own = xcalloc(1, sizeof(*z));
    struct str *s = &z->model.pickle;

    if (!c->model)
        return err_set(err, ERR_INPUT, "%s: a single file has no config.json", c->path);
    z->tag = tag_dup(e);
    pickler_begin(s, 2);
    pickler_begin_dict(s);
    pickler_text(s, "module");
    pickler_begin_dict(s);
    for (size_t i = 0; i < c->nweights; i++) {
        const struct tensor *t = &c->tensor[i];
        enum dtype type = exporting_type(e, i);
        uint64_t elements = 1, bytes;

        for (int k = 0; k < t->ndim; k++)
            elements *= t->shape[k]; /* no overflow: checked when they were read */
        if (!dtype_pytorch(type) || !dtype_bytes(&bytes, type, elements))
            return err_set(err, ERR_NO, "%s: %s: PyTorch has no type %s", c->path,
                           t->name, dtype_name(type));
        if (dtype_is_float(type) && dtype_bits(type) < 16)
            return err_set(err, ERR_NO,
                           "%s: %s: of type %s, of which DeepSpeed has no masters",
                           c->path, t->name, dtype_name(type));
        if (!fs_is_plain_name(t->name))
            return err_set(err, ERR_NO, "%s: %s: cannot be the name of a directory",
                           c->path, t->name);
        pickler_text(s, t->name);
        pickler_tensor(s, torchsave_add(&z->model, bytes), type, t->ndim, t->shape);
        e->total += bytes;
        for (int k = 0; is_parameter(e, i) && k < NPARTS; k++)
            if (!k || exporting_state(e, i, parts[k].role) >= 0)
                e->total += elements * sizeof(float);
    }
    pickler_end_dict(s);
    put_states(s, e);
    pickler_end_dict(s);
    pickler_end(s);
    torchsave_place(&z->model, 0);
    return 0;
}

/* Names the file FILE in the directory of parameter NAME, or, without one, in that of
 * the tag. */
static void name_file(struct exporting *e, const char *name, const char *file)
{
    char *tag = tag_dup(e);
    char *path = name ? str_dupf("%s/%s/%s/%s", tag, ZERO, name, file)
                      : str_dupf("%s/%s", tag, file);

    exporting_own(e, path);
    free(path);
    free(tag);
}

static void name_files(struct exporting *e)
{
    for (size_t i = 0; i < e->ckpt->nweights; i++) {
        for (int k = 0; k < NPARTS; k++)
            name_file(e, e->ckpt->tensor[i].name, parts[k].file);
        name_file(e, e->ckpt->tensor[i].name, STEP);
    }
    exporting_own(e, LATEST);
    name_file(e, NULL, MODEL);
    name_file(e, NULL, MODEL_3);
    name_file(e, NULL, "zero/optimizer_state.pt");
}

/* ---- writing ---- */

/* Writes the archive T, laid out at 0, whose only storage is a number: VALUE. */
static int write_number(struct exporting *e, const struct outdir *out, const char *name,
                        struct torchsave *t, float value, struct err *err)
{
    char *path = fs_join_dup(out->partial, name);
    int fd = outdir_create(out, name, err), ret = -1;

    torchsave_place(t, 0);
    t->storage[0].crc = hash_crc32(0, &value, sizeof(value));
    if (fd >= 0 &&
        fs_pwrite(fd, &value, sizeof(value), t->storage[0].at, path, err) == 0 &&
        exporting_gap(t, 0, fd, path, err) == 0)
        ret = exporting_gap(t, 1, fd, path, err);
    ret = exporting_close(e, out, fd, path, ret, err);
    free(path);
    torchsave_clear(t);
    return ret;
}

static int write_step(struct exporting *e, const struct outdir *out, struct err *err)
{
    struct torchsave t = { 0 };

    pickler_begin(&t.pickle, 2);
    pickler_tensor(&t.pickle, torchsave_add(&t, sizeof(float)), DTYPE_F32, 0, NULL);
    pickler_end(&t.pickle);
    return write_number(e, out, STEP, &t, (float)e->run.step, err);
}

/* Writes the file of PART of weight I, which tensor FROM is: {param, cat_dim}. */
static int write_part(struct exporting *e, const struct outdir *out, size_t i,
                      size_t from, const struct part *part, struct err *err)
{
    const struct tensor *w = &e->ckpt->tensor[i];
    struct torchsave t = { 0 };
    char *path = fs_join_dup(out->partial, part->file);
    int fd = outdir_create(out, part->file, err), ret = -1;
    struct exporting_place p = { .fd = fd, .path = path, .dtype = DTYPE_F32 };
    uint64_t bytes = sizeof(float);

    for (int k = 0; k < w->ndim; k++)
        bytes *= w->shape[k];
    pickler_begin(&t.pickle, 2);
    pickler_begin_dict(&t.pickle);
    put_number(&t.pickle, "cat_dim", 0);
    pickler_text(&t.pickle, "param");
    pickler_tensor(&t.pickle, torchsave_add(&t, bytes), DTYPE_F32, w->ndim, w->shape);
    pickler_end_dict(&t.pickle);
    pickler_end(&t.pickle);
    torchsave_place(&t, 0);
    p.at = t.storage[0].at;
    if (fd >= 0 && exporting_copy(e, from, &p, &t.storage[0].crc, err) == 0 &&
        exporting_gap(&t, 0, fd, path, err) == 0)
        ret = exporting_gap(&t, 1, fd, path, err);
    ret = exporting_close(e, out, fd, path, ret, err);
    torchsave_clear(&t);
    free(path);
    return ret;
}

static int write_parameter(struct exporting *e, const struct outdir *zero, size_t i,
                           struct err *err)
{
    struct outdir out;
    int ret = 0;

    if (outdir_enter(&out, zero, e->ckpt->tensor[i].name, err) < 0)
        return -1;
    for (int k = 0; k < NPARTS && ret == 0; k++) {
        long from = exporting_state(e, i, parts[k].role);

        if (from >= 0 || !k)
            ret = write_part(e, &out, i, from < 0 ? i : (size_t)from, &parts[k], err);
    }
    if (ret == 0 && exporting_state(e, i, "exp_avg") >= 0)
        ret = write_step(e, &out, err);
    return outdir_leave(&out, ret, err);
}

/* Writes the state of the optimizer as a whole, for stages 1 and 2 and, nested, for
 * stage 3. */
static int write_optimizer(struct exporting *e, const struct outdir *out,
                           struct err *err)
{
    struct torchsave t = { 0 };
    struct str *s = &t.pickle;

    pickler_begin(s, 2);
    pickler_begin_dict(s);
    put_flag(s, "dynamic_loss_scale", false);
    put_flag(s, "overflow", false);
    pickler_text(s, "ds_version");
    pickler_text(s, WRITTEN_LIKE);
    put_groups(s, &e->run);
    pickler_text(s, "optimizer_state_dict");
    pickler_begin_dict(s);
    pickler_text(s, "state");
    pickler_begin_dict(s);
    pickler_int(s, 0);
    pickler_begin_dict(s);
    pickler_text(s, "step");
    pickler_tensor(s, torchsave_add(&t, sizeof(float)), DTYPE_F32, 0, NULL);
    pickler_end_dict(s);
    pickler_end_dict(s);
    put_groups(s, &e->run);
    pickler_end_dict(s);
    pickler_end_dict(s);
    pickler_end(s);
    return write_number(e, out, OPTIMIZER, &t, (float)e->run.step, err);
}

static int write_zero(struct exporting *e, const struct outdir *tag, struct err *err)
{
    struct outdir zero;
    int ret = 0;

    if (outdir_enter(&zero, tag, ZERO, err) < 0)
        return -1;
    for (size_t i = 0; i < e->ckpt->nweights && ret == 0; i++)
        if (is_parameter(e, i))
            ret = write_parameter(e, &zero, i, err);
    if (ret == 0)
        ret = write_optimizer(e, &zero, err);
    return outdir_leave(&zero, ret, err);
}

/* Writes the model states, with the weights. */
static int write_model(struct exporting *e, struct zero *z, const struct outdir *tag,
                       struct err *err)
{
    char *path = fs_join_dup(tag->partial, MODEL);
    int fd = outdir_create(tag, MODEL, err), ret = fd < 0 ? -1 : 0;

    for (size_t i = 0; i < z->model.n && ret == 0; i++) {
        const struct exporting_place p = { .fd = fd,
                                           .path = path,
                                           .at = z->model.storage[i].at,
                                           .dtype = exporting_type(e, i) };

        ret = exporting_copy(e, i, &p, &z->model.storage[i].crc, err);
        if (ret == 0)
            ret = exporting_gap(&z->model, i, fd, path, err);
    }
    if (ret == 0)
        ret = exporting_gap(&z->model, z->model.n, fd, path, err);
    ret = exporting_close(e, tag, fd, path, ret, err);
    free(path);
    return ret;
}

/* The same for stage 3, which takes the weights from the files of the parameters. */
static int write_model_3(struct exporting *e, const struct outdir *tag, struct err *err)
{
    struct torchsave t = { 0 };
    int ret;

    pickler_begin(&t.pickle, 2);
    pickler_begin_dict(&t.pickle);
    pickler_text(&t.pickle, "module");
    pickler_begin_dict(&t.pickle);
    pickler_end_dict(&t.pickle);
    put_states(&t.pickle, e);
    pickler_end_dict(&t.pickle);
    pickler_end(&t.pickle);
    ret = exporting_object(e, tag, MODEL_3, &t, err);
    torchsave_clear(&t);
    return ret;
}

static int write_all(struct exporting *e, struct err *err)
{
    struct zero *z = e->own;
    struct outdir tag;
    int ret = -1;

    if (outdir_enter(&tag, &e->out, z->tag, err) < 0)
        return -1;
    if (write_zero(e, &tag, err) == 0 && write_model(e, z, &tag, err) == 0)
        ret = write_model_3(e, &tag, err);
    if (outdir_leave(&tag, ret, err) < 0)
        return -1;
    return outdir_write(&e->out, LATEST, z->tag, strlen(z->tag),
                        checkpoint_mode(e->ckpt), err);
}

static void clear(struct exporting *e)
{
    struct zero *z = e->own;

    if (z) {
        torchsave_clear(&z->model);
        free(z->tag);
    }
    free(z);
}

const struct export_form export_zero_form = { .name = "deepspeed-universal",
                                              .states = true,
                                              .plain = true,
                                              .name_files = name_files,
                                              .lay_out = lay_out,
                                              .write = write_all,
                                              .clear = clear };
