#!/bin/sh
# classify.t - labels, tags, answers and choices, and vectors of texts
. "${top_srcdir:?}/tests/lib.sh"
models=$data/models
encoders=$data/encoders
compare=$top_builddir/tests/compare-tensors

printf '%s\n' '{"ids":[5,6,7]}' '' '{"ids":[8,9,10,11,12]}' '{"ids":[1000]}' '{"ids":[8]}' > ids.json
tp-run classify --input ids.json --json "$models/bert-classify" > one 2> err
ok "a line that cannot be used is status 3" test $? -eq 3
ok "and told" grep -q "^tp-run: ids.json:4: id 1000 is not in the vocabulary of 108" err
ok "lines are answered in their order, by their numbers" test \
    "$(sed 's/.*"type":"\([a-z]*\)".*"line":\([0-9]*\).*/\1 \2/' one | paste -sd, -)" = "class 1,class 3,error 4,class 5"
ok "labels are those of id2label" grep -q '"label":"none",.*"scores":{"left":0.41[0-9]*,"none":0.52[0-9]*,"right":0.05' one
for mesh in tp=2 pp=2 dp=2 sp=2 tp=2,pp=2,dp=2; do
    tp-run classify --mesh $mesh --input ids.json "$models/bert-classify" > plain 2> err
    ok "the same at $mesh" test "$(cut -c 1-9 plain | paste -sd, -)" = "none	0.52,$(sed -n 2p plain | cut -c 1-9),,left	0.73"
done
# softmax and sigmoid against the logits, by awk
tp-run logits --ids 5,6,7 -o l.safetensors "$encoders/distilbert-class"
tail -c +$(($(od -An -t u8 -N 8 l.safetensors) + 9)) l.safetensors | head -c 12 | od -An -t f4 > logits
want=$(awk '{ for (i = 1; i <= 3; i++) s += exp($i); for (i = 1; i <= 3; i++) { p = exp($i) / s; if (p > m) m = p } print m }' logits)
tp-run classify --ids 5,6,7 "$encoders/distilbert-class" > soft
ok "scores are a softmax" near "$want" "$(cut -f 2 soft)" 1e-5
mkdir several
cp "$encoders/distilbert-class/model.safetensors" several
sed '1s/{/{ "problem_type": "multi_label_classification",/' "$encoders/distilbert-class/config.json" > several/config.json
want=$(awk '{ print 1 / (1 + exp(-$1)) }' logits)
tp-run classify --json --ids 5,6,7 several > many
ok "a sigmoid where several labels may be true" near "$want" "$(sed 's/.*"LABEL_0":\([0-9.]*\).*/\1/' many)" 1e-5
tp-run classify --json --function none --ids 5,6,7 several > raw
ok "--function none gives the logits" near "$(awk '{ print $1 }' logits)" "$(sed 's/.*"LABEL_0":\([-0-9.]*\).*/\1/' raw)" 1e-5
tp-run classify --json --ids 5,6,7 "$encoders/ibert-tags" > tags
ok "a head of tags gives each token one" test "$(grep -o '"label":"LABEL_[0-2]"' tags | wc -l)" -eq 3
ok "a decoder's head of answers gives one" test \
    "$(tp-run classify --json --ids 5,6,7,8 "$data/heads/llama-answers" | sed 's/.*"type":"\([a-z]*\)".*"last":[0-3],"score":0.*/\1/')" = answer
ok "and its head of tags tags" test \
    "$(tp-run classify --ids 5,6,7 "$data/heads/mistral-tags" | cut -f 3 | grep -c LABEL)" -eq 3
ok "a decoder's score is that of its last token" test \
    "$(tp-run classify --function none --ids 5,6,7,0 "$data/heads/qwen2-score" | cut -c 1-15)" = \
    "$(tp-run classify --function none --ids 5,6,7 "$data/heads/qwen2-score" | cut -c 1-15)"
ok "and not of its first" test \
    "$(tp-run classify --function none --ids 5,6,7 "$data/heads/qwen2-score" | cut -c 1-15)" != \
    "$(tp-run classify --function none --ids 5,9,8 "$data/heads/qwen2-score" | cut -c 1-15)"
run tp-run classify --ids 5,6,7 "$models/bert-mlm"
status_is 3 "a model without labels is refused"
err_has "this model has no head that classifies" "for this reason"
run tp-run classify --pair x "$encoders/distilbert-class"
status_is 2 "--pair goes with --prompt"

# texts: a tokenizer of eight words that joins pairs as BERT does
words='"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"who":4,"is":5,"here":6,"anna":7'
tokenizer() {
    cat << EOF
{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"BertPreTokenizer"},
 "post_processor":$1,"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},
 "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{$words}}}
EOF
}
bert='{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]}'
template='{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
 {"SpecialToken":{"id":"[SEP]","type_id":0}}],"pair":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
 {"SpecialToken":{"id":"[SEP]","type_id":0}},{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"[SEP]","type_id":1}}],
 "special_tokens":{"[CLS]":{"id":"[CLS]","ids":[2],"tokens":["[CLS]"]},"[SEP]":{"id":"[SEP]","ids":[3],"tokens":["[SEP]"]}}}'
for model in bert-answers bert-choice; do
    mkdir $model
    cp "$encoders/$model/"*.json "$encoders/$model/model.safetensors" $model
done
echo '{"question":"who is here","context":"anna is here"}' > question.json
for frame in "$bert" "$template" "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true},$template]}"; do
    tokenizer "$frame" > bert-answers/tokenizer.json
    tp-run classify --json --input question.json bert-answers > answer
    ok "a pair has its separators" test "$(json answer tokens)" -eq 9
    echo '{"ids":[2,4,5,6,3,7,5,6,3],"token_types":[0,0,0,0,0,1,1,1,1]}' > types.json
    echo '{"ids":[2,4],"token_types":[0]}' > short.json
    run tp-run classify --input short.json bert-answers
    status_is 3 "a type for each id is wanted"
    err_has "short.json:1: 'token_types' is [1], the model takes [2] i32" "which is told with the line"
    tp-run logits --input types.json -o want.safetensors bert-answers
    tp-run logits --input question.json -o got.safetensors bert-answers
    ok "and its types" "$compare" want.safetensors got.safetensors 1e-6 logits
    ok "an answer is tokens of the second text" test "$(json answer first)" -ge 5 -a "$(json answer last)" -le 7
    ok "and their text" grep -q '"answer":"\(anna\|is\|here\|anna is\|is here\|anna is here\)"' answer
done
tp-run classify --answer-tokens 1 --json --input question.json bert-answers > answer
ok "--answer-tokens bounds it" test "$(json answer first)" -eq "$(json answer last)"
roberta='{"type":"RobertaProcessing","sep":["[SEP]",3],"cls":["[CLS]",2],"trim_offsets":true,"add_prefix_space":false}'
tokenizer "$roberta" > bert-answers/tokenizer.json
tp-run classify --json --input question.json bert-answers > answer
ok "RoBERTa has a separator more between" test "$(json answer tokens)" -eq 10
tokenizer "$bert" > bert-choice/tokenizer.json
printf '%s\n' '{"text":"who is here","choices":["anna","who","here is anna"]}' '{"text":"who","choices":["is"]}' > choices.json
tp-run classify --json --input choices.json bert-choice > choice
ok "a line of choices is one answer" test "$(wc -l < choice)" -eq 2
ok "with as many scores" grep -q '"line":1,.*"choice":[0-2],"score":0.[0-9]*,"scores":\[[^,]*,[^,]*,[^,]*\]}$' choice
ok "which are a softmax over them" grep -q '"line":2,.*"choice":0,"score":1,"scores":\[1\]}$' choice
head -n 1 choices.json > choice.json
for model in bert-choice roformer-choice convbert-choice longformer-choice; do
    rm -rf chooser
    mkdir chooser
    cp "$encoders/$model/config.json" "$encoders/$model/model.safetensors" bert-choice/tokenizer.json chooser
    tp-run classify --json --function none --input choice.json chooser > choice
    for end in 7,3 4,3 6,5,7,3; do
        types=$(echo "0,0,0,0,0,$end" | sed 's/,[1-9]/,1/g')
        echo "{\"ids\":[2,4,5,6,3,$end],\"token_types\":[$types]}" > alone.json
        tp-run logits --input alone.json -o alone.safetensors chooser
        tail -c +$(($(od -An -t u8 -N 8 alone.safetensors) + 9)) alone.safetensors > values
        at=$(head -c 600 alone.safetensors | tr -cd '[:print:]' | sed 's/.*"logits":{[^}]*"data_offsets":\[\([0-9]*\).*/\1/')
        od -An -t f4 -N 4 -j "$at" values
    done > want
    json choice scores | tr -d '[]' | tr ',' '\n' | paste - want > both
    ok "$model: --function none gives the logits of choices, each in its frame" \
        awk '($1 - $2) ^ 2 > 1e-10 { bad = 1 } END { exit bad || NR != 3 }' both
done
run tp-run classify --input choices.json bert-answers
status_is 3 "choices are for a model of multiple choice"

# a step of several texts: each is itself alone
printf '%s\n' '{"ids":[5,6,7]}' '{"ids":[8,9,10,11,12,13]}' '{"ids":[9]}' > several.json
for model in deberta-tags deberta-v2-class modernbert-class longformer-tags longformer-class convbert-class squeezebert-tags; do
    tp-run classify --input several.json "$encoders/$model" > together
    for line in 1 2 3; do
        sed -n ${line}p several.json > alone.json
        tp-run classify --input alone.json "$encoders/$model"
    done > alone
    ok "$model: texts do not mix" cmp together alone
done

# vectors
tp-run logits --ids 5,6,7 -o h.safetensors "$models/bert-pooler"
printf '%s\n' '{"ids":[5,6,7]}' '{"ids":[9]}' > two.json
tp-run embed --input two.json "$models/bert-pooler" > mean
tp-run embed --input two.json --pooling cls "$models/bert-pooler" > cls
tp-run embed --input two.json --pooling last "$models/bert-pooler" > last
tp-run embed --input two.json --pooling pooler "$models/bert-pooler" > pooler
# like FILE WHICH - its first vector is, of the three rows of last_hidden_state, the first, the last or the mean
like() {
    header=$(od -An -t u8 -N 8 h.safetensors)
    { od -An -v -t f4 -w128 -j $((8 + header)) -N 384 h.safetensors && head -n 1 "$1"; } | awk -v which="$2" '
        { for (i = 1; i <= NF; i++) x[NR, i] = $i }
        END {
            for (i = 1; i <= 32; i++) {
                y = which == "mean" ? (x[1, i] + x[2, i] + x[3, i]) / 3 : x[which == "cls" ? 1 : 3, i]
                if ((x[4, i] - y) ^ 2 > 1e-12) exit 1
            }
        }'
}
for which in mean cls last; do
    ok "--pooling $which is that of the hidden states" like $which $which
done
ok "of one token mean, first and last are the same" test "$(sed -n 2p mean)" = "$(sed -n 2p cls)" -a "$(sed -n 2p cls)" = "$(sed -n 2p last)"
ok "a vector has the model's columns" test "$(head -n 1 mean | wc -w)" -eq 32
ok "the pooler's is another" test "$(head -n 1 pooler)" != "$(head -n 1 cls)"
tp-run embed --input two.json --normalize "$models/bert-pooler" > unit
ok "--normalize gives length 1" test "$(awk '{ s = 0; for (i = 1; i <= NF; i++) s += $i * $i; printf "%.5f ", s }' unit)" = "1.00000 1.00000 "
for mesh in tp=1 tp=3 pp=2 sp=2 dp=2; do
    run tp-run embed --mesh $mesh --input two.json --normalize -o v.$mesh.safetensors "$models/bert-pooler"
    ok "vectors in a file at $mesh" "$compare" v.tp=1.safetensors v.$mesh.safetensors 1e-5 embeddings
done
ok "which has them in order" test "$(tail -c 256 v.tp=1.safetensors | od -An -v -t f4 -w128 | awk '{ printf "%.5f ", $1 }')" = \
    "$(awk '{ printf "%.5f ", $1 }' unit)"
tp-run embed --input ids.json -o bad.safetensors "$models/bert-pooler" 2> err
ok "a bad line is status 3" test $? -eq 3
ok "its row is NaN" test "$(tail -c 256 bad.safetensors | head -c 128 | od -An -v -t f4 | grep -c nan)" -eq 8
tp-run embed --input two.json -o two.npy "$models/bert-pooler"
printf '\223NUMPY\001\000v\000' > magic
ok "a name that ends in .npy is written in NumPy's format" sh -c 'head -c 10 two.npy | cmp - magic'
ok "with type, order and shape" test "$(head -c 127 two.npy | tail -c +11 | sed 's/ *$//')" = \
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 32), }"
ok "and the vectors" test "$(tail -c 256 two.npy | od -An -v -t f4 -w128 | awk '{ printf "%.5f ", $1 }')" = \
    "$(awk '{ printf "%.5f ", $1 }' mean)"
run tp-run embed --input two.json -o two.npz "$models/bert-pooler"
status_is 2 "another ending is refused"
err_has "--output: two.npz ends neither in .npy nor in .safetensors" "by name"
ok "before anything is written" test ! -e two.npz

# rows are those of the lines, empty ones included
printf '\nfirst\n\nsecond\n\r\n' > gaps.txt
printf 'first\nsecond\n' > close.txt
cp -r "$models/bert-pooler" worded && chmod -R u+w worded
printf '%s' '{"version":"1.0","normalizer":null,"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":null,
    "decoder":null,"added_tokens":[],"model":{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##",
    "max_input_chars_per_word":100,"vocab":{"u":0,"first":7,"second":8}}}' > worded/tokenizer.json
tp-run embed --input close.txt worded > close.out
for layout in "--tp 1" "--dp 2" "--pp 2"; do
    run tp-run embed --input gaps.txt $layout worded
    status_is 0 "empty lines are no error, $layout"
    ok "each has an empty row" test "$(awk '{ print NF ? "v" : "-" }' out | tr -d '\n')" = "-v-v-"
    ok "beside the vectors of the others" test "$(grep . out | cut -c 1-12)" = "$(cut -c 1-12 close.out)"
done
run tp-run embed --json --input gaps.txt worded
ok "--json has an object for each" test "$(cut -d, -f1,3 out | tr '\n' ' ')" = \
    '{"type":"empty","line":1} {"type":"embedding","line":2 {"type":"empty","line":3} {"type":"embedding","line":4 {"type":"empty","line":5} '
tp-run embed --input gaps.txt -o gaps.npy worded
ok "in a file the row is NaN" test "$(tail -c 640 gaps.npy | od -An -v -t f4 -w128 | awk '{ printf "%s", $1 == "nan" ? "-" : "v" }')" = "-v-v-"
run tp-run embed --skip-empty --input gaps.txt worded
ok "--skip-empty leaves them out" cmp out close.out
printf '\n\n' > blank.txt
run tp-run embed --input blank.txt worded
status_is 3 "a file of empty lines alone has no text"
cp -r "$models/bert-classify" labels && chmod -R u+w labels && cp worded/tokenizer.json labels
run tp-run classify --input gaps.txt labels
ok "classify has empty rows, too" test "$(awk '{ print NF ? "v" : "-" }' out | tr -d '\n')" = "-v-v-"

run tp-run embed --ids 5 "$models/bert-mlm"
status_is 0 "hidden states of a model with another head"
run tp-run embed --pooling pooler --ids 5 "$models/bert-mlm"
status_is 3 "a model without a pooler is refused"
err_has "this model has no pooler_output" "for this reason"

# decoders with a head: the states that it reads are those of the same model without it
for model in llama-gqa gemma2 granite mixtral; do
    cp -r "$models/$model" bare
    chmod -R u+w bare
    sed 's/\(For\|LM\)[A-Za-z]*LM"\|LMHeadModel"/Model"/' "$models/$model/config.json" > bare/config.json
    tp-run embed --input two.json --pooling last bare > bare.out
    tp-run embed --input two.json --pooling last "$models/$model" > head.out
    ok "$model: hidden states beside a head" cmp bare.out head.out
    rm -rf bare
done
tp-run embed --input two.json -o v.safetensors "$models/llama-gqa"
for mesh in tp=2 pp=2 sp=2 tp=2,pp=2; do
    run tp-run embed --mesh $mesh --input two.json -o v.$mesh.safetensors "$models/llama-gqa"
    ok "the same at $mesh" "$compare" v.safetensors v.$mesh.safetensors 1e-5 embeddings
done
run tp-run embed --ids 5 "$data/stacks/t5"
status_is 3 "the decoder of two stacks has no vectors of a text"

# what sentence-transformers saves beside a model
cp -r "$models/bert-pooler" sbert
chmod -R u+w sbert
rm sbert/expected.*
mkdir sbert/1_Pooling
# modules STEP... - lists these steps after the model
modules() {
    printf '[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"}'
    for step in "$@"; do
        printf ',{"path":"1_%s","type":"sentence_transformers.models.%s"}' $step $step
    done
    printf ']\n'
}
modules Pooling > sbert/modules.json
for way in mean_tokens:mean cls_token:cls lasttoken:last; do
    printf '{"pooling_mode_%s":true,"pooling_mode_max_tokens":false}' ${way%:*} > sbert/1_Pooling/config.json
    tp-run embed --input two.json sbert > out
    ok "pooling_mode_${way%:*} is the model's choice" cmp out ${way#*:}
done
echo '{"pooling_mode":"cls","embedding_dimension":32}' > sbert/1_Pooling/config.json
tp-run embed --input two.json sbert > out
ok "\"pooling_mode\": \"cls\" as well" cmp out cls
tp-run embed --input two.json --pooling last sbert > out
ok "--pooling goes before it" cmp out last
run tp-shard split -q --tp 2 sbert sbert.tp2
status_is 0 "it is cut"
ok "with the modules' configs" cmp sbert/1_Pooling/config.json sbert.tp2/1_Pooling/config.json
run tp-shard verify sbert.tp2
status_is 0 "and verified"
tp-run embed --input two.json -o v.safetensors sbert
tp-run embed --input two.json -o v.tp2.safetensors sbert.tp2
ok "the ranks pool alike" "$compare" v.safetensors v.tp2.safetensors 1e-5 embeddings
run tp-shard merge -q sbert.tp2 sbert.merged
ok "and merged" diff -r sbert sbert.merged
run tp-shard merge -qf sbert.tp2 sbert.merged
status_is 0 "a merged model is replaced with -f"
echo > sbert.merged/1_Pooling/notes
run tp-shard merge -qf sbert.tp2 sbert.merged
status_is 2 "but not when a directory of it holds more"
err_has "it holds 1_Pooling/notes, which is not ours" "which is named"
echo x >> sbert.tp2/1_Pooling/config.json
run tp-shard verify sbert.tp2
status_is 1 "a changed config of a module is found"
modules Pooling Normalize > sbert/modules.json
tp-run embed --input two.json sbert > out
tp-run embed --input two.json --pooling cls --normalize sbert > unit
ok "Normalize scales to length 1" cmp out unit
# refused REASON CONFIG STEP... - modules.json lists STEPs, the pooling has CONFIG
refused() {
    reason=$1
    echo "$2" > sbert/1_Pooling/config.json
    shift 2
    modules "$@" > sbert/modules.json
    run tp-run embed --ids 5 sbert
    status_is 3 "refused: $reason"
    err_has "$reason" "in one line"
}
cls='{"pooling_mode_cls_token":true}'
refused "embed has no module 'sentence_transformers.models.Dense'" "$cls" Pooling Dense
refused "a second pooling" "$cls" Pooling Pooling
refused "embed pools by mean, cls or lasttoken" '{"pooling_mode_max_tokens":true}' Pooling
refused "a second way to pool" '{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}' Pooling
refused "has no way to pool" '{}' Pooling
refused "has no way to pool" '[]' Pooling
refused "1_Pooling/config.json:2:1: unexpected end" '{' Pooling
echo '[{"path":"../x","type":"Pooling"}]' > sbert/modules.json
run tp-run embed --ids 5 sbert
err_has "'../x' is not a plain file name" "a path that leads away is refused"
echo '[{"path":"x"}]' > sbert/modules.json
run tp-run embed --ids 5 sbert
err_has "a module has a \"type\" and a \"path\"" "a module says what it is"
echo '{}' > sbert/modules.json
run tp-run embed --ids 5 sbert
err_has "modules.json:1:1: expected a list of modules" "and modules.json is a list"
tp-run embed --json --ids 5 "$models/bert-pooler" > out
ok "--json has the vector as a list" grep -q '^{"type":"embedding","file":"--ids","tokens":1,"embedding":\[[-0-9.e,]*\]}$' out
done_testing
