# lib/comm - how ranks exchange values
lib_libshardutils_a_SOURCES += \
    %D%/collective.c %D%/collective.h \
    %D%/comm-mpi.c %D%/mpi.h \
    %D%/comm-self.c \
    %D%/comm-shm.c \
    %D%/comm-tcp.c %D%/tcp-address.c %D%/tcp-address.h %D%/tcp-meet.c %D%/tcp-peers.c %D%/tcp-peers.h %D%/tcp.h \
    %D%/comm.c %D%/comm.h \
    %D%/flows.c %D%/flows.h \
    %D%/hello.c %D%/hello.h \
    %D%/meet.c \
    %D%/pairwise.c %D%/pairwise.h \
    %D%/shm.c %D%/shm.h
