#!/usr/bin/env python3
"""Watch a step of every family that transformers trains on a CPU, and print what mem-estimate foretells beside it.

usage: peak-families.py [--shape=ABCD] [--dtype=bf16|f32] [--table] [NAME...]

Each family's example (lib/model/families) is made wider, to four shapes (words were found at A alone); peak-memory.py watches.  Where PyTorch has no
kernel for a model's attention it is run operation by operation (--flash off).  mem-estimate is the one on PATH.  For each
step there is a line: what the forward pass keeps, the most that there is, and the most in the backward pass alone, each
with the error of the prediction in percent; << marks an error above 3 % (kept) or 5 % (peak).

With --table it prints lines for tests/data/peak-memory.tsv instead.

Needs torch (2.13 was used) and transformers (5.23).
"""
import glob
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("peak_memory", os.path.join(HERE, "peak-memory.py"))
pm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pm)
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")

SHAPES = {
 'A': dict(hidden=192, heads=6, kv=3, head_dim=32, ffn=448, moe=96, vocab=2000, layers=3, batch=2, seq=128, rope=16, window=48),
 'B': dict(hidden=320, heads=5, kv=1, head_dim=64, ffn=896, moe=160, vocab=3000, layers=3, batch=2, seq=160, rope=32, window=64),
 'C': dict(hidden=256, heads=8, kv=2, head_dim=32, ffn=640, moe=128, vocab=2500, layers=3, batch=3, seq=96, rope=16, window=40),
 'D': dict(hidden=384, heads=12, kv=4, head_dim=32, ffn=1024, moe=192, vocab=1500, layers=3, batch=1, seq=192, rope=32, window=80),
}
KEYS = {}
for k in "hidden_size n_embd d_model dim emb_dim embedding_size_".split(): KEYS[k]='hidden'
for k in "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads".split(): KEYS[k]='heads'
for k in "num_key_value_heads num_kv_heads".split(): KEYS[k]='kv'
for k in "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim ffn_hidden_size n_inner dff".split(): KEYS[k]='ffn'
for k in "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size".split(): KEYS[k]='moe'
for k in "vocab_size n_words src_vocab_size tgt_vocab_size".split(): KEYS[k]='vocab'
for k in "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers".split(): KEYS[k]='layers'
for k in "head_dim d_kv".split(): KEYS[k]='head_dim'
for k in "rotary_dim".split(): KEYS[k]='rope'
KEYS['sliding_window']='window'
FIXED = dict(q_lora_rank=64, kv_lora_rank=48, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24, max_position_embeddings=1024, n_positions=1024)

def configs():
    out = {}
    for f in sorted(glob.glob(os.path.join(HERE, '../../lib/model/families/*.json'))):
        j = json.load(open(f)); e = j.get('example')
        if e: out[j['family']] = {k: float(v) if 'softcapping' in k else v for k,v in e.items()}
    return out

def scaled(e, s):
    c = {}
    kveq = any(k in e and e[k]==e.get('num_attention_heads') for k in ('num_key_value_heads','num_kv_heads'))
    for k, v in e.items():
        if k in FIXED: c[k]=FIXED[k]
        elif k in KEYS and isinstance(v,int) and v:
            w = KEYS[k]
            c[k] = s['heads'] if w=='kv' and kveq else s[w]
            if w=='layers' and e['model_type'] in ('gpt_neo',): c[k]=2
            elif w=='layers' and v>3: c[k]=v
        else: c[k]=v
    c.pop('tie_word_embeddings', None)
    c.setdefault('max_position_embeddings', 1024)
    if c['model_type'] in ('deepseek_v2','deepseek_v3'): c['num_key_value_heads']=c['num_attention_heads']
    if c['model_type']=='helium': c['head_dim']=s['hidden']//s['heads']
    if c['model_type']=='longformer': c['attention_window']=[64]*c['num_hidden_layers']
    if c['model_type']=='gpt_neo': c['attention_types']=[[['global','local'],1]]
    if c['model_type'] in ('codegen','gptj'): c['n_head']=8 if s['hidden']==320 else 4; c['rotary_dim']=16
    if c['model_type']=='longt5': c['local_radius']=1023
    if c['model_type']=='xglm': c['attention_heads']=s['heads']
    if c['model_type']=='led': c['attention_window']=256; c['max_encoder_position_embeddings']=1024; c['max_decoder_position_embeddings']=1024
    if c['model_type']=='minimax_m2': c['rotary_dim']=16
    if c['model_type']=='falcon' and s['kv']==1: c.update(new_decoder_architecture=False, multi_query=True); c.pop('num_kv_heads',None); c['bias']=False
    if c['model_type']=='ministral': c['layer_types']=['sliding_attention','full_attention','sliding_attention']; c['rope_parameters']=dict(rope_type='default',rope_theta=10000.0); c['head_dim']=s['head_dim']
    if c['model_type']=='xlm' or c['model_type']=='flaubert': c['causal']=False
    if c['model_type']=='ernie4_5_moe': c['moe_layer_end_index']=2
    return c

T5S = dict(t5='T5ForConditionalGeneration', longt5='LongT5ForConditionalGeneration', umt5='UMT5ForConditionalGeneration')
EAGER = ('deepseek_v2','deepseek_v3')
AUTO = transformers.AutoModelForCausalLM
def make(c, dtype, attention):
    c = dict(c); arch = c.pop('architectures',[None])[0]; mt = c.pop('model_type')
    c.pop('quantization_config', None)
    config = transformers.AutoConfig.for_model(mt, **c)
    for k, v in list(config.to_dict().items()):
        if ('drop' in k or k.endswith('pdrop')) and isinstance(v,float) and v and hasattr(config,k):
            setattr(config,k,0.0)
    for k in ('pad_token_id','eos_token_id','bos_token_id','decoder_start_token_id','forced_eos_token_id'):
        if getattr(config,k,None) is not None and not isinstance(getattr(config,k),(list,tuple)) and getattr(config,k)>=c['vocab_size' if 'vocab_size' in c else 'tgt_vocab_size' if 'tgt_vocab_size' in c else 'n_words']: setattr(config,k,1)
    if not hasattr(config,'decoder_start_token_id') and mt in T5S: config.decoder_start_token_id=0
    config._attn_implementation = attention
    if mt in ('flaubert', 'xlm'): config.use_cache=False
    if mt in T5S: arch = T5S[mt]
    if arch:
        arch = arch if mt == 'visual_bert' else arch.replace('ForPreTraining','ForMaskedLM')
        cls = getattr(transformers, arch)
        if arch=='BertGenerationDecoder': config.is_decoder=True
        model = cls._from_config(config, dtype=dict(f32=torch.float32,bf16=torch.bfloat16)[dtype])
    else:
        model = AUTO.from_config(config, dtype=dict(f32=torch.float32,bf16=torch.bfloat16)[dtype])
    return config, model

def step(config, model, batch, seq):
    model.train()
    vocab = model.get_output_embeddings().weight.shape[0]
    g = torch.Generator().manual_seed(1)
    if getattr(config,'decoder_start_token_id',0) is None: config.decoder_start_token_id=1
    ids = torch.randint(5, vocab-5, (batch, seq), generator=g)
    live = pm.Live(ids.numel()*vocab)
    opts = {}
    if 'use_cache' in inspect.signature(model.forward).parameters: opts['use_cache']=False
    with torch.no_grad():  # what a model makes once and keeps
        model(input_ids=ids, labels=ids, **opts)
    tables = [t for m in model.modules() for t in vars(m).values() if isinstance(t, torch.Tensor)]  # CTRL's positions are no buffer
    for t in [*model.parameters(), *model.buffers(), *tables, ids]: live.add(t,'weights')
    for w in model.parameters():
        if w.requires_grad: w.register_post_accumulate_grad_hook(lambda w: live.is_gradient(w.grad))
    def enter(head, inputs):
        live.phase='loss'
        def leave(g): live.phase='backward'
        if inputs[0].requires_grad: inputs[0].register_hook(leave)
    model.get_output_embeddings().register_forward_pre_hook(enter)
    try:
        with live:
            out = model(input_ids=ids, labels=ids, **opts)
            kept = live.bytes['values']
            out.loss.backward()
    except TypeError:
        raise
    return kept, live.most.get('loss',0), live.most.get('backward',0)

def predict(cfgpath, dtype, batch, seq, attention, extra=()):
    r = subprocess.run(['mem-estimate','train','--eager','--json','--runtime','0','--fragmentation','0','--optimizer','sgd','--master','none',
      '--weights',dtype,'--micro-batch',str(batch),'--seq',str(seq),*(['--flash','off'] if attention=='eager' else []),*extra,cfgpath],capture_output=True,text=True)
    if r.returncode not in (0,1): return None, r.stderr.strip()[:150]
    return json.loads(r.stdout), ''

def save_config(config, model, path):
    d = json.loads(config.to_json_string(use_diff=False))
    d['architectures']=[type(model).__name__]
    json.dump(d, open(path,'w'), indent=1)

def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    options = dict((a[2:] + "=").split("=", 2)[:2] for a in sys.argv[1:] if a.startswith("--"))
    global TABLE  # pylint: disable=global-statement
    TABLE = "table" in options
    torch.nn.functional.dropout = pm.gpu_dropout
    torch.set_num_threads(1)
    for family, example in configs().items():
        if names and family not in names:
            continue
        for shape in options.get("shape", "ABCD"):
            for dtype in options.get("dtype", "bf16 f32").split():
                try:
                    compare(family, example, shape, dtype)
                except Exception as e:  # pylint: disable=broad-except
                    print(family, shape, dtype, "not run:", str(e).split("\n")[0][:100], flush=True)


def compare(family, example, shape, dtype):
    s = SHAPES[shape]
    attention = "eager" if family in EAGER else "sdpa"
    torch.manual_seed(0)
    try:
        config, model = make(scaled(example, s), dtype, attention)
    except ValueError as e:
        if "does not support an attention" not in str(e):
            raise
        attention = "eager"
        config, model = make(scaled(example, s), dtype, attention)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        save_config(config, model, f.name)
        config_text = open(f.name).read()
        kept, loss, back = step(config, model, s["batch"], s["seq"])
        told, why = predict(f.name, dtype, s["batch"], s["seq"], attention)
        if told is None:
            raise RuntimeError(why)
        fused, _ = predict(f.name, dtype, s["batch"], s["seq"], attention, ["--fused-loss"])
    rank, rest = told["ranks"][0], fused["ranks"][0]
    if TABLE:
        options = f"--weights {dtype} --micro-batch {s['batch']} --seq {s['seq']}{' --flash off' if attention == 'eager' else ''} --recompute none"
        print(f"{family}/{shape}", options, kept, loss, back, json.dumps(json.loads(config_text)), sep="\t", flush=True)
        return
    off = [(a / b - 1) * 100 if b else 0 for a, b in [(rank["activations"], kept), (rank["total"] - rank["weights"], max(loss, back)),
                                                      (rest["total"] - rest["weights"], back)]]
    print(f"{family:16} {shape} {dtype:4} {attention:5} kept {kept:9} {off[0]:+6.1f}  peak {max(loss, back):9} {off[1]:+6.1f}  "
          f"backward {back:9} {off[2]:+6.1f}{'  <<' if abs(off[0]) > 3 or abs(off[1]) > 5 else ''}", flush=True)


if __name__ == "__main__":
    main()
