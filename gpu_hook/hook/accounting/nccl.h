/* Tells calls that come from NCCL. Its buffers are used by proxies of other processes, by other
 * devices and by network cards, which no gate of ours stops: a process with a communicator stays on
 * its devices. */
#ifndef ALIQUOT_NCCL_H
#define ALIQUOT_NCCL_H

#include <stdbool.h>

/* `return_address`: of the entry point. True: the caller lies in the library that has the public
 * functions of NCCL, under whatever name it was loaded. */
bool nccl_calls(const void *return_address);

#endif
