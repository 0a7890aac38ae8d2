/* A program in which the environment must not change: it has these functions in place of the C
 * library's. Each time that the driver reads CUDA_VISIBLE_DEVICES, a child that another thread
 * started now would find its grant. `environment BYTES`: there is no memory for a text of so
 * many. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void *__libc_malloc(size_t bytes);

static size_t refused; /* bytes; 0: none */

void *malloc(size_t bytes)
{
    return refused && bytes == refused ? NULL : __libc_malloc(bytes);
}

static char *find(const char *name)
{
    size_t length = strlen(name);
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

char *getenv(const char *name)
{
    if (strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 && !find("ALIQUOT_VISIBLE_DEVICES"))
        refuse("getenv without a grant");
    return find(name);
}

int main(int arguments, char **texts)
{
    refused = arguments > 1 ? strtoul(texts[1], NULL, 10) : 0;
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
