#!/bin/sh
# tokenizer.t - kinds of tokenizer.json against other engines
. "$top_srcdir/tests/lib.sh"
tokenize=$top_builddir/tests/tokenize

gzip -dc "$data/tokenizer/gpt2.json.gz" > gpt2.json
"$tokenize" gpt2.json < "$data/tokenizer/gpt2.inp" > got
ok "GPT-2: all 46 cases have the ids of llama.cpp, and decode to their text" \
    cmp got "$data/tokenizer/gpt2.out"
"$tokenize" gpt2.json < "$data/tokenizer/random.inp" > got
ok "GPT-2: 300 texts of odd characters have the ids of Python's tokenizers" \
    cmp got "$data/tokenizer/random.out"


# kind NAME MESSAGE - tests/oracle/tokenizer-kinds.py made the files
kind() {
    "$tokenize" -d "$data/tokenizer/kinds/$1.json" < "$data/tokenizer/kinds/$1.inp" > got
    ok "$1: $2" cmp got "$data/tokenizer/kinds/$1.out"
}
kind digits "add_prefix_space is for every piece that an earlier stage has cut"
kind strips "added tokens strip Unicode's white space, know its words, and are decoded"
kind normalized "added tokens are sought in the text before or after it is normalized"
kind bare "without a decoder a space is put between tokens, and without an unknown token characters drop out"
kind patterns "patterns mean what they mean to Oniguruma"
kind scripts "a script is its own characters, not what is used with it"
kind llama3 "ignore_merges, and a template in a sequence"
kind nfc "NFC"
kind nfkc "NFKC"
kind changes "NFKD, accents, lower case, replacements, white space and what is put before"
kind roberta "RoBERTa's tokens around the text"
kind framed "BERT's tokens around the text"
kind llama2 "bytes for what has no token, spaces by normalizers"
kind metaspace "spaces by Metaspace"
kind metaspace-first "spaces by Metaspace, one before the first piece alone"
kind gemma "nothing is put before the text"
kind suffix "the ends of words, as CLIP's"
kind bert "WordPiece, with BERT's own stages"
kind bert-cased "WordPiece, with capitals and accents"
kind unigram "Unigram's likeliest pieces"
kind unigram-bytes "Unigram, with bytes for what it does not know"
kind words "WordLevel, words apart from what is none"
kind runs "runs of a script, texts between delimiters, and pieces of one length"
kind unicode "characters that are newer than the libraries' Unicode, or than the normal forms of tokenizers"
kind precompiled "SentencePiece's compiled rules, in a file that does not name its model"

printf '%s' '{"model":{"type":"BPE","vocab":{"a":0,"\u0000":1},"merges":[]},"decoder":{"type":"Fuse"}}' > nul.json
printf '%s\n' '"a\u0000a"' > nul.inp
run sh -c '"$1" -d nul.json < nul.inp' - "$tokenize"
out_is ' 0 1 0	"a\u0000a"	"a\u0000a"' "a token that is a NUL is found, and is one again"

# -12.130167007446289 is read by tokenizers as the double beside it
printf '%s' '{"model":{"type":"Unigram","unk_id":0,"vocab":[["?",0.0],["-",-5.129043102264404],
    ["---",-12.130167007446289]]}}' > dashes.json
for n in 7 8 10 11 13 17; do printf '"%*s"\n' "$n" '' | tr ' ' '-'; done > dashes.inp
"$tokenize" -d dashes.json < dashes.inp | cut -f 1 > got
printf ' %s\n' '2 2 1' '1 1 2 2' '2 2 1 2' '2 2 1 2 1' '2 2 1 2 2' '2 2 1 2 1 2 2' > want
ok "equally likely pieces are chosen as by tokenizers, whose scores are rounded twice" cmp got want

# refused CODE MESSAGE - a pattern that cannot be said to PCRE2
refused() {
    printf '{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"%s"},"behavior":"Isolated"},"model":{"type":"BPE"}}' \
        "$1" > pattern.json
    run "$tokenize" pattern.json
    out_has "$2 is not known" "the pattern '$1' is refused by name"
}
refused 'a[b&&c]' "byte 3 of 'a[b&&c]': an intersection of classes"
refused '[a[^b]]' 'such a class in a class'
refused '[\\W]' 'this escape in a class'
refused 'a(?i)b|c' 'this group'
refused 'a:(?i)b|c' 'this group'
refused '(?i:(a)ß)' 'either case of letters that are one character'
refused '(?i)[xß]' 'either case of letters that are one character'
refused '(?i:[\\p{Lu}])' 'either case of letters of one'
refused '(?i)first' 'either case of letters that are one character'
refused '\\y' 'this escape'
refused '(?#a)+' 'a quantifier behind a comment'
refused '[[:alpha:]]' 'this POSIX class'
refused '\\xe2' 'a byte of a character'

# unknown STAGE TYPE JSON
unknown() {
    printf '%s' "$3" > unknown.json
    run "$tokenize" unknown.json
    out_is "unknown.json: $1 of type '$2' is not known" "the $1 $2 is refused by name"
}
unknown model Other '{"model":{"type":"Other","vocab":{}}}'
unknown normalizer Nmt '{"normalizer":{"type":"Nmt"},"model":{"type":"BPE"}}'
unknown pre_tokenizer Other '{"pre_tokenizer":{"type":"Other"},"model":{"type":"BPE"}}'
unknown post_processor Other '{"post_processor":{"type":"Sequence","processors":[{"type":"Other"}]},"model":{"type":"BPE"}}'
unknown decoder CTC '{"decoder":{"type":"CTC"},"model":{"type":"BPE"}}'
printf '{"model":{"type":"BPE","dropout":0.1,"vocab":{},"merges":[]}}' > dropout.json
run "$tokenize" dropout.json
out_is "dropout.json: BPE with dropout is not known" "ids that chance decides are refused"
printf '{"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAA"},"model":{"type":"BPE"}}' > map.json
run "$tokenize" map.json
out_is "map.json: normalizer: a bad precompiled_charsmap" "compiled rules that are none are refused"
for map in 'A*==' 'AAAA' 'AQAAAA==' 'BgAAAAAAAAAAAA==' '='; do
    printf '{"normalizer":{"type":"Precompiled","precompiled_charsmap":"%s"},"model":{"type":"BPE"}}' "$map" > map.json
    run "$tokenize" map.json
    out_is "map.json: normalizer: a bad precompiled_charsmap" "$map is none"
done
printf '{"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAAAP8A"},"model":{"type":"BPE"}}' > map.json
run "$tokenize" map.json
out_is "map.json: normalizer: precompiled_charsmap is not UTF-8" "nor is one whose texts are none"
printf '{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":1}}' > unigram.json
run "$tokenize" unigram.json
out_is "unigram.json: unk_id is not in the vocabulary" "an unknown piece beyond the vocabulary is refused"
printf '{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}' > merge.json
run "$tokenize" merge.json
out_is "merge.json: merges: number 0 is not in the vocabulary" "a merge of unknown symbols is refused"
printf '{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},"model":{"type":"BPE"}}' \
    > pattern.json
run "$tokenize" pattern.json
out_has "pattern.json: pre_tokenizer: pattern, byte 1 of" "a bad pattern is refused with its place"
added() {
    printf '{"added_tokens":[%s],"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}}' "$1" > added.json
    run "$tokenize" added.json
}
added '{"id":2,"content":"X"},{"id":4,"content":"Y"}'
out_is "added.json: added_tokens: 'Y' has the id 4 where 3 follows" "a gap between added tokens is refused"
added '{"id":2,"content":"a"}'
out_is "added.json: added_tokens: 'a' has the id 2 where 0 follows" "an added token that has another id in the vocabulary is refused"
# settings of the wrong kind
while IFS='|' read -r text message; do
    printf '%s' "$text" > setting.json
    run "$tokenize" setting.json
    out_is "setting.json: $message" "refused: $text"
done << 'END'
{"pre_tokenizer":{"type":"Metaspace"},"model":{"type":"BPE"}}|pre_tokenizer: a Metaspace without a replacement
{"pre_tokenizer":{"type":"Metaspace","replacement":""},"model":{"type":"BPE"}}|pre_tokenizer: a Metaspace without a replacement
{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"often"},"model":{"type":"BPE"}}|pre_tokenizer: prepend_scheme 'often' is not known
{"pre_tokenizer":{"type":"Metaspace","replacement":"_","add_prefix_space":false},"model":{"type":"BPE","vocab":[]}}|BPE needs vocab and merges
{"normalizer":{"type":7},"model":{"type":"BPE"}}|normalizer of type '?' is not known
{"added_tokens":[{"id":1.5,"content":"X"}],"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}|bad entry in added_tokens
{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}|vocab: 'a' has no valid id
{"model":{"type":"BPE","vocab":{"a":0.5},"merges":[]}}|vocab: 'a' has no valid id
{"model":{"type":"BPE","vocab":{"a":16777217},"merges":[]}}|vocab: 'a' has no valid id
{"model":{"type":"BPE","vocab":{"a":"0"},"merges":[]}}|vocab: 'a' has no valid id
{"model":{"type":"Unigram","vocab":[["a"]],"unk_id":0}}|vocab: number 0 is no piece
{"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":0.5}}|unk_id is not in the vocabulary
END
head -c 1000 gpt2.json > short.json
run "$tokenize" short.json
out_is "short.json: not valid JSON" "a truncated file is refused"

# what is no tokenizer.json
for kind in albert bert camembert deberta-v2 gpt2 llama mpnet opt roberta tekken xlm-roberta; do
    dir=$data/tokenizer/old/$kind
    "$tokenize" -m $kind "$dir" < "$data/tokenizer/old/inp" | cut -f 1 > got
    ok "$kind: the ids of a file from before tokenizer.json are those of Python's" cmp "$dir/out" got
done
for file in bert/vocab.txt gpt2/merges.txt; do
    kind=${file%/*}
    cp -r "$data/tokenizer/old/$kind" lines
    chmod -R u+w lines
    sed 's/$/\r/' "$data/tokenizer/old/$file" > "lines/${file#*/}"
    "$tokenize" -m "$kind" lines < "$data/tokenizer/old/inp" | cut -f 1 > got
    ok "$kind: so are they where lines end as on Windows" cmp "$data/tokenizer/old/$kind/out" got
    rm -rf lines
done
mkdir -p old/short old/plain old/tekken
cp "$data/tokenizer/old/llama/tokenizer.model" old/plain
grep -v '</s>' "$data/tokenizer/old/inp" > plain.inp
"$tokenize" -m mistral old/plain < plain.inp | cut -f 1 > got
ok "a SentencePiece BPE alone has the ids of sentencepiece" cmp "$data/tokenizer/old/llama/plain" got
# tekken MESSAGE JSON
tekken() {
    printf '%s' "$2" > old/tekken/tekken.json
    "$tokenize" -m mistral old/tekken > got < /dev/null
    same_text got "old/tekken/tekken.json: tekken: $1" "tekken: $1"
}
tekken "no pattern or no vocabulary" '{"config":{"pattern":"a"}}'
tekken "no sizes, or not such as can be" '{"config":{"pattern":"a","default_vocab_size":1,"default_num_special_tokens":1},"vocab":[]}'
tekken "special_tokens is no list" '{"config":{"pattern":"a","default_vocab_size":2,"default_num_special_tokens":1},"vocab":[],"special_tokens":"x"}'
tekken "the vocabulary is shorter than its size says" '{"config":{"pattern":"a","default_vocab_size":3,"default_num_special_tokens":1},"vocab":[]}'
tekken "ranks are not in order" '{"config":{"pattern":"a","default_vocab_size":2,"default_num_special_tokens":1},"vocab":[{"rank":1}]}'
tekken "a token without bytes" '{"config":{"pattern":"a","default_vocab_size":2,"default_num_special_tokens":1},"vocab":[{"rank":0,"token_bytes":"?"}]}'
tekken "a special token without a text or a rank of its own" \
    '{"config":{"pattern":"a","default_vocab_size":2,"default_num_special_tokens":1},"vocab":[{"rank":0,"token_bytes":"YQ=="}],"special_tokens":[{"rank":1,"token_str":"b"}]}'
head -c 3000 "$data/tokenizer/old/xlm-roberta/sentencepiece.bpe.model" > old/short/spiece.model
"$tokenize" -m xlm-roberta old/short > got < /dev/null
same_text got "old/short/spiece.model: no SentencePiece model" "a model that is cut short is refused"
"$tokenize" -m t5 "$data/tokenizer/old/albert" > got < /dev/null
ok "so is one of a kind that is not known" grep -q "of a model of type 't5' are read only from tokenizer.json" got
mkdir old/words && printf '%s\n' '[CLS]' a > old/words/vocab.txt
"$tokenize" -m bert old/words > got < /dev/null
same_text got "old/words/vocab.txt: no '[CLS]', '[SEP]' or '[UNK]'" "words without the special tokens are refused"

# GPT-2's files with one of them changed: KIND @ FILE @ its text @ what is said, or nothing where it is read
base=$data/tokenizer/old/gpt2
while IFS=@ read -r kind file text message; do
    mkdir old/one
    cp "$base/vocab.json" "$base/merges.txt" old/one
    chmod u+w old/one/*
    case $text in
    directory) mkdir "old/one/$file" ;;
    *) printf '%b' "$text" > "old/one/$file" ;;
    esac
    "$tokenize" -m "$kind" old/one > got < "$data/tokenizer/old/inp"
    if [ -n "$message" ]; then
        same_text got "old/one/$message" "refused: $message"
    else
        cut -f 1 got > ids
        ok "read: $file of $text" cmp ids "$base/out"
    fi
    rm -rf old/one
done << 'END'
gpt2@tokenizer_config.json@{"tokenizer_class": "GPT2Tokenizer"}@
bert@tokenizer_config.json@{"tokenizer_class": "GPT2TokenizerFast"}@
gpt2@tokenizer_config.json@{"tokenizer_class": "Fast"}@vocab.json: the tokenizer of a model of type 'gpt2' is read only from tokenizer.json
gpt2@tokenizer_config.json@{"tokenizer_class": "T5TokenizerFast"}@vocab.json: the tokenizer of a model of type 'gpt2' is read only from tokenizer.json
t5@merges.txt@a b\n@vocab.json: the tokenizer of a model of type 't5' is read only from tokenizer.json
gpt2@tokenizer_config.json@{"unk_token": @tokenizer_config.json: not valid JSON
gpt2@tokenizer_config.json@directory@tokenizer_config.json: not a regular file
gpt2@special_tokens_map.json@{@special_tokens_map.json: not valid JSON
gpt2@added_tokens.json@{@added_tokens.json: not valid JSON
gpt2@vocab.json@{"a": 0@vocab.json: not valid JSON
gpt2@added_tokens.json@["a"]@added_tokens.json: not a JSON object
gpt2@tokenizer_config.json@[]@tokenizer_config.json: not a JSON object
gpt2@vocab.json@["a"]@vocab.json: not a JSON object
gpt2@vocab.json@{"a": 0}@vocab.json: no '<|endoftext|>', the bos_token
gpt2@vocab.json@{"<|endoftext|>": "0"}@vocab.json: no '<|endoftext|>', the bos_token
gpt2@vocab.json@{"<|endoftext|>": -1}@vocab.json: no '<|endoftext|>', the bos_token
gpt2@vocab.json@{"<|endoftext|>": 1e99}@vocab.json: no '<|endoftext|>', the bos_token
gpt2@special_tokens_map.json@{"bos_token": {"content": "<blank>"}}@vocab.json: no '<blank>', the bos_token
roberta@vocab.json@{"<s>": 0, "</s>": 1}@vocab.json: no '<unk>', the unk_token
gpt2@merges.txt@a\0377b c\n@merges.txt: not UTF-8
gpt2@merges.txt@a b\00c\n@merges.txt: not UTF-8
END
cp -r "$base" old/added
chmod -R u+w old/added
printf '{"<new>": 401, "<|endoftext|>": 400, "<off>": -5}' > old/added/added_tokens.json
printf '"a<new>"\n' | "$tokenize" -m gpt2 old/added | cut -f 1 > got
ok "a token of added_tokens.json is one" grep -q ' 401$' got
printf '"<off>"\n' | "$tokenize" -m gpt2 old/added | cut -f 1 > got
ok "but not where its id is none" grep -q ' [0-9]* [0-9]' got
printf '{"<new>": 9000}' > old/added/added_tokens.json
"$tokenize" -m gpt2 old/added > got < /dev/null
same_text got "old/added/vocab.json: added_tokens: '<new>' has the id 9000 where 401 follows" \
    "nor where it does not follow the others'"
cp -r "$data/tokenizer/old/bert" old/torn
chmod -R u+w old/torn
printf '{' > old/torn/tokenizer_config.json
"$tokenize" -m bert old/torn > got < /dev/null
same_text got "old/torn/tokenizer_config.json: not valid JSON" "so is a setting of words read whole, or not at all"
printf 'a\377\n' > old/torn/vocab.txt
rm old/torn/tokenizer_config.json
"$tokenize" -m bert old/torn > got < /dev/null
same_text got "old/torn/vocab.txt: not UTF-8" "words are UTF-8"
done_testing
