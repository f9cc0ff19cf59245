#!/bin/sh
# bootstrap.t - what ./bootstrap prints of an installation, a build and the tests
. "${top_srcdir:?}/tests/lib.sh"

# a tree whose tools say what theirs would
mkdir -p tree/examples bin
cp "$top_srcdir/bootstrap" "$top_srcdir/examples/demo.sh" .
cp bootstrap tree
printf 'echo "demo $*"\n' > tree/examples/demo.sh
touch tree/configure tree/Makefile
cat > bin/make << 'EOF'
#!/bin/sh
case "$*" in
*-n*)
    for i in 1 2 3 4 5 6 7 8; do echo "echo \"  CC      \" $i.o;gcc -c $i.c"; done
    ;;
*check*)
    echo "make  tests/unit-a tests/b \\"
    echo "  tests/a.t tests/b.t"
    echo "make[2]: 'tests/data/configs.tsv' is up to date."
    i=0
    while [ $i -lt 2500 ]; do echo "PASS: tests/a.t $((i += 1)) - is so"; done
    echo "SKIP: tests/a.t 2501 - no GPU # SKIP"
    [ -z "$BROKEN" ] || { echo "FAIL: tests/b.t 1 - is not so"; }
    echo "# TOTAL: 2502"
    echo "# PASS:  2500"
    echo "# FAIL:  ${BROKEN:-0}"
    [ -z "$BROKEN" ] || { echo "make[3]: *** [Makefile:1: test-suite.log] Error 1" >&2; exit 2; }
    ;;
*)
    for i in 1 2 3 4 5 6 7 8; do echo "  CC       lib/$i-x.o"; done
    echo "lib/3.c:1:2: warning: unused - x" >&2
    [ -z "$WRONG" ] || { echo "lib/4.c:1:2: error: expected ;" >&2; exit 2; }
    ;;
esac
EOF
cat > bin/dpkg-query << 'EOF'
#!/bin/sh
echo "${INSTALLED-install ok installed}"
EOF
cat > bin/apt-get << 'EOF'
#!/bin/sh
[ "$1" = install ] || exit 0
echo "Reading package lists..."
echo "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded."
echo "Get:1 http://deb.example bookworm/main amd64 one amd64 1.0 [1 kB]"
echo "Get:2 http://deb.example bookworm/main amd64 two amd64 1.0 [1 kB]"
echo "Unpacking one (1.0) ..."
echo "Setting up one (1.0) ..."
echo "Unpacking two (1.0) ..."
[ -z "$FULL" ] || { echo "E: no space left on device" >&2; exit 100; }
echo "Setting up two (1.0) ..."
EOF
printf '#!/bin/sh\necho 0\n' > bin/id
printf '#!/bin/sh\necho 2\n' > bin/nproc
chmod +x bin/*
PATH=$PWD/bin:$PATH
BROKEN='' WRONG='' FULL=''
export PATH BROKEN WRONG FULL
dir=$PWD/tree

run tree/bootstrap
status_is 0 "bootstrap builds"
out_is "== building 8 files on 2 cores (about a minute)
building: 1 of 8
building: 2 of 8
building: 4 of 8
building: 6 of 8
building: 8 of 8
lib/3.c:1:2: warning: unused - x

The programs are in bin/.  To find them by their names, in this shell:
  export PATH=\"$dir/bin:\$PATH\"
Then try
  tp-run generate --prompt 'ROMEO:' examples/bard
  mem-estimate plan --gpu a100-80g --gpus 8 examples/bard
  mandoc -a man/shardutils.7" "files are counted, warnings stay, and three commands to try come last"
err_empty "in a pipe with a few lines"
run env WRONG=1 tree/bootstrap
status_is 2 "a build that fails ends with make's status"
out_has "lib/4.c:1:2: error: expected ;" "and its errors"
run tree/bootstrap demo
out_has "demo examples/bard" "the demo runs"
run tree/bootstrap demo kept
out_has "demo examples/bard kept" "in a directory that stays if one is named"
mkdir tree/there
run tree/bootstrap demo there
status_is 2 "which must not exist"
run tree/bootstrap check
status_is 0 "tests are run"
ok "and counted: passes have few lines" test "$(grep -c '^testing: ' out)" -eq 3 -a "$(grep -c '^PASS: ' out)" -eq 0
out_has "# PASS:  2500" "their totals are printed"
ok "and nothing else" test "$(sed '1,/^testing: 2000/d' out | grep -vc '^# ')" -eq 0
run env BROKEN=1 tree/bootstrap check
status_is 2 "tests that fail end with make's status"
out_has "FAIL: tests/b.t 1 - is not so" "and are named"
run env INSTALLED='' tree/bootstrap
status_is 0 "packages are installed"
ok "with counters" test "$(sed -n '2,$s/: .*//p' out | head -n 6 | uniq | paste -sd, -)" = "fetching,installing"
run env INSTALLED='' FULL=1 tree/bootstrap
status_is 100 "an installation that fails ends bootstrap"
out_has "E: no space left on device" "with its error"
run tree/bootstrap check it
status_is 2 "an operand too many is a usage error"
err_lines 2 "of two lines"

# the demo itself, whose programs are sanitized in tests of their own
if [ -z "${SHORT-}" ]; then
    run sh demo.sh "$bard" kept
    status_is 0 "the demo cuts, runs and merges the sample model"
    ok "and leaves what it made where it was asked to" cmp kept/bard/model.safetensors "$bard/model.safetensors"
fi
done_testing
