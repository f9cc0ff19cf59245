# lib/serve - a web server of answers
lib_libshardutils_a_SOURCES += \
    %D%/accesslog.c %D%/accesslog.h \
    %D%/apikeys.c %D%/apikeys.h \
    %D%/address.c %D%/address.h \
    %D%/answer.c %D%/answer.h \
    %D%/client.c %D%/client.h \
    %D%/http.c %D%/http.h \
    %D%/metrics.c %D%/metrics.h \
    %D%/openai.c %D%/openai.h \
    %D%/queue.c %D%/queue.h \
    %D%/responses.c %D%/responses.h \
    %D%/said.c %D%/said.h \
    %D%/sse.c %D%/sse.h \
    %D%/vectors.c %D%/vectors.h
