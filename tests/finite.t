#!/bin/sh
# finite - NaN and infinite results are refused: status 3 for a stored weight, 1 where none is the cause
. "${top_srcdir:?}/tests/lib.sh"
unset MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT

# damage FROM TENSOR BYTE BYTES: m is FROM, with BYTES (octal) at BYTE of TENSOR
damage() {
    rm -rf m
    cp -r "$1" m && chmod -R u+w m
    size=$(od -An -tu8 -N8 m/model.safetensors | tr -d ' ')
    at=$(head -c $((8 + size)) m/model.safetensors | tail -c +9 |
        sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*/\1/")
    # shellcheck disable=SC2059 # octal
    printf "$4" | dd of=m/model.safetensors bs=1 seek=$((8 + size + at + $3)) conv=notrunc 2> dd.err
}

# one NaN in the head: one logit of all is NaN, on one rank's part of the vocabulary
damage "$data/models/llama-gqa" lm_head.weight $((70 * 32 * 4 + 3 * 4)) '\0\0\300\177'
cause="tp-run: m/model.safetensors: tensor lm_head.weight: NaN at [70, 3], and text"
for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2"; do
    for how in "" "--temperature 1" "--temperature 1 --top-k 3"; do
        run tp-run generate --backend cpu $layout $how --ids 5,6,7 --max-tokens 2 m
        status_is 3 "generate $layout $how: a logit of NaN is no token"
        err_is "$cause 1 has NaN or infinite logits after 3 tokens" "and file, tensor and place are named"
        ok "nothing is printed" test ! -s out
    done
done
printf '5,6,7\n' > ids
run tp-run score --ids-file ids m
status_is 3 "score refuses it"
err_is "$cause 1 has NaN or infinite logits after 1 token" "with the place"
ok "and prints no likelihood" test ! -s out
tp-shard split -q --tp 2 m cut
run tp-run generate --ids 5 cut
status_is 3 "a sharded checkpoint is searched"
err_has "tp-run: cut: tensor lm_head.weight: NaN at [70, 3], and text 1" "for the place in the whole tensor"
run tp-run logits --ids 5,6 -o l.safetensors m
status_is 0 "logits writes what comes out"
for rank in 1 0; do # as torchrun starts them
    env MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID="$PWD" TORCHELASTIC_RESTART_COUNT=0 RANK=$rank \
        WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 \
        timeout 60 tp-run generate --backend cpu --tp 2 --ids 5 m > out.$rank 2> err.$rank < /dev/null &
    eval "rank$rank=$!"
done
wait "$rank0"
first=$?
wait "$rank1"
ok "all ranks end with the same status" test "$first $?" = "3 3"

# infinite logits of finite weights: the norm before the head
damage "$data/models/llama-gqa" model.norm.weight 0 '\377\377\177\177\377\377\177\177'
run tp-run generate --ids 5,6 --ids 7 --max-tokens 2 m
status_is 1 "an overflow is no bad file"
err_is "tp-run: text 1 has NaN or infinite logits after 2 tokens, and all weights that are stored are finite" \
    "the text and its position are named"
printf '{"ids":[5,6]}\n{"ids":[7]}\n' > two.jsonl
run tp-run embed --input two.jsonl m
status_is 1 "embed refuses it"
err_has "tp-run: text 1 (two.jsonl:1) has NaN or infinite last_hidden_state after " "with the line"

# -inf leaves a token out, which is right
damage "$data/models/gptj" lm_head.bias 0 '\200\377'
for how in "" "--temperature 1" "--temperature 1 --top-k 64"; do
    run tp-run generate $how --ids 5,6,7 --max-tokens 2 m
    status_is 0 "a token may have a logit of -inf, $how"
done
run tp-run score --ids-file ids m
status_is 0 "score too"
damage "$data/models/bert-classify" classifier.bias 0 '\300\177'
run tp-run classify --ids 5,6,7 m
status_is 3 "classify refuses a NaN"
err_has "tensor classifier.bias: NaN at [0], and text 1 has NaN or infinite logits after 3 tokens" "by name"

# under a grammar, too, whose tokens are not to blame
rm -rf m
cp -r "$top_srcdir/examples/bard" m && chmod -R u+w m
truncate -s -4 m/model.safetensors && printf '\377\377\377\377' >> m/model.safetensors
run tp-run generate --grammar 'regex:[a-z]{9}' -p ROMEO: --max-tokens 3 m
status_is 3 "a grammar hides no NaN"
err_has "model.norm.weight: NaN at" "and it is named"

done_testing
