#!/bin/sh
# hpo-disk.t - a full disk, a directory that cannot be written and a broken file harm no study
. "${top_srcdir:?}/tests/lib.sh"

if ! hpo-sweep --version | grep -q '+sqlite3.*+yaml'; then
    skip "studies outlive what a disk can do" "built without SQLite or YAML"
    done_testing
    exit
fi
printf 'x: uniform(0, 1)\n' > s.yaml
# sweep URL N: bring the study at URL to N trials
sweep() {
    run hpo-sweep run --storage "$1" --study s --trials "$2" --seed 1 s.yaml -- sh -c 'echo {x}'
}
sweep s.db 3
sweep journal:s.jsonl 3

# broken files are refused, and left as they are
head -c 5000 s.db > short.db
head -c 100 /dev/zero | tr '\0' 'x' > junk.db
{ head -c 4096 s.db; head -c 20000 /dev/zero | tr '\0' 'y'; tail -c +24097 s.db; } > bad.db
{ echo 'no journal'; cat s.jsonl; } > junk.jsonl
for file in short.db junk.db bad.db journal:junk.jsonl; do
    cp "${file#journal:}" was
    run hpo-sweep show -S $file
    status_is 3 "$file is not read"
    err_lines 1 "which is said in one line"
    sweep $file 5
    status_is 3 "nor written to"
    ok "it is left as it was" cmp was "${file#journal:}"
done

# so are databases of another schema: the bytes of the two versions are changed in Optuna's file
altered() {
    LC_ALL=C sed "$1" "$data/sweep/optuna-5.0.db" > "$2"
    ok "$2 is another file" test "$(cmp "$data/sweep/optuna-5.0.db" "$2" | wc -l)" = 1
}
altered 's/v3\.2\.0\.a/v2.6.0.a/' older.db
altered 's/v3\.2\.0\.a/v9.9.9.a/' newer.db
altered 's/\x0c5\.0\.0/\x0d6.0.0/' schema.db
altered 's/version_info/version_xxxx/g' tables.db
for file in older.db newer.db schema.db tables.db; do
    cp $file was
    run hpo-sweep show -S $file
    status_is 3 "$file has a version that is not known"
    err_has "'optuna storage upgrade'" "and the way to a known one is told"
    err_lines 1 "in one line"
    for kind in run ask enqueue; do
        case $kind in
        run) set -- --trials 40 s.yaml -- echo 1 ;;
        ask) set -- s.yaml ;;
        *) set -- s.yaml x=0.5 ;;
        esac
        run hpo-sweep $kind --storage $file --study s "$@"
        status_is 3 "$kind refuses it too"
    done
    run hpo-sweep tell -S $file 31 1
    status_is 3 "and so does tell"
    ok "it is left as it was" cmp was $file
    ok "with nothing beside it" sh -c "! ls $file-* $file.* 2> ls.err"
done
run hpo-sweep show -S older.db
err_has "revision 'v2.6.0.a'" "the revision that is not known is named"
run hpo-sweep show -S schema.db
err_has "schema version 13" "so is the schema's version"

# a directory that cannot be written
mkdir closed
cp s.db s.yaml closed
cp s.db 'closed/a %41?#.db'
cp s.jsonl closed
chmod 555 closed
user=
[ "$(id -u)" -ne 0 ] || user="setpriv --reuid=65534 --regid=65534 --clear-groups"
chmod 711 "$scratch"
# inside COMMAND...: in that directory, as its user; the test's own files are made outside
inside() {
    (cd closed && exec $user "$@")
}
if $user true > user.out 2>&1; then
    for url in s.db journal:s.jsonl; do
        cp "closed/${url#journal:}" was
        status=0
        inside hpo-sweep run --storage $url --study s --trials 5 s.yaml -- sh -c 'echo {x}' > out 2> err || status=$?
        ok "a study that cannot be written ends the sweep ($url)" test $status -ge 3
        err_lines 1 "in one line"
        ok "and is left as it was" cmp was "closed/${url#journal:}"
    done
    for url in s.db 'a %41?#.db' journal:s.jsonl; do
        inside hpo-sweep show -S "$url" > seen 2> err
        ok "but is shown ($url)" test "$(grep -c COMPLETE seen)" = 3
        inside hpo-sweep export -S "$url" - > seen 2> err
        ok "and written to standard output" grep -q '"op_code"' seen
    done
    status=0
    inside hpo-sweep export -S s.db out.jsonl > out 2> err || status=$?
    status_is 4 "no file is written beside it"
    err_has "Permission denied" "which is said"
else
    skip "a study that cannot be written ends the sweep" "no setpriv"
fi
chmod 755 closed

# a full disk, which then gets room
mkdir small
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=320k none small > mount.out 2>&1; then
    trap 'umount -l "$scratch/small"; chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
    for url in full.db journal:full.jsonl; do
        rm -rf small/*
        head -c 250000 /dev/zero > small/ballast
        cp s.yaml small
        cd small || exit 99
        status=0
        hpo-sweep run --storage $url --study s --trials 400 --seed 1 s.yaml -- sh -c 'echo {x}' > ../out 2> ../err || status=$?
        cd ..
        status_is 4 "a full disk ends the sweep ($url)"
        err_lines 1 "in one line"
        hpo-sweep show --json -S "${url%full*}small/full.${url#*full.}" > some 2> show.err || :
        grep COMPLETE some > kept || :
        rm small/ballast
        mount -o remount,size=64m small
        sweep "${url%full*}small/full.${url#*full.}" 30
        status_is 0 "with room it goes on"
        hpo-sweep show --json -S "${url%full*}small/full.${url#*full.}" | grep COMPLETE > all
        ok "with what was finished before" sh -c 'head -n "$(wc -l < kept)" all | cmp - kept'
        # those that could not be recorded are failures
        ok "to the end" test "$(wc -l < all)" -ge 25
        rm -rf small/*
        mount -o remount,size=320k small
    done
else
    skip "a full disk ends the sweep" "needs root"
fi
# a network's disk
shim=$top_builddir/tests/fail-io.so
if LD_PRELOAD=$shim hpo-sweep --version > version.out 2> version.err && [ ! -s version.err ]; then
    run env LD_PRELOAD="$shim" ON_NFS=1 hpo-sweep ask -S remote.db s.yaml
    status_is 0 "a database on NFS can be used"
    err_has "remote.db is on a network file system" "but a journal is advised"
    run env LD_PRELOAD="$shim" ON_NFS=1 hpo-sweep ask -S remote.db s.yaml
    err_empty "once"
    run env LD_PRELOAD="$shim" ON_NFS=1 hpo-sweep ask -S journal:remote.log s.yaml
    err_empty "a journal is fine there"

    # a journal on a disk that fails once: a read, or the sync that ends a change; its last line is torn
    cp s.jsonl torn.jsonl
    printf '{"op_code":4,"wor' >> torn.jsonl
    for call in pread sync; do
        at=0
        failures=0
        harm=
        while [ $((at += 1)) -le 40 ]; do
            cp torn.jsonl d.jsonl
            run env LD_PRELOAD="$shim" FAIL_CALL=$call FAIL_AT=$at hpo-sweep ask -S journal:d.jsonl s.yaml
            case $status in
            0) ! grep -qv '^{.*}$' d.jsonl || harm="$harm $at:torn" ;;
            4)
                failures=$((failures + 1))
                [ "$(cat err)" = "hpo-sweep: d.jsonl: Input/output error" ] || harm="$harm $at:$(cat err)"
                grep '^{.*}$' d.jsonl | cmp -s - s.jsonl || harm="$harm $at:changed"
                ;;
            *) harm="$harm $at:$status" ;;
            esac
            [ ! -L d.jsonl.lock ] || harm="$harm $at:locked"
            run hpo-sweep ask -S journal:d.jsonl s.yaml
            [ "$status" -eq 0 ] || harm="$harm $at:lost"
        done
        ok "a $call that fails is status 4, and harms no journal$harm" test -z "$harm"
        ok "a journal needs one" test "$failures" -gt 0
    done
else
    skip "a database on NFS can be used" "nothing can be preloaded"
fi
done_testing
