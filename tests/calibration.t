#!/bin/sh
# calibration.t - what tp-run bench has measured is what the others plan with
. "${top_srcdir:?}/tests/lib.sh"
uneven=$data/calibration/uneven.json

# the bench's own file
for how in "" "--tp 2" "--pp 2" "--tp 2 --pp 3" "--sp 2" "--dp 2"; do
    case ${LONG:+long}$how in '' | --[tp]p\ 2) continue ;; esac # the fourth has their parts; LONG=1: all
    run tp-run bench -q --tokens 32 --repeat 1 -o here.json $how "$bard"
    status_is 0 "bard is measured with ${how:-one rank}"
    ok "and the file is read: $how" pp-partition plan --pp 2 --balance here.json "$bard"
    ok "it has all parts: $how" test "$(grep -c '"part":' here.json)" -eq 8
    ok "and each takes time: $how" awk 'match($0, /"prefill":[0-9.e-]+/) {
        if (substr($0, RSTART + 10, RLENGTH - 10) + 0 <= 0) exit 1 }' here.json
done
run tp-run bench --tokens 32 --repeat 1 --pp 2 --json -o here.json "$bard"
out_has '"type":"stages","stages":2,"micro_batches":8,"measured":' "a run over stages stands beside its simulation"
run tp-run bench --tokens 16 --repeat 1 --json "$bard"
err_lines 0 "nothing is said besides the object"
ok "which is a calibration on one line" test "$(wc -l < out)" -eq 1
cp out line.json
ok "and can be planned with" pp-partition plan --pp 2 --balance line.json "$bard"
run tp-run bench --tokens 16 --repeat 1 --pp 2 "$data/stacks/t5"
status_is 0 "a model of two stacks is measured"
out_has "steps over 2 stages: " "over stages, too"
out_has "; products of f32 " "and the kernels of the CPU are named"
run tp-run bench --tokens 16 --repeat 1 "$data/models/bert-pooler"
status_is 0 "and an encoder without a head"
if grep -q '^kernels *AVX-512;' out && grep -q avx512_vnni /proc/cpuinfo; then
    run tp-run bench --tokens 16 --repeat 1 --weights int8 "$data/models/bert-pooler"
    kernels=AVX512-VNNI
    ! grep -q '^kernels *AMX;' out || kernels=AMX
    out_has "kernels     $kernels; " "products of codes have kernels of their own"
else
    skip "products of codes have kernels of their own" "no AVX512-VNNI"
fi
run tp-run bench --tokens 600 "$bard"
status_is 3 "more tokens than the model takes are refused"
err_lines 1 "in one line"

# plan: layer 2 takes three times as long as the others
run pp-partition plan --pp 3 --balance "$uneven" --json "$bard"
ok "stages are balanced by what was measured" \
    test "$(sed -n 's/.*"layer_count":\([0-9]*\).*/\1/p' out | tr '\n' ' ')" = "2 1 3 "
sed 's/{"part":"layer.5".*//' "$uneven" > few.json
run pp-partition plan --pp 3 --balance few.json "$bard"
status_is 3 "a file of another model is refused"
err_is "pp-partition: few.json: measured with 5 layers, the model has 6" "and says how many layers"

# schedule: 5, 6 and 7 ms, messages of 24.6 us + 10 us
run pp-partition schedule --schedule gpipe --pp 3 --micro-batches 4 --calibration "$uneven" --json
ok "stages take the seconds that were measured" awk -v x="$(json out ideal)" \
    'BEGIN { exit !(x > 0.0839999 && x < 0.0840001) }'
# the last stage's first forward begins at 5 + 6 + 2 messages, works 4 x 7 x 3, and the gradients go back
ok "and messages what they take" awk -v x="$(json out makespan)" 'BEGIN {
    m = 1e-5 + 196608 / 8e9; want = 0.011 + 2 * m + 4 * 0.007 * 3 + 2 * (0.006 + 0.005) + 2 * m
    exit !(x > 0.9 * want && x < 1.1 * want) }'
run pp-partition schedule --pp 3 --calibration "$uneven" --latency 1 --json
ok "an option counts more than the file" awk -v x="$(json out makespan)" 'BEGIN { exit !(x > 4) }'
run pp-partition schedule --pp 9 --calibration "$uneven"
status_is 1 "more stages than layers do not fit"
run pp-partition schedule --pp 2 --calibration "$uneven" --forward 1
status_is 2 "--calibration gives all times"
run pp-partition schedule --pp 2 --calibration "$uneven" --plan "$bard"
status_is 2 "and so does --plan"

# mem-estimate: bard has 5.66e6 FLOPs a token and 5.7 MB to read
run mem-estimate plan --gpus 1 --gpu-mem 8GiB --calibration "$uneven" --json "$bard"
status_is 0 "mem-estimate plans with measured rates alone"
ok "a token takes as long as its weights are read" awk -v x="$(head -n 1 out > first; json first seconds)" \
    'BEGIN { want = 2 * 2828736 / (4e10 * 0.8); exit !(x > 0.9 * want && x < 1.5 * want) }'
sed 's/"latency":[^,]*/"latency":0.001/' "$uneven" > slow.json
for file in "$uneven" slow.json; do
    mem-estimate plan --gpus 2 --gpu-mem 8GiB --mesh tp=2 --calibration "$file" --json "$bard" |
        sed -n '1s/.*"tensor":\([0-9.e-]*\).*/\1/p'
done > spans
# 6 layers with 2 sums each, the head's and the embedding's; 2 hops in each
ok "sums between ranks take the latency that was measured" awk 'NR == 1 { first = $1 } NR == 2 {
    hops = ($1 - first) / (0.001 - 1e-5); exit !(hops > 23.9 && hops < 28.1) }' spans
run mem-estimate plan --gpus 1 --calibration "$uneven" "$bard"
status_is 2 "the memory must be known"
run mem-estimate plan --gpus 1 --gpu h100-80g --calibration "$uneven" "$bard"
status_is 0 "which a device's name tells"

# calibrate: a device of what was measured.  steps.tsv has, of one thread, seconds of processor time of a step of
# training (4 x 255 tokens, as its log tells), and of a token after 255 (as the bench of that model tells, on another
# machine); llama.json and llama-token.json are the benches of its first model on the two, of which nothing else is known
run mem-estimate calibrate -o device.json --name here "$data/calibration/llama.json"
status_is 0 "a device is made of a bench"
err_empty "without a word besides"
out_has "times what these rates say" "it tells what a backward pass takes"
out_has "times what its operations say" "and that of tp-run's own program"
ok "and what it tells of the bench's own steps" test "$(grep -c 'ms measured' out)" -eq 2
mem-estimate calibrate -o token.json "$data/calibration/llama-token.json" > /dev/null
tab=$(printf '\t')
while IFS="$tab" read -r model train token config; do
    [ "$model" = model ] && continue
    printf '%s\n' "$config" > config.json
    mem-estimate plan --mode train --gpus 1 --gpu-file device.json --runtime 0 --seq 255 --global-batch 4 --micro-batch 4 \
        --weights f32 --framework tp-run --recompute none --zero 0 --json config.json | head -n 1 > plan
    ok "$model: a step of training takes what is told" near "$train" "$(json plan seconds)" "0.1 * $train"
    mem-estimate plan --gpus 1 --gpu-file token.json --runtime 0 --seq 256 --weights f32 --framework tp-run --json \
        config.json | head -n 1 > plan
    ok "$model: and so does a token" near "$token" "$(json plan seconds)" "0.15 * $token"
done < "$data/calibration/steps.tsv"
run mem-estimate calibrate --json "$data/calibration/llama.json" "$data/calibration/llama.json"
status_is 0 "several files make one device"
out_has '"type":"device","version":1,"name":"measured","memory":' "which --json prints"
mem-estimate calibrate -o - "$data/calibration/llama.json" > printed
ok "as -o - does" grep -q '"products":{"fp32":' printed
run mem-estimate infer --gpu-file device.json --json "$bard"
ok "its memory counts" test "$(json out gpu_memory)" = "$(json device.json memory)"
run mem-estimate infer --gpu-file device.json --gpu-mem 2GiB --json "$bard"
ok "unless another is given" test "$(json out gpu_memory)" = 2147483648
run mem-estimate calibrate -q "$data/calibration/llama.json"
status_is 2 "an option that it has not is refused"
run mem-estimate calibrate --name 'a
b' "$data/calibration/llama.json"
status_is 2 "and a name of two lines"
run mem-estimate calibrate "$uneven"
status_is 3 "a file that does not tell the work is refused"
err_has "uneven.json: lacks the work of its parts" "with the cause"
run mem-estimate plan --gpus 1 --gpu-file device.json --compute bf16 "$bard"
status_is 2 "products of a type that was not measured are refused"
err_has "here has no rate of products in bf16" "by name"
run mem-estimate infer --gpu-file device.json --gpu l4 "$bard"
status_is 2 "--gpu and --gpu-file are one too many"
run mem-estimate plan --gpus 1 --gpu-file device.json --calibration "$uneven" "$bard"
status_is 2 "and so is --calibration"
run mem-estimate infer --gpu-file "$uneven" "$bard"
status_is 3 "a bench's own file is no device"
err_has "mem-estimate calibrate makes a device of it" "and it is said what makes one"
while read -r edit; do
    sed "$edit" device.json > bad.json
    run mem-estimate infer --gpu-file bad.json "$bard"
    status_is 3 "a device after $edit is refused"
    err_lines 1 "in one line"
done << 'END'
s/"device"/"x"/
s/"version":1/"version":2/
s/"name":"here"/"name":"a\\nb"/
s/"memory":[0-9]*/"memory":5/
s/"fp32":[^}]*/"fp32":-1/
s/"fp32"/"fp31"/
s/"attention":[^,]*/"attention":0/
s/}$//
END
run tp-run bench -q --train --tokens 16 --repeat 1 -o trained.json "$data/models/llama-groups"
status_is 0 "a bench times training, too"
ok "and says so" grep -q '"training":{"seconds":' trained.json
ok "with the work of its backward pass" awk -F '[:,]' '/"reverse"/ { for (i = 1; i < NF; i++) if ($i ~ /"products"/) p[++n] = $(i + 1) }
    END { exit !(n >= 2 && p[2] > 1.9 * p[1] && p[2] < 2.1 * p[1]) }' trained.json
run mem-estimate calibrate -o device.json trained.json
status_is 0 "of which a device is made"
run mem-estimate plan --mode train --gpus 1 --gpu-file device.json --seq 16 --compute bf16 "$data/models/llama-groups"
status_is 0 "with which training is planned"
run tp-run bench -q --train --tokens 16 --repeat 1 "$data/models/bert-pooler"
status_is 3 "what cannot be trained is refused"

# what a file may leave out or leave open
while read -r edit; do
    sed "$edit" "$uneven" > open.json
    run pp-partition schedule --pp 2 --calibration open.json
    status_is 0 "a file after $edit is read"
done << 'END'
s/"latency":1e-5/"latency":null/
s/"latency":1e-5,//
s/"bandwidth":8e9,//
END
while read -r edit; do
    sed "$edit" "$data/calibration/llama.json" > open.json
    run mem-estimate calibrate open.json
    status_is 0 "a device is made of a bench after $edit"
done << 'END'
s/"training":.*"parts"/"training":null,"parts"/
s/"training":.*"parts"/"parts"/
END

# bad files: of pp-partition, and of mem-estimate calibrate
while IFS='|' read -r edit message; do
    sed "$edit" "$uneven" > bad.json
    run pp-partition schedule --pp 2 --calibration bad.json
    status_is 3 "a file after $edit is refused"
    err_is "pp-partition: bad.json:$message" "with the place and the cause"
done << 'END'
s/"calibration"/"x"/|1:1: is no calibration file
s/"type":"calibration",//|1:1: is no calibration file
s/"version":1/"version":2/|1:1: is of another version than 1; 'tp-run bench' makes a new one
s/"version":1,//|1:1: is of another version than 1; 'tp-run bench' makes a new one
s/"tokens":256/"tokens":0/|1:1: 'tokens' is no number from 1
s/"tokens":256/"tokens":"256"/|1:1: 'tokens' is no number from 1
s/4e10/-1/|1:62: 'memory_read' is no number from 0
s/4e10/"fast"/|1:62: 'memory_read' is no number from 0
s/4e10/1e999/|1:62: 'memory_read' is no number from 0
s/4e10/null/|1:62: 'memory_read' is no number from 0
s/"message":196608,//|1:1: 'message' is no number from 0
s/"latency":1e-5/"latency":"short"/|1:133: 'latency' is no number from 0
s/"prefill":0.006/"prefill":null/|5:30: 'prefill' is no number from 0
s/"decode":0.0002/"decode":-1/|9:41: 'decode' is no number from 0
s/"parts":\[/"parts":[],"others":[/|1:179: 'parts' is no list of embedding, layers and head
s/"parts":\[/"parts":[{}],"others":[/|1:179: 'parts' is no list of embedding, layers and head
s/"parts":\[/"parts":7,"others":[/|1:179: 'parts' is no list of embedding, layers and head
s/"parts":\[/"others":[/|1:1: 'parts' is no list of embedding, layers and head
s/\]}$//|10:1: unexpected end
END
awk 'NR == 1 { print; next } { sub(/\]}$/, ""); parts = parts "," $0 } END {
    for (i = 0; i < 65529; i++) printf "{\"prefill\":1,\"decode\":1},\n"
    print substr(parts, 2) "]}" }' "$uneven" | sed 's/,,/,/g' > bad.json
run pp-partition schedule --pp 2 --calibration bad.json
status_is 3 "a file of 65537 parts is refused"
err_is "pp-partition: bad.json:1:179: 'parts' is no list of embedding, layers and head" "like one without"
while IFS='|' read -r edit message; do
    sed "$edit" "$data/calibration/llama.json" > bad.json
    run mem-estimate calibrate -o none.json bad.json
    status_is 3 "a bench after $edit is refused"
    err_is "mem-estimate: bad.json:$message" "with the cause"
done << 'END'
s/"weights":"F32"/"weights":5/|1:237: 'weights' is no type
s/"weights":"F32"/"weights":"a type that nobody has"/|1:237: 'weights' is no type
s/"memory":25276502016/"memory":-1/|1:252: 'memory' is no number of bytes
s/"memory":25276502016/"memory":"all"/|1:252: 'memory' is no number of bytes
s/"seconds":[^,]*,//|1:275: 'seconds' is no number from 0
s/"states":[^,]*/"states":-1/|1:314: 'states' is no number from 0
s/,"instructions":99//|1:330: 'instructions' is no number from 0
s/"step":{"products":0,/"step":{/|2:88: 'products' is no number from 0
s/"token":{"products":0,/"token":{"products":"none",/|2:182: 'products' is no number from 0
s/"memory":25276502016,//| lacks the work of its parts: measured with sp, or by an older tp-run bench
s/"step":{"products":0[^}]*},//| lacks the work of its parts: measured with sp, or by an older tp-run bench
s/,"work":{"products":5364449280[^}]*}//| lacks the work of its parts: measured with sp, or by an older tp-run bench
END
ok "and makes no device" test ! -e none.json
run pp-partition schedule --pp 2 --calibration nowhere.json
status_is 4 "a missing file is told"
err_is "pp-partition: nowhere.json: No such file or directory" "by name"
done_testing
