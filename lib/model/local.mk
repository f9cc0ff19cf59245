# lib/model - families, shapes and how they are sharded
lib_libshardutils_a_SOURCES += \
    %D%/frozen.c %D%/frozen.h \
    %D%/axis.c %D%/axis.h \
    %D%/bind.c %D%/bind.h \
    %D%/deal.c %D%/deal.h \
    %D%/decay.c %D%/decay.h \
    %D%/expr.c %D%/expr.h \
    %D%/family.c %D%/family.h \
    %D%/feed.c %D%/feed.h \
    %D%/keys.c %D%/keys.h \
    %D%/mesh.c %D%/mesh.h \
    %D%/model.c %D%/model.h \
    %D%/names.c %D%/names.h \
    %D%/option.c %D%/option.h \
    %D%/module-order.c %D%/module-order.h \
    %D%/packing.c \
    %D%/partconfig.c %D%/partconfig.h \
    %D%/quant.c %D%/quant.h \
    %D%/shard.c \
    %D%/state.h \
    %D%/stated.c %D%/stated.h
nodist_lib_libshardutils_a_SOURCES = %D%/builtins.c

family_files = \
    %D%/families/albert.json \
    %D%/families/apertus.json \
    %D%/families/arcee.json \
    %D%/families/bamba.json \
    %D%/families/bart.json \
    %D%/families/bert.json \
    %D%/families/bert_generation.json \
    %D%/families/big_bird.json \
    %D%/families/bigbird_pegasus.json \
    %D%/families/biogpt.json \
    %D%/families/blenderbot.json \
    %D%/families/blenderbot_small.json \
    %D%/families/bloom.json \
    %D%/families/codegen.json \
    %D%/families/cohere.json \
    %D%/families/cohere2.json \
    %D%/families/convbert.json \
    %D%/families/ctrl.json \
    %D%/families/cwm.json \
    %D%/families/deberta.json \
    %D%/families/deberta_v2.json \
    %D%/families/deepseek.json \
    %D%/families/deepseek_v2.json \
    %D%/families/deepseek_v3.json \
    %D%/families/distilbert.json \
    %D%/families/dots1.json \
    %D%/families/dpr.json \
    %D%/families/electra.json \
    %D%/families/ernie4_5.json \
    %D%/families/ernie4_5_moe.json \
    %D%/families/exaone4.json \
    %D%/families/falcon.json \
    %D%/families/falcon_h1.json \
    %D%/families/falcon_mamba.json \
    %D%/families/flaubert.json \
    %D%/families/fsmt.json \
    %D%/families/funnel.json \
    %D%/families/gemma.json \
    %D%/families/gemma2.json \
    %D%/families/gemma3.json \
    %D%/families/glm.json \
    %D%/families/glm4.json \
    %D%/families/glm4_moe.json \
    %D%/families/gpt2.json \
    %D%/families/gpt_bigcode.json \
    %D%/families/gpt_neo.json \
    %D%/families/gpt_neox.json \
    %D%/families/gpt_oss.json \
    %D%/families/gptj.json \
    %D%/families/granite.json \
    %D%/families/granitemoe.json \
    %D%/families/granitemoehybrid.json \
    %D%/families/helium.json \
    %D%/families/hunyuan_v1_dense.json \
    %D%/families/hunyuan_v1_moe.json \
    %D%/families/ibert.json \
    %D%/families/internlm2.json \
    %D%/families/internlm3.json \
    %D%/families/iquestcoder.json \
    %D%/families/jamba.json \
    %D%/families/kimi_linear.json \
    %D%/families/layoutlm.json \
    %D%/families/led.json \
    %D%/families/lfm2.json \
    %D%/families/lfm2_moe.json \
    %D%/families/llama.json \
    %D%/families/llama4.json \
    %D%/families/llama4_text.json \
    %D%/families/llava.json \
    %D%/families/longformer.json \
    %D%/families/longt5.json \
    %D%/families/longt5_encoder.json \
    %D%/families/luke.json \
    %D%/families/m2m_100.json \
    %D%/families/mamba.json \
    %D%/families/mamba2.json \
    %D%/families/marian.json \
    %D%/families/mbart.json \
    %D%/families/megatron_bert.json \
    %D%/families/minimax.json \
    %D%/families/minimax_m2.json \
    %D%/families/ministral.json \
    %D%/families/ministral3.json \
    %D%/families/mistral.json \
    %D%/families/mixtral.json \
    %D%/families/mobilebert.json \
    %D%/families/modernbert.json \
    %D%/families/mpnet.json \
    %D%/families/mpt.json \
    %D%/families/nemotron.json \
    %D%/families/nemotron_h.json \
    %D%/families/nomic_bert.json \
    %D%/families/olmo.json \
    %D%/families/olmo2.json \
    %D%/families/olmo3.json \
    %D%/families/olmoe.json \
    %D%/families/openai_gpt.json \
    %D%/families/opt.json \
    %D%/families/pegasus.json \
    %D%/families/persimmon.json \
    %D%/families/phi.json \
    %D%/families/phi3.json \
    %D%/families/phimoe.json \
    %D%/families/plbart.json \
    %D%/families/prophetnet.json \
    %D%/families/qwen2.json \
    %D%/families/qwen2_moe.json \
    %D%/families/qwen2_vl.json \
    %D%/families/qwen3.json \
    %D%/families/qwen3_5.json \
    %D%/families/qwen3_5_moe.json \
    %D%/families/qwen3_moe.json \
    %D%/families/qwen3_next.json \
    %D%/families/qwen3_vl.json \
    %D%/families/recurrent_gemma.json \
    %D%/families/roberta.json \
    %D%/families/roformer.json \
    %D%/families/seed_oss.json \
    %D%/families/smollm3.json \
    %D%/families/speech_to_text.json \
    %D%/families/squeezebert.json \
    %D%/families/stablelm.json \
    %D%/families/starcoder2.json \
    %D%/families/t5.json \
    %D%/families/t5_encoder.json \
    %D%/families/tapas.json \
    %D%/families/umt5.json \
    %D%/families/visual_bert.json \
    %D%/families/xglm.json \
    %D%/families/xlm.json \
    %D%/families/xlnet.json
EXTRA_DIST += $(family_files)
CLEANFILES += %D%/builtins.c
%D%/builtins.c: $(family_files) $(top_srcdir)/build-aux/bundle-families
	$(AM_V_GEN)mkdir -p $(@D) && \
	files= && for f in $(family_files); do \
	    if test -f $$f; then files="$$files $$f"; else files="$$files $(srcdir)/$$f"; fi; done && \
	sh $(top_srcdir)/build-aux/bundle-families $$files > $@.tmp && mv $@.tmp $@
