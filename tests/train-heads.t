#!/bin/sh
# train-heads.t - training with labels: classes of texts and of tokens, masked tokens (tests/oracle/train-heads.py)
. "${top_srcdir:?}/tests/lib.sh"

# train MODEL OPTION... - six steps on its samples, as the loop of PyTorch
train() {
    name=$1
    shift
    tp-run train -q --data "$data/labelled/${name##*/}.jsonl" --pack none --order sequential --dropout 0 --seq 16 --steps 6 \
        --global-batch 4 --lr 1e-3 --lr-schedule cosine --warmup 2 --beta2 0.95 --weight-decay 0.1 --clip 1 --threads 1 "$@" \
        "$data/$name"
}

# as_torch LOG MODEL - its losses are PyTorch's
as_torch() {
    sed -n 's/.*"type":"step".*"loss":\([^,]*\),.*/\1/p' "$1" > got
    grep "^$2	" "$data/labelled/losses.tsv" | tr '\t' '\n' | tail -n 6 > want
    paste got want | awk 'function abs(x) { return x < 0 ? -x : x }
        NF != 2 || abs($1 - $2) > 2e-5 * abs($2) { print; bad = 1 } END { exit bad || NR != 6 }'
}

for model in models/bert-classify models/roberta-mlm heads/mistral-tags heads/qwen2-score \
    stacks/t5 stacks/mbart stacks/bart; do
    more=
    test $model != models/roberta-mlm || more="--mask-probability 0"
    test $model != stacks/bart || more="--label-smoothing 0.1"
    for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2" "--sp 2" "--sp 2 --pp 2" "--pp 5 --pipeline zb-h1" "--sp 2 --pp 2 --pipeline zb-v"; do
        # two layers of an encoder and three of a decoder: sources go through stages that have neither begun nor ended one
        case $model$layout in
            stacks/t5*) ;;
            *--pipeline*) continue ;;
        esac
        # shellcheck disable=SC2086 # words are wanted
        rm -f log
        run train $model $layout $more --save-every 0 --log log
        status_is 0 "${model##*/} is trained on $layout"
        ok "${model##*/} on $layout: the losses of PyTorch" as_torch log $model
        test -z "${SHORT:-}" || break
    done
done

# ---- losses of logits ----

# score NAME LOSS OPTION... - six steps on the samples of NAME
score() {
    name=$1
    shift
    tp-run train -q --data "$data/labelled/$(echo "${name##*/}" | tr ' ' -).jsonl" --order sequential --dropout 0 --seq 24 --steps 6 \
        --global-batch 4 --lr 1e-3 --lr-schedule cosine --warmup 2 --beta2 0.95 --weight-decay 0.1 --clip 1 --threads 1 \
        --save-every 0 --log log "$@" "$data/${name% *}"
}
while read -r loss name; do
    more=
    case $name in *" orpo") more="--loss-beta 0.3" ;; *" z") more="--z-loss 0.01 --pack none" ;;
        *" kto") more="--loss-beta 0.3 --kto-undesirable 0.7" ;; *" policy") more="--loss-beta 0.04" ;;
        *" distill") more="--distill-temperature 2 --distill-hard 0.25" ;;
    esac
    for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2 --micro-batch 2" "--sp 2"; do
        rm -f log
        # shellcheck disable=SC2086 # words are wanted
        run score "$name" --loss $loss $more $layout
        status_is 0 "$loss is learned on $layout"
        ok "$loss on $layout: the losses of PyTorch" as_torch log "$name"
        test -z "${SHORT:-}" || break
    done
    # with a rate of 0 the weights stay, whatever steps f16 passes over
    for type in f32 f16; do
        rm -f log
        # shellcheck disable=SC2086 # words are wanted
        score "$name" --loss $loss $more --lr 0 --compute $type
        sed -n 's/.*"step":6,.*"grad_norm":\([^,]*\),.*/\1/p' log
    done > norms
    ok "$loss has the gradients of f32 with f16" sh -c 'paste -s norms | awk "{ exit !(NF == 2 && \$1 > 0 && \$2 / \$1 > 0.99 && \$2 / \$1 < 1.01) }"'
    case $loss in span) task=QUESTION_ANS ;; orpo | next | kto | policy | distill) task=CAUSAL_LM ;; *) task=SEQ_CLS ;; esac
    # shellcheck disable=SC2086 # words are wanted
    score "$name" --loss $loss $more --lora 2:all-linear --steps 1 --save-every 1 -o peft
    [ $loss = choice ] && task=null || task="\"$task\""
    ok "$loss: an adapter has PEFT's word for its task" grep -q "\"task_type\": $task" peft/step-000001/adapter_config.json
    rm -rf peft
done << end
regression heads/gemma2-score
reward heads/gemma2-score reward
multi-label models/bert-classify labels
span encoders/bert-answers
orpo models/llama-groups orpo
next models/llama-groups z
kto models/llama-groups kto
policy models/llama-groups policy
distill models/llama-groups distill
choice encoders/bert-choice
end
for loss in regression multi-label span reward; do
    echo '{"ids":[3,4]}' > bad.jsonl
    case $loss in span) of=encoders/bert-answers ;; *) of=heads/gemma2-score ;; esac
    run tp-run train -q --loss $loss --data bad.jsonl --seq 16 --save-every 0 "$data/$of"
    status_is 3 "$loss needs labels"
    case $loss in span) why="no 'end_positions'" ;; reward) why="no 'prompt'" ;; regression) why="no 'label'" ;; *) why="no 'labels'" ;; esac
    err_has "bad.jsonl:1: $why" "which says so"
done
echo '{"ids":[3,4],"label":[1,2]}' > bad.jsonl
run tp-run train -q --data bad.jsonl --seq 16 --save-every 0 "$data/heads/gemma2-score"
status_is 3 "a number for each label of the model"
err_has "2 numbers in 'label', and the model has 1" "of which there is one"
run tp-run train -q --loss reward --data bad.jsonl --save-every 0 "$data/models/bert-classify"
status_is 3 "a reward is one score"
err_has "3 labels (num_labels): a reward is a single score" "not three"
run tp-run train -q --mask-id 5 --mask-probability 0 --data "$data/labelled/roberta-mlm.jsonl" --save-every 0 "$data/models/roberta-mlm"
status_is 2 "what is masked already has no mask token"
err_has "--mask-id: with --mask-probability 0 the data say what is masked" "which is said"

# ---- what is right ----

# judged NAME LOSS OPTION... - an evaluation has the accuracy and F1 of the model as it is (tests/oracle/verdicts.py)
judged() {
    name=$1 loss=$2
    shift 2
    rm -f log
    tp-run train -q --loss $loss --data "$data/labelled/$(echo "${name##*/}" | tr ' ' -).jsonl" \
        --eval-data "$data/labelled/$(echo "${name##*/}" | tr ' ' -).jsonl" --seq 24 --steps 1 --eval-every 1 --lr 0 \
        --global-batch 4 --threads 1 --save-every 0 --log log "$@" "$data/${name% *}"
    ok "$loss of ${name##*/}: accuracy and F1 are those of scikit-learn ($*)" awk -F '\t' -v name="$name" '
        function far(a, b) { return a - b > 1e-7 || b - a > 1e-7 }
        function value(key) { return match($0, "\"" key "\":[^,}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "nan" }
        $1 == "model" && $2 == name { accuracy = $3; f1 = $4 }
        /"type":"eval"/ { n++; bad = far(value("eval_accuracy"), accuracy) || (f1 == "nan" ? value("eval_f1") != "nan" : far(value("eval_f1"), f1)) }
        END { exit bad || n != 1 }' "$data/verdicts.tsv" log
}
judged models/bert-classify class --pp 2
ok "each class has its own" grep -q '"eval_f1_by_class":{"left":[0-9.e-]*,"none":[0-9.e-]*,"right":[0-9.e-]*}' log
judged models/bert-classify class --tp 2 --dp 2
judged heads/mistral-tags tags --dp 2
judged "models/bert-classify labels" multi-label --tp 2
judged encoders/bert-choice choice --pp 2

# ---- memory ----

while IFS='|' read -r loss name layout more; do
    of=$data/labelled/$(echo "${name##*/}" | tr ' ' -).jsonl
    # shellcheck disable=SC2086 # words are wanted
    tp-run train -q --report-memory --data "$of" --loss $loss --pack none --seq 24 --steps 1 --global-batch 4 --micro-batch 2 --threads 1 \
        --save-every 0 $layout "$data/${name% *}" 2>&1 > out | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -u > kept
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate train --framework tp-run --runtime 0 --seq 24 --global-batch 4 --micro-batch 2 $layout --schedule 1f1b --loss $loss $more \
        --threads 1 --dropout --json "$data/${name% *}" | tr '{' '\n' | sed -n 's/.*"total":\([0-9]*\).*/\1/p' | sort -u > foretold
    ok "mem-estimate foretells each rank's bytes of $loss on $layout" sh -c "test -s kept && cmp kept foretold"
done << 'end'
distill|models/llama-groups distill|--sp 2|
orpo|models/llama-groups orpo|--tp 2|
reward|heads/gemma2-score reward|--pp 2|
choice|encoders/bert-choice|--tp 1|--choices 3
end
run tp-run train -n -q --data "$data/labelled/llama-groups-distill.jsonl" --loss distill --seq 24 --micro-batch 2 "$data/models/llama-groups"
out_has ", 24.56 KiB for the loss" "a dry run tells what a loss of logits has, 48 rows of 131 numbers"
run mem-estimate train --framework tp-run --choices 3 "$data/encoders/bert-answers/config.json"
status_is 2 "only choices have a number"
err_has "--choices 3: are of --loss choice" "which is said"
run mem-estimate train --loss dpo "$data/encoders/bert-answers/config.json"
err_has "--loss dpo: is of --framework=tp-run" "a loss is that of tp-run"

# ---- two texts ----

# joined NAME - its model with the tokenizer of its samples is joined
joined() {
    rm -rf joined
    cp -r "$data/${1% *}" joined
    cp "$data/labelled/tokenizer.json" joined
    of=$data/labelled/$(echo "${1##*/}" | tr ' ' -).jsonl
}
for name in "encoders/bert-answers squad" "models/bert-classify pairs"; do
    joined "$name"
    for layout in "--tp 1" "--sp 2"; do
        rm -f log
        # shellcheck disable=SC2086 # words are wanted
        tp-run train -q --data "$of" --order sequential --dropout 0 --seq 30 --steps 6 --global-batch 4 --lr 1e-3 --lr-schedule cosine \
            --warmup 2 --beta2 0.95 --weight-decay 0.1 --clip 1 --threads 1 --save-every 0 --log log $layout joined
        ok "two texts and their types, ${name##* }, on $layout: the losses of PyTorch" as_torch log "$name"
    done
done
joined "encoders/bert-answers squad"
for layout in "--tp 1" "--sp 2"; do
    rm -f log
    # shellcheck disable=SC2086 # words are wanted
    tp-run train -q --data "$of" --eval-data "$of" --seq 30 --steps 1 --eval-every 1 --lr 0 --threads 1 --save-every 0 --log log $layout joined
    ok "answers on $layout: exact match and F1 are SQuAD's" awk -F '\t' '
        function far(a, b) { return a - b > 1e-7 || b - a > 1e-7 }
        function value(key) { return match($0, "\"" key "\":[^,}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "nan" }
        $1 == "model" && $2 == "encoders/bert-answers squad" { exact = $3; f1 = $4 }
        /"type":"eval"/ { n++; bad = far(value("eval_exact_match"), exact) || far(value("eval_f1"), f1) || value("eval_accuracy") != "nan" }
        END { exit bad || n != 1 }' "$data/verdicts.tsv" log
done

# asked LOSS LINE MESSAGE - is refused
asked() {
    printf '%s\n' "$2" > bad.jsonl
    run tp-run train -q --loss $1 --data bad.jsonl --seq 30 --save-every 0 joined
    status_is 3 "$1: refused: $2"
    err_has "bad.jsonl:1: $3" "which says why"
}
asked span '{"question":"who","answers":{"text":["a"],"answer_start":[0]}}' "no 'context'"
asked span '{"question":"who","context":"a king"}' "no 'answers'"
asked span '{"question":"who","context":"a king","answers":["a"]}' "'answers' is no object"
asked span '{"question":"who","context":"a king","answers":{"text":["a"]}}' "'answers' has no lists 'text' and 'answer_start' of the same length"
asked span '{"question":"who","context":"é king","answers":{"text":["king"],"answer_start":[3]}}' \
    "the answer 'king' is not at character 3 of 'context'"
asked span '{"question":"who","context":"king","answers":{"text":["sea"],"answer_start":[9]}}' "the answer 'sea' is not at character 9"
asked span '{"question":"who","context":"","answers":{"text":[],"answer_start":[]}}' "a 'context' without a token"
asked span '{"question":"who","context":"a\u0000king","answers":{"text":[],"answer_start":[]}}' "'context' has a character 0"
asked span '{"question":"who","context":"a king","answers":{"text":[""],"answer_start":[2]}}' "an answer is a text"
asked span '{"ids":[3,4],"start_positions":1,"end_positions":0}' "an answer that ends before it begins"
asked span '{"ids":[3,4],"start_positions":0,"end_positions":-1}' "an answer of which one end is not in the text"
echo '{"ids":[3,4],"end_positions":1.5,"start_positions":0}' > bad.jsonl
run tp-run train -q --data bad.jsonl --save-every 0 joined
err_has "bad.jsonl:1:30: 'end_positions' is no number of a token, from 0, nor -1" "a place is a whole number"
asked span '{"ids":[3,4],"question":"who","context":"a","answers":{}}' "'ids' and places of tokens do not go with 'question' and 'context'"
joined "models/bert-classify pairs"
asked class '{"ids":[3,4],"token_type_ids":[0,3],"label":0}' "token type 3, and the model has 3"
asked class '{"ids":[3,4],"token_type_ids":[0],"label":0}' "1 types in 'token_type_ids' for 2 ids"
asked class '{"text":"a","token_type_ids":[0],"label":0}' "'token_type_ids' goes with 'ids'"
asked class '{"ids":[3,4],"pair":"a","label":0}' "'pair' is a text beside a 'text'"

# ---- classes ----

bert=$data/models/bert-classify
sed 's/"label":0/"label":"left"/; s/"label":1/"label":"none"/; s/"label":2/"label":"right"/' "$data/labelled/bert-classify.jsonl" > named.jsonl
tp-run train -q --data named.jsonl --dropout 0 --seq 16 --steps 2 --global-batch 4 --threads 1 --save-every 0 --log named "$bert"
tp-run train -q --data "$data/labelled/bert-classify.jsonl" --dropout 0 --seq 16 --steps 2 --global-batch 4 --threads 1 --save-every 0 --log numbered "$bert"
ok "classes have the names of id2label" test "$(grep -o '"loss":[^,]*' named)" = "$(grep -o '"loss":[^,]*' numbered)"

# refused LINE MESSAGE
refused() {
    printf '%s\n' "$1" > bad.jsonl
    run tp-run train -q --data bad.jsonl --seq 16 --save-every 0 "${3:-$bert}"
    status_is 3 "refused: $1"
    err_has "$2" "which says why"
}
refused '{"ids":[3,4],"label":3}' "label 3, and the model has 3 classes"
refused '{"ids":[3,4],"label":"above"}' "'above' is no class of the model"
refused '{"ids":[3,4]}' "bad.jsonl:1: no 'label'"
refused '{"ids":[3,4],"labels":[1]}' "1 labels for 2 ids" "$data/heads/mistral-tags"
refused '{"ids":[3,4],"label":-1}' "bad.jsonl: no sample has a label that counts"
echo 'Speak, what trade art thou?' > plain.txt
for loss in next dpo; do
    run tp-run train -q -n --loss $loss --data plain.txt --seq 64 --global-batch 1 "$bard"
    [ $loss = next ] && status_is 0 "a text is learned" || status_is 3 "which no pairs are in"
done
err_has "plain.txt: a text, and pairs come from JSON lines" "which is said"
run tp-run train -q -n --data plain.txt "$bert"
err_has "plain.txt: a text, and labels come from JSON lines" "nor labels"
echo '{"ids":[3,4,5,6,7,8],"label":0}' > long.jsonl
run tp-run train -n --data long.jsonl --seq 4 --global-batch 1 "$bert"
err_is "tp-run: 1 of 1 documents are longer than --seq 4: tokens before their last one, 2 in all, are left out" "the last token of a text is kept"
mkdir single
sed 's/"model_type"/"num_labels": 1, &/' "$data/heads/qwen2-score/config.json" > single/config.json
run tp-run train -q --init --loss class --data named.jsonl --save-every 0 single
status_is 3 "a classifier of one class is refused"
err_has "single/config.json: one label (num_labels): the loss of a single class is 0" "since its loss would be 0"
for option in "--loss-beta 0.2" "--dpo-smoothing 0.1" "--mask-id 5" "--mask-probability 0.2"; do
    # shellcheck disable=SC2086 # words
    run tp-run train -q -n $option --data named.jsonl "$bert"
    status_is 2 "classes have no ${option% *}"
    err_has "${option% *}: --loss class has none" "which is said"
done
run tp-run train -q --data named.jsonl --save-every 0 --loss tags "$bert"
status_is 2 "a loss that the model has no head for is refused"
err_has "has no head for it" "by name"
run tp-run train -q --data named.jsonl --save-every 0 "$data/encoders/bert-choice"
status_is 3 "choices are not the labels of a text"
err_has "named.jsonl:1: no 'choices'" "which is said"

# ---- no weights ----

for of in models/bert-classify encoders/bert-choice; do
    rm -rf bare drawn
    mkdir bare
    cp "$data/$of/config.json" bare
    run tp-run train -q --init --data "$data/labelled/${of##*/}.jsonl" --seq 24 --steps 1 --global-batch 4 --threads 1 -o drawn bare
    status_is 0 "${of##*/} begins from a config alone"
    ok "with its pooler" grep -q 'bert.pooler.dense.weight' drawn/step-000001/checkpoint.json
done

# ---- sources and targets ----

# target LINE MESSAGE - is refused
target() {
    printf '%s\n' "$1" > bad.jsonl
    run tp-run train -q --data bad.jsonl --seq 16 --save-every 0 "$data/stacks/bart"
    status_is 3 "refused: $1"
    err_has "$2" "which says why"
}
target '{"source":[3,4]}' "bad.jsonl:1: neither 'target' nor 'target_ids'"
target '{"source":[3],"source_ids":[4],"target":[5]}' "'source' and 'source_ids' are both there"
target '{"source":[3],"target":[60]}' "id 60, and the vocabulary has 60"
target '{"source":[],"target":[6]}' "an empty 'source'"
target "{\"source\":[$(seq -s, 3 50),$(seq -s, 3 50)],\"target\":[6]}" "a source of 96 tokens; the model takes 80"
run tp-run train -q -n --data plain.txt "$data/stacks/t5"
err_has "plain.txt: a text, and sources and targets come from JSON lines" "a text is no source with its target"
run tp-run train -q --loss next --data plain.txt "$data/stacks/t5"
status_is 2 "a decoder that reads a source does not go on with a text"

# ---- pairs ----

# the answers have log-likelihoods of -10.182558 and -14.776303 (tp-run score --per-token)
echo '{"prompt":[3,9],"chosen":[4,8],"rejected":[5,7,6],"ref_chosen_logps":-10,"ref_rejected_logps":-12}' > pair.jsonl
for layout in "--tp 1" "--tp 2" "--pp 2" "--sp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    tp-run train -q --loss dpo --loss-beta 0.5 --optimizer sgd --lr-schedule constant --clip 1000 --lr 1e-5 --data pair.jsonl --seq 16 \
        --steps 2 --global-batch 1 --threads 1 --dropout 0 --save-every 0 --json $layout "$data/models/llama-groups" > steps
    ok "dpo on $layout: -log sigmoid(0.5 ((c - c') - (r - r'))), which falls by the rate times the squared norm" awk -F '[:,]' \
        'function abs(x) { return x < 0 ? -x : x }
        BEGIN { n = 0 } /"step",/ { for (i = 1; i < NF; i++) { if ($i == "\"loss\"") loss[n] = $(i + 1); if ($i == "\"grad_norm\"") norm[n] = $(i + 1) } n++ }
        END { z = 0.5 * ((-10.182558 + 10) - (-14.776303 + 12)); fell = 1e-5 * ((norm[0] + norm[1]) / 2) ^ 2
            exit !(n == 2 && abs(loss[0] - log(1 + exp(-z))) < 2e-6 && abs(loss[0] - loss[1] - fell) < 0.005 * fell) }' steps
    test -z "${SHORT:-}" || break
done

# dpo LINE MESSAGE - is refused
dpo() {
    printf '%s\n' "$1" > bad.jsonl
    run tp-run train -q --loss dpo --data bad.jsonl --seq 16 --save-every 0 "$data/models/llama-groups"
    status_is 3 "refused: $1"
    err_has "$2" "which says why"
}
dpo '{"prompt":[3],"chosen":[4],"rejected":[5],"ref_chosen_logps":-1}' "bad.jsonl:1: no 'ref_rejected_logps'"
dpo '{"prompt":[3],"chosen":[4],"rejected":"x","ref_chosen_logps":-1,"ref_rejected_logps":-2}' "are all texts, or all ids"
dpo '{"prompt":[3,4,5,6,7,8],"chosen":[4,5,6,7],"rejected":[5,6],"ref_chosen_logps":-1,"ref_rejected_logps":-2}' "a pair of 18 tokens in all, more than --seq 16"
sed 's/{/{"text":"x","ids":[7,9],"messages":[],"completion":" y",/' pair.jsonl > more.jsonl
for of in pair more; do
    tp-run train -q --loss dpo --data $of.jsonl --seq 16 --steps 1 --global-batch 1 --threads 1 --save-every 0 --json \
        "$data/models/llama-groups" | grep -o '"loss":[^,]*' > $of.loss
done
ok "fields of other samples are none of a pair" sh -c 'test -s more.loss && cmp pair.loss more.loss'
run tp-run train -q --loss dpo --label-smoothing 0.1 --data pair.jsonl --save-every 0 "$data/models/llama-groups"
status_is 2 "pairs have no smoothing of tokens"
err_has "--label-smoothing: --loss dpo has none; what it has is --dpo-smoothing" "but one of their own"
run tp-run train -q --loss dpo --data named.jsonl --save-every 0 "$bert"
status_is 2 "an encoder prefers nothing"

# ---- numbers of other programs ----

# rated LOSS LINE MESSAGE - is refused
rated() {
    printf '%s\n' "$2" > bad.jsonl
    run tp-run train -q --loss $1 --data bad.jsonl --seq 16 --save-every 0 "$data/${4:-models/llama-groups}"
    status_is 3 "$1: refused: $2"
    err_has "bad.jsonl:1: $3" "which says why"
}
rated kto '{"prompt":[3],"completion":[4],"reference_logps":-1}' "no 'label'"
rated kto '{"prompt":[3],"completion":[4],"label":true}' "no 'reference_logps'"
rated kto '{"prompt":[3],"completion":[4],"label":2,"reference_logps":-1}' "'label' is neither true nor false"
rated kto '{"prompt":[3],"completion":"x","label":true,"reference_logps":-1}' "'prompt' and 'completion' are both texts, or both ids"
rated kto '{"prompt":[3],"completion":[4],"KL_completion":[],"label":true,"reference_logps":-1}' "an empty 'KL_completion'"
rated policy '{"ids":[3,4,5],"advantage":1}' "no 'old_logprobs'"
rated policy '{"ids":[3,4,5],"old_logprobs":[-1,-2]}' "no 'advantage'"
rated policy '{"ids":[3,4,5],"old_logprobs":[-1,-2],"advantage":[1]}' "1 numbers in 'advantage' for 2 tokens"
rated policy '{"ids":[3,4],"old_logprobs":[-1,-2],"advantage":1}' "2 tokens of 2 were drawn"
rated policy '{"prompt_ids":[3],"choices":[{"ids":[4],"reward":1}]}' "one 'reward': an advantage is over others of the same prompt"
rated policy '{"prompt_ids":[3],"choices":[{"ids":[4],"reward":"x"},{"ids":[5],"reward":2}]}' "'reward' is no number"
rated policy '{"prompt_ids":[3],"choices":[{"ids":[4]},{"ids":[5],"reward":2},{"ids":[5],"reward":1}]}' "no 'advantage'"
rated distill '{"ids":[3,4,5],"teacher_ids":[[3,4]]}' "no 'teacher_logprobs'"
rated distill '{"ids":[3,4,5],"teacher_ids":[[3,4],[5]],"teacher_logprobs":[[-1,-2],[-1]]}' "'teacher_ids' has not as many tokens in each place"
rated distill '{"ids":[3,4,5],"teacher_ids":[[4,3,4]],"teacher_logprobs":[[-1,-2,-3]]}' "'teacher_ids' has token 4 twice in a place"
rated distill '{"ids":[3,4,5],"teacher_ids":[[3,999]],"teacher_logprobs":[[-1,-2]]}' "id 999, and the vocabulary has"
rated choice '{"choices":[[3,4]],"label":0}' "'choices' is no list of two or more" encoders/bert-choice
rated choice '{"choices":[[3],[4]],"label":2}' "'label' is no number of a choice, from 0 to 1" encoders/bert-choice

rated kto '{"prompt":[3],"completion":[4],"label":true,"reference_logps":2}' "'reference_logps' is 2, and no log-likelihood is above 0"
rated policy '{"ids":[3,4,5],"old_logprobs":[-1,5],"advantage":1}' "'old_logprobs' has 5, and no log-likelihood is above 0"
rated "policy --loss-beta 0.1" '{"ids":[3,4,5],"old_logprobs":[-1,-1],"advantage":1}' "no 'ref_logprobs'"
rated distill '{"ids":[3,4,5],"teacher_ids":[[3,4]],"teacher_logprobs":[[-0.1,-0.1]]}' "'teacher_logprobs': a place has probabilities of 1.80967 in all"
rated multi-label '{"ids":[3,4],"labels":[0,2,1]}' "'labels' has 2, and is from 0 to 1" models/bert-classify
dpo '{"prompt":[3],"chosen":[],"rejected":[5],"ref_chosen_logps":-1,"ref_rejected_logps":-2}' "bad.jsonl:1: an empty 'chosen'"
dpo '{"prompt":[3],"chosen":[4],"rejected":[5],"ref_chosen_logps":3,"ref_rejected_logps":-2}' "'ref_chosen_logps' is 3, and no log-likelihood is above 0"

# of four rewards the advantages are those of GRPO; a choice without one is left out
{
    echo '{"prompt_ids":[3,9],"choices":[{"ids":[4,8],"reward":1},{"ids":[5],"reward":3},{"ids":[6],"reward":null},{"ids":[7],"reward":2.5}]}'
    echo '{"prompt_ids":[3,8],"choices":[{"ids":[4],"reward":1},{"ids":[5],"reward":1}]}'
} > grouped.jsonl
awk 'BEGIN { m = 6.5 / 3; s = sqrt(((1 - m) ^ 2 + (3 - m) ^ 2 + (2.5 - m) ^ 2) / 2) + 1e-4
    printf "{\"ids\":[3,9,4,8],\"advantage\":%.12f,\"old_logprobs\":[-1,-1]}\n", (1 - m) / s
    printf "{\"ids\":[3,9,5],\"advantage\":%.12f,\"old_logprobs\":[-1]}\n{\"ids\":[3,9,7],\"advantage\":%.12f,\"old_logprobs\":[-1]}\n", (3 - m) / s, (2.5 - m) / s
    print "{\"ids\":[3,8,4],\"advantage\":0,\"old_logprobs\":[-1]}\n{\"ids\":[3,8,5],\"advantage\":0,\"old_logprobs\":[-1]}" }' > plain.jsonl
sed 's/,"reward"/,"logprobs":[{"id":4,"logprob":-1}]&/g; s/"ids":\[4,8\],"logprobs":\[/&-1,/' grouped.jsonl > old.jsonl
for of in old plain; do
    tp-run train -q --loss policy --data $of.jsonl --order sequential --seq 16 --steps 1 --global-batch 5 --threads 1 --save-every 0 --json \
        "$data/models/llama-groups" | grep -o '"loss":[^,]*,"grad_norm":[^,]*' > $of.loss
done
ok "rewards of the choices of generate are the advantages of GRPO" awk -F '[:,]' 'function far(a, b) { return a - b > 1e-6 || b - a > 1e-6 }
    { loss[NR] = $2; norm[NR] = $4 } END { exit NR != 2 || far(loss[1], loss[2]) || far(norm[1], norm[2]) || norm[1] < 0.1 }' old.loss plain.loss

# ---- masked tokens ----

mlm() {
    tp-run train -q --data "$data/labelled/roberta-mlm.jsonl" --mask-id 5 --dropout 0 --seq 16 --steps 3 --global-batch 4 --threads 1 \
        --save-every 0 --log "$@" "$data/models/roberta-mlm"
}
mlm one && mlm two --dp 2
ok "which tokens are masked does not depend on the layout" test "$(grep -o '"loss":[0-9.]\{6\}' one)" = "$(grep -o '"loss":[0-9.]\{6\}' two)"
mlm other --seed 2
ok "but on the seed" test "$(grep -o '"loss":[^,]*' one)" != "$(grep -o '"loss":[^,]*' other)"

# ---- layers that share their weights ----

for i in 1 2 3 4 5 6 7 8; do
    echo "{\"ids\":[3,$((i + 5)),$((3 * i + 7)),$((i * i % 41 + 6)),$((5 * i + 7)),9]}"
done > ids.jsonl
shared() {
    tp-run train -q --data ids.jsonl --mask-id 4 --dropout 0 --seq 16 --steps 2 --global-batch 4 --lr 1e-2 --threads 1 --save-every 0 \
        --json "$@" "$data/encoders/albert"
}
for layout in "--pp 1" "--pp 2" "--pp 3" "--pp 2 --dp 2 --zero 1" "--pp 3 --dp 2 --zero 2" "--pp 1 --pipeline zb-v" "--sp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    shared $layout | sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p' > got
    [ "$layout" != "--pp 1" ] || cp got one
    paste one got > both
    ok "layers that share their weights have one gradient on $layout" awk 'function far(a, b) { return a - b > 1e-5 * a || b - a > 1e-5 * a }
        NF != 4 || far($1, $3) || far($2, $4) { bad = 1 } END { exit bad || NR != 2 }' both
done
for layout in "--pp 1" "--pp 2" "--pp 3" "--pp 1 --pipeline zb-v"; do
    # shellcheck disable=SC2086 # words are wanted
    shared --lora 4:query,value $layout | sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p' > got
    [ "$layout" != "--pp 1" ] || cp got one
    paste one got > both
    ok "and so has an adapter of them" awk 'function far(a, b) { return a - b > 1e-5 * a || b - a > 1e-5 * a }
        NF != 4 || far($1, $3) || far($2, $4) { bad = 1 } END { exit bad || NR != 2 }' both
done

# ---- a mask token ----

run tp-run train -q --data "$data/labelled/roberta-mlm.jsonl" --save-every 0 "$data/models/roberta-mlm"
status_is 2 "without a mask token"
err_has "give --mask-id" "it is asked for"

done_testing
