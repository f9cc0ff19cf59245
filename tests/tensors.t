#!/bin/sh
# tensors - inputs are given by name, as tensors of a file
. "${top_srcdir:?}/tests/lib.sh"

# tensors FILE HEADER BYTES: a safetensors file; BYTES as printf takes them
tensors() {
    n=$(printf %s "$2" | wc -c)
    printf "$(printf '\\%03o\\%03o' $((n % 256)) $((n / 256)))\\0\\0\\0\\0\\0\\0" > "$1"
    printf %s "$2" >> "$1"
    printf "$3" >> "$1"
}

# header NAME TYPE SHAPE BYTES [FROM]: a tensor's entry
entry() {
    printf '"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}' "$1" "$2" "$3" "${5:-0}" $((${5:-0} + $4))
}

logits() {
    tp-run logits --backend cpu --input-tensors "$1" -o tensors.safetensors "$2" &&
        echo "$3" > line.json &&
        tp-run logits --backend cpu --input line.json -o line.safetensors "$2" &&
        cmp tensors.safetensors line.safetensors
}

layoutlm=$data/encoders/layoutlm
boxes='{"ids":[5,6],"bbox":[[1,2,3,4],[0,1,2,8]]}'
tensors own "{$(entry ids U8 2 2),$(entry bbox I16 2,4 16 2)}" '\5\6\1\0\2\0\3\0\4\0\0\0\1\0\2\0\10\0'
ok "ids and boxes by name are those of a line" logits own "$layoutlm" "$boxes"
tensors batch "{$(entry ids I32 1,2 8),$(entry bbox U8 1,2,4 8 8)}" '\5\0\0\0\6\0\0\0\1\2\3\4\0\1\2\10'
ok "a batch of one is a text, and integers have any width" logits batch "$layoutlm" "$boxes"
tensors none "{$(entry ids U8 2 2)}" '\5\6'
ok "an input that is absent is 0" logits none "$layoutlm" '{"ids":[5,6],"bbox":[[0,0,0,0],[0,0,0,0]]}'
tp-run logits --backend cpu --mesh tp=2,dp=2 --input-tensors own --input-tensors none -o many.safetensors "$layoutlm"
ok "several files are several texts, on several ranks" \
    "$top_builddir/tests/compare-tensors" line.safetensors many.safetensors 1e-6 logits=1.logits

# refuses FILE MODEL MESSAGE NAME
refuses() {
    run tp-run logits --backend cpu --input-tensors "$1" -o o "$2"
    status_is 3 "$4 is refused"
    err_is "tp-run: $1: $3" "$4: which is told"
}
tensors short "{$(entry ids U8 2 2),$(entry bbox U8 1,4 4 2)}" '\5\6\1\2\3\4'
refuses short "$layoutlm" "'bbox' is [1, 4], the model takes [2, 4] i32" "a box for one token of two"
tensors narrow "{$(entry ids U8 2 2),$(entry bbox U8 2,3 6 2)}" '\5\6\1\2\3\4\5\6'
refuses narrow "$layoutlm" "'bbox' is [2, 3] U8, the model takes [tokens, 4] i32" "a box of three numbers"
tensors real "{$(entry ids U8 1 1),$(entry bbox F16 1,4 8 1)}" '\5\0\0\0\0\0\0\0\0'
refuses real "$layoutlm" "'bbox' is [1, 4] F16, the model takes [tokens, 4] i32" "a box of fractions"
tensors beyond "{$(entry ids U8 1 1),$(entry bbox U8 1,4 4 1)}" '\5\1\2\3\11'
refuses beyond "$layoutlm" "'bbox' has 9, which is not below the model's 9" "a box beyond the page"
tensors below "{$(entry ids U8 1 1),$(entry bbox I8 1,4 4 1)}" '\5\377\2\3\4'
refuses below "$layoutlm" "'bbox' has -1, which is no whole number from 0" "a number below 0"
tensors other "{$(entry ids U8 1 1),$(entry pixels U8 1,4 4 1)}" '\5\1\2\3\4'
refuses other "$layoutlm" "family layoutlm has no 'pixels'" "another name"
refuses own "$bard" "family llama has no 'bbox'" "an input of another family"
tensors words "{$(entry ids F32 1 4)}" '\0\0\0\0'
refuses words "$layoutlm" "'ids' is [1] F32, the model takes [ids] i32" "ids that are no whole numbers"
tensors places "{$(entry ids U8 1 1),$(entry positions U8 1 1 1)}" '\5\1'
refuses places "$layoutlm" "family layoutlm has no 'positions'" "what the engine makes"
head -c 60 own > torn
run tp-run logits --backend cpu --input-tensors torn -o o "$layoutlm"
status_is 3 "a truncated file is refused"
err_has "torn: " "which is told"
tensors shape "{$(entry ids U8 2,2 4)}" '\5\5\5\5'
refuses shape "$layoutlm" "'ids' is [2, 2] U8, the model takes [ids] i32" "two texts in one"
run tp-run logits --backend cpu --input-tensors missing -o o "$layoutlm"
status_is 3 "a file that does not exist is refused"
speech=$data/stacks/speech-to-text-odd
tensors frames "{$(entry ids U8 1 1),$(entry features F16 2,10 40 1)}" '\2\0\74\0\74\0\74\0\74\0\74\0\74\0\74\0\74\0\74\0\74\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
ok "features are rows of their own" logits frames "$speech" \
    '{"ids":[2],"features":[[1,1,1,1,1,1,1,1,1,1],[0,0,0,0,0,0,0,0,0,0]]}'
tensors wide "{$(entry ids U8 1 1),$(entry features F16 2,2 8 1)}" '\2\0\0\0\0\0\0\0\0'
refuses wide "$speech" "'features' is [2, 2] F16, the model takes [frames, 10] f32" "features of another width"
done_testing
