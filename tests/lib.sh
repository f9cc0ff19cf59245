# lib.sh - what shell tests share: source it first, end with `done_testing`
#
#   ok "NAME" COMMAND...          passes when COMMAND succeeds; a cmp of two empty files, or a test of two
#                                 empty words, does not
#   run COMMAND...                runs it: $status, files out and err
#   status_is N "NAME"            the last run ended with status N
#   out_is TEXT "NAME"            its standard output was TEXT and a line feed
#   out_has TEXT "NAME"           its standard output has TEXT (fixed string)
#   err_is TEXT "NAME"            its standard error was TEXT and a line feed
#   err_has TEXT "NAME"           its standard error has TEXT (fixed string)
#   err_empty "NAME"              it said nothing on standard error
#   err_lines N "NAME"            it said N lines on standard error
#   skip "NAME" "WHY"             not run here
#   json FILE KEY                 the value of KEY in a one-line JSON object
#   list FILE KEY [N]             the Nth list called KEY in a longer one, commas between
#   near WANT GOT TOLERANCE       succeeds when the numbers are that near
#   trials OPTION...              what hpo-sweep shows of a study, without the header
#   use_model DIR                 sets $name, $dir and $ids: of a model in tests/data/models
#   shape NAME                    the public model of that name, as NAME.json
#   rank0 KEY COMMAND...          KEY of the first kind of ranks in mem-estimate's JSON
#   tps N                         2 and N, or 1 and 3, in turns; with SHORT N, and one time of three 1; with LONG 1 to N
#   $heldout                      a text for bard, with SHORT set its beginning, and $heldout_nll, what it scores
#
# Each test runs in a scratch directory of its own, removed at the end: in memory, where 2 GiB of that are free and TMPDIR
# names no other place, as most tests sync what they write; the tests of 42 GB have their files on the disk.
set -u
: "${top_srcdir:?}" "${top_builddir:?}"
data=$top_srcdir/tests/data
bard=$top_srcdir/examples/bard
scratch=${TMPDIR:-/tmp}
if [ -z "${TMPDIR-}${SHARDUTILS_LARGE_TESTS-}" ] && [ -w /dev/shm ] &&
    [ "$(df -P /dev/shm | awk 'END { print $4 }')" -gt 2097152 ]; then scratch=/dev/shm; fi
scratch=$(mktemp -d "$scratch/shardutils-test.XXXXXX") || exit 99
trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 99' HUP INT TERM
cd "$scratch" || exit 99
heldout=$bard/heldout.txt heldout_nll=3.30536
[ -z "${SHORT-}" ] ||
    { head -n 150 "$heldout" > "$scratch/.heldout" && heldout=$scratch/.heldout heldout_nll=3.2146; }
count=0
failed=0
status=0

pass() {
    count=$((count + 1))
    printf 'ok %d - %s\n' "$count" "$1"
}

fail() {
    count=$((count + 1))
    failed=$((failed + 1))
    printf 'not ok %d - %s\n' "$count" "$1"
    shift
    for line; do
        printf '%s\n' "$line" | sed 's/^/#   /'
    done
}

skip() {
    count=$((count + 1))
    printf 'ok %d - %s # SKIP %s\n' "$count" "$1" "$2"
}

# Does the comparison "$@" have nothing on both sides?  Then something before it has failed.
compares_nothing() {
    case $# in
    3) [ "$1" = cmp ] && [ -f "$2" ] && [ -f "$3" ] && [ ! -s "$2" ] && [ ! -s "$3" ] ;;
    4) [ "$1" = test ] && [ "$3" = = ] && [ -z "$2$4" ] ;;
    *) false ;;
    esac
}

ok() {
    ok_name=$1
    shift
    if compares_nothing "$@"; then
        fail "$ok_name" "$*" "both are empty"
    elif "$@" > ok.out 2>&1; then
        pass "$ok_name"
    else
        fail "$ok_name" "$*" "$(head -n 20 ok.out)"
    fi
}

run() {
    status=0
    "$@" > out 2> err < /dev/null || status=$?
}

status_is() {
    if [ "$status" -eq "$1" ]; then
        pass "$2"
    else
        fail "$2" "status $status, expected $1" "$(head -n 5 err)"
    fi
}

same_text() {
    printf '%s\n' "$2" > expected
    if cmp -s "$1" expected; then pass "$3"; else fail "$3" "$(diff expected "$1" | head -n 20)"; fi
}

out_is() { same_text out "$1" "$2"; }
err_is() { same_text err "$1" "$2"; }

out_has() {
    if grep -qF -e "$1" out; then pass "$2"; else fail "$2" "no '$1' in:" "$(head -n 20 out)"; fi
}

err_has() {
    if grep -qF -e "$1" err; then pass "$2"; else fail "$2" "no '$1' in:" "$(head -n 20 err)"; fi
}

err_empty() {
    if [ -s err ]; then fail "$1" "$(head -n 20 err)"; else pass "$1"; fi
}

err_lines() {
    if [ "$(wc -l < err)" -eq "$1" ]; then pass "$2"; else fail "$2" "$(head -n 20 err)"; fi
}

json() {
    sed -n "s/.*\"$2\":[ ]*\(\"[^\"]*\"\|\[[^]]*\]\|[^,}]*\).*/\1/p" "$1" | tr -d '"'
}

list() {
    sed -n "s/^ *\"$2\": *\[\(.*\)\].*/\1/p" "$1" | sed -n "${3:-1}p" | tr -d ' '
}

near() {
    awk "BEGIN { d = $1 - ($2); exit !(d <= $3 && -d <= $3) }"
}

trials() {
    hpo-sweep show "$@" | tail -n +2
}

use_model() {
    name=$(basename "$1")
    dir=$1
    [ -d "$dir/hf" ] && dir=$dir/hf
    ids=$(list "${dir%/hf}/expected.json" ids)
    ids=${ids:-1,2,3,4,5,6,7}
}

shape() {
    awk -F '\t' -v n="$1" '$1 == n { print $4 }' "$data/configs.tsv" > "$1.json"
}

rank0() {
    rank0_key=$1
    shift
    "$@" --json | sed -n "s/.*\"ranks\":\[{[^}]*},[^}]*\"$rank0_key\":\([0-9]*\).*/\1/p"
}

tps() {
    echo >> "$scratch/.tps" # for a loop's body in a subshell, too
    tps_turn=$(wc -l < "$scratch/.tps")
    if [ -n "${SHORT-}" ]; then
        [ $((tps_turn % 3)) = 0 ] && echo 1 "$1" || echo "$1"
    elif [ -n "${LONG-}" ] || [ "$1" -le 2 ]; then
        seq -s ' ' "$1"
    elif [ $((tps_turn % 2)) = 0 ]; then
        echo 1 3
    else
        echo 2 "$1"
    fi
}

# reseal DIR - makes the checksum of DIR/checkpoint.json right after it was edited
reseal() {
    head -c -20 "$1/checkpoint.json" > reseal.body
    reseal_crc=$(gzip -c reseal.body | tail -c 8 | od -An -tx4 -N4 | tr -d ' ')
    { cat reseal.body; printf '"crc32":"%s"}\n' "$reseal_crc"; } > "$1/checkpoint.json"
}

done_testing() {
    printf '1..%d\n' "$count"
    [ "$failed" -eq 0 ]
    exit
}
