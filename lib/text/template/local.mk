# lib/text/template - chat templates: chat (chatfiles), template (parser: lexer nodes expressions statements;
# render: evaluate lookup filters tests methods functions formatting), values (value builder printing sorting
# strings python scratch)
lib_libshardutils_a_SOURCES += \
    %D%/builder.c %D%/builder.h \
    %D%/casing.c %D%/casing.h \
    %D%/chat.c %D%/chat.h \
    %D%/chatfiles.c %D%/chatfiles.h \
    %D%/evaluate.c %D%/evaluate.h \
    %D%/expressions.c \
    %D%/filters.c %D%/filters.h \
    %D%/formatting.c %D%/formatting.h \
    %D%/functions.c \
    %D%/lexer.c %D%/lexer.h \
    %D%/lookup.c %D%/lookup.h \
    %D%/methods.c %D%/methods.h \
    %D%/nodes.c %D%/nodes.h \
    %D%/parser.c %D%/parser.h \
    %D%/parsing.h \
    %D%/printing.c %D%/printing.h \
    %D%/python.c %D%/python.h \
    %D%/render.c %D%/render.h \
    %D%/scratch.c %D%/scratch.h \
    %D%/sorting.c %D%/sorting.h \
    %D%/statements.c \
    %D%/template.c %D%/template.h \
    %D%/tests.c %D%/tests.h \
    %D%/strings.c %D%/strings.h \
    %D%/value.c %D%/value.h
