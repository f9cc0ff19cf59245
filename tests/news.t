#!/bin/sh
# news.t - notes of news.d become part of NEWS
. "${top_srcdir:?}/tests/lib.sh"

news() {
    run sh "$top_srcdir/build-aux/make-news" "$1" notes NEWS
}

mkdir notes
printf 'what a README says\n' > notes/README
printf 'tp-run: one thing,\nand the rest\n' > notes/b
printf 'tp-run: another\n' > notes/c
printf 'hpo-sweep: a third\n' > notes/a
cat > NEWS << 'EOF'
shardutils 2.0

tp-run
* runs

tp-shard
* splits

shardutils 1.0

tp-run
* ran
EOF
news 2.0
status_is 0 "notes are collected"
out_is "shardutils 2.0

tp-run
* runs
* one thing,
  and the rest
* another

tp-shard
* splits

hpo-sweep
* a third

shardutils 1.0

tp-run
* ran" "a note goes to the end of its program's section in the part of the version"
news 2.1
out_is "shardutils 2.1

tp-run
* one thing,
  and the rest
* another

hpo-sweep
* a third

$(cat NEWS)" "a version that NEWS lacks gets a part"
printf 'a thing\n' > notes/d
printf 'tp-run: 1\n2\n3\n4\n5\n' > notes/e
: > notes/f
news 2.0
status_is 1 "a file that is no note is an error"
err_has "notes/d:1: expected" "a note names its program"
err_has "notes/e:5: a note has at most four lines" "a note is short"
err_has "notes/f:0: empty" "and not empty"
run sh "$top_srcdir/build-aux/make-news" 0.1.0 "$top_srcdir/news.d" "$top_srcdir/NEWS"
status_is 0 "the notes of the tree can be collected"
done_testing
