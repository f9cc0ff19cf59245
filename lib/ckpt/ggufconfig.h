/* ggufconfig - the metadata of a GGUF file as a config.json
 *
 * Keys: ggml's docs/gguf.md and the conversion scripts of llama.cpp, which make them of
 * a config.json. */
#ifndef LIB_CKPT_GGUFCONFIG_H
#define LIB_CKPT_GGUFCONFIG_H

#include "lib/base/json.h"
#include "lib/ckpt/gguf.h"
#include "lib/ckpt/ggufwriter.h"
#include "lib/ckpt/source.h"

/* Sets the config of S to what the metadata of G describe, or s->unmade to the reason
 * why they are no model that is known. */
void gguf_config(struct source *s, const struct gguf *g);

/* Divisors of the frequencies of positions, which a GGUF file has as a tensor, F32. */
struct ggufconfig_factors {
    const char *name;
    float *v; /* [n] the caller frees it */
    size_t n;
};
enum { GGUFCONFIG_FACTORS = 2 };

/* Adds the metadata of the model that the config ROOT, of the file NAME, describes.
 * WINDOW is that of its attention, as a default may say; 0: none.  FACTORS become the
 * tensors that belong to them, or have no name.  ERR_NO when GGUF cannot represent it.
 */
MUST_CHECK int gguf_config_write(struct ggufwriter *w,
                                 struct ggufconfig_factors factors[GGUFCONFIG_FACTORS],
                                 const struct json *root, const char *name,
                                 double window, struct err *err);

#endif
