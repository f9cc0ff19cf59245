/* held - the format in which a program's weights are held while it runs */
#include "lib/run/held.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/reshard/unpack.h"
#include "lib/run/adapter.h"

/* READER[i] of H = an instruction of the forward pass that reads weight I of P. */
static void find_readers(struct held *h, const struct program *p)
{
    for (int k = 0; k < p->nforward; k++) {
        const struct inst *inst = &p->inst[k];
        const int of[] = { inst->weight, inst->weight2 };

        for (int j = 0; j < 2; j++) {
            int n = of[j] >= 0 && p->weight[of[j]].experts
                        ? (int)p->weight[of[j]].experts
                        : 1;

            for (int i = of[j]; i >= 0 && i < of[j] + n; i++)
                h[i].reader = inst;
        }
    }
}

/* What there is of a checkpoint. */
struct origin {
    const struct model *model;
    const enum dtype *stored; /* [sources]; NULL: all is of this type */
    enum dtype all;
    const struct adapter *adapter;
};

/* How O has the tensor T. */
static void find_stored(struct held *h, const struct origin *o, size_t t)
{
    const struct model *m = o->model;
    long source = m->tensor[t].source;
    enum dtype type = DTYPE_F32;

    h->packed = o->stored && model_packing(m, t, &h->packing);
    if (!o->stored) {
        h->foreign = !format_of(&h->wide, o->all);
        return;
    }
    if (h->packed) {
        long scales = h->packing.part[PACKED_SCALES];

        source = scales < 0 ? -1 : m->tensor[scales].source;
        type = model_unpacked(m, &h->packing, source < 0 ? type : o->stored[source]);
    } else if (source >= 0) {
        type = o->stored[source];
    }
    h->foreign = (source < 0 && !h->packed) || !format_of(&h->wide, type) ||
                 (type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_F16);
    if (h->foreign)
        h->wide = FORMAT_F32;
}

/* How the file of O's adapter has W. */
static void find_beside(struct held *h, const struct origin *o, const struct weight *w)
{
    enum dtype type = o->adapter ? adapter_dtype(o->adapter, w) : DTYPE_F32;

    h->foreign = !format_of(&h->wide, type);
}

/* Can a weight of tensor T become codes of F? */
static bool can_encode(const struct held *h, const struct model_tensor *t,
                       enum format f)
{
    const struct format_row *row = &format_table[f];
    int in = h->how == PACKABLE_ROWS ? t->ndim - 1 : t->ndim - 2;

    if (h->how == PACKABLE_NOT || !h->reader || t->ndim < 2)
        return false;
    return !row->whole || t->axis[in]->size % row->numbers == 0;
}

/* Keeps the codes of tensor T of O, if the instructions that read it can. */
static void find_kept(struct held *h, const struct origin *o, size_t t)
{
    enum format f;

    h->kept = h->packed && h->reader && h->how == PACKABLE_ROWS &&
              unpack_keeps(&f, &h->per, o->model, o->stored, t, &h->packing);
    if (h->kept)
        h->format = f;
}

static int find_all(struct held **out, const struct origin *o,
                    const struct program *program, enum weights_form form,
                    const bool *trained, bool drawn, struct err *err)
{
    static const enum format made[] = { [WEIGHTS_STORED] = FORMAT_F32,
                                        [WEIGHTS_INT8] = FORMAT_INT8,
                                        [WEIGHTS_INT4] = FORMAT_INT4,
                                        [WEIGHTS_CODES] = FORMAT_F32 };
    struct held *h = xcalloc((size_t)program->nweights + 1, sizeof(*h));
    enum packable *how = NULL;

    if (form != WEIGHTS_STORED) {
        how = packable_new(program->model, err);
        if (!how) {
            free(h);
            return -1;
        }
    }
    find_readers(h, program);
    for (int i = 0; i < program->nweights; i++) {
        size_t t = program->weight[i].tensor;
        bool wide;

        if (program->weight[i].adapter)
            find_beside(&h[i], o, &program->weight[i]);
        else
            find_stored(&h[i], o, t);
        wide = trained && (drawn || program->weight[i].rows == 1 || trained[i]);
        h[i].format = wide ? FORMAT_F32 : h[i].wide;
        if (!how || wide || program->weight[i].adapter)
            continue;
        h[i].how = how[t];
        if (form == WEIGHTS_CODES) {
            find_kept(&h[i], o, t);
            continue;
        }
        h[i].coded = can_encode(&h[i], &program->model->tensor[t], made[form]);
        if (h[i].coded && h[i].packed)
            h[i].wide = FORMAT_F32;
        if (h[i].coded)
            h[i].format = made[form];
    }
    free(how);
    *out = h;
    return 0;
}

int held_find(struct held **out, const struct checkpoint *c,
              const struct program *program, enum weights_form form, bool trains,
              struct err *err)
{
    enum dtype *stored = xcalloc(c->ntensors + 1, sizeof(*stored));
    bool *trained =
        trains ? xcalloc((size_t)program->nweights + 1, sizeof(*trained)) : NULL;
    int ret;

    for (size_t i = 0; i < c->ntensors; i++)
        stored[i] = checkpoint_dtype(c, i);
    for (int i = 0; i < program->nweights && trained; i++)
        trained[i] = program_trains(program, i);
    ret = find_all(
        out,
        &(struct origin){ .model = c->model, .stored = stored, .adapter = c->adapter },
        program, form, trained, c->drawn, err);
    free(trained);
    free(stored);
    return ret;
}

int held_foretell(struct held **out, const struct held_types *types,
                  const struct program *program, enum weights_form form,
                  const bool *trained, struct err *err)
{
    return find_all(out,
                    &(struct origin){ .model = program->model,
                                      .stored = types->stored,
                                      .all = types->all },
                    program, form, trained, false, err);
}

void held_shape(const struct held *h, const struct weight *w, uint64_t *rows,
                uint64_t *cols)
{
    bool turned = h->coded && h->how == PACKABLE_COLS;

    *rows = turned ? w->cols : w->rows;
    *cols = turned ? w->rows : w->cols;
}

bool held_bytes(uint64_t *bytes, const struct held *h, const struct weight *w)
{
    uint64_t rows, cols, scales;

    held_shape(h, w, &rows, &cols);
    return format_bytes(bytes, h->format, rows, cols) &&
           format_scale_bytes(&scales, h->format, rows, cols, h->kept ? h->per : 0) &&
           mem_add(bytes, *bytes, scales);
}
