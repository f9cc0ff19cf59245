/* npy - an array of floats as a file of NumPy */
#include "lib/ckpt/npy.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

bool npy_is(const char *path)
{
    return path && str_ends(path, ".npy");
}

/* Format 1.0: magic, length of the header, a header padded to a multiple of 64 bytes,
 * rows. */
int npy_write(const char *path, const uint64_t shape[2], const float *x,
              struct err *err)
{
    size_t size = (size_t)(shape[0] * shape[1]) * sizeof(*x);
    char *head =
        str_dupf("{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %llu), }",
                 (unsigned long long)shape[0], (unsigned long long)shape[1]);
    size_t len = strlen(head), all = (10 + len + 1 + 63) / 64 * 64;
    char *bytes = mem_alloc(all + size, path, err);
    int ret = -1;

    if (bytes) {
        memset(bytes, ' ', all);
        memcpy(bytes, "\x93NUMPY\x01", 8); /* followed by the minor version, 0 */
        bytes[8] = (char)((all - 10) & 255);
        bytes[9] = (char)((all - 10) >> 8);
        memcpy(bytes + 10, head, len);
        bytes[all - 1] = '\n';
        memcpy(bytes + all, x, size);
        ret = output_write(path, bytes, all + size, false, err);
    }
    free(bytes);
    free(head);
    return ret;
}
