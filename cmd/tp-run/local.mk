# tp-run
bin_PROGRAMS += bin/tp-run
bin_tp_run_SOURCES = \
    %D%/answers.c %D%/answers.h \
    %D%/asked.c %D%/asked.h \
    %D%/bench.c %D%/benchcomm.c %D%/benchcomm.h \
    %D%/chat.c \
    %D%/chatfile.c %D%/chatfile.h \
    %D%/classify.c \
    %D%/commands.h \
    %D%/conversation.c %D%/conversation.h \
    %D%/detokenize.c \
    %D%/devices.c \
    %D%/drafting.c %D%/drafting.h \
    %D%/embed.c \
    %D%/endpoints.c %D%/endpoints.h \
    %D%/generate.c \
    %D%/grammars.c %D%/grammars.h \
    %D%/inputs.c %D%/inputs.h \
    %D%/inputlines.c \
    %D%/jobs.c %D%/jobs.h \
    %D%/launcher.c %D%/launcher.h \
    %D%/lineedit.c %D%/lineedit.h \
    %D%/load.c \
    %D%/logits.c \
    %D%/main.c \
    %D%/messages.c %D%/messages.h \
    %D%/named.c %D%/named.h \
    %D%/outputs.c %D%/outputs.h \
    %D%/pooled.c %D%/pooled.h \
    %D%/page.c %D%/page.h \
    %D%/plot.c \
    %D%/pooling.c %D%/pooling.h \
    %D%/program.c \
    %D%/sampling.c %D%/sampling.h \
    %D%/references.c %D%/references.h \
    %D%/score.c \
    %D%/serve.c \
    %D%/session.c %D%/session.h \
    %D%/tokenprint.c %D%/tokenprint.h \
    %D%/tokens.c \
    %D%/train.c %D%/train.h \
    %D%/traindir.c \
    %D%/trainexport.c \
    %D%/trainfrom.c \
    %D%/trainlog.c \
    %D%/trainloss.c \
    %D%/trainmix.c \
    %D%/trainrank.c \
    %D%/trainshow.c \
    %D%/trainsteps.c \
    %D%/traintime.c
bin_tp_run_LDADD = $(program_libs) $(MPI_LIBS) $(LIBEDIT_LIBS) $(MICROHTTPD_LIBS)
