#!/bin/sh
# mem-plan.t - layouts of clusters: what fits, what is fastest, and why the rest is not there
. "${top_srcdir:?}/tests/lib.sh"

for name in llama-3-8b llama-3-70b llama-3.1-405b smollm2-135m; do shape $name; done

# best OPTION... - tp, pp, dp, zero of the fastest
best() {
    mem-estimate plan --json --weights bf16 "$@" | head -n 1 |
        sed 's/.*"tp":\([0-9]*\),.*"dp":\([0-9]*\),"pp":\([0-9]*\)},"zero":\([0-9]\).*/\1 \3 \2 \4/'
}

# the guide: a model that fits one device is replicated; one that does not is cut
ok "what fits one device is trained in replicas" \
    test "$(best --mode train --gpu h100-80g --gpus 8 --global-batch 64 --seq 1024 smollm2-135m.json)" = "1 1 8 0"
run mem-estimate plan --mode train --gpu a100-80g --gpus 8 --global-batch 16 --seq 2048 --weights bf16 --json llama-3-8b.json
ok "what does not is sharded or cut" test "$(head -n 1 out | grep -c '"zero":0.*"tp":1')" = 0
# shellcheck disable=SC2046 # words are wanted
set -- $(best --mode train --gpu h100-80g --gpus 16 --global-batch 64 --seq 2048 --net 400Gbit llama-3-8b.json)
ok "over a fast network replicas are preferred to stages" test "$2" = 1
# shellcheck disable=SC2046 # words are wanted
set -- $(best --mode train --gpu h100-80g --gpus 16 --global-batch 64 --seq 2048 --net 1Gbit llama-3-8b.json)
ok "over a slow one stages are preferred to replicas" test "$2" -gt 1
ok "a large model on a node is cut over tp to answer fast" \
    test "$(best --gpu a100-80g --gpus 8 --global-batch 1 --seq 4096 llama-3-70b.json | cut -d' ' -f1)" = 8

# 405B on 1,024 devices
run mem-estimate plan --mode train --gpu h100-80g --gpus 1024 --global-batch 2048 --seq 8192 --weights bf16 --top 1000 --json llama-3.1-405b.json
status_is 0 "405B on 1,024 devices is planned"
ok "tp never leaves a node" awk '!/"plan"/ { next } { match($0, /"tp":[0-9]+/); n = substr($0, RSTART + 5, RLENGTH - 5) + 0 }
    n > 8 { exit 1 }' out
ok "all devices are used" awk '!/"plan"/ { next } { gsub(/[^0-9,:]/, ""); split($0, f, /[,:]+/) } { n++ } END { exit !n }' out
ok "a step is the sum of its parts" awk -F '[:,]' '!/"plan"/ { next } {
    for (i = 1; i < NF; i++) { gsub(/[{}"]/, "", $i); v[$i] = $(i + 1) }
    d = v["seconds"] - v["compute"] - v["tensor"] - v["pipeline"] - v["data"]
    if (d * d > 1e-12 * v["seconds"] * v["seconds"]) exit 1 }' out
ok "the fastest come first" sh -c "sed -n 's/.*\"seconds\":\([0-9.e-]*\).*/\1/p' out | sort -gc"
ok "every layout fits" awk '/"plan"/ { match($0, /"memory":[0-9]+/); if (substr($0, RSTART + 9, RLENGTH - 9) + 0 > 84933000000) exit 1 }' out
ok "and why others do not is counted" grep -q '"too large for the memory":[1-9]' out

run mem-estimate plan --mode train --gpu t4 --gpus 2 --weights bf16 llama-3-70b.json
status_is 1 "when nothing fits the status is 1"
out_has "0 fit" "and that is said"
run mem-estimate plan --gpu h100-80g llama-3-8b.json
status_is 2 "the number of devices must be given"
run mem-estimate plan --gpu h100-80g --gpus 8 --net 400 llama-3-8b.json
status_is 2 "a rate needs its unit"
done_testing
