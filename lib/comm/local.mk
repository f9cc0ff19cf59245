# lib/comm - how ranks exchange values
lib_libshardutils_a_SOURCES += \
    %D%/comm-mpi.c %D%/mpi.h \
    %D%/comm-self.c \
    %D%/comm-shm.c \
    %D%/comm.h
