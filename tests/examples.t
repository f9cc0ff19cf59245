#!/bin/sh
# examples.t - the EXAMPLES of the pages do what they say
#
# In a literal block under EXAMPLES, a line that begins "$ " is a command and the lines below it are its
# output.  They are run in a directory with the sample model as bard and a small classifier as labels; a
# page's commands follow one another.
. "$top_srcdir/tests/lib.sh"

cat > extract.awk <<'EOF'
/^\.Sh/ { on = ($2 == "EXAMPLES") }
on && /^\.Bd/ { block = 1; next }
on && /^\.Ed/ { block = 0 }
on && block { gsub(/\\e/, "\\"); gsub(/\\&/, ""); print }
EOF

# examples NAME - runs the commands of file block in directory work
examples() {
    sed -n 's/^\$ //p' block > commands
    while IFS= read -r command; do
        (cd work && sh -c "$command" 2>&1) > got < /dev/null
        awk -v c="\$ $command" '$0 == c { on = 1; next } /^\$ / { on = 0 } on { print }' block > want
        ok "$1: $command" diff want got
    done < commands
}

for page in "$top_srcdir"/man/*.[1-8]; do
    awk -f extract.awk "$page" > block
    grep -q '^\$ ' block || continue
    rm -rf work
    mkdir work
    cp -r "$bard" work/bard
    cp -r "$data/models/bert-classify" work/labels
    chmod -R u+w work
    examples "${page##*/}"
done

# README's session, in a directory like the source; its digits are those of a CPU
rm -rf work
mkdir -p work/examples
cp -r "$bard" work/examples/bard
chmod -R u+w work
awk '/^```$/ { inside = !inside; first = 1; next } inside && first { session = /^\$ /; first = 0 } inside && session' \
    "$top_srcdir/README.md" > block
CUDA_VISIBLE_DEVICES='' && export CUDA_VISIBLE_DEVICES
examples README.md
ok "README.md has a session of eight commands that ends in a comparison" \
    sh -c 'test "$(wc -l < commands)" -eq 8 && tail -n 1 commands | grep -q "^cmp "'
done_testing
