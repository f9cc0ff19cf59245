# best.mk - best.txt holds the best trial of a sweep; make goes on where it was stopped
MODEL = bard

best.txt: window.yaml require
	hpo-sweep run window.yaml --sampler grid --require require --metric-key perplexity \
	    -- tp-run score --json --window '{window}' --threads '{threads}' $(MODEL)/heldout.txt $(MODEL)
	hpo-sweep best -S window.db > $@
