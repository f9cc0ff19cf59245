# lib/text/grammar - what a text may be: grammar (terms; regex, jsonschema and numbers make them), and the tokens
# that may follow (vocabulary)
lib_libshardutils_a_SOURCES += \
    %D%/grammar.c %D%/grammar.h \
    %D%/jsonschema.c %D%/jsonschema.h \
    %D%/numbers.c %D%/numbers.h \
    %D%/regex.c %D%/regex.h \
    %D%/terms.c %D%/terms.h \
    %D%/vocabulary.c %D%/vocabulary.h
