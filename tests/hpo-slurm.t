#!/bin/sh
# hpo-slurm.t - the array script under a Slurm of this machine: tasks share trials, and what a limit
# interrupts is tried again
. "${top_srcdir:?}/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "tasks of an array share a sweep" "built without SQLite or YAML"
    done_testing
    exit
fi
if [ "$(id -u)" != 0 ] || ! command -v slurmctld slurmd sbatch srun > which.out 2>&1; then
    skip "tasks of an array share a sweep" "no slurmctld, or not root"
    done_testing
    exit
fi

# A controller and a node of our own, without MUNGE; ports that others do not use.
port=$((20000 + $$ % 20000))
mkdir state spool
cat > slurm.conf << EOF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$PWD/state
SlurmdSpoolDir=$PWD/spool
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmdPidFile=$PWD/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
InactiveLimit=0
MpiDefault=none
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
export SLURM_CONF="$PWD/slurm.conf"
slurmctld -D > slurmctld.out 2>&1 < /dev/null &
controller=$!
slurmd -D > slurmd.out 2>&1 < /dev/null &
node=$!
# a node whose step does not end waits for it, and for ever
end_slurm() {
    kill "$node" "$controller" 2> kill.out
    patience=600
    while kill -0 "$node" 2> kill.out && [ $patience -gt 0 ]; do
        patience=$((patience - 1))
        sleep 0.1
    done
    kill -9 "$node" 2> kill.out
    wait "$node" "$controller" 2> kill.out
    chmod -R u+w "$scratch"
    rm -rf "$scratch"
}
trap end_slurm EXIT

# until_true SECONDS COMMAND... - wait for it
until_true() {
    tries=$1
    shift
    until "$@" > until.out 2>&1 || [ $((tries -= 1)) -le 0 ]; do sleep 1; done
}
# shellcheck disable=SC2317 # called by until_true
is_up() { sinfo -h -o %T | grep -qx idle; }
# shellcheck disable=SC2317
is_over() { ! squeue -h | grep -q .; }
until_true 20 is_up
if ! is_up; then
    skip "tasks of an array share a sweep" "Slurm does not start here: $(tail -n 1 slurmctld.out)"
    done_testing
    exit
fi

printf 'x: uniform(0, 1)\n' > s.yaml
hpo-sweep slurm s.yaml --sampler random --trials 12 --tasks 3 -o array.sh -- \
    sh -c 'sleep 0.5; echo "$SLURM_ARRAY_TASK_ID" > "$HPO_TRIAL_DIR/task"; echo 1'
run sbatch -Q --time=10 array.sh
status_is 0 "sbatch takes the script"
until_true 60 is_over
ok "the tasks of an array make the trials" \
    test "$(trials s.yaml | awk '{ print $2 }' | sort | uniq -c | tr -s ' \n' ' ')" = " 12 COMPLETE "
ok "together" test "$(cat s.trials/*/task | sort -u | wc -l)" -gt 1

# A limit of a minute, and the script's signal a minute before it: the trial is cut short at once or nearly.
printf 'x: choice([1, 2])\n' > limit.yaml
hpo-sweep slurm limit.yaml --sampler grid --tasks 1 -o limit.sh -- \
    sh -c '[ -f fast ] || { [ "$1" = 1 ] || sleep 300 || exit; }; echo "$1"' sh '{x}'
run sbatch -Q --time=1 limit.sh
until_true 150 is_over
hpo-sweep show limit.yaml > list
ok "a trial that a task's limit interrupts waits to be tried again" \
    test "$(awk 'NR > 1 { print $2 }' list | tr '\n' ' ')" = "COMPLETE FAIL WAITING "
ok "and says so" grep -q 'interrupted: the run got SIGTERM' list
: > fast
run sbatch -Q --time=10 limit.sh
until_true 60 is_over
hpo-sweep show limit.yaml > list
ok "the next array tries it" test "$(awk 'NR > 1 { print $2, $4 }' list | tr '\n' ' ')" = \
    "COMPLETE 1 FAIL 2 COMPLETE 2 "

# scancel without a signal sends SIGTERM to the steps and SIGKILL after KillWait.
rm -f fast
hpo-sweep slurm limit.yaml --study cancel --sampler grid --tasks 1 -o cancel.sh -- \
    sh -c '[ -f fast ] || sleep 300 || exit; echo "$1"' sh '{x}'
run sbatch -Q --time=10 cancel.sh
until_true 30 test -f cancel.trials/000000/stdout
scancel "$(squeue -h -o %A | head -n 1)"
until_true 60 is_over
: > fast
run sbatch -Q --time=10 cancel.sh
until_true 60 is_over
hpo-sweep show limit.yaml --study cancel > list
ok "so is what scancel ends" test "$(awk 'NR > 1 { print $2, $4 }' list | tr '\n' ' ')" = \
    "FAIL 1 COMPLETE 1 COMPLETE 2 "

# A task that reaches its limit is queued again by itself.  (Slurm lets it wait for two minutes.)
hpo-sweep slurm limit.yaml --study again --sampler grid --tasks 1 --requeue -o again.sh -- \
    sh -c '[ "$1" = 1 ] || [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 300 || exit; echo "$1"' sh '{x}'
run sbatch -Q --time=1 again.sh
until_true 330 is_over
hpo-sweep show limit.yaml --study again > list
ok "with --requeue a task begins again after its limit" test "$(awk 'NR > 1 { print $2, $4 }' list | tr '\n' ' ')" = \
    "COMPLETE 1 FAIL 2 COMPLETE 2 "
# ranks that srun starts: Debian's plugin loads libpmix.so, which libpmix-dev has
if ! tp-run --version | grep -q +mpi; then
    skip "ranks of srun generate as local ones" "built without MPI"
elif ! timeout 30 srun -n 2 --mpi=pmix true > srun.out 2>&1; then
    skip "ranks of srun generate as local ones" "srun has no PMIx here: $(tail -n 1 srun.out)"
else
    tp-run generate -q --ids 1,2,3 --max-tokens 8 "$bard" > want
    # MPI keeps some of its memory
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    export ASAN_OPTIONS
    run timeout 60 srun -n 2 --mpi=pmix tp-run generate -q --tp 2 --ids 1,2,3 --max-tokens 8 "$bard"
    status_is 0 "ranks that srun has started generate"
    ok "as local ones" cmp want out
fi
done_testing
