/* adapterconfig - adapter_config.json, as PEFT reads and writes it
 *
 * LoRA (Hu et al. 2021), also rank-stabilized (Kalajdzievski 2023), is read, with ranks
 * and alphas of single modules; any other setting that changes the result is refused by
 * its name. */
#ifndef LIB_RUN_ADAPTERCONFIG_H
#define LIB_RUN_ADAPTERCONFIG_H

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/ckpt/tensor.h"

struct adapter_config {
    char *text, *path;
    struct json_doc doc;
    bool parsed; /* doc is */
};

/* What a new adapter is to be; defaults are those of peft.LoraConfig. */
struct adapter_wish {
    uint64_t rank; /* 8 */
    double alpha;  /* 8 */
    double dropout;
    bool rslora, dora;
    const char *names; /* comma-separated ends of modules' names, and of parameters'
                        * that have all experts of a layer; "all-linear": of all modules
                        * that are in layers; NULL: those of the family */
    const char *saved; /* comma-separated ends of the names of modules whose own tensors
                        * are trained, too (modules_to_save); or NULL */
    const char *task;  /* PEFT's task_type, or NULL */
    uint64_t seed;     /* A is drawn with it */
};

/* Reads PATH.  ERR_INPUT names file and cause; ERR_NO: a setting that is not read.
 * Clear it also after a failure. */
MUST_CHECK int adapter_config_read(struct adapter_config *c, const char *path,
                                   struct err *err);
void adapter_config_clear(struct adapter_config *c);
/* base_model_name_or_path, or NULL; lora_dropout, or 0. */
const char *adapter_config_base(const struct adapter_config *c);
double adapter_config_dropout(const struct adapter_config *c);
/* Name K of target_parameters; NULL: there are fewer. */
const char *adapter_config_parameter(const struct adapter_config *c, size_t k);
/* Sets *scale of the module NAME: lora_alpha / RANK, or / sqrt(RANK) with use_rslora.
 */
MUST_CHECK int adapter_config_scale(double *scale, const struct adapter_config *a,
                                    const char *name, uint64_t rank, struct err *err);
/* Refuses a rank that the config states of the module NAME if it is not that of T, its
 * lora_A.  Where an expression may be what states it, the tensor tells. */
MUST_CHECK int adapter_config_check_rank(const struct adapter_config *a,
                                         const char *name, const struct tensor *t,
                                         struct err *err);
/* Appends the config of a new adapter W of the model BASE, on modules and parameters
 * whose names end with those in lists between commas; TURNED: the weights of modules
 * are [in][out]. */
void adapter_config_print(struct str *out, const struct adapter_wish *w,
                          const char *base, const char *modules, const char *parameters,
                          bool turned);

#endif
