#!/bin/sh
# tp-shard-memory.t - memory does not grow with the model
#
# The promise is 64 MB and 256 bytes for each tensor and rank of peak memory.  What is limited here is more: all
# of the address space, libraries and mapped files included.  The weights are holes in the files that are read.
# With SHARDUTILS_LARGE_TESTS set a model of 42 GB is cut, for which as much room is needed on the disk.
. "${top_srcdir:?}/tests/lib.sh"

# make_model DIR LAYERS HIDDEN FFN HEADS VOCAB - a Llama in bf16
make_model() {
    mkdir "$1"
    printf '{"model_type":"llama","num_hidden_layers":%d,"hidden_size":%d,"intermediate_size":%d,
        "num_attention_heads":%d,"vocab_size":%d,"rms_norm_eps":1e-6,"max_position_embeddings":64,
        "tie_word_embeddings":true}' "$2" "$3" "$4" "$5" "$6" > "$1/config.json"
    awk -v L="$2" -v H="$3" -v F="$4" -v V="$6" '
        function add(name, rows, columns) {
            printf "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d%s],\"data_offsets\":[%.0f,%.0f]}", \
                end ? "," : "{", name, rows, columns ? "," columns : "", end, \
                end + 2 * rows * (columns ? columns : 1)
            end += 2 * rows * (columns ? columns : 1)
        }
        BEGIN {
            split("q k v o", projection, " ")
            add("model.embed_tokens.weight", V, H)
            add("model.norm.weight", H)
            for (l = 0; l < L; l++) {
                at = "model.layers." l "."
                add(at "input_layernorm.weight", H)
                add(at "post_attention_layernorm.weight", H)
                add(at "mlp.down_proj.weight", H, F)
                add(at "mlp.gate_proj.weight", F, H)
                add(at "mlp.up_proj.weight", F, H)
                for (i = 1; i <= 4; i++)
                    add(at "self_attn." projection[i] "_proj.weight", H, H)
            }
            printf "}"
            printf "%.0f", end > "data.size"
        }' > header
    length=$(wc -c < header)
    {
        # the length, little-endian
        # shellcheck disable=SC2059 # the octal digits are the format
        printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((length % 256)) $((length / 256 % 256)) \
            $((length / 65536 % 256)) $((length / 16777216)))\0\0\0\0"
        cat header
    } > "$1/model.safetensors"
    truncate -s $((8 + length + $(cat data.size))) "$1/model.safetensors"
}

# bounded PARTS COMMAND... - run tp-shard in the memory that is promised for PARTS tensor parts
bounded() {
    limit=$(((64000000 + 256 * $1) / 1024))
    shift
    status=0
    # shellcheck disable=SC3045 # where a shell has no limit, the test is skipped
    (ulimit -v "$limit" && exec tp-shard "$@") > out 2> err || status=$?
}

bounded 0 --version
if [ "$status" -ne 0 ]; then
    skip "a model of 256 MiB is cut in 64 MB" "this build needs more, or the shell has no limit"
    done_testing
fi

make_model wide 2 2048 8192 16 64
bounded 80 split -q --tp 4 wide wide4
status_is 0 "a model of 256 MiB is cut in 64 MB"
bounded 80 verify -q -j 2 wide4
status_is 0 "and verified"
bounded 80 reshard -q --tp 2 wide4 wide2
status_is 0 "and cut otherwise"
bounded 80 merge -q wide2 wide1
status_is 0 "and merged"
ok "to what it was" cmp wide/model.safetensors wide1/model.safetensors
for form in dcp megatron-dist; do
    bounded 80 merge -q --export $form wide2 wide-out
    status_is 0 "and exported to $form"
    rm -rf wide-out
done
rm -rf wide*

parts=$((8 * (2 + 9 * 11112)))
make_model long 11112 8 8 8 16
bounded $parts split -q --tp 8 long long8
status_is 0 "100,000 tensors are cut for eight ranks in 64 MB and 256 bytes for each part"
bounded $parts verify -q long8
status_is 0 "and verified"
bounded $parts merge -q long8 long1
status_is 0 "and merged"
ok "to what they were" cmp long/model.safetensors long1/model.safetensors
rm -rf long*

make_model large 96 4096 12288 32 32000
bounded 3464 plan --tp 4 large
status_is 0 "the cut of a model of 42 GB is planned in 64 MB"
if [ -z "${SHARDUTILS_LARGE_TESTS:-}" ]; then
    skip "a model of 42 GB is cut in 64 MB" "SHARDUTILS_LARGE_TESTS is not set"
elif [ "$(df -Pk . | awk 'NR == 2 { print $4 }')" -lt 44000000 ]; then
    skip "a model of 42 GB is cut in 64 MB" "there is no room for it"
else
    bounded 3464 split -q --tp 4 large large4
    status_is 0 "a model of 42 GB is cut in 64 MB"
    bounded 3464 verify -q large4
    status_is 0 "and verified"
fi
done_testing
