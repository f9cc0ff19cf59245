#!/bin/sh
# score - windows that overlap, text that is not UTF-8, and what the line says
. "${top_srcdir:?}/tests/lib.sh"

use_model "$data/models/llama-gqa"
echo "$ids" | tr ',' ' ' > ids

# transformers 5.23 in float64: the loss of each window's new targets, summed over 23 tokens
for case in 10:4:5.537988 10:3:5.649682; do
    window=${case%%:*}
    nll=${case##*:}
    stride=${case#*:}
    stride=${stride%:*}
    for layout in "--tp 1" "--tp 3" "--pp 2"; do
        run tp-run score --json $layout --window "$window" --stride "$stride" --ids-file ids "$dir"
        ok "window $window, stride $stride, $layout: the likelihood is that of transformers" \
            near "$(json out nll)" "$nll" 1e-5
        ok "each token but the first is predicted once" test "$(json out tokens)" -eq 23
    done
done
run tp-run score --window 10 --stride 3 --ids-file ids "$dir"
out_is "ids: 23 tokens, nll 5.64968, perplexity 284.2012, window 10, stride 3" "the line names both"
run tp-run score --window 7 --ids-file ids "$dir"
out_has ", window 7" "without a stride it names the window"
run tp-run score --window 7 --stride 7 --ids-file ids "$dir"
status_is 2 "a stride is less than the window"

printf 'To be \377 or not' > bad.txt
run tp-run score bad.txt "$bard"
status_is 3 "text that is not UTF-8 is refused"
err_is "tp-run: bad.txt: not UTF-8 at byte 6; see --invalid" "with its place"
run tp-run score --invalid replace bad.txt "$bard"
status_is 0 "--invalid replace scores it"
printf 'To be \357\277\275 or not' > replaced.txt
cp out bad.out
run tp-run score replaced.txt "$bard"
ok "with U+FFFD in its place" test "$(cut -d: -f2 out)" = "$(cut -d: -f2 bad.out)"

# positions that leave padding out
use_model "$data/models/roberta-mlm"
run tp-run logits --ids 5,1,6 -o o "$dir"
status_is 3 "padding inside a text is refused by RoBERTa"
err_is "tp-run: --ids: id 1 is the padding id of family roberta, which gives it no position" "by name"

done_testing
