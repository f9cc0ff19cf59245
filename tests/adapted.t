#!/bin/sh
# adapted - adapters of encoders, classifiers, experts and codes, of all texts or of those that choose them
. "${top_srcdir:?}/tests/lib.sh"
compare=$top_builddir/tests/compare-tensors
ids=1,2,3,4,5,6,7

# an encoder and a decoder
dir=$data/adapted/t5
model=$data/stacks/t5
for layout in "--tp 1" "--tp 2" "--tp 3" "--pp 2"; do
    for which in "$dir" "$dir/other"; do
        # shellcheck disable=SC2086 # words
        run tp-run logits $layout --adapter "$which" --source-ids $ids --ids 1,2,3 -o o.safetensors "$model"
        ok "${which##*/}, $layout: both stacks are adapted, as PEFT does" "$compare" "$which/expected.safetensors" o.safetensors 1e-5 logits
    done
done

# together WHAT KEY COMMAND... - of the lines that lines has without their brace, in one run in which they choose $one,
# $two and none in turn, COMMAND says of KEY what it says of each alone
together() {
    what=$1 key=$2
    shift 2
    rm -f mixed want got
    for name in one two none one; do
        case $name in one) choose=$one ;; two) choose=$two ;; none) choose= ;; esac
        while read -r line; do
            if [ $name = none ]; then echo "$line}"; else echo "$line,\"adapter\":\"$name\"}"; fi >> mixed
            echo "$line}"
        done < lines > plain
        "$@" ${choose:+--adapter "$choose"} --input plain "$model" | grep -oE "\"$key\":(\[[^]]*\]|[^],}]*)" >> want
    done
    "$@" --adapter one="$one" --adapter two="$two" --input mixed "$model" | grep -oE "\"$key\":(\[[^]]*\]|[^],}]*)" > got
    ok "$what: each text has the answer of the adapter that it chooses" cmp want got
    ok "$what: which differ" test "$(sort -u got | grep -c .)" -ge 3
}
one=$dir two=$dir/other
printf '{"source_ids":[%s],"ids":[1,2,3]\n' $ids 9,8,7 > lines
for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words
    together "t5, $layout" nll tp-run score -q --json $layout
done

printf '{"source_ids":[1,2,3,4,5],"target_ids":[6,7,8]}\n' > pairs.jsonl
run tp-run train -q --seq 8 --data pairs.jsonl --global-batch 1 --steps 1 --lora 2 --dora -o pairs "$model"
status_is 0 "both stacks are trained, with magnitudes"
ok "in the modules that PEFT takes, for the task as PEFT calls it" \
    sh -c 'tr -d "\n" < pairs/step-000001/adapter_config.json | grep "\"target_modules\": \[\"q\", \"v\"\]" | grep -q SEQ_2_SEQ_LM'

# classifiers with heads of their own (SEQ_CLS)
for name in qwen2-score bert-classify; do
    for layout in "--tp 1" "--tp 2" "--tp 3"; do
        model=$data/heads/$name
        [ -d "$model" ] || model=$data/models/$name
        [ "$name$layout" != "bert-classify--tp 3" ] || continue # two heads
        # shellcheck disable=SC2086 # words
        run tp-run logits $layout --adapter "$data/adapted/$name" --ids $ids -o o.safetensors "$model"
        status_is 0 "$name, $layout: a classifier is adapted"
        ok "$name, $layout: with its own head" "$compare" "$data/adapted/$name/expected.safetensors" o.safetensors 1e-5 logits
    done
done

# made MODEL WORD... - two adapters that a step with a large rate has made, one and two
made() {
    model=$1
    shift
    for n in 1 2; do
        tp-run train -q -f --seq 8 --global-batch 1 --steps 1 --lr 0.3 --lr-schedule constant --seed $n --lora $n$names "$@" -o made$n "$model"
    done
    one=made1/step-000001 two=made2/step-000001
}
printf '{"ids":[1,2,3,4,5,6,7,8]}\n' > train.jsonl

# classes and embeddings of those that choose
printf '{"ids":[%s]\n' $ids 9,8,7 > lines
names=
made "$data/heads/qwen2-score" --data "$data/labelled/qwen2-score.jsonl"
ok "a classifier's adapter says so" grep -q '"task_type": "SEQ_CLS"' made1/step-000001/adapter_config.json
ok "and has its head, which no option named" sh -c 'grep -q "\"modules_to_save\": \[\"score\"\]" made1/step-000001/adapter_config.json &&
    grep -aq "base_model.model.score.weight" made1/step-000001/adapter_model.safetensors'
tp-run train --seq 8 --global-batch 2 --steps 1 --threads 1 --save-every 0 --json --lora 2 --data "$data/labelled/qwen2-score.jsonl" "$model" > out 2> err
mem-estimate train --framework tp-run --runtime 0 --seq 8 --micro-batch 1 --global-batch 2 --lora 2 --schedule 1f1b --json "$model" > estimate
ok "mem-estimate foretells its bytes" test "$(grep -o '"memory":[0-9]*' out | head -n 1 | tr -dc 0-9)" = \
    "$(tr '{' '\n' < estimate | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -n | tail -n 1)"
for what in "2 heads/t5-score transformer.encoder.block.0.layer.0.SelfAttention.q" "2:wi_0 stacks/t5-gated encoder.block.0.layer.1.DenseReluDense.wi_0"; do
    # shellcheck disable=SC2086 # words
    set -- $what
    case $2 in heads/*) labels=qwen2-score ;; *) labels=t5 ;; esac
    tp-run train -q -f --seq 16 --global-batch 1 --steps 1 --lora "$1" --data "$data/labelled/$labels.jsonl" -o names "$data/$2"
    ok "$2: names are those of transformers' modules" grep -aq "base_model.model.$3.lora_A" names/step-000001/adapter_model.safetensors
done
run tp-run classify -q --json --adapter one=$one --ids 1,2,3 "$model"
err_has "score.weight stands in place of the model's, for all texts" "with which it acts on all texts"
names=:q_proj,v_proj,score # a head that has an adapter is not saved
made "$data/heads/qwen2-score" --data "$data/labelled/qwen2-score.jsonl"
names=
for layout in "--tp 1" "--tp 2"; do
    # shellcheck disable=SC2086 # words
    together "classify, $layout" scores tp-run classify -q --json $layout --function none
done
made "$data/models/llama-gqa" --data train.jsonl
for layout in "--tp 1" "--pp 2"; do
    # shellcheck disable=SC2086 # words
    together "embed, $layout" embedding tp-run embed -q --json $layout
done

# shared sequences, codes, drafts
tp-shard split -q --tp 1 --dtype bf16 "$model" short
model=short
together "values in bf16" nll tp-run score -q --json --compute bf16
model=$data/models/llama-gqa
together "sp" nll tp-run score -q --json --sp 2
together "int8" nll tp-run score -q --json --weights int8
together "int8, tp 2" nll tp-run score -q --json --weights int8 --tp 2
printf '{"ids":[%s]\n' 1,2,3,1,2,3,1,2 7,8,7,8,7,8 > lines
together "drafts" ids tp-run generate -q --json --max-tokens 8 --draft lookup

# experts on several ranks, and codes of FP4
printf '{"ids":[%s]\n' $ids 9,8,7 > lines
made "$data/models/mixtral" --data train.jsonl
for layout in "--ep 2" "--tp 2"; do
    # shellcheck disable=SC2086 # words
    together "experts, $layout" nll tp-run score -q --json $layout
done
made "$data/models/gpt-oss-mxfp4" --data train.jsonl
for form in stored codes; do
    together "MXFP4 $form" nll tp-run score -q --json --weights $form
done
done_testing
