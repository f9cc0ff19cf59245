#!/bin/sh
# outputs.t - what others have planted under an output's name is not followed
. "${top_srcdir:?}/tests/lib.sh"

model=$bard
printf 'x: choice([1, 2])\n' > s.yaml
head -n 20 "$heldout" > text
cat > train << 'EOS'
#!/bin/sh
exec tp-run train -q --steps 1 --seq 16 --global-batch 1 --data text "$@" "$top_srcdir/examples/bard"
EOS
chmod +x train
echo untouched > victim
kept() { test "$(cat victim)" = untouched; }

# ---- what a user may wish ----
mkdir elsewhere
ln -s elsewhere/list mine
run tp-shard sum -o mine "$model"
status_is 0 "a link of one's own is followed to a file that is not there yet"
ok "which is made" grep -q '^[0-9a-f]' elsewhere/list
ok "and the link stays" test "$(readlink mine)" = elsewhere/list
tp-shard sum -o mine "$model"
ok "nothing else is left there" test "$(ls -A elsewhere)" = list
ln -s "$scratch/elsewhere" way
run tp-shard sum -o way/../way/list2 "$model"
status_is 0 "links on the way are followed"
ok "as the system does" cmp elsewhere/list elsewhere/list2
chmod 600 elsewhere/list
(umask 022 && tp-shard sum -o mine "$model" && tp-shard sum -o new "$model")
ok "a file that is replaced keeps its permissions, a new one has those of the umask" \
    test "$(stat -c %a elsewhere/list new | tr '\n' ' ')" = "600 644 "
for name in - /dev/stdout /dev/fd/1 /proc/self/fd/1; do
    tp-shard sum -o $name "$model" | cat > got
    ok "-o $name is standard output" cmp got new
done
{
    echo first
    tp-shard sum -o /dev/stdout "$model"
    echo last
} > got
ok "which is a file that is gone on with" test "$(sed -n '1p;$p' got | tr '\n' ' ')" = "first last "
run tp-shard sum -o /dev/null "$model"
status_is 0 "-o /dev/null is taken"
ok "and stays a device" test -c /dev/null
mkfifo pipe
timeout -k 5 20 cat pipe > got &
run timeout -k 5 20 tp-shard sum -o pipe "$model"
wait
ok "a pipe is written to" cmp got new
ok "and stays one" test -p pipe
for name in nowhere/x text/x elsewhere new/ ''; do
    run tp-shard sum -o "$name" "$model"
    status_is 4 "-o '$name' is an error of the machine"
    err_lines 1 "in one line"
done
mkdir loop
ln -s loop/a loop/b
ln -s b loop/a
ln -sf a loop/b
run tp-shard sum -o loop/a "$model"
err_is "tp-shard: loop/a: Too many levels of symbolic links" "links in a circle have an end"
run ./train --save-every 0 --log -
ok "--log - is standard output" grep -q '"type":"step"' out

# ---- what another has planted ----
if [ "$(id -u)" -ne 0 ] || ! chown 65534 pipe 2> /dev/null; then
    skip "what another user has planted is not followed" "not root"
    done_testing
    exit
fi

# plant NAME [MODE] - makes d/NAME a link to the victim; the link and its directory are another user's
plant() {
    rm -rf d
    mkdir -p "$(dirname "d/$1")"
    ln -s "$scratch/victim" "d/$1"
    chown -hR 65534 d
    echo untouched > victim
}

# refuses STATUS TEXT - the last run has said TEXT of d/$file, ended with STATUS and kept the victim
refuses() {
    ok "$what: the file is kept" kept
    status_is "$1" "$what: status $1"
    ok "$what: one line says why" sh -c 'test "$(wc -l < err)" = 1 && grep -qF -e "$1" err' - "d/$file$2"
}

# every file that a program writes, and the command
while read -r file command; do
    what="$file of $(printf '%s' "$command" | cut -d ' ' -f 1,2)"
    plant "$file"
    eval "run timeout -k 5 60 $command"
    sed 's/: is another/ is another/' err > err.1 && mv err.1 err
    refuses 3 " is another user's link; give what it leads to"
done << 'EOS'
sums tp-shard sum -o d/sums "$model"
out.safetensors tp-run logits --ids 1,2 -o d/out.safetensors "$model"
trace tp-run logits --ids 1,2 -o out.safetensors --trace d/trace "$model"
out.npy tp-run logits --ids 1,2 -o d/out.npy "$model"
out.safetensors tp-run embed --ids 1,2 -o d/out.safetensors "$model"
bench.json tp-run bench -q --tokens 4 --repeat 1 -o d/bench.json "$model"
tokens.bin tp-run tokens -q --tokenizer "$model" -o d/tokens text
tokens.idx tp-run tokens -q --tokenizer "$model" -o d/tokens text
log ./train --save-every 0 --log d/log
log.jsonl ./train -o d
report env HPO_REPORT=d/report ./train --save-every 0 --eval-fraction 0.1
result env HPO_RESULT=d/result ./train --save-every 0
device.json mem-estimate calibrate -o d/device.json "$data/calibration/llama.json"
EOS
if hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    hpo-sweep run s.yaml --trials 1 -- echo 1
    hpo-sweep export -S s.db exported
    while read -r file command; do
        what="$file of $(printf '%s' "$command" | cut -d ' ' -f 1,2)"
        plant "$file"
        eval "run timeout -k 5 60 $command"
        sed 's/: is another/ is another/' err > err.1 && mv err.1 err
        refuses 3 " is another user's link; give what it leads to"
    done << 'EOS'
job.sh hpo-sweep slurm s.yaml --trials 2 -o d/job.sh -- echo '{x}'
export hpo-sweep export -S s.db d/export
joblog hpo-sweep run s.yaml --study log --trials 1 --joblog d/joblog -- echo '{x}'
s.db hpo-sweep ask s.yaml -S d/s.db
s.db-wal hpo-sweep ask s.yaml -S d/s.db
s.db-shm hpo-sweep ask s.yaml -S d/s.db
s.db-journal hpo-sweep ask s.yaml -S d/s.db
s.db.lck hpo-sweep run s.yaml -S d/s.db --trials 1 -- echo '{x}'
s.log hpo-sweep ask s.yaml -S journal:d/s.log
s.log.lck hpo-sweep run s.yaml -S journal:d/s.log --trials 1 -- echo '{x}'
t.trials env -C d hpo-sweep run ../s.yaml --study t -S ../t.db --trials 1 -- echo '{x}'
u.trials/000000 env -C d hpo-sweep run ../s.yaml --study u -S ../t.db --trials 1 -- echo '{x}'
v.trials/000000/params.json env -C d hpo-sweep run ../s.yaml --study v -S ../t.db --trials 1 -- echo '{x}'
w.trials/000000/stdout env -C d hpo-sweep run ../s.yaml --study w -S ../t.db --trials 1 -- echo '{x}'
x.trials/000000/stderr env -C d hpo-sweep run ../s.yaml --study x -S ../t.db --trials 1 -- echo '{x}'
EOS
    mkdir gone
    run sh -c 'cd gone && rmdir ../gone && exec hpo-sweep ask "$1/s.yaml" -S s.db' - "$scratch"
    status_is 4 "a database has no place in a directory that was removed"
    err_is "hpo-sweep: s.db: No such file or directory" "which is told"
else
    skip "nor what hpo-sweep writes" "built without SQLite or YAML"
fi
if tp-shard --version | grep -q '+cairo' && tp-shard plan --tp 2 --plot who.svg "$model" > out 2> err; then
    ./train -o run
    while read -r file command; do
        what="$file of $(printf '%s' "$command" | cut -d ' ' -f 1,2)"
        plant "$file"
        eval "run timeout -k 5 60 $command"
        sed 's/: is another/ is another/' err > err.1 && mv err.1 err
        refuses 3 " is another user's link; give what it leads to"
    done << 'EOS'
a.svg tp-shard plan --tp 2 --plot d/a.svg "$model"
b.svg mem-estimate infer --tp 2 --plot d/b.svg "$model"
c.svg pp-partition schedule --pp 2 --micro-batches 2 --plot d/c.svg
d.svg tp-run plot -o d/d.svg run
e.svg hpo-sweep plot -S s.db history -o d/e.svg
EOS
else
    skip "nor pictures" "cairo cannot be loaded"
fi

# other things than links of files, and other directories
what="a link on the way"
file=sub
plant sub
ln -sfn "$scratch/elsewhere" d/sub
chown -h 65534 d/sub
run tp-shard sum -o d/sub/new "$model"
refuses 3 ""
ok "and nothing is made where it leads" test ! -e elsewhere/new
run ./train -o d/sub/run
ok "nor is a run" test ! -e elsewhere/run
run tp-shard split -q --tp 2 "$model" d/sub/cut
refuses 3 ""
ok "nor a checkpoint" test ! -e elsewhere/cut
for mode in 1777 777; do
    what="a link in a directory of mode $mode"
    file=log
    plant log
    chown 0 d
    chmod $mode d
    run tp-shard sum -o d/log "$model"
    refuses 3 ": is another user's link; give what it leads to"
done
what="a link in a directory that no other may write"
chmod 755 d
run tp-shard sum -o d/log "$model"
status_is 0 "$what is followed, whoever made it"
ok "to the file" cmp victim new
what="a link of one's own in another's directory"
plant other
ln -s "$scratch/victim" d/log
run tp-shard sum -o d/log "$model"
status_is 0 "$what is followed"
ok "to the file" cmp victim new
plant run.json
run ./train -f -o d
status_is 0 "train -f removes a link in the place of run.json"
ok "not what it leads to" kept
what="a name of a file that has others"
file=log
plant other
ln victim d/log
run ./train --save-every 0 --log d/log
refuses 3 ": is a link to a file that has other names; remove it"
run tp-shard sum -o d/log "$model"
status_is 0 "a whole file takes the place of such a name"
ok "and the other name keeps its file" kept
what="another's pipe"
plant other
mkfifo d/log
chown 65534 d/log
for command in './train --save-every 0 --log d/log' 'tp-shard sum -o d/log "$model"'; do
    eval "run timeout -k 5 20 $command"
    refuses 3 ": is another user's, and no regular file; remove it"
done
what="another's file in a sticky directory"
plant other
chown 0 d
chmod 1777 d
echo forged > d/log
chown 65534 d/log
run ./train --save-every 0 --log d/log
refuses 3 ": belongs to another user; remove it"
chmod 777 d
run ./train --save-every 0 --log d/log
status_is 0 "a file that members of a group share is gone on with"
ok "whoever made it" grep -q '"type":"step"' d/log
done_testing
