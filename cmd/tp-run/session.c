/* session - shared by the commands of tp-run: model options, tokenizer, ranks */
#define _GNU_SOURCE
#include "cmd/tp-run/session.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "cmd/conversion.h"
#include "cmd/tp-run/grammars.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/cpu/cpu.h"
#include "lib/reshard/smallfile.h"
#include "lib/ckpt/locate.h"
#include "lib/run/adapter.h"
#include "lib/run/base.h"
#include "lib/text/oldfiles.h"

/* ---- ids ---- */

void ids_add(struct ids *ids, int32_t id)
{
    ids->v = xgrow(ids->v, &ids->cap, ids->n + 1, sizeof(*ids->v));
    ids->v[ids->n++] = id;
}

void ids_clear(struct ids *ids)
{
    free(ids->v);
    *ids = (struct ids){ 0 };
}

void ids_print_json(struct str *out, const struct ids *ids)
{
    str_addc(out, '[');
    for (size_t i = 0; i < ids->n; i++)
        str_addf(out, "%s%d", i ? "," : "", (int)ids->v[i]);
    str_addc(out, ']');
}

/* Rejects padding ids for models that derive positions from padding. */
static int check_pad(const struct session *s, uint64_t id, const char *what,
                     struct err *err)
{
    double pad;

    if (!model_number(s->checkpoint->model, "no_pad", &pad) || (double)id != pad)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: id %llu is the padding id of family %s, which gives it no "
                   "position",
                   what, (unsigned long long)id, s->checkpoint->model->family);
}

static int check_id(const struct session *s, uint64_t id, const char *what,
                    struct err *err)
{
    double vocab, sources;

    if (!model_number(s->checkpoint->model, "vocab", &vocab))
        return check_pad(s, id, what, err);
    /* which of the two vocabularies applies is checked in inputs_use */
    if (model_number(s->checkpoint->model, "source_vocab", &sources) && sources > vocab)
        vocab = sources;
    if ((double)id < vocab)
        return check_pad(s, id, what, err);
    return err_set(err, ERR_INPUT, "%s: id %llu is not in the vocabulary of %.0f", what,
                   (unsigned long long)id, vocab);
}

static int check_type(const struct session *s, uint64_t type, const char *what,
                      struct err *err)
{
    const struct model *m = s->checkpoint->model;
    double types;

    if (!model_number(m, "types", &types))
        return err_set(err, ERR_INPUT, "%s: family %s has no token types", what,
                       m->family);
    if ((double)type < types)
        return 0;
    return err_set(err, ERR_INPUT, "%s: token type %llu is not below the model's %.0f",
                   what, (unsigned long long)type, types);
}

/* Parses numbers separated by commas or white space; each must pass CHECK. */
static int parse_numbers(const struct session *s, struct ids *out, const char *text,
                         const char *what,
                         int (*check)(const struct session *s, uint64_t id,
                                      const char *what, struct err *err),
                         struct err *err)
{
    static const char space[] = " \t\r\n";
    const char *p = text + strspn(text, space);

    while (*p) {
        size_t n = strcspn(p, ", \t\r\n");
        char word[24];
        uint64_t id;

        if (n >= sizeof(word))
            return err_set(err, ERR_INPUT, "%s: '%.20s...' is no id", what, p);
        memcpy(word, p, n);
        word[n] = '\0';
        if (!str_u64(word, &id) || id > INT32_MAX)
            return err_set(err, ERR_INPUT, "%s: '%s' is no id", what, word);
        if (check(s, id, what, err) < 0)
            return -1;
        ids_add(out, (int32_t)id);
        p += n + strspn(p + n, space);
        if (*p != ',')
            continue;
        p += 1 + strspn(p + 1, space);
        if (!*p)
            return err_set(err, ERR_INPUT, "%s: no id after the last comma", what);
    }
    return 0;
}

int session_parse_ids(const struct session *s, struct ids *out, const char *text,
                      const char *what, struct err *err)
{
    return parse_numbers(s, out, text, what, check_id, err);
}

int session_parse_types(const struct session *s, struct ids *out, const char *text,
                        const char *what, struct err *err)
{
    return parse_numbers(s, out, text, what, check_type, err);
}

/* Number of bytes before the first one that is not UTF-8. */
static size_t valid_bytes(const char *text, size_t len)
{
    uint32_t cp;
    size_t at = 0, n;

    while (at < len && (n = str_utf8_decode(text + at, len - at, &cp)) > 0)
        at += n;
    return at;
}

/* *found is a file with a tokenizer in an unsupported format, or NULL. */
static int find_other(const char **found, const struct session *s, struct err *err)
{
    static const char *const names[] = { "source.spm",      "sentencepiece.model",
                                         "tokenizer.model", "vocab-src.json",
                                         "vocab.json",      NULL };
    *found = NULL;
    for (int i = 0; names[i] && !*found; i++) {
        bool exists;

        if (fs_find_in(&exists, s->checkpoint->home, names[i], err) < 0)
            return -1;
        *found = exists ? names[i] : NULL;
    }
    return 0;
}

static int need_tokenizer(const struct session *s, struct err *err)
{
    const char *other, *ids = strcmp(s->cmd->name, "score") ? "--ids" : "--ids-file";

    if (s->tokenizer)
        return 0;
    if (s->no_tokenizer.kind)
        return err_set(err, s->no_tokenizer.kind, "%s", s->no_tokenizer.text);
    if (find_other(&other, s, err) < 0)
        return -1;
    if (other)
        return err_set(err, ERR_INPUT,
                       "%s: no tokenizer.json, and %s is not read; give %s",
                       s->checkpoint->home, other, ids);
    return err_set(err, ERR_INPUT, "%s: no tokenizer.json; give %s",
                   s->checkpoint->home, ids);
}

int session_add_tokens(const struct session *s, struct ids *out,
                       const struct tokens *tokens, struct err *err)
{
    for (size_t i = 0; i < tokens->n; i++) {
        if (check_id(s, tokens->id[i], "tokenizer.json", err) < 0)
            return -1;
        ids_add(out, (int32_t)tokens->id[i]);
    }
    return 0;
}

int session_encode(const struct session *s, struct ids *out, const char *text,
                   size_t len, struct err *err)
{
    struct tokens tokens = { 0 };
    int ret;

    if (need_tokenizer(s, err) < 0)
        return -1;
    if (!s->replaces && valid_bytes(text, len) < len)
        return err_set(err, ERR_INPUT, "not UTF-8 at byte %zu; see --invalid",
                       valid_bytes(text, len));
    if (tokenizer_encode(s->tokenizer, text, len, true, &tokens, err) < 0)
        return -1;
    ret = session_add_tokens(s, out, &tokens, err);
    tokens_clear(&tokens);
    return ret;
}

int session_encode_pair(const struct session *s, struct ids *out, struct ids *types,
                        size_t range[2], const char *text, const char *pair,
                        struct err *err)
{
    struct tokens tokens = { 0 }, kinds = { 0 };
    double has_types;
    int ret;

    if (need_tokenizer(s, err) < 0)
        return -1;
    ret = tokenizer_encode_pair(s->tokenizer, text, strlen(text), pair, strlen(pair),
                                &tokens, &kinds, range, err);
    if (ret == 0)
        ret = session_add_tokens(s, out, &tokens, err);
    if (model_number(s->checkpoint->model, "types", &has_types))
        for (size_t i = 0; i < kinds.n && ret == 0; i++) {
            ret = check_type(s, kinds.id[i], "tokenizer.json", err);
            if (ret == 0)
                ids_add(types, (int32_t)kinds.id[i]);
        }
    tokens_clear(&tokens);
    tokens_clear(&kinds);
    return ret;
}

int session_share_ids(const struct session *s, struct ids *ids, struct err *err)
{
    struct comm *c = s->launcher.world;
    uint64_t n = ids->n;

    if (!c)
        return 0;
    if (comm_run(c, comm_broadcast(&n, sizeof(n), 0), err) < 0)
        return -1;
    if (!launcher_is_front(&s->launcher)) {
        ids->v = xgrow(ids->v, &ids->cap, n + 1, sizeof(*ids->v));
        ids->n = n;
    }
    return comm_run(c, comm_broadcast(ids->v, n * sizeof(*ids->v), 0), err);
}

/* ---- generation settings ---- */

static void add_stop_ids(struct ids *stop, const cJSON *config)
{
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id"), *one;

    if (cJSON_IsNumber(eos))
        ids_add(stop, eos->valueint);
    cJSON_ArrayForEach(one, eos) if (cJSON_IsNumber(one)) ids_add(stop, one->valueint);
}

int session_stop_ids(struct ids *stop, const char *dir, struct err *err)
{
    static const char *const files[] = { "generation_config.json", "config.json" };

    for (int i = 0; i < 2 && !stop->n; i++) {
        char *path = fs_join_dup(dir, files[i]), *text;
        cJSON *config;
        int ret;

        if (fs_read_optional(&text, NULL, path, 1 << 24, err) < 0) {
            free(path);
            return -1;
        }
        if (!text) {
            free(path);
            continue;
        }
        ret = json_read_config(&config, path, text, strlen(text), err);
        free(text);
        free(path);
        if (ret < 0)
            return -1;
        add_stop_ids(stop, config);
        cJSON_Delete(config);
    }
    return 0;
}

/* The error of a missing tokenizer is reported only when text is given: ids need
 * none. */
static int open_tokenizer(struct session *s, struct err *err)
{
    char *path = fs_join_dup(s->checkpoint->home, "tokenizer.json");
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(
        model_config(s->checkpoint->model), "model_type");
    const struct source *source = &s->checkpoint->source;
    const char *made = source_made(source, "tokenizer.json");
    bool found;
    int ret = made ? tokenizer_parse(&s->tokenizer, s->checkpoint->path, made, err)
                   : fs_find(&found, path, err);

    if (ret == 0 && source->untokenized)
        ret = err_set(err, ERR_INPUT, "%s", source->untokenized);
    else if (ret == 0 && !made)
        ret = found
                  ? tokenizer_open(&s->tokenizer, path, err)
                  : oldfiles_open(&s->tokenizer, s->checkpoint->home,
                                  cJSON_IsString(type) ? type->valuestring : NULL, err);

    free(path);
    if (ret == 0 || err->kind != ERR_INPUT)
        return ret;
    s->no_tokenizer = *err;
    *err = (struct err){ 0 };
    return 0;
}

enum { SAMPLES = 64, SAMPLE = 4096 }; /* samples of a file: blocks, and bytes of each */

/* Adds blocks of the file PATH, of SIZE bytes, spread from its beginning to its end. */
static int add_samples(struct str *out, const char *path, uint64_t size,
                       struct err *err)
{
    char block[SAMPLE];
    int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;

    if (fd < 0)
        return err_errno(err, "%s", path);
    for (uint64_t i = 0; i < SAMPLES && ret == 0; i++) {
        uint64_t at = size > SAMPLE ? (size - SAMPLE) / (SAMPLES - 1) * i : 0;
        size_t n = size < SAMPLE ? (size_t)size : SAMPLE;

        ret = fs_pread(fd, block, n, at, path, err);
        if (ret == 0)
            str_addn(out, block, n);
    }
    close(fd);
    return ret;
}

/* Adds what tells a checkpoint from others: the shapes of the tensors and, if it is
 * sharded, the mesh and the manifest's checksums, otherwise the configuration and
 * samples of the weights. */
static int add_identity(struct str *all, const struct session *s, struct err *err)
{
    const struct checkpoint *c = s->checkpoint;
    char *path, *text = NULL;
    size_t len = 0;
    int ret = 0;

    for (size_t i = 0; i < c->ntensors; i++) {
        str_addf(all, "%s %d", c->tensor[i].name, (int)c->tensor[i].dtype);
        for (int k = 0; k < c->tensor[i].ndim; k++)
            str_addf(all, " %" PRIu64, c->tensor[i].shape[k]);
        str_addc(all, '\n');
    }
    if (c->sharded) {
        path = fs_join_dup(c->path, "checkpoint.json");
        ret = fs_read_regular(&text, &len, path, UINT64_C(1) << 32, err);
        free(path);
        if (ret == 0)
            str_addn(all, text, len);
        free(text);
        text = NULL;
    }
    for (size_t i = 0; i < c->source.ninputs && !c->sharded; i++) {
        const struct source_input *f = &c->source.input[i];

        str_addf(all, "%" PRIu64 "\n", f->size);
        if (add_samples(all, f->path, f->size, err) < 0)
            ret = -1;
    }
    if (!c->sharded && c->source.config)
        str_add(all, c->source.config);
    if (s->opt.family) {
        if (fs_read_regular(&text, &len, s->opt.family, UINT64_C(1) << 32, err) < 0)
            ret = -1;
        else
            str_addn(all, text, len);
        free(text);
    }
    for (const struct adapter *a = c->adapter; a; a = adapter_next(a)) {
        uint64_t size;
        const char *file = adapter_file(a, &size);

        str_addf(all, "%.17g %s=%s", adapter_weight(a),
                 adapter_chosen(a) ? adapter_name(a, adapter_chosen(a)) : "",
                 adapter_config(a));
        if (file && add_samples(all, file, size, err) < 0)
            ret = -1;
    }
    return ret;
}

int session_identity(uint32_t *crc, const struct session *s, struct err *err)
{
    struct str all = { 0 };
    int ret = add_identity(&all, s, err);

    *crc = hash_crc32(0, str_text(&all), all.len);
    str_clear(&all);
    return ret;
}

/* Checks that all ranks have the same checkpoint. */
static int compare_checkpoints(const struct session *s, struct err *err)
{
    struct str all = { 0 };
    int ret;

    if (!s->launcher.world)
        return 0;
    ret = add_identity(&all, s, err);
    /* collective: a rank that could not read takes part too */
    if (launcher_same(&s->launcher, str_text(&all), all.len, "checkpoint",
                      ret < 0 ? NULL : err) < 0)
        ret = -1;
    str_clear(&all);
    return ret;
}

static int add_adapter(struct session *s, const struct adapter_spec *spec,
                       struct err *err)
{
    if (s->opt.trains &&
        (s->checkpoint->adapter || spec->name || spec->weight < 1 || spec->weight > 1))
        return err_set(err, ERR_USAGE,
                       "--adapter: one adapter is trained, without a name or weight");
    if (spec->name && s->opt.no_choice)
        return err_set(err, ERR_USAGE,
                       "--adapter: %s=: no text chooses an adapter here: give it "
                       "without a name",
                       spec->name);
    if (adapter_open(s->checkpoint, spec, err) < 0)
        return -1;
    return launcher_is_front(&s->launcher) ? base_check(s->checkpoint, spec->dir, err)
                                           : 0;
}

/* Opens the adapters that are asked for, or the one beside the model, which
 * transformers applies, too. */
static int add_adapters(struct session *s, struct err *err)
{
    static const char name[] = "adapter_config.json";
    const struct opt_list *asked = &s->opt.adapters;
    struct adapter_spec spec = { .weight = 1 };
    int ret = 0;

    if (s->opt.no_adapter && (asked->n || s->located))
        return err_set(err, ERR_USAGE, "--ignore-adapter and --adapter: one of them");
    if (s->located) {
        spec.dir = s->located;
        return add_adapter(s, &spec, err);
    }
    for (size_t i = 0; i < asked->n && ret == 0; i++) {
        ret = adapter_spec_parse(&spec, asked->v[i], err);
        if (ret == 0)
            ret = add_adapter(s, &spec, err);
        adapter_spec_clear(&spec);
    }
    if (ret < 0 || asked->n || s->opt.no_adapter || !smallfile_has(s->checkpoint, name))
        return ret;
    if (s->opt.trains)
        return err_set(err, ERR_USAGE,
                       "%s/%s: an adapter of this model: --adapter %s trains it, "
                       "--ignore-adapter passes it over",
                       s->checkpoint->home, name, s->checkpoint->home);
    spec = (struct adapter_spec){ .dir = (char *)s->checkpoint->home, .weight = 1 };
    ret = add_adapter(s, &spec, err);
    if (ret == 0 && launcher_is_front(&s->launcher) && !s->opt.quiet)
        cmd_warn(s->cmd,
                 "%s/%s: the adapter beside the model is applied; --ignore-adapter "
                 "runs the model without it",
                 s->checkpoint->home, name);
    return ret;
}

int session_adapter(const struct session *s, int *out, const char *name,
                    struct err *err)
{
    *out = adapter_find(s->checkpoint->adapter, name);
    return *out
               ? 0
               : err_set(err, ERR_INPUT, "no adapter is called '%s' (--adapter)", name);
}

/* Where *PATH is an adapter alone, it becomes the model that it belongs to: that of
 * --base, or the one that its config names. */
static int find_base(struct session *s, const char **path, struct err *err)
{
    char *located;
    bool is = false;

    if (checkpoint_find(*path, err) < 0 || locate_model(&located, *path, true, err) < 0)
        return -1;
    if (base_is_adapter(&is, located, err) < 0 || !is) {
        free(located);
        return err->kind     ? -1
               : s->opt.base ? err_set(err, ERR_USAGE,
                                       "--base: %s is no adapter, but a model", *path)
                             : 0;
    }
    s->located = located;
    if (s->opt.adapters.n || s->opt.no_adapter)
        return err_set(err, ERR_USAGE, "--%s: %s is an adapter itself",
                       s->opt.adapters.n ? "adapter" : "ignore-adapter", *path);
    if (!s->opt.base && base_find(&s->base, located, err) < 0)
        return -1;
    *path = s->opt.base ? s->opt.base : s->base;
    return 0;
}

static int open_model(struct session *s, const char *path, struct err *err)
{
    double start;
    const struct session_options *opt = &s->opt;
    struct checkpoint_options options = { .family_file = opt->family,
                                          .config = opt->config,
                                          .draw = opt->draw,
                                          .average = opt->average,
                                          .any_moments = opt->moments,
                                          .vocab = opt->vocab,
                                          .vocab_zero = opt->vocab_zero,
                                          .family_path = family_path(s->cmd) };

    if (find_base(s, &path, err) < 0 ||
        checkpoint_open(&s->checkpoint, path, &options, err) < 0)
        return -1;
    if (!s->checkpoint->model)
        return err_set(err, ERR_INPUT,
                       "%s: a single file has no config.json to run by; give the "
                       "directory of both",
                       path);
    if (add_adapters(s, err) < 0 || adapter_replace(s->checkpoint, err) < 0)
        return -1;
    if (!opt->quiet && launcher_is_front(&s->launcher))
        warn_source(s->cmd, s->checkpoint);
    if (check_config(opt->quiet ? NULL : s->cmd, s->checkpoint->model, KEYS_NUMBERS,
                     err) < 0)
        return -1;
    if (mesh_from_options(&s->mesh, &opt->mesh, &s->checkpoint->mesh, err) < 0 ||
        model_check_mesh(s->checkpoint->model, &s->mesh, err) < 0)
        return -1;
    if (mesh_parse_sp_mode(&s->machine.across, opt->sp_mode, s->mesh.size[MESH_SP],
                           err) < 0)
        return -1;
    if (opt->same_bits && s->machine.across < s->mesh.size[MESH_SP])
        return err_set(err, ERR_USAGE,
                       "--deterministic: --sp-mode ring adds in another order; use "
                       "--sp-mode ulysses");
    s->context = model_context(s->checkpoint->model);
    s->source = model_number(s->checkpoint->model, "start", &start);
    s->start = s->source ? (int32_t)start : 0;
    if (open_tokenizer(s, err) < 0)
        return -1;
    s->grammars = s->tokenizer ? grammars_new(s->tokenizer) : NULL;
    return session_stop_ids(&s->stop, s->checkpoint->home, err);
}

/* Does the tokenizer of T decode ids as that of S?  Some of them are asked for. */
static int compare_tokens(const struct session *s, const struct session *t,
                          const char *path, struct err *err)
{
    enum { STRIDE = 61 };
    struct str own = { 0 }, other = { 0 };
    int ret = 0;

    for (uint32_t id = 0;
         s->tokenizer && t->tokenizer && ret == 0 &&
         id < tokenizer_size(s->tokenizer) && id < tokenizer_size(t->tokenizer);
         id += STRIDE) {
        own.len = other.len = 0;
        tokenizer_decode(s->tokenizer, &id, 1, false, &own);
        tokenizer_decode(t->tokenizer, &id, 1, false, &other);
        if (own.len != other.len || (own.len && memcmp(own.s, other.s, own.len) != 0))
            ret =
                err_set(err, ERR_INPUT,
                        "%s: its tokenizer is another one: token %u is not that of %s",
                        path, id, s->path);
    }
    str_clear(&own);
    str_clear(&other);
    return ret;
}

static int open_beside(const struct session *s, struct checkpoint **out,
                       const char *path, struct err *err)
{
    const struct checkpoint_options options = { .family_path = family_path(s->cmd) };
    struct session other = { .cmd = s->cmd };
    int ret;

    if (checkpoint_open(out, path, &options, err) < 0)
        return -1;
    if (!(*out)->model)
        return err_set(err, ERR_INPUT,
                       "%s: a single file has no config.json to run by; give the "
                       "directory of both",
                       path);
    other.checkpoint = *out;
    ret = check_config(s->opt.quiet ? NULL : s->cmd, (*out)->model, KEYS_NUMBERS, err) <
                      0 ||
                  open_tokenizer(&other, err) < 0
              ? -1
              : compare_tokens(s, &other, path, err);
    tokenizer_free(other.tokenizer);
    return ret;
}

int session_open_beside(const struct session *s, struct checkpoint **out,
                        const char *path, struct err *err)
{
    return launcher_agree(&s->launcher, open_beside(s, out, path, err), err);
}

int session_need_lm(const struct session *s, struct err *err)
{
    const struct model *m = s->checkpoint->model;
    double lm;

    if (!model_number(m, "lm", &lm) || lm != 0)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: this model has no language model head; 'tp-run logits' writes "
                   "its outputs",
                   model_config_name(m));
}

int session_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
}

/* Default number of threads of a rank on this machine. */
static int threads_of(const struct session *s)
{
    int cores = session_cores(), online = (int)sysconf(_SC_NPROCESSORS_ONLN);

    if (s->opt.threads)
        return s->opt.threads;
    if (s->launcher.world && cores < online)
        return cores; /* mpirun has bound this rank to its own cores */
    return cores > s->local_ranks ? cores / s->local_ranks : 1;
}

/* Parses --comm: auto, host or nccl. */
static int set_comm(struct session *s, struct err *err)
{
    const char *how = s->opt.comm ? s->opt.comm : "auto";
    struct wires_setup *wires = &s->machine.wires;

    wires->shared = s->opt.share_gpu;
    wires->limit_s = s->opt.timeout;
    if (!strcmp(how, "auto"))
        return 0;
    if (!strcmp(how, "host")) {
        wires->mode = WIRES_NONE;
        return 0;
    }
    if (strcmp(how, "nccl") != 0)
        return err_set(err, ERR_USAGE, "--comm: expected auto, host or nccl, not '%s'",
                       how);
    wires->mode = WIRES_MUST;
    return 0;
}

const char *const session_compute_names[] = {
    [COMPUTE_F32] = "f32", [COMPUTE_BF16] = "bf16", NULL
};

const char *const session_weights_names[] = { [WEIGHTS_STORED] = "stored",
                                              [WEIGHTS_INT8] = "int8",
                                              [WEIGHTS_INT4] = "int4",
                                              [WEIGHTS_CODES] = "codes",
                                              NULL };

/* Parses --devices: numbers with commas between, none of them twice. */
static int set_devices(struct session *s, struct err *err)
{
    const char *p = s->opt.devices;
    size_t n, cap = 0;
    int count = 0;

    if (!p)
        return 0;
    for (;; p += n + 1) {
        char word[12] = "";

        n = strcspn(p, ",");
        memcpy(word, p, n < sizeof(word) ? n : sizeof(word) - 1);
        s->devices = xgrow(s->devices, &cap, (size_t)count + 1, sizeof(*s->devices));
        if (n >= sizeof(word) || !str_int(word, &s->devices[count]) ||
            s->devices[count] < 0)
            return err_set(err, ERR_USAGE,
                           "--devices: expected numbers such as 0,2, not '%s'",
                           s->opt.devices);
        for (int i = 0; i < count; i++)
            if (s->devices[i] == s->devices[count])
                return err_set(err, ERR_USAGE, "--devices: %d stands twice in '%s'",
                               s->devices[i], s->opt.devices);
        count++;
        if (!p[n])
            break;
    }
    s->machine.devices = s->devices;
    s->machine.ndevices = count;
    return 0;
}

/* Sets the type of cached keys and values (--kv-dtype). */
static int set_cache(struct session *s, struct err *err)
{
    static const enum format of[] = { FORMAT_F32, FORMAT_BF16, FORMAT_CACHE_INT8,
                                      FORMAT_CACHE_FP8, FORMAT_CACHE_INT4 };

    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
        if (!s->opt.kv_dtype || !strcmp(format_name(of[i]), s->opt.kv_dtype)) {
            s->machine.kept = of[i];
            return 0;
        }
    return err_set(err, ERR_USAGE,
                   "--kv-dtype: expected f32, bf16, int8, fp8 or int4, not '%s'",
                   s->opt.kv_dtype);
}

/* The checkpoint whose files are mapped.  If another program truncates one of them,
 * reading it raises SIGBUS. */
static const struct checkpoint *mapped;

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void file_gone(int sig, siginfo_t *info, void *context)
{
    static atomic_flag found = ATOMIC_FLAG_INIT;
    const char *name = checkpoint_mapped(mapped, info->si_addr);

    (void)sig;
    (void)context;
    while (name && atomic_flag_test_and_set(&found))
        pause(); /* another thread ends the program */
    if (!name) {
        /* not a checkpoint file: the access repeats and ends the program */
        signal(SIGBUS, SIG_DFL);
        return;
    }
    say("tp-run: ");
    say(mapped->path);
    say("/");
    say(name);
    say(": was truncated, or cannot be read, while it was in use\n");
    _exit(ERR_SYSTEM);
}

static struct sigaction segv_before; /* a sanitizer's, perhaps */

/* oneDNN has no memory: see cpu_is_dnnl.  A pointer of ours that is wrong is another
 * matter. */
static void no_memory(int sig, siginfo_t *info, void *context)
{
    const mcontext_t *m = &((const ucontext_t *)context)->uc_mcontext;
#if defined(__x86_64__)
    const void *code = (const void *)(uintptr_t)m->gregs[REG_RIP];
#elif defined(__aarch64__)
    const void *code = (const void *)(uintptr_t)m->pc;
#else
    const void *code = NULL;
#endif
    enum { NEAR = 1 << 20 };

    (void)m;
    if (!code || (uintptr_t)info->si_addr >= NEAR || !cpu_is_dnnl(code)) {
        sigaction(sig, &segv_before, NULL); /* the access repeats */
        if (info->si_code <= 0)             /* another process has sent it */
            raise(sig);
        return;
    }
    say("tp-run: out of memory: oneDNN has no room for the code that it generates\n");
    _exit(ERR_SYSTEM);
}

static void watch_memory(const struct session *s)
{
    struct sigaction files = { .sa_sigaction = file_gone,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK };
    struct sigaction dnnl = { .sa_sigaction = no_memory,
                              .sa_flags = SA_SIGINFO | SA_ONSTACK };

    mapped = s->checkpoint;
    sigemptyset(&files.sa_mask);
    sigemptyset(&dnnl.sa_mask);
    sigaction(SIGBUS, &files, NULL);
    sigaction(SIGSEGV, &dnnl, &segv_before);
}

int session_open(struct session *s, const struct cmd *cmd,
                 const struct session_options *opt, const char *path, struct err *err)
{
    struct err none = { 0 };
    int own, ret;

    *s = (struct session){ .cmd = cmd, .opt = *opt, .path = path };
    s->machine.form = (enum weights_form)opt->weights;
    s->machine.unfused = opt->unfused;
    if (set_comm(s, err) < 0 || set_devices(s, err) < 0 || set_cache(s, err) < 0)
        return -1;
    ret = choice_candidates(&s->asked, opt->backend, &none);
    if (none.kind == ERR_USAGE)
        return err_set(err, none.kind, "%s", none.text);
    if (launcher_open(&s->launcher, opt->launcher, opt->timeout, err) < 0)
        return -1;
    if (ret < 0) /* perhaps on this machine alone */
        err_set(err, none.kind, "%s", none.text);
    if (launcher_agree(&s->launcher, ret, err) < 0)
        return -1;
    if (launcher_agree(&s->launcher, open_model(s, path, err), err) < 0)
        return -1;
    if (launcher_signal_stack(err) < 0)
        return -1;
    watch_memory(s);
    if (launcher_agree(&s->launcher,
                       launcher_is_front(&s->launcher) && !opt->draw
                           ? checkpoint_check_carried(s->checkpoint, err)
                           : 0,
                       err) < 0)
        return -1;
    s->local_ranks = launcher_local_ranks(&s->launcher, s->mesh.nranks, &own);
    s->machine.local = own + 1;
    s->machine.ranks = s->local_ranks;
    s->machine.threads = threads_of(s);
    if (!launcher_is_front(&s->launcher))
        cmd_hush();
    return launcher_agree(&s->launcher, compare_checkpoints(s, err), err);
}

/* ---- the backend ---- */

/* The programs that this process decides for: those of its rank or, before the ranks
 * are started, of each stage, because the ranks of a stage differ in sizes alone.  They
 * are appended to NEED. */
static int add_needs(const struct session *s, struct choice_need *need, size_t *n,
                     const struct program_options *options, struct err *err)
{
    const struct comm *world = s->launcher.world;
    bool own = world && world->size == s->mesh.nranks;

    for (int i = 0; i < (own ? 1 : s->mesh.size[MESH_PP]); i++) {
        int coord[MESH_NAXES] = { [MESH_PP] = i };
        struct program *p;

        if (own)
            mesh_coord(&s->mesh, world->rank, coord);
        if (program_build(&p, s->checkpoint->model, &s->mesh, coord, options, err) < 0)
            return -1;
        need[(*n)++] =
            (struct choice_need){ .program = p,
                                  .checkpoint = s->checkpoint,
                                  .form = s->machine.form,
                                  .kept = s->machine.kept,
                                  .trains = options->reverse,
                                  .update = optimizer_table[s->optimizer].update };
    }
    return 0;
}

/* Says which backend is taken, and if it is not the first, why. */
static void say_choice(const struct session *s)
{
    const struct choice *c = &s->choice;
    struct str line = { 0 };

    cmd_note(s->cmd,
             "%s: family %s, %d ranks, %d of them here, of %d threads, backend %s",
             s->path, s->checkpoint->model->family, s->mesh.nranks, s->local_ranks,
             s->machine.threads, c->ops->name);
    if (!launcher_is_front(&s->launcher) || !c->instead_of)
        return;
    if (!s->opt.quiet)
        cmd_warn(s->cmd, "backend %s instead of %s: %s", c->ops->name,
                 c->instead_of->name, c->reason);
    if (!s->opt.json)
        return;
    str_addf(&line, "{\"type\":\"fallback\",\"backend\":\"%s\",\"instead_of\":\"%s\"",
             c->ops->name, c->instead_of->name);
    str_add(&line, ",\"reason\":");
    str_add_json(&line, c->reason);
    str_addc(&line, '}');
    puts(str_text(&line));
    str_clear(&line);
}

int session_choose(struct session *s, const struct program_options *options, size_t n,
                   struct err *err)
{
    struct choice_need *need =
        xcalloc(n * (size_t)s->mesh.size[MESH_PP] + 1, sizeof(*need));
    size_t needs = 0;
    int ret = 0;

    s->asked.devices = s->opt.devices != NULL;
    s->asked.collectives = s->machine.wires.mode == WIRES_MUST;
    for (size_t i = 0; i < n && ret == 0; i++)
        ret = add_needs(s, need, &needs, &options[i], err);
    for (size_t i = 0; i < needs; i++) {
        const struct program *p = need[i].program;

        s->rows = p->rows;
        for (int k = 0; k < p->ninputs; k++)
            s->reads[k] |= p->input[k].used;
    }
    ret = launcher_agree(&s->launcher, ret, err);
    if (ret == 0)
        ret = launcher_agree(
            &s->launcher,
            choice_make(&s->choice, &s->asked, need, needs, s->launcher.world, err),
            err);
    for (size_t i = 0; i < needs; i++)
        program_free((struct program *)(uintptr_t)need[i].program);
    free(need);
    if (ret < 0)
        return -1;
    s->machine.ops = s->choice.ops;
    say_choice(s);
    if (launcher_is_crowded(&s->launcher) && launcher_is_front(&s->launcher) &&
        !s->opt.quiet &&
        (!s->machine.ops->collectives || s->machine.wires.mode == WIRES_NONE))
        cmd_warn(s->cmd,
                 "%d ranks have a TCP connection each to each: MPI (--launcher mpi) or "
                 "NCCL (--comm nccl) serves so many better",
                 s->launcher.world->size);
    return 0;
}

void session_close(struct session *s)
{
    mapped = NULL;
    grammars_free(s->grammars);
    tokenizer_free(s->tokenizer);
    ids_clear(&s->stop);
    free(s->devices);
    if (s->checkpoint)
        adapter_close(s->checkpoint->adapter);
    checkpoint_close(s->checkpoint);
    free(s->located);
    free(s->base);
    launcher_close(&s->launcher);
}

/* Adds the parts of LIST that lie in WHERE, each as a key; BEFORE stands before the
 * first. */
static void add_parts(struct str *out, const struct ledger *list,
                      enum ledger_where where, const char *before)
{
    for (int i = 0; i < list->n; i++)
        if (list->part[i].where == where) {
            str_addf(out, "%s\"%s\":%" PRIu64, before, list->part[i].name,
                     list->part[i].bytes);
            before = ",";
        }
}

static void report_rank(int rank, const struct ledger *list)
{
    uint64_t host = ledger_sum(list, LEDGER_HOST), file = ledger_sum(list, LEDGER_FILE);
    struct str out = { 0 };

    str_addf(&out, "{\"type\":\"memory\",\"rank\":%d", rank);
    str_addf(&out, ",\"weights\":%" PRIu64, ledger_of(list, "weights"));
    for (int i = 0; i < list->n; i++)
        if (list->part[i].where == LEDGER_DEVICE &&
            strcmp(list->part[i].name, "weights") != 0)
            str_addf(&out, ",\"%s\":%" PRIu64, list->part[i].name, list->part[i].bytes);
    str_addf(&out, ",\"total\":%" PRIu64 ",\"mapped\":%" PRIu64,
             ledger_sum(list, LEDGER_DEVICE) + file, file);
    if (host) {
        str_addf(&out, ",\"host\":{\"total\":%" PRIu64, host);
        add_parts(&out, list, LEDGER_HOST, ",");
        str_addc(&out, '}');
    }
    if (ledger_sum(list, LEDGER_SHARED)) {
        add_parts(&out, list, LEDGER_SHARED, ",\"shared\":{");
        str_addc(&out, '}');
    }
    fprintf(stderr, "%s}\n", str_text(&out));
    str_clear(&out);
}

int session_report_list(const struct session *s, struct ledger *mine, struct comm *comm,
                        struct err *err)
{
    struct ledger *all;
    struct comm_memory held;
    int ret;

    if (!s->opt.memory)
        return 0;
    comm_held(comm, &held);
    ledger_add(mine, "mapped", LEDGER_SHARED, held.mapped);
    ledger_add(mine, "collectives", LEDGER_SHARED, held.slots);
    ledger_add(mine, "messages", LEDGER_SHARED, held.rings);
    all = xcalloc((size_t)comm->size, sizeof(*all));
    ret = comm_run(comm, comm_all_gather(mine, all, sizeof(*mine)), err);
    for (int i = 0; ret == 0 && comm->rank == 0 && i < comm->size; i++)
        report_rank(i, &all[i]);
    free(all);
    return ret;
}

int session_report_with(const struct session *s, const struct runner *r,
                        const struct ledger *more, struct comm *comm, struct err *err)
{
    struct ledger mine = { 0 };

    if (r->shares && comm->rank == 0 && !s->opt.quiet)
        cmd_warn(s->cmd, "ranks see one GPU, and the same one: they share it, as with "
                         "--share-gpu");
    runner_memory(r, &mine);
    if (more)
        ledger_add_all(&mine, more);
    return session_report_list(s, &mine, comm, err);
}

int session_report(const struct session *s, const struct runner *r, struct comm *comm,
                   struct err *err)
{
    return session_report_with(s, r, NULL, comm, err);
}

int session_run(struct session *s, rank_main main, void *arg)
{
    assert(s->machine.ops); /* session_choose */
    return launcher_run(&s->launcher, s->cmd, s->mesh.nranks, main, arg);
}
