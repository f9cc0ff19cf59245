# lib/model - families, shapes, cuts and programs
lib_libshardutils_a_SOURCES += \
    %D%/arena.c \
    %D%/audit.c %D%/audit.h \
    %D%/axis.c %D%/axis.h \
    %D%/backend.h \
    %D%/bind.c %D%/bind.h \
    %D%/border.c %D%/border.h \
    %D%/build.c %D%/build.h \
    %D%/checkpoint.c %D%/checkpoint.h \
    %D%/convert.c %D%/convert.h \
    %D%/check.c %D%/check.h \
    %D%/cut.c %D%/cut.h \
    %D%/deal.c %D%/deal.h \
    %D%/compare.c %D%/compare.h \
    %D%/eval.c \
    %D%/export.c %D%/export.h \
    %D%/expr.c %D%/expr.h \
    %D%/family.c %D%/family.h \
    %D%/heads.c \
    %D%/line.c %D%/line.h \
    %D%/mesh.c %D%/mesh.h \
    %D%/mixture.c \
    %D%/model.c %D%/model.h \
    %D%/outline.c %D%/outline.h \
    %D%/program.c %D%/program.h \
    %D%/quant.c %D%/quant.h \
    %D%/rotary.c %D%/rotary.h \
    %D%/rules.c \
    %D%/shard.c \
    %D%/state.h \
    %D%/target.c %D%/target.h
nodist_lib_libshardutils_a_SOURCES = %D%/builtins.c

family_files = \
    %D%/families/bert.json \
    %D%/families/bloom.json \
    %D%/families/codegen.json \
    %D%/families/cohere.json \
    %D%/families/deepseek.json \
    %D%/families/deepseek_v2.json \
    %D%/families/deepseek_v3.json \
    %D%/families/falcon.json \
    %D%/families/gemma.json \
    %D%/families/gemma2.json \
    %D%/families/gemma3.json \
    %D%/families/gpt2.json \
    %D%/families/gpt_bigcode.json \
    %D%/families/gpt_neox.json \
    %D%/families/gpt_oss.json \
    %D%/families/gptj.json \
    %D%/families/internlm2.json \
    %D%/families/llama.json \
    %D%/families/mistral.json \
    %D%/families/mixtral.json \
    %D%/families/mpt.json \
    %D%/families/olmo.json \
    %D%/families/olmo2.json \
    %D%/families/olmoe.json \
    %D%/families/opt.json \
    %D%/families/phi.json \
    %D%/families/phi3.json \
    %D%/families/qwen2.json \
    %D%/families/qwen2_moe.json \
    %D%/families/qwen3.json \
    %D%/families/qwen3_moe.json \
    %D%/families/roberta.json \
    %D%/families/starcoder2.json \
    %D%/families/t5.json
EXTRA_DIST += $(family_files)
CLEANFILES += %D%/builtins.c
%D%/builtins.c: $(family_files) $(top_srcdir)/build-aux/bundle-families
	$(AM_V_GEN)mkdir -p $(@D) && \
	files= && for f in $(family_files); do \
	    if test -f $$f; then files="$$files $$f"; else files="$$files $(srcdir)/$$f"; fi; done && \
	sh $(top_srcdir)/build-aux/bundle-families $$files > $@.tmp && mv $@.tmp $@
