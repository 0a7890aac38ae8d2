/* A program that is linked with the driver, as PyCUDA and -lcuda programs are. Prints as client.c does. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);

int main(void)
{
    void *context;
    uint64_t pointer;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) {
        puts("could not begin");
        return 1;
    }
    int code = cuMemAlloc_v2(&pointer, (size_t)100 << 20);
    puts(code == 2 ? "intercepted" : code == 0 ? "missed" : "wrong");
    return 0;
}
