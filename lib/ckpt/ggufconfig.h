/* ggufconfig - the metadata of a GGUF file as a config.json
 *
 * Keys: ggml's docs/gguf.md and the conversion scripts of llama.cpp, which make them of
 * a config.json. */
#ifndef LIB_CKPT_GGUFCONFIG_H
#define LIB_CKPT_GGUFCONFIG_H

#include "lib/ckpt/gguf.h"
#include "lib/ckpt/source.h"

/* Sets the config of S to what the metadata of G describe, or s->unmade to the reason
 * why they are no model that is known. */
void gguf_config(struct source *s, const struct gguf *g);

#endif
