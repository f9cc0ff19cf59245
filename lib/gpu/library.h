/* library - NVIDIA's libraries, which are loaded when they are there */
#ifndef LIB_GPU_LIBRARY_H
#define LIB_GPU_LIBRARY_H

/* The first of NAMES, which ends with NULL, that is found: where the dynamic loader
 * looks, or where CUDA was when this was built; or NULL.  Release with dlclose. */
void *library_open(const char *const *names);

#endif
