#!/bin/sh
# mem-emit.t - plans written as commands, and what becomes of them when they are run
. "${top_srcdir:?}/tests/lib.sh"

for name in llama-3-8b llama-3.1-405b mixtral-8x7b; do shape $name; done
cp -r "$bard" bard
chmod -R u+w bard
tp-run generate --prompt 'ROMEO:' --max-tokens 12 -q bard > text

# emit FORMAT OPTION... - the best plan for bard as FORMAT
emit() {
    emit_format=$1
    shift
    mem-estimate plan --gpu h100-80g --seq 64 --emit "$emit_format" "$@" bard
}

# sh: every kind of layout gives the text of one rank
for layout in tp=1 tp=2 pp=2 sp=2 dp=2 tp=3,pp=2 tp=2,sp=2; do
    n=$(printf '%s\n' "$layout" | awk -F '[=,]' '{ print $2 * ($4 ? $4 : 1) }')
    emit sh --gpus "$n" --mesh "$layout" --global-batch 2 > run.sh
    ok "a script of $layout generates the model's text" sh -c \
        'sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
done
ok "it cuts the model once" sh -c 'rm bard/model.safetensors && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
rm -rf bard
cp -r "$bard" bard
chmod -R u+w bard
emit sh --gpus 1 > run.sh
ok "one rank needs no cut" sh -c '! grep -q tp-shard run.sh && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
emit sh --gpus 2 --mesh tp=2 --weights f32 > run.sh
ok "weights of another type are stored so" sh -c 'grep -q -e "--dtype f32" run.sh && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
tp-shard split -q --tp 2 bard cut.tp2
mem-estimate plan --gpu h100-80g --gpus 2 --mesh pp=2 --emit sh cut.tp2 > run.sh
ok "a checkpoint is cut anew" sh -c 'grep -q "tp-shard reshard" run.sh && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
mem-estimate plan --gpu h100-80g --gpus 2 --mesh tp=2 --emit sh cut.tp2 > run.sh
ok "or run as it is" sh -c '! grep -q tp-shard run.sh && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
mkdir "it's a model"
cp -r bard "it's a model/bard \$x"
mem-estimate plan --gpu h100-80g --gpus 2 --mesh tp=2 --emit sh "it's a model/bard \$x" > run.sh
ok "names are quoted" sh -c 'sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
cp -r bard ./-bard
mem-estimate plan --gpu h100-80g --gpus 2 --mesh tp=2 --emit sh -- -bard > run.sh
ok "and are no options" sh -c 'sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
tp-shard families llama | sed '1,5s/"llama"/"mine"/g' > "my family.json"
cp -r bard mine
sed 's/"model_type": *"llama"/"model_type":"mine"/' bard/config.json > mine/config.json
for n in 1 2; do
    mem-estimate plan --gpu h100-80g --gpus $n --mesh tp=$n --family "my family.json" --emit sh mine > run.sh
    ok "a family of one's own is handed on ($n ranks)" sh -c 'sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
done
run mem-estimate plan --gpu h100-80g --gpus 2 --family "my family.json" --emit make mine
status_is 2 "make cannot name it with a space"
err_has "it cannot name 'my family.json'" "which is told"

# other kinds of models: of each the greedy continuation, or an encoder's logits
for dir in "$data"/models/gpt2-hub "$data"/models/qwen3 "$data"/models/falcon-groups "$data"/models/bert-mlm "$data"/stacks/t5; do
    use_model "$dir"
    set -- --ids 1,2,3 --max-tokens 3
    case $name in
    bert-mlm) set -- --ids 1,2,3 --output bert.safetensors ;;
    esac
    command=generate
    [ "$name" != bert-mlm ] || command=logits
    tp-run $command -q "$@" "$dir" > want
    [ $command = generate ] || cp bert.safetensors want
    for mesh in tp=2 pp=2; do
        mem-estimate plan --gpu l4 --gpus 2 --seq 16 --mesh $mesh --emit sh "$dir" > run.sh
        run sh run.sh -q "$@"
        if [ $command = generate ]; then
            ok "$name in $mesh continues as on one rank" cmp want out
        else
            ok "$name in $mesh has the logits of one rank" "$top_builddir/tests/compare-tensors" want bert.safetensors 1e-5 logits
        fi
    done
done

# make
emit make --gpus 2 --mesh tp=2 > run.mk
rm -rf bard.tp2
ok "a makefile does the same" sh -c 'MAKEFLAGS="" make -s -f run.mk ARGS="--prompt ROMEO: --max-tokens 12 -q" > got && cmp text got'
ok "and cuts the model once" sh -c 'MAKEFLAGS="" make -n -f run.mk > out && ! grep -q tp-shard out'
run mem-estimate plan --gpu h100-80g --gpus 2 --emit make "it's a model/bard \$x"
status_is 2 "what make cannot name is refused"
err_has "it cannot name" "and that is said"

# several nodes: launchers that tell what they are asked
mkdir tools
for tool in mpirun srun; do
    printf '#!/bin/sh\necho "%s $*"\n' $tool > tools/$tool
    chmod +x tools/$tool
done
emit sh --gpus 2 --gpus-per-node 1 --mesh pp=2 > run.sh
run env PATH="$PWD/tools:$PATH" HOSTFILE=hosts sh run.sh --prompt x
out_is "mpirun --hostfile hosts -n 2 --map-by ppr:1:node tp-run generate --prompt x bard.pp2" "nodes are reached by mpirun"
emit make --gpus 2 --gpus-per-node 1 --mesh pp=2 > run.mk
run env PATH="$PWD/tools:$PATH" MAKEFLAGS= make -s -f run.mk ARGS=--quiet
out_is "mpirun -n 2 --map-by ppr:1:node tp-run generate --quiet bard.pp2" "from make, too"
emit slurm --gpus 4 --gpus-per-node 2 --mesh pp=2,tp=2 > run.sh
run env PATH="$PWD/tools:$PATH" sh run.sh --prompt x
out_is "srun --mpi=pmix --kill-on-bad-exit tp-run generate --prompt x bard.tp2pp2" "and by srun in a job"
ok "which asks for them" sh -c 'grep -qx "#SBATCH --nodes=2" run.sh && grep -qx "#SBATCH --ntasks-per-node=2" run.sh'
emit slurm --gpus 4 --gpus-per-node 2 --mesh pp=2,tp=2 --cpus-per-task 3 --time 90m30s > run.sh
size=$(mem-estimate plan --gpu h100-80g --seq 64 --gpus 4 --gpus-per-node 2 --mesh pp=2,tp=2 --json bard | sed -n '1s/.*"memory":\([0-9]*\).*/\1/p')
ok "for the devices of a node, processors, memory and time" sh -c "
    grep -x '#SBATCH --\(gpus-per-node\|cpus-per-task\|mem\|time\)=.*' run.sh | cmp - <<END
#SBATCH --gpus-per-node=2
#SBATCH --cpus-per-task=3
#SBATCH --mem=$(((2 * size + (1 << 20) - 1) >> 20))M
#SBATCH --time=91
END"
run env PATH="$PWD/tools:$PATH" sh run.sh --prompt x
out_is "srun --mpi=pmix --kill-on-bad-exit tp-run generate --threads 3 --prompt x bard.tp2pp2" "with as many threads"
for options in --cpus-per-task=2 --time=1h "--emit slurm --time=soon"; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate plan --gpu h100-80g --gpus 2 --seq 64 $options bard
    status_is 2 "$options is refused"
done
mem-estimate plan --mode train --gpu h100-80g --gpus 2 --dp 2 --tp 1 --seq 64 --zero 1 --offload none --emit slurm bard > near.sh
mem-estimate plan --mode train --gpu h100-80g --gpus 2 --dp 2 --tp 1 --seq 64 --zero 1 --offload optimizer --emit slurm bard > far.sh
ok "what is offloaded is in the node's memory" test "$(sed -n 's/^#SBATCH --mem=\(.*\)M/\1/p' far.sh)" -ge "$(sed -n 's/^#SBATCH --mem=\(.*\)M/\1/p' near.sh)"
emit slurm --gpus 2 --mesh tp=2 | sed '/gpus-per-node/d' > run.sh
ok "on one node tp-run starts its ranks itself" sh -c '! grep -q srun run.sh && sh run.sh --prompt ROMEO: --max-tokens 12 -q > got && cmp text got'
if command -v sbatch > /dev/null && command -v sinfo > /dev/null && sinfo > /dev/null 2>&1; then
    ok "Slurm runs it" sh -c 'sbatch --wait -o job.out run.sh --prompt ROMEO: --max-tokens 12 -q && cmp text job.out'
else
    skip "Slurm runs it" "no Slurm"
fi

# training: what tp-run trains is run, what it does not is refused, with the option that keeps a plan to it
for layout in tp=1 dp=2,tp=1,pp=1 tp=2 pp=2,tp=1 tp=1,sp=2; do
    optimizer=adamw
    [ $layout != pp=2,tp=1 ] || optimizer=momentum
    way=none zero=0
    [ $layout != tp=2 ] || way=full
    [ $layout != dp=2,tp=1,pp=1 ] || zero=1
    n=$(printf '%s\n' "$layout" | awk -F '[=,]' '{ print $2 * ($4 ? $4 : 1) * ($6 ? $6 : 1) }')
    rm -rf run.dir
    case $layout in *sp=*) mesh=$layout ;; *) mesh=$layout,sp=1 ;; esac
    mem-estimate plan --mode train --gpu h100-80g --gpus "$n" --mesh "$mesh" --zero $zero --recompute $way --schedule 1f1b --weights f32 \
        --optimizer $optimizer --global-batch 4 --seq 32 --emit sh bard > train.sh
    run sh train.sh -q --data bard/heldout.txt --steps 2 -o run.dir
    status_is 0 "a script to train over $layout trains"
    ok "a run that is there" test -e run.dir
    ok "recomputing what was planned" test "$(grep -c -- ' --recompute full ' train.sh)" -eq "$([ $way = none ] && echo 0 || echo 2)"
    ok "sharing what was planned" test "$(grep -c -- ' --zero 1 ' train.sh)" -eq $((2 * zero))
    ok "by the optimizer of the plan" grep -q "\"optimizer\":\"$optimizer\"" run.dir/run.json
done
mem-estimate plan --mode train --gpu h100-80g --gpus 4 --gpus-per-node 2 --mesh tp=2,pp=2 --zero 0 --recompute none --schedule 1f1b \
    --global-batch 4 --seq 32 --emit slurm bard > train.sh
run env PATH="$PWD/tools:$PATH" sh train.sh --data x -o run
ok "and by srun in a job" grep -q '^srun --mpi=pmix --kill-on-bad-exit tp-run train --tp 2 --pp 2 --global-batch 4 --micro-batch [124] --seq 32 --schedule 1f1b --dp 1 --resume --data x -o run bard$' out

# a job that is queued again at its limit, on fewer nodes: srun and scontrol stand in for Slurm's
mem-estimate plan --mode train --gpu h100-80g --gpus 4 --gpus-per-node 2 --mesh tp=2,dp=2,pp=1 --zero 0 --recompute none \
    --weights f32 --global-batch 4 --micro-batch 1 --seq 32 --emit slurm bard > train.sh
ok "a job that trains asks for its signal and to be queued again" test "$(grep -c '^#SBATCH --\(requeue\|signal=B:USR1@60\)$' train.sh)" = 2
mkdir job
printf '#!/bin/sh\nwhile [ "$1" != tp-run ]; do shift; done\nexec "$@"\n' > job/srun
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$@" > requeued\n' > job/scontrol
chmod +x job/srun job/scontrol
rm -rf run.dir
in_job() {
    nodes=$1
    shift
    PATH="$PWD/job:$PATH" SLURM_JOB_NUM_NODES="$nodes" SLURM_JOB_ID=7 sh -c 'echo $$ > job.pid; exec sh train.sh "$@"' sh \
        -q --data bard/heldout.txt -o run.dir "$@"
}
in_job 2 --steps 100000 > job.out 2>&1 &
job=$!
tries=600
until grep -q '"step":2,' run.dir/log.jsonl 2> wait.out || [ $((tries -= 1)) -le 0 ]; do sleep 0.1; done
# the script's own process, below env and the subshell
kill -USR1 "$(cat job.pid)"
wait $job
ok "the limit's signal ends it after a step" test $? = 138
ok "and it is queued again" test "$(cat requeued)" = "requeue 7"
steps=$(sed -n '$s/.*"type":"train","step":\([0-9]*\),.*/\1/p' run.dir/log.jsonl)
ok "with what it has learnt" test -d "run.dir/step-$(printf %06d "$steps")"
in_job 1 --steps $((steps + 2)) > job.out 2>&1
ok "on fewer nodes it goes on" grep -q "\"type\":\"train\",\"step\":$((steps + 2)),\"finished\":true" run.dir/log.jsonl
run in_job 0 --steps 5
status_is 2 "on too few it does not"
while read -r said options; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate plan --mode train --gpu h100-80g --gpus 2 --global-batch 4 --seq 32 $options --emit slurm bard
    status_is 2 "tp-run does not train with $options"
    err_has "tp-run train cannot run the fastest layout: $(printf '%s' "$said" | tr _ ' ')" "which is told"
    ok "and nothing is written" test ! -s out
done << 'END'
it_trains_all --lora 8 --mesh tp=2 --zero 0 --recompute none
the_CPU_updates_matrices_there:_give_--offload_optimizer --optimizer muon --mesh tp=2 --zero 0 --recompute none
END
run mem-estimate plan --mode train --gpu h100-80g --gpus 2 --mesh tp=2 --recompute none --weights bf16 --seq 2048 --emit sh llama-3-8b.json
status_is 2 "a config alone is not trained"
err_has "has no weights" "which is told"
mem-estimate plan --gpu h100-80g --gpus 2 --weights bf16 --emit sh llama-3-8b.json > run.sh
ok "a model without weights is marked" grep -q '^# estimate-only: .* has no weights' run.sh
emit sh --gpus 2 --weights nf4 > run.sh
ok "and types that are not stored" grep -q '^# estimate-only: .* as nf4' run.sh
run mem-estimate plan --gpu t4 --gpus 2 --weights bf16 --emit sh llama-3.1-405b.json
status_is 1 "when nothing fits there is no script"
ok "not a byte of it" test ! -s out
err_has "nothing fits" "but that"
ok "a script that cannot be written is an error" sh -c 'mem-estimate plan --gpu h100-80g --gpus 2 --emit sh bard > /dev/full; test $? = 4'
run mem-estimate plan --gpu h100-80g --gpus 2 --emit sh --json bard
status_is 2 "a script is no JSON"

# the estimate in the comment is the plan's: the same bytes in every kind of layout
mem-estimate plan --gpu h100-80g --json --top 1 --weights bf16 --gpus 8 --global-batch 32 --seq 8192 llama-3-8b.json |
    sed -n 's/.*"memory":\([0-9]*\).*/\1/p' > want
mem-estimate plan --gpu h100-80g --emit sh --weights bf16 --gpus 8 --global-batch 32 --seq 8192 llama-3-8b.json |
    sed -n 's/^# \(mem-estimate .*\)/\1 --json/p' > told
ok "the estimate beside a plan has its bytes" sh -c 'sh told | sed "s/.*\"peak\":\([0-9]*\).*/\1/" | cmp want - && test -s want'
# key NAME - of the fastest layout
key() { sed -n '1s/.*"'"$1"'":"\{0,1\}\([a-z0-9-]*\).*/\1/p' plan.json; }
# same MODEL OPTION... - train's bytes of the fastest layout are those of the plan
same() {
    model=$1
    shift
    mem-estimate plan --mode train --gpu h100-80g --weights bf16 --json --top 1 "$@" "$model" > plan.json
    axes=$(for axis in tp sp ep dp pp; do echo "--$axis $(key $axis)"; done)
    [ "$(key sequence_parallel)" = false ] || axes="$axes --sequence-parallel"
    [ "$(key schedule)" != interleaved ] || axes="$axes --model-chunks $(key model_chunks)"
    # shellcheck disable=SC2086 # words are wanted
    mem-estimate train --weights bf16 --seq "$same_seq" $axes --zero "$(key zero)" --recompute "$(key recompute)" --flash "$same_flash" \
        --schedule "$(key schedule)" --micro-batch "$(key micro_batch)" --micro-batches "$(key micro_batches)" --json "$model" > train.json
    test -n "$(key memory)" -a "$(key memory)" = "$(sed 's/.*"peak":\([0-9]*\).*/\1/' train.json)"
}
same_flash=on
same_seq=8192
for schedule in 1f1b interleaved zb-h1 zb-h2 zb-v; do
    ok "train predicts the bytes of a plan of $schedule" same llama-3-8b.json --gpus 64 --global-batch 256 --seq 8192 \
        --schedule $schedule --mesh tp=4,pp=4,sp=2
done
same_flash=off
ok "and of one without stages" same llama-3-8b.json --gpus 16 --global-batch 64 --seq 8192 --flash off
same_flash=on
same_seq=4096
ok "and of one of experts that are dealt" same mixtral-8x7b.json --gpus 64 --global-batch 256 --seq 4096 --mesh ep=8
mem-estimate plan --gpu h100-80g --gpus 2 --global-batch 8 --mesh ep=2 --emit sh "$data/models/mixtral" > run.sh
tp-run generate --ids 3,4 --max-tokens 5 -q "$data/models/mixtral" > dealt
ok "which tp-run does" sh -c 'sh run.sh --ids 3,4 --max-tokens 5 -q > got && cmp dealt got'

# for other frameworks: what tests/oracle/check-launch.py gives to their own parsers
for name in llama-3-8b llama-3-70b; do shape $name; done
# told FORMAT MODEL OPTION... - the fastest layout to 'out', a command in one line
told() {
    told_format=$1 told_model=$2
    shift 2
    mem-estimate plan --gpu h100-80g --seq 4096 --emit "$told_format" "$@" "$told_model.json" > launch
    sed -e :a -e '/\\$/{N; s/ *\\\n */ /; ta' -e '}' launch | sed '/^#/d; /^set/d' > out
}
told megatron llama-3-70b --mode train --gpus 64 --global-batch 256 --mesh tp=4,pp=8,dp=2,sp=1,ep=1 --schedule interleaved --model-chunks 2 \
    --zero 1 --recompute full --micro-batch 1
# shellcheck disable=SC2016 # as it stands there
out_is 'exec torchrun --nproc-per-node 8 --nnodes 8 --node-rank "${NODE_RANK:?}" --master-addr "${MASTER_ADDR:?}" "${MEGATRON:-Megatron-LM}/pretrain_gpt.py" --tensor-model-parallel-size 4 --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1 --global-batch-size 256 --seq-length 4096 --sequence-parallel --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --attention-backend flash --attention-dropout 0 --hidden-dropout 0 --bf16 "$@"' "Megatron is told every degree"
told megatron llama-3-8b --mode train --gpus 6 --global-batch 12 --mesh pp=3,tp=2,sp=1 --schedule 1f1b
out_has "--pipeline-model-parallel-layout 'Ettttttttttt|ttttttttttt|ttttttttttL'" "and stages that differ"
told megatron mixtral-8x7b --mode train --gpus 64 --global-batch 256 --mesh ep=8,tp=1,sp=2,pp=1 --offload optimizer --zero 1
out_has "--context-parallel-size 2 --expert-model-parallel-size 8 --micro-batch-size" "and ranks of experts and of sequences"
out_has "--optimizer-cpu-offload --use-precision-aware-optimizer" "and what is offloaded"
told megatron mixtral-8x7b --mode train --gpus 64 --global-batch 256 --tp 2 --ep 8 --etp 1 --pp 2 --sp 1
out_has "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1" "and experts on ranks of tp"
grep -q '^# mem-estimate train --framework megatron --tp 2 --ep 8 --dp 4 --pp 2 --etp 1 ' launch
ok "which the estimate is told" test $? = 0
shape gpt2
told megatron gpt2 --mode train --gpus 1 --global-batch 8 --seq 1024 --dropout
out_has "--attention-dropout 0.1 --hidden-dropout 0.1" "and the dropout of the config, where it is counted"
told torchtitan llama-3-70b --mode train --gpus 64 --global-batch 256 --mesh tp=4,pp=4,dp=4,sp=1,ep=1 --schedule interleaved --model-chunks 4 \
    --zero 3 --recompute full --micro-batch 1
# shellcheck disable=SC2016 # as it stands there
out_is 'exec torchrun --nproc-per-node 8 --nnodes 8 --node-rank "${NODE_RANK:?}" --master-addr "${MASTER_ADDR:?}" -m torchtitan.train --module "${MODULE:-llama3}" --config "${CONFIG:?}" --parallelism.tensor-parallel-degree 4 --parallelism.data-parallel-shard-degree 4 --parallelism.data-parallel-replicate-degree 1 --parallelism.pipeline-parallel-degree 4 --parallelism.pipeline-parallel-schedule Interleaved1F1B --parallelism.pipeline-parallel-microbatch-size 1 --parallelism.pipeline-parallel-first-stage-less-layers 0 --parallelism.pipeline-parallel-last-stage-less-layers 0 --parallelism.pipeline-parallel-layers-per-stage 5 --training.disable-cuda-graphs --training.local-batch-size 64 --training.global-batch-size 256 --training.seq-len 4096 "$@" activation-checkpoint:full' "torchtitan is"
told torchtitan mixtral-8x7b --mode train --gpus 64 --global-batch 256 --mesh tp=2,ep=4,sp=2,pp=1 --zero 3 --hsdp 8
out_has "--parallelism.data-parallel-shard-degree 4 --parallelism.data-parallel-replicate-degree 4 --parallelism.context-parallel-degree 2 --parallelism.expert-parallel-degree 8" "its experts are on ranks of tp, too, its groups hold all of sp"
told deepspeed llama-3-8b --mode train --gpus 16 --global-batch 64 --mesh tp=2,sp=2 --zero 3 --offload params --micro-batch 2
out_is '{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 8,
  "tensor_parallel": { "autotp_size": 2 },
  "sequence_parallel_size": 2,
  "bf16": { "enabled": true },
  "zero_optimization": { "stage": 3,
    "offload_optimizer": { "device": "cpu", "pin_memory": true },
    "offload_param": { "device": "cpu", "pin_memory": true } }
}' "DeepSpeed is, in JSON"
told deepspeed llama-3-8b --mode train --gpus 8 --global-batch 8 --dp 8 --tp 1 --zero 3 --offload optimizer,activations
out_has '"activation_checkpointing": { "cpu_checkpointing": true },' "with what layers save on the host"
out_has '"offload_optimizer": { "device": "cpu", "pin_memory": true } }' "beside the optimizer's states"
told vllm mixtral-8x7b --gpus 16 --global-batch 32 --mesh tp=4,ep=2,pp=2 --kv-dtype fp8 --margin 8
# shellcheck disable=SC2016 # as it stands there
out_is 'exec vllm serve "${MODEL:?}" --tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 2 --enable-expert-parallel --nnodes 2 --node-rank "${NODE_RANK:?}" --master-addr "${MASTER_ADDR:?}" $([ "$NODE_RANK" = 0 ] || echo --headless) --max-model-len 4096 --max-num-seqs 16 --max-num-batched-tokens 8192 --gpu-memory-utilization 0.92 --dtype bfloat16 --kv-cache-dtype fp8 "$@"' "vLLM is, whose replicas deal experts"
grep -o -e '--[a-z][a-z-]*' out | sort -u > flags
ok "each of its flags is one of vLLM 0.19.0" test -s flags -a -z "$(grep -vxF -f "$data/vllm-flags.txt" flags)"
# groups of a node that would not hold all ranks of sp
told torchtitan llama-3-8b --mode train --gpus 32 --net 1GB --sp 16 --zero 3 --tp 1 --pp 1 --global-batch 4
out_has "data-parallel-shard-degree 2 --parallelism.data-parallel-replicate-degree 1 --parallelism.context-parallel-degree 16" "a group holds all ranks of sp"
told vllm llama-3-8b --gpus 1 --prompt-tokens 1024 --output-tokens 256 --requests 380 --seq 1280 --weights bf16
out_has "--gpu-memory-utilization 1.00" "a layout that leaves less has what it needs"
ok "and says that it is tight" grep -q '^# tight: less than 5 % of the memory is left' launch
while IFS=';' read -r said format options; do
    # shellcheck disable=SC2086 # words are wanted
    run mem-estimate plan --gpu h100-80g --gpus 16 --global-batch 64 --seq 4096 --emit $format $options
    ok "$format with $options is no script" test "$(wc -c < out)" -eq 0
    err_has "$said" "which says why"
done << 'END'
it is a framework of training: --mode train;megatron;llama-3-8b.json
--framework vllm: trains nothing;vllm;--mode train llama-3-8b.json
--emit vllm and --framework megatron: one of them;vllm;--framework megatron llama-3-8b.json
it is told nothing of --lora and --freeze;megatron;--mode train --lora 8 llama-3-8b.json
its files determine how weights are quantized;vllm;--weights int8 llama-3-8b.json
--kv-dtype fp8 is the narrow cache;vllm;--kv-dtype int8 llama-3-8b.json
nothing fits;deepspeed;--mode train --mesh sp=2,pp=2 llama-3-8b.json
nothing fits;torchtitan;--mode train --mesh ep=8 --zero 0 mixtral-8x7b.json
nothing fits;vllm;--mesh ep=2,dp=2 mixtral-8x7b.json
END

# the example: measured here, planned, run
mkdir work && cd work || exit 99
run sh "$top_srcdir/examples/machines/plan.sh" ../bard 2 --prompt 'ROMEO:' --max-tokens 12 -q
status_is 0 "examples/machines/plan.sh runs what it has planned for this machine"
ok "which gives the text of one rank" cmp out ../text
done_testing
