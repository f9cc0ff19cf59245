#!/bin/sh
# hpo-postgres.t - studies in a PostgreSQL database, of a server that runs for this test
. "${top_srcdir:?}/tests/lib.sh"
for bin in /usr/lib/postgresql/*/bin /usr/local/bin /usr/bin; do
    [ ! -x "$bin/initdb" ] || break
done
if ! [ -x "$bin/initdb" ] || ! ldconfig -p 2> /dev/null | grep -q 'libpq\.so\.5'; then
    skip "a sweep is kept in a database" "no PostgreSQL server"
    done_testing
    exit
fi

server=$(mktemp -d "${scratch%/*}/pg.XXXXXX")
# the server does not run as root
owner() {
    if [ "$(id -u)" -eq 0 ]; then
        (cd "$server" && setpriv --reuid=65534 --regid=65534 --clear-groups "$@")
    else
        (cd "$server" && "$@")
    fi
}
[ "$(id -u)" -ne 0 ] || chown 65534:65534 "$server"
trap 'owner "$bin/pg_ctl" -D "$server/data" -m immediate stop > /dev/null 2>&1; rm -rf "$server" "$scratch"' EXIT
if ! owner "$bin/initdb" -D "$server/data" -U me -A trust --no-sync > server.out 2>&1 ||
    ! owner "$bin/pg_ctl" -D "$server/data" -l "$server/log" -w \
        -o "-k '$server' -c listen_addresses= -c fsync=off" start > server.out 2>&1; then
    fail "the server starts" "$(cat server.out "$server/log" 2> /dev/null)"
    done_testing
    exit
fi
sql() {
    "$bin/psql" -qtA -h "$server" -U me -d "$1" -c "$2"
}
sql postgres 'CREATE DATABASE one'
sql postgres 'CREATE DATABASE two'
export PGUSER=me
db="postgresql:///one?host=$server"
two="postgresql:///two?host=$server"

cat > s.yaml << 'END'
method: random
metric: {name: loss, goal: minimize}
parameters:
  x: {min: 0.0, max: 1.0}
  kind: {values: [a, "b'c", 3]}
END

# a sweep, whole
run hpo-sweep show -S "$db"
status_is 3 "an empty database has no studies"
run hpo-sweep run -q -S "$db" --seed 1 --trials 5 s.yaml -- echo '{x}'
status_is 0 "a sweep is kept in a database"
run hpo-sweep run -q -S "$db" --trials 5 s.yaml -- echo '{x}'
status_is 0 "and is done"
hpo-sweep run -q -S file.db --study s --seed 1 --trials 5 s.yaml -- echo '{x}'
hpo-sweep show -S file.db > expected
run hpo-sweep show -S "$db"
ok "its trials are those of a file" cmp out expected
ok "with times that have their decimals" \
    sh -c "hpo-sweep show --json -S '$db' | grep -c 'start.*:[0-9][0-9]\.[0-9]\{6\}\"' | grep -qx 5"
ok "in Optuna's own types" test "$(sql one 'SELECT DISTINCT pg_typeof(state) FROM trials')" = trialstate
ok "and revision" test "$(sql one 'SELECT version_num FROM alembic_version')" = v3.2.0.a

# by hand
for study in a b; do
    hpo-sweep ask -S "$db" --study $study s.yaml > ask
done
run hpo-sweep show -S "$db"
err_has "holds 3 studies: choose one" "of several studies one is chosen"
run hpo-sweep report -S "$db" --study a 0 1 inf
status_is 0 "an infinity is reported"
hpo-sweep report -S "$db" --study a 0 2 nan
hpo-sweep report -S "$db" --study a 0 2 0.1
hpo-sweep report -S "$db" --study a 0 3 -inf
hpo-sweep report -S "$db" --study a 0 4 nan
run hpo-sweep tell -S "$db" --study a 0 0.30000000000000004
status_is 0 "a trial is told"
hpo-sweep show -S "$db" --study a --json > out
out_has '0.30000000000000004' "to the last digit"
ok "with its reports" test "$(sql one "SELECT string_agg(intermediate_value_type::text || coalesce(intermediate_value, -1), ' ' ORDER BY step) FROM trial_intermediate_values")" = "INF_POS-1 FINITE0.1 INF_NEG-1 NAN-1"
run hpo-sweep enqueue -S "$db" --study a s.yaml x=0.5 kind="b'c"
status_is 0 "a trial is enqueued"
hpo-sweep ask -S "$db" --study a s.yaml > out
out_has "b'c" "and drawn, quotes and all"

# there and back
hpo-sweep export -S "$db" studies.journal
run hpo-sweep import -S "$two" studies.journal
status_is 0 "studies are exported, and imported into another database"
for study in s a b; do
    hpo-sweep show -S "$db" --study $study > expected
    run hpo-sweep show -S "$two" --study $study
    ok "$study is there" cmp out expected
done

# many workers
cat > worker << 'END'
for i in 1 2 3 4 5; do
    hpo-sweep ask -S "$1" --study many s.yaml > "asked.$2" 2> "said.$2"
    echo "ask $2 $i: status $?"
    sed "s/^/ask $2 $i: /" "said.$2" >&2
    number=$(head -n 1 "asked.$2" | cut -f 2)
    hpo-sweep tell -S "$1" --study many "$number" "$number" 2> "said.$2"
    echo "tell $2 $i: status $?"
    sed "s/^/tell $2 $i: /" "said.$2" >&2
done
END
pids=
for w in 1 2 3 4 5 6 7 8; do # LeakSanitizer's own thread crashes now and then where so many end at once
    ASAN_OPTIONS=${ASAN_OPTIONS+$ASAN_OPTIONS:}detect_leaks=0 sh worker "$db" $w >> worker.out 2>> worker.err &
    pids="$pids $!"
done
# shellcheck disable=SC2086 # a list of numbers
wait $pids
ok "8 workers make 40 trials, each number once" test "$(sql one "SELECT count(*), count(DISTINCT number), max(number), count(DISTINCT value) FROM trials JOIN studies USING (study_id) JOIN trial_values USING (trial_id) WHERE study_name = 'many'")" = "40|40|39|40"
ok "each command ends with status 0" test "$(grep -cx '[a-z]* [1-8] [1-5]: status 0' worker.out)" = 80
# a word names its command: what a sanitizer says at an exit, for instance, comes with that one's status
said=$(grep -v "waiting for another's lock" worker.err)
if [ -z "$said" ]; then pass "without a word, but that they wait"; else fail "without a word, but that they wait" "$said" "$(grep -v 'status 0' worker.out)"; fi

# a population that two runs share, of which one is killed
cat > part << 'END'
sleep 0.1
before=0
[ -z "${HPO_PARENT-}" ] || before=$(cat "$HPO_PARENT")
echo $((before + 1)) > "$HPO_TRIAL_DIR/parts"
echo "$HPO_TRIAL_DIR/parts" > "$HPO_CHECKPOINT"
echo "$before" "$HPO_GENERATION" >> parts
echo "$HPO_x"
END
echo 'x: uniform(0, 1)' > p.yaml
for i in 1 2; do
    hpo-sweep run -q --share -S "$db" --sampler pbt:population=4 --seed 1 --trials 16 -j 2 p.yaml -- sh part '{x}' &
    pids=$!
    [ $i = 2 ] || first=$!
done
until [ -s p.trials/000005/params.json ]; do sleep 0.1; done
kill -KILL $pids
wait $first
status=$?
status_is 0 "a population that runs share is trained to its end when one is killed"
ok "four members in each of four generations" test "$(sql one "SELECT string_agg(n::text, ' ') FROM (SELECT count(*) AS n FROM trials JOIN studies USING (study_id) JOIN trial_system_attributes USING (trial_id) WHERE study_name = 'p' AND key = 'hpo-sweep:generation' AND state = 'COMPLETE' GROUP BY value_json) c")" = "4 4 4 4"
ok "each of which began with the parts before" awk '$1 != $2 { exit 1 }' parts

# one run at a time, of a study
hpo-sweep run -q -S "$db" --study long --trials 3 s.yaml -- sleep 30 &
pid=$!
while ! [ -f long.trials/000000/params.json ]; do sleep 0.1; done
run hpo-sweep run -v -S "$db" --study long --trials 3 s.yaml -- echo 1
status_is 75 "a second run of a study ends with 75"
err_has "another run holds study 'long'" "and with -v says why"
run hpo-sweep run -q -S "$db" --study short --trials 3 s.yaml -- echo 1
status_is 0 "another study's run goes on"
kill -KILL $pid
wait $pid 2> /dev/null
run hpo-sweep run -q -S "$db" --study long --trials 3 s.yaml -- echo 1
status_is 0 "after SIGKILL the next run goes on"
ok "and takes the dead trial for failed" test "$(trials -S "$db" --study long | awk '{ print $2 }' | sort | uniq -c | tr -s ' \n' ' ')" = " 3 COMPLETE 1 FAIL "

# another's lock
{ echo 'BEGIN; LOCK TABLE studies, trials IN EXCLUSIVE MODE; SELECT pg_sleep(2.5); COMMIT'; } |
    "$bin/psql" -qtA -h "$server" -U me -d one > psql.out 2>&1 &
tries=100
until [ $((tries -= 1)) = 0 ] || [ "$(sql one "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation = 'studies'::regclass")" = 1 ]; do sleep 0.05; done
run hpo-sweep enqueue -S "$db" s.yaml x=0.5 kind=3
wait $!
status_is 0 "another's lock is waited for"
err_has "waiting for another's lock" "which is told after a second"

# a lost connection: whatever becomes of it, each trial runs once, and is recorded with its reports
cat > lossy << 'END'
# lossy BIN SERVER - one trial: in some all connections end, in others the server starts anew
echo "$HPO_TRIAL_NUMBER" >> ran
printf '1 %s\n2 %s\n' "$HPO_TRIAL_NUMBER" "$HPO_TRIAL_NUMBER" > "$HPO_REPORT"
case $HPO_TRIAL_NUMBER in
*[16]) "$1/psql" -qtA -h "$2" -U me -d postgres -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'one'" > terminated 2>&1 ;;
*[49]) mkdir restarting 2> /dev/null && { "$2/restart" > restarted 2>&1; rmdir restarting; } ;;
esac
echo "$HPO_TRIAL_NUMBER"
END
become=
[ "$(id -u)" -ne 0 ] || become='setpriv --reuid=65534 --regid=65534 --clear-groups'
cat > "$server/restart" << END
#!/bin/sh
unset HPO_TRIAL_DIR # the server is to outlive the trial that starts it
cd '$server' && exec $become '$bin/pg_ctl' -D '$server/data' -l '$server/log' -w -m immediate -o "-k '$server' -c listen_addresses= -c fsync=off" restart
END
chmod 755 "$server/restart"
recorded() {
    sql one "SELECT count(*), count(DISTINCT number), string_agg(DISTINCT trials.state::text, ' '), sum((value = number)::int) FROM trials JOIN studies USING (study_id) LEFT JOIN trial_values USING (trial_id) WHERE study_name = '$1'"
    sql one "SELECT count(*), sum((intermediate_value = number)::int) FROM trials JOIN studies USING (study_id) JOIN trial_intermediate_values USING (trial_id) WHERE study_name = '$1'"
}
run hpo-sweep run -S "$db" --study lossy --pruner none -j 3 --trials 20 s.yaml -- sh lossy "$bin" "$server" '{x}'
status_is 0 "a sweep goes on when its server ends connections and starts anew, four times each"
err_has "; trying again" "which it says"
ok "each trial ran once" test "$(sort -n ran | uniq -c | awk '{ print $1 }' | sort | uniq -c | tr -s ' \n' ' ')" = " 20 1 "
ok "and has its value and its reports" test "$(recorded lossy | tr '\n' ' ')" = "20|20|COMPLETE|20 40|40 "
shim=$top_builddir/tests/cut-commit.so
if LD_PRELOAD=$shim hpo-sweep --version > version.out 2> version.err && [ ! -s version.err ]; then
    rm -f ran
    run env LD_PRELOAD="$shim" CUT_IN=hpo-sweep CUT_EVERY=3 CUT_LOG="$scratch/cuts" hpo-sweep run -q -S "$db" --study cut -j 3 --trials 20 s.yaml -- sh -c 'echo "$HPO_TRIAL_NUMBER" | tee -a ran' '{x}'
    status_is 0 "a commit whose answer is lost is found out"
    err_empty "without a word under -q"
    ok "it was lost several times" test "$(wc -l < cuts)" -ge 5
    ok "each trial ran once nevertheless" test "$(sort -n ran | uniq -c | awk '{ print $1 }' | sort | uniq -c | tr -s ' \n' ' ')" = " 20 1 "
    ok "and has its value" test "$(recorded cut | head -n 1)" = "20|20|COMPLETE|20"
    rm -f ran cuts
    run env LD_PRELOAD="$shim" CUT_IN=hpo-sweep CUT_AFTER=30 CUT_SHORT=7 CUT_LOG="$scratch/cuts" hpo-sweep run -S "$db" --study each --pruner none -j 2 --trials 12 s.yaml -- sh -c 'printf "1 %s\n2 %s\n" "$HPO_TRIAL_NUMBER" "$HPO_TRIAL_NUMBER" > "$HPO_REPORT"; echo "$HPO_TRIAL_NUMBER" | tee -a ran' '{x}'
    status_is 0 "a connection is lost at one statement after another, and soon after that again"
    ok "dozens of times" test "$(wc -l < cuts)" -ge 20
    err_has "12 complete" "and the run comes to its last line"
    ok "having run each trial once" test "$(sort -n ran | uniq -c | awk '{ print $1 }' | sort | uniq -c | tr -s ' \n' ' ')" = " 12 1 "
    ok "with its value and reports" test "$(recorded each | tr '\n' ' ')" = "12|12|COMPLETE|12 24|24 "
    # commands by hand: the second commit of each is the one that changes something
    lost() { env LD_PRELOAD="$shim" CUT_IN=hpo-sweep CUT_EVERY=2 CUT_LOG="$scratch/cuts" hpo-sweep "$@" 2>> lost.err; }
    rm -f cuts
    lost enqueue -S "$db" --study hand s.yaml x=0.5 kind=3
    lost ask -S "$db" --study hand s.yaml --json > out
    out_has '"trial": 0, "params": {"x": 0.5' "ask gives the trial that it had started, enqueued once"
    lost report -S "$db" --study hand 0 1 0.25
    run lost tell -S "$db" --study hand 0 0.5
    status_is 0 "tell finds its trial told"
    ok "each had lost its answer" test "$(wc -l < cuts)" -ge 4
    ok "and says that it tries again" test "$(grep -c '; trying again$' lost.err)" -ge 4
    ok "there is one trial, with its report and value" test "$(sql one "SELECT count(*), max(value), max(intermediate_value) FROM trials JOIN studies USING (study_id) JOIN trial_values USING (trial_id) JOIN trial_intermediate_values USING (trial_id) WHERE study_name = 'hand'")" = "1|0.5|0.25"
else
    skip "a commit whose answer is lost is found out" "nothing can be preloaded"
fi

# a server that is about to start
owner "$bin/pg_ctl" -D "$server/data" -m immediate stop > server.out 2>&1
hpo-sweep ask -S "$db" --study late s.yaml > asked 2> late.err &
pid=$!
hpo-sweep run -q -S "$db" --study late2 --trials 1 s.yaml -- echo 1 2> late2.err &
pid2=$!
until grep -q 'trying again' late.err && grep -q 'trying again' late2.err; do sleep 0.05; done
"$server/restart" > restarted 2>&1
wait $pid
status=$?
status_is 0 "a command waits for a server that is about to start"
ok "and does what it was to do" grep -q '^trial.0' asked
wait $pid2
status=$?
status_is 0 "so does the start of a run"

# what is wrong
run hpo-sweep show -S "postgresql://me:secret@/none?host=$server"
status_is 4 "a database that is not there is an error of the machine"
err_lines 1 "in one line"
ok "that does not tell the password" sh -c '! grep -q secret err'
run hpo-sweep show -S "postgresql://me:sec@ret@/none?host=$server&password=secret"
ok "even one with an @ in it, or among the parameters" sh -c '! grep -q "sec@\|secret" err'
run hpo-sweep show -S "postgresql+psycopg2:///one?host=$server" --study s
status_is 0 "SQLAlchemy's way to name a driver is understood"
sql two "UPDATE alembic_version SET version_num = 'v9.9.9'"
run hpo-sweep show -S "$two"
status_is 3 "an unknown revision is refused"
err_has "optuna storage upgrade" "with the upgrade hint"
owner "$bin/pg_ctl" -D "$server/data" -m immediate stop > server.out 2>&1
HPO_PATIENCE=0 run hpo-sweep ask -S "$db" --study a s.yaml
status_is 4 "so is a server that is gone an error of the machine"
err_lines 1 "in one line as well"
done_testing
