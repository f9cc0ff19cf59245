#!/bin/sh
# bad-families - what is wrong with a family file is said with its line and column
. "${top_srcdir:?}/tests/lib.sh"

# Each pair of lines: members of a family that extends llama, on its second line; and the message
while IFS= read -r members && IFS= read -r message; do
    case $members in
    '"extends"'*) extends= ;;
    *) extends='"extends":"llama",' ;;
    esac
    printf '{"family":"kid",%s"match":{"model_type":["kid"]},\n%s}\n' "$extends" "$members" > kid.json
    run tp-shard families --check kid.json
    # Llama's own lines move with its file
    if [ "$status" -eq 3 ] && [ "$(sed 's/llama.json:[0-9]*:/llama.json:N:/' err)" = "tp-shard: $message" ]; then
        pass "$members"
    else
        fail "$members" "status $status" "$(cat err)" "expected: $message"
    fi
done << 'ROWS'
"symbols":[]
kid.json:2:11: expected an object
"symbols":{"none_such":null}
kid.json:2:24: 'none_such' is deleted but was not there
"symbols":null
llama.json:N:14: 'heads' is no symbol
"carry":{}
kid.json:2:9: expected a list of names
"carry":[1]
kid.json:2:10: expected a name, or an object of "name" and "is"
"names":[]
kid.json:2:9: expected an object
"names":{"":"x"}
kid.json:2:13: expected a part of names
"names":{"model":1}
kid.json:2:18: expected a part of names
"names":{"nowhere":"x"}
kid.json:2:20: no name of a tensor has 'nowhere'
"forward":[]
kid.json:2:11: expected an object of sections
"forward":{"layer":1}
kid.json:2:20: expected a list of lines, or an object that overrides
"forward":{"layer":["h"]}
kid.json:2:21: expected "name = expression"
"forward":{"layer":["h += x"]}
kid.json:2:21: expected "name = expression"
"forward":{"layer":[1]}
kid.json:2:21: expected a line
"forward":{"layer":{"q":1}}
kid.json:2:25: expected a line
"forward":{"layer":{"q":{"line":"x","why":"y"}}}
kid.json:2:43: unknown key 'why' of a line
"forward":{"layer":{"q":{"when":"bias"}}}
kid.json:2:25: no "line"
"forward":{"layer":{"q":{"line":1}}}
kid.json:2:33: expected a line
"forward":{"layer":{"q":{"line":"x","when":1}}}
kid.json:2:44: expected a condition
"forward":{"layer":{"q":{"line":"x","needs":1}}}
kid.json:2:45: expected the name of a tensor
"forward":{"layer":{"q":{"line":"x","lacks":1}}}
kid.json:2:45: expected the name of a tensor
"forward":{"layer":{"q":[]}}
kid.json:2:25: expected lines
"forward":{"layer":{"q":[{"line":"x","after":"k"}]}}
kid.json:2:26: a line of a choice has no 'after'
"forward":{"layer":{"q":[{"line":"x","other":"k"}]}}
kid.json:2:46: unknown key 'other' of a line
"forward":{"layer":{"none":"x"}}
kid.json:2:28: section 'layer' has no line 'none'
"forward":{"layer":{"none":null}}
kid.json:2:28: section 'layer' has no line 'none'
"forward":{"layer":{"more":{"line":"x","after":"none"}}}
kid.json:2:48: section 'layer' has no line 'none'
"forward":{"layer":{"more":{"line":"x","after":1}}}
kid.json:2:48: section 'layer' has no line 'more'
"forward":{"layer":{"more":{"after":"q"}}}
kid.json:2:28: no "line"
"tensors":{"bo":["model.layers.{layer}.self_attn.o_proj.bias"]}
llama.json:N:40: expected a tensor of 1 axes, 'bo' has 0
"forward":{"nowhere":{"q":"x"}}
kid.json:2:22: there is no section 'nowhere' to override
"forward":{"layer":{"q":"2q"}}
kid.json:2:27: expected an operator or the end
"forward":{"layer":["2q = x"]}
llama.json:N:18: no line reads 'attn_norm'
"forward":{"layer":[{"line":"h = x","when":1}]}
kid.json:2:44: expected a condition
"unknown":1
kid.json:2:11: unknown key 'unknown'
"extends":1
kid.json:2:11: extends a family that is not known
"extends":"none"
kid.json:2:11: extends a family that is not known
"example":1
kid.json:2:11: "example" is a configuration
"tensors":{"wq":1}
kid.json:2:17: expected [name, axis, ...]
"tensors":{"wq":[]}
kid.json:2:17: expected [name, axis, ...]
"tensors":{"wq":["a","heads","2q:hidden"]}
kid.json:2:32: expected '*', '+' or the end
"tensors":{"wq":["a","q:heads*head_dim + q:heads","hidden"]}
kid.json:2:23: the segments need different names
"tensors":{"wq":["a","averyveryveryverylongnameofasegment:heads","hidden"]}
kid.json:2:23: the segment's name is too long
"tensors":{"wq":["a","heads.inner(0)*head_dim","hidden"]}
kid.json:2:28: expected .outer(N) or .inner(N) with a divisor N
"tensors":{"wq":["a","heads.outer(3)*head_dim","hidden"]}
kid.json:2:23: a symbol sharded in groups has no outer digit
"tensors":{"wq":["a","heads.outer(x)*head_dim","hidden"]}
kid.json:2:28: expected .outer(N) or .inner(N) with a divisor N
"tensors":{"wq":["a","heads.outer(2*head_dim","hidden"]}
kid.json:2:28: expected .outer(N) or .inner(N) with a divisor N
"tensors":{"wq":["a","heads.middle(2)*head_dim","hidden"]}
kid.json:2:28: expected .outer(N) or .inner(N)
"tensors":{"wq":["a","0","hidden"]}
kid.json:2:23: a factor must be at least 1
"tensors":{"wq":["a","999999999999999999999","hidden"]}
kid.json:2:23: a factor must be at least 1
"tensors":{"wq":["a","281474976710656*281474976710656","hidden"]}
kid.json:2:39: the size overflows
"tensors":{"wq":["a","281474976710656*(heads + 281474976710656)","hidden"]}
kid.json:2:39: the size overflows
"tensors":{"wq":["a","(heads","hidden"]}
kid.json:2:29: expected ')'
"tensors":{"wq":["a","heads)","hidden"]}
kid.json:2:28: expected '*', '+' or the end
"tensors":{"wq":["a","nosuch","hidden"]}
kid.json:2:23: 'nosuch' is no symbol with a whole value
"tensors":{"wq":["a","(heads + 1)*(hidden + 1)","hidden"]}
kid.json:2:35: one product holds two sums
"tensors":{"wq":["a","2*2*2*2*2*2*2*2*2*2*2*2","hidden"]}
kid.json:2:39: too many factors
"tensors":{"wq":["a","a:1+b:1+c:1+d:1+e:1+f:1+g:1+h:1+i:1+j:1+k:1+l:1+m:1+n:1+o:1+p:1+q:1+r:1","hidden"]}
llama.json:N:33: the bias: a:1 + b:1 + c:1 + d:1 + e:1 + f:1 + g:1 + h:1 + i:1 + j:1 + k:1 + l:1 + m:1 + n:1 + o:1 + p:1 + q:1 + r:1 and kv_heads*group*head_dim differ
"symbols":{"extra":"hidden_size.x"},"forward":{"layer":{"q":"rope(linear(h, wq), rot, scale=extra)"}}
kid.json:2:33: only an object has keys
"symbols":{"extra":"model_type."}
kid.json:2:32: expected a key after '.'
"symbols":{"extra":"max(1)"}
kid.json:2:21: wrong number of arguments
"symbols":{"extra":"nosuch(1)"}
kid.json:2:21: no function of that name (min max sqrt pow floor ceil log len ends given)
"symbols":{"extra":"(1"}
kid.json:2:23: expected ')'
"symbols":{"extra":"'a"}
kid.json:2:21: the word has no closing quote
"symbols":{"extra":"1 if"}
kid.json:2:23: expected an operator or the end
"symbols":{"extra":"1 ? 2"}
kid.json:2:26: expected ':'
"symbols":{"extra":"1 2"}
kid.json:2:23: expected an operator or the end
"symbols":{"extra":[1]}
kid.json:2:20: expected an expression
"config":1
kid.json:2:10: expected an object
"part_config":1
kid.json:2:15: expected an object
"deal":{"heads":1}
kid.json:2:17: a deal must be an object
"deal":{"nosuch":{}}
kid.json:2:18: "over" must name tp, sp, ep, dp or pp
"rope":{"rot":1}
kid: the rotary scaling lacks 'dim'
"captures":{"layer":"nosuch"}
kid.json:2:22: 'nosuch' is no symbol
"torch":1
kid.json:2:9: expected an object
"forward":{"layer":{"q":"layernorm(h)"}}
kid.json:2:26: 'layernorm' takes 2 to 4 arguments, not 1
"forward":{"layer":{"q":"linear(h, wq"}}
kid.json:2:38: expected ',' or ')'
"forward":{"layer":{"q":"linear(h wq)"}}
kid.json:2:35: expected ',' or ')'
"forward":{"layer":{"q":"linear(h, , wq)"}}
kid.json:2:36: expected a name, a number or '('
"forward":{"layer":{"q":"linear()"}}
kid.json:2:26: 'linear' takes 2 arguments, not 0
"forward":{"layer":{"q":"linear(h, wq) - bq"}}
kid.json:2:40: expected an operator or the end
"forward":{"layer":{"q":"(linear(h, wq)"}}
kid.json:2:40: expected ')'
"forward":{"layer":{"q":"(+)"}}
kid.json:2:27: expected a name, a number or '('
"forward":{"layer":{"q":"linear(h, wq).2"}}
kid.json:2:40: no segment is called '2'
"forward":{"layer":{"q":"linear(h, wq, 2 = 3)"}}
kid.json:2:42: expected ',' or ')'
"forward":{"layer":{"q":"linear(h, wq, a == 3)"}}
kid.json:2:42: expected ',' or ')'
"forward":{"layer":{"q":"linear(h, wq, a = [1)"}}
kid.json:2:47: expected ',' or ')'
"forward":{"layer":{"q":"nosuch(h)"}}
kid.json:2:26: no operation is called 'nosuch'
"forward":{"layer":{"q":"experts"}}
kid.json:2:26: 'experts' is no value, tensor or symbol here
"forward":{"layer":{"q":"experts("}}
kid.json:2:34: expected a name, a number or '('
"forward":{"layer":{"q":"experts(, e = h : h)"}}
kid.json:2:34: expected a name, a number or '('
"forward":{"layer":{"q":"experts(h)"}}
kid.json:2:35: expected ','
"forward":{"layer":{"q":"experts(h, 2 = h : h)"}}
kid.json:2:37: expected 'name = rows : line'
"forward":{"layer":{"q":"experts(h, e : h)"}}
kid.json:2:39: expected 'name = rows : line'
"forward":{"layer":{"q":"experts(h, e = : h)"}}
kid.json:2:41: expected a name, a number or '('
"forward":{"layer":{"q":"experts(h, e = h)"}}
kid.json:2:42: expected ',' or ':'
"forward":{"layer":{"q":"experts(h, e = h : )"}}
kid.json:2:45: expected a name, a number or '('
"forward":{"layer":{"q":"experts(h, e = h : h"}}
kid.json:2:46: expected ')'
"forward":{"layer":{"q":"experts(h, e = h, 2 = h : h)"}}
kid.json:2:44: expected 'name = expression'
"forward":{"layer":{"q":"experts(h, e = h, a : h)"}}
kid.json:2:46: expected 'name = expression'
"forward":{"layer":{"q":"experts(h, e = h; a = : h)"}}
kid.json:2:42: expected ',' or ':'
"forward":{"layer":{"q":"experts(h, e = h : h)"}}
kid.json:2:26: the family has no capture for experts
"forward":{"layer":{"q":"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((h"}}
kid.json:2:90: nested too deeply
ROWS

# a whole file
whole() {
    printf '%s\n' "$1" > whole.json
    run tp-shard families --check whole.json
    status_is 3 "refused: $1"
    err_is "tp-shard: $2" "with its place"
}
whole '[]' "whole.json:1:1: no \"family\" name"
whole '{"family": 1}' "whole.json:1:1: no \"family\" name"
whole '{"family": "kid", "family": "kid"}' "whole.json:1:29: duplicate key \"family\""
whole '{"family": "kid"' "whole.json:2:1: unexpected end"
whole '{"family": "kid", "extends": "kid"}' "whole.json:1:30: extends a family that is not known"

# the family path: a directory, a file, what is bad, and what is not there
mkdir place
printf '{"family":"one","extends":"llama","match":{"model_type":["one"]}}' > place/one.json
printf '{"family":"one","extends":"llama","match":{"model_type":["one"]},"summary":"the second"}' > two.json
printf '{"family":"self","extends":"self"}' > place/self.json
printf 'no JSON' > place/notes.txt
printf 'no JSON' > place/bad.json
run env SHARDUTILS_FAMILY_PATH=:place:two.json: tp-shard families one
status_is 0 "families are found in the directories and files of SHARDUTILS_FAMILY_PATH"
out_has '"family": "one"' "by name"
ok "and the first of a name counts" sh -c '! grep -q "the second" out'
err_lines 1 "a file that is none is passed over with one line"
err_has "place/bad.json:1:1:" "that has its place"
run env SHARDUTILS_FAMILY_PATH=place tp-shard families self
status_is 3 "a family that extends itself is refused"
err_has "place/self.json: extends itself, or more than 8 families deep" "by its file"
run env SHARDUTILS_FAMILY_PATH=nowhere tp-shard families llama
status_is 0 "a place that is not there stops nothing"
err_has "nowhere: No such file or directory" "and is named"

# what a config.json is matched by
model() {
    rm -rf m
    mkdir m
    printf '%s\n' "$1" > m/config.json
}
printf '{"family":"when","extends":"llama","match":{"model_type":["one"],"when":%s}}' 1 > when.json
model '{"model_type":"one"}'
run env SHARDUTILS_FAMILY_PATH=when.json mem-estimate infer m
status_is 3 "a condition that is none is refused"
err_is "mem-estimate: when.json:1:73: expected a condition" "with its place"
printf '{"family":"when","extends":"llama","match":{"model_type":["one"],"when":%s}}' '"given(a) and (b"' > when.json
run env SHARDUTILS_FAMILY_PATH=when.json mem-estimate infer m
status_is 3 "and so is one that cannot be read"
err_has "when.json:1:" "with its place"
model '{"model_type":1}'
run mem-estimate infer m
status_is 3 "a model_type that is no name is refused"
err_is "mem-estimate: m/config.json: no \"model_type\"; choose a family with --family" "in words"
done_testing
