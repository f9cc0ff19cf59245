/* library - loads NVIDIA's libraries at run time, if they are installed */
#ifndef LIB_GPU_LIBRARY_H
#define LIB_GPU_LIBRARY_H

/* Opens the first of NAMES (NULL-terminated) that is found on the dynamic loader's path
 * or in the CUDA directory of the build; NULL if none is.  Release with dlclose. */
void *library_open(const char *const *names);

#endif
