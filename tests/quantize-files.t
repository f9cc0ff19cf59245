#!/bin/sh
# quantize-files - tp-shard split --dtype int8 and int4: cut, merged, checked and run
. "${top_srcdir:?}/tests/lib.sh"

bard=$top_srcdir/examples/bard
compare=$top_builddir/tests/compare-tensors
ids=1,50,30,2,70,40,9

logits() {
    tp-run logits --ids "$ids" -o "$@"
}

# outputs in rows, in columns (gpt2), experts, a tied head
for dir in "$bard" "$data/models/gpt2-untied" "$data/models/mixtral" "$data/models/smollm"; do
    name=${dir##*/}
    case $name in bard) types="int8 int4" ;; *) types=int8 ids=1,5,3,2,7 ;; esac
    for type in $types; do
        logits want --weights $type "$dir"
        tp-shard split -q --dtype $type --tp 1 "$dir" "$name.$type.1"
        logits got "$name.$type.1"
        ok "$name in $type: files have the numbers of --weights" "$compare" want got 2e-7 logits
        tp-shard split -q --dtype $type --tp 2 "$dir" "$name.$type.2"
        logits got "$name.$type.2"
        ok "$name in $type: two rank files give the same" "$compare" want got 1e-5 logits
        logits back --tp 1 "$name.$type.2"
        logits got "$name.$type.1"
        ok "$name in $type: one rank reads two files to the bit" cmp back got
        run tp-shard verify "$name.$type.2"
        status_is 0 "$name in $type: the files are intact"
        tp-shard reshard -q --tp 1 --pp 2 "$name.$type.2" "$name.$type.pp"
        tp-shard reshard -q --tp 2 --pp 1 "$name.$type.pp" "$name.$type.back"
        ok "$name in $type: stages and back are the same rank files" \
            cmp "$name.$type.2/rank-tp1-pp0.safetensors" "$name.$type.back/rank-tp1-pp0.safetensors"
        run tp-shard merge "$name.$type.2" "$name.$type.whole"
        status_is 0 "$name in $type: can be merged"
        err_has "weights in $type became" "and says what became of the numbers"
        ok "$name in $type: the configuration is the original's" cmp "$name.$type.whole/config.json" "$dir/config.json"
        logits got "$name.$type.whole"
        ok "$name in $type: merged weights are near" "$compare" want got 0.02 logits
    done
done
ok "nothing else was left behind" test ! -e bard.int8.2.quantized
tp-shard show --json "$bard" | sed -n 's/.*"name":"\([^"]*\)","dtype":"\([^"]*\)","shape":\(\[[^]]*\]\).*/\1 \2 \3/p' | sort > names
tp-shard show --json bard.int4.whole | sed -n 's/.*"name":"\([^"]*\)","dtype":"\([^"]*\)","shape":\(\[[^]]*\]\).*/\1 \2 \3/p' | sort > merged
ok "a merge has the original's tensors, types and shapes" cmp names merged

# bytes: of the files, and in memory
for type in int8 int4; do
    tp-run generate --report-memory --ids 1,2 --max-tokens 1 "bard.$type.1" 2>&1 > text |
        sed -n 's/.*"weights":\([0-9]*\).*/\1/p' > seen
    mem-estimate infer --framework tp-run --seq 4 --json "bard.$type.1" |
        tr '{' '\n' | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > expected
    ok "bard in $type: as many bytes in memory as predicted" cmp expected seen
    tp-shard show --json "bard.$type.1" | sed -n 's/.*"type":"summary".*"bytes":\([0-9]*\).*/\1/p' > expected
    mem-estimate infer --framework none --seq 4 --json "bard.$type.1" |
        tr '{' '\n' | sed -n 's/.*"weights":\([0-9]*\).*/\1/p' | sort -u > seen
    ok "bard in $type: elsewhere as many as in the files" cmp expected seen
done

ids=1,50,30,2,70,40,9
tp-shard split -q --dtype int4 --tp 3 "$bard" bard.int4.3
logits got bard.int4.3
logits want bard.int4.1
ok "shards of int4 end between blocks: three ranks give the same" "$compare" want got 1e-5 logits
run tp-shard split --dtype int8 --tp 2 bard.int8.whole/nothing no
status_is 3 "a model that is not there"
run tp-run train --steps 1 --data "$bard/heldout.txt" -o run bard.int8.1
status_is 1 "training from them is refused"
err_has "weights quantized by shardutils" "and says why"

# plain safetensors: a rank file of one rank is a Hugging Face directory's
whole() {
    rm -rf bad
    mkdir bad
    cp "bard.$1.1/config.json" "bard.$1.1/tokenizer.json" bad
    cp "bard.$1.1/rank-tp0-pp0.safetensors" bad/model.safetensors
}
whole int8
logits got bad
logits want bard.int8.1
ok "a directory of one file reads as well" cmp want got
run tp-shard split --dtype int8 --tp 2 bad no
status_is 3 "it is not quantized again"
err_has "is quantized already" "and says so"
LC_ALL=C sed -i 's/lm_head.weight.scale"/lm_head.weight.scali"/' bad/model.safetensors
run tp-run generate --ids 1 bad
status_is 3 "a scale that is missing is found"
whole int4
LC_ALL=C sed -i 's/"lm_head.weight.scale":{"dtype":"F16","shape":\[1024,6\]/"lm_head.weight.scale":{"dtype":"F16","shape":[6,1024]/' bad/model.safetensors
run tp-run generate --ids 1 bad
status_is 3 "a scale of another shape is found"
err_has "lm_head.weight.scale" "with its name"
whole int8
at=$(od -An -tu8 -N8 bad/model.safetensors)
printf '\0\0\300\177' | dd of=bad/model.safetensors bs=1 seek=$((at + 8)) conv=notrunc 2> dd.err
run tp-run generate --ids 1 bad
status_is 3 "a scale that is NaN is found"
err_has "a scale is not finite" "and says so"

done_testing
