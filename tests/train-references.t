#!/bin/sh
# train-references.t - likelihoods by another model beside training data: tp-run score --references
. "${top_srcdir:?}/tests/lib.sh"
llama=$data/models/llama-groups

echo '{"prompt":[3,9],"chosen":[4,8],"rejected":[5,7,6],"ref_chosen_logps":1}' > pair.jsonl
for layout in "--tp 1" "--tp 2" "--pp 2" "--dp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    run tp-run score -q --references dpo --input pair.jsonl $layout "$llama"
    out_has '{"prompt":[3,9],"chosen":[4,8],"rejected":[5,7,6],"ref_chosen_logps":-10.1825' "pairs have the likelihood of an answer on $layout"
    out_has '"ref_rejected_logps":-14.7763' "and of the other"
done
cp out ready.jsonl
run tp-run train -q --json --loss dpo --data ready.jsonl --seq 16 --steps 1 --global-batch 1 --threads 1 --save-every 0 --dropout 0 "$llama"
out_has '"loss":0.69314' "by the model itself, the first loss of DPO is log 2"

# an answer to another prompt is that of the line before
printf '%s\n' '{"prompt":[3,9],"completion":[4,8],"label":true}' '{"prompt":[3,9,7],"completion":[5,6,4],"label":false,"more":1}' \
    '{"prompt":[7,9],"completion":[6],"label":true,"KL_completion":[8]}' > judged.jsonl
run tp-run score -q --references kto --input judged.jsonl "$llama"
ok "each answer has one to another prompt" awk 'NR == 1 && !/"KL_completion":\[6\]/ { bad = 1 } NR == 2 && !/"more":1,"KL_completion":\[4,8\]/ { bad = 1 }
    NR == 3 && !/"KL_completion":\[8\]/ { bad = 1 } END { exit bad || NR != 3 }' out
ok "both of which have likelihoods" test "$(grep -c '"reference_logps":-.*"reference_KL_logps":-' out)" = 3
cp out ready.jsonl
run tp-run train -q --json --loss kto --data ready.jsonl --seq 16 --steps 1 --global-batch 3 --threads 1 --save-every 0 --dropout 0 "$llama"
ok "by the model itself, the first loss of KTO is a half" grep -Eq '"loss":0\.(50000|49999)' out

# what generate draws has the likelihoods of the model that draws it
printf 'First Citizen:\nROMEO:\n' > prompts
tp-run generate -q --json --input prompts --num-return 3 --max-tokens 6 --ignore-eos --temperature 1 --top-k 0 --top-p 1 --logprobs 0 "$bard" |
    sed 's/"finish"/"reward":1,&/g' > drawn.jsonl
run tp-run score -q --references policy --input drawn.jsonl "$bard"
ok "which are those that generate tells" awk '
    function number(text) { sub(/.*:/, "", text); return text + 0 }
    { line = $0; n = 0
      while (match(line, /"logprob":[^,}]*/)) { told[++n] = number(substr(line, RSTART, RLENGTH)); line = substr(line, RSTART + RLENGTH) }
      sub(/.*"ref_logprobs":/, ""); gsub(/[][}]/, ""); m = split($0, own, ",")
      for (i = 1; i <= n; i++) if (own[i] - told[i] > 1e-4 || told[i] - own[i] > 1e-4) bad = 1
      all += n; if (n != m) bad = 1 } END { exit bad || all != 36 }' out
cp out ready.jsonl
run tp-run train -q --json --loss policy --loss-beta 0.1 --data ready.jsonl --seq 32 --steps 1 --global-batch 6 --threads 1 --save-every 0 --dropout 0 "$bard"
ok "with equal rewards nothing is learned, and nothing is far from the reference" awk -F '[:,]' '/"step",/ { for (i = 1; i < NF; i++) {
    if ($i == "\"loss\"") loss = $(i + 1); if ($i == "\"grad_norm\"") norm = $(i + 1) } } END { exit !(loss < 1e-6 && loss > -1e-6 && norm < 1e-3) }' out

# a teacher's whole distribution is that of the model: nothing is learned from it
echo '{"text":"What now, my lord?"}' > taught.jsonl
for layout in "--tp 1" "--tp 2" "--pp 2"; do
    # shellcheck disable=SC2086 # words are wanted
    tp-run score -q --references distill --teacher-top 1024 --input taught.jsonl $layout "$bard" > ready.jsonl
    run tp-run train -q --json --loss distill --data ready.jsonl --seq 32 --steps 1 --global-batch 1 --threads 1 --save-every 0 --dropout 0 "$bard"
    ok "a model is its own teacher on $layout" awk -F '[:,]' '/"step",/ { for (i = 1; i < NF; i++) {
        if ($i == "\"loss\"") loss = $(i + 1); if ($i == "\"grad_norm\"") norm = $(i + 1) } } END { exit !(loss < 1e-5 && loss > -1e-5 && norm < 1e-3) }' out
done
tp-run score -q --references distill --teacher-top 2 --teacher-temperature 2 --input taught.jsonl "$bard" > warm.jsonl
tp-run score -q --references distill --teacher-top 2 --input taught.jsonl "$bard" > cold.jsonl
ok "a temperature makes the likeliest tokens less likely" sh -c 'sed "s/.*logprobs\":\[\[//; s/,.*//" warm.jsonl cold.jsonl | paste -s - | awk "{ exit !(\$1 < \$2) }"'

# ---- refusals ----

for given in "--references dpo" "--references dpo --per-token --input pair.jsonl" "--references dpo --input pair.jsonl --stride 2"; do
    # shellcheck disable=SC2086 # words are wanted
    run tp-run score $given "$llama"
    status_is 2 "refused: $given"
    err_has "--references: reads the lines of --input alone" "since it reads lines alone"
done
for given in "--kto-desirable 2" "--kto-undesirable 2" "--policy-clip 0.1" "--policy-clip-high 0.1" --policy-mean-text --policy-no-scale \
    "--distill-temperature 2" "--distill-hard 0.1"; do
    # shellcheck disable=SC2086 # words are wanted
    run tp-run train -q --loss orpo --data pair.jsonl --save-every 0 $given "$llama"
    err_has "${given%% *}: --loss orpo has none" "an option of another loss is refused: $given"
done
run tp-run score --references dpo --teacher-top 3 --input pair.jsonl "$llama"
status_is 2 "pairs have no teacher"
err_has "--teacher-top: goes with --references distill" "which is said"
run tp-run score --references kto --input pair.jsonl "$llama"
status_is 3 "a line of another kind is refused"
err_has "pair.jsonl:1: no 'label'" "by its line"
run tp-run score --references dpo --window 2 --input pair.jsonl "$llama"
status_is 3 "so is one longer than the window"
err_has "pair.jsonl:1: 3 tokens, and a window has 2" "by its line"
done_testing
