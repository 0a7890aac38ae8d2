/* Files without a name that another process of the machine holds. */
#ifndef SOFTGPU_PROCESS_FILES_H
#define SOFTGPU_PROCESS_FILES_H

#include <stdint.h>

/* A descriptor of this process for one of that whose joining it was; -1 when it is gone, or may not be had. */
int process_file_open(uint64_t joined, int descriptor);

#endif
