#!/bin/sh
# tokenizer.t - byte-level BPE against other engines
. "$top_srcdir/tests/lib.sh"
tokenize=$top_builddir/tests/tokenize

gzip -dc "$data/tokenizer/gpt2.json.gz" > gpt2.json
"$tokenize" gpt2.json < "$data/tokenizer/gpt2.inp" > got
ok "GPT-2: all 46 cases have the ids of llama.cpp, and decode to their text" \
    cmp got "$data/tokenizer/gpt2.out"
"$tokenize" gpt2.json < "$data/tokenizer/random.inp" > got
ok "GPT-2: 300 texts of odd characters have the ids of Python's tokenizers" \
    cmp got "$data/tokenizer/random.out"

printf '{"model":{"type":"Unigram"}}' > unigram.json
run "$tokenize" unigram.json
out_is "unigram.json: model of type 'Unigram' is not known" "an unknown model is refused by name"
printf '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}' > merge.json
run "$tokenize" merge.json
out_is "merge.json: merges: number 0 is not in the vocabulary" "a merge of unknown symbols is refused"
printf '{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},"model":{"type":"BPE"}}' \
    > pattern.json
run "$tokenize" pattern.json
out_has "pattern.json: pre_tokenizer: pattern, byte 1" "a bad pattern is refused with its place"
head -c 1000 gpt2.json > short.json
run "$tokenize" short.json
out_is "short.json: not valid JSON" "a truncated file is refused"
done_testing
