#!/bin/sh
# power-cut.t - what a program has told or claims is on the disk, with the names that lead to it
. "${top_srcdir:?}/tests/lib.sh"

shim=$top_builddir/tests/record-io.so
if ! LD_PRELOAD=$shim tp-run --version > version.out 2> version.err || [ -s version.err ]; then
    skip "what is told is on the disk" "nothing can be preloaded"
    done_testing
    exit
fi

# recorded COMMAND... - runs it; file record has its calls and its output in order, without the scratch directory
recorded() {
    : > record.raw
    status=0
    LD_PRELOAD=$shim RECORD_IO=$PWD/record.raw "$@" >> record.raw 2> err < /dev/null || status=$?
    sed "s| $scratch/| |; s| $scratch\$| .|" record.raw > record
}

# before A B - a line A of the record comes before the first line B, and after the last line like C if given
before() {
    awk -v a="$1" -v b="$2" -v c="${3-}" 'c != "" && $0 == c { seen = 0 } $0 == a { seen = 1 }
        index($0, b) == 1 { exit } END { exit !seen }' record
}

printf 'x: uniform(0, 1)\n' > s.yaml
mkdir study
recorded hpo-sweep ask s.yaml -S journal:study/s.log
status_is 0 "a trial is drawn from a new journal"
ok "its lines are synced before the trial is told" before "sync study/s.log" "trial	0"
ok "and so is the directory that has the journal" before "sync study" "trial	0" "make study/s.log"
recorded hpo-sweep tell -S journal:study/s.log 0 1
ok "and both once more by whoever writes there next" before "sync study" "nothing"
if hpo-sweep --version | grep -q '+sqlite3'; then
    recorded hpo-sweep ask s.yaml -S study/s.db
    status_is 0 "a trial is drawn from a new SQLite study"
    ok "what is appended is synced before the trial is told" before "sync study/s.db-wal" "trial	0"
    ok "and so is the directory" before "sync study" "trial	0"
    # who closes the database last syncs it in any case
    hpo-sweep run s.yaml -S study/s.db --trials 9 -- sh -c ': > up; exec sleep 60' > run.out 2>&1 &
    pid=$!
    while ! [ -f up ] && kill -0 $pid; do sleep 0.05; done
    recorded hpo-sweep ask s.yaml -S study/s.db
    ok "also while another run has it open" before "sync study/s.db-wal" "trial	2"
    recorded hpo-sweep tell -S study/s.db 2 1
    ok "and so is what tell appends" before "sync study/s.db-wal" "nothing"
    kill -KILL $pid
    wait $pid 2> wait.err
else
    skip "a trial of an SQLite study is synced" "built without SQLite"
fi

head -n 20 "$heldout" > text
cat > train << 'EOS'
#!/bin/sh
exec tp-run train -q --seq 16 --global-batch 1 --data text "$@" "$top_srcdir/examples/bard"
EOS
chmod +x train
recorded ./train --steps 2 --save-every 1 -o deep/er/run
status_is 0 "a run in new directories"
ok "syncs the directory above each of them" before "sync ." "make run.json"
ok "to the last" before "sync deep" "make run.json"
ok "and that of the run" before "sync deep/er" "make run.json"
for step in 1 2; do
    ok "the log is synced before checkpoint $step appears" \
        before "sync deep/er/run/log.jsonl" "name deep/er/run/step-00000$step"
    ok "and so is its shard" \
        before "sync deep/er/run/step-00000$step.partial/rank-tp0-pp0.safetensors" "name deep/er/run/step-00000$step"
    sed "1,/^name deep.er.run.step-00000$step\$/d" record > rest && mv rest record
done

# A rank in another directory sends its shard to the first, also where a checkpoint of the same name was begun there.
mkdir -p here there/run/step-000001.partial
head -c 16 /dev/zero > there/run/step-000001.partial/sign
for at in there here; do
    cp text $at
    (
        cd $at || exit
        [ $at = there ] || export LD_PRELOAD="$shim" RECORD_IO="$scratch/record.raw"
        RANK=$([ $at = here ]; echo $?) WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) \
            exec timeout 120 ../train --launcher env --tp 2 --steps 1 -o run > out 2> err < /dev/null
    ) &
done
: > record.raw
wait
sed "s| $scratch/| |" record.raw > record
ok "a shard that another rank sends is synced before the checkpoint appears" \
    before "sync here/run/step-000001.partial/rank-tp1-pp0.safetensors" "name run/step-000001"
run tp-shard verify here/run/step-000001
status_is 0 "which is whole"

# a checkpoint that fails in the background, while another rank is slow
status=0
FAIL_WRITE=rank-tp1 SLOW_WRITE=rank-tp0 LD_PRELOAD=$shim ./train --tp 2 --steps 60 --save-every 30 -o failed \
    > out 2> err || status=$?
status_is 4 "a checkpoint that cannot be written ends the run"
err_has "failed/step-000030.partial/rank-tp1-pp0.safetensors: Input/output error" "with its path"
err_lines 1 "in one line"
ok "before the next is due" test "$(grep -c '"type":"step"' failed/log.jsonl)" -lt 60
done_testing
