#!/bin/sh
# mem-plan.t - layouts of clusters: what fits, what is fastest, and why the rest is not there
. "${top_srcdir:?}/tests/lib.sh"

for name in llama-3-8b llama-2-13b llama-3-70b llama-3.1-405b smollm2-135m; do shape $name; done

# The guide that most of this follows knows neither ranks that share a sequence nor orders without bubbles, and no margin
guide="--mesh sp=1 --schedule 1f1b --margin 0"

# best OPTION... - tp, pp, dp, zero of the fastest
# shellcheck disable=SC2086 # words are wanted
best() {
    mem-estimate plan --json --weights bf16 $guide "$@" | head -n 1 |
        sed 's/.*"tp":\([0-9]*\),.*"dp":\([0-9]*\),"pp":\([0-9]*\)},"zero":\([0-9]\).*/\1 \3 \2 \4/'
}

# search OPTION... - all layouts that fit, fastest first, as lines of tp pp dp zero size number seconds
# shellcheck disable=SC2086 # words are wanted
search() {
    mem-estimate plan --json --weights bf16 $guide --top 100000 "$@" > all.json
    sed -n 's/.*"tp":\([0-9]*\),.*"dp":\([0-9]*\),"pp":\([0-9]*\)},"zero":\([0-9]\).*"micro_batch":\([0-9]*\),"micro_batches":\([0-9]*\).*"seconds":\([0-9.e-]*\).*/\1 \3 \2 \4 \5 \6 \7/p' all.json > plans
}

# fastest CONDITION - seconds of the fastest layout of the last search for which awk's CONDITION holds
fastest() { awk '{ tp = $1; pp = $2; dp = $3; zero = $4 } '"$1"' { print $7; exit }' plans; }
# Each kind of parallelism alone
zero='tp == 1 && pp == 1 && zero > 0'
stages='tp == 1 && dp == 1'
tensors='pp == 1 && dp == 1'
# faster A B - A seconds are fewer, and both are there
faster() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
# every CONDITION - it holds for all layouts of the last search, and there are some
every() { awk '{ tp = $1; pp = $2; dp = $3; zero = $4 } !('"$1"') { bad = 1 } END { exit bad || !NR }' plans; }
# first CONDITION - it holds for the fastest of them
first() { head -n 1 plans > one && mv one plans && every "$1"; }

# The guide: "Efficient Training on Multiple GPUs" of Hugging Face's transformers, scalability strategy.
# On a node, case 1: what fits one device is replicated
ok "what fits one device is trained in replicas" \
    test "$(best --mode train --gpu h100-80g --gpus 8 --global-batch 64 --seq 1024 smollm2-135m.json | cut -d' ' -f1-3)" = "1 1 8"
# Case 2: what does not takes stages, ZeRO or tp, by and large equal where links are fast ...
search --mode train --gpu a100-80g --gpus 8 --global-batch 16 --seq 2048 llama-3-8b.json
ok "what does not is sharded or cut" every 'zero > 0 || tp > 1 || pp > 1'
search --mode train --gpu a100-80g --gpus 8 --global-batch 64 --seq 2048 llama-2-13b.json
ok "over NVLink the slowest kind takes less than half again the time of the fastest" \
    awk -v all="$(fastest "$stages") $(fastest "$zero") $(fastest "$tensors")" 'BEGIN {
        n = split(all, t, " "); low = high = t[1]
        for (i = 2; i <= n; i++) { if (t[i] < low) low = t[i]; if (t[i] > high) high = t[i] }
        exit n != 3 || high > 1.5 * low }'
# ... while without such links stages are faster than tp and ZeRO
for batch in 8 16 32 64 128; do
    search --mode train --gpu l40s --gpus 8 --global-batch $batch --seq 2048 llama-2-13b.json
    ok "without NVLink stages are faster than tp for $batch sequences" faster "$(fastest "$stages")" "$(fastest "$tensors")"
    ok "and than ZeRO" faster "$(fastest "$stages")" "$(fastest "$zero")"
    search --mode train --gpu a100-80g-pcie --gpus 8 --global-batch $batch --seq 2048 llama-2-13b.json
    ok "with more memory, too, faster than tp" faster "$(fastest "$stages")" "$(fastest "$tensors")"
    ok "and than ZeRO" faster "$(fastest "$stages")" "$(fastest "$zero")"
done
# Case 3: a layer larger than a device.  8 layers of 17.2 billion parameters: 34 GB of weights each, 69 with
# their gradients, 275 to train
cat > wide.json << 'END'
{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":32768,"intermediate_size":131072,"vocab_size":32000,
"num_hidden_layers":8,"num_attention_heads":256,"num_key_value_heads":256,"max_position_embeddings":2048,"torch_dtype":"bfloat16"}
END
search --mode train --gpu h200 --gpus 128 --global-batch 128 --seq 2048 wide.json
ok "a layer that does not fit is cut over tp unless there is ZeRO" every 'tp > 1 || zero > 0'
ok "with which it need not be" test -n "$(fastest 'tp == 1 && zero == 3')"
search --mode train --gpu h100-80g --gpus 128 --global-batch 128 --seq 2048 wide.json
ok "one that ZeRO cannot gather either is cut over tp always" every 'tp > 1'
search --gpu t4 --gpus 32 --global-batch 8 --seq 512 wide.json
ok "stages alone do not answer with such a layer" every 'tp > 1'

# Between nodes.  A fast network: ZeRO, or stages with tp and replicas
search --mode train --gpu h100-80g --gpus 64 --global-batch 256 --seq 2048 --net 400Gbit llama-2-13b.json
ok "over a fast network what fits is trained by ZeRO" first "$zero"
search --mode train --gpu a100-40g --gpus 48 --global-batch 480 --seq 2048 --net 400Gbit llama-3-70b.json
ok "and what barely fits in replicas of stages cut over tp" first 'tp > 1 && pp > 1 && dp > 1'
# A slow one and little memory: replicas of stages cut over tp, and ZeRO
while read -r gpu gpus batch model; do
    search --mode train --gpu "$gpu" --gpus "$gpus" --global-batch "$batch" --seq 2048 --net 10Gbit "$model.json"
    ok "over a slow network ZeRO alone trains $model slower than stages" \
        faster "$(fastest 'pp > 1')" "$(fastest "$zero" | awk '{ print $1 / 1.25 }')"
    ok "and little memory asks for all of dp, pp, tp and ZeRO" first 'dp > 1 && pp > 1 && tp > 1 && zero > 0'
done << 'END'
a100-40g 64 256 llama-3-70b
v100-32g 32 128 llama-2-13b
END
# shellcheck disable=SC2046 # words are wanted
set -- $(best --mode train --gpu h100-80g --gpus 16 --global-batch 64 --seq 2048 --net 400Gbit llama-3-8b.json)
ok "over a fast network replicas are preferred to stages" test "$2" = 1
# shellcheck disable=SC2046 # words are wanted
set -- $(best --mode train --gpu h100-80g --gpus 16 --global-batch 64 --seq 2048 --net 1Gbit llama-3-8b.json)
ok "over a slow one stages are preferred to replicas" test "$2" -gt 1
ok "a large model on a node is cut over tp to answer fast" \
    test "$(best --gpu a100-80g --gpus 8 --global-batch 1 --seq 4096 llama-3-70b.json | cut -d' ' -f1)" = 8

# offloading costs its transfers and the update in the host's memory
moved() {
    mem-estimate plan --mode train --gpu a100-80g --gpus 8 --dp 8 --zero 3 --micro-batch 1 --global-batch 8 --seq 2048 \
        --recompute full --top 1 --offload "$@" --json llama-3-8b.json | sed -n 's/.*"seconds":\([0-9.]*\).*/\1/p' | head -n 1
}
set -- "$(moved none)" "$(moved optimizer)" "$(moved params)" "$(moved optimizer --host-bandwidth 400GB)"
ok "offloading takes its bytes over the link and 28 a parameter in the host's memory" \
    awk -v none="$1" -v half="$2" -v all="$3" -v fast="$4" 'BEGIN { n = 8030261248
        d = half - none - n * 4 / 8 / 31e9 - n * 28 / 200e9
        exit !(none < half && half < all && d > 0 && d < 0.05 && (half - fast - n * (32 / 200e9 - 28 / 400e9 - 4 / 8 / 31e9)) ^ 2 < 1e-6) }'
# activations go there and come back beside the passes: 1 or 8 devices share the host's memory
for n in 1 8; do
    away=$(mem-estimate train --weights bf16 --micro-batch 4 --seq 2048 --offload activations --json smollm2-135m.json | sed 's/.*"host":\([0-9]*\).*/\1/')
    mem-estimate plan --mode train --gpu h100-80g --gpus $n --dp $n --tp 1 --pp 1 --zero 0 --micro-batch 4 --global-batch $((8 * n)) --seq 2048 \
        --recompute none --weights bf16 --top 1 --offload activations --json smollm2-135m.json > moved
    ok "$n of them wait for the slower of link and memory" sh -c "sed -n '1s/.*\"compute\":\([0-9.]*\).*\"host\":\([0-9.]*\).*/\1 \2/p' moved |
        awk -v n=$n -v away=$away '{ rate = 200e9 / n; if (rate > 63e9) rate = 63e9; d = (\$1 + \$2) / (4 * away / rate)
            exit !(\$2 > 0 && d > 0.99999 && d < 1.00001) }'"
done
on_3090() {
    mem-estimate plan --mode train --gpu rtx3090 --gpus 8 --dp 8 --tp 1 --zero 3 --micro-batch 1 --global-batch 8 --seq 4096 --top 1 "$@" \
        llama-3-8b.json
}
run on_3090 --recompute none --offload none
status_is 1 "a layout that nothing but activations keeps from the device"
run on_3090 --recompute none
out_has "offload activations, as nothing fits without" "fits where these go to the host"
ok "at no cost beside products this long" sh -c '! grep -q ", host " out'
run mem-estimate plan --mode train --gpu rtx3090 --gpus 1 --seq 1024 llama-3-8b.json
out_has "offload optimizer, as nothing fits without" "a plan offloads where nothing fits otherwise"
out_has ", host " "and says what that takes"
run mem-estimate plan --mode train --gpu rtx3090 --gpus 1 --seq 1024 --offload none --json llama-3-8b.json
status_is 1 "unless it may not"
run mem-estimate plan --mode train --gpu a100-80g --gpus 64 --net 25Gbit --zero 3 --tp 1 --pp 1 --sp 1 --global-batch 64 --top 1 llama-3-8b.json
out_has "  3/8 " "weights are shared by the ranks of a node where the network is slow"
mem-estimate plan --mode train --gpu a100-80g --gpus 64 --net 25Gbit --zero 3 --tp 1 --pp 1 --sp 1 --global-batch 64 --top 1 --hsdp 64 llama-3-8b.json > whole
ok "which is faster" awk 'FNR == 1 { p = 0 } p { s[++n] = $(NF - 2); p = 0 } /tokens\/s MFU/ { p = 1 } END { exit !(n == 2 && s[1] < s[2]) }' out whole

# what frameworks run
plans() { mem-estimate plan --mode train --gpu h100-80g --gpus 64 --seq 4096 --global-batch 256 --top 500 --json "$@" llama-3-70b.json; }
schedules() { plans "$@" | sed -n 's/.*"schedule":"\([^"]*\)".*/\1/p' | sort -u | xargs; }
ok "Megatron has 1f1b and interleaved" test "$(schedules --framework megatron)" = "1f1b interleaved"
ok "DeepSpeed 1f1b" test "$(schedules --framework deepspeed)" = 1f1b
plans --framework torchtitan > titan
ok "torchtitan shards weights or nothing" sh -c 'grep -q "\"zero\":3" titan && ! grep -q "\"zero\":[12]," titan'
ok "interleaved stages of Megatron divide the micro-batches" sh -c 'mem-estimate plan --mode train --framework megatron --gpu h100-80g --gpus 64 --seq 4096 --global-batch 192 --top 500 --json llama-3-70b.json |
    sed -n "s/.*\"pp\":\([0-9]*\)}.*\"micro_batches\":\([0-9]*\),\"schedule\":\"interleaved\".*/\1 \2/p" | awk "\$2 > \$1 && \$2 % \$1 { bad = 1 } END { exit bad || !NR }"'
run mem-estimate plan --mode train --framework deepspeed --schedule zb-v --gpu h100-80g --gpus 8 llama-3-8b.json
status_is 2 "what a framework lacks is refused"
err_has "--schedule zb-v: deepspeed does not have it" "by name"
run mem-estimate train --framework vllm llama-3-8b.json
status_is 2 "vLLM trains nothing"
run mem-estimate plan --framework vllm --gpu h100-80g --gpus 8 --global-batch 64 --seq 4096 --json llama-3-70b.json
ok "and shares no sequence" sh -c 'grep -q "\"plan\"" out && ! grep -q "\"sp\":[2-9]" out'
out_has '"framework' "which is counted"
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 llama-3-8b.json
out_has "any layout" "without a framework any layout is planned, which is said"

# whole runs
run mem-estimate plan --mode train --gpu h100-80g --gpus 64 --seq 4096 --global-batch 64 --top 1 --train-tokens 15T --price 2.5 --watts 700 --json llama-3-8b.json
ok "a whole run takes its tokens at the first plan's speed, in days, money and energy" awk -F '[:,{}]' '{
    for (i = 1; i < NF; i++) if ($i ~ /^"/) v[$i] = $(i + 1) }
    END { days = 15e12 / v["\"tokens_per_second\""] / 86400
        exit !((v["\"days\""] / days - 1) ^ 2 < 1e-12 && (v["\"price\""] / (days * 24 * 64 * 2.5) - 1) ^ 2 < 1e-12 &&
            (v["\"kwh\""] / (days * 24 * 64 * 0.7) - 1) ^ 2 < 1e-12 && v["\"days_most\""] > days) }' out
run mem-estimate plan --gpu h100-80g --gpus 8 --train-tokens 15T llama-3-8b.json
status_is 2 "which inference has not"
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 --train-tokens 15X llama-3-8b.json
status_is 2 "a count has a unit that is known"
# verdicts of a plan
run mem-estimate plan --mode train --gpu a100-80g --gpus 8 --seq 4096 --micro-batch 16 llama-3-8b.json
ok "a micro-batch without a batch is not refused for its division" sh -c '! grep -q "0 fit" out || grep -q "too large" out'
run mem-estimate plan --mode train --gpu rtx3090 --gpus 1 --seq 1024 --offload none llama-3-8b.json
out_has "what would fit:" "where nothing fits, what would is told"
sed '1,/^what would fit/d' out > ways
ok "and train takes it" sh -c 'test -s ways && while IFS= read -r way; do
    mem-estimate train --gpu rtx3090 --seq 1024 $(echo "$way" | sed "s/: [0-9.]* [GM]iB$//; s/^[0-9]* ranks*: //") llama-3-8b.json > /dev/null || exit 1; done < ways'
for how in none searched; do
    offload=--offload=none && [ $how = none ] || offload=
    mem-estimate plan --mode train --gpu rtx3090 --gpus 1 --seq 16384 $offload llama-3-8b.json | sed '1,/^what would fit/d' > $how
done
ok "and the ways are the same where offloading was tried in vain" sh -c 'test -s none && cmp none searched'
fast() { mem-estimate plan --mode train --gpu rtx3090 --gpus 2 --dp 2 --zero 0 --seq 128 --top 1 --json "$@" "$bard" | sed -n 's/.*"seconds":\([0-9.e-]*\).*/\1/p' | head -n 1; }
ok "a link that is named is the link" awk -v a="$(fast --link 1GB)" -v b="$(fast --link 100GB)" 'BEGIN { exit !(a > b) }'

# 405B on 1,024 devices
# shellcheck disable=SC2086 # words are wanted
run mem-estimate plan --mode train --gpu h100-80g --gpus 1024 --global-batch 2048 --seq 8192 --weights bf16 $guide --top 1000 --json llama-3.1-405b.json
status_is 0 "405B on 1,024 devices is planned"
ok "tp never leaves a node" awk '!/"plan"/ { next } { match($0, /"tp":[0-9]+/); n = substr($0, RSTART + 5, RLENGTH - 5) + 0 }
    n > 8 { exit 1 }' out
ok "all devices are used, and the whole batch" awk '!/"plan"/ { next } {
    text = $0
    while (match(text, /"(tp|sp|ep|dp|pp|micro_batch|micro_batches)":[0-9]+/)) {
        split(substr(text, RSTART, RLENGTH), f, /[":]+/)
        v[f[2]] = f[3]
        text = substr(text, RSTART + RLENGTH)
    }
    if (v["tp"] * v["sp"] * v["ep"] * v["dp"] * v["pp"] != 1024) exit bad = 1
    if (v["dp"] * v["micro_batch"] * v["micro_batches"] != 2048) exit bad = 1
    n++ } END { exit bad || !n }' out
ok "a step is the sum of its parts" awk -F '[:,]' '!/"plan"/ { next } {
    for (i = 1; i < NF; i++) { gsub(/[{}"]/, "", $i); v[$i] = $(i + 1) }
    d = v["seconds"] - v["compute"] - v["tensor"] - v["exchange"] - v["pipeline"] - v["data"] - v["host"]
    if (d * d > 1e-12 * v["seconds"] * v["seconds"]) exit 1 }' out
ok "without tp none of it is sums over tp" awk '!/"tp":1,/ { next } { n++ } !/"tensor":0,/ { bad = 1 } END { exit bad || !n }' out
ok "the fastest come first" sh -c "sed -n '/\"plan\"/s/.*\"seconds\":\([0-9.e-]*\).*/\1/p' out | sort -gc"
ok "every layout fits" awk '/"plan"/ { match($0, /"memory":[0-9]+/); if (substr($0, RSTART + 9, RLENGTH - 9) + 0 > 84933000000) exit 1 }' out
ok "and why others do not is counted" grep -q '"too large for the memory":[1-9]' out
# The space, counted anew: all divisors, stages of at least one of 126 layers, micro-batches that divide what
# a replica gets of the batch, four stages of ZeRO (where there are replicas, the second without stages) and two recomputations
# (a third, which saves nothing beside flash attention, is refused once)
# counts: tried evaluated simulated fit, and a number for each rule
tail -n 1 out | tr ',{}' '\n' | sed -n 's/.*":\([0-9][0-9]*\)$/\1/p' | tr '\n' ' ' > counts
awk 'BEGIN {
    for (tp = 1; tp <= 1024; tp *= 2) {
        if (tp > 8) { node++; continue }
        for (pp = 1; pp * tp <= 1024; pp *= 2) {
            dp = 1024 / tp / pp
            if (pp > 126) { model++; continue }
            stages = dp == 1 ? 1 : pp > 1 ? 3 : 4
            states += 2 * stages
            for (size = 1; size <= 2048 / dp; size *= 2) { ways += 2 * stages; zero += 4 - stages }
        }
    }
    print node + model + zero + ways + 1, states, ways, model, node, 0, zero }' > space
ok "no layout of the space is left out" awk 'NR == FNR { tried = $1; ways = $3; rules = $4 " " $5 " " $6 " " $7; next }
    { exit $1 != tried || $5 " " $6 " " $7 " " $8 != rules || $4 + $9 != ways }' space counts
ok "a layout is reckoned again with a larger micro-batch only if it has fitted" \
    awk 'NR == FNR { states = $2; next } { exit $2 > $4 + states }' space counts
ok "which spares two of three" awk 'NR == FNR { ways = $3; next } { exit 3 * $2 > ways }' space counts

ok "every layout that fits is printed" awk 'NR == FNR { fit = $4; next } /"plan"/ { n++ } END { exit n != fit }' counts out

# agreed BATCH TP PP - the plan has just those micro-batches that train says fit
agreed() {
    for way in none full; do
        for size in 1 2 4 8 16 32 64; do
            mem-estimate train --weights bf16 --gpu l40s --seq 2048 --sequence-parallel --tp "$2" --pp "$3" --recompute $way \
                --micro-batch $size --micro-batches $(($1 / size)) llama-2-13b.json > /dev/null && echo $way $size
        done
    done > want
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate plan --mode train --weights bf16 --gpu l40s --gpus 8 $guide --global-batch "$1" --seq 2048 --top 10000 --json llama-2-13b.json |
        sed -n 's/.*"tp":'"$2"',.*"dp":1,"pp":'"$3"'},.*"recompute":"\([a-z]*\)","micro_batch":\([0-9]*\),.*/\1 \2/p' |
        sort -k1,1r -k2,2n > got
    test -s want && diff want got
}
ok "tensor ranks fit with the micro-batches that train says" agreed 64 8 1
ok "and stages" agreed 64 1 8
ok "and both" agreed 64 2 4

# Latent attention has keys and values of each head in training, 192 + 128 columns a head and not 576 + 512: operations of a
# token are those of 37 billion parameters three times over, and of half of 4,096 keys
shape deepseek-v3
dsv3() { mem-estimate plan --mode train --gpu h100-80g --gpus 2048 --mesh tp=1,ep=64,sp=1,pp=16,dp=2 --global-batch 15360 --seq 4096 --weights bf16 \
    --schedule 1f1b --micro-batch 1 --zero 1 --recompute full --top 1 --json deepseek-v3.json; }
ok "DeepSeek-V3 is trained with the operations of its published form" near "3 * (2 * 36.6e9 + 61 * 2 * 128 * 320 * 2048)" \
    "$(dsv3 | sed -n '1s/.*"seconds":\([0-9.e+-]*\).*"tokens_per_second":\([0-9.e+-]*\),"mfu":\([0-9.e+-]*\).*/\3 * 2048 * 989e12 \/ \2/p')" 3e9

# DeepSeek-V3 as it was trained (DeepSeek-AI 2024, section 3.1): about 3.2 million tokens a second of 2,048 H800
v3() { mem-estimate plan --mode train --gpu h800 --gpus 2048 --compute fp8 --seq 4096 --global-batch 15360 --top 1 --json "$@" deepseek-v3.json; }
v3 --mesh tp=1,ep=64,pp=16,dp=2 > own
ok "DeepSeek-V3's own layout is trained about as fast as it was" near 3.2e6 \
    "$(sed -n '1s/.*"tokens_per_second":\([0-9.e+]*\).*/\1/p' own)" 0.65e6
ok "under its own schedule" grep -q '"rank":0,.*"schedule":"dualpipe"' own
v3 --mesh sp=1 > best
ok "and not much slower than what is planned" near 1.15 \
    "$(sed -n '1s/.*"seconds":\([0-9.e+]*\),"compute.*/\1/p' own) / $(sed -n '1s/.*"seconds":\([0-9.e+]*\),"compute.*/\1/p' best)" 0.15

# What programs read has codes beside its texts
run mem-estimate plan --gpu h100 --gpus 2 --seq 512 --json llama-3-8b.json
ok "rejections have codes" sh -c 'tail -n 1 out | grep -q "\"rejections\":\[{\"code\":\"model\",\"count\":[0-9]*,\"text\":\"the model cannot be sharded this way\"}"'
ok "as many of them as of texts" test "$(tail -n 1 out | grep -o '"code":"[a-z_]*","text"' | wc -l)" = \
    "$(tail -n 1 out | sed 's/.*"assumed":"\([^"]*\)".*/\1/' | tr -cd ';' | wc -c | awk '{ print $1 + 1 }')"
run mem-estimate train --seq 64 --json llama-3-8b.json
out_has '"assumptions":[{"code":"weights","text":"' "and so have assumptions of an estimate"

# Rates by type
for type in f32 tf32 bf16 fp8; do
    mem-estimate plan --mode train --gpu h100 --gpus 8 --mesh tp=1,sp=1,pp=1 --micro-batch 1 --zero 3 --recompute full --seq 4096 --weights f32 --compute $type \
        --gpu-mem 1TiB --top 1 --json llama-3-8b.json | sed -n '1s/.*"seconds":\([0-9.e+]*\),"compute.*/\1/p'
done > durations
ok "products of fewer bits take less" sort -grc durations
ok "those of f32 several times as long" awk 'NR == 1 { f = $1 } NR == 3 { exit !(f > 5 * $1) }' durations
run mem-estimate plan --gpu a100-80g --gpus 1 --compute fp8 llama-3-8b.json
status_is 2 "a device without products of a type is refused them"
err_has "--compute fp8: a100-80g has no such products" "and named"
run mem-estimate plan --gpu h100 --gpus 1 --seq 512 --weights bf16 llama-3-8b.json
out_has "h100-80g, the SXM form, not h100-80g-pcie, h100-94g" "h100 is the SXM form, which is told"
ok "the type of the weights and of the products stands in the first line" sh -c "head -n 1 out | grep -q 'weights bf16, products bf16'"
run mem-estimate plan --gpu a100-80g --gpus 1 --seq 512 --net 400gb llama-3-8b.json
status_is 2 "gb is neither bits nor bytes"
ok "Gb is bits" test "$(mem-estimate plan --gpu h100 --gpus 16 --seq 512 --net 400Gb --json llama-3-8b.json | tail -n 1)" = \
    "$(mem-estimate plan --gpu h100 --gpus 16 --seq 512 --net 50GB/s --json llama-3-8b.json | tail -n 1)"
run mem-estimate infer --gpu-mem 80 llama-3-8b.json
status_is 2 "80 bytes are no memory"
err_has "write 80GiB" "and what is meant is told"
run mem-estimate infer --gpu-mem 900K llama-3-8b.json
err_is "mem-estimate: --gpu-mem: 921600 bytes are less than 1 MiB: is the unit right?
Try 'mem-estimate infer --help' for more." "but not where a unit was given"
for size in 80g 80GiB 80gib; do mem-estimate infer --seq 64 --json --gpu-mem $size llama-3-8b.json; done | sort -u > sizes
ok "80g is 80 GiB, whatever the case" grep -q '"gpu_memory":85899345920,' sizes
ok "all three" test "$(wc -l < sizes)" = 1
ok "80gb is 80 GB" sh -c 'mem-estimate infer --seq 64 --json --gpu-mem 80gb llama-3-8b.json | grep -q "\"gpu_memory\":80000000000,"'
ok "every option of train is one of plan" sh -c 'mem-estimate train --help | grep -o -e "--[a-z-]*" | sort -u > a; mem-estimate plan --help | grep -o -e "--[a-z-]*" | sort -u > b
    test -z "$(comm -23 a b | grep -v -x -e --micro-batches -e --requests -e --explain -e --plot -e --loss -e --choices -e --deterministic -e --sequence-parallel -e --sp-mode -e --stages -e --balance -e --threads)"'

# Layers that differ: stages between the first and the last may be the largest
shape deepseek-moe-16b
mem-estimate plan --weights bf16 --gpu a100-80g --gpus 8 --seq 4096 --mesh pp=8 --json deepseek-moe-16b.json > out
ok "the largest of all stages is told" test "$(sed -n '1s/.*"memory":\([0-9]*\).*/\1/p' out)" = \
    "$(mem-estimate infer --weights bf16 --seq 4096 --pp 8 --micro-batches 1 --json deepseek-moe-16b.json | sed 's/.*"peak":\([0-9]*\).*/\1/')"
mem-estimate plan --mode train --weights bf16 --gpu a100-80g --gpus 8 --seq 4096 --mesh pp=8 --schedule 1f1b --recompute none --zero 0 \
    --micro-batch 1 --json deepseek-moe-16b.json > out
ok "and must fit" test "$(sed -n '1s/.*"memory":\([0-9]*\).*/\1/p' out)" = "$(mem-estimate train --weights bf16 --seq 4096 --pp 8 \
    --micro-batches 8 --json deepseek-moe-16b.json | sed 's/.*"peak":\([0-9]*\).*/\1/')"

shape qwen2.5-7b
mem-estimate plan --weights bf16 --gpu l4 --gpus 7 --seq 2048 --mesh tp=7 --json qwen2.5-7b.json > out
ok "so is the largest of the tensor ranks, which unevenly dealt heads make another than the first" \
    test "$(sed -n '1s/.*"memory":\([0-9]*\).*/\1/p' out)" = \
    "$(mem-estimate infer --weights bf16 --seq 2048 --tp 7 --json qwen2.5-7b.json | sed 's/.*"peak":\([0-9]*\).*/\1/')"

# Micro-batches: whatever divides the batch
mem-estimate plan --weights bf16 --gpu h100-80g --gpus 1 --global-batch 1000 --seq 128 --json smollm2-135m.json > out
ok "many answers at once are one micro-batch, which reads weights once" \
    sh -c 'awk "/micro_batch\":1000,/" out | grep -q "\"rank\":[01],"'
ok "sizes need not be powers of two" grep -q '"micro_batch":125,' out
run mem-estimate plan --weights bf16 --gpu h100-80g --gpus 2 --global-batch 2 --micro-batch 4 --seq 128 smollm2-135m.json
status_is 1 "a micro-batch that is larger than the batch is refused"
out_has "the batch does not divide" "which is told"
run mem-estimate plan --mode train --weights bf16 --gpu h100-80g --gpus 2 --mesh pp=2 --schedule 1f1b --model-chunks 2 --seq 128 smollm2-135m.json
status_is 1 "chunks that the order does not have are refused"
out_has "for the schedule" "which is told, too"

# The whole space: sp, orders, recomputation
whole="--mode train --gpu h100-80g --gpus 64 --global-batch 256 --seq 8192 --weights bf16 --json llama-3-70b.json"
# whole [OPTION...] - one search of it
# shellcheck disable=SC2086 # words are wanted
whole() { mem-estimate plan "$@" $whole; }
# seconds - of the fastest of standard input
seconds() { sed -n '1s/.*"seconds":\([0-9.e-]*\).*/\1/p'; }
whole > out
sed -n 's/.*"choice":"\([^"]*\)".*"other":"\([^"]*\)","seconds":\([0-9.e-]*\)}/\1 \3 \2/p' out > others
ok "other choices of all kinds are told" test "$(cut -d' ' -f1 others | tr '\n' ' ')" = "tp sp pp zero recompute micro_batch schedule "
while read -r choice seconds other chunks; do
    case $choice in
    tp | sp | pp) option="--mesh=$choice=$other" ;;
    micro_batch) option=--micro-batch=$other ;;
    *) option=--$choice=$other ;;
    esac
    ok "$choice $other $chunks takes the time that is told" \
        near "$(whole "$option" ${chunks:+--model-chunks "${chunks#x}"} | seconds)" "$seconds" 1e-6
done < others
for order in zb-h2 zb-h1 1f1b naive; do
    whole --mesh tp=8,sp=1,pp=4 --zero 1 --micro-batch 1 --recompute full --gpu-mem 1TiB --schedule $order | seconds
done > spans
ok "orders with less idle time take less" sort -gc spans
ok "the pipeline of 4 equal stages idles for three of 128 micro-batches" near 3 "128 * $(whole --mesh tp=8,sp=1,pp=4,dp=2 --micro-batch 1 --zero 1 \
    --recompute none --gpu-mem 1TiB --schedule 1f1b | sed -n '1s/.*"compute":\([0-9.e-]*\),"tensor":\([0-9.e-]*\),.*"pipeline":\([0-9.e-]*\),.*/\3 \/ (\1 + \2)/p')" 0.15
ok "a sequence that is too long for a device is shared" test "$(mem-estimate plan --mode train --gpu h100-80g --gpus 8 --global-batch 1 \
    --seq 131072 --weights bf16 --json llama-3-8b.json | sed -n '1s/.*"sp":\([0-9]*\).*/\1/p')" -gt 1
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 --global-batch 8 --seq 1001 --weights bf16 --json llama-3-8b.json
ok "one that does not divide is not" grep -q '"the sequence does not divide":[1-9]' out
for way in none selective full; do
    whole --mesh tp=8,sp=1,pp=4 --zero 1 --micro-batch 1 --flash off --schedule 1f1b --offload none --recompute $way | sed -n '1s/.*"memory":\([0-9]*\).*"seconds":\([0-9.e-]*\).*/\1 \2/p'
done > ways
ok "recomputing attention takes time and memory between none and full where scores are kept" \
    sh -c 'test "$(wc -l < ways)" -ge 2 && sort -k1,1rg ways | cmp - ways && sort -k2,2g ways | cmp - ways'
run mem-estimate plan --mode train --gpu h100-80g --gpus 64 --seq 8192 --weights bf16 --recompute selective llama-3-70b.json
status_is 1 "and is refused where they are not"
out_has "flash attention keeps no scores" "with the reason"
run mem-estimate plan --gpu h100-80g --gpus 8 --mesh ep=2 llama-3-8b.json
status_is 1 "ep needs experts"
out_has "no experts to shard over ep" "which is said"
for mesh in tp=3 tp=16 tp=2,sp=1,ep=1,dp=2,pp=1; do
    run mem-estimate plan --gpu h100-80g --gpus 8 --mesh $mesh llama-3-8b.json
    status_is 1 "8 devices are no $mesh"
    out_has "the axes that are kept do not divide the devices" "and that is said"
done
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 --seq 2048 --mesh pp=8 --schedule interleaved --model-chunks 5 --global-batch 8 llama-3-8b.json
out_has "too few layers" "chunks need layers"
# Rates.  one KEY MODEL OPTION... - of training on one device that has the memory
one() {
    key=$1 model=$2
    shift 2
    mem-estimate plan --mode train --gpu h100-80g --gpus 1 --gpu-mem 10TiB --weights bf16 --json "$@" "$model.json" |
        sed -n '1s/.*"'"$key"'":\([0-9.e-]*\)[,}].*/\1/p'
}
ok "products of narrow models reach less of the peak" \
    faster "$(one mfu smollm2-135m --seq 2048 --global-batch 8)" "$(one mfu llama-3-8b --seq 2048 --global-batch 8)"
ok "and those of few tokens" faster "$(one mfu llama-3-8b --seq 128 --global-batch 1)" "$(one mfu llama-3-8b --seq 128 --global-batch 16)"
# Over very many keys a step is attention.  FlashAttention-3 reaches 648 TFLOP/s forwards, and the five products of its
# backward pass take 2.9 times as long as the two (Shah et al. 2024, figures 5 and 6): 595 of both.  Half of the square is masked
for kernel in on 2; do
    one compute llama-3-8b --seq 1048576 --global-batch 1 --flash $kernel
done > spans
ok "attention has the rate of its fastest kernel" near 595e12 "3.5 * 4 * 4096 * 32 * 1048576 ^ 2 / 2 / $(sed -n 1p spans)" 40e12
ok "that of PyTorch takes several times as long" near 3.3 "$(sed -n 2p spans) / $(sed -n 1p spans)" 0.3
# The last of an MLP's three products, 0.27 of a layer's weights, is not made again
ok "full recomputation ends at the last value that is read" \
    near 0.25 "$(one compute llama-3-8b --seq 2048 --global-batch 8 --recompute full) / $(one compute llama-3-8b --seq 2048 --global-batch 8 --recompute none) - 1" 0.05
awk 'BEGIN { for (n = 1; n <= 2; n++) {
    print "{\"type\":\"calibration\",\"version\":1,\"tokens\":1,\"memory_read\":3e12,\"product\":" n "e15,\"prefill_share\":0.7,\"decode_share\":1," > (n ".json")
    print "\"message\":0,\"parts\":[{\"prefill\":0,\"decode\":0},{\"prefill\":0,\"decode\":0}]}" > (n ".json") } }'
for n in 1 2; do one compute llama-3-8b --calibration $n.json --seq 1048576 --global-batch 1; done > both
ok "products of fewer bits do not hasten attention" near 1 "$(tr '\n' '/' < both) 1" 0.02
# experts
shape mixtral-8x7b
# flops EP - of a step of training, whatever the mesh
flops() {
    mem-estimate plan --mode train --gpu h100-80g --gpus 64 --global-batch 256 --seq 4096 --weights bf16 --mesh ep="$1" --json mixtral-8x7b.json |
        sed -n '1s/.*"seconds":\([0-9.e-]*\),.*"mfu":\([0-9.e-]*\).*/\1 * \2/p'
}
ok "dealt experts work as much as undealt ones" near 1 "($(flops 1)) / ($(flops 8))" 1e-9
ok "a router that all tensor ranks have counts once" near 1 "($(flops 1,tp=2)) / ($(flops 1,tp=1))" 1e-9
# 12.88e9 parameters for a token, three products each, and 32 layers of attention to half of 4,096 tokens
ok "which is what the parameters of a token ask for" near 1 "($(flops 8)) * 64 * 989e12 / (256 * 4096 * 6 * (12.75e9 + 32 * 4096 * 4096))" 0.005
# of an answer's tokens: 7.505e9 parameters, two operations each, and 32 layers of attention to 2,048 keys
for mesh in dp=8 tp=8 sp=8 pp=8; do
    ok "the work of an answer is the model's in $mesh" near 1 "$(mem-estimate plan --gpu h100-80g --gpus 8 --global-batch 64 --seq 2048 --weights bf16 \
        --mesh $mesh --json llama-3-8b.json | sed -n '1s/.*"seconds":\([0-9.e-]*\),.*"mfu":\([0-9.e-]*\).*/\1 * \2/p') * 8 * 989e12 / 64 / (2 * 7.505e9 + 32 * 4 * 4096 * 2048)" 0.001
done
run mem-estimate plan --gpu h100-80g --gpus 8 --global-batch 64 --seq 4096 --weights bf16 --json mixtral-8x7b.json
ok "many answers at once deal experts" test "$(sed -n '1s/.*"ep":\([0-9]*\).*/\1/p' out)" -gt 1
ok "not over more ranks than there are" test "$(mem-estimate plan --gpu h100-80g --gpus 16 --global-batch 64 --mesh ep=16 --json mixtral-8x7b.json | tail -n 1 |
    sed 's/.*"the model cannot be sharded this way":\([0-9]*\).*/\1/')" -gt 0
# what is assumed is told, what is given is not
run mem-estimate plan --gpu h100-80g --gpus 8 llama-3-8b.json
ok "all that was assumed is told" sh -c 'for w in "seq " "batch " "runtime " "products " "attention " "links " "network " "a hop" "8 devices a node"; do
    awk "/^assumed/ { p = 1 } /^ *tp / { p = 0 } p" out | grep -qe "$w" || exit 1; done'
run mem-estimate plan --gpu h100-80g --gpus 8 --gpus-per-node 8 --net 50GB --seq 2048 --global-batch 8 --weights bf16 llama-3-8b.json
ok "and nothing that was given" sh -c '! awk "/^assumed/ { p = 1 } /^ *tp / { p = 0 } p" out | grep -e "seq " -e "batch " -e "network " -e "devices a node" -e weights'

# What would fit fits when it is tried: a global batch stays what it is, other ranks than the checkpoint's are named
# try OPTION... - each way out of an estimate that does not fit
try() {
    run mem-estimate "$@"
    status_is 1 "it does not fit ($*)"
    sed '1,/^what would fit/d; s/^[0-9]* ranks: //; s/: [^:]*$//' out > ways
    ok "and something would" test -s ways
    while read -r way; do
        # shellcheck disable=SC2086 # words are wanted
        ok "$way does" mem-estimate "$@" $way
    done < ways
}
try infer --global-batch 48 --weights bf16 --gpu-mem 40GiB llama-3-8b.json
try infer --global-batch 48 --micro-batch 1 --gpu-mem 40GiB llama-3-8b.json
try train --global-batch 48 --micro-batches 2 --seq 1024 --gpu-mem 40GiB llama-3-8b.json
# The nearest first: types, recomputation, adapters, replicas under ZeRO-3, before other cuts, which are even
# ways OPTION... - of an estimate of training
ways() { mem-estimate train "$@" | sed '1,/^what would fit/d' > ways; }
sed 's/}$/,"torch_dtype":"float32"}/' llama-3-8b.json > f32.json
try train --gpu a100-80g --seq 8192 f32.json
try train --gpu l4 --seq 8192 f32.json
try train --gpu h200 --seq 8192 f32.json
ways --gpu h200 --seq 12288 f32.json
ok "one option comes before replicas, replicas before tensor ranks" \
    test "$(sed 's/:.*--/: --/; s/: [0-9.]* GiB//' ways | tr '\n' ',')" = \
    "--recompute full,5 ranks: --zero 3,2 ranks: --tp 2,--seq 5236,"
ways --gpu a100-80g --seq 8192 f32.json
ok "two come where one is not enough" grep -q '^--weights bf16 --lora 16: ' ways
for seq in 2048 8192; do
    for gpu in l4 a100-40g; do
        ways --gpu $gpu --seq $seq llama-3-8b.json
        ok "32 heads are dealt evenly ($gpu, $seq tokens)" sh -c '! grep -e "--tp [3567]" -e "--sp [3567]" ways'
    done
done
run mem-estimate solve --for batch --mode train --gpu l4 --seq 2048 llama-3-8b.json
status_is 1 "no batch fits"
out_has "what would fit:
--recompute full --lora 16: " "but something would"
run mem-estimate solve --for batch --mode train --gpu l4 --seq 2048 --json llama-3-8b.json
out_has '"value":null,"gpu_memory":23622320128,"ways_out":["--recompute full --lora 16: ' "which is part of the JSON"
ok "the fewest devices that train are replicas where these are enough" test "$(mem-estimate solve --for gpus --mode train --gpu a100-80g --seq 2048 llama-3-8b.json)" = \
    "2 ranks: --tp 1 --dp 2 --zero 3"

ok "the largest size that divides the batch is found" test "$(mem-estimate solve --for batch --mode train --weights bf16 --pp 2 --seq 1024 \
    --global-batch 48 --gpu-mem 76GiB llama-3-8b.json)" = "--micro-batch 3"
ok "and fits" mem-estimate train --weights bf16 --pp 2 --seq 1024 --global-batch 48 --micro-batch 3 --gpu-mem 76GiB llama-3-8b.json
run mem-estimate train --weights bf16 --pp 2 --seq 1024 --global-batch 48 --micro-batch 4 --gpu-mem 76GiB llama-3-8b.json
status_is 1 "the next does not"
tp-shard split -q --pp 2 "$bard" bard.pp2
n=$(mem-estimate solve --for gpus --runtime 0 --gpu-mem 4MiB --seq 64 bard.pp2)
# shellcheck disable=SC2086 # words are wanted
ok "a checkpoint's own axes are replaced" test "${n%% *}" = "$(mem-estimate infer ${n#*: } --seq 64 --json bard.pp2 |
    sed 's/.*"mesh":{"tp":\([0-9]*\),"sp":\([0-9]*\),"ep":1,"dp":1,"pp":\([0-9]*\)}.*/\1 \2 \3/' | awk '{ print $1 * $2 * $3 }')"
run mem-estimate train --pp 32 --schedule zb-v llama-3-8b.json
status_is 1 "chunks without layers are impossible"
out_has "32 x 2 chunks need as many layers, of 32" "which is told"

# Options are taken as they are or refused
for bad in "plan --gpus 2 --zero 3" "plan --gpus 2 --recompute full" "plan --gpus 2 --optimizer sgd" "solve --for seq --lora 8" \
    "solve --for batch --mode train --kv-dtype fp8"; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate $bad --gpu l4 llama-3-8b.json
    status_is 2 "the other mode's options are refused ($bad)"
    err_has " is an option of " "by name"
done
# half of 32 layers, a table and a head of 128,256 rows each, and a norm
ok "a folded pipeline has table and head on one stage" test "$(rank0 weights mem-estimate infer --pp 2 --schedule zb-v --weights bf16 --seq 512 llama-3-8b.json)" = \
    $((6979584000 + 2 * (2 * 128256 * 4096 + 4096)))
for bad in "--seq 0" "--gpu-mem 0"; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate infer $bad llama-3-8b.json
    status_is 2 "$bad is refused, not left out"
done
for name in "V100-PCIE-32GB v100-32g" "rtx4091 rtx4090"; do
    run mem-estimate infer --gpu "${name% *}" llama-3-8b.json
    status_is 2 "'${name% *}' is no device"
    err_has "nearest is '${name#* }'" "and the nearest is told"
done
mem-estimate infer --tp 2 --sp 2 --pp 2 --dp 100 llama-3-8b.json | grep -e "^[GM]iB" -e "^tp" > out
ok "columns stand under their names, however long a rank's is" awk 'NR > 1 && length() != n { bad = 1 } { n = length() } END { exit bad || NR != 3 }' out
run mem-estimate train --tp 8 --pp 4 --dp 8 --zero 1 --eager --gpu h100 llama-3-8b.json
ok "the table and all that is assumed fit 100 columns" awk 'length() > 100 { bad = 1 } END { exit bad }' out
run mem-estimate plan --mode train --gpu h100 --gpus 8 --seq 2048 --global-batch 64 llama-3-8b.json
ok "so do those of a plan" awk 'length() > 100 { bad = 1 } END { exit bad }' out
run mem-estimate train --json --explain --tp 2 llama-3-8b.json
ok "an explanation is part of the JSON" sh -c '[ "$(wc -l < out)" = 1 ] && grep -q "\"explanation\":\[\"weights .*\],\"assumed\"" out'
run mem-estimate train --json --explain --tp 99 llama-3-8b.json
status_is 1 "what is impossible is not explained"
out_has '"explanation":[]' "in so many lines"
shape deepseek-v3
sed 's/"num_experts_per_tok": *[0-9]*,//' deepseek-v3.json > lacks.json
run mem-estimate infer lacks.json
status_is 3 "a key that only the forward pass needs must be there, too"
err_has "55: lacks.json: 'top' (num_experts_per_tok): expected a whole number from 1 to 256" "which is told by name"
sed 's/LlamaForCausalLM/LlamaForSequenceClassification/' llama-3-8b.json > classifier.json
run mem-estimate infer classifier.json
out_has "assumed: the head of a language model, unlike LlamaForSequenceClassification" "a head that the family does not know is told"
run mem-estimate train --lora 16 --optimizer sgd smollm2-135m.json
out_has "peak at" "options of training without a layout are answered for one rank"
run mem-estimate train smollm2-135m.json
ok "without any options the table of types stands alone" sh -c '! grep -q "peak at" out'

sed 's/"latency":[^,]*,"bandwidth":[^,]*/"latency":null,"bandwidth":null/' "$data/calibration/uneven.json" > alone.json
run mem-estimate plan --gpu l4 --gpus 2 --calibration alone.json --seq 64 "$bard"
out_has "links at 80 % of 31 GB/s" "links that were not measured are the device's, which is told"

# A margin: what would fill the memory to the brim is not offered
mem-estimate plan --mode train --gpu l40s --gpus 8 --global-batch 64 --seq 2048 --weights bf16 --top 100000 --json llama-2-13b.json > tight
ok "a twentieth of the memory is left free" awk '/"plan"/ { match($0, /"memory":[0-9]+/); n++; if (substr($0, RSTART + 9, RLENGTH - 9) > most) most = substr($0, RSTART + 9, RLENGTH - 9) + 0 }
    END { exit !n || most > 0.95 * '"$(mem-estimate gpus --json | sed -n 's/.*"l40s".*"memory":\([0-9]*\).*/\1/p')"' }' tight
ok "which is told" grep -q '5 % of the memory left free' tight
# narrow - the least memory of one device, in bytes
narrow=$(mem-estimate plan --mode train --gpu l40s --gpus 1 --seq 1024 --weights bf16 --json smollm2-135m.json | sed -n '1s/.*"memory":\([0-9]*\).*/\1/p')
run mem-estimate plan --mode train --gpu-mem "$narrow" --gpu l40s --gpus 1 --seq 1024 --weights bf16 --recompute none --offload none --json smollm2-135m.json
status_is 0 "what fits tightly alone is planned"
out_has '"tight":true' "and says so"
run mem-estimate plan --mode train --gpu-mem "$narrow" --gpu l40s --gpus 1 --seq 1024 --weights bf16 --recompute none --offload none smollm2-135m.json
out_has "tight: these leave less than the margin" "in the table, too"
run mem-estimate plan --mode train --gpu-mem 1MiB --gpu l40s --gpus 1 --seq 1024 --weights bf16 smollm2-135m.json
status_is 1 "what does not fit is not tight"
run mem-estimate plan --mode train --gpu-mem 40GiB --gpu l40s --gpus 1 --seq 1024 --margin 100 smollm2-135m.json
status_is 2 "no margin is all of it"
fit() { mem-estimate plan --mode train --gpu l40s --gpus 8 --global-batch 64 --seq 2048 --weights bf16 --json "$@" llama-2-13b.json | sed -n 's/.*"fit":\([0-9]*\).*/\1/p'; }
ok "without one more fits" test "$(fit --margin 0)" -gt "$(fit)"
ok "with a larger one less" test "$(fit --margin 30)" -lt "$(fit)"

# Adapters and frozen tensors
# planned OPTION... - seconds, memory and data exchange of one layout
planned() {
    mem-estimate plan --mode train --gpu h100-80g --gpus 8 --mesh dp=8 --global-batch 8 --seq 2048 --weights bf16 --zero 0 --recompute full --margin 0 \
        --gpu-mem 1TiB --json "$@" llama-3-8b.json |
        sed -n '1s/.*"memory":\([0-9]*\),"seconds":\([0-9.e-]*\),"compute":\([0-9.e-]*\),.*"data":\([0-9.e-]*\),.*/\1 \2 \3 \4/p'
}
planned > all
planned --lora 16 > adapters
planned --freeze embed_tokens,lm_head > some
ok "an adapter's step is shorter than one of all weights, for it makes no gradients of weights: three passes of four" \
    awk 'NR == FNR { c = $3; next } { exit !($3 > 0.7 * c && $3 < 0.85 * c) }' all adapters
ok "and exchanges next to nothing" awk 'NR == FNR { d = $4; next } { exit !($4 < 0.02 * d) }' all adapters
ok "what is frozen spares its share" awk 'NR == FNR { c = $3; d = $4; next } { exit !($3 < c && $3 > 0.9 * c && $4 < d) }' all some
for option in "--lora 16" "--lora 8:q_proj,v_proj" "--freeze embed_tokens"; do
    # shellcheck disable=SC2086 # words are wanted
    ok "the bytes of $option are those of train" test "$(planned $option | cut -d' ' -f1)" = "$(mem-estimate train --weights bf16 --dp 8 --seq 2048 \
        --recompute full $option --json llama-3-8b.json | sed 's/.*"peak":\([0-9]*\).*/\1/')"
done
run mem-estimate plan --gpu h100-80g --gpus 8 --lora 16 llama-3-8b.json
status_is 2 "inference has no adapters to train"
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 --freeze nothing llama-3-8b.json
status_is 2 "a tensor that is not there cannot be frozen"

run mem-estimate plan --mode train --gpu t4 --gpus 2 --weights bf16 --offload optimizer llama-3-70b.json
status_is 1 "when nothing fits the status is 1"
out_has "0 fit" "and that is said"
run mem-estimate plan --gpu h100-80g llama-3-8b.json
status_is 2 "the number of devices must be given"
run mem-estimate plan --gpu h100-80g --gpus 8 --net 400 llama-3-8b.json
status_is 2 "a rate needs its unit"

# a plan for tp-run has the bytes of its program, and only what it can train
mem-estimate plan --mode train --framework tp-run --gpu t4 --gpus 4 --global-batch 16 --seq 512 --weights f32 --top 1000 --json \
    smollm2-135m.json > plans.json
grep '"type":"plan"' plans.json > plans
ok "a plan for tp-run has ZeRO up to stage 1, and no sharded activations" sh -c \
    'grep -q "\"zero\":1," plans && ! grep -v "\"zero\":[01]," plans && ! grep -v "\"sequence_parallel\":false" plans && grep -q "\"sp\":1,\"ep\":1" plans'
ok "and counts what that leaves out" grep -q '"code":"framework","count":[1-9]' plans.json
for layout in 1-4-1 2-2-1 1-2-2 2-1-2 1-1-4; do
    tp=${layout%%-*} pp=${layout##*-} dp=${layout#*-}
    sed -n 's/.*"tp":'"$tp"',"sp":1,"ep":1,"dp":'"${dp%-*}"',"pp":'"$pp"'},"zero":\([01]\),"recompute":"\([^"]*\)","micro_batch":\([0-9]*\),"micro_batches":\([0-9]*\).*"schedule":"\([^"]*\)".*"memory":\([0-9]*\).*/\1 \2 \3 \4 \5 \6/p' plans > ours
    while read -r zero way size number order bytes; do
        test "$bytes" = "$(mem-estimate train --framework tp-run --mesh "tp=$tp,dp=${dp%-*},pp=$pp" --zero "$zero" --recompute "$way" --micro-batch "$size" --micro-batches "$number" \
            --schedule "$order" --seq 512 --weights f32 --runtime 1.75GiB --json smollm2-135m.json | sed 's/.*"peak":\([0-9]*\).*/\1/')" || echo "$size" >> wrong
    done < ours
    ok "its bytes for $layout are those of train" sh -c 'test -s ours && grep -q " full " ours && ! test -e wrong'
done
mem-estimate plan --mode train --framework tp-run --optimizer adam8bit --gpu t4 --gpus 4 --mesh dp=4 --micro-batch 1 --global-batch 4 --seq 24 \
    --zero 1 --recompute none --weights f32 --offload none --json "$data/models/stories260K/hf" > dealt
ok "of ranks that whole weights are dealt to, those of the largest" test "$(sed -n '1s/.*"memory":\([0-9]*\).*/\1/p' dealt)" = \
    "$(mem-estimate train --framework tp-run --optimizer adam8bit --mesh dp=4 --micro-batch 1 --global-batch 4 --seq 24 --zero 1 --recompute none \
        --weights f32 --runtime 1.75GiB --json "$data/models/stories260K/hf" | sed 's/.*"peak":\([0-9]*\).*/\1/')"
ok "a recomputation that drops nothing is not tried" test "$(grep -c '"recompute":"attention"' plans)" -eq 0
# ours WAY KEY - of the plan for tp-run that recomputes WAY
ours() {
    mem-estimate plan --mode train --framework tp-run --gpu t4 --gpus 4 --mesh tp=2,pp=2 --micro-batch 2 --global-batch 16 --seq 512 \
        --weights f32 --recompute "$1" --json smollm2-135m.json | sed -n '1s/.*"'"$2"'":\([0-9.e-]*\)[,}].*/\1/p'
}
for key in seconds compute; do
    for way in none products full; do ours $way $key; done > ways
    ok "tp-run's programs tell the $key of what is recomputed" sort -guc ways
done
for way in none full; do ours $way tensor; done > ways
ok "and collectives are repeated" sort -guc ways
for way in none products full; do ours $way memory; done > ways
ok "and the memory that it saves" sort -rguc ways
# its backward pass is that of its program: on a device whose instructions alone take time, it counts them
device='{"type":"device","version":1,"name":"d","memory":16000000000,"products":{"fp32":1e60},"attention":1e60,"weights":1e60,"values":1e60,"instruction":1,"backward":1'
printf '%s,"reverse":1}\n' "$device" > counts.json
printf '%s}\n' "$device" > older.json
# counted FRAMEWORK DEVICE - seconds of compute
counted() {
    mem-estimate plan --mode train --framework "$1" --gpu-file "$2" --gpus 1 --micro-batch 1 --global-batch 1 --seq 64 --weights f32 --compute f32 \
        --recompute none --json "$data/models/llama-gqa" | sed -n '1s/.*"compute":\([^,]*\),.*/\1/p'
}
# those of the program, of which few (copies, positions) cost nothing
forward=$(tp-run program "$data/models/llama-gqa" | grep -c FLOPs)
both=$(tp-run program --train "$data/models/llama-gqa" | grep -c FLOPs)
ok "a plan for tp-run times the reverse program" test "$(awk -v c="$(counted tp-run counts.json)" -v o="$(counted tp-run older.json)" \
    -v r=$((both - forward)) 'BEGIN { d = r - (c - o / 3); print (d >= 0 && d <= 3 && c != o) }')" = 1
ok "with an older device file it is twice the forward pass, as for others" test "$(counted tp-run older.json)" = "$(counted none counts.json)"
run mem-estimate plan --mode train --framework tp-run --zero 1 --gpu t4 --gpus 4 --global-batch 16 --seq 512 --weights f32 --json smollm2-135m.json
out_has '"zero":1' "what an option fixes is planned"

for mode in "train" "plan --mode train --gpu t4 --gpus 2"; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate $mode --framework tp-run --seq 32 "$data/encoders/deberta/config.json"
    status_is 1 "a model that tp-run cannot train has no estimate of ${mode%% *} for it"
    err_has "has no derivative" "which names the cause"
done

# a batch is dealt evenly
search --mode train --gpu h100-80g --gpus 4 --global-batch 6 --seq 1024 smollm2-135m.json
ok "no layout has a number of replicas that does not divide the batch" every '6 % dp == 0'

# requests: until their first token, between tokens, how many fit; nothing is fitted, every rate is the data sheet's
served() {
    mem-estimate plan --gpu h100-80g --weights fp8 --compute fp8 --kv-dtype fp8 --json --top 50 "$@" llama-3-70b.json > served.json
}
# field NAME - of the first layout
field() { sed -n '1s/.*"'"$1"'":\([^,}]*\).*/\1/p' served.json; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a + 0 < b + 0) }'; }
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 1000 --output-tokens 500 --requests 64
first=$(field ttft) next=$(field itl) fit=$(field requests_fit)
# a step reads 17 GB of weights and 32 x 1,250 tokens of 40 KB, 19.2 GB at 3.015 TB/s: 6.4 ms; a prompt of 1,000 has 35 TFLOP at 1,306: 27 ms
ok "a token takes the time of its reads and more" less 0.0064 "$next"
ok "but not twice as long" less "$next" 0.0128
ok "a prompt that of its products and more" less 0.027 "$first"
ok "but not twice as long" less "$first" 0.054
# room REQUESTS - they fit
room() {
    mem-estimate infer --tp 4 --dp 2 --micro-batch $(($1 / 2)) --micro-batches 1 --seq 1500 --weights fp8 --compute fp8 --kv-dtype fp8 \
        --gpu-mem 76GiB --runtime 1GiB llama-3-70b.json
}
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 1000 --output-tokens 500 --requests 64 --gpu-mem 76GiB --margin 0 --runtime 1GiB
ok "what fits, fits" room "$(field requests_fit)"
run room $(($(field requests_fit) + 2))
status_is 1 "and no more"
ok "tokens a second are those of all requests" awk -v t="$(field tokens_per_second)" -v d="$(field tokens_per_second_device)" 'BEGIN { exit !(t / d > 7.99 && t / d < 8.01) }'
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 4000 --output-tokens 500 --requests 64
ok "a longer prompt takes longer" less "$first" "$(field ttft)"
ok "and others wait for it" less "$next" "$(field itl)"
ok "fewer of them fit" less "$(field requests_fit)" "$fit"
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 4000 --output-tokens 500 --requests 64 --prefill-tokens 500
ok "in parts, more so" less "$first" "$(field ttft)"
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 1000 --output-tokens 500 --requests 512
ok "more requests are slower each" less "$next" "$(field itl)"
ok "and faster together" less 5000 "$(field tokens_per_second)"
served --gpus 8 --mesh tp=4,dp=2 --prompt-tokens 128 --output-tokens 8 --requests 1024
ok "prompts that are most of the work are packed into steps" less "$(field ttft)" 2
# 30 requests of 4 replicas: 8 each at most
served --gpus 8 --mesh tp=2,dp=4 --prompt-tokens 1000 --output-tokens 500 --requests 30
ok "requests need not divide" test "$(field micro_batch)" = 8
served --gpus 8 --mesh tp=4,pp=2,dp=1 --prompt-tokens 1000 --output-tokens 500 --requests 30
ok "stages have as many micro-batches" test "$(field micro_batch) $(field micro_batches)" = "15 2"
served --gpus 8 --prompt-tokens 1000 --output-tokens 500 --requests 64
best=$(field tp) fastest=$(field ttft)
ok "the layout with the most tokens a second is the first" sh -c 'sed -n "s/.*\"tokens_per_second\":\([^,]*\).*/\1/p" served.json | sort -c -rg'
served --gpus 8 --prompt-tokens 1000 --output-tokens 500 --requests 64 --ttft 35ms
ok "but for one whose first token comes in time" less "$(field ttft)" 0.035
ok "which the other does not" less 0.035 "$fastest"
ok "and is another" test "$(field tp)" -gt "$best"
ok "it is said" test "$(field meets)" = true
served --gpus 8 --prompt-tokens 1000 --output-tokens 500 --requests 64 --itl 0.001
ok "of none in time it is said, too" test "$(field meets)" = false
run mem-estimate plan --gpu h100-80g --gpus 8 --weights fp8 --prompt-tokens 1000 --itl 30ms --ttft 0.5 llama-3-70b.json
out_has "30 wanted" "the table tells what is wanted"
out_has "requests of 1256 tokens fit" "and how many fit"
ok "nothing that is of training takes time" grep -q '"data":0,"host":0,' served.json
served --gpus 8 --prompt-tokens 1000 --output-tokens 500 --requests 64 --ttft 35ms
run mem-estimate plan --gpu h100-80g --weights fp8 --compute fp8 --kv-dtype fp8 --gpus 8 --prompt-tokens 1000 --output-tokens 500 --requests 64 --ttft 35ms llama-3-70b.json
out_has "misses the times" "what would be faster, but late, is told so"
ok "and takes no less than nothing" sh -c '! grep -qF "+-" out'
run mem-estimate plan --gpu h100-80g --gpus 2 --prompt-tokens 30 "$data/models/bert-mlm"
status_is 2 "an encoder serves no requests"
err_has "generates nothing" "which is told"
while IFS=';' read -r said options; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate plan --gpu h100-80g --gpus 8 $options llama-3-70b.json
    status_is 2 "$options: usage"
    err_has "$said" "which says why"
done << 'END'
are of inference;--mode train --prompt-tokens 5
are of requests;--ttft 5ms
no time such as;--prompt-tokens 5 --itl 5x
no time such as;--prompt-tokens 5 --ttft 0
one of them;--requests 5 --global-batch 4
are dealt over the stages;--prompt-tokens 5 --micro-batch 2
a request has 9 tokens;--seq 12 --prompt-tokens 9 --output-tokens 4
END

# Megatron's folded experts: layouts of its MoE examples on 256 and 1,024 devices
shape qwen3-235b-a22b
shape mixtral-8x7b
folded() {
    mem-estimate plan --mode train --gpu h100-80g --seq 4096 --top 1 --json "$@" | sed -n '1p' > folded.json
    sed -n 's/.*"tp":\([0-9]*\),"sp":\([0-9]*\),"ep":\([0-9]*\),"dp":\([0-9]*\),"pp":\([0-9]*\)}.*"etp":\([0-9]*\).*/\1 \2 \3 \4 \5 \6/p' \
        folded.json
}
ok "tp 2, ep 32 and pp 8 are 256 ranks" test \
    "$(folded --framework megatron --gpus 256 --tp 2 --pp 8 --ep 32 --sp 1 --global-batch 2048 qwen3-235b-a22b.json)" = "2 1 32 1 8 1"
ok "tp 2, ep 64 and pp 16 are 1,024" test \
    "$(folded --etp 1 --gpus 1024 --tp 2 --pp 16 --ep 64 --sp 1 --global-batch 8192 --zero 1 deepseek-v3.json)" = "2 1 64 1 16 1"
run mem-estimate plan --mode train --framework deepspeed --etp 1 --gpu h100-80g --gpus 8 mixtral-8x7b.json
status_is 2 "other frameworks fold no experts"
err_has "--etp 1: deepspeed does not have it" "by name"
run mem-estimate train --tp 2 --ep 3 --etp 1 mixtral-8x7b.json
status_is 2 "nor are ranks folded that do not divide"
run mem-estimate train --tp 2 --ep 16 --etp 1 mixtral-8x7b.json
ok "nor more than experts" grep -q "the model has 8 experts" err
weights_of() { mem-estimate train --gpus 8 --seq 512 --json "$@" mixtral-8x7b.json | sed 's/.*"count":[0-9]*,"weights":\([0-9]*\).*/\1/'; }
ok "a whole expert weighs as much as halves of two" test "$(weights_of --tp 2 --ep 8 --etp 1)" = "$(weights_of --tp 2 --ep 4)"

# two TITAN RTX with and without NVLink: GPT-2 of transformers' run_clm in f32, 200 steps of 4 sequences each
# took 101.9 and 131.4 s (transformers, docs/source/en/perf_train_gpu_many.md); all within 15 %
shape gpt2
while read -r seconds link; do
    # shellcheck disable=SC2086
    mem-estimate plan --mode train --gpu titan-rtx --gpus 2 --weights f32 --compute f32 --eager --dropout --flash off \
        --recompute none --micro-batch 4 --global-batch 8 --seq 1024 --zero 0 --mesh dp=2 --top 1 --json $link gpt2.json > two
    ok "200 steps of two devices take $seconds s: $link" awk -v want="$seconds" \
        -v got="$(sed -n '1s/.*"seconds":\([0-9.]*\).*/\1/p' two)" 'BEGIN { exit !(got > want / 200 / 1.15 && got < want / 200 * 1.15) }'
done << 'END'
101.9
131.4 --link 3GB
END

# recomputing all but products lies between nothing and everything, in time and in memory
shape llama-3-8b
for way in none products full none,full none,products; do
    mem-estimate plan --mode train --gpu h100-80g --gpus 8 --mesh tp=1,sp=1,pp=1 --zero 3 --micro-batch 2 --global-batch 128 --seq 4096 --top 1 \
        --recompute $way --json llama-3-8b.json | sed -n '1s/.*"recompute":"\([a-z]*\)".*"memory":\([0-9]*\),"seconds":\([0-9.]*\).*/\1 \2 \3/p'
done > ways
ok "recomputing all but every second product lies between" awk '{ m[NR] = $2; s[NR] = $3 }
    END { exit !(m[1] > m[2] && m[2] > m[3] && s[1] < s[2] && s[2] < s[3]) }' ways
ok "of a list the fastest is taken" test "$(sed -n '4,5s/ .*//p' ways | xargs)" = "none none"
run mem-estimate plan --mode train --framework deepspeed --gpu h100-80g --gpus 8 --recompute products --json llama-3-8b.json
ok "DeepSpeed has no such way" grep -q '"code":"framework","count":[1-9]' out
run mem-estimate plan --mode train --gpu h100-80g --gpus 8 --recompute none,3 llama-3-8b.json
status_is 2 "numbers of layers are not searched"

# where nothing fits, one search is enough: as many layouts are looked at as without a margin
for margin in 0 5; do
    mem-estimate plan --mode train --gpu t4 --gpus 1 --global-batch 1 --margin $margin --offload none --json llama-3-70b.json |
        sed -n 's/.*"type":"summary","tried":\([0-9]*\),"evaluated":\([0-9]*\),.*"fit":\([0-9]*\),.*/\1 \2 \3/p'
done > searched
ok "what fits with no margin at all is not searched twice" test "$(sed -n 1p searched)" = "$(sed -n 2p searched)" -a -s searched
done_testing
