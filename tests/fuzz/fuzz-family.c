/* fuzz-family - family files, and all that is made of them */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/program.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":24,"
    "\"vocab_size\":32,\"n_embd\":16,\"n_layer\":2,\"n_head\":4,"
    "\"architectures\":[\"BertForMaskedLM\"]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = xstrndup((const char *)data, size);
    struct program_options options = { .tail = TAIL_NONE };
    struct program *p;
    struct model *m;
    struct mesh mesh;
    struct err err = { 0 };

    mesh_one(&mesh);
    mesh.size[MESH_TP] = mesh.nranks = 2;
    if (model_open_flat(&m, "family", config, text, &err) == 0) {
        if (m->ntensors < 1000 &&
            program_build(&p, m, &mesh, (int[MESH_NAXES]){ 1 }, &options, &err) == 0)
            program_free(p);
        model_free(m);
    }
    free(text);
    return 0;
}
