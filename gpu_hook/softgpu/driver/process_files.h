/* Files without a name that another process of the machine holds. */
#ifndef SOFTGPU_PROCESS_FILES_H
#define SOFTGPU_PROCESS_FILES_H

#include <stdint.h>

/* Opens the file that the process that joined with this number has under `descriptor`. A new
 * descriptor, or -1 when the process is gone or access is denied. */
int process_file_open(uint64_t joined, int descriptor);

#endif
