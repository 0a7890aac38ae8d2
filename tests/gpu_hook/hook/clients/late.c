/* Asks for device memory in an exit handler from before CUDA's beginning, which therefore runs after CUDA's end. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define BYTES (4u << 20)

static void ask_late(void)
{
    CUdeviceptr memory;
    printf("late %d\n", (int)cuMemAlloc(&memory, BYTES));
    fflush(stdout);
}

int main(void)
{
    CUcontext context;
    CUdeviceptr memory;
    atexit(ask_late);
    int code = cuInit(0);
    code = code ? code : cuDevicePrimaryCtxRetain(&context, 0);
    code = code ? code : cuCtxSetCurrent(context);
    code = code ? code : cuMemAlloc(&memory, BYTES);
    printf("held %d\n", code);
    fflush(stdout);
    getchar();
    return 0;
}
