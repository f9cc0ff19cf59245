# from a Hugging Face directory through ranks and stages, verified, to text:
#   make -f text.mk MODEL=bard TP=2 PP=2 PROMPT='ROMEO:'
MODEL = bard
TP = 2
PP = 2
PROMPT = ROMEO:
RUN = mpirun --oversubscribe -n $$(($(TP) * $(PP)))

text: $(MODEL).tp$(TP)pp$(PP).ok
	$(RUN) tp-run generate --prompt '$(PROMPT)' --max-tokens 12 $(MODEL).tp$(TP)pp$(PP) > $@.tmp
	mv $@.tmp $@

$(MODEL).tp$(TP)pp$(PP).ok: $(MODEL).tp$(TP)pp$(PP)
	tp-shard verify -q $<
	touch $@

$(MODEL).tp$(TP)pp$(PP): $(MODEL).tp$(TP)
	pp-partition split -q --pp $(PP) --balance params $< $@

$(MODEL).tp$(TP): $(MODEL)
	tp-shard split -q --tp $(TP) $< $@
