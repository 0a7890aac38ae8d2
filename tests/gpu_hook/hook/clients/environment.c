/* A program in which nobody may change the environment: it has these functions in place of the C library's. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static int refuse(const char *function)
{
    fprintf(stderr, "%s was called\n", function);
    abort();
}

int setenv(const char *name, const char *value, int replaces)
{
    return refuse("setenv");
}

int unsetenv(const char *name)
{
    return refuse("unsetenv");
}

int putenv(char *text)
{
    return refuse("putenv");
}

int main(void)
{
    int count = 0, code = cuInit(0);
    CUuuid uuid;
    code = code ? code : cuDeviceGetCount(&count);
    printf("%d", code);
    for (int device = 0; device < count && cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS; device++) {
        putchar(' ');
        for (int i = 0; i < 16; i++)
            printf("%02x", (unsigned char)uuid.bytes[i]);
    }
    const char *now = getenv("CUDA_VISIBLE_DEVICES"), *grant = getenv("ALIQUOT_VISIBLE_DEVICES");
    printf("\n%s\n%s\n", now ? now : "deleted", grant ? grant : "deleted");
    return 0;
}
