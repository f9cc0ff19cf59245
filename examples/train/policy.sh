#!/bin/sh
# policy.sh - a model learns what a program rewards: rounds of generate | reward | score | train
#
#     policy.sh MODEL PROMPTS REWARD [ROUNDS]
#
# PROMPTS has a prompt a line.  REWARD reads what tp-run generate prints and adds a "reward" to each choice, as
# reward.awk does.  Round N leaves its texts, with their likelihoods by the model that drew them and by MODEL, in
# round-N.jsonl, and its weights in round-N, which is a model; a round that is there already is not made again.
set -eu
model=$1 prompts=$2 reward=$3 rounds=${4:-4}
now=$model
round=1
while [ "$round" -le "$rounds" ]; do
    texts=round-$round.jsonl
    if [ ! -f "$texts" ]; then
        tp-run generate -q --json --input "$prompts" --num-return 16 --max-tokens 12 --ignore-eos --temperature 1 --top-k 0 --top-p 1 \
            --logprobs 0 --seed "$round" "$now" > drawn.jsonl
        "$reward" < drawn.jsonl > rewarded.jsonl
        tp-run score -q --references policy --input rewarded.jsonl "$model" > "$texts.part"
        mv "$texts.part" "$texts"
        rm drawn.jsonl rewarded.jsonl
    fi
    tp-run train -q --resume --loss policy --loss-beta 0.02 --data "$texts" --seq 64 --global-batch 16 --epochs 1 --lr 1e-4 \
        --lr-schedule constant --dropout 0 -o "round-$round" "$now"
    awk -v round="$round" '{ n = split($0, part, /"reward":/); for (i = 2; i <= n; i++) { sum += part[i]; all++ } }
        END { printf "round %d: mean reward %.3f of %d texts\n", round, sum / all, all }' "$texts"
    now=round-$round
    round=$((round + 1))
done
