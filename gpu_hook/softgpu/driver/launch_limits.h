/* The limits of a launch on every device; the attribute table shows the same numbers. */
#ifndef SOFTGPU_LAUNCH_LIMITS_H
#define SOFTGPU_LAUNCH_LIMITS_H

#define LIMIT_BLOCK_THREADS 1024
#define LIMIT_BLOCK_X 1024
#define LIMIT_BLOCK_Y 1024
#define LIMIT_BLOCK_Z 64
#define LIMIT_GRID_X 2147483647
#define LIMIT_GRID_Y 65535
#define LIMIT_GRID_Z 65535
#define LIMIT_SHARED_BYTES 49152
#define LIMIT_SHARED_BYTES_OPTIN 101376
#define LIMIT_SHARED_BYTES_SM 102400
#define LIMIT_SHARED_BYTES_RESERVED 1024
#define LIMIT_SM_THREADS 1536
#define LIMIT_SM_BLOCKS 16
#define LIMIT_REGISTERS 32 /* of a thread; code is not compiled, so all are taken to be small */

#endif
