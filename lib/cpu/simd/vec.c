/* vec - the newest loops that are used */
#include "lib/cpu/simd/vec.h"

enum cpu_loops cpu_newest = CPU_VNNI;
