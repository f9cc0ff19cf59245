/* fuzz-family - family files, and all that is made of them */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/program.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":24,"
    "\"vocab_size\":32,\"n_embd\":16,\"n_layer\":2,\"n_head\":4,"
    "\"num_experts\":3,\"n_routed_experts\":4,\"num_experts_per_tok\":2,\"n_group\":2,"
    "\"topk_group\":1,\"first_k_dense_replace\":1,\"moe_intermediate_size\":6,"
    "\"shared_expert_intermediate_size\":6,\"kv_lora_rank\":6,\"qk_nope_head_dim\":4,"
    "\"qk_rope_head_dim\":2,\"v_head_dim\":4,"
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

    if (model_open_flat(&m, "family", config, text, &err) == 0) {
        for (int axis = 0; axis < 2 && m->ntensors < 1000; axis++) {
            int over = axis ? MESH_EP : MESH_TP, coord[MESH_NAXES] = { 0 };

            mesh_one(&mesh);
            mesh.size[over] = mesh.nranks = 2;
            coord[over] = 1;
            if (program_build(&p, m, &mesh, coord, &options, &err) == 0)
                program_free(p);
        }
        model_free(m);
    }
    free(text);
    return 0;
}
