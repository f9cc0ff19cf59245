#!/bin/sh
# gpu.t - tp-run on GPUs that are made believe: the CUDA backend over tests/fake and tests/emu
. "$top_srcdir/tests/lib.sh"
fake=$top_builddir/tests/tp-run-fake

run tp-run devices
status_is 0 "tp-run devices answers on every machine"
out_has "cpu: " "and names the CPU"
run tp-run devices --json
out_has '{"type":"backend","name":"cpu","devices":1,"cores":' "--json has an object a line"
if [ ! -x "$fake" ]; then
    skip "the CUDA backend" "no C++ compiler"
    done_testing
    exit
fi
models=$data/models
FAKE_GPUS=8
FAKE_LOG=$PWD/log
export FAKE_GPUS FAKE_LOG

run env FAKE_GPUS=4 "$fake" devices
out_is "cuda: 4 devices, driver 13.0, runtime 13.0, cuBLASLt 13.0.2, NCCL 2.32.3
cuda 0: Fake GPU, compute 9.0, 4 multiprocessors, 1.1 GB (1.1 free), 0000:01:00.0, reaches 1,2,3
cuda 1: Fake GPU, compute 9.0, 4 multiprocessors, 1.1 GB (1.1 free), 0000:02:00.0, reaches 0,2,3
cuda 2: Fake GPU, compute 9.0, 4 multiprocessors, 1.1 GB (1.1 free), 0000:03:00.0, reaches 0,1,3
cuda 3: Fake GPU, compute 9.0, 4 multiprocessors, 1.1 GB (1.1 free), 0000:04:00.0, reaches 0,1,2
cpu: $(getconf _NPROCESSORS_ONLN) cores" "GPUs are listed with what they are"
run env FAKE_GPUS=1 FAKE_COMPUTE=75 "$fake" devices
out_has "0000:01:00.0: this build has no code for compute 7.5: ./configure --with-cuda-arch=75" \
    "a GPU that the build has no code for is named, with the switch"
run env FAKE_GPUS=1 FAKE_COMPUTE=75 "$fake" devices --json
out_has '"reaches":[],"trouble":"this build has no code for compute 7.5: ./configure --with-cuda-arch=75"}' \
    "in JSON, too"
run env FAKE_GPUS=1 FAKE_COMPUTE=75 "$fake" generate --backend cuda --ids 1 --max-tokens 1 "$models/llama-gqa"
status_is 4 "it is not used"
err_is "tp-run: --backend cuda: there is no such device here that can be used: see 'tp-run devices'" \
    "and --backend cuda points to the list"
# the tokens that the device has chosen are not lost while the logits are read
for how in "--logprobs 1" "--presence-penalty 1"; do
    # shellcheck disable=SC2086 # words
    for place in "$fake generate --backend cuda" "tp-run generate --backend cpu"; do
        $place --json --ids 1,2,3 --max-tokens 4 $how "$models/llama-gqa" | sed 's/.*"ids":\(\[[^]]*\).*/\1/'
    done > chosen
    ok "$how gives the tokens that the CPU gives" test "$(sort -u chosen | wc -l)" -eq 1
done
for cc in 80 86 120; do
    run env FAKE_GPUS=1 FAKE_COMPUTE=$cc "$fake" devices
    ok "compute $cc is served by the code of 80 or by its PTX" sh -c '! grep -q "no code" out'
done
run env FAKE_GPUS=0 "$fake" devices
out_has "cuda: 0 devices (no CUDA-capable device is detected)" "no GPU is no failure"
run env FAKE_DRIVER=12040 "$fake" devices --json
out_has '"trouble":"the driver is for CUDA 12.4, and 13.0 or newer is needed"' \
    "an old driver is named with the version that is needed"
run env FAKE_GPUS=0 "$fake" generate --backend cuda --ids 1 --max-tokens 1 "$models/llama-gqa"
status_is 4 "--backend cuda without a GPU ends with 4"
err_is "tp-run: --backend cuda: there is no such device here that can be used: see 'tp-run devices'" \
    "and one line"
# what GPUs have no kernel for: asked for by name it is refused, else the CPU is taken, and it is said
echo '{"ids":[1,2,3]}' > ids.jsonl
lacks() {
    what=$1 reason=$2
    shift 2
    run "$fake" "$@" --backend cuda
    status_is 1 "$what on GPUs: status 1"
    err_is "tp-run: --backend cuda: $reason; --backend cpu can" "and one line"
    ok "and nothing on standard output" test ! -s out
    run "$fake" "$@"
    status_is 0 "$what: the CPU is taken by default"
    ok "in one line" grep -qx "tp-run: backend cpu instead of cuda: $reason" err
    run "$fake" "$@" -q --json
    ok "and with --json in one of the output, also under -q" \
        grep -q "{\"type\":\"fallback\",\"backend\":\"cpu\",\"instead_of\":\"cuda\",\"reason\":\"$reason\"}" out
    ok "where standard error has none" test ! -s err
}
short="--ids 5,6 --max-tokens 2 $models/llama-gqa"
same_bits="no kernel for linear with the same bits on all layouts (--deterministic)"
training="no kernel for outer with --compute f16"
lacks "--deterministic on tp 2" "$same_bits" generate --deterministic --tp 2 $short
lacks "a training in f16" "$training" train --compute f16 --data ids.jsonl --steps 1 -n "$models/llama-gqa"
echo 5 6 7 > ids
lacks "score --deterministic" "$same_bits" score --deterministic --tp 2 --ids-file ids "$models/llama-gqa"
lacks "logits on two stages" "$same_bits" logits --deterministic --tp 2 --pp 2 --ids 5,6 -o cpu.npy "$models/llama-gqa"
run "$fake" train --backend cuda --compute f16 --data ids.jsonl -o run "$models/llama-gqa"
status_is 1 "a training that GPUs lack kernels for is refused"
ok "before anything is made" test ! -e run
run "$fake" train -q --compute f16 --data ids.jsonl --steps 1 -o run "$models/llama-gqa"
ok "a run's log has what its backend is instead of" \
    grep -q "\"backend\":\"cpu\",\"instead_of\":\"cuda\",\"reason\":\"$training\",\"threads\"" run/log.jsonl
run "$fake" generate --deterministic --tp 2 --devices 0,1 $short
status_is 1 "where no backend has all that is asked for, none is taken"
err_is "tp-run: no backend can: cuda: $same_bits; cpu: it has no devices to choose (--devices)" "with the reason of each"
run "$fake" generate --backend cpu --comm nccl $short
status_is 1 "what the CPU lacks is refused alike"
err_is "tp-run: --backend cpu: it does not use NCCL (--comm nccl); --backend cuda can" "in one line"
tp-shard split -q --dtype int8 --tp 1 "$models/llama-gqa" codes
run "$fake" generate --backend cuda --ids 5,6 --max-tokens 2 codes
status_is 0 "a checkpoint's own codes are multiplied by"
rm -r run
run "$fake" train -q --backend cuda --data ids.jsonl --steps 2 --lr-schedule constant -o run "$models/llama-gqa"
status_is 0 "GPUs train"
run tp-run train -q --backend cpu --data ids.jsonl --steps 2 --lr-schedule constant -o run-cpu "$models/llama-gqa"
losses() { sed -n 's/.*"type":"step".*"loss":\([^,]*\),.*/\1/p' "$1/log.jsonl" | cut -c 1-6; }
ok "with the losses of the CPU" sh -c 'test -n "$1" && test "$1" = "$2"' - "$(losses run)" "$(losses run-cpu)"
ok "and save what the CPU reads" tp-run train -q --backend cpu --steps 3 --resume -o run
run "$fake" bench --train --backend cuda --repeat 1 --tokens 2 --json "$models/llama-gqa"
status_is 0 "steps of training are timed"
run env FAKE_GPUS=0 "$fake" generate --ids 1,2 --max-tokens 2 --json "$models/llama-gqa"
status_is 0 "without one the CPU is the default"

# what the CPU gives, and what GPUs give
same() {
    what=$1
    shift
    tp-run "$@" --backend cpu --json 2> err | sed 's/,"tokens_per.*//' > cpu.out
    rm -f log
    "$fake" "$@" --backend cuda --json 2> err | sed 's/,"tokens_per.*//' > cuda.out
    ok "$what" sh -c 'test -s cpu.out && cmp cpu.out cuda.out'
    ok "and all memory of GPUs is given back: $what" \
        sh -c 'test -s log && ! grep -v "live 0 " log'
}
bard20="generate --ids 856,59,11,74,456,21,33,9,18,70,4,5,6,7,8,9,10,11 --max-tokens 4"
same "greedy text is the CPU's" $bard20 "$bard"
ok "and steps that are alike are played as graphs" grep -q 'graphs [1-9]' log
FAKE_CAPTURE=0 same "and where streams cannot be captured" $bard20 "$bard"
ok "steps are launched" grep -q 'graphs 0' log
same "texts of which one outgrows a graph are the CPU's" generate \
    --ids "$(seq -s, 1 40),$(seq -s, 1 100),$(seq -s, 1 110)" --ids 9,8 --ids 5 --max-tokens 12 "$models/stories260K/hf"
ok "by graphs" grep -q 'graphs [1-9]' log
same "int8: text is the CPU's" generate --weights int8 --ids 8,9,10,11 --max-tokens 3 "$models/llama-gqa"
for kind in fp8 fp8-latent ct-fp8-one; do
    same "$kind: text by codes is the CPU's" generate --weights codes --tp 2 --ids 8,9,10 --max-tokens 3 "$data/packed/$kind"
done
same "mxfp4: also of experts" generate --weights codes --ids 8,9,10 --max-tokens 3 "$models/gpt-oss-mxfp4"
for type in bf16 int8 fp8 int4; do
    same "texts over tp 2 with a cache of $type are the CPU's" generate --ids 8,9,10,11 --ids 85,59 --tp 2 \
        --max-tokens 3 --kv-dtype $type "$models/llama-gqa"
done
same "drawn text is the CPU's" generate --ids 8,59 --max-tokens 3 --temperature 1 --top-k 50 \
    --top-p 0.9 --seed 5 "$models/stories260K/hf"
same "plainly drawn text is the CPU's" generate --ids 8,9 --max-tokens 3 --temperature 1 --seed 7 \
    "$models/stories260K/hf"
# one logit of NaN, on one rank's part of the vocabulary
cp -r "$models/llama-gqa" nan && chmod -R u+w nan
printf '\0\0\300\177' | dd of=nan/model.safetensors bs=1 conv=notrunc 2> dd.err \
    seek=$((8 + $(od -An -tu8 -N8 nan/model.safetensors) + (70 * 32 + 3) * 4))
for how in "" "--tp 2" "--temperature 1" "--temperature 1 --top-k 3"; do
    run "$fake" generate --backend cuda $how --ids 5,6,7 --max-tokens 2 nan
    status_is 3 "a logit of NaN is no token on GPUs either, $how"
    err_has "tensor lm_head.weight: NaN at [70, 3], and text 1 has NaN or infinite logits after 3 tokens" "by name"
done
for layout in "--tp 2" "--pp 2" "--dp 2" "--tp 2 --pp 2" "--sp 2"; do
    same "text on $layout is the CPU's" generate --ids 5,6,7 --ids 8,9 --max-tokens 3 $layout \
        "$models/llama-gqa"
    case $layout in *tp* | *pp*) ok "by NCCL" grep -q 'exchanges [1-9]' log ;; esac
done
six="generate --ids 5,6,7 --ids 8,9 --max-tokens 6"
for layout in "--tp 2" "--tp 2 --pp 2" "--tp 3"; do
    same "steps that ranks record are the CPU's, on $layout" $six $layout "$models/llama-awkward"
    ok "each rank plays graphs" sh -c 'grep -q "graphs [1-9]" log && ! grep "graphs 0" log'
done
FAKE_CAPTURE=0 FAKE_ON=1 same "if one rank cannot record, text is the CPU's" $six --tp 2 "$models/llama-gqa"
ok "and no rank plays graphs" sh -c 'test -s log && ! grep -v "graphs 0" log'
same "ranks that exchange through the hosts record nothing" $six --tp 2 --comm host "$models/llama-gqa"
ok "and launch steps" sh -c 'test -s log && ! grep -v "graphs 0" log'
same "a text that follows a source is the CPU's" generate --ids 5,6,7,8,9 --max-tokens 3 --tp 2 "$data/stacks/m2m-100"
same "also where ranks share both" generate --ids 5,6,7,8,9 --max-tokens 3 --sp 2 "$data/stacks/t5"
same "also from a stream of predictions" generate --ids 5,6,7,8,9 --max-tokens 20 --tp 2 "$data/stacks/prophetnet-odd"
echo "{\"features\":\"$data/stacks/speech-to-text-odd/features.safetensors\"}" > source.json
same "a text that follows features is the CPU's" generate --input source.json --max-tokens 3 --tp 2 "$data/stacks/speech-to-text-odd"
same "parts of different width are gathered by NCCL" generate --ids 5,6,7 --max-tokens 3 --tp 3 \
    --temperature 1 --seed 3 "$models/llama-awkward"
same "through the hosts text is the CPU's, too" generate --ids 5,6,7 --ids 8,9 --max-tokens 3 \
    --tp 2 --pp 2 --comm host "$models/llama-gqa"
ok "without NCCL" grep -q 'exchanges 0' log
FAKE_NCCL=0 same "and where there is no NCCL" generate --ids 5,6,7 --max-tokens 3 --tp 2 \
    "$models/llama-gqa"
# which ones
rm -f log
run env FAKE_GPUS=4 "$fake" generate --backend cuda --devices 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
ok "--devices chooses a GPU" sh -c 'grep -q "device 2\$" log && ! grep -v "device 2\$" log'
rm -f log
run env FAKE_GPUS=4 "$fake" generate --backend cuda --devices 3,1 --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
ok "or one for each rank" sh -c 'test "$(sed "s/.*device //" log | sort | xargs)" = "1 3"'
run env FAKE_GPUS=4 "$fake" generate --backend cuda --devices 3 --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
status_is 2 "and as many as there are ranks"
err_has "--devices names 1, and 2 ranks of this machine need one each" "which is told"
rm -f log
run env FAKE_GPUS=4 "$fake" generate --backend cuda --devices 3 --share-gpu --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
ok "unless they share" sh -c 'test "$(sed "s/.*device //" log | sort | xargs)" = "3 3"'
run env FAKE_GPUS=4 "$fake" generate --backend cuda --devices 4 --ids 5 --max-tokens 1 "$models/llama-gqa"
err_is "tp-run: --devices 4: the last device here is 3" "a GPU that is not there is named"
run "$fake" generate --backend cuda --devices 0,0 --ids 5 --max-tokens 1 "$models/llama-gqa"
err_has "--devices: 0 stands twice in '0,0'" "no GPU is named twice"
run "$fake" generate --backend cuda --devices 0,x --ids 5 --max-tokens 1 "$models/llama-gqa"
err_has "--devices: expected numbers such as 0,2, not '0,x'" "or by a word"
run tp-run generate --backend cpu --devices 0 --ids 5 --max-tokens 1 "$models/llama-gqa"
status_is 1 "the CPU is one"
err_is "tp-run: --backend cpu: it has no devices to choose (--devices)" "and has none to choose"
# GPUs that this build has no code for are passed over
rm -f log
run env FAKE_GPUS=4 FAKE_COMPUTE=75,90,75,90 "$fake" generate --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
ok "ranks take the GPUs that there is code for" sh -c 'test "$(sed "s/.*device //" log | sort | xargs)" = "1 3"'
run env FAKE_GPUS=2 FAKE_COMPUTE=75,90 "$fake" generate --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
err_has "1 devices can be used here" "and no others"
run env FAKE_GPUS=2 FAKE_COMPUTE=75,90 "$fake" generate --backend cuda --devices 0 --ids 5 --max-tokens 1 "$models/llama-gqa"
err_is "tp-run: GPU 0: this build has no code for compute 7.5: ./configure --with-cuda-arch=75" "one that is named is refused"
run env FAKE_GPUS=2 FAKE_COMPUTE=75 "$fake" generate --ids 5 --max-tokens 1 "$models/llama-gqa"
status_is 0 "and where there are no others the CPU is the default"
FAKE_GPUS=1 same "ranks share a GPU" generate --ids 5,6,7 --max-tokens 3 --tp 2 --share-gpu \
    "$models/llama-gqa"
rm -f log
run env FAKE_GPUS=1 "$fake" generate --backend cuda --ids 5,6,7 --max-tokens 3 --tp 2 --share-gpu \
    --comm nccl --json "$models/llama-gqa"
ok "by NCCL as well" sh -c 'sed "s/,\"tokens_per.*//" out | cmp - cpu.out &&
    grep -q "exchanges [1-9]" log && ! grep -v "live 0 " log'
same "experts give the CPU's text" generate --ids 5,6,7 --max-tokens 3 --tp 2 \
    "$models/mixtral"
same "and on --ep 2" generate --ids 5,6,7 --ids 8,9 --max-tokens 3 --ep 2 "$models/mixtral"
ok "by NCCL" grep -q 'exchanges [1-9]' log
same "and on --tp 2 --ep 2 --pp 2" generate --ids 5,6,7 --ids 8,9 --max-tokens 3 --tp 2 --ep 2 \
    --pp 2 "$models/mixtral"

# enough rows for cuBLASLt: of f32, and of bf16, whose rows go there in two parts
long=$(seq -s, 1 40)
same "greedy text after a long prompt is the CPU's" generate --ids "$long" --max-tokens 2 \
    "$models/stories260K/hf"
ok "and cuBLASLt has made products" grep -q 'products [1-9]' log
same "and after one of 33 tokens" generate --ids "$(seq -s, 1 33)" --max-tokens 1 "$bard"
ok "by cuBLASLt, too" grep -q 'products [1-9]' log
same "and of 32" generate --ids "$(seq -s, 1 32)" --max-tokens 1 "$bard"
ok "by our own kernels, which read the weights once" grep -q 'products 0' log
same "or rounded" generate --compute bf16 --ids "$(seq -s, 1 9)" --max-tokens 1 "$bard"
ok "by our own kernels again" grep -q 'products 0' log
same "of bf16, too" generate --ids "$long" --max-tokens 2 "$bard"
ok "and they are cuBLASLt's" grep -q 'products [1-9]' log
FAKE_BLAS=0 same "and without cuBLASLt" generate --ids "$long" --max-tokens 2 "$bard"
ok "by our own kernels" grep -q 'products 0' log

# rounded to bf16, as the CPU rounds: products of few rows, of many, and attention of a prompt besides
same "with --compute bf16 text is the CPU's" $bard20 --compute bf16 "$bard"
same "also after a long prompt" generate --compute bf16 --ids "$long" --max-tokens 2 "$bard"
ok "by cuBLASLt" grep -q 'products [1-9]' log
for how in f32 bf16; do
    "$fake" logits --backend cuda --compute $how --ids "$long" -o $how.safetensors "$bard" 2> err
    "$fake" logits --backend cpu --compute $how --ids "$long" -o cpu-$how.safetensors "$bard" 2> err
done
ok "logits are near those of the CPU, which does not round attention" \
    "$top_builddir/tests/compare-tensors" cpu-bf16.safetensors bf16.safetensors 1e-2 logits
ok "and those in f32 nearer" "$top_builddir/tests/compare-tensors" cpu-f32.safetensors f32.safetensors 1e-4 logits
run "$top_builddir/tests/compare-tensors" f32.safetensors bf16.safetensors 1e-4 logits
status_is 1 "so the option does something"

near_score() {
    "$fake" score --backend "$1" --window 32 --json "$2" "$bard" > "$1.json" 2> err
    json "$1.json" nll
}
head -n 3 "$bard/heldout.txt" > text
ok "a score is the CPU's" near "$(near_score cpu text)" "$(near_score cuda text)" 1e-5

run env FAKE_GPUS=1 "$fake" generate --backend cuda --tp 2 --ids 5 --max-tokens 1 "$models/llama-gqa"
status_is 4 "more ranks than GPUs are refused"
err_is "tp-run: --backend cuda: 1 devices can be used here, and this machine has 2 ranks or more: a rank needs one of its own" \
    "with both numbers"
run env FAKE_MEMORY=100000 "$fake" generate --backend cuda --ids 5 --max-tokens 1 "$models/llama-gqa"
status_is 4 "a model too large for the GPU ends with 4"
ok "and a line with bytes wanted and free, and who would have known" \
    grep -Eqx "tp-run: GPU 0: no memory for [^:]*: [0-9]+ bytes are needed, [0-9]+ of 100000 are free; 'mem-estimate infer' predicts a layout's memory" err


# what is reported is what a GPU needs, and is asked for before the weights are read
long=$(seq -s, 1 40)
for name in llama-gqa mixtral; do
    run env FAKE_GPUS=1 "$fake" generate --report-memory --backend cuda --ids "$long" --max-tokens 4 "$models/$name"
    total=$(sed -n 's/.*"total":\([0-9]*\),"mapped".*/\1/p' err)
    cp out got
    cp err err.reported
    run env FAKE_GPUS=1 FAKE_MEMORY="$total" "$fake" generate --backend cuda --ids "$long" --max-tokens 4 "$models/$name"
    status_is 0 "$name: a GPU of the $total bytes that are reported is enough"
    ok "for the same text" cmp -s out got
    less=$((total - total / 10))
    : > "$FAKE_LOG"
    run env FAKE_GPUS=1 FAKE_MEMORY=$less "$fake" generate --backend cuda --ids "$long" --max-tokens 4 "$models/$name"
    status_is 4 "one with a tenth less is refused"
    err_is "tp-run: GPU 0: no memory for the weights, the cache and a step of a rank: $total bytes are needed, $less of $less are free; 'mem-estimate infer' predicts a layout's memory" \
        "in a line"
    ok "before a kernel or a copy" grep -q "blocks 0 products 0" "$FAKE_LOG"
done
ok "cuBLASLt's work is among it, and the host's memory beside it" grep -q '"cublaslt":33554432.*"host":{"total":' err.reported

# and foretold without a GPU, to the byte; EVERY=1: of all models, not some on each layout
ids=3,4,5,6,7,8,9,10,11
foretold() { # MODEL LAYOUT TYPES TP-RUN'S MEM-ESTIMATE'S
    n=$(echo "$ids" | tr ',' '\n' | wc -l)
    # shellcheck disable=SC2086 # words are wanted
    "$fake" generate -q --backend cuda --report-memory $2 $3 ${4-} --ids "$ids" --max-tokens 1 "$1" 2> report > text ||
        return 0
    sed -n 's/.*"rank":[0-9]*,"weights":\([0-9]*\).*"total":\([0-9]*\),"mapped".*/\1 \2/p' report | sort > allocated
    # shellcheck disable=SC2086 # words are wanted
    "$top_builddir/tests/mem-estimate-fake" infer --framework=tp-run --backend cuda $2 $3 ${5-} \
        --seq $((n + 1)) --prefill-tokens "$n" --micro-batches 1 --runtime 0 --fragmentation 0 --json "$1" |
        tr '{' '\n' | sed -n 's/.*"count":\([0-9]*\),"weights":\([0-9]*\).*"total":\([0-9]*\).*/\1 \2 \3/p' |
        awk '{ for (i = 0; i < $1; i++) print $2, $3 }' | sort > predicted
    told=$((told + 1))
    [ -s allocated ] && cmp -s predicted allocated && return
    wrong=$((wrong + 1))
    echo "# $1 $2: $(tr '\n' ' ' < predicted)but $(tr '\n' ' ' < allocated)"
}
told=0 wrong=0 turn=0 every=6
[ -z "${SHORT-}" ] || every=28
for dir in "$models"/*/; do
    turn=$((turn + 1))
    [ $((turn % ${EVERY-$every})) = 0 ] || continue
    compute=f32
    case $((turn % 5)) in
    0) layout='' compute=bf16 ;;
    1) layout="--tp 2" compute=bf16 ;;
    2) layout="--pp 2" ;;
    3) layout="--sp 2" compute=bf16 ;;
    4) layout="--tp 2 --pp 2" ;;
    esac
    foretold "$dir" "$layout" "--compute $compute --kv-dtype f32"
done
ok "a GPU has what is foretold, of $told models" test $wrong = 0 -a $told -gt $((every == 6 ? 15 : 1))
told=0
foretold "$models/mixtral" "--ep 2" "--compute f32 --kv-dtype f32"
ids=$long
foretold "$models/llama-gqa" "" "--compute f32 --kv-dtype f32"
foretold "$models/llama-gqa" "--tp 2" "--compute bf16 --kv-dtype f32"
foretold "$models/mixtral" "--tp 2" "--compute f32 --kv-dtype f32"
foretold "$models/llama-gqa" "--tp 2" "--compute f32 --kv-dtype int4"
ids=$(seq -s, 1 39) # of its vocabulary of 40
foretold "$data/packed/fp8" "--tp 2" "--compute f32 --kv-dtype f32 --weights codes"
ok "with experts apart, longer prompts and rounded products, too" test $wrong = 0 -a $told = 6

# of which the GPU changes one thing, if weights have 16 bits
working() {
    mem-estimate infer --framework=tp-run --backend cuda --seq 4096 --prefill-tokens 64 --weights bf16 --gpu "$1" --json \
        "$models/llama-gqa/config.json" | sed -n 's/.*"working":\([0-9]*\).*/\1/p' | head -n 1
}
ok "a GPU whose tensor cores lack bf16 lays out no tiles" test "$(working t4)" -ne "$(working l4)"
ok "others are alike" test "$(working h100-80g)" = "$(working l4)"
run mem-estimate infer --backend cuda "$models/llama-gqa"
status_is 2 "--backend without --framework=tp-run is refused"
err_has "--backend cuda: is of --framework=tp-run" "and says so"
run mem-estimate infer --framework=tp-run --backend cpu "$models/llama-gqa"
err_has "--backend cpu: --threads is missing" "a CPU has threads"
run mem-estimate infer --framework=tp-run --backend cuda --gpu mi300x "$models/llama-gqa"
err_has "--backend cuda: --gpu mi300x is of AMD" "and CUDA has no GPU of another maker"

pair="generate --backend cuda --ids 5,6 --max-tokens 2 --tp 2 $models/llama-gqa"
run env FAKE_NCCL=0 "$fake" $pair --comm nccl
status_is 4 "--comm nccl without NCCL ends with 4"
err_is "tp-run: --comm nccl: rank 0 has no NCCL 2.18 or newer: see 'tp-run devices'" "and one line"
run "$fake" $pair --comm ucx
status_is 2 "--comm takes no other word"
run tp-run generate --backend cpu --comm nccl --ids 5 "$models/llama-gqa"
status_is 1 "nor nccl where there are no GPUs"

run "$fake" bench --backend cuda --tp 2 --collectives --repeat 1 --json "$models/llama-gqa"
status_is 0 "bench times collectives"
ok "of NCCL, by size" \
    grep -q '^{"type":"collective","axis":"tp","ranks":2,"by":"NCCL","kind":"all-gather","bytes":1024,' out
run "$fake" bench --backend cuda --repeat 1 --tokens 4 --json "$models/llama-gqa"
ok "a calibration has the memory of the GPU" grep -q '"weights":"F32","memory":1073741824,' out
run tp-run bench --backend cpu --tp 2 --collectives --repeat 1 "$models/llama-gqa"
ok "and through shared memory" grep -q '^tp  *2  shm  *all-reduce  *1.00 KiB ' out
run tp-run bench --backend cpu --collectives "$models/llama-gqa"
status_is 2 "one rank alone exchanges nothing"

# a rank that is gone, one that does nothing, and one whose GPU fails
run timeout 20 env FAKE_DIE=200 FAKE_ON=1 "$fake" $pair
status_is 4 "a rank that is killed in an exchange ends all"
err_is "tp-run: rank 1 was killed by signal 9 (SIGKILL)" "with one line"
run timeout 20 env FAKE_HANG=200 FAKE_ON=1 "$fake" $pair --rank-timeout 1
status_is 4 "so does one that does not go on"
err_is "tp-run: GPU 0: another rank has not answered for 1 s (--rank-timeout)" "with the time"
run timeout 20 env FAKE_FAIL=200 FAKE_ON=1 "$fake" $pair
status_is 4 "and one whose GPU fails"
ok "with that GPU's line alone" grep -qx 'tp-run: GPU 1: .*unspecified launch failure.*' err
if command -v mpirun > /dev/null && tp-run --version | grep -q '+mpi'; then
    rm -f log
    mpirun --allow-run-as-root --oversubscribe -np 2 "$fake" $pair > mpi.out 2> err
    tp-run generate --backend cpu --ids 5,6 --max-tokens 2 "$models/llama-gqa" > cpu.out 2> err
    ok "mpirun's ranks join by NCCL and give the CPU's text" \
        sh -c 'cmp cpu.out mpi.out && grep -q "exchanges [1-9]" log && ! grep -v "live 0 " log'
fi

# torchrun's ranks on two machines: they meet by TCP, and NCCL does the rest
far() {
    rank=$1
    shift
    env MASTER_ADDR=localhost MASTER_PORT=$((30000 + $$ % 2000)) RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
        timeout 60 "$fake" generate --launcher torchrun --ids 5,6 --max-tokens 6 --tp 2 "$@" "$models/llama-gqa"
}
rm -f log
tp-run generate --backend cpu --ids 5,6 --max-tokens 6 "$models/llama-gqa" > cpu.out 2> err
far 1 --backend cuda > far.out 2> far.err &
far 0 --backend cuda > torch.out 2> err
wait $!
ok "torchrun's ranks on two machines join by NCCL, and give the CPU's text" \
    sh -c 'cmp cpu.out torch.out && test ! -s far.err && grep -q "exchanges [1-9]" log && ! grep -v "live 0 " log'
ok "with recorded steps" sh -c '! grep "graphs 0" log'
# a launcher that shows each rank one GPU
apart() { # RANK BUS
    env MASTER_ADDR=localhost MASTER_PORT=$((30000 + $$ % 2000)) RANK="$1" WORLD_SIZE=2 LOCAL_RANK="$1" LOCAL_WORLD_SIZE=2 \
        FAKE_GPUS=1 FAKE_BUS="$2" timeout 60 "$fake" generate --launcher torchrun --backend cuda --ids 5,6 --max-tokens 6 \
        --tp 2 "$models/llama-gqa"
}
for second in 2 1; do
    rm -f log
    apart 1 $second > far.out 2> far.err &
    apart 0 1 > torch.out 2> err
    wait $!
    ok "ranks that see one GPU each give the CPU's text, on bus 1 and $second" cmp cpu.out torch.out
    if [ $second = 2 ]; then
        ok "by NCCL, without a word" sh -c 'test ! -s err && grep -q "exchanges [1-9]" log && grep -c "device 0" log | grep -qx 2'
    else
        err_is "tp-run: ranks see one GPU, and the same one: they share it, as with --share-gpu" "the same one is shared, which is said"
        ok "through the hosts" grep -q "exchanges 0" log
    fi
done
# one of the machines has no GPU
for rank in 0 1; do
    FAKE_GPUS=$rank far 1 > far.out 2> far.err &
    FAKE_GPUS=$((1 - rank)) far 0 > torch.out 2> err
    wait $!
    ok "if rank $rank has no GPU, all ranks take the CPU" sh -c 'cmp cpu.out torch.out && test ! -s far.err'
    ok "and rank 0 says so" grep -qx "tp-run: backend cpu instead of cuda: \(rank 1: \)\?there is no such device that can be used" err
done
FAKE_GPUS=0 far 1 --backend cuda > far.out 2> far.err &
far=$! status=0
far 0 --backend cuda > torch.out 2> err || status=$?
wait $far
ok "and --backend cuda is refused by all" test "$? $status" = "4 4"
err_is "tp-run: --backend cuda: there is no such device here that can be used: see 'tp-run devices'" "in one line"

# every call fails once, of one rank and of two: one line, status 4, nothing left
fail_each() {
    what=$1
    shift
    rm -f log
    k=1 handled=0 tried=0
    while :; do
        status=0
        FAKE_ON=$([ "$what" = one ] || echo $((k % 2))) FAKE_FAIL=$k timeout 20 "$fake" "$@" \
            > out 2> err || status=$?
        # a rank has no number yet in its first calls, and does without cuBLASLt that does not start
        [ $status -eq 0 ] && [ $k -gt 20 ] && break
        if [ $status -gt 0 ]; then
            tried=$((tried + 1))
            if [ $status -eq 4 ] && [ "$(wc -l < err)" -eq 1 ] &&
                grep -q '^tp-run: .*\(GPU\|--backend cuda\)' err; then
                handled=$((handled + 1))
            else
                { echo "call $k: status $status" && cat err; } > bad.err
            fi
        fi
        # the first calls prepare, then they repeat; with SHORT one of three of the first
        [ $k -lt 60 ] && k=$((k + 1${SHORT:+ + 2})) || k=$((k + k / 5))
    done
    ok "of $tried calls that fail in $what each is one true line and status 4" \
        test "$handled" -eq "$tried"
    [ "$handled" -eq "$tried" ] || sed 's/^/# /' bad.err
}
fail_each one generate --backend cuda --ids 5,6 --max-tokens 4 "$models/llama-gqa"
ok "among them those that record steps and play them" grep -q 'graphs [1-9]' log
ok "and whatever fails, all memory of GPUs is given back" sh -c '! grep -v "live 0 " log'
run "$fake" logits --backend cuda --tp 2 --input "$data/encoders/xlnet-class/line.json" -o xlnet.safetensors "$data/encoders/xlnet-class"
ok "attention by distance and by types is the CPU's" "$top_builddir/tests/compare-tensors" \
    "$data/encoders/xlnet-class/expected.safetensors" xlnet.safetensors 1e-4 logits
run "$fake" logits --backend cuda --tp 2 --ids "$(cat "$data/encoders/deberta-v2/ids")" -o relate.safetensors "$data/encoders/deberta-v2"
ok "attention by distance is that of transformers" "$top_builddir/tests/compare-tensors" \
    "$data/encoders/deberta-v2/expected.safetensors" relate.safetensors 1e-4 logits
for model in mobilebert convbert squeezebert funnel; do
    run "$fake" logits --backend cuda --tp 2 --ids "$(cat "$data/encoders/$model/ids")" -o beside.safetensors "$data/encoders/$model"
    ok "$model: rows beside a row, and groups of columns, are those of transformers" "$top_builddir/tests/compare-tensors" \
        "$data/encoders/$model/expected.safetensors" beside.safetensors 1e-4 logits
done
# shards are copied from the mapped file
tp-shard split -q --tp 1 "$bard" whole
same "shards give the CPU's text" $bard20 whole
chmod -R u+w whole
file=whole/rank-tp0-pp0.safetensors
printf '\377\377' | dd of="$file" bs=1 seek=$(($(wc -c < "$file") - 100)) conv=notrunc 2> dd.err
run "$fake" generate --backend cuda --ids 1,2 --max-tokens 2 whole
status_is 3 "a byte that is wrong in one ends the run"
ok "before a token is printed" test ! -s out
err_has "is damaged: its CRC-32 is" "and it is said"
# the command for real GPUs, so that it is known to run; its programs are sanitized in tests of their own
if [ -z "${SHORT-}" ]; then
    run env FAKE=1 FAKE_GPUS=4 sh "$top_srcdir/tests/gpu/run"
    status_is 0 "tests/gpu/run runs over the fakes"
    ok "to its end, without a failure" sh -c 'tail -n 1 out | grep -q "^seconds of parts.* ok$" && ! grep FAIL out'
    run env FAKE=1 FAKE_GPUS=4 FAKE_FAIL=90 sh "$top_srcdir/tests/gpu/run" answers
    status_is 1 "where something fails it says so with its status"
    ok "and in the table, with the reason" \
        sh -c 'grep -q "^text of llama-gqa .*FAIL$" out && grep -q "^    tp-run: GPU" out'
    run env FAKE=1 FAKE_GPUS=0 sh "$top_srcdir/tests/gpu/run"
    status_is 4 "and without a GPU it is no success"
    run env FAKE=1 sh "$top_srcdir/tests/gpu/run" step
    status_is 2 "a part that it does not have is named"
fi
fail_each two generate --backend cuda --ids 5,6 --max-tokens 4 --tp 2 "$models/llama-gqa"
ok "among them those that record and play steps with collectives" grep -q 'graphs [1-9]' log
done_testing
