/* partconfig - config.json with which one rank's shard opens as a model of its own */
#include "lib/model/partconfig.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/model/state.h"

/* The member of "part_config" that is a condition. */
static const char WHEN[] = "when";

static bool is_key(const struct family_entry *e)
{
    return strcmp(e->key, WHEN) != 0;
}

/* The shape of entry E as an axis. */
static int parse_shape(struct axis *out, const struct model *m,
                       const struct family_entry *e, struct err *err)
{
    struct err cause = { 0 };

    if (!json_string(e->json))
        return family_error(e->doc, e->json, 0, err, "expected a shape");
    if (axis_parse(out, e->json->text, &m->scope, &cause) < 0)
        return family_place(e->doc, e->json, 0, &cause, err);
    return 0;
}

/* Does the condition E hold for the model M? */
static int check_when(bool *holds, const struct model *m, const struct family_entry *e,
                      struct err *err)
{
    if (!json_string(e->json))
        return family_error(e->doc, e->json, 0, err, "expected a condition");
    return model_when(m, e->doc, e->json, -1, false, holds, err);
}

int partconfig_check(const struct model *m, struct err *err)
{
    const struct family_table *t = &m->state->family->part_config;

    for (size_t i = 0; i < t->n; i++) {
        struct axis a;
        bool holds;

        if (!is_key(&t->v[i])) {
            if (check_when(&holds, m, &t->v[i], err) < 0)
                return -1;
            continue;
        }
        if (parse_shape(&a, m, &t->v[i], err) < 0)
            return -1;
        axis_clear(&a);
    }
    return 0;
}

/* Appends CONFIG with the numbers VALUE under the family's keys; keys that it lacks are
 * added at the end. */
static void print_config(struct str *out, const struct json *config,
                         const struct family_table *keys, const uint64_t *value)
{
    const char *before = "{\n";

    for (const struct json *j = config->first; j; j = j->next) {
        const struct family_entry *e = family_get(keys, j->key);

        str_addf(out, "%s  ", before);
        str_add_json(out, j->key);
        str_add(out, ": ");
        if (e && is_key(e))
            str_addf(out, "%" PRIu64, value[e - keys->v]);
        else
            json_print(out, j);
        before = ",\n";
    }
    for (size_t i = 0; i < keys->n; i++)
        if (is_key(&keys->v[i]) && !json_get(config, keys->v[i].key)) {
            str_addf(out, "%s  ", before);
            str_add_json(out, keys->v[i].key);
            str_addf(out, ": %" PRIu64, value[i]);
            before = ",\n";
        }
    str_add(out, "\n}\n");
}

/* Checks PART, the model with the rank's config.json: the family's condition, and that
 * its shapes are those of the rank's slices.  They differ if "part_config" lacks a
 * sharded symbol. */
static int check_part(const struct model *m, const struct model *part,
                      struct cutter *cutter, struct err *err)
{
    const struct family_entry *when = family_get(&m->state->family->part_config, WHEN);
    bool holds = true;

    if (when && check_when(&holds, part, when, err) < 0)
        return -1;
    if (!holds)
        return err_set(err, ERR_NO, "%s does not hold for it", when->json->text);
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct model_tensor *has = &m->tensor[i];
        struct slice s;
        bool same = part->ntensors == m->ntensors;

        cutter_slice(cutter, i, &s);
        for (int k = 0; k < has->ndim && same && s.held; k++)
            same = part->tensor[i].ndim == has->ndim &&
                   part->tensor[i].axis[k]->size == s.runs[k]->count;
        if (!same)
            return err_set(err, ERR_NO, "config.json cannot say what it has of %s",
                           has->name);
    }
    return 0;
}

static bool deals_vocabulary(const struct model *m)
{
    for (int i = 0; i < m->state->ndeals; i++)
        if (!strcmp(m->scope.sym[m->state->deal[i].sym].name, "vocab"))
            return true;
    return false;
}

/* True if a weight has companions (scales, zeros). */
static bool is_quantized(const struct model *m)
{
    for (size_t i = 0; i < m->state->ndefs; i++)
        if (m->state->def[i].companion_of >= 0)
            return true;
    return false;
}

/* What no config.json can express, whatever its keys. */
static int check_mesh(const struct model *m, const struct mesh *mesh, struct err *err)
{
    if (mesh->size[MESH_EP] > 1)
        return err_set(err, ERR_NO,
                       "--rank-configs: config.json cannot say which experts a part "
                       "has: ep must be 1");
    if (!mesh->keep_vocab && deals_vocabulary(m))
        return err_set(err, ERR_USAGE,
                       "--rank-configs: the vocabulary is cut; --keep-vocab leaves it "
                       "whole");
    if (is_quantized(m))
        return err_set(err, ERR_NO,
                       "--rank-configs: quantized weights cannot be opened by parts");
    if (!m->state->family->part_config.n)
        return err_set(err, ERR_NO,
                       "--rank-configs: config.json cannot say a part of a model of "
                       "family %s",
                       m->family);
    return 0;
}

/* Sets VALUE[i] to the rank's count for key i. */
static int count_keys(uint64_t *value, const struct model *m, const struct mesh *mesh,
                      const int coord[MESH_NAXES], struct err *err)
{
    const struct family_table *keys = &m->state->family->part_config;
    struct share *share = model_shares(m, mesh, coord);
    int ret = 0;

    for (size_t i = 0; i < keys->n && ret == 0; i++) {
        struct axis a;

        if (!is_key(&keys->v[i]))
            continue;
        ret = parse_shape(&a, m, &keys->v[i], err);
        if (ret < 0)
            break;
        value[i] = axis_count(&a, NULL, &m->scope, share);
        if (!value[i])
            ret = err_set(err, ERR_NO, "it has nothing of %s", a.text);
        axis_clear(&a);
    }
    free(share);
    return ret;
}

int partconfig_print(struct str *out, const struct model *m, const char *name,
                     const char *config, const struct mesh *mesh,
                     const int coord[MESH_NAXES], struct err *err)
{
    const struct family_table *keys = &m->state->family->part_config;
    uint64_t *value = NULL;
    struct cutter *cutter = NULL;
    struct model *part = NULL;
    struct json_doc doc;
    size_t before = out->len;
    int ret = -1;

    if (mesh->size[MESH_TP] == 1 && mesh->size[MESH_EP] == 1 && !mesh->pad_vocab) {
        str_add(out, config);
        return 0;
    }
    if (check_mesh(m, mesh, err) < 0 ||
        json_parse_config(&doc, name, config, strlen(config), err) < 0)
        return -1;
    value = xcalloc(keys->n, sizeof(*value));
    if (count_keys(value, m, mesh, coord, err) < 0)
        goto out;
    print_config(out, doc.root, keys, value);
    if (cutter_open(&cutter, m, mesh, coord, err) < 0 ||
        model_open_flat(&part, name, out->s + before, model_family_text(m), err) < 0)
        goto out;
    ret = check_part(m, part, cutter, err);
out:
    if (ret < 0 && err->kind == ERR_NO)
        err_prefix(err, "--rank-configs: the part at tp %d", coord[MESH_TP]);
    cutter_free(cutter);
    model_free(part);
    free(value);
    json_clear(&doc);
    return ret;
}
