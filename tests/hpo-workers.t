#!/bin/sh
# hpo-workers.t - many workers share one study without a lost, doubled or failed trial
. "${top_srcdir:?}/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "workers share a study" "built without SQLite or YAML"
    done_testing
    exit
fi
printf 'x: uniform(0, 1)\n' > s.yaml

# together N COMMAND...: N of them at once; what they say goes to errors, and a failure as well
together() {
    workers=$1
    shift
    : > errors
    while [ "$workers" -gt 0 ]; do
        ("$@" "$workers" 2>> errors || echo "status $?" >> errors) &
        workers=$((workers - 1))
    done
    wait
    # who waits for more than a second says so: how long it takes here is no error
    sed -i "/: waiting for another's lock\$/d" errors
}

# number URL TRIAL-STATE: how many different numbers trials of that state have
number() {
    trials -S "$1" | awk -v state="$2" '$2 == state { print $1 }' | sort -un | wc -l
}

# shellcheck disable=SC2317 # called by together
begin() { hpo-sweep ask s.yaml --storage "$url" --sampler random > "asked.$1"; }

# shellcheck disable=SC2317
work() {
    hpo-sweep run -q s.yaml --storage "$url" --share --sampler random --trials "$trials" \
        --joblog "log.$1" -- echo "{x}"
}

# shellcheck disable=SC2317
by_hand() {
    for k in 1 2 3 4 5; do
        t=$(hpo-sweep ask s.yaml --storage "$url" | sed -n 's/^trial[[:space:]]*//p')
        hpo-sweep tell -S "$url" "$t" "$1$k" || return
    done
}

for kind in sqlite journal; do
    : > begun.errors
    for round in 1 2 3 4 5; do
        [ $kind = sqlite ] && url=begun$round.db || url=journal:begun$round.jsonl
        together 16 begin
        cat errors >> begun.errors
        number "$url" RUNNING
    done > counts
    ok "16 workers begin one study at once ($kind)" test "$(uniq -c < counts | tr -s ' ')" = " 5 16"
    ok "and none of them says a word" test ! -s begun.errors

    [ $kind = sqlite ] && url=many.db || url=journal:many.jsonl
    rm -f log.*
    trials=800
    together 16 work
    ok "16 workers make 800 trials, each number once" \
        test "$(number "$url" COMPLETE) $(trials -S "$url" | wc -l)" = "800 800"
    ok "without an error" test ! -s errors
    ok "and each trial was run once" test "$(cat log.* | cut -f 1 | grep -c '^[0-9]') $(
        cat log.* | cut -f 1 | grep '^[0-9]' | sort -u | wc -l)" = "800 800"
    ok "by more than one of them" test "$(find . -name 'log.*' -size +100c | wc -l)" -gt 1
    rm -rf log.* s.trials

    [ $kind = sqlite ] && url=hand.db || url=journal:hand.jsonl
    together 8 by_hand
    ok "8 shells that ask and tell make 40 trials" \
        test "$(number "$url" COMPLETE) $(trials -S "$url" | wc -l)" = "40 40"
    ok "without an error" test ! -s errors

    [ $kind = sqlite ] && url=queue.db || url=journal:queue.jsonl
    for i in $(seq 80); do
        hpo-sweep enqueue s.yaml --storage "$url" "x=0.$((1000 + i))"
    done
    rm -rf log.* s.trials
    trials=80
    together 16 work
    trials -S "$url" | awk '{ print $2, $NF }' | sort > ran
    seq 1001 1080 | sed 's/.*/COMPLETE 0.&/' | sed 's/0$//' | sort > expected
    ok "80 enqueued trials run once each" cmp expected ran
    ok "without an error" test ! -s errors
done

# Optuna's own workers are kept from starting a trial twice, in a database of its own as well
cp "$data/sweep/optuna-5.0.db" theirs.db
chmod u+w theirs.db
printf 'x: uniform(-1, 1)\nn: lograndint(1, 65)\nc: choice([a, 1, null])\n' > theirs.yaml
hpo-sweep ask theirs.yaml --storage theirs.db --direction maximize > asked
update="UPDATE trials SET state = 'RUNNING' WHERE number = 31 AND study_id = 1"
if sqlite3 -version > version 2>&1; then
    run sqlite3 theirs.db "$update"
    err_has "the trial was started by another" "a trial that runs is not started again"
    run sqlite3 theirs.db "UPDATE trials SET state = 'WAITING' WHERE number = 31; $update"
    status_is 0 "one that waits is"
else
    skip "a trial that runs is not started again" "no sqlite3"
fi
# another's lock on a database
if sqlite3 -version > version 2>&1; then
    printf 'x: uniform(0, 1)\n' > locked.yaml
    hpo-sweep ask -S locked.db locked.yaml > /dev/null
    {
        echo 'BEGIN IMMEDIATE; CREATE TABLE lock_is_held (x);'
        echo '.shell touch held'
        tries=1200
        until grep -qs waiting err || [ $((tries -= 1)) = 0 ]; do sleep 0.05; done
        echo 'ROLLBACK;'
    } | sqlite3 locked.db &
    tries=1200
    until [ -e held ] || [ $((tries -= 1)) = 0 ]; do sleep 0.05; done
    : > err
    run hpo-sweep enqueue -S locked.db locked.yaml x=0.5
    wait $!
    status_is 0 "another's lock on a database is waited for"
    err_is "hpo-sweep: locked.db: waiting for another's lock" "which is told after a second"
else
    skip "another's lock on a database is waited for" "no sqlite3"
fi
# rows that no byte of the file holds
if sqlite3 -version > version 2>&1; then
    hpo-sweep ask -S endless.db s.yaml > asked.out
    sqlite3 endless.db "ALTER TABLE studies RENAME TO old; CREATE VIEW studies AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
        SELECT i + 1 FROM n) SELECT i AS study_id, 'a' || i AS study_name FROM n"
    run timeout 60 hpo-sweep show -S endless.db
    status_is 3 "a view in the place of a table is refused"
    err_has "endless.db: 'studies' is no table but a view" "by its name"
else
    skip "a view in the place of a table is refused" "no sqlite3"
fi
done_testing
