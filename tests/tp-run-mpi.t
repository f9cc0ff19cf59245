#!/bin/sh
# tp-run-mpi.t - under mpirun a model answers as it does with local ranks, and failures end all ranks
TMPDIR=${TMPDIR:-/tmp} # not in /dev/shm, in whose place the second machine has one of its own
. "${top_srcdir:?}/tests/lib.sh"

# srun without PMI: tasks that do not know one another
for task in 0 1; do
    run env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$task tp-run score --tp 2 "$heldout" "$bard"
    status_is 3 "srun without PMI is refused by task $task"
    [ $task -ne 0 ] || err_is "tp-run: srun has started tasks that do not know one another: add --mpi=pmix to srun, or --launcher local here" \
        "with one line of task 0"
    [ $task -eq 0 ] || err_empty "and none of task 1"
done
run env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 tp-run score --launcher local --tp 2 "$heldout" "$bard"
status_is 0 "unless the launcher is named"
run tp-run score --launcher ssh "$heldout" "$bard"
status_is 2 "an unknown launcher is refused"

if ! command -v mpirun > which 2>&1; then
    skip "ranks of mpirun answer as local ones" "no mpirun"
    done_testing
    exit
fi
case $(tp-run --version) in
*+mpi*) ;;
*)
    skip "ranks of mpirun answer as local ones" "built without MPI"
    done_testing
    exit
    ;;
esac

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
# MPI's plugins leave memory behind that a sanitizer would count as ours
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS

# mpi N COMMAND...: as `run`, on N ranks; mpirun's own remarks are kept out of err
mpi() {
    n=$1
    shift
    status=0
    mpirun --oversubscribe -n "$n" "$@" > out 2> err.all < /dev/null || status=$?
    grep '^tp-run: ' err.all > err || :
}

if ! mpirun --oversubscribe -n 2 true > mpirun.out 2>&1; then
    skip "ranks of mpirun answer as local ones" "mpirun does not run here: $(head -n 1 mpirun.out)"
    done_testing
    exit
fi
# the launcher's own work is done once for each kind of exchange, with LONG on more layouts
few=few
[ -z "${LONG-}" ] || few=
head -n 40 "$heldout" > text
for n in 3 1 2 5; do
    [ -z "$few" ] || [ $n -eq 3 ] || break
    mpi $n "$top_builddir/tests/mpi-ranks"
    status_is 0 "$n ranks of mpirun exchange all that ranks can, several collectives under way"
done
for mesh in "--tp 2 --pp 2" "--sp 3" "--tp 2" "--tp 3" "--sp 2 --sp-mode ring" "--dp 2 --pp 2"; do
    [ -z "$few" ] || [ "$mesh" != "--tp 2" ] || break
    n=$(echo "$mesh" | tr ' ' '\n' | awk 'BEGIN { n = 1 } /^[0-9]/ { n *= $1 } END { print n }')
    tp-run logits --prompt 'ROMEO: what' $mesh -o local.safetensors "$bard"
    mpi "$n" tp-run logits --prompt 'ROMEO: what' $mesh -o mpi.safetensors "$bard"
    status_is 0 "$n ranks of mpirun run $mesh"
    ok "with the same logits, to the bit" cmp local.safetensors mpi.safetensors
    tp-run score $mesh --json text "$bard" > local.out
    mpi "$n" tp-run score $mesh --json text "$bard"
    ok "and the same score" cmp local.out out
    tp-run generate $mesh --prompt ROMEO: --prompt Ay --max-tokens 8 "$bard" > local.out
    mpi "$n" tp-run generate $mesh --prompt ROMEO: --prompt Ay --max-tokens 8 "$bard"
    ok "and the same words, said once" cmp local.out out
done
printf 'ROMEO:' | mpirun --oversubscribe -n 2 tp-run generate --tp 2 --max-tokens 8 "$bard" > out
tp-run generate --tp 2 --max-tokens 8 --prompt ROMEO: "$bard" > local.out
ok "standard input reaches all ranks" cmp local.out out

# large sums and messages
tp-run score --window 512 --json --tp 2 --pp 2 "$heldout" "$heldout" "$heldout" "$bard" > local.out
mpi 4 tp-run score --window 512 --json --tp 2 --pp 2 "$heldout" "$heldout" "$heldout" "$bard"
ok "whole steps go from stage to stage" cmp local.out out

# refusals: one line, of rank 0
mpi 3 tp-run score --tp 2 "$heldout" "$bard"
status_is 3 "as many ranks as the layout has are needed"
err_is "tp-run: 3 ranks have been started for a layout of 2" "and one line says so"
mpi 2 tp-run score --tp 7 "$heldout" "$bard"
status_is 1 "a layout that does not fit the model is refused"
err_is "tp-run: tp 7: the model has 6 heads; valid tp: 1 to 6; or use --pp" "by one line"
mpi 2 tp-run score --tp 2 nowhere "$bard"
status_is 4 "a file that is missing at the front is told"
err_lines 1 "by one line"
tp-shard split -q --tp 2 "$bard" a
tp-shard split -q --tp 2 --dtype f32 "$bard" b
# the third operand is the rank's own
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' 'case $OMPI_COMM_WORLD_RANK in 0) exec tp-run "$@" a ;; esac' \
    'exec tp-run "$@" "$OTHER"' > each
chmod +x each
mpirun --oversubscribe -n 2 -x OTHER=b ./each generate --prompt x > out 2> err.all
status=$?
grep '^tp-run: ' err.all > err
status_is 3 "ranks with different checkpoints are refused"
err_is "tp-run: rank 1 has another checkpoint than rank 0" "by one line"
cp -r "$bard" other
{ head -c 3000000 "$bard/model.safetensors"; head -c 2000000 /dev/zero; tail -c +5000001 "$bard/model.safetensors"; } > other/model.safetensors
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' "case \$OMPI_COMM_WORLD_RANK in 0) exec tp-run \"\$@\" '$bard' ;; esac" 'exec tp-run "$@" other' > each
mpi 2 ./each generate --tp 2 --prompt x
status_is 3 "and so are models that differ in some weights"
err_is "tp-run: rank 1 has another checkpoint than rank 0" "by one line"
for task in 0 1; do
    run env PMI_RANK=$task PMI_SIZE=2 SLURM_PROCID=$task tp-run generate --tp 2 --prompt x "$bard"
    status_is 3 "a launcher that this MPI cannot join is refused by task $task"
    if [ $task -eq 0 ]; then
        err_has "tp-run: 2 tasks have been started, and MPI knows 1" "with one line of task 0"
    else
        ok "and none of task 1" sh -c "! grep -q ^tp-run: err"
    fi
done
mkdir only0 only1
cp a/* only0
cp a/* only1
rm only0/rank-tp1* only1/rank-tp0*
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' 'exec tp-run "$@" "only$OMPI_COMM_WORLD_RANK"' > each
mpi 2 ./each logits --prompt ROMEO: -o mpi.safetensors
status_is 0 "a rank needs its own rank file only"
tp-run logits --prompt ROMEO: -o local.safetensors a
ok "and answers the same" cmp local.safetensors mpi.safetensors
head -c 1000 a/rank-tp1-pp0.safetensors > only1/rank-tp1-pp0.safetensors
mpi 2 ./each logits --prompt ROMEO: -o mpi.safetensors
status_is 3 "a damaged file on another rank ends the run"
err_lines 1 "by one line"
err_has "only1/rank-tp1-pp0.safetensors" "that names it"

# a killed rank
for i in 1 2 3 4 5 6 7 8; do head -n 60 "$heldout"; done > lines
mpirun --oversubscribe -n 2 tp-run generate --tp 2 --temperature 1 --max-tokens 400 --input lines "$bard" > out 2> err.all &
pid=$!
tries=0
while [ ! -s out ] && [ $tries -lt 1000 ]; do
    sleep 0.01
    tries=$((tries + 1))
done
victim=$(cat /proc/"$pid"/task/"$pid"/children 2> children.err | tr ' ' '\n' | tail -n 2 | head -n 1)
kill -KILL "$victim" 2> kill.err
start=$(date +%s)
status=0
wait "$pid" || status=$?
ok "when a rank is killed the run fails" test "$status" -ne 0
ok "within a minute" test $(($(date +%s) - start)) -le 60

# two machines: network namespaces with addresses of their own, files of their own, no memory in common
host_pair() {
    ip netns add "$1-a" && ip netns add "$1-b" &&
        ip link add "$1a" netns "$1-a" type veth peer name "$1b" netns "$1-b" &&
        ip -n "$1-a" addr add 10.213.7.1/24 dev "$1a" && ip -n "$1-b" addr add 10.213.7.2/24 dev "$1b" &&
        ip -n "$1-a" link set lo up && ip -n "$1-b" link set lo up &&
        ip -n "$1-a" link set "$1a" up && ip -n "$1-b" link set "$1b" up
}
ns=su$$
trap 'ip netns del $ns-a 2> ns.err; ip netns del $ns-b 2> ns.err; chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
if [ "$(id -u)" -eq 0 ] && command -v ip > which 2>&1 && host_pair $ns > ns.out 2>&1 &&
    unshare --mount --ipc true > ns.out 2>&1; then
    mkdir shelf side-a side-b
    tp-shard split -q --tp 2 --pp 2 "$bard" a4
    cp a4/* side-a
    cp a4/* side-b
    rm side-a/rank-*-pp1* side-b/rank-*-pp0*
    # the remote shell: HOST COMMAND...; there `shelf` is the other side's directory
    # shellcheck disable=SC2016 # for the inner shell
    printf '%s\n' '#!/bin/sh' 'shift' \
        "exec ip netns exec $ns-b unshare --mount --ipc sh -c \"mount --bind '$scratch/side-b' '$scratch/shelf'; mount -t tmpfs none /dev/shm; \$*\"" > agent
    chmod +x agent
    status=0
    timeout 60 ip netns exec $ns-a unshare --mount --ipc sh -c "mount --bind side-a shelf && cd '$scratch' &&
        mpirun --host 10.213.7.1:2,10.213.7.2:2 -n 4 --oversubscribe --mca plm_rsh_agent '$scratch/agent' \
        --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 \
        -x PATH tp-run score --json '$heldout' shelf" > out 2> err || status=$?
    status_is 0 "ranks on two hosts with their own addresses and files run together"
    tp-run score --json "$heldout" a4 > local.out
    ok "and score as local ones do" cmp local.out out
    # a plan for two nodes, as mem-estimate writes it
    mem-estimate plan --gpu h100-80g --gpus 4 --gpus-per-node 2 --seq 64 --mesh tp=2,pp=2 --emit sh "$bard" > plan.sh
    printf '10.213.7.%d slots=2\n' 1 2 > hosts
    status=0
    timeout 60 ip netns exec $ns-a unshare --mount --ipc env HOSTFILE=hosts OMPI_MCA_plm_rsh_agent="$scratch/agent" OMPI_MCA_btl=tcp,self \
        OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=10.213.7.0/24 OMPI_MCA_oob_tcp_if_include=10.213.7.0/24 \
        OMPI_MCA_mca_base_env_list=PATH sh plan.sh -q --prompt 'ROMEO:' --max-tokens 12 > out 2> err < /dev/null || status=$?
    status_is 0 "a plan for two nodes runs on two hosts"
    tp-run generate -q --prompt 'ROMEO:' --max-tokens 12 "$bard" > local.out
    ok "and says what one rank says" cmp local.out out
    rm -rf bard.tp2pp2
else
    skip "ranks on two hosts with their own addresses and files run together" "needs root and network namespaces"
    skip "a plan for two nodes runs on two hosts" "needs root and network namespaces"
fi
# training
small=$data/models/llama-groups
awk 'BEGIN { for (i = 0; i < 20; i++) printf "{\"ids\":[%d,4,5,6,%d,8,9,%d]}\n", 3 + i, 40 + i, 90 - i }' > ids.jsonl
run sh "$top_srcdir/examples/machines/train.sh" "$small" ids.jsonl far 4 --tp 2 --dp 2 --seq 16 --steps 3 --threads 1
status_is 0 "examples/machines/train.sh trains"
tp-run train -q --tp 2 --dp 2 --data ids.jsonl --seq 16 --steps 3 --threads 1 -o near "$small"
ok "ranks of mpirun and local ones train to the same bits" \
    cmp far/step-000003/rank-tp1-pp0.safetensors near/step-000003/rank-tp1-pp0.safetensors

# ranks with directories of their own: rank 0 gets all parts
mkdir side0 side1 side2 side3
# shellcheck disable=SC2016 # for the inner shell
printf '%s\n' '#!/bin/sh' 'cd "side$OMPI_COMM_WORLD_RANK" && exec tp-run "$@"' > each
chmod +x each
set -- train -q --tp 2 --pp 2 --data "$PWD/ids.jsonl" --seq 16 --steps 6 --lr-schedule constant --lr 1e-3 --save-every 3 \
    --threads 1 -o run "$(cd "$small" && pwd)"
mpi 4 ./each "$@"
status_is 0 "ranks that share no directory train"
tp-run "$@"
same_parts() {
    for part in run/step-000006/rank-*; do
        cmp "$part" "side0/$part" || return 1
    done
}
ok "their checkpoint is whole where rank 0 is, to the bit" same_parts
ok "and verifies" tp-shard verify side0/run/step-000006
ok "nothing is elsewhere" sh -c '[ -z "$(ls side1 side2 side3 | grep run)" ]'
rm -rf side0/run/step-000006
for side in side1 side2 side3; do
    mkdir $side/run
    cp -r side0/run/run.json side0/run/step-000003 $side/run
done
mpi 4 ./each train -q --resume --threads 1 -o run
status_is 0 "they go on from a copy"
ok "to the same bits" same_parts
rm -rf side1/run side2/run side3/run
if mount -t tmpfs -o size=300k tmpfs side0 2> mount.err; then
    mpi 4 ./each "$@"
    umount side0
    status_is 4 "where rank 0 has no room for them the run ends with 4"
    ok "and says so, the same from every rank that is still there" test "$(sort -u err | grep -c 'No space left on device')" = 1
else
    skip "where rank 0 has no room for them the run ends with 4" "cannot mount"
fi

mpirun --oversubscribe -n 2 tp-run train -q --tp 2 --data ids.jsonl --seq 16 --steps 100000 --threads 1 \
    -o told "$small" > out 2> err < /dev/null &
pid=$!
tries=0
while ! grep -qs '"step":3,' told/log.jsonl && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
kill -USR1 $pid
status=0
wait $pid || status=$?
status_is 138 "SIGUSR1 ends them all after a step"
ok "with a whole checkpoint" sh -c "tp-shard verify told/step-*"

# examples/machines
ln -s "$(cd "$bard" && pwd)" bard
run sh "$top_srcdir/examples/machines/mpirun.sh" a "$heldout" 2
status_is 0 "examples/machines/mpirun.sh runs a checkpoint's ranks"
tp-run score "$heldout" a > local.out
ok "and scores as local ranks do" cmp local.out out
run env MAKEFLAGS= make -s -f "$top_srcdir/examples/machines/text.mk" text
status_is 0 "examples/machines/text.mk goes from a model to text"
ok "in ranks and stages" cmp text - <<END

I'll give thee leave to be a bride
END
if command -v srun > which 2>&1 && timeout 5 scontrol ping > which 2>&1; then
    run sbatch --wait "$top_srcdir/examples/machines/job.sbatch" a4 "$heldout"
    status_is 0 "examples/machines/job.sbatch is run by Slurm"
else
    skip "examples/machines/job.sbatch is run by Slurm" "no Slurm"
fi
done_testing
