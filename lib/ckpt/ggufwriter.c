/* ggufwriter - the header of a GGUF file that is written */
#include "lib/ckpt/ggufwriter.h"

#include <string.h>

static void put(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(v >> 8 * i & 0xff));
}

static void put_text(struct str *s, const char *text, size_t n)
{
    put(s, n, 8);
    str_addn(s, text, n);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static void put_key(struct ggufwriter *w, const char *prefix, const char *name,
                    enum gguf_kind kind)
{
    put(&w->pairs, strlen(name) + (prefix ? strlen(prefix) + 1 : 0), 8);
    if (prefix) {
        str_add(&w->pairs, prefix);
        str_addc(&w->pairs, '.');
    }
    str_add(&w->pairs, name);
    put(&w->pairs, kind, 4);
    w->npairs++;
}

void ggufwriter_u32(struct ggufwriter *w, const char *prefix, const char *name,
                    uint32_t value)
{
    put_key(w, prefix, name, GGUF_U32);
    put(&w->pairs, value, 4);
}

void ggufwriter_f32(struct ggufwriter *w, const char *prefix, const char *name,
                    float value)
{
    put_key(w, prefix, name, GGUF_F32);
    put(&w->pairs, bits_of(value), 4);
}

void ggufwriter_bool(struct ggufwriter *w, const char *prefix, const char *name,
                     bool value)
{
    put_key(w, prefix, name, GGUF_BOOL);
    put(&w->pairs, value, 1);
}

void ggufwriter_text(struct ggufwriter *w, const char *prefix, const char *name,
                     const char *text, size_t n)
{
    put_key(w, prefix, name, GGUF_TEXT);
    put_text(&w->pairs, text, n);
}

void ggufwriter_list(struct ggufwriter *w, const char *prefix, const char *name,
                     enum gguf_kind kind, uint64_t n)
{
    put_key(w, prefix, name, GGUF_ARRAY);
    put(&w->pairs, kind, 4);
    put(&w->pairs, n, 8);
}

void ggufwriter_item_text(struct ggufwriter *w, const char *text, size_t n)
{
    put_text(&w->pairs, text, n);
}

void ggufwriter_item_i32(struct ggufwriter *w, int32_t value)
{
    put(&w->pairs, (uint32_t)value, 4);
}

void ggufwriter_item_f32(struct ggufwriter *w, float value)
{
    put(&w->pairs, bits_of(value), 4);
}

static uint64_t aligned(uint64_t n)
{
    return (n + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

uint64_t ggufwriter_tensor(struct ggufwriter *w, const char *name, int ndim,
                           const uint64_t *shape, uint32_t type, uint64_t bytes)
{
    uint64_t at = w->end;

    put_text(&w->infos, name, strlen(name));
    put(&w->infos, (uint64_t)ndim, 4);
    for (int k = ndim - 1; k >= 0; k--)
        put(&w->infos, shape[k], 8);
    put(&w->infos, type, 4);
    put(&w->infos, at, 8);
    w->ntensors++;
    w->end = aligned(at + bytes);
    return at;
}

void ggufwriter_header(struct str *out, const struct ggufwriter *w)
{
    str_reset(out);
    str_add(out, "GGUF");
    put(out, 3, 4);
    put(out, w->ntensors, 8);
    put(out, w->npairs, 8);
    str_addn(out, w->pairs.s, w->pairs.len);
    str_addn(out, w->infos.s, w->infos.len);
    while (out->len % GGUF_ALIGNMENT)
        str_addc(out, '\0');
}

void ggufwriter_clear(struct ggufwriter *w)
{
    str_clear(&w->pairs);
    str_clear(&w->infos);
}
