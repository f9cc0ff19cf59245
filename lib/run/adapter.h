/* adapter - low-rank adapters of a model, as PEFT writes them
 *
 * A directory has adapter_config.json and adapter_model.safetensors.  LoRA (Hu et al.
 * 2021), also rank-stabilized (Kalajdzievski 2023), is read, with ranks and alphas of
 * single modules; any other setting that changes the result is refused by its name.
 * The matrices stay in the file until a rank loads its shards of them. */
#ifndef LIB_RUN_ADAPTER_H
#define LIB_RUN_ADAPTER_H

#include "lib/base/err.h"
#include "lib/program/program.h"
#include "lib/reshard/checkpoint.h"

struct adapter;

/* Reads DIR, adds its adapters to C's model (model_adapt), and sets C->adapter.  Call
 * it before a program is built.  ERR_INPUT names file and cause; ERR_NO: a setting, or
 * an adapter of something else than a plain product.  Close it after C's last use. */
MUST_CHECK int adapter_open(struct adapter **out, struct checkpoint *c, const char *dir,
                            struct err *err);
void adapter_close(struct adapter *a);
/* What tells it apart from another: its config and the samples' files.  Borrowed. */
const char *adapter_config(const struct adapter *a);
const char *adapter_file(const struct adapter *a, uint64_t *size);

/* The stored type of weight W, which has .adapter. */
enum dtype adapter_dtype(const struct adapter *a, const struct weight *w);
/* Reads the shard of W, a weight of P, in that type to TO [rows][cols].  ERR_INPUT: a
 * number is NaN or infinite. */
MUST_CHECK int adapter_load(const struct adapter *a, const struct program *p,
                            const struct weight *w, void *to, struct err *err);

#endif
